"""Theorems 2.1 and C.1 of aiad2026, Lemmas D.1 to D.4 and F.1: by hand, by SciPy, and where the print is wrong."""

import math

import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate

from close import close
from unlazy.activations import Cubic, LeakyRelu, Linear, Relu, Tanh
from unlazy.data import Dataset
from unlazy.flows import RungeKutta, velocity
from unlazy.losses import CustomLoss, Squared
from unlazy.networks import Constant, MeanFieldStack, split_trained
from unlazy.papers.aiad2026 import theorems as aiad
from unlazy.papers.aiad2026.probes import ChannelDrive
from unlazy.papers.aiad2026.theorems.forward import layers
from unlazy.papers.aiad2026.theorems.picard import Path, ceiling, curvature
from unlazy.papers.aiad2026.theorems.problems import at_the_kink, deeper, few_points, fitted, without_constant
from unlazy.papers.aiad2026.theorems.setting import Setting
from unlazy.papers.aiad2026.theorems.span import is_polynomial
from unlazy.papers.aiad2026.theorems.well_posed import norm
from unlazy.probes import TrainedNeurons
from unlazy.theory import Verdict, read_all


def concluded(theorem, run):
    """What a theorem concludes of a run, whether or not its hypotheses are met."""
    return theorem.conclude(read_all(theorem.read(run))[1])


def short(first=24):
    return few_points(first=first, until=0.25)


def one_neuron(activation, y, times, loss=None, first=1.0):
    """φ_1 = L = 1, w_1 = ``first`` and w_2 = 1 at the start: w_1' = -d φ_2'(w_1) w_2 and w_2' = -d φ_2(w_1)."""
    network = MeanFieldStack(
        (1, 1), 1, ranks=1, train="a", bias=(Constant(1.0), False), activation=(Relu(), activation),
        features=(Constant(0.0), Constant(1.0)), amplitude=(Constant(first), Constant(1.0)), key=0,
    )  # fmt: skip
    data = Dataset(jnp.zeros((1, 1)), jnp.array([y]))
    flow = RungeKutta(loss=Squared() if loss is None else loss, rtol=1e-8, atol=1e-10)
    return flow(network, data, times, [ChannelDrive(), TrainedNeurons()])


# ---------------------------------------------------------------- Theorem 2.1 and Lemma D.4


def test_a_network_at_rest_is_mapped_to_its_own_velocity_times_t():
    """With W' at rest all forces are constant: F(W')(t) = W(0) + t V, with V by automatic differentiation."""
    run = short()
    picard = aiad.Picard(run)
    image = picard.apply(picard.path.scaled(0, 0))[0]
    trained, frozen = split_trained(run.start)
    speed = velocity(trained, frozen, run.data, Squared())
    close(image.first[-1], 0.25 * np.asarray(speed.blocks[0].a), rel=1e-9, abs=1e-13)
    close(image.second[-1], 0.25 * np.asarray(speed.blocks[1].a)[:, 0], rel=1e-9, abs=1e-13)
    close(picard.at(image.first, image.second).channels, image.channels, rel=1e-9, abs=1e-13)


def test_norms_are_those_of_appendix_d_2():
    one = Path(np.zeros((3, 1, 2)), np.zeros((3, 2, 2)), np.zeros((3, 2)))
    first = np.array([[[0, 0], [0, 0]], [[3, 0], [1, 0]], [[-1, 1], [2, 1]]], float)
    other = Path(np.zeros((3, 1, 2)), first, np.array([[0, 0], [1, 1], [0, -4]], float))
    close(
        aiad.trajectory_distance(one, other), [0.0, math.sqrt(5), math.sqrt(8.5)], rel=1e-12
    )  # (9 + 4)/2 < (1 + 16)/2 at the end
    weights = np.array([[1.0, 2.0], [3.0, 0.0]]), np.array([[1.0], [1.0]])
    close(norm(weights, 2.0), math.sqrt(5))
    close(norm(weights, 50.0), 3 * 0.5 ** (1 / 50) * (1 + 3.0**-50) ** (1 / 50), rel=1e-12)
    close(norm(([[5.0]] * np.ones((4, 1)), weights[1]), math.inf), 5 * math.sqrt(50))


@pytest.mark.parametrize("first", [24, math.inf])
def test_a_run_is_the_fixed_point_and_nothing_else_is(first):
    theorem, run = aiad.WellPosed(), short(first)
    found = theorem.check(run)
    assert found.verdict is Verdict.HOLDS, found.why
    assert found.numbers["distance of F(W) from W"] < 1e-11  # tolerance of the flow
    assert found.numbers["first m with a distance below that of m = 0"] == 1
    wrong = aiad.Picard(run)
    wrong.__dict__["path"] = aiad.Picard(run).path.scaled(1.001, 1.0)
    assert theorem.conclude(wrong).verdict is Verdict.FAILS


def test_long_runs_are_beyond_the_bound():
    found = aiad.WellPosed().check(few_points(first=24))
    assert found.verdict is Verdict.VACUOUS
    assert found.numbers["cT"] > 10
    assert found.numbers["distance of F(W) from W"] < 1e-10


def test_lemma_d_4_fails_with_a_smaller_constant(monkeypatch):
    found = aiad.Contraction().check(short())
    assert found.verdict is Verdict.HOLDS
    assert found.numbers["printed constant, at least"] > 1e3 * found.numbers["c"]
    honest = aiad.Picard.lipschitz
    monkeypatch.setattr(aiad.Picard, "lipschitz", lambda *args: honest(*args) / (1.01 * found.margin))
    assert aiad.Contraction().check(short()).verdict is Verdict.FAILS


def test_leaky_relu_has_many_solutions():
    """Theorem 2.1 as printed: a channel that starts at 0 stays there, or leaves to either side."""
    ends = {s: float(at_the_kink(start=s).observed["channel-drive"]["channels"][-1, 0, 0]) for s in (0.0, 1e-9, -1e-9)}
    assert ends[0.0] == 0
    close(ends[1e-9], -ends[-1e-9], rel=1e-6)
    assert ends[1e-9] > 0.2  # though the starts are 1e-9 apart
    # f' = K (y - C f) C with C = (1 - α)/2 E[|L| w_2], and w_2' = (y - ŷ) φ_2(L f), written out
    run = at_the_kink()
    mix, x = np.asarray(run.start.blocks[1].w)[:, 0], 0.8
    kernel = (x**2 + 1) / 2  # E[relu(w x + b)²]

    def ode(_, state):
        values = np.where(mix * state[0] > 0, 1.0, 0.3)
        d = np.mean(state[1:] * values * mix * state[0]) - 1.0
        return np.concatenate([[-kernel * d * np.mean(mix * values * state[1:])], -d * values * mix * state[0]])

    start = np.concatenate([[1e-12], np.ones(len(mix))])
    exact = integrate.solve_ivp(ode, (0, 1), start, rtol=1e-9, atol=1e-13).y[0, -1]
    close(ends[1e-9], exact, rel=1e-5)
    silent = aiad.WellPosed().check(run)
    assert silent.verdict is Verdict.SILENT
    assert "phi_2' is Lipschitz" in silent.why


def test_leaky_relu_may_have_no_solution():
    """f' = -d E[L φ_2'(L f) w_2] points to 0 from both sides, and is not 0 there with the φ_2'(0) = α of Appendix B."""
    mix, weights, d = np.array([1.0, -1.0]), np.array([1.0, 2.0]), 1.0  # d = 1: outputs are above the target
    slope = lambda u: np.where(u > 0, 1.0, 0.3)  # noqa: E731
    right, left, middle = (-d * np.mean(mix * slope(mix * f) * weights) for f in (1e-9, -1e-9, 0.0))
    close([right, left, middle], [-0.2, 0.85, 0.15])
    assert right < 0 < left  # so f stays at 0 once it is there
    assert middle != 0  # but f = 0 does not solve the equation


def test_constants_of_activations():
    close(curvature(Tanh()), 4 / (3 * math.sqrt(3)), rel=1e-5)
    assert curvature(LeakyRelu(0.3)) == math.inf
    close(ceiling(Tanh()), 1.0, rel=1e-6)
    assert ceiling(LeakyRelu(0.3)) == math.inf


# ---------------------------------------------------------------- Lemmas D.2 and D.3


@pytest.mark.parametrize("bounded", [True, False])
def test_growth_is_the_comparison_system_by_scipy(bounded):
    run = short() if bounded else fitted(until=0.5)
    picard, slope, times = aiad.Picard(run), 0.7, np.linspace(0, 0.5, 5)
    first, second = run.start.blocks
    size, mix = np.max(np.abs(picard.features)), np.abs(np.asarray(second.w))
    u, v = np.abs(np.asarray(first.a)).mean(axis=0).max(), np.sqrt(np.mean(np.asarray(second.a) ** 2))
    rate, reach = size * slope * np.sqrt((mix**2).mean(axis=0).max()), size * mix.sum(axis=1).max()

    def ode(_, state):  # tanh and leaky ReLU have slopes up to 1 and φ_2(0) = 0
        return [rate * (v + state[1]), slope * (1.0 if bounded else reach * (u + state[0]))]

    exact = integrate.solve_ivp(ode, (0, 0.5), [0, 0], t_eval=times, rtol=1e-10, atol=1e-12).y
    found = aiad.growth(picard, slope, times)
    if bounded:  # the smaller of both bounds
        assert np.all(found[0] <= exact[0] * (1 + 1e-8))
        close(found[1][-1], exact[1][-1], rel=1e-6)
    else:
        close(found[0], exact[0], rel=1e-6, abs=1e-9)
        close(found[1], exact[1], rel=1e-6, abs=1e-9)


def test_lemmas_d_2_and_d_3_fail_with_a_smaller_bound(monkeypatch):
    from unlazy.papers.aiad2026.theorems import well_posed

    honest = well_posed.growth
    for theorem in (aiad.WeightBounds(), aiad.BoundedSets()):
        found = theorem.check(short())
        assert found.verdict is Verdict.HOLDS, found.why
        factor = 1.01 * found.margin
        with monkeypatch.context() as patch:
            patch.setattr(well_posed, "growth", lambda *args, f=factor: tuple(one / f for one in honest(*args)))
            assert theorem.check(short()).verdict is Verdict.FAILS


def test_lemma_d_2_as_printed_is_violated_by_leaky_relu():
    """With a slope of ±1, as C.3 asks, w_1' = w_2 and w_2' = w_1: weights grow as e^t, which no power of t bounds."""
    huber = CustomLoss(lambda f, y: jnp.where(jnp.abs(f - y) < 1, (f - y) ** 2 / 2, jnp.abs(f - y) - 0.5))
    run = one_neuron(LeakyRelu(0.3), 1e6, [0.0, 2.0, 4.0, 6.0], huber)
    close(np.asarray(run.observed["trained-neurons"]["block-2"])[:, 0, 0], np.exp([0, 2, 4, 6]), rel=1e-6)


def test_lemma_d_3_as_printed_is_violated():
    """W' <= R at T alone: with w_1' = 0 and w_2' = R from early on F_1(W')(T) is nearly T R, for whatever R."""
    times = np.linspace(0, 3, 61)
    run = one_neuron(Tanh(), 1.0, times, first=0.0)  # the output stays 0, and d = -1
    ramp = np.minimum(times / 0.1, 1.0)
    for bound in (10.0, 1000.0):
        picard = aiad.Picard(run)
        image = picard.apply(picard.at(np.zeros((61, 1, 1)), (bound - 1) * ramp[:, None]))[0]
        close(image.first[-1, 0, 0], 3 + (bound - 1) * 2.95, rel=1e-2)


# ---------------------------------------------------------------- Lemma D.1 and Theorem C.1


def test_lemma_d_1_in_deeper_layers():
    run = deeper()
    found = aiad.ForwardLipschitz().check(run)
    assert found.verdict is Verdict.HOLDS
    assert found.numbers["largest change of H_4"] > 1e-3
    along = layers(Setting(run))
    for level in (2, 3, 4):
        close(along[level - 1].hidden[-1].T, run.final.preactivations(run.data.x, level), rel=1e-9, abs=1e-12)
        assert found.numbers[f"margin of H_{level}"] >= 1
    below, here = along[1], along[2]
    second = along[1].mixing * np.abs(along[0].values).max() * along[0].changes[-1]
    allowed = here.mixing * (np.abs(below.values[-1]).max() * below.changes[-1] + below.weight * second)
    close(found.numbers["allowed for H_3"], allowed, rel=1e-9)  # the last time is that of the largest bound


def test_lemma_f_1_holds_for_all_moments():
    numbers = aiad.ForwardBound().check(few_points(first=24)).numbers
    assert min(value for name, value in numbers.items() if "moment" in name) >= 1


def test_features_without_a_constant_input_do_not_span():
    """Theorem C.1 as printed: leaky ReLU of one input spans x and |x|, tanh odd functions."""
    theorem = aiad.FeaturesSpan()
    for activation, rank in ((LeakyRelu(0.3), 2), (Tanh(), 3)):  # the points have three different |x|
        run = without_constant(activation=activation)
        assert "constant input" in theorem.check(run).why
        found = concluded(theorem, run)
        assert found.verdict is Verdict.FAILS
        assert found.numbers["rank"] == rank
        assert found.numbers["left of the target by 80 features"] > 0.9
    x = np.asarray(run.data.x)[:, 0]
    best = np.linalg.lstsq(np.stack([x, abs(x)], axis=1), np.asarray(run.data.y), rcond=None)[1][0]
    leaky = concluded(theorem, without_constant()).numbers["left of the target by 80 features"]
    close(leaky, math.sqrt(best) / np.linalg.norm(run.data.y), rel=1e-9)


def test_polynomials_are_excluded_and_unresolved_ranks_are_said_to_be():
    assert is_polynomial(Linear())
    assert is_polynomial(Cubic())
    assert not any(map(is_polynomial, (Tanh(), Relu(), LeakyRelu(0.3))))
    network = MeanFieldStack((math.inf, 4), 1, ranks=1, train="a", activation=Tanh(), key=0)
    x = jnp.linspace(-1, 1, 40)[:, None]
    found = aiad.FeaturesSpan().check(RungeKutta()(network, Dataset(x, x[:, 0]), [0.0]))
    assert found.verdict is Verdict.VACUOUS, found.why
    assert found.numbers["rank"] < 40
