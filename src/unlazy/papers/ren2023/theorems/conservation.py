"""Along the flow of ren2023: a conserved quantity (D.18), a spread that never grows (D.14), and eq. 6."""

from collections.abc import Iterator
from typing import ClassVar

import equinox as eqx
import numpy as np

from unlazy.networks.limits import sphere_mean
from unlazy.papers.ren2023.probes import LossDecomposition, SecondLayer
from unlazy.papers.ren2023.theorems import problems
from unlazy.papers.ren2023.theorems import setting as s
from unlazy.probes import TrainLoss
from unlazy.theory import Example, Finding, Hypothesis


class ConservedQuantity(s.OfLearner):
    """Lemma D.18: α - (2 C_Γ/√d) E w_2² is constant along the unclipped flow.

    With E w_2² it is exact at any width and on any data; as printed, with w̄_2², it holds up to the spread of the second
    layer.
    """

    key: ClassVar[str] = "ren2023/lemma-d.18"
    source: ClassVar[str] = f"{s.AUTHORS}, Lemma D.18 (its conserved quantity)"
    statement: ClassVar[str] = "α and the mean square of w_2 grow together: their difference is conserved."
    example: ClassVar[Example] = Example(problems.second_stage)
    counterexample: ClassVar[Example] = Example(problems.second_stage, train=("", "wb"))  # a frozen first layer
    probes: ClassVar[s.Probes] = s.LAYERS
    conditions: ClassVar[s.Conditions] = (s.followed, *s.UNCLIPPED)

    def conclude(self, setting: s.Setting) -> Finding:
        second, first = setting.observed(*s.LAYERS)
        alpha, other = first["alpha"], 2 * sphere_mean(setting.d) * second["square"]
        value = alpha - other
        drift = float(np.max(np.abs(value - value[0])))
        moved = float(np.max(np.abs(alpha - alpha[0])))
        slack = setting.error * float(np.max(alpha + other))
        numbers = {"drift": drift, "movement of α": moved, "slack": slack, "value at the start": float(value[0])}
        why = f"It drifts by {drift:.2g} while α moves by {moved:.2g}; the run is accurate to {slack:.2g}."
        margin, still = slack / max(drift, 1e-300), moved <= slack
        return Finding.judge(drift <= slack, why, margin, numbers, vacuous=still, if_vacuous="Nothing has moved.")


class SpreadFalls(s.OfLearner):
    """Lemma D.14: the distance between two second-layer neurons never grows while both are active on |x| <= 1."""

    key: ClassVar[str] = "ren2023/lemma-d.14"
    source: ClassVar[str] = f"{s.AUTHORS}, Lemma D.14"
    statement: ClassVar[str] = "The spread of the second layer never grows in stage 2."
    # Stage 2 while neurons are active on all of |x| <= 1; and weights so large that they are not.
    example: ClassVar[Example] = Example(problems.second_stage, until=20.0)
    counterexample: ClassVar[Example] = Example(problems.second_stage, weight=-8.0, until=1.0)
    probes: ClassVar[s.Probes] = s.LAYERS
    conditions: ClassVar[s.Conditions] = (s.followed, s.radial_target, s.unclipped, s.second_trained, s.active)

    def conclude(self, setting: s.Setting) -> Finding:
        rows = setting.observed(*s.LAYERS)[0]["neurons"]
        apart = np.linalg.norm(rows[:, :, None] - rows[:, None], axis=3)
        growth = float(np.max(np.diff(apart, axis=0)))
        slack = setting.error * float(np.abs(rows).max())
        spread = apart.max(axis=(1, 2))
        numbers = {"largest growth": growth, "slack": slack, "start": float(spread[0]), "end": float(spread[-1])}
        most = f"No pair moves apart by more than {max(growth, 0.0):.2g} between observations"
        why = f"{most}; δ_2: {spread[0]:.3g} to {spread[-1]:.3g}."
        return Finding.judge(growth <= slack, why, slack / max(growth, slack * 1e-6), numbers)


def _concentrated(setting: s.Setting) -> Iterator[Hypothesis]:
    spread, mean = setting.spread, float(-setting.neurons[:, 0].mean())
    yield Hypothesis("w̄_2 < 0 and a spread δ_2 below |w̄_2|/10", spread < mean / 10, spread, mean / 10)


class Decomposition(s.OfFiniteLearner):
    """Eq. 6: L is about ½ E(f* - f̃)² + (w̄_2²/2) E(F̃ - F)², in value and in gradient (in w_1).

    Parameters
    ----------
    tolerance
        The allowed difference at every time, as a share of the loss and of the length of its gradient.
    """

    key: ClassVar[str] = "ren2023/eq-6"
    source: ClassVar[str] = f"{s.AUTHORS}, eq. 6 (Lemma D.10)"
    statement: ClassVar[str] = "The loss is that of the infinitely wide limit plus the first layer's error."
    example: ClassVar[Example] = Example(problems.decomposed)
    counterexample: ClassVar[Example] = Example(problems.decomposed, spread=1.0)  # far above a tenth of the mean
    probes: ClassVar[s.Probes] = (LossDecomposition(), SecondLayer(), TrainLoss())
    conditions: ClassVar[s.Conditions] = (s.symmetric, _concentrated)
    tolerance: float = eqx.field(static=True, default=0.2)

    def conclude(self, setting: s.Setting) -> Finding:
        parts, _, loss = setting.observed(*self.probes)
        value, gradient = float(np.max(parts["value"])), float(np.max(parts["gradient"]))
        error = float(np.max(parts["error"] / np.asarray(loss)))
        margin = self.tolerance / max(value, gradient, 1e-300)
        numbers = {"value": value, "gradient": gradient, "share of the error": error}
        differ = f"Both sides differ by at most {value:.2%} in value and {gradient:.2%} in gradient"
        why = f"{differ}; the first layer's error is at most {error:.2%} of the loss."
        return Finding.judge(margin >= 1, why, margin, numbers)
