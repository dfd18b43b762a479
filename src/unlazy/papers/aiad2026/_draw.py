"""How several figures of aiad2026 are drawn."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from unlazy.figures import DASHES, ORDERED

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LINE = np.linspace(-1.0, 1.0, 401)  # where channels are looked at


def curve(axes: Axes, x: np.ndarray, y: np.ndarray, index: int, label: str | None = None, **style: Any) -> None:
    """A plain line in the colours of all panels."""
    chosen: dict[str, Any] = {
        "color": ORDERED[index % len(ORDERED)],
        "linestyle": DASHES[index % len(DASHES)],
        "linewidth": 1.2,
    }
    axes.plot(x, y, label=label, **(chosen | style))


def mirrored(axes: Axes, values: np.ndarray, index: int, label: str) -> None:
    """A function on [-1, 1] and, dotted, its mirror image: where they part it is not even."""
    curve(axes, LINE, values, index, label, linestyle="-")
    curve(axes, LINE, values[::-1], index, linestyle=":", color="0.4", linewidth=1.0)
