"""The driver of every flow: compiled slices of work, and between them progress, probes, checkpoints and Ctrl-C.

Several runs of one shape are trained together: side by side (vmap) while they are small, in turn (`lax.map`) once one
of them fills the machine. How the work is sliced never changes a result, because the state contains everything that
the next step depends on.
"""

from __future__ import annotations

import functools
import hashlib
import io
import json
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from unlazy._errors import UserError, article, short
from unlazy._files import atomic_write
from unlazy._inputs import leaf_like, plain_leaf
from unlazy._linalg import one_lapack_thread
from unlazy._registry import kebab
from unlazy._terminal import Progress, bar
from unlazy._types import PRNGKey, PyTree
from unlazy.data import Dataset
from unlazy.flows import _compiled as compiled
from unlazy.flows.state import State, Status, check_steps, failed
from unlazy.flows.trajectory import COUNTERS, OnlyAtEnd, Recorded, RunState, Trajectory, named
from unlazy.losses import Loss
from unlazy.networks import Network, split_trained, with_fields
from unlazy.probes.observation import Observation, Observe

if TYPE_CHECKING:
    from unlazy.flows.method import Flow, Method

Probes = Sequence[Observe | str] | Mapping[str, Observe | str] | Observe | str  # a name is resolved by the registry
Times = Sequence[float] | np.ndarray

# Below this size of the trained parameters a network does not fill two cores and vmap wins; above, lax.map does.
_VMAP_BYTES = 2**18
_SLICE_SECONDS = 0.5  # how long compiled code may run before it reports and handles Ctrl-C
# Every slice copies the state, and the data too if runs are trained in turn. If a single step takes long, so does the
# copy: slices are then longer, up to a limit. A step of 26 million weights took 1.0 s in slices of one, 0.7 s of eight.
_LONGEST_SLICE = 5.0
_CHECKPOINT_SECONDS = 30.0
_SMALL_MATRIX = 256  # rows up to which LAPACK's own threads do not help
_GROWN = 10.0  # times 1 + the largest parameter at the start: from there on outputs may overflow, even of deep networks


class OtherRunError(UserError):
    """A checkpoint belongs to another run."""


class Driver:
    """Runs a method to its save times; it can be interrupted, saved, loaded and continued.

    Parameters
    ----------
    method
        The method, resolved.
    run_state
        The state from which the run starts.
    times
        Increasing save times.
    probes
        What is evaluated at each of them.
    batching
        "one" run, or several by "vmap" or "map".

    Attributes
    ----------
    asked, reached
        The save times as requested, and as the method can reach them; times that fall on the same step are merged.
    records
        What was recorded at the save times so far.
    at_end
        The results of the probes that are evaluated only at the end.
    snapshots
        The indices of save times at which the trained parameters are recorded too.
    """

    def __init__(
        self, method: Method, run_state: RunState, times: Times, probes: Probes, batching: compiled.Batching
    ) -> None:
        self.method, self.run_state = method, run_state
        self.batching: compiled.Batching = batching
        self.probes = named(probes)
        self._late = {name: probe for name, probe in self.probes.items() if isinstance(probe, OnlyAtEnd)}
        self._timed = {name: probe for name, probe in self.probes.items() if name not in self._late}
        # A run that was interrupted between two save times has to reach the second of them first.
        state, target = run_state.state, run_state.target
        underway = bool(jnp.any((state.remaining > 0) & (state.code != Status.loss_reached.code)))
        if underway and np.size(times) and np.ravel(times)[0] != target:
            raise UserError(f"The interrupted run was on its way to t = {target:g}: ask for that time first.")
        asked = _checked_times(times, target)
        counts, reached = method.plan(np.concatenate([[target], asked]))
        if jnp.issubdtype(state.remaining.dtype, jnp.integer):
            check_steps(counts, asked[-1])
        amounts = np.diff(counts)
        if asked[-1] > target and amounts.sum() == 0 and not underway:
            raise UserError(f"Not one step fits between t = {target:g} and t = {asked[-1]:g}: take smaller steps.")
        apart = (amounts > 0) | (np.arange(asked.size) == 0)
        self.asked, self.amounts, self.reached = asked[apart], amounts[apart], reached[1:][apart]
        self._last_probes: list[Observe] = []  # the probes that were evaluated last, and
        self._at_start: list[tuple[Observe, PyTree]] = []  # the values at the start of the run that they need
        # All probes are traced now, so that one that cannot be evaluated raises its error before training.
        shapes = self._traced(self.probes)[0]
        self._shapes = {name: shapes[name] for name in self._timed}
        self.records: list[Recorded] = []
        self.at_end: dict[str, PyTree] = {}
        self.snapshots: Collection[int] = ()
        self.seconds = 0.0
        self.interrupted = False
        self._before = self._recorded = self.state  # the states before the last slice, and at the last save time

    @classmethod
    def begin(
        cls,
        flow: Flow,
        networks: Sequence[Network],
        data: Sequence[Dataset],
        times: Times,
        probes: Probes,
        keys: Sequence[PRNGKey],
    ) -> Driver:
        """Check all arguments, prepare the networks on their data, and make the state at t = 0.

        Parameters
        ----------
        flow
            The flow, which may leave the choice of a method open.
        networks, data, keys
            One of each for every run.
        times, probes
            As for the class.
        """
        if not networks or not len(networks) == len(data) == len(keys):
            raise UserError(f"Give one data set and key per network: {len(networks)}, not {len(data)} and {len(keys)}.")
        for network, one in zip(networks, data, strict=True):
            _check_types(flow, network, one)
        method = flow.resolve(networks[0], data[0])
        arrangement = compiled.layout(method, networks[0], data[0], len(networks))
        for network, one in zip(networks, data, strict=True):
            method.check(network, one)
            method.loss.check(one.y)
        size = sum(leaf.nbytes for leaf in jax.tree.leaves(split_trained(networks[0])[0]))
        together = size < _VMAP_BYTES and not method.one_by_one()
        batching: compiled.Batching = "one" if len(networks) == 1 else "vmap" if together else "map"
        groups: list[Any] = [networks, data, keys]
        network, raw, key = (group[0] if batching == "one" else compiled.stack(group) for group in groups)
        prepared, samples = compiled.prepare_runs(method, network, raw, arrangement, batching)
        state = compiled.init_runs(method, prepared, samples, key, batching)
        # The state shows what is trained; the rates of several networks stacked into one would mean nothing.
        chosen = jax.tree.map(lambda leaf: leaf is not None, state.trained, is_leaf=lambda leaf: leaf is None)
        trained, frozen = eqx.partition(prepared, chosen)
        return cls(method, RunState(state, frozen, trained, samples, raw, 0.0, method), times, probes, batching)

    def run(self, progress: Progress | None = None, checkpoint: Callable[[], None] | None = None) -> Driver:
        """Run to the last save time; Ctrl-C stops between two slices and loses nothing.

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
        samples = self.run_state.data.y.size // (1 if self.batching == "one" else self.state.code.shape[0])
        with bar(progress) as report, one_lapack_thread() if samples <= _SMALL_MATRIX else nullcontext():
            try:
                while len(self.records) < len(self.asked):
                    amount = self._head_for_next()
                    while self._underway():
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
        """The present state of the method."""
        return self.run_state.state

    def _underway(self) -> bool:
        # By NumPy here and below: between slices of milliseconds, JAX's dispatch would take as long as they do.
        return bool(np.any((np.asarray(self.state.remaining) > 0) & (np.asarray(self.state.code) == 0)))

    def _head_for_next(self) -> float:
        index = len(self.records)
        amount, target = float(self.amounts[index]), float(self.asked[index])
        if self.run_state.target != target:  # otherwise the run is on its way to it already
            remaining = np.full(self.state.remaining.shape, amount, self.state.remaining.dtype)
            state = with_fields(self.state, remaining=jnp.asarray(remaining))
            self.run_state = with_fields(self.run_state, state=state, target=target)
        return amount

    def _advance(self, budget: int) -> None:
        self._before, state = self.state, self._after(self.state, budget)
        self.run_state = with_fields(self.run_state, state=state)
        self._step_back(np.logical_not(self._finite(state)))

    def _after(self, state: State, steps: int) -> State:
        run, most = self.run_state, jnp.asarray(steps, jnp.int32)
        advanced = compiled.advance_runs(self.method, state, run.frozen, run.data, most, self.batching)
        return jax.block_until_ready(advanced)

    # ---------------------------------------------------------------- numbers that are not finite

    def _finite(self, state: State) -> np.ndarray:
        """Whether all trained parameters are finite, for each run."""
        return self._of_each(state.trained, np.isfinite, np.all)

    def _of_each(self, tree: PyTree, function: Callable[..., Any], reduce: Callable[..., Any]) -> np.ndarray:
        leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(tree) if eqx.is_inexact_array_like(leaf)]
        first = 0 if self.batching == "one" else 1
        found = [reduce(function(leaf), axis=tuple(range(first, leaf.ndim))) for leaf in leaves]
        return np.asarray(reduce(np.stack(found), axis=0))

    def _overflows(self, state: State, observed: PyTree) -> np.ndarray:
        """Whether the loss is not finite, for each run; it is evaluated only where there is a sign of that."""
        at_start, now = (self._of_each(tree, np.abs, np.max) for tree in (self.run_state.first, state.trained))
        quiet = self._of_each(observed, np.isfinite, np.all) if jax.tree.leaves(observed) else np.ones_like(now, bool)
        running = np.asarray(np.asarray(state.code) == 0)
        if not np.any(running & (~quiet | (now > _GROWN * (1 + at_start)))):
            return np.zeros_like(running)
        return np.asarray(running & ~self._sound(state))

    def _sound(self, state: State) -> np.ndarray:
        loss = self._evaluated(compiled.observe_runs, state.trained, {"": _loss_now})[""]
        return np.asarray(self._finite(state) & np.isfinite(np.asarray(loss)))

    def _step_back(self, bad: Any) -> None:
        """Return runs that became NaN or infinite in the last slice to their last finite state, and end them there."""
        for index in np.argwhere(bad):
            place = tuple(index)
            counts = [np.asarray(one.steps + one.rejected)[place] for one in (self._before, self.state)]
            low, high = 0, int(counts[1] - counts[0])
            while high - low > 1:  # the same steps again, fewer of them: bisection
                middle = (low + high) // 2
                low, high = (middle, high) if self._sound(self._after(self._before, middle))[place] else (low, middle)
            found = self._after(self._before, low) if low else self._before
            found = found if self._sound(found)[place] else self._recorded
            found = with_fields(found, code=jnp.full_like(found.code, Status.not_finite.code))
            if place:
                found = jax.tree.map(lambda all_, one, at=place[0]: all_.at[at].set(one[at]), self.state, found)
            self.run_state = with_fields(self.run_state, state=found)

    def _record(self, check: bool = False) -> None:
        observed = self.observe(self.state.trained, self._timed)
        if check:
            self._step_back(self._overflows(self.state, observed))
            if np.all(failed(self.state.code)):
                return
            self._recorded = self.state
        counters = {name: np.asarray(getattr(self.state, name)) for name in ("code", *COUNTERS)}
        leaves = jax.tree.leaves(self.state.trained)
        trained = [np.asarray(leaf) for leaf in leaves] if len(self.records) in self.snapshots else None
        self.records.append(Recorded(observed, counters, trained))

    def record(self, state: State, time: float) -> None:
        """Record a ``state`` that was reached elsewhere, at a ``time`` after all others."""
        self.run_state = with_fields(self.run_state, state=state, target=time)
        self.asked = self.reached = np.append(self.reached[: len(self.records)], time)
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
            self._last_probes, needed = list(probes.values()), self._traced(probes)[1]
            first = self.run_state.first
            self._at_start = [(one, self._evaluated(compiled.observe_runs, first, {"": one})[""]) for one in needed]
        return jax.tree.map(np.asarray, self._evaluated(compiled.observe_runs, trained, probes, self._at_start))

    def _traced(self, probes: Mapping[str, Observe]) -> tuple[dict[str, PyTree], list[Observe]]:
        """Trace probes abstractly: the shapes of their results, and the probes whose values at the start they need."""
        requested: list[Observe] = []
        trace = functools.partial(eqx.filter_eval_shape, functools.partial(compiled.observed, requested=requested))
        return self._evaluated(trace, self.state.trained, probes), requested

    def _evaluated(
        self, evaluate: Callable[..., Any], trained: PyTree, probes: Mapping[str, Observe], known: Sequence[Any] = ()
    ) -> dict[str, PyTree]:
        run = self.run_state
        given = (trained, run.first, run.frozen, run.data, run.raw)
        return evaluate(dict(probes), list(known), *given, self.method.loss, self.batching)

    def trajectories(self) -> list[Trajectory]:
        """Return everything observed so far, as one trajectory for each run."""
        if self.batching == "one":
            return [self._trajectory(lambda tree: tree)]

        def pick(tree: PyTree, i: int) -> PyTree:
            return jax.tree.map(lambda leaf: leaf[i] if eqx.is_array(leaf) else leaf, tree)

        return [self._trajectory(functools.partial(pick, i=i)) for i in range(self.state.code.shape[0])]

    def _trajectory(self, pick: Callable[[PyTree], PyTree]) -> Trajectory:
        parts = {name: pick(getattr(self.run_state, name)) for name in ("state", "frozen", "first", "data", "raw")}
        run = with_fields(self.run_state, **parts)
        # Of several runs, one may have ended before the others: it was not observed after that.
        ended = [bool(failed(pick(one.counters)["code"])) for one in self.records]
        kept = self.records[: ended.index(True) if True in ended else None]
        records = [pick(one.observed) for one in kept]
        return Trajectory(
            data=run.raw,
            loss=self.method.loss,
            times=np.asarray(self.reached[: len(records)]),
            probes=self.probes,
            observed=(jax.tree.map(lambda *values: np.stack(values), *records) if records else {}) | pick(self.at_end),
            stats={
                "method": kebab(type(self.method).__name__),
                "coordinates": getattr(self.method, "coordinates", "weights"),
                "precision": getattr(self.method, "precision", "full"),
                **{name: int(getattr(run.state, name)) for name in COUNTERS if name != "error"},
                "error": float(run.state.error),
                "seconds": self.seconds,
            },
            status=Status.interrupted if self.interrupted else list(Status)[int(run.state.code)],
            run_state=run,
        )

    def save(self, path: Path, run: str = "") -> None:
        """Write a checkpoint: a line of JSON, the leaves of state and records, and a checksum of all that.

        Parameters
        ----------
        path
            The file. If writing fails, an older file of this name stays intact.
        run
            An identifier of the run; `load` expects the same.
        """
        header = {
            "run": run,
            "target": self.run_state.target,
            "seconds": self.seconds,
            "snapshots": [one.trained is not None for one in self.records],
            "leaves": _described((self.state, self.records)),
        }
        with atomic_write(path) as temporary, open(temporary, "wb+") as file:
            file.write(json.dumps(header).encode() + b"\n")
            eqx.tree_serialise_leaves(
                file, (self.state, self.records), filter_spec=lambda file, leaf: np.save(file, plain_leaf(leaf))
            )
            file.seek(0)
            digest = hashlib.file_digest(file, "sha256").digest()  # reads to the end, where the digest goes
            file.write(digest)

    def load(self, path: Path, run: str = "") -> Driver:
        """Continue from a checkpoint; the driver must have been made with the same arguments.

        Parameters
        ----------
        path
            The file that `save` wrote.
        run
            What `save` was given.
        """
        header, file = read_checkpoint(path)
        counters = {name: getattr(self.state, name) for name in ("code", *COUNTERS)}
        leaves = jax.tree.leaves(self.state.trained)
        records = [Recorded(self._shapes, counters, leaves if some else None) for some in header["snapshots"]]
        if header["run"] != run or header["leaves"] != _described((self.state, records)):
            raise OtherRunError(f"The checkpoint {path.name} belongs to another run: delete it to start again.")
        state, records = eqx.tree_deserialise_leaves(
            file, (self.state, records), filter_spec=lambda file, leaf: leaf_like(leaf, np.load(file))
        )
        self.records, self.seconds = jax.tree.map(np.asarray, records), header["seconds"]
        self.run_state = with_fields(self.run_state, state=state, target=header["target"])
        self._before = self._recorded = state
        return self


def _check_types(flow: Flow, network: Network, data: Dataset) -> None:
    """Reject what is not a network, data set or loss, and data that are not finite."""
    for what, given, wanted, advice in (
        ("network", network, Network, "make one of unlazy.networks, or wrap your own model by unlazy.wrap(model)"),
        ("data set", data, Dataset, "make one with unlazy.Dataset(x, y)"),
        ("loss", flow.loss, Loss, "give one of unlazy.losses, its name, or a function of outputs and targets"),
    ):
        if not isinstance(given, wanted):
            raise UserError(
                f"The {what} must be {article(wanted.__name__)}, not {article(type(given).__name__)}: {advice}."
            )
    for leaf in jax.tree.leaves(split_trained(network)[0]):
        if leaf.dtype not in (jnp.float32, jnp.float64):
            raise UserError(
                f"The {type(network).__name__} has trained parameters of type {leaf.dtype}, and flows compute in "
                "float32 and float64: convert the model to one of these."
            )
    data.check()


def _loss_now(obs: Observation) -> Any:
    return obs.loss(obs.outputs, obs.data.y, obs.data.weight)


def _checked_times(times: Times, since: float) -> np.ndarray:
    try:
        asked = np.asarray(times, dtype=float)
    except (TypeError, ValueError):
        raise UserError(
            f"times = {short(times)} is not a list of numbers: give increasing times, as [0, 1, 10]."
        ) from None
    if asked.ndim != 1 or asked.size == 0 or not np.isfinite(asked).all() or (np.diff(asked) <= 0).any():
        raise UserError(f"Times must be a list of finite, increasing numbers, not {short(times)}.")
    if asked[0] < since:
        raise UserError(f"The run is at t = {since:g} and cannot go back to t = {asked[0]:g}: ask for later times.")
    return asked


def read_checkpoint(path: Path) -> tuple[dict[str, Any], io.BytesIO]:
    """Return the header of a checkpoint and the rest of the file; raise a ValueError if its checksum is wrong.

    Parameters
    ----------
    path
        The file that `Driver.save` wrote.
    """
    content = path.read_bytes()
    body, digest = content[:-32], content[-32:]
    if hashlib.sha256(body).digest() != digest:
        raise ValueError(f"The checksum of '{path}' is wrong.")
    file = io.BytesIO(body)
    return json.loads(file.readline()), file


def _described(tree: PyTree) -> list[list[Any]]:
    return [[str(leaf.dtype), list(leaf.shape)] for leaf in jax.tree.leaves(tree)]
