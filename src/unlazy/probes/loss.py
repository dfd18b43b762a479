"""Loss, error and outputs, on the training and on the test set."""

import jax.numpy as jnp

from unlazy._errors import UserError
from unlazy._types import Inputs, Outputs, Scalar
from unlazy.data import Dataset
from unlazy.losses import Loss
from unlazy.networks import Network
from unlazy.probes._base import Probe


def test_set(data: Dataset) -> tuple[Inputs, Outputs]:
    """Give the test set, or say that there is none."""
    if data.x_test is None or data.y_test is None:
        raise UserError(f"Data set '{data.name}' has no test set: make one, or leave out the probes that look at it.")
    return data.x_test, data.y_test


test_set.__test__ = False  # a name that pytest must not collect


class TrainLoss(Probe):
    """The loss that the flow descends."""

    def __call__(self, now: Network, start: Network, data: Dataset, loss: Loss) -> Scalar:
        """L on the training set, weights included."""
        return loss(now(data.x), data.y, data.weight)


class TestLoss(Probe):
    """The same loss on the test set, always as a mean: a sum would compare sets of different size."""

    __test__ = False

    def __call__(self, now: Network, start: Network, data: Dataset, loss: Loss) -> Scalar:
        """Mean cost over the test set."""
        x, y = test_set(data)
        return jnp.mean(loss.cost(now(x), y))


def misclassified(f: Outputs, y: Outputs) -> Scalar:
    """Share of wrong decisions: by the largest of several outputs, or by the sign of one."""
    if f.ndim == 2 and f.shape[1] > 1:
        wrong = jnp.argmax(f, axis=1) != jnp.argmax(y, axis=1)
    else:
        wrong = (f > 0) != (y > 0)
    return jnp.mean(wrong.astype(f.dtype))


class TrainError(Probe):
    """Share of misclassified training samples (targets ±1, or one-hot)."""

    def __call__(self, now: Network, start: Network, data: Dataset, loss: Loss) -> Scalar:
        """Look at the training set."""
        return misclassified(now(data.x), data.y)


class TestError(Probe):
    """Share of misclassified test samples (targets ±1, or one-hot)."""

    __test__ = False

    def __call__(self, now: Network, start: Network, data: Dataset, loss: Loss) -> Scalar:
        """Look at the test set."""
        x, y = test_set(data)
        return misclassified(now(x), y)


class TrainOutputs(Probe):
    """f on the training set."""

    def __call__(self, now: Network, start: Network, data: Dataset, loss: Loss) -> Outputs:
        """Evaluate."""
        return now(data.x)


class TestOutputs(Probe):
    """f on the test set."""

    __test__ = False

    def __call__(self, now: Network, start: Network, data: Dataset, loss: Loss) -> Outputs:
        """Evaluate."""
        return now(test_set(data)[0])
