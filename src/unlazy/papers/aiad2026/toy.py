"""Figures 3 and 4: the two-sided step, on which Theorem 3.1 says when one channel gets ahead of the other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import xarray as xr

from unlazy.figures import ORDERED, canvas
from unlazy.lab import Recipe
from unlazy.papers._base import Axes, Claim, Figure, Panel, Results, Scale, by_scale, option
from unlazy.papers._curves import label_axes, median_range, plural
from unlazy.papers.aiad2026 import _shared as shared


@dataclass(frozen=True)
class _Sizes:
    above: int  # neurons of the second hidden layer
    finite: int  # neurons of the first, where it is not infinite
    end: float
    looks: int
    seeds: int


_SCALES: dict[Scale, _Sizes] = {"quick": _Sizes(512, 2048, 25.0, 101, 3), "paper": _Sizes(4096, 16384, 25.0, 401, 5)}
_DELTA, _HEIGHT = 1.0, 2.0  # x_0 = -δ, x_1 = δ, and A
_MEANS = (1.0, 0.5)  # E[w_1] of the two channels: the first starts ahead
_SLOPE = 0.2  # of φ_2, which Assumption C.1 wants away from 0: with ReLU the output at x_1 stays at 0
_POINTS = 81  # on [-2δ, 2δ], so that ±δ are among them
_LEFT, _RIGHT = _POINTS // 4, 3 * (_POINTS // 4)  # where these are
LINE = np.linspace(-2 * _DELTA, 2 * _DELTA, _POINTS)
_STEP = 0.01  # of descent: kinks of ReLU make an adaptive solver crawl
_ROUNDING = 1e-6  # what R_12 may fall by between two looks

INFINITE, FINITE = "infinite first layer", "finite first layer"


def recipe(scale: Scale, width: float, seeds: int | None) -> Recipe:
    """Three layers of rank 2 in the mean-field parameterisation on the two points."""
    s = _SCALES[scale]
    line = {"low": float(LINE[0]), "high": float(LINE[-1]), "count": _POINTS}
    return Recipe(
        name=f"aiad2026 two-sided step, first width {width:g}",
        data={"kind": "two-sided-step", "delta": _DELTA, "amplitude": _HEIGHT},
        network={
            "kind": "mean-field-stack",
            "widths": [width, s.above],
            "ranks": 2,
            "train": "a",
            "bias": [True, False],
            "features": ["normal", {"kind": "uniform", "reach": 1.0}],
            "amplitude": [
                {"kind": "normal", "mean": list(_MEANS), "spread": 0.5},
                {"kind": "uniform", "reach": 1.0, "mean": 0.5},
            ],
            "activation": ["relu", {"kind": "leaky-relu", "slope": _SLOPE}],
        },
        flow={"kind": "descent", "rate": _STEP},
        times=np.linspace(0.0, s.end, s.looks).tolist(),
        probes=["train-loss", "train-outputs", {"kind": "channels", **line}, {"kind": "backward-signals", **line}],
        seeds=seeds or s.seeds,
    )


def kernel(x: np.ndarray, z: float) -> np.ndarray:
    """K_μ0(x, z) of ReLU features with w, b ~ N(0, 1): the arc-cosine kernel of (x, 1) and (z, 1)."""
    size = np.sqrt((1 + x**2) * (1 + z**2))
    angle = np.arccos(np.clip((1 + x * z) / size, -1, 1))
    return size * (np.sin(angle) + (np.pi - angle) * np.cos(angle)) / (2 * np.pi)


class Along(NamedTuple):
    """What Theorem 3.1 speaks of, at x_0 along one run."""

    times: np.ndarray
    f: np.ndarray  # (looks, 2)
    ratio: np.ndarray  # R_12
    rho: np.ndarray  # the ρ_0 that (iii) needs
    holds: np.ndarray  # (looks, 3): hypotheses (i), (ii) and (iii)
    growth: np.ndarray  # (1 - ρ_0) K (-d_0) |B_1| / |f_1|, the leading term of its rate
    rest: np.ndarray  # |ε_0|, what the other point adds to it

    @property
    def stretch(self) -> tuple[int, int]:
        """First and last look of the longest stretch on which all three hold; (0, -1) where there is none."""
        best, start = (0, -1), None
        for index, good in enumerate([*np.all(self.holds, axis=1).tolist(), False]):
            if good and start is None:
                start = index
            if not good and start is not None:
                best = max(best, (start, index - 1), key=lambda pair: pair[1] - pair[0])
                start = None
        return best


def follow(run: xr.Dataset, seed: int = 0) -> Along:
    """Compute R_12 at x_0, hypotheses and growth from what the probes saw."""
    f = run["channels.block-1"].values[seed, :, _LEFT]
    signal = run["backward-signals.block-1"].values[seed, :, _LEFT]
    residual = run["train-outputs"].values[seed, :, 0] - _HEIGHT
    size, told = np.abs(f), np.abs(signal)
    rho = told[:, 1] * size[:, 0] / (size[:, 1] * told[:, 0])
    holds = np.stack([-residual >= 0, np.sign(signal[:, 0]) == np.sign(f[:, 0]), rho < 1], axis=1)
    own, across = kernel(np.array([-_DELTA, _DELTA]), -_DELTA)
    share = 0.5  # of each of the two points in the mean loss
    growth = (1 - rho) * share * own * -residual * told[:, 0] / size[:, 0]
    other = run["backward-signals.block-1"].values[seed, :, _RIGHT] / f
    beyond = run["train-outputs"].values[seed, :, 1] + _HEIGHT
    rest = np.abs(share * across * beyond * (other[:, 0] - other[:, 1]))
    return Along(run["time"].values, f, np.log(size[:, 0] / size[:, 1]), rho, holds, growth, rest)


_SETTING = (
    f"Two samples, y = {_HEIGHT:g} at x_0 = -{_DELTA:g} and y = -{_HEIGHT:g} at x_1 = {_DELTA:g}; three layers of rank "
    f"2 with frozen ReLU features (w, b ~ N(0, 1)), the first layer of infinite width, leaky ReLU of slope {_SLOPE:g} "
    f"in the second and mixing matrix L uniform in ±1 (Assumption C.1), E[w_1] = {_MEANS} so that channel 1 starts "
    "ahead and E[w_2] = ½, along gradient descent of step 0.01 on ½ E(ŷ - y)². The paper draws these figures "
    "without a run"
)


class _Toy(Panel):
    """What figures 3 and 4 share: their runs."""

    scales = by_scale(
        _SCALES, lambda s: f"first layer infinite and {s.finite}, second {s.above}, t = {s.end:g}, {plural(s.seeds)}"
    )

    def recipes(self, scale: Scale, seeds: int | None = None) -> dict[str, Recipe]:
        """With an infinite and with a finite first layer."""
        return {INFINITE: recipe(scale, float("inf"), seeds), FINITE: recipe(scale, _SCALES[scale].finite, seeds)}


class ChannelsInTime(_Toy):
    """Figure 3: f_1 and f_2 at t_0, t_0 + Δt and t_1."""

    key = "aiad2026/fig3"
    title = "Figure 3: a channel gets ahead at x_0"
    caption = (
        f"The channel functions f_1 and f_2 at the beginning, in the middle and at the end of the stretch on which "
        f"hypotheses (i)-(iii) of Theorem 3.1 hold; thin: first layer of finite width. {_SETTING}."
    )

    def claims(self, results: Results) -> list[Claim]:
        """Channel 1 grows at x_0 and channel 2 less so."""
        return [_ahead(results), _as_infinite(results)]

    def draw(self, results: Results) -> Figure:
        """Three axes, one a time."""
        figure, axes = canvas(3, 11.5, 3.4)
        run = results[INFINITE]
        along = follow(run)
        first, last = along.stretch
        shots = (first, (first + last) // 2, last)
        reach = np.abs(run["channels.block-1"].values[0, [*shots]]).max() * 1.1
        for axis, shot, name in zip(axes, shots, ("t_0", "t_0 + Δt", "t_1"), strict=True):
            for channel, colour in ((0, ORDERED[1]), (1, ORDERED[2])):
                values = run["channels.block-1"].values[0, shot, :, channel]
                finite = results[FINITE]["channels.block-1"].values[0, shot, :, channel]
                axis.plot(LINE, values, color=colour, label=f"f_{channel + 1}")
                axis.plot(LINE, finite, color=colour, linewidth=0.7, alpha=0.7)
                axis.plot(-_DELTA, values[_LEFT], "o", color=colour, markersize=5)
            _points(axis)
            label_axes(
                axis,
                "x",
                f"{name} = {along.times[shot]:.2g}: R_12(x_0) = {along.ratio[shot]:.3f}",
                ylim=(-reach, reach),
            )
        axes[0].legend(fontsize=8)
        return figure


class TwoSidedStep(_Toy):
    """Figure 4: target and prediction, kernel bumps, and R_12 with what it needs."""

    key = "aiad2026/fig4"
    title = "Figure 4: the two-sided step"
    demo = True
    caption = (
        "Left: target and output. Middle: the kernel bumps K(x, x_0) and K(x, x_1) of which all that channels "
        "learn is made (eq. 4), over K(x_0, x_0). Right: R_12 at x_0 (thick: infinite first layer, all seeds) with "
        "the stretch on which hypotheses (i)-(iii) of Theorem 3.1 hold for the first seed shaded, and the ρ_0 that "
        f"(iii) needs, dashed. {_SETTING}."
    )

    def claims(self, results: Results) -> list[Claim]:
        """The target is fitted; hypotheses hold on a stretch, on which R_12 grows."""
        return [_fitted(results), _theorem(results[INFINITE], INFINITE), _theorem(results[FINITE], FINITE)]

    def draw(self, results: Results) -> Figure:
        """Target, bumps, log-ratio."""
        figure, axes = canvas(3, 12.0, 3.6)
        run = results[INFINITE]
        output = run["channels.block-2"].values[0, :, :, 0]
        shared.curve(axes[0], LINE, output[0], 5, "output at the start")
        shared.curve(axes[0], LINE, output[-1], 1, "output at the end", linestyle="-", linewidth=1.8)
        axes[0].plot([-_DELTA, _DELTA], [_HEIGHT, -_HEIGHT], "o", color=ORDERED[2], label="target")
        _points(axes[0])
        label_axes(axes[0], "x", "target and output", legend=7)
        own = kernel(np.array([_DELTA]), _DELTA)[0]
        for index, (point, name) in enumerate(((-_DELTA, "x_0"), (_DELTA, "x_1"))):
            shared.curve(axes[1], LINE, kernel(LINE, point) / own, 1 + index, f"K(x, {name})", linewidth=1.8)
        _points(axes[1])
        axes[1].legend(fontsize=8)
        cross = kernel(np.array([-_DELTA]), _DELTA)[0] / own
        label_axes(axes[1], "x", f"kernel bumps; K(x_0, x_1) = {cross:.2f} K(x_0, x_0)")
        for seed in range(run["seed"].size):
            shared.curve(axes[2], run["time"].values, follow(run, seed).ratio, 1, linestyle="-", linewidth=1.4)
            shared.curve(
                axes[2], run["time"].values, follow(results[FINITE], seed).ratio, 5, linestyle="-", linewidth=0.8
            )
        along = follow(run)
        first, last = along.stretch
        if last >= first:
            axes[2].axvspan(along.times[first], along.times[last], color=ORDERED[3], alpha=0.15, label="(i)-(iii) hold")
        shared.curve(axes[2], along.times, along.rho, 2, "ρ_0 of (iii)", linestyle="--")
        axes[2].plot([], [], color=ORDERED[1], label="R_12, infinite")
        axes[2].plot([], [], color=ORDERED[5], linewidth=0.8, label="R_12, finite")
        label_axes(axes[2], "t", "R_12 at x_0", legend=7)
        return figure


def _points(axes: Axes) -> None:
    for point in (-_DELTA, _DELTA):
        axes.axvline(point, color="0.5", linestyle=":", linewidth=0.8)


def _every(run: xr.Dataset) -> list[Along]:
    return [follow(run, seed) for seed in range(run["seed"].size)]


def _ahead(results: Results) -> Claim:
    grown: list[Any] = []
    for along in _every(results[INFINITE]):
        first, last = along.stretch
        start, end = along.f[first], along.f[last]
        grown.append((*(np.abs(end) - np.abs(start)), along.ratio[first], along.ratio[last]))
    seen = np.array(grown)
    return Claim(
        text="from t_0 to t_1 |f_1(x_0)| grows by more than |f_2(x_0)|, and so does their ratio, in every seed",
        paper="f_1 has a spike at x_0 that becomes more pronounced over time, while f_2 has no spike",
        measured=f"growth of |f_1(x_0)| {median_range(seen[:, 0])}, of |f_2(x_0)| {median_range(seen[:, 1])}; R_12 "
        f"from {median_range(seen[:, 2])} to {median_range(seen[:, 3])}",
        holds=bool(np.all(seen[:, 0] > seen[:, 1]) and np.all(seen[:, 3] > seen[:, 2]) and np.all(seen[:, 0] > 0)),
    )


def _as_infinite(results: Results) -> Claim:
    values = [run["channels.block-1"].values for run in (results[INFINITE], results[FINITE])]
    size = np.sqrt(np.mean(values[0][:, -1] ** 2, axis=(1, 2)))
    apart = np.sqrt(np.mean((values[0][:, -1] - values[1][:, -1]) ** 2, axis=(1, 2))) / size
    return Claim(
        text="channels of a first layer of finite width are those of infinite width at the end within 15 % (root mean "
        "square over x, median over seeds)",
        paper="finite networks follow the mean-field limit (Theorem 2.3)",
        measured=f"{median_range(100 * apart)} % apart with {option(results[FINITE], 'network.widths.0'):,.0f} neurons",
        holds=bool(np.median(apart) < 0.15),
    )


def _fitted(results: Results) -> Claim:
    losses = {name: run["train-loss"].values[:, -1] for name, run in results.items()}
    return Claim(
        text="the two-sided step is fitted: the loss ends below 1e-3 of A²/2",
        paper="when the dynamics converges, the limit is a global minimizer (Theorem 2.2)",
        measured="; ".join(f"{name}: {median_range(loss)}" for name, loss in losses.items()),
        holds=all(bool(np.all(loss < 1e-3 * _HEIGHT**2 / 2)) for loss in losses.values()),
    )


def _theorem(run: xr.Dataset, name: str) -> Claim:
    lengths, needed, falls, gains, bounds, leading = [], [], [], [], [], []
    for along in _every(run):
        first, last = along.stretch
        part = slice(first, last + 1)
        lengths.append(along.times[last] - along.times[first] if last > first else 0.0)
        if last > first:
            steps = np.diff(along.ratio[part])
            dominates = along.growth[part] > along.rest[part]
            sure = dominates[1:] & dominates[:-1]
            leading.append(float(np.mean(sure)))
            needed.append(along.rho[part].max())
            falls.append(steps[sure].min() if sure.any() else 0.0)
            gains.append(along.ratio[last] - along.ratio[first])
            bounds.append(np.trapezoid(along.growth[part] - along.rest[part], along.times[part]))
    grows = bool(falls and min(falls) >= -_ROUNDING and min(leading) > 0 and np.all(np.array(gains) >= bounds))
    return Claim(
        text=f"{name}: (i)-(iii) hold on a stretch of time in every seed; where the leading term is larger than |ε_0| "
        "R_12 at x_0 never falls there, and over the stretch it gains at least leading term - |ε_0|",
        paper="Theorem 3.1: strict dominance of channel 1 at x_0 cannot be lost on I, and is amplified",
        measured=f"longest stretch {median_range(np.array(lengths))} of {run['time'].values[-1]:g}"
        + (
            f", with ρ_0 up to {median_range(np.array(needed))}; the leading term is the larger in "
            f"{median_range(100 * np.array(leading))} % of it, where the smallest change between looks is "
            f"{min(falls):.1g}; R_12 gains {median_range(np.array(gains))}, at least "
            f"{median_range(np.array(bounds))} by the theorem"
            if falls
            else ": nowhere long enough"
        ),
        holds=bool(min(lengths) > 0) and grows,
    )
