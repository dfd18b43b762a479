"""The legend of a figure of several runs."""

from __future__ import annotations

from typing import Any

import numpy as np

from unlazy.figures._runs import Comparison, Group, shades, short
from unlazy.figures._style import DASHES, STYLE, literal

_MOST_NAMES = 12  # in a legend


def legend_entries(comparison: Comparison) -> list[tuple[Any, str]]:
    """Give the entries of the legend: lines and names, for colours, dash patterns and line widths."""
    from matplotlib.lines import Line2D

    entries: list[tuple[Any, str]] = []
    if comparison.by_colour is not None:
        key = comparison.by_colour
        colours = shades(key, comparison.factors[key])
        dashes = {group.settings[key]: group.dash for group in comparison.groups}
        kept = _some(list(colours))
        for value in kept:
            dash = DASHES[dashes[value]] if comparison.by_dash is None else "-"
            entries.append((Line2D([], [], color=colours[value], linestyle=dash), _named(key, value)))
    if comparison.by_dash is not None:
        key = comparison.by_dash
        for index, value in enumerate(comparison.factors[key]):
            entries.append((Line2D([], [], color="0.4", linestyle=DASHES[index]), _named(key, value)))
    if comparison.by_thickness is not None:
        key = comparison.by_thickness
        widths = {group.settings[key]: linewidth(group) for group in comparison.groups}
        for value in comparison.factors[key]:
            entries.append((Line2D([], [], color="0.4", linewidth=widths[value]), _named(key, value)))
    return entries


def linewidth(group: Group) -> float | None:
    """Give the line width of a group of runs in the current style; None is the default."""
    from matplotlib import rcParams

    return None if group.thickness is None else group.thickness * rcParams["lines.linewidth"] / STYLE["lines.linewidth"]


def _named(key: str, value: str) -> str:
    return literal(value if key == "run" else f"{short(key)} = {value}", 40)


def _some(values: list[str]) -> list[str]:
    chosen = np.unique(np.linspace(0, len(values) - 1, min(len(values), _MOST_NAMES)).round().astype(int))
    return [values[index] for index in chosen]
