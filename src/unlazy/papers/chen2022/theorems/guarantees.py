"""What chen2022 guarantees before a run: how large ĉ, m and D have to be, and the rate that follows.

The constants that the paper leaves open are in `constants`, taken from its proofs. A network that does not reach them
may well converge; the theorems are then silent, and say what they would require.
"""

import dataclasses
from collections.abc import Iterator
from typing import ClassVar

import numpy as np

from unlazy.activations import Activation
from unlazy.flows import Trajectory
from unlazy.networks import Identity, RandomLayers, TwoLayer
from unlazy.papers.chen2022.theorems import constants
from unlazy.papers.chen2022.theorems import setting as s
from unlazy.probes import Probe, TrainLoss
from unlazy.theory import Example, Finding, Hypothesis, Reading, WithProbability, require_type
from unlazy.theory.hypotheses import observed_later, rounding

Promise = tuple[s.Setting, constants.Requirements]  # a run in the paper's units, and what is required and guaranteed


class _Guarantee(WithProbability[Promise]):
    """A rate of the loss that is known before the run."""

    probes: ClassVar[tuple[Probe, ...]] = (TrainLoss(),)
    knows = staticmethod(s.is_known)

    def conclude(self, setting: Promise) -> Finding:
        known, needed = setting
        unlucky = f"Over random starts this happens with a probability of at most {self.delta:g}."
        found = known.fall().against(known.speed * needed.rate, stepwise=False, if_fails=unlucky)
        numbers = found.numbers | {
            "c": known.c,
            "c needed": needed.c,
            "width": float(known.network.width),
            "width needed": needed.width,
            "eig_min": known.spectrum.smallest,
        }
        return dataclasses.replace(found, numbers=numbers)


class FixedEmbedding(_Guarantee):
    """Theorem 1: if λ_min(G) > 0, ĉ >= 2 κ |y| K^(-3/2) and m is large enough, L^t <= L^0 e^(-rate t) for all t.

    With probability 1 - δ over the start; rate = 2^(1/3) ĉ² λ_min(G) K_σ'² K (eq. 61). Once drawn, a random embedding
    is a fixed one.
    """

    key: ClassVar[str] = "chen2022/theorem-1"
    source: ClassVar[str] = f"{s.AUTHORS}, Theorem 1"
    statement: ClassVar[str] = "On independent features, with c and m large enough, the loss falls exponentially to 0."
    example: ClassVar[Example] = Example(s.small_inputs, _Guarantee.probes)
    counterexample: ClassVar[Example] = Example(s.small_inputs, _Guarantee.probes, readout=1.0)

    def read(self, run: Trajectory) -> Reading[Promise | None]:
        setting = yield from s.read(run)
        yield from _start(setting)
        yield setting.positive_definite()
        yield observed_later(run)
        return (yield from _large_enough(setting, setting.spectrum, self.delta, random=False))


class ShallowIndependentInputs(_Guarantee):
    """Corollary 1: a shallow network on linearly independent inputs (so n <= d) converges at a linear rate.

    This is Theorem 1 with G = x·x / d. The printed corollary omits the conditions on ĉ and m. They are needed: with
    tanh |f| < ĉ, so that targets above ĉ are never fitted.
    """

    key: ClassVar[str] = "chen2022/corollary-1"
    source: ClassVar[str] = f"{s.AUTHORS}, Corollary 1"
    statement: ClassVar[str] = "A wide shallow network with n <= d independent inputs fits them at a linear rate."
    example: ClassVar[Example] = Example(s.small_inputs, _Guarantee.probes)
    counterexample: ClassVar[Example] = Example(s.small_inputs, _Guarantee.probes, parallel=True)

    def read(self, run: Trajectory) -> Reading[Promise | None]:
        if isinstance(run.start, TwoLayer):
            yield Hypothesis("a shallow network, without an embedding", isinstance(run.start.embedding, Identity))
            yield Hypothesis("n <= d", run.data.n <= run.data.inputs, run.data.n, run.data.inputs)
        return (yield from FixedEmbedding(self.delta).read(run))


class _RandomFeatures(_Guarantee):
    """A guarantee for random features, whose example has one layer of them."""

    example: ClassVar[Example] = Example(s.small_inputs, _Guarantee.probes, embedding=RandomLayers((2048,)))
    counterexample: ClassVar[Example] = Example(
        s.small_inputs, _Guarantee.probes, embedding=RandomLayers((2048,)), readout=1.0
    )


class RandomEmbedding(_RandomFeatures):
    """Theorem 2: the same for random features whose G is close to its limit, ‖G - Ḡ‖ <= λ_min(Ḡ)/2 > 0.

    This applies to random layers of any depth, and to infinite ones, where G = Ḡ. Instead of a D that is large enough
    for Condition 1, the distance itself is checked; rate = 2^(-2/3) ĉ² λ_min(Ḡ) K_σ'² K (eq. 83, which lacks t).
    """

    key: ClassVar[str] = "chen2022/theorem-2"
    source: ClassVar[str] = f"{s.AUTHORS}, Theorem 2"
    statement: ClassVar[str] = "On many random features, with c and m large enough, the loss falls exponentially to 0."

    def read(self, run: Trajectory) -> Reading[Promise | None]:
        return (yield from _near_its_limit(run, self.delta))


class ThreeLayers(_RandomFeatures):
    """Theorem 3: the same for the partially trained three-layer network P-3L, with an explicit condition D >= D_min.

    D_min is that of `features_needed` for ‖G - Ḡ‖ <= λ_min(Ḡ)/2 with probability 1 - δ/2.
    """

    key: ClassVar[str] = "chen2022/theorem-3"
    source: ClassVar[str] = f"{s.AUTHORS}, Theorem 3"
    statement: ClassVar[str] = "A wide three-layer network, its first layer frozen, fits any n points at a linear rate."

    def read(self, run: Trajectory) -> Reading[Promise | None]:
        what = "one frozen random layer below the trained one"
        layer = yield from require_type(what, s.random_layer(run.start), tuple)
        return (yield from _near_its_limit(run, self.delta, layer))


def _start(setting: s.Setting) -> Iterator[Hypothesis]:
    """Require Assumption 3, targets and a Lipschitz activation."""
    yield from s.independent_neurons(setting.network)
    yield Hypothesis("targets that are not all 0", bool(np.any(setting.y)))
    yield s.lipschitz(setting.network.activation)


def _near_its_limit(
    run: Trajectory, delta: float, layer: tuple[RandomLayers, Activation] | None = None
) -> Reading[Promise | None]:
    """Require what Theorem 2 does, and for one ``layer`` the number of features of Theorem 3."""
    setting = yield from s.read(run)
    found = s.limit_gram(setting.network, run.data.x)
    matrix = yield from require_type("random features, finitely or infinitely many", found, np.ndarray)
    limit = s.spectrum(matrix, rounding(run))
    yield from _start(setting)
    yield Hypothesis("eig_min of the limit Ḡ > 0", limit.positive, limit.smallest)
    distance = float(np.linalg.norm(setting.gram - matrix, 2))
    yield Hypothesis("|G - Ḡ| <= eig_min(Ḡ) / 2", distance <= limit.smallest / 2, distance, limit.smallest / 2)
    yield observed_later(run)
    promise = yield from _large_enough(setting, limit, delta, random=True)
    if layer is not None and limit.positive:
        embedding, activation = layer
        sizes = constants.start_size(activation, np.mean(np.square(np.asarray(run.data.x, float)), axis=1))
        needed = constants.features_needed(sizes, limit.smallest / 2, delta / 2)
        yield Hypothesis("features D", embedding.widths[0] >= needed, embedding.widths[0], needed)
    return promise


def _large_enough(setting: s.Setting, known: s.Spectrum, delta: float, random: bool) -> Reading[Promise | None]:
    """Require large enough ĉ and m, for a Gram matrix or its limit with the spectrum ``known``."""
    sigma, c, width = setting.network.activation, setting.c, setting.network.width
    active = constants.find_interval(sigma, known.low, known.high) is not None
    yield Hypothesis("an interval on which |σ'| is bounded away from 0", active)
    if not (active and known.positive and np.any(setting.y)):
        return None
    interval = constants.best_interval(sigma, *((known.low / 2, 2 * known.high) if random else (known.low, known.high)))
    ends, diagonal = (known.smallest, known.largest), (known.low, known.high)
    needed = constants.requirements(*ends, diagonal, sigma, setting.y, c, delta, interval, random)
    yield Hypothesis("read-outs ĉ", c >= needed.c, c, needed.c)
    yield Hypothesis("width m", width >= needed.width, width, needed.width)
    return setting, needed
