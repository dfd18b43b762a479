"""The main theorem of ren2023, and how far it is from what fits into a computer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar

import equinox as eqx
import numpy as np

from unlazy._errors import UserError
from unlazy.data import Dataset
from unlazy.flows import Trajectory
from unlazy.networks import Block, Network
from unlazy.papers.ren2023.theorems._setting import AUTHORS, first_stage, is_known, layers, model, seen, symmetric
from unlazy.probes import Probe, TrainLoss
from unlazy.theory._base import Finding, Hypothesis, Theorem, Verdict


def width_needed(d: int, epsilon: float) -> float:
    """Give m_1 with which |F/α - 1| <= ε/d^14 at the start, as Induction Hypothesis D.1 wants it with constant 1.

    At one direction F/α - 1 has the variance (E σ(z)²/(E σ(z))² - 1)/m_1 over random neurons, with z a coordinate of a
    direction: (π - 1)/m_1 for large d. One standard deviation has to fit; directions are not counted, so the true width
    is larger.
    """
    return (np.pi - 1) * (float(d) ** 14 / epsilon) ** 2


class Learns(Theorem):
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

    def hypotheses(self, run: Trajectory) -> Iterator[Hypothesis]:
        """The clipped learner of a width that its proof would be content with."""
        (known,) = model(run)
        yield known
        if not known.met:
            return
        first = layers(run)[0]
        assert isinstance(first, Block)
        yield from symmetric(run)
        yield Hypothesis("clipped flow, eq. 4", run.start.clips_per_sample)
        width, needed = float(first.width), width_needed(first.inputs, self.epsilon)
        yield Hypothesis("width m_1, with all constants 1", width >= needed, width, needed)

    def conclude(self, run: Trajectory) -> Finding:
        """Whether ε was reached."""
        loss = float(np.min(seen(run, TrainLoss())))
        why = f"The loss falls to {loss:.3g}; {self.epsilon:g} is promised."
        verdict = Verdict.HOLDS if loss <= self.epsilon else Verdict.FAILS
        return Finding(verdict, why, self.epsilon / max(loss, 1e-300), {"loss": loss})

    def example(self) -> Trajectory:
        """Five dimensions, and 64 neurons where some 1e24 would be needed."""
        return first_stage()

    def counterexample(self) -> Trajectory:
        """The same without clips."""
        return first_stage(clip=None)
