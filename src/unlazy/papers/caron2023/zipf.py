"""Figure 5: how far networks with Zipf weights are from a kernel machine at any width."""

import numpy as np
import xarray as xr
from scipy.special import zeta

from unlazy.activations import Relu
from unlazy.figures import ORDERED, canvas
from unlazy.lab import Recipe, draw_data
from unlazy.papers._base import Claim, Figure, Panel, Results, Scale, Sizes, by_scale, option, recipe_of
from unlazy.papers._curves import listed
from unlazy.papers.caron2023.comparison import network, setting_of
from unlazy.papers.caron2023.theorems import node_variance
from unlazy.papers.outcomes import certain

_SCALES: dict[Scale, Sizes] = {"quick": Sizes(width=1000, seeds=200), "paper": Sizes(width=20_000, seeds=1000)}
_ALPHAS = (0.1, 0.3, 0.5, 0.7, 0.9)
_ERRORS = 4.0  # standard errors by which a mean over seeds may be off: by chance once in 16,000


def squared_sum(alpha: np.ndarray | float) -> np.ndarray:
    """Σ_j λ̃_j² = ζ(2/α) / ζ(1/α)²."""
    return np.asarray(zeta(2 / np.asarray(alpha)) / zeta(1 / np.asarray(alpha)) ** 2)


class SquaredWeights(Panel):
    """Figure 5: Σ λ̃_j² against α, beside the variance of the NTG over random networks."""

    key = "caron2023/fig5"
    title = "Figure 5: sum of squared Zipf weights"
    scales = by_scale(_SCALES, lambda s: f"m = {s.width:,}, γ = 0, {s.seeds} seeds")
    caption = (
        "The line is Σ λ̃_j² = ζ(2/α)/ζ(1/α)² for infinitely many nodes; the paper shows only this. The dots, with "
        "error bars of four standard errors, are the variance over random networks with γ = 0 of the neural tangent "
        "Gram matrix (NTG) on five points, divided by C_0(X). By eq. 12 the two agree in the limit of infinite width."
    )

    def recipes(self, scale: Scale, seeds: int | None = None) -> dict[str, Recipe]:
        """For every α, networks with γ = 0 on the same five points, whose NTG is observed at t = 0."""
        sizes = _SCALES[scale]
        return {
            f"α = {alpha:g}": Recipe(
                name=f"caron2023 zipf α = {alpha:g}",
                data={"kind": "sphere-sine", "n": 5, "d": 3},
                network=network(sizes.width, (0.0, alpha)),
                flow={"kind": "descent", "coordinates": "weights"},
                times=[0.0],
                probes=["kernel-matrix"],
                seeds=seeds or sizes.seeds,
                same_data=True,
            )
            for alpha in _ALPHAS
        }

    def claims(self, results: Results) -> list[Claim]:
        """The sum falls with α, to 0 at α = 1, and it is the variance of the NTG."""
        alphas = np.linspace(0.02, 0.9999, 500)
        sums = squared_sum(alphas)
        seen = {name: (*variance(run), _of_width(run)) for name, run in results.items()}
        return [
            Claim(
                text="Σ λ̃_j² falls as α grows, from 1 to 0",
                paper="as α → 1 it converges to 0, which corresponds to the kernel regime",
                measured=f"{sums[0]:.3g} at α = {alphas[0]:g}, {sums[-1]:.2g} at α = {alphas[-1]:g}",
                judged=certain(
                    bool(np.all(np.diff(sums) <= 1e-12) and sums[0] > 0.99 and sums[-1] < 1e-3), "closed form, no run"
                ),
            ),
            Claim(
                text="the variance of the NTG over random networks is C_0(X) times the sum of squared weights of their "
                f"finitely many nodes, within {_ERRORS:g} standard errors",
                paper="eq. 12: E‖Θ - Θ*‖_F² = C_0(X) (1 - γ)² Σ λ̃_j²",
                measured=listed(seen, lambda one: "{:.3g} ± {:.1g} for {:.3g}".format(*one)),
                judged=certain(
                    all(abs(mean - expected) <= _ERRORS * error for mean, error, expected in seen.values()),
                    f"mean over all networks of an α against {_ERRORS:g} standard errors, for every α",
                ),
            ),
        ]

    def draw(self, results: Results) -> Figure:
        figure, (axes,) = canvas(1, 5.0, 3.6)
        alphas = np.linspace(0.02, 0.999, 400)
        axes.plot(alphas, squared_sum(alphas), color=ORDERED[1], label="Σ λ̃²")
        seen = np.array([variance(run) for run in results.values()])
        dots = [setting_of(run)[1] for run in results.values()]
        named = "variance of the NTG / C₀"
        axes.errorbar(dots, seen[:, 0], _ERRORS * seen[:, 1], fmt="o", color=ORDERED[2], capsize=3, label=named)
        axes.set(xlabel="α", ylabel="Σ λ̃_j²")
        axes.legend(fontsize=8)
        return figure


def _of_width(run: xr.Dataset) -> float:
    """Σ_j λ_{m,j}² of the network's own m nodes: for α near 1, nodes beyond them are not negligible."""
    shares = np.arange(1, option(run, "network.width") + 1, dtype=float) ** (-1 / setting_of(run)[1])
    return float(np.sum((shares / shares.sum()) ** 2))


def variance(run: xr.Dataset) -> tuple[float, float]:
    """E‖Θ - Θ*‖_F² / C_0(X) over seeds, and its standard error; Θ* is the mean over seeds."""
    theta = run["kernel-matrix"].values[:, 0]
    count = len(theta)
    (data, *_) = draw_data(recipe_of(run))
    apart = np.sum((theta - theta.mean(axis=0)) ** 2, axis=(1, 2)) * count / (count - 1)
    scale = node_variance(Relu(), data.x)
    return float(apart.mean() / scale), float(apart.std(ddof=1) / np.sqrt(count) / scale)
