"""Files: the cache folder, atomic writing, digests, stored recipes, and results as netCDF files."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import secrets
import socket
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unlazy._errors import FullDiskError, UserError, suggest
from unlazy._plain import parse_json, seal

if TYPE_CHECKING:
    import xarray as xr

CACHE = "UNLAZY_CACHE"
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_LEFT_BEHIND = 3600.0  # seconds after which a temporary file is not being written any more
CHECKSUM = "checksum"  # the attribute of a netCDF file that holds its checksum


def cache() -> Path:
    """Return the folder named by the environment variable ``UNLAZY_CACHE``, or the user's cache folder."""
    chosen = os.environ.get(CACHE)
    if chosen:
        return Path(chosen).expanduser()
    import pooch

    return Path(pooch.os_cache("unlazy"))


@contextlib.contextmanager
def atomic_write(path: Path) -> Iterator[Path]:
    """Yield a temporary file to write, which replaces ``path`` once it is complete and on the disk.

    The temporary name is unique to this call, so that several processes can write the same file; the last one wins.
    If the block raises, ``path`` is unchanged and the temporary file is removed. If ``path`` is a symbolic link, the
    link is replaced, and the file that it points to is unchanged.
    """
    with _temporary(path) as temporary:
        yield temporary
        with open(temporary, "rb+") as file:
            os.fsync(file.fileno())
        os.replace(temporary, path)
        _sync(path.parent)


def replace(path: Path, content: bytes) -> None:
    """Write a file atomically."""
    with atomic_write(path) as temporary:
        temporary.write_bytes(content)


def write_sealed(path: Path, content: dict[str, Any]) -> None:
    """Write a table, with its checksum, atomically as a JSON file."""
    replace(path, json.dumps(seal(content), indent=1, ensure_ascii=False).encode())


def write_with_figure(path: Path, content: dict[str, Any], figure: bytes) -> None:
    """Write a table as `write_sealed` does, and beside it an SVG figure that its checksum covers too."""
    replace(path.with_suffix(".svg"), figure)
    write_sealed(path, content | {"figure_sha256": hashlib.sha256(figure).hexdigest()})


def create(path: Path, content: bytes) -> None:
    """Write a file that does not exist yet, and that is complete as soon as it exists.

    If there is one, raise FileExistsError; of several processes that try, one succeeds.
    """
    with _temporary(path) as temporary:
        temporary.write_bytes(content)
        try:
            os.link(temporary, path)
        except FileExistsError:
            raise
        except OSError:  # a file system without links
            with open(path, "xb") as file:
                file.write(content)


@contextlib.contextmanager
def _temporary(path: Path) -> Iterator[Path]:
    """Create a file beside ``path`` for the duration of the block, under a name that no other process uses."""
    unique = f"{_host()}.{os.getpid()}.{secrets.token_hex(4)}"
    temporary = path.with_name(f".{path.name[:40]}.{unique}.part")
    os.close(os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
    try:
        yield temporary
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink()


def _sync(folder: Path) -> None:
    """Wait until the names in a folder are on the disk, where the file system can do that."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _host() -> str:
    return hashlib.sha256(socket.gethostname().encode()).hexdigest()[:8]


def clean(folder: Path) -> None:
    """Remove temporary files that processes left behind which were killed while they wrote."""
    import psutil

    for path in folder.glob(".*.part"):
        host, process = ("", *path.name.split("."))[-4:-2]
        ended = host == _host() and process.isdecimal() and not psutil.pid_exists(int(process))
        with contextlib.suppress(OSError):
            if ended or time.time() - path.lstat().st_mtime > _LEFT_BEHIND:
                path.unlink()


def sha256(path: Path | str) -> str:
    """Return the SHA-256 digest of a file, in hexadecimal digits."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextlib.contextmanager
def writing(what: str, where: Path, advice: str) -> Iterator[None]:
    """Turn an error of the operating system in a write into a `UserError`."""
    try:
        yield
    except OSError as error:
        kind = FullDiskError if error.errno in _FULL else UserError
        raise kind(f"{what} cannot be written to '{where}' ({reason(error)}): {advice}.") from None


def writable(folder: Path, what: str, option: str) -> None:
    """Create a folder, and raise a `UserError` if nothing can be written there."""
    with writing(what, folder, f"choose another {option}"):
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / f".writable-{os.getpid()}-{secrets.token_hex(4)}"
        probe.touch()
        probe.unlink()


def reason(error: Exception) -> str:
    """Return the operating system's own short explanation of an error."""
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


# ---------------------------------------------------------------- stored recipes and results


def recipe_table(recipe: Any) -> dict[str, Any]:
    """Parse a recipe stored as JSON; return an empty table if there is none, as for a run that was made in Python."""
    try:
        table = parse_json(recipe or "{}")
    except (TypeError, ValueError):
        return {}
    return table if isinstance(table, dict) else {}


def probe_names(table: Mapping[str, Any]) -> list[str]:
    """Return the names of a recipe's probes in its results."""
    probes = table.get("probes")
    found = [one if isinstance(one, str) else one.get("as", one.get("kind")) for one in probes or () if one]
    return list(map(str, found))


def by_field(node: Any, name: str) -> dict[str, Any]:
    """Return the values in a part of a recipe by the dotted names of their fields; ``name`` is that of the part."""
    if not isinstance(node, dict):
        return {name: node}
    return {field: leaf for part, one in node.items() for field, leaf in by_field(one, f"{name}.{part}").items()}


def is_part(name: str, probe: str) -> bool:
    """Whether a variable is what a probe observed, or a part of it, as ``kernel.drift`` is of ``kernel``."""
    return name == probe or name.startswith(f"{probe}.")


def parts_of(probes: Iterable[str], known: Sequence[str], missing: str) -> list[str]:
    """Return those of the ``known`` variables that belong to some probes, probe by probe.

    If a probe has none, raise a `UserError` whose sentence begins with ``missing``.
    """
    found: dict[str, None] = {}
    for probe in probes:
        of_probe = [name for name in known if is_part(name, probe)]
        if not of_probe:
            raise UserError(f"{missing} '{probe}'. {suggest(probe, known)}")
        found |= dict.fromkeys(of_probe)
    return list(found)


def labelled(run: xr.Dataset, probes: Mapping[str, Any] | None = None) -> xr.Dataset:
    """Add a ``long_name`` and, where they are known, ``units`` to every variable.

    Parameters
    ----------
    run
        A result with variables named after probes, such as ``train-loss`` or ``kernel.drift``.
    probes
        The probes by name. A probe may have attributes ``long_name`` and ``units``: a string, or a mapping from the
        parts of what it returns to strings.
    """
    run = run.copy()  # of the attributes, not of the arrays
    for name in map(str, run.data_vars):
        label, _, part = name.partition(".")
        attributes = {"long_name": in_words(name)}
        for attribute in ("long_name", "units"):
            given = getattr((probes or {}).get(label), attribute, None)
            given = given.get(part) if isinstance(given, Mapping) else given
            if given and isinstance(given, str):
                attributes[attribute] = given
        run.variables[name].attrs |= attributes
    for name in {"time", "seed"} & set(run.coords):
        run.variables[name].attrs |= {"long_name": name}
    return run


def in_words(name: str) -> str:
    """Return the name of a variable in words: ``kernel.drift_operator`` becomes ``kernel: drift operator``."""
    return name.replace("-", " ").replace("_", " ").replace(".", ": ", 1).replace(".", " ")


def write(run: xr.Dataset, path: Path) -> Path:
    """Write a result and its checksum atomically as a netCDF file."""
    run = run.assign_attrs({CHECKSUM: checksum(run)})
    from unlazy import _netcdf

    whole = _netcdf.to_bytes(run)
    with writing("The result", path, "free some space, or choose another place"):
        path.parent.mkdir(parents=True, exist_ok=True)
        replace(path, whole)
    return path


def checksum(run: xr.Dataset) -> str:
    """Return the SHA-256 digest of all arrays and attributes, which does not depend on how they are stored."""
    import numpy as np

    def attributes(given: Mapping[Any, Any]) -> bytes:  # a list of one comes back from netCDF as its element
        plain = {str(name): np.atleast_1d(value).tolist() for name, value in given.items() if name != CHECKSUM}
        return json.dumps(plain, sort_keys=True).encode()

    total = hashlib.sha256()
    for name in sorted(map(str, run.variables)):
        variable = run.variables[name]
        values = np.ascontiguousarray(variable.values)
        values = values.astype(values.dtype.newbyteorder("<"))
        total.update(f"{name} {variable.dims} {values.dtype.str} {values.shape}".encode())
        total.update(attributes(variable.attrs) + values.tobytes())
    total.update(attributes(run.attrs))
    return total.hexdigest()
