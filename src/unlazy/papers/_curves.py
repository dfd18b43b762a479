"""Helpers that panels share: times at which to observe, numbers over seeds in words, power laws, labels of axes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from unlazy.papers._base import Axes


def quadratic_times(end: float, count: int = 41) -> list[float]:
    """Give ``count`` whole times from 0 to ``end``, close together at the start, where curves bend most."""
    return [float(round(end * share**2)) for share in np.linspace(0.0, 1.0, count)]


def even_steps(end: int, count: int) -> list[int]:
    """Give up to ``count`` whole numbers from 0 to ``end``, evenly spaced."""
    return sorted(set(np.linspace(0, end, count).round().astype(int).tolist()))


def log_steps(end: int, count: int, first: int = 1) -> list[int]:
    """Give 0 and up to ``count`` whole numbers from ``first`` to ``end``, evenly spaced in their logarithm."""
    return sorted({0, end, *np.geomspace(first, end, count).round().astype(int).tolist()})


def median_range(values: np.ndarray, digits: int = 3) -> str:
    """Give median, smallest and largest value over seeds, or the one number."""
    values = np.ravel(values)
    if values.size == 1:
        return f"{values[0]:.{digits}g}"
    low, middle, high = np.min(values), np.median(values), np.max(values)
    return f"{middle:.{digits}g} ({low:.{digits}g} to {high:.{digits}g})"


def mean_sd(values: np.ndarray, digits: int = 3) -> str:
    """Give the mean over seeds and, where there are several, the standard deviation."""
    mean = f"{values.mean():.{digits}g}"
    return f"{mean} ± {values.std(ddof=1):.1g}" if len(values) > 1 else mean


def min_max(values: np.ndarray) -> str:
    """Give the smallest and the largest value over seeds, or the one number."""
    low, high = float(np.min(values)), float(np.max(values))
    return f"{low:.3g}" if low == high else f"{low:.3g} to {high:.3g}"


def plural(count: int, what: str = "seed") -> str:
    """Count things: "1 seed", "2 seeds"."""
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def exponent(sizes: Sequence[float], values: Sequence[float]) -> float:
    """Fit values = const x sizes^p and give p."""
    return float(np.polyfit(np.log(sizes), np.log(values), 1)[0])


def label_axes(axes: Axes, x: str, title: str, legend: float | None = None, **properties: Any) -> None:
    """Label one of several axes in a figure, in small type.

    Parameters
    ----------
    axes
        The axes.
    x, title
        Label of the horizontal axis, and title.
    legend
        Font size of a legend; none if left out.
    properties
        Other properties of the axes, such as ``yscale="log"``.
    """
    axes.set(**properties)
    if legend is not None:
        axes.legend(fontsize=legend)
    axes.set_xlabel(x, fontsize=8)
    axes.set_title(title, fontsize=9)
    axes.tick_params(which="both", labelsize=7)
