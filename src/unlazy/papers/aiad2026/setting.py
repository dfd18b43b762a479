"""The settings of aiad2026: networks, optimisers and recipes, how stored runs are read, and curves.

The paper counts layers in several ways. Its figure 1 calls three layers what are two blocks of a `MeanFieldStack`:
random features and the channels they make, mixing and w_2; so does, by its numbers of parameters, Table 1. In the
authors' public code (github.com/janisaiad/MMNN, experiments/table) a network of L layers otherwise has one block more:
three blocks in figures 2, 5, 6 and 10, five in figures 7 and 8(a), nine in figures 8 and 9. The experiments here have
the blocks, losses, clipping, starts and schedules of that code. Channels f_k^(l) are the outputs of block l.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
import xarray as xr

from unlazy.figures import DASHES, ORDERED
from unlazy.lab import Recipe, build
from unlazy.networks import Network
from unlazy.papers._base import Axes, option

MSE = {"kind": "squared", "half": False}  # the paper reports mean squared errors
# The authors' schedule: their rates 0.01, 0.005, ... when ten epochs are no better than the ten before.
STAGNATION = {"kind": "on-stagnation", "factors": [1.0, 0.5, 0.1, 0.05, 0.01], "window": 10, "wait": 20}
LINE = np.linspace(-1.0, 1.0, 401)  # where channels are evaluated
CHANNELS = {"kind": "channels", "when": "end", "count": LINE.size}  # the probe of channels on that line
Activation = str | dict[str, Any]
Pair = tuple[float, float]


@dataclass(frozen=True, kw_only=True)
class Setting:
    """The sizes of an experiment at one scale, as in Tables 2 and 4 of the paper or smaller.

    Attributes
    ----------
    blocks, width, rank
        Blocks of the network, neurons of each, and channels between them.
    n, n_test, batch
        Numbers of training samples, of test samples and of samples in a batch.
    frequency, pair
        Frequency of a cosine target, or frequencies (f_1, f_2) of a chirp.
    epochs, every
        Epochs of training, and epochs after which the rate of `adam` decays.
    observed
        Number of observed times.
    seeds
        Number of seeds.
    """

    width: int
    n: int
    batch: int
    epochs: int
    seeds: int
    blocks: int = 3
    rank: int = 10
    n_test: int = 0
    frequency: float = 2.0
    pair: Pair = (36.0, 12.0)
    every: int = 100
    observed: int = 21

    @property
    def epoch(self) -> int:
        """Number of steps in an epoch."""
        return epoch_of(self.n, self.batch)

    @property
    def cosine(self) -> dict[str, Any]:
        """Samples of cos(π frequency x), as a section of a recipe."""
        return {"kind": "cosine", "n": self.n, "frequency": self.frequency}

    @property
    def chirp(self) -> dict[str, Any]:
        """Samples of cos(f_1 π x²) - 0.8 cos(f_2 π x²), as a section of a recipe."""
        return {"kind": "chirp", "n": self.n, "f1": self.pair[0], "f2": self.pair[1], "n_test": self.n_test}

    def recipe(self, name: str, seeds: int | None, steps: Iterable[int], flow: dict[str, Any], **rest: Any) -> Recipe:
        """Return a recipe in single precision.

        Parameters
        ----------
        name
            Name of the recipe, without the paper.
        seeds
            Number of seeds, if not that of the setting.
        steps
            Steps of descent after which the run is observed.
        flow
            Descent, as a section of a recipe.
        **rest
            The other sections: ``data``, ``network`` and ``probes``.
        """
        times, count = times_of(flow, steps), seeds or self.seeds
        return Recipe(name=f"aiad2026 {name}", flow=flow, times=times, seeds=count, dtype="float32", **rest)


def low_rank(
    blocks: int, width: int, rank: int, frozen: bool = True, activation: Activation = "relu", normal: bool = False
) -> dict[str, Any]:
    """Return a network of low rank, with frozen random features (RF-LR) or with everything trained (LR only).

    Parameters
    ----------
    blocks, width, rank
        Blocks of the network, neurons of each, and channels between them.
    frozen
        Whether the features stay as they are drawn.
    activation
        The activation, as in a recipe.
    normal
        Start as in the authors' public code (github.com/janisaiad/MMNN, experiments/table/mmnn_vs.py): N(0, 1/r) for
        the weights into neurons, N(0, 1) in the first block, and N(0, 1/n) for the weights out of them, of which
        figures 8 and 9 were made. Otherwise the start is uniform in ±1/√fan-in without 1/n in front, as in a later
        version of that file, of which the other figures were made. The paper's numerical section names neither.
    """
    start: dict[str, Any] = {}
    if normal:
        into = [1.0] + [rank**-0.5] * (blocks - 1)
        out = {"kind": "normal", "spread": width**-0.5}
        start = {"features": [{"kind": "normal", "spread": one} for one in into], "amplitude": out, "offset": out}
    return start | {
        "kind": "mean-field-stack",
        "widths": [width] * blocks,
        "ranks": rank,
        "train": "ac" if frozen else "wabc",
        "parameterisation": "standard",
        "activation": activation,
    }


def full_rank(blocks: int, width: int) -> dict[str, Any]:
    """Return a usual network of dense layers of ``width`` ReLU neurons, all trained, from the uniform start."""
    below = blocks - 1
    return low_rank(blocks, width, width) | {
        "train": ["wb"] * below + ["wabc"],
        "amplitude": ["eye"] * below + ["uniform"],
        "offset": ["constant"] * below + ["uniform"],
    }


def trained(network: dict[str, Any], inputs: int = 1, outputs: int | None = None) -> int:
    """Return the number of parameters that a network trains, for so many inputs and outputs."""
    return build(network, Network, "network", key=jax.random.key(0), inputs=inputs, outputs=outputs).trainable


def epoch_of(n: int, batch: int) -> int:
    """Return the number of steps in an epoch; the last batch may be smaller."""
    return -(-n // batch)


def adam(n: int, batch: int, every: int = 100, rate: float = 1e-3) -> dict[str, Any]:
    """Return the optimiser of Table 4: Adam, its rate times 0.9 every ``every`` epochs, gradients clipped to norm 1."""
    return {
        "kind": "descent",
        "rate": rate,
        "batch": batch,
        "optimiser": "adam",
        "schedule": {"kind": "step-decay", "factor": 0.9, "every": every * epoch_of(n, batch)},
        "clip_norm": 1.0,
        "loss": MSE,
    }


def sgd(batch: int, momentum: float = 0.0, rate: float = 0.01) -> dict[str, Any]:
    """Return SGD as the authors run it: on the mean squared error, gradients clipped to norm 1, v ← ηv + g."""
    flow: dict[str, Any] = {"kind": "descent", "rate": rate, "batch": batch, "clip_norm": 1.0, "loss": MSE}
    return flow | ({"optimiser": {"kind": "momentum", "decay": momentum}} if momentum else {})


def _decays(flow: dict[str, Any]) -> dict[str, Any] | None:
    """Return the schedule by which time is counted, if it is not constant."""
    schedule = flow.get("schedule")
    return schedule if isinstance(schedule, dict) and "every" in schedule else None


def times_of(flow: dict[str, Any], steps: Iterable[int]) -> list[float]:
    """Return the time of descent, which is the sum of its rates, after so many steps."""
    taken, schedule = np.asarray(list(steps), float), _decays(flow)
    if schedule is None:
        return (flow["rate"] * taken).tolist()
    factor, every = schedule["factor"], schedule["every"]
    whole = taken // every
    before = every * (1 - factor**whole) / (1 - factor)
    return (flow["rate"] * (before + (taken - whole * every) * factor**whole)).tolist()


def steps_of(run: xr.Dataset) -> np.ndarray:
    """Return the number of steps at each time of a stored run."""
    flow, times = option(run, "flow"), run["time"].values
    schedule = _decays(flow)
    if schedule is None:
        return np.rint(times / flow["rate"])
    knots = [0]
    while times_of(flow, [knots[-1]])[0] < times[-1]:
        knots.append(knots[-1] + schedule["every"])
    return np.rint(np.interp(times, times_of(flow, knots), knots))


def epochs_of(run: xr.Dataset) -> np.ndarray:
    """Return the number of epochs at each time of a stored run."""
    return steps_of(run) / epoch_of(option(run, "data.n"), option(run, "flow.batch"))


def at_epoch(run: xr.Dataset, epoch: float) -> int:
    """Return the index of the observed time nearest to an epoch."""
    return int(np.argmin(np.abs(epochs_of(run) - epoch)))


def target_of(run: xr.Dataset) -> Pair:
    """Return the frequencies (f_1, f_2) of the chirp on which a stored run was trained."""
    return option(run, "data.f1"), option(run, "data.f2")


def spelled(pair: Pair) -> str:
    """Write the frequencies of a chirp as the paper does: (36, 12)."""
    return f"({pair[0]:g}, {pair[1]:g})"


def curve(axes: Axes, x: np.ndarray, y: np.ndarray, index: int, label: str | None = None, **style: Any) -> None:
    """Draw a thin line in the colours of all panels.

    Parameters
    ----------
    axes
        Where to draw.
    x, y
        The points of the line.
    index
        Chooses the colour and the dash pattern.
    label
        Name of the curve in the legend.
    **style
        Other properties of the line, which take the place of these.
    """
    colour, dash = ORDERED[index % len(ORDERED)], DASHES[index % len(DASHES)]
    plain: dict[str, Any] = {"color": colour, "linestyle": dash, "linewidth": 1.2}
    axes.plot(x, y, label=label, **(plain | style))
