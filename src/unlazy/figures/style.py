"""Colours, fonts and layout shared by all figures, and the marks that show several seeds at once."""

from __future__ import annotations

import io
import math
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# The palette of Okabe and Ito, from dark to light, so that the order of an ordered quantity is also visible in grey.
ORDERED = ("#000000", "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00")
DASHES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (1, 1)), (0, (8, 2)))

# Index into the palette: a scaling has the same colour in every figure. Asymmetrical nodes with γ = 1 are in the NTK
# scaling, so they come first.
SCALING = {"ntk": 0, "mean-field": 1, "multilayer-mean-field": 2}

MOST_COLOURS = min(len(ORDERED), len(DASHES))  # values that the palette and the dash patterns distinguish
_WIDE_RANGE = 100.0  # ratio of the largest to the smallest value from which on an axis is logarithmic
# A value at t = 0 is zero up to rounding if it is this small relative to the largest and to the smallest later value.
_ROUNDING, _JUMP = 1e-6, 1e-3
_MARKERS = 500  # above which a cloud of markers is drawn as an image

STYLE: Any = {
    "figure.dpi": 110,
    "savefig.dpi": 200,  # of what is an image inside a vector graphic
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
# For print: a typeface and size as in papers, embedded in the file so that it looks the same everywhere.
_PAPER: Any = STYLE | {
    "font.size": 8,
    "font.family": ["STIXGeneral", "DejaVu Sans"],  # the second has characters that the first lacks
    "mathtext.fontset": "stix",
    "axes.labelsize": 8,
    "axes.titlesize": 8,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "legend.fontsize": 7,
    "legend.title_fontsize": 7,
    "lines.linewidth": 1.2,
    "lines.markersize": 4,
    "axes.linewidth": 0.6,
    "svg.fonttype": "path",
    "pdf.fonttype": 42,
}
_COLUMN, _PAGE = 3.25, 6.75  # inches: one column and the full width of a two-column page
_TALLEST, _FLATTEST = 0.85, 0.68  # height of an axes on a page, as a share of its width: labels need room
_LARGEST_FONT = 8.0  # points
_ABREAST = {"screen": 4, "paper": 3}  # axes side by side, when a figure asks for a single row

_style: ContextVar[Style] = ContextVar("style", default="screen")


@contextmanager
def styled(style: Style) -> Iterator[None]:
    """Set the style of all figures that are drawn inside this context.

    Parameters
    ----------
    style
        ``"screen"``, or ``"paper"`` for figures of column or page width with type to match.
    """
    import matplotlib as mpl

    token = _style.set(style)
    try:
        with mpl.rc_context(_PAPER if style == "paper" else STYLE):
            yield
    finally:
        _style.reset(token)


def fit(figure: Figure) -> Figure:
    """Finish a figure: typeset its symbols, reduce the size of its file and, in the paper style, adapt it to a page.

    Symbols with a subscript, such as ``m_1`` or ``w_tj``, are typeset in every label. In the paper style the title is
    removed, since it belongs in the caption, and no text is larger than that of the page. Clouds of more than
    500 markers become images inside the file; axes, text and lines remain vector graphics.

    Parameters
    ----------
    figure
        The figure to finish. It is changed in place, and returned.
    """
    from matplotlib.text import Text

    if _style.get() == "paper":
        figure.suptitle("").set_in_layout(False)
        if len(figure.axes) == 1:
            figure.axes[0].set_title("")
        for text in figure.findobj(Text):
            text.set_fontsize(min(text.get_fontsize(), _LARGEST_FONT))
    for axes in figure.axes:
        legend = axes.get_legend()
        names = legend.get_texts() if legend is not None else ()
        for text in (axes.title, axes.xaxis.label, axes.yaxis.label, *axes.texts, *names):
            text.set_text(typeset(text.get_text()))
    for artist in figure.findobj(_dense):
        artist.set_rasterized(True)
    return figure


def _dense(artist: Artist) -> bool:
    """Whether an artist draws so many separate markers that an image is smaller than vectors."""
    from matplotlib.collections import PathCollection
    from matplotlib.lines import Line2D

    if isinstance(artist, Line2D):
        return artist.get_marker() not in ("None", "none", "", " ", None) and np.size(artist.get_xdata()) > _MARKERS
    return isinstance(artist, PathCollection) and np.shape(artist.get_offsets())[0] > _MARKERS


def canvas(columns: int = 1, width: float = 6.4, height: float = 4.0, rows: int = 1) -> tuple[Figure, list[Axes]]:
    """Make a figure with a constrained layout, and a list of its axes, row by row, independent of any window system.

    A single row of many axes is broken into several rows: more than four on the screen, more than three on paper.

    Parameters
    ----------
    columns, rows
        The grid of axes.
    width, height
        Size of the figure in inches on the screen. In the paper style the width is that of a column (one axes) or of a
        page, and only the proportions are used.
    """
    style, count = _style.get(), columns * rows
    shape = (height / rows) / (width / columns)
    if rows == 1 and columns > _ABREAST[style]:
        rows = math.ceil(columns / _ABREAST[style])
        columns = math.ceil(columns / rows)
        width, height = width * columns / count, height * rows
    if style == "paper" and count == 1:
        width, height = _COLUMN, _COLUMN * shape
    elif style == "paper":
        width, height = _PAGE, _PAGE / columns * min(_TALLEST, max(_FLATTEST, shape)) * rows
    with styled(style):
        figure = _figure_class()(figsize=(width, height), layout="constrained")
        axes = list(figure.subplots(rows, columns, squeeze=False).ravel())
    for spare in axes[count:]:
        spare.remove()
    return figure, axes[:count]


def _figure_class() -> type[Figure]:
    from matplotlib.figure import Figure

    class Drawing(Figure):
        """A figure that notebooks show, also where pyplot was never imported."""

        def _repr_png_(self) -> bytes:
            buffer = io.BytesIO()
            self.savefig(buffer, format="png")
            return buffer.getvalue()

    return Drawing


def band(
    axes: Axes,
    x: np.ndarray,
    curves: np.ndarray,
    index: int,
    label: str,
    dash: int | None = None,
    *,
    colour: str | None = None,
    thin: bool = True,
    **style: Any,
) -> None:
    """Draw the median of several seeds, each seed as a thin line, and the band between the smallest and the largest.

    Parameters
    ----------
    axes
        Where to draw.
    x
        Abscissae, shape (points,).
    curves
        Values, shape (seeds, points).
    index
        Chooses the colour and, unless ``dash`` is given, the dash pattern.
    label
        Name of the curve in the legend.
    dash
        Index of the dash pattern.
    colour
        A colour to use instead of the palette's.
    thin
        Whether each seed is drawn as a thin line.
    **style
        Passed on to `matplotlib.axes.Axes.plot` for the median.
    """
    shade, line = colour or ORDERED[index % len(ORDERED)], DASHES[(index if dash is None else dash) % len(DASHES)]
    axes.plot(x, np.median(curves, axis=0), color=shade, linestyle=line, label=label, **style)
    if len(curves) > 1:
        if thin:
            names = seed_names(label, curves)
            axes.plot(x, curves.T, color=shade, linestyle=line, linewidth=0.5, alpha=0.5, label=names)
        axes.fill_between(x, curves.min(axis=0), curves.max(axis=0), color=shade, alpha=0.1, linewidth=0)


def bars(axes: Axes, x: Sequence[float], values: np.ndarray, index: int, label: str) -> None:
    """Draw the mean of several seeds with its standard deviation as an error bar, and each seed as a faint dot.

    Parameters
    ----------
    axes, x, index, label
        As for `band`.
    values
        Values, shape (seeds, points).
    """
    colour, line = ORDERED[index % len(ORDERED)], DASHES[index % len(DASHES)]
    spread = values.std(axis=0) if len(values) > 1 else None
    axes.errorbar(x, values.mean(axis=0), spread, color=colour, linestyle=line, marker="o", capsize=3, label=label)
    if len(values) > 1:
        axes.plot(x, values.T, ".", color=colour, markersize=4, alpha=0.4, label=seed_names(label, values))


def seed_names(label: str, values: np.ndarray) -> list[str]:
    """Name the curve of each seed, which is a row of ``values``; an underscore keeps names out of the legend."""
    return [f"_{label}, seed {seed}" for seed in range(1, 1 + len(values))]


def shades(key: str, values: Sequence[str]) -> dict[str, str]:
    """Choose a colour for each value of the setting ``key``: from the palette if it is long enough, else from a map.

    Scalings always have the same colours.
    """
    if len(values) > MOST_COLOURS:
        from matplotlib import colormaps
        from matplotlib.colors import to_hex

        colours = colormaps["viridis"](np.linspace(0, 0.9, len(values)))
        return {value: to_hex(colour) for value, colour in zip(values, colours, strict=True)}
    scalings = key.endswith("scaling") and set(values) <= set(SCALING)
    return {value: ORDERED[SCALING[value] if scalings else index] for index, value in enumerate(values)}


def logarithmic(values: np.ndarray) -> bool:
    """Return whether finite values are drawn on a logarithmic axis: they are positive and span a factor of 100."""
    return bool(values.size and values.min() > 0 and values.max() > _WIDE_RANGE * values.min())


def rounding(later: np.ndarray) -> float:
    """Return the size up to which a value at t = 0 is zero up to rounding, judged by the values at later times.

    Parameters
    ----------
    later
        Values at later times.
    """
    sizes = np.abs(later)
    return float(min(_ROUNDING * sizes.max(), _JUMP * sizes.min())) if sizes.size else 0.0


def evenly(count: int, most: int) -> np.ndarray:
    """Choose at most ``most`` of the indices 0, ..., count - 1, evenly spaced, with the first and the last."""
    return np.unique(np.linspace(0, count - 1, min(count, most)).round().astype(int))


# ---------------------------------------------------------------- text

_ACCENTS = {"": "{}", "\u0304": "\\bar{{{}}}", "\u0303": "\\tilde{{{}}}", "\u0302": "\\hat{{{}}}"}
_LETTER = "A-Za-zΑ-Ωα-ω"
_SUBSCRIPT = re.compile(
    rf"(?<![\w$\\])([{_LETTER}])([\u0302-\u0304]?)_(\d+(?:\.\d+)?|[{_LETTER}]{{1,3}}|{{[{_LETTER}0-9 ,.=+-]+}})"
    rf"(?![{_LETTER}0-9_])"
)
_TYPESET = re.compile(r"\$(?:\\(bar|tilde|hat)\{)?(\w)\}?_\{([^{}$]+)\}\$")


def typeset(text: str) -> str:
    """Write symbols with a subscript, such as ``m_1``, as mathematics; other text is left as it is.

    Parameters
    ----------
    text
        A label. If it contains a dollar sign, it is already typeset and returned unchanged.
    """
    if "$" in text:
        return text
    return _SUBSCRIPT.sub(lambda found: f"${_ACCENTS[found[2]].format(found[1])}_{{{found[3].strip('{}')}}}$", text)


def plain(text: str) -> str:
    """Undo `typeset` and `literal`: return a label as words, for tables and for screen readers.

    Parameters
    ----------
    text
        A label of a figure.
    """
    marks = {"bar": "\u0304", "tilde": "\u0303", "hat": "\u0302"}
    words = _TYPESET.sub(lambda found: f"{found[2]}{marks.get(found[1], '')}_{found[3]}", text)
    return words.replace("\\$", "\0").replace("$", "").replace("\0", "$")


def literal(text: object, longest: int = 60) -> str:
    """Return a text, such as a user's name for a run, as a label that is shown exactly as it is written.

    Parameters
    ----------
    text
        Anything that can be written as a string.
    longest
        Longer text is cut to this number of characters.
    """
    clean = "".join(letter if letter.isprintable() else " " for letter in str(text))
    return (clean if len(clean) <= longest else f"{clean[: longest - 1]}…").replace("$", "\\$")
