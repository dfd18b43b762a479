"""Tables on the terminal, and the same as JSON."""

import json
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text


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
