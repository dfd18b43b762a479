"""Maps of a quantity over two settings, with the boundary between regions and the line that a theory predicts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from unlazy._plain import is_number
from unlazy.figures.style import ORDERED, canvas, fit, literal, logarithmic

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_DENSE = 400  # points along each axis at which the line of a theory is evaluated
_FAINT = ("#56B4E9", "#E69F00", "#009E73", "#CC79A7", "#0072B2", "#D55E00", "#999999")


class Axis:
    """One axis of a map: numbers on a linear or logarithmic scale, or words at equal distances.

    Parameters
    ----------
    name
        The label of the axis.
    values
        Its values, in the order of the grid.
    """

    def __init__(self, name: str, values: Sequence[Any]) -> None:
        self.name, self.words = name, [literal(f"{one:g}" if isinstance(one, float) else one) for one in values]
        numbers = all(map(is_number, values))
        self.numeric = numbers and bool(np.all(np.diff(np.asarray(values, float)) > 0))
        self.at = np.asarray(values if self.numeric else range(len(values)), float)
        steps = np.diff(self.at)
        self.log = bool(self.numeric and self.at[0] > 0 and steps[-1] > 2 * steps[0])

    def dense(self) -> np.ndarray:
        """Return many values between the ends."""
        space = np.geomspace if self.log else np.linspace
        return space(self.at[0], self.at[-1], _DENSE)

    def edges(self) -> np.ndarray:
        """Return the borders between the values, half-way on the scale of the axis, and beyond both ends."""
        at = np.log(self.at) if self.log else self.at
        middle = (at[1:] + at[:-1]) / 2
        every = np.concatenate([[2 * at[0] - middle[0]], middle, [2 * at[-1] - middle[-1]]])
        return np.exp(every) if self.log else every


def draw_phases(
    axes: Axes,
    x: Axis,
    y: Axis,
    regions: np.ndarray,
    names: Sequence[str],
    *,
    values: np.ndarray | None = None,
    threshold: float | None = None,
    computed: np.ndarray | None = None,
    theory: Callable[[np.ndarray, np.ndarray], np.ndarray] | None = None,
    quantity: str = "",
    theory_name: str = "theory",
) -> None:
    """Draw a map of regions over two settings into existing axes.

    Parameters
    ----------
    axes
        Where to draw.
    x, y
        The two axes.
    regions
        The index of the region of every point of the grid, shape (points along x, points along y).
    names
        The names of the regions.
    values
        A quantity at every point, drawn as colours; NaN where it is not known. Without it, regions are coloured.
    threshold
        The value at which the regions of a quantity meet.
    computed
        Which points were computed; they are marked by dots.
    theory
        A function of x and y that is zero on the predicted boundary, for axes of numbers.
    quantity, theory_name
        The names of the quantity, and of the predicted boundary in the legend.
    """
    present = sorted(set(np.unique(regions).tolist()))
    if values is not None and np.isfinite(values).any():
        _colours(axes, x, y, values, quantity)
    else:
        from matplotlib.colors import ListedColormap

        shown = np.searchsorted(present, regions).astype(float)
        colours = ListedColormap([_FAINT[index % len(_FAINT)] for index in present])
        axes.pcolormesh(x.edges(), y.edges(), shown.T, cmap=colours, vmin=-0.5, vmax=len(present) - 0.5, alpha=0.6)
    handles = _boundary(axes, x, y, regions, values, threshold)
    if theory is not None and x.numeric and y.numeric:
        across, up = np.meshgrid(x.dense(), y.dense(), indexing="ij")
        height = np.broadcast_to(np.asarray(theory(across, up), float), across.shape)
        finite = np.isfinite(height)
        if finite.any() and height[finite].min() < 0 < height[finite].max():
            axes.contour(across, up, height, levels=[0.0], colors=ORDERED[2], linestyles="--", linewidths=2)
            handles[literal(theory_name)] = {"color": ORDERED[2], "linestyle": "--"}
    if computed is not None:
        i, j = np.nonzero(computed)
        axes.plot(x.at[i], y.at[j], ".", color="white", markeredgecolor="black", markeredgewidth=0.4, markersize=5)
    axes.set(xscale="log" if x.log else "linear", yscale="log" if y.log else "linear")
    axes.set(xlim=x.edges()[[0, -1]], ylim=y.edges()[[0, -1]], xlabel=literal(x.name), ylabel=literal(y.name))
    if not x.numeric:
        axes.set_xticks(x.at, x.words)
    if not y.numeric:
        axes.set_yticks(y.at, y.words)
    axes.grid(visible=False)
    _name_regions(axes, x, y, regions, names, present)
    if handles:
        from matplotlib.lines import Line2D

        lines = [Line2D([], [], label=name, **style) for name, style in handles.items()]
        axes.legend(handles=lines, loc="upper left", bbox_to_anchor=(0, -0.16), ncols=2, fontsize="small")


def _colours(axes: Axes, x: Axis, y: Axis, values: np.ndarray, quantity: str) -> None:
    from matplotlib.colors import LogNorm

    finite = values[np.isfinite(values)]
    norm = LogNorm(finite.min(), finite.max()) if logarithmic(finite) else None
    shown = np.ma.masked_invalid(values)
    picture = axes.pcolormesh(x.edges(), y.edges(), shown.T, cmap="viridis", norm=norm)
    axes.set_facecolor("#bbbbbb")  # where runs diverged
    axes.figure.colorbar(picture, ax=axes, label=literal(quantity))


def _boundary(
    axes: Axes, x: Axis, y: Axis, regions: np.ndarray, values: np.ndarray | None, threshold: float | None
) -> dict[str, dict[str, Any]]:
    """Draw the measured boundary: where a quantity crosses its threshold, or half-way between different regions."""
    if min(regions.shape) < 2 or len(np.unique(regions)) < 2:
        return {}
    style: dict[str, Any] = {"colors": "black", "linewidths": 1.8, "linestyles": "solid"}
    across, up = np.meshgrid(x.at, y.at, indexing="ij")
    if values is not None and threshold is not None and np.isfinite(values).all():
        height, level = (np.log(values), np.log(threshold)) if values.min() > 0 < threshold else (values, threshold)
        axes.contour(across, up, height, levels=[level], **style)
    else:
        for region in np.unique(regions)[:-1]:
            axes.contour(across, up, (regions <= region).astype(float), levels=[0.5], **style)
    return {"measured boundary": {"color": "black"}}


def _name_regions(
    axes: Axes, x: Axis, y: Axis, regions: np.ndarray, names: Sequence[str], present: Sequence[int]
) -> None:
    """Write the name of each region where it is widest: at the point that is farthest from other regions.

    Of several such points it is the one nearest to their middle.
    """
    from scipy.ndimage import distance_transform_edt

    box = {"boxstyle": "round,pad=0.25", "facecolor": "white", "alpha": 0.8, "edgecolor": "none"}
    for region in present:
        inside = np.pad(regions == region, 1)  # the frame counts as outside
        depth = np.asarray(distance_transform_edt(inside))[1:-1, 1:-1]
        widest = np.argwhere(depth == depth.max())
        i, j = map(int, widest[np.argmin(np.sum((widest - widest.mean(axis=0)) ** 2, axis=1))])
        axes.text(x.at[i], y.at[j], literal(names[region]), ha="center", va="center", fontsize="small", bbox=box)


def phase_figure(title: str, *arguments: Any, **options: Any) -> Figure:
    """Draw one map of regions as a figure of its own.

    Parameters
    ----------
    title
        Title of the figure.
    *arguments, **options
        Those of `draw_phases` after ``axes``.
    """
    figure, (axes,) = canvas(width=6.8, height=5.0)
    draw_phases(axes, *arguments, **options)
    axes.set_title(literal(title, 120), fontsize="medium")
    return fit(figure)
