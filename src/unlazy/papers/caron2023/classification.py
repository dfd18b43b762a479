"""Section 6.3: handwritten digits with ten outputs and the squared error."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from unlazy.data import at_hand, images
from unlazy.figures import canvas
from unlazy.lab import Recipe
from unlazy.papers._base import Claim, Figure, Panel, Results, Scale, by_scale, values
from unlazy.papers._curves import quadratic_times
from unlazy.papers.caron2023 import _shared as shared
from unlazy.papers.caron2023._shared import FLOW, TEXT, Setting, label, network


@dataclass(frozen=True)
class _Sizes:
    width: int
    n: int
    n_test: int
    n_held: int
    end: float
    looks: int
    seeds: int
    samples: int  # on which the NTG is seen
    transfer: dict[str, Any]


_COUNTS = (1, 2, 5, 10, 20, 50, 100)
_SCALES: dict[Scale, _Sizes] = {
    "quick": _Sizes(1000, 300, 400, 400, 5000.0, 9, 2, 200, {"features": [*_COUNTS], "hidden": 64, "steps": 1000}),
    "paper": _Sizes(
        2000, 5000, 5000, 5000, 50_000.0, 13, 2, 1000, {"features": [*_COUNTS], "hidden": 128, "steps": 5000}
    ),
}
_SETTING = (
    "Ten outputs f_c(x) = Σ √λ_j a_jc relu(w_j·x/√d) with Zipf weights (eq. 1, 4) and a_jc = ±1, fitted to one-hot "
    "labels along gradient flow on the mean of |f - y|²; one unit of t is one GD step of rate 1. Pixels lie in [0, 1]; "
    "neither that nor the number of steps is in the paper. The NTG is that of the first output, as in the paper, on "
    "part of the images. Pruned are the nodes of least λ_j |w_j|². For transfer, a ReLU network (γ = 1) is trained on "
    "the k features of most λ_j |w_j|², divided by their root mean square, on half of the held-out set and tested on "
    "the other half. Thick lines are medians over seeds, thin ones the seeds. Runs are in single precision"
)


def recipe(scale: Scale, setting: Setting, seeds: int | None) -> Recipe:
    """Give the recipe of one setting; data depend on the seed only, so settings are compared on the same."""
    sizes = _SCALES[scale]
    real = scale == "paper" or all(at_hand(file) for file in images.MNIST_FILES)
    return Recipe(
        name=f"caron2023 {'mnist' if real else 'digits'} {label(setting)}",
        data={"kind": "mnist" if real else "digits", "n": sizes.n, "n_test": sizes.n_test, "n_held": sizes.n_held},
        network=network(sizes.width, setting),
        flow=FLOW,
        times=quadratic_times(sizes.end, sizes.looks),
        probes=[
            "train-loss",
            "test-loss",
            "test-error",
            "weight-movement",
            {"kind": "kernel", "output": 0, "samples": sizes.samples},
            {"kind": "pruning", "when": "end"},
            {"kind": "transfer", "when": "end", **sizes.transfer},
        ],
        seeds=seeds or sizes.seeds,
        dtype="float32",
    )


def _data_in_words(results: Results) -> str:
    return "digits of scikit-learn instead of MNIST" if "digits" in values(results, "data.kind") else "MNIST"


class _Digits(Panel):
    """What figures 3 and 10 share: their runs."""

    def recipes(self, scale: Scale, seeds: int | None = None) -> dict[str, Recipe]:
        """All settings."""
        return {label(setting): recipe(scale, setting, seeds) for setting in TEXT}


class DigitImages(_Digits):
    """Figure 10: all that is seen on MNIST."""

    key = "caron2023/fig10"
    title = "Figure 10: classification of digits, in full"
    scales: Mapping[Scale, str] = {
        scale: f"m = {sizes.width}, n = {sizes.n}, {'MNIST or digits' if scale == 'quick' else 'MNIST'}, "
        f"t = {sizes.end:,.0f}, {sizes.seeds} seeds"
        for scale, sizes in _SCALES.items()
    }
    caption = (
        "Training and test risks, movement of the weight that has moved most, change and smallest eigenvalue of "
        f"the NTG, risks of pruned networks, and risks of networks trained on transferred features. {_SETTING}."
    )

    def claims(self, results: Results) -> list[Claim]:
        """As for regression; Theorem 4.1 speaks of one output only."""
        return [
            shared.faster(results),
            shared.eigenvalues(results),
            shared.weights_move(results),
            shared.kernel_moves(results),
            shared.prunes(results),
            shared.transfers(results, _COUNTS, classes=10),
        ]

    def draw(self, results: Results) -> Figure:
        """Nine axes, in the order of the paper."""
        return shared.draw_everything(results, _COUNTS, f"caron2023, {_data_in_words(results)}")


class DigitSubset(_Digits):
    """Figure 3: test accuracies of pruned and transferred networks, from the runs of figure 10."""

    key = "caron2023/fig3"
    title = "Figure 3: test accuracies of pruned and transferred networks on digits"
    scales = by_scale(_SCALES, lambda s: f"m = {s.width}, n = {s.n}, the runs of figure 10, {s.seeds} seeds")
    caption = f"Test accuracies of pruned networks, and of networks trained on transferred features. {_SETTING}."

    def claims(self, results: Results) -> list[Claim]:
        """Pruning and transfer, by accuracy."""
        return [
            shared.prunes(results, "test_error", "share of errors on the test set"),
            shared.transfers(results, _COUNTS, classes=10, what="test_error", words="share of errors"),
        ]

    def draw(self, results: Results) -> Figure:
        """Two axes, as in the paper."""
        figure, axes = canvas(2, 8.0, 3.4)
        shared.draw_pruning(axes[0], results, "test_error", "test accuracy, pruned")
        shared.draw_transfer(axes[1], results, _COUNTS, "test_error", "test accuracy, transferred")
        axes[0].legend(fontsize=7)
        figure.suptitle(f"caron2023, {_data_in_words(results)}", fontsize=10)
        return figure
