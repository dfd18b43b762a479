"""The residual's linear flow r' = -Θ Ω r with a frozen kernel, solved exactly; dL/df = Ω r for squared loss."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from unlazy._types import Outputs, PyTree, Scalar
from unlazy.data import Dataset
from unlazy.flows._state import scaled
from unlazy.losses import Loss
from unlazy.networks import Network, divide, trained_rates


class Decay(eqx.Module):
    """The eigenbasis of Ω^½ Θ Ω^½ (n k x n k), in which every mode of the residual decays by itself."""

    loading: Float[Array, " nk"]  # the diagonal of Ω^½
    rates: Float[Array, " nk"]
    modes: Float[Array, "nk nk"]

    def __init__(self, network: Network, data: Dataset, loss: Loss) -> None:
        f = jnp.zeros_like(data.y)
        # Ω is the slope of the loss at unit residual, whatever its reduction, half and weights are.
        self.loading = jnp.sqrt(loss.slope(jnp.ones_like(f), f, data.weight)).reshape(-1)
        kernel = network.tangent_kernel(data.x, data.x).reshape(f.size, f.size)
        values, self.modes = jnp.linalg.eigh(self.loading[:, None] * kernel * self.loading[None, :])
        self.rates = jnp.maximum(values, 0.0)

    def signal(self, residual: Outputs, time: Scalar) -> Outputs:
        """Ω ∫_0^t exp(-Θ Ω s) r ds, from t φ(λ t) mode by mode, without dividing by a zero eigenvalue."""
        exponent = self.rates * time
        safe = jnp.where(exponent > 0, exponent, 1.0)
        integral = time * jnp.where(exponent > 0, -jnp.expm1(-safe) / safe, 1.0)
        modes = self.modes.T @ (self.loading * residual.reshape(-1))
        return (self.loading * (self.modes @ (integral * modes))).reshape(residual.shape)


def response(network: Network, data: Dataset, signal: Outputs) -> PyTree:
    """-R J^T u: how the trained parameters answer a signal u on the outputs, with the Jacobian of ``network``."""
    trained, frozen = divide(network)
    _, pull = jax.vjp(lambda leaves: eqx.combine(leaves, frozen)(data.x), trained)
    return scaled(pull(signal)[0], trained_rates(network), -1.0)
