"""Regression: simulated data (figure 1), and tables of the UCI repository (figures 2 and 6 to 9)."""

from typing import Any

import numpy as np

from unlazy.data import at_hand, tabular
from unlazy.lab import Recipe
from unlazy.papers._base import Claim, Figure, Results, Scale, Sizes, agreement, by_scale, values
from unlazy.papers._curves import listed, titled_canvas
from unlazy.papers.caron2023 import authors, bounds, claims, comparison
from unlazy.papers.caron2023.comparison import IMPORTANCE, KERNEL, MANY_COUNTS, ROOT, SAMPLES, START, WEIGHTS
from unlazy.papers.caron2023.variant import SHOWN, Variant
from unlazy.papers.references import Reference

_SIMULATED: dict[Scale, Sizes] = {
    "quick": Sizes(width=1000, n=100, end=50_000.0, times=21, seeds=2),
    "paper": Sizes(width=2000, n=100, end=50_000.0, times=51, seeds=5),
}
_D = 50
_ERROR = 0.06  # of the integration, relative: see `comparison.FLOW`
_NEAR = 0.01  # a risk below this share of its start is "near zero": on the paper's axis it looks like zero
_NET = "f(x) = Σ √λ_j a_j relu(w_j·x/√d) with Zipf weights (eq. 1, 4), trained by gradient flow on the mean of (f - y)²"


class Simulated(Variant):
    """Figure 1: risk, weights, NTG and its smallest eigenvalue along training, for four settings of (γ, α)."""

    data = "sphere-sine"

    def __init__(self, released: bool) -> None:
        super().__init__(1, "simulated data, four node scalings", released)
        self.demo = not released
        self.noise = 0.1 if released else 1.0
        self.scales = by_scale(
            _SIMULATED,
            lambda s: f"m = {s.width}, n = {s.n}, d = {_D}, noise {self.noise:g}, t = {s.end:,.0f}, {s.seeds} seeds",
        )
        self.caption = (
            f"Training risk, {comparison.FARTHEST}, change of the neural tangent Gram matrix (NTG) in operator norm "
            f"and its smallest eigenvalue, for {_NET}; one unit of t is one of the paper's GD steps (rate 1). "
            f"{SHOWN} In the text, the noise has standard deviation 1 and the third setting is (γ, α) = (0.5, 0.5). In "
            "the released code, the noise is 0.1, the third setting is (0.2, 0.5), weights start from N(0, 2 I) "
            "instead of N(0, I), and the figure shows the square root of the change of the NTG. "
            f"Here: noise {self.noise:g}, {'; '.join(map(comparison.label, self.settings))}, "
            f"{'as in the released code' if released else 'as in the text'}."
        )

    def recipes(self, scale: Scale, seeds: int | None = None) -> dict[str, Recipe]:
        sizes = _SIMULATED[scale]
        return comparison.recipes(
            f"caron2023 simulated {{}} noise {self.noise:g}",
            self.settings,
            sizes,
            seeds,
            data={"kind": "sphere-sine", "n": sizes.n, "d": _D, "noise": self.noise},
            probes=["train-loss", "weight-movement", "kernel"],
            **({"scale": START} if self.released else {}),
        )

    def claims(self, results: Results) -> list[Claim]:
        """Risk, rate and eigenvalues with γ; movement against γ and α; Theorem 4.1 along the run."""
        shares = {name: comparison.end_risk(run) / run["train-loss"].values[:, 0] for name, run in results.items()}
        symmetric = [shares[name] for name, run in results.items() if comparison.setting_of(run)[0] > 0]
        return [
            Claim(
                text=f"for γ > 0 the training risk ends at or below {_NEAR:.0%} of its start",
                paper="for γ > 0, GD achieves near-zero training error",
                measured=listed(shares),
                judged=claims.below(np.max(symmetric, axis=0), _NEAR),
            ),
            claims.faster(results, error=_ERROR),
            *claims.eigenvalues(results),
            *claims.moves(results, WEIGHTS, _ERROR),
            *claims.moves(results, KERNEL, _ERROR),
            # With N(0, 2 I) E f_0² doubles, to at most 1/d, with which the theorem's own D_0 still bounds |y - f_0|.
            *bounds.theorem(results),
            *agreement(self.references(results)),
        ]

    def draw(self, results: Results) -> Figure:
        shown = ("train-loss", WEIGHTS, ROOT if self.released else KERNEL, "kernel.smallest")
        return comparison.draw(results, shown, f"caron2023, simulated data, noise {self.noise:g}", 13.0, 3.2)


# Each table, how many inputs it has, and the part of it that is used at quick scale: for training, testing, held out.
_SETS: dict[str, tuple[tabular.Table, int, list[float]]] = {
    "concrete": (tabular.CONCRETE, 8, [0.4, 0.2, 0.4]),
    "energy": (tabular.ENERGY, 8, [0.4, 0.2, 0.4]),
    "airfoil": (tabular.AIRFOIL, 5, [0.26, 0.14, 0.6]),
    "plant": (tabular.PLANT, 4, [0.04, 0.02, 0.94]),
}
_PAPER = Sizes(width=2000, end=100_000.0, times=21, seeds=5, part="(40/20/40)")
_SCALES: dict[bool, dict[Scale, Sizes]] = {  # as printed, and as released
    False: {"quick": Sizes(width=1000, end=50_000.0, times=11, seeds=2, part="in part, or simulated"), "paper": _PAPER},
    True: {"quick": Sizes(width=300, end=200.0, times=6, seeds=2, part="in part, or simulated"), "paper": _PAPER},
}
_TRANSFER: dict[bool, dict[Scale, Any]] = {
    False: {"quick": {"steps": 1000, "samples": 400}, "paper": {"hidden": 64, "steps": 5000, "rate": 1.0}},
    True: {
        "quick": {"features": [10, 50], "hidden": 16, "steps": 200, "samples": 200, "dtype": "float32"},
        "paper": {"features": [*MANY_COUNTS], "hidden": 64, "steps": 5000, "dtype": "float32"},
    },
}
_SETTING = {
    False: f"{_NET}; one unit of t is one GD step of rate 1. Inputs are standardised and divided by the largest "
    "norm in the training set, as Assumption 2.1(a) requires; targets are standardised. The released code does not "
    "divide, so that its steps are 17 to 41 times as long. Pruning removes the nodes with the smallest λ_j |w_j|² "
    "first. For transfer, a ReLU network of 64 nodes (γ = 1) is trained on the k features with the largest λ_j |w_j|², "
    "divided by their root mean square, on half of the held-out set and tested on the other half.",
    True: f"{_NET}, as in the released code: one unit of t is one of the authors' GD steps. Inputs and targets are "
    "standardised, and weights start from N(0, 2 I). The authors' five runs share one split of the data; each of ours "
    "has its own. The NTG is that of the first 50 inputs, and the square root of its change is shown, as in the "
    "figures. Pruning removes the nodes with the smallest λ_j first (with γ = 1, in any order); claims are also "
    "checked for pruning by λ_j |w_j|². For transfer, a ReLU network with two hidden layers of 64 nodes and biases is "
    "trained at rate 0.1 on the k features √λ_j relu(h_j) with the largest λ_j, on half of the held-out set, and "
    "tested on the other half.",
}
_REPLACED = (
    "At quick scale, simulated data (y = (5/d) Σ sin(π x_j) + noise on the sphere) replace a table that is not "
    "available, and the title says so."
)


def _data_in_words(results: Results, name: str) -> str:
    """Name the data that were actually used."""
    return f"simulated data instead of {name}" if "sphere-sine" in values(results, "data.kind") else name


def floors(sets: comparison.Sets) -> np.ndarray:
    """Return the least mean of (f - y)² that a function can have where equal inputs have different targets, by seed."""
    found = []
    for x, y in sets:
        place = np.unique(x, axis=0, return_inverse=True)[1].ravel()
        means = np.bincount(place, y) / np.bincount(place)
        found.append(np.mean((y - means[place]) ** 2))
    return np.asarray(found)


class _Tables(Variant):
    """What figures 2 and 6 to 9 share: networks trained on tables."""

    def __init__(self, number: int, title: str, shown: str, released: bool) -> None:
        super().__init__(number, title, released)
        self.caption = f"{shown} {_SETTING[released]} {SHOWN} {_REPLACED}"

    def _on(self, name: str, scale: Scale, seeds: int | None) -> dict[str, Recipe]:
        """Return the recipes of all settings on one table, or on the data that replace it."""
        sizes, (table, inputs, shares) = _SCALES[self.released][scale], _SETS[name]
        data: dict[str, Any] = {"kind": name} | ({"unit_ball": False} if self.released else {})
        if scale == "quick" and at_hand(*table.sources):
            data["shares"] = shares
        elif scale == "quick":
            data = {"kind": "sphere-sine", "d": inputs, "n": 300, "n_test": 150, "n_held": 400, "noise": 0.1}
        kernel = {"kind": "kernel", "samples": SAMPLES} if self.released else "kernel"
        at_end = self._at_end(_TRANSFER[self.released][scale])
        probes = ["train-loss", "test-loss", "weight-movement", kernel, *at_end]
        return self._recipes(f"caron2023 {name}", sizes, seeds, data=data, probes=probes)


class Regression(_Tables):
    """Figures 6 to 9: everything that is measured on one table."""

    def __init__(self, number: int, name: str, released: bool = False) -> None:
        super().__init__(number, f"regression on the {name} set", comparison.ALL_SHOWN, released)
        self.data = name
        self.scales = by_scale(
            _SCALES[released], lambda s: f"m = {s.width}, {name} {s.part}, t = {s.end:,.0f}, {s.seeds} seeds"
        )

    def recipes(self, scale: Scale, seeds: int | None = None) -> dict[str, Recipe]:
        return self._on(self.data, scale, seeds)

    def claims(self, results: Results) -> list[Claim]:
        """All that the paper says of its regression experiments; of the released ones, also the authors' numbers."""
        one = next(iter(results.values()))
        sets = comparison.training_sets(one)
        seen = [(x[:SAMPLES], y[:SAMPLES]) for x, y in sets] if self.released else sets
        return [
            claims.faster(results, floors(sets)),
            *claims.eigenvalues(results, claims.gates_between(seen, one[WEIGHTS].shape[2])),
            *claims.moves(results, WEIGHTS),
            *claims.moves(results, KERNEL),
            *claims.prunes(results),
            *(claims.prunes(results, by=IMPORTANCE) if self.released else ()),
            *claims.transfers(results),
            # Theorem 4.1 is about inputs in the unit ball, which the released code does not have.
            *(agreement(self.references(results)) if self.released else bounds.theorem(results)),
        ]

    def draw(self, results: Results) -> Figure:
        title = f"caron2023, {_data_in_words(results, self.data)}{self.note}"
        shown = comparison.EVERYTHING_RELEASED if self.released else comparison.EVERYTHING
        return comparison.draw(results, shown, title, 11.0, 9.0, rows=3)


class RegressionSubset(_Tables):
    """Figure 2: one axis of each of figures 6 to 9."""

    def __init__(self, released: bool = False) -> None:
        shown = (
            f"{comparison.FARTHEST.capitalize()} (concrete), change of the neural tangent Gram matrix (NTG; energy), "
            "training risk of pruned networks (airfoil), test risk of networks trained on transferred features (plant)."
        )
        super().__init__(2, "weights, NTG, pruning and transfer on four regression sets", shown, released)
        self.scales = by_scale(
            _SCALES[released],
            lambda s: f"m = {s.width}, the runs of figures 6 to 9, t = {s.end:,.0f}, {s.seeds} seeds",
        )

    def recipes(self, scale: Scale, seeds: int | None = None) -> dict[str, Recipe]:
        """All settings on all four tables; figures 6 to 9 share every run."""
        every = {name: self._on(name, scale, seeds) for name in _SETS}
        return {f"{name} {label}": one for name, found in every.items() for label, one in found.items()}

    def _by_set(self, results: Results) -> list[Results]:
        """Return the runs of each table, in the order of `_SETS`."""
        labels = [comparison.label(setting) for setting in self.settings]
        return [{label: results[f"{name} {label}"] for label in labels} for name in _SETS]

    def claims(self, results: Results) -> list[Claim]:
        concrete, energy, airfoil, plant = self._by_set(results)
        return [
            *claims.moves(concrete, WEIGHTS),
            *claims.moves(energy, KERNEL),
            *claims.prunes(airfoil),
            *claims.transfers(plant),
            *agreement(self.references(results)),
        ]

    def references(self, results: Results) -> list[Reference]:
        """For the released settings, what the four curves show at their ends."""
        if not self.released:
            return []
        shown = (WEIGHTS, ROOT, authors.PRUNED, authors.FEATURES)
        return [
            one
            for name, runs, what in zip(_SETS, self._by_set(results), shown, strict=True)
            for one in authors.references(runs, name, (what,))
        ]

    def draw(self, results: Results) -> Figure:
        figure, axes = titled_canvas(f"caron2023, regression{self.note}", 4, 13.0, 3.4)
        shown = (WEIGHTS, ROOT if self.released else KERNEL, "pruning.hidden.train_risk", "transfer.hidden.test_risk")
        for one, what, name, runs in zip(axes, shown, _SETS, self._by_set(results), strict=True):
            comparison.draw_one(one, runs, what)
            one.set_title(f"{_data_in_words(runs, name)}: {comparison.TITLES[what]}", fontsize=8)
        axes[0].legend(fontsize=7)
        return figure
