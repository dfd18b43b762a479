"""How far weights and features have moved, and which neurons are active: what tells lazy from feature learning."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from unlazy._errors import UserError
from unlazy.activations import Activation
from unlazy.data import Dataset
from unlazy.losses import Loss
from unlazy.networks import Network
from unlazy.probes._base import Probe


class WeightMovement(Probe):
    """|w_j(t) - w_j(0)| of every neuron, by layer (caron2023 figures 1-2)."""

    def __call__(self, now: Network, start: Network, data: Dataset, loss: Loss) -> dict[str, Float[Array, " m"]]:
        """Measure in weight space."""
        return now.movement(start)


class FeatureMovement(Probe):
    """(1/m) Σ_j |h_j(x; t) - h_j(x; 0)|, averaged over the training inputs, by layer.

    chen2022 eq. 15: in the mean-field scaling it is at least |Δf(x)| / (c L_σ); in the NTK scaling it falls like m^-½.
    """

    def __call__(self, now: Network, start: Network, data: Dataset, loss: Loss) -> dict[str, Float[Array, ""]]:
        """Measure in function space."""
        before, after = start.hidden(data.x), now.hidden(data.x)
        return {layer: jnp.mean(jnp.abs(after[layer] - before[layer])) for layer in after}


class ActiveShare(Probe):
    """Smallest share, over training inputs, of neurons with h_j(x) in the interval (left, right), by layer.

    It is η^t of chen2022 Lemma 1 (eq. 18); take the interval from the activation: ``activation.active``.
    """

    left: float = eqx.field(static=True, default=0.0)
    right: float = eqx.field(static=True, default=float("inf"))

    def __call__(self, now: Network, start: Network, data: Dataset, loss: Loss) -> dict[str, Float[Array, ""]]:
        """Count neurons."""

        def smallest(h: Float[Array, "n m"]) -> Float[Array, ""]:
            inside = ((h > self.left) & (h < self.right)).astype(h.dtype)
            return jnp.min(jnp.mean(inside, axis=1))

        return {layer: smallest(h) for layer, h in now.hidden(data.x).items()}


class MeanSquareSlope(Probe):
    """Smallest mean, over training inputs, of σ'(h_j(x))² over the neurons j, by layer.

    Times 2 c² λ_min(G) it is the rate at which chen2022 eq. 14 sees the loss fall at least.
    """

    def __call__(self, now: Network, start: Network, data: Dataset, loss: Loss) -> dict[str, Float[Array, ""]]:
        """Average slopes."""
        sigma = getattr(now, "activation", None)
        if not isinstance(sigma, Activation):
            raise UserError(f"{type(now).__name__} has no activation whose slopes could be averaged: leave this out.")
        return {
            layer: jnp.min(jnp.mean(jnp.square(sigma.derivative(h)), axis=1)) for layer, h in now.hidden(data.x).items()
        }
