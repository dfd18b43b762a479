"""Runs over widths and numbers of samples, and their curves: how straight, how steep, how far apart, and their ends."""

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
_STILL = 1e-20  # a variance of log-loss below is rounding: a standstill is no decay
AGREE = 0.05  # two curves agree if they lie within this share of their own height: about what an eye can tell
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
    """Return the recipe of each model at each width and n; data depend on seed and n only, so all are compared on them.

    An option of a model that depends on the width is a function of it.
    """
    return {
        f"{model} m={m} n={n}": Recipe(
            name=f"chen2022 {experiment} {model} m={m} n={n}",
            data={**data, "n": n, "n_test": 500},
            network={"kind": "two-layer", "width": m, "activation": "relu"}
            | {name: value(m) if callable(value) else value for name, value in models[model].items()},
            times=quadratic_times(sizes.end),
            seeds=seeds or sizes.seeds,
            dtype="float32",  # the chatter of ReLU gates is far above its rounding
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
    """Mark the decay: every time before the loss has first fallen to `FLOOR` of its start."""
    below = np.flatnonzero(loss <= FLOOR * loss[0])
    return np.arange(len(loss)) < max(3, below[0] if below.size else len(loss))


def decay(run: xr.Dataset) -> tuple[np.ndarray, np.ndarray]:
    """Fit log-loss = const - rate t seed by seed: rates, and the share R² of its variance that the line explains.

    The fit is over evenly spaced t, so that times at which the loss is observed more often do not count for more.
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
        shares.append(1 - np.var(log - slope * t - offset) / spread if spread > _STILL else 0.0)
    return np.array(rates), np.array(shares)


def bound(run: xr.Dataset) -> np.ndarray:
    """Return the largest rate ρ, seed by seed, with L_t <= L_0 exp(-ρ t) at every time while the decay is judged."""
    times, found = run["time"].values, []
    for loss in run["train-loss"].values:
        later = window(loss) & (times > 0)
        found.append(np.min(np.log(loss[0] / loss[later]) / times[later]))
    return np.array(found)


def distance(one: xr.Dataset, other: xr.Dataset) -> np.ndarray:
    """Return the median difference of log-losses over times, seed by seed, as a share of their fall.

    Only times at which both are judged count. The seeds of both runs have the same data.
    """
    shares = []
    for a, b in zip(one["train-loss"].values, other["train-loss"].values, strict=True):
        both = window(a) & window(b)
        fall = np.ptp(np.log(a[both]))
        shares.append(np.median(np.abs(np.log(a[both] / b[both]))) / fall if fall > 0 else np.inf)
    return np.array(shares)


def end_error(run: xr.Dataset) -> np.ndarray:
    """Test error at the last time, seed by seed."""
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
