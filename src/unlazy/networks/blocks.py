"""The blocks of a mean-field stack, and their neurons as layers.

Blocks work on columns, (channels, samples): all products then have their long axes where memory is contiguous, which
makes a training step twice as fast on CPUs as rows do.
"""

from __future__ import annotations

import abc
import dataclasses
from typing import TYPE_CHECKING

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from unlazy._errors import UserError
from unlazy._types import PyTree
from unlazy.activations import Activation
from unlazy.networks._base import with_fields
from unlazy.networks.layers import Judge, Layer, Rewire, nested_sums
from unlazy.networks.linear import Weights
from unlazy.networks.prepared import Batch, PreparedInputs

if TYPE_CHECKING:
    from unlazy.networks.stack import MeanFieldStack

Columns = Float[Array, "d n"]
Channels = Float[Array, "D n"]
Signals = Float[Array, "k D n"]  # of each output by each channel, at each sample
Lower = Float[Array, "k d n"]  # the same, by each input of the block
OtherColumns = Float[Array, "d p"]
OtherSignals = Float[Array, "l D p"]
Overlap = Float[Array, "n k p l"]
Inputs = Columns | PreparedInputs
OtherInputs = OtherColumns | PreparedInputs


class AbstractBlock(eqx.Module):
    """One block F of a stack, as a function of columns, or of a handle that was prepared for it.

    Blocks above the first are of the class `Block`, which sends signals back to its inputs.
    """

    @property
    @abc.abstractmethod
    def inputs(self) -> int:
        """Number of raw inputs d."""

    @abc.abstractmethod
    def __call__(self, x: Inputs) -> Channels:
        """F(x)."""

    @abc.abstractmethod
    def rates(self) -> dict[str, float]:
        """Learning-rate factors of its trained fields, by their paths."""

    @abc.abstractmethod
    def kernel(self, x: Inputs, z: OtherInputs, up_x: Signals, up_z: OtherSignals) -> Overlap:
        """Its part of the tangent kernel, given the signals on its channels."""

    def restored(self) -> AbstractBlock:
        """The block on raw inputs and with neurons first, with its current parameters."""
        return self


def overlap(left: Float[Array, "k j n"], right: Float[Array, "l j p"]) -> Overlap:
    """Σ_j u_kj(x) u_lj(z)."""
    return jnp.einsum("kjn,ljp->nkpl", left, right, optimize="optimal")


def spread_out(kernel: Float[Array, "n p"]) -> Float[Array, "n 1 p 1"]:
    """A kernel of samples, to be multiplied with overlaps of outputs."""
    return kernel[:, None, :, None]


class Block(AbstractBlock):
    """F(x) = s Σ_j A_j σ(w_j·x + b_j) + c over m neurons (A_j, w_j, b_j), with s = 1/m (mean field) or 1 (standard).

    In the mean-field parameterisation the parameters of neurons learn m times as fast, which undoes s.

    Attributes
    ----------
    a, w, b, c
        Amplitudes A, weights, biases and offset. Without amplitudes A_j is |w_j| (``tied``), or A is the identity.
    activation
        Activation σ.
    train
        Letters of what is trained, such as "ac".
    mean_field
        Whether s = 1/m.
    skip
        Whether the inputs are added to the outputs.
    tied
        Whether A_j = |w_j|.
    neurons_last
        Whether a and w are stored transposed, for training: steps are up to twice as fast on CPUs where the long axis
        of every matrix, of gradients too, is contiguous.
    """

    a: Float[Array, "m D"] | None
    w: Float[Array, "m d"]
    b: Float[Array, " m"] | None
    c: Float[Array, " D"]
    activation: Activation
    train: str = eqx.field(static=True)
    mean_field: bool = eqx.field(static=True)
    skip: bool = eqx.field(static=True)
    tied: bool = eqx.field(static=True)
    neurons_last: bool = eqx.field(static=True, default=False)

    @property
    def inputs(self) -> int:
        return self.w.shape[0 if self.neurons_last else 1]

    @property
    def width(self) -> int:
        """Number of neurons m."""
        return self.w.shape[1 if self.neurons_last else 0]

    def transposed(self) -> Block:
        """The same block with the other order of axes; one without amplitudes of its own stays as it is."""
        if self.a is None:
            return self
        return with_fields(self, a=self.a.T, w=self.w.T, neurons_last=not self.neurons_last)

    def restored(self) -> Block:
        """The same block with neurons first."""
        return self.transposed() if self.neurons_last else self

    def chosen(self, rows: slice | Int[Array, " k"]) -> Block:
        """The block of some of its neurons, each with its A, w and b; needs neurons first."""
        a, w, b = (None if leaf is None else leaf[rows] for leaf in (self.a, self.w, self.b))
        return with_fields(self, a=a, w=w, b=b)

    @property
    def scale(self) -> float:
        """The factor s in front of the sum."""
        return 1.0 / self.width if self.mean_field else 1.0

    @property
    def fixed(self) -> bool:
        """Whether its features σ(w_j·x + b_j) never change."""
        return not set(self.train) & set("wb")

    def hidden(self, x: Columns) -> Float[Array, "m n"]:
        """Pre-activations w_j·x + b_j."""
        h = self.w @ x
        return h if self.b is None else h + self.b[:, None]

    def column(self, x: Columns) -> Float[Array, "m n"]:
        """Its features σ(w_j·x + b_j)."""
        return self.activation(self.hidden(x))

    def read(self, features: Float[Array, "m n"]) -> Channels:
        """Return s Σ_j A_j φ_j."""
        if self.a is not None:
            return self.scale * (self.a.T @ features)
        return self.scale * (lengths(self.w)[None] @ features if self.tied else features)

    def __call__(self, x: Inputs) -> Channels:
        """Return s Σ_j A_j σ(w_j·x + b_j) + c, plus x where there is a skip."""
        x = raw_columns(x)
        if self.neurons_last and self.a is not None:
            h = x.T @ self.w
            features = self.activation(h if self.b is None else h + self.b[None])
            out = self.scale * (features @ self.a.T).T + self.c[:, None]
        else:
            out = self.read(self.column(x)) + self.c[:, None]
        return out + x if self.skip else out

    def rates(self) -> dict[str, float]:
        """Return m for what belongs to neurons and 1 for c; in the standard parameterisation 1 for all."""
        each = float(self.width) if self.mean_field else 1.0
        return {letter: 1.0 if letter == "c" else each for letter in self.train}

    def down(self, up: Signals) -> Float[Array, "k m n"]:
        """Return s Σ_i A_ji u_i: the signals that neurons receive from their channels."""
        if self.a is not None:
            return self.scale * jnp.einsum("jd,kdn->kjn", self.a, up)
        return self.scale * (up * lengths(self.w)[None, :, None] if self.tied else up)

    def back(self, x: Inputs, up: Signals) -> Lower:
        """∂f/∂x = w^T (σ' s A u) from u = ∂f/∂F, plus u where there is a skip."""
        if self.neurons_last:
            return self.restored().back(x, up)
        x = raw_columns(x)
        signals = self.down(up) * self.activation.derivative(self.hidden(x))[None]
        signal = jnp.einsum("jd,kjn->kdn", self.w, signals)
        return signal + up if self.skip else signal

    def kernel(self, x: Inputs, z: OtherInputs, up_x: Signals, up_z: OtherSignals) -> Overlap:
        """R s² φ(x)·φ(z) u(x)·u(z) for A, u(x)·u(z) for c, R v(x)·v(z) (x·z + 1) for (w, b) with v = σ' s A u."""
        if self.neurons_last:
            return self.restored().kernel(x, z, up_x, up_z)
        x, z = raw_columns(x), raw_columns(z)
        rates, h_x, h_z = self.rates(), self.hidden(x), self.hidden(z)
        signals = overlap(up_x, up_z)
        total = jnp.zeros_like(signals)
        if "a" in rates:
            own = rates["a"] * self.scale**2 * (self.activation(h_x).T @ self.activation(h_z))
            total = total + spread_out(own) * signals
        if "c" in rates:
            total = total + rates["c"] * signals
        if not self.fixed:
            slope = self.activation.derivative
            onto = overlap(self.down(up_x) * slope(h_x)[None], self.down(up_z) * slope(h_z)[None])
            inner = rates.get("w", 0.0) * (x.T @ z) + rates.get("b", 0.0)
            total = total + spread_out(inner) * onto
        return total

    def linear(self) -> Weights:
        """The map from features to channels, s A^T φ + c."""
        assert self.a is not None
        rates = self.rates()
        return Weights(self.a.T, self.c, self.scale, rates.get("a", 0.0), rates.get("c", 0.0))

    def rows(self) -> Float[Array, "m p"] | None:
        """Return what is trained of (A_j, w_j, b_j), one row per neuron; None where nothing is. Needs neurons first."""
        fields = [getattr(self, letter) for letter in "awb" if letter in self.train]
        if not fields:
            return None
        return jnp.concatenate([field.reshape(self.width, -1) for field in fields], axis=1)


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
        block, moved = self._block(), self._block().chosen(order)
        if block.a is not None or block.tied:
            return self._with(moved)
        above = self._above(block)  # without low rank the next block sees the neurons themselves
        moved = dataclasses.replace(moved, c=block.c[order])
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
        return with_fields(self.network, blocks=tuple(blocks))

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


def raw_columns(x: Inputs) -> Columns:
    """Raw points as columns."""
    return x.raw.T if isinstance(x, PreparedInputs) else x


def lengths(w: Float[Array, "m d"]) -> Float[Array, " m"]:
    """|w_j|, with slope 0 at 0."""
    square = jnp.sum(jnp.square(w), axis=1)
    positive = square > 0
    return jnp.where(positive, jnp.sqrt(jnp.where(positive, square, 1)), 0)
