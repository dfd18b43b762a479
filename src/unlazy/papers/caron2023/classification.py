"""Section 6.3: digits with ten outputs and the squared error; CIFAR-10 on fixed features with cross-entropy."""

from typing import Any

import numpy as np

from unlazy.data import at_hand, images
from unlazy.lab import Recipe
from unlazy.papers._base import Claim, Figure, Panel, Results, Scale, Sizes, agreement, by_scale, values
from unlazy.papers._curves import quadratic_times
from unlazy.papers.caron2023 import authors, claims, comparison
from unlazy.papers.caron2023.comparison import (
    COUNTS,
    IMPORTANCE,
    KERNEL,
    MANY_COUNTS,
    RELEASED,
    SAMPLES,
    START,
    TEXT,
    WEIGHTS,
    Setting,
)
from unlazy.papers.references import Reference

_SCALES: dict[Scale, Sizes] = {  # the NTG is that of ``samples`` images
    "quick": Sizes(width=1000, n=300, other=400, end=5000.0, times=9, seeds=2, samples=200, images="MNIST or digits"),
    "paper": Sizes(width=2000, n=5000, other=5000, end=50_000.0, times=13, seeds=2, samples=1000, images="MNIST"),
}
_TRANSFER = {"quick": {"hidden": 64, "steps": 1000}, "paper": {"hidden": 128, "steps": 5000}}
# The authors' loss is the mean over samples and outputs: 200,000 steps of rate 1 are t = 20,000, rate 1 is 0.1 here.
_RELEASED: dict[Scale, Sizes] = {
    "quick": Sizes(width=500, n=200, other=300, held=400, end=500.0, times=6, seeds=2, images="MNIST or digits"),
    "paper": Sizes(width=2000, n=5000, other=5000, held=10_000, end=20_000.0, times=13, seeds=2, images="MNIST"),
}
_DENSE = {
    "quick": {"features": [10, 50, 100], "hidden": 32, "steps": 300, "rate": 0.1},
    "paper": {"features": [*MANY_COUNTS], "hidden": 128, "steps": 10_000, "rate": 0.1},
}
_NETWORK = (
    "Ten outputs f_c(x) = Σ √λ_j a_jc relu(w_j·x/√d) with Zipf weights (eq. 1, 4) and a_jc = ±1, fitted to one-hot "
    "labels along gradient flow on the mean of |f - y|². Pixels lie in [0, 1]. The authors' loss is also a mean over "
    "outputs, so that one unit of t is ten of their GD steps, of which they take 200,000"
)
_SHOWN = "Thick lines are medians over seeds, thin ones the seeds. Runs are in single precision"
_SETTING = (
    f"{_NETWORK}; here t goes further. The NTG is that of the first output, as in the paper, on part of the images. "
    "Pruned are the nodes of least λ_j |w_j|². For transfer, a ReLU network (γ = 1) is trained on the k features of "
    "most λ_j |w_j|², divided by their root mean square, on half of the held-out set and tested on the other half. "
    f"{_SHOWN}"
)
_RELEASED_SETTING = (
    f"{_NETWORK}; here as well. As in the released code, weights start from N(0, 2 I), the NTG is that of the first "
    "output on the first 50 images, and the root of its change is shown. Pruned are the nodes of least λ_j (with γ = "
    "1, in any order); claims also judge λ_j |w_j|². For transfer, a ReLU network with two hidden layers and biases is "
    "trained on the k features √λ_j relu(h_j) of largest λ_j, on half of the held-out set, and tested on the other "
    f"half. {_SHOWN}"
)


class _Digits(Panel):
    """What figures 3 and 10 share: their runs."""

    def __init__(self, number: int, title: str, shown: str, released: bool) -> None:
        self.released = released
        self.key = f"caron2023/fig{number}" + ("-released" if released else "")
        self.title = f"Figure {number}: {title}{' (as released)' if released else ''}"
        self.caption = f"{shown} {_RELEASED_SETTING if released else _SETTING}."
        self.scales = by_scale(
            _RELEASED if released else _SCALES,
            lambda s: (
                f"m = {s.width}, n = {s.n}, {s.images}, t = {s.end:,.0f}, {s.seeds} seeds"
                if number == 10
                else f"m = {s.width}, n = {s.n}, the runs of figure 10, {s.seeds} seeds"
            ),
        )

    def recipes(self, scale: Scale, seeds: int | None = None) -> dict[str, Recipe]:
        kind = "mnist" if scale == "paper" or all(at_hand(file) for file in images.MNIST_FILES) else "digits"
        return self._released(scale, kind, seeds) if self.released else self._printed(scale, kind, seeds)

    def _printed(self, scale: Scale, kind: str, seeds: int | None) -> dict[str, Recipe]:
        s = _SCALES[scale]
        return comparison.recipes(
            f"caron2023 {kind} {{}}",
            TEXT,
            s,
            seeds,
            data={"kind": kind, "n": s.n, "n_test": s.other, "n_held": s.other},
            probes=[
                "train-loss",
                "test-loss",
                "test-error",
                "weight-movement",
                {"kind": "kernel", "output": 0, "samples": s.samples},
                {"kind": "pruning", "when": "end"},
                {"kind": "transfer", "when": "end", "features": [*COUNTS], **_TRANSFER[scale]},
            ],
            dtype="float32",
        )

    def _released(self, scale: Scale, kind: str, seeds: int | None) -> dict[str, Recipe]:
        s = _RELEASED[scale]
        return comparison.recipes(
            f"caron2023 {kind} released {{}}",
            RELEASED,
            s,
            seeds,
            data={"kind": kind, "n": s.n, "n_test": s.other, "n_held": s.held},
            scale=START,
            probes=[
                *("train-loss", "test-loss", "train-error", "test-error", "weight-movement"),
                {"kind": "kernel", "output": 0, "samples": SAMPLES},
                {"kind": "pruning-by-scale", "as": "pruning", "when": "end"},
                {"kind": "pruning", "as": IMPORTANCE, "when": "end"},
                {"kind": "dense-transfer", "as": "transfer", "when": "end", **_DENSE[scale]},
            ],
            dtype="float32",
        )

    def _heading(self, results: Results) -> str:
        stand_in = "digits" in values(results, "data.kind")
        more = " (as released)" if self.released else ""
        return f"caron2023, {'digits of scikit-learn instead of MNIST' if stand_in else 'MNIST'}{more}"


class DigitImages(_Digits):
    """Figure 10: all that is measured on MNIST."""

    def __init__(self, released: bool = False) -> None:
        shown = (
            "Training and test risks, movement of the weight that has moved most, change and smallest eigenvalue of "
            "the NTG, risks of pruned networks, and risks of networks trained on transferred features."
        )
        super().__init__(10, "classification of digits, in full", shown, released)

    def claims(self, results: Results) -> list[Claim]:
        """As for regression; Theorem 4.1 is about networks with one output only."""
        found = [
            claims.faster(results),
            *claims.eigenvalues(results),
            *claims.moves(results, WEIGHTS),
            *claims.moves(results, KERNEL),
            *claims.prunes(results),
        ]
        if self.released:
            found += claims.prunes(results, by=IMPORTANCE)
        return [*found, *claims.transfers(results, classes=10), *agreement(self.references(results))]

    def references(self, results: Results) -> list[Reference]:
        """Of the released settings, the ends of the authors' curves."""
        return authors.references(results, "mnist") if self.released else []

    def draw(self, results: Results) -> Figure:
        """Nine axes, in the order of the paper."""
        shown = comparison.EVERYTHING_RELEASED if self.released else comparison.EVERYTHING
        return comparison.draw(results, shown, self._heading(results), 11.0, 9.0, rows=3, clock="t (ten GD steps each)")


class DigitSubset(_Digits):
    """Figure 3: test accuracies of pruned and transferred networks, from the runs of figure 10."""

    def __init__(self, released: bool = False) -> None:
        shown = "Test accuracies of pruned networks, and of networks trained on transferred features."
        super().__init__(3, "test accuracies of pruned and transferred networks on digits", shown, released)

    def claims(self, results: Results) -> list[Claim]:
        """Pruning and transfer, by accuracy."""
        return [
            *claims.prunes(results, "test_error", "share of errors on the test set"),
            *claims.transfers(results, classes=10, what="test_error", words="share of errors"),
            *agreement(self.references(results)),
        ]

    def references(self, results: Results) -> list[Reference]:
        """Of the released settings, the accuracies of the authors' figure."""
        return authors.references(results, "mnist", authors.ACCURACIES) if self.released else []

    def draw(self, results: Results) -> Figure:
        """Two axes, as in the paper."""
        shown = ("pruning.hidden.test_error", "transfer.hidden.test_error")
        return comparison.draw(results, shown, self._heading(results), 8.0, 3.4)


# At quick scale few passes over few images: many would overfit, and a network pruned of that does better on tests.
# Digits take ``longer`` times as many steps: after 300, weights with γ = 0 have moved least but for γ = 1.
_CIFAR: dict[Scale, Sizes] = {
    "quick": Sizes(width=500, steps=300, longer=10, times=11, seeds=2, images="CIFAR-10 in part, or digits"),
    "paper": Sizes(width=2000, steps=20_000, longer=1, times=21, seeds=5, images="CIFAR-10"),
}
# The released code takes 100 passes of 782 batches.
_CIFAR_RELEASED: dict[Scale, Sizes] = {
    "quick": Sizes(width=300, steps=300, longer=1, times=6, seeds=2, images="CIFAR-10 in part, or digits"),
    "paper": Sizes(width=2000, steps=78_200, longer=1, times=21, seeds=5, images="CIFAR-10"),
}
_RATE, _BATCH = 5.0, 64
_BY_GAMMA: tuple[Setting, ...] = ((1.0, 0.5), (0.75, 0.5), (0.5, 0.5), (0.25, 0.5), (0.0, 0.5))
_FEW = {"filters": 32, "patch": 3, "grid": 2}  # 128 features, for the small images of digits and for quick runs


class Cifar(Panel):
    """Figures 4 and 11: test risk, weights and pruning, for the four settings or for several γ at one α."""

    def __init__(self, number: int, by_gamma: bool, released: bool = False) -> None:
        self.key = f"caron2023/fig{number}" + ("-released" if released else "")
        self.released = released
        self.settings = _BY_GAMMA if by_gamma else RELEASED if released else TEXT
        more = "for five γ" if by_gamma else "for four node scalings"
        self.title = f"Figure {number}: image features with cross-entropy, {more}{' (as released)' if released else ''}"
        self.sizes = _CIFAR_RELEASED if released else _CIFAR
        self.scales = by_scale(
            self.sizes,
            lambda s: (
                f"m = {s.width}, {s.images}, {s.steps:,} steps"
                f"{f' (digits: {s.longer * s.steps:,})' if s.longer > 1 else ''}, {s.seeds} seeds"
            ),
        )
        own = (
            "As in the released code, weights start from N(0, 2 I), there are 100 passes of 782 batches at paper "
            "scale, and the nodes of least λ_j are pruned; γ and α of figure 11 are our choice."
            if released
            else "The number of steps is our choice (the released code has 78,200), and so are γ and α of figure 11."
        )
        self.caption = (
            "Test risk, movement of the weight that has moved most, and test risk and accuracy of pruned networks, for "
            "f_c(x) = Σ √λ_j a_jc relu(w_j·Φ(x)/√D) with Zipf weights (eq. 1, 4), trained with cross-entropy by SGD on "
            "batches of 64 at rate 5. Φ stands in for the paper's pretrained features: random patches, that is, "
            f"untrained filters, rectified and averaged over quadrants. {own} Thick lines are medians over seeds, thin "
            "ones the seeds. At quick scale digits of scikit-learn take the place of CIFAR-10 where it is not at hand."
        )

    def recipes(self, scale: Scale, seeds: int | None = None) -> dict[str, Recipe]:
        """All settings, on CIFAR-10 or, at quick scale where it is not at hand, on digits."""
        sizes = self.sizes[scale]
        real = at_hand(images.CIFAR_ARCHIVE) or all(at_hand(part) for part in images.CIFAR_SUBSET)
        digits = scale == "quick" and not real
        some = {} if scale == "paper" else {"n": 1200 if digits else 1500, "n_test": 500}
        data = {"kind": "digits" if digits else "cifar10", "pixels": "standard", **some}
        embedding = {"filters": 128} if scale == "paper" else _FEW if digits else _FEW | {"patch": 6}
        times = quadratic_times(float(sizes.steps * (sizes.longer if digits else 1)), sizes.times)
        pruning: dict[str, Any] = {"kind": "pruning", "when": "end"}
        more: dict[str, Any] = {}
        if self.released:
            pruning, more = pruning | {"kind": "pruning-by-scale", "as": "pruning"}, {"scale": START}
        return comparison.recipes(
            f"caron2023 {data['kind']} patches{' released' if self.released else ''} {{}}",
            self.settings,
            sizes,
            seeds,
            data=data,
            embedding={"kind": "random-patches", **embedding},
            flow={"kind": "descent", "rate": _RATE, "batch": _BATCH, "loss": "cross-entropy", "coordinates": "weights"},
            times=[_RATE * step for step in dict.fromkeys(times)],
            probes=["test-loss", "test-error", "weight-movement", pruning],
            dtype="float32",
            **more,
        )

    def claims(self, results: Results) -> list[Claim]:
        """Weights and pruning, as before."""
        return [
            *claims.moves(results, WEIGHTS),
            *claims.prunes(results, "test_risk", "test risk"),
            *claims.prunes(results, "test_error", "share of errors on the test set"),
        ]

    def references(self, results: Results) -> list[Reference]:
        """Of the released settings, the ends of the authors' test risks, which are on other features."""
        return authors.references(results, "cifar10") if self.settings == RELEASED else []

    def draw(self, results: Results) -> Figure:
        """Four axes in a row, as in the paper."""
        runs = {name: run.assign_coords(time=np.asarray(run["time"]) / _RATE) for name, run in results.items()}
        data = "digits" if "digits" in values(results, "data.kind") else "CIFAR-10"
        own = ", as released" if self.released else ""
        title = f"caron2023, {data} on random patches (a stand-in for pretrained features){own}"
        shown = ("test-loss", WEIGHTS, "pruning.hidden.test_risk", "pruning.hidden.test_error")
        return comparison.draw(runs, shown, title, 13.0, 3.2, clock="SGD steps")
