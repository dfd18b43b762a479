"""Reading stored runs. Nothing here needs JAX, so that a table of a thousand runs does not wait for it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from pathlib import Path

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
        if not _netcdf.is_whole(path):
            raise UserError(f"'{path}' is cut short or damaged (checksum): {again}")
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


def read_runs(paths: Iterable[Path]) -> Iterator[tuple[Path, xr.Dataset]]:
    """Yield stored runs one by one; those that cannot be read are left out with a warning that names them.

    Parameters
    ----------
    paths
        Files (.nc) of a store. On a terminal, a progress bar appears if reading them takes long.
    """
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


def statuses(run: xr.Dataset) -> list[str]:
    """Return the status with which each seed of a stored run ended."""
    return [str(one) for one in np.atleast_1d(run.attrs.get("status", [])).tolist()]
