"""Stored runs as rows of a table: settings, and the last value of every probe that observes one number."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from unlazy.lab.store import read_run


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
    text = run.attrs.get("recipe")
    recipe = json.loads(text) if isinstance(text, str) and text else {}
    found: dict[str, Any] = {}
    for name, value in recipe.items():
        if name == "probes":
            found[name] = ", ".join(
                one if isinstance(one, str) else str(one.get("as", one.get("kind"))) for one in value
            )
        elif name in ("data", "network", "flow"):
            found |= _flat({"kind": value} if isinstance(value, str) else value, name)
        elif name != "name":
            found |= _flat(value, name)
    return found


def _flat(value: Any, name: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        return {name: json.dumps(value) if isinstance(value, list) else value}
    return {key: leaf for part, one in value.items() for key, leaf in _flat(one, f"{name}.{part}").items()}


def _status(run: xr.Dataset, part: xr.Dataset) -> str:
    each = dict(zip(run["seed"].values.tolist(), np.atleast_1d(run.attrs["status"]).tolist(), strict=True))
    return ", ".join(dict.fromkeys(each[seed] for seed in part["seed"].values.tolist()))


def _last(run: xr.Dataset) -> dict[str, float]:
    """Give the last value of everything that is one number for each seed, as a mean over seeds."""
    scalars = (("seed", "time"), ("seed",))
    ends = {str(name): values.values for name, values in run.data_vars.items() if values.dims in scalars}
    return {name: float(np.mean(values[:, -1] if values.ndim == 2 else values)) for name, values in ends.items()}
