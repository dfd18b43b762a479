"""The driver of every flow: compiled slices of work, and between them progress, probes, checkpoints and Ctrl-C.

Several runs of one shape are trained together: side by side (vmap) while they are small, in turn (`lax.map`) once one
of them fills the machine. How the work is sliced never changes a result, because the state contains everything that
the next step depends on.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from unlazy._errors import UserError
from unlazy._linalg import one_lapack_thread
from unlazy._registry import kebab
from unlazy._signals import check
from unlazy._terminal import Progress, bar
from unlazy._types import PRNGKey, PyTree
from unlazy.data import Dataset
from unlazy.flows import _compiled as compiled
from unlazy.flows import _finite, checkpoints
from unlazy.flows.state import State, Status, failed
from unlazy.flows.stops import Stops, Times, each_times, stops_of
from unlazy.flows.trajectory import COUNTERS, Recorded, RunState, Trajectory, inner_probe, named, only_at_end
from unlazy.networks import Network, traced_numbers, with_fields
from unlazy.probes.observation import Observe

if TYPE_CHECKING:
    from unlazy.flows.method import Flow, Method

Probes = Sequence[Observe | str] | Mapping[str, Observe | str] | Observe | str  # a name is resolved by the registry

_SLICE_SECONDS = 0.5  # how long compiled code may run before it reports progress and handles Ctrl-C
# Every slice copies the state, and the data too if runs are trained in turn. If a single step takes long, so does the
# copy: slices are then longer, up to a limit. A step of 26 million weights took 1.0 s in slices of one, 0.7 s of eight.
_LONGEST_SLICE = 5.0
_CHECKPOINT_SECONDS = 30.0
_SMALL_MATRIX = 256  # rows up to which LAPACK's own threads do not help


class Driver:
    """Runs a method to its save times; it can be interrupted, saved, loaded and continued.

    Parameters
    ----------
    methods
        The method of each run, resolved; they differ in numbers only.
    run_state
        The state from which the runs start.
    times
        Increasing save times; or such a list for each run, all of one length after those are merged that fall on the
        same step.
    probes
        What is evaluated at each of them.
    batching
        "one" run, or several by "vmap" or "map".

    Attributes
    ----------
    stops
        The save times of each run.
    records
        What was recorded at the save times so far.
    shapes
        The shapes of what is recorded at a save time.
    at_end
        The results of the probes that are evaluated only at the end.
    snapshots
        The indices of save times at which the trained parameters are recorded too.
    before, recorded
        The states before the last slice of work, and at the last save time (None if it is large).
    """

    def __init__(
        self,
        methods: Sequence[Method],
        run_state: RunState,
        times: Times | Sequence[Times],
        probes: Probes,
        batching: compiled.Batching,
    ) -> None:
        self.run_state = run_state
        self.batching: compiled.Batching = batching
        self.methods = list(methods)
        self._stacked = self.method if batching == "one" else compiled.stack(self.methods)
        self.probes = named(probes)
        self._late = {name: probe for name, probe in self.probes.items() if only_at_end(probe)}
        self._timed = {name: probe for name, probe in self.probes.items() if name not in self._late}
        # A run that was interrupted between two save times has to reach the second of them first.
        state, target = run_state.state, run_state.target
        underway = bool(jnp.any((state.remaining > 0) & (state.code != Status.loss_reached.code)))
        each, counted = each_times(times, len(self.methods)), jnp.issubdtype(state.remaining.dtype, jnp.integer)
        if underway and np.size(each[0]) and np.ravel(each[0])[0] != target:
            raise UserError(f"The interrupted run was on its way to t = {target:g}: give that time first.")
        pairs = list(zip(self.methods, each, strict=True))
        different = {(id(one), id(some)): (one, some) for one, some in pairs}  # seeds share methods and times
        known = {key: stops_of(*pair, target, underway, counted) for key, pair in different.items()}
        self.stops = [known[id(one), id(some)] for one, some in pairs]
        if len({len(some.asked) for some in self.stops}) > 1:
            raise UserError(
                "Runs that are trained together need the same number of save times, each on a step of its own: give "
                "fewer times, or run them one by one."
            )
        self._last_probes: list[Observe] = []  # the probes that were evaluated last, and
        self._at_start: list[tuple[Observe, PyTree]] = []  # the values at the start of the run that they need
        # All probes are traced now, so that one that cannot be evaluated raises its error before training.
        shapes, self._needed = self._traced(self.probes)
        self.shapes = {name: shapes[name] for name in self._timed}
        self.records: list[Recorded] = []
        self.at_end: dict[str, PyTree] = {}
        self.snapshots: Collection[int] = ()
        self.seconds = 0.0
        self.interrupted = False
        self.before, self.largest = self.state, None  # the largest |parameter|, once a slice was computed
        self.recorded = _finite.kept(self.state)

    @functools.cached_property
    def suspect(self) -> Any:
        """The size of parameters beyond which outputs may overflow, for each run."""
        return _finite.suspect(self)

    @property
    def method(self) -> Method:
        """The method, of the first run if there are several."""
        return self.methods[0]

    @property
    def asked(self) -> np.ndarray:
        """The save times as requested, of the first run if there are several."""
        return self.stops[0].asked

    @property
    def reached(self) -> np.ndarray:
        """The save times as the method can reach them, of the first run if there are several."""
        return self.stops[0].reached

    @classmethod
    def begin(
        cls,
        flow: Flow | Sequence[Flow],
        networks: Sequence[Network],
        data: Sequence[Dataset],
        times: Times | Sequence[Times],
        probes: Probes,
        keys: Sequence[PRNGKey],
    ) -> Driver:
        """Check all arguments, prepare the networks on their data, and make the state at t = 0.

        Parameters
        ----------
        flow
            The flow, which may leave the choice of a method open; or one for each run.
        networks, data, keys
            One of each for every run.
        times, probes
            As for the class.
        """
        if not networks or not len(networks) == len(data) == len(keys):
            raise UserError(
                f"{len(networks)} networks, {len(data)} data sets and {len(keys)} keys were given: give one data set "
                "and one key for each network, and at least one network."
            )
        flows = list(flow) if isinstance(flow, Sequence) else [flow] * len(networks)
        for one, network, some in zip(flows, networks, data, strict=True):
            compiled.check_types(one, network, some)
        if isinstance(flow, Sequence):
            methods = [one.resolve(network, some) for one, network, some in zip(flow, networks, data, strict=True)]
        else:
            methods = [flow.resolve(networks[0], data[0])] * len(networks)
        method, probes = methods[0], named(probes)
        for probe in map(inner_probe, probes.values()):
            for some in data if hasattr(probe, "check") else ():  # a plain function has none
                probe.check(some)
        arrangement = compiled.layout(method, networks[0], data[0], len(networks))
        for one, network, some in zip(methods, networks, data, strict=True):
            one.check(network, some)
            one.loss.check(some.y)
        together = compiled.fits_vmap(method, networks[0])
        batching: compiled.Batching = "one" if len(networks) == 1 else "vmap" if together else "map"
        groups: list[Any] = [methods, [traced_numbers(one) for one in networks], data, keys]
        stacked, network, raw, key = (group[0] if batching == "one" else compiled.stack(group) for group in groups)
        prepared, samples = compiled.prepare_runs(stacked, network, raw, arrangement, batching)
        state = compiled.init_runs(stacked, prepared, samples, key, batching)
        # The state shows what is trained; the rates of several networks stacked into one would mean nothing.
        chosen = jax.tree.map(lambda leaf: leaf is not None, state.trained, is_leaf=lambda leaf: leaf is None)
        trained, frozen = eqx.partition(prepared, chosen)
        return cls(methods, RunState(state, frozen, trained, samples, raw, 0.0, method), times, probes, batching)

    def run(self, progress: Progress | None = None, checkpoint: Callable[[], None] | None = None) -> Driver:
        """Run to the last save time; Ctrl-C, or a signal that is deferred, stops between two slices and loses nothing.

        Parameters
        ----------
        progress
            Called with the fraction done and the time reached. If omitted, a progress bar appears after two seconds.
        checkpoint
            Called every 30 seconds.
        """
        begun = saved = time.perf_counter()
        already, budget, fresh, aim = self.seconds, 1, True, _SLICE_SECONDS
        self.interrupted = False
        samples = self.run_state.data.y.size // len(self.methods)
        with bar(progress) as report, one_lapack_thread() if samples <= _SMALL_MATRIX else nullcontext():
            try:
                while len(self.records) < len(self.asked):
                    amount = self._head_for_next()
                    while self._underway():
                        check()
                        before = time.perf_counter()
                        self._advance(budget)
                        took, self.seconds = time.perf_counter() - before, already + time.perf_counter() - begun
                        if not fresh:  # the time of the first slice includes compilation
                            if budget == 1:
                                aim = float(np.clip(10 * took, _SLICE_SECONDS, _LONGEST_SLICE))
                            budget = int(np.clip(budget * aim / max(took, 1e-6), 1, min(4 * budget, 2**24)))
                        fresh = False
                        away = min(1.0, float(np.max(self.state.remaining)) / max(amount, 1e-300))
                        report((len(self.records) + 1 - away) / len(self.asked), self.run_state.target)
                        if checkpoint is not None and time.perf_counter() - saved > _CHECKPOINT_SECONDS:
                            checkpoint()
                            saved = time.perf_counter()
                    check()
                    if not np.all(failed(self.state.code)):
                        self._record(check=True)
                    if np.all(failed(self.state.code)):
                        break
                    report(len(self.records) / len(self.asked), self.run_state.target)
                if len(self.records) == len(self.asked):
                    self.observe_end()
            except KeyboardInterrupt:
                self.interrupted = True
        self.seconds = already + time.perf_counter() - begun
        return self

    @property
    def state(self) -> State:
        """The current state of the method."""
        return self.run_state.state

    def _underway(self) -> bool:
        # By NumPy here and below: between slices of milliseconds, JAX's dispatch would take as long as they do.
        return bool(np.any((np.asarray(self.state.remaining) > 0) & (np.asarray(self.state.code) == 0)))

    def _head_for_next(self) -> float:
        index = len(self.records)
        amounts, target = [float(some.amounts[index]) for some in self.stops], float(self.asked[index])
        if self.run_state.target != target:  # otherwise the run is on its way to it already
            remaining = np.asarray(amounts, self.state.remaining.dtype).reshape(self.state.remaining.shape)
            state = with_fields(self.state, remaining=jnp.asarray(remaining))
            self.run_state = with_fields(self.run_state, state=state, target=target)
        return max(amounts)

    def _advance(self, budget: int) -> None:
        self.before = self.state  # set first, so that the state before that is freed while this slice is computed
        self.run_state = with_fields(self.run_state, state=self.after(self.state, budget))
        _finite.check_parameters(self)

    def after(self, state: State, steps: int) -> State:
        """Return the state some steps after another one, or where the run reaches its save time or ends."""
        run, most = self.run_state, jnp.asarray(steps, jnp.int32)
        advanced = compiled.advance_runs(self._stacked, state, run.frozen, run.data, most, self.batching)
        return jax.block_until_ready(advanced)

    def _record(self, check: bool = False) -> None:
        observed = self.observe(self.state.trained, self._timed)
        if check:
            _finite.step_back(self, _finite.overflows(self, self.state, observed))
            if np.all(failed(self.state.code)):
                return
            self.recorded = None if self.recorded is None else self.state
        counters = {name: np.asarray(getattr(self.state, name)) for name in ("code", *COUNTERS)}
        leaves = jax.tree.leaves(self.state.trained)
        trained = [np.asarray(leaf) for leaf in leaves] if len(self.records) in self.snapshots else None
        self.records.append(Recorded(observed, counters, trained))

    def record(self, state: State, time: float) -> None:
        """Record a ``state`` that was reached elsewhere, at a ``time`` after all others."""
        self.run_state = with_fields(self.run_state, state=state, target=time)
        times = np.append(self.reached[: len(self.records)], time)
        self.stops = [Stops(times, times, np.zeros_like(times))] * len(self.stops)
        self._record()

    def observe_end(self) -> None:
        """Evaluate the probes that are evaluated only at the end."""
        if self._late:
            self.at_end = self.observe(self.state.trained, self._late)

    def observe(self, trained: PyTree, probes: Mapping[str, Observe]) -> dict[str, PyTree]:
        """Evaluate probes on the network with the given trained parameters.

        Parameters
        ----------
        trained
            The trained parameters, of all runs.
        probes
            The probes by name. The values at the start of the run that they need are computed once.
        """
        if [*map(id, probes.values())] != [*map(id, self._last_probes)]:
            self._last_probes, first = list(probes.values()), self.run_state.first
            needed = self._needed if probes is self._timed and not self._late else self._traced(probes)[1]
            self._at_start = [(one, self.evaluate(compiled.observe_runs, first, {"": one})[""]) for one in needed]
        return jax.tree.map(np.asarray, self.evaluate(compiled.observe_runs, trained, probes, self._at_start))

    def _traced(self, probes: Mapping[str, Observe]) -> tuple[dict[str, PyTree], list[Observe]]:
        """Trace probes abstractly: the shapes of their results, and the probes whose values at the start they need."""
        requested: list[Observe] = []
        trace = functools.partial(eqx.filter_eval_shape, functools.partial(compiled.observed, requested=requested))
        return self.evaluate(trace, self.state.trained, probes), requested

    def evaluate(
        self, evaluate: Callable[..., Any], trained: PyTree, probes: Mapping[str, Observe], known: Sequence[Any] = ()
    ) -> dict[str, PyTree]:
        """Evaluate, or trace, probes with the given trained parameters; ``known`` are their values at the start."""
        run = self.run_state
        given = (trained, run.first, run.frozen, run.data, run.raw)
        return evaluate(dict(probes), list(known), *given, self._stacked.loss, self.batching)

    def trajectories(self) -> list[Trajectory]:
        """Return everything observed so far, as one trajectory for each run."""
        return [self._trajectory(row) for row in range(len(self.stops))]

    def _trajectory(self, row: int) -> Trajectory:
        def pick(tree: PyTree) -> PyTree:
            if self.batching == "one":
                return tree
            return jax.tree.map(lambda leaf: leaf[row] if eqx.is_array(leaf) else leaf, tree)

        parts = {name: pick(getattr(self.run_state, name)) for name in ("state", "frozen", "first", "data", "raw")}
        own = {"flow": self.methods[row], "target": self.at_stop(row)}
        run = with_fields(self.run_state, **parts, **own)
        # Of several runs, one may have ended before the others: it was not observed after that.
        ended = [bool(failed(pick(one.counters)["code"])) for one in self.records]
        kept = self.records[: ended.index(True) if True in ended else None]
        records = [pick(one.observed) for one in kept]
        return Trajectory(
            data=run.raw,
            loss=self.methods[row].loss,
            times=np.asarray(self.stops[row].reached[: len(records)]),
            probes=self.probes,
            observed=(jax.tree.map(lambda *values: np.stack(values), *records) if records else {}) | pick(self.at_end),
            stats=self.stats(row),
            status=self.status(row),
            run_state=run,
        )

    def stats(self, row: int) -> dict[str, Any]:
        """Return how one of the runs was computed, and its counters."""
        method = self.methods[row]
        return {
            "method": kebab(type(method).__name__),
            "coordinates": getattr(method, "coordinates", "weights"),
            "precision": getattr(method, "precision", "full"),
            **{name: np.ravel(getattr(self.state, name))[row].item() for name in COUNTERS},
            "seconds": self.seconds,
        }

    def status(self, row: int) -> Status:
        """Return how one of the runs ended."""
        return Status.interrupted if self.interrupted else list(Status)[int(np.ravel(self.state.code)[row])]

    def save(self, path: Path, run: str = "", rows: Sequence[int] | None = None) -> None:
        """Write a checkpoint.

        Parameters
        ----------
        path
            The file. If writing fails, an older file of this name stays intact.
        run
            An identifier of the run; `load` expects the same.
        rows
            Which of several runs are saved, as if there were no others; all if omitted.
        """
        checkpoints.save(self, path, run, rows)

    def load(self, path: Path, run: str = "") -> Driver:
        """Continue from a checkpoint; the driver must have been made with the same arguments.

        Parameters
        ----------
        path
            The file that `save` wrote.
        run
            What `save` was given.
        """
        checkpoints.load(self, path, run)
        return self

    def at_stop(self, row: int) -> float:
        """Return the save time that one run has reached, or is on its way to."""
        place = np.flatnonzero(self.asked == self.run_state.target)
        return float(self.stops[row].asked[place[0]]) if len(place) else self.run_state.target
