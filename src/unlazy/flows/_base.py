"""What a flow is: a new method is a `Method` with two functions, `init` and `take_step`; a `Driver` does the rest."""

from __future__ import annotations

import abc
from collections.abc import Sequence
from typing import Any, Literal, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from unlazy._errors import UserError
from unlazy._inputs import as_key
from unlazy._progress import Progress
from unlazy._types import PRNGKey, PyTree
from unlazy.data import Dataset
from unlazy.flows._driver import Driver, Probes
from unlazy.flows._state import Attempt, State
from unlazy.flows._trajectory import Trajectory
from unlazy.losses import Loss
from unlazy.networks import Network, Prepared, Samples, with_fields

Coordinates = Literal["auto", "weights", "gram"]
Precision = Literal["full", "mixed"]
M = TypeVar("M", bound="Method")


class Flow(eqx.Module):
    """Gradient flow θ' = -R ∇L(θ), or a discretisation of it."""

    loss: eqx.AbstractVar[Loss]

    def __repr__(self) -> str:
        return eqx.tree_pformat(jax.tree.map(_as_number, self))

    @abc.abstractmethod
    def resolve(self, network: Network, data: Dataset) -> Method:
        """Return the method that trains ``network`` on ``data``, with all choices made that were left open."""

    @abc.abstractmethod
    def resume(self, previous: Method) -> Method:
        """Return the method that continues a run of ``previous``."""

    def __call__(
        self,
        network: Network,
        data: Dataset,
        times: Sequence[float] | np.ndarray,
        probes: Probes = (),
        *,
        key: PRNGKey | int | None = None,
        progress: Progress | None = None,
    ) -> Trajectory:
        """Train a network from t = 0.

        Ctrl-C ends the run early, with everything observed so far and `Status.interrupted`; `extend` continues it.

        Parameters
        ----------
        network
            The network at the start.
        data
            The data to train on.
        times
            Increasing save times, at which the probes are evaluated.
        probes
            Probes, their names, or functions of an `Observation`; a dictionary gives them names of their own.
        key
            Draws minibatches.
        progress
            Called with the share done and the time reached; without it a run of more than two seconds shows a bar on a
            terminal or in a notebook.
        """
        keys = [as_key(0 if key is None else key)]
        return Driver.begin(self, [network], [data], times, probes, keys).run(progress).trajectories()[0]

    def extend(
        self,
        trajectory: Trajectory,
        times: Sequence[float] | np.ndarray,
        probes: Probes = (),
        *,
        progress: Progress | None = None,
    ) -> Trajectory:
        """Continue a run from where it stopped, with the optimiser's or solver's memory intact.

        Parameters
        ----------
        trajectory
            The run. If it was interrupted, ``times`` must begin with the first save time that it did not reach.
        times, probes, progress
            As for a run from the start. The result holds only the new times.
        """
        flow = self.resume(trajectory.flow)
        return Driver(flow, trajectory.run_state, times, probes, "one").run(progress).trajectories()[0]

    def over_seeds(
        self,
        networks: Sequence[Network],
        data: Dataset | Sequence[Dataset],
        times: Sequence[float] | np.ndarray,
        probes: Probes = (),
        *,
        keys: Sequence[PRNGKey | int] | None = None,
        progress: Progress | None = None,
    ) -> list[Trajectory]:
        """Train several networks of one shape, such as seeds, in one compiled call.

        Parameters
        ----------
        networks
            The networks.
        data
            One data set for all of them, or one for each.
        times, probes, progress
            As for a single run.
        keys
            One for each run; 0, 1, ... if left out.
        """
        sets = [data] * len(networks) if isinstance(data, Dataset) else list(data)
        keys = [as_key(key) for key in (range(len(networks)) if keys is None else keys)]
        return Driver.begin(self, networks, sets, times, probes, keys).run(progress).trajectories()


def _as_number(leaf: Any) -> Any:
    """Show a setting that is stored as an array, so that changing it does not recompile, as the number it is."""
    return leaf.item() if isinstance(leaf, np.ndarray) and leaf.ndim == 0 else leaf


class Method(Flow):
    """A flow with no choice of method left. A new one defines `init` and `take_step`; all else has defaults.

    A method that has a field ``max_steps`` ends with `Status.step_limit` after so many. One that has the fields
    ``coordinates``, ``precision``, ``memory`` and ``devices`` (see `Exponential`) may train in Gram coordinates; the
    others train in weights.

    Examples
    --------
    >>> class Euler(Method):
    ...     loss: Loss = Squared()
    ...     dt: float = 0.1
    ...
    ...     def init(self, network, data, key):
    ...         return State.initial(network, step=jnp.asarray(self.dt), evaluations=0)
    ...
    ...     def take_step(self, state, size, frozen, data):
    ...         slope = velocity(state.trained, frozen, data, self.loss)
    ...         moved = jax.tree.map(lambda leaf, change: leaf + size * change, state.trained, slope)
    ...         return Attempt(moved, None, size, step=state.step)
    """

    @abc.abstractmethod
    def init(self, network: Network, data: Samples, key: PRNGKey) -> State:
        """Return the state at t = 0, made by `State.initial`.

        Parameters
        ----------
        network
            The network as prepared for training.
        data
            The training samples, as that network sees them.
        key
            For what the method draws at random.
        """

    @abc.abstractmethod
    def take_step(self, state: State, size: Array, frozen: PyTree, data: Samples) -> Attempt:
        """Attempt one step. The driver accepts or rejects it, counts, and calls again until the save time is reached.

        Parameters
        ----------
        state
            Where the step starts.
        size
            Its size: `State.step`, but no more than `State.remaining`. All that remains where ``State.step`` is None.
        frozen
            What is not trained: ``equinox.combine(state.trained, frozen)`` is the network.
        data
            The training samples.
        """

    def check(self, network: Network, data: Dataset) -> None:
        """Raise a `UserError` for settings that cannot work, before any time is spent."""
        return

    def plan(self, times: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """For increasing times, return what `State.remaining` counts from 0 to each, and the times really reached."""
        return times, times

    def prepare(self, network: Network, data: Dataset) -> Prepared:
        """Return what is trained in weights in place of ``network``, with the frozen work on its inputs done."""
        return network.prepare(data)

    def weights_only(self) -> str | None:
        """Say why the method is not the same in Gram coordinates; None if it is."""
        return None

    def one_by_one(self) -> bool:
        """Whether several runs must take turns, because work that is seldom done would be done at every step."""
        return False

    def resolve(self: M, network: Network, data: Dataset) -> M:
        """Choose coordinates where that was left open, and refuse options that cannot work."""
        coordinates = getattr(self, "coordinates", None)
        if coordinates is None:
            return self
        _check_options(self)
        form, reason = network.gram_form(data), self.weights_only()
        if coordinates == "auto":
            # A gradient costs 4 m D n operations in weights and 2 m n² in Gram coordinates.
            in_weights = form is None or data.n >= 2 * form.features or reason is not None
            coordinates = "weights" if in_weights else "gram"
        elif coordinates == "gram" and form is None:
            raise UserError(
                "coordinates='gram' needs a layer that is trained on fixed features, and this "
                f"{type(network).__name__} has none: use coordinates='weights'."
            )
        elif coordinates == "gram" and reason is not None:
            raise UserError(reason)
        unfit = coordinates != "gram" or data.x.dtype != jnp.float64 or form is None or form.neurons is None
        if getattr(self, "precision", "full") == "mixed" and unfit:
            raise UserError(
                "precision='mixed' is for Gram coordinates of a TwoLayer network on float64 data, not for "
                f"{coordinates} of a {type(network).__name__} on {data.x.dtype}: use precision='full'."
            )
        return with_fields(self, coordinates=coordinates)

    def resume(self: M, previous: Method) -> M:
        """Continue in the coordinates of the run."""
        if type(previous) is not type(self):
            was, now = type(previous).__name__, type(self).__name__
            raise UserError(f"A run by {was} cannot be continued by {now}: extend it by the same flow.")
        kept = {name: getattr(previous, name) for name in ("coordinates", "precision") if hasattr(self, name)}
        return with_fields(self, **kept) if kept else self


def _check_options(method: Any) -> None:
    for name, known in (("coordinates", ("auto", "weights", "gram")), ("precision", ("full", "mixed"))):
        if getattr(method, name, known[0]) not in known:
            words = ", ".join(f"'{one}'" for one in known)
            raise UserError(f"{name.capitalize()} are one of {words}, not '{getattr(method, name)}'.")
    memory, devices = getattr(method, "memory", None), getattr(method, "devices", None)
    if memory is not None and not memory > 0:
        raise UserError(f"Memory is a positive number of GiB, not {memory:g}.")
    if devices is not None and not 1 <= devices <= len(jax.devices()):
        raise UserError(f"There are {len(jax.devices())} devices here, so devices = {devices} is not possible.")
