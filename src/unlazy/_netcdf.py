"""Write and read labelled arrays as netCDF-4, straight through HDF5: a tenth of the time of general libraries.

The file is what the netCDF library, h5netcdf and xarray write and read: variables with dimension scales attached. See
https://docs.unidata.ucar.edu/netcdf-c/current/file_format_specifications.html for the conventions.

A file ends with the SHA-256 digest of all bytes before it, which HDF5 ignores: it knows where its own data end. The
digest is checked before anything else, because HDF5 may crash or never return on a damaged file.
"""

from __future__ import annotations

import hashlib
import mmap
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import h5py
import numpy as np

if TYPE_CHECKING:
    import xarray as xr

_h5: Any = h5py  # type checkers do not know its low-level modules
_CONVENTIONS = {"CLASS", "NAME", "DIMENSION_LIST", "REFERENCE_LIST", "_FillValue"}  # attributes of the format itself
_MARK = b"unlazy=sealed"  # in files that end with a digest, and not in those of older versions and other programs
_UNREAD = {b"REFERENCE_LIST", b"_Netcdf4Dimid", b"_Netcdf4Coordinates", b"_NCProperties"}
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


def is_whole(path: Path) -> bool | None:
    """Whether a file ends with the digest of what comes before; None if it was written without one.

    Parameters
    ----------
    path
        The file.
    """
    with open(path, "rb") as file:
        if not path.stat().st_size:
            return None
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content, memoryview(content) as view:
            if content.find(_MARK) < 0:
                return None
            return hashlib.sha256(view[:-32]).digest() == content[-32:]


def read_attributes(path: Path, names: Iterable[str]) -> dict[str, Any]:
    """Return some attributes of a file that ends with the right digest, and none of any other file.

    Parameters
    ----------
    path, names
        The file and the names of attributes; those that it has not are left out.
    """
    if not is_whole(path):
        return {}
    with h5py.File(path, "r") as file:
        return {name: file.attrs[name] for name in names if name in file.attrs}


def read(path: Path, inspect: Callable[[str, Any], None] = lambda name, stored: None) -> xr.Dataset:
    """Read a netCDF-4 file of arrays of numbers in one group, as xarray reads it.

    Parameters
    ----------
    path
        The file.
    inspect
        Called with the name and the identifier of each array and attribute, before anything of it is read. Instead of a
        link it is given None.
    """
    import xarray as xr

    # By HDF5's own functions: those of h5py take four times as long, which matters for a thousand files.
    with h5py.File(path, "r") as file:
        group, arrays = file.id, {}
        for name in map(str, file):
            link = group.links.get_info(name.encode()).type
            arrays[name] = _h5.h5o.open(group, name.encode()) if link == _h5.h5l.TYPE_HARD else None
            inspect(name, arrays[name])
        variables, coordinates = {}, {}
        for name, stored in arrays.items():
            known = _entries(stored, inspect)
            # By attributes: HDF5's functions for dimension scales abort the process on some damaged files.
            scale = _word(known.get("CLASS")) == b"DIMENSION_SCALE"
            if scale and _word(known.get("NAME")).startswith(_NO_VARIABLE.partition("{")[0].encode()):
                continue
            scales = [] if scale else known.get("DIMENSION_LIST", [])
            dimensions = [name] if scale else [_name(_h5.h5r.dereference(one[0], group)) for one in scales]
            attributes = _attributes(known)
            truth = attributes.pop("dtype", None) == "bool"
            values = np.empty(stored.shape, stored.dtype)
            stored.read(_h5.h5s.ALL, _h5.h5s.ALL, values)
            values = values.astype(stored.dtype.newbyteorder("="))
            found = (dimensions, values.astype(bool) if truth else values, attributes)
            (coordinates if scale else variables)[name] = found
        return xr.Dataset(variables, coordinates, _attributes(_entries(group, inspect)))


def _word(value: Any) -> bytes:
    return b"" if value is None else bytes(np.ravel(value)[0])


def _name(stored: Any) -> str:
    return _h5.h5i.get_name(stored).decode().rpartition("/")[2]


def _entries(stored: Any, inspect: Callable[[str, Any], None]) -> dict[str, np.ndarray]:
    """Return all attributes that matter as arrays; texts are bytes."""
    names: list[bytes] = []
    _h5.h5a.iterate(stored, lambda name, *_: names.append(name), index_type=h5py.h5.INDEX_CRT_ORDER)
    found = {}
    for name in names:
        attribute = _h5.h5a.open(stored, name)
        inspect(name.decode(), attribute)
        if name not in _UNREAD:
            found[name.decode()] = values = np.empty(attribute.shape, attribute.dtype)
            attribute.read(values)
    return found


def _attributes(entries: dict[str, np.ndarray]) -> dict[str, Any]:
    """Return attributes as xarray does: a single entry as itself, several strings as a list."""
    found: dict[str, Any] = {}
    for name, values in entries.items():
        if name not in _CONVENTIONS:
            plain = [one.decode() if isinstance(one, bytes) else one for one in np.ravel(values)]
            several = plain if values.dtype.kind in "OS" else values
            found[name] = plain[0] if len(plain) == 1 else several
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
