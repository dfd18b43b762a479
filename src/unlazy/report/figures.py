"""Figures as files: SVG and PDF, CSV with the numbers drawn, and a description in words for screen readers."""

from __future__ import annotations

import csv
import io
import warnings
from collections.abc import Iterator, Sequence
from itertools import repeat
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np

from unlazy._files import replace, writing
from unlazy.figures import Style, fit, plain, styled
from unlazy.lab.manifest import SUFFIX
from unlazy.lab.table import files
from unlazy.papers import Panel, Results

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Format = Literal["svg", "pdf", "csv"]
_HEAD = ("plot", "title", "x_label", "y_label", "curve", "x", "y", "error", "value")


def own_runs(given: Sequence[str]) -> tuple[list[Path], list[str]]:
    """Separate stored runs (files, folders and sweeps) from other names, which are those of panels or papers."""
    own = [name for name in given if Path(name).is_dir() or name.endswith((".nc", SUFFIX))]
    return files(own), [name for name in given if name not in own]


def draw(panel: Panel, results: Results, style: Style = "screen") -> Figure:
    """Draw a panel for the screen or for a paper.

    Parameters
    ----------
    panel
        The panel.
    results
        Its results by label, as `run_panel` returns them.
    style
        ``"screen"`` or ``"paper"``.
    """
    with styled(style):
        return fit(panel.draw(results))


def encode(figure: Figure, form: Format, title: str, style: Style = "screen") -> bytes:
    """Return a figure as the bytes of a file; the same figure gives the same bytes."""
    if form == "csv":
        return table(figure).encode()
    buffer = io.BytesIO()
    # No date, so that the same results give the same file, and no addresses of the web.
    without = ("Date", "Creator", "Format", "Type") if form == "svg" else ("CreationDate", "Creator", "Producer")
    with styled(style), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from")  # names may have any character
        if (engine := figure.get_layout_engine()) is not None:  # once: `savefig` alone would do all of this twice
            engine.execute(figure)
            figure.set_layout_engine("none")
        figure.savefig(buffer, format=form, metadata=cast(Any, {"Title": title} | dict.fromkeys(without)))
    whole = buffer.getvalue()
    return whole[whole.index(b"<svg") :] if form == "svg" else whole


def export(figure: Figure, title: str, base: Path, formats: Sequence[Format], style: Style) -> list[Path]:
    """Write a figure to files, and return their paths.

    Parameters
    ----------
    figure
        The figure.
    title
        Its title, for the metadata of the files.
    base
        Path of the files without their suffix.
    formats
        Any of "svg", "pdf" and "csv"; the last contains the numbers that are drawn.
    style
        The style in which it was drawn, ``"screen"`` or ``"paper"``.
    """
    written = []
    with writing(f"The figure '{title}'", base.parent, "choose another --to"):
        base.parent.mkdir(parents=True, exist_ok=True)
        for form in dict.fromkeys(formats):
            path = base.with_name(f"{base.name}.{form}")
            replace(path, encode(figure, form, title, style))
            written.append(path)
    return written


# ---------------------------------------------------------------- in words


def describe(figure: Figure) -> str:
    """Describe a figure in words: for each plot its axes, whether they are logarithmic, and its curves."""
    plots = [_plot(axes) for axes in _plots(figure)]
    if len(plots) == 1:
        return f"A plot of {plots[0]}."
    return f"{len(plots)} plots. " + " ".join(f"{index}: {plot}." for index, plot in enumerate(plots, 1))


def _plots(figure: Figure) -> list[Axes]:
    """Return the axes that contain data: no colour bars, and no gaps in a grid."""
    return [axes for axes in figure.axes if axes.get_visible() and axes.get_label() != "<colorbar>"]


def _plot(axes: Axes) -> str:
    title, x, y = map(plain, (axes.get_title(), axes.get_xlabel(), axes.get_ylabel()))
    what = ": ".join(filter(None, (title, y))) or "values"
    scales = {"horizontal": axes.get_xscale(), "vertical": axes.get_yscale()}
    logarithmic = [name for name, scale in scales.items() if scale in ("log", "symlog")]
    scale = f" ({' and '.join(logarithmic)} axis logarithmic)" if logarithmic else ""
    names = [plain(name) for name in axes.get_legend_handles_labels()[1]]
    curves = f"; {', '.join(names)}" if names else ""
    return f"{what}{f' against {x}' if x else ''}{scale}{curves}"


# ---------------------------------------------------------------- in numbers


def table(figure: Figure) -> str:
    """Return all that is drawn as CSV: one row for each point of each curve, or for each cell of a picture.

    ``error`` is half the length of an error bar, ``value`` what a picture shows at column x and row y.
    """
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(_HEAD)
    for index, axes in enumerate(_plots(figure), 1):
        texts = (axes.get_title() or figure.get_suptitle(), axes.get_xlabel(), axes.get_ylabel())
        place = (index, *map(plain, texts))
        writer.writerows((*place, _name(artist.get_label()), *numbers) for artist, *numbers in _rows(axes))
    return buffer.getvalue()


def _rows(axes: Axes) -> Iterator[tuple[Any, Any, Any, Any, Any]]:
    """Yield (artist, x, y, error, value) for each point and cell; what does not apply is an empty string."""
    from matplotlib.container import ErrorbarContainer

    bars = [one for one in axes.containers if isinstance(one, ErrorbarContainer)]
    parts = {id(part) for bar in bars for part in (bar[0], *bar[1]) if part is not None}
    for bar in bars:
        if bar[0] is not None:
            halves = [np.ptp(np.asarray(one)[:, 1]) / 2 for one in bar[2][0].get_segments()] if bar[2] else repeat("")
            yield from ((bar, *point, half, "") for point, half in zip(bar[0].get_xydata(), halves, strict=False))
    for line in axes.get_lines():
        if id(line) not in parts and line.get_transform().contains_branch(axes.transData):
            yield from ((line, *point, "", "") for point in cast(Any, line.get_xydata()))
    for artist in (*axes.collections, *axes.images):
        if type(artist).__name__ == "PathCollection":
            yield from ((artist, *point, "", "") for point in np.ma.getdata(cast(Any, artist).get_offsets()))
        elif type(artist).__name__ == "QuadMesh" or artist in axes.images:
            cells = np.atleast_2d(np.ma.filled(cast(Any, artist.get_array()), np.nan))
            if cells.ndim == 2:
                yield from ((artist, column, row, "", float(one)) for (row, column), one in np.ndenumerate(cells))
    for patch in axes.patches:
        if type(patch).__name__ == "Rectangle":
            box = cast(Any, patch)
            yield patch, box.get_x() + box.get_width() / 2, box.get_y() + box.get_height(), "", ""


def _name(label: object) -> str:
    """Return the name of a curve, without the underscore of individual seeds; empty if Matplotlib made the name."""
    text = plain(str(label))
    return "" if text.startswith(("_child", "_nolegend")) else text.removeprefix("_")
