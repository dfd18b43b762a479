"""The stages of ren2023: when they end, when clips go out of use (Lemma 4.1), and what holds meanwhile (4.2, 4.3).

The main theorem, and how far it is from what fits into a computer, stands at the end.

The paper leaves constants open. Here they are fields, or worked out: with M = max(1, max b_2) and B = max b_2/|w_2|
over a second layer with w_2 < 0,

- |f* - f| <= M, so that r_2 is not clipped if R_r2 >= M and all w_2 <= 0;
- a neuron is active only where F <= B, so that v_2 is not clipped if R_v2 >= M B;
- F >= α (1 - ε) |x| with ε = max |F/α - 1| on the sphere, so that no sample with |x| > B/(α (1 - ε)) pulls at v_1, and
  v_1 is not clipped if R_v1 >= 2 M B max|w_2| max|v_1| / (α (1 - ε)).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import ClassVar, NamedTuple

import equinox as eqx
import numpy as np

from unlazy._errors import UserError
from unlazy.data import Dataset
from unlazy.flows import Trajectory
from unlazy.losses import Squared
from unlazy.networks import Block, MeanFieldStack, Network, sphere_mean
from unlazy.papers.ren2023.probes import ClipActivity
from unlazy.papers.ren2023.theorems._setting import (
    AUTHORS,
    FIT,
    LAYERS,
    Finite,
    Setting,
    finite_model,
    first_stage,
    is_finite,
    is_known,
    model,
    radial_target,
    second_stage,
    symmetric,
)
from unlazy.probes import Probe, TrainLoss
from unlazy.theory._base import Finding, Hypothesis, Reading, Theorem, Verdict, through
from unlazy.theory._runs import looked_later

Seen = dict[str, np.ndarray]


class StageTimes(NamedTuple):
    """When stages end; NaN where a run did not get so far."""

    positive: float  # T_1.1: no w_2 is positive
    spread: float  # T_1.2: -w̄_2 = d δ_2(T_1.1)
    weight: float  # T_1.3 = T_1: -w̄_2 = C_1 / R_v2
    fitted: float  # T_2: L = ε


def reached(times: np.ndarray, above: np.ndarray) -> float:
    """The first time at which a quantity is >= 0, by straight lines between observations; NaN if never."""
    there = np.flatnonzero(above >= 0)
    if not there.size:
        return float("nan")
    i = there[0]
    if i == 0 or not np.isfinite(above[i - 1]):
        return float(times[i])
    share = above[i - 1] / (above[i - 1] - above[i])
    return float(times[i - 1] + share * (times[i] - times[i - 1]))


def stage_times(
    times: np.ndarray,
    second: Seen,
    loss: np.ndarray,
    d: int,
    bound: float,
    constant: float = 10.0,
    epsilon: float = 1e-3,
) -> StageTimes:
    """T_1.1, T_1.2, T_1.3 = T_1 and T_2 (section 4) from what `SecondLayer` and `TrainLoss` saw.

    ``bound`` is R_v2, ``constant`` the C_1 of Lemma 4.2 and ``epsilon`` the loss to be reached.
    """
    first = reached(times, -second["largest"])
    if np.isnan(first):
        return StageTimes(*(float("nan"),) * 4)
    spread = float(np.interp(first, times, second["spread"]))
    later = np.where(times >= first, -second["weight"], -np.inf)
    apart, weight = (reached(times, later - least) for least in (d * spread, constant / bound))
    end = np.where(times >= weight, epsilon - loss, -np.inf) if not np.isnan(weight) else np.full(len(times), -np.inf)
    return StageTimes(first, apart, weight, reached(times, end))


@dataclasses.dataclass(frozen=True, eq=False)
class Clipped(Setting):
    """A run of a learner with clips."""

    bounds: tuple[float, float, float]  # R_v1, R_v2 and R_r2


def _clipping(run: Trajectory) -> Hypothesis:
    return Hypothesis("clipped flow, eq. 4", isinstance(run.start, MeanFieldStack) and run.start.clips_per_sample)


def clipped(run: Trajectory) -> Reading[Clipped | None]:
    """The clipped learner."""
    setting = yield from model(run)
    yield _clipping(run)
    if setting is None or setting.network.clip is None:
        return None
    return Clipped(run, setting.network, setting.first, setting.second, setting.network.clip)


def needed_bounds(second: Seen, first: Seen, d: int) -> np.ndarray:
    """The least (R_v1, R_v2, R_r2) with which no clip is active, at every time: infinite while some w_2 >= 0."""
    w, b = second["neurons"][..., 0], second["neurons"][..., 1]
    most = np.maximum(1.0, b.max(axis=1))
    negative = w.max(axis=1) < 0
    reach = np.max(np.maximum(b, 0) / np.maximum(-w, 1e-300), axis=1)
    left = 1 - first["sphere"]
    length = np.sqrt((1 + first["radial"]) * first["alpha"] / sphere_mean(d))  # of the longest first-layer neuron
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        v1 = 2 * most * reach * np.abs(w).max(axis=1) * length / (first["alpha"] * np.maximum(left, 1e-300))
    v1 = np.where(left > 0, v1, np.inf)
    return np.stack(
        [
            np.where(negative, v1, np.inf),
            np.where(negative, most * reach, np.inf),
            np.where(w.max(axis=1) <= 0, most, np.inf),
        ],
        axis=1,
    )


class ClipsGoOut(Theorem[Clipped]):
    """Lemma 4.1: clips of r_2, v_1 and v_2 are not active once w_2 is negative, and large enough.

    With the constants worked out at the top of this file, which the paper leaves open.
    """

    key: ClassVar[str] = "ren2023/lemma-4.1"
    source: ClassVar[str] = f"{AUTHORS}, Lemma 4.1 (C.3)"
    statement: ClassVar[str] = "Clips go out of use as second-layer weights turn negative and grow."

    def needs(self, network: Network, data: Dataset) -> Sequence[Probe]:
        """Both layers, and the pulls."""
        return (*LAYERS, ClipActivity()) if is_known(network) and network.clips_per_sample else ()

    def read(self, run: Trajectory) -> Reading[Clipped | None]:
        """The clipped learner, and the paper's loss."""
        setting = yield from clipped(run)
        half, y = isinstance(run.loss, Squared) and run.loss.half, np.asarray(run.data.y)
        between = bool(y.size and y.min() >= 0 and y.max() <= 1)
        yield Hypothesis("L = ½ E(f* - f)², with targets in [0, 1]", half and between)
        return setting

    def conclude(self, setting: Clipped) -> Finding:
        """At every time at which a clip must be out of use, it is."""
        run = setting.run
        second, first, clips = (through(run, probe) for probe in (*LAYERS, ClipActivity()))
        needed = needed_bounds(second, first, setting.d)
        numbers: dict[str, float] = {}
        margin, silent = np.inf, []
        for index, name in enumerate(("v1", "v2", "r2")):
            out = needed[:, index] <= setting.bounds[index]
            numbers[f"{name} out of use from"] = float(run.times[out][0]) if out.any() else float("nan")
            active = clips[name] > 0
            numbers[f"{name} last active at"] = float(run.times[active][-1]) if active.any() else float("nan")
            if out.any():
                margin = min(margin, 1 / max(float(np.max(clips[f"{name}_largest"][out])), 1e-300))
            else:
                silent.append(name)
        if len(silent) == 3:
            return Finding(Verdict.VACUOUS, "At no observation are bounds large enough to say anything.", None, numbers)
        whose = f" ({', '.join(silent)} never so)" if silent else ""
        why = f"Where clips must be out of use{whose}, pulls stay {margin:.3g} times below their bounds."
        return Finding(Verdict.HOLDS if margin >= 1 - 1e-9 else Verdict.FAILS, why, margin, numbers)

    def example(self) -> Trajectory:
        """Stage 1, in five dimensions."""
        return first_stage()

    def counterexample(self) -> Trajectory:
        """The same without clips."""
        return first_stage(clip=None)


class FirstStage(Theorem[Clipped]):
    """Lemma 4.2: w_2 turns negative, then beyond its spread, then beyond 1/R_v2, and nothing else changes much.

    The end of stage 1 is -w̄_2 = ``constant``/R_v2. Until then first-layer neurons turn, and come to differ in length,
    by no more than the error |F/α - 1| at the start (condition (a) with Lemma C.4), b_2 stays within [½ E f*, 2 E f*]
    or where it began (Lemma C.7), α within a factor 2 of its start, and the spread below d^1.5 of its own (Lemma C.6).
    """

    key: ClassVar[str] = "ren2023/lemma-4.2"
    source: ClassVar[str] = f"{AUTHORS}, Lemma 4.2 (C.4)"
    statement: ClassVar[str] = "Stage 1 ends: weights turn negative while all else stays in place."
    constant: float = eqx.field(static=True, default=10.0)

    def needs(self, network: Network, data: Dataset) -> Sequence[Probe]:
        """Both layers and the loss."""
        return FIT if is_known(network) else ()

    def read(self, run: Trajectory) -> Reading[Clipped | None]:
        """The clipped learner on the paper's target, with a spread so small that d δ_2 < C_1/R_v2."""
        setting = yield from clipped(run)
        yield looked_later(run)
        yield radial_target(run)
        if setting is not None:
            spread, least = setting.spread, self.constant / setting.bounds[1] / setting.d
            yield Hypothesis("a spread δ_2(0) below C_1/(d R_v2)", spread < least, spread, least)
        return setting

    def conclude(self, setting: Clipped) -> Finding:
        """Order of the times, and what stays in place until T_1."""
        run, d = setting.run, setting.d
        second, first, loss = (through(run, probe) for probe in FIT)
        found = stage_times(run.times, second, loss, d, setting.bounds[1], self.constant)
        numbers = {"T_1.1": found.positive, "T_1.2": found.spread, "T_1.3": found.weight}
        if np.isnan(found.weight):
            return Finding(Verdict.FAILS, f"Stage 1 does not end by t = {run.times[-1]:g}.", 0.0, numbers)
        during = run.times <= found.weight
        weight = run.data.weight
        mean = float(np.average(np.asarray(run.data.y, float), weights=None if weight is None else np.asarray(weight)))
        b = second["neurons"][during][..., 1]
        low, high = min(float(b[0].min()), mean / 2), max(float(b[0].max()), 2 * mean)
        alpha = first["alpha"][during] / first["alpha"][0]
        grown = second["spread"][during].max() / second["spread"][0]
        ratios = {
            "b_2 above its floor": float(b.min()) / low,
            "b_2 below its ceiling": high / float(b.max()),
            "α within a factor 2": 2 / float(np.max(np.maximum(alpha, 1 / alpha))),
            "spread below d^1.5 times its start": d**1.5 / grown,
        }
        if isinstance(setting.first, Block):
            moved = float(np.max((first["tangential"] + first["radial"])[during]))
            ratios["first layer below its error at the start"] = float(first["sphere"][0]) / max(moved, 1e-300)
        ordered = found.positive <= found.spread <= found.weight
        margin = min(ratios.values())
        why = (
            f"T_1.1 = {found.positive:.3g}, T_1.2 = {found.spread:.3g}, T_1 = {found.weight:.3g}; the tightest of its "
            f"conditions is met {margin:.3g} times over."
        )
        holds = ordered and margin >= 1 - 1e-6
        return Finding(Verdict.HOLDS if holds else Verdict.FAILS, why, margin if ordered else 0.0, numbers | ratios)

    def example(self) -> Trajectory:
        """Stage 1, in five dimensions."""
        return first_stage()

    def counterexample(self) -> Trajectory:
        """A second layer that starts spread out."""
        return first_stage(spread=0.3)


class SecondStage(Theorem[Finite]):
    """Lemma 4.3: from w_2 < 0 on the loss falls to ε, the second layer does not spread, the first stays near α |x|.

    ``epsilon`` is the loss to be reached, ``grown`` by how much both errors of the first layer, in L2 and on the
    sphere, may have grown meanwhile.
    """

    key: ClassVar[str] = "ren2023/lemma-4.3"
    source: ClassVar[str] = f"{AUTHORS}, Lemma 4.3 (D.2)"
    statement: ClassVar[str] = "Stage 2 fits the target while the first layer stays near a multiple of |x|."
    epsilon: float = eqx.field(static=True, default=5e-3)
    grown: float = eqx.field(static=True, default=2.0)

    def needs(self, network: Network, data: Dataset) -> Sequence[Probe]:
        """Both layers and the loss."""
        return FIT if is_finite(network) else ()

    def read(self, run: Trajectory) -> Reading[Finite | None]:
        """A symmetric problem, and a learner with negative weights, both layers trained and nothing clipped."""
        setting = yield from finite_model(run)
        yield looked_later(run)
        if setting is not None:
            yield from symmetric(run)
            largest = float(setting.neurons[:, 0].max())
            yield Hypothesis("all w_2 < 0 at the start", largest < 0, largest, 0.0)
            yield setting.unclipped()
            yield setting.both_trained()
        return setting

    def conclude(self, setting: Finite) -> Finding:
        """When ε is reached, and what grew until then."""
        run = setting.run
        second, first, loss = (through(run, probe) for probe in FIT)
        end = reached(run.times, self.epsilon - np.asarray(loss))
        if np.isnan(end):
            why = f"The loss is {loss[-1]:.3g} at the end, and never {self.epsilon:g}."
            return Finding(Verdict.FAILS, why, self.epsilon / float(loss[-1]), {"loss": float(loss[-1])})
        during = run.times <= end
        spread = second["spread"][during].max() / second["spread"][0]
        error, largest = (first[name][during].max() / first[name][0] for name in ("l2", "sphere"))
        # Steps that the solver may be off by; the spread itself never grows (Lemma D.14).
        margin = float(min((1 + 1e-3) / spread, self.grown / error, self.grown / largest))
        why = (
            f"L = {self.epsilon:g} at t = {end:.3g}; until then the spread is at most {spread:.3g}, the error "
            f"{error:.3g} in L2 and {largest:.3g} on the sphere times what it was."
        )
        numbers = {"T_2": end, "spread": float(spread), "error": float(error), "on the sphere": float(largest)}
        return Finding(Verdict.HOLDS if margin >= 1 else Verdict.FAILS, why, margin, numbers)

    def example(self) -> Trajectory:
        """Stage 2, in five dimensions."""
        return second_stage()

    def counterexample(self) -> Trajectory:
        """The first layer is frozen."""
        return second_stage(train=("", "wb"))


def width_needed(d: int, epsilon: float) -> float:
    """Give m_1 with which |F/α - 1| <= ε/d^14 at the start, as Induction Hypothesis D.1 wants it with constant 1.

    At one direction F/α - 1 has the variance (E σ(z)²/(E σ(z))² - 1)/m_1 over random neurons, with z a coordinate of a
    direction: (π - 1)/m_1 for large d. One standard deviation has to fit; directions are not counted, so the true width
    is larger.
    """
    return (np.pi - 1) * (float(d) ** 14 / epsilon) ** 2


class Learns(Theorem[Finite]):
    """Theorem 2.1: clipped gradient flow reaches loss ε with polynomially many neurons in polynomial time.

    No polynomial is printed. Induction Hypothesis D.1 of its proof asks for |F/α - 1| <= O(ε/d^14) on the sphere, which
    is a width of d^28/ε²: `width_needed`.
    """

    key: ClassVar[str] = "ren2023/theorem-2.1"
    source: ClassVar[str] = f"{AUTHORS}, Theorem 2.1"
    statement: ClassVar[str] = "A three-layer network of polynomial size learns relu(1 - |x|)."
    feasible: ClassVar[bool] = False
    epsilon: float = eqx.field(static=True, default=0.01)

    def __check_init__(self) -> None:
        if not 0 < self.epsilon < 1:
            raise UserError(f"The loss to be reached lies between 0 and 1, so {self.epsilon} does not: try 0.01.")

    def needs(self, network: Network, data: Dataset) -> Sequence[Probe]:
        """The loss."""
        return [TrainLoss()] if is_known(network) else []

    def read(self, run: Trajectory) -> Reading[Finite | None]:
        """The clipped learner of a width that its proof would be content with."""
        setting = yield from finite_model(run)
        if setting is not None:
            yield from symmetric(run)
            yield _clipping(run)
            width, needed = float(setting.first.width), width_needed(setting.d, self.epsilon)
            yield Hypothesis("width m_1, with all constants 1", width >= needed, width, needed)
        return setting

    def conclude(self, setting: Finite) -> Finding:
        """Whether ε was reached."""
        loss = float(np.min(through(setting.run, TrainLoss())))
        why = f"The loss falls to {loss:.3g}; {self.epsilon:g} is promised."
        verdict = Verdict.HOLDS if loss <= self.epsilon else Verdict.FAILS
        return Finding(verdict, why, self.epsilon / max(loss, 1e-300), {"loss": loss})

    def example(self) -> Trajectory:
        """Five dimensions, and 64 neurons where some 1e24 would be needed."""
        return first_stage()

    def counterexample(self) -> Trajectory:
        """The same without clips."""
        return first_stage(clip=None)
