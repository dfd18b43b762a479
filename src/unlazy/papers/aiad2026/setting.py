"""The settings of aiad2026: networks, optimisers and recipes, how stored runs are read, and curves.

The paper counts layers in several ways. The three layers of its figure 1 are two blocks of a `MeanFieldStack`: random
features with the channels they produce, and mixing with w_2. So are, by their numbers of parameters, those of Table 1.
In the authors' public code (github.com/janisaiad/MMNN, experiments/table) other networks of L layers have one block
more: three blocks in figures 2, 5, 6 and 10, five in figures 7 and 8(a), nine in figures 8 and 9. The experiments here
have the blocks, losses, clipping, starts and schedules of that code. Channels f_k^(l) are the outputs of block l.
"""

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
from unlazy.papers._curves import median_range

MSE = {"kind": "squared", "half": False}  # the paper reports mean squared errors
# The authors' schedule: the rates 0.01, 0.005, ..., each as soon as ten epochs are not better than the ten before.
STAGNATION = {"kind": "on-stagnation", "factors": [1.0, 0.5, 0.1, 0.05, 0.01], "window": 10, "wait": 20}
LINE = np.linspace(-1.0, 1.0, 401)  # where channels are evaluated
CHANNELS = {"kind": "channels", "when": "end", "count": LINE.size}  # the probe of channels on that line
Pair = tuple[float, float]


@dataclass(frozen=True, kw_only=True)
class Setting:
    """The sizes of an experiment at one scale, as in Tables 2 and 4 of the paper or smaller."""

    width: int  # neurons of each block
    n: int  # training samples
    batch: int  # samples in a batch
    epochs: int
    seeds: int
    blocks: int = 3
    rank: int = 10  # channels between blocks
    n_test: int = 0  # test samples
    frequency: float = 2.0  # of a cosine target
    pair: Pair = (36.0, 12.0)  # frequencies (f_1, f_2) of a chirp
    every: int = 100  # epochs after which the rate of `adam` decays
    observed: int = 21  # number of observed times

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

    @property
    def adam_until_fitted(self) -> dict[str, Any]:
        """The flow of figures 8 and 9: `adam` until the loss is below 5e-4, but at least until the third decay."""
        return adam(self.n, self.batch, self.every) | {"stop_loss": 5e-4, "stop_after": 3 * self.every}

    def recipe(self, name: str, seeds: int | None, steps: Iterable[int], flow: dict[str, Any], **rest: Any) -> Recipe:
        """Return a recipe in single precision, observed after the given steps of descent.

        ``seeds`` overrides the number of seeds of the setting; ``rest`` are the sections of the recipe that are not
        given here: ``data``, ``network`` and ``probes``.
        """
        times, count = times_of(flow, steps), seeds or self.seeds
        return Recipe(name=f"aiad2026 {name}", flow=flow, times=times, seeds=count, dtype="float32", **rest)


# A target that small networks learn in seconds.
SMALL_CHIRP = Setting(
    blocks=5, width=256, rank=30, pair=(6.0, 2.0), n=160, n_test=200, batch=16, epochs=400, every=8, seeds=2
)


def low_rank(blocks: int, width: int, rank: int, frozen: bool = True, normal: bool = False) -> dict[str, Any]:
    """Return a network of low rank, with frozen random features (RF-LR) or with everything trained (LR only).

    A ``normal`` start is that of the authors' public code (github.com/janisaiad/MMNN, experiments/table/mmnn_vs.py)
    with which figures 8 and 9 were made: N(0, 1/r) for the weights into neurons, N(0, 1) in the first block, and
    N(0, 1/n) for the weights out of them. Otherwise the start is uniform in ±1/√fan-in without a factor 1/n, as in a
    later version of that file, with which the other figures were made. The paper's numerical section names neither.
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
        "activation": "relu",
    }


def full_rank(blocks: int, width: int) -> dict[str, Any]:
    """Return an ordinary network of dense layers of ``width`` ReLU neurons, all trained, from the uniform start."""
    below = blocks - 1
    return low_rank(blocks, width, width) | {
        "train": ["wb"] * below + ["wabc"],
        "amplitude": ["eye"] * below + ["uniform"],
        "offset": ["constant"] * below + ["uniform"],
    }


def trained(network: dict[str, Any], inputs: int = 1, outputs: int | None = None) -> int:
    """Return the number of trained parameters of a network with this many inputs and outputs."""
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


def sgd(batch: int, momentum: float = 0.0) -> dict[str, Any]:
    """Return SGD as the authors run it: on the mean squared error, gradients clipped to norm 1, v ← ηv + g."""
    flow: dict[str, Any] = {"kind": "descent", "rate": 0.01, "batch": batch, "clip_norm": 1.0, "loss": MSE}
    return flow | ({"optimiser": {"kind": "momentum", "decay": momentum}} if momentum else {})


def _decays(flow: dict[str, Any]) -> dict[str, Any] | None:
    """Return the schedule of the rate if time, the sum of the rates, depends on it."""
    schedule = flow.get("schedule")
    return schedule if isinstance(schedule, dict) and "every" in schedule else None


def times_of(flow: dict[str, Any], steps: Iterable[int]) -> list[float]:
    """Return the time of descent, which is the sum of its rates, after each of these numbers of steps."""
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


def mse_in_words(run: xr.Dataset) -> str:
    """Write the MSE at the start and at the end."""
    losses = run["train-loss"].values
    return f"MSE from {median_range(losses[:, 0])} to {median_range(losses[:, -1])}"


def blocks_of(run: xr.Dataset) -> int:
    """Return the number of blocks of the network of a stored run."""
    return len(option(run, "network.widths"))


def target_of(run: xr.Dataset) -> Pair:
    """Return the frequencies (f_1, f_2) of the chirp on which a stored run was trained."""
    return option(run, "data.f1"), option(run, "data.f2")


def spelled(pair: Pair) -> str:
    """Write the frequencies of a chirp as the paper does: (36, 12)."""
    return f"({pair[0]:g}, {pair[1]:g})"


def curve(axes: Axes, x: np.ndarray, y: np.ndarray, index: int, label: str | None = None, **style: Any) -> None:
    """Draw a thin line; ``index`` chooses its colour and dashes, which properties in ``style`` override."""
    colour, dash = ORDERED[index % len(ORDERED)], DASHES[index % len(DASHES)]
    plain: dict[str, Any] = {"color": colour, "linestyle": dash, "linewidth": 1.2}
    axes.plot(x, y, label=label, **(plain | style))
