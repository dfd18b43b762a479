"""Figure 15: the training losses of all other figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from unlazy.figures import canvas
from unlazy.lab import Recipe
from unlazy.papers._base import Claim, Figure, Panel, Results, Scale
from unlazy.papers.zhou2023 import _shared as shared
from unlazy.papers.zhou2023._shared import STAND_IN, TrainingPanel, fall

_COLUMNS = 4


class Losses(Panel):
    """Figure 15: a loss curve for each training shown elsewhere."""

    key = "zhou2023/fig15"
    title = "Figure 15: losses of all trainings"
    scales: Mapping[Scale, str] = {
        "quick": "the quick runs of the other figures",
        "paper": "the runs of the other figures, full size",
    }
    caption = (
        "Training loss of the runs of figures 2 (and 3), 4, 5, 6, 9, 10, 11, 12 and 13, up to where kernels are "
        f"shown. Steps are Adam's; t is that of the gradient flow. {STAND_IN}."
    )

    def __init__(self, others: Sequence[TrainingPanel]) -> None:
        self.others = others

    def recipes(self, scale: Scale, seeds: int | None = None) -> dict[str, Recipe]:
        """All trainings of the other figures but their controls; a stored result serves both figures."""
        return {
            f"fig{panel.number} {label}": recipe
            for panel in self.others
            for label, recipe in panel.recipes(scale, seeds).items()
            if label not in panel.controls
        }

    def claims(self, results: Results) -> list[Claim]:
        """Losses fall."""
        falls = {label: float(np.median(fall(run)[:, -1])) for label, run in results.items()}
        return [
            Claim(
                text="the loss falls in every training",
                paper="losses of the experiments on MNIST and CIFAR10",
                measured="; ".join(f"{label}: by {share:.2e} of its start" for label, share in falls.items()),
                holds=all(share > 0 for share in falls.values()),
            )
        ]

    def draw(self, results: Results) -> Figure:
        """A curve for each."""
        rows = -(-len(results) // _COLUMNS)
        figure, axes = canvas(_COLUMNS, 12.0, 2.6 * rows, rows=rows)
        for one, (label, run) in zip(axes, results.items(), strict=False):
            shared.losses(one, run, label)
        for spare in axes[len(results) :]:
            spare.set_visible(False)
        figure.suptitle("zhou2023, training losses", fontsize=10)
        return figure
