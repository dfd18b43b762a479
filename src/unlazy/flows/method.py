"""The base classes of flows: a new `Method` defines `init` and `take_step`, and a `Driver` does the rest."""

from __future__ import annotations

import abc
from collections.abc import Sequence
from typing import Any, ClassVar, Literal, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from unlazy._checked import Checked, checked
from unlazy._errors import UserError
from unlazy._inputs import as_key
from unlazy._terminal import Progress
from unlazy._types import Count, Positive, PRNGKey, PyTree
from unlazy.data import Dataset
from unlazy.flows.driver import Driver, Probes, Times
from unlazy.flows.optimisers import number
from unlazy.flows.state import Attempt, State
from unlazy.flows.trajectory import Trajectory
from unlazy.losses import Loss, Squared, as_loss
from unlazy.networks import Network, Prepared, Samples, with_fields

Coordinates = Literal["auto", "weights", "gram"]
Precision = Literal["full", "mixed"]
M = TypeVar("M", bound="Method")


class Flow(Checked):
    """Gradient flow θ' = -R ∇L(θ), or a discretisation of it."""

    loss: eqx.AbstractVar[Loss]

    def __repr__(self) -> str:
        # Settings that are stored as arrays are shown as the numbers that they are.
        def shown(leaf: Any) -> Any:
            return leaf.item() if isinstance(leaf, np.ndarray) and leaf.ndim == 0 else leaf

        return eqx.tree_pformat(jax.tree.map(shown, self))

    @abc.abstractmethod
    def resolve(self, network: Network, data: Dataset) -> Method:
        """Return the method that trains ``network`` on ``data``, with all automatic choices made."""

    @abc.abstractmethod
    def resume(self, previous: Method) -> Method:
        """Return the method that continues a run of ``previous``."""

    @checked
    def __call__(
        self,
        network: Network,
        data: Dataset,
        times: Times,
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
            Probes, their names, or functions of an `Observation`; the keys of a dictionary name the results.
        key
            Random key of the run, for example of its minibatches; 0 if omitted.
        progress
            Called with the fraction done and the time reached. If omitted, a run of more than two seconds shows a
            progress bar on a terminal or in a notebook.
        """
        keys = None if key is None else [key]
        return self.over_seeds([network], [data], times, probes, keys=keys, progress=progress)[0]

    @checked
    def extend(
        self, trajectory: Trajectory, times: Times, probes: Probes = (), *, progress: Progress | None = None
    ) -> Trajectory:
        """Continue a run from where it stopped, with the state of the optimiser or solver.

        Parameters
        ----------
        trajectory
            The run. If it was interrupted, ``times`` must begin with the first save time that it did not reach.
        times, probes, progress
            As for a run from the start. The result holds only the new times.
        """
        flow = self.resume(trajectory.flow)
        return Driver([flow], trajectory.run_state, times, probes, "one").run(progress).trajectories()[0]

    @checked
    def over_seeds(
        self,
        networks: Sequence[Network],
        data: Dataset | Sequence[Dataset],
        times: Times,
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
            One key for each run; 0, 1, ... if omitted.
        """
        sets = [data] * len(networks) if isinstance(data, Dataset) else list(data)
        keys = [as_key(key) for key in (range(len(networks)) if keys is None else keys)]
        return Driver.begin(self, networks, sets, times, probes, keys).run(progress).trajectories()


class Method(Flow):
    """One integration method or optimiser. A subclass defines `init` and `take_step`; everything else has defaults.

    A run of a method with a field ``max_steps`` ends with `Status.step_limit` after that many steps. A method with
    the field ``coordinates`` (and ``precision``, ``memory``, ``devices``; see `Exponential`) may train in Gram
    coordinates; other methods train in weights.

    Attributes
    ----------
    automatic
        Whether `GradientFlow` may choose the method by itself, and continue its runs.

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

    automatic: ClassVar[bool] = False

    @abc.abstractmethod
    def init(self, network: Network, data: Samples, key: PRNGKey) -> State:
        """Return the state at t = 0, made by `State.initial`.

        Parameters
        ----------
        network
            The network as prepared for training.
        data
            The training samples, prepared for that network.
        key
            Random key of the run.
        """

    @abc.abstractmethod
    def take_step(self, state: State, size: Array, frozen: PyTree, data: Samples) -> Attempt:
        """Attempt one step. The driver applies the outcome and calls again until the save time is reached.

        Parameters
        ----------
        state
            The state at the start of the step.
        size
            Size of the step: `State.step`, but at most `State.remaining`, and that if `State.step` is None.
        frozen
            The part of the network that is not trained: ``equinox.combine(state.trained, frozen)`` is the network.
        data
            The training samples.
        """

    def check(self, network: Network, data: Dataset) -> None:
        """Raise a `UserError` for settings that cannot work, before anything is computed."""

    def plan(self, times: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the distance from 0 to each time in units of `State.remaining`, and the times that steps end on."""
        return times, times

    def prepare(self, network: Network, data: Dataset) -> Prepared:
        """Prepare a network for training in weights: compute on its inputs whatever training does not change."""
        return network.prepare(data)

    def weights_only(self) -> str | None:
        """Explain why the method would differ in Gram coordinates; None if it is the same there."""
        return None

    def one_by_one(self) -> bool:
        """Whether several runs must be trained in turn, because vmap would repeat occasional work at every step."""
        return False

    def resolve(self: M, network: Network, data: Dataset) -> M:
        """Choose coordinates if they are "auto", and reject options that cannot work."""
        coordinates = getattr(self, "coordinates", None)
        if coordinates is None:
            return self
        devices = getattr(self, "devices", None)
        if devices is not None and devices > len(jax.devices()):
            raise UserError(f"devices = {devices} is not possible: this machine has {len(jax.devices())}.")
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
        """Continue in the coordinates and precision of the previous run."""
        if type(previous) is not type(self):
            was, now = type(previous).__name__, type(self).__name__
            raise UserError(f"A run by {was} cannot be continued by {now}: extend it by the same flow.")
        kept = {name: getattr(previous, name) for name in ("coordinates", "precision") if hasattr(self, name)}
        return with_fields(self, **kept) if kept else self


# Settings that may change without a new compilation are arrays; NumPy's, so that they keep 64 bits whatever JAX does.


def positive_or_none(value: Positive | None) -> np.ndarray | None:
    """Store a number above 0 as an array, and None as it is."""
    return None if value is None else number(value)


def count(value: Count) -> np.ndarray:
    """Store a number of steps as an array."""
    return np.asarray(value, np.int32)


class GramMethod(Method):
    """A method with the options of training in Gram coordinates, which `Exponential` documents."""

    coordinates: Coordinates = eqx.field(static=True, default="auto", kw_only=True)
    precision: Precision = eqx.field(static=True, default="full", kw_only=True)
    memory: Positive | None = eqx.field(static=True, default=None, kw_only=True)
    devices: Count | None = eqx.field(static=True, default=None, kw_only=True)


class OutputControlled(GramMethod):
    """A method whose steps are chosen by the error of the outputs, relative to the targets."""

    loss: Loss = eqx.field(default=Squared(), converter=as_loss)
    tolerance: np.ndarray = eqx.field(default=1e-4, converter=number)
    max_steps: np.ndarray = eqx.field(default=100_000, converter=count)
    step: np.ndarray | None = eqx.field(default=None, converter=positive_or_none)

    def check(self, network: Network, data: Dataset) -> None:
        """Reject a tolerance below rounding error."""
        least = 64 * float(jnp.finfo(data.x.dtype).eps)
        if self.step is None and not float(self.tolerance) >= least:
            raise UserError(f"tolerance = {self.tolerance:g} is below rounding error: try 1e-4, at least {least:.0e}.")
