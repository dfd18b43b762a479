"""What theorems of several papers ask of a run: its loss, its time, how well it is known."""

from __future__ import annotations

import numpy as np

from unlazy._errors import UserError
from unlazy.flows import Descent, Trajectory
from unlazy.losses import Squared
from unlazy.networks import TwoLayer
from unlazy.theory._base import Hypothesis


def loss_slope(run: Trajectory) -> float:
    """ω in dL/df = ω (f - y): 1 for the sum of ½ (f - y)², 1/n for its mean, twice as much without the half."""
    assert isinstance(run.loss, Squared)
    return (1 / run.data.n if run.loss.reduction == "mean" else 1.0) * (1.0 if run.loss.half else 2.0)


def squared_loss(run: Trajectory) -> Hypothesis:
    """Squared loss, in any units."""
    return Hypothesis("squared loss, all samples alike", isinstance(run.loss, Squared) and run.data.weight is None)


def gradient_flow(run: Trajectory) -> Hypothesis:
    """The flow itself, not steps of some size."""
    flows = not isinstance(run.flow, Descent) and bool(np.isfinite(run.stats["error"]))
    return Hypothesis("gradient flow, followed with error control", flows)


def looked_later(run: Trajectory) -> Hypothesis:
    """A rate needs a stretch of time."""
    return Hypothesis("a look at the run after t = 0", bool(run.times.size and run.times[-1] > 0))


def relative_error(run: Trajectory, precision: float) -> float:
    """How well outputs are known, relative to the targets: the flow's own estimate of its error, and rounding."""
    # The estimates of single steps are added up; ten times that is what we stake on it.
    return 10 * run.stats["error"] + 1e3 * precision


def probability(delta: float) -> None:
    """Refuse a failure probability that is none."""
    if not 0 < delta < 1:
        raise UserError(f"A failure probability delta lies between 0 and 1, so {delta} does not: try 0.05.")


def no_biases(network: TwoLayer) -> Hypothesis:
    """Pre-activations are linear in the features."""
    return Hypothesis("no biases", network.b is None)


def gaussian_weights(w: np.ndarray) -> Hypothesis:
    """A law whose fourth moment is that of a Gaussian, 3 in units of the variance, within six standard errors."""
    moment = float(np.mean(w**4) / max(np.mean(w**2), np.finfo(float).tiny) ** 2)
    return Hypothesis("Gaussian weights at the start", abs(moment - 3) <= 6 * (96 / w.size) ** 0.5, moment, 3)
