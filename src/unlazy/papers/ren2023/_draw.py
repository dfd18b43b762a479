"""How figure 2 of ren2023 is drawn."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from unlazy.figures import DASHES, ORDERED, band
from unlazy.papers._base import Results
from unlazy.papers._curves import label_axes
from unlazy.papers.ren2023._settings import CLIPS, CONSTANT, FINITE_STAGES, STAGES, fall_times, stages_of, widths_of

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.axes import Axes

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
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.minorticks_off()
    axes.set_xticks([m for m, _ in known], [str(m) for m, _ in known])
    axes.legend(fontsize=7)
    label_axes(axes, "m_1", "at the end")


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
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.legend(fontsize=6)
    label_axes(axes, "t", "stage 1: T_1.1, T_1.2, T_1.3")
