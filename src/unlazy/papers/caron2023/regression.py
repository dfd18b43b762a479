"""Section 6.2: four tables of the UCI repository. Features move, survive pruning and transfer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from unlazy.data import at_hand, tabular
from unlazy.figures import canvas
from unlazy.lab import Recipe
from unlazy.papers._base import Claim, Figure, Panel, Results, Scale, by_scale, values
from unlazy.papers._curves import quadratic_times
from unlazy.papers.caron2023 import _shared as shared
from unlazy.papers.caron2023._shared import FLOW, TEXT, Setting, label, network


@dataclass(frozen=True)
class _Set:
    """A table, how many inputs it has, and the part of it that is trained on at quick scale."""

    table: tabular.Table
    inputs: int
    quick: tuple[float, float, float]


@dataclass(frozen=True)
class _Sizes:
    width: int
    end: float
    looks: int
    seeds: int
    transfer: dict[str, Any]


_SETS = {
    "concrete": _Set(tabular.CONCRETE, 8, (0.4, 0.2, 0.4)),
    "energy": _Set(tabular.ENERGY, 8, (0.4, 0.2, 0.4)),
    "airfoil": _Set(tabular.AIRFOIL, 5, (0.26, 0.14, 0.6)),
    "plant": _Set(tabular.PLANT, 4, (0.04, 0.02, 0.94)),
}
_COUNTS = (1, 2, 5, 10, 20, 50, 100)
_SCALES: dict[Scale, _Sizes] = {
    "quick": _Sizes(1000, 50_000.0, 11, 2, {"features": [*_COUNTS], "steps": 1000, "samples": 400}),
    "paper": _Sizes(2000, 100_000.0, 21, 5, {"features": [*_COUNTS], "hidden": 64, "steps": 5000, "rate": 1.0}),
}
_STAND_IN = {"n": 300, "n_test": 150, "n_held": 400, "noise": 0.1}  # where a table is not at hand
_SETTING = (
    "f(x) = Σ √λ_j a_j relu(w_j·x/√d) with Zipf weights (eq. 1, 4), along gradient flow on the mean of (f - y)²; one "
    "unit of t is one of the paper's GD steps (rate 1). Inputs are standardised and divided by the largest norm in the "
    "training part, targets standardised, which the paper leaves open. Pruned are the nodes of least λ_j |w_j|². For "
    "transfer, a ReLU network of 64 nodes (γ = 1) is trained on the k features of most λ_j |w_j|², divided by their "
    "root mean square, on half of the held-out set and tested on the other half. Thick lines are medians over seeds, "
    "thin ones the seeds. At quick scale a table that is not at hand is replaced by simulated data (y = (5/d) Σ sin(π "
    "x_j) + noise on the sphere), and the title says so"
)


def recipe(scale: Scale, name: str, setting: Setting, seeds: int | None) -> Recipe:
    """Give the recipe of one setting; data depend on the seed only, so settings are compared on the same."""
    sizes, one = _SCALES[scale], _SETS[name]
    if scale == "paper":
        data: dict[str, Any] = {"kind": name}
    elif at_hand(*one.table.sources):
        data = {"kind": name, "shares": [*one.quick]}
    else:
        data = {"kind": "sphere-sine", "d": one.inputs, **_STAND_IN}
    return Recipe(
        name=f"caron2023 {name} {label(setting)}",
        data=data,
        network=network(sizes.width, setting),
        flow=FLOW,
        times=quadratic_times(sizes.end, sizes.looks),
        probes=[
            "train-loss",
            "test-loss",
            "weight-movement",
            "kernel",
            {"kind": "pruning", "when": "end"},
            {"kind": "transfer", "when": "end", **sizes.transfer},
        ],
        seeds=seeds or sizes.seeds,
    )


def _of(results: Results, name: str) -> Results:
    """Pick the runs of one set out of all four."""
    return {label(setting): results[f"{name} {label(setting)}"] for setting in TEXT}


def _data_in_words(results: Results, name: str) -> str:
    """Name the set that was really used."""
    return f"simulated data instead of {name}" if "sphere-sine" in values(results, "data.kind") else name


def floors(sets: shared.Sets) -> np.ndarray:
    """Give the least mean of (f - y)² that a function can have where equal inputs have different targets, by seed."""
    found = []
    for x, y in sets:
        _, place = np.unique(x, axis=0, return_inverse=True)
        place = place.ravel()
        means = np.bincount(place, y) / np.bincount(place)
        found.append(np.mean((y - means[place]) ** 2))
    return np.asarray(found)


class Regression(Panel):
    """Figures 6 to 9: all that is seen on one table."""

    caption = (
        "Training and test risks, movement of the weight that has moved most, change and smallest eigenvalue of "
        f"the NTG, risks of pruned networks, and risks of networks trained on transferred features. {_SETTING}."
    )

    def __init__(self, number: int, name: str) -> None:
        self.key = f"caron2023/fig{number}"
        self.name = name
        self.title = f"Figure {number}: regression on the {name} set"
        self.scales = {
            scale: f"m = {sizes.width}, {name} {'in part, or simulated' if scale == 'quick' else '(40/20/40)'}, "
            f"t = {sizes.end:,.0f}, {sizes.seeds} seeds"
            for scale, sizes in _SCALES.items()
        }

    def recipes(self, scale: Scale, seeds: int | None = None) -> dict[str, Recipe]:
        """All settings."""
        return {label(setting): recipe(scale, self.name, setting, seeds) for setting in TEXT}

    def claims(self, results: Results) -> list[Claim]:
        """All that the paper says of its regression experiments."""
        one = next(iter(results.values()))
        sets = shared.training_sets(one)
        return [
            shared.faster(results, floors(sets)),
            shared.eigenvalues(results, shared.gates_between(sets, one["weight-movement.hidden"].shape[2])),
            shared.weights_move(results),
            shared.kernel_moves(results),
            shared.prunes(results),
            shared.transfers(results, _COUNTS),
            shared.theorem(results, "bcd"),
        ]

    def draw(self, results: Results) -> Figure:
        """Nine axes, in the order of the paper."""
        return shared.draw_everything(results, _COUNTS, f"caron2023, {_data_in_words(results, self.name)}")


class RegressionSubset(Panel):
    """Figure 2: one axis of each of figures 6 to 9."""

    key = "caron2023/fig2"
    title = "Figure 2: weights, NTG, pruning and transfer on four regression sets"
    scales = by_scale(
        _SCALES, lambda s: f"m = {s.width}, the runs of figures 6 to 9, t = {s.end:,.0f}, {s.seeds} seeds"
    )
    caption = (
        "Movement of the weight that has moved most (concrete), change of the NTG (energy), training risk of "
        f"pruned networks (airfoil), test risk of networks trained on transferred features (plant). {_SETTING}."
    )

    def recipes(self, scale: Scale, seeds: int | None = None) -> dict[str, Recipe]:
        """All settings on all four sets; figures 6 to 9 share every run."""
        return {f"{name} {label(setting)}": recipe(scale, name, setting, seeds) for name in _SETS for setting in TEXT}

    def claims(self, results: Results) -> list[Claim]:
        """What each of the four axes shows."""
        return [
            shared.weights_move(_of(results, "concrete")),
            shared.kernel_moves(_of(results, "energy")),
            shared.prunes(_of(results, "airfoil")),
            shared.transfers(_of(results, "plant"), _COUNTS),
        ]

    def draw(self, results: Results) -> Figure:
        """Four axes in a row, as in the paper."""
        figure, axes = canvas(4, 13.0, 3.4)
        shared.draw_weights(axes[0], _of(results, "concrete"))
        shared.draw_kernel(axes[1], _of(results, "energy"))
        shared.draw_pruning(axes[2], _of(results, "airfoil"), "train_risk", "training risk, pruned")
        shared.draw_transfer(axes[3], _of(results, "plant"), _COUNTS, "test_risk", "test risk, transferred")
        for one, name in zip(axes, _SETS, strict=True):
            one.set_title(f"{_data_in_words(_of(results, name), name)}: {one.get_title()}", fontsize=8)
        axes[0].legend(fontsize=7)
        figure.suptitle("caron2023, regression", fontsize=10)
        return figure
