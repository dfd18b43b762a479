"""Reading stored runs. Nothing here needs JAX, so that a table of a thousand runs does not wait for it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import xarray as xr

from unlazy._errors import UserError, skip
from unlazy._files import CHECKSUM, checksum
from unlazy._terminal import bar

_OF_HDF5 = {"CLASS", "NAME", "DIMENSION_LIST", "REFERENCE_LIST", "_FillValue"}  # attributes that are not the run's own
_NO_VARIABLE = b"This is a netCDF dimension but not a netCDF variable"
_MORE_THAN_FILE = 64 * 2**20  # bytes by which the arrays of a stored run may exceed the file, which is not compressed
_LONGEST = 100_000  # entries of an attribute
_NOT_WHOLE = (OSError, ValueError, KeyError, RuntimeError, TypeError, AttributeError, MemoryError)


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
        run = _quick(path)
        if run is None:
            with xr.open_dataset(path, engine="h5netcdf") as stored:
                run = stored.load()
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


def _quick(path: Path) -> xr.Dataset | None:
    """Read a run several times as fast as xarray does; None if its checksum is not that of what was read.

    That is so if the file is damaged, or has anything that is not read here. xarray then finds out which.
    """
    size = path.stat().st_size
    try:
        with h5py.File(path, "r") as file:
            found: dict[str, Any] = {}
            for name in map(str, file):
                if not isinstance(file.get(name, getlink=True), h5py.HardLink):  # it may be in another file
                    return None
                item = file[name]
                if not isinstance(item, h5py.Dataset) or _is_large(item, size):
                    return None
                if not item.attrs.get("NAME", b"").startswith(_NO_VARIABLE):
                    found[name] = (_dimensions(file, name, item), item[()], _attributes(item))
            run = xr.Dataset(found, attrs=_attributes(file))
        return run if run.attrs.get(CHECKSUM) == checksum(run) else None
    except _NOT_WHOLE:
        return None


def _dimensions(file: h5py.File, name: str, item: h5py.Dataset) -> list[str]:
    scales = item.attrs.get("DIMENSION_LIST")
    return [name] if scales is None else [str(file[one[0]].name).removeprefix("/") for one in scales]


def _attributes(item: Any) -> dict[str, Any]:
    own = (name for name in item.attrs if name not in _OF_HDF5 and not name.startswith(("_N", "_nc")))
    return {name: _plain(item.attrs[name]) for name in own}


def _plain(value: Any) -> Any:
    """Return an attribute as xarray does: an array of text as a list, and an array of one number as the number."""
    if isinstance(value, np.ndarray) and value.dtype.kind == "O":
        return value.tolist()
    return value[0] if isinstance(value, np.ndarray) and value.shape == (1,) else value


def _is_large(item: h5py.Dataset, size: int) -> bool:
    """Whether an array is in another file, or is declared to be much larger than its file is."""
    return bool(item.external or item.is_virtual or item.nbytes > 1100 * size)
