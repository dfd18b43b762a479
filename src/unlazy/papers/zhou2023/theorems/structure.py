"""Two-layer networks as zhou2023 writes them, of any class: convolutional, dense, or your own.

A network has this form if it is a sum over the neurons of its one layer (`Network.layers`),

    f_ik = Σ_(u,β) a_(u,β,k) σ(P_iu·θ_W,β),

and exactly θ_W and a are trained. P_iu is what multiplies the weights of a neuron: the patch of sample i at place u
with a 1 for the bias, or the inputs of a dense network, which has one place. Everything here is computed from
`Layer.weights`, `Layer.outgoing`, `Layer.preactivations` and `Network.rates`.
"""

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from unlazy._errors import UserError
from unlazy.activations import Activation
from unlazy.data import Dataset
from unlazy.networks import Layer, Network, split_trained, trained_rates

_ALIKE = 1e-5  # relative difference of rates or outputs that may be rounding, also in single precision
_BLOCK = 64  # samples at a time
_ONLY = "Only two layers that are both trained, a sum over neurons, have a linear flow at zero weights"


@dataclasses.dataclass(frozen=True, eq=False)
class TwoLayerForm:
    """A network as a sum over the neurons of one layer, all of whose parameters are trained.

    Parameters
    ----------
    network, layer
        The network, and the name of its layer.
    activation
        σ.
    weights, readouts
        θ_W, (M, d), and θ_a, (M, places x outputs).
    rates
        Learning-rate factors of θ_W and of θ_a.
    put
        Function of arrays of the shapes of `Layer.weights` and `Layer.outgoing` that returns the trained part of the
        network with these values.
    """

    network: Network
    layer: str
    activation: Activation
    weights: np.ndarray
    readouts: np.ndarray
    rates: tuple[float, float]
    put: Callable[[Any, Any], Any]

    def neurons(self, network: Network | None = None) -> Layer:
        """Return the layer of this network, or of another one with the same structure."""
        return (self.network if network is None else network).layers()[self.layer]

    def patches(self, data: Dataset) -> Iterator[tuple[slice, np.ndarray]]:
        """Yield P_iu of a block of samples at a time: a slice, and an array (samples, places, d).

        Pre-activations are linear in θ_W, so a neuron whose weights are a unit vector gives one column of P. All
        columns take d/M evaluations of the layer.
        """
        m, d = self.weights.shape
        _, frozen = split_trained(self.network)
        read = self.neurons().outgoing()
        parts = [np.eye(d)[first : first + m] for first in range(0, d, m)]
        shown = [np.concatenate([part, np.zeros((m - len(part), d))]) for part in parts]
        networks = [eqx.combine(self.put(jnp.asarray(one, read.dtype), jnp.zeros_like(read)), frozen) for one in shown]
        for first in range(0, data.n, _BLOCK):
            some = slice(first, min(first + _BLOCK, data.n))
            h = [np.asarray(self.neurons(one).preactivations(data.x[some]), float) for one in networks]
            columns = np.concatenate(h, axis=1)[:, :d]
            yield some, columns.reshape(some.stop - some.start, -1, d)

    def check_sum(self, data: Dataset) -> None:
        """Raise an error unless f is the sum over neurons, on 64 inputs and at weights where σ is not linear."""
        neurons, (_, frozen) = self.neurons(), split_trained(self.network)
        large = [one / (float(jnp.abs(one).max()) or 1.0) for one in (neurons.weights(), neurons.outgoing())]
        network, x = eqx.combine(self.put(*large), frozen), data.x[:_BLOCK]
        h = self.neurons(network).preactivations(x)
        responses = np.asarray(self.activation(h), float).reshape(len(x), -1, len(self.weights))
        out = np.asarray(large[1], float).reshape(len(self.weights), responses.shape[1], -1)
        f = np.einsum("iuj,juk->ik", responses, out)
        terms = np.einsum("iuj,juk->ik", np.abs(responses), np.abs(out))
        if np.abs(np.asarray(network(x)).reshape(f.shape) - f).max() > _ALIKE * terms.max():
            raise UserError(f"{_ONLY}: the outputs of {type(self.network).__name__} are not that sum.")


def two_layer_form(network: Network) -> TwoLayerForm:
    """Read a network as a sum over the neurons of its one layer, all of whose parameters are trained.

    Parameters
    ----------
    network
        The network.
    """
    layers, name = network.layers(), type(network).__name__
    if len(layers) != 1:
        raise UserError(f"{_ONLY}: {name} has {len(layers)} layers of neurons. Take one (dense = None in a ConvNet).")
    ((layer, neurons),) = layers.items()
    if neurons.activation is None:
        raise UserError(
            f"{_ONLY}: layer '{layer}' of {name} does not say what its activation is. Give its `Layer` an activation."
        )
    trained, frozen = split_trained(network)

    def shown(leaves: Any) -> tuple[Any, Any]:
        one = eqx.combine(leaves, frozen).layers()[layer]
        return one.weights(), one.outgoing()

    both, push = jax.linearize(shown, trained)
    # Each weight is a parameter times a constant u, so that applying the transpose gives the parameter times u².
    pull = jax.linear_transpose(push, trained)
    (ones,) = pull(jax.tree.map(jnp.ones_like, both))
    squares = push(ones)
    rates = push(jax.tree.map(lambda rate, leaf: rate * leaf, trained_rates(network), ones))
    means = []
    for what, rate in zip(("input weights", "read-outs"), rates, strict=True):
        least, largest = float(jnp.min(rate)), float(jnp.max(rate))
        if not least > 0:
            raise UserError(
                f"{_ONLY}: the {what} of {name} are frozen. Train them (train_readout = True in a TwoLayer)."
            )
        if largest - least > _ALIKE * largest:
            raise UserError(
                f"{_ONLY} at one rate: those of the {what} of {name} lie between {least:g} and {largest:g}. Give them "
                "equal rates."
            )
        means.append(float(np.mean(np.asarray(rate, float))))
    at_zero = shown(jax.tree.map(jnp.zeros_like, trained))
    counted = sum(leaf.size for leaf in jax.tree.leaves(trained)) == sum(one.size for one in both)
    if not counted or any(bool(jnp.any(one != 0)) for one in at_zero):
        raise UserError(
            f"{_ONLY}: {name} has other trained parameters. Take a network without biases of the outputs "
            "(output_bias = False in a ConvNet)."
        )

    def put(weights: Any, outgoing: Any) -> Any:
        return pull(tuple(new / square for new, square in zip((weights, outgoing), squares, strict=True)))[0]

    weights, out = (np.asarray(one, float) for one in both)
    rates, readouts = (means[0], means[1]), out.reshape(len(out), -1)
    return TwoLayerForm(network, layer, neurons.activation, weights, readouts, rates, put)
