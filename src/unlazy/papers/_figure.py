"""The visual language shared by all panels: colours that survive colour blindness and grey print, seeds as bands."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's palette, dark to light so that an ordered quantity also reads in grey.
ORDERED = ("#000000", "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00")
DASHES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (1, 1)), (0, (8, 2)))

# A scaling has the same colour everywhere. Asymmetrical nodes with γ = 1 are in the NTK scaling, so they come first.
SCALING = {"ntk": 0, "mean-field": 1, "multilayer-mean-field": 2}

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
Style = Literal["screen", "paper"]
# For print: type of a size and face that papers have, embedded so that every press and reader shows the same.
_PAPER: Any = STYLE | {
    "font.size": 8,
    "font.family": ["STIXGeneral", "DejaVu Sans"],  # the second has what the first lacks
    "mathtext.fontset": "stix",
    "axes.labelsize": 8,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "legend.fontsize": 7,
    "lines.linewidth": 1.2,
    "lines.markersize": 4,
    "axes.linewidth": 0.6,
    "svg.fonttype": "path",
    "pdf.fonttype": 42,
}
_COLUMN, _PAGE = 3.25, 6.75  # inches: a column and both columns of a two-column page
_TALLEST = 0.75  # of an axes on a page, as a share of its width
_LARGEST = 8.0  # points

_style: ContextVar[Style] = ContextVar("style", default="screen")


@contextmanager
def styled(style: Style) -> Iterator[None]:
    """Draw what is drawn inside for the ``screen``, or for the columns of a ``paper``."""
    import matplotlib as mpl

    token = _style.set(style)
    try:
        with mpl.rc_context(_PAPER if style == "paper" else STYLE):
            yield
    finally:
        _style.reset(token)


def fit(figure: Figure) -> Figure:
    """Leave titles to LaTeX's caption and make no letter larger than its text, where the style is that of a paper."""
    from matplotlib.text import Text

    if _style.get() == "paper":
        figure.suptitle("").set_in_layout(False)
        if len(figure.axes) == 1:
            figure.axes[0].set_title("")
        for text in figure.findobj(Text):
            text.set_fontsize(min(text.get_fontsize(), _LARGEST))
    return figure


def canvas(columns: int = 1, width: float = 6.4, height: float = 4.0, rows: int = 1) -> tuple[Figure, list[Axes]]:
    """Give a figure with a grid of axes, listed row by row, away from any window system."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    style = _style.get()
    if style == "paper":
        columns, rows, width, height = _on_paper(columns, rows, width, height)
    with mpl.rc_context(_PAPER if style == "paper" else STYLE):
        figure = Figure(figsize=(width, height), layout="constrained")
        axes = np.atleast_1d(figure.subplots(rows, columns))
    return figure, list(axes.ravel())


def _on_paper(columns: int, rows: int, width: float, height: float) -> tuple[int, int, float, float]:
    """One axes fills a column, several both; four, six, ... in a row stand in two rows."""
    if columns == rows == 1:
        return 1, 1, _COLUMN, _COLUMN * height / width
    shape = min(_TALLEST, (height / rows) / (width / columns))
    if rows == 1 and columns >= 4 and columns % 2 == 0:
        columns, rows = columns // 2, 2
    return columns, rows, _PAGE, _PAGE / columns * shape * rows


def band(
    axes: Axes, x: np.ndarray, curves: np.ndarray, index: int, label: str, dash: int | None = None, **style: Any
) -> None:
    """Draw the median over seeds (first axis), each seed as a thin line, and the band that they span.

    The index chooses colour and dash together, unless ``dash`` tells something else.
    """
    colour, line = ORDERED[index % len(ORDERED)], DASHES[(index if dash is None else dash) % len(DASHES)]
    axes.plot(x, np.median(curves, axis=0), color=colour, linestyle=line, label=label, **style)
    if len(curves) > 1:
        seeds = [f"_{label}, seed {seed}" for seed in range(1, 1 + len(curves))]  # an underscore: not in the legend
        axes.plot(x, curves.T, color=colour, linestyle=line, linewidth=0.5, alpha=0.5, label=seeds)
        axes.fill_between(x, curves.min(axis=0), curves.max(axis=0), color=colour, alpha=0.1, linewidth=0)


def bars(axes: Axes, x: Sequence[float], values: np.ndarray, index: int, label: str) -> None:
    """Draw the mean over seeds (first axis) with its standard deviation as a bar, and each seed as a faint dot."""
    colour, line = ORDERED[index % len(ORDERED)], DASHES[index % len(DASHES)]
    spread = values.std(axis=0) if len(values) > 1 else None
    axes.errorbar(x, values.mean(axis=0), spread, color=colour, linestyle=line, marker="o", capsize=3, label=label)
    if len(values) > 1:
        seeds = [f"_{label}, seed {seed}" for seed in range(1, 1 + len(values))]
        axes.plot(x, values.T, ".", color=colour, markersize=4, alpha=0.4, label=seeds)
