"""Runs over widths and numbers of samples, and measures of their loss curves: linearity, rate, distance, last value."""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import xarray as xr

from unlazy.figures import bars, canvas
from unlazy.lab import Recipe
from unlazy.papers._base import Figure, Results, Sizes, grid, values
from unlazy.papers._curves import quadratic_times

Models = Mapping[str, Mapping[str, Any]]  # options of the networks that an experiment compares, by name

FLOOR = 1e-6  # a decay is judged until the loss has fallen by this factor: above rounding and solver error
STRAIGHT = 0.95  # share of the variance of log-loss that a straight line must explain to be called near-linear
_STILL = 1e-20  # a smaller variance of log-loss is rounding: the loss is constant
AGREE = 0.05  # two curves agree if they differ by less than this share of their height, about what is visible
STEPS = "t (GD steps of size 1)"


def recipes(
    experiment: str,
    models: Models,
    widths: Sequence[int],
    samples: Sequence[int],
    sizes: Sizes,
    seeds: int | None,
    data: Mapping[str, Any],
    **options: Any,
) -> dict[str, Recipe]:
    """Return the recipe of each model at each width and n.

    Data depend on seed and n only, so that all models and widths are compared on equal data. An option of a model that
    depends on the width is given as a function of it.
    """
    return {
        f"{model} m={m} n={n}": Recipe(
            name=f"chen2022 {experiment} {model} m={m} n={n}",
            data={**data, "n": n, "n_test": 500},
            network={"kind": "two-layer", "width": m, "activation": "relu"}
            | {name: value(m) if callable(value) else value for name, value in models[model].items()},
            times=quadratic_times(sizes.end),
            seeds=seeds or sizes.seeds,
            dtype="float32",  # its rounding is far below the noise of ReLU gates that switch on and off
            **options,
        )
        for m, n, model in itertools.product(widths, samples, models)
    }


def arranged(results: Results, models: Models, by: str) -> dict[tuple[str, int, int], xr.Dataset]:
    """Arrange runs by model, width and n; ``by`` is the option of the network in which models differ."""
    names = {options[by]: model for model, options in models.items()}
    runs = grid(results, f"network.{by}", "network.width", "data.n")
    return {(names[kind], m, n): run for (kind, m, n), run in runs.items()}


def sizes_of(results: Results) -> tuple[list[int], list[int]]:
    """Return the widths and the numbers of samples of all runs, in the order of the runs."""
    return values(results, "network.width"), values(results, "data.n")


def window(loss: np.ndarray) -> np.ndarray:
    """Mark the decay: every time before the loss first falls to `FLOOR` times its start."""
    below = np.flatnonzero(loss <= FLOOR * loss[0])
    return np.arange(len(loss)) < max(3, below[0] if below.size else len(loss))


def decay(run: xr.Dataset) -> tuple[np.ndarray, np.ndarray]:
    """Fit log-loss = const - rate t seed by seed; return the rates, and the shares R² of the variance explained.

    The fit is over evenly spaced t, so that parts with more observations do not count for more. A loss that does not
    fall has R² = 0.
    """
    times = run["time"].values
    rates, shares = [], []
    for loss in run["train-loss"].values:
        inside = window(loss)
        t = np.linspace(0.0, times[inside][-1], 200)
        log = np.interp(t, times[inside], np.log(loss[inside]))
        slope, offset = np.polyfit(t, log, 1)
        rates.append(-slope)
        spread = np.var(log)
        falls = slope < 0 and spread > _STILL
        shares.append(1 - np.var(log - slope * t - offset) / spread if falls else 0.0)
    return np.array(rates), np.array(shares)


def guaranteed_rate(run: xr.Dataset) -> np.ndarray:
    """Return the largest rate ρ, seed by seed, with L_t <= L_0 exp(-ρ t) at every time of the decay (see `window`)."""
    times, found = run["time"].values, []
    for loss in run["train-loss"].values:
        later = window(loss) & (times > 0)
        found.append(np.min(np.log(loss[0] / loss[later]) / times[later]))
    return np.array(found)


def distance(one: xr.Dataset, other: xr.Dataset) -> np.ndarray:
    """Return the median difference of log-losses over times, seed by seed, as a share of their fall.

    Only times in the decay of both count (see `window`). Seed by seed, both runs have the same data.
    """
    shares = []
    for a, b in zip(one["train-loss"].values, other["train-loss"].values, strict=True):
        both = window(a) & window(b)
        fall = np.ptp(np.log(a[both]))
        shares.append(np.median(np.abs(np.log(a[both] / b[both]))) / fall if fall > 0 else np.inf)
    return np.array(shares)


def end_error(run: xr.Dataset) -> np.ndarray:
    """Return the test error at the last time, seed by seed."""
    return run["test-loss"].values[:, -1]


def draw_end_errors(
    runs: Mapping[tuple[str, int, int], xr.Dataset], lines: Mapping[str, tuple[str, int]], title: str
) -> Figure:
    """Draw test errors after training at one width against n; each model has a name and the index of its colour."""
    figure, (axes,) = canvas()
    for model, (name, index) in lines.items():
        by_n = {n: end_error(run) for (which, _, n), run in runs.items() if which == model}
        bars(axes, list(by_n), np.stack(list(by_n.values()), axis=1), index, name)
    axes.set(ylim=(0, None), xlabel="n", ylabel="test error, mean of ½ (f - y)²")
    axes.set_title(title, fontsize=10)
    axes.legend()
    return figure
