"""Small problems on which the theorems of caron2023 speak, or must not. Each is run once and then remembered."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp

from unlazy.activations import Activation
from unlazy.data import Dataset
from unlazy.flows import Descent, GradientFlow, Trajectory
from unlazy.losses import Squared
from unlazy.networks import Scaling, TwoLayer, Zipf, asymmetrical
from unlazy.papers.caron2023.theorems._setting import PROBES

HALF = asymmetrical(0.5, Zipf(0.5))
_TIMES = (0.0, 2.0, 8.0, 32.0)
# Where targets lie near the first outputs hardly a gate switches, and steps that solve the residual are exact.
_FLOW = GradientFlow(loss=Squared("sum"), tolerance=1e-5, method="exponential")


@functools.lru_cache(maxsize=16)
def at_start(
    activation: Activation, scaling: Scaling = HALF, *, width: int = 512, parallel: bool = False
) -> Trajectory:
    """`three_points` before the first step."""
    network, data = _three(activation, scaling, width, parallel)
    return Descent(loss=Squared("sum"))(network, data, (0.0,))


@functools.lru_cache(maxsize=16)
def three_points(
    activation: Activation, scaling: Scaling = HALF, *, near: float | None = None, parallel: bool = False
) -> Trajectory:
    """Three unit vectors in four dimensions, almost at right angles: κ_n is then about as large as it can be.

    ``near`` puts the targets so far from the first outputs, and ``parallel`` turns one input onto another.
    """
    network, data = _three(activation, scaling, 512, parallel)
    if near is not None:
        data = Dataset(data.x, network(data.x) + near * data.y / jnp.linalg.norm(data.y), name="near the start")
    return _FLOW(network, data, _TIMES, list(PROBES))


def _three(activation: Activation, scaling: Scaling, width: int, parallel: bool) -> tuple[TwoLayer, Dataset]:
    x = jnp.eye(3, 4) + 0.1 * jnp.array([[0.0, 1.0, 1.0, 1.0], [1.0, 0.0, -1.0, 1.0], [-1.0, 1.0, 0.0, -1.0]])
    x = x / jnp.linalg.norm(x, axis=1, keepdims=True)
    if parallel:
        x = x.at[1].set(x[0] / 2)
    network = TwoLayer(width, 4, activation=activation, scaling=scaling, key=jax.random.key(0))
    return network, Dataset(x, jnp.array([0.6, -0.3, 0.4]), name="three points")


@functools.lru_cache(maxsize=1)
def two_points() -> Trajectory:
    """Two unit vectors at right angles among 500 dimensions, with small targets: where Theorem 4.2 begins to speak."""
    data = Dataset(jnp.eye(2, 500), jnp.array([0.01, -0.005]), name="two points")
    network = TwoLayer(20_000, 500, scaling=asymmetrical(0.9, Zipf(0.5)), key=jax.random.key(0))
    return _FLOW(network, data, (0.0, 50.0, 500.0, 2500.0), list(PROBES))
