"""Progress: a bar on the terminal once a run has taken two seconds, or whatever the caller listens with."""

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

Progress = Callable[[float, float], None]  # (share done, time reached)

_PATIENCE_SECONDS = 2.0


def silent(share: float, clock: float) -> None:
    """Listen to progress and say nothing."""


@contextlib.contextmanager
def bar(listener: Progress | None) -> Iterator[Progress]:
    """Give ``listener`` back, or a Rich bar that appears on a terminal once the work is seen to take long."""
    if listener is not None:
        yield listener
        return
    if not sys.stderr.isatty():
        yield silent
        return
    begun, shown = time.perf_counter(), None

    def report(share: float, clock: float) -> None:
        nonlocal shown
        if shown is None and time.perf_counter() - begun > _PATIENCE_SECONDS and share < 1:
            shown = _rich_bar()
            shown.start()
            shown.add_task("flow", total=1.0)
        if shown is not None:
            shown.update(shown.task_ids[0], completed=share, description=f"t = {clock:g}")

    try:
        yield report
    finally:
        if shown is not None:
            shown.stop()


def _rich_bar() -> Any:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:3.0f} %"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    )
