"""Table 1: MNIST with low rank, with frozen random features, and with a usual network."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import xarray as xr

from unlazy.data import at_hand, images
from unlazy.figures import ORDERED, band
from unlazy.lab import Recipe
from unlazy.papers._base import Claim, Figure, Panel, Results, Scale, option
from unlazy.papers._curves import label_axes, log_steps, plural, titled_canvas
from unlazy.papers.aiad2026 import authors
from unlazy.papers.aiad2026.setting import Setting, epochs_of, full_rank, low_rank, trained
from unlazy.papers.outcomes import at_most, certain, near, ordered, together
from unlazy.papers.references import Reference

_WIDTH, _BATCH, _RATE, _PIXELS, _CLASSES = 512, 128, 1e-3, 784, 10
_SCALES: dict[Scale, Setting] = {
    "quick": Setting(width=_WIDTH, n=6000, n_test=2000, batch=_BATCH, epochs=15, seeds=1),
    "paper": Setting(width=_WIDTH, n=60_000, n_test=10_000, batch=_BATCH, epochs=30, seeds=2),
}
_DIGITS = {"n": 1200, "n_test": 500}  # all that scikit-learn's digits have
_WITHIN = 0.5  # points, of the paper's accuracies


@dataclass(frozen=True)
class Row:
    """A row of Table 1.

    Attributes
    ----------
    network
        The network, as a section of a recipe.
    trained, accuracy
        The paper's number of trained parameters, and its test accuracy in per cent.
    marker
        Marker in the figure.
    """

    network: dict[str, Any]
    trained: int
    accuracy: float
    marker: str = "o"


_RANKS = (5, 10, 15, 25, 50)
_NETWORKS = {
    "MLP": full_rank(2, _WIDTH),
    **{f"RF-LR r = {r}": low_rank(2, _WIDTH, r) for r in _RANKS},
    "LR only r = 32": low_rank(2, _WIDTH, 32, frozen=False),
}
_MARKERS = {"MLP": "s", "LR only r = 32": "D"}
ROWS: dict[str, Row] = {
    name: Row(network, *authors.TABLE_1[name], _MARKERS.get(name, "o")) for name, network in _NETWORKS.items()
}


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
    scales: Mapping[Scale, str] = {
        scale: f"{'MNIST' if scale == 'paper' else 'MNIST or digits'}, n = {s.n:,}, {s.epochs} epochs, "
        f"{plural(s.seeds)}"
        for scale, s in _SCALES.items()
    }
    caption = (
        "Left: test accuracy against the number of trained parameters, ours (mean over seeds, dots are seeds) beside "
        "the paper's (open). Right: test accuracy over training. The printed numbers of parameters fix the networks: "
        "MLP is 784-512-512-10; RF-LR has frozen 784 → 512, trained 512 → r, frozen r → 512 and trained 512 → 10, with "
        "biases; LR only is the same with everything trained. ReLU. The paper gives no optimiser; in the authors' "
        f"public code, and here, all rows are trained alike, by Adam of rate {_RATE:g} for 30 epochs on the "
        f"cross-entropy, batches of {_BATCH}, gradients clipped to norm 1, pixels less their mean over their standard "
        "deviation (0.1307 and 0.3081), all layers, frozen ones too, uniform in ±1/√fan-in; accuracies are those after "
        "the last epoch. At quick scale it is part of MNIST or, where that is not available, scikit-learn's digits "
        "enlarged to 28 x 28, and only the order is claimed."
    )

    def recipes(self, scale: Scale, seeds: int | None = None) -> dict[str, Recipe]:
        """Return a recipe for each row, all with the same training."""
        s = _SCALES[scale]
        real = scale == "paper" or all(at_hand(file) for file in images.MNIST_FILES)
        s = s if real else replace(s, **_DIGITS)
        flow = {
            "kind": "descent",
            "rate": _RATE,
            "batch": _BATCH,
            "optimiser": "adam",
            "clip_norm": 1.0,
            "loss": "cross-entropy",
        }
        steps = [s.epoch * one for one in log_steps(s.epochs, 8)]
        data = {"kind": "mnist"} if real else {"kind": "digits", "side": 28}
        pixels = {"n": s.n, "n_test": s.n_test, "pixels": "standard"}
        rest = {"data": data | pixels, "probes": ["train-loss", "train-error", "test-error"]}
        return {
            name: s.recipe(f"table1 {name}", seeds, steps, flow, network=row.network, **rest)
            for name, row in ROWS.items()
        }

    def claims(self, results: Results) -> list[Claim]:
        """Counts, then accuracies: the paper's where all of MNIST was used, else their order."""
        counts = {name: trained(option(run, "network"), _PIXELS, _CLASSES) for name, run in results.items()}
        ends = {name: accuracy(run)[:, -1] for name, run in results.items()}
        return [
            Claim(
                text="networks have exactly the numbers of trained parameters of Table 1",
                paper=", ".join(f"{ROWS[name].trained:,}" for name in results),
                measured=", ".join(f"{count:,}" for count in counts.values()),
                judged=certain(all(count == ROWS[name].trained for name, count in counts.items()), "numbers compared"),
            ),
            *_accurate(results, ends),
            *_saves(ends, in_full(results)),
        ]

    def references(self, results: Results) -> list[Reference]:
        """The accuracies of Table 1."""
        why = "" if in_full(results) else "the authors train on all of MNIST: only measured"
        return authors.table_1({name: accuracy(run)[:, -1] for name, run in results.items()}, why)

    def draw(self, results: Results) -> Figure:
        """Accuracy by parameters, and over epochs."""
        data = option(next(iter(results.values())), "data")
        images_of = "MNIST" if data["kind"] == "mnist" else "digits of scikit-learn instead of MNIST"
        figure, (left, right) = titled_canvas(f"aiad2026, {images_of}, {data['n']:,} images", 2, 10.5, 4.2)
        for index, (name, run) in enumerate(results.items()):
            ends = accuracy(run)[:, -1]
            row = ROWS[name]
            colour = ORDERED[index % len(ORDERED)]
            left.plot(row.trained, row.accuracy, row.marker, color=colour, fillstyle="none", markersize=9)
            left.plot([row.trained] * ends.size, ends, ".", color=colour, markersize=4, alpha=0.5)
            left.plot(row.trained, ends.mean(), row.marker, color=colour, markersize=6, label=name)
            band(right, epochs_of(run)[1:], accuracy(run)[:, 1:], index, name)
        left.set_xscale("log")
        left.legend(fontsize=7, loc="lower right")
        label_axes(left, "trained parameters", "test accuracy in % (open: the paper's)")
        lowest = max(80.0, min(accuracy(run)[:, 1].min() for run in results.values()))
        label_axes(right, "epoch", "test accuracy in %", ylim=(lowest, None))
        return figure


def _accurate(results: Results, ends: dict[str, np.ndarray]) -> list[Claim]:
    """Compare accuracies with the paper's where all of MNIST was used, and else their order."""
    apart = {name: float(end.mean()) - ROWS[name].accuracy for name, end in ends.items()}
    worst = max(apart, key=lambda name: abs(apart[name]))
    parts = []
    for name, seeds in ends.items():
        each = f" ({', '.join(f'{one:.2f}' for one in seeds)})" if seeds.size > 1 else ""
        parts.append(f"{name}: {seeds.mean():.2f}{each}")
    paper, measured = ", ".join(f"{name}: {ROWS[name].accuracy}" for name in results), "; ".join(parts)
    if in_full(results):
        claim = Claim(
            text=f"test accuracies are those of Table 1 within {_WITHIN:g} points",
            paper=paper,
            measured=f"{measured}; furthest is {worst}, by {apart[worst]:+.2f}",
            judged=together(near(end, ROWS[name].accuracy, _WITHIN) for name, end in ends.items()),
        )
        return [claim]
    names = sorted(results, key=lambda name: ROWS[name].accuracy)
    five, ten, *low = (ends[f"RF-LR r = {r}"] for r in _RANKS)
    above = [ends["LR only r = 32"], ends["MLP"]]
    groups = [ordered([five, ten]), *(ordered([ten, one]) for one in low)]
    groups += [ordered([one, other]) for one in low for other in above]
    strict = Claim(
        text=f"on part of the images accuracies come in the order of Table 1: {', '.join(names)}",
        paper=paper,
        measured=measured,
        judged=ordered([ends[name] for name in names]),
    )
    loosely = (
        "so they do if r = 15, 25 and 50, which differ by 0.04 points in Table 1, may come in any order, as may the "
    )
    return [strict, replace(strict, text=f"{loosely}last two", judged=together(groups), weaker=True)]


def _saves(ends: dict[str, np.ndarray], in_full: bool) -> list[Claim]:
    share = ROWS["RF-LR r = 15"].trained / ROWS["MLP"].trained
    close = 0.5 if in_full else 1.0  # on part of the images low rank and chance cost more
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
