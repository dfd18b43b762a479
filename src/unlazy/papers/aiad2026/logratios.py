"""Figures 5 and 6: log-ratios of channels and of neurons at x = 0 over training, and what chance alone gives."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import xarray as xr

from unlazy.figures import ORDERED, band
from unlazy.lab import Recipe
from unlazy.papers._base import Claim, Figure, Panel, Results, Scale, by_scale, option
from unlazy.papers._curves import label_axes, log_steps, median_range, plural, titled_canvas
from unlazy.papers.aiad2026.setting import Setting, epochs_of, low_rank, mse_in_words, sgd
from unlazy.papers.outcomes import at_least, increases, ordered

_RANK = 15
_CHANNELS: dict[Scale, Setting] = {
    "quick": Setting(width=512, rank=_RANK, n=2500, batch=80, frequency=8.0, epochs=20, seeds=12),
    "paper": Setting(width=1024, rank=_RANK, n=5000, batch=160, frequency=8.0, epochs=20, seeds=24),
}
_NEURONS: dict[Scale, Setting] = {
    "quick": Setting(width=256, rank=_RANK, n=512, batch=20, frequency=2.0, epochs=300, seeds=3),
    "paper": Setting(width=1024, rank=_RANK, n=4096, batch=160, frequency=8.0, epochs=10_000, seeds=2),
}
_STOP = 2e-5  # the loss at which training ends in figure 6
_BLOCK = 2  # its channels are the authors' "layer 3", its neurons "layer 2"
_AT, _EPS = {5: 1e-8, 6: 1e-6}, {5: 1e-6, 6: 1e-10}  # of the authors' scripts
_FAR = 10.0  # an |R_ij| that pairs of active neurons do not reach
RUN = "training"


def _in_words(s: Setting) -> str:
    size = f"{s.blocks} blocks, n = {s.width}, r = {s.rank}, cos({s.frequency:g}πx), {s.n:,} samples"
    return f"{size}, {s.epochs:,} epochs, {plural(s.seeds)}"


_SETTING = (
    "Three blocks with frozen random features and ReLU on one cosine, by SGD at rate 0.01 on the mean squared error, "
    "gradients clipped to norm 1, from a uniform start; all settings are those of the authors' public code"
)


class Largest(Panel):
    """Figure 5: the largest log-ratio between channels, beside what independent channels have."""

    key = "aiad2026/fig5"
    title = "Figure 5: the largest log-ratio at x = 0"
    scales = by_scale(_CHANNELS, _in_words)
    caption = (
        f"{_SETTING}. Left: max R_ij = max (log(|f_i| + ε) - log(|f_j| + ε)) over the {_RANK} channels of block "
        f"{_BLOCK} at x = {_AT[5]:g} with ε = {_EPS[5]:g}, one line per seed, thick: median; grey: the middle 90 % of "
        "draws of as many independent Gaussian numbers. A channel that happens to vanish there makes it large. Middle: "
        "the largest |f_k| over the median one, which zero crossings do not affect. Right: max R_ij at the end against "
        "the start; above the line it has grown. In these 20 epochs the loss hardly moves."
    )

    def recipes(self, scale: Scale, seeds: int | None = None) -> dict[str, Recipe]:
        s = _CHANNELS[scale]
        ratios = {"kind": "log-ratios", "x": _AT[5], "block": _BLOCK, "eps": _EPS[5], "matrix": False}
        steps = [s.epoch * one for one in range(s.epochs + 1)]
        network = low_rank(s.blocks, s.width, s.rank)
        probes = ["train-loss", ratios]
        return {RUN: s.recipe("log-ratios", seeds, steps, sgd(s.batch), data=s.cosine, network=network, probes=probes)}

    def claims(self, results: Results) -> list[Claim]:
        run = results[RUN]
        values = run["log-ratios.largest"].values
        _, middle, high = independent(run["log-ratios.logs"].shape[-1])
        strict, weaker = (_grows(run, "largest", "max_ij R_ij(x = 0)", sustained=one) for one in (True, False))
        beyond = Claim(
            text="at the end max_ij R_ij(x = 0) is larger than chance gives: above the 95 % quantile of as many "
            "independent Gaussian channels",
            paper="one channel increasingly dominates at x = 0",
            measured=f"{median_range(values[:, -1])} against {high:.2f} (median of independent channels {middle:.2f}); "
            f"above it in {int(np.sum(values[:, -1] > high))} of {plural(len(values))}, at the start in "
            f"{int(np.sum(values[:, 0] > high))}",
            judged=at_least(values[:, -1], high),
        )
        return [strict, beyond, weaker, _grows(run, "top_to_median", "the largest over the median |f_k|(0)")]

    def draw(self, results: Results) -> Figure:
        run = results[RUN]
        title = f"aiad2026, cos({option(run, 'data.frequency'):g}πx)"
        figure, axes = titled_canvas(title, 3, 12.5, 3.6)
        low, middle, high = independent(run["log-ratios.logs"].shape[-1])
        axes[0].axhspan(low, high, color="0.5", alpha=0.15)
        axes[0].axhline(middle, color="0.5", linewidth=1.0, linestyle=":")
        titles = {"largest": "max R_ij (grey: independent)", "top_to_median": "log of largest over median |f_k|"}
        for axis, (what, words) in zip(axes, titles.items(), strict=False):
            band(axis, epochs_of(run), run[f"log-ratios.{what}"].values, 1, "")
            label_axes(axis, "epoch", words)
        start, end = run["log-ratios.largest"].values[:, [0, -1]].T
        reach = [min(start.min(), end.min()), max(start.max(), end.max())]
        axes[2].plot(reach, reach, color="0.5", linewidth=1.0)
        axes[2].plot(start, end, "o", color=ORDERED[1], markersize=4)
        label_axes(axes[2], "max R_ij at the start", f"max R_ij after {epochs_of(run)[-1]:.0f} epochs")
        return figure


class AllPairs(Panel):
    """Figure 6: the log-ratios of all pairs of neurons, before training and after."""

    key = "aiad2026/fig6"
    title = "Figure 6: all log-ratios at x = 0"
    scales = by_scale(_NEURONS, _in_words)
    caption = (
        f"{_SETTING}, with two exceptions, for which we follow the paper: the script behind the figure does not clip "
        "gradients, and its target is cos(8πx) + cos(2πx) instead of cos(8πx). "
        f"Log-ratios log(a_i + ε) - log(a_j + ε) of all pairs of neurons a = ReLU(H) of block {_BLOCK} at x = "
        f"{_AT[6]:g}, with ε = {_EPS[6]:g}, until the mean loss of an epoch is below {_STOP:g} or for 10,000 epochs; "
        "first seed. Left: histogram over all pairs, before training and after. A dead neuron, a = 0, contributes log "
        "ε, and the pairs that contain one are the bumps beyond ±10. Middle: pairs of active neurons only. Right: the "
        "share of dead neurons over training, one line per seed."
    )

    def recipes(self, scale: Scale, seeds: int | None = None) -> dict[str, Recipe]:
        s = _NEURONS[scale]
        ratios = {"kind": "log-ratios", "x": _AT[6], "block": _BLOCK, "units": "neurons", "eps": _EPS[6]}
        steps = [s.epoch * one for one in log_steps(s.epochs, 15)]
        flow = sgd(s.batch) | {"stop_loss": _STOP}
        network, probes = low_rank(s.blocks, s.width, s.rank), ["train-loss", ratios | {"matrix": False}]
        return {RUN: s.recipe("all pairs", seeds, steps, flow, data=s.cosine, network=network, probes=probes)}

    def claims(self, results: Results) -> list[Claim]:
        run = results[RUN]
        logs, dead = (run[f"log-ratios.{name}"].values[:, [0, -1]] for name in ("logs", "zeros"))

        def ends(of: Callable[[np.ndarray], Any]) -> np.ndarray:
            """Evaluate a function of the logs at the start and at the end, by seed."""
            return np.array([[of(one) for one in seed] for seed in logs]).T

        middles = ends(lambda one: np.median(np.abs(pairs(one))))
        alive = ends(lambda one: np.median(np.abs(pairs(active(one)))))
        tails = ends(lambda one: np.mean(np.abs(pairs(one)) > _FAR))
        largest = ends(lambda one: np.abs(pairs(active(one))).max())[1].max()
        first, last = (median_range(share) for share in 100 * dead.T)
        shares = f"{first} % of the neurons are dead at the start, {last} % at the end"
        strict = Claim(
            text="the median |R_ij| over all pairs of neurons is larger at the end than at the start",
            paper="log-ratios over training, all activation pairs: one channel increasingly dominates at x = 0",
            measured=f"from {median_range(middles[0])} to {median_range(middles[1])}; {shares}; {mse_in_words(run)}",
            judged=increases(*middles),
        )
        tail = replace(
            strict,
            text=f"training produces the tail: the share of pairs with |R_ij| above {_FAR:g} is larger at the end than "
            "at the start",
            measured=f"from {median_range(100 * tails[0])} % to {median_range(100 * tails[1])} %; {shares}; the "
            f"largest |R_ij| of active pairs is {largest:.3g}",
            judged=increases(*tails),
        )
        weaker = replace(
            strict,
            text="the median |R_ij| over pairs of active neurons is larger at the end than at the start",
            measured=f"from {median_range(alive[0])} to {median_range(alive[1])}",
            judged=increases(*alive),
            weaker=True,
        )
        return [strict, tail, weaker]

    def draw(self, results: Results) -> Figure:
        run = results[RUN]
        title = f"aiad2026, cos({option(run, 'data.frequency'):g}πx), neurons of block {_BLOCK}"
        figure, axes = titled_canvas(title, 3, 12.5, 3.6)
        epochs = epochs_of(run)
        for axis, chosen, words in (
            (axes[0], lambda one: one, "all pairs"),
            (axes[1], active, "pairs of active neurons"),
        ):
            for index, place in enumerate((0, -1)):
                values = pairs(chosen(run["log-ratios.logs"].values[0, place]))
                style = {"histtype": "step", "density": True, "color": ORDERED[index], "linewidth": 1.4}
                axis.hist(values, 50, label=f"epoch {epochs[place]:,.0f}", **style)
            label_axes(axis, "R_ij", f"density, {words}", legend=8, yscale="log")
        axes[2].plot(epochs, 100 * run["log-ratios.zeros"].values.T, color=ORDERED[1], linewidth=1.0)
        label_axes(axes[2], "epoch", "dead neurons in %", ylim=(0, 100))
        axes[2].set_xscale("symlog", linthresh=1.0)
        return figure


def pairs(logs: np.ndarray) -> np.ndarray:
    """Return R_ij of all pairs i ≠ j."""
    differences = logs[:, None] - logs[None, :]
    return differences[~np.eye(logs.size, dtype=bool)]


def active(logs: np.ndarray) -> np.ndarray:
    """Return the log-sizes of the neurons that are not dead, whose size is more than ε."""
    return logs[logs > np.log(_EPS[6]) + 1e-3]


def independent(rank: int, draws: int = 4000) -> np.ndarray:
    """Return the 5 %, 50 % and 95 % quantiles of max_ij R_ij for ``rank`` independent Gaussian channels.

    This is what chance alone gives, without any training; the draws have a fixed seed.
    """
    sizes = np.log(np.abs(np.random.default_rng(0).normal(size=(draws, rank))))
    return np.quantile(sizes.max(axis=1) - sizes.min(axis=1), [0.05, 0.5, 0.95])


def _grows(run: xr.Dataset, what: str, words: str, sustained: bool = False) -> Claim:
    values = run[f"log-ratios.{what}"].values
    start, half, end = values[:, 0], values[:, values.shape[1] // 2], values[:, -1]
    chance = ""
    if what == "largest":
        low, middle, high = independent(run["log-ratios.logs"].shape[-1])
        chance = f"; independent Gaussian channels have {middle:.2f} ({low:.2f} to {high:.2f} in 90 % of draws)"
    return Claim(
        text=f"{words} grows from the start to half of training, and from there to the end"
        if sustained
        else f"{words} is larger at the end than at the start",
        paper="sustained growth of max R_ij: one channel increasingly dominates at x = 0",
        measured=f"from {median_range(start)} to {median_range(end)} at epoch {epochs_of(run)[-1]:,.0f}; it grows in "
        f"{int(np.sum(end > start))} of {plural(len(start))}{chance}; {mse_in_words(run)}",
        judged=ordered([start, half, end]) if sustained else increases(start, end),
        weaker=not sustained,
    )
