"""What every activation offers: values and derivatives, the constants of the theorems, and Gaussian expectations."""

import abc
import dataclasses
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from unlazy._checked import Checked
from unlazy._errors import UserError
from unlazy._registry import resolve
from unlazy.activations import gaussian
from unlazy.activations.gaussian import Values

if TYPE_CHECKING:  # type checkers know no abstract class variables
    from typing import ClassVar as AbstractVar
else:
    from equinox import AbstractVar

_POINTS = 2049  # per pass of `slope_on`
_PASSES = 3


@dataclasses.dataclass(frozen=True)
class ActiveInterval:
    """An open bounded interval I = (I_l, I_r) on which |σ'| ≥ K_σ' > 0 (chen2022 Assumption 2).

    Parameters
    ----------
    left, right
        The ends I_l < I_r, two finite numbers.
    slope
        A lower bound K_σ' > 0 of |σ'| on the interval.
    """

    left: float
    right: float
    slope: float

    def __post_init__(self) -> None:
        _check_ends(self.left, self.right)
        if not self.slope > 0:
            raise UserError(
                f"The slope of an active interval is {self.slope}: a lower bound of |σ'| above 0 was expected."
            )

    @property
    def middle(self) -> tuple[float, float]:
        """The middle third ((2 I_l + I_r) / 3, (I_l + 2 I_r) / 3), where neurons are counted at time 0 (Lemma 1)."""
        return (2 * self.left + self.right) / 3, (self.left + 2 * self.right) / 3


def _check_ends(left: float, right: float) -> None:
    if not (math.isfinite(left) and math.isfinite(right) and left < right):
        raise UserError(f"({left}, {right}) is not an interval: two finite numbers, the smaller first, were expected.")


@eqx.filter_jit
def _apply(function: Callable[[Array], Array], points: Array) -> Array:
    return function(points)


def sample(function: Callable[[Array], Array], points: np.ndarray) -> np.ndarray:
    """Evaluate an elementwise JAX function now, even where the caller is being traced."""
    with jax.ensure_compile_time_eval():
        return np.asarray(_apply(function, jnp.asarray(points)), dtype=float)


class Activation(Checked):
    """A function σ: ℝ → ℝ applied elementwise, in the dtype of its argument.

    Parameters of an activation are static: equal activations are equal pytrees without leaves, and nothing recompiles.

    Attributes
    ----------
    lipschitz : float
        The Lipschitz constant L_σ = sup |σ'|; infinite where there is none.
    active : ActiveInterval
        An interval for chen2022 Assumption 2. Any choice is right; this one nearly maximises, over the intervals inside
        (-4, 4), slope² · P(z ∈ middle third) with z ~ N(0, 1): the rate of chen2022 (60) for pre-activations of unit
        variance. For pre-activations of another size choose your own by `interval`.
    multiplicity : int or None
        The smallest r ≥ 1 with σ⁽ˢ⁾(0) = 0 for all s < r and σ⁽ʳ⁾(0) ≠ 0 (zhou2023 Definition 1). None, the default,
        where there is no such r: σ(0) ≠ 0, or σ is not smooth at 0.
    kinks : tuple of float
        The points where σ is not differentiable, none by default; σ' is 0 there by convention (chen2022 section 3).
    """

    lipschitz: AbstractVar[float]
    active: AbstractVar[ActiveInterval]
    multiplicity: ClassVar[int | None] = None
    kinks = cast("tuple[float, ...]", ())  # without an annotation a subclass may make it a field, after its others

    @abc.abstractmethod
    def __call__(self, h: Values) -> Values:
        """σ(h)."""

    @abc.abstractmethod
    def derivative(self, h: Values) -> Values:
        """σ'(h), and 0 at a kink."""

    @abc.abstractmethod
    def second_derivative(self, h: Values) -> Values:
        """σ''(h), and 0 at a kink."""

    def slope_between(self, h: Values, k: Values) -> Values:
        """Mean of σ' between h and k: (σ(k) - σ(h)) / (k - h), or to second order σ' at the midpoint.

        The midpoint is as accurate where σ is smooth; at a kink the quotient weights both sides correctly.
        """
        middle = self.derivative(0.5 * (h + k))
        if not self.kinks:
            return middle
        way = k - h
        # Below this the quotient loses more digits than the middle does.
        apart = jnp.abs(way) > float(jnp.finfo(h.dtype).eps) ** (1 / 3) * (jnp.abs(h) + jnp.abs(k))
        return jnp.where(apart, (self(k) - self(h)) / jnp.where(apart, way, 1), middle)

    def dual(self, q1: Values, q2: Values, c: Values) -> Values:
        """E[σ(u) σ(v)] for centred Gaussian (u, v) with variances q1, q2 and covariance c.

        Elementwise, by quadrature unless a subclass knows a closed form. Shapes broadcast: variances of shape (n, 1)
        and (1, n) with covariances (n, n) cost less than three matrices. A covariance beyond ±√(q1 q2), from rounding,
        is clipped.
        """
        return gaussian.dual(self, q1, q2, c)

    def dual_derivative(self, q1: Values, q2: Values, c: Values) -> Values:
        """E[σ'(u) σ'(v)] for the same Gaussian pair as in `dual`; this is also ∂/∂c of `dual` where σ is smooth."""
        return gaussian.dual(self.derivative, q1, q2, c)

    def mean(self, q: Values) -> Values:
        """E[σ(z)], z ~ N(0, q)."""
        return gaussian.expectation(self, q)

    def moment(self, q: Values) -> Values:
        """E[σ(z)²], z ~ N(0, q)."""
        return self.dual(q, q, q)

    @staticmethod
    def expectation(g: Callable[[Array], Array], q: Values) -> Values:
        """E[g(z)], z ~ N(0, q), for each entry of q and any elementwise g, by quadrature.

        The rule has 256 points in ±8.5 standard deviations. For smooth g of moderate growth it is exact up to rounding
        while g varies on scales above √q / 5; a kink costs some 1e-4 √q and a jump some 1e-2, each times its size.
        """
        return gaussian.expectation(g, q)

    @staticmethod
    def pair_expectation(g: Callable[[Array], Array], q1: Values, q2: Values, c: Values) -> Values:
        """E[g(u) g(v)] for the same Gaussian pair as in `dual` and any smooth elementwise g, by quadrature."""
        return gaussian.dual(g, q1, q2, c)

    @staticmethod
    def triple_expectation(
        g: Callable[[Array, Array, Array], Array], covariances: Float[Array, "p 3 3"]
    ) -> Float[Array, " p"]:
        """E[g(u, v, w)] for each of p centred Gaussian triples and any smooth elementwise g, by quadrature."""
        return gaussian.triple(g, covariances)

    def slope_on(self, left: float, right: float) -> float:
        """Infimum of |σ'| over the open interval (left, right); 0 where σ has a kink inside.

        Found on a grid of 2049 points with both ends, then twice on as many around the smallest value. A change of sign
        gives 0, and so does a value that is rounding error beside the largest one. Where σ' has several almost equally
        deep minima the error is at most sup|σ'''| (right - left)² / 3e7.
        """
        _check_ends(left, right)
        if any(left < kink < right for kink in self.kinks):
            return 0.0
        given, lowest, rounding = (left, right), math.inf, 0.0
        for _ in range(_PASSES):
            points = np.linspace(left, right, _POINTS)
            # The interval is open: at an end that is a kink, σ' is the limit from inside and not the convention.
            points = points[~np.isin(points, self.kinks)]
            slopes = sample(self.derivative, points)
            if not np.all(np.isfinite(slopes)):
                raise UserError(f"σ' of {self} is NaN or infinite inside {given}: choose another interval.")
            if slopes.min() <= 0 <= slopes.max():
                return 0.0
            slopes = np.abs(slopes)
            rounding = max(rounding, 8 * float(jnp.finfo(jnp.result_type(float)).eps * slopes.max()))
            place = int(np.argmin(slopes))
            lowest = min(lowest, float(slopes[place]))
            left, right = float(points[max(place - 1, 0)]), float(points[min(place + 1, points.size - 1)])
        return lowest if lowest > rounding else 0.0

    def interval(self, left: float, right: float) -> ActiveInterval:
        """Make (left, right) the active interval, with K_σ' from `slope_on`."""
        slope = self.slope_on(left, right)
        if slope == 0:
            raise UserError(
                f"|σ'| of {self} is not bounded away from 0 on ({left}, {right}): choose an interval without a zero of "
                "σ' and without a kink inside, such as its attribute `active`."
            )
        return ActiveInterval(float(left), float(right), slope)


def as_activation(value: Any) -> Activation:
    """Convert a value to an activation.

    Parameters
    ----------
    value
        An `Activation`; the name of one ("relu", "leaky-relu"), or "package.module:name"; or a plain elementwise
        function such as ``jnp.sin``, which becomes `Custom`.
    """
    return resolve("activation", value)
