"""Durations of both stages against the dimension: the flow at infinite width, from the paper's initialisation."""

import numpy as np
import xarray as xr

from unlazy.figures import DASHES, ORDERED, band
from unlazy.lab import Recipe, Times
from unlazy.papers._base import Claim, Figure, Panel, Results, Scale, Sizes, by_scale, option
from unlazy.papers._curves import exponents, label_axes, listed, min_max, plural, titled_canvas
from unlazy.papers.outcomes import at_least, at_most, near, undecided
from unlazy.papers.ren2023.quantities import stages_of, times_of_loss
from unlazy.papers.ren2023.training import learner

_SCALES: dict[Scale, Sizes] = {
    "quick": Sizes(ds=(10, 20, 40, 80), above=8, end=3000.0, seeds=2),
    "paper": Sizes(ds=(10, 20, 40, 80, 160, 320), above=32, end=6000.0, seeds=3),
}
_LOSSES = (1e-2, 1e-3, 1e-4)  # values of ε
_EPSILON = 1e-3  # that of T_2
_BIAS = 0.1  # σ_r, as in figure 2
_POWER = 0.1  # tolerance of a power of d
_ERROR = 1e-3  # relative error of the runs


class Dimension(Panel):
    """T_1, T_2 and α against d."""

    key = "ren2023/dimension"
    title = "Polynomial time: how long both stages take, against the dimension"
    scales = by_scale(
        _SCALES, lambda s: f"d = {', '.join(map(str, s.ds))}, m_1 = ∞, m_2 = {s.above}, {plural(s.seeds)}"
    )
    caption = (
        "The clipped flow at infinite width, by quadrature over |x|, from |w_1| = 1/√d, w_2 ~ N(0, d^-14) and b_2 = "
        f"{_BIAS:g}, with bounds (d, d³, 1). Left: L over time. Right: T_1, at which -w̄_2 = 10/R_v2, T_2, at which L "
        f"is {_EPSILON:g}, and α at T_1. The paper has T_1 = O(d^-1.5) for this spread (Lemma C.4), T_2 - T_1 = "
        "O(d³/ε) (Lemma D.22) and α = Θ(d^-1.5) (Lemma C.10), without constants. Powers are fitted over all d."
    )

    def recipes(self, scale: Scale, seeds: int | None = None) -> dict[str, Recipe]:
        s = _SCALES[scale]
        return {
            f"d = {d}": Recipe(
                name=f"ren2023 dimension d = {d}",
                data={"kind": "spherical-quadrature", "d": d, "far": 1e16},
                network=learner((float("inf"), s.above), d, float(d) ** -7, _BIAS),
                flow={"kind": "runge-kutta", "rtol": 1e-6, "atol": 1e-13},
                times=Times(end=s.end, count=201, spacing="log", first=1e-6),
                probes=["train-loss", "second-layer", "first-layer"],
                seeds=seeds or s.seeds,
            )
            for d in s.ds
        }

    def claims(self, results: Results) -> list[Claim]:
        found = {d: quantities_of(run) for d, run in by_dimension(results).items()}
        ds = list(found)
        names = ("T_1", "T_2", "alpha", "least")
        table = {name: np.array([found[d][name] for d in ds]) for name in names}  # (dimensions, seeds)
        if not np.isfinite(table["T_1"]).all() or not np.isfinite(table["T_2"]).all():
            short = undecided("a stage does not end within the run")
            return [
                Claim(text=text, paper="Lemmas C.4 and D.22", measured="T_1 or T_2 is not reached", judged=short)
                for text in ("T_1 falls", "T_2 grows", "T_2 - T_1", "1/ε", "α at T_1", "α >=")
            ]
        powers = {name: exponents(ds, table[name]) for name in ("T_1", "T_2", "alpha")}
        steps = {name: np.diff(np.log(table[name]), axis=0) / np.diff(np.log(ds))[:, None] for name in ("T_1", "T_2")}
        share = np.max((table["T_2"] - table["T_1"]) * _EPSILON / np.array(ds)[:, None] ** 3.0, axis=0)
        by_loss = np.array([exponents([1 / e for e in _LOSSES], found[d]["losses"]) for d in ds])

        def in_words(name: str) -> str:
            times = listed(dict(zip(ds, table[name], strict=True)), min_max)
            return f"{times}; power {min_max(powers[name])}, {min_max(steps[name])} between neighbouring d"

        return [
            Claim(
                text=f"T_1 falls with d as d^-1.5 or faster: power at most -1.5 (to {_POWER:g})",
                paper="Lemmas C.4 and C.10: stage 1 takes O(d^4 σ_2 + d^-1.5); σ_2 = d^-7 here",
                measured=in_words("T_1"),
                judged=at_most(powers["T_1"], -1.5 + _POWER),
            ),
            Claim(
                text="T_2 grows no faster than d³, from each d to the next",
                paper="Lemma D.22: T_2 - T_1 <= O(d³/ε); Theorem 2.1: polynomial time",
                measured=in_words("T_2"),
                judged=at_most(steps["T_2"].max(axis=0), 3.0),
            ),
            Claim(
                text=f"T_2 - T_1 <= d³/ε with the constant 1, ε = {_EPSILON:g}",
                paper="Lemma D.22: T_2 - T_1 <= O(d³/ε)",
                measured=f"at most {min_max(share)} of that bound",
                judged=at_most(share, 1.0),
            ),
            Claim(
                text=f"the time to a loss ε grows no faster than 1/ε, for ε from {_LOSSES[0]:g} to {_LOSSES[-1]:g}",
                paper="Lemma D.22: T_2 - T_1 <= O(d³/ε)",
                measured=f"power of 1/ε: {min_max(by_loss)}",
                judged=at_most(by_loss.max(axis=0), 1.0),
            ),
            Claim(
                text=f"α at T_1 is of order d^-1.5: power -1.5 (to {_POWER:g})",
                paper="Lemmas 4.2 (c) and C.10: α = Θ(d^-1.5)",
                measured=f"power {min_max(powers['alpha'])}",
                judged=near(powers["alpha"], -1.5, _POWER),
            ),
            Claim(
                text=f"α never falls below its value at T_1 (to {_ERROR:g})",
                paper="Lemma D.19: α >= Θ(d^-1.5) throughout stage 2",
                measured=f"α/α(T_1) >= {min_max(table['least'])}",
                judged=at_least(table["least"].min(axis=0), 1 - _ERROR),
            ),
        ]

    def draw(self, results: Results) -> Figure:
        figure, axes = titled_canvas("ren2023, infinite width", 2, 9.0, 3.4)
        runs = by_dimension(results)
        for place, (d, run) in enumerate(runs.items()):
            later = run["time"].values > 0
            band(axes[0], run["time"].values[later], run["train-loss"].values[:, later], place, f"d = {d}")
        label_axes(axes[0], "t", "loss", legend=7, xscale="log", yscale="log", ylim=(1e-6, 0.3))
        found = {d: quantities_of(run) for d, run in runs.items()}
        for place, (name, title) in enumerate((("T_1", "T_1"), ("T_2", "T_2"), ("alpha", "α at T_1"))):
            curve = [float(np.median(one[name])) for one in found.values()]
            style = {"color": ORDERED[place], "linestyle": DASHES[place], "marker": "o"}
            axes[1].plot(list(found), curve, label=title, **style)
        axes[1].set(xscale="log", yscale="log")
        axes[1].minorticks_off()
        axes[1].set_xticks(list(found), [str(d) for d in found])
        label_axes(axes[1], "d", "times, and α", legend=7)
        return figure


def by_dimension(results: Results) -> dict[int, xr.Dataset]:
    """Return the runs of the panel by d, in increasing order."""
    known = ((int(option(run, "data.d")), run) for run in results.values())
    return dict(sorted(known, key=lambda one: one[0]))


def quantities_of(run: xr.Dataset) -> dict[str, np.ndarray]:
    """Return T_1, T_2, α at T_1, the least α/α(T_1) later, and the times to all values of ε, by seed."""
    times, alpha = run["time"].values, run["first-layer.alpha"].values
    ends = np.array([one.weight for one in stages_of(run)])
    slopes = np.array([np.interp(end, times, one) for end, one in zip(ends, alpha, strict=True)])
    later = np.where(times >= ends[:, None], alpha, np.inf)
    return {
        "T_1": ends,
        "T_2": times_of_loss(run, _EPSILON),
        "alpha": slopes,
        "least": np.min(later, axis=1) / slopes,
        "losses": np.stack([times_of_loss(run, one) for one in _LOSSES]),
    }
