"""Write and read labelled arrays as netCDF-4, straight through HDF5: a tenth of the time of general libraries.

The file is what the netCDF library, h5netcdf and xarray write and read: variables with dimension scales attached. See
https://docs.unidata.ucar.edu/netcdf-c/current/file_format_specifications.html for the conventions.

A file ends with the SHA-256 digest of all bytes before it, which HDF5 ignores: it knows where its own data end. The
digest is checked before anything else, because HDF5 may crash or never return on a damaged file.
"""

from __future__ import annotations

import hashlib
import mmap
from pathlib import Path
from typing import TYPE_CHECKING, Any

import h5py
import numpy as np

if TYPE_CHECKING:
    import xarray as xr

_CONVENTIONS = {"CLASS", "NAME", "DIMENSION_LIST", "REFERENCE_LIST", "_FillValue"}  # attributes of the format itself
_MARK = b"unlazy=sealed"  # in files that end with a digest, and not in those of older versions and other programs
_NO_VARIABLE = "This is a netCDF dimension but not a netCDF variable. {:>10}"


def to_bytes(run: xr.Dataset) -> bytes:
    """Return the contents of a netCDF-4 file.

    Parameters
    ----------
    run
        Arrays of numbers, with attributes that are strings, numbers or lists of one of them. It is made in memory: on a
        full disk HDF5 does not fail, it crashes.
    """
    with h5py.File("run.nc", "w", driver="core", backing_store=False, track_order=True) as file:
        file.attrs["_NCProperties"] = np.bytes_(f"version=2,h5py={h5py.__version__},{_MARK.decode()}")
        numbers = {str(name): place for place, name in enumerate(run.sizes)}
        for name, place in numbers.items():
            if name in run.variables:
                scale, title = file.create_dataset(name, data=_plain(run[name].values)), name
            else:
                size = run.sizes[name]
                scale, title = file.create_dataset(name, (size,), ">f4"), _NO_VARIABLE.format(size)
            scale.make_scale(title)
            scale.attrs["_Netcdf4Dimid"] = np.int32(place)
        for name in map(str, run.variables):
            variable = run.variables[name]
            if name not in numbers:
                stored = file.create_dataset(name, data=_plain(variable.values))
                for axis, dimension in enumerate(variable.dims):
                    stored.dims[axis].attach_scale(file[str(dimension)])
                stored.attrs["_Netcdf4Dimid"] = np.int32(numbers[str(variable.dims[0])] if variable.dims else 0)
                stored.attrs["_Netcdf4Coordinates"] = np.asarray([numbers[str(one)] for one in variable.dims], np.int32)
            # Truth values are stored as xarray stores them.
            _describe(file[name], variable.attrs | ({"dtype": "bool"} if variable.dtype == bool else {}))
        _describe(file, run.attrs)
        file.flush()
        return sealed(file.id.get_file_image())


def sealed(content: bytes) -> bytes:
    """Return the contents of a file with their digest at the end."""
    return content + hashlib.sha256(content).digest()


def is_whole(path: Path) -> bool:
    """Whether a file ends with the digest of what comes before, or was written without one.

    Parameters
    ----------
    path
        The file.
    """
    with open(path, "rb") as file:
        if not path.stat().st_size:
            return True
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content, memoryview(content) as view:
            if content.find(_MARK) < 0:
                return True
            return hashlib.sha256(view[:-32]).digest() == content[-32:]


def read(path: Path) -> xr.Dataset:
    """Read a netCDF-4 file of arrays of numbers in one group, as xarray reads it.

    Parameters
    ----------
    path
        The file.
    """
    import xarray as xr

    with h5py.File(path, "r") as file:
        variables, coordinates = {}, {}
        for name, stored in file.items():
            attributes = _attributes(stored)
            # By attributes: HDF5's own functions for dimension scales abort the process on some damaged files.
            scale = np.bytes_(stored.attrs.get("CLASS", b"")) == b"DIMENSION_SCALE"
            if scale and np.bytes_(stored.attrs.get("NAME", b"")).startswith(_NO_VARIABLE.partition("{")[0].encode()):
                continue
            scales = [] if scale else stored.attrs.get("DIMENSION_LIST", [])
            dimensions = [name] if scale else [str(file[one[0]].name).rpartition("/")[2] for one in scales]
            truth = attributes.pop("dtype", None) == "bool"
            values = np.asarray(stored[()]).astype(stored.dtype.newbyteorder("="))
            found = (dimensions, values.astype(bool) if truth else values, attributes)
            (coordinates if scale else variables)[name] = found
        return xr.Dataset(variables, coordinates, _attributes(file))


def _attributes(stored: Any) -> dict[str, Any]:
    """Return attributes as xarray does: a single entry as itself, several strings as a list."""
    found = {}
    for name in stored.attrs:
        if name not in _CONVENTIONS and not name.startswith(("_Netcdf4", "_NC")):
            value = stored.attrs[name]
            if isinstance(value, np.ndarray) and value.dtype.kind == "O":
                value = list(value)
            single = np.size(value) == 1 and not isinstance(value, str | bytes)
            value = np.ravel(value)[0] if single else value
            value = value.decode() if isinstance(value, bytes) else value
            found[name] = str(value) if isinstance(value, str) else value
    return found


def _plain(values: np.ndarray) -> np.ndarray:
    return values.astype(np.int8) if values.dtype == bool else values


def _describe(stored: Any, attributes: Any) -> None:
    for name, value in attributes.items():
        if isinstance(value, str):
            stored.attrs.create(name, value, dtype=h5py.string_dtype())
        elif isinstance(value, list | tuple) and value and isinstance(value[0], str):
            stored.attrs.create(name, np.asarray(value, object), dtype=h5py.string_dtype())
        else:
            stored.attrs.create(name, np.atleast_1d(value))
