"""Hypotheses that theorems of several papers share, and the accuracy to which the numbers of a run are known.

The argument ``run`` is always the `Trajectory` on which a theorem is checked.
"""

import math
from collections.abc import Iterator

import jax.numpy as jnp
import numpy as np

from unlazy.flows import Descent, Trajectory
from unlazy.losses import Squared
from unlazy.networks import TwoLayer
from unlazy.theory.theorem import Hypothesis


def loss_slope(loss: Squared, n: int) -> float:
    """Return ω in dL/df = ω (f - y): 1 for the sum of ½ (f - y)² over n samples, 1/n for the mean, twice without ½."""
    return (1 / n if loss.reduction == "mean" else 1.0) * (1.0 if loss.half else 2.0)


def squared_loss(run: Trajectory) -> tuple[Hypothesis, float]:
    """Require a squared loss in which all samples have the same weight; return also its `loss_slope`, or NaN."""
    loss, alike = run.loss, run.data.weight is None
    slope = loss_slope(loss, run.data.n) if isinstance(loss, Squared) and alike else float("nan")
    return Hypothesis("squared loss, with equal weights of all samples", not math.isnan(slope)), slope


def gradient_flow(run: Trajectory) -> Hypothesis:
    """Require the flow itself, not descent with steps of finite size."""
    flows = not isinstance(run.flow, Descent) and bool(np.isfinite(run.stats["error"]))
    return Hypothesis("gradient flow, followed with error control", flows)


def observed_later(run: Trajectory) -> Hypothesis:
    """Require an observation after the start: a rate needs an interval of time."""
    return Hypothesis("an observation of the run after t = 0", bool(run.times.size and run.times[-1] > 0))


def gaussian_start(w: np.ndarray, units: str) -> Iterator[Hypothesis]:
    """Require initial weights ``w`` whose rows are drawn independently from N(0, I), as far as numbers can show it.

    The variance must be 1, and the fourth moment over the squared variance 3, both within six standard errors.
    ``units`` is the paper's word for the rows: "neurons", "nodes".
    """
    square = float(np.mean(w**2))
    yield Hypothesis("weights of variance 1 at the start", abs(square - 1) <= 6 * (2 / w.size) ** 0.5, square, 1)
    moment = float(np.mean(w**4) / max(square, np.finfo(float).tiny) ** 2)
    yield Hypothesis("Gaussian weights at the start", abs(moment - 3) <= 6 * (96 / w.size) ** 0.5, moment, 3)
    distinct = np.unique(w[:, 0]).size  # m/2 for pairs; in single precision a few coincide by chance
    yield Hypothesis(f"independent {units}, not equal pairs", distinct > 0.75 * len(w), distinct, len(w))


def rounding(run: Trajectory) -> float:
    """Return the relative rounding error of the numbers in a run."""
    return float(jnp.finfo(run.data.x.dtype).eps)


def relative_error(run: Trajectory, precision: float) -> float:
    """Return the error of outputs relative to the targets: the flow's own estimate, and rounding (``precision``).

    The estimates e of single steps are added. At the kinks of a two-layer network the sum is far too large: the error
    of a step comes from neurons that cross a kink, and such errors have no common sign, so that they add up like
    √(Σ e²), which is at most √(tolerance Σ e). We allow for ten times either.
    """
    total = float(run.stats["error"])
    tolerance = getattr(run.flow, "tolerance", None)
    if tolerance is not None and isinstance(run.start, TwoLayer) and run.start.activation.kinks:
        total = min(total, math.sqrt(float(tolerance) * total))
    return 10 * total + rounding_error(precision)


def rounding_error(precision: float) -> float:
    """Return the part of `relative_error` that is due to rounding, for a ``precision`` that `rounding` returned."""
    return 1e3 * precision
