"""How far the first layer of ren2023 is from α |x|, and how that changes: Lemmas C.14, D.8 (C.15) and D.11 to D.13.

All statements have explicit constants and are exact on any data. Lemmas D.11 to D.13 are checked on the networks at
both ends of a run; `identities.shape_speeds` has the formulas.
"""

from collections.abc import Iterator
from typing import ClassVar, cast

import numpy as np

from unlazy.networks import MeanFieldStack
from unlazy.networks.limits import sphere_mean
from unlazy.papers.ren2023.probes import FirstLayer, LimitDistance, SecondLayer
from unlazy.papers.ren2023.theorems import problems
from unlazy.papers.ren2023.theorems import setting as s
from unlazy.papers.ren2023.theorems.identities import ShapeSpeeds, shape_speeds
from unlazy.theory import Example, Finding, Hypothesis

_EVERYWHERE = FirstLayer(reach=float("inf"))


def _equal_lengths(setting: s.Setting) -> Iterator[Hypothesis]:
    length = np.linalg.norm(setting.weights, axis=1)
    uneven = float(length.max() / length.min() - 1)
    yield Hypothesis("first-layer neurons of equal length at the start", uneven < 1e-5, uneven, 0.0)


class ErrorBoundedByMovement(s.OfFiniteLearner):
    """Lemma C.14: the changes of its neurons in direction and length bound the error of the first layer.

    With equal lengths at the start, |F/α - 1| <= δ_I + δ_T/s + δ_R (1 + δ_I + δ_T/s) on the sphere, where s = C_Γ/√d,
    δ_I is that error at the start, δ_T the largest change of a neuron's direction and δ_R the largest relative
    deviation of a |w_1|² from the mean. The paper's √d is 1/s, about √(2 π d).
    """

    key: ClassVar[str] = "ren2023/lemma-c.14"
    source: ClassVar[str] = f"{s.AUTHORS}, Lemma C.14, with constants"
    statement: ClassVar[str] = "A first layer whose neurons have hardly moved still computes a multiple of |x|."
    example: ClassVar[Example] = Example(problems.first_stage)
    counterexample: ClassVar[Example] = Example(problems.at_start, even_features=False)  # lengths are not equal
    probes: ClassVar[s.Probes] = (FirstLayer(),)
    conditions: ClassVar[s.Conditions] = (_equal_lengths,)

    def conclude(self, setting: s.Setting) -> Finding:
        (first,) = setting.observed(*self.probes)
        error, turned = first["sphere"], first["sphere"][0] + first["tangential"] / sphere_mean(setting.d)
        bound = turned + first["radial"] * (1 + turned)
        margin = float(np.min(bound / np.maximum(error, 1e-300)))
        last, allowed = float(error[-1]), float(bound[-1])
        numbers = {"error at the end": last, "its bound": allowed, "δ_I": float(turned[0])}
        why = f"|F/α - 1| is {last:.3g} at the end; its bound is {allowed:.3g}."
        weak, high = bool(np.all(bound[setting.run.times > 0] >= 1)), "The bound is above 1."
        holds = margin >= 1 - 10 * setting.rounding
        return Finding.judge(holds, why, margin, numbers, vacuous=weak, if_vacuous=high)


class OutputError(s.OfFiniteLearner):
    """Lemma D.8 (and C.15): ‖f - f̃‖ <= E|w_2| ‖F - α |x|‖ in L2 of the data, because σ is 1-Lipschitz."""

    key: ClassVar[str] = "ren2023/lemma-d.8"
    source: ClassVar[str] = f"{s.AUTHORS}, Lemma D.8 and Corollary C.15, with constants"
    statement: ClassVar[str] = "The network is as close to its symmetrised version as its first layer is to α |x|."
    example: ClassVar[Example] = Example(problems.decomposed)
    counterexample: ClassVar[Example] = Example(problems.infinite_stage)  # there f = f̃
    probes: ClassVar[s.Probes] = (LimitDistance(), SecondLayer(), _EVERYWHERE)

    def conclude(self, setting: s.Setting) -> Finding:
        apart, second, first = setting.observed(*self.probes)
        bound = np.abs(second["neurons"][..., 0]).mean(axis=1) * first["alpha"] * first["l2"]
        margin = float(np.min(bound / np.maximum(apart["rms"], 1e-300)))
        numbers = {"distance": float(apart["rms"].max()), "its bound": float(bound[np.argmax(apart["rms"])])}
        why = f"‖f - f̃‖ is at most {apart['rms'].max():.3g}, and at least {margin:.3g} times below its bound."
        weak = bool(np.all(bound >= apart["rms"] / np.maximum(apart["relative"], 1e-300)))  # ‖f*‖
        holds, large = margin >= 1 - setting.rounding, "That bound exceeds ‖f*‖."
        return Finding.judge(holds, why, margin, numbers, vacuous=weak, if_vacuous=large)


class _AtBothEnds(s.OfFiniteLearner):
    """A statement about how F̄ = F/α changes, on the networks at both ends of a run."""

    example: ClassVar[Example] = Example(problems.second_stage)
    counterexample: ClassVar[Example] = Example(problems.infinite_stage)  # F̄ = |x| at all times
    conditions: ClassVar[s.Conditions] = s.UNCLIPPED


def _speeds(setting: s.Setting) -> list[ShapeSpeeds]:
    """Return how F̄ changes at both ends of a run."""
    run = setting.run
    return [shape_speeds(cast(MeanFieldStack, one), run.data) for one in (run.start, run.final)]


class FitPreservesShape(_AtBothEnds):
    """Lemma D.11: the flow of L_1 = ½ E(f* - f̃)² does not change F̄ = F/α at all."""

    key: ClassVar[str] = "ren2023/lemma-d.11"
    source: ClassVar[str] = f"{s.AUTHORS}, Lemma D.11 (its exact part)"
    statement: ClassVar[str] = "Fitting the target does not change the shape of the first layer."

    def conclude(self, setting: s.Setting) -> Finding:
        found, slack = _speeds(setting), setting.rounding
        share = max(float(np.max(np.abs(one.fit)) / max(np.max(np.abs(one.growth)), 1e-300)) for one in found)
        rest = max(float(np.linalg.norm(one.rest) / max(np.linalg.norm(one.error), 1e-300)) for one in found)
        still = all(float(np.max(np.abs(one.growth))) == 0 for one in found)
        numbers = {"relative remainder": share, "slack": slack, "rest of L over the error term": rest}
        why = f"The two terms of F̄' along the flow of L_1 cancel to a relative error of {share:.2g}."
        margin = slack / max(share, slack * 1e-6)
        return Finding.judge(share <= slack, why, margin, numbers, vacuous=still, if_vacuous="L_1 has no gradient.")


class ErrorFalls(_AtBothEnds):
    """Lemma D.12: along the flow of (w̄_2²/2) E(F̃ - F)² over X_1 the error e = E(F̄ - |x|)² over X_1 falls.

    Its speed is exactly (w̄_2² α²/2) E|∇e|², because a common factor of all neurons does not change F̄.
    """

    key: ClassVar[str] = "ren2023/lemma-d.12"
    source: ClassVar[str] = f"{s.AUTHORS}, Lemma D.12 (its exact part)"
    statement: ClassVar[str] = "The second term of eq. 6 can only decrease the error of the first layer."

    def conclude(self, setting: s.Setting) -> Finding:
        found, slack = _speeds(setting), setting.rounding
        off = max(abs(float(one.error_error / one.signal) + 1) for one in found if float(one.signal) > 0)
        start = found[0]
        numbers = {
            "off": off,
            "slack": slack,
            "speed": float(start.error_error),
            "speed by the rest": float(start.rest_error),
        }
        why = f"At the start e' is {start.error_error:.3g}; it agrees with the lemma to a relative error of {off:.2g}."
        return Finding.judge(off <= slack, why, slack / max(off, slack * 1e-6), numbers)


class SupremumGrowsSlowly(_AtBothEnds):
    """Lemma D.13: along the same flow |F̄'| on the sphere is at most 4 w̄_2² (α/s) (1 + s) (1 + s F̄) √(e E|x|²).

    e = E(F̄ - |x|)² and E|x|² are over X_1, and s = C_Γ/√d: while the error is small in L2, its supremum grows slowly.
    """

    key: ClassVar[str] = "ren2023/lemma-d.13"
    source: ClassVar[str] = f"{s.AUTHORS}, Lemma D.13, with constants"
    statement: ClassVar[str] = "While the first layer is accurate in L2, its largest error grows slowly."

    def conclude(self, setting: s.Setting) -> Finding:
        margins = [float(np.min(one.bound / np.maximum(np.abs(one.error), 1e-300))) for one in _speeds(setting)]
        margin = min(margins)
        why = f"In the direction of every sample |F̄'| is at least {margin:.3g} times below its bound."
        numbers = {"at the start": margins[0], "at the end": margins[1]}
        return Finding.judge(margin >= 1, why, margin, numbers)
