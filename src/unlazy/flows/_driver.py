"""The driver of every flow: compiled slices of work, and between them progress, probes, checkpoints and Ctrl-C.

Several runs of one shape travel together: side by side (vmap) while they are small, in turn (`lax.map`) once one of
them fills the machine. How the work is sliced never changes a result: the state carries all that the next step depends
on.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from unlazy._errors import UserError, article
from unlazy._files import atomic_write
from unlazy._linalg import one_lapack_thread
from unlazy._observation import Observe
from unlazy._registry import kebab
from unlazy._types import PRNGKey, PyTree
from unlazy.data import Dataset
from unlazy.flows._compiled import Batching, advance_runs, begin_runs, observe_runs, observed, prepare_runs, stack
from unlazy.flows._named import named
from unlazy.flows._progress import Progress, bar
from unlazy.flows._state import CODES, OnlyAtEnd, Place, State, Status, Trajectory
from unlazy.losses import Loss
from unlazy.networks import Layout, Network, split_trained, with_fields

if TYPE_CHECKING:
    from unlazy.flows._base import Flow, Stepper

Probes = Sequence[Observe | str] | Mapping[str, Observe | str]  # a name is resolved by the registry

# Below this size of the trained parameters a network does not fill two cores and vmap wins; above, lax.map does.
_VMAP_BYTES = 2**18
_SLICE_SECONDS = 0.5  # how long compiled code may run before it listens for Ctrl-C and reports
# Every slice copies the state, and the data too where runs take turns. Where a single step takes long, so does that:
# then slices are longer, up to a limit. A step of 26 million weights took 1.0 s in a slice of its own, 0.7 s of eight.
_LONGEST_SLICE = 5.0
_CHECKPOINT_SECONDS = 30.0
_SMALL_MATRIX = 256  # rows up to which LAPACK's own threads win nothing


class Driver:
    """A run on its way: it can `go`, be interrupted, be saved, be loaded and go on."""

    def __init__(
        self, flow: Stepper, place: Place, times: Sequence[float] | np.ndarray, probes: Probes, batching: Batching
    ) -> None:
        self.flow, self.place = flow, place
        self.batching: Batching = batching
        self.probes = named(probes)
        self.late = {name for name, probe in self.probes.items() if isinstance(probe, OnlyAtEnd)}
        # A run that was interrupted between two times first has to reach the one it was heading for.
        underway = bool(jnp.any(place.state.left > 0))
        if underway and np.size(times) and np.ravel(times)[0] != place.target:
            raise UserError(f"The interrupted run was on its way to t = {place.target:g}: ask for that time first.")
        asked = _checked_times(times, place.target)
        counts, reached = flow.plan(np.concatenate([[place.target], asked]))
        amounts = np.diff(counts)
        if asked[-1] > place.target and amounts.sum() == 0 and not underway:
            raise UserError(
                f"Not one step fits between t = {place.target:g} and t = {asked[-1]:g}: take smaller steps."
            )
        # Times that fall on the same step are one time.
        apart = (amounts > 0) | (np.arange(asked.size) == 0)
        self.asked, self.amounts, self.reached = asked[apart], amounts[apart], reached[1:][apart]
        # A probe that cannot look is noticed now, not when its time comes.
        self._asking: list[Observe] = []  # the probes of the last look, and
        self._at_start: list[tuple[Observe, PyTree]] = []  # what they want to know of the start
        self.look = {name: one for name, one in self._requests(self.probes)[0].items() if name not in self.late}
        self.looks: list[dict[str, PyTree]] = []
        self.last_look: dict[str, PyTree] = {}
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
        """Check everything that can be checked, do the frozen work once, and stand at t = 0."""
        if not networks or not len(networks) == len(data) == len(keys):
            raise UserError(
                f"{len(networks)} networks need as many data sets and keys, not {len(data)} and {len(keys)}."
            )
        for network, one in zip(networks, data, strict=True):
            _belong(flow, network, one)
        settled = flow.settle(networks[0], data[0], len(networks))
        layout = settled.layout(networks[0], data[0], len(networks))
        for network, one in zip(networks, data, strict=True):
            _fit(settled, network, one, layout)
        size = sum(leaf.nbytes for leaf in jax.tree.leaves(split_trained(networks[0])[0]))
        together = size < _VMAP_BYTES and not settled.alone()
        batching: Batching = "one" if len(networks) == 1 else "vmap" if together else "map"
        groups: list[Any] = [networks, data, keys]
        network, raw, key = (group[0] if batching == "one" else stack(group) for group in groups)
        prepared, samples = prepare_runs(settled, network, raw, layout, batching)
        state = begin_runs(settled, prepared, samples, key, batching)
        trained, frozen = split_trained(prepared)
        return cls(settled, Place(state, frozen, trained, samples, raw, 0.0, settled), times, probes, batching)

    def go(self, progress: Progress | None = None, checkpoint: Callable[[], None] | None = None) -> Driver:
        """Travel to the last time asked for; Ctrl-C stops between two slices and loses nothing."""
        begun = saved = time.perf_counter()
        already, budget, fresh, aim = self.seconds, 1, True, _SLICE_SECONDS
        self.interrupted = False
        with bar(progress) as report, self._lapack():
            try:
                while len(self.looks) < len(self.asked):
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
                        away = min(1.0, float(np.max(self.state.left)) / max(amount, 1e-300))
                        report((len(self.looks) + 1 - away) / len(self.asked), self.place.target)
                        if checkpoint is not None and time.perf_counter() - saved > _CHECKPOINT_SECONDS:
                            checkpoint()
                            saved = time.perf_counter()
                    if np.all(self.state.code):
                        break
                    self.looks.append(self._look(set(self.probes) - self.late))
                    report(len(self.looks) / len(self.asked), self.place.target)
                if len(self.looks) == len(self.asked) and self.late:
                    self.last_look = self._look(self.late)
            except KeyboardInterrupt:
                self.interrupted = True
        self.seconds = already + time.perf_counter() - begun
        return self

    @property
    def state(self) -> State:
        """Where the flow stands."""
        return self.place.state

    def _lapack(self) -> AbstractContextManager[Any]:
        samples = self.place.data.y.size // (1 if self.batching == "one" else self.state.code.shape[0])
        return one_lapack_thread() if samples <= _SMALL_MATRIX else nullcontext()

    def _underway(self) -> bool:
        # Asked of NumPy here and below: between slices of milliseconds, JAX's dispatch would cost as much as they do.
        return bool(np.any((np.asarray(self.state.left) > 0) & (np.asarray(self.state.code) == 0)))

    def _head_for_next(self) -> float:
        index = len(self.looks)
        amount, target = float(self.amounts[index]), float(self.asked[index])
        if self.place.target != target:  # else it is on its way already, with `left` to go
            left = jnp.asarray(np.full(self.state.left.shape, amount, self.state.left.dtype))
            self._move(with_fields(self.state, left=left), target)
        return amount

    def _move(self, state: State, target: float) -> None:
        place = self.place
        self.place = Place(state, place.frozen, place.first, place.data, place.raw, target, place.flow)

    def _advance(self, budget: int) -> None:
        place = self.place
        moved = advance_runs(
            self.flow, place.state, place.frozen, place.data, jnp.asarray(budget, jnp.int32), self.batching
        )
        self._move(jax.block_until_ready(moved), place.target)

    def _look(self, names: set[str]) -> dict[str, PyTree]:
        probes = {name: probe for name, probe in self.probes.items() if name in names}
        return self.observe(self.place.state.trained, probes)

    def observe(self, trained: PyTree, probes: dict[str, Observe]) -> dict[str, PyTree]:
        """Evaluate probes on the network with the given trained parameters; what they ask of the start is kept."""
        if [*map(id, probes.values())] != [*map(id, self._asking)]:
            self._asking, wanted = list(probes.values()), self._requests(probes)[1]
            self._at_start = [(one, self._observe(self.place.first, {"it": one}, [])["it"]) for one in wanted]
        return jax.tree.map(np.asarray, self._observe(trained, probes, self._at_start))

    def _observe(
        self, trained: PyTree, probes: dict[str, Observe], known: list[tuple[Observe, PyTree]]
    ) -> dict[str, PyTree]:
        place = self.place
        return observe_runs(
            probes,
            tuple(probe for probe, _ in known),
            tuple(value for _, value in known),
            trained,
            place.first,
            place.frozen,
            place.data,
            place.raw,
            self.flow.loss,
            self.batching,
        )

    def _requests(self, probes: dict[str, Observe]) -> tuple[dict[str, PyTree], list[Observe]]:
        """Trace probes abstractly: the shapes of their results, and the probes that they want to know at the start."""
        place, requested = self.place, []
        shapes = eqx.filter_eval_shape(
            functools.partial(observed, loss=self.flow.loss, batching=self.batching, requested=requested),
            probes,
            (),
            (),
            place.state.trained,
            place.first,
            place.frozen,
            place.data,
            place.raw,
        )
        return shapes, requested

    def trajectories(self) -> list[Trajectory]:
        """Give what has been seen so far, a trajectory for each run."""
        if self.batching == "one":
            return [self._trajectory(lambda tree: tree)]
        count = self.state.code.shape[0]

        def pick(tree: PyTree, i: int) -> PyTree:
            return jax.tree.map(lambda leaf: leaf[i] if eqx.is_array(leaf) else leaf, tree)

        return [self._trajectory(functools.partial(pick, i=i)) for i in range(count)]

    def _trajectory(self, pick: Callable[[PyTree], PyTree]) -> Trajectory:
        all_ = self.place
        picked = (pick(part) for part in (all_.state, all_.frozen, all_.first, all_.data, all_.raw))
        state, frozen, first, data, raw = picked
        place = Place(state, frozen, first, data, raw, all_.target, all_.flow)
        looks = [pick(look) for look in self.looks]
        status = Status.interrupted if self.interrupted else CODES[int(place.state.code)]
        return Trajectory(
            data=place.raw,
            loss=self.flow.loss,
            times=np.asarray(self.reached[: len(looks)]),
            probes=self.probes,
            observed=(jax.tree.map(lambda *values: np.stack(values), *looks) if looks else {}) | pick(self.last_look),
            stats={
                "method": kebab(type(self.flow).__name__),
                "coordinates": getattr(self.flow, "coordinates", "weights"),
                "precision": getattr(self.flow, "precision", "full"),
                "steps": int(place.state.steps),
                "rejected": int(place.state.rejected),
                "evaluations": int(place.state.evaluations),
                "error": float(place.state.error),
                "seconds": self.seconds,
            },
            status=status,
            place=place,
        )

    def save(self, path: Path, **extra: np.ndarray) -> None:
        """Write all that `load` needs, and more arrays beside it; a crash leaves an older file whole."""
        leaves = [_plain(leaf) for leaf in jax.tree.leaves((self.state, self.looks))]
        head = np.asarray([len(self.looks), self.place.target, self.seconds])
        with atomic_write(path) as temporary, open(temporary, "wb") as file:
            np.savez(file, head, *leaves, **extra)  # pyright: ignore[reportArgumentType]

    def load(self, path: Path) -> Driver:
        """Stand where `save` left off; the driver must have been begun in the same way."""
        with open(path, "rb") as opened, np.load(opened) as file:
            head, *saved = (file[name] for name in sorted(file.files, key=_position) if name.startswith("arr_"))
        leaves, structure = jax.tree.flatten((self.state, [self.look] * int(head[0])))
        if [leaf.shape for leaf in map(_plain_shape, leaves)] != [leaf.shape for leaf in saved]:
            raise UserError(f"The checkpoint {path.name} belongs to another run: delete it to start afresh.")
        state, self.looks = jax.tree.unflatten(structure, [_like(*pair) for pair in zip(leaves, saved, strict=True)])
        self.looks = [jax.tree.map(np.asarray, one) for one in self.looks]
        self.seconds = float(head[2])
        self._move(state, float(head[1]))
        return self


def _belong(flow: Flow, network: Network, data: Dataset) -> None:
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


def _fit(flow: Stepper, network: Network, data: Dataset, layout: Layout) -> None:
    """Refuse a network, data and loss that do not belong together, before any time is spent."""
    flow.check(network, data)
    flow.loss.check(data.y)

    def outputs(network: Network, data: Dataset) -> Array:
        prepared, x, _ = flow.prepare(network, data, layout)
        return prepared(x)

    shape = eqx.filter_eval_shape(outputs, network, data).shape
    if shape != data.y.shape:
        raise UserError(
            f"The network gives outputs of shape {shape}, but the targets of '{data.name}' have shape {data.y.shape}: "
            "a network without `outputs` wants targets (n,), one with outputs = k wants (n, k)."
        )


def _checked_times(times: Sequence[float] | np.ndarray, since: float) -> np.ndarray:
    asked = np.asarray(times, dtype=float)
    if asked.ndim != 1 or asked.size == 0 or not np.isfinite(asked).all() or (np.diff(asked) <= 0).any():
        raise UserError(f"Times must be a list of finite, increasing numbers, not {times!r}.")
    if asked[0] < since:
        raise UserError(f"The run stands at t = {since:g}; it cannot go back to t = {asked[0]:g}.")
    return asked


def _is_key(leaf: Any) -> bool:
    return jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _plain(leaf: Any) -> np.ndarray:
    return np.asarray(jax.random.key_data(leaf) if _is_key(leaf) else leaf)


def _position(name: str) -> int:
    return int(name.removeprefix("arr_")) if name.startswith("arr_") else -1


def _plain_shape(leaf: Any) -> Any:
    return jax.eval_shape(jax.random.key_data, leaf) if _is_key(leaf) else leaf


def _like(leaf: Any, saved: np.ndarray) -> Array:
    return jax.random.wrap_key_data(jnp.asarray(saved)) if _is_key(leaf) else jnp.asarray(saved, leaf.dtype)
