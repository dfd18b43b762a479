"""Beyond the paper: where networks are lazy and where they condense, over the size of the start and the width."""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import xarray as xr

from unlazy.figures import canvas
from unlazy.lab import Recipe, draw_data, parse
from unlazy.papers._base import Axes, Claim, Figure, Panel, Results, Scale, by_scale, option
from unlazy.papers._curves import exponent
from unlazy.papers.zhou2023._shared import NEAR, NEARLY_ALL, SPREAD, STAND_IN, fall, look, pictures_of, pictures_shown
from unlazy.papers.zhou2023.theorems import linearise


@dataclass(frozen=True)
class _Sizes:
    n: int
    gammas: tuple[float, ...]
    widths: tuple[int, ...]


_SCALES: dict[Scale, _Sizes] = {
    "quick": _Sizes(20, (0.5, 1.0, 1.5, 2.0, 3.0, 4.0), (16, 64, 256)),
    "paper": _Sizes(100, (0.5, 0.75, 1.0, 1.25, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0), (16, 64, 256, 1024)),
}
_KERNEL = 5
_HALF = 0.5  # the share of its loss that each network has learnt away when it is observed
# Times in units of the time that one direction alone would need: fine around it, then on. Below γ = 1 networks start
# from large outputs, which they have to unlearn first.
_GRID = (*np.linspace(0.0, 1.4, 15), 1.7, 2.0, 2.5, 3.0, 4.0)
_LATE = (6.0, 10.0, 20.0, 40.0, 80.0)


def needed(largest: float, power: float, channels: int, epsilon: float) -> float:
    """Time in which one direction alone grows to the size of the targets.

    With x_β = <θ_W,β, v_1> and y_β = <θ_a,β, u_1>, Σ_β x_β y_β = M ε² sinh 2λ_1 t on average (eq. 44), and the outputs
    have the size of the targets where it is mean(y²) / λ_1. It is log-like from small weights, and like 1/(M ε²), the
    time of a kernel machine, from large ones.
    """
    return math.asinh(power / largest / (channels * epsilon**2)) / (2 * largest)


def expected(gamma: float) -> float:
    """Exponent of M in the relative change of the weights once outputs have the size of the targets.

    In the linear flow M ε² sinh 2λ_1 t is then a constant, and M ε² = M^(1 - γ). From large weights the change is like
    λ_1 t, that is M^(γ - 1), and from small ones like e^(λ_1 t), that is M^((γ - 1)/2).
    """
    return gamma - 1 if gamma < 1 else (gamma - 1) / 2


def recipe(scale: Scale, gamma: float, channels: int, seeds: int | None) -> Recipe:
    """Give the recipe of one point of the map: all weights from N(0, ε²) with ε = M^(-γ/2)."""
    epsilon = float(channels) ** (-gamma / 2)
    data = pictures_of("mnist", scale, _SCALES[scale].n)
    options: dict[str, Any] = {"data": data, "seeds": seeds or 1, "same_data": True}
    network = {"kind": "conv-net", "channels": [channels], "kernel": _KERNEL, "scale": epsilon, "rescaled": True}
    largest, power = _strength(Recipe(data=data, network="conv-net", times=[0.0]).json(), _KERNEL)
    unit = needed(largest, power, channels, epsilon)
    return Recipe(
        name=f"zhou2023 phase γ={gamma:g} M={channels}",
        network=network,
        flow={"kind": "gradient-flow", "tolerance": 1e-3},
        times=[float(unit * share) for share in ((*_GRID, *_LATE) if gamma < 1 else _GRID)],
        probes=["train-loss", {"kind": "input-weights", "layers": ["conv1", "conv1-kernels"]}],
        dtype="float32",
        **options,
    )


@functools.lru_cache(maxsize=8)
def _strength(written: str, kernel: int) -> tuple[float, float]:
    """Give λ_1 and mean(y²) for the images of a recipe, which all points of the map share."""
    (images,) = draw_data(parse(json.loads(written)))
    return float(linearise(images, kernel).values[0]), float(np.mean(np.square(images.y)))


@dataclass(frozen=True)
class Point:
    """What is seen of one network when its loss has halved."""

    pairs: float  # share of pairs of kernels with |cos| > 0.95
    change: float  # |θ_W - θ_W(0)| / |θ_W(0)|
    halved: bool


def measure(run: xr.Dataset) -> Point:
    """Measure where the loss (median over seeds) has halved, at the end if it never does."""
    falls = np.median(fall(run), axis=0)
    enough = np.flatnonzero(falls >= _HALF)
    at = int(enough[0]) if enough.size else len(falls) - 1
    weights = run["input-weights.conv1"].values
    moved = np.linalg.norm(weights[:, at] - weights[:, 0], axis=(1, 2)) / np.linalg.norm(weights[:, 0], axis=(1, 2))
    return Point(look(run, "conv1", at).pairs, float(moved.mean()), bool(enough.size))


def point_of(run: xr.Dataset) -> tuple[float, int]:
    """Give γ = -log ε² / log M, free of rounding, and M of a stored run."""
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
            f"{', '.join(map(str, s.widths))}"
        ),
    )
    caption = (
        "Two-layer tanh networks with kernels of 5 x 5 on class numbers, all weights from N(0, ε²) with ε = "
        "M^(-γ/2) (eq. 8), along gradient flow until the loss has halved. Left: share of pairs of kernels with "
        f"|cos| > {NEAR:g}. Right: |θ_W - θ_W(0)| / |θ_W(0)|, which falls with M for γ < 1 (lazy) and grows for "
        "γ > 1; the line is γ = 1. In the linear flow it depends on M^(γ - 1) mean(y²)/λ_1 alone, and kernels "
        f"condense where that is large. {STAND_IN}."
    )

    def recipes(self, scale: Scale, seeds: int | None = None) -> dict[str, Recipe]:
        """Every point, at times that depend on the images, which are drawn for that."""
        sizes = _SCALES[scale]
        return {f"γ={gamma:g} M={m}": recipe(scale, gamma, m, seeds) for gamma in sizes.gammas for m in sizes.widths}

    def claims(self, results: Results) -> list[Claim]:
        """The boundary lies at γ = 1; kernels condense beyond it only."""
        gammas, widths, found = _map(results)
        halved = all(one.halved for one in found.values())
        slopes = {gamma: exponent(widths, [found[gamma, m].change for m in widths]) for gamma in gammas}
        pairs = {gamma: [found[gamma, m].pairs for m in widths] for gamma in gammas}
        lazy, rich = [g for g in gammas if g < 1], [g for g in gammas if g > 1]
        return [
            Claim(
                text="the relative change of the weights falls with M for every γ < 1 and grows with M for every γ > 1 "
                "(exponent p of a fit M^p), when all losses have halved",
                paper="the relative change as the width approaches infinity is 0 in the linear regime and infinite in "
                "the condensed one (section 2); Theorem 1 asks for γ > 1",
                measured=", ".join(
                    f"γ={gamma:g}: p = {slope:+.2f} (linear flow {expected(gamma):+.2f})"
                    for gamma, slope in slopes.items()
                ),
                holds=halved and all(slopes[g] < 0 for g in lazy) and all(slopes[g] > 0 for g in rich),
            ),
            Claim(
                text=f"kernels condense far beyond that line only: less than {SPREAD:.0%} of pairs have |cos| > "
                f"{NEAR:g} for γ up to 1 at every M, and at the largest γ more with every M, at least "
                f"{NEARLY_ALL:.0%} at the largest",
                paper="condensation is a frequent occurrence in the non-linear regime",
                measured="; ".join(
                    f"γ={gamma:g}: {', '.join(f'{share:.1%}' for share in shares)}" for gamma, shares in pairs.items()
                )
                + f" (M = {', '.join(map(str, widths))})",
                holds=halved
                and all(max(pairs[g]) < SPREAD for g in gammas if g <= 1)
                and all(a < b for a, b in pairwise(pairs[gammas[-1]]))
                and pairs[gammas[-1]][-1] >= NEARLY_ALL,
            ),
        ]

    def draw(self, results: Results) -> Figure:
        """Two maps, γ across and M up."""
        gammas, widths, found = _map(results)
        figure, axes = canvas(2, 9.4, 3.8)
        pairs = np.array([[found[gamma, m].pairs for gamma in gammas] for m in widths])
        change = np.array([[found[gamma, m].change for gamma in gammas] for m in widths])
        _cells(figure, axes[0], gammas, widths, pairs, "share of pairs with |cos| > 0.95", (0.0, 1.0))
        ends = (math.floor(np.log10(change.min())), math.ceil(np.log10(change.max())))
        _cells(figure, axes[1], gammas, widths, np.log10(change), "log₁₀ of the relative change of the weights", ends)
        figure.suptitle(f"Lazy and condensed, {pictures_shown(results)}", fontsize=10)
        return figure


def _cells(
    figure: Figure,
    axes: Axes,
    gammas: Sequence[float],
    widths: Sequence[int],
    values: np.ndarray,
    title: str,
    ends: tuple[float, float],
) -> None:
    """Draw a cell for each point, and the line γ = 1 between those on its sides."""
    picture = axes.imshow(values, origin="lower", aspect="auto", cmap="viridis", vmin=ends[0], vmax=ends[1])
    axes.set_xticks(range(len(gammas)), [f"{gamma:g}" for gamma in gammas])
    axes.set_yticks(range(len(widths)), [str(m) for m in widths])
    axes.axvline(float(np.interp(1.0, gammas, np.arange(len(gammas)))), color="white", linestyle="--", linewidth=1)
    axes.grid(visible=False)
    axes.set(xlabel="γ = -log ε² / log M", ylabel="M")
    axes.set_title(title, fontsize=9)
    figure.colorbar(picture, ax=axes)
