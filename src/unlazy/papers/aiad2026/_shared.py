"""What the panels of aiad2026 share: its networks and optimisers as recipes, how stored runs are read, and curves.

The paper counts layers in two ways. Its figure 1 calls three layers what are two blocks of a `MeanFieldStack`: random
features and the channels they make, mixing and w_2; so do figures 2, 5 and 6 and, by its numbers of parameters, Table
1. Equation 1 has as many blocks as layers; so have figures 7 to 10 here: with three blocks for four layers figure 7
ends at an MSE of 0.2, with four at 0.03. Channels f_k^(l) are the outputs of block l.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import jax
import numpy as np
import xarray as xr

from unlazy.figures import DASHES, ORDERED
from unlazy.lab import build
from unlazy.networks import Network
from unlazy.papers._base import Axes, option

MSE = {"kind": "squared", "half": False}  # the paper speaks of MSEs
LEAKY = {"kind": "leaky-relu", "slope": 0.01}  # the usual slope; Table 4 gives none
Activation = str | dict[str, Any]


def low_rank(
    blocks: int, width: int, rank: int, frozen: bool = True, activation: Activation = "relu", normal: bool = False
) -> dict[str, Any]:
    """Low rank, with frozen random features (RF-LR) or with everything trained (LR only), in the usual start.

    The start, uniform in ±1/√fan-in without 1/n in front, is our choice: the paper's numerical section names none.
    ``normal`` is that of the authors' public code (github.com/janisaiad/MMNN, experiments/table/mmnn_vs.py): N(0, 1/r)
    for what leads into neurons, N(0, 1) in the first block, and N(0, 1/n) for what leads out of them.
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


def full_rank(blocks: int, width: int, activation: Activation = "relu") -> dict[str, Any]:
    """Usual dense layers of ``width`` neurons, all trained, from the same start."""
    below = blocks - 1
    return {
        "kind": "mean-field-stack",
        "widths": [width] * blocks,
        "ranks": width,
        "train": ["wb"] * below + ["wabc"],
        "amplitude": ["eye"] * below + ["uniform"],
        "offset": ["constant"] * below + ["uniform"],
        "parameterisation": "standard",
        "activation": activation,
    }


def trained(network: dict[str, Any], inputs: int = 1, outputs: int | None = None) -> int:
    """Number of parameters that a network trains."""
    made = build(network, Network, "network", key=jax.random.key(0), inputs=inputs, outputs=outputs)
    return made.trainable


def epoch_of(n: int, batch: int) -> int:
    """Steps to an epoch; the last batch may be smaller."""
    return -(-n // batch)


def adam(n: int, batch: int, every: int = 100, rate: float = 1e-3) -> dict[str, Any]:
    """Table 4: Adam, its rate multiplied by 0.9 every ``every`` epochs, gradients clipped to norm 1."""
    return {
        "kind": "descent",
        "rate": rate,
        "batch": batch,
        "optimiser": "adam",
        "schedule": {"kind": "step-decay", "factor": 0.9, "every": every * epoch_of(n, batch)},
        "clip_norm": 1.0,
        "loss": MSE,
    }


def times_of(flow: dict[str, Any], steps: Iterable[int]) -> list[float]:
    """The clock of descent, which is the sum of its rates, after so many steps."""
    taken = np.asarray(list(steps), float)
    schedule = flow.get("schedule")
    if schedule is None:
        return (flow["rate"] * taken).tolist()
    factor, every = schedule["factor"], schedule["every"]
    whole = taken // every
    before = every * (1 - factor**whole) / (1 - factor)
    return (flow["rate"] * (before + (taken - whole * every) * factor**whole)).tolist()


def steps_of(run: xr.Dataset) -> np.ndarray:
    """Steps taken at each time of a stored run."""
    flow, times = option(run, "flow"), run["time"].values
    schedule = flow.get("schedule")
    if schedule is None:
        return np.rint(times / flow["rate"])
    knots = [0]
    while times_of(flow, [knots[-1]])[0] < times[-1]:
        knots.append(knots[-1] + schedule["every"])
    return np.rint(np.interp(times, times_of(flow, knots), knots))


def epochs_of(run: xr.Dataset) -> np.ndarray:
    """Epochs at each time of a stored run."""
    return steps_of(run) / epoch_of(option(run, "data.n"), option(run, "flow.batch"))


def target_of(run: xr.Dataset) -> tuple[float, float]:
    """Frequencies (f_1, f_2) of the chirp that a stored run was trained on."""
    return option(run, "data.f1"), option(run, "data.f2")


LINE = np.linspace(-1.0, 1.0, 401)  # where channels are looked at


def curve(axes: Axes, x: np.ndarray, y: np.ndarray, index: int, label: str | None = None, **style: Any) -> None:
    """A plain line in the colours of all panels."""
    chosen: dict[str, Any] = {
        "color": ORDERED[index % len(ORDERED)],
        "linestyle": DASHES[index % len(DASHES)],
        "linewidth": 1.2,
    }
    axes.plot(x, y, label=label, **(chosen | style))


def mirrored(axes: Axes, values: np.ndarray, index: int, label: str) -> None:
    """A function on [-1, 1] and, dotted, its mirror image: where they part it is not even."""
    curve(axes, LINE, values, index, label, linestyle="-")
    curve(axes, LINE, values[::-1], index, linestyle=":", color="0.4", linewidth=1.0)
