"""Figure 2: low rank against full rank at equal steps, and plain SGD against momentum."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr

from unlazy.figures import band, canvas
from unlazy.lab import Recipe
from unlazy.papers._base import Claim, Figure, Panel, Results, Scale, by_scale, option
from unlazy.papers._curves import even_steps, label_axes, median_range, plural
from unlazy.papers.aiad2026._shared import epoch_of, epochs_of, full_rank, low_rank, times_of, trained


@dataclass(frozen=True)
class _Sizes:
    width: int
    n: int
    epochs: int
    seeds: int


_SCALES: dict[Scale, _Sizes] = {"quick": _Sizes(512, 1000, 40, 2), "paper": _Sizes(1024, 5000, 60, 2)}
_RANK, _BATCH, _RATE = 10, 4, 0.01
_MOMENTA = (0.0, 0.3, 0.6, 0.7)
_HALVINGS = 4  # red bars, evenly spaced: the paper does not say where its own are
_LOOKS = 31
_FEW = {512: 0.025, 1024: 0.011}  # share of the parameters: "99% fewer" at width 1024
_TWICE = 2.0

FULL = "full rank"


def label(momentum: float) -> str:
    """Name a low-rank run."""
    return f"low rank, momentum {momentum:g}" if momentum else "low rank, plain SGD"


def recipe(scale: Scale, momentum: float | None, seeds: int | None) -> Recipe:
    """One run; no momentum at all is full rank with plain SGD."""
    s = _SCALES[scale]
    steps = s.epochs * epoch_of(s.n, _BATCH)
    flow: dict[str, Any] = {
        "kind": "descent",
        "rate": _RATE,
        "batch": _BATCH,
        "schedule": {"kind": "step-decay", "factor": 0.5, "every": steps // (_HALVINGS + 1)},
        "loss": "squared",  # half the MSE: along the MSE itself even plain SGD of this rate diverges at width 1024
    }
    if momentum:
        flow["optimiser"] = {"kind": "momentum", "decay": momentum}
    network = full_rank(2, s.width) if momentum is None else low_rank(2, s.width, _RANK)
    return Recipe(
        name=f"aiad2026 fig2 {FULL if momentum is None else label(momentum)}",
        data={"kind": "cosine", "n": s.n, "frequency": 2.0},
        network=network,
        flow=flow,
        times=times_of(flow, even_steps(steps, _LOOKS)),
        probes=["train-loss"],
        seeds=seeds or s.seeds,
        dtype="float32",
    )


class LowAgainstFull(Panel):
    """Figure 2: training loss of low rank under four momenta, and of full rank."""

    key = "aiad2026/fig2"
    title = "Figure 2: low rank against full rank, and momenta"
    may_diverge = True
    scales = by_scale(_SCALES, lambda s: f"width {s.width}, n = {s.n:,}, {s.epochs} epochs, {plural(s.seeds)}")
    caption = (
        f"Mean squared error on y = cos(2πx) along SGD on half of it, with batches of {_BATCH} and rate {_RATE:g} "
        "(without the half plain SGD diverges at the paper's width): three layers "
        f"with frozen random features and rank {_RANK} under four momenta (v ← ηv + g), and three dense layers "
        f"trained in full. Red bars: where the rate is halved, in all runs; the paper shows {_HALVINGS} or so "
        "without saying where, nor for how long it trained. A seed that diverges counts as an infinite loss. All "
        "start uniform in ±1/√fan-in. Thick lines are medians over seeds."
    )

    def recipes(self, scale: Scale, seeds: int | None = None) -> dict[str, Recipe]:
        """All momenta, then full rank."""
        found = {label(momentum): recipe(scale, momentum, seeds) for momentum in _MOMENTA}
        return found | {FULL: recipe(scale, None, seeds)}

    def claims(self, results: Results) -> list[Claim]:
        """Few parameters are enough, and momentum does not help; a run that diverges is an answer too."""
        return [_enough(results), _plain_is_best(results)]

    def draw(self, results: Results) -> Figure:
        """All losses in one axes."""
        figure, (axes,) = canvas(1, 6.8, 4.2)
        for index, (name, run) in enumerate(results.items()):
            band(axes, epochs_of(run), _shown(run), index, name + _diverged_in_words(run))
        some = next(iter(results.values()))
        flow, epoch = option(some, "flow"), epoch_of(option(some, "data.n"), _BATCH)
        for bar in range(1, _HALVINGS + 1):
            axes.axvline(bar * flow["schedule"]["every"] / epoch, color="#C1121F", linewidth=1.0, alpha=0.6)
        axes.set_yscale("log")
        axes.set_ylim(top=3 * float(_errors(some)[:, 0].max()))  # what diverges leaves the figure
        label_axes(axes, "epoch", f"aiad2026, cos(2πx), width {option(some, 'network.widths.0')}: MSE", legend=8)
        return figure


def _diverged(run: xr.Dataset) -> np.ndarray:
    """Which seeds did."""
    return np.atleast_1d(np.asarray(run.attrs["status"])) == "diverged"


def _errors(run: xr.Dataset) -> np.ndarray:
    """MSE, which is twice the loss: (seeds, looks)."""
    return 2 * run["train-loss"].values


def _end(run: xr.Dataset) -> np.ndarray:
    """Loss at the end, infinite where it diverged."""
    return np.where(_diverged(run), np.inf, _errors(run)[:, -1])


def _shown(run: xr.Dataset) -> np.ndarray:
    """Losses as they can be drawn: a seed that diverges leaves the figure, but not the median of the others."""
    losses = _errors(run)
    kept = losses[~_diverged(run)]
    return kept if len(kept) else np.where(np.isfinite(losses), losses, np.nan)


def _diverged_in_words(run: xr.Dataset) -> str:
    lost = int(_diverged(run).sum())
    return f" ({lost} of {plural(len(_diverged(run)))} diverged)" if lost else ""


def _enough(results: Results) -> Claim:
    low, full = results[label(0.0)], results[FULL]
    counts = [trained(option(run, "network")) for run in (low, full)]
    share = counts[0] / counts[1]
    few = _FEW.get(option(low, "network.widths.0"), 0.05)
    ratio = np.median(_end(low)) / np.median(_end(full))
    way = ""
    if not (_diverged(low).any() or _diverged(full).any()):
        later = epochs_of(low) >= 1
        along = (np.median(_errors(low), axis=0) / np.median(_errors(full), axis=0))[later]
        way = f"; from the first epoch on between {along.min():.2g} and {along.max():.2g} times"
    return Claim(
        text=f"with at most {few:.1%} of the parameters, low rank ends at no more than twice the loss of full rank "
        "after as many steps (medians over seeds)",
        paper="comparable or better training loss with 99% fewer parameters",
        measured=f"{counts[0]:,} against {counts[1]:,} parameters ({share:.2%}); MSE {median_range(_end(low))} against "
        f"{median_range(_end(full))}: {ratio:.2g} times{way}",
        holds=bool(share <= few and ratio <= _TWICE),
    )


def _plain_is_best(results: Results) -> Claim:
    ends = {momentum: float(np.median(_end(results[label(momentum)]))) for momentum in _MOMENTA}
    return Claim(
        text="low rank: plain SGD ends at a lower loss than SGD with any of the momenta (medians over seeds)",
        paper="vanilla SGD performs best",
        measured=", ".join(
            f"η = {momentum:g}: {loss:.3g}{_diverged_in_words(results[label(momentum)])}"
            for momentum, loss in ends.items()
        ),
        holds=all(ends[0.0] < loss for momentum, loss in ends.items() if momentum),
    )
