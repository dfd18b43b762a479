"""How much memory there is, and an error before something is allocated that does not fit."""

from __future__ import annotations

import jax
import psutil

from unlazy._errors import UserError

GIB = 2.0**30


def available() -> float:
    """Bytes that this process can still get on the device where arrays live."""
    known = jax.devices()[0].memory_stats() or {}
    if "bytes_limit" in known:
        return float(known["bytes_limit"] - known.get("bytes_in_use", 0))
    return float(psutil.virtual_memory().available)


def total() -> float:
    """Bytes of the device where arrays live, in use or not: what does not change from run to run."""
    known = jax.devices()[0].memory_stats() or {}
    return float(known.get("bytes_limit", psutil.virtual_memory().total))


def must_fit(wanted: float, what: str, advice: str, limit: float | None = None) -> None:
    """Refuse what needs more bytes than there are, before anything is allocated."""
    room, source = (available(), "are free here") if limit is None else (limit, "are allowed by `memory`")
    if wanted > room:
        raise UserError(f"{what} needs about {wanted / GIB:.3g} GiB, but only {room / GIB:.3g} GiB {source}: {advice}.")
