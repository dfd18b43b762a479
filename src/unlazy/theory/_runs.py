"""What theorems of several papers ask of a run: its loss, its times, its accuracy; and kinds of theorems."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import equinox as eqx
import numpy as np

from unlazy._errors import UserError
from unlazy.data import Dataset
from unlazy.flows import Descent, Trajectory
from unlazy.losses import Squared
from unlazy.networks import Network, TwoLayer
from unlazy.probes import Probe
from unlazy.theory._base import Hypothesis, Reading, Setting, Theorem


class AtEnds(Theorem[Setting]):
    """A theorem on the data and on the networks at one or both ends of a run."""

    def needs(self, network: Network, data: Dataset) -> Sequence[Probe]:
        """Nothing along the run."""
        return []


class WithProbability(Theorem[Setting]):
    """A theorem that holds with probability 1 - δ over random starts."""

    delta: float = eqx.field(static=True, default=0.05)

    def __check_init__(self) -> None:
        probability(self.delta)


def all_met(*hypotheses: Hypothesis) -> Reading[bool]:
    """Yield the hypotheses, and return whether all of them are met."""
    yield from hypotheses
    return all(one.met for one in hypotheses)


def loss_slope(loss: Squared, n: int) -> float:
    """ω in dL/df = ω (f - y): 1 for the sum of ½ (f - y)², 1/n for its mean, twice as much without the half."""
    return (1 / n if loss.reduction == "mean" else 1.0) * (1.0 if loss.half else 2.0)


def squared_loss(run: Trajectory) -> Reading[float | None]:
    """Squared loss in any units, all samples alike; return its `loss_slope`."""
    loss, alike = run.loss, run.data.weight is None
    yield Hypothesis("squared loss, all samples alike", isinstance(loss, Squared) and alike)
    return loss_slope(loss, run.data.n) if isinstance(loss, Squared) and alike else None


def gradient_flow(run: Trajectory) -> Hypothesis:
    """The flow itself, not steps of some size."""
    flows = not isinstance(run.flow, Descent) and bool(np.isfinite(run.stats["error"]))
    return Hypothesis("gradient flow, followed with error control", flows)


def looked_later(run: Trajectory) -> Hypothesis:
    """A rate needs a stretch of time."""
    return Hypothesis("an observation of the run after t = 0", bool(run.times.size and run.times[-1] > 0))


def rounding(run: Trajectory) -> float:
    """Relative rounding error of the numbers in a run."""
    return float(np.finfo(np.asarray(run.data.x).dtype).eps)


def relative_error(run: Trajectory, precision: float) -> float:
    """How well outputs are known, relative to the targets: the flow's own estimate of its error, and rounding."""
    # The estimates of single steps are added up; ten times that is what we stake on it.
    return 10 * run.stats["error"] + 1e3 * precision


def probability(delta: float) -> None:
    """Refuse a failure probability that is none."""
    if not 0 < delta < 1:
        raise UserError(f"delta = {delta} is not a probability between 0 and 1: try delta = 0.05.")


def no_biases(network: TwoLayer) -> Hypothesis:
    """Pre-activations are linear in the features."""
    return Hypothesis("no biases", network.b is None)


def gaussian_start(w: np.ndarray, units: str) -> Iterator[Hypothesis]:
    """Rows drawn independently from N(0, I), one per neuron (of the ``units``), as far as numbers can show it.

    The variance is 1 and the fourth moment, in units of its square, 3, both within six standard errors.
    """
    square = float(np.mean(w**2))
    yield Hypothesis("weights of variance 1 at the start", abs(square - 1) <= 6 * (2 / w.size) ** 0.5, square, 1)
    moment = float(np.mean(w**4) / max(square, np.finfo(float).tiny) ** 2)
    yield Hypothesis("Gaussian weights at the start", abs(moment - 3) <= 6 * (96 / w.size) ** 0.5, moment, 3)
    distinct = np.unique(w[:, 0]).size  # half of m for pairs; in single precision a few may meet by chance
    yield Hypothesis(f"independent {units}, not pairs of equal ones", distinct > 0.75 * len(w), distinct, len(w))
