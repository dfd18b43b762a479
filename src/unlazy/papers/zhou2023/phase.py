"""Beyond the paper: where networks are lazy and where they condense, over the initial size and the width."""

import functools
import itertools
import json
import math
from typing import NamedTuple

import numpy as np
import xarray as xr

from unlazy.figures import Axis, draw_phases
from unlazy.lab import Recipe, draw_data, parse
from unlazy.papers._base import Claim, Figure, Panel, Results, Scale, Sizes, by_scale, option
from unlazy.papers._curves import exponents, plural, titled_canvas
from unlazy.papers.outcomes import at_least, increases, ordered, together, undecided
from unlazy.papers.zhou2023 import condensation as c
from unlazy.papers.zhou2023.claims import NEAR, NEARLY_ALL, SPREAD, observe, percent
from unlazy.papers.zhou2023.condensation import STAND_IN
from unlazy.papers.zhou2023.theorems import linearise

_GAMMAS = (0.5, 0.75, 1.0, 1.25, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0)
_SCALES: dict[Scale, Sizes] = {
    "quick": Sizes(n=20, gammas=(0.5, 1.0, 1.5, 2.0, 3.0, 4.0), widths=(16, 64, 256), seeds=3),
    "paper": Sizes(n=100, gammas=_GAMMAS, widths=(16, 64, 256, 1024), seeds=3),
}
_KERNEL = 5
_MOST = 0.5  # share of pairs above which a network is drawn as condensed
_HALF = 0.5  # relative decrease of the loss at which each network is observed
# Times in units of `growth_time`: dense around it, then sparse. Below γ = 1 networks start with large outputs, which
# have to decay first.
_GRID = (*np.linspace(0.0, 1.4, 15), 1.7, 2.0, 2.5, 3.0, 4.0)
_LATE = (6.0, 10.0, 20.0, 40.0, 80.0)


def growth_time(largest: float, power: float, channels: int, epsilon: float) -> float:
    """Compute the time in which outputs along v_1 alone grow to the size of the targets.

    With x_β = <θ_W,β, v_1> and y_β = <θ_a,β, u_1>, Σ_β x_β y_β = M ε² sinh 2λ_1 t on average (eq. 44), and the outputs
    have the size of the targets when it is mean(y²) / λ_1. The time is logarithmic in small weights, and proportional
    to 1/(M ε²), as for a kernel machine, for large ones.
    """
    return math.asinh(power / largest / (channels * epsilon**2)) / (2 * largest)


def expected_exponent(gamma: float) -> float:
    """Return the exponent of M in the relative change of the weights once outputs have the size of the targets.

    In the linear flow M ε² sinh 2λ_1 t is then a constant, and M ε² = M^(1 - γ). For large weights the change is of
    order λ_1 t, that is M^(γ - 1), and for small ones of order e^(λ_1 t), that is M^((γ - 1)/2).
    """
    return gamma - 1 if gamma < 1 else (gamma - 1) / 2


@functools.lru_cache(maxsize=8)
def _strength(written: str, kernel: int) -> tuple[float, float]:
    """Return λ_1 and mean(y²) for the images of a recipe, which all points of the map share."""
    (images,) = draw_data(parse(json.loads(written)))
    return float(linearise(images, kernel).values[0]), float(np.mean(np.square(images.y)))


class Point(NamedTuple):
    """Measurements of one network when its loss has halved, one value per seed."""

    pairs: np.ndarray  # share of pairs of kernels with |cos| > 0.95
    change: np.ndarray  # |θ_W - θ_W(0)| / |θ_W(0)|
    halved: bool  # for every seed


def measure(run: xr.Dataset) -> Point:
    """Measure a run when the loss of each seed has halved, or at the end if it never does."""
    enough = c.fall(run) >= _HALF
    at = np.where(enough.any(axis=1), np.argmax(enough, axis=1), enough.shape[1] - 1)
    weights = run["input-weights.conv1"].values
    start, then = weights[:, 0], weights[np.arange(len(weights)), at]
    moved = np.linalg.norm(then - start, axis=(1, 2)) / np.linalg.norm(start, axis=(1, 2))
    return Point(observe(run, "conv1", at).pairs, moved, bool(enough.any(axis=1).all()))


def point_of(run: xr.Dataset) -> tuple[float, int]:
    """Return γ = -log ε² / log M, free of rounding, and M of a stored run."""
    epsilon, channels = option(run, "network.scale"), option(run, "network.channels.0")
    return round(-2 * math.log(epsilon) / math.log(channels), 9), channels


def _map(results: Results) -> tuple[list[float], list[int], dict[tuple[float, int], Point]]:
    found = {point_of(run): measure(run) for run in results.values()}
    return sorted({gamma for gamma, _ in found}), sorted({width for _, width in found}), found


class PhaseMap(Panel):
    """Condensation and relative change of the weights over (γ, M), at an equal relative decrease of the loss."""

    key = "zhou2023/phase-map"
    title = "Beyond the paper: lazy and condensed networks, over the size of the start and the width"
    scales = by_scale(
        _SCALES,
        lambda s: (
            f"n = {s.n}, {len(s.gammas)} γ from {s.gammas[0]:g} to {s.gammas[-1]:g}, M = "
            f"{', '.join(map(str, s.widths))}, {plural(s.seeds)}"
        ),
    )
    caption = (
        "Two-layer tanh networks with kernels of 5 x 5 on class numbers, all weights from N(0, ε²) with ε = "
        "M^(-γ/2) (eq. 8), along gradient flow until the loss has halved. Left: share of pairs of kernels with "
        f"|cos| > {NEAR:g}. Right: |θ_W - θ_W(0)| / |θ_W(0)|, which falls with M for γ < 1 (lazy) and grows for "
        "γ > 1. The dashed line is γ = 1; black lines mark a share of one half and a change of 1. In the linear flow "
        f"the change depends only on M^(γ - 1) mean(y²)/λ_1, and kernels condense where that is large. {STAND_IN}."
    )

    def recipes(self, scale: Scale, seeds: int | None = None) -> dict[str, Recipe]:
        """Return a run for each point, at times that depend on the images, which are drawn to compute them."""
        found, sizes = {}, _SCALES[scale]
        data = c.pictures_of("mnist", scale, sizes.n)
        largest, power = _strength(Recipe(data=data, network="conv-net", times=[0.0]).json(), _KERNEL)
        for gamma, m in itertools.product(sizes.gammas, sizes.widths):
            epsilon = float(m) ** (-gamma / 2)
            unit = growth_time(largest, power, m, epsilon)
            found[f"γ={gamma:g} M={m}"] = c.flow_recipe(
                f"phase γ={gamma:g} M={m}",
                data,
                (m, _KERNEL, epsilon),
                seeds or sizes.seeds,
                tolerance=1e-3,
                times=[float(unit * share) for share in ((*_GRID, *_LATE) if gamma < 1 else _GRID)],
                probes=["train-loss", {"kind": "input-weights", "layers": ["conv1", "conv1-kernels"]}],
                dtype="float32",
            )
        return found

    def claims(self, results: Results) -> list[Claim]:
        gammas, widths, found = _map(results)
        halved = all(one.halved for one in found.values())
        slopes = {gamma: exponents(widths, [found[gamma, m].change for m in widths]) for gamma in gammas}
        pairs = {gamma: [found[gamma, m].pairs for m in widths] for gamma in gammas}
        beyond = {gamma: np.sign(gamma - 1) * slope for gamma, slope in slopes.items() if gamma != 1}
        not_there = undecided("not every loss has halved")
        return [
            Claim(
                text="when all losses have halved, the relative change of the weights falls with M for every γ < 1 and "
                "grows with M for every γ > 1 (exponent p of a fit M^p for each seed)",
                paper="the relative change as the width approaches infinity is 0 in the linear regime and infinite in "
                "the condensed one (section 2); Theorem 1 asks for γ > 1",
                measured=", ".join(
                    f"γ={gamma:g}: p = {slope.mean():+.2f} (linear flow {expected_exponent(gamma):+.2f})"
                    for gamma, slope in slopes.items()
                ),
                judged=together(increases(np.zeros(slope.size), slope) for slope in beyond.values())
                if halved
                else not_there,
            ),
            Claim(
                text=f"kernels condense only far beyond γ = 1: for γ <= 1 at most {SPREAD:.0%} of pairs have |cos| > "
                f"{NEAR:g} at every M, and at the largest γ the share grows with M, to at least {NEARLY_ALL:.0%}",
                paper="condensation is a frequent occurrence in the non-linear regime",
                measured="; ".join(f"γ={gamma:g}: {', '.join(map(percent, shares))}" for gamma, shares in pairs.items())
                + f" (M = {', '.join(map(str, widths))})",
                judged=together(
                    [
                        *(at_least(1 - np.max(pairs[g], axis=0), 1 - SPREAD) for g in gammas if g <= 1),
                        ordered(pairs[gammas[-1]], paired=False),
                        at_least(pairs[gammas[-1]][-1], NEARLY_ALL),
                    ]
                )
                if halved
                else not_there,
            ),
        ]

    def draw(self, results: Results) -> Figure:
        gammas, widths, found = _map(results)
        figure, axes = titled_canvas(f"Lazy and condensed, {c.pictures_shown(results)}", 2, 9.4, 3.8)
        x, y = Axis("γ = -log ε² / log M", gammas), Axis("M", widths)
        maps = {
            "share of pairs with |cos| > 0.95": ("pairs", _MOST, ("spread", "condensed")),
            "relative change of the weights": ("change", 1.0, ("small change", "large change")),
        }
        for one, (title, (name, threshold, names)) in zip(axes, maps.items(), strict=True):
            values = np.array([[getattr(found[gamma, m], name).mean() for m in widths] for gamma in gammas])
            draw_phases(
                one,
                x,
                y,
                (values >= threshold).astype(int),
                names,
                values=values,
                threshold=threshold,
                theory=lambda gamma, _: gamma - 1,
                theory_name="γ = 1",
            )
            one.set_title(title, fontsize=9)
        return figure
