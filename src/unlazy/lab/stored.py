"""Reading stored runs. Nothing here needs JAX, so that a table of a thousand runs does not wait for it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import xarray as xr

from unlazy import _netcdf
from unlazy._errors import UserError, skip
from unlazy._files import CHECKSUM, checksum
from unlazy._terminal import bar

_MORE_THAN_FILE = 64 * 2**20  # bytes by which the arrays of a stored run may exceed the file, which is not compressed
_LONGEST = 100_000  # entries of an attribute


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
        if _netcdf.is_whole(path) is False:
            raise UserError(f"'{path}' is cut short or damaged (checksum): {again}")
        run = _netcdf.read(path, _Inspection(path))
    except FileNotFoundError:
        raise UserError(f"There is no stored run at '{path}': give a file (.nc) in a folder of results.") from None
    except UserError:
        raise
    except Exception as error:  # whatever libraries raise on a damaged file
        kind = "is cut short or damaged" if h5py.is_hdf5(path) else "is not a stored run, or damaged in its first bytes"
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
        variable = run.variables[name] if name in run.coords else None
        values = np.zeros(0) if variable is None else variable.values
        if variable is None or not values.size or variable.dims != (name,):
            return f"it has no coordinate '{name}'"
        if values.dtype.kind not in "iuf" or not np.isfinite(values).all():
            return f"the coordinate '{name}' is not finite numbers"
    for name, values in run.data_vars.items():
        if values.dtype.kind not in "biufc" or "seed" not in values.dims:
            return f"'{name}' is not numbers for each seed"
    seconds = run.attrs.get("seconds", 0.0)
    if not isinstance(seconds, int | float | np.number) or not np.isfinite(seconds):
        return "its seconds are not a number"
    return ""


class _Inspection:
    """Refuses a file that reaches other files, or that asks for more memory than its own size and 64 MiB.

    Stored runs are arrays of numbers in one group, not compressed. External storage, virtual arrays and links could
    read any file; arrays that are declared but not stored, or compressed, could ask for any amount of memory.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.room = path, path.stat().st_size + _MORE_THAN_FILE

    def __call__(self, name: str, stored: Any) -> None:
        """Check one array or attribute."""
        if isinstance(stored, h5py.h5a.AttrID):
            if math.prod(stored.shape) > _LONGEST:
                raise self._refusal(name, "is an attribute of too many entries")
            return
        if stored is None:
            raise self._refusal(name, "is a link")
        if not isinstance(stored, h5py.h5d.DatasetID) or stored.dtype.kind == "O":
            raise self._refusal(name, "is not an array of numbers")
        plan, size = stored.get_create_plist(), stored.dtype.itemsize
        if plan.get_external_count() or plan.get_layout() == h5py.h5d.VIRTUAL:
            raise self._refusal(name, "is stored in another file")
        chunk = plan.get_chunk() if plan.get_layout() == h5py.h5d.CHUNKED else (0,)
        self.room -= size * max(math.prod(stored.shape), math.prod(chunk))
        if self.room < 0:
            raise self._refusal(name, "asks for much more memory than the file has bytes")

    def _refusal(self, name: str, what: str) -> UserError:
        where = f"'{self.path}' is refused: '{name}' {what}"
        return UserError(f"{where}, which no run stored by unlazy does: move it away.")


def read_runs(paths: Iterable[Path]) -> Iterator[tuple[Path, xr.Dataset]]:
    """Yield stored runs one by one; those that cannot be read are left out with a warning that names them."""
    chosen = list(paths)
    with bar(None, "runs read: ") as tell:
        for count, path in enumerate(chosen):
            tell(count / len(chosen), count)
            try:
                run = read_run(path)
            except UserError as error:
                skip(error)
            else:
                yield path, run


def newest(folder: Path, most: int) -> list[Path]:
    """Return the stored runs of a folder that were written last, the newest first."""

    def age(path: Path) -> float:
        try:
            return -path.stat().st_mtime
        except OSError:  # it has just been replaced
            return math.inf

    return sorted(folder.glob("*.nc"), key=age)[:most]


def statuses(run: xr.Dataset) -> list[str]:
    """Return the status with which each seed of a stored run ended."""
    return [str(one) for one in np.atleast_1d(run.attrs.get("status", [])).tolist()]
