"""What a random start is like with high probability: Lemmas 2 and 3 of chen2022, with the constants of `constants`."""

from typing import ClassVar, NamedTuple

import numpy as np
from jaxtyping import Array

from unlazy.activations import ActiveInterval
from unlazy.flows import Trajectory
from unlazy.networks import TwoLayer
from unlazy.papers.chen2022.theorems import constants
from unlazy.papers.chen2022.theorems import setting as s
from unlazy.theory import Example, Finding, Hypothesis, Reading, WithProbability, require, require_type


class Start(NamedTuple):
    """A two-layer network at the start in the paper's units, and its data."""

    network: TwoLayer
    x: Array
    y: np.ndarray
    variances: np.ndarray  # the diagonal of G, from which pre-activations are drawn


def read_start(run: Trajectory) -> Reading[Start]:
    """Require what Assumption 3 says of weights; how the network is trained does not matter."""
    network = yield from require_type(s.TWO_LAYERS, run.start, TwoLayer)
    yield from require(Hypothesis("no biases", network.b is None))
    yield from s.independent_neurons(network)
    return Start(network, run.data.x, np.asarray(run.data.y, float), np.diag(s.gram(network, run.data.x)))


class SmallLossAtStart(WithProbability[Start]):
    """Lemma 2: with probability 1 - δ, L^0 = ½ Σ_a (f(x_a) - y_a)² is at most |y|², if m >= Ω(n ĉ² log(n/δ) / |y|²).

    Read-outs are ±ĉ with equal probabilities. The printed width lacks the factor n (see `docs/errata.md`).
    """

    key: ClassVar[str] = "chen2022/lemma-2"
    source: ClassVar[str] = f"{s.AUTHORS}, Lemma 2"
    statement: ClassVar[str] = "Wide networks start with a loss of at most |y|²."
    example: ClassVar[Example] = Example(s.small_inputs)
    counterexample: ClassVar[Example] = Example(s.small_inputs, readout=300.0)
    knows = staticmethod(s.is_known)

    def read(self, run: Trajectory) -> Reading[Start]:
        setting = yield from read_start(run)
        network, activation = setting.network, setting.network.activation
        yield from require(s.one_size(network), s.lipschitz(activation))
        size = float(np.linalg.norm(setting.y))
        yield from require(Hypothesis("targets that are not all 0", size > 0, size))
        spread = float(constants.start_size(activation, setting.variances.max()))
        needed = constants.width_for_loss(spread, s.readout(network), size, setting.y.size, self.delta)
        yield Hypothesis("width m", network.width >= needed, network.width, needed)
        return setting

    def conclude(self, setting: Start) -> Finding:
        residual = np.asarray(setting.network(setting.x), float) - setting.y
        loss, bound = 0.5 * float(residual @ residual), float(setting.y @ setting.y)
        why = f"L^0 = {loss:.3g} and |y|² = {bound:.3g}."
        margin = bound / max(loss, 1e-300)
        unlucky = f"Over random starts this happens with a probability of at most {self.delta:g}."
        return Finding.judge(loss <= bound, why, margin, {"L^0": loss, "|y|²": bound}, if_fails=unlucky)


class NeuronsStartActive(WithProbability[tuple[Start, ActiveInterval]]):
    """Lemma 3: with probability 1 - δ, η̃^0 exceeds K = ½ min_a P(h ∈ middle third of I), h ~ N(0, G_aa), if m is large.

    η̃^0 is the smallest share, over inputs, of neurons that start in the middle third of the active interval I, and m
    has to be at least log(n/δ) / (2 K²). I is the one with the weakest requirements on ĉ. The printed K can exceed what
    it bounds (see `docs/errata.md`).
    """

    key: ClassVar[str] = "chen2022/lemma-3"
    source: ClassVar[str] = f"{s.AUTHORS}, Lemma 3"
    statement: ClassVar[str] = "In wide networks enough neurons start in the middle of the active interval."
    example: ClassVar[Example] = Example(s.small_inputs)
    counterexample: ClassVar[Example] = Example(s.small_inputs, bias=True)
    knows = staticmethod(s.is_known)

    def read(self, run: Trajectory) -> Reading[tuple[Start, ActiveInterval]]:
        start = yield from read_start(run)
        network, low, high = start.network, float(start.variances.min()), float(start.variances.max())
        found = constants.find_interval(network.activation, low, high)
        interval = yield from require_type("an interval on which |σ'| is bounded away from 0", found, ActiveInterval)
        needed = constants.width_for_share(_share(start, interval), start.y.shape[0], self.delta)
        yield Hypothesis("width m", network.width >= needed, network.width, needed)
        return start, interval

    def conclude(self, setting: tuple[Start, ActiveInterval]) -> Finding:
        (start, interval), share = setting, _share(*setting)
        left, right = interval.middle
        hidden = np.asarray(start.network.layers()["hidden"].preactivations(start.x), float)
        seen = float(np.mean((hidden > left) & (hidden < right), axis=1).min())
        numbers = {"η̃^0": seen, "K": share, "I_l": interval.left, "I_r": interval.right}
        why = f"The share of neurons in ({left:.3g}, {right:.3g}) is at least {seen:.3g}, and K = {share:.3g}."
        unlucky = f"Over random starts this happens with a probability of at most {self.delta:g}."
        return Finding.judge(seen > share, why, seen / share, numbers, if_fails=unlucky)


def _share(start: Start, interval: ActiveInterval) -> float:
    """Return K: half of the least probability that a neuron starts in the middle third."""
    return 0.5 * float(np.min(constants.middle_mass(interval, start.variances)))
