"""Lemmas of ren2023's appendices: constants against integrals, grids and finite differences, and verdicts."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, special

from close import close
from unlazy.flows import RungeKutta, velocity
from unlazy.losses import Squared
from unlazy.networks import Constant, MeanFieldStack, Normal, Sphere, Tied, split_trained
from unlazy.networks.limits import sphere_mean
from unlazy.papers.ren2023 import theorems as ren
from unlazy.papers.ren2023.data import spherical, spherical_quadrature
from unlazy.papers.ren2023.probes import FirstLayer, LayerSpeeds, SecondLayer, apply_first, learner, loss_parts, slope
from unlazy.papers.ren2023.radial import density_bound, radial_cdf, truncated_mean_bounds, truncated_moment
from unlazy.probes import TrainLoss
from unlazy.theory import Verdict

D = 4
KEY = jax.random.key(11)


def network(widths=(7, 5), *, mean=-0.6, spread=0.1, bias=0.5, clip=None, key=KEY):
    return MeanFieldStack(
        widths, D, ranks=1, train=("w", "wb"), features=(Sphere(0.9), Normal(spread, mean=mean)),
        bias=(False, Constant(bias)), amplitude=(Tied(), Constant(1.0)), clip=clip, key=key,
    )  # fmt: skip


@pytest.fixture(scope="module")
def data():
    return spherical(60, D, tail=0.2, key=jax.random.key(2))


def law_of(data):
    r, y = np.linalg.norm(np.asarray(data.x), axis=1), np.asarray(data.y)
    weight = np.ones(r.size) if data.weight is None else np.asarray(data.weight)
    return ren.RadialLaw(r, y, weight / weight.sum())


def seen(net, data, probe):
    return {name: np.asarray(value) for name, value in probe.of(net, net, data, Squared()).items()}


# ---------------------------------------------------------------- the law of |x|


@pytest.mark.parametrize("d", [1, 2, 5, 20, 101])
def test_truncated_moments_against_the_distribution_function_and_scipy(d):
    for reach in (0.5, 0.99, 3.0):
        assert truncated_moment(0, reach, d) == pytest.approx(float(radial_cdf(reach, d)), abs=1e-7)
    c = 2 * math.sqrt(math.pi * d) * math.exp(math.lgamma(d / 2 + 1) / d)
    wanted = integrate.quad(lambda r: r * d * special.jv(d / 2, c * r) ** 2, 0, 1, limit=500)[0]
    assert truncated_moment(2, 1.0, d) == pytest.approx(wanted, rel=1e-7)


@pytest.mark.parametrize("d", [1, 2, 3, 10, 50, 200])
def test_lemma_b_2_c_with_constants(d):
    for reach in (0.6, 1.0, 3.0, 30.0, float(d)):
        low, high = truncated_mean_bounds(reach, d)
        assert low <= truncated_moment(1, reach, d) <= high
    ratio = truncated_moment(1, 200.0, d) / truncated_mean_bounds(200.0, d)[0]
    assert 1 < ratio < 1.6  # the constant of the logarithm is right, 1.0 for large R


@pytest.mark.parametrize("d", [1, 4, 30])
def test_the_density_bound_is_one(d):
    for low in (0.5, 0.8, 2.0, 50.0):
        for high in (1.01 * low, 3 * low, 1e12):
            chance = float(np.diff(radial_cdf([low, high], d))[0])
            assert chance <= density_bound(low, high, d) + 1e-12
    assert density_bound(1e-3, 1.0, d) == 1.0


def test_the_empirical_law_by_brute_force(data):
    law, r = law_of(data), np.linalg.norm(np.asarray(data.x), axis=1)
    share = np.asarray(data.weight / jnp.sum(data.weight))
    for reach in (0.4, 1.0, 7.0):
        for power in (0, 1, 2):
            assert float(law.moment(power, reach)) == pytest.approx(np.sum(share * r**power * (r <= reach)))
    assert law.between(0.5, 1.0) == pytest.approx(np.sum(share[(r >= 0.5) & (r <= 1.0)]))
    assert law.between(0.5, math.inf) == pytest.approx(np.sum(share[r >= 0.5]))
    assert law.pull == pytest.approx(np.sum(share * np.asarray(data.y) * r))


# ---------------------------------------------------------------- speeds


@pytest.mark.parametrize("widths", [(7, 5), (math.inf, 5)])
@pytest.mark.parametrize("clip", [None, (0.05, 0.2, 0.3)])
def test_layer_speeds_are_those_of_the_flow(widths, clip, data):
    net, step = network(widths, clip=clip), 1e-5
    found = seen(net, data, LayerSpeeds())
    run = RungeKutta(rtol=1e-10, atol=1e-14)(net, data, [0.0, step], [SecondLayer(), FirstLayer()])
    rows, alpha = run.observed["second-layer"]["neurons"], run.observed["first-layer"]["alpha"]
    close(found["neurons"], (rows[1] - rows[0]) / step, rel=1e-3, abs=1e-6)
    close(found["alpha"], (alpha[1] - alpha[0]) / step, rel=1e-3, abs=1e-6)


@pytest.mark.parametrize("seed", range(6))
def test_the_bounds_of_stage_1_against_velocities(seed, data):
    """Lemmas C.5 (c), C.7 and C.17 for random second layers, with and without clips and at both kinds of width."""
    rng = np.random.default_rng(seed)
    bounds = None if seed % 2 else (5.0, float(10 ** rng.uniform(-1, 2)), 2.0)
    widths = (12, 5) if seed < 3 else (math.inf, 5)
    size = 10 ** rng.uniform(-5, -1)
    net = network(widths, mean=-size, spread=size / 5, bias=float(rng.uniform(0.2, 0.9)), clip=bounds, key=seed)
    second, first, speeds = (seen(net, data, one) for one in (SecondLayer(), FirstLayer(), LayerSpeeds()))
    law, rows, alpha, error = law_of(data), second["neurons"], float(first["alpha"]), float(first["sphere"])
    least = ren.fall_bound(rows, alpha, error, law, math.inf if bounds is None else bounds[1])
    assert -speeds["neurons"][:, 0].max() >= least
    low, high = ren.bias_bounds(rows, alpha, error, law)
    assert low - 1e-12 <= speeds["neurons"][:, 1].min()
    assert speeds["neurons"][:, 1].max() <= high + 1e-12
    if bounds is None and least > 0:
        assert float(speeds["alpha"]) >= 4 * sphere_mean(D) * np.abs(rows[:, 0]).mean() * least


def test_the_first_layer_grows_in_stage_1_3():
    """Lemma C.17 as printed, Θ(log d/√d) w̄_2 |v_1|² with w̄_2 < 0, has the wrong sign."""
    net = network((math.inf, 3), mean=-1e-3, spread=0.0, bias=0.5)
    assert float(seen(net, spherical_quadrature(D), LayerSpeeds())["alpha"]) > 0


# ---------------------------------------------------------------- gates


@pytest.mark.parametrize("seed", range(4))
def test_gate_errors_against_a_grid(seed):
    rng = np.random.default_rng(seed)
    rows = np.stack([-rng.uniform(0.5, 1.0, 5), rng.uniform(0.4, 0.6, 5)], axis=1)
    found, bound = ren.gate_error(rows)
    grid = np.linspace(0, 2, 400_001)
    h = rows[:, :1] * grid + rows[:, 1:]
    f, mean = np.maximum(h, 0).mean(axis=0), np.maximum(rows[:, 0].mean() * grid + rows[:, 1].mean(), 0)
    wanted = max(np.abs(f - np.maximum(h, 0)).max(), np.abs(f - mean).max(), (f * (h <= 0)).max())
    assert found == pytest.approx(wanted, rel=1e-4)
    assert found <= bound


# ---------------------------------------------------------------- the first layer


def test_shape_speeds_against_finite_differences(data):
    """Each part of the loss, followed for a short time by its own gradient."""
    net = network((9, 5), mean=-0.5, spread=0.05, bias=0.7)
    found = ren.shape_speeds(net, data)
    parts, w = loss_parts(learner(net), data)
    r = jnp.linalg.norm(data.x, axis=1)
    unit, step = data.x / r[:, None], 1e-6

    def shape(weights):
        moved = eqx.tree_at(lambda one: one.blocks[0].w, net, weights)
        return np.asarray(apply_first(moved, unit) / slope(moved))

    for name, row in (("fit", 0), ("error", 3)):
        speed = -9 * jax.grad(lambda v, row=row: parts(v)[row])(w)
        wanted = (shape(w + step * speed) - shape(w - step * speed)) / (2 * step)
        close(getattr(found, name), wanted, rel=1e-5, abs=1e-9)
    whole = velocity(*split_trained(net), data, Squared()).blocks[0].w
    wanted = (shape(w + step * whole) - shape(w - step * whole)) / (2 * step)
    close(found.fit + found.error + found.rest, wanted, rel=1e-5, abs=1e-9)
    assert float(jnp.max(jnp.abs(found.fit))) < 1e-13 < 1e-4 < float(jnp.max(jnp.abs(found.growth)))
    close(found.error_error, -found.signal, rel=1e-10)
    assert float(found.fit_error) == pytest.approx(0, abs=1e-13)
    assert np.all(np.abs(np.asarray(found.error)) <= np.asarray(found.bound))


@pytest.mark.parametrize("d", [3, 20])
def test_rates_of_degrees_are_eigenvalues_of_the_kernel_of_lemma_d_4(d):
    """By Monte Carlo over neurons: a first layer pushed along one harmonic moves along it."""
    rng = np.random.default_rng(0)
    w = rng.normal(size=(100_000, d))
    w /= np.linalg.norm(w, axis=1, keepdims=True)
    z = rng.normal(size=(2, d))
    x, other = z / np.linalg.norm(z, axis=1, keepdims=True)
    t = float(x @ other)
    h, g = np.maximum(w @ x, 0), np.maximum(w @ other, 0)
    gates = (w @ x > 0) & (w @ other > 0)
    each = 4 * h * g + gates * (t - (w @ x) * (w @ other))
    turn = np.pi - np.arccos(t)
    kernel = 3 * (np.sqrt(1 - t * t) + turn * t) / (2 * np.pi * d) + t * turn / (2 * np.pi)
    assert abs(each.mean() - kernel) < 5 * each.std() / len(each) ** 0.5
    weight = lambda s: (1 - s * s) ** ((d - 3) / 2)  # noqa: E731

    def mean(g):
        return integrate.quad(lambda s: g(s) * weight(s), -1, 1)[0] / integrate.quad(weight, -1, 1)[0]

    def k(s):
        turn = np.pi - np.arccos(s)
        return 3 * (np.sqrt(1 - s * s) + turn * s) / (2 * np.pi * d) + s * turn / (2 * np.pi)

    wanted = (mean(lambda s: k(s) * s), mean(lambda s: k(s) * (d * s * s - 1) / (d - 1)))
    assert ren.degree_rates(d) == pytest.approx(wanted, rel=1e-6)


# ---------------------------------------------------------------- stage 2


def test_the_line_that_keeps_the_ball_active():
    """Where b_2 + w_2 α = 0 both b_2 and w_2 α grow: R_1 >= 1 of Lemma D.9 is kept, which D.1 (c) does not imply."""
    nodes = spherical_quadrature(D)
    for bias in (0.3, 0.9):
        alpha = float(slope(network((math.inf, 3))))
        net = network((math.inf, 3), mean=-bias / alpha, spread=0.0, bias=bias)
        found = seen(net, nodes, LayerSpeeds())
        product = found["neurons"][0, 0] * alpha - bias / alpha * float(found["alpha"])
        assert found["neurons"][0, 1] > 0
        assert product > 0


@pytest.mark.parametrize("widths", [(12, 5), (math.inf, 5)])
def test_the_loss_is_below_its_bound(widths, data):
    run = RungeKutta()(network(widths, mean=-0.5, bias=0.7), data, [0.0], [SecondLayer(), FirstLayer(), TrainLoss()])
    finding = ren.LossFromParameters().check(run)
    assert finding.margin is not None
    assert finding.margin >= 1


def test_the_bound_of_lemma_d_15_is_not_idle(data):
    """With w_2 α = -1 and all b_2 = 1 - δ it is ½ δ², and the loss ½ δ² P(|x| <= 1 - δ) and a little."""
    alpha = float(slope(network((math.inf, 5))))
    net = network((math.inf, 5), mean=-1 / alpha, spread=0.0, bias=0.9)
    bound = ren.loss_bound(seen(net, data, SecondLayer())["neurons"], alpha, 0.0, law_of(data))
    assert bound == pytest.approx(0.5 * 0.1**2)
    loss = float(Squared()(net(data.x), data.y, data.weight))
    assert 0.5 * bound < loss <= bound


# ---------------------------------------------------------------- verdicts


@pytest.mark.parametrize(
    ("theorem", "probe", "name", "factor"),
    [
        (ren.WeightsFall(), "layer-speeds", "neurons", 0.1),
        (ren.BiasStays(), "layer-speeds", "neurons", 3.0),
        (ren.SlopeGrows(), "layer-speeds", "alpha", 0.1),
        (ren.ErrorBoundedByMovement(), "first-layer", "sphere", 30.0),
        (ren.LossFromParameters(), "train-loss", None, 100.0),
        (ren.BiasStaysBelowOne(), "layer-speeds", "neurons", 0.1),
        (ren.SlopeStaysAboveMinusOne(), "layer-speeds", "neurons", -1.0),
        (ren.SlopesStayAwayFromZero(), "first-layer", "alpha", 0.5),
        (ren.OutputError(), "limit-distance", "rms", 10.0),
    ],
    ids=lambda one: getattr(one, "key", None),
)
def test_theorems_fail_on_numbers_that_are_wrong(theorem, probe, name, factor):
    run = theorem.example()
    assert theorem.check(run).verdict is Verdict.HOLDS
    kept = run.observed[probe] if name is None else run.observed[probe][name]
    wrong = factor * kept
    if name in ("sphere", "alpha") and probe == "first-layer":
        wrong[0] = kept[0]  # what it was at the start is given
    try:
        if name is None:
            run.observed[probe] = wrong
        else:
            run.observed[probe][name] = wrong
        assert theorem.check(run).verdict is Verdict.FAILS
    finally:
        if name is None:
            run.observed[probe] = kept
        else:
            run.observed[probe][name] = kept


def test_lemma_c_18_fails_where_pairs_part():
    theorem = ren.SpreadGrowsSlowly()
    run = theorem.example()
    kept = run.observed["layer-speeds"]["neurons"]
    run.observed["layer-speeds"]["neurons"] = kept + run.observed["second-layer"]["neurons"]  # away from each other
    assert theorem.check(run).verdict is Verdict.FAILS
    run.observed["layer-speeds"]["neurons"] = kept


def test_lemma_b_2_knows_its_scale():
    assert ren.RadialMoments(scale=1.5).check(ren.RadialMoments().example()).verdict is Verdict.FAILS
