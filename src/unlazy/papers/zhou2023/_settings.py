"""What the experiments of this paper share: images, networks from small weights, and how they are trained."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import xarray as xr

from unlazy.data import at_hand, images
from unlazy.lab import Recipe
from unlazy.papers._base import Panel, Results, Scale, option, values

Pictures = Literal["cifar10", "mnist"]

# The paper does not say how pixels are scaled; these give the directions v_1 that it reports (figures 7 and 14).
PIXELS: dict[Pictures, str] = {"cifar10": "signed", "mnist": "unit"}
SIDES: dict[Pictures, int] = {"cifar10": 32, "mnist": 28}
NAMES = {"cifar10": "CIFAR-10", "mnist": "MNIST", "digits": "digits of scikit-learn"}
SQUARED = {"kind": "squared", "half": False}  # what figure 12 fits; the theory (eq. 1) has the half
START = (
    "Convolutions start from N(0, s²) with s = ((c_in + c_out) m²/2)^-γ, linear layers from N(0, 1e-4²), biases like "
    "the weights of their layer"
)
STANDARD = "gamma = 1/2 in all layers, which is Glorot's"
STAND_IN = (
    "At quick scale digits of scikit-learn, enlarged to as many pixels, take the place of images that are not at hand"
)


def here(pictures: Pictures) -> bool:
    """Whether the images are on this machine."""
    if pictures == "mnist":
        return all(at_hand(file) for file in images.MNIST_FILES)
    return at_hand(images.CIFAR_ARCHIVE) or all(at_hand(part) for part in images.CIFAR_SUBSET)


def pictures_of(
    pictures: Pictures,
    scale: Scale,
    n: int,
    targets: Literal["one-hot", "number"] = "number",
    pixels: str | None = None,
) -> dict[str, Any]:
    """Images as a recipe has them: the real ones at paper scale and where they are at hand, else digits."""
    real = scale == "paper" or here(pictures)
    return {
        **({"kind": pictures} if real else {"kind": "digits", "side": SIDES[pictures]}),
        "n": n,
        "n_test": 0,
        "flat": False,
        "pixels": pixels or PIXELS[pictures],
        "targets": targets,
    }


@dataclass(frozen=True)
class Training:
    """One network, and how it is trained: by Adam, or by gradient descent of a small rate, that is, gradient flow."""

    pictures: Pictures
    n: int
    channels: tuple[int, ...]
    kernel: int
    rate: float
    steps: Sequence[int]  # at which to observe
    loss: Any = "cross-entropy"
    activation: str = "tanh"
    gamma: float = 2.0
    dense: int | None = None
    adam: bool = True
    standard: bool = False  # the control: from a standard start

    def recipe(self, name: str, scale: Scale, seeds: int | None) -> Recipe:
        """Give the recipe; data depend on the seed only, so activations and starts are compared on the same images."""
        classes = self.loss != SQUARED
        start = {"gamma": 0.5, "linear": None} if self.standard else {"gamma": self.gamma}
        network: dict[str, Any] = {
            "kind": "conv-net",
            "channels": list(self.channels),
            "kernel": self.kernel,
            "activation": self.activation,
            "rescaled": not self.adam,
            **start,
        }
        if self.dense is not None:
            network["dense"] = self.dense
        flow: dict[str, Any] = {"kind": "gradient-flow", "tolerance": 1e-4, "loss": self.loss}
        if self.adam:
            flow = {"kind": "descent", "optimiser": "adam", "rate": self.rate, "loss": self.loss}
        layers = [f"conv{layer}-kernels" for layer in range(1, len(self.channels) + 1)]
        return Recipe(
            name=f"zhou2023 {name}",
            data=pictures_of(self.pictures, scale, self.n, "one-hot" if classes else "number"),
            network=network,
            flow=flow,
            times=[self.rate * step for step in self.steps],
            probes=["train-loss", *(["train-error"] if classes else []), {"kind": "input-weights", "layers": layers}],
            seeds=seeds or 1,
            dtype="float32",
        )

    def in_words(self) -> str:
        """Give its sizes in a few words."""
        depth = {1: "1 convolution", 3: "3 convolutions"}[len(self.channels)]
        dense = "" if self.dense is None else f", {self.dense} dense units"
        return f"n = {self.n}, {depth} of {self.channels[0]} channels{dense}"


class TrainingPanel(Panel):
    """A figure of trainings that figure 15 shows again."""

    number: int  # of the figure
    controls: frozenset[str] = frozenset()  # labels of runs for comparison, which figure 15 leaves out


def layers_of(run: xr.Dataset) -> list[str]:
    """Names of the convolutions of a stored run: conv1, conv2, ..."""
    return [f"conv{layer}" for layer in range(1, len(option(run, "network.channels")) + 1)]


def kernels(run: xr.Dataset, layer: str, when: int = -1) -> np.ndarray:
    """Kernels of a layer at one of the times, seed by seed: (seeds, kernels, m²)."""
    return run[f"input-weights.{layer}-kernels"].values[:, when]


def pictures_shown(results: Results) -> str:
    """What the runs were made on, in words."""
    return NAMES[values(results, "data.kind")[0]]


def clock(run: xr.Dataset) -> tuple[np.ndarray, str]:
    """Times of a stored run and their name: steps of Adam, or t of the flow."""
    rate = option(run, "flow.rate", None)
    return (run["time"].values, "t") if rate is None else (np.rint(run["time"].values / rate), "step")


def fall(run: xr.Dataset) -> np.ndarray:
    """Relative decrease of the loss since the start: (seeds, looks)."""
    loss = run["train-loss"].values
    return 1 - loss / loss[:, :1]
