"""The frequency benchmark: rank, frozen features and frequency, beside the numbers that the authors published.

Their table is experiments/table/FREQUENCY_BENCHMARK_TABLES_WITH_FULLRANK.md in github.com/janisaiad/MMNN: nine blocks
of width 777, one seed, 10,000 epochs or until the loss is below 5e-4.
"""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import xarray as xr

from unlazy.figures import DASHES, ORDERED
from unlazy.lab import Recipe
from unlazy.papers._base import Claim, Figure, Panel, Results, Scale, option
from unlazy.papers._curves import label_axes, log_steps, median_range, plural, titled_canvas
from unlazy.papers.aiad2026.setting import Pair, Setting, adam, epochs_of, low_rank, spelled, target_of
from unlazy.papers.outcomes import increases, near, together

_QUICK = Setting(
    blocks=5, width=128, pair=(3.0, 1.0), n=80, n_test=100, batch=16, epochs=300, every=6, seeds=2, observed=12
)
_PAPER = Setting(blocks=9, width=777, n=1000, n_test=1234, batch=100, epochs=3000, seeds=1)
_RANKS: dict[Scale, tuple[int, ...]] = {"quick": (5, 20), "paper": (10, 20, 50, 100)}
_STOP, _STOP_AFTER = 5e-4, 3  # as for figures 8 and 9

# Test errors by (f_1, f_2), rank and whether features are frozen.
PUBLISHED: dict[Pair, dict[tuple[int, bool], float]] = {
    (36.0, 12.0): {
        (10, False): 3.02e-3,
        (10, True): 1.41e-3,
        (20, False): 2.19e-3,
        (20, True): 1.48e-3,
        (50, False): 2.40e-3,
        (50, True): 1.18e-3,
        (100, False): 1.75e-2,
        (100, True): 1.41e-3,
    },
    (72.0, 24.0): {
        (10, False): 2.81e-2,
        (10, True): 8.93e-4,
        (20, False): 5.65e-4,
        (20, True): 1.78e-3,
        (50, False): 1.18e-3,
        (50, True): 1.87e-3,
        (100, False): 0.781,
        (100, True): 3.40e-5,
    },
}


def _pairs(scale: Scale) -> list[Setting]:
    """Return the setting at a pair of frequencies, and at twice these with twice as many samples."""
    s = _QUICK if scale == "quick" else _PAPER
    return [s, replace(s, pair=(2 * s.pair[0], 2 * s.pair[1]), n=2 * s.n, n_test=2 * s.n_test)]


def _in_words(scale: Scale) -> str:
    s, ranks = _pairs(scale), _RANKS[scale]
    return (
        f"{s[0].blocks} blocks, width {s[0].width}, r = {', '.join(map(str, ranks))}, {spelled(s[0].pair)} and "
        f"{spelled(s[1].pair)}, {s[0].epochs:,} epochs, {plural(s[0].seeds)}"
    )


class Benchmark(Panel):
    """Test errors by rank, frozen features and frequency."""

    key = "aiad2026/benchmark"
    title = "The frequency benchmark of appendix I, beside published numbers"
    scales: Mapping[Scale, str] = {"quick": _in_words("quick"), "paper": _in_words("paper")}
    caption = (
        "Low rank on cos(f_1 πx²) - 0.8 cos(f_2 πx²) with frozen random features (filled) and with everything trained "
        "(open), by Adam as in figures 8 and 9, from normal starts, until the mean loss of an epoch is below 5e-4. "
        "Left: test error at the end against the rank, one marker per seed; crosses (frozen) and pluses: the authors' "
        "public table, one seed and at most 10,000 epochs, where here there are at most 3,000. Right: training error "
        "over epochs, first seed; dashed: everything trained. At quick scale targets are easier, and there are no "
        "published numbers."
    )

    def recipes(self, scale: Scale, seeds: int | None = None) -> dict[str, Recipe]:
        """Return a recipe for each pair of frequencies, rank and kind."""
        found = {}
        for s in _pairs(scale):
            flow = adam(s.n, s.batch, s.every) | {"stop_loss": _STOP, "stop_after": _STOP_AFTER * s.every}
            steps = [s.epoch * one for one in log_steps(s.epochs, s.observed, first=10)]
            rest = {"data": s.chirp, "probes": ["train-loss", "test-loss"]}
            for rank in _RANKS[scale]:
                for frozen in (True, False):
                    name = f"{spelled(s.pair)}, r = {rank}, {'frozen' if frozen else 'trained'}"
                    network = low_rank(s.blocks, s.width, rank, frozen=frozen, normal=True)
                    found[name] = s.recipe(
                        f"benchmark {name}".replace(",", ""), seeds, steps, flow, network=network, **rest
                    )
        return found

    def claims(self, results: Results) -> list[Claim]:
        """Frozen features are as good, and errors are those that were published."""
        cells = by_cell(results)
        best: dict[Pair, list[np.ndarray]] = {}
        for pair in dict.fromkeys(pair for pair, _, _ in cells):
            best[pair] = [
                np.min([_end(run) for (one, _, kind), run in cells.items() if one == pair and kind is frozen], axis=0)
                for frozen in (True, False)
            ]
        found = [
            Claim(
                text="for each pair of frequencies the smallest test error over ranks is smaller with frozen features "
                "than with everything trained",
                paper="in the authors' table the best network of each pair has frozen features",
                measured="; ".join(
                    f"{spelled(pair)}: {median_range(one)} against {median_range(other)}"
                    for pair, (one, other) in best.items()
                ),
                judged=together(increases(one, other, log=True) for one, other in best.values()),
            )
        ]
        known = {cell: PUBLISHED[cell[0]][cell[1:]] for cell in cells if cell[1:] in PUBLISHED.get(cell[0], {})}
        if known:
            apart = {cell: np.log10(_end(cells[cell]) / value) for cell, value in known.items()}
            within = sum(bool(np.all(np.abs(one) <= 1)) for one in apart.values())
            words = ", ".join(
                f"{spelled(cell[0])} r = {cell[1]} {'frozen' if cell[2] else 'trained'} "
                f"{np.median(_end(cells[cell])):.2g} ({known[cell]:.2g})"
                for cell in known
            )
            found.append(
                Claim(
                    text="every test error is within a factor of ten of the published one",
                    paper="test errors of the authors' table, after at most 10,000 epochs",
                    measured=f"{within} of {len(known)} are; ours (published): {words}",
                    judged=together(near(one, 0.0, 1.0) for one in apart.values()),
                )
            )
        return found

    def draw(self, results: Results) -> Figure:
        """Errors by rank, and over training."""
        figure, (left, right) = titled_canvas("aiad2026, frequency benchmark", 2, 10.5, 4.0)
        cells = by_cell(results)
        pairs = list(dict.fromkeys(pair for pair, _, _ in cells))
        for (pair, rank, frozen), run in cells.items():
            index = pairs.index(pair)
            colour, ends = ORDERED[(index + 1) % len(ORDERED)], _end(run)
            style = {"color": colour, "linestyle": "none", "markersize": 6, "fillstyle": "full" if frozen else "none"}
            label = f"{spelled(pair)}, {'frozen' if frozen else 'trained'}"
            shown = {text.get_label() for text in left.lines}
            left.plot([rank] * ends.size, ends, "o", label=None if label in shown else label, **style)
            value = PUBLISHED.get(pair, {}).get((rank, frozen))
            if value is not None:
                left.plot(rank * 1.06, value, "x" if frozen else "+", color=colour, markersize=6)
            epochs, dash = epochs_of(run)[1:], DASHES[0] if frozen else DASHES[1]
            right.plot(
                epochs, run["train-loss"].values[0, 1:], color=colour, linestyle=dash, linewidth=0.8 + rank / 100
            )
        label_axes(left, "rank", "test MSE at the end", legend=7, xscale="log", yscale="log")
        label_axes(right, "epoch", "training MSE (thicker: larger rank)", xscale="log", yscale="log")
        return figure


def by_cell(results: Results) -> dict[tuple[Pair, int, bool], xr.Dataset]:
    """Return runs by frequencies, rank, and whether features are frozen."""
    return {
        (target_of(run), option(run, "network.ranks"), option(run, "network.train") == "ac"): run
        for run in results.values()
    }


def _end(run: xr.Dataset) -> np.ndarray:
    return run["test-loss"].values[:, -1]
