"""The runs that theorems of ren2023 apply to, and the quantities that the theorems take from them."""

import dataclasses
from typing import cast

import numpy as np
from scipy import stats

from unlazy.flows import Trajectory
from unlazy.losses import Squared
from unlazy.networks import Block, MeanFieldStack, Network
from unlazy.networks.clipping import is_learner
from unlazy.networks.limits import SphericalLimit
from unlazy.papers.ren2023.probes import FirstLayer, LayerSpeeds, SecondLayer
from unlazy.probes import Probe, TrainLoss
from unlazy.theory import Hypothesis, Reading

AUTHORS = "Ren, Zhou, Ge (2023)"
LAYERS: tuple[Probe, ...] = (SecondLayer(), FirstLayer())
FIT: tuple[Probe, ...] = (*LAYERS, TrainLoss())
SPEEDS: tuple[Probe, ...] = (*LAYERS, LayerSpeeds())
_DELTA = 1e-3  # how often a test of symmetry may reject a symmetric law


def is_known(network: Network) -> bool:
    """Return whether it is the learner of eq. 1, of finite or infinite width, with all amplitudes 1 and no offsets."""
    if not (isinstance(network, MeanFieldStack) and network.scalar and is_learner(network.blocks)):
        return False
    blocks = [block for block in network.blocks if isinstance(block, Block)]
    return bool(np.all(np.asarray(blocks[-1].a) == 1)) and not any(np.any(np.asarray(block.c)) for block in blocks)


def is_finite(network: Network) -> bool:
    """Return whether it is the learner of eq. 1 with a first layer of finite width."""
    return isinstance(network, MeanFieldStack) and isinstance(network.blocks[0], Block) and is_known(network)


class RadialLaw:
    """Probabilities and moments of |x| in weighted data.

    Parameters
    ----------
    r, y
        Radii, and targets.
    share
        The share of each sample, with sum 1.
    """

    def __init__(self, r: np.ndarray, y: np.ndarray, share: np.ndarray) -> None:
        order = np.argsort(r)
        self._r, share = r[order], share[order]
        self._sums = {power: np.append(0.0, np.cumsum(share * self._r**power)) for power in (0, 1, 2)}
        self.target, self.pull = float(share @ y[order]), float(share @ (y[order] * self._r))  # E f*, E[f* |x|]

    def moment(self, power: int, reach: float | np.ndarray) -> np.ndarray:
        """Compute E[|x|^p; |x| <= R] for p = 0, 1 or 2.

        Parameters
        ----------
        power, reach
            p, and one or more R.
        """
        return self._sums[power][np.searchsorted(self._r, reach, side="right")]

    def between(self, low: float, high: float) -> float:
        """Compute P(low <= |x| <= high).

        Parameters
        ----------
        low, high
            The ends of the interval; ``high`` may be infinite.
        """
        below = self._sums[0]
        return float(below[np.searchsorted(self._r, high, side="right")] - below[np.searchsorted(self._r, low)])


@dataclasses.dataclass(frozen=True, eq=False)
class Setting:
    """A run of the learner of eq. 1; layers are those at the start.

    Parameters
    ----------
    run
        The run.
    """

    run: Trajectory

    @property
    def network(self) -> MeanFieldStack:
        """The learner at the start."""
        return cast(MeanFieldStack, self.run.start)

    @property
    def first(self) -> Block | SphericalLimit:
        """The first layer."""
        return cast(Block | SphericalLimit, self.network.blocks[0])

    @property
    def weights(self) -> np.ndarray:
        """w_1 of a first layer of finite width, one row per neuron."""
        return np.asarray(cast(Block, self.first).w, float)

    @property
    def second(self) -> Block:
        """The second layer."""
        return cast(Block, self.network.blocks[1])

    @property
    def d(self) -> int:
        """Number of inputs."""
        return self.network.inputs

    @property
    def inputs(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """x, |x| and the targets of all samples."""
        x = np.asarray(self.run.data.x, float)
        return x, np.linalg.norm(x, axis=1), np.asarray(self.run.data.y, float)

    @property
    def law(self) -> "RadialLaw":
        """The law of |x| in the data, with their weights."""
        _, r, y = self.inputs
        weight = np.ones(r.size) if self.run.data.weight is None else np.asarray(self.run.data.weight, float)
        return RadialLaw(r, y, weight / weight.sum())

    @property
    def neurons(self) -> np.ndarray:
        """(w_2, b_2) of every second-layer neuron."""
        b = np.zeros(self.second.width) if self.second.b is None else np.asarray(self.second.b, float)
        return np.stack([np.asarray(self.second.w, float)[:, 0], b], axis=1)

    @property
    def spread(self) -> float:
        """δ_2: the largest distance between two second-layer neurons."""
        return float(np.max(np.linalg.norm(self.neurons[:, None] - self.neurons[None], axis=2)))

    @property
    def bounds(self) -> tuple[float, float, float]:
        """R_v1, R_v2 and R_r2 of a clipped learner."""
        return cast(tuple[float, float, float], self.network.clip)

    def both_trained(self) -> Hypothesis:
        """Require that both layers are trained."""
        return Hypothesis("both layers trained", self.first.train == "w" and set(self.second.train) == set("wb"))

    def unclipped(self) -> Hypothesis:
        """Require that the learner has no clips."""
        return Hypothesis("no clips", self.network.clip is None)


def model(run: Trajectory) -> Reading[Setting | None]:
    """Require the learner of eq. 1."""
    known = is_known(run.start)
    yield Hypothesis("the learner of eq. 1", known)
    return Setting(run) if known else None


def finite_model(run: Trajectory) -> Reading[Setting | None]:
    """Require the learner of eq. 1, with a first layer of finite width."""
    known = is_finite(run.start)
    yield Hypothesis("the learner of eq. 1, of finite width", known)
    return Setting(run) if known else None


def even(rows: np.ndarray, what: str) -> Hypothesis:
    """Require rows without a preferred direction: n d |mean direction|² is then χ² with d degrees of freedom.

    Parameters
    ----------
    rows, what
        The vectors, and what they are called in the hypothesis.
    """
    length = np.linalg.norm(rows, axis=1, keepdims=True)
    unit = rows / np.where(length > 0, length, 1)
    n, d = rows.shape
    chance = float(stats.chi2(d).sf(n * d * np.sum(unit.mean(axis=0) ** 2)))
    return Hypothesis(f"{what} spread evenly over directions (chance of such a mean)", chance > _DELTA, chance, _DELTA)


def radial_target(run: Trajectory) -> Hypothesis:
    """Require targets relu(1 - |x|)."""
    x, y = np.asarray(run.data.x, float), np.asarray(run.data.y, float)
    if x.ndim != 2 or y.size != len(x):
        return Hypothesis("targets relu(1 - |x|): one for each vector", False)
    r = np.linalg.norm(x, axis=1)
    off = float(np.max(np.abs(y.ravel() - np.maximum(1 - r, 0)), initial=0.0))
    return Hypothesis("targets relu(1 - |x|), up to rounding", off < 1e-4, off, 0.0)


def half_squared(run: Trajectory) -> Hypothesis:
    """Require the paper's loss."""
    return Hypothesis("L = ½ E(f* - f)²", isinstance(run.loss, Squared) and run.loss.half)


def symmetric(run: Trajectory) -> Reading[None]:
    """Require inputs without a preferred direction, and targets relu(1 - |x|)."""
    yield even(np.asarray(run.data.x, float), "inputs")
    yield radial_target(run)


def symmetric_draws(run: Trajectory, setting: Setting | None) -> Reading[Setting | None]:
    """Require at least 100 independent samples of a `symmetric` problem.

    Parameters
    ----------
    run, setting
        The run and, if known, its setting, which is returned.
    """
    many = run.data.x.ndim == 2 and run.data.n >= 100 and run.data.x.shape[1] > 1 and run.data.weight is None
    yield Hypothesis("at least 100 samples of equal weight", many, run.data.n, 100)
    if setting is not None and many:
        yield from symmetric(run)
    return setting
