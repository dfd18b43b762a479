"""The contents of a report: panels, runs that belong to no panel, and verdicts of theorems, read from stored files."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tomli_w
import xarray as xr

from unlazy._errors import UserError, usable
from unlazy._files import recipe_table
from unlazy.lab import Manifest, read_run, stored_certificates
from unlazy.lab import gather as gather_sweep
from unlazy.lab.manifest import SUFFIX
from unlazy.report.diagnoses import Diagnosed, is_diagnosis, read_diagnosis
from unlazy.report.record import Record, digest, read_record, records, seed_spans


@dataclass
class Contents:
    """What a report shows.

    Parameters
    ----------
    records
        Records of panels.
    runs
        Runs that belong to no panel, by file.
    files
        Files of stored runs by digest; those of panels are read only when they are needed.
    findings
        Findings of theorems, by the digest of the run.
    diagnoses
        Diagnoses, coordinate checks and searches of learning rates.
    sweeps
        Sweeps: the list of runs, and their results as one dataset.
    """

    records: list[Record] = field(default_factory=list)
    runs: dict[Path, xr.Dataset] = field(default_factory=dict)
    files: dict[str, Path] = field(default_factory=dict)
    findings: dict[str, list[Any]] = field(default_factory=dict)
    diagnoses: list[Diagnosed] = field(default_factory=list)
    sweeps: list[tuple[Manifest, xr.Dataset]] = field(default_factory=list)

    def of_panel(self, record: Record) -> dict[str, xr.Dataset]:
        """Read the stored runs of a panel's record, as far as they are available, by label."""
        paths = {label: self.files[name] for label, name in record.digests.items() if name in self.files}
        runs = usable(paths.values(), read_run)
        return {label: runs[path] for label, path in paths.items() if path in runs}

    def add_sweep(self, path: Path) -> None:
        """Add the sweep of a list of runs (.sweep.json); it is left out, with a warning, if it cannot be read."""
        self.sweeps += usable([path], lambda one: (Manifest.read(one), gather_sweep(one))).values()


def gather(paths: Sequence[Path], only: set[tuple[str, str]] | None = None) -> Contents:
    """Collect panels, runs and verdicts of theorems for a report.

    Parameters
    ----------
    paths
        Folders of results, or individual runs (.nc), records (.json) and sweeps (.sweep.json).
    only
        If given, include only the panels with these keys and scales, and no other runs.
    """
    contents, alone = Contents(), []
    for path in paths:
        if path.is_dir():
            contents.records += records(path)
            runs = sorted(path.glob("*.nc"))
            alone += runs
            for one in sorted(path.glob(f"*{SUFFIX}")) if only is None else ():
                contents.add_sweep(one)
            contents.files |= {one.stem.rpartition("-")[2]: one for one in runs}
            for one in stored_certificates(path):
                contents.findings.setdefault(digest(one.recipe), []).extend(one.findings)
            contents.diagnoses += usable(sorted((path / "diagnoses").glob("*.json")), read_diagnosis).values()
        elif path.name.endswith(SUFFIX):
            contents.add_sweep(path)
        elif path.suffix == ".json" and path.is_file() and is_diagnosis(path):
            contents.diagnoses += usable([path], read_diagnosis).values()
        elif path.suffix == ".json" and path.is_file():
            contents.records += usable([path], read_record).values()
        elif path.suffix == ".nc" and path.is_file():
            alone.append(path)
        else:
            known = "a folder of results, a run (.nc), a record (.json) or a sweep (.sweep.json)"
            raise UserError(f"There are no results at '{path}': give {known}.")
    if only is not None:
        contents.records = [record for record in contents.records if (record.panel, record.scale) in only]
        contents.diagnoses = alone = []
    of_panels = {name for record in contents.records for name in record.digests.values()}
    of_sweeps = {point.file for manifest, _ in contents.sweeps for point in manifest.points}
    own = [path for path in dict.fromkeys(alone) if path.stem.rpartition("-")[2] not in of_panels]
    contents.runs = usable((path for path in own if path.name not in of_sweeps), read_run)
    if not (contents.records or contents.runs or contents.diagnoses or contents.sweeps):
        where = ", ".join(f"'{path}'" for path in paths)
        raise UserError(f"There is nothing to report in {where}: first call `unlazy demo` or `unlazy run FILE.toml`.")
    contents.records.sort(key=lambda record: (record.paper, _number(record.panel), record.panel, record.scale))
    return contents


def duration(seconds: float) -> str:
    """Return a time in words, such as "1.5 s", "95 s", "10 min" or "2.5 h"."""
    if seconds < 120:
        return f"{seconds:.0f} s" if seconds >= 10 else f"{round(seconds, 1):g} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


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
    """Remove entries that are None, which TOML cannot represent."""
    if isinstance(value, dict):
        return {name: _given(one) for name, one in value.items() if one is not None}
    return [_given(one) for one in value] if isinstance(value, list) else value


def seeds(recipes: Iterable[str]) -> str:
    """Describe in a few words which seeds were run."""
    spans = [(span[0], span[-1]) for span in seed_spans(recipes) if span]
    return ", ".join(f"{first}" if first == last else f"{first} to {last}" for first, last in spans)
