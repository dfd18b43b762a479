"""Where a run stands and what comes of it, and the right-hand side that all flows share."""

from __future__ import annotations

import dataclasses
import enum
import functools
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from unlazy._errors import UserError
from unlazy._types import PyTree, Scalar
from unlazy.data import Dataset
from unlazy.losses import Loss
from unlazy.networks import Network, trained_rates

Observe = Callable[[Network, Network, Dataset, Loss], PyTree]
Memory = TypeVar("Memory")


class AtEnd(eqx.Module):
    """A probe that looks once, at the end of a run: for what is too dear to be seen often, or too large to be kept.

    ``seen`` then has no axis of times. In a recipe: ``{ kind = "pruning", when = "end" }``.
    """

    probe: Observe

    def __call__(self, now: Network, start: Network, data: Dataset, loss: Loss) -> PyTree:
        """Look, as the probe does."""
        return self.probe(now, start, data, loss)


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
    """Give the integer that stands for a status inside compiled code."""
    return jnp.asarray(CODES.index(status), jnp.int32)


class State(eqx.Module, Generic[Memory]):
    """Where a flow stands: parameters, what it remembers, how much of the way to the next time is left."""

    trained: PyTree
    memory: Memory
    left: Array  # time for a continuous flow, steps for a discrete one
    steps: Int[Array, ""]
    rejected: Int[Array, ""]
    code: Int[Array, ""]
    evaluations: Int[Array, ""]  # of the gradient, or of what costs as much
    error: Scalar  # the sum of the relative errors that the flow estimates of its steps; NaN where it estimates none


class Place(eqx.Module):
    """Everything needed to go on from where a run stands: prepared network and data, the flow's state and its clock."""

    state: State
    frozen: PyTree
    first: PyTree  # the trained parameters at t = 0
    data: Dataset
    raw: Dataset
    target: float  # the time that the run has reached, or is on its way to
    flow: PyTree  # the flow itself, with all choices made


@dataclasses.dataclass(frozen=True, repr=False)
class Trajectory:
    """What came of a run: networks at both ends, what the probes saw, and how it went.

    ``seen[name]`` has the times as its first axis (not for a probe `AtEnd`), and ``probes[name]`` is what saw it.
    ``stats`` counts steps, rejections, gradient evaluations and seconds, says which method went through which
    coordinates, and holds the sum of the errors estimated on the way.
    """

    data: Dataset
    loss: Loss
    times: np.ndarray
    probes: dict[str, Observe]
    seen: dict[str, Any]
    stats: dict[str, Any]
    status: Status
    place: Place

    @functools.cached_property
    def start(self) -> Network:
        """The network at t = 0, in weights."""
        return eqx.combine(self.place.first, self.place.frozen).off()

    @functools.cached_property
    def final(self) -> Network:
        """The network where the run ended, in weights."""
        return eqx.combine(self.place.state.trained, self.place.frozen).off()

    def __repr__(self) -> str:
        seen = ", ".join(self.seen) or "nothing"
        last = f"{self.times[-1]:g}" if self.times.size else "none"
        return f"Trajectory({len(self.times)} times, the last {last}; seen: {seen}; {self.status.name}; {self.stats})"


def gradient(trained: PyTree, frozen: PyTree, data: Dataset, loss: Loss) -> tuple[Scalar, PyTree]:
    """Give the loss and its gradient by the trained parameters only, or what a network that clips descends instead."""
    return eqx.combine(trained, frozen).gradient(data, loss)


def velocity(trained: PyTree, frozen: PyTree, data: Dataset, loss: Loss) -> PyTree:
    """Give θ' = -R ∇L(θ): the right-hand side that every flow shares."""
    return scaled(gradient(trained, frozen, data, loss)[1], trained_rates(eqx.combine(trained, frozen)), -1.0)


def scaled(tree: PyTree, rates: PyTree, factor: float | Scalar) -> PyTree:
    """Multiply each leaf by its rate and a common factor, keeping its precision."""
    return jax.tree.map(lambda rate, leaf: (rate * jnp.asarray(factor, leaf.dtype)) * leaf, rates, tree)


def finite(*trees: PyTree) -> Array:
    """Whether every entry of all floating-point leaves is finite."""
    leaves = [leaf for leaf in jax.tree.leaves(trees) if eqx.is_inexact_array(leaf)]
    return jnp.all(jnp.stack([jnp.all(jnp.isfinite(leaf)) for leaf in leaves]))


# Settings that may change without a new compilation are arrays; NumPy's, so that they keep 64 bits whatever JAX does.
def number(value: float) -> np.ndarray:
    """Keep a number as an array."""
    return np.asarray(value, float)


def number_or_none(value: float | None) -> np.ndarray | None:
    """Keep a number as an array, and None as it is."""
    return None if value is None else number(value)


def count(value: int) -> np.ndarray:
    """Keep a whole number as an array."""
    most = np.iinfo(np.int32).max
    if not 1 <= value <= most:
        raise UserError(f"A number of steps lies between 1 and {most}, so {value} does not.")
    return np.asarray(value, np.int32)
