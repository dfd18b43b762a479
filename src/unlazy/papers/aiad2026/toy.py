"""Figures 3 and 4: the two-sided step, for which Theorem 3.1 says when the lead of one channel over the other grows."""

from dataclasses import replace
from typing import NamedTuple

import numpy as np
import xarray as xr

from unlazy.figures import ORDERED, canvas
from unlazy.lab import Recipe
from unlazy.papers._base import Axes, Claim, Figure, Panel, Results, Scale, Sizes, by_scale, option
from unlazy.papers._curves import label_axes, median_range, plural
from unlazy.papers.aiad2026.setting import curve
from unlazy.papers.outcomes import at_least, increases, near, together, undecided, vacuous

# Neurons of the second hidden layer, and of the first where it is not infinite.
_SCALES: dict[Scale, Sizes] = {
    "quick": Sizes(above=512, finite=2048, observed=101, seeds=3),
    "paper": Sizes(above=4096, finite=16384, observed=401, seeds=5),
}
_END = 25.0
_DELTA, _HEIGHT = 1.0, 2.0  # x_0 = -δ, x_1 = δ, and A
_MEANS = (1.0, 0.5)  # E[w_1] of the two channels: the first starts ahead
_SLOPE = 0.2  # of φ_2, which Assumption C.1 bounds away from 0: with ReLU the output at x_1 stays at 0
_POINTS = 81  # on [-2δ, 2δ], so that ±δ are among them
_LEFT, _RIGHT = _POINTS // 4, 3 * (_POINTS // 4)  # where these are
LINE = np.linspace(-2 * _DELTA, 2 * _DELTA, _POINTS)
_STEP = 0.01  # of descent: the kinks of ReLU force an adaptive solver to take tiny steps
_NEARBY = _DELTA / 2  # how far from x_0 the maximum of a spike at x_0 may be
_ROUNDING = 1e-6  # by how much R_12 may fall between two observed times

INFINITE, FINITE = "infinite first layer", "finite first layer"


def kernel(x: np.ndarray, z: float) -> np.ndarray:
    """Compute K_μ0(x, z) of ReLU features with w, b ~ N(0, 1): the arc-cosine kernel of (x, 1) and (z, 1)."""
    size = np.sqrt((1 + x**2) * (1 + z**2))
    angle = np.arccos(np.clip((1 + x * z) / size, -1, 1))
    return size * (np.sin(angle) + (np.pi - angle) * np.cos(angle)) / (2 * np.pi)


class Along(NamedTuple):
    """The quantities of Theorem 3.1 at x_0, along one seed of a run."""

    times: np.ndarray
    f: np.ndarray  # (times, 2)
    ratio: np.ndarray  # R_12
    rho: np.ndarray  # the ρ_0 that (iii) needs
    holds: np.ndarray  # (times, 3): hypotheses (i), (ii) and (iii)
    growth: np.ndarray  # (1 - ρ_0) K (-d_0) |B_1| / |f_1|, the leading term of its rate
    rest: np.ndarray  # |ε_0|, what the other point adds to it

    @property
    def stretch(self) -> tuple[int, int]:
        """First and last index of the longest stretch on which all three hold; (0, -1) if there is none."""
        edges = np.flatnonzero(np.diff([False, *np.all(self.holds, axis=1), False]))
        stretches = [(int(first), int(end) - 1) for first, end in edges.reshape(-1, 2)]
        return max(stretches, key=lambda pair: pair[1] - pair[0], default=(0, -1))


def along_run(run: xr.Dataset, seed: int = 0) -> Along:
    """Compute R_12 at x_0, hypotheses and growth from the channels, outputs and backward signals of a run."""
    f = run["channels.block-1"].values[seed, :, _LEFT]
    signal = run["backward-signals.block-1"].values[seed, :, _LEFT]
    residual = run["train-outputs"].values[seed, :, 0] - _HEIGHT
    size, strength = np.abs(f), np.abs(signal)
    rho = strength[:, 1] * size[:, 0] / (size[:, 1] * strength[:, 0])
    holds = np.stack([-residual >= 0, np.sign(signal[:, 0]) == np.sign(f[:, 0]), rho < 1], axis=1)
    own, across = kernel(np.array([-_DELTA, _DELTA]), -_DELTA)
    share = 0.5  # of each of the two points in the mean loss
    growth = (1 - rho) * share * own * -residual * strength[:, 0] / size[:, 0]
    other = run["backward-signals.block-1"].values[seed, :, _RIGHT] / f
    beyond = run["train-outputs"].values[seed, :, 1] + _HEIGHT
    rest = np.abs(share * across * beyond * (other[:, 0] - other[:, 1]))
    return Along(run["time"].values, f, np.log(size[:, 0] / size[:, 1]), rho, holds, growth, rest)


_SETTING = (
    f"Two samples, y = {_HEIGHT:g} at x_0 = -{_DELTA:g} and y = -{_HEIGHT:g} at x_1 = {_DELTA:g}; three layers of rank "
    f"2 with frozen ReLU features (w, b ~ N(0, 1)), the first layer of infinite width, leaky ReLU of slope {_SLOPE:g} "
    f"in the second and mixing matrix L uniform in ±1 (Assumption C.1), E[w_1] = {_MEANS} so that channel 1 starts "
    "ahead and E[w_2] = ½, by gradient descent with step 0.01 on ½ E(ŷ - y)². In the paper these figures are sketches"
)


class _Toy(Panel):
    """The runs that figures 3 and 4 share."""

    scales = by_scale(
        _SCALES, lambda s: f"first layer infinite and {s.finite}, second {s.above}, t = {_END:g}, {plural(s.seeds)}"
    )

    def recipes(self, scale: Scale, seeds: int | None = None) -> dict[str, Recipe]:
        s = _SCALES[scale]
        line = {"low": float(LINE[0]), "high": float(LINE[-1]), "count": _POINTS}
        network = {
            "kind": "mean-field-stack",
            "ranks": 2,
            "train": "a",
            "bias": [True, False],
            "features": ["normal", {"kind": "uniform", "reach": 1.0}],
            "amplitude": [
                {"kind": "normal", "mean": list(_MEANS), "spread": 0.5},
                {"kind": "uniform", "reach": 1.0, "mean": 0.5},
            ],
            "activation": ["relu", {"kind": "leaky-relu", "slope": _SLOPE}],
        }
        probes = ["train-loss", "train-outputs", *({"kind": kind, **line} for kind in ("channels", "backward-signals"))]
        return {
            name: Recipe(
                name=f"aiad2026 two-sided step, first width {width:g}",
                data={"kind": "two-sided-step", "delta": _DELTA, "amplitude": _HEIGHT},
                network=network | {"widths": [width, s.above]},
                flow={"kind": "descent", "rate": _STEP},
                times=np.linspace(0.0, _END, s.observed).tolist(),
                probes=probes,
                seeds=seeds or s.seeds,
            )
            for name, width in ((INFINITE, float("inf")), (FINITE, s.finite))
        }


class ChannelsInTime(_Toy):
    """Figure 3: f_1 and f_2 at t_0, t_0 + Δt and t_1."""

    key = "aiad2026/fig3"
    title = "Figure 3: a channel gets ahead at x_0"
    caption = (
        f"The channel functions f_1 and f_2 at the beginning, in the middle and at the end of the stretch of time on "
        f"which hypotheses (i)-(iii) of Theorem 3.1 hold; thin: first layer of finite width. {_SETTING}."
    )

    def claims(self, results: Results) -> list[Claim]:
        every = _every(results[INFINITE])
        rows = []
        for seed, along in enumerate(every):
            ends = [*along.stretch]
            first, last = np.abs(along.f[ends])
            spikes = [has_spike(one) for one in np.abs(results[INFINITE]["channels.block-1"].values[seed, ends[1]]).T]
            rows.append((*(last - first), *along.ratio[ends], spikes[0], not spikes[1], last[0] > first[0]))
        first, second, start, end, peaks, flat, higher = np.array(rows, float).T
        grows = undecided("(i)-(iii) do not hold on a stretch of time in every seed")
        if all(along.stretch[1] > along.stretch[0] for along in every):
            grows = together([increases(second, first), increases(start, end), increases(0 * first, first)])
        infinite, finite = (results[name]["channels.block-1"].values[:, -1] for name in (INFINITE, FINITE))
        size = np.sqrt(np.mean(infinite**2, axis=(1, 2)))
        apart = np.sqrt(np.mean((infinite - finite) ** 2, axis=(1, 2))) / size
        neurons = option(results[FINITE], "network.widths.0")
        strict = Claim(
            text=f"at t_1 |f_1| has a local maximum within {_NEARBY:g} of x_0, |f_1(x_0)| is larger than at t_0, and "
            "|f_2| has no such maximum",
            paper="f_1 has a spike at x_0 that becomes more pronounced over time, while f_2 has no spike",
            measured=f"f_1 has one in {peaks.sum():.0f} of {plural(peaks.size)}, |f_1(x_0)| is larger in "
            f"{higher.sum():.0f}; f_2 has none in {flat.sum():.0f}",
            judged=near(np.minimum(peaks * higher, flat), 1.0, 0.0),
        )
        weaker = replace(
            strict,
            text="from t_0 to t_1 |f_1(x_0)| grows, by more than |f_2(x_0)|, and so does their ratio",
            measured=f"growth of |f_1(x_0)| {median_range(first)}, of |f_2(x_0)| {median_range(second)}; R_12 "
            f"from {median_range(start)} to {median_range(end)}",
            judged=grows,
            weaker=True,
        )
        limit = Claim(
            text="at the end, channels of a first layer of finite width agree with those of infinite width within 15 % "
            "(root mean square over x)",
            paper="finite networks follow the mean-field limit (Theorem 2.3)",
            measured=f"{median_range(100 * apart)} % apart with {neurons:,.0f} neurons",
            judged=near(apart, 0.0, 0.15),
        )
        return [strict, weaker, limit]

    def draw(self, results: Results) -> Figure:
        figure, axes = canvas(3, 11.5, 3.4)
        along = along_run(results[INFINITE])
        first, last = along.stretch
        shots = (first, (first + last) // 2, last)
        infinite, finite = (results[name]["channels.block-1"].values[0] for name in (INFINITE, FINITE))
        reach = np.abs(infinite[[*shots]]).max() * 1.1
        for axis, shot, name in zip(axes, shots, ("t_0", "t_0 + Δt", "t_1"), strict=True):
            for channel, colour in ((0, ORDERED[1]), (1, ORDERED[2])):
                values = infinite[shot, :, channel]
                axis.plot(LINE, values, color=colour, label=f"f_{channel + 1}")
                axis.plot(LINE, finite[shot, :, channel], color=colour, linewidth=0.7, alpha=0.7)
                axis.plot(-_DELTA, values[_LEFT], "o", color=colour, markersize=5)
            _mark_points(axis)
            title = f"{name} = {along.times[shot]:.2g}: R_12(x_0) = {along.ratio[shot]:.3f}"
            label_axes(axis, "x", title, ylim=(-reach, reach))
        axes[0].legend(fontsize=8)
        return figure


class TwoSidedStep(_Toy):
    """Figure 4: target and prediction, kernel bumps, and R_12 with what it needs."""

    key = "aiad2026/fig4"
    title = "Figure 4: the two-sided step"
    demo = True
    caption = (
        "Left: target and output. Middle: the kernel bumps K(x, x_0) and K(x, x_1), divided by K(x_0, x_0): all that "
        "channels learn is a combination of them (eq. 4). Right: R_12 at x_0 (thick: infinite first layer, all seeds); "
        "shaded: the stretch of time on which hypotheses (i)-(iii) of Theorem 3.1 hold for the first seed; dashed: the "
        f"ρ_0 that (iii) needs. {_SETTING}."
    )

    def claims(self, results: Results) -> list[Claim]:
        losses = {name: run["train-loss"].values[:, -1] for name, run in results.items()}
        fitted = Claim(
            text="the two-sided step is fitted: the loss ends below 1e-3 of A²/2",
            paper="when the dynamics converges, the limit is a global minimizer (Theorem 2.2)",
            measured="; ".join(f"{name}: {median_range(loss)}" for name, loss in losses.items()),
            judged=together(near(loss, 0.0, 1e-3 * _HEIGHT**2 / 2) for loss in losses.values()),
        )
        return [fitted, *(claim for name in (INFINITE, FINITE) for claim in _theorem(results[name], name))]

    def draw(self, results: Results) -> Figure:
        figure, axes = canvas(3, 12.0, 3.6)
        run = results[INFINITE]
        output = run["channels.block-2"].values[0, :, :, 0]
        curve(axes[0], LINE, output[0], 5, "output at the start")
        curve(axes[0], LINE, output[-1], 1, "output at the end", linestyle="-", linewidth=1.8)
        axes[0].plot([-_DELTA, _DELTA], [_HEIGHT, -_HEIGHT], "o", color=ORDERED[2], label="target")
        _mark_points(axes[0])
        label_axes(axes[0], "x", "target and output", legend=7)
        own = kernel(np.array([_DELTA]), _DELTA)[0]
        for index, (point, name) in enumerate(((-_DELTA, "x_0"), (_DELTA, "x_1"))):
            curve(axes[1], LINE, kernel(LINE, point) / own, 1 + index, f"K(x, {name})", linewidth=1.8)
        _mark_points(axes[1])
        axes[1].legend(fontsize=8)
        cross = kernel(np.array([-_DELTA]), _DELTA)[0] / own
        label_axes(axes[1], "x", f"kernel bumps; K(x_0, x_1) = {cross:.2f} K(x_0, x_0)")
        for one, other in zip(_every(run), _every(results[FINITE]), strict=True):
            curve(axes[2], one.times, one.ratio, 1, linestyle="-", linewidth=1.4)
            curve(axes[2], one.times, other.ratio, 5, linestyle="-", linewidth=0.8)
        along = along_run(run)
        first, last = along.stretch
        if last >= first:
            axes[2].axvspan(along.times[first], along.times[last], color=ORDERED[3], alpha=0.15, label="(i)-(iii) hold")
        curve(axes[2], along.times, along.rho, 2, "ρ_0 of (iii)", linestyle="--")
        axes[2].plot([], [], color=ORDERED[1], label="R_12, infinite")
        axes[2].plot([], [], color=ORDERED[5], linewidth=0.8, label="R_12, finite")
        label_axes(axes[2], "t", "R_12 at x_0", legend=7)
        return figure


def _mark_points(axes: Axes) -> None:
    for point in (-_DELTA, _DELTA):
        axes.axvline(point, color="0.5", linestyle=":", linewidth=0.8)


def _every(run: xr.Dataset) -> list[Along]:
    return [along_run(run, seed) for seed in range(run["seed"].size)]


def has_spike(size: np.ndarray) -> bool:
    """Return whether |f| on the line has a local maximum within `_NEARBY` of x_0."""
    inner = (size[1:-1] > size[:-2]) & (size[1:-1] > size[2:])
    return bool(np.any(inner & (np.abs(LINE[1:-1] + _DELTA) <= _NEARBY)))


def _theorem(run: xr.Dataset, name: str) -> list[Claim]:
    lengths, seen = [], []
    for along in _every(run):
        first, last = along.stretch
        part = slice(first, last + 1)
        lengths.append(along.times[last] - along.times[first] if last > first else 0.0)
        if last > first:
            dominates = along.growth[part] > along.rest[part]
            sure = dominates[1:] & dominates[:-1]
            fall = np.diff(along.ratio[part])[sure].min() if sure.any() else np.nan
            gain = along.ratio[last] - along.ratio[first]
            bound = np.trapezoid(along.growth[part] - along.rest[part], along.times[part])
            seen.append((np.mean(sure), along.rho[part].max(), fall, gain, bound))
    applies = Claim(
        text=f"{name}: hypotheses (i)-(iii) hold on a stretch of time in every seed",
        paper="Theorem 3.1: an interval I on which (i)-(iii) hold",
        measured=f"longest stretch {median_range(np.array(lengths))} of {run['time'].values[-1]:g}",
        judged=near(np.array(lengths) > 0, 1.0, 0.0),
    )
    found, grows = "the hypotheses hold nowhere", vacuous("the hypotheses hold nowhere")
    if seen:
        leading, needed, falls, gains, bounds = np.array(seen).T
        never = vacuous("the leading term is never larger than |ε_0|")
        if np.isfinite(falls).any():
            never = near(falls[np.isfinite(falls)] >= -_ROUNDING, 1.0, 0.0)
        grows = together([never, at_least(gains, bounds)])
        found = (
            f"ρ_0 up to {median_range(needed)}; the leading term is the larger in {median_range(100 * leading)} % of "
            f"the stretch, where the smallest change between observed times is {np.nanmin([*falls, np.inf]):.1g}; R_12 "
            f"grows by {median_range(gains)}, by the theorem at least by {median_range(bounds)}"
        )
    amplified = Claim(
        text=f"{name}: on that stretch R_12 at x_0 never falls while the leading term is larger than |ε_0|, and it "
        "grows by at least the integral of leading term - |ε_0|",
        paper="Theorem 3.1: strict dominance of channel 1 at x_0 cannot be lost on I, and is amplified",
        measured=found,
        judged=grows,
    )
    return [applies, amplified]
