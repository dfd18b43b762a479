"""Before any training: the spectrum of Z^T Z, and the direction in which kernels will condense."""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import numpy as np

from unlazy.data import Dataset
from unlazy.figures import ORDERED, canvas
from unlazy.lab import Recipe, draw_data, parse
from unlazy.losses import CrossEntropy, Squared
from unlazy.papers._base import Claim, Figure, Panel, Results, Scale, by_scale, values
from unlazy.papers.zhou2023._shared import PIXELS, SQUARED, STAND_IN, Pictures, pictures_of, pictures_shown
from unlazy.papers.zhou2023.theorems import linearise


@dataclass(frozen=True)
class _Sizes:
    n: int
    draws: int


_SCALES: dict[Scale, _Sizes] = {"quick": _Sizes(500, 5), "paper": _Sizes(500, 50)}
_BLOCK = 10  # draws to a run: more would fill the memory with patches
_KERNEL: dict[Pictures, int] = {"cifar10": 3, "mnist": 5}  # with which the paper's numbers come out
_SHOWN: dict[Pictures, int] = {"cifar10": 15, "mnist": 10}
_PAPER: dict[Pictures, tuple[tuple[float, float], ...]] = {  # mean and standard deviation, by input channel
    "cifar10": ((0.9891, 0.0349), (0.9982, 0.0009), (0.9992, 0.0003)),
    "mnist": ((0.99974, 0.00003),),
}
_WITHIN = 1e-4  # of the paper's value on MNIST, which it gives to five digits
_CLEAR = 5.0  # a gap is clear if λ_1² is this many times λ_2²: a bar that stands alone
_NEAR = 0.95


class Draw(NamedTuple):
    """What one draw of images predicts."""

    eigenvalues: np.ndarray  # of Z^T Z, the largest first
    ones: np.ndarray  # |cos| of v_1 with the vector of ones, by input channel
    second: float  # λ_2 / λ_1 of the same images with cross-entropy


def recipe(pictures: Pictures, scale: Scale, first: int, seeds: int) -> Recipe:
    """Draw images and networks, and look at how kernels lie before training; nothing is trained."""
    data = pictures_of(pictures, scale, _SCALES[scale].n)
    return Recipe(
        name=f"zhou2023 spectrum {pictures}",
        data=data,
        network={"kind": "conv-net", "channels": [32], "kernel": _KERNEL[pictures], "scale": 1e-6},
        flow={"kind": "descent", "loss": SQUARED},
        times=[0.0],
        probes=[{"kind": "alignment", "direction": "ones", "layer": "conv1-kernels"}],
        seed=first,
        seeds=seeds,
        dtype="float32",
    )


@functools.lru_cache(maxsize=16)
def _draws(written: str) -> tuple[Draw, ...]:
    """Linearise on the images of every seed of a recipe, drawn again."""
    stored = parse(json.loads(written))
    network: Any = stored.network
    found = []
    for data in draw_data(stored):
        linear = linearise(data, network["kernel"], Squared(half=False))
        labels = jax.nn.one_hot(data.y.astype(int), 10, dtype=data.y.dtype)
        classes = linearise(Dataset(data.x, labels), network["kernel"], CrossEntropy())
        second = float(classes.values[1] / classes.values[0])
        found.append(Draw(linear.eigenvalues, np.abs(linear.ones()), second))
    return tuple(found)


def draws(results: Results) -> list[Draw]:
    """All draws of all runs."""
    return [one for run in results.values() for one in _draws(str(run.attrs["recipe"]))]


class Spectrum(Panel):
    """Figures 7 and 14: the largest eigenvalues of Z^T Z, and v_1 against the vector of ones."""

    scales = by_scale(_SCALES, lambda s: f"n = {s.n}, {s.draws} draws")

    def __init__(self, number: int, pictures: Pictures) -> None:
        self.key = f"zhou2023/fig{number}"
        self.pictures: Pictures = pictures
        name = {"cifar10": "colour images", "mnist": "digits"}[pictures]
        self.title = f"Figure {number}: spectrum of the linear flow on {name}"
        side = _KERNEL[pictures]
        span = "[-1, 1]" if PIXELS[pictures] == "signed" else "[0, 1]"
        self.caption = (
            f"Left: the {_SHOWN[pictures]} largest eigenvalues λ_k² of Z^T Z (eq. 35, 70) for kernels of {side} x "
            f"{side}, pixels in {span} and class numbers, with the squared error without the half: the first draw as "
            "bars, all draws as dots. Right: cosine of the part of v_1 that belongs to each input channel, without its "
            "bias, with the vector of ones, a dot a draw; lines are the paper's values. Pixels and kernel size are "
            f"those with which its numbers come out. {STAND_IN}."
        )

    def recipes(self, scale: Scale, seeds: int | None = None) -> dict[str, Recipe]:
        """All draws, a few to a run."""
        total = seeds or _SCALES[scale].draws
        return {
            f"draws from {first}": recipe(self.pictures, scale, first, min(_BLOCK, total - first))
            for first in range(0, total, _BLOCK)
        }

    def claims(self, results: Results) -> list[Claim]:
        """A gap, and the vector of ones."""
        found = draws(results)
        ratios = np.array([one.eigenvalues[0] / one.eigenvalues[1] for one in found])
        second = np.array([one.second for one in found])
        return [
            Claim(
                text=f"a clear spectral gap: λ_1² is at least {_CLEAR:g} times λ_2² in every draw",
                paper="a clear spectral gap could be observed, which satisfies Assumption 4",
                measured=f"λ_1²/λ_2² = {ratios.mean():.1f} (from {ratios.min():.1f} to {ratios.max():.1f} in "
                f"{len(found)} draws); with cross-entropy λ_2/λ_1 = {second.mean():.2f} in place of "
                f"{np.mean(ratios**-0.5):.2f}, so that a second direction is seen for longer",
                holds=bool(ratios.min() >= _CLEAR),
            ),
            self._ones(results, found),
        ]

    def _ones(self, results: Results, found: list[Draw]) -> Claim:
        ones = np.stack([one.ones for one in found])
        means, deviations = ones.mean(axis=0), ones.std(axis=0)
        start = np.median([np.median(np.abs(run["alignment.conv1-kernels.cosine"])) for run in results.values()])
        known = _PAPER[self.pictures]
        printed = ", ".join(f"{mean} ± {deviation}" for mean, deviation in known)
        if "digits" in values(results, "data.kind"):
            text, holds = f"on the stand-in, v_1 has |cos| > {_NEAR:g} with the vector of ones", means.min() > _NEAR
        elif len(known) == 1:
            text = f"v_1 is the vector of ones: the mean cosine over draws is that of the paper within {_WITHIN:g}"
            holds = abs(means[0] - known[0][0]) <= _WITHIN
        else:
            text = "each channel's part of v_1 is the vector of ones: mean |cos| over draws within the paper's own "
            text += "standard deviation of the paper's value"
            holds = all(abs(mean - value) <= deviation for mean, (value, deviation) in zip(means, known, strict=True))
        return Claim(
            text=text,
            paper=f"{printed} from 50 independent trials",
            measured=", ".join(f"{mean:.5f} ± {one:.5f}" for mean, one in zip(means, deviations, strict=True))
            + f" in {len(found)} draws (kernels at the start: median {start:.2f})",
            holds=bool(holds),
        )

    def draw(self, results: Results) -> Figure:
        """Eigenvalues, then cosines."""
        found, shown = draws(results), _SHOWN[self.pictures]
        figure, axes = canvas(2, 8.6, 3.6)
        places = np.arange(1, min(shown, len(found[0].eigenvalues)) + 1)
        axes[0].bar(places, found[0].eigenvalues[: len(places)], color=ORDERED[1], alpha=0.6)
        for one in found:
            axes[0].plot(places, one.eigenvalues[: len(places)], ".", color=ORDERED[0], markersize=3)
        axes[0].set_xlabel("k")
        axes[0].set_title("eigenvalues of ZᵀZ", fontsize=9)
        ones = np.stack([one.ones for one in found])
        for channel, column in enumerate(ones.T):
            spots = channel + np.linspace(-0.25, 0.25, len(column))
            axes[1].plot(spots, column, ".", color=ORDERED[1], markersize=4)
            if ones.shape[1] == len(_PAPER[self.pictures]):
                value = _PAPER[self.pictures][channel][0]
                axes[1].plot([channel - 0.35, channel + 0.35], [value, value], "-", color=ORDERED[2], linewidth=1)
        axes[1].set_xticks(range(ones.shape[1]), [f"channel {index + 1}" for index in range(ones.shape[1])])
        axes[1].set_title("cosine of v₁ with the vector of ones", fontsize=9)
        figure.suptitle(f"zhou2023, prediction before training, {pictures_shown(results)}", fontsize=10)
        return figure
