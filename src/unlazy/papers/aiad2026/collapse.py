"""The collapse of full-rank mean-field networks from i.i.d. starts (Nguyen and Pham), and low rank beside it.

In a network h_k^(l+1) = (1/n) Σ_j W_kj σ(h_j^(l)) whose weights W_kj start i.i.d., the sums over j make all neurons k
of a middle layer equal as n → ∞. They stay equal: in a network of at least three hidden layers the backward signal of
neuron k is such a sum too, so that all neurons of the layer move in the same way. With low rank and frozen features
(L_j, b_j), neurons σ(L_j·f + b_j) differ whatever the channels f are.
"""

import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import xarray as xr

from unlazy.figures import band
from unlazy.lab import Recipe
from unlazy.papers._base import Claim, Figure, Panel, Results, Scale, Sizes, by_scale, option
from unlazy.papers._curves import even_steps, exponents, label_axes, listed, median_range, plural, titled_canvas
from unlazy.papers.outcomes import increases, near

_SCALES: dict[Scale, Any] = {
    "quick": Sizes(widths=[16, 64, 256], steps=300, seeds=4),
    "paper": Sizes(widths=[32, 128, 512, 1024], steps=1000, seeds=4),
}
_RANK, _SAMPLES, _RATE = 3, 16, 0.05
_MIDDLE = 2  # the block whose neurons are compared
_LAW = {"kind": "uniform", "reach": 1.0, "mean": 1.0}  # of all trained weights: i.i.d., with a mean, so that it moves
_WITHIN = 0.15  # of exponents of the width

FULL, LOW = "full rank", "low rank"
Functions = Callable[[xr.Dataset], np.ndarray]  # what to take from a run: functions on a line


def network(width: int, full: bool) -> dict[str, Any]:
    """Return three hidden layers in the mean-field parameterisation, as a section of a recipe.

    At full rank, layers are linked by a trained matrix whose outputs are the next neurons, and not by channels and
    frozen features.
    """
    linked = {"features": ["normal", "eye", "eye"], "bias": [True, False, False]}
    return {
        "kind": "mean-field-stack",
        "widths": [width] * 3,
        "ranks": width if full else _RANK,
        "train": "a",
        "activation": "relu",  # with tanh and centred features all sums over neurons vanish, and nothing would move
        "amplitude": _LAW,
    } | (linked if full else {"features": "normal"})


def flow(width: int, full: bool) -> dict[str, Any]:
    """Return gradient descent in mean-field time.

    A weight between two layers of n neurons has a gradient of order 1/n², so that its rate is n²: a factor n of the
    block, and another for its outputs, each of which is one of n neurons.
    """
    plain = {"kind": "descent", "rate": _RATE, "coordinates": "weights"}
    if not full:
        return plain
    schedules = [{"kind": "piecewise", "factors": [float(width)]}] * 2
    return plain | {"schedule": {"kind": "by-layer", "layers": ["blocks[0]", "blocks[1]"], "schedules": schedules}}


class Collapse(Panel):
    """Differences between the neurons of a middle layer against the width, at full and at low rank."""

    key = "aiad2026/collapse"
    title = "Remark 2.1, measured: the collapse of full rank under i.i.d. starts"
    scales = by_scale(_SCALES, lambda s: f"n = {s.widths[0]} to {s.widths[-1]}, {s.steps:,} steps, {plural(s.seeds)}")
    caption = (
        "Three hidden layers in the mean-field parameterisation with ReLU on cos(πx), 16 samples, by gradient descent; "
        "all trained weights start i.i.d., uniform in [0, 2]. Full rank: h_k = (1/n) Σ_j W_kj σ(h_j) with rates n² "
        "between hidden layers (Nguyen and Pham). Low rank: 3 channels between layers, with frozen Gaussian features. "
        "Left: differences between neurons of the second hidden layer, √(mean_k |σ(h_k) - mean|²) over x divided by "
        "their size at the start, against the width, before training (thin) and after; dotted: n^(-1/2). Middle: the "
        "same for the channels of the low-rank network. Right: the loss over training at the largest width. Thin "
        "coloured lines are seeds."
    )

    def recipes(self, scale: Scale, seeds: int | None = None) -> dict[str, Recipe]:
        s, found = _SCALES[scale], {}
        probes = ["train-loss", {"kind": "preactivations", "block": _MIDDLE, "count": 101}]
        channels = {"kind": "channels", "as": "channels", "count": 101}
        for full, width in itertools.product((True, False), s.widths):
            name = f"{FULL if full else LOW}, n = {width}"
            found[name] = Recipe(
                name=f"aiad2026 collapse {name}".replace(",", ""),
                data={"kind": "cosine", "n": _SAMPLES, "frequency": 1.0},
                network=network(width, full),
                flow=flow(width, full),
                times=[_RATE * step for step in even_steps(s.steps, 11)],
                probes=probes if full else [*probes, channels],
                seeds=seeds or s.seeds,
                dtype="float32",
            )
        return found

    def claims(self, results: Results) -> list[Claim]:
        kinds = {name: _of_kind(results, name) for name in (FULL, LOW)}
        text = f"{FULL}: the neurons of the middle layer become equal as the width grows"
        paper = "under i.i.d. initialization the mean-field limit of full-rank networks collapses"
        collapses = _power(text, paper, kinds[FULL], _neurons, -0.5)
        # Differences grow during training, and are not small at small widths: the weaker claim compares widths.
        text = f"{FULL}: these differences are smaller at the largest width than at the smallest"
        ends = _differences(kinds[FULL], _neurons, -1)
        smaller = increases(ends[max(ends)], ends[min(ends)], paired=False, log=True)
        weaker = replace(collapses, text=text, judged=smaller, weaker=True)
        text = f"{LOW}: the neurons of the middle layer do not become equal as the width grows"
        differ = _power(text, "frozen features avoid the collapse", kinds[LOW], _neurons, 0.0)
        text = f"{LOW}: the channels of the middle layer do not become equal either, so that they can specialise"
        paper = "standard i.i.d. initialization suffices: independent channels specialise"
        channels = _power(text, paper, kinds[LOW], _hidden, 0.0)
        low, full = (runs[max(runs)]["train-loss"].values for runs in (kinds[LOW], kinds[FULL]))
        learns = Claim(
            text="at the largest width low rank ends at a lower loss than full rank",
            paper="standard i.i.d. suffices and any limit is a global minimizer, where full rank collapses",
            measured=f"{median_range(low[:, -1])} against {median_range(full[:, -1])}, from "
            f"{median_range(low[:, 0])} and {median_range(full[:, 0])}",
            judged=increases(low[:, -1], full[:, -1], paired=False, log=True),
            hindsight=True,
        )
        return [collapses, weaker, differ, channels, learns]

    def draw(self, results: Results) -> Figure:
        figure, axes = titled_canvas("aiad2026, neurons of a middle layer from i.i.d. starts", 3, 12.5, 3.8)
        for index, name in enumerate((FULL, LOW)):
            runs = _of_kind(results, name)
            widths = np.asarray(list(runs), float)
            values = np.stack([spread(_neurons(run)) for run in runs.values()])  # (widths, seeds, times)
            band(axes[0], widths, values[:, :, -1].T, index, name)
            axes[0].plot(widths, np.median(values[:, :, 0], axis=1), color="0.6", linewidth=0.8)
            if name == FULL:
                axes[0].plot(widths, np.median(values[0, :, -1]) * (widths / widths[0]) ** -0.5, ":", color="0.4")
            else:
                channels = np.stack([spread(_hidden(run)) for run in runs.values()])
                band(axes[1], widths, channels[:, :, -1].T, index, name)
            last = runs[max(runs)]
            band(axes[2], last["time"].values, last["train-loss"].values, index, f"{name}, n = {max(runs)}")
        label_axes(axes[0], "width", "differences of neurons", legend=8, xscale="log", yscale="log")
        label_axes(axes[1], "width", "differences of channels, low rank", xscale="log", yscale="log")
        label_axes(axes[2], "t", "loss", legend=8, yscale="log")
        return figure


def spread(functions: np.ndarray) -> np.ndarray:
    """Compute √(mean_k |g_k - mean|²) / √(mean_k |g_k(0)|²) for functions on a line, (seeds, times, points, units).

    Dividing by the size at each time would be misleading: where collapsed neurons vanish together, slight differences
    would appear large.
    """
    apart = functions - functions.mean(axis=-1, keepdims=True)
    size = np.mean(functions[:, :1] ** 2, axis=(-2, -1))
    return np.sqrt(np.mean(apart**2, axis=(-2, -1)) / size)


def _neurons(run: xr.Dataset) -> np.ndarray:
    return np.maximum(run["preactivations"].values.astype(float), 0)


def _hidden(run: xr.Dataset) -> np.ndarray:
    return run[f"channels.block-{_MIDDLE}"].values.astype(float)


def _of_kind(results: Results, name: str) -> dict[int, xr.Dataset]:
    """Return the runs of one kind by width."""
    return {option(run, "network.widths.0"): run for label, run in results.items() if label.startswith(name)}


def _differences(runs: dict[int, xr.Dataset], of: Functions, when: int) -> dict[int, np.ndarray]:
    """Return the differences between functions at one time, by width and seed."""
    return {width: spread(of(run))[:, when] for width, run in runs.items()}


def _power(text: str, paper: str, runs: dict[int, xr.Dataset], of: Functions, wanted: float) -> Claim:
    """Claim that differences at the end are a power of the width."""
    ends, starts = (_differences(runs, of, when) for when in (-1, 0))
    powers, first = (exponents(list(one), list(one.values())) for one in (ends, starts))
    return Claim(
        text=f"{text}: at the end of training their differences scale as the width to the power {wanted:g} within "
        f"{_WITHIN:g}",
        paper=paper,
        measured=f"power {median_range(powers)}, at the start {median_range(first)}; by width "
        f"{listed(ends, median_range)}",
        judged=near(powers, wanted, _WITHIN),
        hindsight=True,  # the measure of differences was changed, see `spread`
    )
