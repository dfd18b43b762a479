"""What the panels of zhou2023 share: images, networks from small weights, predictions, claims on kernels, and axes."""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import msgspec
import numpy as np
import xarray as xr

from unlazy.data import at_hand, images
from unlazy.figures import ORDERED, band
from unlazy.lab import Recipe, instantiate, parse
from unlazy.networks import ConvNet
from unlazy.papers._base import Axes, Claim, Panel, Results, Scale, option, values
from unlazy.papers._curves import label_axes
from unlazy.papers.zhou2023.theorems import Prediction, predict
from unlazy.probes import chance, cluster_order, clusters, condensed, cosines, living

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


def predictions(recipe: Recipe) -> tuple[Prediction, ...]:
    """Predict the training of every seed of a recipe; its name, times and probes do not matter."""
    return _predictions(msgspec.structs.replace(recipe, name="run", times=[0.0], probes=[]).json())


@functools.lru_cache(maxsize=16)
def _predictions(written: str) -> tuple[Prediction, ...]:
    made = instantiate(parse(json.loads(written)))
    return tuple(
        predict(network, data, made.flow.loss)
        for network, data in zip(made.networks, made.data, strict=True)
        if isinstance(network, ConvNet)
    )


NEAR = 0.95  # |cos| above which two kernels have one direction (18 degrees), as in `unlazy.probes.condensation`
NEARLY_ALL = 0.9  # share of the kernels that the paper's "nearly all kernels are condensed" asks for at least
SPREAD = 0.05  # share of pairs below which a layer has not condensed: kernels of 3 x 3 start at 3e-5
DEAD = 0.1  # a kernel shorter than this share of the longest was left behind by its ReLU

_clusters = jax.jit(clusters, static_argnames=("threshold", "signed"))
_condensed = jax.jit(condensed, static_argnames=("threshold", "floor"))


class Seen(NamedTuple):
    """What is seen of a layer at a look, means over seeds."""

    pairs: float  # share with |cos| > 0.95
    opposite: float  # share of these that point apart
    lines: float  # number of effective directions
    gathered: float  # share of living kernels in the largest clusters
    alive: float


def look(run: xr.Dataset, layer: str, when: int = -1, lines: int = 1, floor: float = 0.0) -> Seen:
    """Judge the kernels of a layer."""
    every = []
    for vectors in kernels(run, layer, when):
        one = _condensed(jnp.asarray(vectors), threshold=NEAR, floor=floor)
        numbers = {name: float(value) for name, value in one.items()}
        share = gathered(vectors, lines, floor)
        every.append((numbers["pairs"], numbers["opposite"], numbers["lines"], share, numbers["alive"]))
    return Seen(*map(float, np.mean(every, axis=0)))


def gathered(vectors: np.ndarray, lines: int = 1, floor: float = 0.0) -> float:
    """Share of the living vectors that lie along the ``lines`` lines with most followers, to |cos| > 0.95."""
    alive = living(jnp.asarray(vectors), floor)
    found = _clusters(jnp.asarray(vectors), threshold=NEAR, alive=alive)
    follows = (np.asarray(alive) > 0) & (np.abs(found.cosine) >= NEAR)
    sizes = np.sort(np.bincount(np.asarray(found.leader)[follows], minlength=1))
    return float(sizes[-lines:].sum() / max(np.sum(np.asarray(alive) > 0), 1))


def in_words(seen: Seen) -> str:
    """Say what is seen in one line."""
    dead = "" if seen.alive == 1 else f", {seen.alive:.0%} of kernels alive"
    count = f"{seen.lines:.3g}"
    return f"{seen.pairs:.1%} of pairs, {count} line{'' if count == '1' else 's'}{dead}"


def condense(
    results: Results, lines: dict[str, int], paper: str, when: int = -1, floors: dict[str, float] | None = None
) -> Claim:
    """Nearly all kernels of every layer of the runs named lie along so many lines."""
    found: dict[str, tuple[Seen, Seen]] = {}
    for name, most in lines.items():
        floor = (floors or {}).get(name, 0.0)
        for layer in layers_of(results[name]):
            before, now = (look(results[name], layer, at, most, floor) for at in (0, when))
            found[f"{name} {layer}"] = (before, now)
    most = ", ".join(f"{name}: {count}" for name, count in lines.items())
    return Claim(
        text=f"at least {NEARLY_ALL:.0%} of the kernels of each layer lie along few lines to |cos| > {NEAR:g} (at most "
        f"{most}); measured are also the share of pairs with |cos| > {NEAR:g} and the number of lines there are",
        paper=paper,
        measured="; ".join(
            f"{name}: {now.gathered:.1%} ({in_words(now)}; at the start {before.pairs:.2g} of pairs)"
            for name, (before, now) in found.items()
        ),
        holds=all(now.gathered >= NEARLY_ALL for _, now in found.values()),
    )


def two_signs(results: Results, names: tuple[str, ...], paper: str, when: int = -1) -> Claim:
    """Cosines are two-valued: of pairs along one line, many point apart."""
    shares = {
        f"{name} {layer}": look(results[name], layer, when) for name in names for layer in layers_of(results[name])
    }
    return Claim(
        text="both opposite directions occur in every layer: among pairs along one line, 10% to 60% point apart (50% "
        "if signs are fair coins, 18% if nine in ten agree)",
        paper=paper,
        measured="; ".join(f"{name}: {seen.opposite:.1%} of {seen.pairs:.1%}" for name, seen in shares.items()),
        holds=all(0.1 <= seen.opposite <= 0.6 for seen in shares.values()),
    )


def inputs_of(run: xr.Dataset) -> int:
    """Number of input channels of the first convolution."""
    return kernels(run, "conv1").shape[1] // option(run, "network.channels.0")


def by_input(run: xr.Dataset, when: int = -1) -> np.ndarray:
    """Kernels of the first convolution by input channel: (seeds, inputs, outputs, m²)."""
    seen = kernels(run, "conv1", when)
    return np.swapaxes(seen.reshape(len(seen), -1, inputs_of(run), seen.shape[2]), 1, 2)


def one_sign(results: Results, name: str, paper: str) -> Claim:
    """All kernels of one input channel point the same way."""
    every = by_input(results[name])
    unit = every / np.linalg.norm(every, axis=3, keepdims=True)
    cosines = np.einsum("siad,sibd->siab", unit, unit)
    least = cosines.min(axis=(2, 3))
    return Claim(
        text=f"{name}: kernels of one input channel have one sign: the smallest cosine of any two is above {NEAR:g}",
        paper=paper,
        measured=f"smallest cosine by input channel: {', '.join(f'{value:.4f}' for value in least.min(axis=0))}",
        holds=bool(np.all(least > NEAR)),
    )


def to_ones(run: xr.Dataset, when: int = -1) -> np.ndarray:
    """Cosine of every kernel of the first convolution with the vector of ones: (seeds, inputs, outputs)."""
    every = by_input(run, when)
    return every.sum(axis=3) / (np.linalg.norm(every, axis=3) * np.sqrt(every.shape[3]))


def along_ones(results: Results, name: str, paper: str) -> Claim:
    """Kernels lie along the vector of ones, in either sense."""
    cosines = np.abs(to_ones(results[name]))
    start = np.median(np.abs(to_ones(results[name], 0)))
    return Claim(
        text=f"the direction is the vector of ones: {NEARLY_ALL:.0%} of kernels or more have |cos| > {NEAR:g} with it",
        paper=paper,
        measured=f"{np.mean(cosines > NEAR):.1%} of kernels; median |cos| {np.median(cosines):.4f} (at the start "
        f"{start:.2f}), by input channel {', '.join(f'{value:.4f}' for value in np.median(cosines, axis=(0, 2)))}",
        holds=bool(np.mean(cosines > NEAR) >= NEARLY_ALL),
    )


def control(results: Results, small: str, standard: str, when: int = -1) -> Claim:
    """From a standard start kernels do not condense at an equal relative decrease of the loss."""
    reached = float(np.median(fall(results[small])[:, when]))
    falls = np.median(fall(results[standard]), axis=0)
    later = np.flatnonzero(falls >= reached)
    at = int(later[0]) if later.size else len(falls) - 1
    layers = layers_of(results[small])
    ours = {layer: look(results[small], layer, when).pairs for layer in layers}
    theirs = {layer: look(results[standard], layer, at).pairs for layer in layers}
    size = kernels(results[small], layers[0]).shape[2]
    return Claim(
        text="the same network from a standard start (Glorot) does not condense: at an equal relative decrease of the "
        f"loss less than {SPREAD:.0%} of pairs have |cos| > {NEAR:g} in any layer (by chance {chance(size, NEAR):.0e}) "
        "and more do from small weights in all",
        paper="the paper has no such control",
        measured=f"loss fallen by {reached:.2e} from small weights, by {falls[at]:.2e} from the standard start; pairs: "
        + "; ".join(f"{layer} {ours[layer]:.1%} against {theirs[layer]:.2%}" for layer in layers),
        holds=bool(later.size) and reached > 0 and all(theirs[one] < SPREAD < ours[one] for one in layers),
    )


_SHOWN = 256  # kernels in a heat map: more are finer than a page

_order = jax.jit(cluster_order)


def ordered(vectors: np.ndarray) -> np.ndarray:
    """Cosines of all pairs, clusters together; of many kernels, as many as a page can show."""
    order = np.asarray(_order(jnp.asarray(vectors)))
    some = order[np.unique(np.linspace(0, len(order) - 1, min(_SHOWN, len(order))).round().astype(int))]
    return np.asarray(cosines(jnp.asarray(vectors[some])))


def heat(axes: Axes, run: xr.Dataset, layer: str, title: str, when: int = -1) -> Any:
    """Draw D(u, v) of a layer's kernels (first seed): yellow the same direction, purple the opposite one."""
    seen = ordered(kernels(run, layer, when)[0])
    picture = axes.imshow(seen, vmin=-1, vmax=1, cmap="viridis", interpolation="nearest")
    axes.grid(visible=False)
    label_axes(axes, "kernel", title)
    return picture


def losses(axes: Axes, run: xr.Dataset, title: str) -> None:
    """Draw the training loss along the run."""
    times, name = clock(run)
    band(axes, times, run["train-loss"].values, 1, title, dash=0)
    label_axes(axes, name, title)


def orientation(axes: Axes, amplitudes: np.ndarray, cosine: np.ndarray) -> None:
    """Draw amplitude (left, a dot a kernel) and cosine with the vector of ones (right), as figure 6b does."""
    axes.plot(amplitudes, ".", color=ORDERED[2], markersize=4)
    axes.set_ylabel("amplitude", color=ORDERED[2], fontsize=8)
    axes.set_xlabel("kernel", fontsize=8)
    axes.set_ylim(bottom=0)
    other = axes.twinx()
    other.plot(cosine, "+", color=ORDERED[1], markersize=4)
    other.set_ylim(-1.05, 1.05)
    other.set_ylabel("cosine with the vector of ones", color=ORDERED[1], fontsize=8)
    for one in (axes, other):
        one.tick_params(labelsize=7)
