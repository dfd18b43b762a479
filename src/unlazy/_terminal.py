"""Terminal output: tables, the same rows as JSON, and progress bars on a terminal or in a notebook."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from unlazy._signals import check, note_progress

if TYPE_CHECKING:
    from rich.progress import Progress as Bars

Progress = Callable[[float, float], None]  # (fraction done, time reached)

_PATIENCE_SECONDS = 2.0
_NOTEBOOK_SECONDS = 0.2  # between two updates of a notebook


def print_table(head: list[str], rows: list[list[Any]], least: int | None = None) -> list[str]:
    """Print a table whose cells are text, never markup.

    Parameters
    ----------
    head, rows
        Names of columns, and cells.
    least
        If given, a narrow terminal gets fewer columns, but at least this number of them, and a file or pipe gets
        lines as long as they need to be. Otherwise cells are folded to the width of the terminal.

    Returns
    -------
    list of str
        The names of columns that were left out.
    """
    console, count = Console(), len(head)
    if least is not None:
        widths = [max(len(str(cell)) for cell in column) + 2 for column in zip(head, *rows, strict=True)]
        if console.is_terminal or "COLUMNS" in os.environ:
            while count > least and sum(widths[:count]) > console.width:
                count -= 1
        else:
            console.width = max(console.width, sum(widths))
    table = Table(box=None, header_style="bold", pad_edge=False)
    for column in head[:count]:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*(cell if isinstance(cell, Text) else Text(str(cell)) for cell in row[:count]))
    console.print(table)
    return head[count:]


def print_json(value: Any) -> None:
    """Print plain values as indented JSON."""
    print(json.dumps(value, indent=2, ensure_ascii=False))


def print_rows(rows: list[dict[str, Any]], columns: dict[str, str], as_json: bool) -> None:
    """Print rows as a table with the given columns and headers, or all their entries as JSON."""
    if as_json:
        print_json(rows)
    else:
        print_table(list(columns.values()), [[row[name] for name in columns] for row in rows])


def print_settings(rows: list[dict[str, Any]], hide: bool) -> None:
    """Print rows of one kind as a table, with the columns that are the same in all rows above it, or not at all.

    Parameters
    ----------
    rows
        The rows, all with the same keys.
    hide
        Whether not to print what is the same in all rows.
    """
    same = [name for name in rows[0] if len(rows) > 1 and len({repr(row[name]) for row in rows}) == 1]
    shown = [name for name in rows[0] if name not in same and not (name == "run" and len(rows) > 1)]
    if same and not hide:
        cells = {name: _cell(rows[0][name]) for name in same if rows[0][name] is not None}
        common = ", ".join(f"{name} = {cell if len(cell) <= 60 else f'{cell[:57]}...'}" for name, cell in cells.items())
        Console().print(Text(f"All {len(rows)} rows: {common}", "dim"))
    left_out = print_table(shown, [[_cell(row[name]) for name in shown] for row in rows], least=2)
    if left_out:
        print(f"There is no room for {', '.join(left_out)}: --csv FILE writes all columns.")


def _cell(value: Any) -> str:
    return "" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)


def progress_bars(console: Console | None = None, **options: Any) -> Bars:
    """Return progress bars on a console, or on standard error; each task has a field ``note`` for a few words."""
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    name, note = TextColumn("{task.description}", markup=False), TextColumn("{task.fields[note]}", style="dim")
    shares = BarColumn(bar_width=24), TextColumn("{task.percentage:3.0f} %")
    times = TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn()
    return Progress(name, *shares, *times, note, console=console or Console(stderr=True), **options)


class DownloadBar:
    """A progress bar with the methods that Pooch calls."""

    def __init__(self, name: str) -> None:
        self.name, self.total = name, 0

    def update(self, count: int) -> None:
        """Count bytes that have arrived."""
        check()
        if not hasattr(self, "bars"):
            self.bars = progress_bars()
            self.bars.start()
            self.task = self.bars.add_task(f"Downloading {self.name}", total=self.total or None, note="")
        self.bars.advance(self.task, count)

    def reset(self) -> None:
        """Start again from 0: Pooch counts all bytes once more at the end."""
        if hasattr(self, "bars"):
            self.bars.reset(self.task)

    def close(self) -> None:
        """Remove the bar."""
        if hasattr(self, "bars"):
            self.bars.stop()


@contextlib.contextmanager
def bar(listener: Progress | None, name: str = "t = ") -> Iterator[Progress]:
    """Yield ``listener`` itself, or else a bar that appears on a terminal or in a notebook after two seconds.

    ``name`` is shown before the second of the numbers that the bar is given.
    """
    if listener is not None:
        yield listener
        return
    notebook = in_notebook()
    shown = notebook or sys.stderr.isatty()
    begun = time.perf_counter()
    with contextlib.ExitStack() as stack:
        show: Progress | None = None

        def report(fraction: float, clock: float) -> None:
            nonlocal show
            note_progress(f"{fraction:.0%} done, {name}{clock:g}.")
            if shown and show is None and time.perf_counter() - begun > _PATIENCE_SECONDS and fraction < 1:
                show = stack.enter_context(_notebook_bar(name) if notebook else _terminal_bar(name))
            if show is not None:
                show(fraction, clock)

        yield report


@contextlib.contextmanager
def _terminal_bar(name: str) -> Iterator[Progress]:
    """Show a bar on the terminal, which disappears at the end."""
    with progress_bars(transient=True) as bars:
        task = bars.add_task("", total=1.0, note="")
        yield lambda fraction, clock: bars.update(task, completed=fraction, description=f"{name}{clock:g}")


@contextlib.contextmanager
def _notebook_bar(name: str) -> Iterator[Progress]:
    """Show a bar in the output of a notebook's cell, which disappears at the end. It needs no widgets."""
    from IPython.display import HTML, display  # pyright: ignore[reportMissingImports]

    handle, shown = display(HTML("<progress max='1' value='0'></progress>"), display_id=True), 0.0

    def update(fraction: float, clock: float) -> None:
        nonlocal shown
        now = time.perf_counter()
        if now - shown > _NOTEBOOK_SECONDS:
            shown = now
            filled = f"<progress max='1' value='{fraction:.4f}'></progress>"
            handle.update(HTML(f"{filled} {fraction:.0%}, {name}{clock:g}"))

    try:
        yield update
    finally:
        handle.update(HTML(""))


def in_notebook() -> bool:
    """Whether this process is the kernel of a notebook. IPython is not imported to find out."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return getattr(shell, "kernel", None) is not None
