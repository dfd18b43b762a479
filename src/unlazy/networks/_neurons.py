"""The neurons of our networks, as layers."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from unlazy._errors import UserError
from unlazy._types import PyTree
from unlazy.activations import Activation, Relu
from unlazy.networks._base import Network, with_fields
from unlazy.networks._prepared import Batch
from unlazy.networks.blocks import AbstractBlock, Block, lengths, raw_columns
from unlazy.networks.layers import Judge, Layer, Rewire, nested_sums

if TYPE_CHECKING:
    from unlazy.networks.conv import ConvNet
    from unlazy.networks.stack import MeanFieldStack
    from unlazy.networks.two_layer import TwoLayer


class Hidden(Layer):
    """The neurons of a `TwoLayer` network; from Gram coordinates, `permute` and `rewired` lead to weights."""

    network: TwoLayer
    name: str = eqx.field(static=True, default="hidden")

    def _in_weights(self) -> TwoLayer:
        return self.network if self.network.gram is None else self.network.restore()

    def preactivations(self, x: Batch) -> Float[Array, "n m"]:
        """Return h_j(x)."""
        return self.network._sum().preactivations(x).T if self.network._in_gram(x) else self.network.features(x)[1]

    def weights(self) -> Float[Array, "m d"]:
        """Return w_j, with b_j last where there is one."""
        net = self._in_weights()
        w, b = net._weights(), net.b
        return w if b is None else jnp.concatenate([w, b[:, None]], axis=1)

    def outgoing(self) -> Float[Array, "m *k"]:
        """Return s_j a_j."""
        return self.network.readout()

    def permute(self, order: Int[Array, " m"]) -> TwoLayer:
        """Reorder weights, biases, read-outs and node scales."""
        net = self._in_weights()
        w, a, s, b = (None if leaf is None else leaf[order] for leaf in (net.w, net.a, net.s, net.b))
        return with_fields(net, w=w, a=a, s=s, b=b)

    def rewired(self, into: Rewire, out: Rewire) -> TwoLayer:
        """Replace the neurons; the read-out then carries the node scales."""
        net = self._in_weights()
        readout, b = out(net.readout()), None if net.b is None else into(net.b)
        return with_fields(net, w=into(net._weights()), b=b, a=readout, s=jnp.ones(readout.shape[0], net.s.dtype))

    def silence(self, kept: Float[Array, " m"]) -> TwoLayer:
        """Multiply the node scales."""
        return with_fields(self.network, s=self.network.s * kept)

    def nested(self, x: Batch, order: Int[Array, " m"], judge: Judge) -> PyTree:
        """Add up neurons, in one pass for all counts."""
        return nested_sums(self.responses(x), self.network.readout(), order, judge)


class Neurons(Layer):
    """Neurons (A_j, w_j, b_j) of one block; what changes them returns a network on raw inputs."""

    network: MeanFieldStack
    name: str = eqx.field(static=True)
    level: int = eqx.field(static=True)

    def _blocks(self) -> tuple[AbstractBlock, ...]:
        return self.network.restore().blocks

    def _block(self) -> Block:
        block = self._blocks()[self.level]
        assert isinstance(block, Block)
        return block

    @property
    def activation(self) -> Activation:
        """σ of this block."""
        return self._block().activation

    @property
    def moves(self) -> bool:
        """Whether training can change the pre-activations: not those of a first block on fixed features."""
        return self.level > 0 or not self._block().fixed

    def preactivations(self, x: Batch) -> Float[Array, "n m"]:
        """Return w_j·f^(l-1)(x) + b_j."""
        return self._block().hidden(raw_columns(self.network._path(x)[self.level])).T

    def weights(self) -> Float[Array, "m d"]:
        """Return w_j, with b_j last where there is one."""
        block = self._block()
        return block.w if block.b is None else jnp.concatenate([block.w, block.b[:, None]], axis=1)

    def outgoing(self) -> Float[Array, "m D"]:
        """Return s A_j; without low rank, what the next block multiplies with."""
        block = self._block()
        if block.a is not None or block.tied:
            return block.scale * _amplitudes(block)
        return block.scale * self._above(block).w.T

    def _above(self, block: Block) -> Block:
        blocks = self._blocks()
        if self.level + 1 == len(blocks) or block.skip:
            raise UserError(
                f"The neurons of {self.name} are the outputs of the network, or are added to its inputs: they cannot "
                "be weighed or changed one by one."
            )
        above = blocks[self.level + 1]
        assert isinstance(above, Block)
        return above

    def permute(self, order: Int[Array, " m"]) -> MeanFieldStack:
        """Reorder the neurons, each with its A, w and b."""
        block = self._block()
        a, w, b = (None if leaf is None else leaf[order] for leaf in (block.a, block.w, block.b))
        if a is not None or block.tied:
            return self._with(dataclasses.replace(block, a=a, w=w, b=b))
        above = self._above(block)  # without low rank the next block sees the neurons themselves
        moved = dataclasses.replace(block, w=w, b=b, c=block.c[order])
        return self._with(moved, dataclasses.replace(above, w=above.w[:, order]))

    def rewired(self, into: Rewire, out: Rewire) -> MeanFieldStack:
        """Replace the neurons; amplitudes that were tied to |w_j| become free, and 1/m that of the new width."""
        block = self._block()
        w, b = into(block.w), None if block.b is None else into(block.b)
        if block.a is not None or block.tied:
            ratio = w.shape[0] / block.width if block.mean_field else 1.0
            a = out(_amplitudes(block))
            return self._with(dataclasses.replace(block, a=a if ratio == 1 else ratio * a, w=w, b=b, tied=False))
        above = self._above(block)
        # The offsets of the channels that go are what the next block adds to its biases.
        bias = above.w @ block.c + (0.0 if above.b is None else above.b)
        moved = dataclasses.replace(block, w=w, b=b, c=jnp.zeros(w.shape[0], w.dtype))
        return self._with(moved, dataclasses.replace(above, w=out(above.w.T).T, b=bias))

    def _with(self, *changed: Block) -> MeanFieldStack:
        blocks = list(self._blocks())
        blocks[self.level : self.level + len(changed)] = changed
        network: Network = with_fields(self.network, blocks=tuple(blocks))
        return network

    def nested(self, x: Batch, order: Int[Array, " m"], judge: Judge) -> PyTree:
        """Add up the neurons of the last block in one pass; others need a pass for each count."""
        block, stack = self._block(), self.network
        if self.level + 1 < len(stack.blocks) or block.skip or not (block.tied or block.a is not None):
            return super().nested(x, order, judge)
        readout, offset = self.outgoing(), block.c
        if stack.scalar:
            readout, offset = readout[:, 0], offset[0]
        return nested_sums(self.responses(x), readout, order, lambda f: judge(f + jnp.broadcast_to(offset, f.shape)))


def _amplitudes(block: Block) -> Float[Array, "m D"]:
    return lengths(block.w)[:, None] if block.a is None else block.a


class Channels(Layer):
    """The output channels of one convolution: neurons on patches."""

    network: ConvNet
    name: str = eqx.field(static=True)
    index: int = eqx.field(static=True)

    def preactivations(self, x: Batch) -> Float[Array, "_ _"]:
        """Return h_β, one row per sample and place."""
        h = self.network.maps(x)[self.index]
        return h.reshape(-1, h.shape[-1])

    def weights(self) -> Float[Array, "_ _"]:
        """Return the kernels of every output channel with its bias last, (W_β; b_β)."""
        net = self.network
        return net.units[self.index] * joined(net.kernels[self.index], net.biases[self.index])

    def kernels(self) -> Float[Array, "_ _"]:
        """Return every kernel (input, output channel) by itself."""
        w = self.network.kernels[self.index]
        return self.network.units[self.index] * w.reshape(-1, w.shape[-1] ** 2)

    def outgoing(self) -> Float[Array, "_ ..."]:
        """Return the weights of the next layer by input channel."""
        return self.network.units[self.index + 1] * self._out()

    def _out(self) -> Float[Array, "_ ..."]:
        net = self.network
        if self.index + 1 < len(net.kernels):
            return jnp.swapaxes(net.kernels[self.index + 1], 0, 1)
        last = net.readout if net.dense is None else net.dense.T
        return jnp.swapaxes(last.reshape(-1, net.kernels[-1].shape[0], *last.shape[1:]), 0, 1)

    def permute(self, order: Int[Array, " m"]) -> ConvNet:
        """Reorder the channels."""
        return self.rewired(lambda into: into[order], lambda out: out[order])

    def rewired(self, into: Rewire, out: Rewire) -> ConvNet:
        """Replace the channels."""
        net, here = self.network, self.index
        kernels, biases = list(net.kernels), list(net.biases)
        kernels[here], biases[here] = into(kernels[here]), into(biases[here])
        moved = jnp.swapaxes(out(self._out()), 0, 1)
        changes: dict[str, Any] = {}
        if here + 1 < len(kernels):
            kernels[here + 1] = moved
        else:
            flat = moved.reshape(-1, *moved.shape[2:])
            changes = {"readout": flat} if net.dense is None else {"dense": flat.T}
        return with_fields(net, kernels=tuple(kernels), biases=tuple(biases), **changes)


class Dense(Layer):
    """The ReLU units between the last maps and the read-out."""

    network: ConvNet
    name: str = eqx.field(static=True, default="dense")

    @property
    def activation(self) -> Activation:
        """ReLU."""
        return Relu()

    def preactivations(self, x: Batch) -> Float[Array, "_ _"]:
        """Return h_j(x)."""
        last = self.network.activation(self.network.maps(x)[-1])
        return self.network._dense(last.reshape(last.shape[0], -1))

    def weights(self) -> Float[Array, "_ _"]:
        """Return the input weights of every unit with its bias last."""
        net = self.network
        assert net.dense is not None
        assert net.dense_bias is not None
        return net.units[len(net.kernels)] * jnp.concatenate([net.dense, net.dense_bias[:, None]], axis=1)

    def outgoing(self) -> Float[Array, "_ *k"]:
        """Return the read-out."""
        return self.network.units[-1] * self.network.readout

    def permute(self, order: Int[Array, " m"]) -> ConvNet:
        """Reorder the units."""
        return self.rewired(lambda into: into[order], lambda out: out[order])

    def rewired(self, into: Rewire, out: Rewire) -> ConvNet:
        """Replace the units."""
        net = self.network
        assert net.dense is not None
        assert net.dense_bias is not None
        return with_fields(net, dense=into(net.dense), dense_bias=into(net.dense_bias), readout=out(net.readout))


def joined(w: Float[Array, "_ _ _ _"], b: Float[Array, " _"]) -> Float[Array, "_ _"]:
    """θ_W,β = (W_β; b_β) of every output channel β: kernels by input channel, row, column, then the bias (eq. 33)."""
    return jnp.concatenate([w.reshape(w.shape[0], -1), b[:, None]], axis=1)
