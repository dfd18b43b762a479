"""Files: the cache folder, writing so that a file appears whole or not at all, digests, and recipes as stored."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from unlazy._errors import UserError

CACHE = "UNLAZY_CACHE"


def cache() -> Path:
    """Give the folder that the environment variable ``UNLAZY_CACHE`` names, or the user's cache folder."""
    chosen = os.environ.get(CACHE)
    if chosen:
        return Path(chosen).expanduser()
    import pooch

    return Path(pooch.os_cache("unlazy"))


@contextlib.contextmanager
def atomic_write(path: Path) -> Iterator[Path]:
    """Give a temporary file to write, which replaces ``path`` once it is complete and on the disk.

    The temporary name is unique to this call, so that several processes can write the same file; the last one wins.
    If the block raises, ``path`` stays as it was and the temporary file is removed.
    """
    temporary = path.with_name(f".{path.name[:200]}.{os.getpid()}.{secrets.token_hex(4)}.part")
    try:
        yield temporary
        with open(temporary, "rb+") as file:
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink()


def sha256(path: Path | str) -> str:
    """Give the SHA-256 digest of a file, in hexadecimal digits."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextlib.contextmanager
def writing(what: str, where: Path, advice: str) -> Iterator[None]:
    """Turn what the operating system says of a failed write into a sentence."""
    try:
        yield
    except OSError as error:
        raise UserError(f"{what} cannot be written to '{where}' ({reason(error)}): {advice}.") from None


def writable(folder: Path, what: str, option: str) -> None:
    """Create a folder, and raise a `UserError` if nothing can be written there."""
    with writing(what, folder, f"choose another {option}"):
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / f".writable-{os.getpid()}-{secrets.token_hex(4)}"
        probe.touch()
        probe.unlink()


def reason(error: Exception) -> str:
    """Give the operating system's own short explanation of an error."""
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


def recipe_table(recipe: Any) -> dict[str, Any]:
    """Read a recipe as it is stored, in JSON; empty where there is none, as for a run that was made in Python."""
    try:
        table = json.loads(recipe or "{}")
    except (TypeError, ValueError):
        return {}
    return table if isinstance(table, dict) else {}


def probe_names(table: Mapping[str, Any]) -> list[str]:
    """Give the names of a recipe's probes in its results."""
    probes = table.get("probes")
    found = [one if isinstance(one, str) else one.get("as", one.get("kind")) for one in probes or () if one]
    return list(map(str, found))
