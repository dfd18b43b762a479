"""The store: a folder of results that can be found again, extended and continued.

For each recipe there is one netCDF file, the *view*, which opens anywhere: what its probes observed, with dimensions
seed and time. Views are assembled from *tracks* (`unlazy.lab.tracks`) in the folder ``trajectories``, one or a few for
each trajectory and seed, which hold all that is needed to observe more. Every file is written under a temporary name
and renamed when it is complete, and has checksums that are verified on reading.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import xarray as xr

from unlazy import _netcdf
from unlazy._errors import UserError, skip
from unlazy._files import CHECKSUM, checksum, clean, labelled, probe_names, recipe_table, writable, write, writing
from unlazy.flows import Observe, OnlyAtEnd, Status
from unlazy.lab import tracks
from unlazy.lab.identity import Identity
from unlazy.lab.recipe import Recipe
from unlazy.lab.tracks import Parts, Track

LIVE = ".live.json"  # the suffix of the note of a run in progress
FOLDERS = ("trajectories", "panels", "certificates", "diagnoses")  # folders in the folder of results
_MORE_THAN_FILE = 64 * 2**20  # bytes by which the arrays of a stored run may exceed the file, which is not compressed
_LONGEST = 100_000  # entries of an attribute


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
        return self.save_as(self.path(recipe), run)

    def save_as(self, path: Path, run: xr.Dataset) -> Path:
        """Store a view atomically in a given file."""
        return write(run, path)

    def claim(self, trajectory: str) -> Path:
        """Return the path of the claim on a trajectory."""
        return self.folder / "trajectories" / f"{trajectory[:32]}.claim"

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

    Parameters
    ----------
    found
        The tracks by seed, which may have more times and probes. A seed that ended before others is padded with NaN.
    identity
        The times and probes to use.
    """
    each, chosen = list(found.values()), [track.select(identity.times) for track in found.values()]
    longest, (indices, _) = max(zip(each, chosen, strict=True), key=lambda one: len(one[1][0]))
    variables: dict[str, Any] = {}
    for label, probe in identity.probes.items():
        rows = [(track, seen(probe, *one)) for track, one in zip(each, chosen, strict=True)]
        columns = [track.stacked(identity.digests[label], some) for track, some in rows]
        late = isinstance(probe, OnlyAtEnd)
        for part, one in next(filter(None, columns), {}).items():
            values = np.stack([_padded(got.get(part, one[:0]), 1 if late else len(indices)) for got in columns])
            name, first = ".".join((label, *part)), ("seed",) if late else ("seed", "time")
            values = values[:, 0] if late else values
            variables[name] = ((*first, *(f"{name}_{axis}" for axis in range(values.ndim - len(first)))), values)
    run = xr.Dataset(variables, coords={"seed": list(found), "time": longest.reached[indices]})
    status = [_status(track, *one) for track, one in zip(each, chosen, strict=True)]
    run.attrs |= {
        "status": status,
        "finished": int(all(Status[one].ok for one in status)),
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
    if isinstance(probe, OnlyAtEnd):
        return indices[-1:] if whole else []
    return indices


def _padded(values: np.ndarray, count: int) -> np.ndarray:
    missing = (count - len(values), *values.shape[1:])
    dtype = values.dtype if values.dtype.kind in "fc" else float
    return np.concatenate([values, np.full(missing, np.nan, dtype)]) if missing[0] else values


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


def read_run(path: Path) -> xr.Dataset:
    """Open a stored run.

    Parameters
    ----------
    path
        A file (.nc) of a store.

    Returns
    -------
    xarray.Dataset
        What the probes observed, with dimensions seed and time.

    Raises
    ------
    UserError
        If the file is damaged, was edited, or was not written by unlazy.
    """
    again = "delete it and run the recipe again."
    try:
        _check_contents(path)
        run = _netcdf.read(path)
    except FileNotFoundError:
        raise UserError(f"There is no stored run at '{path}'.") from None
    except UserError:
        raise
    except Exception as error:  # whatever libraries raise on a damaged file
        kind = "is cut short or damaged" if _is_hdf5(path) else "is not a stored run, or damaged in its first bytes"
        raise UserError(f"'{path}' {kind} ({type(error).__name__}): {again}") from None
    if CHECKSUM not in run.attrs:
        if "recipe" in run.attrs:
            raise UserError(f"'{path}' was stored by a version of unlazy that wrote no checksums: {again}")
        raise UserError(f"'{path}' is not a run stored by unlazy: move it away.")
    if run.attrs[CHECKSUM] != checksum(run):
        raise UserError(f"'{path}' was changed or damaged after it was stored (its checksum is wrong): {again}")
    if odd := _odd(run):
        raise UserError(f"'{path}' is not a run stored by unlazy ({odd}): move it away.")
    return run


def _odd(run: xr.Dataset) -> str:
    """Say what is odd about a run that has a checksum; empty for a run as `assemble` and `Lab.keep` make them."""
    for name in ("seed", "time"):
        values = run[name].values if name in run.coords else np.zeros(0)
        if run[name].dims != (name,) if values.size else True:
            return f"it has no coordinate '{name}'"
        if values.dtype.kind not in "iuf" or not np.isfinite(values).all():
            return f"the coordinate '{name}' is not finite numbers"
    for name, values in run.data_vars.items():
        if values.dtype.kind not in "biufc" or "seed" not in values.dims:
            return f"'{name}' is not numbers for each seed"
    seconds = run.attrs.get("seconds", 0.0)
    if not isinstance(seconds, int | float | np.number) or not np.isfinite(seconds):
        return "its seconds are not a number"
    if not {*statuses(run)} <= {one.name for one in Status}:
        return "its status is unknown"
    return ""


def _is_hdf5(path: Path) -> bool:
    try:
        with open(path, "rb") as file:
            return file.read(8) == b"\x89HDF\r\n\x1a\n"
    except OSError:
        return False


def _check_contents(path: Path) -> None:
    """Refuse a file that reaches other files, or that asks for more memory than its own size and 64 MiB.

    Stored runs are arrays of numbers in one group, not compressed. External storage, virtual arrays and links could
    read any file; arrays that are declared but not stored, or compressed, could ask for any amount of memory.
    """
    room = path.stat().st_size + _MORE_THAN_FILE

    def refuse(name: str, what: str) -> UserError:
        return UserError(f"'{path}' is refused: '{name}' {what}, which no run stored by unlazy does: move it away.")

    with h5py.File(path, "r") as file:
        for name in map(str, file):
            if not isinstance(file.get(name, getlink=True), h5py.HardLink):
                raise refuse(name, "is a link")
            item = file[name]
            if not isinstance(item, h5py.Dataset) or item.dtype.kind == "O":
                raise refuse(name, "is not an array of numbers")
            if item.external or item.is_virtual:
                raise refuse(name, "is stored in another file")
            room -= max(item.nbytes, math.prod(item.chunks or ()) * item.dtype.itemsize if item.chunks else 0)
            if room < 0:
                raise refuse(name, "asks for much more memory than the file has bytes")
        for owner in (file, *(file[name] for name in file)):
            for name in owner.attrs:
                shape = owner.attrs.get_id(name).shape
                if shape is not None and math.prod(shape) > _LONGEST:
                    raise refuse(name, "is an attribute of too many entries")


def table(paths: Sequence[Path], *, each_seed: bool = False, differing: bool = False) -> list[dict[str, Any]]:
    """Return one row for each stored run, or for each of its seeds; see `Lab.table`."""
    runs: dict[Path, xr.Dataset] = {}
    for path in paths:
        try:
            runs[path] = read_run(path)
        except UserError as error:
            skip(error)
    settings = {path: _settings(run) for path, run in runs.items()}
    names = list(dict.fromkeys(name for one in settings.values() for name in one))
    if differing:
        names = [name for name in names if len({repr(one.get(name)) for one in settings.values()}) > 1]
    rows = []
    for path, run in runs.items():
        head = {"run": path.name, "name": str(run.attrs.get("name", path.stem))}
        head |= {name: settings[path].get(name) for name in names}
        places, ended = range(run.sizes["seed"]), statuses(run)
        for some in [[place] for place in places] if each_seed else [list(places)]:
            seed = {"seed": int(run["seed"].values[some[0]])} if each_seed else {}
            status = ", ".join(dict.fromkeys(ended[place] for place in some))
            last = {"status": status, "time": float(run["time"].values[-1])} | last_values(run.isel(seed=some))
            rows.append(head | seed | last)
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
    """Return the status with which each seed of a stored run ended."""
    return [str(one) for one in np.atleast_1d(run.attrs.get("status", [])).tolist()]


def last_values(run: xr.Dataset) -> dict[str, float]:
    """Return the last value of every quantity that is one number per seed, as a mean over seeds."""
    scalars = (("seed", "time"), ("seed",))
    ends = {str(name): values.values for name, values in run.data_vars.items() if values.dims in scalars}
    return {name: float(np.mean(values[:, -1] if values.ndim == 2 else values)) for name, values in ends.items()}
