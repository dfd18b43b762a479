"""The neurons of a mean-field stack's blocks, as layers."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from unlazy._errors import UserError
from unlazy._types import PyTree
from unlazy.activations import Activation
from unlazy.networks._base import Network, with_fields
from unlazy.networks._block import AbstractBlock, Block, lengths, raw_columns
from unlazy.networks._prepared import Batch
from unlazy.networks.layers import Judge, Layer, Rewire, nested_sums

if TYPE_CHECKING:
    from unlazy.networks.stack import MeanFieldStack


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
