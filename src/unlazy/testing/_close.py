"""Comparison of arrays with a sentence where they differ."""

from __future__ import annotations

from typing import Any

import numpy as np


def close(found: Any, wanted: Any, rel: float, absolute: float, what: str) -> None:
    """Assert that |found - wanted| <= absolute + rel |wanted| everywhere, with ``what`` as the message."""
    one, other = np.asarray(found, float), np.asarray(wanted, float)
    assert one.shape == other.shape, f"{what}: shapes {one.shape} and {other.shape} differ."
    apart = np.abs(one - other) - absolute - rel * np.abs(other)
    if not np.all(apart <= 0):  # NaN is not close to anything
        worst = int(np.argmax(np.where(np.isnan(apart), np.inf, apart)))
        raise AssertionError(f"{what}: {one.flat[worst]:.6g} is not {other.flat[worst]:.6g} within {rel:g}.")
