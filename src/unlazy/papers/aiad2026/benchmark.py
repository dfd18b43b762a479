"""The frequency benchmark: rank, frozen features and frequency, beside the numbers that the authors published.

Their table is experiments/table/FREQUENCY_BENCHMARK_TABLES_WITH_FULLRANK.md in github.com/janisaiad/MMNN: nine blocks
of width 777, one seed, 10,000 epochs or until the loss is below 5e-4.
"""

import itertools
from dataclasses import replace

import numpy as np
import xarray as xr

from unlazy.figures import DASHES, ORDERED
from unlazy.lab import Recipe
from unlazy.papers._base import Claim, Figure, Panel, Results, Scale, by_scale, option
from unlazy.papers._curves import label_axes, log_steps, median_range, plural, titled_canvas
from unlazy.papers.aiad2026 import authors
from unlazy.papers.aiad2026.setting import Pair, Setting, epochs_of, low_rank, spelled, target_of
from unlazy.papers.outcomes import increases, near, together
from unlazy.papers.references import Reference

_SMALL = Setting(
    blocks=5, width=128, pair=(3.0, 1.0), n=80, n_test=100, batch=16, epochs=300, every=6, seeds=2, observed=12
)
_FULL = Setting(blocks=9, width=777, n=1000, n_test=1234, batch=100, epochs=3000, seeds=1)
_SCALES: dict[Scale, tuple[Setting, tuple[int, ...]]] = {  # with the ranks
    "quick": (_SMALL, (5, 20)),
    "paper": (_FULL, (10, 20, 50, 100)),
}


def _doubled(s: Setting) -> Setting:
    """Return the setting at twice the frequencies, with twice as many samples."""
    return replace(s, pair=(2 * s.pair[0], 2 * s.pair[1]), n=2 * s.n, n_test=2 * s.n_test)


def _in_words(sizes: tuple[Setting, tuple[int, ...]]) -> str:
    s, ranks = sizes
    return (
        f"{s.blocks} blocks, width {s.width}, r = {', '.join(map(str, ranks))}, {spelled(s.pair)} and "
        f"{spelled(_doubled(s).pair)}, {s.epochs:,} epochs, {plural(s.seeds)}"
    )


class Benchmark(Panel):
    """Test errors by rank, frozen features and frequency."""

    key = "aiad2026/benchmark"
    title = "The frequency benchmark of appendix I, beside published numbers"
    scales = by_scale(_SCALES, _in_words)
    caption = (
        "Low rank on cos(f_1 πx²) - 0.8 cos(f_2 πx²) with frozen random features (filled) and with everything trained "
        "(open), by Adam as in figures 8 and 9, from normal starts, until the mean loss of an epoch is below 5e-4. "
        "Left: test error at the end against the rank, one marker per seed; crosses (frozen) and pluses (trained): the "
        "authors' public table, with one seed, at most 10,000 epochs instead of 3,000 here, and more ranks, of which "
        "777 is full rank. Right: training error over epochs, first seed; dashed: everything trained. At quick scale "
        "targets are easier, and there are no published numbers."
    )

    def recipes(self, scale: Scale, seeds: int | None = None) -> dict[str, Recipe]:
        base, ranks = _SCALES[scale]
        found = {}
        for s, rank, frozen in itertools.product((base, _doubled(base)), ranks, (True, False)):
            name = f"{spelled(s.pair)}, r = {rank}, {'frozen' if frozen else 'trained'}"
            found[name] = s.recipe(
                f"benchmark {name}".replace(",", ""),
                seeds,
                [s.epoch * one for one in log_steps(s.epochs, s.observed, first=10)],
                s.adam_until_fitted,
                data=s.chirp,
                network=low_rank(s.blocks, s.width, rank, frozen=frozen, normal=True),
                probes=["train-loss", "test-loss"],
            )
        return found

    def claims(self, results: Results) -> list[Claim]:
        cells = by_cell(results)

        def best(pair: Pair, frozen: bool) -> np.ndarray:
            return np.min([_end(run) for cell, run in cells.items() if (cell[0], cell[2]) == (pair, frozen)], axis=0)

        smallest = {pair: (best(pair, True), best(pair, False)) for pair in dict.fromkeys(cell[0] for cell in cells)}
        found = [
            Claim(
                text="for each pair of frequencies the smallest test error over ranks is smaller with frozen features "
                "than with everything trained",
                paper="in the authors' table the best network of each pair has frozen features",
                measured="; ".join(
                    f"{spelled(pair)}: {median_range(one)} against {median_range(other)}"
                    for pair, (one, other) in smallest.items()
                ),
                judged=together(increases(one, other, log=True) for one, other in smallest.values()),
            )
        ]
        known = {cell: value for cell in cells if (value := authors.benchmark(*cell)) is not None}
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

    def references(self, results: Results) -> list[Reference]:
        """Our test errors beside those of the authors' table, where it has the same setting."""
        found = []
        for cell, run in by_cell(results).items():
            found += authors.in_benchmark(_end(run), *cell, epochs=float(epochs_of(run)[-1]))
        return found

    def draw(self, results: Results) -> Figure:
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
            epochs, losses = epochs_of(run)[1:], run["train-loss"].values[0, 1:]
            right.plot(epochs, losses, color=colour, linestyle=DASHES[0 if frozen else 1], linewidth=0.8 + rank / 100)
        for index, pair in enumerate(pairs, 1):
            for rank, both in authors.BENCHMARK.get(pair, {}).items():
                for value, marker in zip(both, "+x", strict=True):
                    left.plot(rank * 1.06, value, marker, color=ORDERED[index % len(ORDERED)], markersize=6)
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
