"""Figure 7: a highly oscillating target, learnt at low rank and in full."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr

from unlazy.figures import ORDERED, band, canvas
from unlazy.lab import Recipe
from unlazy.papers._base import Claim, Figure, Panel, Results, Scale, by_scale, option
from unlazy.papers._curves import label_axes, log_steps, median_range, plural
from unlazy.papers.aiad2026 import _shared as shared
from unlazy.papers.aiad2026._shared import adam, epoch_of, epochs_of, full_rank, low_rank, target_of, times_of, trained

Pair = tuple[float, float]
LONG = 10_000  # epochs of "all runs" in Table 4; Table 2 has 1,000 for this figure


@dataclass(frozen=True)
class _Sizes:
    width: int
    rank: int
    pair: Pair  # (f_1, f_2)
    n: int
    n_test: int
    batch: int
    epochs: int
    every: int  # epochs to a decay of the rate
    seeds: int
    band: float  # what the MSE must get below
    long: int | None = None  # epochs of Table 4, where Table 2 has fewer
    harder: tuple[Pair, int, int] | None = None  # another target for these, its n and its n_test


_SCALES: dict[Scale, _Sizes] = {
    "quick": _Sizes(256, 30, (6.0, 2.0), 160, 200, 16, 600, 12, 2, 1e-3),
    "paper": _Sizes(1024, 50, (36.0, 12.0), 1000, 1234, 100, 1000, 100, 2, 1e-4, LONG, ((72.0, 24.0), 2000, 2468)),
}
_BLOCKS = 4
_FLOOR = 1e-8  # the lower end of the paper's band
_FREQUENCIES = 60

FROZEN, TRAINED, FULL, LONGER = "RF-LR", "LR only", "full rank", "RF-LR, long"


def _network(s: _Sizes, name: str) -> dict[str, Any]:
    if name == FULL:
        return full_rank(_BLOCKS, s.width)
    return low_rank(_BLOCKS, s.width, s.rank, frozen=name == FROZEN)


def recipe(scale: Scale, name: str, seeds: int | None, harder: bool = False, long: bool = False) -> Recipe:
    """One network on one target, for as many epochs as Table 2 says or for the long time of Table 4."""
    s = _SCALES[scale]
    epochs = s.long if long and s.long else s.epochs
    (f1, f2), n, n_test = s.harder if harder and s.harder else (s.pair, s.n, s.n_test)
    flow, epoch = adam(n, s.batch, s.every), epoch_of(n, s.batch)
    return Recipe(
        name=f"aiad2026 chirp ({f1:g}, {f2:g}) {name}{' long' if long else ''}",
        data={"kind": "chirp", "n": n, "f1": f1, "f2": f2, "n_test": n_test},
        network=_network(s, name),
        flow=flow,
        times=times_of(flow, [epoch * one for one in log_steps(epochs, 21, first=5)]),
        probes=[
            "train-loss",
            "test-loss",
            {"kind": "channel-spectrum", "frequencies": _FREQUENCIES},
            {"kind": "channels", "when": "end", "count": shared.LINE.size},
        ],
        seeds=seeds or s.seeds,
        dtype="float32",
    )


def _label(name: str, pair: Pair) -> str:
    return f"{name} ({pair[0]:g}, {pair[1]:g})"


def target(pair: Pair, x: np.ndarray) -> np.ndarray:
    """cos(f_1 π x²) - 0.8 cos(f_2 π x²)."""
    return np.cos(pair[0] * np.pi * x**2) - 0.8 * np.cos(pair[1] * np.pi * x**2)


class Prediction(Panel):
    """Figure 7: prediction against target, errors over training, and frequencies."""

    key = "aiad2026/fig7"
    title = "Figure 7: predictions of a highly oscillating target"
    scales = by_scale(
        _SCALES,
        lambda s: (
            f"width {s.width}, r = {s.rank}, ({s.pair[0]:g}, {s.pair[1]:g}), n = {s.n:,}, {s.epochs:,} epochs, "
            f"{plural(s.seeds)}"
            + (f", and {s.long:,} epochs of RF-LR" if s.long else "")
            + (f", also on ({s.harder[0][0]:g}, {s.harder[0][1]:g})" if s.harder else "")
        ),
    )
    caption = (
        "Four layers on cos(f_1 πx²) - 0.8 cos(f_2 πx²), by Adam with batches, the rate 1e-3 falling by 0.9 every "
        "100 epochs (12 at quick scale) and gradients clipped to norm 1 (Table 4). "
        "Left: what low rank predicts at the end. Then errors over training, on the test set. The caption says "
        "RF-LR (frozen features) and Table 2 that they are trained: both are run for the 1,000 epochs of Table 2, "
        "beside usual dense layers. Right: amplitude of cos(πqx) in the output of RF-LR over training, as a share "
        "of that in the target, by frequency q: low ones come first. Thick lines are medians over seeds."
    )

    def recipes(self, scale: Scale, seeds: int | None = None) -> dict[str, Recipe]:
        """All three, and frozen features for long and on the harder target where that is asked for."""
        s = _SCALES[scale]
        found = {_label(name, s.pair): recipe(scale, name, seeds) for name in (FROZEN, TRAINED, FULL)}
        if s.long:
            found[_label(LONGER, s.pair)] = recipe(scale, FROZEN, seeds, long=True)
        if s.harder:
            found[_label(FROZEN, s.harder[0])] = recipe(scale, FROZEN, seeds, harder=True)
        return found

    def claims(self, results: Results) -> list[Claim]:
        """The band of errors, low rank against full rank, and low frequencies first."""
        groups = _groups(results)
        found = []
        for pair, runs in groups.items():
            found += [_in_band(run, name, pair) for name, run in runs.items() if name != FULL]
        main = next(iter(groups.values()))
        return [*found, _better(main), _low_first(main[FROZEN])]

    def draw(self, results: Results) -> Figure:
        """Prediction, errors, frequencies."""
        groups = _groups(results)
        pair, main = next(iter(groups.items()))
        figure, axes = canvas(3, 14.0, 3.8)
        axes[0].plot(shared.LINE, target(pair, shared.LINE), color=ORDERED[0], linewidth=1.6, label="target")
        for index, name in ((1, FROZEN), (2, TRAINED)):
            shown = main[name]["channels.block-4"].values[0, :, 0]
            shared.curve(axes[0], shared.LINE, shown, index, name, linestyle="--")
        axes[0].legend(fontsize=7, loc="upper right")
        label_axes(axes[0], "x", f"({pair[0]:g}, {pair[1]:g}): target and predictions")
        index = 0
        for other, runs in groups.items():
            for name, run in runs.items():
                band(axes[1], epochs_of(run)[1:], run["test-loss"].values[:, 1:], index, _label(name, other))
                index += 1
        axes[1].axhspan(_FLOOR, 1e-4, color="0.5", alpha=0.12)
        label_axes(axes[1], "epoch", "test MSE (grey: the paper's band)", legend=7, xscale="log", yscale="log")
        run = main[FROZEN]
        share = _shares(run)[0]
        shown = sorted({int(q) for q in np.linspace(2, share.shape[1] - 1, 6).round()})
        for place, q in enumerate(shown):
            shared.curve(axes[2], epochs_of(run)[1:], share[1:, q], place, f"q = {q}")
        label_axes(axes[2], "epoch", "share of cos(πqx) learnt, RF-LR", legend=7, xscale="log", ylim=(0, 1.6))
        return figure


def _groups(results: Results) -> dict[Pair, dict[str, xr.Dataset]]:
    """Runs by target, the figure's own first, and by network."""
    names = (FROZEN, TRAINED, FULL, LONGER)
    return {
        pair: {name: results[_label(name, pair)] for name in names if _label(name, pair) in results}
        for pair in dict.fromkeys(map(target_of, results.values()))
    }


def _amplitudes(values: np.ndarray) -> np.ndarray:
    """a_q of a function on the line, as `ChannelSpectrum` has it."""
    weight = np.ones(shared.LINE.size)
    weight[[0, -1]] = 0.5
    order = np.arange(_FREQUENCIES + 1)[:, None]
    waves = np.cos(np.pi * order * shared.LINE[None])
    return np.abs(np.where(order[:, 0] > 0, 2.0, 1.0) * (waves @ (weight * values)) / weight.sum())


def _top(pair: Pair) -> int:
    """The frequencies of the chirp go up to its slope at 1, 2 f_1."""
    return min(_FREQUENCIES, round(2 * pair[0]))


def _shares(run: xr.Dataset) -> np.ndarray:
    """Amplitude in the output over that in the target: (seeds, looks, frequencies)."""
    pair = target_of(run)
    wanted = _amplitudes(target(pair, shared.LINE))[: _top(pair) + 1]
    return run["channel-spectrum.block-4"].values[:, :, : _top(pair) + 1, 0] / np.maximum(wanted, 1e-3)


def _in_band(run: xr.Dataset, name: str, pair: Pair) -> Claim:
    train, test = run["train-loss"].values[:, -1], run["test-loss"].values[:, -1]
    size = next((one for one in _SCALES.values() if one.pair == pair), _SCALES["paper"])
    return Claim(
        text=f"{name} on ({pair[0]:g}, {pair[1]:g}): the training MSE at the end is below {size.band:g} (median over "
        "seeds)",
        paper="RF-LR MSEs are within 1e-8 to ~1e-4",
        measured=f"training {median_range(train)}, test {median_range(test)}, after {epochs_of(run)[-1]:,.0f} epochs "
        f"with {trained(option(run, 'network')):,} trained parameters",
        holds=bool(np.median(train) <= size.band),
    )


def _better(runs: dict[str, xr.Dataset]) -> Claim:
    ends = {name: runs[name]["test-loss"].values[:, -1] for name in (FROZEN, TRAINED, FULL)}
    counts = {name: trained(option(runs[name], "network")) for name in ends}
    best = min(float(np.median(ends[name])) for name in (FROZEN, TRAINED))
    return Claim(
        text="low rank (frozen or not) ends at a lower test MSE than full rank after as many epochs (medians over "
        "seeds)",
        paper="MSE ~ 1e-6, compared to approximately 1e-5 for full rank networks, with 95%-99% fewer parameters",
        measured="; ".join(
            f"{name}: {median_range(end)} with {counts[name] / counts[FULL]:.1%} of the parameters"
            for name, end in ends.items()
        ),
        holds=bool(best < np.median(ends[FULL])),
    )


def _low_first(run: xr.Dataset) -> Claim:
    shares = np.median(_shares(run), axis=0)
    top = shares.shape[1] - 1
    pair = target_of(run)
    wanted = _amplitudes(target(pair, shared.LINE))[: top + 1]
    clear = np.flatnonzero(wanted > 0.3 * wanted.max())
    low, high = clear[clear <= np.median(clear)], clear[clear > np.median(clear)]
    epochs = epochs_of(run)

    def learnt(which: np.ndarray) -> float:
        """The first look at which half of the energy at these frequencies is there."""
        there = np.sqrt(np.mean((shares[:, which] * wanted[which]) ** 2, axis=1) / np.mean(wanted[which] ** 2))
        done = np.flatnonzero(there >= 0.5**0.5)
        return float(epochs[done[0]]) if done.size else np.inf

    first, last = learnt(low), learnt(high)
    return Claim(
        text="RF-LR learns the lower half of the target's frequencies before the upper half (half of their energy), "
        "and both",
        paper="lower frequencies are captured first, higher ones progressively",
        measured=f"q = {low[0]} to {low[-1]} by epoch {first:.0f}, q = {high[0]} to {high[-1]} by epoch {last:.0f}",
        holds=first < last < np.inf,
    )
