"""The stages of ren2023: when they end (section 4), what holds in them (Lemmas 4.2 and 4.3), and the main theorem.

The main theorem requires a width that no computer can hold. Constants that the paper leaves open are fields.
"""

from typing import ClassVar, NamedTuple

import equinox as eqx
import numpy as np

from unlazy._errors import UserError
from unlazy.flows import Trajectory
from unlazy.networks import Block
from unlazy.papers._curves import first_crossing
from unlazy.papers.ren2023.theorems import problems
from unlazy.papers.ren2023.theorems import setting as s
from unlazy.probes import TrainLoss
from unlazy.theory import Example, Finding, Hypothesis, Reading, Verdict


class StageTimes(NamedTuple):
    """When stages end; NaN for those that a run did not reach.

    Attributes
    ----------
    positive
        T_1.1: no w_2 is positive.
    spread
        T_1.2: -w̄_2 = d δ_2(T_1.1).
    weight
        T_1.3 = T_1: -w̄_2 = C_1 / R_v2.
    fitted
        T_2: L = ε.
    """

    positive: float
    spread: float
    weight: float
    fitted: float


def stage_times(
    times: np.ndarray,
    second: s.Observed,
    loss: np.ndarray | None,
    d: int,
    bound: float,
    constant: float = 10.0,
    epsilon: float = 1e-3,
) -> StageTimes:
    """Compute T_1.1, T_1.2, T_1.3 = T_1 and T_2 (section 4).

    Parameters
    ----------
    times, second, loss
        Times, and what `SecondLayer` and `TrainLoss` observed there; without a loss T_2 is NaN.
    d
        Number of inputs.
    bound, constant
        R_v2, and C_1 of Lemma 4.2.
    epsilon
        The loss to be reached.
    """
    first = first_crossing(times, -second["largest"])
    if np.isnan(first):
        return StageTimes(*(float("nan"),) * 4)
    spread = float(np.interp(first, times, second["spread"]))
    later = np.where(times >= first, -second["weight"], -np.inf)
    spread_end, weight = (first_crossing(times, later - least) for least in (d * spread, constant / bound))
    fitted = float("nan")
    if loss is not None:
        fitted = first_crossing(times, np.where(times >= weight, epsilon - loss, -np.inf))
    return StageTimes(first, spread_end, weight, fitted)


class FirstStage(s.OfLearner):
    """Lemma 4.2: all w_2 turn negative, then -w̄_2 exceeds d δ_2, then C_1/R_v2, and nothing else changes much.

    Stage 1 ends when -w̄_2 = ``constant``/R_v2. Until then the changes of first-layer neurons in direction and length
    are at most the error |F/α - 1| at the start (condition (a) with Lemma C.4), b_2 stays within [½ E f*, 2 E f*] or
    its initial range (Lemma C.7), α within a factor of 2 of its start, and the spread below d^1.5 times its start
    (Lemma C.6).

    Parameters
    ----------
    constant
        C_1, which sets the end of stage 1.
    """

    key: ClassVar[str] = "ren2023/lemma-4.2"
    source: ClassVar[str] = f"{s.AUTHORS}, Lemma 4.2 (C.4)"
    statement: ClassVar[str] = "Stage 1 ends: all w_2 turn negative while everything else hardly changes."
    example: ClassVar[Example] = Example(problems.first_stage)
    counterexample: ClassVar[Example] = Example(problems.first_stage, spread=0.3)
    probes: ClassVar[s.Probes] = s.FIT
    conditions: ClassVar[s.Conditions] = (s.clipped, s.observed_after_start, s.radial_target)
    constant: float = eqx.field(static=True, default=10.0)

    def read(self, run: Trajectory) -> Reading[s.Setting]:
        """Require the clipped learner on the paper's target, with a spread so small that d δ_2 < C_1/R_v2."""
        setting = yield from super().read(run)
        spread, least = setting.spread, self.constant / setting.bounds[1] / setting.d
        yield Hypothesis("a spread δ_2(0) below C_1/(d R_v2)", spread < least, spread, least)
        return setting

    def conclude(self, setting: s.Setting) -> Finding:
        run, d = setting.run, setting.d
        second, first, loss = setting.observed(*s.FIT)
        found = stage_times(run.times, second, loss, d, setting.bounds[1], self.constant)
        numbers = {"T_1.1": found.positive, "T_1.2": found.spread, "T_1.3": found.weight}
        if np.isnan(found.weight):
            return Finding(Verdict.FAILS, f"Stage 1 does not end by t = {run.times[-1]:g}.", 0.0, numbers)
        during, mean = run.times <= found.weight, setting.law.target
        b = second["neurons"][during][..., 1]
        low, high = min(float(b[0].min()), mean / 2), max(float(b[0].max()), 2 * mean)
        alpha = first["alpha"][during] / first["alpha"][0]
        grown = second["spread"][during].max() / second["spread"][0]
        ratios = {
            "b_2 above its lower bound": float(b.min()) / low,
            "b_2 below its upper bound": high / float(b.max()),
            "α within a factor of 2": 2 / float(np.max(np.maximum(alpha, 1 / alpha))),
            "spread below d^1.5 times its start": d**1.5 / grown,
        }
        if isinstance(setting.first, Block):
            moved = float(np.max((first["tangential"] + first["radial"])[during]))
            ratios["change of the first layer below its error"] = float(first["sphere"][0]) / max(moved, 1e-300)
        ordered = found.positive <= found.spread <= found.weight
        margin = min(ratios.values())
        ends = f"T_1.1 = {found.positive:.3g}, T_1.2 = {found.spread:.3g}, T_1 = {found.weight:.3g}"
        why = f"{ends}; the margin of the tightest condition is {margin:.3g}."
        holds = ordered and margin >= 1 - 1e-6
        return Finding.judge(holds, why, margin if ordered else 0.0, numbers | ratios)


class SecondStage(s.OfFiniteLearner):
    """Lemma 4.3: once w_2 < 0 the loss falls to ε while δ_2 does not grow and the first layer stays close to α |x|.

    Parameters
    ----------
    epsilon
        The loss to be reached.
    grown
        Factor by which the errors of the first layer, in L2 and on the sphere, may grow until then.
    """

    key: ClassVar[str] = "ren2023/lemma-4.3"
    source: ClassVar[str] = f"{s.AUTHORS}, Lemma 4.3 (D.2)"
    statement: ClassVar[str] = "Stage 2 fits the target while the first layer stays near a multiple of |x|."
    example: ClassVar[Example] = Example(problems.second_stage)
    counterexample: ClassVar[Example] = Example(problems.second_stage, train=("", "wb"))  # a frozen first layer
    probes: ClassVar[s.Probes] = s.FIT
    conditions: ClassVar[s.Conditions] = (s.observed_after_start, s.symmetric, s.negative_at_start, *s.UNCLIPPED)
    epsilon: float = eqx.field(static=True, default=5e-3)
    grown: float = eqx.field(static=True, default=2.0)

    def conclude(self, setting: s.Setting) -> Finding:
        run, (second, first, loss) = setting.run, setting.observed(*s.FIT)
        end = first_crossing(run.times, self.epsilon - np.asarray(loss))
        if np.isnan(end):
            why = f"The loss is {loss[-1]:.3g} at the end, and never reaches {self.epsilon:g}."
            return Finding(Verdict.FAILS, why, self.epsilon / float(loss[-1]), {"loss": float(loss[-1])})
        during = run.times <= end
        spread = second["spread"][during].max() / second["spread"][0]
        error, largest = (first[name][during].max() / first[name][0] for name in ("l2", "sphere"))
        # The thousandth allows for the error of the solver: the spread itself never grows (Lemma D.14).
        margin = float(min((1 + 1e-3) / spread, self.grown / error, self.grown / largest))
        why = (
            f"L = {self.epsilon:g} at t = {end:.3g}; until then the spread grows by a factor of at most {spread:.3g}, "
            f"the error by {error:.3g} in L2 and by {largest:.3g} on the sphere."
        )
        numbers = {"T_2": end, "spread": float(spread), "error": float(error), "on the sphere": float(largest)}
        return Finding.judge(margin >= 1, why, margin, numbers)


def width_needed(d: int, epsilon: float) -> float:
    """Compute the m_1 at which |F/α - 1| <= ε/d^14 at the start, as in Induction Hypothesis D.1 with constant 1.

    In one direction F/α - 1 has the variance (E σ(z)²/(E σ(z))² - 1)/m_1 over random neurons, where z is a coordinate
    of a random direction: (π - 1)/m_1 for large d. The result asks for one standard deviation in a single direction,
    so the width that is really needed is larger.

    Parameters
    ----------
    d
        Number of inputs.
    epsilon
        The loss to be reached.
    """
    return (np.pi - 1) * (float(d) ** 14 / epsilon) ** 2


class LearnsTarget(s.OfFiniteLearner):
    """Theorem 2.1: clipped gradient flow reaches loss ε with polynomially many neurons in polynomial time.

    The paper does not give the polynomials. Induction Hypothesis D.1 of its proof requires |F/α - 1| <= O(ε/d^14) on
    the sphere, hence a width of order d^28/ε²: `width_needed`.

    Parameters
    ----------
    epsilon
        The loss to be reached.
    """

    key: ClassVar[str] = "ren2023/theorem-2.1"
    source: ClassVar[str] = f"{s.AUTHORS}, Theorem 2.1"
    statement: ClassVar[str] = "A three-layer network of polynomial size learns relu(1 - |x|)."
    feasible: ClassVar[bool] = False
    example: ClassVar[Example] = Example(problems.first_stage)  # 64 neurons, where some 1e24 would be needed
    counterexample: ClassVar[Example] = Example(problems.first_stage, clip=None)
    probes: ClassVar[s.Probes] = (TrainLoss(),)
    conditions: ClassVar[s.Conditions] = (s.symmetric, s.clipped)
    epsilon: float = eqx.field(static=True, default=0.01)

    def __check_init__(self) -> None:
        if not 0 < self.epsilon < 1:
            raise UserError(f"epsilon = {self.epsilon} is out of range: give a loss between 0 and 1, such as 0.01.")

    def read(self, run: Trajectory) -> Reading[s.Setting]:
        """Require the clipped learner, with a width that suffices for the proof."""
        setting = yield from super().read(run)
        width, needed = float(len(setting.weights)), width_needed(setting.d, self.epsilon)
        yield Hypothesis("width m_1, with all constants 1", width >= needed, width, needed)
        return setting

    def conclude(self, setting: s.Setting) -> Finding:
        loss = float(np.min(setting.observed(TrainLoss())[0]))
        why = f"The loss falls to {loss:.3g}; the theorem guarantees {self.epsilon:g}."
        return Finding.judge(loss <= self.epsilon, why, self.epsilon / max(loss, 1e-300), {"loss": loss})
