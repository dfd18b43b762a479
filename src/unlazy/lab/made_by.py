"""The provenance of a result: versions, commit and machine; and whether it was computed by this code."""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import os
import platform
import subprocess
import time
import warnings
from pathlib import Path
from typing import Any

from unlazy._errors import Notice

_LIBRARIES = ("unlazy", "jax", "jaxlib", "equinox", "diffrax", "optax", "numpy", "scipy")
_ELSEWHERE = {"lab", "cli", "report", "figures", "testing"}  # packages of unlazy on which no result depends


_version = functools.cache(importlib.metadata.version)


class OtherCode(Notice):
    """A stored result was computed by another version of unlazy."""


def provenance() -> dict[str, str]:
    """Return the versions, commit, device and machine that compute results now."""
    import jax

    return {
        "versions": ", ".join(f"{name} {_version(name)}" for name in _LIBRARIES),
        "python": platform.python_version(),
        "commit": _commit(),
        "code": _code(),
        "device": ", ".join(sorted({device.device_kind for device in jax.devices()})),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "written": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }


def is_current(made_by: dict[str, Any]) -> bool:
    """Whether this version of unlazy, with this source, made a result."""
    now = provenance()
    return all(_first(made_by, name) == _first(now, name) for name in ("versions", "code"))


def warn_if_other(name: str, made_by: dict[str, Any]) -> None:
    """Warn, in one sentence, if another version or commit of unlazy made a result."""
    if not is_current(made_by):
        then, now = _described(made_by), _described(provenance())
        warnings.warn(
            f"'{name}' was computed by {then}, and this is {now}: --fresh (in Python, fresh=True) computes it again.",
            OtherCode,
            stacklevel=2,
        )


def _first(made_by: dict[str, Any], name: str) -> str:
    """Return the entry; of the versions only that of unlazy."""
    return str(made_by.get(name, "unknown")).partition(",")[0]


def _described(made_by: dict[str, Any]) -> str:
    version, commit, code = _first(made_by, "versions"), made_by.get("commit", "unknown"), _first(made_by, "code")
    return f"{version} (commit {commit}, source {code})"


@functools.cache
def _code() -> str:
    """Return a digest of the source on which results depend."""
    root, total = Path(__file__).parents[1], hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        place = path.relative_to(root)
        if place.parts[0] not in _ELSEWHERE:
            total.update(str(place).encode() + hashlib.sha256(path.read_bytes()).digest())
    return total.hexdigest()[:12]


@functools.cache
def _commit() -> str:
    """Return the commit of this file, if it is itself under version control and not just inside another project."""
    here = Path(__file__).parent
    ask = functools.partial(subprocess.run, cwd=here, capture_output=True, text=True, timeout=5, check=True)
    try:
        ask(["git", "ls-files", "--error-unmatch", Path(__file__).name])
        head = ask(["git", "rev-parse", "--short=12", "HEAD"]).stdout.strip()
        return head + (" (changed)" if ask(["git", "status", "--porcelain", "--", "."]).stdout.strip() else "")
    except (OSError, subprocess.SubprocessError):
        return "unknown"
