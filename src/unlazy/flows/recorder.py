"""Observe a model that is trained in a loop of the user's own."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, ClassVar, NoReturn

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from unlazy._checked import checked
from unlazy._errors import UserError, short
from unlazy._types import PyTree
from unlazy.data import DataLike, as_dataset
from unlazy.flows._compiled import check_outputs
from unlazy.flows.driver import Driver, Probes
from unlazy.flows.method import Method
from unlazy.flows.state import State, Status
from unlazy.flows.trajectory import RunState, Trajectory
from unlazy.losses import Loss, Squared, as_loss
from unlazy.networks import Network, Samples, as_network, with_fields
from unlazy.probes.observation import Observation, Observe

_MIB = 2.0**20


class OwnLoop(Method):
    """The method of a recorded run: training that unlazy did not do, and cannot continue.

    Parameters
    ----------
    loss
        The loss that probes evaluate.
    """

    loss: Loss = eqx.field(default=Squared(), converter=as_loss)
    registered: ClassVar[bool] = False  # only a `Recorder` makes it

    def _refuse(self, *given: Any, **named: Any) -> NoReturn:
        """Raise an error: only the user's own loop can continue the run."""
        raise UserError("This run was recorded in a loop of your own: continue it there, and record further steps.")

    init = take_step = resolve = resume = _refuse


class Recorder:
    """Evaluates probes in a training loop of your own, with JAX or PyTorch, and makes a `Trajectory` of the results.

    Theorems, reports, figures and `Lab.keep` take the trajectory like that of a flow. A run whose parameters become NaN
    or infinite ends there, with `Status.not_finite`.

    Parameters
    ----------
    network
        A network, or any model that `unlazy.wrap` takes. Only its architecture matters: the start of the run is the
        first call of `see`.
    data
        The data set on which probes are evaluated, or a tuple ``(x, y)`` or ``(x, y, x_test, y_test)`` of arrays.
    probes
        Probes, their names, or functions of an `Observation`; the keys of a dictionary name the results. On a PyTorch
        module those work that need outputs, tangent kernels, weights or pre-activations.
    loss
        The loss that probes evaluate.
    snapshots
        Space for snapshots of the parameters, in MiB. Once it is used up, every second snapshot is dropped, again and
        again. Those of the start and of the end are always kept.

    Examples
    --------
    >>> recorder = Recorder(model, data, ["train-loss", "kernel"])
    >>> for step in range(1001):
    ...     if step % 100 == 0:
    ...         recorder.see(step, model)
    ...     model = update(model)
    >>> run = recorder.trajectory()
    """

    @checked
    def __init__(
        self,
        network: Any,
        data: DataLike,
        probes: Probes = (),
        loss: Loss | str = Squared(),  # noqa: B008
        *,
        snapshots: float = 0.0,
    ) -> None:
        data = as_dataset(data)
        self._like: Network = as_network(network, "the network of the Recorder")
        self._method = OwnLoop(as_loss(loss))
        data.check()
        self._method.loss.check(data.y)
        self._data, self._probes, self._room = data, probes, snapshots * _MIB
        self._driver: Driver | None = None
        self._begun = time.perf_counter()
        self._kept: dict[int, list[Any]] = {}
        self._stride = 1

    @checked
    def see(self, step: float, model: Any) -> dict[str, Any]:
        """Evaluate the probes now, and return the results by name; nothing once parameters are not finite.

        Parameters
        ----------
        step
            The number of steps done so far, or another number that increases from call to call, such as a time.
        model
            The model now: a network, whatever `unlazy.wrap` takes, or the parameters of a wrapped model.
        """
        network = self._network(model)
        arrays, rest = eqx.partition(network, lambda leaf: isinstance(leaf, jax.Array | np.ndarray))
        arrays = jax.tree.map(lambda leaf: leaf.copy(), arrays)  # the loop may donate its arrays to compiled code
        driver = self._driver
        at = float(np.asarray(step))
        if driver is None:
            driver = self._driver = self._first(network, arrays, rest, at)
        elif not at > driver.run_state.target:
            raise UserError(f"Step {at:g} is not after step {driver.run_state.target:g}: give increasing numbers.")
        elif _shapes(arrays) != _shapes(driver.run_state.first):
            raise UserError("The arrays of this model differ from those of the first one: use one architecture.")
        elif int(driver.state.code):
            return {}
        driver.seconds = time.perf_counter() - self._begun
        if not _finite(arrays):
            code = Status.not_finite.code
            driver.run_state = with_fields(driver.run_state, state=with_fields(driver.state, code=code))
            return {}
        driver.record(_state(arrays, int(at)), at)
        self._keep(len(driver.records) - 1, arrays)
        return driver.records[-1].observed

    def trajectory(self) -> Trajectory:
        """Return everything that was recorded, as a trajectory; recording can go on afterwards."""
        driver = self._seen()
        if not driver.records:
            raise UserError("The parameters were not finite in the first call of see: there is nothing to return.")
        driver.observe_end()
        return driver.trajectories()[0]

    def networks(self) -> dict[float, Network]:
        """Return the networks of which there are snapshots, by step: the first, the last, and those between."""
        driver = self._seen()
        run, reached = driver.run_state, driver.reached
        structure = jax.tree.structure(run.first)
        found = {0: run.first} | {
            index: jax.tree.unflatten(structure, leaves) for index, leaves in sorted(self._kept.items()) if index
        }
        found[len(driver.records) - 1] = run.state.trained
        return {float(reached[index]): eqx.combine(arrays, run.frozen) for index, arrays in found.items()}

    def _seen(self) -> Driver:
        if self._driver is None:
            raise UserError("Nothing was recorded yet: call recorder.see(step, model) in the training loop.")
        return self._driver

    def _network(self, model: Any) -> Network:
        if isinstance(model, Network):
            if type(model) is not type(self._like):
                given, expected = type(model).__name__, type(self._like).__name__
                raise UserError(f"A {given} was given, where a {expected} was expected: use one architecture.")
            return model
        if (with_model := getattr(self._like, "with_model", None)) is not None:  # it is a wrapped model
            return with_model(model)
        raise UserError(f"see was given {short(model)}: give the current {type(self._like).__name__}.")

    def _first(self, network: Network, arrays: PyTree, rest: PyTree, at: float) -> Driver:
        data, traced = self._data, network.traceable
        shape = eqx.filter_eval_shape(network, data.x).shape if traced else network(data.x).shape
        check_outputs(shape, data)
        samples = Samples(data.x, data.y, data.weight, data.x_test)
        run = RunState(_state(arrays, int(at)), rest, arrays, samples, data, at, self._method)
        return (Driver if traced else _Eager)([self._method], run, [at], self._probes, "one")

    def _keep(self, index: int, arrays: PyTree) -> None:
        """Keep a snapshot; where there is no more room, only those at multiples of a larger and larger number."""
        leaves = jax.tree.leaves(arrays)
        size = sum(leaf.nbytes for leaf in leaves)
        if index % self._stride or size > self._room:
            return
        while size * (len(self._kept) + 1) > self._room:
            self._stride *= 2
            self._kept = {one: kept for one, kept in self._kept.items() if one % self._stride == 0}
            if index % self._stride:
                return
        self._kept[index] = leaves


class _Eager(Driver):
    """Evaluates probes outside compiled code, which PyTorch cannot enter."""

    def _traced(self, probes: Mapping[str, Observe]) -> tuple[dict[str, PyTree], list[Observe]]:
        return dict.fromkeys(probes), []

    def observe(self, trained: PyTree, probes: Mapping[str, Observe]) -> dict[str, PyTree]:
        run = self.run_state
        here, start = (eqx.combine(arrays, run.frozen) for arrays in (trained, run.first))
        obs = Observation(here, start, run.raw, self.method.loss, known_at_start=self._at_start)
        results = {name: probe(obs) for name, probe in probes.items()}
        self._at_start = obs._known_at_start
        return jax.tree.map(np.asarray, results)


def _shapes(arrays: PyTree) -> tuple[Any, ...]:
    return jax.tree.structure(arrays), [leaf.shape for leaf in jax.tree.leaves(arrays)]


def _finite(arrays: PyTree) -> bool:
    floats = [leaf for leaf in jax.tree.leaves(arrays) if jnp.issubdtype(leaf.dtype, jnp.inexact)]
    return all(bool(np.all(np.isfinite(np.asarray(leaf, np.float64)))) for leaf in floats)


def _state(arrays: PyTree, steps: int) -> State:
    zero = jnp.zeros((), jnp.int32)
    return State(arrays, None, None, jnp.zeros(()), zero + steps, zero, zero, zero, jnp.asarray(jnp.nan))
