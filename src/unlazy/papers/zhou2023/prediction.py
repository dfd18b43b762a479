"""Beyond the paper: the time of condensation predicted by eq. 44, against training itself."""

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import NamedTuple

import msgspec
import numpy as np
import xarray as xr

from unlazy.figures import ORDERED, band
from unlazy.lab import Recipe
from unlazy.papers._base import Claim, Figure, Panel, Results, Scale, Sizes, by_scale, option, recipe_of
from unlazy.papers._curves import listed, min_max, titled_canvas
from unlazy.papers.outcomes import Judgement, at_least, increases, near, together, undecided
from unlazy.papers.zhou2023.condensation import (
    STAND_IN,
    Pictures,
    flow_recipe,
    pictures_of,
    pictures_shown,
    predictions,
)
from unlazy.papers.zhou2023.theorems import Prediction

_SCALES: dict[Scale, Sizes] = {"quick": Sizes(n=100, channels=32), "paper": Sizes(n=500, channels=32)}
_KERNEL: dict[Pictures, int] = {"mnist": 5, "cifar10": 3}
_EPSILONS = (1e-6, 1e-5, 1e-4, 1e-3)
_LEVEL = 0.999
_CLOSE = 0.05  # what the prediction may be off, in time and in weights
# In units of the predicted time: close together where alignment is expected, and on to where the prediction ends.
_GRID = np.concatenate([[0.0, 0.3, 0.6], np.linspace(0.8, 1.2, 9), np.linspace(1.4, 2.6, 7)])


def _recipe(pictures: Pictures, scale: Scale, epsilon: float, seeds: int | None) -> Recipe:
    """Return the recipe of one ε; data and, but for ε, the draw of the weights are the same for all.

    It is observed when and after eq. 44 predicts alignment: all that is known before training.
    """
    one = flow_recipe(
        f"prediction {pictures} ε={epsilon:g}",
        pictures_of(pictures, scale, _SCALES[scale].n),
        (_SCALES[scale].channels, _KERNEL[pictures], epsilon),
        seeds,
        tolerance=1e-5,
        probes=["train-loss", {"kind": "input-weights", "layers": ["conv1"]}],
    )
    times = [found.time_of(_LEVEL) * _GRID for found in predictions(one)]
    return msgspec.structs.replace(one, times=np.unique(np.round(np.concatenate(times), 12)).tolist())


def _crossing(times: np.ndarray, values: np.ndarray, level: float) -> float:
    """First time at which rising ``values`` are above ``level``, interpolated; infinite where they never are."""
    above = np.flatnonzero(values >= level)
    if not above.size:
        return float("inf")
    after = int(above[0])
    if after == 0:
        return float(times[0])
    share = (level - values[after - 1]) / (values[after] - values[after - 1])
    return float(times[after - 1] + share * (times[after] - times[after - 1]))


class Measured(NamedTuple):
    """One run and its prediction; times, one per seed."""

    predicted: np.ndarray  # time of alignment by eq. 44
    seen: np.ndarray  # ... in the run; infinite if never
    kept: np.ndarray  # until when weights are within 5 % of eq. 44, at most the end of the run
    effective: np.ndarray  # T_eff of eq. 54
    end: float  # of the run

    @property
    def ratio(self) -> np.ndarray:
        """Observed over predicted."""
        return self.seen / self.predicted

    @property
    def off(self) -> np.ndarray:
        """How far the predicted time is off, as a share of the observed one: 1 where kernels never align."""
        return np.abs(self.predicted / self.seen - 1)


def _followed(run: xr.Dataset) -> Iterator[tuple[Prediction, np.ndarray, np.ndarray]]:
    """For each seed: the prediction, the median alignment with v_1, and the distance from eq. 44, at every time."""
    times = run["time"].values
    for found, weights in zip(predictions(recipe_of(run)), run["input-weights.conv1"].values, strict=True):
        aligned = np.median(np.abs(weights @ found.linear.right[0]) / np.linalg.norm(weights, axis=2), axis=1)
        yield found, aligned, np.array([found.deviation(float(t), w) for t, w in zip(times, weights, strict=True)])


def measure(run: xr.Dataset) -> Measured:
    """Compare a run with eq. 44, seed by seed."""
    times, rows = run["time"].values, []
    for found, aligned, off in _followed(run):
        # log(1 - alignment) is all but linear in t, so that is what is interpolated.
        seen = _crossing(times, -np.log(np.maximum(1 - aligned, 1e-15)), -np.log(1 - _LEVEL))
        kept = min(_crossing(times, np.log(np.maximum(off, 1e-15)), np.log(_CLOSE)), float(times[-1]))
        rows.append((found.time_of(_LEVEL), seen, kept, found.effective_time(option(run, "network.scale"))))
    return Measured(*np.array(rows, float).T, end=float(times[-1]))


def _longer(group: dict[float, Measured]) -> Judgement:
    """Judge that the prediction is kept for longer the smaller ε is, where not both are kept to the end."""
    told = [
        increases(large.kept, small.kept)
        for small, large in pairwise(group.values())
        if not (np.all(small.kept >= small.end) and np.all(large.kept >= large.end))
    ]
    return together(told) if told else undecided("all weights stay close to the end of the run")


class PredictedTime(Panel):
    """When the median kernel is aligned with v_1 to 0.999: predicted before training, and seen in it."""

    key = "zhou2023/prediction"
    title = "Beyond the paper: the time of condensation, predicted and measured"
    scales = by_scale(_SCALES, lambda s: f"n = {s.n}, {s.channels} kernels, ε = {_EPSILONS[0]:g} to {_EPSILONS[-1]:g}")
    caption = (
        "Two-layer tanh networks (MNIST: kernels of 5 x 5, pixels in [0, 1]; CIFAR-10: 3 x 3, [-1, 1]) on class "
        "numbers, all weights from N(0, ε²), along the gradient flow of eq. 1 in rescaled coordinates. Above: 1 - "
        "median alignment of θ_W,β = (W_β; b_β) with v_1 against time, over the predicted time at which it is 0.001; "
        f"dots are eq. 44. Below: the distance of all weights from eq. 44, as a share of their length. {STAND_IN}."
    )

    def recipes(self, scale: Scale, seeds: int | None = None) -> dict[str, Recipe]:
        """Every ε on both sets of images, each at times predicted from its own networks, which are drawn for that."""
        return {
            f"{pictures} ε={epsilon:g}": _recipe(pictures, scale, epsilon, seeds)
            for pictures in _KERNEL
            for epsilon in _EPSILONS
        }

    def claims(self, results: Results) -> list[Claim]:
        """Within 5 % at the smallest ε, and less well from there; up to T_eff at every ε."""
        found = {label: measure(run) for label, run in results.items()}
        groups: dict[Pictures, dict[float, Measured]] = {
            pictures: {epsilon: found[f"{pictures} ε={epsilon:g}"] for epsilon in _EPSILONS} for pictures in _KERNEL
        }
        ends = [(group[_EPSILONS[0]], group[_EPSILONS[-1]]) for group in groups.values()]
        early = [one for one in found.values() if np.all(one.effective > 0)]
        return [
            Claim(
                text=f"at ε = {_EPSILONS[0]:g} the median kernel reaches alignment {_LEVEL:g} with v_1 within "
                f"{_CLOSE:.0%} of the time that eq. 44 predicts",
                paper="Proposition 1 (eq. 44); the paper measures no times",
                measured=_each(
                    groups,
                    lambda one: (
                        f"{min_max(one.ratio)} of {one.predicted.mean():.4g}"
                        if np.isfinite(one.seen).all()
                        else "never"
                    ),
                ),
                judged=together(near(small.ratio, 1.0, _CLOSE) for small, _ in ends),
            ),
            Claim(
                text=f"the prediction degrades as ε grows: at ε = {_EPSILONS[-1]:g} it is further off than at "
                f"{_EPSILONS[0]:g}",
                paper="the linear flow is that of small weights",
                measured=_each(
                    groups,
                    lambda one: f"{np.mean(one.ratio) - 1:+.2%}" if np.isfinite(one.seen).all() else "never aligned",
                ),
                judged=together(increases(small.off, large.off) for small, large in ends),
            ),
            Claim(
                text=f"weights stay within {_CLOSE:.0%} of eq. 44 for longer the smaller ε is, between neighbours of "
                "which not both do to the end of the run",
                paper="T_eff (eq. 13, 54)",
                measured=_each(groups, lambda one: f"{min_max(one.kept)} of {one.end:.3g}"),
                judged=together(_longer(group) for group in groups.values()),
            ),
            Claim(
                text=f"weights stay within {_CLOSE:.0%} of eq. 44 at least to T_eff (eq. 54) wherever that is not 0",
                paper="T_eff (eq. 13, 54)",
                measured=_each(groups, lambda one: f"{min_max(one.kept)} (T_eff {min_max(one.effective)})"),
                judged=together(at_least(one.kept, one.effective) for one in early)
                if early
                else undecided("T_eff is 0 at every ε"),
            ),
        ]

    def draw(self, results: Results) -> Figure:
        """Alignment above, distance below, a column for each set of images."""
        columns = len(_KERNEL)
        title = "Condensation along v₁: training against its prediction"
        figure, axes = titled_canvas(title, columns, 4.6 * columns, 6.4, rows=2)
        for column, pictures in enumerate(_KERNEL):
            above, below = axes[column], axes[columns + column]
            runs = {f"ε={epsilon:g}": results[f"{pictures} ε={epsilon:g}"] for epsilon in _EPSILONS}
            for index, (label, run) in enumerate(runs.items()):
                times = run["time"].values
                known, aligned, off = zip(*_followed(run), strict=True)
                scaled = times / float(np.mean([found.time_of(_LEVEL) for found in known]))
                band(above, scaled, np.maximum(1 - np.array(aligned), 1e-12), index, label)
                band(below, scaled[1:], np.maximum(off, 1e-12)[:, 1:], index, label)
                if index == 0:
                    exact = np.maximum([1 - np.median(known[0].alignments(float(t))) for t in times], 1e-12)
                    above.plot(scaled, exact, ".", color=ORDERED[3], markersize=4, label="eq. 44")
            above.set_title(pictures_shown(runs), fontsize=9)
            for one in (above, below):
                one.set_yscale("log")
            below.axhline(_CLOSE, color="grey", linewidth=0.8)
            below.set_xlabel("t / predicted time")
        axes[0].set_ylabel("1 - median alignment")
        axes[columns].set_ylabel("distance from eq. 44")
        axes[0].legend(fontsize=8)
        return figure


def _each(groups: dict[Pictures, dict[float, Measured]], words: Callable[[Measured], str]) -> str:
    return listed(groups, lambda group: ", ".join(f"ε={epsilon:g}: {words(one)}" for epsilon, one in group.items()))
