"""What the panels of ren2023 share: its learner, its laws, and how stored runs are read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from unlazy.papers._base import Results, option, values
from unlazy.papers.ren2023.theorems import StageTimes, stage_times

if TYPE_CHECKING:
    import xarray as xr

INFINITE, STAGES, FINITE_STAGES = "infinite width", "stages, infinite width", "stages"
CONSTANT = 10.0  # C_1 of Lemma 4.2, "some large constant"
CLIPS = {"r2": "T_1.1", "v1": "T_1.2", "v2": "T_1.3"}  # from when on each is out of use (Lemma 4.1)
PLATEAU = 0.5  # a loss has left its plateau once it is this share of what the best constant has


def learner(widths: tuple[float, float], d: int, spread: float, bias: float) -> dict[str, Any]:
    """The learner of eq. 1 as a recipe: w_1 on the sphere of radius 1/√d, w_2 ~ N(0, spread²), b_2 = bias, and clips.

    R_v1 = d, R_v2 = d³ and R_r2 = 1: the paper's orders with all constants 1.
    """
    return {
        "kind": "mean-field-stack",
        "widths": list(widths),
        "ranks": 1,
        "train": ["w", "wb"],
        "features": [{"kind": "sphere", "radius": d**-0.5}, {"kind": "normal", "spread": spread}],
        "bias": [False, {"kind": "constant", "value": bias}],
        "amplitude": ["tied", {"kind": "constant", "value": 1.0}],
        "clip": [float(d), float(d) ** 3, 1.0],
    }


def step_times(end: float, count: int, step: float) -> list[float]:
    """Evenly spaced times, all of which are whole numbers of steps."""
    return [float(step * round(one / step)) for one in np.linspace(0.0, end, count)]


def label(width: int) -> str:
    """What a run of some width is called."""
    return f"m_1 = {width}"


def widths_of(runs: Results) -> dict[int, str]:
    """Give the finite widths of figure 2 with the labels of their runs, in the order of the runs."""
    return {width: label(width) for width in values(runs, "network.widths.0") if label(width) in runs}


def main_label(runs: Results) -> str:
    """Give the label of the figure's own width, which comes first."""
    return next(iter(widths_of(runs).values()))


def constant_loss(y: np.ndarray, weight: np.ndarray | None) -> float:
    """½ Var(f*): the loss of the best constant, on which training waits."""
    mean = np.average(y, weights=weight)
    return float(0.5 * np.average((y - mean) ** 2, weights=weight))


def fall_times(run: xr.Dataset, plateau: float) -> np.ndarray:
    """When the loss first is half of what the best constant has, seed by seed; NaN if never."""
    return times_of_loss(run, PLATEAU * plateau)


def times_of_loss(run: xr.Dataset, level: float) -> np.ndarray:
    """When the loss comes down to a level, seed by seed, by straight lines of its logarithm; NaN if never."""
    times, found = run["time"].values, []
    for loss in run["train-loss"].values:
        below = np.flatnonzero(loss <= level)
        if not below.size or below[0] == 0:
            found.append(np.nan)
            continue
        i = below[0]
        logs = np.log(loss[i - 1 : i + 1] / level)
        found.append(times[i - 1] + (times[i] - times[i - 1]) * logs[0] / (logs[0] - logs[1]))
    return np.array(found)


def stages_of(run: xr.Dataset, constant: float) -> list[StageTimes]:
    """T_1.1, T_1.2 and T_1.3 of each seed; the loss is not asked for."""
    d, bound = round(option(run, "network.clip.0")), option(run, "network.clip.1")
    names = ("weight", "spread", "largest")
    return [
        stage_times(
            run["time"].values,
            {name: run[f"second-layer.{name}"].values[seed] for name in names},
            np.full(run["time"].size, np.inf),
            d,
            bound,
            constant,
        )
        for seed in range(run["seed"].size)
    ]
