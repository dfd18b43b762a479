"""Rectifiers: 0, or small, on the left and the identity on the right."""

import math
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp

from unlazy._errors import UserError
from unlazy.activations import gaussian
from unlazy.activations._base import Activation, ActiveInterval
from unlazy.activations.gaussian import Values


def _arc_cosine(rho: Values) -> Values:
    """E[(u)₊ (v)₊] for unit variances and correlation ρ: (√(1-ρ²) + ρ (π - arccos ρ)) / 2π (Cho and Saul 2009)."""
    value = jnp.sqrt((1 - rho) * (1 + rho)) + rho * (math.pi - jnp.arccos(rho))
    return jnp.maximum(value, 0) / (2 * math.pi)  # the two terms cancel at ρ = -1


def _both_positive(rho: Values) -> Values:
    """P(u > 0, v > 0) = (π - arccos ρ) / 2π."""
    return (math.pi - jnp.arccos(rho)) / (2 * math.pi)


class _Rectifier(Activation):
    """The identity on the right, with a kink at 0."""

    lipschitz: ClassVar[float] = 1.0
    active: ClassVar[ActiveInterval] = ActiveInterval(0.0, 2.0, slope=1.0)
    kinks: ClassVar[tuple[float, ...]] = (0.0,)

    def second_derivative(self, h: Values) -> Values:
        """σ''(h) = 0."""
        return jnp.zeros_like(h)


class Relu(_Rectifier):
    """σ(h) = max(h, 0), with σ'(0) = 0."""

    def __call__(self, h: Values) -> Values:
        return jax.nn.relu(h)

    def derivative(self, h: Values) -> Values:
        """σ'(h) = 1 where h > 0, else 0."""
        return (h > 0).astype(h.dtype)

    def mean(self, q: Values) -> Values:
        """√(q / 2π)."""
        return jnp.sqrt(q / (2 * math.pi))

    def dual(self, q1: Values, q2: Values, c: Values) -> Values:
        """Arc-cosine kernel of degree 1."""
        scale, rho = gaussian.correlation(q1, q2, c)
        return scale * _arc_cosine(rho)

    def dual_derivative(self, q1: Values, q2: Values, c: Values) -> Values:
        """Arc-cosine kernel of degree 0; where a variance is 0 that variable sits on the kink, and σ' = 0."""
        scale, rho = gaussian.correlation(q1, q2, c)
        return jnp.where(scale > 0, _both_positive(rho), 0)


class LeakyRelu(_Rectifier):
    """σ(h) = h for h > 0 and σ(h) = ``slope`` · h for h < 0, with σ'(0) = 0.

    Parameters
    ----------
    slope
        The slope for h < 0, with -1 ≤ slope < 1. A slope of -1 is the absolute value.
    """

    slope: float = eqx.field(static=True, default=0.01, converter=float)

    def __check_init__(self) -> None:
        if not -1 <= self.slope < 1:
            raise UserError(
                f"The slope of a leaky ReLU is {self.slope}: a number in [-1, 1) was expected. "
                "With slope 1 it is `Linear`; a steeper left side is a scaled and mirrored leaky ReLU."
            )

    def __call__(self, h: Values) -> Values:
        # The gradient of `jax.nn.leaky_relu` at 0 is 1; the sum has 0 there.
        return jax.nn.relu(h) - self.slope * jax.nn.relu(-h)

    def derivative(self, h: Values) -> Values:
        """σ'(h) = 1, slope or 0, by the sign of h."""
        return (h > 0).astype(h.dtype) + self.slope * (h < 0).astype(h.dtype)

    def mean(self, q: Values) -> Values:
        """(1 - slope) √(q / 2π)."""
        return (1 - self.slope) * jnp.sqrt(q / (2 * math.pi))

    def dual(self, q1: Values, q2: Values, c: Values) -> Values:
        """Arc-cosine kernels of degree 1, by σ(h) = (h)₊ - slope · (-h)₊."""
        scale, rho = gaussian.correlation(q1, q2, c)
        return scale * ((1 + self.slope**2) * _arc_cosine(rho) - 2 * self.slope * _arc_cosine(-rho))

    def dual_derivative(self, q1: Values, q2: Values, c: Values) -> Values:
        """Arc-cosine kernels of degree 0; where a variance is 0 that variable sits on the kink, and σ' = 0."""
        scale, rho = gaussian.correlation(q1, q2, c)
        value = (1 + self.slope**2) * _both_positive(rho) + 2 * self.slope * _both_positive(-rho)
        return jnp.where(scale > 0, value, 0)


class Softplus(Activation):
    """σ(h) = log(1 + eʰ)."""

    lipschitz: ClassVar[float] = 1.0  # a supremum, approached as h → ∞
    active: ClassVar[ActiveInterval] = ActiveInterval(0.0, 2.0, slope=0.5)

    def __call__(self, h: Values) -> Values:
        return jax.nn.softplus(h)

    def derivative(self, h: Values) -> Values:
        """σ'(h) = s(h) = 1 / (1 + e⁻ʰ)."""
        return jax.nn.sigmoid(h)

    def second_derivative(self, h: Values) -> Values:
        """σ''(h) = s (1 - s)."""
        s = jax.nn.sigmoid(h)
        return s * (1 - s)
