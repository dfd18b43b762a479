"""Section 6.1: simulated data. For γ > 0 the risk goes to zero; the smaller γ and α, the more features are learnt."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unlazy.figures import canvas
from unlazy.lab import Recipe
from unlazy.papers._base import Claim, Figure, Panel, Results, Scale, by_scale
from unlazy.papers._curves import mean_sd, quadratic_times
from unlazy.papers.caron2023 import _shared as shared
from unlazy.papers.caron2023._shared import FLOW, RELEASED, TEXT, Setting, end_risk, label, listed, network, setting_of


@dataclass(frozen=True)
class _Sizes:
    width: int
    n: int
    end: float
    looks: int
    seeds: int


_SCALES: dict[Scale, _Sizes] = {
    "quick": _Sizes(width=1000, n=100, end=50_000.0, looks=21, seeds=2),
    "paper": _Sizes(width=2000, n=100, end=50_000.0, looks=51, seeds=5),
}
_D = 50
_NEAR = 0.01  # of its start a risk is "near zero": an eye cannot tell it from zero on the paper's axis


class Simulated(Panel):
    """Figure 1: risk, weights, NTG and its smallest eigenvalue along training, for four settings of (γ, α)."""

    def __init__(self, released: bool) -> None:
        self.key = "caron2023/fig1-released" if released else "caron2023/fig1"
        self.demo = not released
        self.noise = 0.1 if released else 1.0
        self.settings = RELEASED if released else TEXT
        more = " (settings of the released code)" if released else ""
        self.title = f"Figure 1: simulated data, four node scalings{more}"
        self.scales = by_scale(
            _SCALES,
            lambda s: f"m = {s.width}, n = {s.n}, d = {_D}, noise {self.noise:g}, t = {s.end:,.0f}, {s.seeds} seeds",
        )
        self.caption = (
            "Training risk, movement of the weight that has moved most at the end, change of the NTG in operator norm "
            "and its smallest eigenvalue, for f(x) = Σ √λ_j a_j relu(w_j·x/√d) with Zipf weights (eq. 1, 4), along "
            "gradient flow on the mean of (f - y)²; one unit of t is one of the paper's GD steps (rate 1). Thick lines "
            "are medians over seeds, thin ones the seeds. The text has noise of standard deviation 1 and (γ, α) = "
            "(0.5, 0.5) third; the released code draws 0.1 and its figures say (0.2, 0.5). Here: noise "
            f"{self.noise:g}, {'; '.join(label(setting) for setting in self.settings)}."
        )

    def recipe(self, scale: Scale, setting: Setting, seeds: int | None) -> Recipe:
        """Give the recipe of one setting; data depend on the seed only, so settings are compared on the same."""
        sizes = _SCALES[scale]
        return Recipe(
            name=f"caron2023 simulated {label(setting)} noise {self.noise:g}",
            data={"kind": "sphere-sine", "n": sizes.n, "d": _D, "noise": self.noise},
            network=network(sizes.width, setting),
            flow=FLOW,
            times=quadratic_times(sizes.end, sizes.looks),
            probes=["train-loss", "weight-movement", "kernel"],
            seeds=seeds or sizes.seeds,
        )

    def recipes(self, scale: Scale, seeds: int | None = None) -> dict[str, Recipe]:
        """All settings."""
        return {label(one): self.recipe(scale, one, seeds) for one in self.settings}

    def claims(self, results: Results) -> list[Claim]:
        """Risk, rate and eigenvalues with γ; movement against γ and α; Theorem 4.1 along the way."""
        return [
            _near_zero(results),
            shared.faster(results),
            shared.eigenvalues(results),
            shared.weights_move(results),
            shared.kernel_moves(results),
            shared.theorem(results),
        ]

    def draw(self, results: Results) -> Figure:
        """Four axes in a row, as in the paper."""
        figure, axes = canvas(4, 13.0, 3.2)
        shared.draw_risk(axes[0], results)
        shared.draw_weights(axes[1], results)
        shared.draw_kernel(axes[2], results)
        shared.draw_smallest(axes[3], results)
        axes[0].legend(fontsize=7)
        figure.suptitle(f"caron2023, simulated data, noise {self.noise:g}", fontsize=10)
        return figure


def _near_zero(runs: Results) -> Claim:
    shares = {name: end_risk(run) / run["train-loss"].values[:, 0] for name, run in runs.items()}
    return Claim(
        text=f"for γ > 0 the training risk ends below {_NEAR:.0%} of its start (every seed)",
        paper="for γ > 0, GD achieves near-zero training error",
        measured=listed({name: mean_sd(share) for name, share in shares.items()}),
        holds=all(bool(np.all(share < _NEAR)) for name, share in shares.items() if setting_of(runs[name])[0] > 0),
    )
