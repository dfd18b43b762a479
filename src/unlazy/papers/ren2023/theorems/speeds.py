"""Stage 1 of ren2023, step by step: how fast weights and biases move (Lemmas C.5 to C.10, C.17 and C.18).

The paper bounds these speeds by orders in d. Here the constants are worked out, for the data of a run. Let all
second-layer neurons have b > 0 and be active on |x| <= 1, b_0 and b_1 their smallest and largest bias, W the largest
|w_2|, and α (1 - ε) |x| <= F <= α (1 + ε) |x|. For any κ in (0, 1), on |x| <= R = κ b_0/(W α (1 + ε)) all neurons are
active, f >= (1 - κ) b_0, and f F <= (b_1 + κ b_0) α (1 + ε) R, which a smaller R keeps below R_v2. Beyond R a pull on
w_2 is negative. So every neuron has

    w_2' <= -α [(1 - κ) (1 - ε) b_0 E[|x|; |x| <= R] - (1 + ε) E[f* |x|]],    b_2' <= E f* - (1 - κ) b_0 P(|x| <= R),

and b_2' >= E f* - b̄_2 if no w_2 is positive. By Lemma B.2 (c) the mean of |x| up to R is of order log R = Θ(log d).
"""

from typing import ClassVar

import equinox as eqx
import numpy as np

from unlazy.flows import Trajectory
from unlazy.networks.limits import sphere_mean
from unlazy.papers.ren2023.theorems import problems
from unlazy.papers.ren2023.theorems import setting as common
from unlazy.papers.ren2023.theorems.clips import clipped, has_clips
from unlazy.papers.ren2023.theorems.rates import active_inside
from unlazy.papers.ren2023.theorems.setting import AUTHORS, SPEEDS, RadialLaw, Setting
from unlazy.papers.ren2023.theorems.stages import stage_times
from unlazy.probes import Probe
from unlazy.theory import Example, Finding, Hypothesis, Reading, Theorem, Verdict, through
from unlazy.theory.hypotheses import rounding, rounding_error

_PARTS = np.linspace(0.02, 0.98, 49)  # κ


def _reaches(neurons: np.ndarray, most: float, bound: float) -> np.ndarray:
    """Return R for every κ, where ``most`` = α (1 + ε) and ``bound`` = R_v2."""
    low, high, wide = neurons[:, 1].min(), neurons[:, 1].max(), np.abs(neurons[:, 0]).max()
    return np.minimum(_PARTS * low / (wide * most), bound / (most * (high + _PARTS * low)))


def fall_bound(neurons: np.ndarray, alpha: float, error: float, law: RadialLaw, bound: float = np.inf) -> float:
    """Compute the least speed at which all w_2 fall, for the best κ (Lemma C.5 (c)); it may be negative.

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


def bias_bounds(neurons: np.ndarray, alpha: float, error: float, law: RadialLaw) -> tuple[float, float]:
    """Compute bounds of b_2' of all neurons, from below and above, if no w_2 is positive (Lemma C.7).

    Parameters
    ----------
    neurons, alpha, error, law
        As in `fall_bound`.
    """
    inside = law.moment(0, _reaches(neurons, alpha * (1 + error), np.inf))
    most = np.max((1 - _PARTS) * neurons[:, 1].min() * inside)
    return float(law.target - neurons[:, 1].mean()), float(law.target - most)


class _InStageOne(Theorem[Setting]):
    """A statement about speeds in stage 1, at every observation at which all b_2 > 0 and |x| <= 1 is active."""

    probes: ClassVar[tuple[Probe, ...]] = SPEEDS
    knows = staticmethod(has_clips)
    example: ClassVar[Example] = Example(problems.first_stage)
    counterexample: ClassVar[Example] = Example(problems.first_stage, clip=None)

    def read(self, run: Trajectory) -> Reading[Setting | None]:
        """Require the clipped learner on the paper's target, active on |x| <= 1 at the start."""
        setting = yield from clipped(run)
        yield common.radial_target(run)
        if setting is not None:
            second, first, _ = (through(run, probe) for probe in SPEEDS)
            if second is not None and first is not None:
                least = float(_active(second, first)[0])
                yield Hypothesis("all second-layer neurons active on |x| <= 1 at the start", least > 0, least, 0.0)
        return setting


def _active(second: dict[str, np.ndarray], first: dict[str, np.ndarray]) -> np.ndarray:
    """Return the least w_2 F + b_2 over |x| <= 1 at every time, with F at most α (1 + ε)."""
    return active_inside(second["neurons"], first["alpha"] * (1 + first["sphere"]))


class WeightsFall(_InStageOne):
    """Lemma C.5: in stage 1 all w_2 fall, at least at the speed of `fall_bound`, and speeds are below R_v1 and R_r2.

    While some w_2 are positive, the largest falls fastest, so that max w_2 - min w_2 does not grow. The time that stage
    1 takes (Lemmas C.6, C.9 and C.10) is at most the way that w̄_2 goes over the least speed.

    Parameters
    ----------
    constant
        C_1, which sets the end of stage 1.
    """

    key: ClassVar[str] = "ren2023/lemma-c.5"
    source: ClassVar[str] = f"{AUTHORS}, Lemmas C.5, C.6, C.9 and C.10, with constants"
    statement: ClassVar[str] = "In stage 1 all second-layer weights fall, at a speed that is known."
    constant: float = eqx.field(static=True, default=10.0)

    def conclude(self, setting: Setting) -> Finding:
        """Compare speeds with their bounds at every observation of stage 1, and times with what they imply."""
        run, law, bounds = setting.run, setting.law, setting.bounds
        second, first, speeds = (through(run, probe) for probe in SPEEDS)
        never = np.full(run.times.size, np.inf)
        ends = stage_times(run.times, second, never, setting.d, bounds[1], self.constant)
        stage = (run.times <= (np.inf if np.isnan(ends.weight) else ends.weight)) & (_active(second, first) > 0)
        looks = np.flatnonzero(stage)
        rows, moving = second["neurons"][looks], speeds["neurons"][looks]
        least = np.array(
            [fall_bound(second["neurons"][i], first["alpha"][i], first["sphere"][i], law, bounds[1]) for i in looks]
        )
        known = least > 0
        if not known.any():
            return Finding(Verdict.VACUOUS, "At no observation of stage 1 is the bound positive.")
        slack = rounding_error(rounding(run)) * float(np.abs(moving).max())
        falls = -moving[..., 0].max(axis=1)
        positive = rows[..., 0].max(axis=1) > 0
        top = np.take_along_axis(moving[..., 0], rows[..., 0].argmax(axis=1)[:, None], axis=1)
        parts = float(np.max((top - moving[..., 0])[positive], initial=-np.inf))
        slowest = float(np.min(falls[known] / least[known]))
        ratios = {
            "w_2' against its bound": slowest,
            "b_2' below R_r2": bounds[2] / max(float(np.abs(moving[..., 1]).max()), 1e-300),
            "w_1' below R_v1": bounds[0] / max(float(speeds["first"][looks].max()), 1e-300),
        }
        numbers = {"largest w_2 parts from others by": parts, "T_1": ends.weight}
        if known.all() and not np.isnan(ends.weight):
            way = float(second["weight"][0]) + self.constant / bounds[1]
            numbers["T_1 at most"] = way / float(least.min())
            ratios["T_1 against its bound"] = numbers["T_1 at most"] / ends.weight
        margin = min(ratios.values())
        why = f"All w_2 fall {slowest:.3g} times as fast as they must, or faster; the least margin is {margin:.3g}."
        return Finding.judge(margin >= 1 - 1e-9 and parts <= slack, why, margin, numbers | ratios)


class BiasStays(_InStageOne):
    """Lemma C.7: in stage 1 biases are driven towards E f*: b_2' is between the bounds of `bias_bounds`.

    So b_2' > 0 where b̄_2 < E f*, and b_2' < 0 where b_2 is above E f* by a little more than its spread.
    """

    key: ClassVar[str] = "ren2023/lemma-c.7"
    source: ClassVar[str] = f"{AUTHORS}, Lemma C.7, with constants"
    statement: ClassVar[str] = "In stage 1 the biases are driven towards the mean of the target."

    def conclude(self, setting: Setting) -> Finding:
        """Compare b_2' with both bounds wherever no w_2 is positive."""
        run, law = setting.run, setting.law
        second, first, speeds = (through(run, probe) for probe in SPEEDS)
        rows, moving = second["neurons"], speeds["neurons"][..., 1]
        free = max(1.0, float(rows[..., 1].max())) <= setting.bounds[2]
        looks = np.flatnonzero((_active(second, first) > 0) & (second["largest"] <= 0) & free)
        if not looks.size:
            return Finding(Verdict.VACUOUS, "At no observation are all w_2 <= 0, with biases below R_r2.")
        low, high = np.array([bias_bounds(rows[i], first["alpha"][i], first["sphere"][i], law) for i in looks]).T
        slack = rounding_error(rounding(run))
        above, below = moving[looks].min(axis=1) - low, high - moving[looks].max(axis=1)
        worst, width = float(min(above.min(), below.min())), float(np.min(high - low))
        numbers = {"b_2' above its lower bound": float(above.min()), "below its upper bound": float(below.min())}
        numbers |= {"narrowest": width, "E f*": law.target, "observations": float(looks.size)}
        why = f"The speed b_2' is within its bounds, which are {width:.2g} apart or more, at {looks.size} observations."
        holds, margin = worst >= -slack, 1 + worst / max(width, 1e-300)
        return Finding.judge(holds, why, margin, numbers, if_fails=f"It is outside by {-worst:.2g}.")


class SpreadGrowsSlowly(_InStageOne):
    """Lemmas C.8 and C.18: how fast two second-layer neurons may move apart while clips are active.

    Pulls differ only where one of the neurons is on and the other off. All turn off at F between the smallest and the
    largest b/|w_2|, at |x| in a set of probability P, so that ½ d/dt |(v, r) - (v', r')|² <= P (|v - v'| R_v2 +
    |r - r'| R_r2) (C.8). Without the clip of r_2 and with all w_2 < 0 only what the clip of v_2 removes can part them:
    it is at most P √(1 + F²) δ_2 |r - r'| with the largest such F (C.18).
    """

    key: ClassVar[str] = "ren2023/lemma-c.18"
    source: ClassVar[str] = f"{AUTHORS}, Lemmas C.8 and C.18, with constants"
    statement: ClassVar[str] = "In stage 1 the spread of the second layer grows slowly."
    example: ClassVar[Example] = Example(problems.first_stage, uneven=0.05)

    def conclude(self, setting: Setting) -> Finding:
        """Compare the speed at which each pair parts with its bound."""
        run, law, bounds = setting.run, setting.law, setting.bounds
        second, first, speeds = (through(run, probe) for probe in SPEEDS)
        slack = rounding_error(rounding(run)) * float(np.abs(speeds["neurons"]).max())
        excess, margin, fastest, seen = -np.inf, np.inf, -np.inf, 0
        for i in np.flatnonzero(_active(second, first) > 0):
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
        numbers = {"fastest parting": fastest, "slack": slack, "observations with a turning neuron": float(seen)}
        why = f"No pair parts faster than its bound allows; the fastest has ½ d/dt |.|² = {fastest:.2g}."
        idle, nothing = seen == 0, "No neuron turns off at any sample, so nothing could differ."
        return Finding.judge(excess <= slack, why, min(margin, 1e6), numbers, vacuous=idle, if_vacuous=nothing)


class SlopeGrows(Theorem[Setting]):
    """Lemma C.17: in stage 1.3 α'/α is |w̄_2| Θ(log d/√d), between two bounds.

    Without clips α' = 4 s E|w_2 w_2'| with s = C_Γ/√d and all w_2 < 0, w_2' < 0. So α' is between 4 s E|w_2| times
    `fall_bound` and 4 s E|w_2| α (1 + ε) b̄_2 E[|x|; |x| <= R], R the radius beyond which f vanishes. It is positive:
    the paper's w̄_2 is |w̄_2|.
    """

    key: ClassVar[str] = "ren2023/lemma-c.17"
    source: ClassVar[str] = f"{AUTHORS}, Lemma C.17, with constants"
    statement: ClassVar[str] = "While second-layer weights are small and negative, the first layer grows slowly."
    probes: ClassVar[tuple[Probe, ...]] = SPEEDS
    knows = staticmethod(common.is_known)
    example: ClassVar[Example] = Example(problems.infinite_stage, weight=-1e-2, until=3.0)
    counterexample: ClassVar[Example] = Example(problems.infinite_stage, weight=-8.0)  # not active on |x| <= 1

    def read(self, run: Trajectory) -> Reading[Setting | None]:
        """Require the learner without clips, both layers trained, w_2 < 0 and all active on |x| <= 1 at the start."""
        setting = yield from common.model(run)
        yield common.radial_target(run)
        if setting is None:
            return None
        yield setting.unclipped()
        yield setting.both_trained()
        second, first, _ = (through(run, probe) for probe in SPEEDS)
        if second is not None and first is not None:
            least, largest = float(_active(second, first)[0]), float(second["largest"][0])
            yield Hypothesis("all w_2 < 0 at the start", largest < 0, largest, 0.0)
            yield Hypothesis("all second-layer neurons active on |x| <= 1 at the start", least > 0, least, 0.0)
        return setting

    def conclude(self, setting: Setting) -> Finding:
        """Compare α' with both bounds wherever the lower one is positive."""
        run, law, s = setting.run, setting.law, sphere_mean(setting.d)
        second, first, speeds = (through(run, probe) for probe in SPEEDS)
        lows, highs, moving = [], [], []
        for i in np.flatnonzero((_active(second, first) > 0) & (second["largest"] < 0)):
            rows, alpha, error = second["neurons"][i], first["alpha"][i], first["sphere"][i]
            least = fall_bound(rows, alpha, error, law)
            if least <= 0 or error >= 1:
                continue
            weight = 4 * s * float(np.abs(rows[:, 0]).mean())
            reach = float(np.max(rows[:, 1] / np.abs(rows[:, 0]))) / (alpha * (1 - error))
            lows.append(weight * least)
            highs.append(weight * alpha * (1 + error) * rows[:, 1].mean() * float(law.moment(1, reach)))
            moving.append(float(speeds["alpha"][i]))
        if not lows:
            return Finding(Verdict.VACUOUS, "At no observation is the lower bound positive.")
        low, high, speed = (np.array(one) for one in (lows, highs, moving))
        above, below = float(np.min(speed / low)), float(np.min(high / speed))
        numbers = {"α' over its lower bound": above, "upper bound over α'": below, "observations": float(low.size)}
        why = f"α' is {above:.3g} times its lower bound or more, and its upper bound {below:.3g} times α' or more."
        margin = min(above, below)
        return Finding.judge(margin >= 1 - 1e-9, why, margin, numbers)
