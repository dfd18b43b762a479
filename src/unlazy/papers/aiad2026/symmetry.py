"""Figures 8 and 9: channels for an even target, without frozen random features and with them."""

from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import xarray as xr

from unlazy.figures import ORDERED
from unlazy.lab import Recipe
from unlazy.papers._base import Claim, Figure, Panel, Results, Scale, by_scale, option
from unlazy.papers._curves import even_steps, label_axes, median_range, plural, titled_canvas
from unlazy.papers.aiad2026 import authors, setting
from unlazy.papers.aiad2026.probes import odd_share
from unlazy.papers.aiad2026.setting import LINE, Setting, blocks_of, curve, spelled, target_of
from unlazy.papers.outcomes import Outcome, increases, near, together, undecided
from unlazy.papers.references import Reference

# Several seeds on a target that networks do learn, where the paper has one run of each kind on (144, 48).
_SCALES: dict[Scale, Setting] = {
    "quick": replace(setting.SMALL_CHIRP, rank=15, seeds=8),
    "paper": Setting(blocks=9, width=777, rank=15, n=1000, n_test=1234, batch=100, epochs=2000, seeds=8),
}
_SPIKE: dict[Scale, Setting] = {
    "quick": replace(_SCALES["quick"], rank=8, seeds=2),
    "paper": Setting(blocks=5, width=1024, rank=8, n=2000, n_test=2468, batch=100, epochs=5000, seeds=2),
}
_PRINTED = Setting(blocks=9, width=777, pair=(144.0, 48.0), n=4000, n_test=4936, batch=100, epochs=10_000, seeds=1)
# By the number of blocks: the layers shown, as the figures count them, two of channels and two of neurons.
_MAPS = {5: (3, 5, 4, 8), 9: (5, 7, 8, 16)}
_NEURONS = 64  # observed neurons of a layer, of which the one with the most energy is shown
_ODD = 0.05  # share of the energy of a symmetric channel that may be odd, as for densities in figure 10
_ENOUGH = 8  # seeds needed to call a kind symmetric or asymmetric, as networks of both kinds can be either
_UNANIMOUS = 4  # seeds of each kind that have to agree: of 8 seeds, 4 symmetric ones are all of one kind in 1 of 70
_UNLEARNT = "too few networks have learnt anything"
_NOTHING = 0.9  # a network with at least this share of the MSE at the start has learnt nothing

FROZEN, TRAINED, SPIKE = "frozen features", "no frozen features", "figure 8(a)"
PRINTED = {True: "frozen features, as printed", False: "no frozen features, as printed"}


def block_of(layer: int) -> int:
    """Return the block of a layer; the figures count linear maps from 0, into neurons (even) and out of them (odd)."""
    return layer // 2 + 1


_SETTING = (
    "Low rank on cos(f_1 πx²) - 0.8 cos(f_2 πx²), which is even, by Adam with batches, the rate 1e-3 falling by a "
    "factor of 0.9 every 100 epochs (8 at quick scale), gradients clipped to norm 1, until the mean loss of an epoch "
    "is below 5e-4 (but for at least 300 epochs, 24 at quick scale). As in the authors' public code, activations are "
    "ReLU, starts normal (uniform in 8(a)), the width is 777 where the paper prints 1024, eight layers of channels are "
    "nine blocks, and layers are linear maps counted from 0, so that layer 16 is the map into the last neurons. Curves "
    "are those of the printed setting at paper scale (one seed, at most 10,000 epochs) and of the first of several "
    "seeds at quick scale; dotted: mirror images. Right: the symmetry defect of every seed on an easier target, "
    "(36, 12) (quick scale: (6, 2)): the share of the energy that is odd once each channel's mean is subtracted, as a "
    "median over channels and hidden blocks except the first"
)


def _recipe(name: str, s: Setting, frozen: bool, seeds: int | None, normal: bool = True) -> Recipe:
    neurons = {"kind": "preactivations", "when": "end", "neurons": _NEURONS, "count": LINE.size}
    layers = [{**neurons, "as": f"layer-{one}", "block": block_of(one)} for one in _MAPS[s.blocks][2:]]
    return s.recipe(
        f"symmetry {name}",
        seeds,
        [s.epoch * one for one in even_steps(s.epochs, 11)],
        s.adam_until_fitted,
        data=s.chirp,
        network=setting.low_rank(s.blocks, s.width, s.rank, frozen=frozen, normal=normal),
        probes=["train-loss", "test-loss", "symmetry-defect", "spikes", setting.CHANNELS, *layers],
    )


class _Symmetry(Panel):
    """The runs that figures 8 and 9 share, and their drawing."""

    frozen: bool
    scales = by_scale(
        _SCALES,
        lambda s: (
            f"{s.blocks} blocks, width {s.width}, r = {s.rank}, {spelled(s.pair)}, n = {s.n:,}, {s.epochs:,} epochs, "
            f"{plural(s.seeds)}{', and the printed setting, 1 seed' if s == _SCALES['paper'] else ''}"
        ),
    )

    def recipes(self, scale: Scale, seeds: int | None = None) -> dict[str, Recipe]:
        """Return both kinds at equal rank, the run of figure 8(a) and, at paper scale, the printed setting."""
        found = {name: _recipe(name, _SCALES[scale], name == FROZEN, seeds) for name in (FROZEN, TRAINED)}
        if not self.frozen:
            found[SPIKE] = _recipe("8a", _SPIKE[scale], True, seeds, normal=False)
        if scale == "paper":
            name, printed = PRINTED[self.frozen], replace(_PRINTED, rank=15 if self.frozen else 20)
            found[name] = _recipe(name.replace(",", ""), printed, self.frozen, seeds)
        return found

    def pictures(self, results: Results) -> list[tuple[np.ndarray, str]]:
        """Return the three functions that the figure shows."""
        run = results.get(PRINTED[self.frozen], results[FROZEN if self.frozen else TRAINED])
        early, late, middle, last = _MAPS[blocks_of(run)]
        if self.frozen:
            return [_channel(run, early), _neuron(run, middle), _neuron(run, last)]
        spike = results[SPIKE]
        values, title = _neuron(spike, _MAPS[blocks_of(spike)][3])
        return [(values, f"(a) {title}"), _channel(run, late), _neuron(run, last)]

    def references(self, results: Results) -> list[Reference]:
        """Our test error in the printed setting, which is one of the authors' frequency benchmark."""
        run = results.get(PRINTED[self.frozen])
        if run is None:
            return []
        cell = (target_of(run), option(run, "network.ranks"), self.frozen)
        return authors.in_benchmark(run["test-loss"].values[:, -1], *cell, epochs=float(setting.epochs_of(run)[-1]))

    def draw(self, results: Results) -> Figure:
        run = results.get(PRINTED[self.frozen], results[FROZEN])
        kind = FROZEN if self.frozen else TRAINED
        figure, axes = titled_canvas(f"aiad2026, {spelled(target_of(run))}, {kind}", 4, 15.0, 3.4)
        for axis, (values, title) in zip(axes[:3], self.pictures(results), strict=True):
            # A function and, dotted, its mirror image: where they differ it is not even.
            curve(axis, LINE, values, 1 if self.frozen else 2, title, linestyle="-")
            curve(axis, LINE, values[::-1], 0, linestyle=":", color="0.4", linewidth=1.0)
            defect, varying = _odd_shares(np.stack([values, values - values.mean()], axis=1))
            label_axes(axis, "x", f"{title}\ndefect {defect:.2g}, without the mean {varying:.2g}")
        found = {name: np.maximum(defect_of(results[name]), 1e-5)[learnt(results[name])] for name in (FROZEN, TRAINED)}
        edges = np.geomspace(1e-5, 1.0, 21).tolist()
        axes[3].hist(list(found.values()), edges, label=list(found), color=[ORDERED[1], ORDERED[2]], stacked=True)
        axes[3].axvline(_ODD, color="0.4", linestyle=":", linewidth=1.0)
        pair = spelled(target_of(results[FROZEN]))
        label_axes(axes[3], "symmetry defect", f"seeds on {pair} (dotted: {_ODD:g})", legend=7, xscale="log")
        return figure


class Asymmetric(_Symmetry):
    """Figure 8: a symmetric spike, and channels without frozen features."""

    key = "aiad2026/fig8"
    title = "Figure 8: asymmetry without random features"
    frozen = False
    caption = (
        "(a) A neuron of the last of five blocks with frozen features and r = 8, on (36, 12). Then a channel of layer "
        "7 and a neuron of layer 16 (5 and 8 at quick scale) of a network in which everything is trained, with r = 20 "
        f"(15 at quick scale). {_SETTING}."
    )

    def claims(self, results: Results) -> list[Claim]:
        losses = {name: run["train-loss"].values for name, run in results.items()}
        spike = results[SPIKE]
        layer = f"layer-{_MAPS[blocks_of(spike)][3]}"
        neurons = np.maximum(spike[layer].values.astype(float), 0)  # (seeds, points, neurons)
        parts = [np.sum(one**2, axis=(1, 2)) for one in ((neurons - neurons[:, ::-1]) / 2, neurons)]
        odd = parts[0] / np.maximum(parts[1], 1e-300)
        even = Claim(
            text=f"(a) neurons of the last block are symmetric: less than {_ODD:.0%} of their energy is odd, over "
            f"{_NEURONS} neurons",
            paper="(a) spike learning for ReLU(H) (symmetric, fixed RF)",
            measured=f"{median_range(odd)}, MSE {median_range(losses[SPIKE][:, -1])}",
            judged=near(odd, 0.0, _ODD) if learnt(spike).all() else undecided(_UNLEARNT),
        )
        fitted = Claim(
            text="all networks have learnt the target, so that their channels can be compared: the MSE has fallen to "
            "less than a hundredth of its value at the start",
            paper="not stated; in the authors' public table the training MSE on (144, 48) is 0.001 with frozen "
            "features and r = 20, 0.038 with r = 15, and 0.18 without frozen features",
            measured="; ".join(f"{name}: {median_range(one[:, -1])}" for name, one in losses.items())
            + f" from {np.median(losses[FROZEN][:, 0]):.2g}",
            judged=together(near(one[:, -1] / one[:, 0], 0.0, 0.01) for one in losses.values()),
        )
        return [*_compared(results), *_printed(results, False), even, fitted]


class Symmetric(_Symmetry):
    """Figure 9: channels and neurons with frozen features."""

    key = "aiad2026/fig9"
    title = "Figure 9: symmetric spikes with random features"
    frozen = True
    caption = (
        "A channel of layer 5 and neurons of layers 8 and 16 (3, 4 and 8 at quick scale), with frozen random "
        f"features, r = 15. {_SETTING}."
    )

    def claims(self, results: Results) -> list[Claim]:
        sizes, largest = [], []
        for name in (TRAINED, FROZEN):
            run = results[name]
            every = [run[f"spikes.sharpness.block-{block}"].values[:, -1] for block in range(1, blocks_of(run))]
            values = np.concatenate(every, axis=1)[learnt(run)]
            sizes.append(np.median(values, axis=1))
            largest.append(float(values.max(initial=0)))
        enough = min(len(one) for one in sizes) > 1
        sharper = Claim(
            text="at equal rank channels have bigger spikes with frozen features: the median over channels and hidden "
            "blocks of max f² / mean f² is larger, over the seeds that have learnt",
            paper="(symmetric) with bigger spikes",
            measured=f"{median_range(sizes[1])} (largest of a channel {largest[1]:.3g}) against "
            f"{median_range(sizes[0])} (largest {largest[0]:.3g})"
            if enough
            else _counts(results),
            judged=increases(*sizes, paired=False, log=True) if enough else undecided(_UNLEARNT),
        )
        return [*_compared(results), *_printed(results, True), sharper]


def learnt(run: xr.Dataset) -> np.ndarray:
    """Return which seeds have learnt anything: outputs of the others are nearly constant, hence even without spikes."""
    losses = run["train-loss"].values
    return losses[:, -1] < _NOTHING * losses[:, 0]


def _channel(run: xr.Dataset, layer: int) -> tuple[np.ndarray, str]:
    return run[f"channels.block-{block_of(layer)}"].values[0][:, 0], f"f_1, layer {layer}"


def _neuron(run: xr.Dataset, layer: int) -> tuple[np.ndarray, str]:
    """Return the neuron with the most energy, as some are never active, and its title."""
    every = np.maximum(run[f"layer-{layer}"].values[0], 0)
    index = int(np.argmax(np.sum(every**2, axis=0)))
    dead = "" if every.any() else f" (none of {every.shape[1]} is active)"
    return every[:, index], f"relu(H_{index + 1}), layer {layer}{dead}"


def _odd_shares(values: np.ndarray) -> np.ndarray:
    """Return the share of the energy of each function, (points, functions), that is odd, as `SymmetryDefect` does."""
    return np.asarray(odd_share(jnp.asarray(values)))


def shape_defects(run: xr.Dataset) -> np.ndarray:
    """Compute the share of the energy at the end, without means, that is odd, median over channels: (seeds, blocks)."""
    found = []
    for block in range(1, blocks_of(run)):
        channels = run[f"channels.block-{block}"].values.astype(float)
        varies = channels - channels.mean(axis=1, keepdims=True)
        found.append([np.median(_odd_shares(seed)) for seed in varies])
    return np.asarray(found).T


def defect_of(run: xr.Dataset) -> np.ndarray:
    """Compute one defect per seed: the median over hidden blocks except the first, which is a single layer of x."""
    return np.median(shape_defects(run)[:, 1:], axis=1)


def _counts(results: Results) -> str:
    """Write in how many seeds each kind has learnt, and in how many of these it is symmetric."""
    parts = []
    for name in (FROZEN, TRAINED):
        ready = learnt(results[name])
        even = int(np.sum(defect_of(results[name])[ready] < _ODD))
        parts.append(f"{name}: {int(ready.sum())} of {plural(ready.size)} have learnt, {even} of these are symmetric")
    return "; ".join(parts)


def _compared(results: Results) -> list[Claim]:
    """Compare seeds with frozen features and without, among those that have learnt anything."""
    worst, usual = (
        [of(results[name])[learnt(results[name])] for name in (FROZEN, TRAINED)]
        for of in (lambda run: np.max(shape_defects(run)[:, 1:], axis=1), defect_of)
    )
    fewest, counts = min(len(one) for one in usual), _counts(results)
    of_worst, of_usual = (
        f"{median_range(one)} against {median_range(other)}; " if fewest > 1 else "" for one, other in (worst, usual)
    )
    strict = Claim(
        text=f"with frozen features channels are symmetric in every hidden block from the second on (less than "
        f"{_ODD:.0%} of the energy without the mean is odd, median over channels) in every seed that has learnt, and "
        "without frozen features in none",
        paper="RF-LR maintains symmetry; asymmetry when RF is removed",
        measured=(f"largest share of any block: {of_worst}" if of_worst else "") + counts,
        judged=together([near(worst[0] < _ODD, 1.0, 0.0), near(worst[1] >= _ODD, 1.0, 0.0)])
        if fewest >= _UNANIMOUS
        else undecided(_UNLEARNT),
    )
    weaker = replace(
        strict,
        text="at equal rank the symmetry defect (median over channels and hidden blocks from the second on) is smaller "
        "with frozen features than without, over the seeds that have learnt",
        measured=of_usual + counts,
        judged=increases(*usual, paired=False, log=True) if fewest > 1 else undecided(_UNLEARNT),
        weaker=True,
    )
    return [strict, weaker]


def _printed(results: Results, frozen: bool) -> list[Claim]:
    """Judge the printed setting, where it was run."""
    if PRINTED[frozen] not in results:
        return []
    run = results[PRINTED[frozen]]
    defect, loss = defect_of(run), run["train-loss"].values[:, -1]
    epoch = np.atleast_1d(run.attrs["steps"]) / setting.epoch_of(option(run, "data.n"), option(run, "flow.batch"))
    even, which = ("", "symmetric") if frozen else ("not ", "asymmetric")
    judged = near((defect < _ODD) == frozen, 1.0, 0.0)
    if defect.size < _ENOUGH:
        why = f"fewer than {_ENOUGH} seeds, and networks are symmetric or not by chance"
        judged = replace(judged, outcome=Outcome.UNDECIDED, test=why)
    claim = Claim(
        text=f"in the printed setting, {spelled(target_of(run))}, channels are {which}: {even}less than {_ODD:.0%} of "
        "their energy without the mean is odd, median over channels and hidden blocks from the second on",
        paper="RF-LR maintains symmetry" if frozen else "asymmetry when RF is removed",
        measured=f"{median_range(defect)}, MSE {median_range(loss)} after {median_range(epoch, 5)} epochs",
        judged=judged if learnt(run).all() else undecided(_UNLEARNT),
    )
    return [claim]
