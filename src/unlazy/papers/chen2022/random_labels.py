"""Experiment 1: a shallow network fits random labels, at a linear rate that falls as samples are added."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from unlazy.figures import band, canvas
from unlazy.lab import Recipe
from unlazy.papers._base import Claim, Figure, Panel, Results, Scale, by_scale, grid
from unlazy.papers.chen2022._shared import AGREE, FLOOR, STRAIGHT, decay, distance, sizes_of


@dataclass(frozen=True)
class _Sizes:
    widths: tuple[int, int]  # of figure 5 and of figure 1
    end: float
    seeds: int


_SCALES: dict[Scale, _Sizes] = {
    "quick": _Sizes(widths=(512, 1024), end=20_000.0, seeds=3),
    "paper": _Sizes(widths=(4096, 8192), end=50_000.0, seeds=5),
}
_SAMPLES = (20, 40, 80, 160)


def _times(end: float) -> list[float]:
    """Look often while the fast curves fall, less often later."""
    return [*map(float, range(0, 5000, 100)), *map(float, range(5000, int(end) + 1, 500))]


class RandomLabels(Panel):
    """Figures 1 and 5: training loss of a shallow mean-field network on random labels, for several n.

    Both figures run both widths, so that each can say whether they agree; what one has run, the other finds stored.
    """

    caption = (
        "Mean training loss of f(x) = (1/m) Σ c_i tanh(w_i·x/√d), d = 20, on random labels, along gradient "
        "flow; one unit of t is one of the paper's GD steps (step size 1, loss averaged over samples). Thick "
        "lines are medians over seeds, thin ones the seeds; the paper draws means, which the slowest seed "
        "carries. The paper names n = 20 and 40 only; 80 and 160 are our choice of 'larger'."
    )

    def __init__(self, number: int, wider: bool) -> None:
        self.key = f"chen2022/fig{number}"
        self.wider = self.demo = wider
        self.title = f"Figure {number}: training loss on random labels{'' if wider else ', at half the width'}"
        self.scales = by_scale(
            _SCALES,
            lambda s: (
                f"m = {s.widths[wider]} (beside {s.widths[not wider]}), n = 20 to 160, t = {s.end:,.0f}, "
                f"{s.seeds} seeds"
            ),
        )

    def recipe(self, scale: Scale, width: int, n: int, seeds: int | None) -> Recipe:
        """Give the recipe of one curve; data depend on seed and n only, so widths are compared on equal data."""
        sizes = _SCALES[scale]
        return Recipe(
            name=f"chen2022 random labels m={width} n={n}",
            data={"kind": "random-labels", "n": n, "d": 20},
            network={"kind": "two-layer", "width": width, "activation": "tanh", "scaling": "mean-field"},
            flow={"kind": "gradient-flow", "tolerance": 1e-4},
            times=_times(sizes.end),
            probes=["train-loss"],
            seeds=seeds or sizes.seeds,
        )

    def recipes(self, scale: Scale, seeds: int | None = None) -> dict[str, Recipe]:
        """Every n at both widths, the one that is shown first."""
        widths = sorted(_SCALES[scale].widths, reverse=self.wider)
        return {f"m={m} n={n}": self.recipe(scale, m, n, seeds) for m in widths for n in _SAMPLES}

    def claims(self, results: Results) -> list[Claim]:
        """Linear decay for small n, slower for larger n, and the same at both widths."""
        (shown, other), _ = sizes_of(results)
        runs = grid(results, "network.width", "data.n")
        fits = {n: decay(runs[shown, n]) for n in _SAMPLES}
        rates = {n: float(np.median(rate)) for n, (rate, _) in fits.items()}
        straight = {n: float(np.median(share)) for n, (_, share) in fits.items()}
        apart = {n: distance(runs[shown, n], runs[other, n]) for n in _SAMPLES}
        return [
            Claim(
                text=f"n = 20 and 40: log-loss falls linearly in t (median R² over seeds >= {STRAIGHT}, down to "
                f"{FLOOR:g} of the start)",
                paper="the convergence happens at a nearly linear rate when n = 20 and 40",
                measured=", ".join(f"n = {n}: R² = {straight[n]:.3f}" for n in _SAMPLES),
                holds=all(rates[n] > 0 and straight[n] >= STRAIGHT for n in (20, 40)),
            ),
            Claim(
                text="the fitted rate (median over seeds) falls as n grows",
                paper="the rate decreases as n becomes larger",
                measured=", ".join(f"n = {n}: {rates[n]:.2e}" for n in _SAMPLES),
                holds=all(rates[a] > rates[b] for a, b in pairwise(_SAMPLES)),
            ),
            Claim(
                text=f"m = {shown} and m = {other} agree: log-losses differ by less than {AGREE:.0%} of their fall "
                "(median over seeds and times)",
                paper="Figure 5 is the same as Figure 1 except for having m = 4096: the two plots agree well",
                measured=", ".join(f"n = {n}: {apart[n]:.2%}" for n in _SAMPLES),
                holds=all(share < AGREE for share in apart.values()),
            ),
        ]

    def draw(self, results: Results) -> Figure:
        """Loss against t on a logarithmic axis, a line for each n."""
        figure, (axes,) = canvas()
        (shown, _), _ = sizes_of(results)
        runs = grid(results, "network.width", "data.n")
        for index, n in enumerate(_SAMPLES):
            run = runs[shown, n]
            band(axes, run["time"].values, run["train-loss"].values, index, f"n = {n}")
        axes.set(
            yscale="log",
            ylim=(1e-14, None),
            xlabel="t (GD steps of size 1)",
            ylabel="training loss, mean of ½ (f - y)²",
        )
        axes.set_title(f"chen2022, experiment 1: random labels, d = 20, m = {shown}", fontsize=10)
        axes.legend()
        return figure
