"""What a report shows of runs that belong to no panel: overlaid figures, a table of settings and last values, recipes.

Runs on the same kind of data are compared with each other, in the same figures.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from unlazy import figures
from unlazy._files import recipe_table
from unlazy.figures import Comparison
from unlazy.lab.stored import statuses
from unlazy.report.contents import Contents, seeds, toml
from unlazy.report.figures import describe, encode

MANY = 60  # runs above which they are not drawn one by one
_PLOTS = 12  # in one figure
_MOST_SETTINGS = 10  # columns of settings in the table
_MADE_BY = ("versions", "python", "commit", "device", "machine", "cores", "threads", "written", "method")


@dataclass(frozen=True)
class Value:
    """Last value of a scalar probe: mean, smallest and largest over seeds, and what is shown of them."""

    mean: float | None
    low: float
    high: float
    text: str
    range: str = ""


@dataclass(frozen=True)
class Row:
    """Runs with the same settings in the table: the settings that differ from other rows, and last values."""

    settings: list[str]
    count: int  # seeds
    status: str
    values: list[Value]


@dataclass(frozen=True)
class Family:
    """Runs that are compared with each other."""

    anchor: str
    title: str
    summary: str
    caption: str
    figures: list[tuple[str, str]]  # as SVG, and in words
    settings: list[str]
    probes: list[str]
    rows: list[Row]
    details: list[dict[str, Any]]  # of each run
    runs: dict[str, xr.Dataset]  # by label, for films

    @property
    def seconds(self) -> float:
        """Computing time of all runs."""
        return sum(one["seconds"] for one in self.details)

    @property
    def unfinished(self) -> bool:
        """Whether any run ended early."""
        return any(row.status != "finished" for row in self.rows)

    @property
    def ranges(self) -> bool:
        """Whether any value is a mean over several seeds."""
        return any(value.range for row in self.rows for value in row.values)


def families(contents: Contents) -> list[Family]:
    """Group the runs of a report that belong to no panel into families, and draw each of them.

    A family of more than `MANY` runs is shown as a sweep (`unlazy.report.sweeps`).
    """
    few = {kind: paths for kind, paths in kinds(contents).items() if len(paths) <= MANY}
    return [_family(f"r{index}", kind, paths, contents) for index, (kind, paths) in enumerate(few.items())]


def kinds(contents: Contents) -> dict[str, list[Path]]:
    """Return the runs of a report that belong to no panel and no sweep, by the kind of their data."""
    found: dict[str, list[Path]] = {}
    for path, run in contents.runs.items():
        found.setdefault(str(figures.settings(run).get("data", "")), []).append(path)
    return found


def _family(anchor: str, kind: str, paths: Sequence[Path], contents: Contents) -> Family:
    runs = [contents.runs[path] for path in paths]
    compared = figures.compare(runs)
    details = [_detail(path, run, contents) for path, run in zip(paths, runs, strict=True)]
    names = {one["name"] for one in details}
    title = names.pop() if len(names) == 1 else f"Runs on {kind}" if kind else "Runs made in Python"
    columns = list(dict.fromkeys([*compared.factors, *compared.differing]))[:_MOST_SETTINGS]
    rows = []
    for group in compared.groups:
        status = sorted({details[index]["status"] for index in group.members} - {"finished", ""})
        values = [_value(group.last(name)) for name in compared.scalars]
        settings = [group.settings[key] for key in columns]
        rows.append(Row(settings, group.count, ", ".join(status) or "finished", values))
    return Family(
        anchor=anchor,
        title=title,
        summary=_summary(compared, details),
        caption=_caption(compared),
        figures=_drawn(compared, title),
        settings=[figures.short(key) for key in columns],
        probes=compared.scalars,
        rows=rows,
        details=details,
        runs={_label(compared, index, details): run for index, run in enumerate(runs)},
    )


def _drawn(compared: Comparison, title: str) -> list[tuple[str, str]]:
    """Draw all variables, a limited number of plots in each figure; return the figures as SVG and in words."""
    drawn, plots = [], figures.plots(compared, compared.names)
    abreast = max(1, len(compared.plots))
    most = max(1, _PLOTS // abreast) * abreast  # plots of a row stay together
    with figures.styled("screen"):
        for first in range(0, len(plots), most):
            figure = figures.draw_plots(compared, plots[first : first + most])
            drawn.append((encode(figure, "svg", title).decode(), describe(figure)))
    return drawn


def _label(compared: Comparison, index: int, details: Sequence[dict[str, Any]]) -> str:
    (group,) = (one for one in compared.groups if index in one.members)
    own = details[index]["seeds"] or details[index]["file"]
    return group.label if len(group.members) == 1 else f"{group.label}, {own}"


def _value(ends: np.ndarray) -> Value:
    if not ends.size or not np.isfinite(ends).all():
        return Value(None, np.nan, np.nan, "not finite" if ends.size else "none")
    mean, low, high = float(ends.mean()), float(ends.min()), float(ends.max())
    return Value(mean, low, high, f"{mean:.4g}", f"{low:.4g} to {high:.4g}" if ends.size > 1 else "")


def _detail(path: Path, run: xr.Dataset, contents: Contents) -> dict[str, Any]:
    """Return what the page shows of one stored run: where it is, how it ended, and how to repeat it."""
    attributes = run.attrs
    marked = str(attributes.get("nonfinite", ""))
    recipe = str(attributes.get("recipe") or "")
    return {
        "file": path.name,
        "name": str(attributes.get("name") or path.stem),
        "seeds": seeds([recipe]),
        "status": ", ".join(sorted(set(statuses(run)))) + (f"; not finite: {marked}" if marked else ""),
        "seconds": float(attributes.get("seconds", 0.0)),
        "recipe": toml(recipe) if recipe_table(recipe) else "",  # empty for a run that was made in Python
        "made_by": {one: str(attributes[one]) for one in _MADE_BY if one in attributes},
        "verdicts": verdicts(contents, {"": str(attributes.get("digest", ""))}),
    }


def verdicts(contents: Contents, digests: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return the verdicts of theorems on the runs of these digests: failures first, those that do not apply last."""
    rank = {"FAILS": 0, "HOLDS": 1, "VACUOUS": 2, "SILENT": 3}
    found = [{"run": label, **one} for label, name in digests.items() for one in contents.findings.get(name, [])]
    return sorted(found, key=lambda one: (rank.get(one["verdict"], 4), one["theorem"], one["run"], one["seed"]))


# ---------------------------------------------------------------- sentences


def _summary(compared: Comparison, details: Sequence[dict[str, Any]]) -> str:
    times = sorted({run.sizes.get("time", 0) for run in compared.runs})
    count = sum(group.count for group in compared.groups)
    span = str(times[0]) if len(times) == 1 else f"{times[0]} to {times[-1]}"
    sizes = f"{count} seed{'' if count == 1 else 's'}, {span} time{'' if times == [1] else 's'}"
    if len(details) == 1:
        return f"{sizes}; {details[0]['status'] or 'status unknown'}."
    words = [f"{len(details)} runs, {sizes}."]
    named = {key: values for key, values in compared.factors.items() if key != "run"}
    if named:
        words.append(f"They differ in {', '.join(f'{key} ({_values(values)})' for key, values in named.items())}.")
    follow = [key for key in compared.differing if key not in compared.factors]
    if follow:
        words.append(f"{', '.join(follow)} change{'s' if len(follow) == 1 else ''} with them.")
    return " ".join(words)


def _values(values: Sequence[str]) -> str:
    shown = [one if len(one) <= 24 else f"{one[:23]}…" for one in values]
    return ", ".join(shown) if len(shown) <= 6 else f"{', '.join(shown[:3])}, … {shown[-1]}; {len(shown)} values"


def _caption(compared: Comparison) -> str:
    words = ["Probes over time t, losses first."]
    plots = figures.plots(compared, compared.names)
    seeds_shown = figures.shows_seeds(plots)
    if any(group.count > 1 for group in compared.groups):
        words.append(f"Lines are medians over seeds{'; bands span the seeds' if seeds_shown else ''}.")
    shown = {
        "colour": compared.by_colour,
        "dash pattern": compared.by_dash,
        "line width": compared.by_thickness,
        "plots side by side": ", ".join(compared.by_plot) or None,
    }
    named = [f"{mark}: {key}" for mark, key in shown.items() if key is not None and key != "run"]
    if named:
        words.append(f"{'; '.join(named).capitalize()}.")
    if any(plot.form == "quantiles" for plot in plots):
        words.append(
            "For arrays with an entry per neuron or sample, lines are medians over entries"
            + (", and bands hold half and, for few runs, nine tenths of them." if seeds_shown else ".")
        )
    return " ".join(words)
