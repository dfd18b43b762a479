"""The runs to which the theorems of ren2023 apply, the hypotheses that they share, and what they read from a run."""

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any, ClassVar, cast

import numpy as np
from scipy import stats

from unlazy.flows import Trajectory
from unlazy.losses import Squared
from unlazy.networks import Block, MeanFieldStack, Network
from unlazy.networks.clipping import is_learner
from unlazy.networks.limits import SphericalLimit
from unlazy.papers.ren2023.probes import FirstLayer, LayerSpeeds, SecondLayer
from unlazy.probes import Probe, TrainLoss
from unlazy.theory import Hypothesis, Reading, Theorem, require, through
from unlazy.theory.hypotheses import gradient_flow, observed_later, relative_error, rounding, rounding_error

AUTHORS = "Ren, Zhou, Ge (2023)"
Probes = tuple[Probe, ...]
LAYERS: Probes = (SecondLayer(), FirstLayer())
FIT: Probes = (*LAYERS, TrainLoss())
SPEEDS: Probes = (*LAYERS, LayerSpeeds())
CLIPPED = "the learner of eq. 1, with the clips of eq. 4"
Observed = dict[str, np.ndarray]
_DELTA = 1e-3  # how often a test of symmetry may reject a symmetric law


def is_known(network: Network) -> bool:
    """Return whether a network is the learner of eq. 1, of any width, with all amplitudes 1 and no offsets."""
    if not (isinstance(network, MeanFieldStack) and network.scalar and is_learner(network.blocks)):
        return False
    blocks = [block for block in network.blocks if isinstance(block, Block)]
    return bool(np.all(np.asarray(blocks[-1].a) == 1)) and not any(np.any(np.asarray(block.c)) for block in blocks)


def is_finite(network: Network) -> bool:
    """Return whether a network is the learner of eq. 1 with a first layer of finite width."""
    return isinstance(network, MeanFieldStack) and isinstance(network.blocks[0], Block) and is_known(network)


def is_infinite(network: Network) -> bool:
    """Return whether a network is the learner of eq. 1 with a first layer of infinite width."""
    return is_known(network) and not is_finite(network)


def has_clips(network: Network) -> bool:
    """Return whether a network is the learner of eq. 1 with clips."""
    return is_known(network) and network.clips_per_sample


def active_inside(neurons: np.ndarray, alpha: np.ndarray) -> np.ndarray:
    """Compute the least w_2 F + b_2 over all neurons and |x| <= 1 where F = α |x|, at every time.

    Parameters
    ----------
    neurons
        (w_2, b_2) of every second-layer neuron, of shape (times, neurons, 2).
    alpha
        The slope α, one per time.
    """
    w, b = neurons[..., 0], neurons[..., 1]
    return np.min(np.minimum(b, w * alpha[:, None] + b), axis=1)


def least_inside(second: Observed, first: Observed) -> np.ndarray:
    """Bound w_2 F + b_2 on |x| <= 1 from below at every time: there F is at most α (1 + ε)."""
    return active_inside(second["neurons"], first["alpha"] * (1 + first["sphere"]))


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
        """Compute E[|x|^p; |x| <= R] for the ``power`` p = 0, 1 or 2 and one or more values R of ``reach``."""
        return self._sums[power][np.searchsorted(self._r, reach, side="right")]

    def between(self, low: float, high: float) -> float:
        """Compute P(low <= |x| <= high); ``high`` may be infinite."""
        below = self._sums[0]
        return float(below[np.searchsorted(self._r, high, side="right")] - below[np.searchsorted(self._r, low)])


@dataclasses.dataclass(frozen=True, eq=False)
class Setting:
    """A run of the learner of eq. 1; layers are those at the start."""

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
    def law(self) -> RadialLaw:
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

    @property
    def rounding(self) -> float:
        """Relative error of quantities at one time, which is due to rounding."""
        return rounding_error(rounding(self.run))

    @property
    def error(self) -> float:
        """Relative error of what the run computes over time, by its own estimate."""
        return relative_error(self.run, rounding(self.run))

    def observed(self, *probes: Probe) -> list[Any]:
        """Return what the run observed with some probes, or an empty list unless it had all of them."""
        found = [through(self.run, probe) for probe in probes]
        return [] if any(one is None for one in found) else found


Conditions = tuple[Callable[[Setting], Iterator[Hypothesis]], ...]


class OfLearner(Theorem[Setting]):
    """A theorem about the learner of eq. 1.

    Attributes
    ----------
    model
        The first hypothesis, which `knows` checks. A reading ends where it is not met.
    conditions
        Functions of the setting that yield the other hypotheses. Those about observations yield nothing where a probe
        is missing.
    """

    model: ClassVar[str] = "the learner of eq. 1"
    conditions: ClassVar[Conditions] = ()
    knows = staticmethod(is_known)

    def read(self, run: Trajectory) -> Reading[Setting]:
        """Require the learner, and all conditions."""
        yield from require(Hypothesis(self.model, self.knows(run.start)))
        setting = Setting(run)
        for condition in self.conditions:
            yield from condition(setting)
        return setting


class OfFiniteLearner(OfLearner):
    """A theorem about the learner of eq. 1 with a first layer of finite width."""

    model: ClassVar[str] = "the learner of eq. 1, of finite width"
    knows = staticmethod(is_finite)


class OfInfiniteLearner(OfLearner):
    """A theorem about the learner of eq. 1 with a first layer of infinite width."""

    model: ClassVar[str] = "the learner of eq. 1, of infinite width"
    knows = staticmethod(is_infinite)


def no_preferred_direction(rows: np.ndarray, what: str) -> Hypothesis:
    """Require rows without a preferred direction: n d |mean direction|² is then χ² with d degrees of freedom."""
    length = np.linalg.norm(rows, axis=1, keepdims=True)
    unit = rows / np.where(length > 0, length, 1)
    n, d = rows.shape
    chance = float(stats.chi2(d).sf(n * d * np.sum(unit.mean(axis=0) ** 2)))
    return Hypothesis(f"{what} spread evenly over directions (p-value of their mean)", chance > _DELTA, chance, _DELTA)


def clipped(setting: Setting) -> Iterator[Hypothesis]:
    """Require clips; the reading ends if there are none."""
    yield from require(Hypothesis("clipped flow, eq. 4", setting.network.clips_per_sample))


def followed(setting: Setting) -> Iterator[Hypothesis]:
    """Require gradient flow, observed after the start."""
    yield gradient_flow(setting.run)
    yield from observed_after_start(setting)


def is_true(what: str, met: Callable[[Setting], bool]) -> Callable[[Setting], Iterator[Hypothesis]]:
    """Make a condition from its name and a function that returns whether a setting meets it."""

    def condition(setting: Setting) -> Iterator[Hypothesis]:
        yield Hypothesis(what, met(setting))

    condition.__doc__ = f"Require: {what}."
    return condition


def observed_after_start(setting: Setting) -> Iterator[Hypothesis]:
    """Require an observation after the start."""
    yield observed_later(setting.run)


unclipped = is_true("no clips", lambda one: one.network.clip is None)
second_trained = is_true("w_2 and b_2 trained", lambda one: set(one.second.train) == set("wb"))
both_trained = is_true("both layers trained", lambda one: (one.first.train, set(one.second.train)) == ("w", set("wb")))
half_squared = is_true("L = ½ E(f* - f)²", lambda one: isinstance(one.run.loss, Squared) and one.run.loss.half)
UNCLIPPED: Conditions = (unclipped, both_trained)


def radial_target(setting: Setting) -> Iterator[Hypothesis]:
    """Require targets relu(1 - |x|)."""
    _, r, y = setting.inputs
    off = float(np.max(np.abs(y.ravel() - np.maximum(1 - r, 0)), initial=0.0))
    yield Hypothesis("targets relu(1 - |x|), up to rounding", off < 1e-4, off, 0.0)


def symmetric(setting: Setting) -> Iterator[Hypothesis]:
    """Require inputs without a preferred direction, and targets relu(1 - |x|)."""
    yield no_preferred_direction(setting.inputs[0], "inputs")
    yield from radial_target(setting)


def symmetric_draws(setting: Setting) -> Iterator[Hypothesis]:
    """Require at least 100 independent samples of a `symmetric` problem."""
    data = setting.run.data
    many = data.n >= 100 and setting.d > 1 and data.weight is None
    yield from require(Hypothesis("at least 100 samples of equal weight", many, data.n, 100))
    yield from symmetric(setting)


def negative_at_start(setting: Setting) -> Iterator[Hypothesis]:
    """Require that all w_2 are negative at the start."""
    largest = float(setting.neurons[:, 0].max())
    yield Hypothesis("all w_2 < 0 at the start", largest < 0, largest, 0.0)


def active(setting: Setting) -> Iterator[Hypothesis]:
    """Require that all second-layer neurons are active on |x| <= 1 at every observation."""
    if seen := setting.observed(*LAYERS):
        least = float(least_inside(*seen).min())
        yield Hypothesis("all second-layer neurons active on |x| <= 1", least > 0, least, 0.0)


def active_at_start(setting: Setting) -> Iterator[Hypothesis]:
    """Require that all second-layer neurons are active on |x| <= 1 at the start."""
    if seen := setting.observed(*LAYERS):
        least = float(least_inside(*seen)[0])
        yield Hypothesis("all second-layer neurons active on |x| <= 1 at the start", least > 0, least, 0.0)
