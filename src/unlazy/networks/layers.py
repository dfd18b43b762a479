"""Layers of neurons: the one interface through which probes see and change what belongs to single neurons."""

from __future__ import annotations

import abc
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from unlazy._errors import UserError
from unlazy._types import Outputs, PyTree
from unlazy.activations import Activation
from unlazy.networks.prepared import Batch, raw_inputs

if TYPE_CHECKING:
    from unlazy.networks._base import Network

Judge = Callable[[Outputs], PyTree]
Rewire = Callable[[Array], Array]


class Layer(eqx.Module):
    """One layer of m neurons h_j(x) with responses σ(h_j(x)), as part of a network.

    A network lists its layers with `Network.layers`. Two methods are abstract: the pre-activations and the input
    weights. A layer that also defines ``outgoing`` and ``rewired`` can be weighed, reordered, pruned and merged.
    Methods that change neurons return a new network.
    """

    network: eqx.AbstractVar[Any]  # a `Network`; each layer names its own class
    name: eqx.AbstractVar[str]

    @abc.abstractmethod
    def preactivations(self, x: Batch) -> Float[Array, "rows m"]:
        """Return h_j(x); one row per sample, or per sample and place in a convolution."""

    @abc.abstractmethod
    def weights(self) -> Float[Array, "m d"]:
        """Return the input weights of every neuron, with its bias last where there is one."""

    @property
    def activation(self) -> Activation | None:
        """Activation σ, or None where it is unknown."""
        return getattr(self.network, "activation", None)

    @property
    def moves(self) -> bool:
        """Whether training can change the pre-activations."""
        return True

    def is_readout(self, x: Batch) -> bool:
        """Return whether the pre-activations on ``x`` are the outputs of the network, so that there are no neurons."""
        return False

    def kernels(self) -> Float[Array, "k d"] | None:
        """Return single convolution kernels, one row per pair of input and output channel; None for dense layers."""
        return None

    def outgoing(self) -> Float[Array, "m ..."]:
        """Return the weights by which each neuron's response enters the next layer."""
        raise UserError(
            f"{self._label()} does not define `outgoing`, so its neurons cannot be ranked: define it, or remove "
            "this probe."
        )

    def permute(self, order: Int[Array, " m"]) -> Network:
        """Return the network with the neurons in another order, each with all that belongs to it."""
        return self.rewired(lambda into: into[order], lambda out: out[order])

    def rewired(self, into: Rewire, out: Rewire) -> Network:
        """Return the network with new neurons in place of the old ones.

        Parameters
        ----------
        into, out
            Linear functions of an array whose first axis runs over the neurons. ``into`` is applied to the input
            weights and biases, ``out`` to the outgoing weights.
        """
        raise UserError(
            f"{self._label()} does not define `rewired`, so its neurons cannot be reordered, removed or merged: "
            "define it, or remove this probe."
        )

    def _label(self) -> str:
        return f"Layer '{self.name}' of {type(self.network).__name__}"

    def responses(self, x: Batch) -> Float[Array, "rows m"]:
        """Return σ(h_j(x)): the features that `Transfer` uses."""
        if self.activation is None:
            raise UserError(f"{self._label()} has no activation, so its responses are unknown: define `responses`.")
        return self.activation(self.preactivations(x))

    def importance(self) -> Float[Array, " m"]:
        """Return |w_j|² times the mean of the squared outgoing weights: the order in which neurons are pruned.

        In a two-layer network with read-outs ±1 this is λ_j |w_j|² of caron2023 section 6.2.
        """
        weights, out = self.weights(), self.outgoing()
        return jnp.mean(jnp.square(out).reshape(out.shape[0], -1), axis=1) * jnp.sum(jnp.square(weights), axis=1)

    def silence(self, kept: Float[Array, " m"]) -> Network:
        """Return the network in which each neuron's response is multiplied by ``kept``: 0 removes it, 1 keeps it."""
        return self.rewired(lambda w: w, lambda a: kept.reshape((-1,) + (1,) * (a.ndim - 1)) * a)

    def merge(self, into: Float[Array, "g m"], out: Float[Array, "g m"]) -> Network:
        """Return the network with g neurons in place of m: weights Σ_j into_gj w_j come in, Σ_j out_gj a_j go out."""
        return self.rewired(lambda w: jnp.tensordot(into, w, 1), lambda a: jnp.tensordot(out, a, 1))

    def nested(self, x: Batch, order: Int[Array, " m"], judge: Judge) -> PyTree:
        """Return ``judge(f(x))`` with only the first c neurons of ``order``, for c = 0, ..., m (a leading axis).

        This costs m + 1 evaluations of the network; where outputs are a sum over neurons use `nested_sums`, which
        costs one.
        """
        place, raw = jnp.argsort(order), raw_inputs(x)

        def one(count: Int[Array, ""]) -> PyTree:
            return judge(self.silence((place < count).astype(raw.dtype))(x))

        return jax.lax.map(one, jnp.arange(order.shape[0] + 1))


class InnerLayer(Layer):
    """A layer of another network, as part of the network around it."""

    @abc.abstractmethod
    def inner(self) -> Layer:
        """Return the layer of the other network."""

    @abc.abstractmethod
    def around(self, change: Callable[[Layer], Network]) -> Network:
        """Return the network around what ``change`` makes of the other network by its layer."""

    def preactivations(self, x: Batch) -> Float[Array, "rows m"]:
        return self.inner().preactivations(x)

    def weights(self) -> Float[Array, "m d"]:
        return self.inner().weights()

    def kernels(self) -> Float[Array, "k d"] | None:
        return self.inner().kernels()

    def outgoing(self) -> Float[Array, "m ..."]:
        return self.inner().outgoing()

    def permute(self, order: Int[Array, " m"]) -> Network:
        return self.around(lambda layer: layer.permute(order))

    def rewired(self, into: Rewire, out: Rewire) -> Network:
        return self.around(lambda layer: layer.rewired(into, out))

    def silence(self, kept: Float[Array, " m"]) -> Network:
        return self.around(lambda layer: layer.silence(kept))


def nested_sums(
    responses: Float[Array, "n m"],
    readout: Float[Array, "m *k"],
    order: Int[Array, " m"],
    judge: Judge,
    memory: float = 2.0**26,
) -> PyTree:
    """Compute `Layer.nested` where f = Σ_j c_j r_j(x): cumulative sums in the given order, block by block of neurons.

    A block takes about ``memory`` bytes, whatever m and n are.
    """
    n, m = responses.shape
    row = n * int(np.prod(readout.shape[1:], initial=1)) * responses.dtype.itemsize
    block = int(np.clip(memory // row, 1, m))
    blocks = -(-m // block)
    padded = jnp.concatenate([order, jnp.zeros(blocks * block - m, order.dtype)]).reshape(blocks, block)

    def add(f: Outputs, chosen: Int[Array, " b"]) -> tuple[Outputs, PyTree]:
        here = readout[chosen]
        each = jnp.einsum("nb,b...->bn...", responses[:, chosen], here)
        sums = f[None] + jnp.cumsum(each, axis=0)
        return sums[-1], jax.vmap(judge)(sums)

    nothing = jnp.zeros((n, *readout.shape[1:]), responses.dtype)
    _, judged = jax.lax.scan(add, nothing, padded)

    def joined(first: Array, rest: Array) -> Array:
        return jnp.concatenate([first[None], rest.reshape(blocks * block, *rest.shape[2:])[:m]])

    return jax.tree.map(joined, judge(nothing), judged)
