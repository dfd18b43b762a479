"""The axes that several figures share: a curve for each setting, seeds as thin lines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from unlazy.figures import band, canvas
from unlazy.papers._base import Results
from unlazy.papers._curves import label_axes
from unlazy.papers.caron2023._settings import drifted, moved

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

STEPS = "t (GD steps of size 1)"


def everything(runs: Results, counts: Sequence[int], title: str) -> Figure:
    """Draw the nine axes of figures 6 to 10, in the order of the paper."""
    figure, axes = canvas(3, 11.0, 9.0, rows=3)
    risk(axes[0], runs)
    risk(axes[1], runs, "test-loss", "test risk")
    weights(axes[2], runs)
    kernel(axes[3], runs)
    smallest(axes[4], runs)
    pruning(axes[5], runs, "train_risk", "training risk, pruned")
    pruning(axes[6], runs, "test_risk", "test risk, pruned")
    transfer(axes[7], runs, counts, "train_risk", "training risk, transferred")
    transfer(axes[8], runs, counts, "test_risk", "test risk, transferred")
    axes[0].legend(fontsize=7)
    figure.suptitle(title, fontsize=10)
    return figure


def risk(axes: Axes, runs: Results, which: str = "train-loss", title: str = "training risk") -> None:
    """Risk against t."""
    for index, (name, run) in enumerate(runs.items()):
        band(axes, run["time"].values, run[which].values, index, name)
    axes.set_yscale("log")
    label_axes(axes, STEPS, title)


def weights(axes: Axes, runs: Results, steps: str = STEPS) -> None:
    """Movement of the weight that has moved most at the end, against t."""
    for index, (name, run) in enumerate(runs.items()):
        band(axes, run["time"].values, moved(run), index, name)
    label_axes(axes, steps, "largest |w_tj - w_0j|")


def kernel(axes: Axes, runs: Results) -> None:
    """Change of the NTG against t."""
    for index, (name, run) in enumerate(runs.items()):
        band(axes, run["time"].values, drifted(run), index, name)
    label_axes(axes, STEPS, "‖Θ_t - Θ_0‖₂")


def smallest(axes: Axes, runs: Results) -> None:
    """Smallest eigenvalue of the NTG against t."""
    for index, (name, run) in enumerate(runs.items()):
        band(axes, run["time"].values, run["kernel.smallest"].values, index, name)
    label_axes(axes, STEPS, "eig_min(Θ_t)")


def pruning(axes: Axes, runs: Results, what: str, title: str) -> None:
    """A curve of pruned networks against the number of pruned nodes; accuracies are one minus errors."""
    for index, (name, run) in enumerate(runs.items()):
        curve = run[f"pruning.hidden.{what}"].values
        counts = _few(curve.shape[1])
        band(axes, counts, _shown(curve[:, counts], what), index, name)
    label_axes(axes, "number of pruned nodes", title)


def transfer(axes: Axes, runs: Results, counts: Sequence[int], what: str, title: str) -> None:
    """A curve of transferred networks against the number of features."""
    for index, (name, run) in enumerate(runs.items()):
        curve = run[f"transfer.hidden.{what}"].values
        band(axes, np.asarray(counts), _shown(curve, what), index, name, marker=".")
    axes.set_xscale("log")
    label_axes(axes, "number of features", title)


def _few(points: int) -> np.ndarray:
    """Give indices enough to draw a curve that is steep at its end: 200 even ones and the last 50."""
    return np.unique(np.r_[np.linspace(0, points - 1, 200).round().astype(int), np.arange(max(points - 50, 0), points)])


def _shown(curve: np.ndarray, what: str) -> np.ndarray:
    return 1 - curve if what.endswith("_error") else curve
