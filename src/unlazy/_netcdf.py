"""Results as netCDF files: names for their variables, a checksum, and files that appear whole or not at all."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from unlazy._files import atomic_write, writing

CHECKSUM = "checksum"


def labelled(run: xr.Dataset, probes: Mapping[str, Any] | None = None) -> xr.Dataset:
    """Give every variable a ``long_name`` and, where it is known, ``units``.

    Parameters
    ----------
    run
        A result with variables named after probes, such as ``train-loss`` or ``kernel.drift``.
    probes
        The probes by name. A probe may have attributes ``long_name`` and ``units``: a string, or a mapping from the
        parts of what it returns to strings.
    """
    found = {}
    for name in map(str, run.data_vars):
        label, _, part = name.partition(".")
        probe = (probes or {}).get(label)
        attributes = {"long_name": _named(probe, "long_name", part) or spoken(name)}
        units = _named(probe, "units", part)
        found[name] = run[name].assign_attrs(attributes | ({"units": units} if units else {}))
    run = run.assign(found)
    run["time"].attrs |= {"long_name": "time"}
    if "seed" in run.coords:
        run["seed"].attrs |= {"long_name": "seed"}
    return run


def _named(probe: Any, what: str, part: str) -> str:
    given = getattr(probe, what, None)
    given = given.get(part) if isinstance(given, Mapping) else given
    return given if isinstance(given, str) else ""


def spoken(name: str) -> str:
    """Give the name of a variable in words: ``kernel.drift_operator`` becomes ``kernel: drift operator``."""
    return name.replace("-", " ").replace("_", " ").replace(".", ": ", 1).replace(".", " ")


def write(run: xr.Dataset, path: Path) -> Path:
    """Write a result with a checksum. The file appears whole or not at all."""
    run = run.assign_attrs({CHECKSUM: checksum(run)})
    whole = run.to_netcdf(engine="h5netcdf")  # in memory: on a full disk HDF5 does not fail, it crashes
    with writing("The result", path, "free some space, or choose another place"):
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(path) as temporary:
            temporary.write_bytes(whole)
    return path


def checksum(run: xr.Dataset) -> str:
    """Give the SHA-256 digest of all arrays and attributes, in a form that does not depend on how they are written."""
    total = hashlib.sha256()
    for name in sorted(map(str, run.variables)):
        variable = run[name].variable
        values = np.ascontiguousarray(variable.values)
        values = values.astype(values.dtype.newbyteorder("<"))
        total.update(f"{name} {variable.dims} {values.dtype.str} {values.shape}".encode())
        total.update(_attributes(variable.attrs) + values.tobytes())
    total.update(_attributes(run.attrs))
    return total.hexdigest()


def _attributes(attributes: Mapping[Any, Any]) -> bytes:
    # A list of one comes back from netCDF as the one.
    plain = {str(name): np.atleast_1d(value).tolist() for name, value in attributes.items() if name != CHECKSUM}
    return json.dumps(plain, sort_keys=True).encode()
