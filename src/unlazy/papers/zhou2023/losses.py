"""Figure 15: the training losses of all other figures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from unlazy.lab import Lab
from unlazy.papers._base import Claim, Panel, Results, Scale, check_finished
from unlazy.papers._figure import canvas
from unlazy.papers.zhou2023 import _draw as draw
from unlazy.papers.zhou2023._settings import STAND_IN, fall

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_COLUMNS = 4


class Losses(Panel):
    """Figure 15: a loss curve for each training shown elsewhere."""

    def __init__(self, figure: str, others: Sequence[Panel]) -> None:
        self.key = f"zhou2023/{figure}"
        self.title = f"Figure {figure.removeprefix('fig')}: losses of all trainings"
        self.others = others

    @property
    def scales(self) -> dict[Scale, str]:
        """Those of the other figures."""
        return {"quick": "the quick runs of the other figures", "paper": "the runs of the other figures, full size"}

    @property
    def caption(self) -> str:
        """What is shown, and what was chosen."""
        return (
            "Training loss of the runs of figures 2 (and 3), 4, 5, 6, 9, 10, 11, 12 and 13, up to where kernels are "
            f"shown. Steps are Adam's; t is that of the gradient flow. {STAND_IN}."
        )

    def run(self, scale: Scale, lab: Lab, seeds: int | None = None) -> Results:
        """Take all trainings from the other figures; none is run twice, and controls are left out."""
        results = {}
        for panel in self.others:
            for label, run in panel.run(scale, lab, seeds).items():
                if not label.endswith(("standard start", "as printed")):
                    results[f"{panel.key.partition('/')[2]} {label}"] = run
        return results

    def claims(self, results: Results) -> list[Claim]:
        """Losses fall."""
        check_finished(results)
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
            draw.losses(one, run, label)
        for spare in axes[len(results) :]:
            spare.set_visible(False)
        figure.suptitle("zhou2023, training losses", fontsize=10)
        return figure
