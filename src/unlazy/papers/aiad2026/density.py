"""Figure 10: the law of the trained weights w_2, before training and after."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import xarray as xr

from unlazy.figures import ORDERED, canvas
from unlazy.lab import Recipe
from unlazy.papers._base import Claim, Figure, Panel, Results, Scale, by_scale, option
from unlazy.papers._curves import label_axes, median_range, plural
from unlazy.papers.aiad2026._shared import LEAKY, adam, epoch_of, epochs_of, low_rank, target_of, times_of


@dataclass(frozen=True)
class _Sizes:
    width: int
    pair: tuple[float, float]
    n: int
    batch: int
    seeds: int


_SCALES: dict[Scale, _Sizes] = {
    "quick": _Sizes(512, (12.0, 4.0), 500, 50, 2),
    "paper": _Sizes(1024, (36.0, 12.0), 2000, 100, 3),
}
_BLOCKS, _RANK = 4, 8
_EPOCHS = (0, 5, 50)  # the figure's are 0 and 50
_SHOWN = 2  # w_2 is the A of block 2
_BINS = 60
_SIGMA = 4.0  # what a skewness may differ from 0, in standard deviations of that of as many independent draws
_ODD = 0.05  # share of a density's energy that may be odd


def recipe(scale: Scale, seeds: int | None) -> Recipe:
    """The row of Table 2 with r = 8, which is the only one left for figure 10."""
    s = _SCALES[scale]
    flow, epoch = adam(s.n, s.batch), epoch_of(s.n, s.batch)
    return Recipe(
        name="aiad2026 density of weights",
        data={"kind": "chirp", "n": s.n, "f1": s.pair[0], "f2": s.pair[1], "n_test": 0},
        network=low_rank(_BLOCKS, s.width, _RANK, activation=LEAKY),
        flow=flow,
        times=times_of(flow, [epoch * one for one in _EPOCHS]),
        probes=["train-loss", "trained-neurons"],
        seeds=seeds or s.seeds,
        dtype="float32",
    )


class Weights(Panel):
    """Figure 10: density of w_2 at epochs 0 and 50."""

    key = "aiad2026/fig10"
    title = "Figure 10: density of trained weights"
    scales = by_scale(
        _SCALES,
        lambda s: (
            f"{_BLOCKS} layers, width {s.width}, r = {_RANK}, ({s.pair[0]:g}, {s.pair[1]:g}), n = {s.n:,}, "
            f"{_EPOCHS[-1]} epochs, {plural(s.seeds)}"
        ),
    )
    caption = (
        "Density of the entries of w_l, our A of block l, of four layers with frozen features and leaky ReLU, over "
        "neurons and channels of the first seed, at epochs 0 and 50; grey: mirror image. Of the rows of Table 2 "
        "the one with r = 8, (36, 12) and 2,000 samples belongs here, as the others are taken; its 5,000 epochs "
        "are not needed for epoch 50. The start, uniform, is our choice."
    )

    def recipes(self, scale: Scale, seeds: int | None = None) -> dict[str, Recipe]:
        """One recipe."""
        return {"weights": recipe(scale, seeds)}

    def claims(self, results: Results) -> list[Claim]:
        """The weights are symmetric, under both readings of w_2, and have moved."""
        run = results["weights"]
        return [_symmetric(run, _SHOWN), _symmetric(run, _blocks(run)[-1]), _moves(run)]

    def draw(self, results: Results) -> Figure:
        """Above epoch 0, below epoch 50, a column a block."""
        run = results["weights"]
        blocks = _blocks(run)
        figure, axes = canvas(len(blocks), 11.0, 5.6, rows=2)
        for column, block in enumerate(blocks):
            for row, look in enumerate((0, -1)):
                axis = axes[row * len(blocks) + column]
                values = _entries(run, block)[0, look]
                reach = float(np.quantile(np.abs(values), 0.998)) * 1.1
                edges = np.linspace(-reach, reach, _BINS + 1).tolist()
                axis.hist(values, edges, density=True, color=ORDERED[1], alpha=0.75)
                axis.hist(-values, edges, density=True, histtype="step", color="0.35", linewidth=0.9)
                label_axes(axis, f"w_{block}", f"w_{block} at epoch {epochs_of(run)[look]:.0f}")
        pair = target_of(run)
        figure.suptitle(f"aiad2026, ({pair[0]:g}, {pair[1]:g}), r = {_RANK}", fontsize=10)
        return figure


def _blocks(run: xr.Dataset) -> list[int]:
    return list(range(1, len(option(run, "network.widths")) + 1))


def _entries(run: xr.Dataset, block: int) -> np.ndarray:
    """All entries of w of a block: (seeds, looks, entries)."""
    values = run[f"trained-neurons.block-{block}"].values
    return values.reshape(*values.shape[:2], -1).astype(float)


def skewness(values: np.ndarray) -> np.ndarray:
    """E(w - w̄)³ / σ³ over the last axis."""
    centred = values - values.mean(axis=-1, keepdims=True)
    return np.mean(centred**3, axis=-1) / np.mean(centred**2, axis=-1) ** 1.5


def odd_part(values: np.ndarray) -> float:
    """Share of a density's energy in its odd part, less what as many independent draws would have by chance."""
    reach = float(np.abs(values).max())
    counts = np.histogram(values, np.linspace(-reach, reach, _BINS + 1))[0].astype(float)
    odd = np.sum(((counts - counts[::-1]) / 2) ** 2)
    chance = counts.sum() / 2  # variances of Poisson counts
    return float(max(odd - chance, 0.0) / np.sum(counts**2))


def _symmetric(run: xr.Dataset, block: int) -> Claim:
    values = _entries(run, block)[:, -1]
    skew, odd = skewness(values), np.array([odd_part(one) for one in values])
    noise = np.sqrt(6 / values.shape[1])
    limit = max(_SIGMA * noise, 0.1)
    which = "" if block == _SHOWN else ", the last layer's, which is another reading of the figure"
    return Claim(
        text=f"after {_EPOCHS[-1]} epochs the density of w_{block}{which} is symmetric: |skewness| below {limit:.2g} "
        f"({_SIGMA:g} standard deviations of chance, or 0.1) and less than {_ODD:.0%} of its energy odd (medians over "
        "seeds)",
        paper="w_2 density: symmetric at 50",
        measured=f"skewness {median_range(skew, 2)}, by chance ±{noise:.2g}; odd part {median_range(odd, 2)}",
        holds=bool(np.median(np.abs(skew)) < limit and np.median(odd) < _ODD),
    )


def _moves(run: xr.Dataset) -> Claim:
    wider = {}
    for block in _blocks(run):
        values = _entries(run, block)
        wider[block] = np.median(values[:, -1].std(axis=1) / values[:, 0].std(axis=1))
    loss = run["train-loss"].values
    return Claim(
        text=f"by then training has moved them: the standard deviation of w_{_SHOWN} has grown by more than a tenth",
        paper="the mean-field weight distribution over training",
        measured=", ".join(f"w_{block}: {ratio:.2f} times" for block, ratio in wider.items())
        + f"; MSE from {median_range(loss[:, 0])} to {median_range(loss[:, -1])}",
        holds=bool(wider[_SHOWN] > 1.1),
    )
