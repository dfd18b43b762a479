"""The store: a folder of results that can be found again, extended and continued.

For each recipe there is one netCDF file, the *view*, which opens anywhere: what its probes observed, with dimensions
seed and time. Views are assembled from *tracks* (`unlazy.lab.tracks`) in the folder ``trajectories``, one or a few for
each trajectory and seed, which hold all that is needed to observe more. Every file is written under a temporary name
and renamed when it is complete, and has checksums that are verified on reading.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from unlazy._errors import UserError
from unlazy._files import clean, labelled, writable, write, writing
from unlazy.flows import Observe, Status
from unlazy.flows.trajectory import nonfinite, only_at_end, stacked
from unlazy.lab import tracks
from unlazy.lab.identity import Identity
from unlazy.lab.recipe import Recipe
from unlazy.lab.stored import read_run
from unlazy.lab.tracks import Parts, Track

LIVE = ".live.json"  # the suffix of the note of a run in progress
FOLDERS = ("trajectories", "panels", "certificates", "diagnoses")  # folders in the folder of results


class Store:
    """A folder of results.

    Parameters
    ----------
    folder
        The folder; `prepare` creates it.
    """

    def __init__(self, folder: Path | str) -> None:
        self.folder = Path(folder)

    def path(self, recipe: Recipe) -> Path:
        """Return the path of the result of ``recipe``."""
        return self.named(recipe.name, recipe.digest)

    def named(self, name: str, digest: str) -> Path:
        """Return the path of a result with a name and a digest."""
        readable = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:60] or "run"
        return self.folder / f"{readable}-{digest}.nc"

    def checkpoint(self, recipe: Recipe) -> Path:
        """Return the path of the state of ``recipe`` while it runs."""
        return self.path(recipe).with_suffix(".checkpoint")

    def live(self, recipe: Recipe) -> Path:
        """Return the path of the note on the progress of ``recipe`` while it runs."""
        return self.path(recipe).with_suffix(LIVE)

    def prepare(self) -> None:
        """Create the folder, and raise a `UserError` if nothing can be written there."""
        for folder in (self.folder, self.folder / "trajectories"):
            writable(folder, "Results", "--out")
        for folder in (self.folder, *(self.folder / name for name in FOLDERS)):
            clean(folder)

    def load(self, recipe: Recipe) -> xr.Dataset | None:
        """Return the stored view of ``recipe``, or None if there is none."""
        path = self.path(recipe)
        if not path.exists():
            return None
        run = read_run(path)
        if run.attrs.get("digest") != recipe.digest:
            raise UserError(f"'{path}' holds the result of another recipe: delete it and run the recipe again.")
        return run

    def save(self, recipe: Recipe, run: xr.Dataset) -> Path:
        """Store the view of a recipe atomically."""
        return write(run, self.path(recipe))

    @property
    def claims(self) -> Path:
        """The folder of claims."""
        return self.folder / "trajectories"

    def claim(self, trajectory: str) -> Path:
        """Return the path of the claim on a trajectory."""
        return self.claims / f"{trajectory[:32]}.claim"

    def tracks(self, trajectory: str) -> list[Track]:
        """Read all tracks of a trajectory, without their snapshots and states."""
        found: list[Track] = []
        while (path := self._track(trajectory, len(found))).exists():
            found.append(tracks.load(path, trajectory))
        return found

    def _track(self, trajectory: str, number: int) -> Path:
        return self.folder / "trajectories" / f"{trajectory[:32]}-{number}.npz"

    def save_track(self, trajectory: str, track: Track) -> Track:
        """Store a track in its own file, or in a new one."""
        path = track.path or self._track(trajectory, len(self.tracks(trajectory)))
        with writing("The result", path, "free some space"):
            tracks.save(track, path, trajectory)
        return tracks.load(path, trajectory)


def assemble(found: Mapping[int, Track], identity: Identity) -> xr.Dataset:
    """Combine seeds: dimensions seed and (unless observed at the end only) time first, then those of the probe.

    Tracks may have more times and probes than ``identity`` asks for. A seed that ended early is padded with NaN.
    """
    each, chosen = list(found.values()), [track.select(identity.times) for track in found.values()]
    longest, (indices, _) = max(zip(each, chosen, strict=True), key=lambda one: len(one[1][0]))
    variables: dict[str, Any] = {}
    marked: list[str] = []  # what has entries that are not finite; seeds that ended early are padded below
    for label, probe in identity.probes.items():
        rows = [(track, seen(probe, *one)) for track, one in zip(each, chosen, strict=True)]
        columns = [track.stacked(identity.digests[label], some) for track, some in rows]
        late = only_at_end(probe)
        marked += [".".join((label, *part)) for got in columns for part in nonfinite(got)]
        for part, one in next(filter(None, columns), {}).items():
            name = ".".join((label, *part))
            dims, values = stacked(name, [got.get(part, one[:0]) for got in columns], 1 if late else len(indices))
            variables[name] = (("seed", *dims[2:]), values[:, 0]) if late else (dims, values)
    run = xr.Dataset(variables, coords={"seed": list(found), "time": longest.reached[indices]})
    status = [_status(track, *one) for track, one in zip(each, chosen, strict=True)]
    run.attrs |= {
        "status": status,
        "finished": int(all(Status[one].ok for one in status)),
        "nonfinite": ", ".join(dict.fromkeys(marked)),
        "seconds": float(sum(track.seconds for track in each)),
        "method": "; ".join(dict.fromkeys(track.method for track in each)),
    }
    for name in tracks.COUNTERS:
        number = float if name == "error" else int
        ends = [(track.counters[name], track.last[name], *one) for track, one in zip(each, chosen, strict=True)]
        run.attrs[name] = [number(count[some[-1]] if whole and some else last) for count, last, some, whole in ends]
    for name in dict.fromkeys(name for track in each for name in track.made_by):
        run.attrs[name] = "; ".join(dict.fromkeys(one.made_by[name] for one in each if name in one.made_by))
    return labelled(run, identity.probes)


def _status(track: Track, indices: list[int], whole: bool) -> str:
    """Return how a track ended, as far as the selected times show it."""
    if not whole:
        return track.status
    stopped = track.finished and indices and track.counters["steps"][indices[-1]] == track.last["steps"]
    return track.status if stopped else "finished"


def seen(probe: Observe, indices: list[int], whole: bool) -> list[int]:
    """Return those times, of the selected ones, that a probe observes."""
    if only_at_end(probe):
        return indices[-1:] if whole else []
    return indices


def parts(tree: Any, before: tuple[str, ...] = ()) -> Parts:
    """Flatten nested dictionaries to one level, with tuples of names as keys."""
    if not isinstance(tree, dict):
        return {before: np.asarray(tree)}
    return {path: leaf for name, one in tree.items() for path, leaf in parts(one, (*before, str(name))).items()}


def nested(flat: Parts) -> Any:
    """Undo `parts`."""
    if () in flat:
        return flat[()]
    names = dict.fromkeys(path[0] for path in flat)
    return {name: nested({path[1:]: leaf for path, leaf in flat.items() if path[0] == name}) for name in names}
