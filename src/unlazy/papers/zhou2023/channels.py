"""Beyond the paper: the two ratios of Theorem 1 in training, as the number of channels M grows."""

from typing import NamedTuple

import msgspec
import numpy as np
import xarray as xr

from unlazy.figures import ORDERED
from unlazy.lab import Recipe
from unlazy.papers._base import Claim, Figure, Panel, Results, Scale, Sizes, by_scale, option, recipe_of
from unlazy.papers._curves import listed, min_max, plural, titled_canvas
from unlazy.papers.outcomes import at_least, at_most, ordered, together
from unlazy.papers.zhou2023.condensation import STAND_IN, flow_recipe, pictures_of, pictures_shown, predictions
from unlazy.papers.zhou2023.theorems import least_effective_time, limits

_GAMMA = 4.5  # -log ε² / log M: large, so that T_eff > 0 at widths that can be run; any γ > 1 has the same limits
_CHANCE = 5.0  # standard deviations, of the order of M^-1/2, by which a draw of M channels may be off
_SCALES: dict[Scale, Sizes] = {
    "quick": Sizes(n=20, channels=(64, 256, 1024), seeds=3),
    "paper": Sizes(n=100, channels=(64, 256, 1024, 4096), seeds=3),
}


class Ratios(NamedTuple):
    """Left sides of eq. 14 and 15 at T_eff, and their limits as M → ∞ at the same time; one value per seed."""

    end: np.ndarray  # λ_1 T_eff
    change: np.ndarray
    aligned: np.ndarray
    change_limit: np.ndarray
    aligned_limit: np.ndarray
    channels: int

    @property
    def least(self) -> float:
        """The lower bound of λ_1 T_eff in eq. 13, with the strictest η_0 = (γ - 1)/100."""
        return least_effective_time(1.0, float(self.channels) ** (-_GAMMA / 2), self.channels, (_GAMMA - 1) / 100)

    @property
    def off(self) -> np.ndarray:
        """The larger of both relative errors of the squared ratios, divided by the error that chance allows."""
        both = [(self.change, self.change_limit), (self.aligned, self.aligned_limit)]
        distances = [np.abs(seen**2 - limit**2) / np.maximum(limit**2, 1e-12) for seen, limit in both]
        return np.max(distances, axis=0) / (_CHANCE * np.sqrt(2 / self.channels))


def measure(run: xr.Dataset) -> Ratios:
    """Compute both ratios at the last time."""
    t, rows = float(run["time"].values[-1]), []
    for found, weights in zip(predictions(recipe_of(run)), run["input-weights.conv1"].values, strict=True):
        now, v = weights[-1], found.linear.right[0]
        change = np.linalg.norm(now - weights[0]) / np.linalg.norm(weights[0])
        aligned = np.linalg.norm(now @ v) / np.linalg.norm(now)
        rows.append((found.linear.values[0] * t, change, aligned, *limits(found.linear, t)))
    return Ratios(*np.array(rows, float).T, channels=option(run, "network.channels.0"))


class AgainstWidth(Panel):
    """Relative change of the weights, and their alignment with v_1, at T_eff against M."""

    key = "zhou2023/theorem-1"
    title = "Beyond the paper: the limits of Theorem 1 against the number of channels"
    scales = by_scale(
        _SCALES, lambda s: f"n = {s.n}, M = {', '.join(map(str, s.channels))}, γ = {_GAMMA:g}, {plural(s.seeds)}"
    )
    caption = (
        "Two-layer tanh networks with kernels of 3 x 3 on class numbers, all weights from N(0, ε²) with ε = M^(-γ/2), "
        f"γ = {_GAMMA:g}, along the gradient flow of eq. 1 to T_eff of eq. 54. Left sides of eq. 14 and 15 in training "
        "(dots), and their limits for infinitely many channels at the same time (lines). Pixels lie in [-1, 1], so "
        "that none is zero on MNIST, as Assumption 2 requires; read strictly, it also excludes the targets of class 0, "
        f"which are zero. {STAND_IN}."
    )

    def recipes(self, scale: Scale, seeds: int | None = None) -> dict[str, Recipe]:
        """Return a run for each M, up to T_eff (eq. 54), which is computed from the networks that are drawn."""
        found, s = {}, _SCALES[scale]
        for m in s.channels:
            epsilon = float(m) ** (-_GAMMA / 2)
            one = flow_recipe(
                f"theorem 1 M={m}",
                pictures_of("mnist", scale, s.n, pixels="signed"),
                (m, 3, epsilon),
                seeds or s.seeds,
                tolerance=1e-5,
                probes=[{"kind": "input-weights", "layers": ["conv1"]}],
            )
            end = min(known.effective_time(epsilon) for known in predictions(one))
            times = [0.0, *(end * share for share in (0.5, 1.0) if end > 0)]
            found[f"M={m}"] = msgspec.structs.replace(one, times=times)
        return found

    def claims(self, results: Results) -> list[Claim]:
        found = {label: measure(run) for label, run in results.items()}
        return [
            Claim(
                text="λ_1 T_eff, and the relative change of the weights and their alignment with v_1 at T_eff, grow "
                "from each M to the next",
                paper="Theorem 1: as M grows the first ratio tends to infinity and the second to 1",
                measured=listed(found, lambda one: f"λ_1 T_eff {one.end.mean():.2f}, {_in_words(one)}"),
                judged=together(
                    ordered([getattr(one, what) for one in found.values()], paired=False)
                    for what in ("end", "change", "aligned")
                ),
            ),
            Claim(
                text="both ratios agree with those of infinitely many channels at the same time, up to five standard "
                "deviations of a draw of M channels (relative errors of the squares at most 5 √(2/M)), for each seed",
                paper="eq. 14 and 15",
                measured="; ".join(
                    f"{label}: {_in_words(one)}, limits {one.change_limit.mean():.3g} and "
                    f"{one.aligned_limit.mean():.4f}; errors up to {one.off.max():.2g} of what is allowed"
                    for label, one in found.items()
                ),
                judged=together(at_most(one.off, 1.0) for one in found.values()),
            ),
            Claim(
                text="T_eff of the linear flow (eq. 54) exceeds the asymptotic bound of eq. 13 at every M, with the "
                "strictest η_0 = (γ - 1)/100: λ_1 T_eff > log ¼ + (γ - 1)(¼ - 1/100) log M",
                paper="eq. 13, for M large enough",
                measured=listed(found, lambda one: f"{min_max(one.end)}, bound {one.least:.2f}"),
                judged=together(at_least(one.end, one.least) for one in found.values()),
            ),
        ]

    def draw(self, results: Results) -> Figure:
        found = [measure(run) for run in results.values()]
        widths = [one.channels for one in found]
        figure, axes = titled_canvas(f"Theorem 1 of zhou2023 at T_eff, {pictures_shown(results)}", 2, 8.6, 3.6)
        titles = {"change": "|θ_W(T) - θ_W(0)| / |θ_W(0)|", "aligned": "|θ_W,v₁(T)| / |θ_W(T)|"}
        for one, (what, title) in zip(axes, titles.items(), strict=True):
            for colour, line, name, label in ((1, "-", f"{what}_limit", "M → ∞"), (2, "o", what, "in training")):
                means = [getattr(each, name).mean() for each in found]
                one.plot(widths, means, line, color=ORDERED[colour], label=label)
            one.set(xscale="log", xlabel="M")
            one.set_title(title, fontsize=9)
        axes[0].set_yscale("log")
        axes[0].legend(fontsize=8)
        return figure


def _in_words(found: Ratios) -> str:
    return f"change {found.change.mean():.3g}, alignment {found.aligned.mean():.4f}"
