"""What the flow of ren2023's learner conserves: eq. 6, the spread of the second layer (D.14), and a quantity (D.18)."""

from typing import ClassVar

import equinox as eqx
import numpy as np

from unlazy.flows import Trajectory
from unlazy.networks.limits import sphere_mean
from unlazy.papers.ren2023.probes import FirstLayer, LossDecomposition, SecondLayer
from unlazy.papers.ren2023.theorems import problems
from unlazy.papers.ren2023.theorems import setting as common
from unlazy.papers.ren2023.theorems.setting import AUTHORS, LAYERS, Setting
from unlazy.probes import Probe, TrainLoss
from unlazy.theory import Example, Finding, Hypothesis, Reading, Theorem, through
from unlazy.theory.hypotheses import gradient_flow, observed_later, relative_error, rounding


class _Along(Theorem[Setting]):
    """A quantity that the flow of the learner conserves, or never increases."""

    probes: ClassVar[tuple[Probe, ...]] = LAYERS
    knows = staticmethod(common.is_known)

    def read(self, run: Trajectory) -> Reading[Setting | None]:
        """Require gradient flow of the learner."""
        setting = yield from common.model(run)
        yield gradient_flow(run)
        yield observed_later(run)
        return setting


class Conserved(_Along):
    """Lemma D.18: α - (2 C_Γ/√d) E w_2² is constant along the unclipped flow.

    With E w_2² it is exact at any width and on any data; printed with w̄_2², it holds up to the spread of the second
    layer.
    """

    key: ClassVar[str] = "ren2023/lemma-d.18"
    source: ClassVar[str] = f"{AUTHORS}, Lemma D.18 (its conserved quantity)"
    statement: ClassVar[str] = "α and the mean square of w_2 grow together: their difference is conserved."
    example: ClassVar[Example] = Example(problems.second_stage)
    counterexample: ClassVar[Example] = Example(problems.second_stage, train=("", "wb"))  # a frozen first layer

    def read(self, run: Trajectory) -> Reading[Setting | None]:
        """Require gradient flow of the learner, with both layers trained and no clips."""
        setting = yield from super().read(run)
        if setting is not None:
            yield setting.both_trained()
            yield setting.unclipped()
        return setting

    def conclude(self, setting: Setting) -> Finding:
        """Compare its drift with the movement of its parts and the accuracy of the run."""
        run = setting.run
        alpha = through(run, FirstLayer())["alpha"]
        other = 2 * sphere_mean(setting.d) * through(run, SecondLayer())["square"]
        kept = alpha - other
        drift = float(np.max(np.abs(kept - kept[0])))
        moved = float(np.max(np.abs(alpha - alpha[0])))
        slack = relative_error(run, rounding(run)) * float(np.max(alpha + other))
        numbers = {"drift": drift, "movement of α": moved, "slack": slack, "kept": float(kept[0])}
        why = f"It drifts by {drift:.2g} while α moves by {moved:.2g}; the run is accurate to {slack:.2g}."
        margin, still = slack / max(drift, 1e-300), moved <= slack
        return Finding.judge(drift <= slack, why, margin, numbers, vacuous=still, if_vacuous="Nothing has moved.")


class SpreadFalls(_Along):
    """Lemma D.14: the distance between two second-layer neurons never grows while both are active on |x| <= 1."""

    key: ClassVar[str] = "ren2023/lemma-d.14"
    source: ClassVar[str] = f"{AUTHORS}, Lemma D.14"
    statement: ClassVar[str] = "The spread of the second layer never grows in stage 2."
    # Stage 2 while neurons are active on all of |x| <= 1; and weights so large that they are not.
    example: ClassVar[Example] = Example(problems.second_stage, until=20.0)
    counterexample: ClassVar[Example] = Example(problems.second_stage, weight=-8.0, until=1.0)

    def read(self, run: Trajectory) -> Reading[Setting | None]:
        """Require gradient flow, and all second-layer neurons trained and active on |x| <= 1 along the run."""
        setting = yield from super().read(run)
        yield common.radial_target(run)
        if setting is None:
            return None
        yield setting.unclipped()
        yield Hypothesis("w_2 and b_2 trained", set(setting.second.train) == set("wb"))
        second, first = (through(run, probe) for probe in LAYERS)
        if second is not None and first is not None:
            rows = second["neurons"]
            # On |x| <= 1 F is at most α (1 + ε), and w_2 F + b_2 is least at one of the ends.
            most = first["alpha"] * (1 + first["sphere"])
            least = float(np.minimum(rows[..., 1], rows[..., 0] * most[:, None] + rows[..., 1]).min())
            yield Hypothesis("all second-layer neurons active on |x| <= 1", least > 0, least, 0.0)
        return setting

    def conclude(self, setting: Setting) -> Finding:
        """Compute the largest growth of a distance between two observations."""
        run, rows = setting.run, through(setting.run, SecondLayer())["neurons"]
        apart = np.linalg.norm(rows[:, :, None] - rows[:, None], axis=3)
        growth = float(np.max(np.diff(apart, axis=0)))
        slack = relative_error(run, rounding(run)) * float(np.abs(rows).max())
        spread = apart.max(axis=(1, 2))
        numbers = {"largest growth": growth, "slack": slack, "start": float(spread[0]), "end": float(spread[-1])}
        most = f"No pair moves apart by more than {max(growth, 0.0):.2g} between observations"
        why = f"{most}; δ_2: {spread[0]:.3g} to {spread[-1]:.3g}."
        return Finding.judge(growth <= slack, why, slack / max(growth, slack * 1e-6), numbers)


class Decomposition(Theorem[Setting]):
    """Eq. 6: L is about ½ E(f* - f̃)² + (w̄_2²/2) E(F̃ - F)², in value and in the gradient of the first layer.

    Parameters
    ----------
    tolerance
        What "about" means: a share of the loss and of its gradient, at every time.
    """

    key: ClassVar[str] = "ren2023/eq-6"
    source: ClassVar[str] = f"{AUTHORS}, eq. 6 (Lemma D.10)"
    statement: ClassVar[str] = "The loss is that of the limit plus that of the first layer's error."
    example: ClassVar[Example] = Example(problems.decomposed)
    counterexample: ClassVar[Example] = Example(problems.decomposed, spread=1.0)  # far above a tenth of the mean
    probes: ClassVar[tuple[Probe, ...]] = (LossDecomposition(), SecondLayer(), TrainLoss())
    knows = staticmethod(common.is_finite)
    tolerance: float = eqx.field(static=True, default=0.2)

    def read(self, run: Trajectory) -> Reading[Setting | None]:
        """Require a symmetric problem, and a finite learner with negative weights and a concentrated second layer."""
        setting = yield from common.finite_model(run)
        if setting is not None:
            yield from common.symmetric(run)
            spread, mean = setting.spread, float(-setting.neurons[:, 0].mean())
            yield Hypothesis("w̄_2 < 0 and a spread δ_2 below a tenth of it", spread < mean / 10, spread, mean / 10)
        return setting

    def conclude(self, setting: Setting) -> Finding:
        """Compare both sides at the time at which they differ most."""
        parts, loss = (through(setting.run, probe) for probe in (LossDecomposition(), TrainLoss()))
        value, gradient = float(np.max(parts["value"])), float(np.max(parts["gradient"]))
        error = float(np.max(parts["error"] / np.asarray(loss)))
        margin = self.tolerance / max(value, gradient, 1e-300)
        numbers = {"value": value, "gradient": gradient, "share of the error": error}
        parted = f"Both sides differ by {value:.2%} in value and {gradient:.2%} in gradient at most"
        return Finding.judge(margin >= 1, f"{parted}; the error's share is {error:.2%}.", margin, numbers)
