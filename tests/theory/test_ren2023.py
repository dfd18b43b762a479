"""Theory of ren2023: identities against autodiff, constants against samples, stages on curves that are made up."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from close import close
from unlazy._errors import UserError
from unlazy.data import Dataset
from unlazy.flows import Descent, RungeKutta, velocity
from unlazy.losses import Squared
from unlazy.networks import Constant, MeanFieldStack, Normal, Sphere, Tied, split_trained
from unlazy.networks.limits import sphere_mean
from unlazy.papers.ren2023 import theorems as ren
from unlazy.papers.ren2023.data import spherical
from unlazy.papers.ren2023.probes import ClipActivity, FirstLayer, LossDecomposition, SecondLayer, slope
from unlazy.papers.ren2023.radial import radial_cdf
from unlazy.probes import TrainLoss
from unlazy.theory import Verdict

D = 4
KEY = jax.random.key(11)


def learner(widths=(7, 5), *, mean=-0.6, spread=0.1, bias=0.5, clip=None, train=("w", "wb"), key=KEY):
    return MeanFieldStack(
        widths, D, ranks=1, train=train, features=(Sphere(0.9), Normal(spread, mean=mean)),
        bias=(False, Constant(bias)), amplitude=(Tied(), Constant(1.0)), clip=clip, key=key,
    )  # fmt: skip


@pytest.fixture(scope="module")
def data():
    return spherical(40, D, tail=0.2, key=jax.random.key(2))


def moving(network, data, look):
    """How fast something that can be seen of the network changes along the flow, by autodiff."""
    trained, frozen = split_trained(network)
    speed = velocity(trained, frozen, data, Squared())
    return jax.jvp(lambda leaves: look(eqx.combine(leaves, frozen)), (trained,), (speed,))[1]


# ---------------------------------------------------------------- identities


def test_speed_of_alpha_is_lemma_d_3(data):
    network = learner()
    close(ren.alpha_speed(network, data), moving(network, data, slope), rel=1e-9)


def test_speed_of_the_first_layer_is_lemma_d_4(data):
    network, x = learner(), jax.random.normal(jax.random.key(3), (6, D))
    wanted = moving(network, data, lambda n: n.channels(x)[0][:, 0])
    close(ren.value_speed(network, data, x), wanted, rel=1e-9, abs=1e-13)


def test_identities_of_single_neurons_are_refused_at_infinite_width(data):
    with pytest.raises(UserError, match="use a finite width"):
        ren.loss_speed(learner((math.inf, 5)), data)


def test_speed_of_the_loss_is_lemma_d_5(data):
    network = learner()
    parts = ren.loss_speed(network, data)
    wanted = moving(network, data, lambda n: Squared()(n(data.x), data.y, data.weight))
    close(sum(parts.values()), wanted, rel=1e-9)
    assert all(float(part) < 0 for part in parts.values())
    frozen = ren.loss_speed(network, data)
    rest = moving(learner(train=("", "wb")), data, lambda n: Squared()(n(data.x), data.y, data.weight))
    close(frozen["w_2"] + frozen["b_2"], rest, rel=1e-9)


def test_speed_of_the_spread_is_lemma_d_14(data):
    network = learner()

    def half_squares(n):
        rows = jnp.stack([n.blocks[1].w[:, 0], n.blocks[1].b], axis=1)
        return 0.5 * jnp.sum(jnp.square(rows[:, None] - rows[None]), axis=2)

    close(ren.spread_speed(network, data), moving(network, data, half_squares), rel=1e-9, abs=1e-13)


def test_pairs_only_come_closer_where_all_neurons_are_active_inside(data):
    calm = learner(mean=-0.3, spread=0.05, bias=0.8)
    assert np.all(np.asarray(ren.spread_speed(calm, data)) < 1e-14)
    wild = learner(mean=-8.0, spread=1.0, bias=0.8)  # gates differ inside |x| < 1, where f* is not 0
    assert np.max(np.asarray(ren.spread_speed(wild, data))) > 1e-6


@pytest.mark.parametrize("widths", [(7, 5), (math.inf, 5)])
def test_the_conserved_quantity_of_lemma_d_18(widths, data):
    network = learner(widths)
    assert abs(float(moving(network, data, ren.conserved))) < 1e-13
    run = RungeKutta(rtol=1e-9, atol=1e-11)(network, data, [0.0, 5.0])
    moved = abs(float(slope(run.final) - slope(run.start)))
    assert moved > 1e-3
    assert float(ren.conserved(run.final)) == pytest.approx(float(ren.conserved(run.start)), abs=1e-6 * moved)


def test_the_conserved_quantity_as_printed_is_not(data):
    """With w̄_2² instead of E w_2²: off by what the spread of the second layer does."""
    network = learner(spread=1.0)

    def printed(n):
        return slope(n) - 2 * sphere_mean(D) * jnp.square(jnp.mean(n.blocks[1].w))

    assert abs(float(moving(network, data, printed))) > 1e-4


def test_clipping_breaks_the_conserved_quantity(data):
    assert abs(float(moving(learner(clip=(0.01, 1.0, 1.0)), data, ren.conserved))) > 1e-4


def test_the_printed_factor_of_appendix_b_4_doubles_the_speed():
    """h = <v̄, E[...]>: v' is along v̄, so that its length is the projection itself, and not twice that (B.4)."""
    data = spherical(60_000, 3, law="ball", key=jax.random.key(4))
    network = MeanFieldStack(
        (50, 4), 3, ranks=1, train=("w", "wb"), features=(Sphere(0.9), Normal(0.1, mean=-0.5)),
        bias=(False, Constant(0.5)), amplitude=(Tied(), Constant(1.0)), key=KEY,
    )  # fmt: skip
    infinite = MeanFieldStack(
        (math.inf, 4), 3, ranks=1, train=("w", "wb"), features=(Sphere(0.9), Normal(0.1, mean=-0.5)),
        bias=(False, Constant(0.5)), amplitude=(Tied(), Constant(1.0)), key=KEY,
    )  # fmt: skip
    # One neuron of the finite network, driven by the symmetric signal S of the infinite one, sample by sample.
    v = np.asarray(network.blocks[0].w[0])
    f = np.asarray(infinite(data.x))
    gates = np.asarray(infinite.preactivations(data.x, 2)) > 0
    signal = (np.asarray(data.y) - f) * np.mean(gates * np.asarray(infinite.blocks[1].w)[:, 0], axis=1)
    x, length = np.asarray(data.x), np.linalg.norm(v)
    inside = np.maximum(x @ v, 0)
    pull = np.mean(signal[:, None] * (inside[:, None] * v / length + length * (x @ v > 0)[:, None] * x), axis=0)
    projection = pull @ v / length
    radius = float(velocity(*split_trained(infinite), data, Squared()).blocks[0].radius)
    assert projection == pytest.approx(radius, rel=0.05)  # 60,000 samples
    assert np.linalg.norm(pull) == pytest.approx(abs(projection), rel=0.05)  # not twice it


# ---------------------------------------------------------------- constants


def test_lemma_c_7_bounds_the_bias():
    """b_2 is driven to E f* from outside [½ E f*, 2 E f*] where f is nearly constant."""
    data = spherical(4000, D, key=jax.random.key(6))
    mean = float(jnp.mean(data.y))
    for bias, sign in ((0.4 * mean, 1), (2.5 * mean, -1)):
        network = learner(mean=-1e-6, spread=0.0, bias=bias)
        speed = np.asarray(velocity(*split_trained(network), data, Squared()).blocks[1].b)
        assert np.all(sign * speed > 0)


def test_lemma_b_1_tail_bound_has_the_constant_of_its_density():
    d = 10
    c = 2 * math.sqrt(math.pi * d) * math.exp(math.lgamma(d / 2 + 1) / d)
    for r in (20.0, 1e3, 1e6):
        assert 1 - float(radial_cdf(r, d)) == pytest.approx(d / (math.pi * c * r), rel=0.02)


def looks(network, data, *probes):
    """What probes see of a network, as if at one time of a run."""
    return [
        {name: np.asarray(value)[None] for name, value in probe.of(network, network, data, Squared()).items()}
        for probe in probes
    ]


def test_bounds_that_are_needed_are_enough_and_not_idle(data):
    """Lemma 4.1 with constants: no pull is longer than the bound worked out, and some come near it."""
    network = learner((40, 5), mean=-0.5, spread=0.02, bias=0.6, clip=(1.0, 1.0, 1.0))
    second, first, clips = looks(network, data, SecondLayer(), FirstLayer(), ClipActivity())
    needed = ren.needed_bounds(second, first, D)[0]
    for name, bound, share in zip(("v1", "v2", "r2"), needed, (0.3, 0.9, 0.3), strict=True):
        longest = float(clips[f"{name}_largest"][0])
        assert longest <= bound * (1 + 1e-9)
        assert longest > bound * share
    up = learner((40, 5), mean=0.5, spread=0.02, clip=(1.0, 1.0, 1.0))
    (second,) = looks(up, data, SecondLayer())
    assert np.all(np.isinf(ren.needed_bounds(second, first, D)))


def test_the_bound_of_v2_is_sharp_where_neurons_are_alike():
    """R_v2 >= b²/(4 |w|): the pull (f* - f) F at F = b/(2 |w|), on a fine grid of radii."""
    network = learner((math.inf, 3), mean=-0.01, spread=0.0, bias=0.6, clip=(1.0, 1.0, 1.0))
    x = np.zeros((20_001, D))
    x[:, 0] = np.linspace(0, 60 / float(slope(network)), len(x))
    rays = Dataset(jnp.asarray(x), jnp.asarray(np.maximum(1 - x[:, 0], 0)))
    second, first, clips = looks(network, rays, SecondLayer(), FirstLayer(), ClipActivity())
    needed = float(ren.needed_bounds(second, first, D)[0, 1])
    assert needed == pytest.approx(0.6**2 / (4 * 0.01))
    assert float(clips["v2_largest"][0]) == pytest.approx(needed, rel=1e-6)


@pytest.mark.parametrize("seed", range(5))
def test_the_largest_product_against_a_grid(seed):
    rng = np.random.default_rng(seed)
    w, b = -rng.exponential(size=6), rng.normal(0.3, 0.5, size=6)
    grid = np.linspace(0, np.max(np.maximum(b, 0) / -w), 200_001)
    values = np.maximum(w[:, None] * grid + b[:, None], 0).mean(axis=0) * grid
    assert ren.largest_product(w, b) == pytest.approx(values.max(), rel=1e-6)
    assert ren.largest_product(w, b) >= values.max() * (1 - 1e-12)


def test_the_largest_product_at_its_ends():
    assert ren.largest_product(np.array([-1.0, 0.1]), np.array([1.0, -3.0])) == math.inf  # active far out
    assert ren.largest_product(np.array([-1.0, 0.0]), np.array([1.0, -3.0])) == pytest.approx(1 / 8)
    assert ren.largest_product(np.array([-1.0]), np.array([-1.0])) == 0


def test_the_rate_is_below_the_speed_of_the_loss(data):
    """d/dt (1/L) = -L'/L² >= 4/D, by autodiff, for second layers with and without spread; and D by brute force."""
    for spread in (0.0, 0.05):
        network = learner((math.inf, 5), mean=-0.4, spread=spread, bias=0.6)

        def inverse(n):
            return 1 / Squared()(n(data.x), data.y, data.weight)

        (second,) = looks(network, data, SecondLayer())
        alpha = np.asarray(slope(network))[None]
        assert ren.active_inside(second["neurons"], alpha)[0] > 0
        bound = float(ren.rate_bound(second["neurons"], alpha, D)[0])
        assert bound <= float(moving(network, data, inverse))
        (w, b), a = second["neurons"][0].T, np.linspace(-5, 5, 200_001)[:, None]
        distance = np.mean(((1 + w * alpha + w * a) / alpha) ** 2 + (1 - b) ** 2, axis=1)
        least = np.min(distance + a[:, 0] ** 2 / (4 * sphere_mean(D) * alpha))
        assert bound == pytest.approx(4 / least, rel=1e-6)


def test_lemma_d_21_is_silent_or_fails_where_it_must():
    theorem = ren.ConvergenceRate()
    run = theorem.example()
    assert theorem.check(run).verdict is Verdict.HOLDS
    seen = run.observed["train-loss"].copy()
    run.observed["train-loss"][:] = seen[0]
    assert theorem.check(run).verdict is Verdict.FAILS
    run.observed["train-loss"][:] = seen
    finite = learner(mean=-0.2, bias=0.6)
    data = spherical(40, D, key=jax.random.key(3))
    assert theorem.check(run_of(finite, data, [SecondLayer(), FirstLayer(), TrainLoss()])).verdict is Verdict.SILENT


def test_the_width_that_theorem_2_1_would_need():
    assert ren.width_needed(100, 0.01) > 1e59
    # Its variance (π - 1)/m at one direction, for large d.
    rng = np.random.default_rng(0)
    z = rng.normal(size=(4000, 200))
    means = np.maximum(z, 0).mean(axis=1) * math.sqrt(2 * math.pi)
    assert np.var(means) * 200 == pytest.approx(math.pi - 1, rel=0.1)


# ---------------------------------------------------------------- stages


def made_up(times, weight, spread):
    w = weight(times)
    return {"weight": w, "largest": w + spread, "spread": np.full_like(times, spread)}


def test_stage_times_of_a_straight_line():
    times = np.linspace(0.0, 10.0, 101)
    second = made_up(times, lambda t: 0.01 - 0.1 * t, spread=0.02)
    loss = np.exp(-times)
    found = ren.stage_times(times, second, loss, d=5, bound=20.0, constant=10.0, epsilon=np.exp(-9.0))
    assert found.positive == pytest.approx(0.3)  # w̄ = -0.02
    assert found.spread == pytest.approx(1.1)  # w̄ = -0.1
    assert found.weight == pytest.approx(5.1)  # w̄ = -0.5
    assert found.fitted == pytest.approx(9.0, abs=0.01)


def test_stages_that_never_end_are_nan():
    times = np.linspace(0.0, 1.0, 11)
    up = made_up(times, lambda t: 1 + t, spread=0.1)
    assert np.all(np.isnan(ren.stage_times(times, up, np.ones(11), 5, 20.0)))
    slow = made_up(times, lambda t: -0.2 - 0.1 * t, spread=0.1)
    found = ren.stage_times(times, slow, np.ones(11), 5, 20.0)
    assert found.positive == 0.0
    assert np.all(np.isnan(found[1:]))


# ---------------------------------------------------------------- theorems: when they are silent, and when they fail


def run_of(network, data, probes, times=(0.0, 1.0)):
    return RungeKutta(rtol=1e-7, atol=1e-9)(network, data, list(times), probes)


def test_lemma_d_18_fails_on_numbers_that_are_wrong(data):
    probes = [SecondLayer(), FirstLayer()]
    run = run_of(learner(), data, probes)
    theorem = ren.ConservedQuantity()
    assert theorem.check(run).verdict is Verdict.HOLDS
    run.observed["first-layer"]["alpha"] = run.observed["first-layer"]["alpha"] * np.array([1.0, 1.01])
    assert theorem.check(run).verdict is Verdict.FAILS
    clipped = run_of(learner(clip=(0.01, 1.0, 1.0)), data, probes)
    assert theorem.check(clipped).verdict is Verdict.SILENT
    steps = Descent(rate=0.1)(learner(), data, [0.0, 1.0], probes)
    assert theorem.check(steps).verdict is Verdict.SILENT


def test_lemma_d_14_fails_on_a_spread_that_grows(data):
    network = learner(mean=-0.3, spread=0.05, bias=0.8)
    run = run_of(network, data, [SecondLayer(), FirstLayer()])
    assert ren.SpreadFalls().check(run).verdict is Verdict.HOLDS
    run.observed["second-layer"]["neurons"][1] *= 1.5
    assert ren.SpreadFalls().check(run).verdict is Verdict.FAILS


def test_lemma_b_1_knows_its_scale():
    run = ren.RadialDensity().example()
    assert ren.RadialDensity(scale=1.2).check(run).verdict is Verdict.FAILS


def test_lemmas_b_3_and_b_5_fail_on_a_law_that_is_not_symmetric():
    """Inputs stretched along one axis and mirrored, so that their mean is no sign of it; targets made to fit |x|."""
    run = ren.ScalarSymmetry().example()
    x = np.asarray(run.data.x) * np.array([3.0, 1, 1, 1, 1])
    x = np.concatenate([x, -x])
    y = np.maximum(1 - np.linalg.norm(x, axis=1), 0)
    stretched = Dataset(jnp.asarray(x), jnp.asarray(y))
    for theorem in (ren.ScalarSymmetry(), ren.VectorSymmetry()):
        assert theorem.check(Descent(rate=1e-3)(run.start, stretched, [0.0])).verdict is Verdict.FAILS


def test_eq_6_depends_on_its_tolerance():
    run = ren.Decomposition().example()
    strict = ren.Decomposition(tolerance=1e-6).check(run)
    assert strict.verdict is Verdict.FAILS
    assert strict.numbers["gradient"] > 0


def test_stage_two_that_is_cut_short_has_not_ended():
    whole = ren.SecondStage().example()
    few = ren.SecondStage(epsilon=1e-9).check(whole)
    assert few.verdict is Verdict.FAILS
    assert "never" in few.why


def test_probes_that_theorems_need_are_of_this_paper(data):
    for theorem in (
        ren.FirstStage(),
        ren.SecondStage(),
        ren.Decomposition(),
        ren.ConservedQuantity(),
        ren.LearnsTarget(),
    ):
        needs = theorem.needs(learner(), data)
        assert needs
        assert all(isinstance(one, SecondLayer | FirstLayer | TrainLoss | LossDecomposition) for one in needs)
