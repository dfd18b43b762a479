"""What goes into a report: panels, runs that belong to no panel, and what theorems said, gathered from stored files."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tomli_w
import xarray as xr

from unlazy._errors import UserError
from unlazy._files import recipe_table
from unlazy.lab import kept, read_run
from unlazy.report.record import Record, digest, read_record, records


@dataclass
class Contents:
    """Records of panels, runs beside them by file, and findings of theorems by digest."""

    records: list[Record] = field(default_factory=list)
    runs: dict[Path, xr.Dataset] = field(default_factory=dict)
    files: dict[str, Path] = field(default_factory=dict)  # stored runs by digest; those of panels are read when needed
    findings: dict[str, list[dict[str, Any]]] = field(default_factory=dict)

    def of_panel(self, record: Record) -> dict[str, xr.Dataset]:
        """Read the stored runs of a panel, as far as they are at hand, by label."""
        found = {label: self.files.get(name) for label, name in record.digests.items()}
        return {label: read_run(path) for label, path in found.items() if path is not None}


def gather(paths: Sequence[Path], only: set[tuple[str, str]] | None = None) -> Contents:
    """Look for panels, runs and what theorems said, in folders of results or in single files of them.

    With ``only``, no more than the panels of these keys and scales.
    """
    contents, alone = Contents(), []
    for path in paths:
        if path.is_dir():
            contents.records += records(path)
            runs = sorted(path.glob("*.nc"))
            alone += runs
            contents.files |= {one.stem.rpartition("-")[2]: one for one in runs}
            for one in kept(path):
                contents.findings.setdefault(digest(one.recipe), []).extend(one.findings)
        elif path.suffix == ".json" and path.is_file():
            contents.records.append(read_record(path))
        elif path.suffix == ".nc" and path.is_file():
            alone.append(path)
        else:
            raise UserError(
                f"There are no results at '{path}': give a folder of results, a run (.nc) or a record (.json)."
            )
    if only is not None:
        contents.records = [record for record in contents.records if (record.panel, record.scale) in only]
        alone = []
    of_panels = {name for record in contents.records for name in record.digests.values()}
    for path in dict.fromkeys(alone):
        if path.stem.rpartition("-")[2] not in of_panels:
            contents.runs[path] = read_run(path)
    if not contents.records and not contents.runs:
        where = ", ".join(f"'{path}'" for path in paths)
        raise UserError(f"There is nothing to report in {where}: first call `unlazy demo` or `unlazy run FILE.toml`.")
    contents.records.sort(key=lambda record: (record.paper, _number(record.panel), record.panel, record.scale))
    return contents


def _number(panel: str) -> int:
    found = re.search(r"\d+", panel.partition("/")[2])
    return int(found[0]) if found else 0


# ---------------------------------------------------------------- recipes


def toml(recipe: str) -> str:
    """Write a recipe, stored as JSON, as the TOML file that `unlazy run` takes; other text stays as it is."""
    table = recipe_table(recipe)
    if not table:
        return recipe
    order = ("name", "seed", "seeds", "same_data", "dtype", "probes", "times", "data", "network", "flow")
    names = [*(name for name in order if name in table), *(name for name in table if name not in order)]
    return tomli_w.dumps(_given({name: table[name] for name in names})).rstrip()


def _given(value: Any) -> Any:
    """Leave out entries that are None, which TOML cannot hold."""
    if isinstance(value, dict):
        return {name: _given(one) for name, one in value.items() if one is not None}
    return [_given(one) for one in value] if isinstance(value, list) else value


def seeds(recipes: Iterable[str]) -> str:
    """Say which seeds were run, in a few words."""
    spans = set()
    for recipe in recipes:
        table = recipe_table(recipe)
        if not table:
            continue
        try:
            first, count = int(table.get("seed", 0)), int(table.get("seeds", 1))
        except (ValueError, TypeError):
            continue
        spans.add((first, first + count - 1))
    return ", ".join(f"{first}" if first == last else f"{first} to {last}" for first, last in sorted(spans))
