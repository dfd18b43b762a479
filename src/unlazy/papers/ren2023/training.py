"""Figure 2: the learner on its task, beside its limit of infinite width, with the stages on an axis of their own."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import xarray as xr

from unlazy.figures import band, canvas
from unlazy.lab import Recipe, Times, draw_data
from unlazy.papers._base import Claim, Figure, Panel, Results, Scale, by_scale, option, recipe_of
from unlazy.papers._curves import exponent, label_axes, min_max, plural
from unlazy.papers.ren2023 import _shared as shared
from unlazy.papers.ren2023._shared import CLIPS, CONSTANT, FINITE_STAGES, INFINITE, STAGES


@dataclass(frozen=True)
class _Sizes:
    d: int
    width: int  # m_1 of the figure
    above: int  # m_2
    others: tuple[int, ...]  # more m_1, for how errors fall with width
    end: float
    looks: int
    batch: int
    step: float
    evaluated: int  # samples on which the loss is measured
    seeds: int


_SCALES: dict[Scale, _Sizes] = {
    "quick": _Sizes(20, 256, 32, (64, 128, 512), 500.0, 41, 512, 0.5, 2048, 1),
    "paper": _Sizes(100, 512, 128, (128, 256, 1024, 2048), 1500.0, 61, 1024, 0.5, 4096, 2),
}
_SPREAD, _START = 1e-3, 0.1  # σ_2 and σ_r of the figure: the text says "small"
_TINY = 1e-9  # σ_2 of the stages: the text wants it below d^-7
_STAGE_END = 2.0
_LOW = 1e-4
_FITTED = 1e-3  # ε of T_2
_NEAR = 0.02  # what (w̄_2 α, b̄_2) may be off by at the end
_ALIKE = 0.1  # what the time of the fall may differ by; and f from f̃, relative to f*


class Training(Panel):
    """Figure 2: loss, shape of f and second-layer neurons along training, and the stages."""

    key = "ren2023/fig2"
    title = "Figure 2: a three-layer network learns relu(1 - |x|)"
    demo = True
    scales = by_scale(
        _SCALES,
        lambda s: (
            f"d = {s.d}, m_1 = {s.width} (and {', '.join(map(str, s.others))}), m_2 = {s.above}, "
            f"t = {s.end:,.0f}, {plural(s.seeds)}"
        ),
    )
    caption = (
        "Left: L = ½ E(f* - f)² of the learner of eq. 1 along clipped gradient descent (eq. 4) on fresh samples of "
        "the heavy-tailed law (αβ = 1), measured on other samples, beside the flow at infinite width by quadrature "
        "over |x|. Dashed lines are the snapshots of the next two axes: f along rays (mean, and range over 32 "
        "directions) with f̃ dotted, and the neurons (w_2, b_2). Then what the first layer adds to the loss, eq. 6, "
        "at the end, against m_1. Right: stage 1, which is over long before anything is seen on the left, from a "
        f"second layer of spread {_TINY:g}; bars show when clips act at infinite width. The paper names d, m_1 and "
        f"m_2 only; |w_1| = 1/√d (its Appendix C), σ_2 = {_SPREAD:g}, σ_r = {_START:g}, bounds (d, d³, 1), rate "
        "and batch are our choice. Radii of a batch are stratified."
    )

    def recipe(self, scale: Scale, width: int, seeds: int | None) -> Recipe:
        """One finite learner, on fresh samples."""
        s = _SCALES[scale]
        return Recipe(
            name=f"ren2023 fig2 m_1 = {width}",
            data={"kind": "spherical", "n": s.evaluated, "d": s.d},
            network=shared.learner((width, s.above), s.d, _SPREAD, _START),
            flow={
                "kind": "descent",
                "rate": s.step,
                "batch": s.batch,
                "source": {"kind": "spherical-source", "d": s.d},
            },
            times=shared.step_times(s.end, s.looks, s.step),
            probes=[
                "train-loss",
                "second-layer",
                "first-layer",
                "limit-distance",
                "loss-decomposition",
                "radial-profile",
            ],
            seeds=seeds or s.seeds,
            dtype="float32",
        )

    def limit(self, scale: Scale, seeds: int | None) -> Recipe:
        """The same learner at infinite width, from the same second layer."""
        s = _SCALES[scale]
        return Recipe(
            name="ren2023 fig2 infinite width",
            data={"kind": "spherical-quadrature", "d": s.d},
            network=shared.learner((float("inf"), s.above), s.d, _SPREAD, _START),
            flow={"kind": "runge-kutta", "rtol": 1e-6, "atol": 1e-9},
            times=shared.step_times(s.end, 4 * (s.looks - 1) + 1, s.step),
            probes=["train-loss", "second-layer", "first-layer", "radial-profile"],
            seeds=seeds or s.seeds,
        )

    def stages(self, scale: Scale, width: float, seeds: int | None) -> Recipe:
        """Stage 1 from a tiny second layer, seen at times evenly spaced in their logarithm."""
        s = _SCALES[scale]
        infinite = np.isinf(width)
        data = (
            {"kind": "spherical-quadrature", "d": s.d, "far": 1e16}
            if infinite
            else {"kind": "spherical", "n": s.evaluated // 2, "d": s.d, "tail": 0.5}
        )
        return Recipe(
            name=f"ren2023 stages m_1 = {width:g}",
            data=data,
            network=shared.learner((width, s.above), s.d, _TINY, _START),
            flow={"kind": "runge-kutta", "rtol": 1e-4, "atol": 1e-13},
            times=Times(end=_STAGE_END, count=81, spacing="log", first=1e-7),
            probes=["train-loss", "second-layer", "first-layer", "clip-activity"],
            seeds=seeds or s.seeds,
        )

    def recipes(self, scale: Scale, seeds: int | None = None) -> dict[str, Recipe]:
        """The figure's width, its limit, the other widths (one seed each) and the stages."""
        s = _SCALES[scale]
        return {
            shared.label(s.width): self.recipe(scale, s.width, seeds),
            INFINITE: self.limit(scale, seeds),
            **{shared.label(width): self.recipe(scale, width, 1) for width in s.others},
            STAGES: self.stages(scale, float("inf"), seeds),
            FINITE_STAGES: self.stages(scale, s.width, 1),
        }

    def claims(self, results: Results) -> list[Claim]:
        """Plateau and fall, the end, f against f̃, concentration, infinite width, errors by m_1, stages and clips."""
        main, limit = results[shared.main_label(results)], results[INFINITE]
        plateau = _plateau(limit)
        return [
            _falls(main, plateau),
            _arrives(main),
            _close(main),
            _concentrated(main),
            _as_infinite(main, limit, plateau),
            _errors(results),
            _ordered(results),
            _unclipped(results),
        ]

    def draw(self, results: Results) -> Figure:
        """Loss, shape, neurons, errors and stages in a row."""
        main, limit = results[shared.main_label(results)], results[INFINITE]
        figure, axes = canvas(5, 17.0, 3.4)
        band(axes[0], main["time"].values, main["train-loss"].values, 0, shared.main_label(results))
        band(axes[0], limit["time"].values, limit["train-loss"].values, 1, INFINITE)
        shots = shared.snapshots(main, _plateau(limit))
        for index in shots:
            axes[0].axvline(main["time"].values[index], color="0.6", linestyle="--", linewidth=0.7)
        label_axes(axes[0], "t", "loss", legend=7, yscale="log")
        shared.shapes(axes[1], axes[2], main, shots)
        shared.widths(axes[3], results)
        shared.stages(axes[4], results)
        figure.suptitle(f"ren2023, d = {option(main, 'data.d')}", fontsize=10)
        return figure


def _plateau(run: xr.Dataset) -> float:
    (data, *_) = draw_data(recipe_of(run))
    return shared.constant_loss(np.asarray(data.y), np.asarray(data.weight))


def _falls(run: xr.Dataset, plateau: float) -> Claim:
    loss, times = run["train-loss"].values, run["time"].values
    fall = shared.fall_times(run, plateau)
    early = times <= 0.5 * np.min(fall)
    # After b_2 has settled the loss waits within a quarter of what the best constant has, and then falls for good.
    waits = loss[:, early][:, times[early] >= 0.05 * np.min(fall)] if np.isfinite(fall).all() else np.empty((0, 0))
    stayed = bool(waits.size) and bool(np.all(np.abs(waits / plateau - 1) < 0.25))
    return Claim(
        text=f"the loss waits at ½ Var(f*) = {plateau:.3g} (to 25 %), then falls, and ends below {_LOW:g}",
        paper="figure 2, left: a plateau, a fall, and a small loss",
        measured=f"half of the plateau at t = {min_max(fall)}, {_FITTED:g} at T_2 = "
        f"{min_max(shared.times_of_loss(run, _FITTED))}; at the end {min_max(loss[:, -1])}",
        holds=stayed and bool(np.all(loss[:, -1] < _LOW)),
    )


def _arrives(run: xr.Dataset) -> Claim:
    slope = run["second-layer.weight"].values[:, -1] * run["first-layer.alpha"].values[:, -1]
    bias = run["second-layer.bias"].values[:, -1]
    return Claim(
        text=f"at the end w̄_2 α = -1 and b̄_2 = 1 within {_NEAR:.0%}",
        paper="f approaches σ(b̄_2 + w̄_2 α |x|) = σ(1 - |x|)",
        measured=f"w̄_2 α = {min_max(slope)}, b̄_2 = {min_max(bias)}",
        holds=bool(np.all(np.abs(slope + 1) < _NEAR) and np.all(np.abs(bias - 1) < _NEAR)),
    )


def _close(run: xr.Dataset) -> Claim:
    apart = run["limit-distance.relative"].values
    return Claim(
        text=f"f stays close to f̃: their L2 distance is below {_ALIKE:.0%} of the L2 norm of f* at every look",
        paper="one can observe that f ≈ f̃ indeed holds",
        measured=f"largest {apart.max():.2%}, at the end {min_max(100 * apart[:, -1])} %",
        holds=bool(np.all(apart < _ALIKE)),
    )


def _concentrated(run: xr.Dataset) -> Claim:
    size = np.hypot(run["second-layer.weight"].values[:, -1], run["second-layer.bias"].values[:, -1])
    wide = run["second-layer.spread"].values
    return Claim(
        text="second-layer neurons stay within 2 % of |(w̄_2, b̄_2)| at the end from each other, at every look",
        paper="throughout the training the second layer weights are well-concentrated",
        measured=f"δ_2 = {min_max(wide[:, 0])} at the start, {wide.max():.3g} at most, "
        f"{min_max(wide[:, -1])} at the end",
        holds=bool(np.all(wide < 0.02 * size[:, None])),
    )


def _as_infinite(run: xr.Dataset, limit: xr.Dataset, plateau: float) -> Claim:
    here, there = shared.fall_times(run, plateau), shared.fall_times(limit, plateau)
    apart = np.abs(here / there - 1)
    return Claim(
        text=f"the loss falls when that of infinite width does, from the same α, w_2 and b_2: within {_ALIKE:.0%}",
        paper="the infinite-width network can be interpreted as a symmetrization of the finite one",
        measured=f"t = {min_max(here)} against {min_max(there)}: {np.max(apart):.1%} apart",
        holds=bool(np.all(apart < _ALIKE)),
    )


def _errors(runs: Results) -> Claim:
    what, widths = "loss-decomposition.error", sorted(shared.widths_of(runs))
    ends = {m: float(np.median(runs[shared.label(m)][what].values[:, -1])) for m in widths}
    power = exponent(widths, [ends[m] for m in widths])
    main = runs[shared.main_label(runs)]
    error, times = main[what].values, main["time"].values
    fall = np.min(shared.fall_times(main, _plateau(runs[INFINITE])))
    peak = np.max(error[:, times >= fall], axis=1) if np.any(times >= fall) else error[:, -1]
    return Claim(
        text="the first layer's error (w̄_2²/2) E(F̃ - F)² falls with m_1 (power below -½) and, "
        "once w̄_2 has grown, with time",
        paper="the second term of eq. 6 measures the approximation error of the first layer, and can only decrease",
        measured=", ".join(f"m_1 = {m}: {ends[m]:.2g}" for m in widths)
        + f"; power {power:.2f}; at its peak {min_max(peak)} ({shared.main_label(runs)})",
        holds=power < -0.5 and bool(np.all(error[:, -1] < peak)),
    )


def _ordered(runs: Results) -> Claim:
    seen, good = [], True
    for name in (STAGES, FINITE_STAGES):
        found = shared.stages_of(runs[name], CONSTANT)
        good = good and all(0 < one.positive < one.spread < one.weight for one in found)
        one = found[0]
        seen.append(f"{name}: {one.positive:.2g} < {one.spread:.2g} < {one.weight:.2g}")
    return Claim(
        text="stage 1 ends in the paper's order: T_1.1 (all w_2 < 0), T_1.2 (-w̄_2 = d δ_2), T_1.3 (-w̄_2 = 10/R_v2)",
        paper="Lemma 4.1 and 4.2",
        measured="; ".join(seen),
        holds=bool(good),
    )


def _unclipped(runs: Results) -> Claim:
    seen, good = [], True
    for name in (STAGES, FINITE_STAGES):
        run = runs[name]
        found = shared.stages_of(run, CONSTANT)
        last = {clip: _last_active(run, clip) for clip in CLIPS}
        for clip, end in zip(CLIPS, zip(*(one[:3] for one in found), strict=True), strict=True):
            good = good and bool(np.all(last[clip] <= np.asarray(end)))
        seen.append(f"{name}: " + ", ".join(f"{clip} {min_max(times)}" for clip, times in last.items()))
    return Claim(
        text="each clip is out of use from its stage on: " + ", ".join(f"{clip} from {t}" for clip, t in CLIPS.items()),
        paper="Lemma 4.1",
        measured="last active at t = " + "; ".join(seen),
        holds=good,
    )


def _last_active(run: xr.Dataset, clip: str) -> np.ndarray:
    """The last look at which a clip acts on anything, seed by seed; 0 if it never does."""
    active = run[f"clip-activity.{clip}"].values > 0
    return np.max(np.where(active, run["time"].values, 0.0), axis=1)
