"""Section 6.3: digits with ten outputs and the squared error; CIFAR-10 on fixed features with cross-entropy."""

from typing import Any

import numpy as np

from unlazy.data import images
from unlazy.lab import Recipe
from unlazy.papers._base import Claim, Figure, Results, Scale, Sizes, agreement, by_scale, values
from unlazy.papers._curves import quadratic_times
from unlazy.papers.caron2023 import authors, claims, comparison
from unlazy.papers.caron2023.comparison import IMPORTANCE, KERNEL, MANY_COUNTS, SAMPLES, WEIGHTS, Setting
from unlazy.papers.caron2023.variant import SHOWN, Variant
from unlazy.papers.references import Reference

# As printed and as released. The NTG is that of ``samples`` images. The authors' loss is the mean over samples and
# outputs: their 200,000 steps at rate 1 are t = 20,000 here, and their rate 1 is 0.1.
_DIGITS: dict[bool, dict[Scale, Sizes]] = {
    False: {
        "quick": Sizes(width=1000, n=300, other=400, held=400, end=5000.0, times=9, seeds=2, samples=200),
        "paper": Sizes(width=2000, n=5000, other=5000, held=5000, end=50_000.0, times=13, seeds=2, samples=1000),
    },
    True: {
        "quick": Sizes(width=500, n=200, other=300, held=400, end=500.0, times=6, seeds=2, samples=SAMPLES),
        "paper": Sizes(width=2000, n=5000, other=5000, held=10_000, end=20_000.0, times=13, seeds=2, samples=SAMPLES),
    },
}
_IMAGES: dict[Scale, str] = {"quick": "MNIST or digits", "paper": "MNIST"}
_TRANSFER: dict[bool, dict[Scale, Any]] = {
    False: {"quick": {"hidden": 64, "steps": 1000}, "paper": {"hidden": 128, "steps": 5000}},
    True: {
        "quick": {"features": [10, 50, 100], "hidden": 32, "steps": 300, "rate": 0.1},
        "paper": {"features": [*MANY_COUNTS], "hidden": 128, "steps": 10_000, "rate": 0.1},
    },
}
_NETWORK = (
    "Ten outputs f_c(x) = Σ √λ_j a_jc relu(w_j·x/√d) with Zipf weights (eq. 1, 4) and a_jc = ±1, fitted to one-hot "
    "labels by gradient flow on the mean of |f - y|². Pixels lie in [0, 1]. The authors' loss is also a mean over "
    "outputs, so that one unit of t is ten of their GD steps; they take 200,000 steps, "
)
_SETTING = {
    False: f"{_NETWORK}and our runs are longer. The neural tangent Gram matrix (NTG) is that of the first output, as "
    "in the paper, on part of the images. Pruning removes the nodes with the smallest λ_j |w_j|² first. For transfer, "
    "a ReLU network (γ = 1) is trained on the k features with the largest λ_j |w_j|², divided by their root mean "
    "square, on half of the held-out set and tested on the other half.",
    True: f"{_NETWORK}as do we. As in the released code, weights start from N(0, 2 I), the neural tangent Gram matrix "
    "(NTG) is that of the first output on the first 50 images, and the square root of its change is shown. Pruning "
    "removes the nodes with the smallest λ_j first (with γ = 1, in any order); claims are also checked for pruning by "
    "λ_j |w_j|². For transfer, a ReLU network with two hidden layers and biases is trained on the k features √λ_j "
    "relu(h_j) with the largest λ_j, on half of the held-out set, and tested on the other half.",
}


class _Digits(Variant):
    """What figures 3 and 10 share: their runs."""

    data = "mnist"

    def __init__(self, number: int, title: str, shown: str, released: bool) -> None:
        super().__init__(number, title, released)
        self.caption = f"{shown} {_SETTING[released]} {SHOWN} Runs are in single precision."
        self.scales = {}
        for scale, s in _DIGITS[released].items():
            runs = f"{_IMAGES[scale]}, t = {s.end:,.0f}" if number == 10 else "the runs of figure 10"
            self.scales[scale] = f"m = {s.width}, n = {s.n}, {runs}, {s.seeds} seeds"

    def recipes(self, scale: Scale, seeds: int | None = None) -> dict[str, Recipe]:
        kind = "mnist" if scale == "paper" or images.available("mnist") else "digits"
        s = _DIGITS[self.released][scale]
        errors = ("train-error", "test-error") if self.released else ("test-error",)
        kernel = {"kind": "kernel", "output": 0, "samples": s.samples}
        at_end = self._at_end(_TRANSFER[self.released][scale])
        return self._recipes(
            f"caron2023 {kind}",
            s,
            seeds,
            data={"kind": kind, "n": s.n, "n_test": s.other, "n_held": s.held},
            probes=["train-loss", "test-loss", *errors, "weight-movement", kernel, *at_end],
            dtype="float32",
        )

    def _heading(self, results: Results) -> str:
        stand_in = "digits" in values(results, "data.kind")
        return f"caron2023, {'digits of scikit-learn instead of MNIST' if stand_in else 'MNIST'}{self.note}"


class DigitImages(_Digits):
    """Figure 10: everything that is measured on MNIST."""

    def __init__(self, released: bool = False) -> None:
        super().__init__(10, "classification of digits, in full", comparison.ALL_SHOWN, released)

    def claims(self, results: Results) -> list[Claim]:
        """As for regression; Theorem 4.1 is about networks with one output only."""
        return [
            claims.faster(results),
            *claims.eigenvalues(results),
            *claims.moves(results, WEIGHTS),
            *claims.moves(results, KERNEL),
            *claims.prunes(results),
            *(claims.prunes(results, by=IMPORTANCE) if self.released else ()),
            *claims.transfers(results, classes=10),
            *agreement(self.references(results)),
        ]

    def draw(self, results: Results) -> Figure:
        shown = comparison.EVERYTHING_RELEASED if self.released else comparison.EVERYTHING
        return comparison.draw(results, shown, self._heading(results), 11.0, 9.0, rows=3, clock="t (ten GD steps each)")


class DigitSubset(_Digits):
    """Figure 3: test accuracies of pruned and transferred networks, from the runs of figure 10."""

    quantities = authors.ACCURACIES

    def __init__(self, released: bool = False) -> None:
        shown = "Test accuracies of pruned networks, and of networks trained on transferred features."
        super().__init__(3, "test accuracies of pruned and transferred networks on digits", shown, released)

    def claims(self, results: Results) -> list[Claim]:
        return [
            *claims.prunes(results, "test_error", "share of errors on the test set"),
            *claims.transfers(results, classes=10, what="test_error", words="share of errors"),
            *agreement(self.references(results)),
        ]

    def draw(self, results: Results) -> Figure:
        shown = ("pruning.hidden.test_error", "transfer.hidden.test_error")
        return comparison.draw(results, shown, self._heading(results), 8.0, 3.4)


# At quick scale there are few passes over few images: with many, networks overfit, and pruning improves their test
# error. On digits, runs take ``longer`` times as many steps: after 300, weights with γ = 0 have moved less than those
# of all other settings except γ = 1. The released code takes 100 passes of 782 batches.
_PART, _ALL = "CIFAR-10 in part, or digits", "CIFAR-10"
_CIFAR: dict[bool, dict[Scale, Sizes]] = {
    False: {
        "quick": Sizes(width=500, steps=300, longer=10, times=11, seeds=2, images=_PART),
        "paper": Sizes(width=2000, steps=20_000, longer=1, times=21, seeds=5, images=_ALL),
    },
    True: {
        "quick": Sizes(width=300, steps=300, longer=1, times=6, seeds=2, images=_PART),
        "paper": Sizes(width=2000, steps=78_200, longer=1, times=21, seeds=5, images=_ALL),
    },
}
_OWN = {
    False: "The number of steps is our choice (the released code has 78,200), and so are γ and α of figure 11.",
    True: "As in the released code, weights start from N(0, 2 I), there are 100 passes of 782 batches at paper scale, "
    "and the nodes with the smallest λ_j are pruned first; γ and α of figure 11 are our choice.",
}
_RATE, _BATCH = 5.0, 64
_BY_GAMMA: tuple[Setting, ...] = ((1.0, 0.5), (0.75, 0.5), (0.5, 0.5), (0.25, 0.5), (0.0, 0.5))
_FEW = {"filters": 32, "patch": 3, "grid": 2}  # 128 features, for the small images of digits and for quick runs


class Cifar(Variant):
    """Figures 4 and 11: test risk, weights and pruning, for the four settings or for several γ at one α."""

    data = "cifar10"

    def __init__(self, number: int, by_gamma: bool, released: bool = False) -> None:
        more = "for five γ" if by_gamma else "for four node scalings"
        super().__init__(number, f"image features with cross-entropy, {more}", released)
        self.by_gamma = by_gamma
        self.settings = _BY_GAMMA if by_gamma else self.settings
        self.scales = by_scale(
            _CIFAR[released],
            lambda s: (
                f"m = {s.width}, {s.images}, {s.steps:,} steps"
                f"{f' (digits: {s.longer * s.steps:,})' if s.longer > 1 else ''}, {s.seeds} seeds"
            ),
        )
        self.caption = (
            f"Test risk, {comparison.FARTHEST}, and test risk and accuracy of pruned networks, for f_c(x) = Σ √λ_j "
            "a_jc relu(w_j·Φ(x)/√D) with Zipf weights (eq. 1, 4), trained with cross-entropy by SGD on batches of 64 "
            "at learning rate 5. Φ replaces the paper's pretrained features by random patches: untrained filters, "
            f"rectified and averaged over quadrants. {_OWN[released]} {SHOWN} At quick scale, digits of scikit-learn "
            "replace CIFAR-10 where it is not available."
        )

    def recipes(self, scale: Scale, seeds: int | None = None) -> dict[str, Recipe]:
        """All settings, on CIFAR-10 or, at quick scale where it is not available, on digits."""
        sizes = _CIFAR[self.released][scale]
        digits = scale == "quick" and not images.available("cifar10")
        some = {} if scale == "paper" else {"n": 1200 if digits else 1500, "n_test": 500}
        data = {"kind": "digits" if digits else "cifar10", "pixels": "standard", **some}
        embedding = {"filters": 128} if scale == "paper" else _FEW if digits else _FEW | {"patch": 6}
        times = quadratic_times(float(sizes.steps * (sizes.longer if digits else 1)), sizes.times)
        return self._recipes(
            f"caron2023 {data['kind']} patches",
            sizes,
            seeds,
            data=data,
            embedding={"kind": "random-patches", **embedding},
            flow={"kind": "descent", "rate": _RATE, "batch": _BATCH, "loss": "cross-entropy", "coordinates": "weights"},
            times=[_RATE * step for step in dict.fromkeys(times)],
            probes=["test-loss", "test-error", "weight-movement", self._at_end({})[0]],
            dtype="float32",
        )

    def claims(self, results: Results) -> list[Claim]:
        return [
            claims.tested(results),
            *claims.moves(results, WEIGHTS),
            *claims.prunes(results, "test_risk", "test risk"),
            *claims.prunes(results, "test_error", "share of errors on the test set"),
        ]

    def references(self, results: Results) -> list[Reference]:
        """For the released settings of figure 4, the ends of the authors' test risks, which are on other features."""
        return [] if self.by_gamma else super().references(results)

    def draw(self, results: Results) -> Figure:
        runs = {name: run.assign_coords(time=np.asarray(run["time"]) / _RATE) for name, run in results.items()}
        data = "digits" if "digits" in values(results, "data.kind") else "CIFAR-10"
        title = f"caron2023, {data} on random patches instead of pretrained features{self.note}"
        shown = ("test-loss", WEIGHTS, "pruning.hidden.test_risk", "pruning.hidden.test_error")
        return comparison.draw(runs, shown, title, 13.0, 3.2, clock="SGD steps")
