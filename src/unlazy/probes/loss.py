"""Loss, error and outputs, on the training and on the test set."""

import jax.numpy as jnp

from unlazy._observation import Observation
from unlazy._types import Outputs, Scalar
from unlazy.probes._base import Probe


class TrainLoss(Probe):
    """The loss that the flow descends."""

    def __call__(self, obs: Observation) -> Scalar:
        """L on the training set, weights included."""
        return obs.loss(obs.outputs, obs.data.y, obs.data.weight)


class TestLoss(Probe):
    """The loss on the test set, always as a mean, because sums over sets of different size are not comparable."""

    __test__ = False

    def __call__(self, obs: Observation) -> Scalar:
        """Mean cost over the test set."""
        return jnp.mean(obs.loss.cost(obs.test_outputs, obs.y_test))


def misclassified(f: Outputs, y: Outputs) -> Scalar:
    """Fraction of wrong decisions, by the largest of several outputs or by the sign of one."""
    if f.ndim == 2 and f.shape[1] > 1:
        wrong = jnp.argmax(f, axis=1) != jnp.argmax(y, axis=1)
    else:
        wrong = (f > 0) != (y > 0)
    return jnp.mean(wrong.astype(f.dtype))


class TrainError(Probe):
    """Fraction of misclassified training samples (targets ±1, or one-hot)."""

    def __call__(self, obs: Observation) -> Scalar:
        """Evaluate on the training set."""
        return misclassified(obs.outputs, obs.data.y)


class TestError(Probe):
    """Fraction of misclassified test samples (targets ±1, or one-hot)."""

    __test__ = False

    def __call__(self, obs: Observation) -> Scalar:
        """Evaluate on the test set."""
        return misclassified(obs.test_outputs, obs.y_test)


class TrainOutputs(Probe):
    """f on the training set."""

    def __call__(self, obs: Observation) -> Outputs:
        """Evaluate."""
        return obs.outputs


class TestOutputs(Probe):
    """f on the test set."""

    __test__ = False

    def __call__(self, obs: Observation) -> Outputs:
        """Evaluate."""
        return obs.test_outputs
