"""Two layers by gradient descent: kernels gather along the vector of ones, in both senses."""

from __future__ import annotations

import dataclasses

import numpy as np

from unlazy.figures import canvas
from unlazy.lab import Recipe
from unlazy.papers._base import Claim, Figure, Results, Scale, by_scale
from unlazy.papers._curves import even_steps
from unlazy.papers.zhou2023 import _shared as shared
from unlazy.papers.zhou2023._shared import SQUARED, STAND_IN, STANDARD, START, Training

_RATE = 5e-6
_SMALL, _STANDARD = "small weights", "standard start"
# The loss falls faster from a standard start, and is observed sooner: after these numbers of steps.
_CONTROL = (0, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
COLOURS: dict[Scale, Training] = {
    "quick": Training("cifar10", 100, (32,), 3, _RATE, even_steps(4500, 11), SQUARED, gamma=4.0, adam=False),
    "paper": Training("cifar10", 500, (32,), 3, _RATE, even_steps(4500, 11), SQUARED, gamma=4.0, adam=False),
}
DIGITS: dict[Scale, Training] = {
    "quick": Training("mnist", 100, (32,), 3, _RATE, even_steps(3600, 11), SQUARED, adam=False),
    "paper": Training("mnist", 500, (32,), 3, _RATE, even_steps(3600, 11), SQUARED, adam=False),
}
WIDE: dict[Scale, Training] = {
    "quick": Training("mnist", 50, (320,), 3, _RATE, even_steps(7000, 11), SQUARED, adam=False),
    "paper": Training("mnist", 500, (320,), 3, _RATE, even_steps(7000, 11), SQUARED, adam=False),
}


class GradientDescent(shared.TrainingPanel):
    """Figures 6, 12 and 13: cosines of all pairs of kernels, their amplitudes, and their cosines with ones."""

    controls = frozenset({_STANDARD})

    def __init__(self, number: int, trainings: dict[Scale, Training], demo: bool = False, control: bool = True) -> None:
        self.key, self.number = f"zhou2023/fig{number}", number
        self.demo, self.trainings, self.with_control = demo, trainings, control
        one = trainings["paper"]
        name = {"cifar10": "colour images", "mnist": "digits"}[one.pictures]
        self.title = f"Figure {number}: gradient descent on {name}, {one.channels[0]} kernels"
        self.scales = by_scale(trainings, lambda one: f"{one.in_words()}, t = {_RATE * one.steps[-1]:g}")
        started = f" The control starts from {STANDARD}." if control else ""
        self.caption = (
            "Left: cosines between kernels of 3 x 3, one for each pair of an input and an output channel, in an order "
            "that puts clusters together. Right: amplitude of each kernel, and its cosine with the vector of ones. "
            f"tanh, read out linearly, squared error of class numbers without the half, seen at t = "
            f"{_RATE * one.steps[-1]:g} of the gradient flow, which is step {one.steps[-1]:,} of the paper's gradient "
            f"descent at rate {_RATE:g} (steps that are about 1e-3 of the shortest time scale). {START}; "
            f"γ = {one.gamma:g}.{started} {STAND_IN}."
        )

    def recipes(self, scale: Scale, seeds: int | None = None) -> dict[str, Recipe]:
        """The flow from small weights and, for the control, from a standard start."""
        one = self.trainings[scale]
        starts = {_SMALL: one}
        if self.with_control:
            starts[_STANDARD] = dataclasses.replace(one, standard=True, steps=_CONTROL)
        name = f"descent {one.pictures} {one.channels[0]} kernels"
        return {label: start.recipe(f"{name} {label}", scale, seeds) for label, start in starts.items()}

    def claims(self, results: Results) -> list[Claim]:
        """One line in both senses, that of the vector of ones, and from small weights only."""
        paper = "the kernel weights of a two-layer CNN still undergo condensation at two opposite directions"
        found = [
            shared.condense(results, {_SMALL: 1}, paper),
            shared.two_signs(results, (_SMALL,), paper),
            shared.along_ones(results, _SMALL, "the cosine between each kernel and the vector of ones is almost ±1"),
        ]
        return [*found, shared.control(results, _SMALL, _STANDARD)] if self.with_control else found

    def draw(self, results: Results) -> Figure:
        """Heat map, then amplitude and orientation."""
        run = results[_SMALL]
        figure, axes = canvas(2, 8.6, 3.9)
        figure.colorbar(shared.heat(axes[0], run, "conv1", "cosine similarity"), ax=axes[0], shrink=0.8)
        cosine = np.swapaxes(shared.to_ones(run)[0], 0, 1).ravel()  # in the order in which kernels are kept
        shared.orientation(axes[1], np.linalg.norm(shared.kernels(run, "conv1")[0], axis=1), cosine)
        figure.suptitle(f"zhou2023, gradient descent, {shared.pictures_shown(results)}", fontsize=10)
        return figure
