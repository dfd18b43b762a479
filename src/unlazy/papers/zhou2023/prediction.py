"""Beyond the paper: the time of condensation predicted by eq. 44, compared with training."""

import itertools
from collections.abc import Callable, Iterator
from typing import NamedTuple

import msgspec
import numpy as np
import xarray as xr

from unlazy.figures import ORDERED, band
from unlazy.lab import Recipe
from unlazy.papers._base import Claim, Figure, Panel, Results, Scale, Sizes, by_scale, option, recipe_of
from unlazy.papers._curves import first_crossing, listed, min_max, plural, titled_canvas
from unlazy.papers.outcomes import Judgement, at_least, increases, near, together, undecided
from unlazy.papers.zhou2023 import condensation as c
from unlazy.papers.zhou2023.condensation import STAND_IN, Pictures, predictions
from unlazy.papers.zhou2023.theorems import Prediction

_SCALES: dict[Scale, Sizes] = {
    "quick": Sizes(n=100, channels=32, seeds=3),
    "paper": Sizes(n=500, channels=32, seeds=3),
}
_KERNEL: dict[Pictures, int] = {"mnist": 5, "cifar10": 3}
_EPSILONS = (1e-6, 1e-5, 1e-4, 1e-3)
_LEVEL = 0.999
_CLOSE = 0.05  # allowed relative error of the prediction, in time and in weights
# In units of the predicted time: dense where alignment is expected, and continued until the prediction fails.
_GRID = np.concatenate([[0.0, 0.3, 0.6], np.linspace(0.8, 1.2, 9), np.linspace(1.4, 2.6, 7)])


class Measured(NamedTuple):
    """Times of one run and of its prediction, one per seed."""

    predicted: np.ndarray  # time of alignment by eq. 44
    seen: np.ndarray  # time of alignment in the run; infinite if it is never reached
    close: np.ndarray  # time until which weights are within 5 % of eq. 44, at most the end of the run
    effective: np.ndarray  # T_eff of eq. 54
    end: float  # end of the run

    @property
    def ratio(self) -> np.ndarray:
        """Observed over predicted."""
        return self.seen / self.predicted

    @property
    def off(self) -> np.ndarray:
        """The relative error of the predicted time; 1 where kernels never align."""
        return np.abs(self.predicted / self.seen - 1)


def _against_prediction(run: xr.Dataset) -> Iterator[tuple[Prediction, np.ndarray, np.ndarray]]:
    """For each seed: the prediction, the median alignment with v_1, and the distance from eq. 44, at every time."""
    times = run["time"].values
    for found, weights in zip(predictions(recipe_of(run)), run["input-weights.conv1"].values, strict=True):
        aligned = np.median(np.abs(weights @ found.linear.right[0]) / np.linalg.norm(weights, axis=2), axis=1)
        yield found, aligned, np.array([found.deviation(float(t), w) for t, w in zip(times, weights, strict=True)])


def measure(run: xr.Dataset) -> Measured:
    """Compare a run with eq. 44, seed by seed."""
    times, rows = run["time"].values, []
    for found, aligned, off in _against_prediction(run):
        # log(1 - alignment) is nearly linear in t, so it is what is interpolated.
        seen = first_crossing(times, -np.log(np.maximum(1 - aligned, 1e-15)), -np.log(1 - _LEVEL))
        seen = np.inf if np.isnan(seen) else seen
        close = np.fmin(first_crossing(times, np.log(np.maximum(off, 1e-15)), np.log(_CLOSE)), times[-1])
        rows.append((found.time_of(_LEVEL), seen, close, found.effective_time(option(run, "network.scale"))))
    return Measured(*np.array(rows, float).T, end=float(times[-1]))


def _longer(group: dict[float, Measured]) -> Judgement:
    """Judge that the prediction is valid for longer the smaller ε is, unless it is valid to the end for both."""
    judged = [
        increases(large.close, small.close)
        for small, large in itertools.pairwise(group.values())
        if not (np.all(small.close >= small.end) and np.all(large.close >= large.end))
    ]
    return together(judged) if judged else undecided("all weights stay close until the end of the run")


class PredictedTime(Panel):
    """The time at which the median kernel is aligned with v_1 to 0.999: predicted before training, and observed."""

    key = "zhou2023/prediction"
    title = "Beyond the paper: the time of condensation, predicted and measured"
    scales = by_scale(
        _SCALES,
        lambda s: f"n = {s.n}, {s.channels} kernels, ε = {_EPSILONS[0]:g} to {_EPSILONS[-1]:g}, {plural(s.seeds)}",
    )
    caption = (
        "Two-layer tanh networks (MNIST: kernels of 5 x 5, pixels in [0, 1]; CIFAR-10: 3 x 3, [-1, 1]) on class "
        "numbers, all weights from N(0, ε²), along the gradient flow of eq. 1 in rescaled coordinates. Top: 1 - median "
        "alignment of θ_W,β = (W_β; b_β) with v_1 against time, in units of the predicted time at which it is 0.001; "
        f"dots are eq. 44. Bottom: the relative distance of all weights from eq. 44. {STAND_IN}."
    )

    def recipes(self, scale: Scale, seeds: int | None = None) -> dict[str, Recipe]:
        """Return a run for each ε and set of images, at times predicted from its own networks, which are drawn.

        Data and, up to the factor ε, initial weights are the same for all ε.
        """
        found, s = {}, _SCALES[scale]
        for (pictures, kernel), epsilon in itertools.product(_KERNEL.items(), _EPSILONS):
            one = c.flow_recipe(
                f"prediction {pictures} ε={epsilon:g}",
                c.pictures_of(pictures, scale, s.n),
                (s.channels, kernel, epsilon),
                seeds or s.seeds,
                tolerance=1e-5,
                probes=["train-loss", {"kind": "input-weights", "layers": ["conv1"]}],
            )
            times = np.concatenate([known.time_of(_LEVEL) * _GRID for known in predictions(one)])
            replaced = msgspec.structs.replace(one, times=np.unique(np.round(times, 12)).tolist())
            found[f"{pictures} ε={epsilon:g}"] = replaced
        return found

    def claims(self, results: Results) -> list[Claim]:
        groups: dict[Pictures, dict[float, Measured]] = {
            name: {epsilon: measure(results[f"{name} ε={epsilon:g}"]) for epsilon in _EPSILONS} for name in _KERNEL
        }
        ends = [(group[_EPSILONS[0]], group[_EPSILONS[-1]]) for group in groups.values()]
        early = [one for group in groups.values() for one in group.values() if np.all(one.effective > 0)]
        return [
            Claim(
                text=f"at ε = {_EPSILONS[0]:g} the median kernel reaches alignment {_LEVEL:g} with v_1 within "
                f"{_CLOSE:.0%} of the time that eq. 44 predicts",
                paper="Proposition 1 (eq. 44); the paper does not measure times",
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
                text=f"the prediction degrades as ε grows: its error at ε = {_EPSILONS[-1]:g} is larger than at "
                f"{_EPSILONS[0]:g}",
                paper="the linear flow is that of small weights",
                measured=_each(
                    groups,
                    lambda one: f"{np.mean(one.ratio) - 1:+.2%}" if np.isfinite(one.seen).all() else "never aligned",
                ),
                judged=together(increases(small.off, large.off) for small, large in ends),
            ),
            Claim(
                text=f"weights stay within {_CLOSE:.0%} of eq. 44 for longer the smaller ε is (neighbouring ε, unless "
                "both do until the end of the run)",
                paper="T_eff (eq. 13, 54)",
                measured=_each(groups, lambda one: f"until {min_max(one.close)} of {one.end:.3g}"),
                judged=together(_longer(group) for group in groups.values()),
            ),
            Claim(
                text=f"weights stay within {_CLOSE:.0%} of eq. 44 at least until T_eff (eq. 54), where that is not 0",
                paper="T_eff (eq. 13, 54)",
                measured=_each(groups, lambda one: f"until {min_max(one.close)} (T_eff {min_max(one.effective)})"),
                judged=together(at_least(one.close, one.effective) for one in early)
                if early
                else undecided("T_eff is 0 at every ε"),
            ),
        ]

    def draw(self, results: Results) -> Figure:
        columns = len(_KERNEL)
        title = "Condensation along v₁: training against its prediction"
        figure, axes = titled_canvas(title, columns, 4.6 * columns, 6.4, rows=2)
        for column, pictures in enumerate(_KERNEL):
            above, below = axes[column], axes[columns + column]
            runs = {f"ε={epsilon:g}": results[f"{pictures} ε={epsilon:g}"] for epsilon in _EPSILONS}
            for index, (label, run) in enumerate(runs.items()):
                times = run["time"].values
                known, aligned, off = zip(*_against_prediction(run), strict=True)
                scaled = times / float(np.mean([found.time_of(_LEVEL) for found in known]))
                band(above, scaled, np.maximum(1 - np.array(aligned), 1e-12), index, label)
                band(below, scaled[1:], np.maximum(off, 1e-12)[:, 1:], index, label)
                if index == 0:
                    exact = np.maximum([1 - np.median(known[0].alignments(float(t))) for t in times], 1e-12)
                    above.plot(scaled, exact, ".", color=ORDERED[3], markersize=4, label="eq. 44")
            above.set_title(c.pictures_shown(runs), fontsize=9)
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
