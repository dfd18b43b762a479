"""What happens inside compiled code: the state of a run, the outcome of one step, and what methods share."""

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
from unlazy.networks import Batch, Network, Samples, split_trained, trained_rates

JUDGED_TEST_INPUTS = 64  # on which, beside the training inputs, a method estimates its error


class Status(enum.Enum):
    """How a run ended, as a sentence."""

    finished = "The flow reached its final time."
    not_finite = (
        "The parameters or the loss became NaN or infinite; the last finite state was kept. "
        "Try a smaller learning rate or tolerance, or look at the scaling."
    )
    diverged = "The loss rose above 1e8 times its start. Try a smaller learning rate."
    step_limit = (
        "The maximum number of steps was reached. Try a larger `max_steps`, a larger tolerance or an earlier end."
    )
    step_too_small = "The tolerance cannot be met: the step fell below rounding. Try a larger tolerance or float64."
    interrupted = "The run was interrupted; `flow.extend` goes on from where it stopped."

    @property
    def ok(self) -> bool:
        """Whether the flow did all that was asked."""
        return self is Status.finished


CODES = (Status.finished, Status.not_finite, Status.diverged, Status.step_limit, Status.step_too_small)


def code(status: Status) -> Int[Array, ""]:
    """Return the integer that stands for a status inside compiled code."""
    return jnp.asarray(CODES.index(status), jnp.int32)


class State(eqx.Module):
    """The state of a run between two steps.

    Attributes
    ----------
    trained
        The trained parameters.
    step
        Size of the next step, if no save time comes first; None for a method without step sizes.
    memory
        What the method remembers between steps; any tree of arrays.
    remaining
        How far it is to the next save time: time for a continuous method, a number of steps for a discrete one.
    steps, rejected
        Numbers of accepted and rejected steps.
    code
        0, or the code of the status with which the run ended.
    evaluations
        Number of gradients computed, or of operations that cost as much.
    error
        Sum of the estimated relative errors of all steps; NaN where a method does not estimate them.
    """

    # The store keeps states as lists of leaves: a change of this order makes stored states unusable.
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
            A zero of the type in which the distance to save times is counted; that of ``step`` if left out.
        check
            Arrays that must be finite, beside the trained parameters, or else the run ends at once.
        """
        trained, count = split_trained(network)[0], jnp.zeros((), jnp.int32)
        if remaining is None:
            remaining = jnp.zeros((), jax.tree.leaves(trained)[0].dtype) if step is None else jnp.zeros_like(step)
        status = jnp.where(finite(trained, check), 0, code(Status.not_finite))
        kind = remaining.dtype if jnp.issubdtype(remaining.dtype, jnp.floating) else None
        error = jnp.asarray(error, kind)
        return cls(trained, step, memory, remaining, count, count, status, count + evaluations, error)


class Attempt(eqx.Module):
    """The outcome of one trial step, which `Method.take_step` returns.

    Attributes
    ----------
    trained
        The parameters where the step leads.
    memory
        What to remember if the step is accepted.
    size
        How much of `State.remaining` the step covers.
    accepted
        Whether the step is accepted.
    step
        Proposed size of the next step; None for a method without step sizes.
    uncut
        The size that this step would have had if no save time had come first; `State.step` if left out.
    memory_if_rejected
        What to remember if the step is rejected; what was remembered before if left out.
    failure
        0, or the code of a status that ends the run; if left out, parameters that are not finite end it.
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
        """Return the state after this attempt; of ``max_steps`` accepted and rejected steps, one more is used up."""
        keep, step, failure = self.accepted, self.step, self.failure
        if failure is None:
            good = finite(self.trained)
            keep, failure = keep & good, jnp.where(good, 0, code(Status.not_finite))
        remaining = either(keep, state.remaining - self.size, state.remaining)
        if step is not None:
            # A step that was cut at a save time does not make the one after it shorter.
            uncut = state.step if self.uncut is None else self.uncut
            step = jnp.where(keep & (self.size < uncut), jnp.maximum(step, uncut), step)
        if max_steps is not None:
            spent = (state.steps + state.rejected + 1 >= jnp.asarray(max_steps)) & (remaining > 0)
            failure = jnp.where(failure > 0, failure, jnp.where(spent, code(Status.step_limit), 0))
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
    tolerance is accepted, and that after a rejection only the present error counts.

    Attributes
    ----------
    power, safety
        Steps are multiplied by safety (tolerance / error)^power,
    least, most
        but not by less or more than this.
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
    """Return the code of a run that smaller steps would not help: too small, or not finite where not ``good``."""
    return jnp.where(stuck, jnp.where(good, code(Status.step_too_small), code(Status.not_finite)), 0)


# ---------------------------------------------------------------- the right-hand side


def gradient(trained: PyTree, frozen: PyTree, data: Samples | Dataset, loss: Loss) -> tuple[Scalar, PyTree]:
    """Give the loss and its gradient by the trained parameters only, or what a network that clips descends instead."""
    return eqx.combine(trained, frozen).gradient(data, loss)


def velocity(trained: PyTree, frozen: PyTree, data: Samples | Dataset, loss: Loss) -> PyTree:
    """Give θ' = -R ∇L(θ): the right-hand side that every flow shares."""
    return scaled(gradient(trained, frozen, data, loss)[1], trained_rates(eqx.combine(trained, frozen)), -1.0)


def scaled(tree: PyTree, rates: PyTree, factor: float | Scalar) -> PyTree:
    """Multiply each leaf by its rate and a common factor, keeping its precision."""
    return jax.tree.map(lambda rate, leaf: (rate * jnp.asarray(factor, leaf.dtype)) * leaf, rates, tree)


# ---------------------------------------------------------------- trees


def finite(*trees: PyTree) -> Array:
    """Whether every entry of all floating-point leaves is finite."""
    leaves = [leaf for leaf in jax.tree.leaves(trees) if eqx.is_inexact_array(leaf)]
    return jnp.all(jnp.stack([jnp.all(jnp.isfinite(leaf)) for leaf in leaves]))


def either(choice: Bool[Array, ""] | bool, yes: PyTree, no: PyTree) -> PyTree:
    """One tree or the other, leaf by leaf."""
    if choice is True:
        return yes
    return jax.tree.map(lambda a, b: a if a is b else jnp.where(choice, a, b), yes, no)


def length(tree: PyTree) -> Scalar:
    """Euclidean length of all leaves together."""
    return jnp.sqrt(sum(jnp.sum(jnp.square(leaf)) for leaf in jax.tree.leaves(tree)))


# ---------------------------------------------------------------- errors judged by the outputs


def check_tolerance(tolerance: np.ndarray, step: np.ndarray | None, data: Dataset) -> None:
    """Refuse a tolerance below rounding, or a constant step that is not positive."""
    eps = float(jnp.finfo(data.x.dtype).eps)
    if step is None and not float(tolerance) >= 64 * eps:
        raise UserError(
            f"A tolerance of {float(tolerance):g} is not above rounding: try 1e-4, or {64 * eps:.0e} at least."
        )
    if step is not None and not float(step) > 0:
        raise UserError(f"A constant step must be positive, not {float(step):g}.")


def output_scale(f: Outputs, data: Samples) -> Scalar:
    """Root mean square of the targets, to which the tolerance refers; of the outputs where all targets are zero."""
    targets, outputs = (jnp.sqrt(jnp.mean(jnp.square(values))) for values in (data.y, f))
    scale = jnp.where(targets > 0, targets, outputs)
    return jnp.where(scale > 0, scale, 1.0)


def judged_inputs(data: Samples) -> Batch:
    """The inputs on which errors are estimated: all that are trained on, and some of the test inputs."""
    return data.judged(JUDGED_TEST_INPUTS)


# ---------------------------------------------------------------- settings
# Settings that may change without a new compilation are arrays; NumPy's, so that they keep 64 bits whatever JAX does.


def number(value: float) -> np.ndarray:
    """Store a number as an array."""
    return np.asarray(value, float)


def number_or_none(value: float | None) -> np.ndarray | None:
    """Store a number as an array, and None as it is."""
    return None if value is None else number(value)


def count(value: int) -> np.ndarray:
    """Store a number of steps as an array."""
    most = np.iinfo(np.int32).max
    if not 1 <= value <= most:
        raise UserError(f"A number of steps lies between 1 and {most}, so {value} does not.")
    return np.asarray(value, np.int32)
