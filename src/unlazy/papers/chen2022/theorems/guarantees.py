"""What chen2022 guarantees before a run: how large ĉ, m and D have to be, and the rate that follows.

The constants that the paper leaves open are those of `constants`, from its own proofs. A network that is below them may
well converge; the theorems are then silent, and say what they would need.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar

import equinox as eqx
import numpy as np

from unlazy.data import Dataset
from unlazy.flows import Trajectory
from unlazy.networks import Identity, Network, RandomLayers
from unlazy.papers.chen2022.theorems._problems import small_inputs
from unlazy.papers.chen2022.theorems._setting import (
    AUTHORS,
    Setting,
    Spectrum,
    active_somewhere,
    is_known,
    limit_gram,
    losses,
    positive_definite,
    read,
    settled,
    spectrum,
)
from unlazy.papers.chen2022.theorems.constants import (
    Requirements,
    best_interval,
    features_needed,
    find_interval,
    requirements,
    start_size,
)
from unlazy.probes import Probe, TrainLoss
from unlazy.theory._base import Finding, Hypothesis, Theorem, Verdict
from unlazy.theory._fall import fall
from unlazy.theory._runs import gaussian_weights, looked_later, probability


class FixedEmbedding(Theorem):
    """Theorem 1: if λ_min(G) > 0, ĉ >= 2 κ |y| K^(-3/2) and m is large enough, L^t <= L^0 e^(-rate t) for all t.

    With probability 1 - δ over the start; rate = 2^(1/3) ĉ² λ_min(G) K_σ'² K (eq. 61). Once drawn, a random embedding
    is a fixed one.
    """

    key: ClassVar[str] = "chen2022/theorem-1"
    source: ClassVar[str] = f"{AUTHORS}, Theorem 1"
    statement: ClassVar[str] = "On independent features, with c and m large enough, the loss falls exponentially to 0."
    feasible: ClassVar[bool] = True
    delta: float = eqx.field(static=True, default=0.05)

    def __check_init__(self) -> None:
        probability(self.delta)

    def needs(self, network: Network, data: Dataset) -> Sequence[Probe]:
        """The loss."""
        return [TrainLoss()] if is_known(network) else []

    def hypotheses(self, run: Trajectory) -> Iterator[Hypothesis]:
        """The paper's model and start, a positive definite G, and ĉ and m as large as they have to be."""
        conditions, setting = read(run)
        yield from conditions
        if setting is None:
            return
        yield from _start(setting)
        yield positive_definite(setting)
        yield looked_later(run)
        yield from _large_enough(setting, setting.spectrum, self.delta, random=False)

    def conclude(self, run: Trajectory) -> Finding:
        """Hold the loss against the guaranteed rate."""
        setting = settled(run)
        return _conclude(run, setting, self._requirements(setting), self.delta)

    def _requirements(self, setting: Setting) -> Requirements:
        return _requirements(setting, setting.spectrum, self.delta, random=False)

    def example(self) -> Trajectory:
        """Two small inputs, large read-outs, tanh."""
        return small_inputs(self)

    def counterexample(self) -> Trajectory:
        """The same with read-outs of 1."""
        return small_inputs(self, readout=1.0)


class ShallowIndependentInputs(Theorem):
    """Corollary 1: a shallow network on linearly independent inputs (so n <= d) converges at a linear rate.

    That is Theorem 1 with G = x·x / d. The printed corollary leaves out what it asks of ĉ and m. It needs it: with tanh
    |f| < ĉ, so that targets above ĉ are never fitted.
    """

    key: ClassVar[str] = "chen2022/corollary-1"
    source: ClassVar[str] = f"{AUTHORS}, Corollary 1"
    statement: ClassVar[str] = "A wide shallow network with n <= d independent inputs fits them at a linear rate."
    feasible: ClassVar[bool] = True
    delta: float = eqx.field(static=True, default=0.05)

    def __check_init__(self) -> None:
        probability(self.delta)

    def needs(self, network: Network, data: Dataset) -> Sequence[Probe]:
        """The loss."""
        return FixedEmbedding(self.delta).needs(network, data)

    def hypotheses(self, run: Trajectory) -> Iterator[Hypothesis]:
        """A shallow network, n <= d, and all that Theorem 1 asks for."""
        embedding = getattr(run.start, "embedding", None)
        if embedding is not None:
            yield Hypothesis("a shallow network, without an embedding", isinstance(embedding, Identity))
            yield Hypothesis("n <= d", run.data.n <= run.data.inputs, run.data.n, run.data.inputs)
        yield from FixedEmbedding(self.delta).hypotheses(run)

    def conclude(self, run: Trajectory) -> Finding:
        """As Theorem 1."""
        return FixedEmbedding(self.delta).conclude(run)

    def example(self) -> Trajectory:
        """Two small inputs in the plane."""
        return small_inputs(self)

    def counterexample(self) -> Trajectory:
        """Parallel inputs."""
        return small_inputs(self, parallel=True)


class RandomEmbedding(Theorem):
    """Theorem 2: the same for random features whose G is close to its limit, ‖G - Ḡ‖ <= λ_min(Ḡ)/2 > 0.

    For random layers of any depth, and for infinite ones, where G = Ḡ. That D is large enough for Condition 1 is asked
    of the features at hand, by the distance itself; rate = 2^(-2/3) ĉ² λ_min(Ḡ) K_σ'² K (eq. 83, with the t it lacks).
    """

    key: ClassVar[str] = "chen2022/theorem-2"
    source: ClassVar[str] = f"{AUTHORS}, Theorem 2"
    statement: ClassVar[str] = "On many random features, with c and m large enough, the loss falls exponentially to 0."
    feasible: ClassVar[bool] = True
    delta: float = eqx.field(static=True, default=0.05)

    def __check_init__(self) -> None:
        probability(self.delta)

    def needs(self, network: Network, data: Dataset) -> Sequence[Probe]:
        """The loss."""
        return [TrainLoss()] if is_known(network) else []

    def hypotheses(self, run: Trajectory) -> Iterator[Hypothesis]:
        """The paper's model and start, G near a positive definite limit, and ĉ and m as large as they have to be."""
        yield from _near_its_limit(run, self.delta)

    def conclude(self, run: Trajectory) -> Finding:
        """Hold the loss against the guaranteed rate."""
        setting = settled(run)
        return _conclude(run, setting, _of_limit(setting, self.delta), self.delta)

    def example(self) -> Trajectory:
        """Two small inputs, sent through 2048 tanh features."""
        return small_inputs(self, embedding=RandomLayers((2048,)))

    def counterexample(self) -> Trajectory:
        """The same with read-outs of 1."""
        return small_inputs(self, embedding=RandomLayers((2048,)), readout=1.0)


class ThreeLayers(Theorem):
    """Theorem 3: the same for the partially trained three-layer network P-3L, where D >= D_min is known beforehand.

    D_min is that of `features_needed` for ‖G - Ḡ‖ <= λ_min(Ḡ)/2 with probability 1 - δ/2.
    """

    key: ClassVar[str] = "chen2022/theorem-3"
    source: ClassVar[str] = f"{AUTHORS}, Theorem 3"
    statement: ClassVar[str] = "A wide three-layer network, its first layer frozen, fits any n points at a linear rate."
    feasible: ClassVar[bool] = True
    delta: float = eqx.field(static=True, default=0.05)

    def __check_init__(self) -> None:
        probability(self.delta)

    def needs(self, network: Network, data: Dataset) -> Sequence[Probe]:
        """The loss."""
        return [TrainLoss()] if is_known(network) else []

    def hypotheses(self, run: Trajectory) -> Iterator[Hypothesis]:
        """One frozen random layer with enough features, and all that Theorem 2 asks for."""
        embedding = getattr(run.start, "embedding", None)
        one_layer = isinstance(embedding, RandomLayers) and len(embedding.widths) == 1
        yield Hypothesis("one frozen random layer below the trained one", one_layer)
        if not one_layer:
            return
        yield from _near_its_limit(run, self.delta)
        setting = read(run)[1]
        limit = None if setting is None else _limit(setting)
        if setting is not None and limit is not None and limit.positive:
            assert isinstance(embedding, RandomLayers)
            assert embedding.activation is not None
            sizes = start_size(embedding.activation, np.mean(np.square(np.asarray(setting.x, float)), axis=1))
            needed = features_needed(sizes, limit.smallest / 2, self.delta / 2)
            yield Hypothesis("features D", embedding.widths[0] >= needed, embedding.widths[0], needed)

    def conclude(self, run: Trajectory) -> Finding:
        """As Theorem 2."""
        return RandomEmbedding(self.delta).conclude(run)

    def example(self) -> Trajectory:
        """Two small inputs through 2048 tanh features."""
        return small_inputs(self, embedding=RandomLayers((2048,)))

    def counterexample(self) -> Trajectory:
        """The same with read-outs of 1."""
        return small_inputs(self, embedding=RandomLayers((2048,)), readout=1.0)


def _start(setting: Setting) -> Iterator[Hypothesis]:
    """Assumption 3, as far as numbers can show it: independent neurons with h_i ~ N(0, G)."""
    network = setting.network
    assert network.w is not None
    m, features = network.w.shape
    size = float(features) ** (2 * network.scaling.feature) * features
    yield Hypothesis("pre-activations with covariance G at the start", abs(size - 1) < 1e-6, size, 1)
    w = np.asarray(network.w, float)
    square = float(np.mean(w**2))
    yield Hypothesis("weights of variance 1 at the start", abs(square - 1) <= 6 * (2 / w.size) ** 0.5, square, 1)
    yield gaussian_weights(w)
    distinct = np.unique(w[:, 0]).size  # half of m for pairs; in single precision a few may meet by chance
    yield Hypothesis("independent neurons, not pairs of equal ones", distinct > 0.75 * m, distinct, m)
    yield Hypothesis("targets that are not all 0", bool(np.any(setting.y)))
    yield Hypothesis("a Lipschitz activation", bool(np.isfinite(network.activation.lipschitz)))


def _limit(setting: Setting) -> Spectrum | None:
    matrix = limit_gram(setting.network, setting.x)
    return None if matrix is None else spectrum(matrix, setting.precision)


def _near_its_limit(run: Trajectory, delta: float) -> Iterator[Hypothesis]:
    conditions, setting = read(run)
    yield from conditions
    if setting is None:
        return
    matrix, limit = limit_gram(setting.network, setting.x), _limit(setting)
    yield Hypothesis("random features, finitely or infinitely many", limit is not None)
    if matrix is None or limit is None:
        return
    yield from _start(setting)
    yield Hypothesis("eig_min of the limit Ḡ > 0", limit.positive, limit.smallest)
    distance = float(np.linalg.norm(setting.gram - matrix, 2))
    yield Hypothesis("|G - Ḡ| <= eig_min(Ḡ) / 2", distance <= limit.smallest / 2, distance, limit.smallest / 2)
    yield looked_later(run)
    yield from _large_enough(setting, limit, delta, random=True)


def _requirements(setting: Setting, known: Spectrum, delta: float, random: bool) -> Requirements:
    low, high = (known.low / 2, 2 * known.high) if random else (known.low, known.high)
    sigma = setting.network.activation
    return requirements(
        known.smallest,
        known.largest,
        (known.low, known.high),
        sigma,
        setting.y,
        setting.c,
        delta,
        best_interval(sigma, low, high),
        random,
    )


def _of_limit(setting: Setting, delta: float) -> Requirements:
    limit = _limit(setting)
    assert limit is not None
    return _requirements(setting, limit, delta, random=True)


def _large_enough(setting: Setting, known: Spectrum, delta: float, random: bool) -> Iterator[Hypothesis]:
    active = active_somewhere(find_interval(setting.network.activation, known.low, known.high))
    yield active
    if not (active.met and known.positive and np.any(setting.y)):
        return
    needed = _requirements(setting, known, delta, random)
    yield Hypothesis("read-outs ĉ", setting.c >= needed.c, setting.c, needed.c)
    yield Hypothesis("width m", setting.network.width >= needed.width, setting.network.width, needed.width)


def _conclude(run: Trajectory, setting: Setting, needed: Requirements, delta: float) -> Finding:
    rate = setting.speed * needed.rate
    found = fall(run.times, losses(run), setting.start_loss, setting.resolution).against(rate, stepwise=False)
    numbers = found.numbers | {
        "c": setting.c,
        "c needed": needed.c,
        "width": float(setting.network.width),
        "width needed": needed.width,
        "eig_min": setting.spectrum.smallest,
    }
    why = found.why
    if found.verdict is Verdict.FAILS:
        why += f" Over random starts this may happen with probability {delta:g} at most."
    return Finding(found.verdict, why, found.margin, numbers)
