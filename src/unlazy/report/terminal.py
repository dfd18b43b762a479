"""Results as tables on the terminal."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import groupby
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.console import Console
from rich.table import Table
from rich.text import Text

from unlazy._terminal import print_table, progress_bars
from unlazy.lab import Certificate, Recipe
from unlazy.lab.runner import Told
from unlazy.lab.store import statuses
from unlazy.report.contents import Contents
from unlazy.report.record import Record
from unlazy.theory import Verdict

if TYPE_CHECKING:
    import xarray as xr

_STYLES = {Verdict.HOLDS: "green", Verdict.FAILS: "bold red", Verdict.SILENT: "dim", Verdict.VACUOUS: "yellow"}
_COLUMNS, _ALONE = 9, 6  # of a benchmark's table of several rows or of one, at most


def print_records(done: list[Record], as_json: bool) -> None:
    """Print the claims of panels, each panel under its name and failed claims in red; or one JSON object per panel."""
    if as_json:
        for record in done:
            print(json.dumps(record.summary(), ensure_ascii=False))
        return
    console = Console()
    for record in done:
        head = f"{record.panel} at {record.scale} scale, {record.seconds:.0f} s"
        console.print(Text.assemble((head, "bold"), "  ", (record.title, "dim")))
        table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
        table.add_column(no_wrap=True)
        table.add_column(overflow="fold")
        for claim in record.claims:
            mark = Text("holds", style="green") if claim.holds else Text("does not hold", style="bold red")
            table.add_row(mark, Text.assemble(claim.text, "\n", (f"measured: {claim.measured}", "dim")))
        console.print(table)
        console.print()
    if len(done) > 1:
        rows = [[record.panel, _counted(record), f"{record.seconds:.0f} s"] for record in done]
        print_table(["panel", "claims that hold", "seconds"], rows)
    held = sum(claim.holds for record in done for claim in record.claims)
    print(f"{held} of {sum(len(record.claims) for record in done)} claims hold.")


def _counted(record: Record) -> Text:
    held = sum(claim.holds for claim in record.claims)
    return Text(f"{held} of {len(record.claims)}", style="green" if record.holds else "bold red")


def print_runs(runs: Sequence[tuple[xr.Dataset, str, Path]], as_json: bool) -> None:
    """Print the last values of runs, each with name and file; as JSON, an object for one run, a list for several."""
    if as_json:
        rows = [_ended(result, path) for result, _, path in runs]
        print(json.dumps(rows[0] if len(rows) == 1 else rows, indent=2))
        return
    for result, name, path in runs:
        _print_run(result, name, path)


def _last(result: xr.Dataset) -> dict[str, float]:
    """Give the last value of every probe, the mean over seeds and entries; what was seen at the end has no time."""
    return {str(one): float(values.mean()) for one, values in result.isel(time=-1).data_vars.items()}


def _ended(result: xr.Dataset, path: Path) -> dict[str, Any]:
    finite = {one: value if isfinite(value) else None for one, value in _last(result).items()}  # JSON knows no NaN
    seconds = round(float(result.attrs["seconds"]), 2)
    return {"run": str(path), "status": statuses(result), "seconds": seconds, "last": finite}


def _print_run(result: xr.Dataset, name: str, path: Path) -> None:
    from unlazy.flows import Status

    status, seconds = statuses(result), float(result.attrs["seconds"])
    rows = [[one, f"{value:.6g}"] for one, value in _last(result).items()]
    print_table(["probe", "last value (mean over seeds and entries)"], rows)
    for one in sorted(set(status) - {"finished"}):
        print(f"{name} stopped at t = {float(result['time'][-1]):g}: {Status[one].value}")
    kept = result.attrs["written"]
    print(f"{name}: {', '.join(sorted(set(status)))}, {seconds:.1f} s. Stored on {kept} in {path}")
    if "method" in result.attrs:  # older files do not say
        total = int(np.sum(result.attrs["evaluations"]))
        print(f"Method: {result.attrs['method']}; {total:,} gradients.")


def print_report(contents: Contents, path: Path, as_json: bool) -> None:
    """Print what a report holds, and where it is."""
    claims = [claim for record in contents.records for claim in record.claims]
    held, panels, runs = sum(claim.holds for claim in claims), len(contents.records), len(contents.runs)
    if as_json:
        counts = {"panels": panels, "runs": runs, "claims": len(claims), "held": held}
        print(json.dumps({"report": str(path), **counts}, indent=2))
    else:
        of_panels = f"{held} of {len(claims)} claims hold in {panels} panel{'' if panels == 1 else 's'}"
        of_runs = f"{runs} run{'' if runs == 1 else 's'} of your own" if runs else ""
        print(f"{'; '.join(filter(None, (of_panels if panels else '', of_runs)))}. Report: {path}")


def print_benchmarks(tables: list[list[dict[str, Any]]], as_json: bool) -> None:
    """Print what benchmarks measured."""
    if as_json:
        print(json.dumps([row for table in tables for row in table], indent=2))
        return
    for table in tables:
        for name, group in groupby(table, key=tuple):  # rows of one kind stand together
            columns, rows = list(name), list(group)
            if len(columns) > (_COLUMNS if len(rows) > 1 else _ALONE):  # a table would be too wide to read
                for row in rows:
                    head = row.get("name", "")
                    print_table([str(head), ""], [[_words(key), _cell(row[key])] for key in columns if key != "name"])
            else:
                print_table([_words(key) for key in columns], [[_cell(row[key]) for key in columns] for row in rows])
            print()


def _words(column: str) -> str:
    return column.replace("_", " ")


def _cell(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


@contextmanager
def telling(screen: Console) -> Iterator[Told]:
    """Show, on a terminal, one line of progress for each recipe."""
    with progress_bars(screen, disable=not screen.is_terminal) as progress:
        tasks: dict[str, Any] = {}

        def tell(recipe: Recipe, share: float, note: str) -> None:
            if recipe.digest not in tasks:
                tasks[recipe.digest] = progress.add_task(recipe.name, total=1.0, note=note)
            progress.update(tasks[recipe.digest], completed=share, note=note)

        yield tell


def print_certificates(found: Mapping[str, Sequence[Certificate]], as_json: bool) -> None:
    """Print the verdicts of theorems on runs (by name), seed by seed."""
    if as_json:
        rows = [{"run": name, **one.summary()} for name, certificates in found.items() for one in certificates]
        print(json.dumps(rows, indent=2, ensure_ascii=False))
        return
    for name, certificates in found.items():
        if len(found) > 1:
            Console().print(Text(name, style="bold"))
        several = len({one.seed for one in certificates}) > 1
        rows = []
        for theorem, seed, finding in certificates:
            mark = Text(finding.verdict.name, style=_STYLES[finding.verdict])
            margin = "" if finding.margin is None else f"{finding.margin:.3g}"
            rows.append([theorem.key, *([seed] if several else []), mark, margin, finding.why])
        print_table(["theorem", *(["seed"] if several else []), "verdict", "margin", "why"], rows)
    counts = Counter(one.finding.verdict for certificates in found.values() for one in certificates)
    print(", ".join(f"{counts[verdict]} {verdict.name}" for verdict in Verdict if counts[verdict]) + ".")
