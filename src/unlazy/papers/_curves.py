"""Helpers that panels share: observation times, statistics over seeds in words, power laws, titles and labels."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from unlazy.figures import ORDERED, canvas
from unlazy.papers._base import Axes, Figure


def quadratic_times(end: float, count: int = 41) -> list[float]:
    """Return ``count`` whole times from 0 to ``end``, close together at the start, where curves bend most."""
    return [float(round(end * share**2)) for share in np.linspace(0.0, 1.0, count)]


def even_steps(end: int, count: int) -> list[int]:
    """Return up to ``count`` whole numbers from 0 to ``end``, evenly spaced."""
    return sorted(set(np.linspace(0, end, count).round().astype(int).tolist()))


def log_steps(end: int, count: int, first: int = 1) -> list[int]:
    """Return 0 and up to ``count`` whole numbers from ``first`` to ``end``, evenly spaced in their logarithm."""
    return sorted({0, end, *np.geomspace(first, end, count).round().astype(int).tolist()})


def median_range(values: np.ndarray, digits: int = 3) -> str:
    """Write the median, the smallest and the largest value over seeds; a single value as it is."""
    low, middle, high = (f"{number(values):.{digits}g}" for number in (np.min, np.median, np.max))
    return middle if np.size(values) == 1 else f"{middle} ({low} to {high})"


def mean_sd(values: np.ndarray, digits: int = 3) -> str:
    """Write the mean over seeds and, where there are several, the standard deviation."""
    mean = f"{values.mean():.{digits}g}"
    return f"{mean} ± {values.std(ddof=1):.1g}" if len(values) > 1 else mean


def min_max(values: np.ndarray) -> str:
    """Write the smallest and the largest value over seeds; a single value as it is."""
    low, high = float(np.min(values)), float(np.max(values))
    return f"{low:.3g}" if low == high else f"{low:.3g} to {high:.3g}"


def listed(values: Mapping[Any, Any], words: Callable[[Any], str] = mean_sd) -> str:
    """Write names and what belongs to each in one line: "first: 3 ± 1; second: 4 ± 1"."""
    return "; ".join(f"{name}: {words(value)}" for name, value in values.items())


def plural(count: int, what: str = "seed") -> str:
    """Count things: "1 seed", "2 seeds"."""
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def exponents(sizes: Sequence[float], values: Sequence[np.ndarray] | np.ndarray) -> np.ndarray:
    """Fit values = const x sizes^p seed by seed and return p; ``values`` has an array over seeds for each size."""
    return np.array([np.polyfit(np.log(sizes), np.log(one), 1)[0] for one in np.stack(list(values), axis=1)])


def first_crossing(times: np.ndarray, values: np.ndarray, level: float = 0.0) -> float:
    """Return the first time at which values reach a level from below, by linear interpolation; NaN if they never do."""
    above = np.flatnonzero(values >= level)
    if not above.size:
        return float("nan")
    i = above[0]
    if i == 0 or not np.isfinite(values[i - 1]):
        return float(times[i])
    share = (level - values[i - 1]) / (values[i] - values[i - 1])
    return float(times[i - 1] + share * (times[i] - times[i - 1]))


def titled_canvas(
    title: str, columns: int = 1, width: float = 6.4, height: float = 4.0, rows: int = 1
) -> tuple[Figure, list[Axes]]:
    """Make a figure with a grid of axes, as `unlazy.figures.canvas` does, and a title above them."""
    figure, axes = canvas(columns, width, height, rows)
    figure.suptitle(title, fontsize=10)
    return figure, axes


def label_axes(axes: Axes, x: str, title: str, legend: float | None = None, **properties: Any) -> None:
    """Label one of several axes in a figure, in small type; ``x`` is the label of the horizontal axis.

    With a font size ``legend`` there is a legend. Properties are those of the axes, such as ``yscale="log"``.
    """
    axes.set(**properties)
    if legend is not None:
        axes.legend(fontsize=legend)
    axes.set_xlabel(x, fontsize=8)
    axes.set_title(title, fontsize=9)
    axes.tick_params(which="both", labelsize=7)


def seeds_rms(values: np.ndarray) -> np.ndarray:
    """Return the root mean square over seeds, which are the second axis."""
    return np.sqrt(np.mean(np.square(values), axis=1))


def dots(axes: Axes, x: np.ndarray, values: np.ndarray, index: int, label: str | None = None) -> None:
    """Draw a small dot for each seed and a large one for their root mean square, on logarithmic axes.

    Values have a row for each size x and a column for each seed; ``index`` chooses the colour.
    """
    axes.set(xscale="log", yscale="log")
    axes.minorticks_off()
    axes.plot(x, values, ".", color=ORDERED[index], markersize=3, alpha=0.35)
    axes.plot(x, seeds_rms(values), "o", color=ORDERED[index], markersize=5, label=label)
