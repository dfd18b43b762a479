"""Before any training: the spectrum of Z^T Z, and the direction in which kernels will condense."""

import functools
import json
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import numpy as np

from unlazy.data import Dataset
from unlazy.figures import ORDERED
from unlazy.lab import Recipe, draw_data, parse
from unlazy.losses import CrossEntropy, Squared
from unlazy.papers._base import Claim, Figure, Panel, Results, Scale, agreement, by_scale, values
from unlazy.papers._curves import titled_canvas
from unlazy.papers.outcomes import at_least, certain, increases
from unlazy.papers.references import Reference, compare
from unlazy.papers.zhou2023 import condensation as c
from unlazy.papers.zhou2023.claims import NEAR
from unlazy.papers.zhou2023.condensation import STAND_IN, Pictures
from unlazy.papers.zhou2023.theorems import linearise

_IMAGES = 500
_TRIALS = 50  # of the paper
# On CIFAR-10 a few draws are unlike the others, so that 50 of them do not show what is common.
_DRAWS: dict[Pictures, dict[Scale, int]] = {
    "cifar10": {"quick": 5, "paper": 10 * _TRIALS},
    "mnist": {"quick": 5, "paper": _TRIALS},
}
_BLOCK = 10  # draws to a run: more would fill the memory with patches
_KERNEL: dict[Pictures, int] = {"cifar10": 3, "mnist": 5}  # with which the paper's numbers come out
_SHOWN: dict[Pictures, int] = {"cifar10": 15, "mnist": 10}
_PAPER: dict[Pictures, tuple[tuple[float, float], ...]] = {  # mean and standard deviation, by input channel
    "cifar10": ((0.9891, 0.0349), (0.9982, 0.0009), (0.9992, 0.0003)),
    "mnist": ((0.99974, 0.00003),),
}
_DIGITS: dict[Pictures, int] = {"cifar10": 4, "mnist": 5}  # that the paper prints
_WITHIN = 1e-4  # of the paper's value on MNIST: the weaker statement
_CLEAR = 5.0  # a gap is clear if λ_1² is this many times λ_2²: a bar that stands alone


class Draw(NamedTuple):
    """What one draw of images predicts."""

    eigenvalues: np.ndarray  # of Z^T Z, the largest first
    ones: np.ndarray  # |cos| of v_1 with the vector of ones, by input channel
    second: float  # λ_2 / λ_1 of the same images with cross-entropy


@functools.lru_cache(maxsize=16)
def _draws(written: str) -> tuple[Draw, ...]:
    """Linearise on the images of every seed of a recipe, drawn again."""
    stored = parse(json.loads(written))
    kernel: Any = stored.network["kernel"]  # type: ignore[index]
    found = []
    for data in draw_data(stored):
        linear = linearise(data, kernel, Squared(half=False))
        labels = jax.nn.one_hot(data.y.astype(int), 10, dtype=data.y.dtype)
        classes = linearise(Dataset(data.x, labels), kernel, CrossEntropy())
        found.append(Draw(linear.eigenvalues, np.abs(linear.ones()), float(classes.values[1] / classes.values[0])))
    return tuple(found)


def draws(results: Results) -> list[Draw]:
    """All draws of all runs."""
    return [one for run in results.values() for one in _draws(str(run.attrs["recipe"]))]


class Spectrum(Panel):
    """Figures 7 and 14: the largest eigenvalues of Z^T Z, and v_1 against the vector of ones."""

    def __init__(self, number: int, pictures: Pictures) -> None:
        self.key = f"zhou2023/fig{number}"
        self.pictures: Pictures = pictures
        self.title = f"Figure {number}: spectrum of the linear flow on {c.WORDS[pictures]}"
        self.scales = by_scale(_DRAWS[pictures], lambda draws: f"n = {_IMAGES}, {draws} draws")
        side = _KERNEL[pictures]
        span = "[-1, 1]" if c.PIXELS[pictures] == "signed" else "[0, 1]"
        self.caption = (
            f"Left: the {_SHOWN[pictures]} largest eigenvalues λ_k² of Z^T Z (eq. 35, 70) for kernels of {side} x "
            f"{side}, pixels in {span} and class numbers, with the squared error without the half: the first draw as "
            "bars, all draws as dots. Right: cosine of the part of v_1 that belongs to each input channel, without its "
            "bias, with the vector of ones, one dot per draw; lines are the paper's values, means of one group of "
            f"{_TRIALS} draws. Pixels and kernel size are those with which our numbers come closest to them. "
            f"{STAND_IN}."
        )

    def recipes(self, scale: Scale, seeds: int | None = None) -> dict[str, Recipe]:
        """All draws, a few to a run: images, and how kernels lie before training; nothing is trained."""
        total = seeds or _DRAWS[self.pictures][scale]
        kernel = _KERNEL[self.pictures]
        return {
            f"draws from {first}": Recipe(
                name=f"zhou2023 spectrum {self.pictures}",
                data=c.pictures_of(self.pictures, scale, _IMAGES),
                network={"kind": "conv-net", "channels": [32], "kernel": kernel, "scale": 1e-6},
                flow={"kind": "descent", "loss": c.SQUARED},
                times=[0.0],
                probes=[{"kind": "alignment", "direction": "ones", "layer": "conv1-kernels"}],
                seed=first,
                seeds=min(_BLOCK, total - first),
                dtype="float32",
            )
            for first in range(0, total, _BLOCK)
        }

    def claims(self, results: Results) -> list[Claim]:
        """A gap, the vector of ones, and the numbers of the paper."""
        found = draws(results)
        ratios = np.array([one.eigenvalues[0] / one.eigenvalues[1] for one in found])
        ones = np.stack([one.ones for one in found])
        start = np.median([np.median(np.abs(run["alignment.conv1-kernels.cosine"])) for run in results.values()])
        every = [
            *_gap(ratios, np.array([one.second for one in found])),
            Claim(
                text=f"each channel's part of v_1 is close to the vector of ones: |cos| > {NEAR:g} in every draw",
                paper="the inner product of each part with the vector of ones is close to 1",
                measured=f"by input channel: {'; '.join(map(_in_words, ones.T))}; {len(found)} draws (kernels at the "
                f"start: median {start:.2f})",
                judged=at_least(ones.min(axis=1), NEAR),
            ),
        ]
        agree = [
            replace(claim, hindsight=True)  # pixels and kernel size were chosen by these numbers
            for claim in agreement(self.references(results))
        ]
        return [*every, *agree, self._roughly(ones)] if agree else every

    def references(self, results: Results) -> list[Reference]:
        """The paper's mean cosines; none for what stands in for its images, which has its own."""
        if "digits" in values(results, "data.kind"):
            return []
        ones = np.stack([one.ones for one in draws(results)])
        known = _PAPER[self.pictures]
        return [
            compare(
                "mean |cos| of v_1 with the vector of ones",
                ours,
                mean,
                f"text, {mean} ± {deviation:.{_DIGITS[self.pictures]}f} from {_TRIALS} independent trials",
                setting=f"input channel {channel + 1}" if len(known) > 1 else "",
                runs=_TRIALS,
                rounding=0.5 * 10.0 ** -_DIGITS[self.pictures],
                within=deviation,
            )
            for channel, (ours, (mean, deviation)) in enumerate(zip(ones.T, known, strict=True))
        ]

    def _roughly(self, ones: np.ndarray) -> Claim:
        """Compare the mean cosines with those of the paper, whatever their spread."""
        known = _PAPER[self.pictures]
        means, spread = ones.mean(axis=0), ones.std(axis=0)
        off = np.abs(means - [value for value, _ in known])
        if len(known) == 1:
            allowed, words = np.array([_WITHIN]), f"within {_WITHIN:g}"
        else:
            allowed = np.array([deviation for _, deviation in known])
            words = "within the paper's own standard deviation of a draw"
        measured = ", ".join(f"{mean:.5f} ± {one:.5f}" for mean, one in zip(means, spread, strict=True))
        return Claim(
            text=f"the mean |cos| of every channel is that of the paper {words}",
            paper=", ".join(f"{mean} ± {deviation}" for mean, deviation in known) + f" from {_TRIALS} trials",
            measured=f"{measured} in {len(ones)} draws; off by {', '.join(f'{one:.5f}' for one in off)}",
            judged=certain(bool(np.all(off <= allowed)), f"the mean of {len(ones)} draws against the paper's"),
            weaker=True,
            hindsight=True,
        )

    def draw(self, results: Results) -> Figure:
        """Eigenvalues, then cosines."""
        found = draws(results)
        title = f"zhou2023, prediction before training, {c.pictures_shown(results)}"
        figure, axes = titled_canvas(title, 2, 8.6, 3.6)
        every = [one.eigenvalues[: _SHOWN[self.pictures]] for one in found]
        places = np.arange(1, len(every[0]) + 1)
        axes[0].bar(places, every[0], color=ORDERED[1], alpha=0.6)
        for eigenvalues in every:
            axes[0].plot(places, eigenvalues, ".", color=ORDERED[0], markersize=3)
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
        return figure


def _gap(ratios: np.ndarray, second: np.ndarray) -> list[Claim]:
    """Claim a clear gap in every draw, and on average."""
    paper = "a clear spectral gap could be observed, which satisfies Assumption 4"
    measured = (
        f"λ_1²/λ_2² = {ratios.mean():.1f} (median {np.median(ratios):.1f}, from {ratios.min():.1f} to "
        f"{ratios.max():.1f} in {ratios.size} draws); with cross-entropy λ_2/λ_1 = {second.mean():.2f} in place of "
        f"{np.mean(ratios**-0.5):.2f}"
    )
    return [
        Claim(
            text=f"a clear spectral gap: λ_1² is at least {_CLEAR:g} times λ_2² in every draw",
            paper=paper,
            measured=measured,
            judged=at_least(ratios, _CLEAR),
        ),
        Claim(
            text=f"a clear spectral gap: λ_1² is more than {_CLEAR:g} times λ_2² on average over draws",
            paper=paper,
            measured=measured,
            judged=increases(np.full(ratios.size, _CLEAR), ratios),
            weaker=True,
            hindsight=True,
        ),
    ]


def _in_words(cosines: np.ndarray) -> str:
    low, middle, high = np.quantile(cosines, [0.05, 0.5, 0.95])
    return f"median {middle:.5f} (5 % to 95 %: {low:.4f} to {high:.4f}), {np.mean(cosines > NEAR):.1%} > {NEAR:g}"
