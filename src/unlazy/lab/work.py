"""Complete stored trajectories: what is missing is observed on snapshots, continued or computed.

For each seed the cheapest plan is chosen: *complete*, if everything is stored; *observe*, if the parameters are stored
for all times where a probe is missing; *continue*, if only later times are missing; otherwise *begin* at t = 0. Seeds
with the same plan are run together.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from unlazy._errors import UserError
from unlazy._files import writing
from unlazy._inputs import leaf_like, plain_leaf
from unlazy.flows import Driver, OtherRunError, Status, Trajectory
from unlazy.flows.state import failed
from unlazy.flows.trajectory import inner_probe, only_at_end
from unlazy.lab.identity import Identity, digest
from unlazy.lab.made_by import is_current, provenance
from unlazy.lab.recipe import Experiment, Recipe, instantiate
from unlazy.lab.store import nested, parts, seen
from unlazy.lab.tracks import COUNTERS, Track, leaves_of, thinned
from unlazy.networks import with_fields

Kind = Literal["complete", "observe", "continue", "begin"]
_ORDER: tuple[Kind, ...] = ("complete", "observe", "continue", "begin")
Listen = Callable[[Driver, float, float], None]  # (driver, fraction done, time)


class Plan(NamedTuple):
    """What one seed needs: which track to use, which probes to observe at which of its times, and which later times."""

    kind: Kind
    track: Track | None
    missing: dict[str, list[int]]  # indices of times, by label of the probe
    later: list[float]

    def key(self) -> str:
        """Return a digest that is equal for seeds that can be run together."""
        asked = [] if self.track is None else self.track.asked.tolist()
        return digest([self.kind, asked, self.missing, self.later])


def plan(known: Sequence[Track], identity: Identity, exact_end: bool = False) -> Plan:
    """Choose the cheapest plan for a trajectory of which some tracks are known.

    With ``exact_end`` the track must end at the last of the times, so that its state is the one at the end.
    """
    plans = [_along(track, identity, exact_end) for track in known]
    plans.append(Plan("begin", None, {}, []))
    return min(plans, key=lambda one: (_ORDER.index(one.kind), one.track is None or not is_current(one.track.made_by)))


def _along(track: Track, identity: Identity, exact_end: bool) -> Plan:
    places = {float(t): track.find(t) for t in identity.times}
    last = track.asked[-1] if len(track.asked) else -np.inf
    later = [t for t, place in places.items() if place is None and t > last]
    if any(place is None and t <= last for t, place in places.items()):
        return Plan("begin", None, {}, [])
    found = sorted({place for place in places.values() if place is not None})
    # A run from the start replaces the track if it observes all of the track's times.
    begin = Plan("begin", track if len(found) == len(track.asked) else None, {}, [])
    if exact_end and track.finished and not later and (not found or found[-1] != len(track.asked) - 1):
        return begin
    missing: dict[str, list[int]] = {}
    for label, probe in identity.probes.items():
        known = track.observed.get(identity.digests[label], {})
        lacking = [index for index in seen(probe, found, not later) if index not in known]
        if not all(map(track.available, lacking)):
            return begin
        if lacking:
            missing[label] = lacking
    if later and track.finished:
        return Plan("continue", track, missing, later) if len(track.asked) else begin
    return Plan("observe" if missing else "complete", track, missing, [])


@dataclasses.dataclass
class Worker:
    """Carries out the plans of some seeds of a recipe, which run together."""

    recipe: Recipe
    identity: Identity
    seeds: list[int]
    plans: list[Plan]  # one for each seed; all have the same key
    snapshots: float  # space for snapshots of the trained parameters, in MiB per seed
    checkpoint: Path  # to which the state is written from time to time, and from which it is resumed
    resume: bool  # whether an existing checkpoint is used
    listen: Listen
    driver: Driver | None = None
    rows: list[int] | None = None  # of the seeds in the driver, if it runs other recipes as well

    def digest(self) -> str:
        """Return a digest of the work, so that the checkpoint of other work is not used."""
        named = [self.identity.trajectories[seed] for seed in self.seeds]
        return digest([named, self.identity.view, self.plans[0].key()])

    def save(self) -> None:
        """Write the state to the checkpoint, if there is anything to write."""
        if self.driver is not None:
            with writing("The checkpoint", self.checkpoint, "free some space"):
                self.driver.save(self.checkpoint, self.digest(), self.rows)

    def work(self) -> list[Track] | None:
        """Return the completed tracks, or None if the work was interrupted."""
        first, experiment = self.plans[0], instantiate(self.recipe, self.seeds)
        prepared = experiment.flow, experiment.networks, experiment.data
        if first.kind == "begin":
            self.driver = Driver.begin(*prepared, experiment.times, self.identity.probes, experiment.keys)
            return self._drive(self.driver, [plan.track for plan in self.plans], experiment.times, False)
        known = [plan.track for plan in self.plans if plan.track is not None]
        begun = time.perf_counter()
        # At t = 0 with everything prepared, to observe stored parameters or to continue from a stored state.
        plain = {label: inner_probe(one) for label, one in self.identity.probes.items()}
        stand = Driver.begin(*prepared, [0.0], plain, experiment.keys)
        states = stacked_states(stand, known)
        if states is None:  # stored in other coordinates than would be chosen now
            self.plans = [Plan("begin", None, {}, [])] * len(self.seeds)
            return self.work()
        self._observe(stand, known, first.missing, begun)
        if first.kind == "observe":
            return known
        run_state = with_fields(stand.run_state, state=states, target=float(known[0].asked[-1]))
        counts, _ = stand.method.plan(np.asarray([run_state.target, *first.later]))
        # The first times may fall on the step that has been reached already.
        later = [t for t, count in zip(first.later, counts[1:], strict=True) if count > counts[0]]
        if not later:
            for track in known:
                track.merged += [(t, len(track.asked) - 1) for t in first.later]
            return known
        self.driver = Driver(stand.methods, run_state, later, self.identity.probes, stand.batching)
        return self._drive(self.driver, known, np.asarray(first.later), True)

    def _observe(self, stand: Driver, known: list[Track], missing: dict[str, list[int]], begun: float) -> None:
        """Evaluate probes on stored parameters, and add their observations to the tracks."""
        indices = sorted({index for some in missing.values() for index in some})
        for count, index in enumerate(indices):
            probes = {label: stand.probes[label] for label, some in missing.items() if index in some}
            observed = stand.observe(_parameters(stand, known, index), probes)
            for row, track in enumerate(known):
                self._add(track, index, _pick(stand, observed, row))
            self.listen(stand, (count + 1) / len(indices), float(known[0].asked[index]))
        for track in known:
            track.seconds += (time.perf_counter() - begun) / len(known)

    def _add(self, track: Track, index: int, observed: dict[str, Any]) -> None:
        for label, one in observed.items():
            track.observed.setdefault(self.identity.digests[label], {})[index] = parts(one)

    def _drive(
        self, driver: Driver, before: Sequence[Track | None], asked: np.ndarray, more: bool
    ) -> list[Track] | None:
        """Run the driver; the new tracks replace those ``before``, or continue them if there is ``more``."""
        set_snapshots(driver, self.snapshots)
        if self.resume and self.checkpoint.exists():
            self._load(driver)
        driver.run(lambda share, clock: self.listen(driver, share, clock), checkpoint=self.save)
        return None if driver.interrupted else self.tracks(driver, before, asked, more)

    def tracks(self, driver: Driver, before: Sequence[Track | None], asked: np.ndarray, more: bool) -> list[Track]:
        """Make the tracks of the seeds after a run; they replace those ``before``, or continue them if ``more``."""
        rows = list(range(len(self.seeds))) if self.rows is None else self.rows
        offset = len(before[0].asked) if more and before[0] is not None else 0
        reached = driver.stops[rows[0]].asked
        merged = [
            (float(t), int(np.searchsorted(reached, t)) - 1 + offset)
            for t in asked
            if not np.any(np.isclose(reached, t, rtol=1e-12, atol=0))
        ]
        made = [self._track(driver, row, offset, merged) for row in rows]
        for track, old in zip(made, before, strict=True):
            if old is not None:
                leaves = len(jax.tree.leaves(driver.state.trained))
                _join(track, old, leaves, self.snapshots) if more else _keep_observed(track, old)
        return made

    def _load(self, driver: Driver) -> None:
        try:
            driver.load(self.checkpoint, self.digest())
        except OtherRunError:  # an earlier recipe of this name and text, with other data or seeds
            pass
        except UserError:
            raise
        except (OSError, ValueError, TypeError, LookupError, EOFError, RuntimeError, MemoryError) as error:
            what = f"The checkpoint '{self.checkpoint}' cannot be used ({type(error).__name__})"
            raise UserError(f"{what}: delete it to start again.") from None

    def _track(self, driver: Driver, row: int, offset: int, merged: list[tuple[float, int]]) -> Track:
        """Make the track of one seed, with indices that count from ``offset``."""
        codes = [np.ravel(one.counters["code"])[row] for one in driver.records]
        good = next((index for index, code in enumerate(codes) if failed(code)), len(codes))  # before an error
        records, stops, stats = driver.records[:good], driver.stops[row], driver.stats(row)
        track = Track(
            asked=np.asarray(stops.asked[:good], float),
            reached=np.asarray(stops.reached[:good], float),
            merged=merged,
            counters={name: [float(np.ravel(one.counters[name])[row]) for one in records] for name in COUNTERS},
            status=driver.status(row).name,
            last={name: float(stats[name]) for name in COUNTERS},
            method="{method}, coordinates: {coordinates}, precision: {precision}".format(**stats),
            seconds=driver.seconds / len(driver.stops),
            made_by=provenance(),
            observed={},
            snapshots={
                offset + index: _pick(driver, list(one.trained), row)
                for index, one in enumerate(records)
                if one.trained is not None
            },
            state=_pick(driver, list(map(plain_leaf, jax.tree.leaves(driver.state))), row),
        )
        for index, one in enumerate(records):
            self._add(track, offset + index, _pick(driver, one.observed, row))
        if driver.at_end and good == len(stops.asked):
            self._add(track, offset + good - 1, _pick(driver, driver.at_end, row))
        return track


def set_snapshots(driver: Driver, limit: float) -> None:
    """Let a driver record the trained parameters at as many times as fit into a number of MiB per seed."""
    size = sum(leaf.nbytes for leaf in jax.tree.leaves(driver.state.trained)) // len(driver.stops)
    free = {0} if driver.asked[0] == 0 else set()
    driver.snapshots = set(thinned(set(range(len(driver.asked) - 1)) - free, size, limit))


def _keep_observed(track: Track, before: Track) -> None:
    """Let ``track`` replace one along the same times, and keep what other probes observed."""
    for name, by_index in before.observed.items():
        track.observed[name] = by_index | track.observed.get(name, {})
    track.path = before.path


def _join(track: Track, before: Track, leaves: int, limit: float) -> None:
    """Put a stored track in front of the one that continues it; the first ``leaves`` of a state are its parameters."""
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
    for name, now in track.made_by.items():
        then = before.made_by.get(name, "?")
        # Numbers depend on cores and threads in their last digits, and on all the rest where the code is another.
        if not is_current(before.made_by) or (name in ("cores", "threads") and then != now):
            track.made_by[name] = f"{then}; {now}"
    _keep_observed(track, before)


def restored(experiment: Experiment, index: int, track: Track, identity: Identity) -> Trajectory:
    """Restore the trajectory of one seed at its end from its track."""
    network, data, key = experiment.networks[index], experiment.data[index], experiment.keys[index]
    stand = Driver.begin(experiment.flow, [network], [data], [0.0], (), [key])
    states = stacked_states(stand, [track])
    if states is None:
        raise UserError(f"'{track.path}' was stored in coordinates that are not chosen now: compute it with --fresh.")
    target = float(track.asked[-1]) if len(track.asked) else 0.0
    run_state = with_fields(stand.run_state, state=states, target=target)
    (run,) = Driver(stand.methods, run_state, [target], (), stand.batching).trajectories()
    indices, whole = track.select(identity.times)
    observed: dict[str, Any] = {}
    for label, probe in identity.probes.items():
        values = track.stacked(identity.digests[label], seen(probe, indices, whole))
        if values:
            late = only_at_end(probe)
            observed[label] = nested({part: one[0] if late else one for part, one in values.items()})
    return dataclasses.replace(
        run,
        times=track.reached[indices],
        probes=identity.probes,
        observed=observed,
        stats=run.stats | {"seconds": track.seconds},
        status=Status[track.status],
    )


def stacked_states(stand: Driver, known: Sequence[Track]) -> Any:
    """Return the states at the ends of tracks in the form of the driver's; None if they have another form."""
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
    """Return the trained parameters of all seeds at one observed time."""
    structure = jax.tree.structure(stand.state.trained)
    if known[0].asked[index] == 0:
        return stand.run_state.first
    if index == len(known[0].asked) - 1:
        return stacked_states(stand, known).trained
    stacked = _stacked(stand, [leaves_of(track, track.snapshots[index]) for track in known])
    return jax.tree.unflatten(structure, [jnp.asarray(leaf) for leaf in stacked])


def _pick(driver: Driver, tree: Any, row: int) -> Any:
    """Return the part of one seed."""
    return tree if driver.batching == "one" else jax.tree.map(lambda leaf: leaf[row], tree)
