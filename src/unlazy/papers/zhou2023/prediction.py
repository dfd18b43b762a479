"""Beyond the paper: the time of condensation predicted by eq. 44, against training itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import msgspec
import numpy as np
import xarray as xr

from unlazy.figures import ORDERED, band, canvas
from unlazy.lab import Recipe
from unlazy.papers._base import Axes, Claim, Figure, Panel, Results, Scale, by_scale, option, recipe_of
from unlazy.papers.zhou2023._shared import STAND_IN, Pictures, pictures_of, pictures_shown, predictions


@dataclass(frozen=True)
class _Sizes:
    n: int
    channels: int


_SCALES: dict[Scale, _Sizes] = {"quick": _Sizes(100, 32), "paper": _Sizes(500, 32)}
_KERNEL: dict[Pictures, int] = {"mnist": 5, "cifar10": 3}
_EPSILONS = (1e-6, 1e-5, 1e-4, 1e-3)
_LEVEL = 0.999
_CLOSE = 0.05  # what the prediction may be off, in time and in weights
# In units of the predicted time: close together where alignment is expected, and on to where the prediction ends.
_GRID = np.concatenate([[0.0, 0.3, 0.6], np.linspace(0.8, 1.2, 9), np.linspace(1.4, 2.6, 7)])


def recipe(pictures: Pictures, scale: Scale, epsilon: float, seeds: int | None) -> Recipe:
    """Give the recipe of one ε; data and, but for ε, the draw of the weights are the same for all."""
    sizes = _SCALES[scale]
    return Recipe(
        name=f"zhou2023 prediction {pictures} ε={epsilon:g}",
        data=pictures_of(pictures, scale, sizes.n),
        network={
            "kind": "conv-net",
            "channels": [sizes.channels],
            "kernel": _KERNEL[pictures],
            "scale": epsilon,
            "rescaled": True,
        },
        flow={"kind": "gradient-flow", "tolerance": 1e-5},
        times=[0.0],
        probes=["train-loss", {"kind": "input-weights", "layers": ["conv1"]}],
        seeds=seeds or 1,
        same_data=True,
    )


def timed(one: Recipe) -> Recipe:
    """Observe when and after eq. 44 predicts alignment: all that is known before training."""
    times = [found.time_of(_LEVEL) for found in predictions(one)]
    grid = np.unique(np.round(np.concatenate([time * _GRID for time in times]), 12))
    return msgspec.structs.replace(one, times=grid.tolist())


def _label(pictures: Pictures, epsilon: float) -> str:
    return f"{pictures} ε={epsilon:g}"


def _crossing(times: np.ndarray, values: np.ndarray, level: float) -> float:
    """First time at which rising ``values`` are above ``level``, interpolated; infinite where they never are."""
    above = np.flatnonzero(values >= level)
    if not above.size:
        return float("inf")
    if above[0] == 0:
        return float(times[0])
    after = int(above[0])
    share = (level - values[after - 1]) / (values[after] - values[after - 1])
    return float(times[after - 1] + share * (times[after] - times[after - 1]))


@dataclass(frozen=True)
class Measured:
    """One run against its prediction; times are means over seeds."""

    predicted: float  # time of alignment by eq. 44
    seen: float  # ... in the run
    kept: float  # until when weights are within 5 % of eq. 44, infinite if to the end
    effective: float  # T_eff of eq. 54

    @property
    def ratio(self) -> float:
        """Seen over predicted."""
        return self.seen / self.predicted


def measure(run: xr.Dataset) -> Measured:
    """Hold a run against eq. 44, seed by seed."""
    times, rows = run["time"].values, []
    known = predictions(recipe_of(run))
    for found, weights in zip(known, run["input-weights.conv1"].values, strict=True):
        v = found.linear.right[0]
        aligned = np.median(np.abs(weights @ v) / np.linalg.norm(weights, axis=2), axis=1)
        # log(1 - alignment) is all but linear in t, so that is what is interpolated.
        seen = _crossing(times, -np.log(np.maximum(1 - aligned, 1e-15)), -np.log(1 - _LEVEL))
        off = np.array([found.deviation(float(t), w) for t, w in zip(times, weights, strict=True)])
        kept = _crossing(times, np.log(np.maximum(off, 1e-15)), np.log(_CLOSE))
        rows.append((found.time_of(_LEVEL), seen, kept, found.effective_time(option(run, "network.scale"))))
    return Measured(*map(float, np.mean(rows, axis=0)))


class PredictedTime(Panel):
    """When the median kernel is aligned with v_1 to 0.999: predicted before training, and seen in it."""

    key = "zhou2023/prediction"
    title = "Beyond the paper: the time of condensation, predicted and measured"
    scales = by_scale(_SCALES, lambda s: f"n = {s.n}, {s.channels} kernels, ε = {_EPSILONS[0]:g} to {_EPSILONS[-1]:g}")
    caption = (
        "Two-layer tanh networks (MNIST: kernels of 5 x 5, pixels in [0, 1]; CIFAR-10: 3 x 3, [-1, 1]) on class "
        "numbers, all weights from N(0, ε²), along the gradient flow of eq. 1 in rescaled coordinates. Above: 1 - "
        "median alignment of θ_W,β = (W_β; b_β) with v_1 against time, over the predicted time at which it is "
        "0.001; dots are eq. 44. Below: the distance of all weights from eq. 44, as a share of their length. "
        f"{STAND_IN}."
    )

    def recipes(self, scale: Scale, seeds: int | None = None) -> dict[str, Recipe]:
        """Every ε on both sets of images, each at times predicted from its own networks, which are drawn for that."""
        return {
            _label(pictures, epsilon): timed(recipe(pictures, scale, epsilon, seeds))
            for pictures in _KERNEL
            for epsilon in _EPSILONS
        }

    def claims(self, results: Results) -> list[Claim]:
        """Within 5 % at the smallest ε, and less well from there."""
        found = {label: measure(run) for label, run in results.items()}
        groups: dict[Pictures, dict[float, Measured]] = {
            pictures: {epsilon: found[_label(pictures, epsilon)] for epsilon in _EPSILONS} for pictures in _KERNEL
        }
        worst = {p: [abs(one.ratio - 1) for one in group.values()] for p, group in groups.items()}
        kept = {p: [one.kept for one in group.values()] for p, group in groups.items()}
        return [
            Claim(
                text=f"at ε = {_EPSILONS[0]:g} the median kernel reaches alignment {_LEVEL:g} with v_1 within "
                f"{_CLOSE:.0%} of the time that eq. 44 predicts",
                paper="Proposition 1 (eq. 44); the paper measures no times",
                measured=_each(groups, _ratio),
                holds=all(off[0] <= _CLOSE for off in worst.values()),
            ),
            Claim(
                text=f"the prediction degrades as ε grows: at ε = {_EPSILONS[-1]:g} it is further off than at "
                f"{_EPSILONS[0]:g}",
                paper="the linear flow is that of small weights",
                measured=_each(groups, _off),
                holds=all(off[0] < off[-1] for off in worst.values()),
            ),
            Claim(
                text=f"weights stay within {_CLOSE:.0%} of eq. 44 for longer the smaller ε is, and at least to T_eff "
                "(eq. 54) wherever that is not 0",
                paper="T_eff (eq. 13, 54)",
                measured=_each(groups, lambda one: f"{one.kept:.3g} (T_eff {one.effective:.3g})"),
                holds=all(a >= b for ends in kept.values() for a, b in pairwise(ends))
                and all(one.kept >= one.effective for one in found.values()),
            ),
        ]

    def draw(self, results: Results) -> Figure:
        """Alignment above, distance below, a column for each set of images."""
        columns = len(_KERNEL)
        figure, axes = canvas(columns, 4.6 * columns, 6.4, rows=2)
        for column, pictures in enumerate(_KERNEL):
            above, below = axes[column], axes[columns + column]
            runs = {f"ε={epsilon:g}": results[_label(pictures, epsilon)] for epsilon in _EPSILONS}
            for index, (label, run) in enumerate(runs.items()):
                _one(above, below, run, index, label, dots=index == 0)
            above.set_title(pictures_shown(runs), fontsize=9)
            for one in (above, below):
                one.set_yscale("log")
            below.axhline(_CLOSE, color="grey", linewidth=0.8)
            below.set_xlabel("t / predicted time")
        axes[0].set_ylabel("1 - median alignment")
        axes[columns].set_ylabel("distance from eq. 44")
        axes[0].legend(fontsize=8)
        figure.suptitle("Condensation along v₁: training against its prediction", fontsize=10)
        return figure


def _each(groups: dict[Pictures, dict[float, Measured]], words: Callable[[Measured], str]) -> str:
    return "; ".join(
        f"{pictures}: " + ", ".join(f"ε={epsilon:g}: {words(one)}" for epsilon, one in group.items())
        for pictures, group in groups.items()
    )


def _ratio(one: Measured) -> str:
    return f"{one.ratio:.4f} of {one.predicted:.4g}" if np.isfinite(one.ratio) else "never"


def _off(one: Measured) -> str:
    return f"{one.ratio - 1:+.2%}" if np.isfinite(one.ratio) else "never aligned"


def _one(above: Axes, below: Axes, run: xr.Dataset, index: int, label: str, dots: bool) -> None:
    """Draw one run of one ε."""
    known, times = predictions(recipe_of(run)), run["time"].values
    unit = float(np.mean([found.time_of(_LEVEL) for found in known]))
    aligned, off = [], []
    for found, weights in zip(known, run["input-weights.conv1"].values, strict=True):
        v = found.linear.right[0]
        aligned.append(1 - np.median(np.abs(weights @ v) / np.linalg.norm(weights, axis=2), axis=1))
        off.append([found.deviation(float(t), w) for t, w in zip(times, weights, strict=True)])
    band(above, times / unit, np.maximum(aligned, 1e-12), index, label)
    band(below, times[1:] / unit, np.maximum(off, 1e-12)[:, 1:], index, label)
    if dots:
        exact = [1 - np.median(known[0].alignments(float(t))) for t in times]
        above.plot(times / unit, np.maximum(exact, 1e-12), ".", color=ORDERED[3], markersize=4, label="eq. 44")
