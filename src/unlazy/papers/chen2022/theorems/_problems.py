"""Small problems on which the theorems of chen2022 speak, or must not."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from unlazy.activations import Activation
from unlazy.data import Dataset
from unlazy.flows import GradientFlow, Trajectory
from unlazy.losses import Squared
from unlazy.networks import Embedding, Scaling, TwoLayer, mean_field
from unlazy.theory._base import Theorem

# Two points, almost at right angles and so small that tanh neurons sit well inside their active interval. Then the
# guarantees begin at read-outs and widths that a laptop holds: ĉ of about 60 |y| and a few hundred neurons.
_SIZE = 1e-4
_READOUT, _WIDTH, _TIMES = 30.0, 4096, (0.0, 10.0, 20.0, 40.0)


def small_inputs(
    theorem: Theorem,
    *,
    activation: Activation | None = None,
    embedding: Embedding | None = None,
    scaling: Scaling = mean_field,
    readout: float = _READOUT,
    parallel: bool = False,
) -> Trajectory:
    """Two nearly orthogonal (or parallel) inputs with |x|²/d = 1e-4, seen through all probes that ``theorem`` needs."""
    x = jnp.sqrt(2 * _SIZE) * jnp.array([[1.0, 0.0], [1.0, 0.0] if parallel else [0.2, 0.96**0.5]])
    data = Dataset(x, jnp.array([0.09, -0.04]), name="two small inputs")
    key, made = jax.random.key(0), {"activation": activation, "embedding": embedding, "scaling": scaling}
    network = TwoLayer(_WIDTH, 2, readout=readout, key=key, **made)
    flow = GradientFlow(loss=Squared("sum"), tolerance=1e-5)
    return flow(network, data, _TIMES, list(theorem.needs(network, data)))
