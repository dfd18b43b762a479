"""Theorem 2.3 and Corollary G.1: the distance of finite networks from their limit."""

import math
from typing import ClassVar, NamedTuple, cast

import numpy as np

from unlazy.flows import Descent, RungeKutta, Trajectory
from unlazy.networks import Block, MeanFieldStack, Network
from unlazy.papers.aiad2026.theorems import problems
from unlazy.papers.aiad2026.theorems import setting as common
from unlazy.papers.aiad2026.theorems.setting import AUTHORS, Setting, largest
from unlazy.probes import Probe, TrainedNeurons, TrainLoss
from unlazy.theory import Example, Finding, Hypothesis, Reading, WithProbability, require, through
from unlazy.theory.coupling import distance, movement
from unlazy.theory.hypotheses import observed_later, squared_loss


def is_finite_stack(network: Network) -> bool:
    """Return whether a network is the paper's, of any depth, with finite blocks that train amplitudes only."""
    if not (isinstance(network, MeanFieldStack) and common.is_random_features(network) and network.depth > 1):
        return False
    return all(isinstance(block, Block) and block.train == "a" for block in network.restore().blocks)


def is_finite(network: Network) -> bool:
    """Return whether a network is the paper's with three layers, all of finite width, without trained offsets."""
    return is_finite_stack(network) and cast(MeanFieldStack, network).depth == 2


class Constants(NamedTuple):
    """The quantities that the bound of Theorem 2.3 depends on.

    Parameters
    ----------
    k
        K of Assumptions C.1, C.3 and G.1 on a run.
    rank
        The number of channels r.
    narrow, wide
        The smallest and the largest width.
    time, step
        The end of the run, and the step ε, which is 0 for a flow.
    """

    k: float
    rank: int
    narrow: int
    wide: int
    time: float
    step: float

    def log_bound(self, delta: float, twice: bool = False) -> float:
        """Compute the log of e^(K_T (1 + rK)) (n_min^-½ + ε^½) log^½(3 (T + 1) n_max²/δ + e), K_T = K (1 + T^K).

        Parameters
        ----------
        delta
            Failure probability δ.
        twice
            Whether to double the exponent, as in Corollary G.1.
        """
        with np.errstate(over="ignore"):
            grown = self.k * (1 + np.float64(self.time) ** self.k)
        exponent = float(grown) * (1 + self.rank * self.k)
        chance = math.log(math.log(3 * (self.time + 1) * float(self.wide) ** 2 / delta + math.e)) / 2
        return (2 if twice else 1) * exponent + math.log(self.narrow**-0.5 + math.sqrt(self.step)) + chance


class Measured(NamedTuple):
    """The distance of a run from its limit, estimated with half of its neurons.

    Parameters
    ----------
    by_width, by_step
        D_T due to the width, and due to the step.
    loss
        sup |ΔL| due to the width.
    """

    by_width: float
    by_step: float
    loss: float


class Finite(Setting):
    """A run of a three-layer network of finite width."""

    @property
    def first(self) -> Block:
        """The first block at the start."""
        return cast(Block, self.network.blocks[0])

    @property
    def step(self) -> float:
        """The step size, 0 for a flow."""
        return float(self.run.flow.rate) if isinstance(self.run.flow, Descent) else 0.0


def finite(run: Trajectory) -> Reading[Finite]:
    """Require the paper's three layers, of finite width."""
    yield from require(Hypothesis("two blocks of finite width that train their amplitudes", is_finite(run.start)))
    return Finite(run)


def coupled(run: Trajectory) -> Reading[Finite]:
    """Require two finite blocks of neurons, the squared loss, and a step of at most 1."""
    yield from common.random_features(run)
    setting = yield from finite(run)
    yield from require(squared_loss(run)[0])
    yield Hypothesis("a step of at most 1", setting.step <= 1, setting.step, 1.0)
    yield observed_later(run)
    least = min(setting.first.width, setting.second.width)
    yield Hypothesis("at least 2 neurons per block, to be halved", least >= 2, least, 2)
    return setting


def constants(run: Trajectory) -> Constants:
    """Compute the smallest K that Assumptions C.1, C.3 and G.1 allow on a run, and the sizes of its network.

    K bounds activations and their slopes, mixing entries, first features, inputs, initial weights and residuals;
    quantities that depend on time are taken at both ends. The lower bound on φ_2' of C.1 does not enter Theorem 2.3.

    Parameters
    ----------
    run
        A run of a finite three-layer network.
    """
    setting = common.required(coupled(run))
    first, second, slope = setting.first, setting.second, setting.loss_slope
    rows = np.asarray(first.w, float) if first.b is None else np.column_stack([first.w, first.b])
    bounded = [np.linalg.norm(rows, axis=1), second.w, first.a, second.a]
    bounded += [np.linalg.norm(setting.x, axis=1), first.column(run.data.x.T)]
    bounded += [second.column(network.channels(run.data.x)[0].T) for network in setting.ends]
    residual = max(largest(network(run.data.x) - run.data.y) for network in setting.ends)
    lipschitz = max(first.activation.lipschitz, second.activation.lipschitz)
    k = max(1.0, slope, lipschitz, slope * residual, *map(largest, bounded))
    widths = first.width, second.width
    return Constants(k, second.w.shape[1], min(widths), max(widths), float(run.times[-1]), setting.step)


def measure(run: Trajectory) -> Measured:
    """Measure the distance to the limit by training the first half of the neurons and, for descent, the flow itself.

    The distance to a reference of width N falls as √(1/n - 1/N). For n = N/2 that is √(1/N), the distance of the
    network of width N from the limit itself. Both errors are added, as in the proof.

    Parameters
    ----------
    run
        A run of a finite three-layer network, observed with `TrainedNeurons` and `TrainLoss`.
    """
    setting = common.required(coupled(run))
    flow, exact, by_step = run.flow, run, 0.0
    probes = [TrainedNeurons(), TrainLoss()]
    if isinstance(flow, Descent):
        flow = RungeKutta(loss=run.loss, rtol=1e-6, atol=1e-8)
        exact = flow(run.start, run.data, run.times, probes)
        by_step = distance(run, exact)
    half = setting.network.narrowed([block.width // 2 for block in (setting.first, setting.second)])
    part = flow(half, run.data, run.times, probes)
    losses = [np.asarray(through(one, TrainLoss()), float) for one in (exact, part)]
    return Measured(distance(part, exact), by_step, largest(losses[0] - losses[1]))


class _Bounded(WithProbability[Finite]):
    """A bound that grows like e^K, compared with the measured distance, and with what is known without the theorem."""

    counterexample: ClassVar[Example] = Example(problems.few_points, first=24)  # a network of usual size
    knows = staticmethod(is_finite)

    def read(self, run: Trajectory) -> Reading[Finite]:
        return coupled(run)

    def _judge(
        self, known: Constants, off: float, size: float, what: str, why: str, numbers: dict[str, float], twice: bool
    ) -> Finding:
        """Compare ``off`` with the bound, and the bound with a ``size`` that bounds ``off`` trivially."""
        log_bound = known.log_bound(self.delta, twice)
        digits, excess = log_bound / math.log(10), log_bound - math.log(max(off, 1e-300))
        beyond = (log_bound - math.log(max(size, 1e-300))) / math.log(10)
        margin = math.exp(excess) if excess < 700 else math.inf
        numbers |= {"K": known.k, "log10 of the bound": digits, f"orders of magnitude above the {what}": beyond}
        why = f"{why}; the bound is 10^{digits:.3g}, with K = {known.k:.3g} and r = {known.rank}."
        weak = f"That is {beyond:.3g} orders of magnitude above the {what}, so that it says nothing."
        return Finding.judge(margin >= 1, why, margin, numbers, vacuous=beyond >= 0, if_vacuous=weak)


class NearItsLimit(_Bounded):
    """Theorem 2.3: D_T <= e^(K_T (1 + rK)) (n_min^-½ + ε^½) log^½(3 (T + 1) n_max²/δ + e), with probability 1 - 2δ.

    K is the smallest constant that the assumptions allow on the run (`constants`). D_T is the distance between the run
    and its half (`measure`), for which the check trains half of the network for as long as the run. The bound says
    something where it is below the movement of the weights: a network at rest is no further from its limit than that.
    This takes half a million neurons, rank one and a short time; elsewhere the bound is VACUOUS, and `numbers` says by
    how many orders of magnitude. `theory.coupling` measures the rate.
    """

    key: ClassVar[str] = "aiad2026/theorem-2.3"
    source: ClassVar[str] = f"{AUTHORS}, Theorem 2.3 (G.1)"
    statement: ClassVar[str] = "A finite network stays within n^(-1/2) + step^(1/2) of its limit, up to a constant."
    example: ClassVar[Example] = Example(problems.wide)
    probes: ClassVar[tuple[Probe, ...]] = (TrainedNeurons(),)

    def conclude(self, setting: Finite) -> Finding:
        found, moved = measure(setting.run), movement(setting.run)
        off = found.by_width + found.by_step
        numbers = {"D_T": off, "D_T by width": found.by_width, "D_T by step": found.by_step, "movement": moved}
        why = f"The network is {off:.2g} from its limit while its weights move by {moved:.2g}"
        return self._judge(constants(setting.run), off, moved, "movement", why, numbers, twice=False)


class LossNearItsLimit(_Bounded):
    """Corollary G.1 for the loss: sup_t |L(W) - L(limit)| is at most the bound of Theorem 2.3 with twice the exponent.

    A loss is not negative, so that the difference is at most the larger of the two: the bound says something where it
    is below that.
    """

    key: ClassVar[str] = "aiad2026/corollary-g.1"
    source: ClassVar[str] = f"{AUTHORS}, Corollary G.1"
    statement: ClassVar[str] = "The loss of a finite network stays near that of its limit."
    example: ClassVar[Example] = Example(problems.wide, until=0.005)
    probes: ClassVar[tuple[Probe, ...]] = (TrainedNeurons(), TrainLoss())

    def conclude(self, setting: Finite) -> Finding:
        off, most = measure(setting.run).loss, float(np.max(through(setting.run, TrainLoss())))
        why = f"The loss is {off:.2g} from its limit and at most {most:.2g}"
        numbers = {"difference of losses": off, "largest loss": most}
        return self._judge(constants(setting.run), off, most, "loss", why, numbers, twice=True)
