"""Three convolutions of tanh: kernels of every layer condense at the start of training, and at its end."""

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

_GUESS = 0.2  # "epoch = 300 with accuracy less than 20%"
_CONTROL = (0, 1, 2, 5, 10, 20, 50)
_STANDARD, _PRINTED = "standard start", "as printed"
QUICK = "at quick scale kernels of 3 x 3, γ = 3 and rate 2e-5 with fewer steps"


def _scales(
    pictures: Pictures, loss: Any, quick: tuple[Any, ...], paper: tuple[Any, ...], dense: bool = False
) -> Scales:
    """Describe a training at both scales: rate and steps at quick scale; size of kernels, rate and steps of the paper.

    Adam moves by its rate in each step: at quick scale a larger one takes as many times fewer steps. There are fewer
    channels and smaller kernels, so γ = 3 gives starts as small as γ = 2 does in the paper.
    """
    return {
        "quick": Training(pictures, 30, (8,) * 3, 3, *quick, loss=loss, gamma=3.0, dense=64 if dense else None),
        "paper": Training(pictures, 500, (32,) * 3, *paper, loss=loss, dense=1024 if dense else None),
    }


CLASSIFIER = _scales(
    "cifar10",
    "cross-entropy",
    (2e-5, sorted({*even_steps(60, 4), *even_steps(1200, 11)})),
    (5, 2e-6, sorted({*even_steps(300, 7), *even_steps(3000, 31)})),
    dense=True,
)
# Figure 5's own γ and rate cannot show what it shows (`_printed`); these do.
PROBABILITIES = _scales(
    "cifar10", "softmax-squared", (2e-5, even_steps(150, 7)), (5, 5e-6, even_steps(400, 17)), dense=True
)
PRINTED: Scales = {
    scale: dataclasses.replace(one, gamma=1.2, rate=1e-6, steps=even_steps(300, 4))
    for scale, one in PROBABILITIES.items()
}
NUMBERS = _scales("cifar10", SQUARED, (2e-5, even_steps(50, 6)), (3, 5e-6, even_steps(200, 11)))
DIGITS = _scales("mnist", SQUARED, (5e-6, even_steps(40, 5)), (5, 5e-7, even_steps(100, 11)))


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
        lines: tuple[int, ...] | None = (1, 1, 1),  # of each layer; None at the end, where the paper gives no number
        weaker: int | None = 2,  # the weaker statement's number of lines, if one is checked
        control: bool = False,
        printed: Scales | None = None,  # another training, with settings as they are printed
    ) -> None:
        self.key, self.number = f"zhou2023/fig{number}", number
        self.what = f"three convolutions, {what}"
        self.title = f"Figure {number}: {self.what}"
        self.shown: dict[Scale, int] = {"quick": quick, "paper": paper}
        self.trainings, self.lines, self.weaker = trainings, lines, weaker
        self.with_control, self.printed = control, printed
        self.scales = {scale: f"{one.in_words()}, step {self.shown[scale]}" for scale, one in trainings.items()}
        one = trainings["paper"]
        read = "read out linearly" if one.dense is None else "with a layer of ReLU units before the read-out"
        loss = {"cross-entropy": "cross-entropy", "softmax-squared": "the squared error of probabilities"}.get(
            str(one.loss), "the squared error of class numbers"
        )
        more = f" The control starts from {STANDARD}." if control else ""
        if printed is not None:
            other = printed["paper"]
            more += (
                f" The paper has γ = {other.gamma:g}, rate {other.rate:g} and steps 200 to {other.steps[-1]}, in which "
                "kernels cannot move far enough."
            )
        self.caption = (
            "Cosines between kernels, one for each pair of an input and an output channel, in an order that puts "
            f"clusters together: yellow the same, purple the opposite direction. tanh, kernels of {one.kernel} x "
            f"{one.kernel}, {read}, {loss}, full-batch Adam at rate {one.rate:g}. {START}; γ = {one.gamma:g} "
            f"({QUICK}).{more} Of many kernels, 256 are drawn. {STAND_IN}, with kernels of 3 x 3."
        )

    def recipes(self, scale: Scale, seeds: int | None = None) -> dict[str, Recipe]:
        """From small weights, and the control from a standard start."""
        every = {f"step {self.shown[scale]}": self.trainings[scale]}
        if self.with_control:
            every[_STANDARD] = dataclasses.replace(self.trainings[scale], standard=True, steps=_CONTROL)
        if self.printed is not None:
            every[_PRINTED] = self.printed[scale]
        return {label: recipe(one, scale, seeds) for label, one in every.items()}

    def at_shown(self, results: Results) -> tuple[int, xr.Dataset]:
        """Return the step that is shown, and the run from small weights up to it."""
        step = next(step for step in self.shown.values() if f"step {step}" in results)
        run = results[f"step {step}"]
        last = int(np.argmin(np.abs(c.clock(run)[0] - step)))
        return step, run.isel(time=slice(0, last + 1))

    def claims(self, results: Results) -> list[Claim]:
        """Condensation, layer by layer; at the end also accuracy."""
        step, shown = self.at_shown(results)
        if self.lines is None:
            return [*_still(shown), _learnt(results[f"step {step}"])]
        runs, paper = {"tanh": shown}, "nearly all kernels are condensed into two opposite directions"
        if len(set(self.lines)) > 1:
            wanted = dict(zip(c.layers_of(shown), self.lines, strict=True))
            words = f"{paper}; in layer one, there are actually two pairs of opposite directions"
            found = [check.pairs_of_directions(shown, wanted, words)]
        else:
            found = [check.condense(runs, {"tanh": self.lines[0]}, paper)]
        if self.weaker is not None:
            found.append(check.condense(runs, {"tanh": self.weaker}, paper, weaker=True))
        found.append(check.two_signs(runs, ("tanh",), "two opposite directions in each layer"))
        if self.with_control:
            found += [*_early(shown), check.control(runs | {"standard": results[_STANDARD]}, "tanh", "standard")]
        if self.printed is not None:
            found.append(_printed(results[_PRINTED]))
        return found

    def draw(self, results: Results) -> Figure:
        """A heat map for each layer."""
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
        "Share of training images classified correctly along the run of figures 2 and 3. The paper does not say "
        f"after how many steps it stopped; the number is our choice. {STAND_IN}."
    )

    def recipes(self, scale: Scale, seeds: int | None = None) -> dict[str, Recipe]:
        """The run of figure 2."""
        return {"cross-entropy": recipe(CLASSIFIER[scale], scale, seeds)}

    def claims(self, results: Results) -> list[Claim]:
        """100 % in the end."""
        return [_learnt(results["cross-entropy"])]

    def draw(self, results: Results) -> Figure:
        """Accuracy against steps."""
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
    below = accuracy < _GUESS
    paper = "selected at epoch = 300 with accuracy less than 20%"
    measured = f"accuracy {check.percent(accuracy)}, loss fallen by {check.percent(fallen, 2)}"
    return [
        Claim(
            text=f"this is the initial stage: accuracy is below {_GUESS:.0%}",
            paper=paper,
            measured=measured,
            judged=at_least(below, 1.0),
        ),
        Claim(
            text=f"this is the initial stage: accuracy is below {_GUESS:.0%}, or the loss has fallen by less than 5%",
            paper=paper,
            measured=measured,
            judged=at_least(below | (fallen < 0.05), 1.0),
            weaker=True,
        ),
    ]


def _printed(run: xr.Dataset) -> Claim:
    """Compare the movement of kernels with the largest that Adam allows, and that with their start.

    An entry moves by at most (1 - β_1) / √(1 - β_2) = 3.2 times the rate in a step (Kingma and Ba 2015, section 2.1).
    Kernels that start at random with entries of size s and move by δ along one line have cosines of about
    δ² / (δ² + s²): 0.95 needs δ = 4.4 s.
    """
    steps, _ = c.clock(run)
    reach = (1 - 0.9) / np.sqrt(1 - 0.999) * option(run, "flow.rate") * steps[-1]
    seen, starts, moved = {}, {}, {}
    for layer in c.layers_of(run):
        first, last = c.kernels(run, layer, 0), c.kernels(run, layer)
        seen[layer], starts[layer] = check.observe(run, layer).pairs, first.std(axis=(1, 2))
        moved[layer] = np.abs(last - first).max(axis=(1, 2))
    return Claim(
        text=f"with γ = {option(run, 'network.gamma')} and the rate of its caption, kernels cannot condense in "
        f"{steps[-1]:g} steps: no entry moves by more than 3.2 rates a step, {reach:.1e} in all, and |cos| > "
        f"{check.NEAR:g} needs 4.4 times the size of the start; at most {check.SPREAD:.0%} of pairs have it",
        paper="figure 5: condensation is clearly observed",
        measured="; ".join(
            f"{layer}: start {starts[layer].mean():.1e}, moved by up to {moved[layer].max():.1e}, "
            f"{check.percent(seen[layer], 2)} of pairs"
            for layer in seen
        ),
        judged=together(
            one
            for layer in seen
            for one in (
                at_most(moved[layer], reach),
                at_least(4.4 * starts[layer], reach),
                at_least(1 - seen[layer], 1 - check.SPREAD),
            )
        ),
    )


def _still(run: xr.Dataset) -> list[Claim]:
    """Claim condensation of as many pairs as of kernels elsewhere, and of more than by chance.

    The first share was chosen after runs at quick scale had shown 100 %.
    """
    seen = {layer: check.observe(run, layer) for layer in c.layers_of(run)}
    return [
        Claim(
            text=f"kernels are still condensed at the end: in each layer at least {share:.0%} of pairs have |cos| > "
            f"{check.NEAR:g}, which by chance none has",
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
