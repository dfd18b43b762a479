"""Stage 1 of ren2023, step by step: how fast weights and biases move (Lemmas C.5 to C.10, C.17 and C.18).

The paper bounds these speeds by orders in d. Here the constants are worked out, for the data of a run. Let all
second-layer neurons have b > 0 and be active on |x| <= 1, let b_0 and b_1 be their smallest and largest bias and W the
largest |w_2|, and α (1 - ε) |x| <= F <= α (1 + ε) |x|. For any κ in (0, 1), on |x| <= R = κ b_0/(W α (1 + ε)) all
neurons are active, f >= (1 - κ) b_0, and f F <= (b_1 + κ b_0) α (1 + ε) R, which a smaller R keeps below R_v2. Beyond R
the pull on w_2 is negative. So every neuron has

    w_2' <= -α [(1 - κ) (1 - ε) b_0 E[|x|; |x| <= R] - (1 + ε) E[f* |x|]],    b_2' <= E f* - (1 - κ) b_0 P(|x| <= R),

and b_2' >= E f* - b̄_2 if no w_2 is positive. By Lemma B.2 (c) the mean of |x| up to R is of order log R = Θ(log d).
"""

from typing import ClassVar

import equinox as eqx
import numpy as np

from unlazy.networks.limits import sphere_mean
from unlazy.papers.ren2023.theorems import problems
from unlazy.papers.ren2023.theorems import setting as s
from unlazy.papers.ren2023.theorems.stages import stage_times
from unlazy.theory import Example, Finding, Verdict

_PARTS = np.linspace(0.02, 0.98, 49)  # κ


def _reaches(neurons: np.ndarray, most: float, bound: float) -> np.ndarray:
    """Return R for every κ, where ``most`` = α (1 + ε) and ``bound`` = R_v2."""
    low, high, wide = neurons[:, 1].min(), neurons[:, 1].max(), np.abs(neurons[:, 0]).max()
    return np.minimum(_PARTS * low / (wide * most), bound / (most * (high + _PARTS * low)))


def fall_bound(neurons: np.ndarray, alpha: float, error: float, law: s.RadialLaw, bound: float = np.inf) -> float:
    """Compute a lower bound of the speed at which all w_2 fall, for the best κ (Lemma C.5 (c)); it may be negative.

    Parameters
    ----------
    neurons
        (w_2, b_2) of every second-layer neuron, with b_2 > 0 and active on |x| <= 1.
    alpha, error
        The slope α, and ε.
    law
        The law of |x|.
    bound
        R_v2 of a clipped flow.
    """
    mean = law.moment(1, _reaches(neurons, alpha * (1 + error), bound))
    pulled = np.max((1 - _PARTS) * neurons[:, 1].min() * mean)
    return float(alpha * ((1 - error) * pulled - (1 + error) * law.pull))


def bias_bounds(neurons: np.ndarray, alpha: float, error: float, law: s.RadialLaw) -> tuple[float, float]:
    """Compute a lower and an upper bound of b_2' of all neurons, if no w_2 is positive (Lemma C.7).

    Parameters
    ----------
    neurons, alpha, error, law
        As in `fall_bound`.
    """
    inside = law.moment(0, _reaches(neurons, alpha * (1 + error), np.inf))
    most = np.max((1 - _PARTS) * neurons[:, 1].min() * inside)
    return float(law.target - neurons[:, 1].mean()), float(law.target - most)


class _InStageOne(s.OfLearner):
    """A statement about speeds in stage 1, at every observation at which all b_2 > 0 and |x| <= 1 is active."""

    model: ClassVar[str] = s.CLIPPED
    knows = staticmethod(s.has_clips)
    conditions: ClassVar[s.Conditions] = (s.radial_target, s.active_at_start)
    probes: ClassVar[s.Probes] = s.SPEEDS
    example: ClassVar[Example] = Example(problems.first_stage)
    counterexample: ClassVar[Example] = Example(problems.first_stage, clip=None)


class WeightsFall(_InStageOne):
    """Lemma C.5: in stage 1 all w_2 fall at least as fast as `fall_bound`, and speeds are below R_v1 and R_r2.

    While some w_2 are positive, the largest falls fastest, so that max w_2 - min w_2 does not grow. The duration of
    stage 1 (Lemmas C.6, C.9 and C.10) is at most the distance that w̄_2 covers, divided by the least speed.

    Parameters
    ----------
    constant
        C_1, which sets the end of stage 1.
    """

    key: ClassVar[str] = "ren2023/lemma-c.5"
    source: ClassVar[str] = f"{s.AUTHORS}, Lemmas C.5, C.6, C.9 and C.10, with constants"
    statement: ClassVar[str] = "In stage 1 all second-layer weights fall, at least at an explicit speed."
    constant: float = eqx.field(static=True, default=10.0)

    def conclude(self, setting: s.Setting) -> Finding:
        run, law, bounds = setting.run, setting.law, setting.bounds
        second, first, speeds = setting.observed(*s.SPEEDS)
        ends = stage_times(run.times, second, None, setting.d, bounds[1], self.constant)
        stage = run.times <= (np.inf if np.isnan(ends.weight) else ends.weight)
        during = np.flatnonzero(stage & (s.least_inside(second, first) > 0))
        rows, moving = second["neurons"][during], speeds["neurons"][during]
        layers = zip(rows, first["alpha"][during], first["sphere"][during], strict=True)
        least = np.array([fall_bound(*one, law, bounds[1]) for one in layers])
        known = least > 0
        if not known.any():
            return Finding(Verdict.VACUOUS, "At no observation of stage 1 is the bound positive.")
        slack = setting.rounding * float(np.abs(moving).max())
        falls = -moving[..., 0].max(axis=1)
        positive = rows[..., 0].max(axis=1) > 0
        top = np.take_along_axis(moving[..., 0], rows[..., 0].argmax(axis=1)[:, None], axis=1)
        parts = float(np.max((top - moving[..., 0])[positive], initial=-np.inf))
        slowest = float(np.min(falls[known] / least[known]))
        ratios = {
            "w_2' against its bound": slowest,
            "b_2' below R_r2": bounds[2] / max(float(np.abs(moving[..., 1]).max()), 1e-300),
            "w_1' below R_v1": bounds[0] / max(float(speeds["first"][during].max()), 1e-300),
        }
        numbers = {"largest w_2' minus another": parts, "T_1": ends.weight}
        if known.all() and not np.isnan(ends.weight):
            distance = float(second["weight"][0]) + self.constant / bounds[1]
            numbers["T_1 at most"] = distance / float(least.min())
            ratios["T_1 against its bound"] = numbers["T_1 at most"] / ends.weight
        margin = min(ratios.values())
        why = f"All w_2 fall at least {slowest:.3g} times as fast as they must; the least margin is {margin:.3g}."
        return Finding.judge(margin >= 1 - 1e-9 and parts <= slack, why, margin, numbers | ratios)


class BiasStays(_InStageOne):
    """Lemma C.7: in stage 1 biases are driven towards E f*: b_2' lies between the bounds of `bias_bounds`.

    So b_2' > 0 where b̄_2 < E f*, and b_2' < 0 where b_2 exceeds E f* by a little more than its spread.
    """

    key: ClassVar[str] = "ren2023/lemma-c.7"
    source: ClassVar[str] = f"{s.AUTHORS}, Lemma C.7, with constants"
    statement: ClassVar[str] = "In stage 1 the biases are driven towards the mean of the target."

    def conclude(self, setting: s.Setting) -> Finding:
        law, (second, first, speeds) = setting.law, setting.observed(*s.SPEEDS)
        rows, moving = second["neurons"], speeds["neurons"][..., 1]
        free = max(1.0, float(rows[..., 1].max())) <= setting.bounds[2]
        here = np.flatnonzero((s.least_inside(second, first) > 0) & (second["largest"] <= 0) & free)
        if not here.size:
            return Finding(Verdict.VACUOUS, "At no observation are all w_2 <= 0 and all biases below R_r2.")
        low, high = np.array([bias_bounds(rows[i], first["alpha"][i], first["sphere"][i], law) for i in here]).T
        above, below = moving[here].min(axis=1) - low, high - moving[here].max(axis=1)
        worst, width = float(min(above.min(), below.min())), float(np.min(high - low))
        numbers = {"b_2' above its lower bound": float(above.min()), "below its upper bound": float(below.min())}
        numbers |= {"narrowest": width, "E f*": law.target, "observations": float(here.size)}
        why = f"The bounds of b_2' are at least {width:.2g} apart, and b_2' at least {worst:.2g} inside of them, at "
        why += f"{here.size} observations."
        return Finding.judge(worst >= -setting.rounding, why, 1 + worst / max(width, 1e-300), numbers)


class SpreadGrowsSlowly(_InStageOne):
    """Lemmas C.8 and C.18: how fast two second-layer neurons may move apart while clips are active.

    Pulls differ only where one of the neurons is on and the other off. All turn off at F between the smallest and the
    largest b/|w_2|, at |x| in a set of probability P, so that ½ d/dt |(v, r) - (v', r')|² <= P (|v - v'| R_v2 +
    |r - r'| R_r2) (C.8). Where the clip of r_2 is inactive and all w_2 < 0, only the clip of v_2 can separate them: the
    speed is at most P √(1 + F²) δ_2 |r - r'| with the largest such F (C.18).
    """

    key: ClassVar[str] = "ren2023/lemma-c.18"
    source: ClassVar[str] = f"{s.AUTHORS}, Lemmas C.8 and C.18, with constants"
    statement: ClassVar[str] = "In stage 1 the spread of the second layer grows slowly."
    example: ClassVar[Example] = Example(problems.first_stage, uneven=0.05)

    def conclude(self, setting: s.Setting) -> Finding:
        law, bounds, (second, first, speeds) = setting.law, setting.bounds, setting.observed(*s.SPEEDS)
        slack = setting.rounding * float(np.abs(speeds["neurons"]).max())
        excess, margin, fastest, seen = -np.inf, np.inf, -np.inf, 0
        for i in np.flatnonzero(s.least_inside(second, first) > 0):
            rows, moving = second["neurons"][i], speeds["neurons"][i]
            between, parting = rows[:, None] - rows[None], moving[:, None] - moving[None]
            growth, apart = np.sum(between * parting, axis=2), np.abs(between)
            with np.errstate(divide="ignore"):
                turns = np.where(rows[:, 0] < 0, rows[:, 1] / np.abs(rows[:, 0]), np.inf)
            alpha, error = first["alpha"][i], first["sphere"][i]
            chance = law.between(turns.min() / (alpha * (1 + error)), turns.max() / (alpha * max(1 - error, 1e-300)))
            allowed = chance * (apart[..., 0] * bounds[1] + apart[..., 1] * bounds[2])
            if np.isfinite(turns).all() and max(1.0, rows[:, 1].max()) <= bounds[2]:
                height = np.hypot(1.0, turns.max()) * float(second["spread"][i])
                allowed = np.minimum(allowed, chance * height * apart[..., 1])
            excess = max(excess, float(np.max(growth - allowed)))
            fastest, parts = max(fastest, float(growth.max())), growth > slack
            margin = min(margin, float(np.min((allowed / np.maximum(growth, 1e-300))[parts], initial=np.inf)))
            seen += chance > 0
        numbers = {"fastest separation": fastest, "slack": slack, "observations with a turning neuron": float(seen)}
        why = f"The largest ½ d/dt |.|² of a pair is {fastest:.2g}, and the largest excess over a bound {excess:.2g}."
        idle, nothing = seen == 0, "No neuron turns off at any sample, so the pulls on all neurons are equal."
        return Finding.judge(excess <= slack, why, min(margin, 1e6), numbers, vacuous=idle, if_vacuous=nothing)


class SlopeGrows(s.OfLearner):
    """Lemma C.17: in stage 1.3 α'/α is |w̄_2| Θ(log d/√d), here with an explicit lower and upper bound.

    Without clips α' = 4 s E|w_2 w_2'| with s = C_Γ/√d and all w_2 < 0, w_2' < 0. So α' is between 4 s E|w_2| times
    `fall_bound` and 4 s E|w_2| α (1 + ε) b̄_2 E[|x|; |x| <= R], with R the radius beyond which f vanishes. It is
    positive: the paper's w̄_2 should read |w̄_2|.
    """

    key: ClassVar[str] = "ren2023/lemma-c.17"
    source: ClassVar[str] = f"{s.AUTHORS}, Lemma C.17, with constants"
    statement: ClassVar[str] = "While second-layer weights are small and negative, the first layer grows slowly."
    probes: ClassVar[s.Probes] = s.SPEEDS
    conditions: ClassVar[s.Conditions] = (s.radial_target, *s.UNCLIPPED, s.negative_at_start, s.active_at_start)
    example: ClassVar[Example] = Example(problems.infinite_stage, weight=-1e-2, until=3.0)
    counterexample: ClassVar[Example] = Example(problems.infinite_stage, weight=-8.0)  # not active on |x| <= 1

    def conclude(self, setting: s.Setting) -> Finding:
        law, (second, first, speeds) = setting.law, setting.observed(*s.SPEEDS)
        found = []
        for i in np.flatnonzero((s.least_inside(second, first) > 0) & (second["largest"] < 0)):
            rows, alpha, error = second["neurons"][i], first["alpha"][i], first["sphere"][i]
            least = fall_bound(rows, alpha, error, law)
            if least <= 0 or error >= 1:
                continue
            weight = 4 * sphere_mean(setting.d) * float(np.abs(rows[:, 0]).mean())
            reach = float(np.max(rows[:, 1] / np.abs(rows[:, 0]))) / (alpha * (1 - error))
            most = weight * alpha * (1 + error) * rows[:, 1].mean() * float(law.moment(1, reach))
            found.append((weight * least, most, float(speeds["alpha"][i])))
        if not found:
            return Finding(Verdict.VACUOUS, "At no observation is the lower bound positive.")
        low, high, speed = np.array(found).T
        above, below = float(np.min(speed / low)), float(np.min(high / speed))
        numbers = {"α' over its lower bound": above, "upper bound over α'": below, "observations": float(low.size)}
        why = f"α' is at least {above:.3g} times its lower bound, and its upper bound at least {below:.3g} times α'."
        margin = min(above, below)
        return Finding.judge(margin >= 1 - 1e-9, why, margin, numbers)
