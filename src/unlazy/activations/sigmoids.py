"""Sigmoids: bounded and increasing."""

import math
from typing import ClassVar

import jax
import jax.numpy as jnp

from unlazy.activations._base import Activation, ActiveInterval
from unlazy.activations.gaussian import Values


class Tanh(Activation):
    """σ(h) = tanh h."""

    lipschitz: ClassVar[float] = 1.0
    active: ClassVar[ActiveInterval] = ActiveInterval(-0.5, 0.5, slope=1 - math.tanh(0.5) ** 2)
    multiplicity: ClassVar[int | None] = 1

    def __call__(self, h: Values) -> Values:
        return jnp.tanh(h)

    def derivative(self, h: Values) -> Values:
        """σ'(h) = 1 - t²."""
        t = jnp.tanh(h)
        return 1 - t * t

    def second_derivative(self, h: Values) -> Values:
        """σ''(h) = -2 t (1 - t²)."""
        t = jnp.tanh(h)
        return -2 * t * (1 - t * t)


class Sigmoid(Activation):
    """σ(h) = 1 / (1 + e⁻ʰ)."""

    lipschitz: ClassVar[float] = 0.25
    active: ClassVar[ActiveInterval] = ActiveInterval(-1.0, 1.0, slope=math.exp(-1) / (1 + math.exp(-1)) ** 2)

    def __call__(self, h: Values) -> Values:
        return jax.nn.sigmoid(h)

    def derivative(self, h: Values) -> Values:
        """σ'(h) = s (1 - s)."""
        s = jax.nn.sigmoid(h)
        return s * (1 - s)

    def second_derivative(self, h: Values) -> Values:
        """σ''(h) = s (1 - s) (1 - 2 s)."""
        s = jax.nn.sigmoid(h)
        return s * (1 - s) * (1 - 2 * s)


def _root(q1: Values, q2: Values, c: Values) -> Values:
    # √((1 + 2 q1)(1 + 2 q2) - 4 c²), written so that nothing cancels and c beyond ±√(q1 q2) is clipped.
    return jnp.sqrt(1 + 2 * q1 + 2 * q2 + 4 * jnp.maximum(q1 * q2 - c * c, 0))


class Erf(Activation):
    """σ(h) = erf h = 2/√π ∫₀ʰ exp(-s²) ds."""

    lipschitz: ClassVar[float] = 2 / math.sqrt(math.pi)
    active: ClassVar[ActiveInterval] = ActiveInterval(-0.5, 0.5, slope=2 / math.sqrt(math.pi) * math.exp(-0.25))
    multiplicity: ClassVar[int | None] = 1

    def __call__(self, h: Values) -> Values:
        return jax.lax.erf(h)

    def derivative(self, h: Values) -> Values:
        """σ'(h) = 2/√π exp(-h²)."""
        return self.lipschitz * jnp.exp(-h * h)

    def second_derivative(self, h: Values) -> Values:
        """σ''(h) = -4/√π h exp(-h²)."""
        return -2 * self.lipschitz * h * jnp.exp(-h * h)

    def dual(self, q1: Values, q2: Values, c: Values) -> Values:
        """E[σ(u) σ(v)] = 2/π arcsin(2c / √((1 + 2 q1)(1 + 2 q2))) (Williams 1997)."""
        # As an arc tangent: accurate at correlations ±1 too.
        return 2 / math.pi * jnp.arctan2(2 * c, _root(q1, q2, c))

    def dual_derivative(self, q1: Values, q2: Values, c: Values) -> Values:
        """E[σ'(u) σ'(v)] = 4/π / √((1 + 2 q1)(1 + 2 q2) - 4 c²)."""
        return 4 / math.pi / _root(q1, q2, c)
