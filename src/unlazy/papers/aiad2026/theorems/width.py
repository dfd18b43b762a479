"""Theorem 2.3 and Corollary G.1: how far a finite network is from its limit, and by how much the bound says nothing."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence
from typing import ClassVar

import equinox as eqx
import numpy as np

from unlazy.data import Dataset
from unlazy.flows import Descent, RungeKutta, Trajectory
from unlazy.losses import Squared
from unlazy.networks import Block, MeanFieldStack, Network
from unlazy.papers.aiad2026.theorems._problems import few_points, wide
from unlazy.papers.aiad2026.theorems._setting import AUTHORS, is_random_features, random_features
from unlazy.probes import Probe, TrainedNeurons, TrainLoss
from unlazy.theory._base import Finding, Hypothesis, Theorem, Verdict, through
from unlazy.theory._runs import looked_later, probability
from unlazy.theory.coupling import distance, movement


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


def constants(run: Trajectory) -> Constants:
    """The smallest K that Assumptions C.1, C.3 and G.1 allow on this run, and the sizes of its network.

    K bounds activations and their slopes, mixing entries, first features, inputs, initial weights and residuals; what
    depends on time is taken at both ends. The lower bound on φ_2' of C.1 has no part in Theorem 2.3.
    """
    assert isinstance(run.loss, Squared)
    first, second = two_blocks(run.start)
    bounds = [1.0, 1.0 if run.loss.half else 2.0]
    bounds += [block.activation.lipschitz for block in (first, second)]
    rows = np.asarray(first.w, float) if first.b is None else np.column_stack([first.w, first.b])
    bounds += [_largest(np.linalg.norm(rows, axis=1)), _largest(second.w), _largest(first.a), _largest(second.a)]
    bounds.append(_largest(np.linalg.norm(np.asarray(run.data.x, float), axis=1)))
    bounds.append(_largest(first.column(run.data.x.T)))
    for network in (run.start, run.final):
        assert isinstance(network, MeanFieldStack)
        bounds.append(_largest(two_blocks(network)[1].column(network.channels(run.data.x)[0].T)))
        bounds.append((1.0 if run.loss.half else 2.0) * _largest(network(run.data.x) - run.data.y))
    flow = run.flow
    step = float(flow.rate) if isinstance(flow, Descent) else 0.0
    widths = first.width, second.width
    return Constants(max(bounds), second.w.shape[1], min(widths), max(widths), float(run.times[-1]), step)


def _largest(values: object) -> float:
    return float(np.max(np.abs(np.asarray(values, float))))


def two_blocks(network: Network) -> tuple[Block, Block]:
    """Both blocks of a three-layer network of finite width."""
    assert isinstance(network, MeanFieldStack)
    first, second = network.blocks
    assert isinstance(first, Block)
    assert isinstance(second, Block)
    return first, second


def is_finite(network: Network) -> bool:
    """Whether it is the paper's three-layer network, with single neurons in both blocks and no offset trained."""
    if not (isinstance(network, MeanFieldStack) and is_random_features(network) and network.depth == 2):
        return False
    return all(isinstance(block, Block) and block.train == "a" for block in network.blocks)


def setting(run: Trajectory) -> Iterator[Hypothesis]:
    """Two finite blocks of neurons, the squared loss, and a step of at most 1."""
    known = random_features(run)
    yield known
    finite = is_finite(run.start)
    yield Hypothesis("two blocks of finite width that train their amplitudes", finite)
    yield Hypothesis("squared loss, all samples alike", isinstance(run.loss, Squared) and run.data.weight is None)
    flow = run.flow
    step = float(flow.rate) if isinstance(flow, Descent) else 0.0
    yield Hypothesis("a step of at most 1", step <= 1, step, 1.0)
    yield looked_later(run)
    if finite:
        least = min(block.width for block in two_blocks(run.start))
        yield Hypothesis("at least 2 neurons a block, to be halved", least >= 2, least, 2)


@dataclasses.dataclass(frozen=True)
class Measured:
    """How far a run is from its limit, estimated by its half: D_T and sup |ΔL|, by width and by step."""

    by_width: float
    by_step: float
    loss: float


def measure(run: Trajectory) -> Measured:
    """Train the first half of the neurons beside all of them and, where the run took steps, the flow itself.

    Against a reference of width N the distance falls as √(1/n - 1/N). For n = N/2 that is √(1/N), as far as the network
    of width N is from the limit itself. Both errors are added, as in the proof.
    """
    assert isinstance(run.start, MeanFieldStack)
    probes = [TrainedNeurons(), TrainLoss()]
    flow = run.flow
    exact, by_step = run, 0.0
    if isinstance(flow, Descent):
        flow = RungeKutta(loss=run.loss, rtol=1e-6, atol=1e-8)
        exact = flow(run.start, run.data, run.times, probes)
        by_step = distance(run, exact)
    half = run.start.narrowed([block.width // 2 for block in two_blocks(run.start)])
    part = flow(half, run.data, run.times, probes)
    losses = [np.asarray(through(one, TrainLoss()), float) for one in (exact, part)]
    return Measured(distance(part, exact), by_step, float(np.max(np.abs(losses[0] - losses[1]))))


def orders(log_bound: float, size: float) -> float:
    """By how many orders of magnitude a bound exceeds what is known without it."""
    return (log_bound - math.log(max(size, 1e-300))) / math.log(10)


class NearItsLimit(Theorem):
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
    feasible: ClassVar[bool] = True
    delta: float = eqx.field(static=True, default=0.05)

    def __check_init__(self) -> None:
        probability(self.delta)

    def needs(self, network: Network, data: Dataset) -> Sequence[Probe]:
        """Every neuron."""
        return [TrainedNeurons()] if is_finite(network) else []

    def hypotheses(self, run: Trajectory) -> Iterator[Hypothesis]:
        """The paper's three layers, of finite width."""
        yield from setting(run)

    def conclude(self, run: Trajectory) -> Finding:
        """Hold the distance against the bound, and the bound against the movement."""
        known, found, moved = constants(run), measure(run), movement(run)
        log_bound, off = known.log_bound(self.delta), found.by_width + found.by_step
        beyond = orders(log_bound, moved)
        numbers = {
            "D_T": off,
            "D_T by width": found.by_width,
            "D_T by step": found.by_step,
            "movement": moved,
            "K": known.k,
            "log10 of the bound": log_bound / math.log(10),
            "orders of magnitude above the movement": beyond,
        }
        why = (
            f"The network is {off:.2g} from its limit while its weights move by {moved:.2g}; the bound is "
            f"10^{log_bound / math.log(10):.3g}, with K = {known.k:.3g} and r = {known.rank}."
        )
        margin = _ratio(log_bound, off)
        if margin < 1:
            return Finding(Verdict.FAILS, why, margin, numbers)
        if beyond >= 0:
            return Finding(
                Verdict.VACUOUS, f"{why} It says nothing by {beyond:.3g} orders of magnitude.", margin, numbers
            )
        return Finding(Verdict.HOLDS, why, margin, numbers)

    def example(self) -> Trajectory:
        """Half a million neurons, rank one, for a short time."""
        return wide()

    def counterexample(self) -> Trajectory:
        """A network of usual size."""
        return few_points(first=24)


class LossNearItsLimit(Theorem):
    """Corollary G.1 for the loss: sup_t |L(W) - L(limit)| is at most the bound of Theorem 2.3 with twice the exponent.

    A loss is not negative, so that the difference is never more than the larger of the two: below that the bound says
    something.
    """

    key: ClassVar[str] = "aiad2026/corollary-g.1"
    source: ClassVar[str] = f"{AUTHORS}, Corollary G.1"
    statement: ClassVar[str] = "The loss of a finite network stays near that of its limit."
    feasible: ClassVar[bool] = True
    delta: float = eqx.field(static=True, default=0.05)

    def __check_init__(self) -> None:
        probability(self.delta)

    def needs(self, network: Network, data: Dataset) -> Sequence[Probe]:
        """Every neuron, and the loss."""
        return [TrainedNeurons(), TrainLoss()] if is_finite(network) else []

    def hypotheses(self, run: Trajectory) -> Iterator[Hypothesis]:
        """The paper's three layers, of finite width."""
        yield from setting(run)

    def conclude(self, run: Trajectory) -> Finding:
        """Hold the difference of losses against the bound, and the bound against the loss."""
        known, found = constants(run), measure(run)
        largest = float(np.max(through(run, TrainLoss())))
        log_bound = known.log_bound(self.delta, twice=True)
        beyond = orders(log_bound, largest)
        numbers = {
            "difference of losses": found.loss,
            "largest loss": largest,
            "K": known.k,
            "log10 of the bound": log_bound / math.log(10),
            "orders of magnitude above the loss": beyond,
        }
        why = (
            f"The loss is {found.loss:.2g} from its limit and at most {largest:.2g}; the bound is "
            f"10^{log_bound / math.log(10):.3g}, with K = {known.k:.3g} and r = {known.rank}."
        )
        margin = _ratio(log_bound, found.loss)
        if margin < 1:
            return Finding(Verdict.FAILS, why, margin, numbers)
        if beyond >= 0:
            return Finding(
                Verdict.VACUOUS, f"{why} It says nothing by {beyond:.3g} orders of magnitude.", margin, numbers
            )
        return Finding(Verdict.HOLDS, why, margin, numbers)

    def example(self) -> Trajectory:
        """Half a million neurons, rank one, for a moment."""
        return wide(until=0.005)

    def counterexample(self) -> Trajectory:
        """A network of usual size."""
        return few_points(first=24)


def _ratio(log_bound: float, size: float) -> float:
    """Bound over size, infinite where it is no number."""
    exponent = log_bound - math.log(max(size, 1e-300))
    return math.exp(exponent) if exponent < 700 else math.inf
