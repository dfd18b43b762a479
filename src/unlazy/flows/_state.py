"""Where a run stands and what comes of it, and the right-hand side that all flows share."""

from __future__ import annotations

import dataclasses
import enum
import functools
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from unlazy._errors import UserError
from unlazy._observation import Observation, Observe
from unlazy._types import PyTree, Scalar
from unlazy.data import Dataset
from unlazy.flows._results import as_html, as_text, to_xarray
from unlazy.losses import Loss
from unlazy.networks import Network, Samples, trained_rates

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.figure import Figure

    from unlazy.figures import Style

Memory = TypeVar("Memory")


class OnlyAtEnd(eqx.Module):
    """A probe that looks once, at the end of a run: for what is too dear to be seen often, or too large to be kept.

    ``seen`` then has no axis of times. In a recipe: ``{ kind = "pruning", when = "end" }``.
    """

    probe: Observe

    def __call__(self, obs: Observation) -> PyTree:
        """Evaluate the probe."""
        return self.probe(obs)


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
    data: Samples
    raw: Dataset
    target: float  # the time that the run has reached, or is on its way to
    flow: PyTree  # the flow itself, with all choices made


@dataclasses.dataclass(frozen=True, repr=False)
class Trajectory:
    """What came of a run: networks at both ends, what the probes saw, and how it went.

    ``seen[name]`` has the times as its first axis (not for a probe `OnlyAtEnd`), and ``probes[name]`` is what saw it.
    ``stats`` counts steps, rejections, gradient evaluations and seconds, says which method went through which
    coordinates, and holds the sum of the errors estimated on the way.
    """

    data: Dataset
    loss: Loss
    times: np.ndarray
    probes: dict[str, Observe]
    observed: dict[str, Any]
    stats: dict[str, Any]
    status: Status
    place: Place

    @functools.cached_property
    def start(self) -> Network:
        """The network at t = 0, in weights."""
        return eqx.combine(self.place.first, self.place.frozen).restore()

    @functools.cached_property
    def final(self) -> Network:
        """The network where the run ended, in weights."""
        return eqx.combine(self.place.state.trained, self.place.frozen).restore()

    def to_xarray(self) -> xr.Dataset:
        """Give what the probes observed as labelled arrays with the dimension ``time`` first.

        `unlazy.flows.to_xarray` takes several trajectories and adds a dimension ``seed``.
        """
        return to_xarray(self).isel(seed=0, drop=True)

    def plot(self, probe: str | Sequence[str] | None = None, style: Style = "screen") -> Figure:
        """Draw what the probes observed; see `unlazy.figures.curves`, which also compares several runs.

        Parameters
        ----------
        probe
            The probe to draw, or several of them. All if left out.
        style
            ``"screen"`` or ``"paper"``.
        """
        from unlazy.figures import curves

        return curves(self, probe, style)

    def save(self, path: Path | str, name: str = "") -> Path:
        """Write what the probes observed to a netCDF file, which `unlazy report` and `unlazy figure` read.

        Parameters
        ----------
        path
            The file; its name should end in ``.nc``.
        name
            What the run is called in reports; the name of the file if left out.
        """
        from unlazy._netcdf import write

        path = Path(path)
        return write(to_xarray(self).assign_attrs(name=name or path.stem), path)

    def __repr__(self) -> str:
        return as_text(self)

    def _repr_html_(self) -> str:
        return as_html(self)


def gradient(trained: PyTree, frozen: PyTree, data: Samples | Dataset, loss: Loss) -> tuple[Scalar, PyTree]:
    """Give the loss and its gradient by the trained parameters only, or what a network that clips descends instead."""
    return eqx.combine(trained, frozen).gradient(data, loss)


def velocity(trained: PyTree, frozen: PyTree, data: Samples | Dataset, loss: Loss) -> PyTree:
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
