"""The results of a sweep as one dataset: an axis for each swept field, and NaN where a run is missing."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from unlazy._errors import UserError, suggest
from unlazy._files import is_part
from unlazy._plain import is_number
from unlazy.lab.axes import key_of
from unlazy.lab.manifest import Manifest, distinct_words
from unlazy.lab.stored import read_runs, statuses

if TYPE_CHECKING:
    from unlazy.lab.sweep import Sweep

_SEEDS = ("seed", "seeds")  # swept fields that are not dimensions of their own
MADE_BY = ("versions", "python", "commit", "device", "machine", "method")
MISSING = "missing"


def gather(
    sweep: Sweep | Manifest | Path | str,
    folder: Path | str = "runs",
    *,
    probes: Sequence[str] = (),
    grid: bool | None = None,
) -> xr.Dataset:
    """Return the stored results of a sweep as one dataset.

    Nothing is computed. A run that is not stored yet is NaN, and so is one that cannot be read, which a warning names.

    Parameters
    ----------
    sweep
        The sweep, or the list of its runs (a `Manifest`), or the file of that list (.sweep.json), beside which the
        results are.
    folder
        The folder of results, unless a file is given.
    probes
        The probes to return. If omitted, all that have one number per seed and time, or one per seed. An array, such as
        one number for each neuron, is padded with NaN where runs have different sizes.
    grid
        Whether each swept field is a dimension. By default it is if the sweep has a run for every combination of
        values. Otherwise (zipped lists, random draws, individual points) there is one dimension ``point``.

    Returns
    -------
    xarray.Dataset
        Its dimensions are the swept fields, such as ``network.width``, or else ``point``; then ``seed`` and ``time``.
        A sweep over seeds extends ``seed``. If runs were observed at different times, ``time`` is a coordinate of each
        run along a dimension ``observation``. Other coordinates are ``run`` (the file) and ``status`` (how each seed
        ended, or "missing"). Attributes are the versions and machines that computed the runs, the ``seconds`` that they
        took, and how many are ``missing``.

    Examples
    --------
    >>> runs = gather("runs/widths-0123456789ab.sweep.json")
    >>> runs["train-loss"].sel({"network.width": 64}).mean("seed").plot(hue="network.scaling")
    """
    if isinstance(sweep, Path | str):
        manifest, folder = Manifest.read(sweep), Path(sweep).parent
    elif isinstance(sweep, Manifest):
        manifest = sweep
    else:
        from unlazy.lab.store import Store

        _, manifest = sweep.manifest(Store(folder))
    paths = {Path(folder) / point.file: index for index, point in enumerate(manifest.points)}
    stored = [path for path in paths if path.exists()]
    if not stored:
        none = f"None of the {len(paths)} runs of the sweep '{manifest.sweep}' is stored in '{folder}'"
        raise UserError(f"{none}: call `unlazy sweep` first, or give the folder in which they are.")
    found = combine(
        [point.fields for point in manifest.points],
        ((paths[path], path.name, run) for path, run in read_runs(stored)),
        [point.derived for point in manifest.points],
        probes=probes,
        grid=grid,
    )
    found.attrs |= {"sweep": manifest.sweep, "digest": manifest.digest, "recipe": json.dumps(manifest.base)}
    return found


@dataclass
class _Layout:
    """Where each point of a sweep is in the arrays, and the coordinates that follow from it."""

    dims: tuple[str, ...]
    shape: tuple[int, ...]
    places: list[tuple[int, ...]]
    coordinates: dict[str, Any]


def _layout(points: Sequence[Mapping[str, Any]], grid: bool | None) -> _Layout:
    names = [name for name in dict.fromkeys(name for point in points for name in point) if name not in _SEEDS]
    values = {name: {key_of(point.get(name)): point.get(name) for point in points} for name in names}
    indices = {name: {key: index for index, key in enumerate(values[name])} for name in names}
    places = [tuple(indices[name][key_of(point.get(name))] for name in names) for point in points]
    shape = tuple(map(len, values.values()))
    different = {place: index for index, place in enumerate(dict.fromkeys(places))}
    if math.prod(shape) == len(different) if grid is None else grid:
        own = {name: (name, _array(list(some.values()))) for name, some in values.items()}
        return _Layout(tuple(names), shape, places, own)
    each = dict(zip(places, points, strict=True)).values()
    own = {name: ("point", _array([point.get(name) for point in each])) for name in names}
    return _Layout(("point",), (len(different),), [(different[place],) for place in places], own)


def _array(values: list[Any]) -> np.ndarray:
    """Return the values of a field: numbers as they are, everything else in words."""
    if all(map(is_number, values)) or all(isinstance(one, bool) for one in values):
        return np.array(values)
    return np.array(distinct_words(values))


@dataclass
class _Part:
    """What is used of one stored run."""

    place: tuple[int, ...]
    name: str
    seeds: np.ndarray
    times: np.ndarray
    status: list[str]
    values: dict[str, np.ndarray]  # seeds first, then times unless observed at the end only
    attributes: dict[str, Any]


def combine(
    points: Sequence[Mapping[str, Any]],
    runs: Iterable[tuple[int, str, xr.Dataset]],
    derived: Sequence[Mapping[str, Any]] = (),
    *,
    probes: Sequence[str] = (),
    grid: bool | None = None,
) -> xr.Dataset:
    """Put runs into one dataset, as `gather` describes.

    ``points`` are the values of the swept fields of each point; points with the same values differ in their seeds.
    ``runs`` are the index of the point, the name and the result of every run, each read when it is asked for.
    ``derived`` are values of further fields of each point, which become coordinates.
    """
    layout = _layout(points, grid)
    dims: dict[str, tuple[str, ...]] = {}
    known: set[str] = set()
    parts: list[_Part] = []
    for index, name, run in runs:
        chosen = _chosen(run, probes)
        dims |= {one: tuple(map(str, run[one].dims)) for one in chosen}
        known |= set(map(str, run.data_vars))
        values = {one: np.asarray(run[one].values, float) for one in chosen}
        seeds, times = run["seed"].values, np.asarray(run["time"].values, float)
        parts.append(_Part(layout.places[index], name, seeds, times, statuses(run), values, dict(run.attrs)))
    if not parts:
        raise UserError("None of the runs of the sweep can be read, so there is nothing to gather.")
    for probe in probes:
        if not any(is_part(name, probe) for name in dims):
            raise UserError(f"The runs of the sweep have no probe called '{probe}'. {suggest(probe, known)}")
    return _filled(layout, parts, dims, derived)


def _chosen(run: xr.Dataset, probes: Sequence[str]) -> list[str]:
    names = [str(name) for name in run.data_vars if run[name].dims[:1] == ("seed",) and run[name].dtype.kind in "fiub"]
    if not probes:
        return [name for name in names if run[name].dims in (("seed", "time"), ("seed",))]
    return [name for name in names if any(is_part(name, probe) for probe in probes)]


def _filled(
    layout: _Layout, parts: list[_Part], dims: Mapping[str, tuple[str, ...]], derived: Sequence[Mapping[str, Any]]
) -> xr.Dataset:
    seeds = np.unique(np.concatenate([part.seeds for part in parts]))
    longest = max((part.times for part in parts), key=len)
    shared = all(np.isin(part.times, longest).all() for part in parts)  # the others ended earlier, say
    along = "time" if shared else "observation"
    files = np.full(layout.shape, "", object)
    status = np.full((*layout.shape, len(seeds)), MISSING, object)
    times = np.full((*layout.shape, len(longest)), np.nan)
    variables: dict[str, Any] = {}
    for name, own in dims.items():
        shapes = [part.values[name].shape for part in parts if name in part.values]
        inner = list(np.max([shape[1:] for shape in shapes], axis=0)) if len(own) > 1 else []
        if len(own) > 1 and own[1] == "time":
            inner[0] = len(longest)
        named = tuple(along if one == "time" else one for one in own)
        variables[name] = ((*layout.dims, *named), np.full((*layout.shape, len(seeds), *map(int, inner)), np.nan))
    for part in parts:
        files[part.place] = ", ".join(filter(None, (files[part.place], part.name)))
        rows = np.searchsorted(seeds, part.seeds)
        columns = np.searchsorted(longest, part.times) if shared else np.arange(len(part.times))
        times[part.place][columns] = part.times
        for row, one in zip(rows, part.status, strict=False):
            status[(*part.place, row)] = one
        for name, values in part.values.items():
            whole = variables[name][1][part.place]
            timed = dims[name][1:2] == ("time",)
            extra = [np.arange(size) for size in values.shape[2 if timed else 1 :]]
            whole[np.ix_(rows, *([columns] if timed else []), *extra)] = values
    found = xr.Dataset(variables, layout.coordinates | {"seed": seeds})
    found = found.assign_coords({"time": longest} if shared else {"time": ((*layout.dims, along), times)})
    found = found.assign_coords(run=(layout.dims, files.astype(str)))
    found = found.assign_coords(status=((*layout.dims, "seed"), status.astype(str)))
    for name in dict.fromkeys(name for one in derived for name in one):
        known = _array([one.get(name) for one in derived])
        whole = np.full(layout.shape, np.nan) if known.dtype.kind in "fi" else np.full(layout.shape, "", known.dtype)
        for place, value in zip(layout.places, known, strict=True):
            whole[place] = value
        found = found.assign_coords({name: (layout.dims, whole)})
    found.attrs["seconds"] = float(sum(float(part.attributes.get("seconds", 0.0)) for part in parts))
    for name in MADE_BY:
        given = dict.fromkeys(str(part.attributes[name]) for part in parts if name in part.attributes)
        found.attrs |= {name: "; ".join(given)} if given else {}
    found.attrs["missing"] = math.prod(layout.shape) - len({part.place for part in parts})
    return found
