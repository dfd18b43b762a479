"""Run recipes: stored results are used, extended or continued, and only what is missing is computed."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
import xarray as xr

from unlazy._checked import checked
from unlazy._errors import UserError
from unlazy._files import checksum, write
from unlazy._signals import check
from unlazy.flows import Driver, Observe, Status, Trajectory, to_xarray
from unlazy.lab import claims, schedule
from unlazy.lab.engines import Engine
from unlazy.lab.gathering import gather
from unlazy.lab.identity import Identity, identify, probe_digest
from unlazy.lab.live import Live
from unlazy.lab.made_by import provenance, warn_if_other
from unlazy.lab.manifest import Manifest
from unlazy.lab.recipe import Recipe, instantiate
from unlazy.lab.store import Store, assemble
from unlazy.lab.stored import read_run
from unlazy.lab.sweep import Sweep
from unlazy.lab.table import files, table
from unlazy.lab.tasks import part_of
from unlazy.lab.tracks import Track
from unlazy.lab.work import Plan, Worker, plan, restored
from unlazy.networks import Network

Tell = Callable[[Recipe, float, str], None]  # (recipe, fraction done, what is being done)

_WAIT = 0.2  # seconds before a recipe is tried again that another process is computing
_KEPT = "What was computed is stored: the same command continues from there."


class Interrupted(KeyboardInterrupt):
    """Ctrl-C was pressed, and the state has been saved."""

    def __init__(self, recipe: Recipe, share: float, fresh: bool) -> None:
        rest = "--fresh starts over" if fresh else "the same command continues from there"
        super().__init__(f"'{recipe.name}' was interrupted at {share:.0%}; {rest}.")


class Lab:
    """Runs recipes and stores their results.

    Parameters
    ----------
    folder
        The folder of results.
    tell
        Called with a recipe, the fraction of it that is done, and a few words on what is being done. If it has a method
        ``expect``, that is called with the number of runs before many are run.
    fresh
        Compute everything again, even if it is stored.
    snapshots
        Space for snapshots of the trained parameters, in MiB per seed. Probes that are added later are evaluated on
        snapshots; if some times have none, the run is computed again. Start and end are always available.

    Examples
    --------
    >>> lab = Lab("runs")
    >>> result = lab.run(recipe)  # an xarray.Dataset with dimensions seed and time
    >>> results = lab.run_all(recipes, workers=4)
    """

    @checked
    def __init__(
        self, folder: Path | str = "runs", tell: Tell | None = None, fresh: bool = False, snapshots: float = 16.0
    ) -> None:
        self.store, self.fresh, self.snapshots = Store(folder), fresh, snapshots
        self._told = tell
        self.expect: Callable[[int], None] = getattr(tell, "expect", lambda runs: None)

    def tell(self, recipe: Recipe, share: float, note: str) -> None:
        """Report progress, and stop here if a signal has asked for it.

        Parameters
        ----------
        recipe, share, note
            What the function ``tell`` of the lab is called with.
        """
        check()
        if self._told is not None:
            self._told(recipe, share, note)

    def __repr__(self) -> str:
        count = sum(1 for _ in self.store.folder.glob("*.nc"))
        return f"Lab('{self.store.folder}', {count} stored run{'' if count == 1 else 's'})"

    def run(self, recipe: Recipe) -> xr.Dataset:
        """Return the result of a recipe, with dimensions seed and time; only what is not stored is computed."""
        while (found := self.attempt(recipe)) is None:
            self.wait(recipe)
        return found

    def has(self, recipe: Recipe) -> bool:
        """Return whether the result of a recipe is stored, so that `run` only reads it."""
        known = None if self.fresh else self.store.load(recipe)
        return known is not None and known.attrs.get("identity") == identify(recipe).view

    def wait(self, recipe: Recipe) -> None:
        """Wait a moment for another process that is computing part of a recipe."""
        self.tell(recipe, 0.0, "waiting for another process")
        time.sleep(_WAIT)

    def attempt(self, recipe: Recipe) -> xr.Dataset | None:
        """Return the result of a recipe as `run` does, or None if another process is computing part of it."""
        identity = identify(recipe)
        known = self.known(recipe, identity)
        if known is not None:
            self.tell(recipe, 1.0, "stored")
            return known
        found, computed = self._complete(recipe, identity)
        if found is None:
            return None
        made = self.finish(recipe, identity, found, computed)
        return made if isinstance(made, xr.Dataset) else read_run(made)  # the same now as when it is read later

    def known(self, recipe: Recipe, identity: Identity) -> xr.Dataset | None:
        """Return the result of a recipe if it is stored; warn if other code computed it."""
        known = None if self.fresh else self.store.load(recipe)
        if known is None or known.attrs.get("identity") != identity.view:
            return None
        warn_if_other(recipe.name, known.attrs)
        return known

    def finish(self, recipe: Recipe, identity: Identity, found: dict[int, Track], computed: bool) -> Path | xr.Dataset:
        """Store the result of a recipe, assembled from tracks, and return its path; itself, if it cannot be stored."""
        run = assemble(found, identity)
        run.attrs |= {"recipe": recipe.json(), "name": recipe.name, "seed": recipe.seed, "dtype": recipe.dtype}
        run.attrs |= {"digest": recipe.digest, "identity": identity.view}
        warn_if_other(recipe.name, run.attrs)
        try:
            return self.store.save(recipe, run)
        except UserError as error:
            if not computed:
                return run  # from a read-only folder
            raise type(error)(f"{error} {_KEPT}") from None

    def run_all(
        self, recipes: Mapping[str, Recipe] | Sequence[Recipe], workers: int = 1, engine: Engine | None = None
    ) -> Mapping[str, xr.Dataset]:
        """Run many recipes and return their results by label.

        Parameters
        ----------
        recipes
            Recipes by label, or a list of recipes, whose labels are their names.
        workers
            Number of processes that share the work on this machine, each with an equal share of the cores. Nothing is
            computed by two of them, nor by two calls on the same folder.
        engine
            What carries out the work instead: a cluster, or an engine of your own (`unlazy.lab.Engine`).

        Returns
        -------
        Mapping
            For each label the result of `run`, which is read when it is used. Recipes that differ only in seeds and
            floating-point numbers share compiled calls; their results are those of `run` up to rounding. If recipes
            fail, the others are run to the end and stored, and then a `UserError` names those that failed. Ctrl-C stops
            all of them, and the same call continues.
        """
        return schedule.run_all(self, recipes, workers, engine)

    def sweep(
        self, sweep: Sweep, workers: int = 1, engine: Engine | None = None, part: str | None = None
    ) -> Mapping[str, xr.Dataset]:
        """Run all points of a sweep and return their results by label; a list of the runs is stored beside them.

        Parameters
        ----------
        sweep
            The sweep.
        workers, engine
            As for `run_all`.
        part
            ``"i/N"``: only the i-th of N parts of the points, counted from 0.
        """
        points = sweep.points()
        path, manifest = sweep.manifest(self.store, points)
        wanted = {point.label: point.recipe for point in points}
        wanted = wanted if part is None else part_of(wanted, part)

        def begin() -> None:
            self.store.prepare()
            manifest.write(path)

        return schedule.run_all(self, wanted, workers, engine, begin)

    def keep(self, name: str, runs: Trajectory | Sequence[Trajectory], description: str = "") -> Path:
        """Store trajectories made in Python, so that they are reported like the runs of recipes.

        Parameters
        ----------
        name
            A name for the run.
        runs
            One trajectory, or several with the same probes and times, which become seeds 0, 1, ...
        description
            A description in words; the network, flow and data by default.

        Returns
        -------
        Path
            The file, which `read_run` and `unlazy report` read.
        """
        each = [runs] if isinstance(runs, Trajectory) else list(runs)
        if not each:
            raise UserError(f"There is no trajectory to store as '{name}': give at least one.")
        start, flow, data = each[0].start, type(each[0].flow).__name__, each[0].data
        network = getattr(start, "name", type(start).__name__)  # a wrapped model has a name of its own
        description = description or f"{network} trained by {flow} on '{data.name}' ({data.n} samples)"
        seconds = float(sum(run.stats["seconds"] for run in each))
        made = to_xarray(each).assign_attrs(provenance(), name=name, description=description, seconds=seconds)
        self.store.prepare()
        content = made.drop_attrs().assign_attrs(name=name, description=description)  # whenever it was written
        return write(made, self.store.named(name, checksum(content)[:12]))

    def table(
        self, *paths: Path | str, each_seed: bool = False, differing: bool = False, probes: Sequence[str] = ()
    ) -> list[dict[str, Any]]:
        """Return stored runs as rows of settings and last values; ``pandas.DataFrame(lab.table())`` makes a frame.

        A run that cannot be read is left out, with a warning that names it.

        Parameters
        ----------
        paths
            Stored runs (.nc), folders of them, or the lists of sweeps' runs (.sweep.json); all of the folder if
            omitted.
        each_seed
            Return one row for each seed, instead of means over the seeds of a run.
        differing
            Return only those settings in which the runs differ.
        probes
            The probes to return; all that have one number per seed if omitted.
        """
        return table(files(paths or [self.store.folder]), each_seed=each_seed, differing=differing, probes=probes)

    def gather(
        self, sweep: Sweep | Manifest | Path | str, probes: Sequence[str] = (), grid: bool | None = None
    ) -> xr.Dataset:
        """Return the stored results of a sweep as one dataset over its axes; see `unlazy.lab.gather`.

        Parameters
        ----------
        sweep, probes, grid
            As for `unlazy.lab.gather`.
        """
        return gather(sweep, self.store.folder, probes=probes, grid=grid)

    def trajectories(self, recipe: Recipe, probes: Mapping[str, Observe] | None = None) -> list[Trajectory]:
        """Return the trajectory of every seed, with its networks; only what is not stored is computed.

        Parameters
        ----------
        recipe
            The recipe.
        probes
            More probes, by name; they are evaluated on stored snapshots if there are any.
        """
        identity = identify(recipe)
        for name, probe in (probes or {}).items():
            identity.probes[name], identity.digests[name] = probe, probe_digest(probe)
        while (found := self._complete(recipe, identity, exact_end=True)[0]) is None:
            self.wait(recipe)
        with jax.enable_x64(True):
            experiment = instantiate(recipe, list(found))
            return [restored(experiment, index, track, identity) for index, track in enumerate(found.values())]

    def networks(self, recipe: Recipe) -> list[tuple[Network, Network]]:
        """Return the networks of every seed, at the start and at the end."""
        return [(run.start, run.final) for run in self.trajectories(recipe)]

    def _complete(
        self, recipe: Recipe, identity: Identity, exact_end: bool = False
    ) -> tuple[dict[int, Track] | None, bool]:
        """Return a complete track for every seed, and whether anything was computed.

        The tracks are None if another process is computing one of them.
        """
        plans = functools.partial(self.plans, identity, exact_end=exact_end)
        done: dict[int, Track] = {}
        groups: dict[str, dict[int, Plan]] = {}  # of seeds that run together
        with jax.enable_x64(True):  # the result of a recipe must not depend on the setting of JAX
            found = plans(identity.trajectories)
            needed = [seed for seed, one in found.items() if one.kind != "complete"]
            if needed:
                self.store.prepare()
                paths = {self.store.claim(identity.trajectories[seed]): seed for seed in needed}
                with claims.claimed(list(paths), [self.store.live(recipe)]) as mine:
                    again = plans(paths[path] for path in mine)  # another process may have stored something meanwhile
                    for seed, one in again.items():
                        if one.kind != "complete":
                            groups.setdefault(one.key(), {})[seed] = one
                    for group in groups.values():
                        done |= self._compute(recipe, identity, group)
                    found |= again
            done |= {seed: one.track for seed, one in found.items() if one.kind == "complete" and one.track is not None}
        if len(done) < recipe.seeds:
            return None, bool(groups)
        check_observed(recipe, done)
        return {seed: done[seed] for seed in identity.trajectories}, bool(groups)

    def plans(self, identity: Identity, seeds: Iterable[int], exact_end: bool = False) -> dict[int, Plan]:
        """Return what each of some seeds needs."""
        stored = {seed: [] if self.fresh else self.store.tracks(identity.trajectories[seed]) for seed in seeds}
        return {seed: plan(known, identity, exact_end) for seed, known in stored.items()}

    def _compute(self, recipe: Recipe, identity: Identity, plans: dict[int, Plan]) -> dict[int, Track]:
        """Carry out plans with the same key, and store the tracks."""
        seeds, needed = list(plans), list(plans.values())
        self.tell(recipe, 0.0, "drawing" if needed[0].kind == "begin" else "reading")
        checkpoint = self.store.checkpoint(recipe)
        share, live = 0.0, Live(self.store.live(recipe), recipe)

        def listen(driver: Driver, done: float, clock: float) -> None:
            nonlocal share
            share = done
            live.tell(done, clock, driver.reached, [one.observed for one in driver.records])
            self.tell(recipe, done, f"t = {clock:g}")

        worker = Worker(recipe, identity, seeds, needed, self.snapshots, checkpoint, not self.fresh, listen)
        try:
            made = worker.work()
        except KeyboardInterrupt:  # not while the driver ran, so there is no state to save
            raise Interrupted(recipe, share, self.fresh) from None
        finally:
            live.end()
        if made is None:
            try:
                worker.save()
            except UserError as error:
                where = f"'{recipe.name}' was interrupted at {share:.0%}, and its state is lost"
                raise type(error)(f"{where}: {error}") from None
            raise Interrupted(recipe, share, self.fresh)
        return self.store_tracks(worker, made)

    def store_tracks(self, worker: Worker, made: list[Track]) -> dict[int, Track]:
        """Store the tracks that a worker has made, and return them by seed; its checkpoint is no longer needed then."""
        if not any(len(track.asked) for track in made):
            return dict(zip(worker.seeds, made, strict=True))  # there is nothing to store
        stored: dict[int, Track] = {}
        try:
            for seed, track in zip(worker.seeds, made, strict=True):
                stored[seed] = self._store(worker.identity.trajectories[seed], track)
        except UserError as error:
            if worker.driver is None:
                raise
            try:
                worker.save()
            except UserError as second:
                lost = (
                    f"Neither the result nor a checkpoint of '{worker.recipe.name}' can be stored, and this run is lost"
                )
                before = " An earlier checkpoint is still there." if worker.checkpoint.exists() else ""
                raise type(error)(f"{lost}. {error} {second} All other results are unchanged.{before}") from None
            raise type(error)(f"{error} {_KEPT}") from None
        worker.checkpoint.unlink(missing_ok=True)
        return stored

    def _store(self, trajectory: str, track: Track) -> Track:
        if self.fresh and track.path is None:  # replace one along the same times
            same = [one for one in self.store.tracks(trajectory) if np.array_equal(one.asked, track.asked)]
            track.path = same[0].path if same else None
        return self.store.save_track(trajectory, track)


def check_observed(recipe: Recipe, tracks: Mapping[int, Track]) -> None:
    """Raise a `UserError` if nothing at all was observed."""
    if not any(len(track.asked) for track in tracks.values()):
        sentence = Status[next(iter(tracks.values())).status].value
        raise UserError(f"'{recipe.name}' failed before its first observation: {sentence}")
