"""The persistent cache of compiled code, so that a second process does not compile what a first one has compiled."""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import warnings
from pathlib import Path

from unlazy._errors import Notice
from unlazy._files import cache, reason, writable

VARIABLE = "UNLAZY_COMPILE_CACHE"
SIZE = "UNLAZY_COMPILE_CACHE_MIB"
GARBAGE = 10_000  # new objects between two searches for garbage: tracing makes many, and searches took 7 % of a sweep
_MIB = 1024  # the most that is stored, unless the variable says otherwise
_LEFT = 0.8  # how much of that is left after old entries were deleted
_used: set[str] = set()


def use_cache() -> Path | None:
    """Let JAX keep compiled code in the user's cache folder, and return that folder.

    The environment variable ``UNLAZY_COMPILE_CACHE`` names another folder, or is ``off``. A setting of JAX itself, such
    as the variable ``JAX_COMPILATION_CACHE_DIR``, is left alone. Processors have a folder each, and JAX distinguishes
    its own versions and flags. A cache that cannot be used is ignored, with a notice. If there are more than 1024 MiB,
    or ``UNLAZY_COMPILE_CACHE_MIB``, when a process begins, it deletes what has not been used for the longest time.
    """
    import jax

    chosen = os.environ.get(VARIABLE, "")
    if chosen.lower() in ("off", "0", "no", "none") or jax.config.jax_compilation_cache_dir:  # pyright: ignore[reportAttributeAccessIssue]
        return None
    folder = (Path(chosen).expanduser() if chosen else cache() / "compiled") / _processor()
    if str(folder) in _used:
        return folder
    try:
        writable(folder, "Compiled code", VARIABLE)
    except Exception as error:
        advice = f"set {VARIABLE} to a folder, or to off"
        text = f"Compiled code is not stored, because '{folder}' cannot be used ({reason(error)}): {advice}."
        warnings.warn(text, Notice, stacklevel=2)
        return None
    _used.add(str(folder))
    shrink(folder.parent, _limit())
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)  # small pieces are many
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    # A damaged entry, or one that another process is writing, is compiled again, without a warning.
    warnings.filterwarnings("ignore", "Error (reading|writing) persistent compilation cache entry", UserWarning)
    return folder


def _limit() -> float:
    """Return the largest size in bytes."""
    given = os.environ.get(SIZE, "")
    try:
        chosen = float(given or _MIB)
        if not chosen >= 0:
            raise ValueError
    except ValueError:
        warnings.warn(f"{SIZE} = '{given}' is not a number of MiB: {_MIB} is used.", Notice, stacklevel=3)
        chosen = _MIB
    return chosen * 2**20


def shrink(folder: Path, limit: float) -> None:
    """Delete compiled code that has not been used for the longest time, if there is too much of it.

    JAX's own limit (``jax_compilation_cache_max_size``) reads the whole folder again for each new entry, behind a lock
    that all processes share, and stops storing anything once an entry has no time of access.

    Parameters
    ----------
    folder
        The folder, with a folder for each kind of processor.
    limit
        The largest size in bytes. If there is more, 80 % of that are left.
    """
    entries: list[tuple[float, int, Path]] = []
    for path in folder.glob("*/*-cache"):
        with contextlib.suppress(OSError):  # another process has just deleted it
            found = path.stat()
            entries.append((max(found.st_atime, found.st_mtime), found.st_size, path))
    size = sum(one for _, one, _ in entries)
    if size <= limit:
        return
    for _, one, path in sorted(entries):
        if size <= _LEFT * limit:
            break
        with contextlib.suppress(OSError):
            path.unlink()
        size -= one


def _processor() -> str:
    """Return a digest of the kind of processor, with the instructions that it knows."""
    kind = [platform.machine(), platform.processor()]
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
        kind += sorted({line for line in lines if line.startswith(("flags", "Features", "model name"))})
    except OSError:  # not Linux
        pass
    return f"{platform.machine() or 'cpu'}-{hashlib.sha256(' '.join(kind).encode()).hexdigest()[:12]}"
