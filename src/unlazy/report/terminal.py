"""Results as tables on the terminal."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from unlazy.lab import Certificate
from unlazy.report.record import Record
from unlazy.theory import Verdict

_STYLES = {Verdict.HOLDS: "green", Verdict.FAILS: "bold red", Verdict.SILENT: "dim", Verdict.VACUOUS: "yellow"}


def print_table(head: list[str], rows: list[list[Any]]) -> None:
    """Print a table whose cells are text, never markup."""
    table = Table(box=None, header_style="bold", pad_edge=False)
    for column in head:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*(cell if isinstance(cell, Text) else Text(str(cell)) for cell in row))
    Console().print(table)


def print_records(done: list[Record], as_json: bool) -> None:
    """Print the claims of panels, or one JSON object a panel."""
    if as_json:
        for record in done:
            print(json.dumps(record.summary(), ensure_ascii=False))
        return
    rows = []
    for record in done:
        for index, claim in enumerate(record.claims):
            mark = Text("holds", style="green") if claim.holds else Text("does not hold", style="bold red")
            rows.append(
                [f"{record.panel}\n{record.seconds:.0f} s" if index == 0 else "", mark, claim.text, claim.measured]
            )
    print_table(["panel", "", "claim", "measured"], rows)
    held = sum(claim.holds for record in done for claim in record.claims)
    print(f"{held} of {sum(len(record.claims) for record in done)} claims hold.")


def print_certificates(found: Sequence[Certificate]) -> None:
    """Print what theorems say of a run, seed by seed."""
    several = len({one.seed for one in found}) > 1
    rows = []
    for theorem, seed, finding in found:
        mark = Text(finding.verdict.name, style=_STYLES[finding.verdict])
        margin = "" if finding.margin is None else f"{finding.margin:.3g}"
        rows.append([theorem.key, *([seed] if several else []), mark, margin, finding.why])
    print_table(["theorem", *(["seed"] if several else []), "verdict", "margin", "why"], rows)
    counts = Counter(one.finding.verdict for one in found)
    print(", ".join(f"{counts[verdict]} {verdict.name}" for verdict in Verdict if counts[verdict]) + ".")
