"""The collapse of full-rank mean-field networks from i.i.d. starts (Nguyen and Pham), and low rank beside it.

In a network h_k^(l+1) = (1/n) Σ_j W_kj σ(h_j^(l)) whose weights W_kj start i.i.d., the sums over j make all neurons k
of a middle layer equal as n → ∞. They stay so: in a network of at least three hidden layers what is sent back to neuron
k is such a sum too, so that all neurons of the layer move alike. With low rank and frozen features (L_j, b_j) neurons
σ(L_j·f + b_j) differ whatever the channels f do.
"""

from dataclasses import replace
from typing import Any

import numpy as np
import xarray as xr

from unlazy.figures import band
from unlazy.lab import Recipe
from unlazy.papers._base import Claim, Figure, Panel, Results, Scale, Sizes, by_scale, option
from unlazy.papers._curves import even_steps, exponent, label_axes, listed, median_range, plural, titled_canvas
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


def network(width: int, full: bool) -> dict[str, Any]:
    """Return three hidden layers in the mean-field parameterisation, as a section of a recipe.

    Parameters
    ----------
    width
        Neurons of each hidden layer.
    full
        Whether layers are linked in full: by a trained matrix whose outputs are the next neurons, and not by channels
        and frozen features.
    """
    linked = {"features": ["normal", "eye", "eye"], "bias": [True, False, False]}
    return {
        "kind": "mean-field-stack",
        "widths": [width] * 3,
        "ranks": width if full else _RANK,
        "train": "a",
        "activation": "relu",  # of tanh and centred features all sums over neurons vanish, and nothing would move
        "amplitude": _LAW,
    } | (linked if full else {"features": "normal"})


def flow(width: int, full: bool) -> dict[str, Any]:
    """Return gradient descent of mean-field time.

    A weight between two layers of n neurons has a gradient of order 1/n², against which its rate is n²: n of the block
    and n for its outputs, each of which is one of n neurons.
    """
    plain = {"kind": "descent", "rate": _RATE, "coordinates": "weights"}
    if not full:
        return plain
    faster = {"kind": "piecewise", "factors": [float(width)]}
    return plain | {
        "schedule": {"kind": "by-layer", "layers": ["blocks[0]", "blocks[1]"], "schedules": [faster, faster]}
    }


class Collapse(Panel):
    """How different the neurons of a middle layer are, against the width, at full and at low rank."""

    key = "aiad2026/collapse"
    title = "Remark 2.1, measured: the collapse of full rank under i.i.d. starts"
    scales = by_scale(_SCALES, lambda s: f"n = {s.widths[0]} to {s.widths[-1]}, {s.steps:,} steps, {plural(s.seeds)}")
    caption = (
        "Three hidden layers in the mean-field parameterisation with ReLU on cos(πx), 16 samples, by gradient descent; "
        "all trained weights start i.i.d., uniform in [0, 2]. Full rank: h_k = (1/n) Σ_j W_kj σ(h_j) with rates n² "
        "between hidden layers (Nguyen and Pham). Low rank: 3 channels between layers, with frozen Gaussian features. "
        "Left: how much neurons of the second hidden layer differ, √(mean_k |σ(h_k) - mean|²) over x, over their size "
        "at the start, at the start (thin) and at the end, against the width; dotted: n^(-1/2). Middle: the same of "
        "the low-rank network's channels. Right: the loss over training at the largest width. Dots are seeds."
    )

    def recipes(self, scale: Scale, seeds: int | None = None) -> dict[str, Recipe]:
        """Return both kinds at each width."""
        s, found = _SCALES[scale], {}
        line = {"count": 101}
        for full in (True, False):
            for width in s.widths:
                name = f"{FULL if full else LOW}, n = {width}"
                found[name] = Recipe(
                    name=f"aiad2026 collapse {name}".replace(",", ""),
                    data={"kind": "cosine", "n": _SAMPLES, "frequency": 1.0},
                    network=network(width, full),
                    flow=flow(width, full),
                    times=[_RATE * step for step in even_steps(s.steps, 11)],
                    probes=[
                        "train-loss",
                        {"kind": "preactivations", "block": _MIDDLE, **line},
                        {"kind": "channels", "as": "channels", **line},
                    ]
                    if not full
                    else ["train-loss", {"kind": "preactivations", "block": _MIDDLE, **line}],
                    seeds=seeds or s.seeds,
                    dtype="float32",
                )
        return found

    def claims(self, results: Results) -> list[Claim]:
        """Full rank collapses, low rank does not, and which of them learns."""
        kinds = {name: _of_kind(results, name) for name in (FULL, LOW)}
        claims = []
        for name, wanted, words in (
            (FULL, -0.5, "become equal as the width grows"),
            (LOW, 0.0, "do not become equal as the width grows"),
        ):
            ends = {width: spread(_neurons(run))[:, -1] for width, run in kinds[name].items()}
            starts = {width: spread(_neurons(run))[:, 0] for width, run in kinds[name].items()}
            powers, first = _exponents(ends), _exponents(starts)
            strict = Claim(
                text=f"{name}: the neurons of the middle layer {words}: at the end of training their differences go as "
                f"the width to the power {wanted:g} within {_WITHIN:g}",
                paper="under i.i.d. initialization the mean-field limit of full-rank networks collapses"
                if name == FULL
                else "frozen features avoid the collapse",
                measured=f"power {median_range(powers)}, at the start {median_range(first)}; by width "
                f"{listed(ends, median_range)}",
                judged=near(powers, wanted, _WITHIN),
                hindsight=True,  # how differences are measured was changed, see `spread`
            )
            claims.append(strict)
            if name == FULL:  # differences grow during training, and are not small at small widths
                text = f"{name}: these differences are smaller at the largest width than at the smallest"
                judged = increases(ends[max(ends)], ends[min(ends)], paired=False, log=True)
                claims.append(replace(strict, text=text, judged=judged, weaker=True))
        channels = {width: spread(_hidden(run))[:, -1] for width, run in kinds[LOW].items()}
        powers = _exponents(channels)
        claims.append(
            Claim(
                text=f"{LOW}: the channels of the middle layer do not become equal either, so that they can "
                f"specialise: power 0 within {_WITHIN:g}",
                paper="standard i.i.d. initialization suffices: independent channels specialise",
                measured=f"power {median_range(powers)}; by width {listed(channels, median_range)}",
                judged=near(powers, 0.0, _WITHIN),
                hindsight=True,
            )
        )
        low, full = (runs[max(runs)]["train-loss"].values for runs in (kinds[LOW], kinds[FULL]))
        claims.append(
            Claim(
                text="at the largest width low rank ends at a lower loss than full rank",
                paper="standard i.i.d. suffices and any limit is a global minimizer, where full rank collapses",
                measured=f"{median_range(low[:, -1])} against {median_range(full[:, -1])}, from "
                f"{median_range(low[:, 0])} and {median_range(full[:, 0])}",
                judged=increases(low[:, -1], full[:, -1], paired=False, log=True),
                hindsight=True,
            )
        )
        return claims

    def draw(self, results: Results) -> Figure:
        """Differences by width of neurons and of channels, and losses."""
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
    """Compute √(mean_k |g_k - mean|²) over that size of g_k at the start, √(mean_k |g_k(0)|²), by seed and time.

    The size at each time would not do: collapsed neurons may vanish together, and slight differences then look large.

    Parameters
    ----------
    functions
        Functions g_k on a line: (seeds, times, points, units).
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


def _exponents(values: dict[int, np.ndarray]) -> np.ndarray:
    """Fit a power of the width for each seed."""
    widths = list(values)
    return np.array([exponent(widths, list(row)) for row in np.stack(list(values.values()), axis=1)])
