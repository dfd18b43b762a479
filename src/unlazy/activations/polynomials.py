"""Polynomials, whose Gaussian expectations are polynomials too."""

import math
from typing import ClassVar

import jax.numpy as jnp

from unlazy.activations._base import Activation, ActiveInterval
from unlazy.activations.gaussian import Values


class Linear(Activation):
    """σ(h) = h."""

    lipschitz: ClassVar[float] = 1.0
    active: ClassVar[ActiveInterval] = ActiveInterval(-4.0, 4.0, slope=1.0)
    multiplicity: ClassVar[int | None] = 1

    def __call__(self, h: Values) -> Values:
        return h

    def derivative(self, h: Values) -> Values:
        """σ'(h) = 1."""
        return jnp.ones_like(h)

    def second_derivative(self, h: Values) -> Values:
        """σ''(h) = 0."""
        return jnp.zeros_like(h)

    def dual(self, q1: Values, q2: Values, c: Values) -> Values:
        """E[u v] = c."""
        return jnp.broadcast_to(c, jnp.broadcast_shapes(q1.shape, q2.shape, c.shape))

    def dual_derivative(self, q1: Values, q2: Values, c: Values) -> Values:
        """E[1] = 1."""
        return jnp.ones(jnp.broadcast_shapes(q1.shape, q2.shape, c.shape), c.dtype)


class Cubic(Activation):
    """σ(h) = h³, of multiplicity 3 and without a Lipschitz constant."""

    lipschitz: ClassVar[float] = math.inf
    active: ClassVar[ActiveInterval] = ActiveInterval(1.8, 2.7, slope=3 * 1.8**2)
    multiplicity: ClassVar[int | None] = 3

    def __call__(self, h: Values) -> Values:
        return h * h * h

    def derivative(self, h: Values) -> Values:
        """σ'(h) = 3 h²."""
        return 3 * h * h

    def second_derivative(self, h: Values) -> Values:
        """σ''(h) = 6 h."""
        return 6 * h

    def dual(self, q1: Values, q2: Values, c: Values) -> Values:
        """E[u³ v³] = 9 q1 q2 c + 6 c³ (Isserlis)."""
        return 9 * q1 * q2 * c + 6 * c * c * c

    def dual_derivative(self, q1: Values, q2: Values, c: Values) -> Values:
        """E[9 u² v²] = 9 (q1 q2 + 2 c²) (Isserlis)."""
        return 9 * (q1 * q2 + 2 * c * c)
