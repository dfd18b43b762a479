"""Runs recipes: what is stored is used, extended or continued, and only what is missing is computed."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
import xarray as xr

from unlazy._errors import UserError
from unlazy._files import reason
from unlazy.flows import Driver, Observe, OnlyAtEnd, Status, Trajectory
from unlazy.lab import claims, schedule
from unlazy.lab.identity import Identity, identify, probe_digest
from unlazy.lab.live import Live
from unlazy.lab.made_by import provenance, warn_if_other
from unlazy.lab.recipe import Recipe, instantiate
from unlazy.lab.store import Row, Store, assemble, content_digest, nested, parts, read_run, table
from unlazy.lab.tracks import COUNTERS, Track
from unlazy.lab.work import Plan, Worker, method_of, plan, restored
from unlazy.networks import Network

Told = Callable[[Recipe, float, str], None]  # (recipe, share done, what is being done)

_WAIT = 0.2  # seconds between two looks at what another process is computing


class Interrupted(KeyboardInterrupt):
    """Ctrl-C, after the state was saved."""

    def __init__(self, recipe: Recipe, share: float, fresh: bool) -> None:
        rest = "--fresh starts over" if fresh else "the same command goes on from there"
        super().__init__(f"'{recipe.name}' was interrupted at {share:.0%}; {rest}.")


class Lab:
    """Runs recipes and keeps what comes of them.

    Parameters
    ----------
    folder
        The folder of results.
    tell
        Is called with a recipe, the share of it that is done, and a few words on what is being done.
    fresh
        Compute again what is stored.
    snapshots
        How many MiB of snapshots of the trained parameters are kept for each seed. Probes that are added later are
        evaluated on snapshots; where some times have none, the run is computed again. Start and end are always known.

    Examples
    --------
    >>> lab = Lab("runs")
    >>> result = lab.run(recipe)  # an xarray.Dataset with dimensions seed and time
    >>> results = lab.run_all(recipes, workers=4)
    """

    def __init__(
        self, folder: Path | str = "runs", tell: Told | None = None, fresh: bool = False, snapshots: float = 16.0
    ) -> None:
        self.store, self.fresh, self.snapshots = Store(folder), fresh, snapshots
        self.tell: Told = tell or (lambda recipe, share, note: None)

    def __repr__(self) -> str:
        count = sum(1 for _ in self.store.folder.glob("*.nc"))
        return f"Lab('{self.store.folder}', {count} stored run{'' if count == 1 else 's'})"

    def run(self, recipe: Recipe) -> xr.Dataset:
        """Give the result of a recipe, with dimensions seed and time; only what is not stored is computed."""
        while (found := self.attempt(recipe)) is None:
            self.wait(recipe)
        return found

    def wait(self, recipe: Recipe) -> None:
        """Wait a moment for another process that is computing a part of a recipe."""
        self.tell(recipe, 0.0, "waiting for another process")
        time.sleep(_WAIT)

    def attempt(self, recipe: Recipe) -> xr.Dataset | None:
        """Give the result of a recipe as `run` does, or None if another process is computing a part of it."""
        identity = identify(recipe)
        known = None if self.fresh else self.store.load(recipe)
        if known is not None and known.attrs.get("identity") == identity.view:
            warn_if_other(recipe.name, known.attrs)
            self.tell(recipe, 1.0, "stored")
            return known
        found, computed = self._complete(recipe, identity, recipe.grid())
        if found is None:
            return None
        run = assemble([_row(recipe, identity, seed, track) for seed, track in found.items()], identity.probes)
        run.attrs |= {"recipe": recipe.json(), "name": recipe.name, "seed": recipe.seed, "dtype": recipe.dtype}
        run.attrs |= {"digest": recipe.digest, "identity": identity.view}
        warn_if_other(recipe.name, run.attrs)
        try:
            path = self.store.save(recipe, run)
        except UserError as error:
            if not computed:
                return run  # from a folder that can only be read
            raise UserError(f"{error} What was computed is kept: the same command goes on from there.") from None
        return read_run(path)  # what is returned now is what will be read later

    def run_all(self, recipes: Mapping[str, Recipe] | Sequence[Recipe], workers: int = 1) -> dict[str, xr.Dataset]:
        """Run many recipes and give their results by label.

        Parameters
        ----------
        recipes
            Recipes by label, or a list of recipes, whose labels are their names.
        workers
            How many processes share the work on this machine, each with its own share of the cores. What one computes
            the others do not, also if they belong to another call on the same folder.

        Returns
        -------
        dict
            For each label what `run` gives. If recipes fail, the others are run to the end and stored, and then a
            `UserError` names those that failed. Ctrl-C stops all of them, and the same call goes on from there.
        """
        return schedule.run_all(self, recipes, workers)

    def keep(self, name: str, runs: Trajectory | Sequence[Trajectory], description: str = "") -> Path:
        """Store trajectories made in Python, so that they are reported like the runs of recipes.

        Parameters
        ----------
        name
            What the run is called.
        runs
            One trajectory, or several of the same kind, which become seeds 0, 1, ...
        description
            What was run, in words; if left out, the flow, the network and the data are named.

        Returns
        -------
        Path
            The file, which `read_run` and `unlazy report` read.
        """
        rows = [_kept_row(seed, run) for seed, run in enumerate([runs] if isinstance(runs, Trajectory) else runs)]
        if not rows:
            raise UserError(f"There is no trajectory to keep as '{name}'.")
        first = runs if isinstance(runs, Trajectory) else runs[0]
        made = assemble(rows, first.probes)
        made.attrs |= {"name": name, "made": "python", "description": description or described(first)}
        self.store.prepare()
        return self.store.save_as(self.store.named(name, content_digest(made)), made)

    def table(self, *paths: Path | str, each_seed: bool = False, differing: bool = False) -> list[dict[str, Any]]:
        """Give stored runs as rows of settings and last values; ``pandas.DataFrame(lab.table())`` makes a frame.

        Parameters
        ----------
        paths
            Stored runs (.nc); all of the folder's if left out.
        each_seed
            One row for each seed, instead of means over the seeds of a run.
        differing
            Only those settings in which the runs differ.
        """
        chosen = [Path(path) for path in paths] or sorted(self.store.folder.glob("*.nc"))
        return table(chosen, each_seed=each_seed, differing=differing)

    def trajectories(self, recipe: Recipe, probes: Mapping[str, Observe] | None = None) -> list[Trajectory]:
        """Give the trajectory of every seed, with its networks; only what is not stored is computed.

        Parameters
        ----------
        recipe
            The recipe.
        probes
            More probes, by name; they are evaluated on stored snapshots where there are any.
        """
        identity = identify(recipe)
        for name, probe in (probes or {}).items():
            identity.probes[name], identity.digests[name] = probe, probe_digest(probe)
        times = recipe.grid()
        while (found := self._complete(recipe, identity, times, exact_end=True)[0]) is None:
            self.wait(recipe)
        with jax.enable_x64(True):
            seeds = list(found)
            experiment = instantiate(recipe, seeds)
            rows = [_row(recipe, identity, seed, track) for seed, track in found.items()]
            return [
                restored(experiment, index, found[seed], _seen(row), identity.probes, row.times)
                for index, (seed, row) in enumerate(zip(seeds, rows, strict=True))
            ]

    def networks(self, recipe: Recipe) -> list[tuple[Network, Network]]:
        """Give the networks of every seed, at the start and at the end."""
        return [(run.start, run.final) for run in self.trajectories(recipe)]

    def _complete(
        self, recipe: Recipe, identity: Identity, times: np.ndarray, exact_end: bool = False
    ) -> tuple[dict[int, Track] | None, bool]:
        """Give a track for every seed that has all that is asked for, and whether anything was computed.

        There is None if another process is at work on a seed.
        """
        done: dict[int, Track] = {}
        with jax.enable_x64(True):  # a recipe says itself how precise it is, and has one result however JAX is set
            plans = self._plans(identity, times, exact_end, done)
            if plans:
                self.store.prepare()
                paths = {self.store.claim(identity.trajectories[seed]): seed for seed in plans}
                with claims.claimed(list(paths)) as mine:
                    plans = self._plans(identity, times, exact_end, done, [paths[path] for path in mine])
                    groups: dict[str, list[int]] = {}
                    for seed, one in plans.items():
                        groups.setdefault(one.key(), []).append(seed)
                    for seeds in groups.values():
                        done |= self._compute(recipe, identity, seeds, [plans[seed] for seed in seeds])
        if len(done) < recipe.seeds:
            return None, bool(plans)
        if not any(len(track.asked) for track in done.values()):
            sentence = Status[next(iter(done.values())).status].value
            raise UserError(f"'{recipe.name}' failed before its first observation: {sentence}")
        return {seed: done[seed] for seed in identity.trajectories}, bool(plans)

    def _plans(
        self,
        identity: Identity,
        times: np.ndarray,
        exact_end: bool,
        done: dict[int, Track],
        seeds: Sequence[int] | None = None,
    ) -> dict[int, Plan]:
        """Say what the seeds that are not ``done`` need; those that need nothing are."""
        found = {}
        for seed in identity.trajectories if seeds is None else seeds:
            known = [] if self.fresh else self.store.tracks(identity.trajectories[seed])
            one = plan(known, identity, times, exact_end)
            if one.kind == "complete" and one.track is not None:
                done[seed] = one.track
            else:
                found[seed] = one
        return found

    def _compute(
        self, recipe: Recipe, identity: Identity, seeds: Sequence[int], plans: Sequence[Plan]
    ) -> dict[int, Track]:
        self.tell(recipe, 0.0, "drawing" if plans[0].kind == "begin" else "reading")
        checkpoint = self.store.checkpoint(recipe)
        share, live = 0.0, Live(self.store.live(recipe), recipe)

        def listen(driver: Driver, done: float, clock: float) -> None:
            nonlocal share
            share = done
            live.tell(done, clock, driver.reached, [one.observed for one in driver.records])
            self.tell(recipe, done, f"t = {clock:g}")

        worker = Worker(recipe, identity, seeds, plans, self.snapshots, listen, lambda one: self._save(one, checkpoint))
        try:
            made = self._carry_out(worker, None if self.fresh else checkpoint)
        finally:
            live.end()
        if made is None:
            self._save(worker, checkpoint)
            raise Interrupted(recipe, share, self.fresh)
        if not any(len(track.asked) for track in made):
            return dict(zip(seeds, made, strict=True))  # nothing to be stored
        stored: dict[int, Track] = {}
        try:
            for seed, track in zip(seeds, made, strict=True):
                stored[seed] = self._store(identity.trajectories[seed], track)
        except UserError as error:
            if worker.driver is None:
                raise
            self._save(worker, checkpoint)
            raise UserError(f"{error} What was computed is kept: the same command goes on from there.") from None
        checkpoint.unlink(missing_ok=True)
        return stored

    def _store(self, trajectory: str, track: Track) -> Track:
        if self.fresh and track.path is None:  # instead of one along the same times
            same = [one for one in self.store.tracks(trajectory) if np.array_equal(one.asked, track.asked)]
            track.path = same[0].path if same else None
        return self.store.save_track(trajectory, track)

    def _carry_out(self, worker: Worker, checkpoint: Path | None) -> list[Track] | None:
        try:
            return worker(checkpoint)
        except (OSError, ValueError, TypeError, LookupError, EOFError, RuntimeError) as error:
            if isinstance(error, UserError) or worker.loading is None:
                raise
            raise UserError(
                f"The checkpoint '{worker.loading}' cannot be used ({type(error).__name__}): delete it to start afresh."
            ) from None

    def _save(self, worker: Worker, checkpoint: Path) -> None:
        if worker.driver is None:
            return
        try:
            worker.driver.save(checkpoint, worker.digest)
        except OSError as error:
            raise UserError(
                f"The checkpoint '{checkpoint}' cannot be written ({reason(error)}): free some space."
            ) from None


def _row(recipe: Recipe, identity: Identity, seed: int, track: Track) -> Row:
    """Give what a track holds for a recipe, which may ask for fewer times and probes."""
    places = [track.find(t) for t in recipe.grid()]
    found = sorted({place for place in places if place is not None})
    whole = None not in places
    observed, at_end = {}, set()
    for label, probe in identity.probes.items():
        seen = track.observed.get(identity.digests[label], {})
        if isinstance(probe, OnlyAtEnd):
            at_end.add(label)
            observed[label] = [seen[found[-1]]] if whole and found else []
        else:
            observed[label] = [seen[index] for index in found]
    counters = {name: track.counters[name][found[-1]] for name in track.counters} if whole and found else track.last
    return Row(
        seed=seed,
        times=track.reached[found],
        observed=observed,
        at_end=at_end,
        status="finished" if whole else track.status,
        counters=counters,
        seconds=track.seconds,
        method=track.method,
        made_by=track.made_by,
    )


def _kept_row(seed: int, run: Trajectory) -> Row:
    """Give what a trajectory made in Python contributes to a view."""
    at_end = {label for label, probe in run.probes.items() if isinstance(probe, OnlyAtEnd)}
    observed: dict[str, list[dict[tuple[str, ...], np.ndarray]]] = {}
    for label, seen in run.observed.items():
        values = parts(seen)
        count = 1 if label in at_end else len(run.times)
        observed[label] = [
            {part: one if label in at_end else one[index] for part, one in values.items()} for index in range(count)
        ]
    return Row(
        seed=seed,
        times=np.asarray(run.times, float),
        observed=observed,
        at_end=at_end,
        status=run.status.name,
        counters={name: float(run.stats[name]) for name in COUNTERS},
        seconds=float(run.stats["seconds"]),
        method=method_of(run),
        made_by=provenance(),
    )


def described(run: Trajectory) -> str:
    """Name the flow, network and data of a trajectory."""
    network, flow = type(run.start).__name__, type(run.flow).__name__
    return f"{network} trained by {flow} on '{run.data.name}' ({run.data.n} samples)"


def _seen(row: Row) -> dict[str, Any]:
    """Give observations as a `Trajectory` holds them."""
    found = {}
    for label, values in row.observed.items():
        if values:
            stacked = {part: np.stack([one[part] for one in values]) for part in values[0]}
            found[label] = nested({part: one[0] if label in row.at_end else one for part, one in stacked.items()})
    return found
