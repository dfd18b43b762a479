"""Numbers of the authors beside ours: those of the paper, and of their public repository.

The repository is github.com/janisaiad/MMNN. Its loss files have the mean over batches of each epoch.
"""

from collections.abc import Mapping

import numpy as np

from unlazy.papers.references import Reference, compare

# Table 1, by row: numbers of trained parameters, and test accuracies in per cent.
TABLE_1: Mapping[str, tuple[int, float]] = {
    "MLP": (669_706, 98.39),
    "RF-LR r = 5": (7_695, 93.72),
    "RF-LR r = 10": (10_260, 96.24),
    "RF-LR r = 15": (12_825, 96.97),
    "RF-LR r = 25": (17_955, 97.00),
    "RF-LR r = 50": (30_780, 97.01),
    "LR only r = 32": (440_362, 98.30),
}
# The same accuracies over several seeds, in icml_rebuttal_summary.md of the repository: mean and standard deviation.
SEVERAL_SEEDS: Mapping[str, tuple[float, float]] = {"RF-LR r = 15": (95.85, 0.16), "RF-LR r = 25": (96.25, 0.13)}
ACCURACY_WITHIN = 0.5  # points: an interval that is wider decides nothing about a table whose rows differ by less

# Figure 2: MSE at epoch 250, from the newest loss files of the repository; by momentum, None for full rank.
FIGURE_2: Mapping[float | None, float] = {0.0: 6.8e-7, 0.3: 6.8e-7, 0.6: 2.3e-7, 0.7: 1.9e-7, None: 9e-6}
EPOCH, WIDTHS, SAMPLES = 250, [1024] * 3, 5000


def table_1(accuracies: Mapping[str, np.ndarray], why: str = "") -> list[Reference]:
    """Set the test accuracies of Table 1, and those over several seeds, beside ours.

    Parameters
    ----------
    accuracies
        Test accuracies in per cent at the end, one per seed, by row.
    why
        What keeps them from being comparable, such as training on part of the images.
    """
    words = "test accuracy in per cent"
    found = [
        compare(words, ours, TABLE_1[name][1], "Table 1", setting=name, within=ACCURACY_WITHIN, rounding=0.005, why=why)
        for name, ours in accuracies.items()
    ]
    several = "summary for reviewers in the authors' repository, several seeds"
    return found + [
        compare(words, accuracies[name], mean, several, setting=name, within=ACCURACY_WITHIN, rounding=0.005, why=why)
        for name, (mean, _) in SEVERAL_SEEDS.items()
        if name in accuracies
    ]


def figure_2(curves: Mapping[float | None, tuple[np.ndarray, np.ndarray]], why: str = "") -> list[Reference]:
    """Set the losses behind figure 2 beside ours, at the epoch `EPOCH`.

    Parameters
    ----------
    curves
        Epochs, and MSE by seed and epoch; by momentum, None for full rank.
    why
        What keeps them from being comparable.
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
