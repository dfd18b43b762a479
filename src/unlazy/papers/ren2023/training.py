"""Figure 2: training of the learner, its limit of infinite width, and the stages of training on their own axes."""

from typing import Any

import numpy as np
import xarray as xr

from unlazy.figures import DASHES, ORDERED, band
from unlazy.lab import Recipe, Times
from unlazy.papers._base import Axes, Claim, Figure, Panel, Results, Scale, Sizes, by_scale, option
from unlazy.papers._curves import label_axes, plural, titled_canvas
from unlazy.papers.ren2023 import claims
from unlazy.papers.ren2023 import quantities as q
from unlazy.papers.ren2023.quantities import CLIPS, FINITE_STAGES, INFINITE, STAGES, plateau_of

# ``widths`` are values of m_1, first that of the figure, then others that show how errors fall with m_1; ``above`` is
# m_2; ``n`` is the number of samples on which the loss is measured, and ``many`` that for the figure's width, where
# gradients are compared as well (eq. 6): with 2048 samples their sampling error exceeds the claimed difference.
_SCALES: dict[Scale, Sizes] = {
    "quick": Sizes(
        d=20, widths=(256, 64, 128, 512), above=32, end=500.0, observed=41, batch=2048, n=2048, many=32768, seeds=2
    ),
    "paper": Sizes(
        d=100,
        widths=(512, 128, 256, 1024, 2048),
        above=128,
        end=1500.0,
        observed=61,
        batch=4096,
        n=4096,
        many=32768,
        seeds=2,
    ),
}
_STEP = 0.5  # of descent
_SPREAD, _START = 1e-3, 0.1  # σ_2 and σ_r of the figure: the text says "small"
_TINY = 1e-9  # σ_2 of the stages: the text requires it to be below d^-7
_STAGE_END = 2.0
_SNAPSHOTS = (0.0, 0.9, 1.0, 1.1, 1.4)  # in units of the time of the fall; the last snapshot is at the end


def learner(widths: tuple[float, float], d: int, spread: float, bias: float) -> dict[str, Any]:
    """Return the learner of eq. 1, with w_1 on the sphere of radius 1/√d and clips, as a section of a recipe.

    ``widths`` are m_1, which may be infinite, and m_2; ``d`` is the number of inputs. The second layer starts from
    w_2 ~ N(0, spread²) and b_2 = bias. The bounds R_v1 = d, R_v2 = d³ and R_r2 = 1 are those of the paper with all
    constants 1.
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


def step_times(end: float, count: int) -> list[float]:
    """Return ``count`` evenly spaced times up to ``end``, rounded to whole numbers of steps."""
    return [float(_STEP * round(one / _STEP)) for one in np.linspace(0.0, end, count)]


class Training(Panel):
    """Figure 2: loss, shape of f and second-layer neurons along training, and the stages."""

    key = "ren2023/fig2"
    title = "Figure 2: a three-layer network learns relu(1 - |x|)"
    demo = True
    scales = by_scale(
        _SCALES,
        lambda s: (
            f"d = {s.d}, m_1 = {s.widths[0]} (and {', '.join(map(str, s.widths[1:]))}), m_2 = {s.above}, "
            f"t = {s.end:,.0f}, {plural(s.seeds)}"
        ),
    )
    caption = (
        "Left: L = ½ E(f* - f)² of the learner of eq. 1 along clipped gradient descent (eq. 4) on fresh samples of "
        "the heavy-tailed law (αβ = 1), measured on other samples, and along the flow at infinite width, computed by "
        "quadrature over |x|. Dashed lines mark the snapshots on the next two axes: f along rays (mean and range over "
        "32 directions, f̃ dotted), and the neurons (w_2, b_2). Fourth: the first layer's part of the loss (eq. 6) at "
        "the end, against m_1. Right: stage 1, which ends long before anything is visible on the left, from a second "
        f"layer of spread {_TINY:g}; bars show when clips are active at infinite width. The paper gives only d, m_1 "
        f"and m_2; |w_1| = 1/√d (its Appendix C), σ_2 = {_SPREAD:g}, σ_r = {_START:g}, the bounds (d, d³, 1), the rate "
        "and the batch size are our choice. Radii of a batch are stratified. The noise of batches adds about 9e-3 "
        "divided by the batch size to the first layer's error at d = 100, for all m_1, which is less than the error."
    )

    def recipes(self, scale: Scale, seeds: int | None = None) -> dict[str, Recipe]:
        s = _SCALES[scale]
        main, *others = s.widths
        samples = {"kind": "spherical", "n": s.n, "d": s.d}
        quadrature = {"kind": "spherical-quadrature", "d": s.d}

        def recipe(name: str, width: float, spread: float, *probes: str, **fields: Any) -> Recipe:
            """Return a recipe with the learner, and the probes of both layers."""
            fields.setdefault("seeds", seeds or s.seeds)
            return Recipe(
                name=f"ren2023 {name}",
                network=learner((width, s.above), s.d, spread, _START),
                probes=["train-loss", "second-layer", "first-layer", *probes],
                **fields,
            )

        def finite(width: int) -> Recipe:
            """Return the recipe of a finite learner on fresh samples."""
            probes = ("limit-distance", "loss-decomposition", "error-by-degree", "radial-profile")
            source = {"kind": "spherical-source", "d": s.d}
            data = samples | {"n": s.many if width == main else s.n}
            flow = {"kind": "descent", "rate": _STEP, "batch": s.batch, "source": source}
            times = step_times(s.end, s.observed)
            name = f"fig2 m_1 = {width}"
            return recipe(name, width, _SPREAD, *probes, data=data, flow=flow, times=times, dtype="float32")

        def stages(width: float, **fields: Any) -> Recipe:
            """Return the recipe of stage 1 from a tiny second layer, at logarithmically spaced times."""
            flow = {"kind": "runge-kutta", "rtol": 1e-4, "atol": 1e-13}
            times = Times(end=_STAGE_END, count=81, spacing="log", first=1e-7)
            return recipe(f"stages m_1 = {width:g}", width, _TINY, "clip-activity", flow=flow, times=times, **fields)

        limit = recipe(  # from the same second layer
            "fig2 infinite width",
            float("inf"),
            _SPREAD,
            "radial-profile",
            data=quadrature,
            flow={"kind": "runge-kutta", "rtol": 1e-8, "atol": 1e-11},  # δ_2 is a thousandth of w_2 at the end
            times=step_times(s.end, 4 * (s.observed - 1) + 1),
        )
        return {
            q.label(main): finite(main),
            INFINITE: limit,
            **{q.label(width): finite(width) for width in others},
            STAGES: stages(float("inf"), data=quadrature | {"far": 1e16}),
            FINITE_STAGES: stages(main, data=samples | {"n": s.n // 2, "tail": 0.5}, seeds=1),
        }

    def claims(self, results: Results) -> list[Claim]:
        return claims.figure_claims(results)

    def draw(self, results: Results) -> Figure:
        main, limit = results[q.main_label(results)], results[INFINITE]
        figure, axes = titled_canvas(f"ren2023, d = {option(main, 'data.d')}", 5, 17.0, 3.4)
        band(axes[0], main["time"].values, main["train-loss"].values, 0, q.main_label(results))
        band(axes[0], limit["time"].values, limit["train-loss"].values, 1, INFINITE)
        times, fall = main["time"].values, q.fall_times(main, plateau_of(limit))
        fall = fall[np.isfinite(fall)]
        wanted = [share * float(np.median(fall)) for share in _SNAPSHOTS if fall.size] + [times[-1]]
        shots = sorted({int(np.argmin(np.abs(times - one))) for one in wanted if one <= times[-1]})
        for index in shots:
            axes[0].axvline(times[index], color="0.6", linestyle="--", linewidth=0.7)
        label_axes(axes[0], "t", "loss", legend=7, yscale="log")
        _draw_shapes(axes[1], axes[2], main, shots)
        _draw_widths(axes[3], results)
        _draw_stages(axes[4], results)
        return figure


def _draw_shapes(shape: Axes, neurons: Axes, run: xr.Dataset, shots: list[int]) -> None:
    """Draw the function f along rays, and (w_2, b_2), at the snapshots of the first seed."""
    names = ("radius", "mean", "smallest", "largest", "limit")
    radius, mean, smallest, largest, limit = (run[f"radial-profile.{name}"].values[0] for name in names)
    for place, index in enumerate(shots):
        colour, name = ORDERED[place % len(ORDERED)], f"t = {run['time'].values[index]:.0f}"
        r = radius[index]
        shape.fill_between(r, smallest[index], largest[index], color=colour, alpha=0.2, linewidth=0)
        shape.plot(r, mean[index], color=colour, linestyle=DASHES[place % len(DASHES)], label=name)
        shape.plot(r, limit[index], color=colour, linestyle=":", linewidth=1.0)
        rows = run["second-layer.neurons"].values[0, index]
        neurons.plot(rows[:, 0], rows[:, 1], ".", color=colour, markersize=4, label=name)
    shape.plot(radius[0], np.maximum(1 - radius[0], 0), color="0.5", linewidth=0.8)
    label_axes(shape, "|x|", "f (dotted: f̃; grey: f*)")
    label_axes(neurons, "w_2", "b_2")
    shape.legend(fontsize=6)


def _draw_widths(axes: Axes, runs: Results) -> None:
    """Draw the error and the loss at the end against m_1."""
    known = sorted(q.widths_of(runs).items())
    for index, (what, title) in enumerate((("loss-decomposition.error", "(w̄_2²/2) E(F̃ - F)²"), ("train-loss", "loss"))):
        ends = [float(np.median(runs[name][what].values[:, -1])) for _, name in known]
        axes.plot([m for m, _ in known], ends, marker="o", color=ORDERED[index], linestyle=DASHES[index], label=title)
    axes.set(xscale="log", yscale="log")
    axes.xaxis.minorticks_off()  # errors span about a decade, so that their axis needs minor ticks
    axes.set_xticks([m for m, _ in known], [str(m) for m, _ in known])
    label_axes(axes, "m_1", "at the end", legend=7)


def _draw_stages(axes: Axes, runs: Results) -> None:
    """Draw stage 1: mean and spread of w_2, the times at which its parts end, and when each clip acts."""
    for index, name in enumerate((STAGES, FINITE_STAGES)):
        run = runs[name]
        later = run["time"].values > 0
        times = run["time"].values[later]
        for what, dash in (("weight", 0), ("spread", 2)):
            curve = np.abs(run[f"second-layer.{what}"].values[:, later])
            band(axes, times, curve, index, f"{'|w̄_2|' if what == 'weight' else 'δ_2'}, {name}", dash=dash)
    for one in q.stages_of(runs[STAGES])[0][:3]:
        axes.axvline(one, color="0.6", linestyle="--", linewidth=0.7)
    run = runs[STAGES]
    for place, clip in enumerate(CLIPS):  # bars at the foot of the axes: when each clip acts at infinite width
        active = run[f"clip-activity.{clip}"].values[0] > 0
        bar = np.where(active, 0.02 + 0.03 * place, np.nan)
        style = {"color": ORDERED[2 + place], "linewidth": 3.0, "label": f"clip of {clip}"}
        axes.plot(run["time"].values, bar, transform=axes.get_xaxis_transform(), **style)
    label_axes(axes, "t", "stage 1: T_1.1, T_1.2, T_1.3", legend=6, xscale="log", yscale="log")
