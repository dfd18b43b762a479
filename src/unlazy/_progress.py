"""Progress: a bar on the terminal or in a notebook once a run has taken two seconds, or the caller's own function."""

import contextlib
import sys
import time
from collections.abc import Callable, Iterator

Progress = Callable[[float, float], None]  # (share done, time reached)

_PATIENCE_SECONDS = 2.0
_NOTEBOOK_SECONDS = 0.2  # between two updates of a notebook


def silent(share: float, clock: float) -> None:
    """Listen to progress and say nothing."""


@contextlib.contextmanager
def bar(listener: Progress | None) -> Iterator[Progress]:
    """Give ``listener`` back, or else a bar that appears on a terminal or in a notebook after two seconds."""
    if listener is not None:
        yield listener
        return
    notebook = in_notebook()
    if not notebook and not sys.stderr.isatty():
        yield silent
        return
    begun = time.perf_counter()
    shown: TerminalBar | NotebookBar | None = None

    def report(share: float, clock: float) -> None:
        nonlocal shown
        if shown is None and time.perf_counter() - begun > _PATIENCE_SECONDS and share < 1:
            shown = NotebookBar() if notebook else TerminalBar()
        if shown is not None:
            shown.update(share, clock)

    try:
        yield report
    finally:
        if shown is not None:
            shown.stop()


class TerminalBar:
    """A bar on the terminal that vanishes at the end."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

        columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:3.0f} %"))
        times = (TimeElapsedColumn(), TimeRemainingColumn())
        self.bar = Progress(*columns, *times, console=Console(stderr=True), transient=True)
        self.bar.start()
        self.task = self.bar.add_task("flow", total=1.0)

    def update(self, share: float, clock: float) -> None:
        """Show the share done and the time reached."""
        self.bar.update(self.task, completed=share, description=f"t = {clock:g}")

    def stop(self) -> None:
        """Remove the bar."""
        self.bar.stop()


def in_notebook() -> bool:
    """Whether this process is the kernel of a notebook. IPython is not imported to find out."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return getattr(shell, "kernel", None) is not None


class NotebookBar:
    """A bar in the output of a notebook's cell that vanishes at the end. It needs no widgets."""

    def __init__(self) -> None:
        from IPython.display import HTML, display  # pyright: ignore[reportMissingImports]

        self.html, self.shown = HTML, 0.0
        self.handle = display(HTML("<progress max='1' value='0'></progress>"), display_id=True)

    def update(self, share: float, clock: float) -> None:
        """Show the share done and the time reached."""
        now = time.perf_counter()
        if now - self.shown > _NOTEBOOK_SECONDS:
            self.shown = now
            bar = f"<progress max='1' value='{share:.4f}'></progress>"
            self.handle.update(self.html(f"{bar} {share:.0%}, t = {clock:g}"))

    def stop(self) -> None:
        """Remove the bar."""
        self.handle.update(self.html(""))
