"""Along a run, the loss falls while neurons are active (chen2022 eq. 14 and 16), and they stay active (Lemma 1)."""

import itertools
from collections.abc import Sequence
from typing import ClassVar

import equinox as eqx
import numpy as np

from unlazy.activations import Activation, ActiveInterval, LeakyRelu, Tanh
from unlazy.data import Dataset
from unlazy.flows import Trajectory
from unlazy.networks import Network, TwoLayer
from unlazy.papers.chen2022.theorems import setting as s
from unlazy.papers.chen2022.theorems.constants import find_interval, kappa, printed_kappa
from unlazy.probes import ActiveShare, DecayRate, MeanSquareSlope, Probe, TrainLoss
from unlazy.theory import Example, Finding, Hypothesis, Reading, Theorem, Verdict, through
from unlazy.theory.hypotheses import observed_later, rounding

_FAR = 50.0  # |σ'| is evaluated up to here: an activation with a floor has converged to it by then


class LossFalls(Theorem[s.Setting]):
    """Eq. 14: -L'/L >= 2 ĉ² λ_min(G) min_a (1/m) Σ_i σ'(h_i(x_a))² at every time.

    This applies to any activation: the mean square slope is measured along the run, in place of the constant of eq. 16.
    """

    key: ClassVar[str] = "chen2022/eq-14"
    source: ClassVar[str] = f"{s.AUTHORS}, eq. 14"
    statement: ClassVar[str] = "While slopes are not all small, the loss falls at least at a rate set by eig_min(G)."
    probes: ClassVar[tuple[Probe, ...]] = (DecayRate(), MeanSquareSlope())
    knows = staticmethod(s.is_known)
    example: ClassVar[Example] = Example(s.small_inputs, probes)
    counterexample: ClassVar[Example] = Example(s.small_inputs, probes, parallel=True)  # eig_min(G) = 0

    def read(self, run: Trajectory) -> Reading[s.Setting]:
        setting = yield from s.read(run)
        yield setting.positive_definite()
        return setting

    def conclude(self, setting: s.Setting) -> Finding:
        run = setting.run
        slopes = np.asarray(through(run, MeanSquareSlope())["hidden"], float)
        measured = np.asarray(through(run, DecayRate()), float)
        guaranteed = 2 * setting.speed * setting.c**2 * setting.spectrum.smallest * slopes
        # λ_min is known up to rounding of the largest eigenvalue.
        slack = setting.spectrum.rounding / setting.spectrum.smallest + 1e3 * rounding(setting.run)
        left = measured > 0  # no loss, no rate
        margin = float(np.min(measured[left] / guaranteed[left])) if left.any() else 1.0
        holds = bool(np.all(measured[left] >= guaranteed[left] * (1 - slack)))
        numbers = {
            "guaranteed rate": float(guaranteed[left].min(initial=np.inf)),
            "measured rate": float(measured[left].min(initial=np.inf)),
            "eig_min(G)": setting.spectrum.smallest,
            "relative slack": slack,
        }
        why = (
            f"The loss falls at rates from {numbers['measured rate']:.3g} to {measured.max():.3g}; rates from "
            f"{guaranteed.min():.3g} to {guaranteed.max():.3g} are guaranteed, as eig_min(G) = "
            f"{setting.spectrum.smallest:.3g}."
        )
        return Finding.judge(holds, why, margin, numbers)


class SlopesBoundedBelow(Theorem[tuple[s.Setting, float]]):
    """Eq. 16: L' <= -2 ĉ² λ_min(G) K_σ'² L where |σ'| >= K_σ' > 0 everywhere.

    This applies to linear and leaky ReLU activations, but not to the cubic one, which the paper also names. The
    inequality is checked in the form L^t <= L^s e^(-rate (t - s)) between any two times.
    """

    key: ClassVar[str] = "chen2022/eq-16"
    source: ClassVar[str] = f"{s.AUTHORS}, eq. 16"
    statement: ClassVar[str] = "Where |σ'| is bounded from below, the loss falls exponentially from the start."
    probes: ClassVar[tuple[Probe, ...]] = (TrainLoss(),)
    knows = staticmethod(s.is_known)
    example: ClassVar[Example] = Example(s.small_inputs, probes, activation=LeakyRelu(0.5))
    counterexample: ClassVar[Example] = Example(s.small_inputs, probes, activation=Tanh())  # it saturates

    def read(self, run: Trajectory) -> Reading[tuple[s.Setting, float]]:
        setting = yield from s.read(run)
        yield setting.positive_definite()
        floor = slope_floor(setting.network.activation)
        yield Hypothesis("|σ'| bounded away from 0 everywhere", floor > 0, floor)
        yield observed_later(run)
        return setting, floor

    def conclude(self, setting: tuple[s.Setting, float]) -> Finding:
        known, floor = setting
        rate = 2 * known.speed * known.c**2 * known.spectrum.smallest * floor**2
        return known.fall().against(rate, stepwise=True)


def _lemma_1_probes(network: Network, data: Dataset, given: tuple[float, float] | None = None) -> list[Probe]:
    """Return the probes of the loss and of the share of neurons in the active interval."""
    if not s.is_known(network):
        return []
    interval = _interval(network, np.diag(s.gram(network, data.x)), given)
    return [] if interval is None else [TrainLoss(), ActiveShare(interval.left, interval.right)]


def _interval(network: TwoLayer, variances: np.ndarray, given: tuple[float, float] | None) -> ActiveInterval | None:
    if given is not None:
        return network.activation.interval(*given)
    return find_interval(network.activation, float(variances.min()), float(variances.max()))


class ActiveNeuronsStay(Theorem[tuple[s.Setting, ActiveInterval]]):
    """Lemma 1: (η^t)^(3/2) >= (η̃^0)^(3/2) - κ (√L^0 - √L^t) / ĉ, η being the share of neurons with h in I (eq. 18-19).

    Neurons that start in the middle third of the active interval I can leave it only while the loss falls; as long as a
    share η^t remains, the loss falls at the rate 2 ĉ² λ_min(G) K_σ'² η^t (eq. 50). This can be checked along any run. κ
    is that of `kappa`, not the printed one.

    Parameters
    ----------
    interval
        The ends of I; if omitted, those of `best_interval`.
    """

    key: ClassVar[str] = "chen2022/lemma-1"
    source: ClassVar[str] = f"{s.AUTHORS}, Lemma 1"
    statement: ClassVar[str] = "Neurons cannot leave the active region of σ without a fall of the loss."
    example: ClassVar[Example] = Example(s.small_inputs, _lemma_1_probes)
    counterexample: ClassVar[Example] = Example(s.small_inputs, _lemma_1_probes, parallel=True)  # eig_min(G) = 0
    interval: tuple[float, float] | None = eqx.field(static=True, default=None)

    def needs(self, network: Network, data: Dataset) -> Sequence[Probe]:
        return _lemma_1_probes(network, data, self.interval)

    def read(self, run: Trajectory) -> Reading[tuple[s.Setting, ActiveInterval] | None]:
        setting = yield from s.read(run)
        interval = _interval(setting.network, np.diag(setting.gram), self.interval)
        yield setting.positive_definite()
        yield Hypothesis("an interval on which |σ'| is bounded away from 0", interval is not None)
        yield observed_later(run)
        return None if interval is None else (setting, interval)

    def conclude(self, setting: tuple[s.Setting, ActiveInterval]) -> Finding:
        known, interval = setting
        run, network, values, g = known.run, known.network, known.losses(), known.spectrum
        shares = np.asarray(through(run, ActiveShare(interval.left, interval.right))["hidden"], float)
        middle = float(ActiveShare(*interval.middle).of(network, network, run.data, run.loss)["hidden"])
        root = float(np.sqrt(known.start_loss))
        used = kappa(g.smallest, g.largest, interval) / known.c
        right = middle**1.5 - used * (root - np.sqrt(values))
        guaranteed = np.maximum(right, 0.0) ** (2 / 3)
        says = guaranteed > 0
        numbers = {
            "guaranteed share": float(guaranteed[-1]),
            "measured share": float(shares.min()),
            "share in the middle at the start": middle,
            "guaranteed rate": 2 * known.speed * known.c**2 * g.smallest * interval.slope**2 * guaranteed[-1],
            "measured rate": known.fall().measured(),
            "kappa": used * known.c,
            "printed kappa": printed_kappa(g.smallest, g.largest, interval),
            "slack in √L": known.resolution,
            "c": known.c,
            "c that keeps half": 2 * used * known.c * root / middle**1.5 if middle > 0 else float("inf"),
        }
        margin = float(np.min(shares[says] / guaranteed[says])) if says.any() else float("inf")
        short = shares**1.5 < right - used * known.resolution
        verdict = Verdict.FAILS if short.any() else Verdict.HOLDS if says[-1] else Verdict.VACUOUS
        worst = int(np.argmin(shares**1.5 - right))
        where = f"in I = ({interval.left:.3g}, {interval.right:.3g})"
        why = {
            Verdict.FAILS: f"At t = {run.times[worst]:.3g} a share {shares[worst]:.3g} of the neurons is {where}, less "
            f"than the guaranteed {guaranteed[worst]:.3g}.",
            Verdict.VACUOUS: f"By the end of the run no active neuron is guaranteed {where}, though a share "
            f"{numbers['measured share']:.3g} is measured: ĉ is {numbers['c']:.3g}, and "
            f"{numbers['c that keeps half']:.3g} would guarantee that more than half of those in its middle stay.",
            Verdict.HOLDS: f"A share {numbers['guaranteed share']:.3g} of the neurons is guaranteed to stay {where}, "
            f"{numbers['measured share']:.3g} does; the loss then falls at least at the rate "
            f"{numbers['guaranteed rate']:.3g}, and {numbers['measured rate']:.3g} is measured.",
        }
        return Finding(verdict, why[verdict], margin, numbers)


def slope_floor(activation: Activation) -> float:
    """Compute K_σ' = inf |σ'| over |h| < 50 except kinks: the constant of eq. 16."""
    ends = [-_FAR, *(kink for kink in sorted(activation.kinks) if abs(kink) < _FAR), _FAR]
    return min(activation.slope_on(left, right) for left, right in itertools.pairwise(ends))
