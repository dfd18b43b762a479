"""How far weights and features have moved, and which neurons are active: lazy training or feature learning."""

from collections.abc import Mapping
from typing import Annotated

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from unlazy._checked import MAY_BE_INFINITE
from unlazy._errors import UserError
from unlazy._types import Count
from unlazy.networks import Batch, Layer, MeanFieldStack, Network, layers_on
from unlazy.probes.observation import Observation, Probe


def layers_of(network: Network, x: Batch | None = None) -> Mapping[str, Layer]:
    """Return the layers of neurons; raise an error if there are none.

    Parameters
    ----------
    network
        The network.
    x
        Inputs; if given, layers that the network does not list are found by tracing it on them.
    """
    layers = network.layers() if x is None else layers_on(network, x)
    if not layers:
        raise UserError(f"{type(network).__name__} has no layers of neurons: define `layers`, or remove this probe.")
    return layers


def moving_layers(network: Network, x: Batch | None = None) -> dict[str, Layer]:
    """Return the layers whose pre-activations training can change."""
    return {name: layer for name, layer in layers_of(network, x).items() if layer.moves}


class WeightMovement(Probe):
    """|w_j(t) - w_j(0)| of every neuron, by layer (caron2023 figures 1-2)."""

    def __call__(self, obs: Observation) -> dict[str, Float[Array, "..."]]:
        return obs.network.movement(obs.start)


class FeatureMovement(Probe):
    """(1/m) Σ_j |h_j(x; t) - h_j(x; 0)|, averaged over the training inputs, by layer.

    chen2022 eq. 15: in the mean-field scaling it is at least |Δf(x)| / (c L_σ); in the NTK scaling it falls like m^-½.
    """

    def __call__(self, obs: Observation) -> dict[str, Float[Array, ""]]:
        now, start = moving_layers(obs.network, obs.x), layers_on(obs.start, obs.x)
        return {
            name: jnp.mean(jnp.abs(layer.preactivations(obs.x) - start[name].preactivations(obs.x)))
            for name, layer in now.items()
        }


class FeaturePair(Probe):
    """Features h_j(x_1) and h_j(x_2) of each neuron at two inputs, by layer: chen2022 figure 4, row 2.

    As there, x_1 is a training input (``train``) and x_2 a test input (``test``): the first of each set.

    Parameters
    ----------
    neurons
        Number of neurons, counted from the first; all if omitted.
    """

    neurons: Count | None = eqx.field(static=True, default=None)

    def __call__(self, obs: Observation) -> dict[str, dict[str, Float[Array, " m"]]]:
        both = {"train": obs.x[:1], "test": obs.x_test[:1]}
        return {
            name: {which: layer.preactivations(x)[0, : self.neurons] for which, x in both.items()}
            for name, layer in moving_layers(obs.network, obs.x).items()
        }


class ActiveShare(Probe):
    """Smallest fraction, over training inputs, of neurons with h_j(x) in an interval, by layer.

    It is η^t of chen2022 Lemma 1 (eq. 18).

    Parameters
    ----------
    left, right
        The ends of the interval, such as those of ``activation.active``. By default it is (0, ∞).
    """

    left: Annotated[float, MAY_BE_INFINITE] = eqx.field(static=True, default=0.0)
    right: Annotated[float, MAY_BE_INFINITE] = eqx.field(static=True, default=float("inf"))

    def __call__(self, obs: Observation) -> dict[str, Float[Array, ""]]:
        def smallest(h: Float[Array, "n m"]) -> Float[Array, ""]:
            return jnp.min(jnp.mean(((h > self.left) & (h < self.right)).astype(h.dtype), axis=1))

        return {
            name: smallest(layer.preactivations(obs.x)) for name, layer in moving_layers(obs.network, obs.x).items()
        }


def raw_stack(network: Network) -> MeanFieldStack:
    """Return the stack on raw inputs, whatever coordinates it is trained in."""
    raw = network.restore()
    if not isinstance(raw, MeanFieldStack):
        raise UserError(f"Channels are those of a MeanFieldStack, and {type(raw).__name__} has none: drop this probe.")
    return raw


class TrainedNeurons(Probe):
    """The trained parameters of each neuron of a stack, by block: a row (A_j, w_j, b_j) per neuron.

    Two networks that share these neurons at the start are compared by them (aiad2026 Theorem 2.3).

    Parameters
    ----------
    neurons
        Number of neurons of each block, counted from the first; all if omitted.
    """

    neurons: Count | None = eqx.field(static=True, default=None)

    def __call__(self, obs: Observation) -> dict[str, Float[Array, "..."]]:
        rows = raw_stack(obs.network).trained_rows()
        if not rows:
            raise UserError("No neuron of this stack is trained: remove this probe.")
        return {name: values[: self.neurons] for name, values in rows.items()}
