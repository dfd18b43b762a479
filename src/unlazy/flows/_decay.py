"""The residual's linear flow r' = -Θ Ω r with a frozen kernel, solved exactly; dL/df = Ω r for squared loss."""

from __future__ import annotations

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from unlazy._linalg import eigh
from unlazy._types import Outputs, Scalar
from unlazy.losses import Loss
from unlazy.networks import Samples


class Decay(eqx.Module):
    """The eigenbasis of Ω^½ Θ Ω^½ (n k x n k), in which every mode of the residual decays by itself."""

    loading: Float[Array, " nk"]  # the diagonal of Ω^½
    rates: Float[Array, " nk"]
    modes: Float[Array, "nk nk"]

    def __init__(self, kernel: Float[Array, "..."], data: Samples, loss: Loss) -> None:
        f = jnp.zeros_like(data.y)
        # Ω is the slope of the loss at unit residual, whatever its reduction, half and weights are.
        self.loading = jnp.sqrt(loss.slope(jnp.ones_like(f), f, data.weight)).reshape(-1)
        square = self.loading[:, None] * kernel.reshape(f.size, f.size) * self.loading[None, :]
        values, self.modes = eigh(square)
        self.rates = jnp.maximum(values, 0.0)

    def signal(self, residual: Outputs, time: Scalar) -> Outputs:
        """Ω ∫_0^t exp(-Θ Ω s) r ds, from t φ(λ t) mode by mode, without dividing by a zero eigenvalue."""
        exponent = self.rates * time
        safe = jnp.where(exponent > 0, exponent, 1.0)
        integral = time * jnp.where(exponent > 0, -jnp.expm1(-safe) / safe, 1.0)
        modes = self.modes.T @ (self.loading * residual.reshape(-1))
        return (self.loading * (self.modes @ (integral * modes))).reshape(residual.shape)
