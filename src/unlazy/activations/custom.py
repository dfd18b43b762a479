"""An activation given by any function, with estimated constants."""

import functools
import math
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from unlazy._errors import UserError, first_line, short
from unlazy.activations._base import Activation, ActiveInterval, sample
from unlazy.activations.gaussian import Values

_REACH = 10.0  # half-width of the window in which the Lipschitz constant is estimated
_TAIL = np.array([-100.0, -50.0, -20.0, 20.0, 50.0, 100.0])
_HIGHEST = 6  # multiplicity
_NONZERO = 1e-4  # a derivative at 0 below this is taken for 0: rounding of high derivatives in float32
_INSIDE = 4.0  # half-width of the window in which the active interval is searched

Elementwise = Callable[[Array], Array]


def _slope(function: Elementwise) -> Elementwise:
    # Elementwise, so the gradient of the sum holds the derivatives. Reverse mode takes custom_vjp functions too.
    return jax.grad(lambda h: jnp.sum(function(h)))


class Custom(Activation):
    """An activation given by a function σ, with derivatives by `jax.grad`.

    Use a module-level function, or reuse one instance: a new lambda is another activation, and JAX compiles again.

    ``lipschitz``, ``active`` and ``multiplicity`` are estimates, in the precision that JAX runs in. The Lipschitz
    constant is the largest |σ'| on a fine grid of [-10, 10] and at ±20, ±50, ±100; it is infinite if these last values
    are larger by 1 %. The active interval has ends among the multiples of 0.1 and the kinks. The multiplicity is
    determined up to order 6, where |σ⁽ˢ⁾(0)| ≤ 1e-4 counts as 0. The Gaussian expectations are computed by quadrature:
    a kink costs ``dual`` about 1e-3 of E[σ²], but the jump that it makes in σ' costs ``dual_derivative`` up to a tenth
    of E[σ'²].

    Parameters
    ----------
    function
        An elementwise function of arrays of any shape, written with `jax.numpy`.
    kinks
        Points where σ' jumps. The active interval and error control take them into account.
    """

    function: Elementwise = eqx.field(static=True)
    kinks: tuple[float, ...] = eqx.field(static=True, default=(), converter=lambda points: tuple(map(float, points)))  # pyright: ignore[reportIncompatibleVariableOverride]

    def __check_init__(self) -> None:
        given = jax.ShapeDtypeStruct((2, 3), jnp.float32)
        try:
            got = jax.eval_shape(self.function, given)
        except Exception as error:
            raise UserError(
                f"{short(self.function)} fails on a float32 array of shape (2, 3) ({first_line(error)}): give a "
                "function that acts elementwise on arrays, written with jax.numpy."
            ) from error
        if getattr(got, "shape", None) != given.shape or got.dtype != given.dtype:
            raise UserError(
                f"{short(self.function)} returns {short(got)} for a float32 array of shape (2, 3): an activation acts "
                "elementwise and must keep shape and dtype. Python numbers instead of arrays inside the function keep "
                "the dtype."
            )

    def _off_kinks(self, h: Values, value: Values) -> Values:
        for kink in self.kinks:
            value = jnp.where(h == kink, 0, value)
        return value

    def __call__(self, h: Values) -> Values:
        return self.function(h)

    def derivative(self, h: Values) -> Values:
        """σ'(h) by `jax.grad`, and 0 at a kink."""
        return self._off_kinks(h, _slope(self.function)(h))

    def second_derivative(self, h: Values) -> Values:
        """σ''(h) by `jax.grad`, and 0 at a kink."""
        return self._off_kinks(h, _slope(_slope(self.function))(h))

    @property
    def lipschitz(self) -> float:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Estimate of sup |σ'|."""
        return _lipschitz(self)

    @property
    def active(self) -> ActiveInterval:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Estimate of the best active interval inside (-4, 4)."""
        return _active(self)

    @property
    def multiplicity(self) -> int | None:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Estimate of zhou2023's r."""
        return None if 0 in self.kinks else _multiplicity(self.function)


def _slopes(activation: Custom, points: np.ndarray) -> np.ndarray:
    slopes = np.abs(sample(activation.derivative, points))
    if not np.all(np.isfinite(slopes)):
        where = points[~np.isfinite(slopes)][0]
        raise UserError(f"σ' of {activation} is NaN or infinite at {where:g}: it must be finite except at kinks.")
    return slopes


@functools.lru_cache(maxsize=64)
def _lipschitz(activation: Custom) -> float:
    points = np.linspace(-_REACH, _REACH, 8193)
    slopes = _slopes(activation, points)
    steepest = int(np.argmax(slopes))
    near = np.linspace(points[max(steepest - 1, 0)], points[min(steepest + 1, points.size - 1)], points.size)
    largest = float(max(slopes.max(), _slopes(activation, near).max()))
    beyond = float(_slopes(activation, _TAIL).max())
    return math.inf if beyond > 1.01 * largest else max(largest, beyond)


@functools.lru_cache(maxsize=64)
def _multiplicity(function: Elementwise) -> int | None:
    for order in range(_HIGHEST + 1):
        value = abs(float(sample(function, np.zeros(1))[0]))
        if not value <= _NONZERO:
            return order if order and math.isfinite(value) else None
        function = _slope(function)
    return None


@functools.lru_cache(maxsize=64)
def _active(activation: Custom) -> ActiveInterval:
    kinks = [kink for kink in activation.kinks if -_INSIDE < kink < _INSIDE]
    ends = np.union1d(np.round(np.linspace(-_INSIDE, _INSIDE, 81), 10), kinks)
    # The smallest |σ'| of each cell between neighbouring ends, at points off the ends, where kinks are.
    points = ends[:-1, None] + np.diff(ends)[:, None] * (np.arange(16) + 0.5) / 16
    slopes = sample(activation.derivative, points)
    cells = np.where((slopes > 0).all(axis=1) | (slopes < 0).all(axis=1), np.abs(slopes).min(axis=1), 0.0)
    best, chosen = 0.0, None
    for first in range(cells.size):
        slope = math.inf
        for last in range(first, cells.size):
            slope = min(slope, cells[last])
            left, right = ends[first], ends[last + 1]
            low, high = (2 * left + right) / 3, (left + 2 * right) / 3
            rate = slope**2 * (math.erf(high / math.sqrt(2)) - math.erf(low / math.sqrt(2)))
            if rate > 0 and rate >= best * (1 - 1e-5):  # of two equal intervals, the one to the right
                best, chosen = max(rate, best), (float(left), float(right))
            if slope == 0 or right in kinks:
                break
    if chosen is None:
        raise UserError(
            f"{activation} has no active interval inside (-4, 4): σ' is 0 or changes sign in each 0.1 of it."
        )
    return activation.interval(*chosen)
