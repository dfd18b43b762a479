"""Theorem 3.1: where one channel leads at a point, it comes to lead by more."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, NamedTuple

import numpy as np

from unlazy.data import Dataset
from unlazy.flows import Trajectory
from unlazy.networks import Network
from unlazy.papers.aiad2026.theorems._setting import (
    AUTHORS,
    DRIVE,
    Drive,
    Setting,
    integrated,
    is_random_features,
    three_layers,
    two_spikes,
    wanted,
)
from unlazy.probes import Probe
from unlazy.theory._base import Finding, Hypothesis, Reading, Theorem, Verdict
from unlazy.theory._runs import gradient_flow

_ENOUGH = 4  # an integral over time needs so many observations


class Lead(NamedTuple):
    """What Theorem 3.1 compares where one point has one channel ahead of the other, at every time."""

    point: int  # 0 or 1: x_0 and x_1
    leader: int
    kept: np.ndarray  # whether (i)-(iii) hold with some ρ < 1
    ratio: np.ndarray  # ρ(t), the smallest that (iii) allows
    log_ratio: np.ndarray  # R(t), of the leader over the other
    leading: np.ndarray  # K(x, x) π (-d) |B| / |f|, without 1 - ρ_0
    remainder: np.ndarray  # ε(t), what the other point does, exactly
    speed: np.ndarray  # ∂_t R, exactly
    broken: np.ndarray  # whether a channel changed sign since the time before

    def interval(self) -> slice:
        """I: the longest stretch of observations on which (i)-(iii) hold and no channel changes sign."""
        best, begin = slice(0, 0), 0
        for index in range(len(self.kept) + 1):
            if index == len(self.kept) or not self.kept[index] or self.broken[index]:
                if index - begin > best.stop - best.start:
                    best = slice(begin, index)
                begin = index if index < len(self.kept) and self.kept[index] else index + 1
        return best


def leads(run: Trajectory) -> list[Lead]:
    """Both points, each with the channel ahead for which (i)-(iii) hold longest.

    At x_1 the target is negative and all signs flip: d >= 0, and B has the other sign than f.
    """
    return _leads(wanted(three_layers(run)))


def _leads(setting: Setting) -> list[Lead]:
    kernel, signs = setting.kernel(setting.x), np.sign(np.asarray(setting.run.data.y, float))
    found = []
    for p in range(2):
        choices = [_lead(setting.drive, kernel, p, leader, float(signs[p])) for leader in range(2)]
        found.append(max(choices, key=lambda one: one.interval().stop - one.interval().start))
    return found


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


class Leads(NamedTuple):
    """A run of three layers on two points, and what leads there; nothing if it was not observed."""

    base: Setting
    leads: list[Lead]


class LeadGrows(Theorem[Leads]):
    """Theorem 3.1: ∂_t R_12(x_0) >= (1 - ρ_0) ξ K(x_0, x_0) π (-d_0) |B_1| / |f_1| + ε_0 on an interval I.

    I is the longest stretch of observations on which (i)-(iii) hold, ρ_0 the smallest number that serves on all of it.
    ε_0 is what the other point does, which is computed: -π_1 K(x_0, x_1) d_1 (B_1(x_1)/f_1(x_0) - B_2(x_1)/f_2(x_0)).
    It differs between channels, carries 1/f_2, and has no fixed sign. The inequality (printed as =) is checked in its
    integrated form at every time of I, at x_0 and mirrored at x_1, whichever channel leads there.
    """

    key: ClassVar[str] = "aiad2026/theorem-3.1"
    source: ClassVar[str] = f"{AUTHORS}, Theorem 3.1"
    statement: ClassVar[str] = "A channel whose signal leads by more than its value comes to lead by more."

    def needs(self, network: Network, data: Dataset) -> Sequence[Probe]:
        """Channels, signals and residuals at the data."""
        return [DRIVE] if is_random_features(network) else []

    def read(self, run: Trajectory) -> Reading[Leads | None]:
        """Two points, two channels, three layers, and an interval on which (i)-(iii) hold."""
        setting = yield from three_layers(run)
        y = np.asarray(run.data.y, float).ravel()
        step = run.data.n == 2 and y[0] * y[1] < 0
        yield Hypothesis("two points with targets of opposite sign", step, run.data.n, 2)
        yield gradient_flow(run)
        if setting is None or not step:
            return None
        if not setting.observed:
            return Leads(setting, [])
        count = setting.drive.channels.shape[2]
        yield Hypothesis("two channels", count == 2, count, 2)
        if count != 2:
            return None
        found = _leads(setting)
        most = max(one.interval().stop - one.interval().start for one in found)
        what = "an interval I on which (i)-(iii) hold, in observations"
        yield Hypothesis(what, most >= _ENOUGH, most, _ENOUGH)
        return Leads(setting, found)

    def conclude(self, setting: Leads) -> Finding:
        """Compare growth with its bound on I, at x_0 and at x_1."""
        run = setting.base.run
        numbers: dict[str, float] = {}
        words, margins, verdicts = [], [], []
        for one in setting.leads:
            span = one.interval()
            if span.stop - span.start < _ENOUGH:
                continue
            verdict, margin, found = _judge(setting.base, one, span)
            name = f"x_{one.point}"
            numbers |= {f"{what} at {name}": value for what, value in found.items()}
            verdicts.append(verdict)
            if verdict is not Verdict.VACUOUS:
                margins.append(margin)
            words.append(
                f"At {name}, for t in [{run.times[span][0]:.3g}, {run.times[span][-1]:.3g}], channel {one.leader + 1} "
                f"leads with rho_0 = {found['rho_0']:.3g} and R grows by {found['growth of R']:.3g}; guaranteed are "
                f"{found['guaranteed']:.3g}."
            )
        order = (Verdict.FAILS, Verdict.HOLDS, Verdict.VACUOUS)
        verdict = next(one for one in order if one in verdicts)
        return Finding(verdict, " ".join(words), min(margins, default=None), numbers)

    def example(self) -> Trajectory:
        """A channel ahead at either point, and features that see both."""
        return two_spikes()

    def counterexample(self) -> Trajectory:
        """Second-layer neurons that pull the other way: (ii) fails."""
        return two_spikes(mirrored=False)


def _judge(setting: Setting, one: Lead, span: slice) -> tuple[Verdict, float, dict[str, float]]:
    times, rho = setting.run.times[span], float(np.max(one.ratio[span]))
    rate = (1 - rho) * one.leading[span]
    bound, error = integrated(times, rate + one.remainder[span])
    exact, other = integrated(times, one.speed[span])
    growth = one.log_ratio[span] - one.log_ratio[span][0]
    slack = error + other + setting.precision * float(1 + np.max(np.abs(one.log_ratio[span])))
    holds = bool(np.all(growth >= bound - slack))
    found = {
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
    if not holds:
        return Verdict.FAILS, float(growth[-1] / bound[-1]) if bound[-1] > 0 else 0.0, found
    if bound[-1] <= slack:  # the other point outweighs what is promised
        return Verdict.VACUOUS, 1.0, found
    return Verdict.HOLDS, float((growth[-1] + slack) / bound[-1]), found
