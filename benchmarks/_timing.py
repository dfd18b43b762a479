"""How benchmarks take time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any


def best_of(repeats: int, work: Callable[[], Any]) -> tuple[float, Any]:
    """Shortest of several times, after one round that compiles and warms up."""
    work()
    times = []
    for _ in range(repeats):
        begun = time.perf_counter()
        result = work()
        times.append(time.perf_counter() - begun)
    return min(times), result
