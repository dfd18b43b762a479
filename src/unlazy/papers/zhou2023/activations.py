"""Two layers with ReLU, sigmoid and tanh: all condense, the sigmoid with one sign."""

from __future__ import annotations

import dataclasses

from unlazy.figures import canvas
from unlazy.lab import Recipe
from unlazy.papers._base import Claim, Figure, Results, Scale
from unlazy.papers._curves import even_steps
from unlazy.papers.zhou2023 import _shared as shared
from unlazy.papers.zhou2023._shared import SQUARED, STAND_IN, STANDARD, START, Training

Steps = dict[str, tuple[float, int]]  # rate and number of steps of each activation
_STEPS: dict[Scale, dict[shared.Pictures, Steps]] = {
    # Larger rates and as many times fewer steps: Adam moves by its rate in each step. tanh on colour images goes 2.7
    # times as far as in the paper: at 1.3 times 81 to 90 % of the kernels had turned at this size. Why is open.
    "quick": {
        "cifar10": {"relu": (1e-5, 50), "sigmoid": (2.5e-5, 100), "tanh": (5e-6, 80)},
        "mnist": {"sigmoid": (2.5e-6, 50), "relu": (2.5e-6, 60), "tanh": (2.5e-5, 40)},
    },
    "paper": {
        "cifar10": {"relu": (5e-7, 1000), "sigmoid": (5e-7, 5000), "tanh": (5e-7, 300)},
        "mnist": {"sigmoid": (5e-7, 252), "relu": (5e-7, 302), "tanh": (5e-6, 200)},
    },
}
_GAMMA: dict[Scale, float] = {"quick": 2.25, "paper": 2.0}  # half of the channels start as small with the larger one
_CONTROL = (0, 1, 2, 5, 10, 20, 50, 100)
_TANH, _STANDARD = "tanh", "tanh, standard start"


def training(pictures: shared.Pictures, scale: Scale, activation: str, standard: bool = False) -> Training:
    """Give one network: with a dense layer and cross-entropy on CIFAR-10, linear with class numbers on MNIST."""
    quick, colour = scale == "quick", pictures == "cifar10"
    rate, steps = _STEPS[scale][pictures][activation]
    one = Training(
        pictures,
        n=60 if quick else 500,
        channels=(16,) if quick else (32,),
        kernel=5,
        rate=rate,
        steps=even_steps(steps, 9),
        loss="cross-entropy" if colour else SQUARED,
        activation=activation,
        gamma=_GAMMA[scale],
        dense=(64 if quick else 1024) if colour else None,
    )
    return dataclasses.replace(one, standard=True, steps=_CONTROL) if standard else one


class Activations(shared.TrainingPanel):
    """Figures 4 and 10: cosines of all pairs of kernels, a heat map for each activation."""

    controls = frozenset({_STANDARD})

    def __init__(self, number: int, pictures: shared.Pictures) -> None:
        self.key, self.number = f"zhou2023/fig{number}", number
        self.pictures: shared.Pictures = pictures
        name = {"cifar10": "colour images", "mnist": "digits"}[pictures]
        self.title = f"Figure {number}: three activations on {name}"
        self.scales = {
            scale: f"{training(pictures, scale, _TANH).in_words()}, "
            + ", ".join(f"{name}: {steps:,} steps" for name, (_, steps) in table[pictures].items())
            for scale, table in _STEPS.items()
        }
        rates = "; ".join(
            f"{name} {steps:,} steps at {rate:g}" for name, (rate, steps) in _STEPS["paper"][pictures].items()
        )
        loss = (
            "cross-entropy through a layer of ReLU units"
            if pictures == "cifar10"
            else "the squared error of class numbers, read out linearly"
        )
        self.caption = (
            "Cosines between kernels of 5 x 5, one for each pair of an input and an output channel, in an order that "
            f"puts clusters together: yellow the same, purple the opposite direction. Full-batch Adam on {loss} (paper "
            f"scale: {rates}; quick scale: larger rates, fewer steps). {START}; γ = {_GAMMA['paper']:g} (quick scale: "
            f"{_GAMMA['quick']:g}, for as small a start). The control starts from {STANDARD}. {STAND_IN}."
        )

    def recipes(self, scale: Scale, seeds: int | None = None) -> dict[str, Recipe]:
        """All activations, and the control."""
        every = {name: training(self.pictures, scale, name) for name in _STEPS[scale][self.pictures]}
        every[_STANDARD] = training(self.pictures, scale, _TANH, standard=True)
        return {label: one.recipe(f"{self.pictures} {label}", scale, seeds) for label, one in every.items()}

    def claims(self, results: Results) -> list[Claim]:
        """All condense; tanh with two signs, sigmoid with one, ReLU once the dead kernels are told apart."""
        lines = {"tanh": 1, "sigmoid": 1, "relu": 2}  # relu does not join opposite kernels into one line
        return [
            shared.condense(
                results, lines, "we can still see a very clear condensation phenomenon", floors={"relu": shared.DEAD}
            ),
            shared.two_signs(results, (_TANH,), "condense at two opposite directions when the activation is tanh"),
            shared.one_sign(results, "sigmoid", "the heat map of the sigmoid has one colour"),
            shared.control(results, _TANH, _STANDARD),
        ]

    def draw(self, results: Results) -> Figure:
        """A heat map for each activation, in the paper's order."""
        figure, axes = canvas(3, 11.0, 3.9)
        pictures = [
            shared.heat(one, results[name], "conv1", f"{name}, step {shared.clock(results[name])[0][-1]:g}")
            for one, name in zip(axes, _STEPS["paper"][self.pictures], strict=True)
        ]
        figure.colorbar(pictures[-1], ax=axes, shrink=0.8)
        figure.suptitle(f"zhou2023, kernels of the first layer, {shared.pictures_shown(results)}", fontsize=10)
        return figure
