"""Theorem 3.1: where one channel leads at a point, it comes to lead by more."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar, NamedTuple

import numpy as np

from unlazy.data import Dataset
from unlazy.flows import Trajectory
from unlazy.networks import Network
from unlazy.papers.aiad2026.theorems._problems import two_spikes
from unlazy.papers.aiad2026.theorems._setting import (
    AUTHORS,
    DRIVE,
    drive,
    feature_kernel,
    integrated,
    is_random_features,
    precision,
    random_features,
    three_layers,
)
from unlazy.probes import Probe
from unlazy.theory._base import Finding, Hypothesis, Theorem, Verdict, through
from unlazy.theory._runs import gradient_flow

_LOOKS = 4  # an integral over time needs so many


class Lead(NamedTuple):
    """What Theorem 3.1 looks at where one point has one channel ahead of the other, at every look."""

    point: int  # 0 or 1: x_0 and x_1
    leader: int
    kept: np.ndarray  # whether (i)-(iii) hold with some ρ < 1
    ratio: np.ndarray  # ρ(t), the smallest that (iii) allows
    log_ratio: np.ndarray  # R(t), of the leader over the other
    leading: np.ndarray  # K(x, x) π (-d) |B| / |f|, without 1 - ρ_0
    remainder: np.ndarray  # ε(t), what the other point does, exactly
    speed: np.ndarray  # ∂_t R, exactly
    broken: np.ndarray  # whether a channel changed sign since the look before

    def interval(self) -> slice:
        """I: the longest stretch of looks on which (i)-(iii) hold and no channel changes sign."""
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
    channels, signals, slope = drive(run)
    x, y = np.asarray(run.data.x), np.asarray(run.data.y, float)
    kernel = feature_kernel(run.start, x, x)
    found = []
    for p in range(2):
        choices = [_lead(channels, signals, slope, kernel, p, leader, float(np.sign(y[p]))) for leader in range(2)]
        found.append(max(choices, key=lambda one: one.interval().stop - one.interval().start))
    return found


def _lead(
    channels: np.ndarray,
    signals: np.ndarray,
    slope: np.ndarray,
    kernel: np.ndarray,
    p: int,
    leader: int,
    sign: float,
) -> Lead:
    q, other = 1 - p, 1 - leader
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


class LeadGrows(Theorem):
    """Theorem 3.1: ∂_t R_12(x_0) >= (1 - ρ_0) ξ K(x_0, x_0) π (-d_0) |B_1| / |f_1| + ε_0 on an interval I.

    I is the longest stretch of looks on which (i)-(iii) hold, ρ_0 the smallest number that serves on all of it. ε_0 is
    what the other point does, which is computed: -π_1 K(x_0, x_1) d_1 (B_1(x_1)/f_1(x_0) - B_2(x_1)/f_2(x_0)). It
    differs between channels, carries 1/f_2, and has no fixed sign. The inequality (printed as =) is checked in its
    integrated form at every look of I, at x_0 and mirrored at x_1, whichever channel leads there.
    """

    key: ClassVar[str] = "aiad2026/theorem-3.1"
    source: ClassVar[str] = f"{AUTHORS}, Theorem 3.1"
    statement: ClassVar[str] = "A channel whose signal leads by more than its value comes to lead by more."
    feasible: ClassVar[bool] = True

    def needs(self, network: Network, data: Dataset) -> Sequence[Probe]:
        """Channels, signals and residuals at the data."""
        return [DRIVE] if is_random_features(network) else []

    def hypotheses(self, run: Trajectory) -> Iterator[Hypothesis]:
        """Two points, two channels, three layers, and an interval on which (i)-(iii) hold."""
        known, two = random_features(run), three_layers(run)
        yield known
        yield two
        y = np.asarray(run.data.y, float).ravel()
        step = run.data.n == 2 and y[0] * y[1] < 0
        yield Hypothesis("two points with targets of opposite sign", step, run.data.n, 2)
        yield gradient_flow(run)
        if not (known.met and two.met and step) or through(run, DRIVE) is None:
            return
        count = drive(run)[0].shape[2]
        yield Hypothesis("two channels", count == 2, count, 2)
        if count != 2:
            return
        spans = [one.interval() for one in leads(run)]
        most = max(span.stop - span.start for span in spans)
        yield Hypothesis("an interval I on which (i)-(iii) hold, in looks", most >= _LOOKS, most, _LOOKS)

    def conclude(self, run: Trajectory) -> Finding:
        """Compare growth with its bound on I, at x_0 and at x_1."""
        numbers: dict[str, float] = {}
        words, margins, verdicts = [], [], []
        for one in leads(run):
            span = one.interval()
            if span.stop - span.start < _LOOKS:
                continue
            verdict, margin, found = _judge(run, one, span)
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


def _judge(run: Trajectory, one: Lead, span: slice) -> tuple[Verdict, float, dict[str, float]]:
    times, rho = run.times[span], float(np.max(one.ratio[span]))
    rate = (1 - rho) * one.leading[span]
    bound, error = integrated(times, rate + one.remainder[span])
    exact, other = integrated(times, one.speed[span])
    growth = one.log_ratio[span] - one.log_ratio[span][0]
    slack = error + other + precision(run) * float(1 + np.max(np.abs(one.log_ratio[span])))
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
