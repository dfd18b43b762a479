"""What keeps stage 2 of ren2023 regular: Lemmas D.15 to D.17 and D.19, with constants.

The paper states them on the boundary of Induction Hypothesis D.1; here each has a condition that a run can meet. Let
all second-layer neurons be active on |x| <= 1 and the first layer be infinitely wide. There f* - f = 1 - b̄_2 -
(1 + w̄_2 α) |x| for |x| <= 1, and f >= 0 = f* beyond, so that

    b̄_2' <= (1 - b̄_2) P(|x| <= 1) - (1 + w̄_2 α) E[|x|; |x| <= 1],

which is negative if 1 - b̄_2 is small compared with 1 + w̄_2 α (D.16). If on the other hand all b_2 <= 1 and
b_2 + w_2 α <= 0, then f <= f* everywhere, so no pull on w_2 or b_2 is negative and none on α is positive, and
(w̄_2 α)' > 0 (D.17). The two conditions exclude each other, and on the line b̄_2 + w̄_2 α = 0 between them b̄_2 + w̄_2 α
grows.
"""

from collections.abc import Iterator
from typing import ClassVar

import numpy as np

from unlazy.networks.limits import sphere_mean
from unlazy.papers.ren2023.theorems import problems
from unlazy.papers.ren2023.theorems import setting as s
from unlazy.papers.ren2023.theorems.speeds import fall_bound
from unlazy.theory import Example, Finding, Hypothesis, Verdict


def loss_bound(neurons: np.ndarray, alpha: float, error: float, law: s.RadialLaw) -> float:
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


def _negative(setting: s.Setting) -> Iterator[Hypothesis]:
    for second in setting.observed(s.LAYERS[0]):
        largest = float(second["largest"].max())
        yield Hypothesis("all w_2 < 0 at every observation", largest < 0, largest, 0.0)


class LossFromParameters(s.OfLearner):
    """Lemma D.15: the loss is small if b_2 is close to 1 and w_2 α to -1: L is at most `loss_bound`."""

    key: ClassVar[str] = "ren2023/lemma-d.15"
    source: ClassVar[str] = f"{s.AUTHORS}, Lemma D.15, with constants"
    statement: ClassVar[str] = "The loss is bounded by how far b_2 is from 1 and w_2 α from -1."
    example: ClassVar[Example] = Example(problems.second_stage)
    counterexample: ClassVar[Example] = Example(problems.first_stage)  # some w_2 > 0 at the start
    probes: ClassVar[s.Probes] = s.FIT
    conditions: ClassVar[s.Conditions] = (s.radial_target, s.half_squared, _negative)

    def conclude(self, setting: s.Setting) -> Finding:
        second, first, loss = setting.observed(*s.FIT)
        rows = zip(second["neurons"], first["alpha"], first["sphere"], strict=True)
        bound = np.array([loss_bound(*one, setting.law) for one in rows])
        margin, last = float(np.min(bound / np.asarray(loss))), float(bound[-1])
        numbers = {"first bound": float(bound[0]), "last bound": last, "last loss": float(loss[-1])}
        why = f"At the end the loss is {loss[-1]:.3g} and its bound {last:.3g}; the smallest margin is {margin:.3g}."
        zero = 0.5 * float(setting.law.moment(0, 1.0))  # f* is at most 1, on |x| <= 1
        weak, high = bool(np.all(bound >= zero)), "The bounds exceed the loss of f = 0."
        return Finding.judge(margin >= 1, why, margin, numbers, vacuous=weak, if_vacuous=high)


def _bias_bound(setting: s.Setting) -> np.ndarray:
    """Return (1 - b̄_2) P(|x| <= 1) - (1 + w̄_2 α) E[|x|; |x| <= 1] at every observation."""
    second, first = setting.observed(*s.LAYERS)
    bias, weight = 1 - second["bias"], 1 + second["weight"] * first["alpha"]
    return bias * setting.law.moment(0, 1.0) - weight * setting.law.moment(1, 1.0)


def _bias_must_fall(setting: s.Setting) -> np.ndarray:
    """Return at which observations all neurons are active on |x| <= 1, and b̄_2 so close to 1 that it must fall."""
    second, first = setting.observed(*s.LAYERS)
    return (s.active_inside(second["neurons"], first["alpha"]) > 0) & (_bias_bound(setting) < 0)


def _below_target(setting: s.Setting) -> np.ndarray:
    """Return at which observations all b_2 <= 1, w_2 < 0 and b_2 + w_2 α <= 0, so that f <= f*."""
    second, first = setting.observed(*s.LAYERS)
    w, b = second["neurons"][..., 0], second["neurons"][..., 1]
    return np.all((b <= 1) & (w < 0) & (b + w * first["alpha"][:, None] <= 0), axis=1)


def _near_one(setting: s.Setting) -> Iterator[Hypothesis]:
    if setting.observed(*s.LAYERS):
        what = "active on |x| <= 1, and (1 - b̄_2) P(|x| <= 1) < (1 + w̄_2 α) E[|x|; |x| <= 1]"
        yield Hypothesis(what, bool(_bias_must_fall(setting)[0]))


def _below_at_start(setting: s.Setting) -> Iterator[Hypothesis]:
    if setting.observed(*s.LAYERS):
        yield Hypothesis("all b_2 <= 1, w_2 < 0 and b_2 + w_2 α <= 0", bool(_below_target(setting)[0]))


class BiasStaysBelowOne(s.OfInfiniteLearner):
    """Lemma D.16: b̄_2' <= (1 - b̄_2) P(|x| <= 1) - (1 + w̄_2 α) E[|x|; |x| <= 1], so b̄_2 falls where that is negative."""

    key: ClassVar[str] = "ren2023/lemma-d.16"
    source: ClassVar[str] = f"{s.AUTHORS}, Lemma D.16, with constants"
    statement: ClassVar[str] = "The mean bias does not reach 1 before the slope reaches -1."
    example: ClassVar[Example] = Example(problems.infinite_stage, weight=-5.4, bias=0.97, until=3.0)
    counterexample: ClassVar[Example] = Example(problems.infinite_stage)  # b_2 = 0.35
    probes: ClassVar[s.Probes] = s.SPEEDS
    conditions: ClassVar[s.Conditions] = (s.radial_target, *s.UNCLIPPED, _near_one)

    def conclude(self, setting: s.Setting) -> Finding:
        here = _bias_must_fall(setting)
        speed = setting.observed(*s.SPEEDS)[2]["neurons"][here, :, 1].mean(axis=1)
        margin = float(np.min(speed / _bias_bound(setting)[here]))
        numbers = {"observations": float(here.sum()), "first speed": float(speed[0])}
        why = f"At {here.sum()} observations b̄_2 falls at least {margin:.3g} times as fast as the lemma requires."
        return Finding.judge(margin >= 1 - setting.rounding, why, margin, numbers)


class SlopeStaysAboveMinusOne(s.OfInfiniteLearner):
    """Lemma D.17: where all b_2 <= 1 and b_2 + w_2 α <= 0, f <= f*, all w_2, all b_2 and w̄_2 α grow, and α falls."""

    key: ClassVar[str] = "ren2023/lemma-d.17"
    source: ClassVar[str] = f"{s.AUTHORS}, Lemma D.17, with constants"
    statement: ClassVar[str] = "The slope of f does not reach -1 before the mean bias reaches 1."
    example: ClassVar[Example] = Example(problems.infinite_stage, weight=-10.5, bias=0.5, until=3.0)
    counterexample: ClassVar[Example] = Example(problems.infinite_stage)  # w̄_2 α = -0.02
    probes: ClassVar[s.Probes] = s.SPEEDS
    conditions: ClassVar[s.Conditions] = (s.radial_target, *s.UNCLIPPED, _below_at_start)

    def conclude(self, setting: s.Setting) -> Finding:
        here, (second, first, speeds) = _below_target(setting), setting.observed(*s.SPEEDS)
        moving, growth = speeds["neurons"][here], speeds["alpha"][here]
        product = moving[..., 0].mean(axis=1) * first["alpha"][here] + second["weight"][here] * growth
        slack = setting.rounding * float(np.abs(moving).max())
        least, most = float(moving.min()), float(growth.max())
        numbers = {"least speed": least, "largest α'": most, "least (w̄_2 α)'": float(product.min())}
        holds = least >= -slack and most <= slack and float(product.min()) > 0
        why = f"At {here.sum()} observations (w̄_2 α)' is at least {product.min():.3g}, and w_2' and b_2' {least:.3g}."
        return Finding.judge(holds, why, 1.0 if holds else 0.0, numbers)


class SlopesStayAwayFromZero(s.OfLearner):
    """Lemma D.19 (and D.18): α and |w̄_2| stay away from 0, and |w̄_2| is bounded, along the unclipped flow.

    As α - 2 s E w_2² = K is conserved (s = C_Γ/√d), α >= K; and if K >= 0 and |w̄_2 α| <= 1, then 2 s |w̄_2|³ <= 1.
    Where `fall_bound` is positive, all w_2 fall at least that fast: |w̄_2| grows where it is small.
    """

    key: ClassVar[str] = "ren2023/lemma-d.19"
    source: ClassVar[str] = f"{s.AUTHORS}, Lemmas D.18 and D.19, with constants"
    statement: ClassVar[str] = "In stage 2 the slopes of both layers stay away from 0."
    example: ClassVar[Example] = Example(problems.infinite_stage, weight=-1e-2, until=3.0)
    counterexample: ClassVar[Example] = Example(problems.first_stage)  # clipped
    probes: ClassVar[s.Probes] = s.SPEEDS
    conditions: ClassVar[s.Conditions] = (s.followed, *s.UNCLIPPED)

    def conclude(self, setting: s.Setting) -> Finding:
        mean, law = sphere_mean(setting.d), setting.law
        second, first, speeds = setting.observed(*s.SPEEDS)
        alpha, weight = first["alpha"], second["weight"]
        conserved = float(alpha[0] - 2 * mean * second["square"][0])
        if conserved <= 0:
            return Finding(Verdict.VACUOUS, f"K = α - 2 s E w_2² is {conserved:.3g}, which bounds nothing.")
        ratios = {"α over K": float(alpha.min()) / conserved}
        inside = np.abs(weight * alpha) <= 1
        ratios["largest |w̄_2| allowed"] = (2 * mean) ** (-1 / 3) / float(np.abs(weight[inside]).max(initial=1e-300))
        slow = []
        for i in np.flatnonzero((s.active_inside(second["neurons"], alpha) > 0) & (second["largest"] < 0)):
            least = fall_bound(second["neurons"][i], alpha[i], first["sphere"][i], law)
            if least > 0:
                slow.append(-float(speeds["neurons"][i, :, 0].max()) / least)
        if slow:
            ratios["w_2' over its bound"] = min(slow)
        margin = min(ratios.values())
        why = f"K = {conserved:.3g} is a lower bound of α; the least margin of all three statements is {margin:.3g}."
        return Finding.judge(margin >= 1 - setting.error, why, margin, ratios | {"K": conserved})
