"""Hypotheses that theorems of several papers share, and the accuracy to which the numbers of a run are known."""

from __future__ import annotations

import math
from collections.abc import Iterator

import jax.numpy as jnp
import numpy as np

from unlazy.flows import Descent, Trajectory
from unlazy.losses import Squared
from unlazy.networks import TwoLayer
from unlazy.theory.theorem import Hypothesis


def loss_slope(loss: Squared, n: int) -> float:
    """Return ω in dL/df = ω (f - y): 1 for the sum of ½ (f - y)², 1/n for its mean, twice as much without the half.

    Parameters
    ----------
    loss
        The loss.
    n
        Number of samples.
    """
    return (1 / n if loss.reduction == "mean" else 1.0) * (1.0 if loss.half else 2.0)


def squared_loss(run: Trajectory) -> tuple[Hypothesis, float]:
    """Require squared loss in any units, with equal weights of all samples; return also its `loss_slope`, or NaN.

    Parameters
    ----------
    run
        The run.
    """
    loss, alike = run.loss, run.data.weight is None
    slope = loss_slope(loss, run.data.n) if isinstance(loss, Squared) and alike else float("nan")
    return Hypothesis("squared loss, all samples alike", not math.isnan(slope)), slope


def gradient_flow(run: Trajectory) -> Hypothesis:
    """Require the flow itself, not steps of some size.

    Parameters
    ----------
    run
        The run.
    """
    flows = not isinstance(run.flow, Descent) and bool(np.isfinite(run.stats["error"]))
    return Hypothesis("gradient flow, followed with error control", flows)


def observed_later(run: Trajectory) -> Hypothesis:
    """Require an observation after the start: a rate needs an interval of time.

    Parameters
    ----------
    run
        The run.
    """
    return Hypothesis("an observation of the run after t = 0", bool(run.times.size and run.times[-1] > 0))


def gaussian_start(w: np.ndarray, units: str) -> Iterator[Hypothesis]:
    """Require rows drawn independently from N(0, I), as far as numbers can show it.

    The variance is 1 and the fourth moment, in units of its square, 3, both within six standard errors.

    Parameters
    ----------
    w
        Weights at the start, one row per neuron.
    units
        What the rows are called in the paper: "neurons", "nodes".
    """
    square = float(np.mean(w**2))
    yield Hypothesis("weights of variance 1 at the start", abs(square - 1) <= 6 * (2 / w.size) ** 0.5, square, 1)
    moment = float(np.mean(w**4) / max(square, np.finfo(float).tiny) ** 2)
    yield Hypothesis("Gaussian weights at the start", abs(moment - 3) <= 6 * (96 / w.size) ** 0.5, moment, 3)
    distinct = np.unique(w[:, 0]).size  # half of m for pairs; in single precision a few may meet by chance
    yield Hypothesis(f"independent {units}, not pairs of equal ones", distinct > 0.75 * len(w), distinct, len(w))


def rounding(run: Trajectory) -> float:
    """Return the relative rounding error of the numbers in a run.

    Parameters
    ----------
    run
        The run.
    """
    return float(jnp.finfo(run.data.x.dtype).eps)


def relative_error(run: Trajectory, precision: float) -> float:
    """Return the error of outputs relative to the targets: the flow's own estimate, and rounding.

    The estimates e of single steps are added up. At the kinks of a two-layer network this is far too much: a step is
    wrong by what happens where neurons cross a kink, and such errors have no common sign, so that they add up like
    √(Σ e²). That is at most √(tolerance Σ e). We allow for ten times either.

    Parameters
    ----------
    run
        The run.
    precision
        Relative rounding error, as `rounding` gives it.
    """
    total = float(run.stats["error"])
    tolerance = getattr(run.flow, "tolerance", None)
    if tolerance is not None and isinstance(run.start, TwoLayer) and run.start.activation.kinks:
        total = min(total, math.sqrt(float(tolerance) * total))
    return 10 * total + rounding_error(precision)


def rounding_error(precision: float) -> float:
    """Return the part of `relative_error` that is due to rounding.

    Parameters
    ----------
    precision
        Relative rounding error, as `rounding` gives it.
    """
    return 1e3 * precision
