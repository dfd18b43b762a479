"""Figure 10: the distribution of the trained weights w_2, before training and after."""

import itertools

import numpy as np
import xarray as xr

from unlazy.figures import ORDERED
from unlazy.lab import Recipe
from unlazy.papers._base import Claim, Figure, Panel, Results, Scale, by_scale, option
from unlazy.papers._curves import label_axes, median_range, plural, titled_canvas
from unlazy.papers.aiad2026.setting import STAGNATION, Setting, blocks_of, epochs_of, low_rank, mse_in_words, sgd
from unlazy.papers.outcomes import at_least, near, together

_SCALES: dict[Scale, Setting] = {
    "quick": Setting(width=512, frequency=8.0, n=2048, batch=80, epochs=50, seeds=2),
    "paper": Setting(width=1024, frequency=8.0, n=4096, batch=160, epochs=50, seeds=8),
}
_RANKS = (15, 50)  # of the authors' runs; the paper does not say which is shown
_SWITCH = 1e-3  # the loss of an epoch below which SGD takes over from Adam
_EPOCHS = (0, 5, 50)  # the figure's are 0 and 50
_SHOWN = 2  # w_2 is the A of block 2
_BINS = 60
_SIGMA = 4.0  # by how much a skewness may differ from 0, in standard deviations of that of as many independent draws
_ODD = 0.05  # share of a density's energy that may be odd


class Weights(Panel):
    """Figure 10: density of w_2 at epochs 0 and 50."""

    key = "aiad2026/fig10"
    title = "Figure 10: density of trained weights"
    scales = by_scale(
        _SCALES,
        lambda s: (
            f"{s.blocks} blocks, width {s.width}, r = {_RANKS[0]} and {_RANKS[1]}, n = {s.n:,}, {s.epochs} epochs, "
            f"{plural(s.seeds)}"
        ),
    )
    caption = (
        "Density of the entries of w_l, our A of block l, of three blocks with frozen features and ReLU on cos(8πx), "
        f"over neurons and channels of the first seed with r = {_RANKS[0]}, at epochs 0 and 50; grey: mirror image. As "
        "in the authors' public code, training is by Adam at rate 0.01, which falls when the loss stagnates as in "
        f"figure 2, then by SGD once the mean loss of an epoch is below {_SWITCH:g}; gradients are clipped to norm 1, "
        "and the start is uniform. The authors' script uses w_1, but the paper's caption says w_2."
    )

    def recipes(self, scale: Scale, seeds: int | None = None) -> dict[str, Recipe]:
        s = _SCALES[scale]
        switch = {"optimiser": "adam", "then": "plain", "switch_loss": _SWITCH, "schedule": STAGNATION}
        return {
            f"r = {rank}": s.recipe(
                f"density of weights r = {rank}",
                seeds,
                [s.epoch * one for one in _EPOCHS],
                sgd(s.batch) | switch,
                data=s.cosine,
                network=low_rank(s.blocks, s.width, rank),
                probes=["train-loss", "trained-neurons"],
            )
            for rank in _RANKS
        }

    def claims(self, results: Results) -> list[Claim]:
        found = []
        for name, run in results.items():
            found += [_symmetric(run, name, _SHOWN), _symmetric(run, name, 1), _moved(run, name)]
        return found

    def draw(self, results: Results) -> Figure:
        name, run = next(iter(results.items()))
        blocks = range(1, blocks_of(run) + 1)
        title = f"aiad2026, cos({option(run, 'data.frequency'):g}πx), {name}"
        figure, axes = titled_canvas(title, len(blocks), 11.0, 5.6, rows=2)
        for axis, (when, block) in zip(axes, itertools.product((0, -1), blocks), strict=True):
            values = _entries(run, block)[0, when]
            reach = float(np.quantile(np.abs(values), 0.998)) * 1.1
            edges = np.linspace(-reach, reach, _BINS + 1).tolist()
            axis.hist(values, edges, density=True, color=ORDERED[1], alpha=0.75)
            axis.hist(-values, edges, density=True, histtype="step", color="0.35", linewidth=0.9)
            label_axes(axis, f"w_{block}", f"w_{block} at epoch {epochs_of(run)[when]:.0f}")
        return figure


def _entries(run: xr.Dataset, block: int) -> np.ndarray:
    """All entries of w of a block: (seeds, times, entries)."""
    values = run[f"trained-neurons.block-{block}"].values
    return values.reshape(*values.shape[:2], -1).astype(float)


def skewness(values: np.ndarray) -> np.ndarray:
    """Compute E(w - w̄)³ / σ³ over the last axis."""
    centred = values - values.mean(axis=-1, keepdims=True)
    return np.mean(centred**3, axis=-1) / np.mean(centred**2, axis=-1) ** 1.5


def odd_part(values: np.ndarray) -> float:
    """Compute the share of a density's energy that is odd, minus the share that independent draws have by chance."""
    reach = float(np.abs(values).max())
    counts = np.histogram(values, np.linspace(-reach, reach, _BINS + 1))[0].astype(float)
    odd = np.sum(((counts - counts[::-1]) / 2) ** 2)
    chance = counts.sum() / 2  # variances of Poisson counts
    return float(max(odd - chance, 0.0) / np.sum(counts**2))


def kurtosis(values: np.ndarray) -> np.ndarray:
    """Compute E(w - w̄)⁴ / σ⁴ over the last axis: 1.8 for a uniform distribution, 3 for a Gaussian one."""
    centred = values - values.mean(axis=-1, keepdims=True)
    return np.mean(centred**4, axis=-1) / np.mean(centred**2, axis=-1) ** 2


def _moved(run: xr.Dataset, name: str) -> Claim:
    wider, tails = {}, {}
    for block in range(1, blocks_of(run) + 1):
        values = _entries(run, block)
        wider[block] = values[:, -1].std(axis=1) / values[:, 0].std(axis=1)
        tails[block] = f"{np.median(kurtosis(values[:, 0])):.2g} to {np.median(kurtosis(values[:, -1])):.2g}"
    return Claim(
        text=f"{name}: by then training has moved the weights: the standard deviation of w_{_SHOWN} has grown by at "
        "least a tenth",
        paper="the mean-field weight distribution over training",
        measured=", ".join(
            f"w_{block}: {median_range(ratio)} times, kurtosis from {tails[block]}" for block, ratio in wider.items()
        )
        + f"; {mse_in_words(run)}",
        judged=at_least(wider[_SHOWN], 1.1),
    )


def _symmetric(run: xr.Dataset, name: str, block: int) -> Claim:
    values = _entries(run, block)[:, -1]
    skew, odd = skewness(values), np.array([odd_part(one) for one in values])
    noise = np.sqrt(6 / values.shape[1])
    limit = float(_SIGMA * noise)
    which = "" if block == _SHOWN else ", which the authors' script uses,"
    return Claim(
        text=f"{name}: after {_EPOCHS[-1]} epochs the density of w_{block}{which} is symmetric: its |skewness| is at "
        f"most {limit:.2g} ({_SIGMA:g} standard deviations of that of as many Gaussian draws), and at most {_ODD:.0%} "
        "of its energy is odd",
        paper="w_2 density: symmetric at 50",
        measured=f"skewness {median_range(skew, 2)}, of Gaussian draws ±{noise:.2g}; odd part {median_range(odd, 2)}",
        judged=together([near(skew, 0.0, limit), near(odd, 0.0, _ODD)]),
    )
