"""What a report shows of a sweep: a table, curves in small multiples, and maps with sliders.

The results of a sweep are stored in the page as numbers, and the page's script draws what the reader selects. Without
the script, the page shows the first rows of the table.
"""

from __future__ import annotations

import base64
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import tomli_w
import xarray as xr

from unlazy import figures
from unlazy._files import in_words
from unlazy.figures.comparison import DEFAULT
from unlazy.figures.style import MOST_COLOURS, evenly, logarithmic, rounding
from unlazy.lab.fields import with_field
from unlazy.lab.gathering import MADE_BY, MISSING, combine
from unlazy.lab.manifest import Manifest, words
from unlazy.lab.sweep import VARIABLE
from unlazy.report.contents import Contents
from unlazy.report.own_runs import MANY, kinds, verdicts

_ROWS = 25  # of the table in the page itself; the script adds the others
_MOST_PROBES = 24
_MOST_TIMES = 60
_NUMBERS = {13: 400_000, 7: 200_000, 4: 80_000, 0: 0}  # in the page, by the number of frames of its films
_MOST_POINTS = 200  # that are written out in the file that repeats a sweep
_COLOURS = 32


@dataclass(frozen=True)
class Field:
    """A swept field: its values, and the index of the value that each point has."""

    name: str
    values: list[str]
    numbers: list[float] | None
    codes: np.ndarray


@dataclass(frozen=True)
class Swept:
    """A sweep as the page shows it."""

    anchor: str
    title: str
    runs: xr.Dataset
    total: int  # runs of the sweep, stored or not
    recipe: str  # a file that repeats the sweep
    command: str
    verdicts: dict[str, dict[str, int]]  # number of verdicts by theorem

    @property
    def seconds(self) -> float:
        """Computing time of all runs."""
        return float(self.runs.attrs.get("seconds", 0.0))

    @property
    def made_by(self) -> dict[str, str]:
        """The versions and machines."""
        return {name: str(self.runs.attrs[name]) for name in MADE_BY if self.runs.attrs.get(name)}

    @property
    def _dims(self) -> tuple[str, ...]:
        return tuple(map(str, self.runs["run"].dims))

    @property
    def grid(self) -> bool:
        """Whether there is a run for every combination of values."""
        return self._dims != ("point",)

    @property
    def count(self) -> int:
        """Number of points, missing or not."""
        return math.prod(self.runs["run"].shape)

    @cached_property
    def fields(self) -> list[Field]:
        """The swept fields, and then those that were derived from them."""
        found = []
        for name, one in self.runs.coords.items():
            if name in ("run", "status", "seed", "time") or not set(one.dims) <= set(self._dims):
                continue
            column = np.asarray(one.broadcast_like(self.runs["run"]).transpose(*self._dims).values).ravel()
            values, codes = np.unique(column, return_inverse=True)
            numeric = column.dtype.kind in "fiu"
            if self.grid and name in self._dims and not numeric:  # in the order of the sweep
                values, order = one.values, {str(value): place for place, value in enumerate(one.values)}
                codes = np.array([order[str(value)] for value in column])
            shown = [words(value.item()) for value in values]
            numbers = [float(value) for value in values] if numeric else None
            if len(shown) > 1:
                found.append(Field(str(name), shown, numbers, codes))
        return found

    @cached_property
    def present(self) -> np.ndarray:
        """Whether there is a result of each point and seed, shape (points, seeds)."""
        status = self.runs["status"].transpose(*self._dims, "seed").values
        return status.reshape(self.count, -1) != MISSING

    @cached_property
    def statuses(self) -> list[str]:
        """How the seeds of each point ended, in words."""
        status = self.runs["status"].transpose(*self._dims, "seed").values.reshape(self.count, -1)
        ended = [sorted(set(row.tolist()) - {MISSING, "finished"}) for row in status]
        return [
            ", ".join(one) or ("finished" if some.any() else MISSING)
            for one, some in zip(ended, self.present, strict=True)
        ]

    @cached_property
    def probes(self) -> list[str]:
        """The variables, losses first."""
        order = {str(name): place for place, name in enumerate(self.runs.data_vars)}
        return sorted(order, key=lambda name: (figures.rank(name), order[name]))[:_MOST_PROBES]

    def values(self, name: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the mean, smallest and largest value over seeds, shape (points, times); NaN if any is not finite."""
        values = self.runs[name]
        along = [dim for dim in values.dims if dim not in (*self._dims, "seed")]
        shape = (self.count, self.present.shape[1], -1)
        whole = values.transpose(*self._dims, "seed", *along).values.reshape(shape)
        there = np.broadcast_to(self.present[..., None], whole.shape)
        count = self.present.sum(axis=1)[:, None]
        with np.errstate(invalid="ignore", divide="ignore"):
            mean = np.where(there, whole, 0.0).sum(axis=1) / np.where(count, count, np.nan)
        low, high = np.where(there, whole, np.inf).min(axis=1), np.where(there, whole, -np.inf).max(axis=1)
        return mean, np.where(count, low, np.nan), np.where(count, high, np.nan)

    @cached_property
    def table(self) -> list[tuple[list[str], int, str, list[tuple[str, str]]]]:
        """The first rows of the table: settings, seeds, status, and last values with their range."""
        lasts = [[one[:_ROWS, -1] for one in self.values(name)] for name in self.probes]
        rows = []
        for index in range(min(self.count, _ROWS)):
            settings = [one.values[one.codes[index]] for one in self.fields]
            seeds = int(self.present[index].sum())
            cells = [_cell(mean[index], low[index], high[index], seeds) for mean, low, high in lasts]
            rows.append((settings, seeds, self.statuses[index], cells))
        return rows

    @property
    def unfinished(self) -> bool:
        """Whether any run ended early or is missing."""
        return set(self.statuses) != {"finished"}

    @property
    def summary(self) -> str:
        """The size of the sweep in words."""
        stored, count = self.total - int(self.runs.attrs["missing"]), self.runs.sizes["seed"]
        seeds = f"{count} seed{'' if count == 1 else 's'}"
        named = [f"{one.name} ({len(one.values)} values)" for one in self.fields]
        shape = f"{'A grid over' if self.grid else 'Points that differ in'} {', '.join(named)}"
        runs = f"{stored:,} of {self.total:,} runs are stored" if stored < self.total else f"{stored:,} runs"
        return f"{shape if named else 'One setting'}: {runs}, each with at most {seeds}."

    def data(self, frames: int) -> dict[str, Any]:
        """Return what the page's script draws."""
        timed = [name for name in self.probes if {"time", "observation"} & set(self.runs[name].dims)]
        length = next((self.runs.sizes[dim] for dim in ("time", "observation") if dim in self.runs.sizes), 1)
        seeds = self.present.shape[1] > 1
        numbers = max(1, self.count * max(1, len(timed)) * (3 if seeds else 1))
        most = min(_MOST_TIMES, max(1, _NUMBERS[frames] // numbers))
        shown = evenly(length, most) if most > 1 else np.array([length - 1])
        probes = []
        for name in self.probes:
            mean, low, high = (one[:, shown if name in timed else [-1]] for one in self.values(name))
            finite = mean[np.isfinite(mean)]
            if mean.shape[1] > 1:  # an axis does not extend to values that are zero at the start
                later = mean[:, 1:][np.isfinite(mean[:, 1:])]
                kept = np.isfinite(mean)
                kept[:, 0] &= np.abs(mean[:, 0]) > rounding(later)
                finite = mean[kept]
            spread = {"low": _packed(low), "high": _packed(high)} if seeds else {}
            described = {"name": name, "label": in_words(name), "log": logarithmic(finite)}
            probes.append(described | {"mean": _packed(mean)} | spread)
        times = self.runs["time"]
        shared = times.ndim == 1
        each = None if shared else times.transpose(*self._dims, "observation").values.reshape(self.count, -1)
        from matplotlib import colormaps
        from matplotlib.colors import to_hex

        return {
            "title": self.title,
            "points": self.count,
            "grid": list(self._dims) if self.grid else [],
            "fields": [
                {"name": one.name, "short": figures.short(one.name), "values": one.values, "numbers": one.numbers}
                | {"codes": one.codes.tolist()}
                for one in self.fields
            ],
            "times": [float(t) for t in times.values[shown]] if shared else None,
            "each": None if each is None else _packed(each[:, shown]),
            "frames": len(shown),
            "probes": probes,
            "seeds": self.present.sum(axis=1).tolist(),
            "statuses": self.statuses if self.unfinished else None,
            "colour": self._colour,
            "facet": self._facet,
            "ramp": [to_hex(one) for one in colormaps["viridis"](np.linspace(0, 1, _COLOURS))],
        }

    @property
    def _colour(self) -> str | None:
        """The field that is shown by colour at first, chosen as in figures of few runs."""
        order = sorted(
            self.fields, key=lambda one: (not one.name.endswith("scaling"), one.numbers is not None, len(one.values))
        )
        return order[0].name if order else None

    @property
    def _facet(self) -> str | None:
        rest = [one for one in self.fields if one.name != self._colour and len(one.values) <= 2 * MOST_COLOURS]
        return min(rest, key=lambda one: len(one.values)).name if rest and self.count > MOST_COLOURS else None


def _packed(values: np.ndarray) -> str:
    """Write numbers in 32 bits as base64."""
    with np.errstate(over="ignore"):
        return base64.b64encode(np.ascontiguousarray(values, "<f4").tobytes()).decode()


def _cell(mean: float, low: float, high: float, seeds: int) -> tuple[str, str]:
    if not np.isfinite(mean):
        return ("not finite" if seeds else "", "")
    return f"{mean:.4g}", f"{low:.4g} to {high:.4g}" if seeds > 1 else ""


# ---------------------------------------------------------------- which sweeps there are


def sweeps(contents: Contents) -> list[Swept]:
    """Return the sweeps of a report, and large families of runs, which are shown in the same way."""
    found = [
        Swept(
            anchor=f"s{index}",
            title=manifest.sweep,
            runs=runs,
            total=len(manifest.points),
            recipe=_repeat(manifest, runs),
            command="unlazy sweep FILE.toml",
            verdicts=_verdicts(contents, [point.digest for point in manifest.points]),
        )
        for index, (manifest, runs) in enumerate(contents.sweeps)
    ]
    large = {kind: paths for kind, paths in kinds(contents).items() if len(paths) > MANY}
    return found + [_inferred(f"m{index}", *one, contents) for index, one in enumerate(large.items())]


def _inferred(anchor: str, kind: str, paths: Sequence[Path], contents: Contents) -> Swept:
    """Show runs as a sweep over the settings in which they differ."""
    runs = [contents.runs[path] for path in paths]
    factors = figures.compare(runs).factors
    settings = [figures.settings(run) | {"run": str(run.attrs.get("name") or "run")} for run in runs]
    points = [{name: one.get(name, DEFAULT) for name in factors} for one in settings]
    combined = combine(points, ((index, path.name, runs[index]) for index, path in enumerate(paths)))
    digests = [str(run.attrs.get("digest", "")) for run in runs]
    title = f"Runs on {kind}" if kind else "Runs made in Python"
    return Swept(anchor, title, combined, len(runs), "", "", _verdicts(contents, digests))


def _verdicts(contents: Contents, digests: Sequence[str]) -> dict[str, dict[str, int]]:
    counts: dict[str, dict[str, int]] = {}
    for one in verdicts(contents, dict(zip(digests, digests, strict=True))):
        counts.setdefault(one["theorem"], Counter())[one["verdict"]] += 1
    return counts


def _repeat(manifest: Manifest, runs: xr.Dataset) -> str:
    """Return a file for `unlazy sweep` that has the same points."""
    first, table = manifest.points[0], manifest.base
    given = [name for name in first.fields | first.derived if not name.startswith(VARIABLE)]
    for name in given:
        table = with_field(table, name, (first.fields | first.derived)[name])
    if "point" not in runs.dims and not first.derived:
        return tomli_w.dumps({**table, "sweep": manifest.axes}).rstrip()
    points = [{name: (one.fields | one.derived)[name] for name in given} for one in manifest.points[:_MOST_POINTS]]
    text = tomli_w.dumps({**table, "sweep": {"points": points}}).rstrip()
    left = len(manifest.points) - len(points)
    return f"{text}\n# and {left:,} more points" if left else text
