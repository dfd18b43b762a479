"""Stored runs as a table: one row for each run or seed, with its settings and the last values of its probes."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from unlazy._errors import UserError
from unlazy._files import by_field, parts_of, probe_names, recipe_table
from unlazy._plain import finite_or_none
from unlazy.lab.manifest import SUFFIX, Manifest
from unlazy.lab.stored import read_runs, statuses

Rows = list[dict[str, Any]]


def files(given: Iterable[Path | str]) -> list[Path]:
    """Return the stored runs (.nc) in files, in folders, and in the lists of sweeps' runs (.sweep.json)."""
    found: list[Path] = []
    for path in map(Path, given):
        if path.is_dir():
            inside = sorted(path.glob("*.nc"))
            if not inside:
                raise UserError(f"There are no stored runs (.nc) in the folder '{path}': give another folder.")
        elif path.name.endswith(SUFFIX):
            points = Manifest.read(path).points
            inside = [file for one in points if (file := path.parent / one.file).exists()]
            if not inside:
                raise UserError(f"None of the {len(points)} runs of '{path}' is stored: call `unlazy sweep` first.")
        elif path.suffix == ".nc":
            inside = [path]
        else:
            wanted = "a stored run (.nc), a folder of runs, or the list of a sweep's runs (.sweep.json)"
            problem = f"'{path}' is not a stored run" if path.exists() else f"There is nothing at '{path}'"
            raise UserError(f"{problem}: give {wanted}.")
        found += inside
    return list(dict.fromkeys(found))


def table(
    paths: Sequence[Path], *, each_seed: bool = False, differing: bool = False, probes: Sequence[str] = ()
) -> Rows:
    """Return one row for each stored run, or for each of its seeds; see `Lab.table`."""
    read: list[tuple[dict[str, Any], dict[str, Any], Rows]] = []
    for path, run in read_runs(paths):
        head = {"run": path.name, "name": str(run.attrs.get("name", path.stem))}
        read.append((head, _settings(run), _ends(run, each_seed)))
    if not read:
        advice = "give files (.nc) of a folder of results"
        raise UserError(f"None of {len(paths)} files could be read as a stored run: {advice}.")
    names = list(dict.fromkeys(name for _, settings, _ in read for name in settings))
    if differing:
        names = [name for name in names if len({repr(settings.get(name)) for _, settings, _ in read}) > 1]
    known = list(dict.fromkeys(name for _, _, ends in read for end in ends for name in end))
    observed = [name for name in known if name not in _STATE]
    chosen = parts_of(probes, observed, "No run has one number per seed for a probe") if probes else observed
    columns = [name for name in known if name in _STATE] + chosen
    return [
        head | {name: settings.get(name) for name in names} | {name: end.get(name) for name in columns}
        for head, settings, ends in read
        for end in ends
    ]


_STATE = ("seed", "status", "time")


def _ends(run: xr.Dataset, each_seed: bool) -> Rows:
    """Return status, last time and last values of a run, as a mean over seeds or for each seed."""
    places, ended = range(run.sizes["seed"]), statuses(run)
    rows: Rows = []
    for some in [[place] for place in places] if each_seed else [list(places)]:
        row: dict[str, Any] = {"seed": int(run["seed"].values[some[0]])} if each_seed else {}
        row["status"] = ", ".join(dict.fromkeys(ended[place] for place in some if place < len(ended)))
        if marked := _not_finite(run.isel(seed=some)) if each_seed else str(run.attrs.get("nonfinite", "")):
            row["status"] += f"; not finite: {marked}"
        row["time"] = float(run["time"].values[-1])
        rows.append(row | last_values(run.isel(seed=some) if each_seed else run))
    return rows


def _not_finite(run: xr.Dataset) -> str:
    numbers = {str(name): one.values for name, one in run.data_vars.items() if one.dtype.kind in "fc"}
    return ", ".join(name for name, values in numbers.items() if not np.isfinite(values).all())


def last_values(run: xr.Dataset) -> dict[str, float]:
    """Return the last value of every quantity that is one number per seed, as a mean over seeds."""
    scalars = (("seed", "time"), ("seed",))
    ends = {str(name): run.variables[name].values for name in run if run.variables[name].dims in scalars}
    return {name: float(np.mean(values[:, -1] if values.ndim == 2 else values)) for name, values in ends.items()}


def _settings(run: xr.Dataset) -> dict[str, Any]:
    recipe = recipe_table(run.attrs.get("recipe"))
    found: dict[str, Any] = {}
    for name, value in recipe.items():
        if name == "probes":
            found[name] = ", ".join(probe_names(recipe))
        elif name != "name":
            named = name in ("data", "network", "flow") and isinstance(value, str)
            found |= by_field({"kind": value} if named else value, name)
    return {name: json.dumps(value) if isinstance(value, list) else value for name, value in found.items()}


# ---------------------------------------------------------------- as text


def as_csv(rows: Rows) -> str:
    """Return rows as CSV, with all digits; what a run does not have is an empty cell, and what is not finite is nan."""
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return buffer.getvalue()


def as_plain(rows: Rows) -> Rows:
    """Return rows that JSON can hold: a value that is not finite becomes None."""

    def plain(value: Any) -> Any:
        return finite_or_none(value) if isinstance(value, float) else value

    return [{name: plain(value) for name, value in row.items()} for row in rows]
