"""How far the first layer of ren2023 is from α |x|, and how that moves: Lemmas C.14, D.8 (C.15) and D.11 to D.13.

All constants are worked out, and all statements are exact on any data. Lemmas D.11 to D.13 are checked on the networks
at both ends of a run; `identities.shape_speeds` has the formulas.
"""

from typing import ClassVar, cast

import numpy as np

from unlazy.flows import Trajectory
from unlazy.networks import MeanFieldStack
from unlazy.networks.limits import sphere_mean
from unlazy.papers.ren2023.probes import FirstLayer, LimitDistance, SecondLayer
from unlazy.papers.ren2023.theorems import problems
from unlazy.papers.ren2023.theorems import setting as common
from unlazy.papers.ren2023.theorems.identities import ShapeSpeeds, shape_speeds
from unlazy.papers.ren2023.theorems.setting import AUTHORS, Setting
from unlazy.probes import Probe
from unlazy.theory import Example, Finding, Hypothesis, Reading, Theorem, through
from unlazy.theory.hypotheses import rounding, rounding_error

_EVERYWHERE = FirstLayer(reach=float("inf"))


class ErrorFromMovement(Theorem[Setting]):
    """Lemma C.14: the error of the first layer follows from how far its neurons have turned and stretched.

    With equal lengths at the start, |F/α - 1| <= δ_I + δ_T/s + δ_R (1 + δ_I + δ_T/s) on the sphere, s = C_Γ/√d: δ_I is
    that error at the start, δ_T the largest turn of a neuron and δ_R the largest deviation of a |w_1|² from the mean,
    as a share. The paper's √d is 1/s, about √(2 π d).
    """

    key: ClassVar[str] = "ren2023/lemma-c.14"
    source: ClassVar[str] = f"{AUTHORS}, Lemma C.14, with constants"
    statement: ClassVar[str] = "A first layer whose neurons have hardly moved still computes a multiple of |x|."
    example: ClassVar[Example] = Example(problems.first_stage)
    counterexample: ClassVar[Example] = Example(problems.at_start, even_features=False)  # lengths are not equal
    probes: ClassVar[tuple[Probe, ...]] = (FirstLayer(),)
    knows = staticmethod(common.is_finite)

    def read(self, run: Trajectory) -> Reading[Setting | None]:
        """Require the learner of finite width, with neurons of equal length at the start."""
        setting = yield from common.finite_model(run)
        if setting is not None:
            length = np.linalg.norm(setting.weights, axis=1)
            uneven = float(length.max() / length.min() - 1)
            yield Hypothesis("first-layer neurons of equal length at the start", uneven < 1e-5, uneven, 0.0)
        return setting

    def conclude(self, setting: Setting) -> Finding:
        """Compare the error with its bound at every observation."""
        run, first = setting.run, through(setting.run, FirstLayer())
        turned = first["sphere"][0] + first["tangential"] / sphere_mean(setting.d)
        bound = turned + first["radial"] * (1 + turned)
        ratio = bound / np.maximum(first["sphere"], 1e-300)
        margin, slack = float(ratio.min()), 10 * rounding_error(rounding(run))
        numbers = {
            "error at the end": float(first["sphere"][-1]),
            "its bound": float(bound[-1]),
            "δ_I": float(turned[0]),
        }
        why = f"|F/α - 1| is {first['sphere'][-1]:.3g} at the end, and at most {bound[-1]:.3g}."
        weak = bool(np.all(bound[run.times > 0] >= 1))
        return Finding.judge(
            margin >= 1 - slack, why, margin, numbers, vacuous=weak, if_vacuous="The bound is above 1."
        )


class OutputError(Theorem[Setting]):
    """Lemma D.8 (and C.15): ‖f - f̃‖ <= E|w_2| ‖F - α |x|‖ in L2 of the data, because σ is 1-Lipschitz."""

    key: ClassVar[str] = "ren2023/lemma-d.8"
    source: ClassVar[str] = f"{AUTHORS}, Lemma D.8 and Corollary C.15, with constants"
    statement: ClassVar[str] = "The network is as near to its symmetrised version as the first layer is to its own."
    example: ClassVar[Example] = Example(problems.decomposed)
    counterexample: ClassVar[Example] = Example(problems.infinite_stage)  # there f = f̃
    probes: ClassVar[tuple[Probe, ...]] = (LimitDistance(), SecondLayer(), _EVERYWHERE)
    knows = staticmethod(common.is_finite)

    def read(self, run: Trajectory) -> Reading[Setting | None]:
        """Require the learner of finite width."""
        return (yield from common.finite_model(run))

    def conclude(self, setting: Setting) -> Finding:
        """Compare both sides at every observation."""
        apart, second, first = (through(setting.run, probe) for probe in self.probes)
        bound = np.abs(second["neurons"][..., 0]).mean(axis=1) * first["alpha"] * first["l2"]
        margin = float(np.min(bound / np.maximum(apart["rms"], 1e-300)))
        numbers = {"distance": float(apart["rms"].max()), "its bound": float(bound[np.argmax(apart["rms"])])}
        why = f"‖f - f̃‖ is {apart['rms'].max():.3g} at most, {margin:.3g} times below its bound or more."
        weak = bool(np.all(bound >= apart["rms"] / np.maximum(apart["relative"], 1e-300)))  # ‖f*‖
        holds = margin >= 1 - rounding_error(rounding(setting.run))
        return Finding.judge(holds, why, margin, numbers, vacuous=weak, if_vacuous="The target itself is smaller.")


class _AtBothEnds(Theorem[Setting]):
    """A statement about how F̄ = F/α moves, on the networks at both ends of a run."""

    example: ClassVar[Example] = Example(problems.second_stage)
    counterexample: ClassVar[Example] = Example(problems.infinite_stage)  # F̄ = |x| at all times
    knows = staticmethod(common.is_finite)

    def read(self, run: Trajectory) -> Reading[Setting | None]:
        """Require the learner of finite width, with both layers trained and no clips."""
        setting = yield from common.finite_model(run)
        if setting is not None:
            yield setting.unclipped()
            yield setting.both_trained()
        return setting


def _speeds(setting: Setting) -> list[ShapeSpeeds]:
    """Return how F̄ moves at both ends of a run."""
    run = setting.run
    return [shape_speeds(cast(MeanFieldStack, one), run.data) for one in (run.start, run.final)]


class FitLeavesShape(_AtBothEnds):
    """Lemma D.11: the flow of L_1 = ½ E(f* - f̃)² leaves F̄ = F/α alone, exactly."""

    key: ClassVar[str] = "ren2023/lemma-d.11"
    source: ClassVar[str] = f"{AUTHORS}, Lemma D.11 (its exact part)"
    statement: ClassVar[str] = "Fitting the target does not change the shape of the first layer."

    def conclude(self, setting: Setting) -> Finding:
        """Compare what L_1 does to F̄ with the two terms that cancel, and with rounding."""
        found, slack = _speeds(setting), rounding_error(rounding(setting.run))
        share = max(float(np.max(np.abs(one.fit)) / max(np.max(np.abs(one.growth)), 1e-300)) for one in found)
        rest = max(float(np.linalg.norm(one.rest) / max(np.linalg.norm(one.error), 1e-300)) for one in found)
        still = all(float(np.max(np.abs(one.growth))) == 0 for one in found)
        numbers = {"share left over": share, "slack": slack, "rest of L over the error term": rest}
        why = f"The two terms of F̄' along the flow of L_1 cancel up to {share:.2g} of their size."
        margin = slack / max(share, slack * 1e-6)
        return Finding.judge(share <= slack, why, margin, numbers, vacuous=still, if_vacuous="L_1 has no gradient.")


class ErrorFalls(_AtBothEnds):
    """Lemma D.12: along the flow of (w̄_2²/2) E(F̃ - F)² over X_1 the error e = E(F̄ - |x|)² over X_1 falls.

    It does so with the speed (w̄_2² α²/2) E|∇e|², exactly, because F̄ does not change with the common length of neurons.
    """

    key: ClassVar[str] = "ren2023/lemma-d.12"
    source: ClassVar[str] = f"{AUTHORS}, Lemma D.12 (its exact part)"
    statement: ClassVar[str] = "The second term of eq. 6 can only decrease the error of the first layer."

    def conclude(self, setting: Setting) -> Finding:
        """Compare both sides at both ends of the run."""
        found, slack = _speeds(setting), rounding_error(rounding(setting.run))
        off = max(abs(float(one.error_error / one.signal) + 1) for one in found if float(one.signal) > 0)
        start = found[0]
        numbers = {
            "off": off,
            "slack": slack,
            "speed": float(start.error_error),
            "speed by the rest": float(start.rest_error),
        }
        why = f"The error e changes at {start.error_error:.3g} at the start, as it should up to {off:.2g} of that."
        return Finding.judge(off <= slack, why, slack / max(off, slack * 1e-6), numbers)


class SupremumFollows(_AtBothEnds):
    """Lemma D.13: along the same flow F̄ moves on the sphere by at most 4 w̄_2² (α/s) (1 + s) (1 + s F̄) √(e E|x|²).

    e = E(F̄ - |x|)² and E|x|² are over X_1, and s = C_Γ/√d: if the error is small in L2, its supremum grows slowly.
    """

    key: ClassVar[str] = "ren2023/lemma-d.13"
    source: ClassVar[str] = f"{AUTHORS}, Lemma D.13, with constants"
    statement: ClassVar[str] = "While the first layer is accurate in L2, its largest error moves slowly."

    def conclude(self, setting: Setting) -> Finding:
        """Compare speed and bound in the direction of every sample."""
        margins = [float(np.min(one.bound / np.maximum(np.abs(one.error), 1e-300))) for one in _speeds(setting)]
        margin = min(margins)
        why = f"In the direction of every sample |F̄'| is {margin:.3g} times below its bound, or more."
        numbers = {"at the start": margins[0], "at the end": margins[1]}
        return Finding.judge(margin >= 1, why, margin, numbers)
