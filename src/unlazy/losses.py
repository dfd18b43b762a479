"""Losses: what a flow descends.

A loss is a sum over samples of a per-sample cost ℓ(f_i, y_i), reduced by ``sum`` (L = Σ_i ω_i ℓ_i, the convention of
the theorems of chen2022 and caron2023) or by ``mean`` (L = Σ_i ω_i ℓ_i / Σ_i ω_i). Without weights every ω_i is 1. The
two differ by a change of time only: t_sum = t_mean / n.
"""

import abc
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from unlazy._types import Outputs, Scalar

Reduction = Literal["mean", "sum"]


class Loss(eqx.Module):
    """A per-sample cost and how it is reduced over the samples."""

    reduction: eqx.AbstractVar[Reduction]

    @abc.abstractmethod
    def cost(self, f: Outputs, y: Outputs) -> Float[Array, " n"]:
        """Cost ℓ(f_i, y_i) of each sample."""

    def __call__(self, f: Outputs, y: Outputs, weight: Float[Array, " n"] | None = None) -> Scalar:
        """Reduce the costs: Σ_i ω_i ℓ_i, divided by Σ_i ω_i where the reduction is the mean."""
        cost = self.cost(f, y)
        if weight is None:
            return jnp.mean(cost) if self.reduction == "mean" else jnp.sum(cost)
        total = jnp.sum(weight * cost)
        return total / jnp.sum(weight) if self.reduction == "mean" else total

    def slope(self, f: Outputs, y: Outputs, weight: Float[Array, " n"] | None = None) -> Outputs:
        """Derivative dL/df by each output: the signal that a network back-propagates."""
        return jax.grad(self.__call__)(f, y, weight)


def _per_sample(values: Float[Array, "n *k"]) -> Float[Array, " n"]:
    return jnp.sum(values, axis=tuple(range(1, values.ndim)))


class Squared(Loss):
    """Squared error ℓ = ½ |f - y|², or |f - y|² without the half (as in caron2023's released simulation)."""

    reduction: Reduction = eqx.field(static=True, default="mean")
    half: bool = eqx.field(static=True, default=True)

    def cost(self, f: Outputs, y: Outputs) -> Float[Array, " n"]:
        """Squared distance of each sample's output from its target."""
        distance = _per_sample(jnp.square(f - y))
        return 0.5 * distance if self.half else distance


class Logistic(Loss):
    """Logistic loss ℓ = Σ_k log(1 + exp(-y_k f_k)) for labels y = ±1."""

    reduction: Reduction = eqx.field(static=True, default="mean")

    def cost(self, f: Outputs, y: Outputs) -> Float[Array, " n"]:
        """Logistic cost of each sample, overflow-free."""
        return _per_sample(jax.nn.softplus(-y * f))


class CrossEntropy(Loss):
    """Cross-entropy ℓ = -Σ_k y_k log softmax(f)_k for one-hot (or soft) labels of shape (n, k)."""

    reduction: Reduction = eqx.field(static=True, default="mean")

    def cost(self, f: Outputs, y: Outputs) -> Float[Array, " n"]:
        """Cross-entropy of each sample."""
        return -_per_sample(y * jax.nn.log_softmax(f, axis=-1))
