"""Beyond the paper: the two limits of Theorem 1, in training, as the number of channels M grows."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
import numpy as np
import xarray as xr

from unlazy.figures import ORDERED, canvas
from unlazy.lab import Recipe
from unlazy.papers._base import Claim, Figure, Panel, Results, Scale, by_scale, option, recipe_of
from unlazy.papers.zhou2023._shared import STAND_IN, pictures_of, pictures_shown, predictions
from unlazy.papers.zhou2023.theorems import limits

_GAMMA = 4.5  # -log ε² / log M: large, so that T_eff > 0 at widths that can be run; below 5 (see docs/errata.md)
_CHANCE = 5.0  # standard deviations, of the order of M^-1/2, that the draw of M channels may be off


@dataclass(frozen=True)
class _Sizes:
    n: int
    channels: tuple[int, ...]


_SCALES: dict[Scale, _Sizes] = {"quick": _Sizes(20, (64, 256, 1024)), "paper": _Sizes(100, (64, 256, 1024, 4096))}


def recipe(scale: Scale, channels: int, seeds: int | None) -> Recipe:
    """Train to T_eff (eq. 54), which is known before; pixels lie in [-1, 1], where MNIST has no zero (Assumption 2)."""
    epsilon = float(channels) ** (-_GAMMA / 2)
    one = Recipe(
        name=f"zhou2023 theorem 1 M={channels}",
        data=pictures_of("mnist", scale, _SCALES[scale].n, pixels="signed"),
        network={"kind": "conv-net", "channels": [channels], "kernel": 3, "scale": epsilon, "rescaled": True},
        flow={"kind": "gradient-flow", "tolerance": 1e-5},
        times=[0.0],
        probes=[{"kind": "input-weights", "layers": ["conv1"]}],
        seeds=seeds or 1,
        same_data=True,
    )
    end = min(found.effective_time(epsilon) for found in predictions(one))
    return msgspec.structs.replace(one, times=[0.0, *(end * share for share in (0.5, 1.0) if end > 0)])


@dataclass(frozen=True)
class Ratios:
    """Left sides of eq. 14 and 15 at T_eff, and what they are as M grows at that time; means over seeds."""

    end: float  # λ_1 T_eff
    change: float
    aligned: float
    change_limit: float
    aligned_limit: float
    channels: int

    @property
    def near(self) -> bool:
        """Whether both are as far from their limits as chance allows."""
        chance = _CHANCE * np.sqrt(2 / self.channels)
        squares = [(self.change, self.change_limit), (self.aligned, self.aligned_limit)]
        return all(abs(seen**2 - limit**2) <= chance * max(limit**2, 1e-12) for seen, limit in squares)


def measure(run: xr.Dataset) -> Ratios:
    """Take both ratios at the last look."""
    t, rows = float(run["time"].values[-1]), []
    known = predictions(recipe_of(run))
    for found, weights in zip(known, run["input-weights.conv1"].values, strict=True):
        now, v = weights[-1], found.linear.right[0]
        change = np.linalg.norm(now - weights[0]) / np.linalg.norm(weights[0])
        aligned = np.linalg.norm(now @ v) / np.linalg.norm(now)
        rows.append((found.linear.values[0] * t, change, aligned, *limits(found.linear, t)))
    end, change, aligned, change_limit, aligned_limit = map(float, np.mean(rows, axis=0))
    return Ratios(end, change, aligned, change_limit, aligned_limit, option(run, "network.channels.0"))


class AgainstWidth(Panel):
    """Relative change of the weights, and their alignment with v_1, at T_eff against M."""

    key = "zhou2023/theorem-1"
    title = "Beyond the paper: the limits of Theorem 1 against the number of channels"
    scales = by_scale(_SCALES, lambda s: f"n = {s.n}, M = {', '.join(map(str, s.channels))}, γ = {_GAMMA:g}")
    caption = (
        "Two-layer tanh networks with kernels of 3 x 3 on class numbers, all weights from N(0, ε²) with ε = "
        f"M^(-γ/2), γ = {_GAMMA:g}, along the gradient flow of eq. 1 to T_eff of eq. 54. Left sides of eq. 14 and "
        "15 in training (dots), and what they are then for infinitely many channels (lines). Pixels lie in "
        f"[-1, 1], so that none is zero on MNIST and Assumption 2 holds; in [0, 1] it does not. {STAND_IN}."
    )

    def recipes(self, scale: Scale, seeds: int | None = None) -> dict[str, Recipe]:
        """Every M, each to the T_eff of its own networks, which are drawn for that."""
        return {f"M={m}": recipe(scale, m, seeds) for m in _SCALES[scale].channels}

    def claims(self, results: Results) -> list[Claim]:
        """Both ratios grow with M, as they should."""
        found = {label: measure(run) for label, run in results.items()}
        rising = [np.diff([getattr(one, what) for one in found.values()]) for what in ("end", "change", "aligned")]
        return [
            Claim(
                text="λ_1 T_eff, the relative change of the weights and their alignment with v_1 there grow from "
                "each M to the next",
                paper="Theorem 1: as M grows the first ratio tends to infinity and the second to 1",
                measured="; ".join(
                    f"{label}: λ_1 T_eff {one.end:.2f}, change {one.change:.3g}, alignment {one.aligned:.4f}"
                    for label, one in found.items()
                ),
                holds=all(bool(np.all(one > 0)) for one in rising),
            ),
            Claim(
                text="both ratios are those of infinitely many channels at the same time, up to five standard "
                "deviations of a draw of M channels (squares off by at most 5 √(2/M) of themselves)",
                paper="eq. 14 and 15",
                measured="; ".join(
                    f"{label}: change {one.change:.3g} of {one.change_limit:.3g}, alignment {one.aligned:.4f} of "
                    f"{one.aligned_limit:.4f}"
                    for label, one in found.items()
                ),
                holds=all(one.near for one in found.values()),
            ),
        ]

    def draw(self, results: Results) -> Figure:
        """Both ratios against M."""
        found = [measure(run) for run in results.values()]
        widths = [one.channels for one in found]
        figure, axes = canvas(2, 8.6, 3.6)
        for one, what, title in (
            (axes[0], "change", "|θ_W(T) - θ_W(0)| / |θ_W(0)|"),
            (axes[1], "aligned", "|θ_W,v₁(T)| / |θ_W(T)|"),
        ):
            one.plot(widths, [getattr(each, f"{what}_limit") for each in found], "-", color=ORDERED[1], label="M → ∞")
            one.plot(widths, [getattr(each, what) for each in found], "o", color=ORDERED[2], label="in training")
            one.set(xscale="log", xlabel="M")
            one.set_title(title, fontsize=9)
        axes[0].set_yscale("log")
        axes[0].legend(fontsize=8)
        figure.suptitle(f"Theorem 1 of zhou2023 at T_eff, {pictures_shown(results)}", fontsize=10)
        return figure
