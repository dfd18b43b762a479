"""Figures of the probes of runs, on common axes and grouped by the settings in which the runs differ."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from unlazy._files import in_words
from unlazy.figures import style as st
from unlazy.figures.comparison import Comparison, Group, Runs, compare, short
from unlazy.figures.style import DASHES, Style, band, evenly, literal

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Form = Literal["curve", "quantiles", "profile", "index", "points", "map", "histogram"]

_MOST_NAMES = 12  # in a legend
_FEW = 8  # with more groups in a plot, only medians over seeds are drawn
_MOST_MAPS = 6  # heat maps of one variable
_SMALLEST_MAP = 5  # rows and columns of a matrix that is drawn as a heat map
_SMOOTH = 4.0  # total variation, in units of the range, up to which an array is drawn as a function of its index
_SNAPSHOTS = 5  # times at which such a function is drawn if there is one group of runs
_QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)


@dataclass(frozen=True)
class Plot:
    """One plot: a variable, how it is drawn, and the runs that are in it."""

    name: str
    form: Form
    groups: tuple[Group, ...]
    title: str = ""


def curves(runs: Runs, probe: str | Iterable[str] | None = None, style: Style = "screen") -> Figure:
    """Draw the probes of one or several runs, with a plot for each quantity.

    Scalars are drawn over time, losses first. For an array, such as one number per neuron, the median over its entries
    is drawn with bands that contain 50 % and 90 % of them; for a matrix also its values at the end. What was observed
    only at the end is drawn over its index. Several runs share each plot: the settings in which their recipes differ
    determine colour, dash pattern and plot; seeds are drawn as a band. Save the figure with
    ``figure.savefig("loss.pdf")``.

    Parameters
    ----------
    runs
        One run or several: `unlazy.Trajectory` objects, stored runs (`xarray.Dataset`), a sequence of either, or a
        mapping from labels. A list under one label holds seeds.
    probe
        The probe to draw, or several of them. All if omitted.
    style
        ``"screen"``, or ``"paper"`` for page width and type to match.
    """
    comparison = compare(runs)
    with st.styled(style):
        return draw_plots(comparison, plots(comparison, comparison.chosen(probe)))


def overlay(axes: Axes, runs: Runs, probe: str, legend: bool = True) -> None:
    """Draw one quantity of several runs into existing axes.

    Parameters
    ----------
    axes
        Where to draw.
    runs
        As for `curves`.
    probe
        The variable to draw, such as ``"train-loss"`` or ``"kernel.drift"``.
    legend
        Whether to add a legend where there is more than one group of runs.
    """
    comparison = compare(runs)
    name = comparison.chosen(probe)[0]
    draw_plot(axes, Plot(name, form(comparison, name), tuple(comparison.groups)))
    if legend and len(comparison.groups) > 1:
        axes.legend()


def shows_seeds(chosen: Sequence[Plot]) -> bool:
    """Whether there are few enough runs in each plot to show individual seeds.

    Parameters
    ----------
    chosen
        Plots, as `plots` lists them.
    """
    return all(len(plot.groups) <= _FEW for plot in chosen)


def form(comparison: Comparison, name: str) -> Form:
    """Choose how a variable is drawn, by its shape."""
    extra = comparison.extra_axes(name)
    timed = any(times.size > 1 for group in comparison.groups for times, _ in group.seeds(name))
    if timed:
        return "curve" if extra == 0 else "profile" if extra == 1 and _is_function(comparison, name) else "quantiles"
    return ("points", "index", "map")[extra] if extra < 3 else "histogram"


def _is_function(comparison: Comparison, name: str) -> bool:
    """Whether neighbouring entries of an array are close to each other, as those of a spectrum or of a function are."""
    (_, values), *_ = next(filter(None, (group.seeds(name) for group in comparison.groups)))
    last = values[0, -1]
    if last.size < 5 or not np.isfinite(last).all() or np.ptp(last) == 0:
        return False
    return bool(np.abs(np.diff(last)).sum() <= _SMOOTH * np.ptp(last))


def plots(comparison: Comparison, names: Sequence[str]) -> list[Plot]:
    """List the plots of the given variables.

    Parameters
    ----------
    comparison
        Runs, grouped by `compare`.
    names
        The variables, such as ``comparison.names``.
    """
    found: list[Plot] = []
    several = len(comparison.plots) > 1
    for name in names:
        having = [group for group in comparison.groups if group.seeds(name)]
        chosen = form(comparison, name)
        if chosen != "map":
            for index, title in enumerate(comparison.plots):
                here = tuple(group for group in having if not several or group.plot == index)
                found += [Plot(name, chosen, here, title)] if here or several else []
        shape = having[0].seeds(name)[0][1].shape[2:] if having else ()
        if chosen == "map" or (chosen == "quantiles" and len(shape) == 2 and min(shape) >= _SMALLEST_MAP):
            found += [Plot(name, "map", (group,), group.label) for group in having[:_MOST_MAPS]]
    return found


def draw_plots(comparison: Comparison, chosen: Sequence[Plot]) -> Figure:
    """Draw plots into one figure with one legend, in the current style.

    Parameters
    ----------
    comparison
        Runs, grouped by `compare`.
    chosen
        Plots, as `plots` lists them.
    """
    abreast = len(comparison.plots)
    columns = min(len(chosen), abreast if abreast > 1 else 3) or 1
    rows = -(-len(chosen) // columns)
    named = _legend(comparison)
    width, height = (6.4, 4.0) if columns == 1 else (3.9 * columns, 2.9 * rows)
    figure, grid = st.canvas(columns, width, height + (0.5 if named else 0.0), rows=rows)
    for axes, plot in zip(grid, chosen, strict=False):
        axes.set_visible(bool(plot.groups))
        if plot.groups:
            draw_plot(axes, plot)
    for axes in grid[len(chosen) :]:
        axes.remove()
    if abreast > 1:  # a row has one variable: the same scale makes its plots comparable
        for row in range(rows):
            _share(grid[row * columns : (row + 1) * columns], chosen[row * columns : (row + 1) * columns])
    if named:
        handles, labels = zip(*named, strict=True)
        across = min(len(labels), 4 if columns > 1 else 2)
        figure.legend(handles, labels, loc="outside upper center", ncols=across, fontsize=8)
    return st.fit(figure)


def draw_plot(axes: Axes, plot: Plot) -> None:
    """Draw one plot into existing axes."""
    _MAKERS[plot.form](axes, plot)
    if plot.title:
        axes.set_title(literal(plot.title, 50), fontsize=9)


def _legend(comparison: Comparison) -> list[tuple[Any, str]]:
    """Return the entries of the legend, lines and names, for colours, dash patterns and line widths."""
    from matplotlib.lines import Line2D

    entries: list[tuple[Any, str]] = []
    for mark in ("by_colour", "by_dash", "by_thickness"):
        if (key := getattr(comparison, mark)) is None:
            continue
        groups = {group.settings[key]: group for group in comparison.groups}
        values = comparison.factors[key]
        for value in (values[index] for index in evenly(len(values), _MOST_NAMES)):
            group = groups[value]
            style: Any = {"color": group.colour if mark == "by_colour" else "0.4"}
            if mark == "by_thickness":
                style["linewidth"] = _linewidth(group)
            elif mark == "by_dash" or comparison.by_dash is None:
                style["linestyle"] = DASHES[group.dash]
            name = value if key == "run" else f"{short(key)} = {value}"
            entries.append((Line2D([], [], **style), literal(name, 40)))
    return entries


def _linewidth(group: Group) -> float | None:
    """Return the line width of a group of runs in the current style; None is the default."""
    from matplotlib import rcParams

    factor = rcParams["lines.linewidth"] / st.STYLE["lines.linewidth"]
    return None if group.thickness is None else group.thickness * factor


# ---------------------------------------------------------------- forms


def _curve(axes: Axes, plot: Plot) -> None:
    thin = len(plot.groups) <= _FEW
    zero = _scales(axes, plot)
    for group, times, values in _each(plot):
        shown = np.where((times <= 0) & (np.abs(values) <= zero), 0.0, values)  # a logarithmic axis leaves zeros out
        style: Any = {"colour": group.colour, "thin": thin, "linewidth": _linewidth(group)}
        if not thin:
            shown = np.median(shown, axis=0, keepdims=True)  # bands of many runs would hide each other
        band(axes, times, shown, 0, literal(group.label), group.dash, **style)
    axes.minorticks_off()
    axes.set(xlabel="$t$", ylabel=words(plot))


def _quantiles(axes: Axes, plot: Plot) -> None:
    """Draw the median over entries and seeds, and the bands that contain 50 % and 90 % of them."""
    outer = len(plot.groups) <= 3
    _scales(axes, plot, quantiles=True)
    for group, times, values in _each(plot):
        entries = np.moveaxis(values, 1, 0).reshape(len(times), -1)
        finite = np.isfinite(entries).any(axis=1)
        levels = np.full((5, len(times)), np.nan)
        levels[:, finite] = np.nanquantile(entries[finite], _QUANTILES, axis=1)
        style: Any = {"color": group.colour, "linewidth": 0}
        if outer:
            axes.fill_between(times, levels[0], levels[4], alpha=0.12, **style)
        if len(plot.groups) <= _FEW:
            axes.fill_between(times, levels[1], levels[3], alpha=0.22, **style)
        axes.plot(times, levels[2], color=group.colour, linestyle=DASHES[group.dash], label=literal(group.label))
    axes.minorticks_off()
    axes.set(xlabel="$t$", ylabel=f"{words(plot)} ({'quantiles' if len(plot.groups) <= _FEW else 'median'})")


def _profile(axes: Axes, plot: Plot) -> None:
    """Draw an array over its index: of one group of runs at several times, of several groups at the last time."""
    if len(plot.groups) > 1:
        _index(axes, plot)
        return
    (_, times, values), *_ = _each(plot)
    chosen = evenly(len(times), _SNAPSHOTS)
    colours = st.shades("time", [f"{index}" for index in range(len(chosen) + 7)])  # more than the palette: a colour map
    for place, colour in zip(chosen, list(colours.values())[:: max(1, len(colours) // len(chosen))], strict=False):
        label = f"t = {times[place]:g}"
        band(axes, np.arange(values.shape[2]), values[:, place], 0, label, 0, colour=colour, thin=False)
    axes.legend(fontsize=7)
    axes.set(xlabel="index", ylabel=words(plot))


def _index(axes: Axes, plot: Plot) -> None:
    for group, times, values in _each(plot):
        flat = values[:, -1] if times.size else values
        index = np.arange(flat.shape[-1])
        band(axes, index, flat, 0, literal(group.label), group.dash, colour=group.colour, thin=len(plot.groups) <= _FEW)
    seen = np.concatenate([values.ravel() for _, _, values in _each(plot)])
    if st.logarithmic(seen[np.isfinite(seen)]):
        axes.set_yscale("log", nonpositive="mask")
    axes.set(xlabel="index", ylabel=words(plot) + (" at the last time" if plot.form == "profile" else ""))


def _points(axes: Axes, plot: Plot) -> None:
    """Draw a dot for each seed and a line at the mean, group by group."""
    for place, group in enumerate(plot.groups):
        ends = group.last(plot.name)
        style: Any = {"color": group.colour}
        axes.plot(np.full(len(ends), place), ends, "o", markersize=4, alpha=0.6, label=literal(group.label), **style)
        axes.plot([place - 0.25, place + 0.25], [ends.mean()] * 2, label="_mean", **style)
    axes.set_xlim(-0.6, len(plot.groups) - 0.4)
    axes.set_xticks([])
    axes.set(xlabel="runs", ylabel=words(plot))


def _map(axes: Axes, plot: Plot) -> None:
    """Draw the matrix of the first seed at the last time."""
    (_, times, values), *_ = _each(plot)
    matrix = values[0, -1] if times.size else values[0]
    finite = matrix[np.isfinite(matrix)]
    size = float(np.abs(finite).max(initial=0.0)) or 1.0
    signed = bool((finite < 0).any())
    limits: Any = {"cmap": "RdBu_r", "vmin": -size} if signed else {"cmap": "viridis", "vmin": 0.0}
    step = tuple(slice(None, None, -(-n // 256)) for n in matrix.shape)  # more cells than that cannot be distinguished
    picture = axes.imshow(matrix[step], aspect="auto", interpolation="nearest", label=plot.name, vmax=size, **limits)
    axes.grid(visible=False)
    axes.figure.colorbar(picture, ax=axes, shrink=0.8)
    axes.set(ylabel=words(plot), xlabel=f"at $t$ = {times[-1]:g}" if times.size else "at the end")


def _histogram(axes: Axes, plot: Plot) -> None:
    seen = [(group, values[np.isfinite(values)]) for group, _, values in _each(plot)]
    whole = np.concatenate([values for _, values in seen])
    edges = np.histogram_bin_edges(whole, bins=40) if whole.size else np.array([0.0, 1.0])
    for group, values in seen:
        counts, _ = np.histogram(values, edges, density=values.size > 0)
        style: Any = {"color": group.colour, "linestyle": DASHES[group.dash], "drawstyle": "steps-mid"}
        axes.plot((edges[1:] + edges[:-1]) / 2, counts, label=literal(group.label), **style)
    axes.set(xlabel=words(plot), ylabel="density")


_MAKERS: dict[Form, Callable[[Axes, Plot], None]] = {
    "curve": _curve,
    "quantiles": _quantiles,
    "profile": _profile,
    "index": _index,
    "points": _points,
    "map": _map,
    "histogram": _histogram,
}


def _each(plot: Plot) -> Iterator[tuple[Group, np.ndarray, np.ndarray]]:
    for group in plot.groups:
        for times, values in group.seeds(plot.name):
            yield group, times, values


def words(plot: Plot) -> str:
    """Name a variable by its ``long_name``, with its units if it has any."""
    found = (run[plot.name].attrs for group in plot.groups for run in group.runs if plot.name in run.data_vars)
    attributes = next(found, {})
    units = attributes.get("units", "")
    name = literal(attributes.get("long_name") or in_words(plot.name))
    return f"{name} ({literal(units)})" if units else name


# ---------------------------------------------------------------- scales


def _scales(axes: Axes, plot: Plot, quantiles: bool = False) -> float:
    """Choose linear or logarithmic axes, and return the size up to which a value at t = 0 counts as zero."""
    grids = [times[np.isfinite(times)] for _, times, _ in _each(plot)]
    if grids and all(map(_log_spaced, grids)):
        if any((grid <= 0).any() for grid in grids):
            first = min(float(grid[grid > 0].min()) for grid in grids)
            axes.set_xscale("symlog", linthresh=first, linscale=0.4)
        else:
            axes.set_xscale("log")
    later, start = [np.empty(0)], [np.empty(0)]
    for _, times, values in _each(plot):
        shown = np.median(values.reshape(*values.shape[:2], -1), axis=2) if quantiles else values
        finite = np.isfinite(shown)
        start.append(shown[finite & (times <= 0)])
        later.append(shown[finite & (times > 0)])
    rest, begin = np.concatenate(later), np.concatenate(start)
    zero = st.rounding(rest)
    if not st.logarithmic(np.concatenate([rest, begin[np.abs(begin) > zero]])):
        return 0.0
    axes.set_yscale("log", nonpositive="mask")
    return zero


def _log_spaced(times: np.ndarray) -> bool:
    """Whether at least half of the times lie before a tenth of the last."""
    positive = np.sort(times[times > 0])
    return len(positive) >= 4 and bool(np.median(positive) < 0.1 * positive[-1])


def _share(row: Sequence[Axes], plots_: Sequence[Plot]) -> None:
    drawn = [axes for axes, plot in zip(row, plots_, strict=False) if plot.groups and plot.form == "curve"]
    if len({axes.get_yscale() for axes in drawn}) > 1:
        for axes in drawn:
            axes.set_yscale("linear")
    limits = np.array([axes.get_ylim() for axes in drawn])
    for axes in drawn[1:]:
        axes.tick_params(labelleft=False)
        axes.set_ylabel("")
    if len(drawn) > 1:
        for axes in drawn:
            axes.set_ylim(limits[:, 0].min(), limits[:, 1].max())
