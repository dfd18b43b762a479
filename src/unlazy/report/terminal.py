"""Results as tables on the terminal."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path
from string import ascii_lowercase
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.console import Console
from rich.table import Table
from rich.text import Text

from unlazy._plain import finite_or_none
from unlazy._signals import note_progress
from unlazy._terminal import print_table, progress_bars
from unlazy.lab import Certificate, PhaseDiagram, Recipe, Store, Sweep
from unlazy.lab.estimates import Preview
from unlazy.lab.stored import statuses
from unlazy.lab.sweep import short_names
from unlazy.lab.table import last_values
from unlazy.papers import Reference
from unlazy.papers.outcomes import Outcome, tally
from unlazy.report.contents import Contents, duration
from unlazy.report.record import Record
from unlazy.theory import Verdict

if TYPE_CHECKING:
    import xarray as xr
    from rich.progress import Progress as Bars

_OUTCOMES = {
    Outcome.HOLDS: "green",
    Outcome.FAILS: "bold red",
    Outcome.VACUOUS: "yellow",
    Outcome.UNDECIDED: "yellow",
}
_STYLES = {Verdict.HOLDS: "green", Verdict.FAILS: "bold red", Verdict.SILENT: "dim", Verdict.VACUOUS: "yellow"}
_MOST_LINES = 8  # of progress, for runs that are being computed
_FEW, _LONG = 4, 600.0  # up to this many runs have a line each; seconds over which the speed is averaged
_MOST_ROWS = 100  # in the table of a dry run
_SHARE = 0.1  # of the time of a sweep: compiling that takes less is not mentioned
_COLUMNS, _ALONE = 9, 6  # of a benchmark's table with several rows or with one, at most


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
        if record.fewer_seeds:
            console.print(Text(record.fewer_seeds, "yellow"))
        table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
        table.add_column(no_wrap=True)
        table.add_column(overflow="fold")
        for claim in record.claims:
            mark = Text(claim.outcome.value, style=_OUTCOMES[claim.outcome])
            table.add_row(mark, Text.assemble(claim.text, "\n", (f"measured: {claim.measured}\n{claim.basis}", "dim")))
        console.print(table)
        if record.references:
            console.print()
            columns = ["the authors' numbers", "ours", "theirs", "distance", "agreement", "source"]
            print_table(columns, [_beside(one) for one in record.references])
        console.print()
    if len(done) > 1:
        rows = []
        for record in done:
            words = Text(_tally(record), "bold red" if record.fails else "")
            rows.append([record.panel, words, f"{record.seconds:.0f} s"])
        print_table(["panel", "claims", "seconds"], rows)
    print(f"{_tally(*done)}.")


def _beside(one: Reference) -> list[str | Text]:
    mark = Text(one.agreement, style=_OUTCOMES[one.outcome])
    return [one.name, one.ours_in_words, one.authors_in_words, one.distance, mark, one.source]


def _tally(*records: Record) -> str:
    return tally(claim.outcome for record in records for claim in record.claims)


def print_runs(runs: Sequence[tuple[xr.Dataset, str, Path]], as_json: bool) -> None:
    """Print the last values of runs, each with name and file; as JSON, an object for one run, a list for several."""
    from unlazy.flows import Status

    summaries = []
    for result, name, path in runs:
        status, seconds = statuses(result), float(result.attrs["seconds"])
        marked = str(result.attrs.get("nonfinite", ""))
        # Means over seeds and entries; what was observed at the end only has no time.
        last = {str(one): float(values.mean()) for one, values in result.isel(time=-1).data_vars.items()}
        if as_json:
            summary = {"run": str(path), "status": status, "seconds": round(seconds, 2), "last": _for_json(last)}
            summaries.append(summary | {"nonfinite": [one for one in marked.split(", ") if one]})
            continue
        rows = [[one, f"{value:.6g}"] for one, value in last.items()]
        print_table(["probe", "last value (mean over seeds and entries)"], rows)
        for one in sorted(set(status) - {"finished"}):
            where = "" if Status[one].ok else f" stopped at t = {float(result['time'][-1]):g}"
            print(f"{name}{where}: {Status[one].value}")
        if marked:
            print(f"{name}: {marked} had NaN or infinite values.")
        written = result.attrs["written"]
        print(f"{name}: {', '.join(sorted(set(status)))}, {seconds:.1f} s. Stored on {written} in {path}")
        if "method" in result.attrs:  # older files do not have it
            total = int(np.sum(result.attrs["evaluations"]))
            print(f"Method: {result.attrs['method']}; {total:,} gradients.")
    if as_json:
        print(json.dumps(summaries[0] if len(summaries) == 1 else summaries, indent=2))


def _for_json(values: Mapping[str, float]) -> dict[str, float | None]:
    return {name: finite_or_none(value) for name, value in values.items()}


def print_sweep(sweep: Sweep, results: Mapping[str, xr.Dataset], store: Store, as_json: bool) -> None:
    """Print a row for each run of a sweep: its swept fields, its status and the last values of its probes."""
    points = sweep.points()
    rows: list[dict[str, Any]] = [
        {"fields": point.fields, "status": ", ".join(dict.fromkeys(statuses(result))), "last": last_values(result)}
        | {"run": str(store.path(point.recipe))}
        for point in points
        if (result := results.get(point.label)) is not None  # else it is of another part
    ]
    path, _ = sweep.manifest(store, points)
    if as_json:
        plain = [row | {"last": _for_json(row["last"])} for row in rows]
        print(json.dumps({"sweep": str(path), "runs": plain}, indent=2, ensure_ascii=False))
        return
    names = short_names(sweep.fields)
    keys: list[str] = [*sweep.fields, "status", *dict.fromkeys(name for row in rows for name in row["last"])]
    head = [names.get(key, key) for key in keys]
    cells = [[_cell((row["fields"] | row["last"] | row).get(key, "")) for key in keys] for row in rows]
    left_out = print_table(head, cells, least=len(names) + 1)
    if left_out:
        print(f"There is no room for {', '.join(left_out)}: `unlazy table {path} --csv FILE` writes all columns.")
    total = sum(float(result.attrs["seconds"]) for result in results.values())
    print(f"{len(rows)} runs, {total:.1f} s of computing. List of runs: {path}")


def print_preview(preview: Preview, fields: Sequence[str], workers: int, as_json: bool) -> None:
    """Print what a sweep would compute, and estimates of time and memory."""
    seconds, memory = preview.seconds, preview.memory
    if as_json:
        rows = [
            {"label": row.point.label, "fields": row.point.fields}
            | {"state": row.state, "seconds": row.seconds, "memory": row.memory}
            for row in preview.rows
        ]
        whole = {"seconds": seconds, "memory": memory, "process_memory": preview.process, "basis": preview.basis}
        print(json.dumps({"runs": rows, **whole}, indent=2))
        return
    shown = preview.rows if len(preview.rows) <= _MOST_ROWS else preview.rows[: _MOST_ROWS // 2]
    table = []
    for row in shown:
        about = duration(row.seconds) if row.seconds else ""
        size = _size(row.memory) if row.memory else ""
        table.append([*(_cell(row.point.fields[field]) for field in fields), row.state, about, size])
    print_table([*short_names(fields).values(), "state", "about", "memory"], table, least=len(fields) + 1)
    if len(shown) < len(preview.rows):
        print(f"... and {len(preview.rows) - len(shown)} more (--json lists all).")
    counts = [f"{preview.count(state)} {state}" for state in ("stored", "in part", "new") if preview.count(state)]
    if not any(row.state != "stored" for row in preview.rows):
        print(f"{len(preview.rows)} runs: all are stored, and nothing would be computed.")
        return
    shared = "" if workers == 1 else f" with {workers} workers"
    time = "The time cannot be estimated" if seconds is None else f"About {duration(seconds / workers)}{shared}"
    if seconds is not None and preview.compiling > _SHARE * seconds:
        time += f", of which compiling takes {duration(preview.compiling / workers)} (less where it is stored)"
    room = f", and {_size(preview.process)} for each process" if memory else ""
    room += f" with {_size(memory)} more for the largest run" if memory else ""
    print(f"{len(preview.rows)} runs: {', '.join(counts)}. {time}{room}. {' '.join(preview.basis)}")


def _size(size: float) -> str:
    """Return a number of bytes in words, such as "12 KiB" or "1.5 GiB"."""
    power = min(3, max(1, int(np.log2(max(size, 1.0)) // 10)))
    number = size / 1024**power
    return f"{number:.2g} {'KMG'[power - 1]}iB" if number < 10 else f"{number:.0f} {'KMG'[power - 1]}iB"


def print_phase(diagram: PhaseDiagram, path: Path, as_json: bool) -> None:
    """Print a phase diagram as a map of letters, capital where a run was computed; as JSON, everything."""
    if as_json:
        print(path.read_text(encoding="utf-8"))
        return
    phase, names, regions, known = diagram.phase, diagram.names, diagram.regions, diagram.computed
    across, up, letters = phase.values(phase.x), phase.values(phase.y), ascii_lowercase
    rows = []
    for j in reversed(range(diagram.shape[1])):
        marks = [letters[regions[i, j] % 26] for i in range(diagram.shape[0])]
        rows.append([_cell(up[j]), " ".join(m.upper() if known[i, j] else m for i, m in enumerate(marks))])
    print_table([phase.y, f"{phase.x} from {_cell(across[0])} to {_cell(across[-1])}"], rows)
    print(", ".join(f"{letters[index % 26].upper()}: {name}" for index, name in enumerate(names)))
    print(f"{diagram.summary()} Map: {path.with_suffix('.svg')}")


def print_report(contents: Contents, path: Path, as_json: bool) -> None:
    """Print what a report contains, and where it is."""
    claims = [claim for record in contents.records for claim in record.claims]
    panels, runs = len(contents.records), len(contents.runs)
    if as_json:
        outcomes = {one.value: sum(claim.outcome is one for claim in claims) for one in Outcome}
        compared = dict(Counter(one.agreement for record in contents.records for one in record.references or ()))
        swept = [{"sweep": one.sweep, "points": len(one.points)} for one, _ in contents.sweeps]
        counts = {"panels": panels, "runs": runs, "sweeps": swept, "claims": len(claims)}
        print(json.dumps({"report": str(path), **counts, "outcomes": outcomes, "references": compared}, indent=2))
    else:
        of_panels = f"{_tally(*contents.records)} in {panels} panel{'' if panels == 1 else 's'}"
        of_runs = f"{runs} run{'' if runs == 1 else 's'} of your own" if runs else ""
        swept = [f"sweep '{one.sweep}' of {len(one.points):,} points" for one, _ in contents.sweeps]
        count = len(contents.diagnoses)
        diagnosed = f"{count} diagnos{'is' if count == 1 else 'es'}" if count else ""
        print(f"{'; '.join(filter(None, (of_panels if panels else '', *swept, of_runs, diagnosed)))}. Report: {path}")


def print_benchmarks(tables: list[list[dict[str, Any]]], as_json: bool) -> None:
    """Print the results of benchmarks."""
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
                # Text that is the same in all rows, such as the name of the baseline, is printed once.
                common = [key for key in columns if len(rows) > 1 and len({str(row[key]) for row in rows}) == 1]
                common = [key for key in common if isinstance(rows[0][key], str)]
                columns = [key for key in columns if key not in common]
                print_table([_words(key) for key in columns], [[_cell(row[key]) for key in columns] for row in rows])
                for key in common:
                    print(f"{_words(key)}: {rows[0][key]}")
            print()


def _words(column: str) -> str:
    return column.replace("_", " ")


def _cell(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


@contextmanager
def progress_display(screen: Console) -> Iterator[Display]:
    """Show progress on a terminal: a line for each of a few runs, or one for all and one for each that is computed."""
    with progress_bars(screen, disable=not screen.is_terminal, speed_estimate_period=_LONG) as bars:
        yield Display(bars)


class Display:
    """The progress of runs. Of more than a few, only those being computed have a line, below one line for all."""

    def __init__(self, bars: Bars) -> None:
        self.bars, self.whole, self.stored, self.runs = bars, None, 0, 1
        self.lines: dict[str, Any] = {}
        self.shares: dict[str, float] = {}

    def expect(self, runs: int) -> None:
        """Start counting again, with this number of runs."""
        self.runs, self.stored = runs, 0
        self.shares.clear()
        if runs > _FEW and self.whole is None:
            self.whole = self.bars.add_task("all runs", total=float(runs), note="")
        elif self.whole is not None:
            self.bars.reset(self.whole, total=float(runs))

    def __call__(self, recipe: Recipe, share: float, note: str) -> None:
        """Show how far a recipe is."""
        note_progress(f"'{recipe.name}', {share:.0%} done: {note}.")
        name = recipe.digest
        if self.whole is not None and share >= 1 and name not in self.shares:
            self.stored += 1  # it was stored before, so that it does not count for the estimate of the time left
        elif name not in self.lines and (self.whole is None or (share < 1 and len(self.lines) < _MOST_LINES)):
            self.lines[name] = self.bars.add_task(recipe.name, total=1.0, note=note)
        self.shares[name] = share
        if name in self.lines:
            self.bars.update(self.lines[name], completed=share, note=note)
        if self.whole is None:
            return
        if share >= 1 and name in self.lines:
            self.bars.remove_task(self.lines.pop(name))
        done = sum(one >= 1 for one in self.shares.values())
        words = f"{done} of {self.runs} runs done" + (f", {self.stored} of them earlier" if self.stored else "")
        left, reached = self.runs - self.stored, sum(self.shares.values()) - self.stored
        self.bars.update(self.whole, total=max(left, 1e-9), completed=reached if left else 1e-9, note=words)


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
