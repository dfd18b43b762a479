"""Figures 8 and 9: channels for an even target, without frozen random features and with them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np
import xarray as xr

from unlazy.figures import canvas
from unlazy.lab import Recipe
from unlazy.papers._base import Axes, Claim, Figure, Panel, Results, Scale, by_scale, option
from unlazy.papers._curves import even_steps, label_axes, median_range, plural
from unlazy.papers.aiad2026 import _shared as shared
from unlazy.papers.aiad2026._shared import adam, epoch_of, epochs_of, low_rank, target_of, times_of
from unlazy.papers.aiad2026.probes import odd_share

# Table 2 says 10,000. As the rate falls, 99.5 % of their clock is over after 5,000. Less will not do: nothing is learnt
# before the rate is small, after some 2,000 epochs; so it is in the losses that the authors published.
EPOCHS = 5_000


@dataclass(frozen=True)
class _Sizes:
    blocks: int
    width: int
    rank: int  # of both, for the comparison
    printed: int | None  # rank of Table 2 with frozen features
    pair: tuple[float, float]
    n: int
    n_test: int
    batch: int
    epochs: int
    every: int  # epochs to a decay of the rate
    maps: tuple[int, int, int, int]  # layers shown, as the figures count them: two of channels, two of neurons
    seeds: int


_SCALES: dict[Scale, _Sizes] = {
    "quick": _Sizes(5, 256, 15, None, (6.0, 2.0), 160, 200, 16, 600, 12, (3, 5, 4, 8), 4),
    "paper": _Sizes(9, 1024, 20, 15, (144.0, 48.0), 4000, 4936, 100, EPOCHS, 100, (5, 7, 8, 16), 2),
}
_NEURONS = 16  # of a layer of neurons the first so many are looked at, and the one of most energy is shown
_LOOKS = 11
_NOTHING = 0.9  # of the MSE at the start: a network that still has it has learnt nothing

FROZEN, TRAINED, PRINTED = "frozen features", "no frozen features", "frozen features, r of Table 2"


def block_of(layer: int) -> int:
    """Block of the figures' layer: its linear maps are counted from 0, into neurons (even) and out of them (odd)."""
    return layer // 2 + 1


def recipe(scale: Scale, name: str, seeds: int | None) -> Recipe:
    """One of the networks; figures 8 and 9 share their runs."""
    s = _SCALES[scale]
    rank = s.printed if name == PRINTED and s.printed else s.rank
    flow, epoch = adam(s.n, s.batch, s.every), epoch_of(s.n, s.batch)
    return Recipe(
        name=f"aiad2026 symmetry {name}",
        data={"kind": "chirp", "n": s.n, "f1": s.pair[0], "f2": s.pair[1], "n_test": s.n_test},
        network=low_rank(s.blocks, s.width, rank, frozen=name != TRAINED, normal=True),
        flow=flow,
        times=times_of(flow, [epoch * one for one in even_steps(s.epochs, _LOOKS)]),
        probes=[
            "train-loss",
            "test-loss",
            "symmetry-defect",
            "spikes",
            {"kind": "channels", "when": "end", "count": shared.LINE.size},
            *(
                {
                    "kind": "preactivations",
                    "as": f"layer-{layer}",
                    "when": "end",
                    "block": block_of(layer),
                    "neurons": _NEURONS,
                    "count": shared.LINE.size,
                }
                for layer in s.maps[2:]
            ),
        ],
        seeds=seeds or s.seeds,
        dtype="float32",
    )


_SETTING = (
    "Low rank on cos(f_1 πx²) - 0.8 cos(f_2 πx²), which is even, by Adam with batches, the rate 1e-3 falling by 0.9 "
    "every 100 epochs (12 at quick scale) and gradients clipped to norm 1. Table 2 has 10,000 "
    "epochs, paper scale here 5,000: 99.5 % of the sum of all rates. What the paper leaves open is as in the authors' "
    "public code: the start, ReLU (so say the captions; Table 4 says leaky), nine blocks for eight layers of channels, "
    "and layers counted by linear maps from 0, so that layer 16 is what leads into the last neurons. Its width of 777 "
    "is not: the paper prints 1024. Dotted: mirror images. The seed shown is the first"
)


class _Symmetry(Panel):
    """What figures 8 and 9 share: their runs and what is claimed of them."""

    shown: str
    scales = by_scale(
        _SCALES,
        lambda s: (
            f"{s.blocks} blocks, width {s.width}, r = {s.rank}{f' and {s.printed}' if s.printed else ''}, "
            f"({s.pair[0]:g}, {s.pair[1]:g}), n = {s.n:,}, {s.epochs:,} epochs, {plural(s.seeds)}"
        ),
    )

    def recipes(self, scale: Scale, seeds: int | None = None) -> dict[str, Recipe]:
        """Both at equal rank and, at paper scale, frozen features at the printed rank too."""
        names = (FROZEN, TRAINED, PRINTED) if _SCALES[scale].printed else (FROZEN, TRAINED)
        return {name: recipe(scale, name, seeds) for name in names}

    def draw(self, results: Results) -> Figure:
        """Three functions and their mirror images, and the defect by block."""
        run = results[PRINTED] if self.shown == FROZEN and PRINTED in results else results[self.shown]
        early, late, middle, last = _maps(run)
        figure, axes = canvas(4, 15.0, 3.4)
        second = _channel(run, late) if self.shown == TRAINED else _neuron(run, middle)
        pictures = [_channel(run, early), second, _neuron(run, last)]
        for axis, (values, title) in zip(axes[:3], pictures, strict=True):
            shared.mirrored(axis, values, 1 if self.shown == FROZEN else 2, title)
            defect, shape = _odd_shares(np.stack([values, values - values.mean()], axis=1))
            told = f"{title}\ndefect {defect:.2g}, of what varies {shape:.2g}"
            label_axes(axis, "x", told)
        _by_block(axes[3], results, blocks_of(run))
        pair = target_of(run)
        figure.suptitle(f"aiad2026, ({pair[0]:g}, {pair[1]:g}), {self.shown}", fontsize=10)
        return figure


class Asymmetric(_Symmetry):
    """Figure 8: what channels look like without frozen features."""

    key = "aiad2026/fig8"
    title = "Figure 8: asymmetry without random features"
    shown = TRAINED
    caption = (
        "Channels of layers 5 and 7 and a neuron of layer 16 (3, 5 and 8 at quick scale), where all is trained. "
        "Right: symmetry defect (share of energy in the odd part) by block, median over channels, "
        f"a dot a seed; above the curves also that of what varies, their means taken off. {_SETTING}."
    )

    def claims(self, results: Results) -> list[Claim]:
        """Defects at equal rank."""
        return [_more_even(results), _evener_shapes(results), _fitted(results)]


class Symmetric(_Symmetry):
    """Figure 9: what they look like with frozen features."""

    key = "aiad2026/fig9"
    title = "Figure 9: symmetric spikes with random features"
    shown = FROZEN
    caption = (
        "A channel of layer 5 and neurons of layers 8 and 16 (3, 4 and 8 at quick scale), with frozen random "
        "features. Right: symmetry defect (share of energy in the odd part) by block, median over channels, "
        f"a dot a seed; above the curves also that of what varies, their means taken off. {_SETTING}."
    )

    def claims(self, results: Results) -> list[Claim]:
        """Defects at equal rank, and spikes."""
        return [_more_even(results), _evener_shapes(results), _sharper(results)]


def blocks_of(run: xr.Dataset) -> list[int]:
    """All blocks but the last, whose channels are hidden ones."""
    return list(range(1, len(option(run, "network.widths"))))


def _maps(run: xr.Dataset) -> tuple[int, int, int, int]:
    blocks = len(option(run, "network.widths"))
    return next(one.maps for one in _SCALES.values() if one.blocks == blocks)


def _channel(run: xr.Dataset, layer: int) -> tuple[np.ndarray, str]:
    return run[f"channels.block-{block_of(layer)}"].values[0][:, 0], f"f_1, layer {layer}"


def _neuron(run: xr.Dataset, layer: int) -> tuple[np.ndarray, str]:
    """The neuron of most energy: some are never on."""
    every = np.maximum(run[f"layer-{layer}"].values[0], 0)
    index = int(np.argmax(np.sum(every**2, axis=0)))
    on = "" if every.any() else f" (none of {every.shape[1]} is on)"
    return every[:, index], f"relu(H_{index + 1}), layer {layer}{on}"


def _odd_shares(values: np.ndarray) -> np.ndarray:
    """The probe's measure, of functions given on the line: (points, functions)."""
    return np.asarray(odd_share(jnp.asarray(values)))


def defects(run: xr.Dataset, look: int = -1) -> np.ndarray:
    """Median over channels of the odd part's share: (seeds, hidden blocks)."""
    return np.stack(
        [np.median(run[f"symmetry-defect.block-{block}"].values[:, look], axis=1) for block in blocks_of(run)], axis=1
    )


def shape_defects(run: xr.Dataset) -> np.ndarray:
    """The same at the end, each channel's mean over the line taken off: of what varies."""
    found = []
    for block in blocks_of(run):
        channels = run[f"channels.block-{block}"].values.astype(float)
        varies = channels - channels.mean(axis=1, keepdims=True)
        found.append([np.median(_odd_shares(seed)) for seed in varies])
    return np.asarray(found).T


def _by_block(axes: Axes, results: Results, blocks: list[int]) -> None:
    for index, (name, run) in enumerate(results.items()):
        found = defects(run)
        shared.curve(axes, np.asarray(blocks), np.median(found, axis=0), index, name, marker="o", markersize=4)
        for seed in found:
            shared.curve(axes, np.asarray(blocks), seed, index, linestyle="none", marker=".", markersize=3, alpha=0.6)
    label_axes(axes, "block", "symmetry defect at the end", legend=7, yscale="log", xticks=blocks)


def _more_even(results: Results) -> Claim:
    text = (
        "at equal rank the symmetry defect of channels (energy of the odd part over all) is smaller with frozen "
        "random features than without: medians over channels and seeds, geometric mean over hidden blocks"
    )
    start = np.median(defects(results[FROZEN], 0), axis=0)
    return _smaller(results, defects, text, [f" (from {one:.2g})" for one in start])


def _evener_shapes(results: Results) -> Claim:
    text = (
        "so is the defect of what varies, which is what a figure of curves shows: the odd part's share of the "
        "energy once each channel's mean is taken off"
    )
    return _smaller(results, shape_defects, text, [""] * len(blocks_of(results[FROZEN])))


def _smaller(results: Results, of: Callable[[xr.Dataset], np.ndarray], text: str, more: list[str]) -> Claim:
    """Claim that defects (seeds, blocks) are smaller with frozen features."""
    frozen, free = of(results[FROZEN]), of(results[TRAINED])
    return Claim(
        text=text,
        paper="RF-LR maintains symmetry; asymmetry when RF is removed",
        measured=_compared(frozen, free, more) + _idle(results),
        holds=bool(_middle(np.median(frozen, axis=0)) < _middle(np.median(free, axis=0))),
    )


def _compared(frozen: np.ndarray, free: np.ndarray, more: list[str]) -> str:
    """Say how defects (seeds, blocks) of both compare."""
    left, right = np.median(frozen, axis=0), np.median(free, axis=0)
    seeds = [_middle(one) < _middle(other) for one, other in zip(frozen, free, strict=True)]
    each = "; ".join(
        f"block {block}: {one:.2g} against {other:.2g}{told}"
        for block, (one, other, told) in enumerate(zip(left, right, more, strict=True), start=1)
    )
    return (
        f"{_middle(left):.3g} against {_middle(right):.3g}; smaller in {int(np.sum(left < right))} of {left.size} "
        f"blocks and {sum(seeds)} of {plural(len(seeds))}; {each}"
    )


def _idle(results: Results) -> str:
    """Name networks that have learnt nothing: they are nearly constant, and constants are even and have no spikes."""
    ends = {name: np.median(results[name]["train-loss"].values[:, [0, -1]], axis=0) for name in (FROZEN, TRAINED)}
    found = [f"{name} (MSE {end:.3g})" for name, (start, end) in ends.items() if end > _NOTHING * start]
    return f"; learnt nothing, and nearly constant (which is even, without spikes): {', '.join(found)}" if found else ""


def _middle(values: np.ndarray) -> float:
    """Geometric mean: defects of blocks differ by orders of magnitude."""
    return float(np.exp(np.mean(np.log(np.maximum(values, 1e-12)))))


def _sharper(results: Results) -> Claim:
    def seen(name: str) -> np.ndarray:
        run = results[name]
        return np.concatenate([run[f"spikes.sharpness.block-{b}"].values[:, -1].ravel() for b in blocks_of(run)])

    frozen, free = seen(FROZEN), seen(TRAINED)
    return Claim(
        text="at equal rank channels have bigger spikes with frozen features: the median over channels, hidden blocks "
        "and seeds of max f² / mean f² is larger",
        paper="(symmetric) with bigger spikes",
        measured=f"{np.median(frozen):.3g} (largest {frozen.max():.3g}) against {np.median(free):.3g} (largest "
        f"{free.max():.3g})" + _idle(results),
        holds=bool(np.median(frozen) > np.median(free)),
    )


def _fitted(results: Results) -> Claim:
    losses = {name: run["train-loss"].values[:, -1] for name, run in results.items()}
    start = float(np.median(results[FROZEN]["train-loss"].values[:, 0]))
    return Claim(
        text="all networks have learnt the target, so that their channels can be compared: the MSE fell to below a "
        "hundredth of its start (medians over seeds)",
        paper="not said; in the authors' public table the training MSE on (144, 48) is 0.001 with frozen features of "
        "r = 20, 0.038 of r = 15, and 0.18 without",
        measured="; ".join(f"{name}: {median_range(loss)}" for name, loss in losses.items())
        + f" from {start:.2g}, after {epochs_of(results[FROZEN])[-1]:,.0f} epochs",
        holds=all(bool(np.median(loss) < 0.01 * start) for loss in losses.values()),
    )
