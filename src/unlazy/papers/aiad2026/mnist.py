"""Table 1: MNIST with low rank, with frozen random features, and with an ordinary network."""

from dataclasses import replace

import numpy as np
import xarray as xr

from unlazy.data import images
from unlazy.figures import ORDERED, band
from unlazy.lab import Recipe
from unlazy.papers._base import Claim, Figure, Panel, Results, Scale, by_scale, option
from unlazy.papers._curves import label_axes, log_steps, plural, titled_canvas
from unlazy.papers.aiad2026 import authors
from unlazy.papers.aiad2026.authors import ACCURACY_WITHIN, TABLE_1
from unlazy.papers.aiad2026.setting import Setting, epochs_of, full_rank, low_rank, trained
from unlazy.papers.outcomes import at_most, certain, near, ordered, together
from unlazy.papers.references import Reference

_WIDTH, _BATCH, _RATE, _PIXELS, _CLASSES = 512, 128, 1e-3, 784, 10
_SCALES: dict[Scale, Setting] = {
    "quick": Setting(width=_WIDTH, n=6000, n_test=2000, batch=_BATCH, epochs=15, seeds=1),
    "paper": Setting(width=_WIDTH, n=60_000, n_test=10_000, batch=_BATCH, epochs=30, seeds=2),
}
_DIGITS = {"n": 1200, "n_test": 500}  # scikit-learn has no more digits
_RANKS = (5, 10, 15, 25, 50)
NETWORKS = {  # by row of the table
    "MLP": full_rank(2, _WIDTH),
    **{f"RF-LR r = {r}": low_rank(2, _WIDTH, r) for r in _RANKS},
    "LR only r = 32": low_rank(2, _WIDTH, 32, frozen=False),
}
_MARKERS = {"MLP": "s", "LR only r = 32": "D"}  # in the figure; circles for the others


def accuracy(run: xr.Dataset) -> np.ndarray:
    """Return the test accuracy in per cent: (seeds, times)."""
    return 100 * (1 - run["test-error"].values)


def in_full(results: Results) -> bool:
    """Whether all of MNIST was trained on, so that numbers can be compared with the paper's."""
    data = option(next(iter(results.values())), "data")
    return data["kind"] == "mnist" and data["n"] == _SCALES["paper"].n


class Digits(Panel):
    """Table 1: trainable parameters and test accuracies."""

    key = "aiad2026/table1"
    title = "Table 1: MNIST with few trained parameters"
    scales = by_scale(
        _SCALES,
        lambda s: (
            f"MNIST{'' if s == _SCALES['paper'] else ' or digits'}, n = {s.n:,}, {s.epochs} epochs, {plural(s.seeds)}"
        ),
    )
    caption = (
        "Left: test accuracy against the number of trained parameters, ours (mean over seeds, dots are seeds) beside "
        "the paper's (open). Right: test accuracy over training. The printed numbers of parameters determine the "
        "networks: MLP is 784-512-512-10; RF-LR has frozen 784 → 512, trained 512 → r, frozen r → 512 and trained "
        "512 → 10, with biases; LR only is the same with everything trained. The activation is ReLU. The paper does "
        "not name an optimiser; in the authors' public code, and here, all rows are trained in the same way: by Adam "
        f"at rate {_RATE:g} for 30 epochs on the cross-entropy, with batches of {_BATCH} and gradients clipped to norm "
        "1. Pixels are standardised (mean 0.1307, standard deviation 0.3081), and all layers, including frozen ones, "
        "start uniform in ±1/√fan-in. Accuracies are those after the last epoch. Quick scale uses part of MNIST or, "
        "where that is not available, scikit-learn's digits enlarged to 28 x 28, and only the order is claimed."
    )

    def recipes(self, scale: Scale, seeds: int | None = None) -> dict[str, Recipe]:
        s = _SCALES[scale]
        real = scale == "paper" or images.available("mnist")
        s = s if real else replace(s, **_DIGITS)
        flow = {"kind": "descent", "rate": _RATE, "batch": _BATCH, "optimiser": "adam", "clip_norm": 1.0}
        flow |= {"loss": "cross-entropy"}
        steps = [s.epoch * one for one in log_steps(s.epochs, 8)]
        data = {"kind": "mnist"} if real else {"kind": "digits", "side": 28}
        pixels = {"n": s.n, "n_test": s.n_test, "pixels": "standard"}
        rest = {"data": data | pixels, "probes": ["train-loss", "train-error", "test-error"]}
        return {
            name: s.recipe(f"table1 {name}", seeds, steps, flow, network=network, **rest)
            for name, network in NETWORKS.items()
        }

    def claims(self, results: Results) -> list[Claim]:
        counts = {name: trained(option(run, "network"), _PIXELS, _CLASSES) for name, run in results.items()}
        ends = {name: accuracy(run)[:, -1] for name, run in results.items()}
        return [
            Claim(
                text="networks have exactly the numbers of trained parameters of Table 1",
                paper=", ".join(f"{TABLE_1[name].trained:,}" for name in results),
                measured=", ".join(f"{count:,}" for count in counts.values()),
                judged=certain(all(TABLE_1[name].trained == count for name, count in counts.items()), "exact numbers"),
            ),
            *_accurate(results, ends),
            *_saves(ends, in_full(results)),
        ]

    def references(self, results: Results) -> list[Reference]:
        why = "" if in_full(results) else "the authors train on all of MNIST: only measured"
        return authors.table_1({name: accuracy(run)[:, -1] for name, run in results.items()}, why)

    def draw(self, results: Results) -> Figure:
        data = option(next(iter(results.values())), "data")
        images_of = "MNIST" if data["kind"] == "mnist" else "digits of scikit-learn instead of MNIST"
        figure, (left, right) = titled_canvas(f"aiad2026, {images_of}, {data['n']:,} images", 2, 10.5, 4.2)
        for index, (name, run) in enumerate(results.items()):
            ends, (count, printed) = accuracy(run)[:, -1], TABLE_1[name]
            colour, marker = ORDERED[index % len(ORDERED)], _MARKERS.get(name, "o")
            left.plot(count, printed, marker, color=colour, fillstyle="none", markersize=9)
            left.plot([count] * ends.size, ends, ".", color=colour, markersize=4, alpha=0.5)
            left.plot(count, ends.mean(), marker, color=colour, markersize=6, label=name)
            band(right, epochs_of(run)[1:], accuracy(run)[:, 1:], index, name)
        left.set_xscale("log")
        left.legend(fontsize=7, loc="lower right")
        label_axes(left, "trained parameters", "test accuracy in % (open: the paper's)")
        lowest = max(80.0, min(accuracy(run)[:, 1].min() for run in results.values()))
        label_axes(right, "epoch", "test accuracy in %", ylim=(lowest, None))
        return figure


def _accurate(results: Results, ends: dict[str, np.ndarray]) -> list[Claim]:
    """Compare accuracies with the paper's where all of MNIST was used, and otherwise their order."""
    apart = {name: float(end.mean()) - TABLE_1[name].accuracy for name, end in ends.items()}
    worst = max(apart, key=lambda name: abs(apart[name]))
    paper, parts = ", ".join(f"{name}: {TABLE_1[name].accuracy}" for name in results), []
    for name, seeds in ends.items():
        each = f" ({', '.join(f'{one:.2f}' for one in seeds)})" if seeds.size > 1 else ""
        parts.append(f"{name}: {seeds.mean():.2f}{each}")
    measured = "; ".join(parts)
    if in_full(results):
        claim = Claim(
            text=f"test accuracies are those of Table 1 within {ACCURACY_WITHIN:g} points",
            paper=paper,
            measured=f"{measured}; the largest difference is that of {worst}, {apart[worst]:+.2f}",
            judged=together(near(end, TABLE_1[name].accuracy, ACCURACY_WITHIN) for name, end in ends.items()),
        )
        return [claim]
    names = sorted(results, key=lambda name: TABLE_1[name].accuracy)
    five, ten, *low = (ends[f"RF-LR r = {r}"] for r in _RANKS)
    above = [ends["LR only r = 32"], ends["MLP"]]
    groups = [ordered([five, ten]), *(ordered([ten, one]) for one in low)]
    groups += [ordered([one, other]) for one in low for other in above]
    strict = Claim(
        text=f"on part of the images accuracies are in the order of Table 1: {', '.join(names)}",
        paper=paper,
        measured=measured,
        judged=ordered([ends[name] for name in names]),
    )
    loosely = (
        "so they are if any order of r = 15, 25 and 50 (0.04 points apart in Table 1), and of the last two, counts"
    )
    return [strict, replace(strict, text=loosely, judged=together(groups), weaker=True)]


def _saves(ends: dict[str, np.ndarray], in_full: bool) -> list[Claim]:
    share = TABLE_1["RF-LR r = 15"].trained / TABLE_1["MLP"].trained
    close = 0.5 if in_full else 1.0  # on part of the images low rank costs more accuracy, and chance has more effect
    behind, all_trained = (ends["MLP"] - ends[name] for name in ("RF-LR r = 15", "LR only r = 32"))
    weaker = Claim(
        text=f"RF-LR with r = 15 is at most 3 points behind the MLP, and LR only at most {close:g}",
        paper="~97% with 13k-31k trainable parameters, while matching a ReLU MLP at ~98% when all are trained",
        measured=f"{behind.mean():.2f} points behind with {share:.1%} of the parameters, and {all_trained.mean():+.2f}",
        judged=together(at_most(one, bound, loose=1e9) for one, bound in ((behind, 3.0), (all_trained, close))),
        weaker=True,
    )
    if not in_full:
        return [weaker]
    printed = {f"RF-LR r = {r}": 97 for r in (15, 25, 50)} | {"LR only r = 32": 98, "MLP": 98}
    strict = replace(
        weaker,
        text="RF-LR with r = 15, 25 and 50 is at 97 %, LR only and the MLP at 98 %, to the nearest per cent",
        measured=", ".join(f"{name}: {ends[name].mean():.2f}" for name in printed),
        judged=together(near(ends[name], per_cent, 0.5) for name, per_cent in printed.items()),
        weaker=False,
    )
    return [strict, weaker]
