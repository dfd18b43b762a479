"""The driver of every flow: compiled slices of work, and between them progress, probes, checkpoints and Ctrl-C.

Several runs of one shape are trained together: side by side (vmap) while they are small, in turn (`lax.map`) once one
of them fills the machine. How the work is sliced never changes a result: the state carries all that the next step
depends on.
"""

from __future__ import annotations

import functools
import hashlib
import io
import json
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from unlazy._errors import UserError, article
from unlazy._files import atomic_write
from unlazy._inputs import leaf_like, plain_leaf
from unlazy._linalg import one_lapack_thread
from unlazy._observation import Observe
from unlazy._progress import Progress, bar
from unlazy._registry import kebab
from unlazy._types import PRNGKey, PyTree
from unlazy.data import Dataset
from unlazy.flows import _compiled as compiled
from unlazy.flows._state import CODES, State, Status
from unlazy.flows._trajectory import COUNTERS, OnlyAtEnd, Recorded, RunState, Trajectory, named
from unlazy.losses import Loss
from unlazy.networks import Network, split_trained, with_fields

if TYPE_CHECKING:
    from unlazy.flows._base import Flow, Method

Probes = Sequence[Observe | str] | Mapping[str, Observe | str]  # a name is resolved by the registry

# Below this size of the trained parameters a network does not fill two cores and vmap wins; above, lax.map does.
_VMAP_BYTES = 2**18
_SLICE_SECONDS = 0.5  # how long compiled code may run before it listens for Ctrl-C and reports
# Every slice copies the state, and the data too where runs take turns. Where a single step takes long, so does that:
# then slices are longer, up to a limit. A step of 26 million weights took 1.0 s in a slice of its own, 0.7 s of eight.
_LONGEST_SLICE = 5.0
_CHECKPOINT_SECONDS = 30.0
_SMALL_MATRIX = 256  # rows up to which LAPACK's own threads win nothing


class OtherRunError(UserError):
    """A checkpoint belongs to another run."""


class Driver:
    """Runs a method to its save times; it can be interrupted, saved, loaded and continued.

    Parameters
    ----------
    method
        The method, resolved.
    run_state
        Where the run stands.
    times
        Increasing save times.
    probes
        What is evaluated at each of them.
    batching
        "one" run, or several by "vmap" or "map".

    Attributes
    ----------
    asked, reached
        The save times as asked for, and as the method can reach them; times that fall on the same step are one.
    records
        What was recorded at the save times so far.
    at_end
        What probes that are evaluated only at the end observed.
    snapshots
        The indices of save times at which the trained parameters are recorded too.
    """

    def __init__(
        self,
        method: Method,
        run_state: RunState,
        times: Sequence[float] | np.ndarray,
        probes: Probes,
        batching: compiled.Batching,
    ) -> None:
        self.method, self.run_state = method, run_state
        self.batching: compiled.Batching = batching
        self.probes = named(probes)
        self.late = {name for name, probe in self.probes.items() if isinstance(probe, OnlyAtEnd)}
        # A run that was interrupted between two times first has to reach the one it was heading for.
        target, underway = run_state.target, bool(jnp.any(run_state.state.remaining > 0))
        if underway and np.size(times) and np.ravel(times)[0] != target:
            raise UserError(f"The interrupted run was on its way to t = {target:g}: ask for that time first.")
        asked = _checked_times(times, target)
        counts, reached = method.plan(np.concatenate([[target], asked]))
        amounts = np.diff(counts)
        if asked[-1] > target and amounts.sum() == 0 and not underway:
            raise UserError(f"Not one step fits between t = {target:g} and t = {asked[-1]:g}: take smaller steps.")
        apart = (amounts > 0) | (np.arange(asked.size) == 0)
        self.asked, self.amounts, self.reached = asked[apart], amounts[apart], reached[1:][apart]
        self._asking: list[Observe] = []  # the probes that were evaluated last, and
        self._at_start: list[tuple[Observe, PyTree]] = []  # what they ask about the start
        # A probe that cannot be evaluated is noticed now, not when its time comes.
        shapes = self._requests(self.probes)[0]
        self._shapes = {name: shape for name, shape in shapes.items() if name not in self.late}
        self.records: list[Recorded] = []
        self.at_end: dict[str, PyTree] = {}
        self.snapshots: Collection[int] = ()
        self.seconds = 0.0
        self.interrupted = False

    @classmethod
    def begin(
        cls,
        flow: Flow,
        networks: Sequence[Network],
        data: Sequence[Dataset],
        times: Sequence[float] | np.ndarray,
        probes: Probes,
        keys: Sequence[PRNGKey],
    ) -> Driver:
        """Check everything that can be checked, do the frozen work once, and make the state at t = 0."""
        if not networks or not len(networks) == len(data) == len(keys):
            raise UserError(
                f"{len(networks)} networks need as many data sets and keys, not {len(data)} and {len(keys)}."
            )
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
        # The state knows what is trained; the rates of several networks stacked into one would mean nothing.
        chosen = jax.tree.map(lambda leaf: leaf is not None, state.trained, is_leaf=lambda leaf: leaf is None)
        trained, frozen = eqx.partition(prepared, chosen)
        return cls(method, RunState(state, frozen, trained, samples, raw, 0.0, method), times, probes, batching)

    def run(self, progress: Progress | None = None, checkpoint: Callable[[], None] | None = None) -> Driver:
        """Run to the last save time; Ctrl-C stops between two slices and loses nothing.

        Parameters
        ----------
        progress
            Called with the share done and the time; without it a bar appears after two seconds.
        checkpoint
            Called every 30 seconds.
        """
        begun = saved = time.perf_counter()
        already, budget, fresh, aim = self.seconds, 1, True, _SLICE_SECONDS
        self.interrupted = False
        with bar(progress) as report, self._lapack():
            try:
                while len(self.records) < len(self.asked):
                    amount = self._head_for_next()
                    while self._underway():
                        before = time.perf_counter()
                        self._advance(budget)
                        took, self.seconds = time.perf_counter() - before, already + time.perf_counter() - begun
                        if not fresh:  # the first slice compiles, and says nothing about speed
                            if budget == 1:
                                aim = float(np.clip(10 * took, _SLICE_SECONDS, _LONGEST_SLICE))
                            budget = int(np.clip(budget * aim / max(took, 1e-6), 1, min(4 * budget, 2**24)))
                        fresh = False
                        away = min(1.0, float(np.max(self.state.remaining)) / max(amount, 1e-300))
                        report((len(self.records) + 1 - away) / len(self.asked), self.run_state.target)
                        if checkpoint is not None and time.perf_counter() - saved > _CHECKPOINT_SECONDS:
                            checkpoint()
                            saved = time.perf_counter()
                    if np.all(self.state.code):
                        break
                    self._record()
                    report(len(self.records) / len(self.asked), self.run_state.target)
                if len(self.records) == len(self.asked) and self.late:
                    self.at_end = self._observe_now(self.late)
            except KeyboardInterrupt:
                self.interrupted = True
        self.seconds = already + time.perf_counter() - begun
        return self

    @property
    def state(self) -> State:
        """The present state of the method."""
        return self.run_state.state

    def _lapack(self) -> AbstractContextManager[Any]:
        samples = self.run_state.data.y.size // (1 if self.batching == "one" else self.state.code.shape[0])
        return one_lapack_thread() if samples <= _SMALL_MATRIX else nullcontext()

    def _underway(self) -> bool:
        # Asked of NumPy here and below: between slices of milliseconds, JAX's dispatch would cost as much as they do.
        return bool(np.any((np.asarray(self.state.remaining) > 0) & (np.asarray(self.state.code) == 0)))

    def _head_for_next(self) -> float:
        index = len(self.records)
        amount, target = float(self.amounts[index]), float(self.asked[index])
        if self.run_state.target != target:  # else it is on its way already, with some of it remaining
            remaining = self.state.remaining
            remaining = jnp.asarray(np.full(remaining.shape, amount, remaining.dtype))
            self._move(with_fields(self.state, remaining=remaining), target)
        return amount

    def _move(self, state: State, target: float) -> None:
        self.run_state = with_fields(self.run_state, state=state, target=target)

    def _advance(self, budget: int) -> None:
        run = self.run_state
        moved = compiled.advance_runs(
            self.method, run.state, run.frozen, run.data, jnp.asarray(budget, jnp.int32), self.batching
        )
        self._move(jax.block_until_ready(moved), run.target)

    def _record(self) -> None:
        observed = self._observe_now(set(self.probes) - self.late)
        counters = {name: np.asarray(getattr(self.state, name)) for name in ("code", *COUNTERS)}
        leaves = jax.tree.leaves(self.state.trained)
        trained = [np.asarray(leaf) for leaf in leaves] if len(self.records) in self.snapshots else None
        self.records.append(Recorded(observed, counters, trained))

    def _observe_now(self, names: set[str]) -> dict[str, PyTree]:
        probes = {name: probe for name, probe in self.probes.items() if name in names}
        return self.observe(self.state.trained, probes)

    def observe(self, trained: PyTree, probes: dict[str, Observe]) -> dict[str, PyTree]:
        """Evaluate probes on the network with the given trained parameters; what they ask of the start is stored."""
        if [*map(id, probes.values())] != [*map(id, self._asking)]:
            self._asking, wanted = list(probes.values()), self._requests(probes)[1]
            self._at_start = [(one, self._observe(self.run_state.first, {"it": one}, [])["it"]) for one in wanted]
        return jax.tree.map(np.asarray, self._observe(trained, probes, self._at_start))

    def _observe(
        self, trained: PyTree, probes: dict[str, Observe], known: list[tuple[Observe, PyTree]]
    ) -> dict[str, PyTree]:
        asked, answers = (tuple(part) for part in zip(*known, strict=True)) if known else ((), ())
        run = self.run_state
        given = (trained, run.first, run.frozen, run.data, run.raw)
        return compiled.observe_runs(probes, asked, answers, *given, self.method.loss, self.batching)

    def _requests(self, probes: dict[str, Observe]) -> tuple[dict[str, PyTree], list[Observe]]:
        """Trace probes abstractly: the shapes of their results, and the probes whose values at the start they need."""
        run, requested = self.run_state, []
        evaluate = functools.partial(
            compiled.observed, loss=self.method.loss, batching=self.batching, requested=requested
        )
        given = (run.state.trained, run.first, run.frozen, run.data, run.raw)
        return eqx.filter_eval_shape(evaluate, probes, (), (), *given), requested

    def trajectories(self) -> list[Trajectory]:
        """Return what has been observed so far, a trajectory for each run."""
        if self.batching == "one":
            return [self._trajectory(lambda tree: tree)]
        count = self.state.code.shape[0]

        def pick(tree: PyTree, i: int) -> PyTree:
            return jax.tree.map(lambda leaf: leaf[i] if eqx.is_array(leaf) else leaf, tree)

        return [self._trajectory(functools.partial(pick, i=i)) for i in range(count)]

    def _trajectory(self, pick: Callable[[PyTree], PyTree]) -> Trajectory:
        run = self.run_state
        parts = {name: pick(getattr(run, name)) for name in ("state", "frozen", "first", "data", "raw")}
        run = with_fields(run, **parts)
        records, state = [pick(one.observed) for one in self.records], run.state
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
                **{name: int(getattr(state, name)) for name in COUNTERS if name != "error"},
                "error": float(state.error),
                "seconds": self.seconds,
            },
            status=Status.interrupted if self.interrupted else CODES[int(state.code)],
            run_state=run,
        )

    def save(self, path: Path, run: str = "") -> None:
        """Write a checkpoint: a line of JSON, the leaves of state and records, and a checksum of all that.

        Parameters
        ----------
        path
            The file. A crash while it is written leaves an older one whole.
        run
            Identifies the run; `load` wants the same.
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
            eqx.tree_serialise_leaves(file, (self.state, self.records), filter_spec=_write_leaf)
            file.seek(0)
            digest = hashlib.file_digest(file, "sha256").digest()  # which leaves the file at its end
            file.write(digest)

    def load(self, path: Path, run: str = "") -> Driver:
        """Continue from a checkpoint; the driver must have been begun in the same way.

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
            raise OtherRunError(f"The checkpoint {path.name} belongs to another run: delete it to start afresh.")
        state, records = eqx.tree_deserialise_leaves(file, (self.state, records), filter_spec=_read_leaf)
        self.records, self.seconds = jax.tree.map(np.asarray, records), header["seconds"]
        self._move(state, header["target"])
        return self


def _check_types(flow: Flow, network: Network, data: Dataset) -> None:
    """Refuse what is not a network, data set or loss, and data that are not finite."""
    for what, given, wanted, advice in (
        ("network", network, Network, "make one of unlazy.networks, or write a subclass of unlazy.networks.Network"),
        ("data set", data, Dataset, "make one with unlazy.Dataset(x, y)"),
        ("loss", flow.loss, Loss, "give one of unlazy.losses, its name, or a function of outputs and targets"),
    ):
        if not isinstance(given, wanted):
            raise UserError(
                f"The {what} must be {article(wanted.__name__)}, not {article(type(given).__name__)}: {advice}."
            )
    data.check()


def _checked_times(times: Sequence[float] | np.ndarray, since: float) -> np.ndarray:
    asked = np.asarray(times, dtype=float)
    if asked.ndim != 1 or asked.size == 0 or not np.isfinite(asked).all() or (np.diff(asked) <= 0).any():
        raise UserError(f"Times must be a list of finite, increasing numbers, not {times!r}.")
    if asked[0] < since:
        raise UserError(f"The run stands at t = {since:g}; it cannot go back to t = {asked[0]:g}.")
    return asked


def read_checkpoint(path: Path) -> tuple[dict[str, Any], io.BytesIO]:
    """Return the header of a checkpoint and the rest of the file; raise a ValueError if its checksum is wrong."""
    content = path.read_bytes()
    body, digest = content[:-32], content[-32:]
    if hashlib.sha256(body).digest() != digest:
        raise ValueError(f"The checksum of '{path}' is wrong.")
    file = io.BytesIO(body)
    return json.loads(file.readline()), file


def _described(tree: PyTree) -> list[list[Any]]:
    return [[str(leaf.dtype), list(leaf.shape)] for leaf in jax.tree.leaves(tree)]


def _write_leaf(file: Any, leaf: Any) -> None:
    np.save(file, plain_leaf(leaf))


def _read_leaf(file: Any, leaf: Any) -> Any:
    return leaf_like(leaf, np.load(file))
