"""Loss, error and outputs, on the training and on the test set."""

import jax.numpy as jnp

from unlazy._types import Outputs, Scalar
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
    """Fraction of wrong decisions, by the largest of several outputs or by the sign of one."""
    several = f.ndim == 2 and f.shape[1] > 1
    wrong = jnp.argmax(f, axis=1) != jnp.argmax(y, axis=1) if several else (f > 0) != (y > 0)
    return jnp.mean(wrong.astype(f.dtype))


class TrainError(Probe):
    """Fraction of misclassified training samples (targets ±1, or one-hot)."""

    def __call__(self, obs: Observation) -> Scalar:
        return misclassified(obs.outputs, obs.data.y)


class TestError(Probe):
    """Fraction of misclassified test samples (targets ±1, or one-hot)."""

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
