"""Checks for activations."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from unlazy.activations import Activation
from unlazy.testing.members import close

_POINTS = np.concatenate([np.linspace(-6, 6, 241), np.random.default_rng(0).normal(size=200)])  # 0 and ±1 among them
_GRID = np.round(np.linspace(-30, 30, 60_001), 3)
_STEP = 1e-5
# Variances q1, q2 and covariances c of Gaussian pairs, the last two of correlation 1 and -1.
_PAIRS = np.array(
    [(1.0, 1.0, 0.0), (1.0, 1.0, 0.9), (0.3, 2.0, -0.5), (2.0, 0.7, 0.4), (2.0, 2.0, 2.0), (0.5, 0.5, -0.5)]
)


def check_activation(activation: Activation, accuracy: float = 1e-9) -> None:
    """Check derivatives, constants and Gaussian expectations of an activation against independent computations.

    Parameters
    ----------
    activation
        An instance. The checks run in 64 bits, however JAX is set.
    accuracy
        Largest error of ``dual`` and ``dual_derivative``, relative to E[σ²] and E[σ'²]. Quadrature at a kink, as in
        `Custom`, needs about 0.1.
    """
    with jax.enable_x64(True):
        for name, check in ACTIVATION_CHECKS.items():
            check(activation, **({"accuracy": accuracy} if name == "expectations" else {}))


@eqx.filter_jit
def _jet(activation: Activation, points: jax.Array) -> jax.Array:
    return jnp.stack([activation(points), activation.derivative(points), activation.second_derivative(points)])


def _at(activation: Activation, points: np.ndarray) -> np.ndarray:
    return np.asarray(_jet(activation, jnp.asarray(points)))


def _off_kinks(activation: Activation) -> np.ndarray:
    return np.abs(np.subtract.outer(_POINTS, [*activation.kinks, np.inf])).min(axis=1) > 1e-3


def derivatives_are_differences(activation: Activation) -> None:
    """``derivative`` and ``second_derivative`` are central differences, off the kinks."""
    far = _off_kinks(activation)
    differences = (_at(activation, _POINTS + _STEP) - _at(activation, _POINTS - _STEP)) / (2 * _STEP)
    # Truncation costs step² |σ'''| / 6 and rounding 1e-16 |σ| / step.
    close(_at(activation, _POINTS)[1:, far], differences[:2, far], 1e-8, 1e-9, "A derivative is not that of the values")


def gradients_are_derivatives(activation: Activation) -> None:
    """`jax.grad` of the values and of ``derivative`` agrees with what is written, off the kinks."""

    @eqx.filter_jit
    def grads(points: jax.Array) -> jax.Array:
        return jnp.stack([jax.vmap(jax.grad(activation))(points), jax.vmap(jax.grad(activation.derivative))(points)])

    far = _off_kinks(activation)
    found = np.asarray(grads(jnp.asarray(_POINTS)))[:, far]
    close(found, _at(activation, _POINTS)[1:, far], 1e-10, 1e-13, "jax.grad disagrees with a derivative")


def kinks_are_kinks(activation: Activation) -> None:
    """At each point of ``kinks`` the one-sided slopes differ, and both derivatives are 0."""
    for kink in activation.kinks:
        values, slopes, curvatures = _at(activation, np.array([kink - 1e-6, kink, kink + 1e-6]))
        assert abs(np.diff(values, 2)[0]) > 1e-7, f"The one-sided slopes at the kink {kink:g} agree: it is not a kink."
        assert slopes[1] == curvatures[1] == 0, f"The derivatives at the kink {kink:g} must be 0 by convention."


def shape_and_dtype_are_kept(activation: Activation) -> None:
    """Values and derivatives have the shape and dtype of the argument, also under strict promotion."""
    with jax.numpy_dtype_promotion("strict"), jax.numpy_rank_promotion("raise"):
        for dtype in (jnp.float16, jnp.bfloat16, jnp.float32, jnp.float64):
            for shape in ((), (2, 3, 4)):
                for function in (activation, activation.derivative, activation.second_derivative):
                    out = jax.eval_shape(function, jax.ShapeDtypeStruct(shape, dtype))
                    kept = (out.shape, out.dtype, out.weak_type) == (shape, dtype, False)
                    assert kept, f"An argument of shape {shape} and {dtype.__name__} became {out}."


def single_precision_is_close(activation: Activation) -> None:
    """In float32 the values are close to float64, and finite for large arguments."""
    far = _off_kinks(activation)
    rounded = _at(activation, np.append(_POINTS, [-1e4, 1e4]).astype(np.float32))
    assert np.all(np.isfinite(rounded)), "A value or derivative in float32 is not finite between -1e4 and 1e4."
    # 1 - tanh² and the like have absolute errors of a few roundings, times h up to 6.
    close(rounded[:, :-2][:, far], _at(activation, _POINTS)[:, far], 2e-5, 5e-6, "float32 is far from float64")


def _infimum(activation: Activation, left: float, right: float) -> float:
    first, last = np.searchsorted(_GRID, [left, right])
    slopes = _at(activation, _GRID)[1][first + 1 : last]
    if slopes.min() < 0 < slopes.max() or any(left < kink < right for kink in activation.kinks):
        return 0.0
    return float(np.abs(slopes).min())


def constants_are_right(activation: Activation) -> None:
    """``lipschitz`` is the supremum of |σ'|, ``active`` an interval as it says, ``multiplicity`` the order at 0."""
    slopes = np.abs(_at(activation, _GRID)[1])
    if math.isinf(activation.lipschitz):
        assert abs(_at(activation, np.array([1e6]))[1][0]) > 1e6, "lipschitz is infinite, but σ' stays small at 1e6."
    else:
        steepest = slopes.max()
        bounded = activation.lipschitz * (1 - 1e-6) <= steepest <= activation.lipschitz * (1 + 1e-12)
        assert bounded, f"lipschitz is {activation.lipschitz:g}, but the largest |σ'| found is {steepest:g}."
    active = activation.active
    lowest = _infimum(activation, active.left, active.right)
    within = active.slope * (1 - 1e-12) <= lowest <= active.slope * (1 + 1e-2)  # the grid leaves out the ends
    assert within, f"active says |σ'| >= {active.slope:g}, and the smallest found is {lowest:g}."
    expected, derivative = None, activation
    for order in range(5):
        if 0 in activation.kinks:
            break
        if abs(float(derivative(jnp.asarray(0.0)))) > 1e-12:
            expected = order or None
            break
        derivative = jax.grad(derivative)
    assert activation.multiplicity == expected, f"multiplicity is {activation.multiplicity}, not {expected}."


def _panels(kinks: tuple[float, ...], q: float) -> tuple[np.ndarray, np.ndarray]:
    """Gauss-Legendre nodes and weights over ±9 standard deviations, split at 0 and at the kinks."""
    end = 9 * math.sqrt(q)
    cuts = np.unique([-end, 0.0, *(kink for kink in kinks if abs(kink) < end), end])
    x, w = np.polynomial.legendre.leggauss(120)
    halves, middles = np.diff(cuts) / 2, (cuts[1:] + cuts[:-1]) / 2
    return (middles[:, None] + halves[:, None] * x).ravel(), (halves[:, None] * w).ravel()


def _integral(activation: Activation, q1: float, q2: float, c: float) -> np.ndarray:
    """E[σ(u) σ(v)] and E[σ'(u) σ'(v)] by the density of u and v, or of u alone where they are the same up to sign."""
    u, weight = _panels(activation.kinks, q1)
    rest = q2 - c * c / q1
    marginal = weight * np.exp(-(u**2) / (2 * q1)) / math.sqrt(2 * math.pi * q1)
    if rest < 1e-12:
        return (_at(activation, u) * _at(activation, c / q1 * u))[:2] @ marginal
    v, weight_v = _panels(activation.kinks, q2)
    given = np.exp(-((v[None] - c / q1 * u[:, None]) ** 2) / (2 * rest)) / math.sqrt(2 * math.pi * rest) * weight_v
    return np.sum((_at(activation, u)[:2] @ (marginal[:, None] * given)) * _at(activation, v)[:2], axis=1)


def expectations_are_integrals(activation: Activation, accuracy: float = 1e-9) -> None:
    """``dual``, ``dual_derivative`` and ``moment`` are integrals over the Gaussian density."""
    columns = [jnp.asarray(column) for column in _PAIRS.T]
    found = np.stack([eqx.filter_jit(one)(*columns) for one in (activation.dual, activation.dual_derivative)])
    wanted = np.transpose([_integral(activation, *pair) for pair in _PAIRS])
    squares = np.transpose([_integral(activation, q, q, q) for q, _, _ in _PAIRS])
    sizes = np.abs(squares).max(axis=1, keepdims=True) + 1e-30
    close(found / sizes, wanted / sizes, 0.0, accuracy, "dual or dual_derivative is not its integral")
    moments = activation.moment(columns[0])
    same = activation.dual(columns[0], columns[0], columns[0])
    close(moments, same, 1e-12, 0.0, "moment(q) is not dual(q, q, q)")


def is_one_activation(activation: Activation) -> None:
    """It has no leaves and can be hashed, so that equal activations compile once."""
    assert jax.tree.leaves(activation) == [], "An activation has no leaves: make its parameters static fields."
    assert hash(activation) == hash(activation), "An activation can be hashed."
    assert activation == eqx.tree_at(lambda one: [], activation, []), "A copy of an activation equals it."


ACTIVATION_CHECKS = {
    "derivatives": derivatives_are_differences,
    "gradients": gradients_are_derivatives,
    "kinks": kinks_are_kinks,
    "shapes": shape_and_dtype_are_kept,
    "precision": single_precision_is_close,
    "constants": constants_are_right,
    "expectations": expectations_are_integrals,
    "identity": is_one_activation,
}
