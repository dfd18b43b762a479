"""What a flow is. A new one is a `Stepper`: it says how to `begin` and `advance`, and a `Driver` does the rest."""

from __future__ import annotations

import abc
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Int

from unlazy._inputs import as_key
from unlazy._types import PRNGKey, PyTree
from unlazy.data import Dataset
from unlazy.flows._driver import Driver, Probes
from unlazy.flows._progress import Progress
from unlazy.flows._state import State, Trajectory
from unlazy.losses import Loss
from unlazy.networks import Layout, Network, Prepared, Samples


class Flow(eqx.Module):
    """Gradient flow θ' = -R ∇L(θ), or a discretisation of it."""

    loss: eqx.AbstractVar[Loss]

    def __repr__(self) -> str:
        return eqx.tree_pformat(jax.tree.map(_as_number, self))

    @abc.abstractmethod
    def settle(self, network: Network, data: Dataset, runs: int = 1) -> Stepper:
        """Give the flow with all choices made that were left to it, for so many runs at once."""

    @abc.abstractmethod
    def resume(self, settled: Flow) -> Stepper:
        """Give the flow that goes on where ``settled`` stopped."""

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
        """Train ``network`` on ``data`` from t = 0 and look through ``probes`` at the given times.

        A run of more than two seconds shows its progress on a terminal, or tells ``progress(share, t)``. Ctrl-C ends it
        early with all it has seen and status `Status.interrupted`; `extend` goes on. ``key`` draws minibatches.
        """
        keys = [as_key(0 if key is None else key)]
        return Driver.begin(self, [network], [data], times, probes, keys).go(progress).trajectories()[0]

    def extend(
        self,
        trajectory: Trajectory,
        times: Sequence[float] | np.ndarray,
        probes: Probes = (),
        *,
        progress: Progress | None = None,
    ) -> Trajectory:
        """Go on from where ``trajectory`` stopped, with the optimiser's or solver's memory intact.

        The result holds only the new times. An interrupted run is continued by asking for the times that it lacks.
        """
        flow = self.resume(trajectory.place.flow)
        return Driver(flow, trajectory.place, times, probes, "one").go(progress).trajectories()[0]

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
        """Train several networks of one shape (say, seeds) in one compiled call, each on its own data or all on one."""
        sets = [data] * len(networks) if isinstance(data, Dataset) else list(data)
        keys = [as_key(key) for key in (range(len(networks)) if keys is None else keys)]
        return Driver.begin(self, networks, sets, times, probes, keys).go(progress).trajectories()


def _as_number(leaf: Any) -> Any:
    """Show a setting that is kept as an array, so that changing it does not recompile, as the number it is."""
    return leaf.item() if isinstance(leaf, np.ndarray) and leaf.ndim == 0 else leaf


class Stepper(Flow):
    """A flow with no choices left to make: it can `check`, `prepare`, `plan`, `begin` and `advance`."""

    def settle(self, network: Network, data: Dataset, runs: int = 1) -> Stepper:
        """Nothing is left to choose."""
        return self

    def resume(self, settled: Flow) -> Stepper:
        """Go on as this flow."""
        return self

    @abc.abstractmethod
    def check(self, network: Network, data: Dataset) -> None:
        """Refuse settings that cannot work, in one sentence, before any time is spent."""

    def alone(self) -> bool:
        """Whether several runs must take turns, as some of its work is done now and then, at each run's own time."""
        return False

    def layout(self, network: Network, data: Dataset, runs: int = 1) -> Layout:
        """Say how neurons are gone through; where everything fits, all at once."""
        return Layout()

    @abc.abstractmethod
    def prepare(self, network: Network, data: Dataset, layout: Layout) -> Prepared:
        """Give what is trained in place of ``network``, and handles for its inputs: frozen work is done here, once."""

    @abc.abstractmethod
    def plan(self, times: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """For increasing times, give what `State.left` should count from 0 to each, and the times really reached."""

    @abc.abstractmethod
    def begin(self, network: Network, data: Samples, *, key: PRNGKey) -> State:
        """Make the state at t = 0."""

    @abc.abstractmethod
    def advance(self, state: State, frozen: PyTree, data: Samples, budget: Int[Array, ""]) -> State:
        """Go on until ``left`` is used up, ``budget`` more steps are made, or something goes wrong."""
