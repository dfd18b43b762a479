"""Figures 5 and 6: how far apart channels are at x = 0, over training, and which frequency each learns when."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import xarray as xr

from unlazy.figures import ORDERED, band, canvas
from unlazy.lab import Recipe
from unlazy.papers._base import Claim, Figure, Panel, Results, Scale, by_scale, option
from unlazy.papers._curves import label_axes, log_steps, median_range, plural
from unlazy.papers.aiad2026 import _shared as shared
from unlazy.papers.aiad2026._shared import LEAKY, epoch_of, epochs_of, low_rank, times_of


@dataclass(frozen=True)
class _Sizes:
    width: int
    rank: int
    n: int
    batch: int
    frequency: float
    epochs: int
    looks: int
    seeds: int


_SCALES: dict[Scale, _Sizes] = {
    "quick": _Sizes(256, 15, 500, 50, 4.0, 4000, 25, 4),
    "paper": _Sizes(1024, 15, 5000, 160, 8.0, 10_000, 41, 4),
}
_RATE = 0.01
_CAPTION_EPOCHS = 20  # what the caption of figure 5 says, where Table 2 says 10,000
_ACTIVATIONS = {"ReLU": "relu", "leaky ReLU": LEAKY}  # section 4.1, Table 4
_BLOCK = 1  # whose outputs are the channels f_k^(2) of three layers
FREQUENCIES = 20


def recipe(scale: Scale, activation: str, seeds: int | None) -> Recipe:
    """Train and look at the channels; figures 5 and 6 share their runs."""
    s = _SCALES[scale]
    # Half the MSE: along the MSE itself SGD of this rate diverges after some hundred epochs at the paper's size.
    flow = {"kind": "descent", "rate": _RATE, "batch": s.batch, "loss": "squared"}
    epoch = epoch_of(s.n, s.batch)
    # looks at whole epochs, the 20 of the caption among them
    seen = sorted({*log_steps(s.epochs, s.looks), min(_CAPTION_EPOCHS, s.epochs)})
    return Recipe(
        name=f"aiad2026 log-ratios {activation}",
        data={"kind": "cosine", "n": s.n, "frequency": s.frequency},
        network=low_rank(2, s.width, s.rank, activation=_ACTIVATIONS[activation]),
        flow=flow,
        times=times_of(flow, [epoch * one for one in seen]),
        probes=[
            "train-loss",
            {"kind": "log-ratios", "x": 0.0, "block": _BLOCK},
            {"kind": "channel-spectrum", "frequencies": FREQUENCIES},
            {"kind": "channels", "when": "end", "count": shared.LINE.size},
            "spikes",
        ],
        seeds=seeds or s.seeds,
        dtype="float32",
    )


def _in_words(s: _Sizes) -> str:
    return (
        f"n = {s.width}, r = {s.rank}, cos({s.frequency:g}πx), {s.n:,} samples, {s.epochs:,} epochs, {plural(s.seeds)}"
    )


_SETTING = (
    "Three layers with frozen random features on one cosine, SGD of rate 0.01 (Table 2) on half the mean squared error "
    "(without the half it diverges after some hundred epochs); R_ij = log|f_i| - log|f_j| "
    "between the channels at x = 0. Section 4.1 says ReLU and Table 4 leaky ReLU: both are run"
)


class _LogRatios(Panel):
    """What figures 5 and 6 share: their runs."""

    def recipes(self, scale: Scale, seeds: int | None = None) -> dict[str, Recipe]:
        """Both activations."""
        return {name: recipe(scale, name, seeds) for name in _ACTIVATIONS}


class Largest(_LogRatios):
    """Figure 5: the largest log-ratio, beside one that no zero crossing drives, and the frequencies."""

    key = "aiad2026/fig5"
    title = "Figure 5: the largest log-ratio at x = 0"
    scales = by_scale(_SCALES, _in_words)
    caption = (
        f"{_SETTING}. Left: max R_ij against epochs. A channel that happens to be zero at x = 0 makes it large, so "
        "in the middle stands the largest |f_k| over the median one, which no zero crossing drives. Right: how "
        "much of each frequency q, of cos(πqx), the output has over training (first seed, ReLU), against the "
        "amplitude 1 it should have at the target's. Dotted: 20 epochs, after which the caption stops; Table 2 "
        "says 10,000. Thick lines are medians over seeds."
    )

    def claims(self, results: Results) -> list[Claim]:
        """The largest ratio grows; so does the one without zero crossings; the target's frequency comes last."""
        return [
            *(_grows(run, name, "largest", "max_ij R_ij(x = 0)") for name, run in results.items()),
            *(
                _grows(run, name, "top_to_median", "the largest over the median |f_k|(0)")
                for name, run in results.items()
            ),
            _fits(results),
        ]

    def draw(self, results: Results) -> Figure:
        """Largest, top to median, and frequencies over training."""
        figure, axes = canvas(3, 12.5, 3.6)
        for axis, what, title in (
            (axes[0], "largest", "max R_ij(x = 0)"),
            (axes[1], "top_to_median", "log of largest over median |f_k(0)|"),
        ):
            for index, (name, run) in enumerate(results.items()):
                band(axis, epochs_of(run), run[f"log-ratios.{what}"].values, index, name)
            axis.set_xscale("symlog", linthresh=1.0)
            axis.axvline(_CAPTION_EPOCHS, color="0.5", linestyle=":", linewidth=1.0)
            label_axes(axis, "epoch", title)
        axes[0].legend(fontsize=8)
        run = results["ReLU"]
        amplitudes = run["channel-spectrum.block-2"].values[0, :, :, 0]
        target = round(option(run, "data.frequency"))
        shown = [q for q in (0, 1, 2, target // 2, target, 2 * target) if q <= FREQUENCIES]
        for index, q in enumerate(sorted(set(shown))):
            width = 2.4 if q == target else 1.0
            shared.curve(axes[2], epochs_of(run), amplitudes[:, q], index, f"q = {q}", linewidth=width)
        axes[2].set_xscale("symlog", linthresh=1.0)
        label_axes(axes[2], "epoch", "amplitude of cos(πqx) in the output", legend=7)
        figure.suptitle(f"aiad2026, cos({target}πx)", fontsize=10)
        return figure


class AllPairs(_LogRatios):
    """Figure 6: all log-ratios over training, from the runs of figure 5."""

    key = "aiad2026/fig6"
    title = "Figure 6: all log-ratios at x = 0 over training"
    scales = by_scale(_SCALES, lambda s: f"{_in_words(s)}, the runs of figure 5")
    caption = (
        f"{_SETTING}. Left: every R_ij of one seed over training, the pair that is largest at the end in colour. "
        "Middle: the matrix R_ij at the end, channels in the order of |f_k(0)|. Right: the channels themselves at "
        "the end, divided by their largest values."
    )

    def claims(self, results: Results) -> list[Claim]:
        """Ratios of all pairs spread, and one channel gets ahead of most."""
        return [_spreads(run, name) for name, run in results.items()]

    def draw(self, results: Results) -> Figure:
        """Pairs over time, the matrix at the end, and channels."""
        run = results["ReLU"]
        figure, axes = canvas(3, 12.5, 3.8)
        ratios = run["log-ratios.all"].values[0]
        upper = np.triu_indices(ratios.shape[1], 1)
        axes[0].plot(epochs_of(run), np.abs(ratios[:, upper[0], upper[1]]), color="0.6", linewidth=0.4, alpha=0.5)
        i, j = np.unravel_index(np.argmax(ratios[-1]), ratios[-1].shape)
        shared.curve(axes[0], epochs_of(run), ratios[:, i, j], 1, f"R of channels {i + 1} and {j + 1}", linewidth=1.8)
        axes[0].set_xscale("symlog", linthresh=1.0)
        label_axes(axes[0], "epoch", "|R_ij|, all pairs", legend=8)
        order = np.argsort(ratios[-1][:, 0])[::-1]
        shown = ratios[-1][np.ix_(order, order)]
        reach = np.abs(shown).max()
        picture = axes[1].imshow(shown, cmap="RdBu_r", vmin=-reach, vmax=reach)
        axes[1].grid(visible=False)
        figure.colorbar(picture, ax=axes[1], shrink=0.8)
        label_axes(axes[1], "channel j", "R_ij at the end, ordered")
        channels = run[f"channels.block-{_BLOCK}"].values[0]
        for place, k in enumerate(order):
            high = place == 0
            axes[2].plot(
                shared.LINE,
                channels[:, k] / np.abs(channels[:, k]).max(),
                color=ORDERED[1] if high else "0.6",
                linewidth=1.8 if high else 0.6,
                zorder=3 if high else 2,
            )
        axes[2].axvline(0.0, color="0.3", linestyle=":", linewidth=1.0)
        label_axes(axes[2], "x", "channels at the end (blue: largest at 0)")
        figure.suptitle(f"aiad2026, cos({option(run, 'data.frequency'):g}πx), ReLU", fontsize=10)
        return figure


def _at(run: xr.Dataset, epoch: float) -> int:
    return int(np.argmin(np.abs(epochs_of(run) - epoch)))


def _grows(run: xr.Dataset, name: str, what: str, words: str) -> Claim:
    values = run[f"log-ratios.{what}"].values
    grown = values[:, -1] - values[:, 0]
    early = _at(run, _CAPTION_EPOCHS)
    ups = int(np.sum(grown > 0))
    return Claim(
        text=f"{name}: {words} is larger at the end than at the start (median over seeds)",
        paper="sustained growth of max R_ij: one channel increasingly dominates at x = 0",
        measured=f"from {median_range(values[:, 0])} over {median_range(values[:, early])} at epoch "
        f"{epochs_of(run)[early]:.0f} to {median_range(values[:, -1])} at epoch {epochs_of(run)[-1]:,.0f}; it grows in "
        f"{ups} of {plural(len(grown))}",
        holds=bool(np.median(grown) > 0),
    )


def _fits(results: Results) -> Claim:
    errors = {name: 2 * run["train-loss"].values for name, run in results.items()}
    target = round(option(results["ReLU"], "data.frequency"))
    parts = {
        name: run["channel-spectrum.block-2"].values[:, [0, _at(run, _CAPTION_EPOCHS), -1], target, 0]
        for name, run in results.items()
    }
    return Claim(
        text=f"training learns the target's frequency q = {target}: at the end its amplitude is above 0.9 of 1",
        paper="low-rank networks learn highly oscillatory targets",
        measured="; ".join(
            f"{name}: amplitude {np.median(part[:, 0]):.2g} at the start, {np.median(part[:, 1]):.2g} after "
            f"{_CAPTION_EPOCHS} epochs, {median_range(part[:, 2])} at the end, MSE {median_range(errors[name][:, -1])}"
            for name, part in parts.items()
        ),
        holds=all(bool(np.median(part[:, 2]) > 0.9) for part in parts.values()),
    )


def _spreads(run: xr.Dataset, name: str) -> Claim:
    ratios = np.abs(run["log-ratios.all"].values)
    upper = np.triu_indices(ratios.shape[2], 1)
    middle = np.median(ratios[:, :, upper[0], upper[1]], axis=2)
    return Claim(
        text=f"{name}: the median |R_ij| over all pairs is larger at the end than at the start (median over seeds)",
        paper="the distribution over all pairs: one channel increasingly dominates at x = 0",
        measured=f"from {median_range(middle[:, 0])} to {median_range(middle[:, -1])}, largest along the way "
        f"{median_range(middle.max(axis=1))}",
        holds=bool(np.median(middle[:, -1] - middle[:, 0]) > 0),
    )
