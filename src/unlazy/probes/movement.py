"""How far weights and features have moved, and which neurons are active: lazy training against feature learning."""

from collections.abc import Mapping

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from unlazy._errors import UserError
from unlazy._observation import Observation
from unlazy.networks import Layer, MeanFieldStack, Network
from unlazy.probes._base import Probe


def layers_of(network: Network) -> Mapping[str, Layer]:
    """Return the layers of neurons; raise an error if there are none."""
    layers = network.layers()
    if not layers:
        raise UserError(
            f"{type(network).__name__} has no layers of neurons: define its method `layers`, or remove this probe."
        )
    return layers


def moving_layers(network: Network) -> dict[str, Layer]:
    """Return the layers whose pre-activations training can change."""
    return {name: layer for name, layer in layers_of(network).items() if layer.moves}


class WeightMovement(Probe):
    """|w_j(t) - w_j(0)| of every neuron, by layer (caron2023 figures 1-2)."""

    def __call__(self, obs: Observation) -> dict[str, Float[Array, "..."]]:
        """Measure in weight space."""
        return obs.network.movement(obs.start)


class FeatureMovement(Probe):
    """(1/m) Σ_j |h_j(x; t) - h_j(x; 0)|, averaged over the training inputs, by layer.

    chen2022 eq. 15: in the mean-field scaling it is at least |Δf(x)| / (c L_σ); in the NTK scaling it falls like m^-½.
    """

    def __call__(self, obs: Observation) -> dict[str, Float[Array, ""]]:
        """Measure in function space."""
        now, start = moving_layers(obs.network), obs.start.layers()
        return {
            name: jnp.mean(jnp.abs(layer.preactivations(obs.x) - start[name].preactivations(obs.x)))
            for name, layer in now.items()
        }


class ActiveShare(Probe):
    """Smallest fraction, over training inputs, of neurons with h_j(x) in an interval, by layer.

    It is η^t of chen2022 Lemma 1 (eq. 18).

    Parameters
    ----------
    left, right
        The ends of the interval, such as those of ``activation.active``. By default it is (0, ∞).
    """

    left: float = eqx.field(static=True, default=0.0)
    right: float = eqx.field(static=True, default=float("inf"))

    def __call__(self, obs: Observation) -> dict[str, Float[Array, ""]]:
        """Count neurons."""

        def smallest(h: Float[Array, "n m"]) -> Float[Array, ""]:
            inside = ((h > self.left) & (h < self.right)).astype(h.dtype)
            return jnp.min(jnp.mean(inside, axis=1))

        return {name: smallest(layer.preactivations(obs.x)) for name, layer in moving_layers(obs.network).items()}


class MeanSquareSlope(Probe):
    """Smallest mean, over training inputs, of σ'(h_j(x))² over the neurons j, by layer.

    Times 2 c² λ_min(G) it is the lower bound of chen2022 eq. 14 on the rate at which the loss falls.
    """

    def __call__(self, obs: Observation) -> dict[str, Float[Array, ""]]:
        """Average slopes."""

        def smallest(name: str, layer: Layer) -> Float[Array, ""]:
            if layer.activation is None:
                raise UserError(f"Layer '{name}' has no activation whose slopes could be averaged: remove this probe.")
            return jnp.min(jnp.mean(jnp.square(layer.activation.derivative(layer.preactivations(obs.x))), axis=1))

        return {name: smallest(name, layer) for name, layer in moving_layers(obs.network).items()}


def raw_stack(network: Network) -> MeanFieldStack:
    """The stack on raw inputs, whatever coordinates it is trained in."""
    there = network.restore()
    if not isinstance(there, MeanFieldStack):
        raise UserError(
            f"Channels are those of a MeanFieldStack, and {type(there).__name__} has none: remove this probe."
        )
    return there


class TrainedNeurons(Probe):
    """The trained parameters of each neuron of a stack, by block: a row (A_j, w_j, b_j) per neuron.

    Two networks that share these neurons at the start are compared by them (aiad2026 Theorem 2.3).

    Parameters
    ----------
    neurons
        Number of neurons of each block, from the first on; all if omitted.
    """

    neurons: int | None = eqx.field(static=True, default=None)

    def __call__(self, obs: Observation) -> dict[str, Float[Array, "..."]]:
        """Read the rows."""
        rows = raw_stack(obs.network).trained_rows()
        if not rows:
            raise UserError("No neuron of this stack is trained: remove this probe.")
        return {name: values[: self.neurons] for name, values in rows.items()}
