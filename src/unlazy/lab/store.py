"""The store: a folder of results that can be found again, extended and continued.

For each recipe there is one netCDF file, the *view*, which opens anywhere: what its probes observed, with dimensions
seed and time. Views are assembled from *tracks* (`unlazy.lab.tracks`) in the folder ``trajectories``, one or a few for
each trajectory and seed, which hold all that is needed to observe more. Every file is written under a temporary name
and renamed when it is complete, and has checksums that are verified on reading.
"""

from __future__ import annotations

import contextlib
import json
import re
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import h5py
import numpy as np
import xarray as xr

from unlazy._errors import UserError
from unlazy._files import probe_names, recipe_table, writable, writing
from unlazy._netcdf import CHECKSUM, checksum, labelled, write
from unlazy.lab import tracks
from unlazy.lab.made_by import provenance
from unlazy.lab.recipe import Recipe
from unlazy.lab.tracks import Track

__all__ = ["LIVE", "Row", "Store", "assemble", "flat", "provenance", "read_run"]

LIVE = ".live.json"  # how the note of a run that is on its way is called
_LEFT_BEHIND = 3600.0  # seconds after which a temporary file is not being written any more


class Store:
    """A folder of results."""

    def __init__(self, folder: Path | str) -> None:
        self.folder = Path(folder)

    def path(self, recipe: Recipe) -> Path:
        """Give the place of the result of ``recipe``."""
        return self.named(recipe.name, recipe.digest)

    def named(self, name: str, digest: str) -> Path:
        """Give the place of a result with a name and a digest."""
        readable = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:60] or "run"
        return self.folder / f"{readable}-{digest}.nc"

    def checkpoint(self, recipe: Recipe) -> Path:
        """Give the place where ``recipe`` keeps its state while it runs."""
        return self.path(recipe).with_suffix(".checkpoint")

    def live(self, recipe: Recipe) -> Path:
        """Give the place where ``recipe`` says how far it is while it runs."""
        return self.path(recipe).with_suffix(LIVE)

    def prepare(self) -> None:
        """Create the folder, and raise now rather than after hours if nothing can be written there."""
        writable(self.folder, "Results", "--out")
        writable(self.folder / "trajectories", "Results", "--out")
        for folder in (self.folder, self.folder / "trajectories"):  # what processes left behind that were killed
            for path in folder.glob(".*.part"):
                with contextlib.suppress(OSError):
                    if time.time() - path.stat().st_mtime > _LEFT_BEHIND:
                        path.unlink()

    def load(self, recipe: Recipe) -> xr.Dataset | None:
        """Give the stored view of ``recipe``, or None if there is none."""
        path = self.path(recipe)
        return read_run(path) if path.exists() else None

    def save(self, recipe: Recipe, run: xr.Dataset) -> Path:
        """Store the view of a recipe; it appears whole or not at all."""
        return self.save_as(self.path(recipe), run)

    def save_as(self, path: Path, run: xr.Dataset) -> Path:
        """Store a view under a name; it appears whole or not at all."""
        return write(run, path)

    def claim(self, trajectory: str) -> Path:
        """Give the place of the claim on a trajectory."""
        return self.folder / "trajectories" / f"{trajectory[:32]}.claim"

    def tracks(self, trajectory: str) -> list[Track]:
        """Read all tracks of a trajectory, without their snapshots and states."""
        found: list[Track] = []
        while (path := self._track(trajectory, len(found))).exists():
            found.append(tracks.load(path))
        return found

    def _track(self, trajectory: str, number: int) -> Path:
        return self.folder / "trajectories" / f"{trajectory[:32]}-{number}.npz"

    def save_track(self, trajectory: str, track: Track) -> Track:
        """Store a track in its own place, or in a new one."""
        path = track.path or self._track(trajectory, len(self.tracks(trajectory)))
        with writing("The result", path, "free some space"):
            tracks.save(track, path)
        return tracks.load(path)


class Row(NamedTuple):
    """What one seed contributes to a view.

    Attributes
    ----------
    times
        The times that were observed.
    observed
        By label: for each time, or once for a probe that observes at the end only, the parts of an observation.
    at_end
        Labels of the probes that observe at the end only.
    """

    seed: int
    times: np.ndarray
    observed: dict[str, list[dict[tuple[str, ...], np.ndarray]]]
    at_end: set[str]
    status: str
    counters: dict[str, float]
    seconds: float
    method: str
    made_by: dict[str, str]


def assemble(rows: Sequence[Row], probes: Mapping[str, Any] | None = None) -> xr.Dataset:
    """Put seeds side by side: dimensions seed and (unless observed at the end only) time first, then the probe's own.

    A seed that ended before others is filled up with NaN.
    """
    longest = max(rows, key=lambda row: len(row.times))
    variables: dict[str, Any] = {}
    for label in dict.fromkeys(label for row in rows for label in row.observed):
        at_end = label in longest.at_end
        count = 1 if at_end else len(longest.times)
        example = next((row.observed[label][0] for row in rows if row.observed.get(label)), {})
        for part, one in example.items():
            values = np.stack([_column(row.observed.get(label, []), part, count, one) for row in rows])
            name, first = ".".join((label, *part)), ("seed",) if at_end else ("seed", "time")
            values = values[:, 0] if at_end else values
            variables[name] = ((*first, *(f"{name}_{axis}" for axis in range(values.ndim - len(first)))), values)
    run = xr.Dataset(variables, coords={"seed": [row.seed for row in rows], "time": longest.times})
    run.attrs |= {
        "status": [row.status for row in rows],
        "finished": int(all(row.status == "finished" for row in rows)),
        "seconds": float(sum(row.seconds for row in rows)),
        "method": "; ".join(dict.fromkeys(row.method for row in rows)),
    }
    run.attrs |= {name: [row.counters[name] for row in rows] for name in tracks.COUNTERS}
    run.attrs |= {name: [int(count) for count in run.attrs[name]] for name in tracks.COUNTERS if name != "error"}
    entries = dict.fromkeys(name for row in rows for name in row.made_by)
    run.attrs |= {
        name: "; ".join(dict.fromkeys(row.made_by[name] for row in rows if name in row.made_by)) for name in entries
    }
    return labelled(run, probes)


def _column(values: list[dict[tuple[str, ...], np.ndarray]], part: tuple[str, ...], count: int, like: Any) -> Any:
    found = [one[part] for one in values]
    return np.stack(found + [np.full(np.shape(like), np.nan, _floating(like))] * (count - len(found)))


def _floating(like: Any) -> Any:
    kind = np.asarray(like).dtype
    return kind if kind.kind in "fc" else float


def flat(tree: dict[str, Any]) -> dict[str, np.ndarray]:
    """Bring nested dictionaries of observations to one level: ``kernel.drift``."""
    return {".".join(part): values for part, values in parts(tree).items()}


def parts(tree: Any, before: tuple[str, ...] = ()) -> dict[tuple[str, ...], np.ndarray]:
    """Bring nested dictionaries to one level, with tuples of names as keys."""
    if not isinstance(tree, dict):
        return {before: np.asarray(tree)}
    return {path: leaf for name, one in tree.items() for path, leaf in parts(one, (*before, str(name))).items()}


def nested(flat: dict[tuple[str, ...], Any]) -> Any:
    """Undo `parts`."""
    if () in flat:
        return flat[()]
    names = dict.fromkeys(path[0] for path in flat)
    return {name: nested({path[1:]: leaf for path, leaf in flat.items() if path[0] == name}) for name in names}


def read_run(path: Path) -> xr.Dataset:
    """Open one stored run.

    Parameters
    ----------
    path
        A file (.nc) of a store.

    Returns
    -------
    xarray.Dataset
        What the probes observed, with dimensions seed and time. A file that is damaged, was edited, or was not written
        by this store raises a `UserError`.
    """
    again = "delete it and run the recipe again."
    try:
        _refuse_links(path)
        with xr.open_dataset(path, engine="h5netcdf") as stored:
            run = stored.load()
    except FileNotFoundError:
        raise UserError(f"There is no stored run at '{path}'.") from None
    except (OSError, ValueError, KeyError, RuntimeError, TypeError, AttributeError, MemoryError) as error:
        raise UserError(
            f"'{path}' is not a whole stored run ({type(error).__name__}): it may have been cut short; {again}"
        ) from None
    if CHECKSUM not in run.attrs:
        if "recipe" in run.attrs:
            raise UserError(f"'{path}' was stored by a version of unlazy that wrote no checksums: {again}")
        raise UserError(f"'{path}' is not a run stored by unlazy: move it away.")
    if run.attrs[CHECKSUM] != checksum(run):
        raise UserError(f"'{path}' was changed or damaged after it was stored (its checksum is wrong): {again}")
    return run


def _refuse_links(path: Path) -> None:
    """Refuse a file whose arrays lie in other files, or claim to be far larger than the file is."""
    size = path.stat().st_size

    def look(name: str, item: Any) -> None:
        if isinstance(item, h5py.Dataset) and (item.external or item.is_virtual or item.nbytes > 1100 * size):
            raise ValueError(name)

    with h5py.File(path, "r") as file:
        file.visititems(look)


def content_digest(run: xr.Dataset) -> str:
    """Give twelve hexadecimal digits that name what a run holds, whenever it was written."""
    return checksum(run.drop_attrs().assign_attrs(name=run.attrs["name"], description=run.attrs["description"]))[:12]


def table(paths: Sequence[Path], *, each_seed: bool = False, differing: bool = False) -> list[dict[str, Any]]:
    """Give one row for each stored run, or for each of its seeds; see `Lab.table`."""
    runs = {path: read_run(path) for path in paths}
    settings = {path: _settings(run) for path, run in runs.items()}
    names = list(dict.fromkeys(name for one in settings.values() for name in one))
    if differing:
        names = [name for name in names if len({repr(one.get(name)) for one in settings.values()}) > 1]
    rows = []
    for path, run in runs.items():
        head = {"run": path.name, "name": str(run.attrs.get("name", path.stem))}
        head |= {name: settings[path].get(name) for name in names}
        seeds = [run.isel(seed=[index]) for index in range(run.sizes["seed"])] if each_seed else [run]
        for one in seeds:
            row = dict(head)
            if each_seed:
                row["seed"] = int(one["seed"].values[0])
            row |= {"status": _status(run, one), "time": float(run["time"].values[-1])} | _last(one)
            rows.append(row)
    return rows


def _settings(run: xr.Dataset) -> dict[str, Any]:
    recipe = recipe_table(run.attrs.get("recipe"))
    found: dict[str, Any] = {}
    for name, value in recipe.items():
        if name == "probes":
            found[name] = ", ".join(probe_names(recipe))
        elif name in ("data", "network", "flow"):
            found |= _flat({"kind": value} if isinstance(value, str) else value, name)
        elif name != "name":
            found |= _flat(value, name)
    return found


def _flat(value: Any, name: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        return {name: json.dumps(value) if isinstance(value, list) else value}
    return {key: leaf for part, one in value.items() for key, leaf in _flat(one, f"{name}.{part}").items()}


def statuses(run: xr.Dataset) -> list[str]:
    """Give the status with which each seed of a stored run ended."""
    return [str(one) for one in np.atleast_1d(run.attrs.get("status", [])).tolist()]


def _status(run: xr.Dataset, part: xr.Dataset) -> str:
    each = dict(zip(run["seed"].values.tolist(), statuses(run), strict=True))
    return ", ".join(dict.fromkeys(each[seed] for seed in part["seed"].values.tolist()))


def _last(run: xr.Dataset) -> dict[str, float]:
    """Give the last value of everything that is one number for each seed, as a mean over seeds."""
    scalars = (("seed", "time"), ("seed",))
    ends = {str(name): values.values for name, values in run.data_vars.items() if values.dims in scalars}
    return {name: float(np.mean(values[:, -1] if values.ndim == 2 else values)) for name, values in ends.items()}
