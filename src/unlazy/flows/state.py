"""The state of a run, the outcome of one step, and the functions that methods share: all of it runs compiled."""

from __future__ import annotations

import enum
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int

from unlazy._errors import UserError
from unlazy._types import Outputs, PyTree, Scalar
from unlazy.data import Dataset
from unlazy.losses import Loss
from unlazy.networks import Network, Samples, split_trained, trained_rates
from unlazy.probes.layer_sizes import root_mean_square

JUDGED_TEST_INPUTS = 64  # on which a method estimates its error, in addition to the training inputs


class Status(enum.Enum):
    """How a run ended, as a sentence."""

    finished = "The run reached its final time."
    not_finite = (
        "The parameters or the loss became NaN or infinite; the run ended at the last finite state. "
        "Try a smaller learning rate or tolerance, or check the scaling of the network."
    )
    diverged = "The loss rose above 1e8 times its initial value. Try a smaller learning rate."
    step_limit = "The maximum number of steps was reached. Try increasing `max_steps` or the tolerance."
    step_too_small = (
        "The tolerance cannot be met: the step size fell below rounding error. Try a larger tolerance or float64."
    )
    interrupted = "The run was interrupted. `flow.extend` continues it from where it stopped."
    loss_reached = "The loss of an epoch fell below `stop_loss`; the network then stays as it is."

    @property
    def ok(self) -> bool:
        """Whether the run reached its final time, or a loss at which it was to stop."""
        return self in (Status.finished, Status.loss_reached)

    @property
    def code(self) -> Int[Array, ""]:
        """The integer that stands for this status inside compiled code: ``list(Status)[code]`` is the status."""
        return jnp.asarray(list(Status).index(self), jnp.int32)


_FAILED = np.asarray([not status.ok for status in Status])


def failed(code: Any) -> np.ndarray:
    """Whether runs with these status codes ended early, so that no later time is observed."""
    return np.asarray(_FAILED[np.asarray(code)])


MOST_STEPS = int(np.iinfo(np.int32).max)  # that a run can count


def check_steps(steps: Any, time: float) -> None:
    """Refuse numbers of steps that cannot be counted."""
    most = float(np.max(steps))
    if not most <= MOST_STEPS:
        raise UserError(
            f"t = {time:g} is {most:.3g} steps away, and a run counts up to {MOST_STEPS:,}: take larger steps, or end "
            "earlier."
        )


class State(eqx.Module):
    """The state of a run between two steps.

    Attributes
    ----------
    trained
        The trained parameters.
    step
        Size of the next step, unless a save time comes first; None for a method without step sizes.
    memory
        What the method remembers between steps; any tree of arrays.
    remaining
        Distance to the next save time: a time for a continuous method, a number of steps for a discrete one.
    steps, rejected
        Numbers of accepted and rejected steps.
    code
        0, or the `Status.code` with which the run ended.
    evaluations
        Number of gradients computed, or of operations that cost as much.
    error
        Sum of the estimated relative errors of all steps; NaN if the method does not estimate them.
    """

    # The store saves states as lists of leaves: changing this order makes stored states unusable.
    trained: PyTree
    step: Any
    memory: Any
    remaining: Array
    steps: Int[Array, ""]
    rejected: Int[Array, ""]
    code: Int[Array, ""]
    evaluations: Int[Array, ""]
    error: Scalar

    @classmethod
    def initial(
        cls,
        network: Network,
        memory: Any = None,
        step: Any = None,
        *,
        remaining: Array | None = None,
        evaluations: int | Array = 0,
        error: float | Scalar = 0.0,
        check: PyTree = (),
    ) -> State:
        """Make the state at t = 0, which `Method.init` returns.

        Parameters
        ----------
        network
            The network as prepared for training.
        memory, step, evaluations, error
            As in the state.
        remaining
            A zero of the type in which the distance to save times is counted; that of ``step`` if omitted.
        check
            Further arrays that must be finite, like the trained parameters; otherwise the run ends at once.
        """
        trained, zero = split_trained(network)[0], jnp.zeros((), jnp.int32)
        if remaining is None:
            remaining = jnp.zeros((), jax.tree.leaves(trained)[0].dtype) if step is None else jnp.zeros_like(step)
        status = jnp.where(finite(trained, check), 0, Status.not_finite.code)
        kind = remaining.dtype if jnp.issubdtype(remaining.dtype, jnp.floating) else None
        return cls(trained, step, memory, remaining, zero, zero, status, zero + evaluations, jnp.asarray(error, kind))


class Attempt(eqx.Module):
    """The outcome of one trial step, which `Method.take_step` returns.

    Attributes
    ----------
    trained
        The parameters after the step.
    memory
        What to remember if the step is accepted.
    size
        How much of `State.remaining` the step covers.
    accepted
        Whether the step is accepted.
    step
        Proposed size of the next step; None for a method without step sizes.
    uncut
        The size of this step if no save time had cut it short; `State.step` if omitted.
    memory_if_rejected
        What to remember if the step is rejected; the memory before the step if omitted.
    failure
        0, or the `Status.code` that ends the run; if omitted, parameters that are not finite end it.
    error
        Estimated relative error of the step.
    evaluations
        Number of gradients computed, or of operations that cost as much.
    """

    trained: PyTree
    memory: Any
    size: Array | int
    accepted: Any = True
    step: Any = None
    uncut: Any = None
    memory_if_rejected: Any = None
    failure: Int[Array, ""] | None = None
    error: Scalar | float = 0.0
    evaluations: Int[Array, ""] | int = 1

    def applied_to(self, state: State, max_steps: Any) -> State:
        """Return the state after this attempt, accepted or not, which counts as one of ``max_steps`` steps."""
        keep, step, failure = self.accepted, self.step, self.failure
        if failure is None:
            good = finite(self.trained)
            keep, failure = keep & good, jnp.where(good, 0, Status.not_finite.code)
        remaining = either(keep, state.remaining - self.size, state.remaining)
        if step is not None:
            # A step that was cut short by a save time does not shorten the next one.
            uncut = state.step if self.uncut is None else self.uncut
            step = jnp.where(keep & (self.size < uncut), jnp.maximum(step, uncut), step)
        if max_steps is not None:
            spent = (state.steps + state.rejected + 1 >= jnp.asarray(max_steps)) & (remaining > 0)
            failure = jnp.where(failure > 0, failure, jnp.where(spent, Status.step_limit.code, 0))
        rejected = state.memory if self.memory_if_rejected is None else self.memory_if_rejected
        return State(
            either(keep, self.trained, state.trained),
            step,
            either(keep, self.memory, rejected),
            remaining,
            state.steps + keep,
            state.rejected + jnp.logical_not(keep),
            failure.astype(state.code.dtype),
            state.evaluations + self.evaluations,
            state.error + jnp.where(keep, self.error, 0).astype(state.error.dtype),
        )


class Controller(NamedTuple):
    """Accepts or rejects a step by its error, and proposes the size of the next one.

    It is the rule of `diffrax.PIDController` for an error that is one number, except that an error equal to the
    tolerance is accepted, and that after a rejection only the current error counts.

    Attributes
    ----------
    power, safety
        Steps are multiplied by safety (tolerance / error)^power.
    least, most
        The smallest and the largest factor by which a step is multiplied.
    """

    power: float
    safety: float
    least: float
    most: float

    def __call__(
        self, size: Scalar, error: Scalar, tolerance: Any, good: Bool[Array, ""], past: float | Scalar = 1.0
    ) -> tuple[Bool[Array, ""], Scalar, Scalar]:
        """Return whether a step is accepted, the size of the next, and error / tolerance (1e-6 at least).

        Parameters
        ----------
        size, error
            Size of the step and its estimated error.
        tolerance
            The largest error that is accepted.
        good
            Whether the step and its error are finite.
        past
            A further factor after accepted steps, by which earlier errors may enter.
        """
        ratio = jnp.maximum(error / jnp.asarray(tolerance, error.dtype), 1e-6)
        keep = good & (ratio <= 1)
        factor = self.safety * ratio**-self.power * jnp.where(keep, past, 1.0)
        return keep, size * jnp.where(good, jnp.clip(factor, self.least, self.most), self.least), ratio


def failure(stuck: Bool[Array, ""], good: Bool[Array, ""]) -> Int[Array, ""]:
    """Return the status code of a run that smaller steps would not help (``stuck``), or 0."""
    return jnp.where(stuck, jnp.where(good, Status.step_too_small.code, Status.not_finite.code), 0)


def gradient(trained: PyTree, frozen: PyTree, data: Samples | Dataset, loss: Loss) -> tuple[Scalar, PyTree]:
    """Return the loss and its gradient with respect to the trained parameters.

    A network that clips each sample returns its own descent direction in place of the gradient.

    Parameters
    ----------
    trained, frozen
        The trained and the frozen part of the network: ``equinox.combine(trained, frozen)`` is the network.
    data
        The training samples.
    loss
        The loss.
    """
    return eqx.combine(trained, frozen).gradient(data, loss)


def velocity(trained: PyTree, frozen: PyTree, data: Samples | Dataset, loss: Loss) -> PyTree:
    """Return θ' = -R ∇L(θ), the right-hand side of every flow.

    Parameters
    ----------
    trained, frozen, data, loss
        As for `gradient`.
    """
    return scaled(gradient(trained, frozen, data, loss)[1], trained_rates(eqx.combine(trained, frozen)), -1.0)


def scaled(tree: PyTree, rates: PyTree, factor: float | Scalar) -> PyTree:
    """Multiply each leaf by its rate and a common factor, keeping its precision."""
    return jax.tree.map(lambda rate, leaf: (rate * jnp.asarray(factor, leaf.dtype)) * leaf, rates, tree)


def finite(*trees: PyTree) -> Array:
    """Whether every entry of all floating-point leaves is finite."""
    leaves = [leaf for leaf in jax.tree.leaves(trees) if eqx.is_inexact_array(leaf)]
    return jnp.all(jnp.stack([jnp.all(jnp.isfinite(leaf)) for leaf in leaves]))


def either(choice: Bool[Array, ""] | bool, yes: PyTree, no: PyTree) -> PyTree:
    """Select one of two trees, leaf by leaf."""
    if choice is True:
        return yes
    return jax.tree.map(lambda a, b: a if a is b else jnp.where(choice, a, b), yes, no)


def length(tree: PyTree) -> Scalar:
    """Euclidean norm of all leaves together."""
    return jnp.sqrt(sum(jnp.sum(jnp.square(leaf)) for leaf in jax.tree.leaves(tree)))


def output_scale(f: Outputs, data: Samples) -> Scalar:
    """Root mean square of the targets, to which the tolerance refers; of the outputs if all targets are zero."""
    targets, outputs = root_mean_square(data.y), root_mean_square(f)
    scale = jnp.where(targets > 0, targets, outputs)
    return jnp.where(scale > 0, scale, 1.0)
