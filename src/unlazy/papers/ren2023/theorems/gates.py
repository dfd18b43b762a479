"""Where second-layer neurons of ren2023 are on or off: Lemmas C.11 to C.13 (and D.6, D.7), with constants.

With all w_2 < 0 a neuron turns off at F = b/|w_2|. Two neurons (w, b), (w', b') whose distance is at most δ_2 differ at
F by (w' - w) F + b' - b, so by at most √(1 + F²) δ_2, and no neuron is on beyond the largest b/|w_2|.
"""

from collections.abc import Iterator
from typing import ClassVar

import equinox as eqx
import numpy as np

from unlazy.flows import Trajectory
from unlazy.papers.ren2023.probes import SecondLayer
from unlazy.papers.ren2023.radial import density_bound, radial_cdf, truncated_moment
from unlazy.papers.ren2023.theorems import problems
from unlazy.papers.ren2023.theorems import setting as s
from unlazy.theory import Example, Finding, Hypothesis, Reading


def gate_error(neurons: np.ndarray) -> tuple[float, float]:
    """Compute the largest of |f σ'(h_j) - f|, |f - σ(h_j)| and |f - σ(w̄_2 F + b̄_2)| over F >= 0, and its bound.

    All are linear in F between the points at which a neuron, or their mean, turns off. The bound is √(1 + F²) δ_2 with
    the largest F = b/|w_2| (Lemmas C.11 and C.12).

    Parameters
    ----------
    neurons
        (w_2, b_2) of every second-layer neuron, with w_2 < 0 and b_2 > 0.
    """
    every = np.concatenate([neurons, neurons.mean(axis=0)[None]])
    turns = every[:, 1] / -every[:, 0]
    knots = np.append(0.0, turns)
    values = np.maximum(np.outer(knots, every[:, 0]) + every[:, 1], 0)  # of all neurons and of their mean, at each knot
    f = values[:, :-1].mean(axis=1)
    spread = float(np.max(np.linalg.norm(neurons[:, None] - neurons[None], axis=2)))
    largest = max(float(np.max(np.abs(values - f[:, None]))), float(f[1:-1].max()))
    return largest, float(np.hypot(1.0, turns.max())) * spread


def _turning(neurons: np.ndarray) -> np.ndarray:
    """Return at which times all w_2 < 0 and all b_2 > 0."""
    return np.all((neurons[..., 0] < 0) & (neurons[..., 1] > 0), axis=1)


def _some_turning(setting: s.Setting) -> Iterator[Hypothesis]:
    for second in setting.observed(SecondLayer()):
        yield Hypothesis("all w_2 < 0 and b_2 > 0 at some observation", bool(_turning(second["neurons"]).any()))


class GatesAgree(s.OfLearner):
    """Lemmas C.11 and C.12: f equals each of its neurons, and their mean neuron, up to √(1 + F²) δ_2 (`gate_error`)."""

    key: ClassVar[str] = "ren2023/lemma-c.12"
    source: ClassVar[str] = f"{s.AUTHORS}, Lemmas C.11 and C.12 (D.6 and D.7), with constants"
    statement: ClassVar[str] = "A second layer with a small spread computes what each of its neurons does."
    example: ClassVar[Example] = Example(problems.second_stage)
    counterexample: ClassVar[Example] = Example(problems.decomposed, spread=3.0)  # some w_2 > 0
    probes: ClassVar[s.Probes] = (SecondLayer(),)
    conditions: ClassVar[s.Conditions] = (_some_turning,)

    def conclude(self, setting: s.Setting) -> Finding:
        neurons = setting.observed(SecondLayer())[0]["neurons"]
        rows = neurons[_turning(neurons)]
        found = np.array([gate_error(one) for one in rows])
        size = np.array([one[:, 1].max() for one in rows])
        margin = float(np.min(found[:, 1] / np.maximum(found[:, 0], 1e-300)))
        numbers = {"largest error": float(found[:, 0].max()), "least bound": float(found[:, 1].min())}
        why = f"The error of f is at most {found[:, 0].max():.2g}, and at least {margin:.3g} times below its bound."
        slack, weak = setting.rounding, bool(np.all(found[:, 1] >= size))
        return Finding.judge(margin >= 1 - slack, why, margin, numbers, vacuous=weak, if_vacuous="f itself is smaller.")


class GatesDiffer(s.OfInfiniteLearner):
    """Lemma C.13: neurons are on and off at the same x, except on a set of probability K α δ_2.

    At infinite width neurons turn off at |x| = b/(α |w_2|). Let r_0 be the smallest of these radii. By `density_bound`
    the probability between it and the largest is at most (2 d/(π c)) α (max |w_2|/b - min |w_2|/b) / √(1 - (d/(2 c
    r_0))²), and |w_2|/b varies by at most √(1 + (W/b_0)²) δ_2/b_0, where b_0 is the smallest b_2 and W the largest
    |w_2|.

    Parameters
    ----------
    scale
        The paper's αβ.
    """

    key: ClassVar[str] = "ren2023/lemma-c.13"
    source: ClassVar[str] = f"{s.AUTHORS}, Lemma C.13, with constants"
    statement: ClassVar[str] = "Second-layer neurons turn off at nearly the same inputs."
    example: ClassVar[Example] = Example(problems.infinite_stage)
    counterexample: ClassVar[Example] = Example(problems.infinite_stage, weight=-8.0)  # not active on |x| <= 1
    probes: ClassVar[s.Probes] = s.LAYERS
    conditions: ClassVar[s.Conditions] = (s.active,)
    scale: float = eqx.field(static=True, default=1.0)

    def read(self, run: Trajectory) -> Reading[s.Setting]:
        setting = yield from super().read(run)
        exact = [truncated_moment(power, 1.0, setting.d, self.scale) for power in (0, 1)]
        off = max(abs(float(setting.law.moment(power, 1.0)) - one) for power, one in enumerate(exact))
        yield Hypothesis("inputs by a quadrature of the law of section 2", off < 1e-3, off, 1e-3)
        for second in setting.observed(SecondLayer()):
            yield Hypothesis("all w_2 < 0 and b_2 > 0", bool(_turning(second["neurons"]).all()))
        return setting

    def conclude(self, setting: s.Setting) -> Finding:
        second, first = setting.observed(*s.LAYERS)
        rows, alpha = second["neurons"], first["alpha"]
        turns = rows[..., 1] / -rows[..., 0] / alpha[:, None]
        low, high = turns.min(axis=1), turns.max(axis=1)
        chance = radial_cdf(high, setting.d, self.scale) - radial_cdf(low, setting.d, self.scale)
        least, wide = rows[..., 1].min(axis=1), np.abs(rows[..., 0]).max(axis=1)
        steep = np.array([density_bound(one, np.inf, setting.d, self.scale) * one for one in low])
        bound = steep * alpha * np.hypot(1.0, wide / least) / least * second["spread"]
        known = chance > 1e-14
        margin = float(np.min((bound / np.maximum(chance, 1e-300))[known], initial=np.inf))
        numbers = {"largest probability": float(chance.max()), "its bound": float(bound[np.argmax(chance)])}
        why = f"Two neurons differ with probability {chance.max():.2g} at most; the bound is {margin:.3g} times larger."
        weak = not known.any() or bool(np.all(bound >= 1))
        return Finding.judge(margin >= 1, why, margin, numbers, vacuous=weak, if_vacuous="Nothing can be concluded.")
