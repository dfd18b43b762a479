"""Three tanh convolutions: the kernels of every layer condense early in training, and stay condensed to its end."""

import dataclasses
from typing import Any

import numpy as np
import xarray as xr

from unlazy.figures import band, canvas
from unlazy.lab import Recipe
from unlazy.papers._base import Claim, Figure, Panel, Results, Scale, by_scale, option
from unlazy.papers._curves import even_steps
from unlazy.papers.outcomes import at_least, at_most, together
from unlazy.papers.zhou2023 import claims as check
from unlazy.papers.zhou2023 import condensation as c
from unlazy.papers.zhou2023.condensation import SQUARED, STAND_IN, STANDARD, START, Pictures, Training

Scales = dict[Scale, Training]

_EARLY = 0.2  # "epoch = 300 with accuracy less than 20%"
_CONTROL = (0, 1, 2, 5, 10, 20, 50)
_STANDARD, _PRINTED = "standard start", "as printed"


def _scales(
    pictures: Pictures, loss: Any, quick: tuple[Any, ...], paper: tuple[Any, ...], dense: bool = False, seeds: int = 1
) -> Scales:
    """Describe a training at both scales: rate and steps at quick scale; kernel size, rate and steps of the paper.

    Adam moves each weight by about its rate in a step: at quick scale the rate is larger and steps are fewer by the
    same factor. With fewer channels and smaller kernels, γ = 3 gives initial weights as small as γ = 2 in the paper.
    ``seeds`` are those at paper scale.
    """
    return {
        "quick": Training(pictures, 30, (8,) * 3, 3, *quick, loss=loss, gamma=3.0, dense=64 if dense else None),
        "paper": Training(pictures, 500, (32,) * 3, *paper, loss=loss, dense=1024 if dense else None, seeds=seeds),
    }


CLASSIFIER = _scales(
    "cifar10",
    "cross-entropy",
    (2e-5, sorted({*even_steps(60, 4), *even_steps(1200, 11)})),
    (5, 2e-6, sorted({*even_steps(300, 7), *even_steps(3000, 31)})),
    dense=True,
)
# With the γ and the rate printed for figure 5 kernels cannot condense (`_printed`); with these they do.
PROBABILITIES = _scales(
    "cifar10", "softmax-squared", (2e-5, even_steps(150, 7)), (5, 5e-6, even_steps(400, 17)), dense=True
)
PRINTED: Scales = {
    scale: dataclasses.replace(one, gamma=1.2, rate=1e-6, steps=even_steps(300, 4))
    for scale, one in PROBABILITIES.items()
}
NUMBERS = _scales("cifar10", SQUARED, (2e-5, even_steps(50, 6)), (3, 5e-6, even_steps(200, 11)), seeds=2)
DIGITS = _scales("mnist", SQUARED, (5e-6, even_steps(40, 5)), (5, 5e-7, even_steps(100, 11)), seeds=2)


class ThreeLayers(c.TrainingPanel):
    """Figures 2, 3, 5, 9 and 11: cosines of all pairs of kernels, a heat map for each layer."""

    controls = frozenset({_STANDARD, _PRINTED})

    def __init__(
        self,
        number: int,
        what: str,
        trainings: Scales,
        quick: int,  # the step that is shown at each scale
        paper: int,
        lines: tuple[int, ...] | None = (1, 1, 1),  # of each layer; None where the paper gives no number
        weaker: int | None = 2,  # number of lines of the weaker statement, if it is checked
        control: bool = False,
        printed: Scales | None = None,  # another training, with the printed settings
    ) -> None:
        self.what = f"three convolutions, {what}"
        super().__init__(number, self.what)
        self.shown: dict[Scale, int] = {"quick": quick, "paper": paper}
        self.trainings, self.lines, self.weaker = trainings, lines, weaker
        self.with_control, self.printed = control, printed
        self.scales = {scale: f"{one.in_words()}, step {self.shown[scale]}" for scale, one in trainings.items()}
        small, one = trainings["quick"], trainings["paper"]
        read = "with a linear read-out" if one.dense is None else "with a layer of ReLU units before the read-out"
        loss = {"cross-entropy": "cross-entropy", "softmax-squared": "the squared error of probabilities"}.get(
            str(one.loss), "the squared error of class numbers"
        )
        more = f" The control starts from {STANDARD}." if control else ""
        if printed is not None:
            other = printed["paper"]
            more += (
                f" The paper prints γ = {other.gamma:g}, rate {other.rate:g} and steps 200 to {other.steps[-1]}, in "
                "which kernels cannot have moved far enough to condense."
            )
        self.caption = (
            f"{c.cosines_between('kernels')} tanh, kernels of {one.kernel} x {one.kernel}, {read}, {loss}, full-batch "
            f"Adam at rate {one.rate:g}. {START}; γ = {one.gamma:g} (at quick scale {small.gamma:g}, and rate "
            f"{small.rate:g} with fewer steps).{more} At most 256 kernels are drawn. {STAND_IN}, with kernels of 3 x 3."
        )

    def recipes(self, scale: Scale, seeds: int | None = None) -> dict[str, Recipe]:
        """Return the training up to the step that is shown; figures 2 and 8 continue that of figure 3."""
        last, training = self.shown[scale], self.trainings[scale]
        steps = [step for step in training.steps if step <= last]
        every = {f"step {last}": dataclasses.replace(training, steps=steps)}
        if self.with_control:
            every[_STANDARD] = dataclasses.replace(self.trainings[scale], standard=True, steps=_CONTROL)
        if self.printed is not None:
            every[_PRINTED] = self.printed[scale]
        return {label: recipe(one, scale, seeds) for label, one in every.items()}

    def at_shown(self, results: Results) -> tuple[int, xr.Dataset]:
        """Return the step that is shown, and the run from small weights up to it."""
        step = next(step for step in self.shown.values() if f"step {step}" in results)
        return step, results[f"step {step}"]

    def claims(self, results: Results) -> list[Claim]:
        step, shown = self.at_shown(results)
        if self.lines is None:
            return [*_condensed_at_end(shown), _learnt(results[f"step {step}"])]
        runs, paper = {"tanh": shown}, "nearly all kernels are condensed into two opposite directions"
        if len(set(self.lines)) > 1:
            wanted = dict(zip(c.layers_of(shown), self.lines, strict=True))
            words = f"{paper}; in layer one, there are actually two pairs of opposite directions"
            found = [check.pairs_of_directions(shown, wanted, words)]
        else:
            found = [check.condense(runs, {"tanh": self.lines[0]}, paper)]
        if self.weaker is not None:
            found.append(check.condense(runs, {"tanh": self.weaker}, paper, weaker=True))
        found.append(check.two_signs(runs, "tanh", "two opposite directions in each layer"))
        if self.with_control:
            found += [*_early(shown), check.control(shown, results[_STANDARD])]
        if self.printed is not None:
            found.append(_printed(results[_PRINTED]))
        return found

    def draw(self, results: Results) -> Figure:
        step, shown = self.at_shown(results)
        layers = enumerate(c.layers_of(shown), start=1)
        maps = [(shown, layer, f"layer {number}, step {step}") for number, layer in layers]
        return c.heat_maps(maps, f"zhou2023, {self.what}, {c.pictures_shown(results)}")


class Accuracy(Panel):
    """Figure 8: training accuracy along the run of figures 2 and 3."""

    key = "zhou2023/fig8"
    title = "Figure 8: training accuracy of figure 2"
    scales = by_scale(CLASSIFIER, lambda one: f"{one.in_words()}, {one.steps[-1]:,} steps, the run of figure 2")
    caption = (
        "Share of training images classified correctly along the run of figures 2 and 3. The paper does not state the "
        f"number of steps; this one is our choice. {STAND_IN}."
    )

    def recipes(self, scale: Scale, seeds: int | None = None) -> dict[str, Recipe]:
        return {"cross-entropy": recipe(CLASSIFIER[scale], scale, seeds)}

    def claims(self, results: Results) -> list[Claim]:
        return [_learnt(results["cross-entropy"])]

    def draw(self, results: Results) -> Figure:
        figure, (axes,) = canvas(1, 5.4, 3.6)
        steps, name = c.clock(results["cross-entropy"])
        band(axes, steps, 1 - results["cross-entropy"]["train-error"].values, 1, "training accuracy", dash=0)
        axes.set(ylim=(0, 1.02), xlabel=name)
        axes.set_title(f"zhou2023, training accuracy, {c.pictures_shown(results)}", fontsize=10)
        return figure


def recipe(training: Training, scale: Scale, seeds: int | None) -> Recipe:
    """Return the recipe of one training; figures that show the same one share it."""
    loss = training.loss if isinstance(training.loss, str) else "squared"
    start = "standard start" if training.standard else "small weights"
    return training.recipe(f"three layers {training.pictures} {loss} γ={training.gamma:g} {start}", scale, seeds)


def _early(run: xr.Dataset) -> list[Claim]:
    accuracy, fallen = 1 - run["train-error"].values[:, -1], c.fall(run)[:, -1]
    below = accuracy < _EARLY
    strict = Claim(
        text=f"this is the initial stage: accuracy is below {_EARLY:.0%}",
        paper="selected at epoch = 300 with accuracy less than 20%",
        measured=f"accuracy {check.percent(accuracy)}, loss fallen by {check.percent(fallen, 2)}",
        judged=at_least(below, 1.0),
    )
    either = f"{strict.text}, or the loss has fallen by less than 5%"
    return [
        strict,
        dataclasses.replace(strict, text=either, judged=at_least(below | (fallen < 0.05), 1.0), weaker=True),
    ]


def _printed(run: xr.Dataset) -> Claim:
    """Compare the movement of kernels with the largest possible with Adam, and that with their initial size.

    An entry moves by at most (1 - β_1) / √(1 - β_2) = 3.2 times the rate in a step (Kingma and Ba 2015, section 2.1).
    Random kernels with entries of size s that move by δ along one line have cosines of about δ² / (δ² + s²), so that
    0.95 requires δ = 4.4 s.
    """
    steps, _ = c.clock(run)
    reach = (1 - 0.9) / np.sqrt(1 - 0.999) * option(run, "flow.rate") * steps[-1]
    found = {}
    for layer in c.layers_of(run):
        first, last = c.kernels(run, layer, 0), c.kernels(run, layer)
        moved = np.abs(last - first).max(axis=(1, 2))
        found[layer] = (check.observe(run, layer).pairs, first.std(axis=(1, 2)), moved)
    return Claim(
        text=f"with γ = {option(run, 'network.gamma')} and the rate printed in its caption, kernels cannot condense in "
        f"{steps[-1]:g} steps: no entry moves by more than 3.2 times the rate in a step, {reach:.1e} in total, and "
        f"|cos| > {check.NEAR:g}, which at most {check.SPREAD:.0%} of pairs have, requires 4.4 times the initial size",
        paper="figure 5: condensation is clearly observed",
        measured="; ".join(
            f"{layer}: initial size {start.mean():.1e}, moved by up to {moved.max():.1e}, {check.percent(pairs, 2)} of "
            "pairs"
            for layer, (pairs, start, moved) in found.items()
        ),
        judged=together(
            one
            for pairs, start, moved in found.values()
            for one in (at_most(moved, reach), at_least(4.4 * start, reach), at_least(1 - pairs, 1 - check.SPREAD))
        ),
    )


def _condensed_at_end(run: xr.Dataset) -> list[Claim]:
    """Claim that nearly all pairs are condensed, and that more are than by chance.

    The first share was chosen after runs at quick scale had shown 100 %.
    """
    seen = {layer: check.observe(run, layer) for layer in c.layers_of(run)}
    return [
        Claim(
            text=f"kernels are still condensed at the end: in each layer at least {share:.0%} of pairs have |cos| > "
            f"{check.NEAR:g}; by chance none would",
            paper="this reveals a clear condensation phenomenon after training",
            measured="; ".join(f"{layer}: {check.in_words(one)}" for layer, one in seen.items()),
            judged=together(at_least(one.pairs, share) for one in seen.values()),
            weaker=share == check.SPREAD,
            hindsight=share == check.NEARLY_ALL,
        )
        for share in (check.NEARLY_ALL, check.SPREAD)
    ]


def _learnt(run: xr.Dataset) -> Claim:
    accuracy, steps = 1 - run["train-error"].values, c.clock(run)[0]
    full = np.flatnonzero(np.all(accuracy == 1, axis=0))
    reached = f"first at step {steps[full[0]]:g}" if full.size else f"not reached in {steps[-1]:g} steps"
    return Claim(
        text="training accuracy reaches 100%",
        paper="until the training accuracy reaches 100%",
        measured=f"{accuracy[:, -1].mean():.1%} at the end, {accuracy.max():.1%} at best; 100% {reached}",
        judged=at_least(accuracy.max(axis=1), 1.0),
    )
