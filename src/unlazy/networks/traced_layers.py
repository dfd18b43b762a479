"""Layers of neurons of networks that do not list any: wrapped models, and networks that define `__call__` only."""

from __future__ import annotations

from collections.abc import Mapping

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from unlazy._errors import UserError
from unlazy.kernels.problem import leaf_name
from unlazy.networks._base import Network, as_function
from unlazy.networks.layers import Layer
from unlazy.networks.prepared import Batch, raw_inputs
from unlazy.networks.tracing import TracedLayer, preactivations, trace_layers


class TracedNeurons(Layer):
    """A layer that was found by tracing a network, see `trace_layers`."""

    network: Network
    name: str = eqx.field(static=True)  # that of its weight without the name of the field that holds all parameters
    traced: str = eqx.field(static=True)  # its name for `trace_layers`
    sample: tuple[int, ...] = eqx.field(static=True)  # shape of one input

    def preactivations(self, x: Batch) -> Float[Array, "rows m"]:
        apply, params, _ = as_function(self.network)
        h = preactivations(apply, params, raw_inputs(x))[self.traced]
        return h.reshape(-1, h.shape[-1])

    def weights(self) -> Float[Array, "m d"]:
        apply, params, _ = as_function(self.network)
        leaves = {leaf_name(path): leaf for path, leaf in jax.tree_util.tree_flatten_with_path(params)[0]}
        kind = next(leaf.dtype for leaf in leaves.values() if eqx.is_inexact_array(leaf))
        layer = trace_layers(apply, params, jnp.zeros((1, *self.sample), kind))[self.traced]
        rows = layer.weights
        biases = [leaves[name].reshape(-1, 1) for name in layer.biases if leaves[name].size == len(rows)]
        return jnp.concatenate([rows, *(one.astype(rows.dtype) for one in biases)], axis=1)


def layers_on(network: Network, x: Batch) -> Mapping[str, Layer]:
    """Return the layers of a network: what its own `layers` says, else its products with trained weights.

    A network that defines `layers` and lists none has no neurons, such as a kernel machine, and is not traced. The
    read-out is left out: a layer that says so itself (`Layer.is_readout`), or the last product if it has as many units
    as the network has outputs.

    Parameters
    ----------
    network
        The network.
    x
        Inputs, of which only the shape is used.
    """
    if type(network).layers is not Network.layers:
        return {name: layer for name, layer in network.layers().items() if not layer.is_readout(x)}
    raw = raw_inputs(x)
    apply, params, _ = as_function(network)
    one = jax.ShapeDtypeStruct((1, *raw.shape[1:]), raw.dtype)
    try:
        # As a list: JAX would sort a dictionary by its names.
        in_order = lambda *given: list(trace_layers(*given).values())  # noqa: E731
        found: list[TracedLayer] = eqx.filter_eval_shape(in_order, apply, params, one)
    except UserError:  # no product was found
        return {}
    outputs = eqx.filter_eval_shape(network, one)
    if found[-1].preactivations.shape[1:] == (int(np.prod(outputs.shape)),):
        del found[-1]
    return {
        short_name(layer.name): TracedNeurons(network, short_name(layer.name), layer.name, raw.shape[1:])
        for layer in found
    }


def short_name(name: str) -> str:
    """Return the name of a weight without that of the field in which a wrapped model has all its parameters."""
    return name.removeprefix("parameters").lstrip(".") or "weight"
