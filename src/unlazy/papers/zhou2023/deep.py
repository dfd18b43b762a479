"""Three convolutions of tanh: kernels of every layer condense at the start of training, and at its end."""

from __future__ import annotations

import dataclasses

import numpy as np
import xarray as xr

from unlazy.figures import band, canvas
from unlazy.lab import Recipe
from unlazy.papers._base import Claim, Figure, Panel, Results, Scale, by_scale, option
from unlazy.papers._curves import even_steps
from unlazy.papers.zhou2023 import _shared as shared
from unlazy.papers.zhou2023._shared import SQUARED, STAND_IN, STANDARD, START, Training

Scales = dict[Scale, Training]
Shown = dict[Scale, int]  # the step that is shown

_LITTLE, _MUCH = (8,) * 3, (32,) * 3
_GUESS = 0.2  # "epoch = 300 with accuracy less than 20%"
# Adam moves by its rate in each step: at quick scale a larger one takes as many times fewer steps. There are fewer
# channels and smaller kernels, so γ = 3 gives starts as small as γ = 2 does in the paper.
QUICK = "at quick scale kernels of 3 x 3, γ = 3 and rate 2e-5 with fewer steps"
CLASSIFIER: Scales = {
    "quick": Training(
        "cifar10", 30, _LITTLE, 3, 2e-5, sorted({*even_steps(60, 4), *even_steps(1200, 11)}), gamma=3.0, dense=64
    ),
    "paper": Training("cifar10", 500, _MUCH, 5, 2e-6, sorted({*even_steps(300, 7), *even_steps(3000, 31)}), dense=1024),
}
# Figure 5's own γ and rate cannot show what it shows (`_printed`); these do.
PROBABILITIES: Scales = {
    "quick": Training("cifar10", 30, _LITTLE, 3, 2e-5, even_steps(150, 7), "softmax-squared", gamma=3.0, dense=64),
    "paper": Training("cifar10", 500, _MUCH, 5, 5e-6, even_steps(400, 17), "softmax-squared", dense=1024),
}
PRINTED: Scales = {
    scale: dataclasses.replace(one, gamma=1.2, rate=1e-6, steps=even_steps(300, 4))
    for scale, one in PROBABILITIES.items()
}
NUMBERS: Scales = {
    "quick": Training("cifar10", 30, _LITTLE, 3, 2e-5, even_steps(50, 6), SQUARED, gamma=3.0),
    "paper": Training("cifar10", 500, _MUCH, 3, 5e-6, even_steps(200, 11), SQUARED),
}
DIGITS: Scales = {
    "quick": Training("mnist", 30, _LITTLE, 3, 5e-6, even_steps(40, 5), SQUARED, gamma=3.0),
    "paper": Training("mnist", 500, _MUCH, 5, 5e-7, even_steps(100, 11), SQUARED),
}
_CONTROL = (0, 1, 2, 5, 10, 20, 50)
_STANDARD, _PRINTED = "standard start", "as printed"


class ThreeLayers(shared.TrainingPanel):
    """Figures 2, 3, 5, 9 and 11: cosines of all pairs of kernels, a heat map for each layer."""

    controls = frozenset({_STANDARD, _PRINTED})

    def __init__(
        self,
        number: int,
        what: str,
        trainings: Scales,
        shown: Shown,
        lines: int | None,
        control: bool = False,
        printed: Scales | None = None,
    ) -> None:
        self.key, self.number = f"zhou2023/fig{number}", number
        self.what = f"three convolutions, {what}"
        self.title = f"Figure {number}: {self.what}"
        self.trainings, self.shown = trainings, shown
        self.lines = lines  # along which nearly all kernels lie; None at the end of training, where it is not said
        self.with_control = control
        self.printed = printed  # another training, with settings as they are printed
        self.scales = {scale: f"{one.in_words()}, step {shown[scale]}" for scale, one in trainings.items()}
        self.caption = self._caption()

    def _caption(self) -> str:
        one = self.trainings["paper"]
        read = "read out linearly" if one.dense is None else "with a layer of ReLU units before the read-out"
        loss = {"cross-entropy": "cross-entropy", "softmax-squared": "the squared error of probabilities"}.get(
            str(one.loss), "the squared error of class numbers"
        )
        control = f" The control starts from {STANDARD}." if self.with_control else ""
        if self.printed is not None:
            other = self.printed["paper"]
            control += (
                f" The paper has γ = {other.gamma:g}, rate {other.rate:g} and steps 200 to {other.steps[-1]}, in which "
                "kernels cannot move far enough."
            )
        return (
            "Cosines between kernels, one for each pair of an input and an output channel, in an order that puts "
            f"clusters together: yellow the same, purple the opposite direction. tanh, kernels of {one.kernel} x "
            f"{one.kernel}, {read}, {loss}, full-batch Adam at rate {one.rate:g}. {START}; γ = {one.gamma:g} "
            f"({QUICK}).{control} Of many kernels, 256 are drawn. {STAND_IN}, with kernels of 3 x 3."
        )

    def recipes(self, scale: Scale, seeds: int | None = None) -> dict[str, Recipe]:
        """From small weights, and the control from a standard start."""
        every = {_label(self.shown[scale]): self.trainings[scale]}
        if self.with_control:
            every[_STANDARD] = dataclasses.replace(self.trainings[scale], standard=True, steps=_CONTROL)
        if self.printed is not None:
            every[_PRINTED] = self.printed[scale]
        return {label: recipe(one, scale, seeds) for label, one in every.items()}

    def at_shown(self, results: Results) -> tuple[int, xr.Dataset]:
        """Give the step that is shown, and the run from small weights up to it."""
        step = next(step for step in self.shown.values() if _label(step) in results)
        run = results[_label(step)]
        last = int(np.argmin(np.abs(shared.clock(run)[0] - step)))
        return step, run.isel(time=slice(0, last + 1))

    def claims(self, results: Results) -> list[Claim]:
        """Condensation, layer by layer; at the end also accuracy."""
        step, shown = self.at_shown(results)
        if self.lines is None:
            return [_still(shown), _learnt(results[_label(step)])]
        found = [
            shared.condense(
                {"tanh": shown}, {"tanh": self.lines}, "nearly all kernels are condensed into two opposite directions"
            ),
            shared.two_signs({"tanh": shown}, ("tanh",), "two opposite directions in each layer"),
        ]
        if self.with_control:
            found += [
                _early(shown),
                shared.control({"tanh": shown, "standard": results[_STANDARD]}, "tanh", "standard"),
            ]
        if self.printed is not None:
            found.append(_printed(results[_PRINTED]))
        return found

    def draw(self, results: Results) -> Figure:
        """A heat map for each layer."""
        step, shown = self.at_shown(results)
        figure, axes = canvas(3, 11.0, 3.9)
        pictures = [
            shared.heat(one, shown, layer, f"layer {number}, step {step}")
            for number, (one, layer) in enumerate(zip(axes, shared.layers_of(shown), strict=True), start=1)
        ]
        figure.colorbar(pictures[-1], ax=axes, shrink=0.8)
        figure.suptitle(f"zhou2023, {self.what}, {shared.pictures_shown(results)}", fontsize=10)
        return figure


class Accuracy(Panel):
    """Figure 8: training accuracy along the run of figures 2 and 3."""

    key = "zhou2023/fig8"
    title = "Figure 8: training accuracy of figure 2"
    scales = by_scale(CLASSIFIER, lambda one: f"{one.in_words()}, {one.steps[-1]:,} steps, the run of figure 2")
    caption = (
        "Share of training images classified rightly along the run of figures 2 and 3. The paper does not say "
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
        steps, name = shared.clock(results["cross-entropy"])
        band(axes, steps, 1 - results["cross-entropy"]["train-error"].values, 1, "training accuracy", dash=0)
        axes.set(ylim=(0, 1.02), xlabel=name)
        axes.set_title(f"zhou2023, training accuracy, {shared.pictures_shown(results)}", fontsize=10)
        return figure


def recipe(training: Training, scale: Scale, seeds: int | None) -> Recipe:
    """Give the recipe of one training; figures that show the same one share it."""
    loss = training.loss if isinstance(training.loss, str) else "squared"
    start = "standard start" if training.standard else "small weights"
    return training.recipe(f"three layers {training.pictures} {loss} γ={training.gamma:g} {start}", scale, seeds)


def _label(step: int) -> str:
    return f"step {step}"


def _early(run: xr.Dataset) -> Claim:
    accuracy = 1 - run["train-error"].values[:, -1]
    return Claim(
        text=f"this is the initial stage: accuracy is below {_GUESS:.0%}, or the loss has fallen by less than 5%",
        paper="selected at epoch = 300 with accuracy less than 20%",
        measured=f"accuracy {accuracy.mean():.1%}, loss fallen by {shared.fall(run)[:, -1].mean():.2%}",
        holds=bool(np.all((accuracy < _GUESS) | (shared.fall(run)[:, -1] < 0.05))),
    )


def _printed(run: xr.Dataset) -> Claim:
    """Hold the movement of kernels against the largest that Adam allows, and that against their start.

    An entry moves by at most (1 - β_1) / √(1 - β_2) = 3.2 times the rate in a step (Kingma and Ba 2015, section 2.1).
    Kernels that start at random with entries of size s and move by δ along one line have cosines of about
    δ² / (δ² + s²): 0.95 needs δ = 4.4 s.
    """
    steps, _ = shared.clock(run)
    reach = (1 - 0.9) / np.sqrt(1 - 0.999) * option(run, "flow.rate") * steps[-1]
    seen, starts, moved = {}, {}, {}
    for layer in shared.layers_of(run):
        first, last = shared.kernels(run, layer, 0), shared.kernels(run, layer)
        seen[layer], starts[layer] = shared.look(run, layer).pairs, float(first.std())
        moved[layer] = float(np.abs(last - first).max())
    return Claim(
        text=f"with γ = {option(run, 'network.gamma')} and the rate of its caption, kernels cannot condense in "
        f"{steps[-1]:g} steps: no entry moves by more than 3.2 rates a step, {reach:.1e} in all, and |cos| > "
        f"{shared.NEAR:g} needs 4.4 times the size of the start; less than {shared.SPREAD:.0%} of pairs have it",
        paper="figure 5: condensation is clearly observed",
        measured="; ".join(
            f"{layer}: start {starts[layer]:.1e}, moved by up to {moved[layer]:.1e}, {seen[layer]:.2%} of pairs"
            for layer in seen
        ),
        holds=all(moved[one] <= reach < 4.4 * starts[one] and seen[one] < shared.SPREAD for one in seen),
    )


def _still(run: xr.Dataset) -> Claim:
    seen = {layer: shared.look(run, layer) for layer in shared.layers_of(run)}
    return Claim(
        text=f"kernels are still condensed at the end: in each layer more than {shared.SPREAD:.0%} of pairs have "
        f"|cos| > {shared.NEAR:g}, which by chance none has",
        paper="this reveals a clear condensation phenomenon after training",
        measured="; ".join(f"{layer}: {shared.in_words(one)}" for layer, one in seen.items()),
        holds=all(one.pairs > shared.SPREAD for one in seen.values()),
    )


def _learnt(run: xr.Dataset) -> Claim:
    accuracy, steps = 1 - run["train-error"].values, shared.clock(run)[0]
    full = np.flatnonzero(np.all(accuracy == 1, axis=0))
    reached = f"first at step {steps[full[0]]:g}" if full.size else f"not reached in {steps[-1]:g} steps"
    return Claim(
        text="training accuracy reaches 100%",
        paper="until the training accuracy reaches 100%",
        measured=f"{accuracy[:, -1].mean():.1%} at the end, {accuracy.max():.1%} at best; 100% {reached}",
        holds=bool(full.size),
    )
