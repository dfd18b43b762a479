"""What the flow of ren2023's learner keeps: eq. 6, the spread of the second layer (D.14), and a quantity (D.18)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import equinox as eqx
import numpy as np

from unlazy.data import Dataset
from unlazy.flows import Trajectory
from unlazy.networks import Network, sphere_mean
from unlazy.papers.ren2023.probes import FirstLayer, LossDecomposition, SecondLayer
from unlazy.papers.ren2023.theorems._setting import (
    AUTHORS,
    LAYERS,
    Finite,
    Setting,
    decomposed,
    finite_model,
    is_finite,
    is_known,
    model,
    radial_target,
    second_stage,
    symmetric,
)
from unlazy.probes import Probe, TrainLoss
from unlazy.theory._base import Finding, Hypothesis, Reading, Theorem, Verdict, through
from unlazy.theory._runs import gradient_flow, looked_later, relative_error, rounding


class _Along(Theorem[Setting]):
    """What the flow of the learner keeps, or never lets grow."""

    def needs(self, network: Network, data: Dataset) -> Sequence[Probe]:
        """Both layers."""
        return LAYERS if is_known(network) else ()

    def read(self, run: Trajectory) -> Reading[Setting | None]:
        """Gradient flow of the learner."""
        setting = yield from model(run)
        yield gradient_flow(run)
        yield looked_later(run)
        return setting


class Conserved(_Along):
    """Lemma D.18: α - (2 C_Γ/√d) E w_2² stays what it is along the unclipped flow.

    With E w_2² it is exact at any width and on any data; printed with w̄_2², up to the spread of the second layer.
    """

    key: ClassVar[str] = "ren2023/lemma-d.18"
    source: ClassVar[str] = f"{AUTHORS}, Lemma D.18 (its conserved quantity)"
    statement: ClassVar[str] = "α and the mean square of w_2 grow together: their difference is conserved."

    def read(self, run: Trajectory) -> Reading[Setting | None]:
        """Gradient flow of the learner, nothing frozen or clipped."""
        setting = yield from super().read(run)
        if setting is not None:
            yield setting.both_trained()
            yield setting.unclipped()
        return setting

    def conclude(self, setting: Setting) -> Finding:
        """How far it drifts, against how far its parts move and how well they are known."""
        run = setting.run
        alpha = through(run, FirstLayer())["alpha"]
        other = 2 * sphere_mean(setting.d) * through(run, SecondLayer())["square"]
        kept = alpha - other
        drift = float(np.max(np.abs(kept - kept[0])))
        moved = float(np.max(np.abs(alpha - alpha[0])))
        size = float(np.max(alpha + other))
        slack = relative_error(run, rounding(run)) * size
        numbers = {"drift": drift, "movement of α": moved, "slack": slack, "kept": float(kept[0])}
        why = f"It drifts by {drift:.2g} while α moves by {moved:.2g}; the run is known to {slack:.2g}."
        verdict = Verdict.HOLDS if drift <= slack else Verdict.FAILS
        if verdict is Verdict.HOLDS and moved <= slack:
            verdict, why = Verdict.VACUOUS, why + " Nothing has moved."
        return Finding(verdict, why, slack / max(drift, 1e-300), numbers)

    def example(self) -> Trajectory:
        """Stage 2, in five dimensions."""
        return second_stage()

    def counterexample(self) -> Trajectory:
        """A first layer that is frozen."""
        return second_stage(train=("", "wb"))


class SpreadFalls(_Along):
    """Lemma D.14: the distance of two second-layer neurons never grows while both are active on |x| <= 1."""

    key: ClassVar[str] = "ren2023/lemma-d.14"
    source: ClassVar[str] = f"{AUTHORS}, Lemma D.14"
    statement: ClassVar[str] = "The spread of the second layer never grows in stage 2."

    def read(self, run: Trajectory) -> Reading[Setting | None]:
        """Gradient flow, all second-layer neurons trained and active on |x| <= 1 along the way."""
        setting = yield from super().read(run)
        yield radial_target(run)
        if setting is None:
            return None
        yield setting.unclipped()
        yield Hypothesis("w_2 and b_2 trained", set(setting.second.train) == set("wb"))
        second, first = (through(run, probe) for probe in LAYERS)
        if second is not None and first is not None:
            rows = second["neurons"]
            # On |x| <= 1 F is at most α (1 + ε), and w_2 F + b_2 is least at one of the ends.
            most = first["alpha"] * (1 + first["sphere"])
            least = np.minimum(rows[..., 1], rows[..., 0] * most[:, None] + rows[..., 1]).min(axis=1)
            always = float(least.min())
            yield Hypothesis("all second-layer neurons active on |x| <= 1", always > 0, always, 0.0)
        return setting

    def conclude(self, setting: Setting) -> Finding:
        """The largest growth between two observations."""
        run, rows = setting.run, through(setting.run, SecondLayer())["neurons"]
        apart = np.linalg.norm(rows[:, :, None] - rows[:, None], axis=3)
        growth = float(np.max(np.diff(apart, axis=0)))
        slack = relative_error(run, rounding(run)) * float(np.abs(rows).max())
        spread = apart.max(axis=(1, 2))
        numbers = {"largest growth": growth, "slack": slack, "start": float(spread[0]), "end": float(spread[-1])}
        apart = f"No pair moves apart by more than {max(growth, 0.0):.2g} between observations"
        why = f"{apart}; δ_2: {spread[0]:.3g} to {spread[-1]:.3g}."
        verdict = Verdict.HOLDS if growth <= slack else Verdict.FAILS
        return Finding(verdict, why, slack / max(growth, slack * 1e-6), numbers)

    def example(self) -> Trajectory:
        """Stage 2, in five dimensions, until neurons leave |x| <= 1 alone."""
        return second_stage(until=20.0)

    def counterexample(self) -> Trajectory:
        """Weights so large that neurons are out before |x| = 1."""
        return second_stage(weight=-8.0, until=1.0)


class Decomposition(Theorem[Finite]):
    """Eq. 6: L is about ½ E(f* - f̃)² + (w̄_2²/2) E(F̃ - F)², in value and in the gradient of the first layer.

    "About" is ``tolerance``, a share of the loss and of its gradient, at every time.
    """

    key: ClassVar[str] = "ren2023/eq-6"
    source: ClassVar[str] = f"{AUTHORS}, eq. 6 (Lemma D.10)"
    statement: ClassVar[str] = "The loss is that of the limit plus that of the first layer's error."
    tolerance: float = eqx.field(static=True, default=0.2)

    def needs(self, network: Network, data: Dataset) -> Sequence[Probe]:
        """The parts of the loss, and the second layer."""
        return (LossDecomposition(), SecondLayer(), TrainLoss()) if is_finite(network) else ()

    def read(self, run: Trajectory) -> Reading[Finite | None]:
        """A symmetric problem, and a finite learner with negative weights whose second layer is concentrated."""
        setting = yield from finite_model(run)
        if setting is not None:
            yield from symmetric(run)
            spread, mean = setting.spread, float(-setting.neurons[:, 0].mean())
            yield Hypothesis("w̄_2 < 0 and a spread δ_2 below a tenth of it", spread < mean / 10, spread, mean / 10)
        return setting

    def conclude(self, setting: Finite) -> Finding:
        """The worst time."""
        parts, loss = (through(setting.run, probe) for probe in (LossDecomposition(), TrainLoss()))
        value, gradient = float(np.max(parts["value"])), float(np.max(parts["gradient"]))
        error = float(np.max(parts["error"] / np.asarray(loss)))
        margin = self.tolerance / max(value, gradient, 1e-300)
        numbers = {"value": value, "gradient": gradient, "share of the error": error}
        why = (
            f"Both sides differ by {value:.2%} in value and {gradient:.2%} in gradient at most; the error's share is "
            f"{error:.2%}."
        )
        return Finding(Verdict.HOLDS if margin >= 1 else Verdict.FAILS, why, margin, numbers)

    def example(self) -> Trajectory:
        """A concentrated second layer near the target."""
        return decomposed()

    def counterexample(self) -> Trajectory:
        """A second layer spread out over ten times its mean."""
        return decomposed(spread=1.0)
