"""Files: the cache folder, and writing so that a file appears whole or not at all."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator
from pathlib import Path

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


def writable(folder: Path, what: str, option: str) -> None:
    """Create a folder, and raise a `UserError` if nothing can be written there."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / f".writable-{os.getpid()}-{secrets.token_hex(4)}"
        probe.touch()
        probe.unlink()
    except OSError as error:
        where = f"{what} cannot be written to '{folder}'"
        raise UserError(f"{where} ({reason(error)}): choose another {option}.") from None


def reason(error: Exception) -> str:
    """Give the operating system's own short explanation of an error."""
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
