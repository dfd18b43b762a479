"""Quantities against the width, with fitted powers of the width and their confidence intervals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from unlazy.figures.style import ORDERED, canvas, fit, literal, seed_names

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from unlazy._slopes import Slope

_LEAST_RANGE = 10.0  # of a logarithmic axis: what does not depend on the width is then drawn as a flat line
_MANY = 1e3  # from this range on, powers of 10 are enough numbers on an axis


def draw_widths(
    title: str,
    plots: Mapping[str, Mapping[str, Slope]],
    predicted: Mapping[str, Mapping[str, float]] | None = None,
) -> Figure:
    """Draw quantities against the width: a dot for each seed, the fitted power, and a band for its 95 % interval.

    A cross at the top marks the widths at which a measurement is not a finite number, as where training diverged.

    Parameters
    ----------
    title
        Title of the figure.
    plots
        For each plot, by its title, the quantities in it by their names.
    predicted
        Exponents that a theory predicts, arranged in the same way; each is drawn as a dotted line.
    """
    from matplotlib.ticker import LogLocator, NullFormatter

    names = max((len(quantities) for quantities in plots.values()), default=0)
    figure, axes = canvas(len(plots), width=4.6 * len(plots), height=3.6 + 0.2 * names)
    for one, (name, quantities) in zip(axes, plots.items(), strict=True):
        one.set_title(literal(name), fontsize="medium")
        one.set_xlabel("width m")
        one.set_xscale("log", base=2)
        widths = sorted({width for quantity in quantities.values() for width in quantity.widths})
        one.set_xticks(widths, [str(width) for width in widths])
        one.minorticks_off()
        every = np.concatenate([np.ravel(quantity.values) for quantity in quantities.values()] or [np.zeros(1)])
        finite = every[np.isfinite(every)]
        positive = bool(finite.size) and bool((finite > 0).all())
        if positive:
            one.set_yscale("log")
        for index, (label, quantity) in enumerate(quantities.items()):
            _draw(one, index, label, quantity, (predicted or {}).get(name, {}).get(label))
        _mark_failures(one, widths, quantities)
        if positive:
            low, high = one.get_ylim()
            spare = max(1.0, np.sqrt(_LEAST_RANGE * low / high))
            one.set_ylim(low / spare, high * spare)
            if one.get_ylim()[1] < _MANY * one.get_ylim()[0]:  # powers of 10 alone would leave an axis without numbers
                one.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
                one.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
                one.yaxis.set_minor_formatter(NullFormatter())
        one.legend(fontsize="small", frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.14))  # hides no dots
    figure.suptitle(literal(title, 160))
    return fit(figure)


def _mark_failures(axes: Axes, widths: Sequence[int], quantities: Mapping[str, Slope]) -> None:
    for index, (label, quantity) in enumerate(quantities.items()):
        failed = np.asarray(quantity.widths)[~np.isfinite(quantity.values).all(axis=1)]
        if failed.size:
            top = np.full(failed.size, 0.97 - 0.05 * index)  # one below the other
            mark = {"color": ORDERED[index % len(ORDERED)], "transform": axes.get_xaxis_transform()}
            axes.plot(failed, top, "x", markersize=6, label=f"_{label}, not finite", **mark)
    if len(widths) > 1:  # all widths are shown
        low, high = widths[0], widths[-1]
        axes.set_xlim(low / (high / low) ** 0.05, high * (high / low) ** 0.05)


def _draw(axes: Axes, index: int, label: str, quantity: Slope, predicted: float | None) -> None:
    colour, widths = ORDERED[index % len(ORDERED)], np.asarray(quantity.widths, float)
    values = np.asarray(quantity.values, float)
    known = not np.isnan(quantity.exponent)
    words = literal(label) + (f": $m^{{{round(quantity.exponent, 2) + 0.0:.2f}}}$" if known else "")
    words += "" if np.isfinite(values).all() else " (×: not finite)"
    words += f" (predicted {predicted:g})" if predicted is not None else ""
    axes.plot(widths, values, "o", color=colour, markersize=4, alpha=0.5, label=seed_names(label, values.T))
    centre = np.log(widths).mean()
    powers = lambda exponent: np.exp(exponent * (np.log(widths) - centre))  # noqa: E731
    if not known:
        axes.plot(widths, values.mean(axis=1), color=colour, linewidth=1, label=words)
        return
    height = np.exp(np.log(values).mean())
    axes.plot(widths, height * powers(quantity.exponent), color=colour, label=words)
    if np.isfinite([quantity.low, quantity.high]).all():
        ends = [height * powers(one) for one in (quantity.low, quantity.high)]
        axes.fill_between(widths, np.minimum(*ends), np.maximum(*ends), color=colour, alpha=0.12, linewidth=0)
    if predicted is not None:
        axes.plot(widths, height * powers(predicted), ":", color=colour, linewidth=1.2, label=f"_{label}, predicted")
