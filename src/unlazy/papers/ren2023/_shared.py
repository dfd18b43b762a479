"""What the panels of ren2023 share: its learner, its laws, how stored runs are read, and axes."""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr

from unlazy.figures import DASHES, ORDERED, band
from unlazy.papers._base import Axes, Results, option, values
from unlazy.papers._curves import label_axes
from unlazy.papers.ren2023.theorems import StageTimes, stage_times

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


_SNAPSHOTS = (0.0, 0.9, 1.0, 1.1, 1.4)  # in units of the time of the fall, and the end


def snapshots(run: xr.Dataset, plateau: float) -> list[int]:
    """Looks nearest to the times that are shown."""
    times = run["time"].values
    falls = fall_times(run, plateau)
    falls = falls[np.isfinite(falls)]
    wanted = [share * float(np.median(falls)) for share in _SNAPSHOTS if falls.size] + [times[-1]]
    return sorted({int(np.argmin(np.abs(times - one))) for one in wanted if one <= times[-1]})


def shapes(shape: Axes, neurons: Axes, run: xr.Dataset, shots: list[int]) -> None:
    """The function f along rays, and (w_2, b_2), at the snapshots of the first seed."""
    profile = {
        name: run[f"radial-profile.{name}"].values[0] for name in ("radius", "mean", "smallest", "largest", "limit")
    }
    for place, index in enumerate(shots):
        colour, label = ORDERED[place % len(ORDERED)], f"t = {run['time'].values[index]:.0f}"
        r = profile["radius"][index]
        shape.fill_between(
            r, profile["smallest"][index], profile["largest"][index], color=colour, alpha=0.2, linewidth=0
        )
        shape.plot(r, profile["mean"][index], color=colour, linestyle=DASHES[place % len(DASHES)], label=label)
        shape.plot(r, profile["limit"][index], color=colour, linestyle=":", linewidth=1.0)
        rows = run["second-layer.neurons"].values[0, index]
        neurons.plot(rows[:, 0], rows[:, 1], ".", color=colour, markersize=4, label=label)
    shape.plot(profile["radius"][0], np.maximum(1 - profile["radius"][0], 0), color="0.5", linewidth=0.8)
    label_axes(shape, "|x|", "f (dotted: f̃; grey: f*)")
    label_axes(neurons, "w_2", "b_2")
    shape.legend(fontsize=6)


def widths(axes: Axes, runs: Results) -> None:
    """What is left at the end, against m_1."""
    known = sorted(widths_of(runs).items())
    for index, (what, title) in enumerate((("loss-decomposition.error", "(w̄_2²/2) E(F̃ - F)²"), ("train-loss", "loss"))):
        ends = [float(np.median(runs[name][what].values[:, -1])) for _, name in known]
        axes.plot([m for m, _ in known], ends, marker="o", color=ORDERED[index], linestyle=DASHES[index], label=title)
    axes.set(xscale="log", yscale="log")
    axes.minorticks_off()
    axes.set_xticks([m for m, _ in known], [str(m) for m, _ in known])
    label_axes(axes, "m_1", "at the end", legend=7)


def stages(axes: Axes, runs: Results) -> None:
    """Stage 1: mean and spread of w_2, the times at which its parts end, and when each clip acts."""
    for index, name in enumerate((STAGES, FINITE_STAGES)):
        run = runs[name]
        later = run["time"].values > 0
        times = run["time"].values[later]
        for what, dash in (("weight", 0), ("spread", 2)):
            curve = np.abs(run[f"second-layer.{what}"].values[:, later])
            band(axes, times, curve, index, f"{'|w̄_2|' if what == 'weight' else 'δ_2'}, {name}", dash=dash)
    for one in stages_of(runs[STAGES], CONSTANT)[0][:3]:
        axes.axvline(one, color="0.6", linestyle="--", linewidth=0.7)
    run = runs[STAGES]
    for place, clip in enumerate(CLIPS):  # bars at the foot of the axes: when each clip acts at infinite width
        active = run[f"clip-activity.{clip}"].values[0] > 0
        bar = np.where(active, 0.02 + 0.03 * place, np.nan)
        style = {"color": ORDERED[2 + place], "linewidth": 3.0, "label": f"clip of {clip}"}
        axes.plot(run["time"].values, bar, transform=axes.get_xaxis_transform(), **style)
    label_axes(axes, "t", "stage 1: T_1.1, T_1.2, T_1.3", legend=6, xscale="log", yscale="log")
