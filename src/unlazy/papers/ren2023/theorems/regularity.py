"""What keeps stage 2 of ren2023 regular: Lemmas D.15 to D.17 and D.19, with constants.

The paper has them on the boundary of Induction Hypothesis D.1; here each has a condition that a run can meet. Let all
second-layer neurons be active on |x| <= 1 and the first layer be infinitely wide. There f* - f = 1 - b̄_2 - (1 + w̄_2 α)
|x| for |x| <= 1, and f >= 0 = f* beyond, so that

    b̄_2' <= (1 - b̄_2) P(|x| <= 1) - (1 + w̄_2 α) E[|x|; |x| <= 1],

which is negative if 1 - b̄_2 is small against 1 + w̄_2 α (D.16). If on the other hand all b_2 <= 1 and b_2 + w_2 α <= 0,
then f <= f* everywhere, so no pull on w_2 or b_2 is negative, nor any on α positive, and (w̄_2 α)' > 0 (D.17). Both
conditions exclude each other, and on the line b̄_2 + w̄_2 α = 0 between them b̄_2 + w̄_2 α grows.
"""

from typing import ClassVar

import numpy as np

from unlazy.flows import Trajectory
from unlazy.networks.limits import sphere_mean
from unlazy.papers.ren2023.theorems import problems
from unlazy.papers.ren2023.theorems import setting as common
from unlazy.papers.ren2023.theorems.conservation import Conserved
from unlazy.papers.ren2023.theorems.rates import active_inside, is_infinite
from unlazy.papers.ren2023.theorems.setting import AUTHORS, FIT, SPEEDS, RadialLaw, Setting
from unlazy.papers.ren2023.theorems.speeds import fall_bound
from unlazy.probes import Probe
from unlazy.theory import Example, Finding, Hypothesis, Reading, Theorem, Verdict, through
from unlazy.theory.hypotheses import relative_error, rounding, rounding_error


def loss_bound(neurons: np.ndarray, alpha: float, error: float, law: RadialLaw) -> float:
    """Compute the bound of Lemma D.15, for all w_2 < 0: L <= ½ (A + B + C)².

    f and f* vanish for |x| > R, the larger of 1 and of all b/(|w_2| α (1 - ε)), and |f - f*| is at most the mean of
    |1 - b| + |1 + w_2 α| |x| + |w_2| α ε |x|. So A² = E(1 - b)², B² = E(1 + w_2 α)² E[|x|²; |x| <= R] and C² = ε² α²
    E w_2² E[|x|²; |x| <= R]. The last expectation is at most R², as in the paper.

    Parameters
    ----------
    neurons
        (w_2, b_2) of every second-layer neuron.
    alpha, error
        The slope α, and ε, the largest |F/α - 1| on the sphere.
    law
        The law of |x|.
    """
    w, b = neurons[:, 0], neurons[:, 1]
    reach = max(1.0, float(np.max(b / -w)) / (alpha * max(1 - error, 1e-300)))
    far = float(law.moment(2, reach)) ** 0.5
    parts = (1 - b, (1 + w * alpha) * far, error * alpha * w * far)
    return 0.5 * sum(float(np.sqrt(np.mean(part**2))) for part in parts) ** 2


class LossFromParameters(Theorem[Setting]):
    """Lemma D.15: the loss is small if b_2 is near 1 and w_2 α near -1: L is at most `loss_bound`."""

    key: ClassVar[str] = "ren2023/lemma-d.15"
    source: ClassVar[str] = f"{AUTHORS}, Lemma D.15, with constants"
    statement: ClassVar[str] = "The loss is bounded by how far the second layer is from 1 - |x|."
    example: ClassVar[Example] = Example(problems.second_stage)
    counterexample: ClassVar[Example] = Example(problems.first_stage)  # some w_2 > 0 at the start
    probes: ClassVar[tuple[Probe, ...]] = FIT
    knows = staticmethod(common.is_known)

    def read(self, run: Trajectory) -> Reading[Setting | None]:
        """Require the learner on the paper's target, with all w_2 < 0."""
        setting = yield from common.model(run)
        yield common.radial_target(run)
        yield common.half_squared(run)
        second = through(run, FIT[0])
        if setting is not None and second is not None:
            largest = float(second["largest"].max())
            yield Hypothesis("all w_2 < 0 at every observation", largest < 0, largest, 0.0)
        return setting

    def conclude(self, setting: Setting) -> Finding:
        """Compare loss and bound at every observation."""
        second, first, loss = (through(setting.run, probe) for probe in FIT)
        rows = zip(second["neurons"], first["alpha"], first["sphere"], strict=True)
        bound = np.array([loss_bound(*one, setting.law) for one in rows])
        ratio = bound / np.asarray(loss)
        margin, last = float(ratio.min()), float(bound[-1])
        numbers = {"first bound": float(bound[0]), "last bound": last, "last loss": float(loss[-1])}
        why = f"The loss is {loss[-1]:.3g} at the end, at most {last:.3g}; bounds are {margin:.3g} times it or more."
        zero = 0.5 * float(setting.law.moment(0, 1.0))  # f* is at most 1, on |x| <= 1
        weak = bool(np.all(bound >= zero))
        return Finding.judge(margin >= 1, why, margin, numbers, vacuous=weak, if_vacuous="So is that of f = 0.")


class _OnBoundary(Theorem[Setting]):
    """A statement about speeds at infinite width, at all observations that meet a condition."""

    probes: ClassVar[tuple[Probe, ...]] = SPEEDS
    knows = staticmethod(is_infinite)

    def read(self, run: Trajectory) -> Reading[Setting | None]:
        """Require the infinite learner without clips, and the condition at the start."""
        setting = yield from common.model(run)
        yield Hypothesis("a first layer of infinite width", is_infinite(run.start))
        yield common.radial_target(run)
        if setting is None:
            return None
        yield setting.unclipped()
        yield setting.both_trained()
        if all(through(run, probe) is not None for probe in SPEEDS):
            yield Hypothesis(self.condition, bool(self.met(setting)[0]))
        return setting

    condition: ClassVar[str]

    def met(self, setting: Setting) -> np.ndarray:
        """Return at which observations the condition is met."""
        raise NotImplementedError


def _means(setting: Setting) -> tuple[np.ndarray, np.ndarray]:
    """Return 1 - b̄_2 and 1 + w̄_2 α at every observation."""
    second, first, _ = (through(setting.run, probe) for probe in SPEEDS)
    return 1 - second["bias"], 1 + second["weight"] * first["alpha"]


def _bias_bound(setting: Setting) -> np.ndarray:
    """Return (1 - b̄_2) P(|x| <= 1) - (1 + w̄_2 α) E[|x|; |x| <= 1] at every observation."""
    bias, weight = _means(setting)
    return bias * setting.law.moment(0, 1.0) - weight * setting.law.moment(1, 1.0)


class BiasTurnsBack(_OnBoundary):
    """Lemma D.16: b̄_2' <= (1 - b̄_2) P(|x| <= 1) - (1 + w̄_2 α) E[|x|; |x| <= 1], so b̄_2 falls where that is negative."""

    key: ClassVar[str] = "ren2023/lemma-d.16"
    source: ClassVar[str] = f"{AUTHORS}, Lemma D.16, with constants"
    statement: ClassVar[str] = "The mean bias does not come to 1 before the slope does."
    condition: ClassVar[str] = "active on |x| <= 1, and (1 - b̄_2) P(|x| <= 1) < (1 + w̄_2 α) E[|x|; |x| <= 1]"
    example: ClassVar[Example] = Example(problems.infinite_stage, weight=-5.4, bias=0.97, until=3.0)
    counterexample: ClassVar[Example] = Example(problems.infinite_stage)  # b_2 = 0.35

    def met(self, setting: Setting) -> np.ndarray:
        """Return where b̄_2 is so near 1 that it must fall."""
        second, first, _ = (through(setting.run, probe) for probe in SPEEDS)
        return (active_inside(second["neurons"], first["alpha"]) > 0) & (_bias_bound(setting) < 0)

    def conclude(self, setting: Setting) -> Finding:
        """Compare b̄_2' with its bound."""
        here = self.met(setting)
        speed = through(setting.run, SPEEDS[2])["neurons"][here, :, 1].mean(axis=1)
        margin = float(np.min(speed / _bias_bound(setting)[here]))
        numbers = {"observations": float(here.sum()), "first speed": float(speed[0])}
        why = f"The mean b̄_2 falls {margin:.3g} times as fast as it must, or faster, at {here.sum()} observations."
        return Finding.judge(margin >= 1 - rounding_error(rounding(setting.run)), why, margin, numbers)


class SlopeTurnsBack(_OnBoundary):
    """Lemma D.17: where all b_2 <= 1 and b_2 + w_2 α <= 0, f <= f*, and all of w_2, b_2, w̄_2 α and -α grow."""

    key: ClassVar[str] = "ren2023/lemma-d.17"
    source: ClassVar[str] = f"{AUTHORS}, Lemma D.17, with constants"
    statement: ClassVar[str] = "The slope of f does not come to -1 before the bias does to 1."
    condition: ClassVar[str] = "all b_2 <= 1, w_2 < 0 and b_2 + w_2 α <= 0"
    example: ClassVar[Example] = Example(problems.infinite_stage, weight=-10.5, bias=0.5, until=3.0)
    counterexample: ClassVar[Example] = Example(problems.infinite_stage)  # w̄_2 α = -0.02

    def met(self, setting: Setting) -> np.ndarray:
        """Return where f <= f*."""
        second, first, _ = (through(setting.run, probe) for probe in SPEEDS)
        w, b = second["neurons"][..., 0], second["neurons"][..., 1]
        return np.all((b <= 1) & (w < 0) & (b + w * first["alpha"][:, None] <= 0), axis=1)

    def conclude(self, setting: Setting) -> Finding:
        """Check the signs of all speeds."""
        here, second, first = self.met(setting), through(setting.run, SPEEDS[0]), through(setting.run, SPEEDS[1])
        speeds = through(setting.run, SPEEDS[2])
        moving, growth = speeds["neurons"][here], speeds["alpha"][here]
        product = moving[..., 0].mean(axis=1) * first["alpha"][here] + second["weight"][here] * growth
        slack = rounding_error(rounding(setting.run)) * float(np.abs(moving).max())
        least, most = float(moving.min()), float(growth.max())
        numbers = {"least speed": least, "largest α'": most, "least (w̄_2 α)'": float(product.min())}
        holds = least >= -slack and most <= slack and float(product.min()) > 0
        why = f"(w̄_2 α)' is {product.min():.3g} or more, at {here.sum()} observations, and no w_2 or b_2 falls."
        return Finding.judge(holds, why, 1.0 if holds else 0.0, numbers)


class StaysAway(Conserved):
    """Lemma D.19 (and D.18): α and |w̄_2| stay away from 0, and |w̄_2| from infinity, along the unclipped flow.

    As α - 2 s E w_2² = K is conserved, s = C_Γ/√d, α >= K; and if K >= 0 and |w̄_2 α| <= 1, then 2 s |w̄_2|³ <= 1.
    Where `fall_bound` is positive, all w_2 fall at least so fast: |w̄_2| grows where it is small.
    """

    key: ClassVar[str] = "ren2023/lemma-d.19"
    source: ClassVar[str] = f"{AUTHORS}, Lemmas D.18 and D.19, with constants"
    statement: ClassVar[str] = "In stage 2 the slopes of both layers stay away from 0."
    example: ClassVar[Example] = Example(problems.infinite_stage, weight=-1e-2, until=3.0)
    counterexample: ClassVar[Example] = Example(problems.first_stage)  # clipped
    probes: ClassVar[tuple[Probe, ...]] = SPEEDS

    def conclude(self, setting: Setting) -> Finding:
        """Check the three statements at every observation to which they apply."""
        run, s, law = setting.run, sphere_mean(setting.d), setting.law
        second, first, speeds = (through(run, probe) for probe in SPEEDS)
        alpha, weight = first["alpha"], second["weight"]
        kept = float(alpha[0] - 2 * s * second["square"][0])
        if kept <= 0:
            return Finding(Verdict.VACUOUS, f"α - 2 s E w_2² is {kept:.3g} at the start: it bounds nothing.")
        ratios = {"α over K": float(alpha.min()) / kept}
        inside = np.abs(weight * alpha) <= 1
        ratios["largest |w̄_2| allowed"] = (2 * s) ** (-1 / 3) / float(np.abs(weight[inside]).max(initial=1e-300))
        slow = []
        for i in np.flatnonzero((active_inside(second["neurons"], alpha) > 0) & (second["largest"] < 0)):
            least = fall_bound(second["neurons"][i], alpha[i], first["sphere"][i], law)
            if least > 0:
                slow.append(-float(speeds["neurons"][i, :, 0].max()) / least)
        if slow:
            ratios["w_2' over its bound"] = min(slow)
        margin = min(ratios.values())
        why = f"α >= K = {kept:.3g}, and |w̄_2| grows where it must; the least margin is {margin:.3g}."
        return Finding.judge(margin >= 1 - relative_error(run, rounding(run)), why, margin, ratios | {"K": kept})
