"""Figure 15: the training losses of all other figures."""

from collections.abc import Mapping, Sequence

import numpy as np

from unlazy.figures import band
from unlazy.lab import Recipe
from unlazy.papers._base import Claim, Figure, Panel, Results, Scale
from unlazy.papers._curves import label_axes, titled_canvas
from unlazy.papers.outcomes import certain, vacuous
from unlazy.papers.zhou2023.condensation import STAND_IN, TrainingPanel, clock, fall

_COLUMNS = 4


class Losses(Panel):
    """Figure 15: a loss curve for each training of the ``others``."""

    key = "zhou2023/fig15"
    title = "Figure 15: losses of all trainings"
    scales: Mapping[Scale, str] = {
        "quick": "the quick runs of the other figures",
        "paper": "the runs of the other figures, full size",
    }
    caption = (
        "Training loss of the runs of figures 2 (and 3), 4, 5, 6, 9, 10, 11, 12 and 13, up to the time at which "
        f"kernels are shown. Steps are those of Adam, t is the time of the gradient flow. {STAND_IN}."
    )

    def __init__(self, others: Sequence[TrainingPanel]) -> None:
        self.others = others

    def recipes(self, scale: Scale, seeds: int | None = None) -> dict[str, Recipe]:
        """Return all trainings of the other figures except their controls; both figures share stored results."""
        return {
            f"fig{panel.number} {label}": recipe
            for panel in self.others
            for label, recipe in panel.recipes(scale, seeds).items()
            if label not in panel.controls
        }

    def claims(self, results: Results) -> list[Claim]:
        """Claim that losses fall, which they can hardly fail to do: the figure makes no other claim."""
        falls = {label: float(np.min(fall(run)[:, -1])) for label, run in results.items()}
        fell = all(share > 0 for share in falls.values())
        return [
            Claim(
                text="the loss falls in every training, with every seed",
                paper="losses of the experiments on MNIST and CIFAR10",
                measured="; ".join(f"{label}: by {share:.2e} of its start" for label, share in falls.items()),
                judged=vacuous("gradient flow cannot increase the loss, and such small steps hardly can")
                if fell
                else certain(fell, "the loss of every seed at the end against its start"),
            )
        ]

    def draw(self, results: Results) -> Figure:
        rows = -(-len(results) // _COLUMNS)
        figure, axes = titled_canvas("zhou2023, training losses", _COLUMNS, 12.0, 2.6 * rows, rows)
        for one, (label, run) in zip(axes, results.items(), strict=False):
            times, name = clock(run)
            band(one, times, run["train-loss"].values, 1, label, dash=0)
            label_axes(one, name, label)
        for unused in axes[len(results) :]:
            unused.set_visible(False)
        return figure
