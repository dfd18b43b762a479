"""The contract of activations, run on every member of the room, and what is particular to some."""

import functools
import itertools
import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, special, stats

from unlazy import activations
from unlazy._errors import UserError
from unlazy._registry import find, members
from unlazy.activations import (
    ActiveInterval,
    Cubic,
    Custom,
    Erf,
    Gelu,
    LeakyRelu,
    Linear,
    Relu,
    Silu,
    Tanh,
    Xtanh,
)
from unlazy.testing import ACTIVATION_CHECKS


def double_hinge(h):
    """Kinks at -1 and 1, slope 2 outside and -1 between."""
    return 2 * h - 1.5 * jnp.abs(h + 1) + 1.5 * jnp.abs(h - 1)


EXAMPLES = {"custom": lambda: Custom(jnp.sin)}  # members that have no default arguments
MAKE = {name: EXAMPLES.get(name, member) for name, member in members("activation").items()}
MAKE |= {"leaky-relu-0.3": lambda: LeakyRelu(0.3), "absolute": lambda: LeakyRelu(-1)}
MAKE |= {"custom-kinked": lambda: Custom(double_hinge, kinks=(-1, 1))}
CASES = {name: make() for name, make in MAKE.items()}
every = pytest.mark.parametrize("sigma", CASES.values(), ids=CASES.keys())
# Quadrature meets the jumps of the last one's derivative with errors of some per cent: see its own test.
accurate = pytest.mark.parametrize("sigma", list(CASES.values())[:-1], ids=list(CASES)[:-1])

REFERENCE = {
    "relu": lambda h: np.where(h > 0, h, 0.0),
    "leaky-relu": lambda h: np.where(h > 0, h, 0.01 * h),
    "leaky-relu-0.3": lambda h: np.where(h > 0, h, 0.3 * h),
    "absolute": np.abs,
    "softplus": lambda h: -special.log_expit(-h),
    "tanh": np.tanh,
    "sigmoid": special.expit,
    "erf": special.erf,
    "silu": lambda h: h * special.expit(h),
    "gelu": lambda h: h * special.ndtr(h),
    "xtanh": lambda h: h * np.tanh(h),
    "linear": lambda h: h,
    "cubic": lambda h: h**3,
    "custom": np.sin,
}
POINTS = np.concatenate([np.linspace(-6, 6, 241), np.random.default_rng(0).normal(size=200)])  # 0 and ±1 among them


@eqx.filter_jit
def apply(function, points):
    return function(points)


@eqx.filter_jit
def jet_of(sigma, points):
    return jnp.stack([sigma(points), sigma.derivative(points), sigma.second_derivative(points)])


def at(function, points):
    return np.asarray(apply(function, jnp.asarray(points)))


def jet(sigma, points):
    """σ, σ' and σ'' at the points, compiled together."""
    return np.asarray(jet_of(sigma, jnp.asarray(points)))


def off_kinks(sigma):
    """Mark the points away from kinks."""
    return np.abs(np.subtract.outer(POINTS, [*sigma.kinks, np.inf])).min(axis=1) > 1e-3


def test_names_and_room():
    names = {"relu", "leaky-relu", "tanh", "sigmoid", "softplus", "silu", "gelu", "erf", "xtanh", "linear", "cubic"}
    assert names < set(members("activation"))
    assert find("activation", "leaky-relu") is LeakyRelu
    assert all(hasattr(activations, name) for name in activations.__all__)


@every
@pytest.mark.parametrize("check", ACTIVATION_CHECKS)
def test_every_activation_keeps_the_contract(sigma, check):
    if check == "expectations":  # quadrature meets the jumps of a kinked function's derivative with errors of per cents
        ACTIVATION_CHECKS[check](sigma, 0.1 if sigma is CASES["custom-kinked"] else 1e-9)
    else:
        ACTIVATION_CHECKS[check](sigma)


# Values and derivatives


@pytest.mark.parametrize("name", REFERENCE)
def test_values_are_those_of_scipy(name):
    np.testing.assert_allclose(jet(CASES[name], POINTS)[0], REFERENCE[name](POINTS), rtol=1e-12, atol=1e-15)


def test_gelu_second_derivative_does_not_overflow():
    assert at(Gelu().second_derivative, np.float16(1000.0)) == 0  # 1000² is beyond float16


# Constants

GRID = np.round(np.linspace(-30, 30, 600_001), 4)


@functools.cache
def slopes_on_grid(sigma):
    return at(sigma.derivative, GRID)


def infimum(sigma, left, right):
    """Brute-force infimum of |σ'| on the open interval, 0 at a kink inside or a change of sign."""
    first, last = np.searchsorted(GRID, [left, right])
    slopes = slopes_on_grid(sigma)[first + 1 : last]
    if slopes.min() < 0 < slopes.max() or any(left < kink < right for kink in sigma.kinks):
        return 0.0
    return np.abs(slopes).min()


def test_lipschitz_constants_known_by_their_equations():
    root = Xtanh().lipschitz
    assert root * math.tanh(root) == pytest.approx(1, abs=1e-15)
    assert Silu().lipschitz == pytest.approx((1 + root) / 2, rel=1e-15)
    steepest = math.sqrt(2)
    assert Gelu().lipschitz == pytest.approx(stats.norm.cdf(steepest) + steepest * stats.norm.pdf(steepest), rel=1e-15)
    assert math.isinf(Cubic().lipschitz)


@every
def test_default_interval_is_nearly_the_best(sigma):
    def rate(left, right, slope):
        low, high = ActiveInterval(left, right, 1.0).middle
        return slope**2 * (special.ndtr(high) - special.ndtr(low))

    ends = np.linspace(-4, 4, 41)
    cells = [infimum(sigma, *cell) for cell in itertools.pairwise(ends)]
    best = 0.0
    for i, j in itertools.combinations(range(41), 2):
        if not any(ends[i] + 1e-9 < kink < ends[j] - 1e-9 for kink in sigma.kinks):
            best = max(best, rate(ends[i], ends[j], min(cells[i:j])))
    assert rate(sigma.active.left, sigma.active.right, sigma.active.slope) > 0.95 * best


@every
def test_slope_on_is_the_infimum(sigma):
    for left, right in ((-1.3, -0.2), (0.0, 1.0), (0.3, 2.9), (-2.0, 2.5), (1.0, 1.5), (2.2, 2.6)):
        expected = infimum(sigma, left, right)
        # The brute-force grid has step 1e-4 and leaves the ends out.
        assert sigma.slope_on(left, right) == pytest.approx(expected, abs=3e-3)
        assert sigma.slope_on(left, right) > 0 or expected < 1e-3


def test_slope_on_finds_a_minimum_between_grid_points():
    assert Custom(lambda h: h + 0.5 * jnp.sin(h)).slope_on(2.2, 4.5) == pytest.approx(0.5, rel=1e-12)  # at π
    assert Cubic().slope_on(-1.0, 1.7) == 0  # touched, not crossed
    assert Silu().slope_on(-2.0, 1.0) == 0  # crossed at -1.28, at no grid point


def test_slope_on_at_and_across_kinks():
    assert Relu().slope_on(0, 1) == 1
    assert Relu().slope_on(-1, 0) == 0
    assert LeakyRelu(0.3).slope_on(-1, 0) == 0.3
    assert LeakyRelu(0.3).slope_on(-1e-9, 1) == 0
    assert Custom(double_hinge, kinks=[-1, 1]).slope_on(-1, 1) == pytest.approx(1, rel=1e-15)


def test_middle_third():
    assert ActiveInterval(-1.0, 2.0, slope=0.1).middle == (0.0, 1.0)


def test_multiplicities_of_zhou2023_and_others():
    found = {name: case.multiplicity for name, case in CASES.items() if case.multiplicity is not None}
    ones = dict.fromkeys(("tanh", "silu", "gelu", "erf", "linear", "custom", "custom-kinked"), 1)
    assert found == ones | {"xtanh": 2, "cubic": 3}


# Gaussian expectations: one shape throughout, so that each rule compiles once for each dtype

PAIRS = np.array(
    [(1.0, 1.0, 0.0), (1.0, 1.0, 0.9), (0.3, 2.0, -0.5), (2.0, 0.7, 0.4), (0.5, 0.5, -0.45), (2.0, 2.0, 1.0)]
)
BORDERS = np.array(
    [(0.0, 0.0, 0.0), (0.0, 2.0, 0.0), (1e-30, 1e-30, 1e-30), (1e-4, 1e-4, -1e-4), (3.7, 3.7, 3.7), (1, 0.25, -0.5)]
)


@eqx.filter_jit
def duals_of(sigma, q1, q2, c):
    return jnp.stack([sigma.dual(q1, q2, c), sigma.dual_derivative(q1, q2, c)])


def duals(sigma, pairs, dtype="float64"):
    """E[σσ] and E[σ'σ'] of the pairs, compiled together."""
    return np.asarray(duals_of(sigma, *(jnp.asarray(column, dtype) for column in pairs.T)))


def panels(kinks, q):
    """Gauss-Legendre nodes and weights on ±9 standard deviations, split at 0 and at the kinks."""
    cuts = np.unique([-9 * math.sqrt(q), 0.0, *kinks, 9 * math.sqrt(q)])
    x, w = special.roots_legendre(120)
    halves, middles = np.diff(cuts) / 2, (cuts[1:] + cuts[:-1]) / 2
    return (middles[:, None] + halves[:, None] * x).ravel(), (halves[:, None] * w).ravel()


@functools.cache
def bivariate(kinks, q1, q2, c):
    """Nodes u, v and the matrix of density times weights."""
    (u, weight_u), (v, weight_v) = panels(kinks, q1), panels(kinks, q2)
    law = stats.multivariate_normal([0, 0], [[q1, c], [c, q2]])
    return u, v, law.pdf(np.stack(np.meshgrid(u, v, indexing="ij"), axis=-1)) * np.outer(weight_u, weight_v)


def over_the_density(sigma, pairs):
    """E[σσ] and E[σ'σ'] by the density. Kinks lie on panel borders, so this converges for all activations."""
    made = []
    for u, v, p in (bivariate(sigma.kinks, *pair) for pair in pairs):
        left, right = jet(sigma, u)[:2], jet(sigma, v)[:2]
        made.append(np.sum((left @ p) * right, axis=1))
    return np.transpose(made)


@accurate
def test_dual_is_the_integral_over_the_density(sigma):
    np.testing.assert_allclose(duals(sigma, PAIRS), over_the_density(sigma, PAIRS), rtol=1e-9, atol=1e-10)


def test_dual_of_a_kinked_custom_function_is_as_accurate_as_documented():
    sigma = CASES["custom-kinked"]
    errors = np.abs(duals(sigma, PAIRS) - over_the_density(sigma, PAIRS))
    sizes = over_the_density(sigma, [(1.0, 1.0, 0.999)])
    assert np.all(errors <= np.array([[2e-3], [0.1]]) * sizes)


@accurate
def test_dual_is_the_mean_over_samples(sigma):
    s, t = np.random.default_rng(7).normal(size=(2, 100_000))
    for row, (q1, q2, c) in enumerate(PAIRS[2:4], start=2):
        u, v = math.sqrt(q1) * s, c / math.sqrt(q1) * s + math.sqrt(q2 - c**2 / q1) * t
        products = (jet(sigma, u) * jet(sigma, v))[:2]
        errors = products.std(axis=1) / math.sqrt(s.size)
        assert np.all(np.abs(products.mean(axis=1) - duals(sigma, PAIRS)[:, row]) <= 5 * errors + 1e-12)


@accurate
def test_moment_and_expectation_are_scipy_integrals(sigma):
    name = next(name for name, case in CASES.items() if case is sigma)
    function = REFERENCE.get(name, functools.partial(at, sigma))
    variances = jnp.asarray(PAIRS[:, 0])
    for row in (2, 3):
        q = PAIRS[row, 0]

        def integral(power, q=q):
            def integrand(z):
                return float(function(z)) ** power * math.exp(-0.5 * z * z / q) / math.sqrt(2 * math.pi * q)

            end = 9 * math.sqrt(q)
            return sum(integrate.quad(integrand, *part, epsabs=1e-12)[0] for part in ((-end, 0.0), (0.0, end)))

        assert sigma.moment(variances)[row] == pytest.approx(integral(2), rel=1e-10)
        assert sigma.mean(variances)[row] == pytest.approx(integral(1), rel=1e-10, abs=1e-12)
        # A kink at 0 lies half-way between nodes: h²/24 times the jump of σ' times the density, with h = 17/255 √q.
        kink = 2 / 24 * (17 / 255) ** 2 * math.sqrt(q / (2 * math.pi)) if sigma.kinks else 0.0
        assert sigma.expectation(sigma, variances)[row] == pytest.approx(
            integral(1), rel=1e-10, abs=1e-12 + 1.01 * kink
        )


@accurate
def test_dual_is_consistent(sigma):
    swapped = PAIRS[:, [1, 0, 2]]
    np.testing.assert_allclose(duals(sigma, PAIRS), duals(sigma, swapped), rtol=1e-10, atol=1e-14)
    q1, q2 = jnp.asarray(PAIRS[:, 0]), jnp.asarray(PAIRS[:, 1])
    np.testing.assert_allclose(duals(sigma, PAIRS[:, [0, 0, 0]])[0], sigma.moment(q1), rtol=1e-14)
    bound = duals(sigma, PAIRS[:, [0, 0, 0]]) * duals(sigma, PAIRS[:, [1, 1, 1]])
    assert np.all(duals(sigma, PAIRS) ** 2 <= bound * (1 + 1e-12))  # Cauchy-Schwarz
    independent = sigma.expectation(sigma, q1) * sigma.expectation(sigma, q2)
    tolerance = 2e-3 if sigma.kinks else 1e-10  # a kink in `expectation`
    np.testing.assert_allclose(duals(sigma, PAIRS * [1, 1, 0])[0], independent, rtol=tolerance, atol=1e-12)


@accurate
def test_dual_derivative_is_the_slope_of_dual_in_c(sigma):
    step = np.array([0.0, 0.0, 1e-5])
    slope = (duals(sigma, PAIRS + step)[0] - duals(sigma, PAIRS - step)[0]) / 2e-5
    np.testing.assert_allclose(duals(sigma, PAIRS)[1], slope, rtol=1e-7, atol=1e-10)


@pytest.mark.parametrize("q", [1e-3, 1.0, 50.0])
def test_closed_forms_at_known_arguments(q):
    zero, variance = jnp.asarray(0.0), jnp.asarray(q)
    assert Relu().moment(variance) == pytest.approx(q / 2)
    assert Relu().dual(variance, variance, zero) == pytest.approx(q / (2 * math.pi))
    assert Relu().dual(variance, variance, -variance) == pytest.approx(0, abs=1e-20)
    assert Relu().dual_derivative(variance, variance, zero) == pytest.approx(1 / 4)
    assert LeakyRelu(0.3).moment(variance) == pytest.approx(q * 1.09 / 2)
    assert LeakyRelu(-1).dual(variance, variance, -variance) == pytest.approx(q)
    assert Erf().moment(variance) == pytest.approx(2 / math.pi * math.asin(2 * q / (1 + 2 * q)))
    assert Linear().moment(variance) == q
    assert Cubic().moment(variance) == pytest.approx(15 * q**3)


@every
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_dual_at_the_borders(sigma, dtype):
    value = duals(sigma, BORDERS, dtype)
    assert value.dtype == np.dtype(dtype)
    assert np.all(np.isfinite(value))
    assert np.all(np.isfinite(duals(sigma, BORDERS * [1, 1, 1 + 3e-7], dtype)))  # by a few roundings of float32
    # The square of the value at 0, also for ReLU's derivative: 0 at the kink.
    zero = int(np.argmin(np.abs(POINTS)))
    assert value[:, 0] == pytest.approx(jet(sigma, POINTS)[:2, zero] ** 2, rel=1e-5, abs=1e-12)


@every
def test_dual_in_float32_is_close_to_float64(sigma):
    np.testing.assert_allclose(duals(sigma, PAIRS, "float32"), duals(sigma, PAIRS), rtol=2e-5, atol=2e-6)


@every
def test_dual_keeps_the_dtype_under_strict_promotion(sigma):
    with jax.numpy_dtype_promotion("strict"), jax.numpy_rank_promotion("raise"):
        for dtype in (jnp.float32, jnp.float64):
            q = jax.ShapeDtypeStruct((3,), dtype)
            scalar = jax.ShapeDtypeStruct((), dtype)
            made = [
                jax.eval_shape(sigma.dual, q, q, q),
                jax.eval_shape(sigma.dual_derivative, q, scalar, q),
                jax.eval_shape(sigma.moment, q),
                jax.eval_shape(functools.partial(sigma.expectation, sigma), q),
            ]
            assert {(out.shape, out.dtype, out.weak_type) for out in made} == {((3,), jnp.dtype(dtype), False)}


@pytest.mark.parametrize("sigma", [Relu(), LeakyRelu(0.3)])
def test_homogeneous_kernels_in_float32(sigma):
    q = jnp.asarray([1e-30, 1.0], "float32")  # q1 q2 underflows
    tiny, unit = np.asarray(jax.jit(sigma.dual)(q, q, 0.5 * q) / q)
    assert tiny == pytest.approx(unit, rel=1e-6)
    # On the diagonal the correlation is 1 exactly: one rounding there would cost √eps = 3e-4.
    q = jax.random.uniform(jax.random.key(0), (1000,), "float32")
    np.testing.assert_allclose(
        jax.jit(sigma.dual_derivative)(q, q, q), (1 + getattr(sigma, "slope", 0) ** 2) / 2, rtol=1e-6
    )


@pytest.mark.parametrize("sigma", [Relu(), Linear(), Tanh()])
def test_dual_broadcasts_and_needs_no_tensor_of_nodes(sigma):
    x = jax.random.normal(jax.random.key(0), (5, 3))
    gram = x @ x.T / 3
    q = jnp.diag(gram)
    square = sigma.dual(jnp.tile(q[:, None], 5), jnp.tile(q[None, :], (5, 1)), gram)
    np.testing.assert_allclose(sigma.dual(q[:, None], q[None, :], gram), square, rtol=1e-12, atol=1e-14)
    assert np.linalg.eigvalsh(square).min() > -1e-12  # a Gram matrix
    sizes = [jax.ShapeDtypeStruct(shape, jnp.float64) for shape in ((1000, 1), (1, 1000), (1, 1))]
    assert jax.eval_shape(sigma.dual, *sizes).shape == (1000, 1000)
    memory = jax.jit(sigma.dual).lower(*sizes).compile().memory_analysis()
    assert memory.temp_size_in_bytes <= 16 * 1000**2 * 8


def test_quadrature_is_as_accurate_as_documented():
    sigma = Tanh()
    for q, tolerance in ((1.0, 1e-12), (4.0, 1e-8), (16.0, 1e-3)):
        z, weight = panels((), q)
        sizes = jet(sigma, z)[:2] ** 2 @ (weight * stats.norm.pdf(z, scale=math.sqrt(q)))
        pairs = [(q, q, rho * q) for rho in (-0.9, -0.5, 0.0, 0.5, 0.9, 0.95)]
        errors = np.abs(duals(sigma, np.array(pairs)) - over_the_density(sigma, pairs))
        assert np.all(errors <= tolerance * sizes[:, None])
        alike = duals(sigma, np.full((6, 3), q))  # correlation 1: exact at every q
        np.testing.assert_allclose(alike[:, 0], sizes, rtol=1e-11)


# As Equinox modules


@pytest.mark.parametrize("name", CASES)
def test_activations_are_leafless_equal_and_compile_once(name):
    sigma, twin = CASES[name], MAKE[name]()
    assert jax.tree.leaves(sigma) == []
    assert twin == sigma
    assert hash(twin) == hash(sigma)
    traces = []

    @eqx.filter_jit
    def run(activation, h):
        traces.append(1)
        return activation(h) + activation.derivative(h)

    h = jnp.asarray(POINTS)
    np.testing.assert_allclose(run(sigma, h), jet(sigma, POINTS)[:2].sum(axis=0), rtol=1e-12, atol=1e-15)
    run(twin, h + 1)
    assert len(traces) == 1


def test_different_parameters_are_different_activations():
    assert LeakyRelu(0.1) != LeakyRelu(0.2)
    assert Custom(jnp.sin) != Custom(jnp.cos)


# Custom functions


@pytest.mark.parametrize(
    ("custom", "known"),
    [
        (Custom(jnp.tanh), Tanh()),
        (Custom(jax.nn.relu, kinks=(0,)), Relu()),
        (Custom(lambda h: h * jnp.tanh(h)), Xtanh()),
        (Custom(lambda h: h**3), Cubic()),
    ],
    ids=["tanh", "relu", "xtanh", "cubic"],
)
def test_custom_finds_the_constants_of_known_activations(custom, known):
    assert custom.lipschitz == pytest.approx(known.lipschitz, rel=1e-6)
    assert custom.multiplicity == known.multiplicity
    ends = (known.active.left, known.active.right)
    assert (custom.active.left, custom.active.right) == pytest.approx(ends, abs=0.11)
    assert custom.active.slope == pytest.approx(infimum(known, custom.active.left, custom.active.right), rel=1e-3)


def test_custom_estimates_can_be_read_inside_a_trace():
    @jax.jit
    def run(h):
        sigma = Custom(jnp.arctan)
        return h * sigma.active.slope + sigma.lipschitz + sigma.multiplicity + sigma.slope_on(0.0, 1.0)

    assert float(run(jnp.asarray(0.0))) == pytest.approx(2.5, rel=1e-6)  # 1 + 1 + 1 / (1 + 1²)


def test_custom_takes_functions_with_their_own_reverse_rule():
    @jax.custom_vjp
    def straight(h):
        return jnp.sin(h)

    straight.defvjp(lambda h: (jnp.sin(h), h), lambda h, cotangent: (cotangent * jnp.cos(h),))
    sigma, points = Custom(straight), np.linspace(-1, 1, 5)
    np.testing.assert_allclose(at(sigma.derivative, points), np.cos(points), rtol=1e-12)
    np.testing.assert_allclose(at(sigma.second_derivative, points), -np.sin(points), rtol=1e-12, atol=1e-15)


# Errors


@pytest.mark.parametrize("slope", [1.0, 2.0, -1.01, math.nan])
def test_leaky_slope_out_of_range(slope):
    with pytest.raises(
        UserError,
        match=r"slope of a leaky ReLU is .*: a number in \[-1, 1\) was expected|slope = nan is not a finite number",
    ):
        LeakyRelu(slope)


@pytest.mark.parametrize(("left", "right"), [(1.0, 0.0), (0.0, 0.0), (-math.inf, 0.0), (0.0, math.nan)])
def test_ends_that_make_no_interval(left, right):
    with pytest.raises(UserError, match="is not an interval: two finite numbers, the smaller first"):
        Tanh().slope_on(left, right)
    with pytest.raises(UserError, match="is not an interval"):
        ActiveInterval(left, right, slope=1.0)


def test_intervals_without_a_slope():
    with pytest.raises(UserError, match=r"\|σ'\| of Relu\(\) is not bounded away from 0 on \(-1, 1\).*kink inside"):
        Relu().interval(-1, 1)
    with pytest.raises(UserError, match=r"slope of an active interval is 0\.0: a lower bound"):
        ActiveInterval(0.0, 1.0, slope=0.0)
    with pytest.raises(UserError, match="has no active interval inside"):
        _ = Custom(jnp.zeros_like).active


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (jnp.sum, "acts elementwise and must keep shape and dtype"),
        (lambda h: h.astype("float64"), "acts elementwise and must keep shape and dtype"),
        (lambda h: (h, h), "acts elementwise and must keep shape and dtype"),
        (lambda h: h @ h, r"fails on a float32 array of shape \(2, 3\)"),
    ],
)
def test_functions_that_are_no_activations(function, message):
    with pytest.raises(UserError, match=message):
        Custom(function)


def test_custom_without_a_slope_somewhere():
    with pytest.raises(UserError, match="is NaN or infinite at 0"):
        _ = Custom(jnp.log).lipschitz
    with pytest.raises(UserError, match=r"is NaN or infinite inside \(-1, 1\): choose another interval"):
        Custom(lambda h: jnp.sqrt(jnp.abs(h))).slope_on(-1, 1)
