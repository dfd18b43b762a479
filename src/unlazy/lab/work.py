"""Completes what the store knows of trajectories: what is missing is observed on snapshots, continued or computed.

For each seed the cheapest way is chosen: nothing, if all is stored; *observe*, if the parameters at all times where a
probe is missing are known; *continue*, if only later times are missing; else *begin* at t = 0. Seeds that need the same
are run together.
"""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from unlazy._errors import UserError
from unlazy._inputs import leaf_like, plain_leaf
from unlazy.flows import Driver, Observe, OnlyAtEnd, OtherRunError, Recorded, Status, Trajectory
from unlazy.lab.identity import Identity, digest
from unlazy.lab.made_by import is_current, provenance
from unlazy.lab.recipe import Experiment, Recipe, instantiate
from unlazy.lab.store import parts
from unlazy.lab.tracks import COUNTERS, Track, leaves_of, thinned
from unlazy.networks import with_fields

Kind = Literal["complete", "observe", "continue", "begin"]
_ORDER: tuple[Kind, ...] = ("complete", "observe", "continue", "begin")
Listen = Callable[[Driver, float, float], None]  # (driver, share done, time)


class Plan(NamedTuple):
    """What one seed needs: from which track, which probes at which of its times, and which later times."""

    kind: Kind
    track: Track | None
    missing: dict[str, list[int]]  # indices of times, by label of the probe
    later: list[float]

    def key(self) -> str:
        """Give what seeds must agree in to be run together."""
        asked = [] if self.track is None else self.track.asked.tolist()
        return digest([self.kind, asked, self.missing, self.later])


def plan(known: Sequence[Track], identity: Identity, times: np.ndarray, exact_end: bool = False) -> Plan:
    """Choose the cheapest way to what is asked for.

    Parameters
    ----------
    known
        The tracks of the trajectory.
    identity, times
        What is asked for.
    exact_end
        Whether the track must end where ``times`` do, so that its state is that of the end.
    """
    plans = [_along(track, identity, times, exact_end) for track in known]
    plans.append(Plan("begin", None, {}, []))
    return min(plans, key=lambda one: (_ORDER.index(one.kind), one.track is None or not is_current(one.track.made_by)))


def _along(track: Track, identity: Identity, times: np.ndarray, exact_end: bool) -> Plan:
    places = {float(t): track.find(t) for t in times}
    last = track.asked[-1] if len(track.asked) else -np.inf
    later = [t for t, place in places.items() if place is None and t > last]
    if any(place is None and t <= last for t, place in places.items()):
        return Plan("begin", None, {}, [])
    found = sorted({place for place in places.values() if place is not None})
    # A run from the start takes the track's place if it observes all of the track's times.
    begin = Plan("begin", track if len(found) == len(track.asked) else None, {}, [])
    if exact_end and track.finished and not later and (not found or found[-1] != len(track.asked) - 1):
        return begin
    missing: dict[str, list[int]] = {}
    for label, probe in identity.probes.items():
        at_end = isinstance(probe, OnlyAtEnd)
        wanted = ([] if later or not found else found[-1:]) if at_end else found
        seen = track.observed.get(identity.digests[label], {})
        lacking = [index for index in wanted if index not in seen]
        if not all(map(track.available, lacking)):
            return begin
        if lacking:
            missing[label] = lacking
    if later and track.finished:
        return Plan("continue", track, missing, later) if len(track.asked) else begin
    return Plan("observe" if missing else "complete", track, missing, [])


class Worker:
    """Carries out plans for some seeds of a recipe, together."""

    def __init__(
        self,
        recipe: Recipe,
        identity: Identity,
        seeds: Sequence[int],
        plans: Sequence[Plan],
        limit: float,
        listen: Listen,
        save: Callable[[Worker], None],
    ) -> None:
        self.recipe, self.identity, self.seeds, self.plans = recipe, identity, list(seeds), list(plans)
        self.limit, self.listen, self.save = limit, listen, save
        self.driver: Driver | None = None
        self.loading: Path | None = None  # the checkpoint that is being read

    @property
    def digest(self) -> str:
        """What this work is: a checkpoint of other work is not used."""
        named = [self.identity.trajectories[seed] for seed in self.seeds]
        return digest([named, self.identity.view, self.plans[0].key()])

    def __call__(self, checkpoint: Path | None) -> list[Track] | None:
        """Give the completed tracks, or None if the work was interrupted."""
        first, experiment = self.plans[0], instantiate(self.recipe, self.seeds)
        if first.kind == "begin":
            probes = self.identity.probes
            self.driver = Driver.begin(
                experiment.flow, experiment.networks, experiment.data, experiment.times, probes, experiment.keys
            )
            return self._drive(self.driver, checkpoint, [plan.track for plan in self.plans], experiment.times, False)
        known = [plan.track for plan in self.plans if plan.track is not None]
        begun = time.perf_counter()
        # At t = 0 with everything prepared, to observe stored parameters or to continue from a stored state.
        plain = {label: one.probe if isinstance(one, OnlyAtEnd) else one for label, one in self.identity.probes.items()}
        stand = Driver.begin(experiment.flow, experiment.networks, experiment.data, [0.0], plain, experiment.keys)
        states = stacked_states(stand, known)
        if states is None:  # stored in other coordinates than would be chosen now
            self.plans = [Plan("begin", None, {}, [])] * len(self.seeds)
            return self(checkpoint)
        self._observe(stand, known, first.missing, time.perf_counter() - begun)
        if first.kind == "observe":
            return known
        run_state = with_fields(stand.run_state, state=states, target=float(known[0].asked[-1]))
        later = _on_other_steps(stand, run_state.target, first.later)
        if not later:
            for track in known:
                track.merged += [(t, len(track.asked) - 1) for t in first.later]
            return known
        self.driver = Driver(stand.method, run_state, later, self.identity.probes, stand.batching)
        return self._drive(self.driver, checkpoint, known, np.asarray(first.later), True)

    def _observe(self, stand: Driver, known: list[Track], missing: dict[str, list[int]], seconds: float) -> None:
        """Evaluate probes on what is stored, and add what they observe to the tracks."""
        begun = time.perf_counter()
        indices = sorted({index for some in missing.values() for index in some})
        for count, index in enumerate(indices):
            probes = {label: stand.probes[label] for label, some in missing.items() if index in some}
            seen = stand.observe(_parameters(stand, known, index), probes)
            for row, track in enumerate(known):
                self._add(track, index, _pick(stand, seen, row))
            self.listen(stand, (count + 1) / len(indices), float(known[0].asked[index]))
        for track in known:
            track.seconds += (seconds + time.perf_counter() - begun) / len(known)

    def _add(self, track: Track, index: int, seen: dict[str, Any]) -> None:
        for label, observed in seen.items():
            track.observed.setdefault(self.identity.digests[label], {})[index] = parts(observed)

    def _drive(
        self, driver: Driver, checkpoint: Path | None, before: Sequence[Track | None], asked: np.ndarray, more: bool
    ) -> list[Track] | None:
        size = sum(leaf.nbytes for leaf in jax.tree.leaves(driver.state.trained)) // len(self.seeds)
        free = {0} if driver.asked[0] == 0 else set()
        driver.snapshots = set(thinned(set(range(len(driver.asked) - 1)) - free, size, self.limit))
        if checkpoint is not None and checkpoint.exists():
            self._resume(driver, checkpoint)
        driver.run(lambda share, clock: self.listen(driver, share, clock), checkpoint=lambda: self.save(self))
        if driver.interrupted:
            return None
        offset = len(before[0].asked) if more and before[0] is not None else 0
        merged = [
            (float(t), int(np.searchsorted(driver.asked, t)) - 1 + offset)
            for t in asked
            if not np.any(np.isclose(driver.asked, t, rtol=1e-12, atol=0))
        ]
        runs = driver.trajectories()
        made = [self._track(driver, row, run, offset, merged) for row, run in enumerate(runs)]
        for track, old in zip(made, before, strict=True):
            if old is not None:
                leaves = len(jax.tree.leaves(driver.state.trained))
                _join(track, old, leaves, self.limit) if more else _keep_observed(track, old)
        return made

    def _resume(self, driver: Driver, checkpoint: Path) -> None:
        self.loading = checkpoint
        with contextlib.suppress(OtherRunError):  # an earlier recipe of this name and text, with other data or seeds
            driver.load(checkpoint, self.digest)
        self.loading = None

    def _track(self, driver: Driver, row: int, run: Trajectory, offset: int, merged: list[tuple[float, int]]) -> Track:
        """Make a track of what one seed did, with indices that count from ``offset``."""
        good = _good(driver.records, row)
        counters = {
            name: [float(np.ravel(one.counters[name])[row]) for one in driver.records[:good]] for name in COUNTERS
        }
        last = {name: float(run.stats[name]) for name in COUNTERS}
        track = Track(
            asked=np.asarray(driver.asked[:good], float),
            reached=np.asarray(driver.reached[:good], float),
            merged=merged,
            counters=counters,
            status=run.status.name,
            last=last,
            method=method_of(run),
            seconds=driver.seconds / len(self.seeds),
            made_by=provenance(),
            observed={},
            snapshots={
                offset + index: [_row(driver, leaf, row) for leaf in one.trained]
                for index, one in enumerate(driver.records[:good])
                if one.trained is not None
            },
            state=[_row(driver, leaf, row) for leaf in map(plain_leaf, jax.tree.leaves(driver.state))],
        )
        for index in range(good):
            self._add(track, offset + index, _pick(driver, driver.records[index].observed, row))
        if driver.at_end and good == len(driver.asked):
            self._add(track, offset + good - 1, _pick(driver, driver.at_end, row))
        return track


def method_of(run: Trajectory) -> str:
    """Name the method, coordinates and precision of a run."""
    return "{method}, coordinates: {coordinates}, precision: {precision}".format(**run.stats)


def _good(records: Sequence[Recorded], row: int) -> int:
    """How many save times a seed reached before it went wrong, if it did."""
    codes = [np.ravel(one.counters["code"])[row] for one in records]
    return next((index for index, code in enumerate(codes) if code), len(codes))


def _keep_observed(track: Track, before: Track) -> None:
    """Take the place of a track that was followed along the same times, and keep what other probes observed."""
    for name, by_index in before.observed.items():
        track.observed[name] = by_index | track.observed.get(name, {})
    track.path = before.path


def _join(track: Track, before: Track, leaves: int, limit: float) -> None:
    """Put what was stored before in front of a track that continues it; of a state, the parameters come first."""
    kept = {index: leaves_of(before, some) for index, some in before.snapshots.items()}
    if before.asked[-1] > 0:  # its end is no longer the end
        kept[len(before.asked) - 1] = leaves_of(before, before.state)[:leaves]
    kept |= {index: leaves_of(track, some) for index, some in track.snapshots.items()}
    size = max((sum(leaf.nbytes for leaf in some) for some in kept.values()), default=0)
    track.snapshots = {index: kept[index] for index in thinned(kept, size, limit)}
    track.asked = np.concatenate([before.asked, track.asked])
    track.reached = np.concatenate([before.reached, track.reached])
    track.counters = {name: before.counters[name] + track.counters[name] for name in COUNTERS}
    track.merged = before.merged + track.merged
    track.seconds += before.seconds
    if not is_current(before.made_by):
        track.made_by = {name: f"{before.made_by.get(name, '?')}; {now}" for name, now in track.made_by.items()}
    _keep_observed(track, before)


def restored(
    experiment: Experiment,
    index: int,
    track: Track,
    seen: dict[str, Any],
    probes: dict[str, Observe],
    times: np.ndarray,
) -> Trajectory:
    """Give the trajectory of one seed as it was when it ended, from its track."""
    stand = Driver.begin(
        experiment.flow, [experiment.networks[index]], [experiment.data[index]], [0.0], (), [experiment.keys[index]]
    )
    states = stacked_states(stand, [track])
    if states is None:
        raise UserError(f"'{track.path}' was stored in coordinates that are not chosen now: compute it with --fresh.")
    target = float(track.asked[-1]) if len(track.asked) else 0.0
    run_state = with_fields(stand.run_state, state=states, target=target)
    (run,) = Driver(stand.method, run_state, [target], (), stand.batching).trajectories()
    stats = run.stats | {"seconds": track.seconds}
    return dataclasses.replace(run, times=times, probes=probes, observed=seen, stats=stats, status=Status[track.status])


def _on_other_steps(stand: Driver, since: float, later: Sequence[float]) -> list[float]:
    """Leave out the first times as long as they fall on the step that has been reached."""
    counts, _ = stand.method.plan(np.asarray([since, *later]))
    return [t for t, count in zip(later, counts[1:], strict=True) if count > counts[0]]


def stacked_states(stand: Driver, known: Sequence[Track]) -> Any:
    """Give the states at the ends of tracks, as the driver holds them; None if they are of another kind."""
    rows = [leaves_of(track, track.state) for track in known]
    leaves, structure = jax.tree.flatten(stand.state)
    wanted = [(leaf.shape, leaf.dtype) for leaf in map(plain_leaf, leaves)]
    if len({len(row) for row in rows} | {len(wanted)}) > 1:
        return None
    stacked = _stacked(stand, rows)
    if [(leaf.shape, leaf.dtype) for leaf in stacked] != wanted:
        return None
    return jax.tree.unflatten(structure, map(leaf_like, leaves, stacked))


def _stacked(stand: Driver, rows: Sequence[list[np.ndarray]]) -> list[np.ndarray]:
    return rows[0] if stand.batching == "one" else [np.stack(leaves) for leaves in zip(*rows, strict=True)]


def _parameters(stand: Driver, known: Sequence[Track], index: int) -> Any:
    """Give the trained parameters of all seeds at one observed time."""
    structure = jax.tree.structure(stand.state.trained)
    if known[0].asked[index] == 0:
        return stand.run_state.first
    if index == len(known[0].asked) - 1:
        return stacked_states(stand, known).trained
    stacked = _stacked(stand, [leaves_of(track, track.snapshots[index]) for track in known])
    return jax.tree.unflatten(structure, [jnp.asarray(leaf) for leaf in stacked])


def _row(driver: Driver, leaf: np.ndarray, row: int) -> np.ndarray:
    return leaf if driver.batching == "one" else leaf[row]


def _pick(driver: Driver, tree: Any, row: int) -> Any:
    return jax.tree.map(lambda leaf: _row(driver, leaf, row), tree)
