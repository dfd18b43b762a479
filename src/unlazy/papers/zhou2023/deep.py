"""Three convolutions of tanh: kernels of every layer condense at the start of training, and at its end."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

from unlazy.lab import Lab
from unlazy.papers._base import Claim, Panel, Results, Scale, check_finished
from unlazy.papers._figure import band, canvas
from unlazy.papers.zhou2023 import _claims as claims
from unlazy.papers.zhou2023 import _draw as draw
from unlazy.papers.zhou2023._settings import (
    SQUARED,
    STAND_IN,
    STANDARD,
    START,
    Training,
    clock,
    even,
    fall,
    kernels,
    layers_of,
    looks,
    pictures_shown,
    section,
)

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.figure import Figure

Scales = dict[Scale, Training]
Shown = dict[Scale, tuple[int, ...]]  # the step at which each layer is shown

_LITTLE, _MUCH = (8,) * 3, (32,) * 3
_GUESS = 0.2  # "epoch = 300 with accuracy less than 20%"
# Adam moves by its rate in each step: at quick scale a larger one takes as many times fewer steps. There are fewer
# channels and smaller kernels, so γ = 3 gives starts as small as γ = 2 does in the paper.
QUICK = "at quick scale kernels of 3 x 3, γ = 3 and rate 2e-5 with fewer steps"
CLASSIFIER: Scales = {
    "quick": Training("cifar10", 30, _LITTLE, 3, 2e-5, looks((*even(60, 4), *even(1200, 11))), gamma=3.0, dense=64),
    "paper": Training("cifar10", 500, _MUCH, 5, 2e-6, looks((*even(300, 7), *even(3000, 31))), dense=1024),
}
# Figure 5's own γ and rate cannot show what it shows (`_printed`); these do.
PROBABILITIES: Scales = {
    "quick": Training("cifar10", 30, _LITTLE, 3, 2e-5, even(150, 7), "softmax-squared", gamma=3.0, dense=64),
    "paper": Training("cifar10", 500, _MUCH, 5, 5e-6, even(400, 17), "softmax-squared", dense=1024),
}
PRINTED: Scales = {
    scale: dataclasses.replace(one, gamma=1.2, rate=1e-6, steps=even(300, 4)) for scale, one in PROBABILITIES.items()
}
NUMBERS: Scales = {
    "quick": Training("cifar10", 30, _LITTLE, 3, 2e-5, even(50, 6), SQUARED, gamma=3.0),
    "paper": Training("cifar10", 500, _MUCH, 3, 5e-6, even(200, 11), SQUARED),
}
DIGITS: Scales = {
    "quick": Training("mnist", 30, _LITTLE, 3, 5e-6, even(40, 5), SQUARED, gamma=3.0),
    "paper": Training("mnist", 500, _MUCH, 5, 5e-7, even(100, 11), SQUARED),
}
_CONTROL = (0, 1, 2, 5, 10, 20, 50)


class ThreeLayers(Panel):
    """Figures 2, 3, 5, 9 and 11: cosines of all pairs of kernels, a heat map for each layer."""

    def __init__(
        self,
        figure: str,
        what: str,
        trainings: Scales,
        shown: Shown,
        lines: int | None,
        control: bool = False,
        printed: Scales | None = None,
    ) -> None:
        self.key = f"zhou2023/{figure}"
        self.title = f"Figure {figure.removeprefix('fig')}: three convolutions, {what}"
        self.trainings, self.shown = trainings, shown
        self.lines = lines  # along which nearly all kernels lie; None at the end of training, where it is not said
        self.with_control = control
        self.printed = printed  # another training, with settings as they are printed

    @property
    def scales(self) -> dict[Scale, str]:
        """Sizes, and the steps shown."""
        return {scale: f"{one.told()}, step {_listed(self.shown[scale])}" for scale, one in self.trainings.items()}

    @property
    def caption(self) -> str:
        """What is shown, and what was chosen."""
        one = self.trainings["paper"]
        read = "read out linearly" if one.dense is None else "with a layer of ReLU units before the read-out"
        loss = {
            "cross-entropy": "cross-entropy",
            "softmax-squared": "the squared error of probabilities",
        }.get(str(one.loss), "the squared error of class numbers")
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

    def run(self, scale: Scale, lab: Lab, seeds: int | None = None) -> Results:
        """Train from small weights, and the control from a standard start."""
        results = {f"step {_listed(self.shown[scale])}": train(self.trainings[scale], scale, lab, seeds)}
        if self.with_control:
            control = dataclasses.replace(self.trainings[scale], standard=True, steps=_CONTROL)
            results["standard start"] = train(control, scale, lab, seeds)
        if self.printed is not None:
            results["as printed"] = train(self.printed[scale], scale, lab, seeds)
        return results

    def claims(self, results: Results) -> list[Claim]:
        """Condensation, layer by layer; at the end also accuracy."""
        check_finished(results)
        shown = _at_shown(results)
        if self.lines is None:
            return [_still(shown), _learnt(next(iter(results.values())))]
        found = [
            claims.condense(
                {"tanh": shown}, {"tanh": self.lines}, "nearly all kernels are condensed into two opposite directions"
            ),
            claims.two_signs({"tanh": shown}, ("tanh",), "two opposite directions in each layer"),
        ]
        if self.with_control:
            found += [
                _early(shown),
                claims.control({"tanh": shown, "standard": results["standard start"]}, "tanh", "standard"),
            ]
        if "as printed" in results:
            found.append(_printed(results["as printed"]))
        return found

    def draw(self, results: Results) -> Figure:
        """A heat map for each layer."""
        steps, shown = steps_of(next(iter(results))), _at_shown(results)
        figure, axes = canvas(3, 11.0, 3.9)
        pictures = [
            draw.heat(one, shown, layer, f"layer {layer.removeprefix('conv')}, step {step}")
            for one, layer, step in zip(axes, layers_of(shown), steps, strict=True)
        ]
        figure.colorbar(pictures[-1], ax=axes, shrink=0.8)
        figure.suptitle(f"zhou2023, {self.title.partition(': ')[2]}, {pictures_shown(results)}", fontsize=10)
        return figure


class Accuracy(Panel):
    """Figure 8: training accuracy along the run of figures 2 and 3."""

    def __init__(self, figure: str) -> None:
        self.key = f"zhou2023/{figure}"
        self.title = f"Figure {figure.removeprefix('fig')}: training accuracy of figure 2"

    @property
    def scales(self) -> dict[Scale, str]:
        """As figure 2, whose run this is."""
        return {
            scale: f"{one.told()}, {one.steps[-1]:,} steps, the run of figure 2" for scale, one in CLASSIFIER.items()
        }

    @property
    def caption(self) -> str:
        """What is shown, and what was chosen."""
        return (
            "Share of training images classified rightly along the run of figures 2 and 3. The paper does not say "
            f"after how many steps it stopped; the number is our choice. {STAND_IN}."
        )

    def run(self, scale: Scale, lab: Lab, seeds: int | None = None) -> Results:
        """Train, or find it stored."""
        return {"cross-entropy": train(CLASSIFIER[scale], scale, lab, seeds)}

    def claims(self, results: Results) -> list[Claim]:
        """100 % in the end."""
        check_finished(results)
        return [_learnt(results["cross-entropy"])]

    def draw(self, results: Results) -> Figure:
        """Accuracy against steps."""
        figure, (axes,) = canvas(1, 5.4, 3.6)
        steps, name = clock(results["cross-entropy"])
        band(axes, steps, 1 - results["cross-entropy"]["train-error"].values, 1, "training accuracy", dash=0)
        axes.set_ylim(0, 1.02)
        axes.set_xlabel(name)
        axes.set_title(f"zhou2023, training accuracy, {pictures_shown(results)}", fontsize=10)
        return figure


def train(training: Training, scale: Scale, lab: Lab, seeds: int | None) -> xr.Dataset:
    """Run one training; figures that show the same one share it."""
    loss = training.loss if isinstance(training.loss, str) else "squared"
    start = "standard start" if training.standard else "small weights"
    return lab.run(
        training.recipe(f"three layers {training.pictures} {loss} γ={training.gamma:g} {start}", scale, seeds)
    )


def _listed(steps: tuple[int, ...]) -> str:
    return ", ".join(map(str, dict.fromkeys(steps)))


def steps_of(label: str) -> list[int]:
    """Read the steps shown, layer by layer, from a label such as "step 200, 300": the last is also that of the rest."""
    steps = [int(word) for word in label.removeprefix("step ").split(", ")]
    return (steps + [steps[-1]] * 3)[:3]


def _at_shown(results: Results) -> xr.Dataset:
    """Give the first run, cut off where it is shown: the last look is then, layer by layer, the one shown."""
    label, run = next(iter(results.items()))
    times, _ = clock(run)
    steps = steps_of(label)
    last = run.isel(time=slice(0, _index(times, max(steps)) + 1))
    changed = {}
    for layer, step in zip(layers_of(run), steps, strict=True):
        name = f"input-weights.{layer}-kernels"
        values = last[name].values.copy()
        values[:, -1] = run[name].values[:, _index(times, step)]
        changed[name] = (last[name].dims, values)
    return last.assign(changed)


def _index(times: np.ndarray, step: int) -> int:
    return int(np.argmin(np.abs(times - step)))


def _early(run: xr.Dataset) -> Claim:
    accuracy = 1 - run["train-error"].values[:, -1]
    return Claim(
        text=f"this is the initial stage: accuracy is below {_GUESS:.0%}, or the loss has fallen by less than 5%",
        paper="selected at epoch = 300 with accuracy less than 20%",
        measured=f"accuracy {accuracy.mean():.1%}, loss fallen by {fall(run)[:, -1].mean():.2%}",
        holds=bool(np.all((accuracy < _GUESS) | (fall(run)[:, -1] < 0.05))),
    )


def _printed(run: xr.Dataset) -> Claim:
    """Hold the movement of kernels against the largest that Adam allows, and that against their start.

    An entry moves by at most (1 - β_1) / √(1 - β_2) = 3.2 times the rate in a step (Kingma and Ba 2015, section 2.1).
    Kernels that start at random with entries of size s and move by δ along one line have cosines of about
    δ² / (δ² + s²): 0.95 needs δ = 4.4 s.
    """
    network, (steps, _) = section(run, "network"), clock(run)
    reach = (1 - 0.9) / np.sqrt(1 - 0.999) * section(run, "flow")["rate"] * steps[-1]
    seen, starts, moved = {}, {}, {}
    for layer in layers_of(run):
        first, last = kernels(run, layer, 0), kernels(run, layer)
        seen[layer], starts[layer] = claims.look(run, layer).pairs, float(first.std())
        moved[layer] = float(np.abs(last - first).max())
    return Claim(
        text=f"with γ = {network.get('gamma')} and the rate of its caption, kernels cannot condense in {steps[-1]:g} "
        f"steps: no entry moves by more than 3.2 rates a step, {reach:.1e} in all, and |cos| > {claims.NEAR:g} needs "
        f"4.4 times the size of the start; less than {claims.SPREAD:.0%} of pairs have it",
        paper="figure 5: condensation is clearly observed",
        measured="; ".join(
            f"{layer}: start {starts[layer]:.1e}, moved by up to {moved[layer]:.1e}, {seen[layer]:.2%} of pairs"
            for layer in seen
        ),
        holds=all(moved[one] <= reach < 4.4 * starts[one] and seen[one] < claims.SPREAD for one in seen),
    )


def _still(run: xr.Dataset) -> Claim:
    seen = {layer: claims.look(run, layer) for layer in layers_of(run)}
    return Claim(
        text=f"kernels are still condensed at the end: in each layer more than {claims.SPREAD:.0%} of pairs have "
        f"|cos| > {claims.NEAR:g}, which by chance none has",
        paper="this reveals a clear condensation phenomenon after training",
        measured="; ".join(f"{layer}: {claims.in_words(one)}" for layer, one in seen.items()),
        holds=all(one.pairs > claims.SPREAD for one in seen.values()),
    )


def _learnt(run: xr.Dataset) -> Claim:
    accuracy, steps = 1 - run["train-error"].values, clock(run)[0]
    full = np.flatnonzero(np.all(accuracy == 1, axis=0))
    reached = f"first at step {steps[full[0]]:g}" if full.size else f"not reached in {steps[-1]:g} steps"
    return Claim(
        text="training accuracy reaches 100%",
        paper="until the training accuracy reaches 100%",
        measured=f"{accuracy[:, -1].mean():.1%} at the end, {accuracy.max():.1%} at best; 100% {reached}",
        holds=bool(full.size),
    )
