"""Losses: what a flow descends.

A loss is a sum over samples of a per-sample cost ℓ(f_i, y_i), reduced by ``sum`` (L = Σ_i ω_i ℓ_i, the convention of
the theorems of chen2022 and caron2023) or by ``mean`` (L = Σ_i ω_i ℓ_i / Σ_i ω_i). Without weights every ω_i is 1. The
two differ by a change of time only: t_sum = t_mean / n.
"""

import abc
from collections.abc import Callable
from typing import Any, ClassVar, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from unlazy._checked import Checked
from unlazy._errors import UserError, first_line
from unlazy._registry import resolve
from unlazy._types import Outputs, Scalar

Reduction = Literal["mean", "sum"]

__all__ = ["CrossEntropy", "CustomLoss", "Logistic", "Loss", "SoftmaxSquared", "Squared", "as_loss"]


class Loss(Checked):
    """A per-sample cost and how it is reduced over the samples.

    Attributes
    ----------
    quadratic
        Whether dL/df = Ω (f - y) with a constant diagonal Ω, so that linear dynamics are solved in closed form.
    """

    quadratic: ClassVar[bool] = False
    reduction: eqx.AbstractVar[Reduction]

    @abc.abstractmethod
    def cost(self, f: Outputs, y: Outputs) -> Float[Array, " n"]:
        """Cost ℓ(f_i, y_i) of each sample."""

    def check(self, y: Outputs) -> None:
        """Raise a `UserError` for targets that this loss is not made for; by default there are none."""

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


def _check_probabilities(what: str, y: Outputs) -> None:
    rows = np.asarray(y)
    if rows.ndim != 2 or rows.shape[1] < 2 or rows.min() < 0 or not np.allclose(rows.sum(axis=1), 1, atol=1e-5):
        raise UserError(
            f"{what} needs one-hot labels of shape (n, k), or rows that sum to 1; targets of shape {rows.shape} with "
            f"entries from {rows.min():g} to {rows.max():g} are not: make class numbers one-hot by "
            "unlazy.data.one_hot(y), or use Squared."
        )


class Squared(Loss):
    """Squared error ℓ = ½ |f - y|², or |f - y|² without the half (as in caron2023's released simulation).

    Parameters
    ----------
    reduction
        "mean" or "sum" over samples.
    half
        Whether the factor ½ is there.
    """

    reduction: Reduction = eqx.field(static=True, default="mean")
    half: bool = eqx.field(static=True, default=True)
    quadratic: ClassVar[bool] = True

    def cost(self, f: Outputs, y: Outputs) -> Float[Array, " n"]:
        distance = _per_sample(jnp.square(f - y))
        return 0.5 * distance if self.half else distance


class SoftmaxSquared(Loss):
    """Squared error of probabilities, ℓ = ½ |softmax(f) - y|², or without the half (zhou2023 figure 5).

    Parameters
    ----------
    reduction, half
        As for `Squared`.
    """

    reduction: Reduction = eqx.field(static=True, default="mean")
    half: bool = eqx.field(static=True, default=True)

    def check(self, y: Outputs) -> None:
        _check_probabilities("Softmax", y)

    def cost(self, f: Outputs, y: Outputs) -> Float[Array, " n"]:
        return Squared(half=self.half).cost(jax.nn.softmax(f, axis=-1), y)


class Logistic(Loss):
    """Logistic loss ℓ = Σ_k log(1 + exp(-y_k f_k)) for labels y = ±1.

    Parameters
    ----------
    reduction
        "mean" or "sum" over samples.
    """

    reduction: Reduction = eqx.field(static=True, default="mean")

    def check(self, y: Outputs) -> None:
        if not np.all(np.abs(np.asarray(y)) == 1):
            raise UserError("The logistic loss needs labels -1 and 1: convert labels 0 and 1 by 2 y - 1.")

    def cost(self, f: Outputs, y: Outputs) -> Float[Array, " n"]:
        return _per_sample(jax.nn.softplus(-y * f))


class CrossEntropy(Loss):
    """Cross-entropy ℓ = -Σ_k y_k log softmax(f)_k for one-hot (or soft) labels of shape (n, k).

    Parameters
    ----------
    reduction
        "mean" or "sum" over samples.
    """

    reduction: Reduction = eqx.field(static=True, default="mean")

    def check(self, y: Outputs) -> None:
        _check_probabilities("The cross-entropy", y)

    def cost(self, f: Outputs, y: Outputs) -> Float[Array, " n"]:
        return -_per_sample(y * jax.nn.log_softmax(f, axis=-1))


class CustomLoss(Loss):
    """A loss of your own: ℓ_i = ``function(f, y)_i``, the cost of each sample.

    Use a module-level function, or reuse one instance: a new lambda is another loss, and JAX compiles again.

    Parameters
    ----------
    function
        Takes outputs and targets, both of shape (n,) or (n, k), and returns n costs. JAX differentiates it.
    reduction
        "mean" or "sum" over samples.
    """

    function: Callable[[Any, Any], Any] = eqx.field(static=True)
    reduction: Reduction = eqx.field(static=True, default="mean")

    def check(self, y: Outputs) -> None:
        given = jax.ShapeDtypeStruct(np.shape(y), jnp.result_type(float))
        try:
            made = jax.eval_shape(self.function, given, given)
        except Exception as error:
            raise UserError(
                f"The loss {_name(self.function)} fails on outputs and targets of shape {given.shape} "
                f"({first_line(error)}): give a function of two arrays of this shape."
            ) from error
        if getattr(made, "shape", None) != given.shape[:1]:
            raise UserError(
                f"The loss {_name(self.function)} returns {getattr(made, 'shape', made)} for outputs and targets of "
                f"shape {given.shape}: it must return one cost for each sample, an array of shape {given.shape[:1]}."
            )

    def cost(self, f: Outputs, y: Outputs) -> Float[Array, " n"]:
        return self.function(f, y)


def _name(function: Any) -> str:
    return f"'{getattr(function, '__name__', repr(function))}'"


def as_loss(value: Any) -> Loss:
    """Convert a value to a loss.

    Parameters
    ----------
    value
        A `Loss`; the name of one ("squared", "cross-entropy"), or "package.module:name"; or a plain function
        ``(f, y) -> cost of each sample``, which becomes `CustomLoss`.
    """
    return resolve("loss", value)


as_loss.registered = False  # pyright: ignore[reportFunctionMemberAccess]  # it converts values, and is not a loss itself
