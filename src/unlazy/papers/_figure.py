"""The visual language shared by all panels: colours that survive colour blindness and grey print, seeds as bands."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's palette, dark to light so that an ordered quantity also reads in grey.
ORDERED = ("#000000", "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00")
DASHES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (1, 1)), (0, (8, 2)))

STYLE: Any = {
    "figure.dpi": 110,
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.25,
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "lines.linewidth": 1.8,
    "svg.fonttype": "none",  # text stays text: searchable, selectable, small
    "svg.hashsalt": "unlazy",  # the same figure gives the same file
}


def canvas(columns: int = 1, width: float = 6.4, height: float = 4.0, rows: int = 1) -> tuple[Figure, list[Axes]]:
    """Give a figure with a grid of axes, listed row by row, away from any window system."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(width, height), layout="constrained")
        axes = np.atleast_1d(figure.subplots(rows, columns))
    return figure, list(axes.ravel())


def band(
    axes: Axes, x: np.ndarray, curves: np.ndarray, index: int, label: str, dash: int | None = None, **style: Any
) -> None:
    """Draw the median over seeds (first axis), each seed as a thin line, and the band that they span.

    The index chooses colour and dash together, unless ``dash`` tells something else.
    """
    colour, line = ORDERED[index % len(ORDERED)], DASHES[(index if dash is None else dash) % len(DASHES)]
    axes.plot(x, np.median(curves, axis=0), color=colour, linestyle=line, label=label, **style)
    if len(curves) > 1:
        axes.plot(x, curves.T, color=colour, linestyle=line, linewidth=0.5, alpha=0.5)
        axes.fill_between(x, curves.min(axis=0), curves.max(axis=0), color=colour, alpha=0.1, linewidth=0)


def bars(axes: Axes, x: Sequence[float], values: np.ndarray, index: int, label: str) -> None:
    """Draw the mean over seeds (first axis) with its standard deviation as a bar, and each seed as a faint dot."""
    colour, line = ORDERED[index % len(ORDERED)], DASHES[index % len(DASHES)]
    spread = values.std(axis=0) if len(values) > 1 else None
    axes.errorbar(x, values.mean(axis=0), spread, color=colour, linestyle=line, marker="o", capsize=3, label=label)
    if len(values) > 1:
        axes.plot(x, values.T, ".", color=colour, markersize=4, alpha=0.4)
