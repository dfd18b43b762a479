"""What the panels on the condensation of kernels share: images, networks with small weights, predictions, drawings."""

import functools
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import jax
import jax.numpy as jnp
import msgspec
import numpy as np
import xarray as xr

from unlazy.data import images
from unlazy.figures.style import evenly
from unlazy.lab import Recipe, instantiate, parse
from unlazy.papers._base import Axes, Figure, Panel, Results, Scale, option, values
from unlazy.papers._curves import label_axes, plural, titled_canvas
from unlazy.papers.zhou2023.theorems import Prediction, predict
from unlazy.probes import cluster_order, cosines

Pictures = Literal["cifar10", "mnist"]

# The paper does not say how pixels are scaled; these give the directions v_1 that it reports (figures 7 and 14).
PIXELS: dict[Pictures, str] = {"cifar10": "signed", "mnist": "unit"}
WORDS: dict[Pictures, str] = {"cifar10": "colour images", "mnist": "digits"}
NAMES = {"cifar10": "CIFAR-10", "mnist": "MNIST", "digits": "digits of scikit-learn"}
SQUARED = {"kind": "squared", "half": False}  # what figure 12 fits; the theory (eq. 1) has the half
START = (
    "Convolutions start from N(0, s²) with s = ((c_in + c_out) m²/2)^-γ, linear layers from N(0, 1e-4²), biases like "
    "the weights of their layer"
)
STANDARD = "γ = 1/2 in all layers, which is Glorot's initialisation"
STAND_IN = "At quick scale the digits of scikit-learn, enlarged to the same size, replace images that are not available"


def cosines_between(kernels: str, cosines: str = "Cosines") -> str:
    """Describe a heat map, for captions."""
    return (
        f"{cosines} between {kernels}, one for each pair of an input and an output channel, ordered by cluster: yellow "
        "for the same, purple for the opposite direction."
    )


def pictures_of(
    pictures: Pictures, scale: Scale, n: int, targets: str = "number", pixels: str | None = None
) -> dict[str, Any]:
    """Return the data of a recipe: the paper's images at paper scale or where they are available, else digits."""
    digits = {"kind": "digits", "side": {"cifar10": 32, "mnist": 28}[pictures]}
    kind = {"kind": pictures} if scale == "paper" or images.available(pictures) else digits
    return kind | {"n": n, "n_test": 0, "flat": False, "pixels": pixels or PIXELS[pictures], "targets": targets}


def flow_recipe(
    name: str, data: dict[str, Any], network: tuple[int, int, float], seeds: int, tolerance: float, **fields: Any
) -> Recipe:
    """Return the recipe of a two-layer network along the gradient flow, on the same data for all seeds.

    ``network`` is the number of channels, the size of the kernels, and ε: all weights start from N(0, ε²). ``fields``
    are other fields of the recipe; without ``times`` the run is observed at the start only.
    """
    channels, kernel, epsilon = network
    fields.setdefault("times", [0.0])
    return Recipe(
        name=f"zhou2023 {name}",
        data=data,
        network={"kind": "conv-net", "channels": [channels], "kernel": kernel, "scale": epsilon, "rescaled": True},
        flow={"kind": "gradient-flow", "tolerance": tolerance},
        seeds=seeds,
        same_data=True,
        **fields,
    )


@dataclass(frozen=True)
class Training:
    """A network and its training: by Adam, or by gradient descent with a small rate, that is, gradient flow."""

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
    optimiser: Any = "adam"  # as a recipe has it
    standard: bool = False  # the control: from a standard initialisation
    seeds: int = 1  # more at paper scale where training takes minutes

    def recipe(self, name: str, scale: Scale, seeds: int | None) -> Recipe:
        """Return the recipe; data depend on the seed only, so that all activations and controls get the same images."""
        classes = self.loss != SQUARED
        network: dict[str, Any] = {
            "kind": "conv-net",
            "channels": list(self.channels),
            "kernel": self.kernel,
            "activation": self.activation,
            "rescaled": not self.adam,
            **({"gamma": 0.5, "linear": None} if self.standard else {"gamma": self.gamma}),
            **({} if self.dense is None else {"dense": self.dense}),
        }
        adam = {"kind": "descent", "optimiser": self.optimiser, "rate": self.rate}
        flow = adam if self.adam else {"kind": "gradient-flow", "tolerance": 1e-4}
        layers = [f"conv{layer}-kernels" for layer in range(1, len(self.channels) + 1)]
        return Recipe(
            name=f"zhou2023 {name}",
            data=pictures_of(self.pictures, scale, self.n, "one-hot" if classes else "number"),
            network=network,
            flow=flow | {"loss": self.loss},
            times=[self.rate * step for step in self.steps],
            probes=["train-loss", *(["train-error"] if classes else []), {"kind": "input-weights", "layers": layers}],
            seeds=seeds or self.seeds,
            dtype="float32",
        )

    def in_words(self) -> str:
        """Describe its sizes in a few words."""
        depth = {1: "1 convolution", 3: "3 convolutions"}[len(self.channels)]
        dense = "" if self.dense is None else f", {self.dense} dense units"
        several = f", {plural(self.seeds)}" if self.seeds > 1 else ""
        return f"n = {self.n}, {depth} of {self.channels[0]} channels{dense}{several}"


class TrainingPanel(Panel):
    """A figure of trainings whose losses are in figure 15."""

    number: int  # of the figure
    controls: frozenset[str] = frozenset()  # labels of runs for comparison, which figure 15 leaves out

    def __init__(self, number: int, title: str) -> None:
        self.key, self.number, self.title = f"zhou2023/fig{number}", number, f"Figure {number}: {title}"


def layers_of(run: xr.Dataset) -> list[str]:
    """Return the names of the convolutions of a stored run: conv1, conv2, ..."""
    return [f"conv{layer}" for layer in range(1, len(option(run, "network.channels")) + 1)]


def kernels(run: xr.Dataset, layer: str, when: int | np.ndarray = -1) -> np.ndarray:
    """Return the kernels of a layer at one time, or at one time for each seed: (seeds, kernels, m²)."""
    every = run[f"input-weights.{layer}-kernels"].values
    return every[np.arange(len(every)), when]


def pictures_shown(results: Results) -> str:
    """Name the images of the runs."""
    return NAMES[values(results, "data.kind")[0]]


def clock(run: xr.Dataset) -> tuple[np.ndarray, str]:
    """Return the times of a stored run and their name: steps of Adam, or t of the flow."""
    rate = option(run, "flow.rate", None)
    return (run["time"].values, "t") if rate is None else (np.rint(run["time"].values / rate), "step")


def fall(run: xr.Dataset) -> np.ndarray:
    """Compute the relative decrease of the loss since the start: (seeds, times)."""
    loss = run["train-loss"].values
    return 1 - loss / loss[:, :1]


def predictions(recipe: Recipe) -> tuple[Prediction, ...]:
    """Predict the training of every seed of a recipe; its name, times and probes do not matter."""
    return _predictions(msgspec.structs.replace(recipe, name="run", times=[0.0], probes=[]).json())


@functools.lru_cache(maxsize=16)
def _predictions(written: str) -> tuple[Prediction, ...]:
    made = instantiate(parse(json.loads(written)))
    return tuple(predict(network, data, made.flow.loss) for network, data in zip(made.networks, made.data, strict=True))


_SHOWN = 256  # kernels in a heat map: more would be too fine for a page

_order = jax.jit(cluster_order)


def heat(axes: Axes, run: xr.Dataset, layer: str, title: str) -> Any:
    """Draw the cosines D(u, v) between a layer's kernels, ordered by cluster, for the first seed."""
    vectors = kernels(run, layer)[0]
    order = np.asarray(_order(jnp.asarray(vectors)))
    some = order[evenly(len(order), _SHOWN)]
    seen = np.asarray(cosines(jnp.asarray(vectors[some])))
    picture = axes.imshow(seen, vmin=-1, vmax=1, cmap="viridis", interpolation="nearest")
    axes.grid(visible=False)
    label_axes(axes, "kernel", title)
    return picture


def heat_maps(maps: Sequence[tuple[xr.Dataset, str, str]], title: str) -> Figure:
    """Draw a row of heat maps, one for each run, layer and title, with a common colour bar."""
    figure, axes = titled_canvas(title, len(maps), 11.0, 3.9)
    pictures = [heat(one, *given) for one, given in zip(axes, maps, strict=True)]
    figure.colorbar(pictures[-1], ax=axes, shrink=0.8)
    return figure
