"""Loss, error and outputs, on the training and on the test set."""

import jax.numpy as jnp
from jaxtyping import Array, Bool

from unlazy._errors import UserError
from unlazy._types import Outputs, Scalar
from unlazy.data import Dataset
from unlazy.probes.observation import Observation, Probe


class TrainLoss(Probe):
    """The loss that the flow minimises, on the training set with its weights."""

    def __call__(self, obs: Observation) -> Scalar:
        return obs.loss(obs.outputs, obs.data.y, obs.data.weight)


class TestLoss(Probe):
    """The loss on the test set, always as a mean, because sums over sets of different size are not comparable."""

    def __call__(self, obs: Observation) -> Scalar:
        return jnp.mean(obs.loss.cost(obs.test_outputs, obs.y_test))


def misclassified(f: Outputs, y: Outputs) -> Scalar:
    """Fraction of wrong decisions, by the largest of several outputs or by the sign of one.

    It is NaN for targets 0, 1, ... of one output: these number classes, and have no sign to compare with.
    """
    several = f.ndim == 2 and f.shape[1] > 1
    wrong = jnp.argmax(f, axis=1) != jnp.argmax(y, axis=1) if several else (f > 0) != (y > 0)
    share = jnp.mean(wrong.astype(f.dtype))
    return share if several else jnp.where(_class_numbers(y), jnp.nan, share)


def _class_numbers(y: Outputs) -> Bool[Array, ""]:
    """Whether targets number classes, as 0 and 1, so that their signs decide nothing."""
    return jnp.all((y == jnp.round(y)) & (y >= 0)) & (jnp.min(y) < jnp.max(y))


def _check_signs(which: str, data: Dataset, y: Outputs | None) -> None:
    if y is not None and (y.ndim == 1 or y.shape[1] == 1) and _class_numbers(y):
        raise UserError(
            f"{which} counts outputs whose sign is not that of the target, and the targets of '{data.name}' number "
            f"classes from {float(jnp.min(y)):g} to {float(jnp.max(y)):g}: make two classes -1 and 1, or give one "
            "output for each class, with targets unlazy.data.one_hot(y)."
        )


class TrainError(Probe):
    """Fraction of misclassified training samples (targets ±1, or one-hot)."""

    def check(self, data: Dataset) -> None:
        _check_signs("train-error", data, data.y)

    def __call__(self, obs: Observation) -> Scalar:
        return misclassified(obs.outputs, obs.data.y)


class TestError(Probe):
    """Fraction of misclassified test samples (targets ±1, or one-hot)."""

    def check(self, data: Dataset) -> None:
        _check_signs("test-error", data, data.y_test)

    def __call__(self, obs: Observation) -> Scalar:
        return misclassified(obs.test_outputs, obs.y_test)


class TrainOutputs(Probe):
    """Outputs f(x_i) on the training set."""

    def __call__(self, obs: Observation) -> Outputs:
        return obs.outputs


class TestOutputs(Probe):
    """Outputs f(x_i) on the test set."""

    def __call__(self, obs: Observation) -> Outputs:
        return obs.test_outputs
