"""Theorem 3.1: where one channel leads at a point, its lead grows."""

from typing import ClassVar, NamedTuple

import numpy as np

from unlazy.flows import Trajectory
from unlazy.papers.aiad2026.probes import ChannelDrive
from unlazy.papers.aiad2026.theorems import problems
from unlazy.papers.aiad2026.theorems import setting as common
from unlazy.papers.aiad2026.theorems.setting import AUTHORS, Drive, Setting, integrated
from unlazy.probes import Probe
from unlazy.theory import Example, Finding, Hypothesis, Reading, Theorem, Verdict, require
from unlazy.theory.hypotheses import gradient_flow

_ENOUGH = 4  # observations that an integral over time needs


class Lead(NamedTuple):
    """What Theorem 3.1 compares where one channel leads the other at a point, at every time.

    Attributes
    ----------
    point, leader
        The point, 0 or 1 for x_0 and x_1, and the leading channel.
    kept
        Whether (i)-(iii) hold with some ρ < 1.
    ratio
        ρ(t), the smallest that (iii) allows.
    log_ratio, speed
        R(t), of the leader over the other, and ∂_t R, exactly.
    leading, remainder
        K(x, x) π (-d) |B| / |f|, without 1 - ρ_0, and ε(t), the effect of the other point, exactly.
    broken
        Whether a channel has changed sign since the previous time.
    """

    point: int
    leader: int
    kept: np.ndarray
    ratio: np.ndarray
    log_ratio: np.ndarray
    leading: np.ndarray
    remainder: np.ndarray
    speed: np.ndarray
    broken: np.ndarray

    def interval(self) -> slice:
        """Return I: the longest stretch of observations on which (i)-(iii) hold and no channel changes sign."""
        best, begin = slice(0, 0), 0
        for index, (kept, broken) in enumerate(zip(self.kept, self.broken, strict=True)):
            if not kept or broken:
                begin = index if kept else index + 1
            if index + 1 - begin > best.stop - best.start:
                best = slice(begin, index + 1)
        return best

    @property
    def observations(self) -> int:
        """Number of observations in the `interval`."""
        return len(self.kept[self.interval()])


def leads(run: Trajectory) -> list[Lead]:
    """Compare the channels at both points, with the one for which (i)-(iii) hold longest as the leader.

    At x_1 the target is negative and all signs flip: d >= 0, and the signs of B and f are opposite.

    Parameters
    ----------
    run
        A run that was observed with `ChannelDrive`.
    """
    setting = common.required(common.three_layers(run))
    kernel, signs = setting.kernel(setting.x), np.sign(np.asarray(setting.run.data.y, float))
    choices = ([_lead(setting.drive, kernel, p, leader, float(signs[p])) for leader in range(2)] for p in range(2))
    return [max(both, key=lambda one: one.observations) for both in choices]


def _lead(drive: Drive, kernel: np.ndarray, p: int, leader: int, sign: float) -> Lead:
    (channels, signals, slope), q, other = drive, 1 - p, 1 - leader
    f, f_other = channels[:, p, leader], channels[:, p, other]
    b, b_other, push = signals[:, p, leader], signals[:, p, other], -slope[:, p]
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.abs(b_other) * np.abs(f) / (np.abs(f_other) * np.abs(b))
        leading = kernel[p, p] * np.abs(push) * np.abs(b) / np.abs(f)
        remainder = -kernel[p, q] * slope[:, q] * (signals[:, q, leader] / f - signals[:, q, other] / f_other)
        speed = kernel[p, p] * push * (b / f - b_other / f_other) + remainder
        log_ratio = np.log(np.abs(f)) - np.log(np.abs(f_other))
    kept = (sign * push >= 0) & (sign * b * f > 0) & (ratio < 1) & np.isfinite(log_ratio)
    flips = np.zeros(len(f), bool)
    flips[1:] = (np.sign(f[1:]) != np.sign(f[:-1])) | (np.sign(f_other[1:]) != np.sign(f_other[:-1]))
    return Lead(p, leader, kept, ratio, log_ratio, leading, remainder, speed, flips)


class LeadGrows(Theorem[Setting]):
    """Theorem 3.1: ∂_t R_12(x_0) >= (1 - ρ_0) ξ K(x_0, x_0) π (-d_0) |B_1| / |f_1| + ε_0 on an interval I.

    I is the longest stretch of observations on which (i)-(iii) hold, and ρ_0 the smallest number with which they hold
    on all of it. ε_0 = -π_1 K(x_0, x_1) d_1 (B_1(x_1)/f_1(x_0) - B_2(x_1)/f_2(x_0)) is the effect of the other point.
    It differs between channels, contains 1/f_2, and has no fixed sign. The inequality (printed as =) is checked in its
    integrated form at every time of I, at x_0 and, mirrored, at x_1, whichever channel leads there.
    """

    key: ClassVar[str] = "aiad2026/theorem-3.1"
    source: ClassVar[str] = f"{AUTHORS}, Theorem 3.1"
    statement: ClassVar[str] = "A channel whose signal leads by more than its value extends its lead."
    example: ClassVar[Example] = Example(problems.two_spikes)
    counterexample: ClassVar[Example] = Example(problems.two_spikes, mirrored=False)  # (ii) does not hold
    probes: ClassVar[tuple[Probe, ...]] = (ChannelDrive(),)
    knows = staticmethod(common.is_random_features)

    def read(self, run: Trajectory) -> Reading[Setting]:
        setting = yield from common.three_layers(run)
        y = np.asarray(run.data.y, float).ravel()
        step = run.data.n == 2 and y[0] * y[1] < 0
        yield from require(Hypothesis("two points with targets of opposite sign", step, run.data.n, 2))
        yield gradient_flow(run)
        if setting.observed:
            count = setting.drive.channels.shape[2]
            yield from require(Hypothesis("two channels", count == 2, count, 2))
            most = max(one.observations for one in leads(run))
            yield Hypothesis("an interval I on which (i)-(iii) hold, in observations", most >= _ENOUGH, most, _ENOUGH)
        return setting

    def conclude(self, setting: Setting) -> Finding:
        found = [_judge(setting, one) for one in leads(setting.run) if one.observations >= _ENOUGH]
        verdicts = [one.verdict for one in found]
        verdict = next(one for one in (Verdict.FAILS, Verdict.HOLDS, Verdict.VACUOUS) if one in verdicts)
        margins = [one.margin for one in found if one.margin is not None]
        numbers = {name: value for one in found for name, value in one.numbers.items()}
        return Finding(verdict, " ".join(one.why for one in found), min(margins, default=None), numbers)


def _judge(setting: Setting, one: Lead) -> Finding:
    """Compare growth with its bound at one point; no margin where the bound is vacuous."""
    span = one.interval()
    times, rho = setting.run.times[span], float(np.max(one.ratio[span]))
    rate = (1 - rho) * one.leading[span]
    bound, error = integrated(times, rate + one.remainder[span])
    exact, other = integrated(times, one.speed[span])
    growth = one.log_ratio[span] - one.log_ratio[span][0]
    slack = error + other + setting.precision * float(1 + np.max(np.abs(one.log_ratio[span])))
    numbers = {
        "start of I": float(times[0]),
        "end of I": float(times[-1]),
        "rho_0": rho,
        "channel ahead": one.leader + 1.0,
        "growth of R": float(growth[-1]),
        "guaranteed": float(bound[-1]),
        "guaranteed without the remainder": float(integrated(times, rate)[0][-1]),
        "smallest remainder": float(np.min(one.remainder[span])),
        "largest remainder": float(np.max(one.remainder[span])),
        "largest excess over what is printed as equal": float(np.max(one.speed[span] - rate - one.remainder[span])),
        "growth by its own formula is off by": float(np.max(np.abs(growth - exact))),
        "slack": slack,
    }
    name = f"x_{one.point}"
    why = (
        f"At {name}, for t in [{times[0]:.3g}, {times[-1]:.3g}], channel {one.leader + 1} leads with rho_0 = {rho:.3g} "
        f"and R grows by {growth[-1]:.3g}; {bound[-1]:.3g} is guaranteed."
    )
    holds, vacuous = bool(np.all(growth >= bound - slack)), bool(bound[-1] <= slack)  # the other point outweighs it
    margin = None if vacuous else float((growth[-1] + slack) / bound[-1])
    if not holds:
        margin = float(growth[-1] / bound[-1]) if bound[-1] > 0 else 0.0
    named = {f"{what} at {name}": value for what, value in numbers.items()}
    return Finding.judge(holds, why, margin, named, vacuous=vacuous)
