"""What is shown on a terminal: tables, the same as JSON, and progress bars."""

import json
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from rich.progress import Progress


def print_table(head: list[str], rows: list[list[Any]]) -> None:
    """Print a table whose cells are text, never markup."""
    table = Table(box=None, header_style="bold", pad_edge=False)
    for column in head:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*(cell if isinstance(cell, Text) else Text(str(cell)) for cell in row))
    Console().print(table)


def print_rows(rows: list[dict[str, Any]], columns: dict[str, str], as_json: bool) -> None:
    """Print rows as a table with the given columns and heads, or everything that they hold as JSON."""
    if as_json:
        print(json.dumps(rows, indent=2, ensure_ascii=False))
    else:
        print_table(list(columns.values()), [[row[name] for name in columns] for row in rows])


def progress_bars(console: Console | None = None, **options: Any) -> "Progress":
    """Give progress bars on a console, or on standard error; each task has a field ``note`` for a few words."""
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    name, note = TextColumn("{task.description}", markup=False), TextColumn("{task.fields[note]}", style="dim")
    shares = BarColumn(bar_width=24), TextColumn("{task.percentage:3.0f} %")
    times = TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn()
    return Progress(name, *shares, *times, note, console=console or Console(stderr=True), **options)


class DownloadBar:
    """A progress bar in the form that Pooch asks for."""

    def __init__(self, name: str) -> None:
        self.name, self.total = name, 0

    def update(self, count: int) -> None:
        """Count bytes that have arrived."""
        if not hasattr(self, "bars"):
            self.bars = progress_bars()
            self.bars.start()
            self.task = self.bars.add_task(f"Downloading {self.name}", total=self.total or None, note="")
        self.bars.advance(self.task, count)

    def reset(self) -> None:
        """Start again from nothing: Pooch counts all bytes once more at the end."""
        if hasattr(self, "bars"):
            self.bars.reset(self.task)

    def close(self) -> None:
        """Remove the bar."""
        if hasattr(self, "bars"):
            self.bars.stop()
