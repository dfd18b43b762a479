"""Section 6.3: CIFAR-10 on fixed features, with cross-entropy and minibatches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from unlazy.data import at_hand, images
from unlazy.figures import canvas
from unlazy.lab import Recipe
from unlazy.papers._base import Claim, Figure, Panel, Results, Scale, values
from unlazy.papers._curves import quadratic_times
from unlazy.papers.caron2023 import _shared as shared
from unlazy.papers.caron2023._shared import TEXT, Setting, label, network


@dataclass(frozen=True)
class _Sizes:
    width: int
    steps: int
    looks: int
    seeds: int


_SCALES: dict[Scale, _Sizes] = {
    # Few passes over few images: many would overfit, and a network pruned of that does better on test images.
    "quick": _Sizes(width=500, steps=300, looks=11, seeds=2),
    "paper": _Sizes(width=2000, steps=20_000, looks=21, seeds=5),
}
_LONGER = 10  # digits take so many times as many steps: after 300, weights with γ = 0 have moved least but for γ = 1
_RATE, _BATCH = 5.0, 64
_BY_GAMMA: tuple[Setting, ...] = ((1.0, 0.5), (0.75, 0.5), (0.5, 0.5), (0.25, 0.5), (0.0, 0.5))
_FEW = {"filters": 32, "patch": 3, "grid": 2}  # 128 features, for the small images of digits and for quick runs
_STEPS = "SGD steps"


def _data(scale: Scale) -> tuple[dict[str, Any], dict[str, Any]]:
    """Give data and embedding: CIFAR-10 where it is at hand, else digits at quick scale."""
    real = at_hand(images.CIFAR_ARCHIVE) or all(at_hand(part) for part in images.CIFAR_SUBSET)
    if scale == "paper":
        return {"kind": "cifar10", "pixels": "standard"}, {"kind": "random-patches", "filters": 128}
    if real:
        return {"kind": "cifar10", "n": 1500, "n_test": 500, "pixels": "standard"}, {
            "kind": "random-patches",
            **_FEW,
            "patch": 6,
        }
    return {"kind": "digits", "n": 1200, "n_test": 500, "pixels": "standard"}, {"kind": "random-patches", **_FEW}


def recipe(scale: Scale, setting: Setting, seeds: int | None) -> Recipe:
    """Give the recipe of one setting; data depend on the seed only, so settings are compared on the same."""
    sizes = _SCALES[scale]
    data, embedding = _data(scale)
    steps = sizes.steps * (_LONGER if data["kind"] == "digits" else 1)
    times = quadratic_times(float(steps), sizes.looks)
    return Recipe(
        name=f"caron2023 {data['kind']} patches {label(setting)}",
        data=data,
        network=network(sizes.width, setting, embedding=embedding),
        flow={"kind": "descent", "rate": _RATE, "batch": _BATCH, "loss": "cross-entropy", "coordinates": "weights"},
        times=[_RATE * step for step in dict.fromkeys(times)],
        probes=["test-loss", "test-error", "weight-movement", {"kind": "pruning", "when": "end"}],
        seeds=seeds or sizes.seeds,
        dtype="float32",
    )


class Cifar(Panel):
    """Figures 4 and 11: test risk, weights and pruning, for the four settings or for several γ at one α."""

    scales: Mapping[Scale, str] = {
        scale: f"m = {sizes.width}, {'CIFAR-10 in part, or digits' if scale == 'quick' else 'CIFAR-10'}, "
        f"{sizes.steps:,} steps{f' (digits: {_LONGER * sizes.steps:,})' if scale == 'quick' else ''}, "
        f"{sizes.seeds} seeds"
        for scale, sizes in _SCALES.items()
    }
    caption = (
        "Test risk, movement of the weight that has moved most, and test risk and accuracy of pruned networks, for "
        "f_c(x) = Σ √λ_j a_jc relu(w_j·Φ(x)/√D) with Zipf weights (eq. 1, 4), trained with cross-entropy by SGD on "
        "batches of 64 at rate 5. Φ stands in for the paper's pretrained features: random patches, that is, "
        "untrained filters, rectified and averaged over quadrants. The number of steps is our choice, and so are γ "
        "and α of figure 11. Thick lines are medians over seeds, thin ones the seeds. At quick scale digits of "
        "scikit-learn take the place of CIFAR-10 where it is not at hand."
    )

    def __init__(self, number: int, by_gamma: bool) -> None:
        self.key = f"caron2023/fig{number}"
        self.settings = _BY_GAMMA if by_gamma else TEXT
        more = "for five γ" if by_gamma else "for four node scalings"
        self.title = f"Figure {number}: image features with cross-entropy, {more}"

    def recipes(self, scale: Scale, seeds: int | None = None) -> dict[str, Recipe]:
        """All settings."""
        return {label(setting): recipe(scale, setting, seeds) for setting in self.settings}

    def claims(self, results: Results) -> list[Claim]:
        """Weights and pruning, as before."""
        return [
            shared.weights_move(results),
            shared.prunes(results, "test_risk", "test risk"),
            shared.prunes(results, "test_error", "share of errors on the test set"),
        ]

    def draw(self, results: Results) -> Figure:
        """Four axes in a row, as in the paper."""
        runs = {name: run.assign_coords(time=np.asarray(run["time"]) / _RATE) for name, run in results.items()}
        figure, axes = canvas(4, 13.0, 3.2)
        shared.draw_risk(axes[0], runs, "test-loss", "test risk")
        axes[0].set_xlabel(_STEPS, fontsize=8)
        shared.draw_weights(axes[1], runs, _STEPS)
        shared.draw_pruning(axes[2], runs, "test_risk", "test risk, pruned")
        shared.draw_pruning(axes[3], runs, "test_error", "test accuracy, pruned")
        axes[0].legend(fontsize=7)
        data = "digits" if "digits" in values(results, "data.kind") else "CIFAR-10"
        figure.suptitle(f"caron2023, {data} on random patches (a stand-in for pretrained features)", fontsize=10)
        return figure
