"""The argument times a sigmoid of itself."""

import math
from typing import ClassVar

import jax
import jax.numpy as jnp

from unlazy.activations._base import Activation, ActiveInterval
from unlazy.activations.gaussian import Values

# The root of y tanh y = 1, where (y tanh y)'' = 0. There (y tanh y)' = y, and SiLU' at 2y is (1 + y) / 2.
_STEEPEST = 1.1996786402577337


class Silu(Activation):
    """σ(h) = h / (1 + e⁻ʰ), also called swish."""

    lipschitz: ClassVar[float] = (1 + _STEEPEST) / 2
    active: ClassVar[ActiveInterval] = ActiveInterval(
        0.5, 2.0, slope=(1 + 0.5 / (1 + math.exp(0.5))) / (1 + math.exp(-0.5))
    )
    multiplicity: ClassVar[int | None] = 1

    def __call__(self, h: Values) -> Values:
        return jax.nn.silu(h)

    def derivative(self, h: Values) -> Values:
        """σ'(h) = s (1 + h (1 - s))."""
        s = jax.nn.sigmoid(h)
        return s * (1 + h * (1 - s))

    def second_derivative(self, h: Values) -> Values:
        """σ''(h) = s (1 - s) (2 + h (1 - 2 s))."""
        s = jax.nn.sigmoid(h)
        return s * (1 - s) * (2 + h * (1 - 2 * s))


def _cdf(h: float) -> float:
    return 0.5 * (1 + math.erf(h / math.sqrt(2)))


def _density(h: Values) -> Values:
    return jnp.exp(-0.5 * h * h) / math.sqrt(2 * math.pi)


class Gelu(Activation):
    """σ(h) = h Φ(h) with the Gaussian distribution function Φ, exactly and not by its tanh approximation."""

    # σ'' = φ(h) (2 - h²): σ' is steepest at √2, where φ = e⁻¹ / √(2π).
    lipschitz: ClassVar[float] = _cdf(math.sqrt(2)) + math.exp(-1) / math.sqrt(math.pi)
    active: ClassVar[ActiveInterval] = ActiveInterval(
        0.5, 2.0, slope=_cdf(0.5) + 0.5 * math.exp(-0.125) / math.sqrt(2 * math.pi)
    )
    multiplicity: ClassVar[int | None] = 1

    def __call__(self, h: Values) -> Values:
        return jax.nn.gelu(h, approximate=False)

    def derivative(self, h: Values) -> Values:
        """σ'(h) = Φ(h) + h φ(h)."""
        return 0.5 * (1 + jax.lax.erf(h / math.sqrt(2))) + h * _density(h)

    def second_derivative(self, h: Values) -> Values:
        """σ''(h) = φ(h) (2 - h²)."""
        density = _density(h)
        return 2 * density - h * density * h  # in this order h² cannot overflow

    def dual(self, q1: Values, q2: Values, c: Values) -> Values:
        """E[σ(u) σ(v)] = c B + F (q1 q2 + c² (1/(1+q1) + 1/(1+q2) - 1)).

        Here B = E[Φ(u) Φ(v)] = 1/4 + arcsin(c / √((1+q1)(1+q2))) / 2π, F = E[φ(u) φ(v)] = 1 / (2π √D) and
        D = (1+q1)(1+q2) - c². It follows from Stein's lemma, applied to u and then to v.
        """
        both, density, _ = _gaussian_gates(q1, q2, c)
        return c * both + density * (q1 * q2 + c * c * (1 / (1 + q1) + 1 / (1 + q2) - 1))

    def dual_derivative(self, q1: Values, q2: Values, c: Values) -> Values:
        """E[σ'(u) σ'(v)] = B + c F (1/(1+q1) + 1/(1+q2) + 1/D), with B, F and D as in `dual`."""
        both, density, determinant = _gaussian_gates(q1, q2, c)
        return both + c * density * (1 / (1 + q1) + 1 / (1 + q2) + 1 / determinant)


def _gaussian_gates(q1: Values, q2: Values, c: Values) -> tuple[Values, Values, Values]:
    """B, F and D of `Gelu.dual`."""
    # D = (1 + q1)(1 + q2) - c², written so that nothing cancels and c beyond ±√(q1 q2) is clipped.
    determinant = 1 + q1 + q2 + jnp.maximum(q1 * q2 - c * c, 0)
    root = jnp.sqrt(determinant)
    return 0.25 + jnp.arctan2(c, root) / (2 * math.pi), 1 / (2 * math.pi * root), determinant


class Xtanh(Activation):
    """σ(h) = h tanh h, of multiplicity 2 (zhou2023 Remark 1)."""

    lipschitz: ClassVar[float] = _STEEPEST
    active: ClassVar[ActiveInterval] = ActiveInterval(0.7, 2.2, slope=math.tanh(0.7) + 0.7 * (1 - math.tanh(0.7) ** 2))
    multiplicity: ClassVar[int | None] = 2

    def __call__(self, h: Values) -> Values:
        return h * jnp.tanh(h)

    def derivative(self, h: Values) -> Values:
        """σ'(h) = t + h (1 - t²)."""
        t = jnp.tanh(h)
        return t + h * (1 - t * t)

    def second_derivative(self, h: Values) -> Values:
        """σ''(h) = 2 (1 - t²) (1 - h t)."""
        t = jnp.tanh(h)
        return 2 * (1 - t * t) * (1 - h * t)
