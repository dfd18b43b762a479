"""What flows judge their errors by: averages over neurons, which are smooth where single neurons are not."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

from unlazy._errors import UserError
from unlazy._types import Outputs, Scalar
from unlazy.data import Dataset
from unlazy.networks import Batch, Samples

WATCHED = 64  # test inputs on which a flow judges its own error


def check_tolerance(tolerance: np.ndarray, step: np.ndarray | None, data: Dataset) -> None:
    """Refuse a tolerance that rounding hides, or a constant step that leads nowhere."""
    eps = float(jnp.finfo(data.x.dtype).eps)
    if step is None and not float(tolerance) >= 64 * eps:
        raise UserError(
            f"A tolerance of {float(tolerance):g} is not above rounding: try 1e-4, or {64 * eps:.0e} at least."
        )
    if step is not None and not float(step) > 0:
        raise UserError(f"A constant step must be positive, not {float(step):g}.")


def output_scale(f: Outputs, data: Samples) -> Scalar:
    """Root mean square of the targets, to which the tolerance refers; of the outputs where all targets are zero."""
    targets, outputs = (jnp.sqrt(jnp.mean(jnp.square(values))) for values in (data.y, f))
    scale = jnp.where(targets > 0, targets, outputs)
    return jnp.where(scale > 0, scale, 1.0)


def watched(data: Samples) -> Batch:
    """The inputs on which errors are judged: all that are trained on, and some of the test inputs."""
    return data.judged(WATCHED)
