"""Theorem 2.3 measured: the distance D_T to the mean-field limit against width, and against the step of descent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr

from unlazy._errors import UserError
from unlazy.figures import ORDERED, canvas
from unlazy.lab import Recipe
from unlazy.papers._base import Axes, Claim, Figure, Panel, Results, Scale, by_scale, values
from unlazy.papers._curves import label_axes, plural
from unlazy.papers.aiad2026._shared import MSE
from unlazy.theory.coupling import fitted_exponent


@dataclass(frozen=True)
class _Sizes:
    widths: tuple[int, ...]
    reference: int  # N, which stands for infinite width
    samples: int
    steps: tuple[float, ...]  # of descent with all samples
    small: tuple[float, ...]  # of descent with one
    many: int  # samples there, of which a run sees a small part
    seeds: int


_SCALES: dict[Scale, _Sizes] = {
    "quick": _Sizes(
        (64, 256, 1024, 4096), 8192, 16, (1 / 4, 1 / 8, 1 / 16, 1 / 32), tuple(2.0**-k for k in range(3, 8)), 2000, 24
    ),
    "paper": _Sizes(
        (64, 128, 256, 512, 1024, 2048, 4096),
        16384,
        32,
        (1 / 4, 1 / 8, 1 / 16, 1 / 32, 1 / 64),
        tuple(2.0**-k for k in range(3, 9)),
        8000,
        64,
    ),
}
_TIMES = [0.0, 0.5, 1.0]  # whole numbers of every step
_STEP = 1 / 16  # of all widths alike
_NARROW = 64  # width of the networks that are trained with different steps
_TOLERANCE = 0.1  # of an exponent

FLOW, WIDTH, STEP, BATCH = "flow", "n = ", "step ", "step, one sample, "


def _network(width: int) -> dict[str, Any]:
    """Three layers of rank 2 in the mean-field parameterisation, whose amplitudes have a mean: the limit moves."""
    return {
        "kind": "mean-field-stack",
        "widths": [width, width],
        "ranks": 2,
        "train": "a",
        "features": {"kind": "normal", "spread": 2.0},
        "amplitude": [
            {"kind": "uniform", "reach": 1.0, "mean": [1.0, -1.0]},
            {"kind": "uniform", "reach": 1.0, "mean": 1.0},
        ],
        "activation": "tanh",
    }


def recipe(scale: Scale, width: int, step: float | None, many: bool, seeds: int | None, shown: int) -> Recipe:
    """Train one width along the flow, or by descent with some step: all samples at once, or one (of ``many``)."""
    s = _SCALES[scale]
    flow: dict[str, Any] = {"kind": "runge-kutta", "rtol": 1e-8, "atol": 1e-10, "loss": MSE}
    if step is not None:
        flow = {"kind": "descent", "rate": step, "loss": MSE} | ({"batch": 1} if many else {})
    return Recipe(
        name=f"aiad2026 width n = {width} {'flow' if step is None else f'step {step:g}'}",
        data={"kind": "cosine", "n": s.many if many else s.samples, "frequency": 1.0},
        network=_network(width),
        flow=flow,
        times=_TIMES,
        probes=["train-loss", {"kind": "trained-neurons", "neurons": shown}],
        seeds=seeds or s.seeds,
    )


def distances(run: xr.Dataset, reference: xr.Dataset, typical: bool = False) -> np.ndarray:
    """D_T of each seed: the largest difference of any trained parameter of any neuron that both have, at any look.

    A ``typical`` neuron instead of the largest is the root mean square over neurons.

    A narrow network of some seed is made of the first neurons of a wide one of the same seed; where it is not, at the
    start already, there is nothing to compare.
    """
    largest = np.zeros(run["seed"].size)
    for name in run.data_vars:
        if str(name).startswith("trained-neurons."):
            here, there = run[name].values, reference[name].values
            both = min(here.shape[2], there.shape[2])
            apart = np.abs(here[:, :, :both] - there[:, :, :both])
            if apart[:, 0].max() > 0:
                raise UserError(
                    "These networks do not share their first neurons at the start, so they are no coupling."
                )
            over = np.sqrt(np.mean(apart**2, axis=2)) if typical else apart.max(axis=2)
            largest = np.maximum(largest, over.max(axis=(1, 2)))
    return largest


class AgainstWidth(Panel):
    """D_T(W, W̃) against n, and against the step."""

    key = "aiad2026/width"
    title = "Theorem 2.3, measured: distance to the mean-field limit"
    scales = by_scale(
        _SCALES,
        lambda s: (
            f"n = {s.widths[0]} to {s.widths[-1]} against N = {s.reference}, {len(s.steps)} steps, {plural(s.seeds)}"
        ),
    )
    caption = (
        "D_T of Appendix G.2: the largest difference, up to T = 1, of any weight of any neuron that two networks "
        "share. Left: networks of width n, the first n neurons of one of width N, which stands for the limit, "
        "all by descent of step 1/16; sampling errors go as √(1/n - 1/N). Right: descent against the gradient flow "
        "of the same network, with all samples at each step and with a single one (in a small part of an epoch). "
        "Three layers of rank 2 with tanh and frozen Gaussian features in the mean-field parameterisation on "
        "cos(πx). Amplitudes have a mean, for the limit of centred ones does not move. Dots are seeds, lines the "
        "power laws through their root mean squares."
    )

    def recipes(self, scale: Scale, seeds: int | None = None) -> dict[str, Recipe]:
        """The reference, all widths, and all steps."""
        s = _SCALES[scale]
        top = max(s.widths)
        found = {f"{WIDTH}{n}": recipe(scale, n, _STEP, False, seeds, top) for n in (s.reference, *s.widths)}
        for many, start, steps in ((False, STEP, s.steps), (True, BATCH, s.small)):
            found[f"{start}{FLOW}"] = recipe(scale, _NARROW, None, many, seeds, _NARROW)
            found |= {f"{start}{h:g}": recipe(scale, _NARROW, h, many, seeds, _NARROW) for h in steps}
        return found

    def claims(self, results: Results) -> list[Claim]:
        """Powers -1/2, 1 and 1/2."""
        return [_of_width(results), _of_step(results)]

    def draw(self, results: Results) -> Figure:
        """Width, then step."""
        figure, (left, right) = canvas(2, 9.0, 3.8)
        widths, apart, power, full = by_width(results)
        scale = np.sqrt(1 / widths - 1 / full)
        _dots(left, widths, apart, 1)
        fit = np.exp(np.mean(np.log(_size(apart)) - np.log(scale)))
        left.plot(widths, fit * scale, color=ORDERED[0], linestyle="--", label="√(1/n - 1/N)")
        left.set_xticks(widths, [str(int(n)) for n in widths])
        label_axes(
            left, "width n", f"D_T against a reference of width N = {full:,} (fitted exponent {power:.2f})", legend=8
        )
        for index, (start, name, law) in enumerate(((STEP, "all samples", 1.0), (BATCH, "one sample a step", 0.5))):
            steps, apart, power = by_step(results, start)
            _dots(right, steps, apart, 2 + index)
            fit = np.exp(np.mean(np.log(_size(apart)) - law * np.log(steps)))
            right.plot(
                steps, fit * steps**law, color=ORDERED[2 + index], linestyle="--", label=f"{name}: {power:.2f} fitted"
            )
        label_axes(right, "step ε", "D_T to the flow (dashed: powers 1 and ½)", legend=8)
        return figure


def _size(apart: np.ndarray) -> np.ndarray:
    return np.sqrt(np.mean(np.square(apart), axis=1))


def _dots(axes: Axes, x: np.ndarray, apart: np.ndarray, index: int) -> None:
    axes.set(xscale="log", yscale="log")
    axes.minorticks_off()
    axes.plot(x, apart, ".", color=ORDERED[index], markersize=3, alpha=0.35)
    axes.plot(x, _size(apart), "o", color=ORDERED[index], markersize=5)


def by_width(results: Results, typical: bool = False) -> tuple[np.ndarray, np.ndarray, float, int]:
    """Widths, distances (a row for each), the fitted exponent, and N."""
    runs = {n: results[f"{WIDTH}{n}"] for n in values(results, "network.widths.0") if f"{WIDTH}{n}" in results}
    full = max(runs)
    widths = np.array(sorted(n for n in runs if n < full), float)
    apart = np.stack([distances(runs[int(n)], runs[full], typical) for n in widths])
    return widths, apart, -fitted_exponent(1 / widths - 1 / full, apart), full


def by_step(results: Results, start: str) -> tuple[np.ndarray, np.ndarray, float]:
    """Steps, distances (a row for each), and the fitted exponent."""
    steps = np.array(sorted((h for h in values(results, "flow.rate") if f"{start}{h:g}" in results), reverse=True))
    apart = np.stack([distances(results[f"{start}{h:g}"], results[f"{start}{FLOW}"]) for h in steps])
    return steps, apart, fitted_exponent(steps, apart)


def _of_width(results: Results) -> Claim:
    widths, apart, power, full = by_width(results)
    size = _size(apart)
    naive = fitted_exponent(widths, apart)
    return Claim(
        text=f"D_T falls as (1/n - 1/N)^(1/2): the fitted exponent of n from {widths[0]:g} to {widths[-1]:g} is -0.5 "
        f"within {_TOLERANCE:g}",
        paper="Theorem 2.3: D_T ≤ e^(KT(1+rK)) (1/√n_min + √ε) √log(...)",
        measured=f"exponent {power:.3f} over {plural(apart.shape[1])} (of n alone {naive:.3f}, as N = {full:,} is "
        f"finite; of the root mean square over neurons, which has no largest of n to grow, "
        f"{by_width(results, typical=True)[2]:.3f}); D_T from {size[0]:.2g} to {size[-1]:.2g}",
        holds=bool(abs(power + 0.5) <= _TOLERANCE),
    )


def _of_step(results: Results) -> Claim:
    found = {start: by_step(results, start) for start in (STEP, BATCH)}
    powers = [found[start][2] for start in (STEP, BATCH)]
    return Claim(
        text=f"D_T falls as ε with all samples at each step and as √ε with single samples, within {_TOLERANCE:g}",
        paper="Theorem 2.3: √ε",
        measured=f"exponents {powers[0]:.3f} and {powers[1]:.3f}; at the smallest steps D_T is "
        f"{_size(found[STEP][1])[-1]:.2g} and {_size(found[BATCH][1])[-1]:.2g}",
        holds=bool(abs(powers[0] - 1) <= _TOLERANCE and abs(powers[1] - 0.5) <= _TOLERANCE),
    )
