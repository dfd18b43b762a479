"""Networks of finite width: bounds on their second layer (Lemmas D.1 and E.2), and their distance to the limit.

Theorem 2.3 and Corollary G.1 bound the distance; the theorems also say by how much these bounds say nothing.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from unlazy.data import Dataset
from unlazy.flows import Descent, RungeKutta, Trajectory
from unlazy.losses import Squared
from unlazy.networks import Block, MeanFieldStack, Network
from unlazy.papers.aiad2026.theorems._setting import (
    AUTHORS,
    DRIVE,
    Setting,
    few_points,
    is_random_features,
    random_features,
    wanted,
    wide,
    without_offsets,
)
from unlazy.probes import Probe, TrainedNeurons, TrainLoss
from unlazy.theory._base import Finding, Hypothesis, Reading, Theorem, Verdict, through
from unlazy.theory._runs import looked_later, probability, rounding
from unlazy.theory.coupling import distance, movement, neurons_of


def _finite(network: Network) -> tuple[MeanFieldStack, Block, Block] | None:
    """A stack and its blocks, if it is the paper's three-layer network with single neurons and no offset trained."""
    if not (isinstance(network, MeanFieldStack) and is_random_features(network) and network.depth == 2):
        return None
    first, second = network.blocks
    if isinstance(first, Block) and isinstance(second, Block) and first.train == second.train == "a":
        return network, first, second
    return None


def is_finite(network: Network) -> bool:
    """Whether it is the paper's three-layer network, with single neurons in both blocks and no offset trained."""
    return _finite(network) is not None


@dataclasses.dataclass(frozen=True, eq=False)
class Finite(Setting):
    """A run of a three-layer network of finite width."""

    first: Block
    second: Block


def finite(run: Trajectory) -> Reading[Finite | None]:
    """The paper's three layers, of finite width."""
    found = _finite(run.start)
    yield Hypothesis("two blocks of finite width that train their amplitudes", found is not None)
    return None if found is None else Finite(run, *found)


@dataclasses.dataclass(frozen=True)
class Constants:
    """What the bound of Theorem 2.3 is made of: K of Assumptions C.1, C.3 and G.1 on the run at hand, and sizes."""

    k: float
    rank: int
    narrow: int
    wide: int
    time: float
    step: float

    def log_bound(self, delta: float, twice: bool = False) -> float:
        """Log of e^(K_T (1 + rK)) (n_min^-½ + ε^½) log^½(3 (T + 1) n_max²/δ + e), K_T = K (1 + T^K).

        Corollary G.1 has ``twice`` the exponent. In logarithms, because e^1000 is no number.
        """
        with np.errstate(over="ignore"):
            grown = self.k * (1 + np.float64(self.time) ** self.k)
        exponent = float(grown) * (1 + self.rank * self.k)
        chance = math.log(math.log(3 * (self.time + 1) * float(self.wide) ** 2 / delta + math.e)) / 2
        return (2 if twice else 1) * exponent + math.log(self.narrow**-0.5 + math.sqrt(self.step)) + chance


@dataclasses.dataclass(frozen=True)
class Measured:
    """How far a run is from its limit, estimated by its half: D_T and sup |ΔL|, by width and by step."""

    by_width: float
    by_step: float
    loss: float


@dataclasses.dataclass(frozen=True, eq=False)
class Coupled(Finite):
    """A run of a finite network on the squared loss, which can be compared with that of its half."""

    slope: float  # of the loss of a sample, in units of its residual
    step: float  # 0 for a flow

    def constants(self) -> Constants:
        """The smallest K that Assumptions C.1, C.3 and G.1 allow, and the sizes of the network."""
        run, first, second = self.run, self.first, self.second
        bounds = [1.0, self.slope, first.activation.lipschitz, second.activation.lipschitz]
        rows = np.asarray(first.w, float) if first.b is None else np.column_stack([first.w, first.b])
        bounds += [_largest(np.linalg.norm(rows, axis=1)), _largest(second.w), _largest(first.a), _largest(second.a)]
        bounds += [_largest(np.linalg.norm(self.x, axis=1)), _largest(first.column(run.data.x.T))]
        for network in self.ends:
            bounds.append(_largest(second.column(network.channels(run.data.x)[0].T)))
            bounds.append(self.slope * _largest(network(run.data.x) - run.data.y))
        widths = first.width, second.width
        return Constants(max(bounds), second.w.shape[1], min(widths), max(widths), float(run.times[-1]), self.step)

    def measure(self) -> Measured:
        """Train the first half of the neurons and, where the run took steps, the flow itself."""
        run, flow, exact, by_step = self.run, self.run.flow, self.run, 0.0
        probes = [TrainedNeurons(), TrainLoss()]
        if isinstance(flow, Descent):
            flow = RungeKutta(loss=run.loss, rtol=1e-6, atol=1e-8)
            exact = flow(run.start, run.data, run.times, probes)
            by_step = distance(run, exact)
        half = self.network.narrowed([block.width // 2 for block in (self.first, self.second)])
        part = flow(half, run.data, run.times, probes)
        losses = [np.asarray(through(one, TrainLoss()), float) for one in (exact, part)]
        return Measured(distance(part, exact), by_step, float(np.max(np.abs(losses[0] - losses[1]))))


def _largest(values: object) -> float:
    return float(np.max(np.abs(np.asarray(values, float))))


def coupled(run: Trajectory) -> Reading[Coupled | None]:
    """Two finite blocks of neurons, the squared loss, and a step of at most 1."""
    yield from random_features(run)
    setting = yield from finite(run)
    yield Hypothesis("squared loss, all samples alike", isinstance(run.loss, Squared) and run.data.weight is None)
    flow = run.flow
    step = float(flow.rate) if isinstance(flow, Descent) else 0.0
    yield Hypothesis("a step of at most 1", step <= 1, step, 1.0)
    yield looked_later(run)
    if setting is None:
        return None
    least = min(setting.first.width, setting.second.width)
    yield Hypothesis("at least 2 neurons per block, to be halved", least >= 2, least, 2)
    if not isinstance(run.loss, Squared):
        return None
    slope = 1.0 if run.loss.half else 2.0
    return Coupled(run, setting.network, setting.first, setting.second, slope, step)


def constants(run: Trajectory) -> Constants:
    """The smallest K that Assumptions C.1, C.3 and G.1 allow on this run, and the sizes of its network.

    K bounds activations and their slopes, mixing entries, first features, inputs, initial weights and residuals; what
    depends on time is taken at both ends. The lower bound on φ_2' of C.1 has no part in Theorem 2.3.
    """
    return wanted(coupled(run)).constants()


def measure(run: Trajectory) -> Measured:
    """Train the first half of the neurons beside all of them and, where the run took steps, the flow itself.

    Against a reference of width N the distance falls as √(1/n - 1/N). For n = N/2 that is √(1/N), as far as the network
    of width N is from the limit itself. Both errors are added, as in the proof.
    """
    return wanted(coupled(run)).measure()


class _Bounded(Theorem[Coupled]):
    """A bound that grows like e^K, held against what was measured, and against what is known without it."""

    delta: float = eqx.field(static=True, default=0.05)

    def __check_init__(self) -> None:
        probability(self.delta)

    def read(self, run: Trajectory) -> Reading[Coupled | None]:
        """The paper's three layers, of finite width."""
        return (yield from coupled(run))

    def counterexample(self) -> Trajectory:
        """A network of usual size."""
        return few_points(first=24)


def _judge(
    known: Constants, log_bound: float, off: float, sizes: tuple[str, float], why: str, numbers: dict[str, float]
) -> Finding:
    """Hold what is ``off`` against the bound, and the bound against a size that is known without it."""
    what, size = sizes
    digits, excess = log_bound / math.log(10), log_bound - math.log(max(off, 1e-300))
    beyond = (log_bound - math.log(max(size, 1e-300))) / math.log(10)
    margin = math.exp(excess) if excess < 700 else math.inf
    numbers |= {"K": known.k, "log10 of the bound": digits, f"orders of magnitude above the {what}": beyond}
    why = f"{why}; the bound is 10^{digits:.3g}, with K = {known.k:.3g} and r = {known.rank}."
    if margin >= 1 and beyond >= 0:
        why += f" It says nothing by {beyond:.3g} orders of magnitude."
    verdict = Verdict.FAILS if margin < 1 else Verdict.VACUOUS if beyond >= 0 else Verdict.HOLDS
    return Finding(verdict, why, margin, numbers)


class NearItsLimit(_Bounded):
    """Theorem 2.3: D_T <= e^(K_T (1 + rK)) (n_min^-½ + ε^½) log^½(3 (T + 1) n_max²/δ + e), with probability 1 - 2δ.

    K is the smallest constant that the assumptions allow on the run (`constants`), D_T that between the run and its
    half (`measure`). The bound says something where it is below the movement of the weights: a network at rest is no
    further from its limit than that. It takes half a million neurons, rank one and a short time; elsewhere it is
    VACUOUS, and `numbers` says by how many orders of magnitude. The rate can be measured: `theory.coupling`. To measure
    D_T, the check trains the half of the network, as long as the run.
    """

    key: ClassVar[str] = "aiad2026/theorem-2.3"
    source: ClassVar[str] = f"{AUTHORS}, Theorem 2.3 (G.1)"
    statement: ClassVar[str] = "A finite network stays within n^(-1/2) + step^(1/2) of its limit, up to a constant."

    def needs(self, network: Network, data: Dataset) -> Sequence[Probe]:
        """Every neuron."""
        return [TrainedNeurons()] if is_finite(network) else []

    def conclude(self, setting: Coupled) -> Finding:
        """Hold the distance against the bound, and the bound against the movement."""
        known, found, moved = setting.constants(), setting.measure(), movement(setting.run)
        off = found.by_width + found.by_step
        numbers = {"D_T": off, "D_T by width": found.by_width, "D_T by step": found.by_step, "movement": moved}
        why = f"The network is {off:.2g} from its limit while its weights move by {moved:.2g}"
        return _judge(known, known.log_bound(self.delta), off, ("movement", moved), why, numbers)

    def example(self) -> Trajectory:
        """Half a million neurons, rank one, for a short time."""
        return wide()


class LossNearItsLimit(_Bounded):
    """Corollary G.1 for the loss: sup_t |L(W) - L(limit)| is at most the bound of Theorem 2.3 with twice the exponent.

    A loss is not negative, so that the difference is never more than the larger of the two: below that the bound says
    something.
    """

    key: ClassVar[str] = "aiad2026/corollary-g.1"
    source: ClassVar[str] = f"{AUTHORS}, Corollary G.1"
    statement: ClassVar[str] = "The loss of a finite network stays near that of its limit."

    def needs(self, network: Network, data: Dataset) -> Sequence[Probe]:
        """Every neuron, and the loss."""
        return [TrainedNeurons(), TrainLoss()] if is_finite(network) else []

    def conclude(self, setting: Coupled) -> Finding:
        """Hold the difference of losses against the bound, and the bound against the loss."""
        known, off = setting.constants(), setting.measure().loss
        largest = float(np.max(through(setting.run, TrainLoss())))
        why = f"The loss is {off:.2g} from its limit and at most {largest:.2g}"
        numbers = {"difference of losses": off, "largest loss": largest}
        return _judge(known, known.log_bound(self.delta, twice=True), off, ("loss", largest), why, numbers)

    def example(self) -> Trajectory:
        """Half a million neurons, rank one, for a moment."""
        return wide(until=0.005)


class _Forward(Theorem[Finite]):
    """A bound on H_2 of a finite network by its channels and weights."""

    def needs(self, network: Network, data: Dataset) -> Sequence[Probe]:
        """Channels, and every neuron."""
        return (DRIVE, TrainedNeurons()) if is_finite(network) else ()

    def read(self, run: Trajectory) -> Reading[Finite | None]:
        """The paper's three layers, of finite width."""
        setting = yield from finite(run)
        if setting is not None:
            yield without_offsets(run)
            bias = setting.second.b
            yield Hypothesis("no biases in the second block", bias is None or not np.any(np.asarray(bias)))
            yield looked_later(run)
        return setting

    def example(self) -> Trajectory:
        """24 neurons per block."""
        return few_points(first=24)

    def counterexample(self) -> Trajectory:
        """Features that are trained too."""
        return few_points(first=24, train="wa")


def _parts(setting: Finite) -> tuple[np.ndarray, np.ndarray, float, np.ndarray]:
    """Channels at the training points, w_1 at every time, sup |φ_1| there, and the mixing matrix."""
    data = setting.run.data
    features = float(np.max(np.abs(np.asarray(setting.first.column(data.x.T), float))))
    weights = neurons_of(setting.run)["block-1"]
    return setting.drive.channels[:, : data.n], weights, features, setting.mixing


class ForwardLipschitz(_Forward):
    """Lemma D.1: |H_2(W') - H_2(W'')| <= K |L|_∞,1 max_k E|w_1' - w_1''|, between the first time and every other.

    The K in front is the largest |φ_1| on the data. For φ_2(H_2) it comes with the Lipschitz constant of φ_2, which the
    lemma leaves out.
    """

    key: ClassVar[str] = "aiad2026/lemma-d.1"
    source: ClassVar[str] = f"{AUTHORS}, Lemma D.1 (second layer)"
    statement: ClassVar[str] = "Second-layer neurons move no further than the weights below allow."

    def conclude(self, setting: Finite) -> Finding:
        """Compare both sides at every later time, for every neuron and point."""
        channels, weights, features, mixing = _parts(setting)
        activation = setting.second.activation
        hidden = channels @ mixing.T  # (times, points, neurons)
        moved = np.max(np.abs(weights - weights[:1]).mean(axis=1), axis=1)[1:]
        allowed = features * np.abs(mixing).sum(axis=1).max() * moved
        seen = np.max(np.abs(hidden - hidden[:1]), axis=(1, 2))[1:]
        values = np.asarray(activation(jnp.asarray(hidden)), float)
        above = np.max(np.abs(values - values[:1]), axis=(1, 2))[1:]
        slack = 1e3 * rounding(setting.run) * float(np.max(np.abs(hidden)))
        kept = [seen <= allowed + slack, above <= activation.lipschitz * allowed + slack]
        margin = float(np.min((allowed + slack) / np.maximum(seen, 1e-300)))
        numbers = {"largest change of H_2": float(seen.max()), "allowed": float(allowed.max()), "sup |phi_1|": features}
        why = f"H_2 changes by {seen.max():.3g} at most, and {allowed.max():.3g} is allowed."
        return _verdict(bool(np.all(kept)), float(seen.max()) > slack, why, margin, numbers)


class ForwardBound(_Forward):
    """Lemma E.2: sup |H_2| <= |L|_∞,1 max_k sup |f_k| and sup |f_k| <= K E[sup |w_1|], the suprema being over time.

    K is the largest |φ_1| on the data.
    """

    key: ClassVar[str] = "aiad2026/lemma-e.2"
    source: ClassVar[str] = f"{AUTHORS}, Lemma E.2"
    statement: ClassVar[str] = "Second-layer pre-activations are bounded by mixing entries times first-layer weights."

    def conclude(self, setting: Finite) -> Finding:
        """Compare all three along the whole run."""
        channels, weights, features, mixing = _parts(setting)
        hidden = float(np.max(np.abs(channels @ mixing.T)))
        norm, largest = float(np.abs(mixing).sum(axis=1).max()), np.max(np.abs(channels), axis=(0, 1))
        below = features * np.max(np.abs(weights), axis=0).mean(axis=0)
        slack = 1e3 * rounding(setting.run)
        holds = hidden <= norm * largest.max() * (1 + slack) and bool(np.all(largest <= below * (1 + slack)))
        margin = min(
            norm * float(largest.max()) / max(hidden, 1e-300), float(np.min(below / np.maximum(largest, 1e-300)))
        )
        numbers = {
            "sup |H_2|": hidden,
            "by channels": norm * float(largest.max()),
            "by weights": norm * float(below.max()),
        }
        why = (
            f"|H_2| reaches {hidden:.3g}; channels allow {numbers['by channels']:.3g}, weights "
            f"{numbers['by weights']:.3g}."
        )
        return _verdict(holds, hidden > 0, why, margin + slack, numbers)


def _verdict(holds: bool, says: bool, why: str, margin: float, numbers: dict[str, float]) -> Finding:
    verdict = Verdict.FAILS if not holds else Verdict.HOLDS if says else Verdict.VACUOUS
    return Finding(verdict, why, margin, numbers)
