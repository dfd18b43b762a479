"""The authors' numbers, from the paper and from their public repository, and ours beside them.

The repository is github.com/janisaiad/MMNN. Its loss files have the mean over the batches of each epoch.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from unlazy.papers.references import Reference, compare


class Row(NamedTuple):
    """A row of Table 1: the number of trained parameters, and the test accuracy in per cent."""

    trained: int
    accuracy: float


TABLE_1: Mapping[str, Row] = {
    "MLP": Row(669_706, 98.39),
    "RF-LR r = 5": Row(7_695, 93.72),
    "RF-LR r = 10": Row(10_260, 96.24),
    "RF-LR r = 15": Row(12_825, 96.97),
    "RF-LR r = 25": Row(17_955, 97.00),
    "RF-LR r = 50": Row(30_780, 97.01),
    "LR only r = 32": Row(440_362, 98.30),
}
# The same accuracies as means over several seeds, in icml_rebuttal_summary.md of the repository, with standard
# deviations of 0.16 and 0.13.
SEVERAL_SEEDS: Mapping[str, float] = {"RF-LR r = 15": 95.85, "RF-LR r = 25": 96.25}
ACCURACY_WITHIN = 0.5  # points: an interval that is wider decides nothing about a table whose rows differ by less

# Figure 2: MSE at epoch 250, from the newest loss files of the repository; by momentum, None for full rank.
FIGURE_2: Mapping[float | None, float] = {0.0: 6.8e-7, 0.3: 6.8e-7, 0.6: 2.3e-7, 0.7: 1.9e-7, None: 9e-6}
EPOCH, WIDTHS, SAMPLES = 250, [1024] * 3, 5000

# Test errors of the frequency benchmark by (f_1, f_2) and rank, with everything trained and with frozen features: nine
# blocks of width 777, so that rank 777 is full rank, and one seed (FREQUENCY_BENCHMARK_TABLES_WITH_FULLRANK.md).
BENCHMARK: Mapping[tuple[float, float], Mapping[int, tuple[float, float]]] = {
    (36.0, 12.0): {
        10: (3.02e-3, 1.41e-3),
        15: (1.79e-3, 2.27e-3),
        20: (2.19e-3, 1.48e-3),
        25: (2.19e-3, 6.68e-4),
        50: (2.40e-3, 1.18e-3),
        100: (1.75e-2, 1.41e-3),
        777: (0.792, 0.372),
    },
    (72.0, 24.0): {
        10: (2.81e-2, 8.93e-4),
        15: (1.79e-3, 2.06e-3),
        20: (5.65e-4, 1.78e-3),
        25: (1.61e-2, 7.95e-4),
        50: (1.18e-3, 1.87e-3),
        100: (0.781, 3.40e-5),
        777: (0.781, 0.781),
    },
    (144.0, 48.0): {
        10: (0.230, 0.322),
        15: (0.141, 3.94e-2),
        20: (0.192, 6.42e-4),
        25: (0.791, 2.74e-3),
        100: (0.791, 1.50e-5),
    },
}
BENCHMARK_EPOCHS = 10_000  # at most: runs end at a loss of 5e-4


def benchmark(pair: tuple[float, float], rank: int, frozen: bool) -> float | None:
    """Return the test error of the frequency benchmark in one setting, None where there is none."""
    both = BENCHMARK.get(pair, {}).get(rank)
    return None if both is None else both[frozen]


def in_benchmark(
    errors: np.ndarray, pair: tuple[float, float], rank: int, frozen: bool, epochs: float
) -> list[Reference]:
    """Compare our test errors after so many ``epochs``, by seed, with that of the benchmark, if it has the setting."""
    theirs = benchmark(pair, rank, frozen)
    if theirs is None:
        return []
    return [
        compare(
            "test MSE at the end",
            errors,
            theirs,
            "frequency benchmark in the authors' repository, one seed",
            setting=f"({pair[0]:g}, {pair[1]:g}), r = {rank}, {'frozen' if frozen else 'trained'} features",
            log=True,
            why=f"theirs is after at most {BENCHMARK_EPOCHS:,} epochs" if epochs < BENCHMARK_EPOCHS else "",
        )
    ]


def table_1(accuracies: Mapping[str, np.ndarray], why: str = "") -> list[Reference]:
    """Compare our test accuracies in per cent, by row and seed, with those of Table 1 and those over several seeds.

    ``why`` says what keeps them from being comparable, such as training on part of the images.
    """
    several = "summary for reviewers in the authors' repository, several seeds"
    theirs = [(name, TABLE_1[name].accuracy, "Table 1") for name in accuracies]
    theirs += [(name, mean, several) for name, mean in SEVERAL_SEEDS.items() if name in accuracies]
    options: dict[str, Any] = {"within": ACCURACY_WITHIN, "rounding": 0.005, "why": why}
    return [
        compare("test accuracy in per cent", accuracies[name], value, source, setting=name, **options)
        for name, value, source in theirs
    ]


def figure_2(curves: Mapping[float | None, tuple[np.ndarray, np.ndarray]], why: str = "") -> list[Reference]:
    """Compare our losses with those behind figure 2, at the epoch `EPOCH`.

    ``curves`` has the epochs and the MSE by seed and epoch, for each momentum; None is full rank. ``why`` says what
    keeps them from being comparable.
    """
    found = []
    for momentum, (epochs, errors) in curves.items():
        last = int(np.argmin(np.abs(epochs - EPOCH)))
        early = f"theirs is at epoch {EPOCH}, ours at {epochs[last]:.0f}" if abs(epochs[last] - EPOCH) > 1 else ""
        found.append(
            compare(
                f"training MSE at epoch {EPOCH}",
                errors[:, last],
                FIGURE_2[momentum],
                "loss files in the authors' repository",
                setting="full rank" if momentum is None else f"low rank, η = {momentum:g}",
                log=True,
                why="; ".join(filter(None, (why, early))),
            )
        )
    return found
