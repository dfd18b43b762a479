"""Two layers by gradient descent: kernels gather along the vector of ones, in both senses."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

from unlazy.lab import Lab
from unlazy.papers._base import Claim, Panel, Results, Scale, check_finished
from unlazy.papers._figure import canvas
from unlazy.papers.zhou2023 import _claims as claims
from unlazy.papers.zhou2023 import _draw as draw
from unlazy.papers.zhou2023._settings import SQUARED, STAND_IN, STANDARD, START, Training, even, kernels, pictures_shown

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_RATE = 5e-6
_SMALL, _STANDARD = "small weights", "standard start"
# The loss falls faster from a standard start, and is looked at sooner: after these numbers of steps.
_CONTROL = (0, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
COLOURS: dict[Scale, Training] = {
    "quick": Training("cifar10", 100, (32,), 3, _RATE, even(4500, 11), SQUARED, gamma=4.0, adam=False),
    "paper": Training("cifar10", 500, (32,), 3, _RATE, even(4500, 11), SQUARED, gamma=4.0, adam=False),
}
DIGITS: dict[Scale, Training] = {
    "quick": Training("mnist", 100, (32,), 3, _RATE, even(3600, 11), SQUARED, adam=False),
    "paper": Training("mnist", 500, (32,), 3, _RATE, even(3600, 11), SQUARED, adam=False),
}
WIDE: dict[Scale, Training] = {
    "quick": Training("mnist", 50, (320,), 3, _RATE, even(7000, 11), SQUARED, adam=False),
    "paper": Training("mnist", 500, (320,), 3, _RATE, even(7000, 11), SQUARED, adam=False),
}


class GradientDescent(Panel):
    """Figures 6, 12 and 13: cosines of all pairs of kernels, their amplitudes, and their cosines with ones."""

    def __init__(self, figure: str, trainings: dict[Scale, Training], demo: bool = False, control: bool = True) -> None:
        self.key = f"zhou2023/{figure}"
        self.demo, self.trainings, self.with_control = demo, trainings, control
        name = {"cifar10": "colour images", "mnist": "digits"}[trainings["paper"].pictures]
        self.title = (
            f"Figure {figure.removeprefix('fig')}: gradient descent on {name}, {trainings['paper'].channels[0]} kernels"
        )

    @property
    def scales(self) -> dict[Scale, str]:
        """Sizes, and where it is shown."""
        return {scale: f"{one.told()}, t = {_RATE * one.steps[-1]:g}" for scale, one in self.trainings.items()}

    @property
    def caption(self) -> str:
        """What is shown, and what was chosen."""
        one = self.trainings["paper"]
        control = f" The control starts from {STANDARD}." if self.with_control else ""
        return (
            "Left: cosines between kernels of 3 x 3, one for each pair of an input and an output channel, in an order "
            "that puts clusters together. Right: amplitude of each kernel, and its cosine with the vector of ones. "
            f"tanh, read out linearly, squared error of class numbers without the half, seen at t = "
            f"{_RATE * one.steps[-1]:g} of the gradient flow, which is step {one.steps[-1]:,} of the paper's gradient "
            f"descent at rate {_RATE:g} (steps that are about 1e-3 of the shortest time scale). {START}; "
            f"γ = {one.gamma:g}.{control} {STAND_IN}."
        )

    def run(self, scale: Scale, lab: Lab, seeds: int | None = None) -> Results:
        """Follow the flow from small weights and, for the control, from a standard start."""
        one = self.trainings[scale]
        name = f"descent {one.pictures} {one.channels[0]} kernels"
        results = {_SMALL: lab.run(one.recipe(f"{name} {_SMALL}", scale, seeds))}
        if self.with_control:
            control = dataclasses.replace(one, standard=True, steps=_CONTROL)
            results[_STANDARD] = lab.run(control.recipe(f"{name} {_STANDARD}", scale, seeds))
        return results

    def claims(self, results: Results) -> list[Claim]:
        """One line in both senses, that of the vector of ones, and from small weights only."""
        check_finished(results)
        paper = "the kernel weights of a two-layer CNN still undergo condensation at two opposite directions"
        found = [
            claims.condense(results, {_SMALL: 1}, paper),
            claims.two_signs(results, (_SMALL,), paper),
            claims.along_ones(results, _SMALL, "the cosine between each kernel and the vector of ones is almost ±1"),
        ]
        return [*found, claims.control(results, _SMALL, _STANDARD)] if self.with_control else found

    def draw(self, results: Results) -> Figure:
        """Heat map, then amplitude and orientation."""
        run = results[_SMALL]
        figure, axes = canvas(2, 8.6, 3.9)
        figure.colorbar(draw.heat(axes[0], run, "conv1", "cosine similarity"), ax=axes[0], shrink=0.8)
        cosine = np.swapaxes(claims.to_ones(run)[0], 0, 1).ravel()  # in the order in which kernels are kept
        draw.orientation(axes[1], np.linalg.norm(kernels(run, "conv1")[0], axis=1), cosine)
        figure.suptitle(f"zhou2023, gradient descent, {pictures_shown(results)}", fontsize=10)
        return figure
