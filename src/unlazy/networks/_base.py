"""What a network is to the rest of the house: a function of a batch that knows how fast its parameters learn."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Callable
from typing import TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from unlazy._errors import UserError
from unlazy._types import Inputs, OtherInputs, Outputs, PRNGKey, PyTree, Scalar
from unlazy.data import Dataset
from unlazy.losses import Loss

N = TypeVar("N", bound="Network")
M = TypeVar("M", bound=eqx.Module)


class View(eqx.Module):
    """What a network gives on some inputs, with whatever it wants to remember of how it got there."""

    outputs: Outputs
    hidden: Float[Array, "..."] | None = None


class Chord(eqx.Module):
    """A network linearised along a stretch of its way instead of at a point: Jacobian J̄ and kernel Θ̄ = J̄ R J̄^T.

    To second order in the length of the stretch f(end) - f(start) = J̄ (θ_end - θ_start); where gates switch on the way
    they count for the part of it on which they are open.
    """

    kernel: eqx.AbstractVar[Float[Array, "..."]]

    @abc.abstractmethod
    def response(self, signal: Outputs) -> PyTree:
        """-R J̄^T u: how the trained parameters answer a signal u on the training outputs."""


class Network(eqx.Module):
    """A parametric function f(x; θ) together with the geometry R of its gradient flow, θ' = -R ∇L(θ).

    A network that is an infinite-width limit is a network like any other.
    """

    @abc.abstractmethod
    def __call__(self, x: Inputs) -> Outputs:
        """Evaluate f on a batch: (n, ...) -> (n,) or (n, k)."""

    @abc.abstractmethod
    def rates(self) -> PyTree:
        """Learning-rate factor R of every floating-point leaf, as a tree of Python floats; 0.0 means frozen.

        The tree is that of ``equinox.filter(self, equinox.is_inexact_array)``; start from `frozen_rates`.
        """

    @property
    def kinked(self) -> bool:
        """Whether f has kinks in its parameters, at which neurons may chatter (ReLU and its like)."""
        return False

    @property
    def faint(self) -> bool:
        """Whether outputs start too small to tell how well neurons are followed: flows then watch the parameters."""
        return False

    @property
    def own_units(self) -> bool:
        """Whether parameters are kept in units of their own, so that the size of a gradient means nothing."""
        return False

    @property
    def clips(self) -> bool:
        """Whether it bounds what single samples do to it, so that what it descends is no gradient."""
        return False

    def gradient(self, data: Dataset, loss: Loss) -> tuple[Scalar, PyTree]:
        """Give the loss and its gradient by the trained parameters (a tree as of `divide`), or what it descends."""
        trained, frozen = divide(self)

        def value(leaves: PyTree) -> Scalar:
            return loss(eqx.combine(leaves, frozen)(data.x), data.y, data.weight)

        return jax.value_and_grad(value)(trained)

    @abc.abstractmethod
    def on(self, data: Dataset) -> tuple[Network, Dataset]:
        """Do all work on ``data`` that training cannot change once and for all.

        Gives a network and data for which every value is the same as before, only cheaper to compute.
        """

    @abc.abstractmethod
    def off(self) -> Network:
        """Undo `on`: the network on raw inputs, with the parameters that it has now."""

    @abc.abstractmethod
    def hidden(self, x: Inputs) -> dict[str, Float[Array, "n m"]]:
        """Pre-activations ("features" h_j(x) in chen2022) of every layer of neurons, by layer name."""

    @abc.abstractmethod
    def movement(self, start: Network) -> dict[str, Float[Array, " m"]]:
        """Distance |w_j - w_j(0)| that each neuron's trained weights have moved since ``start``, by layer name."""

    def weights(self) -> dict[str, Float[Array, "_ _"]]:
        """Input weights of every neuron, by layer of neurons: the vectors whose directions condense (zhou2023)."""
        raise UserError(f"{type(self).__name__} does not show the weights of its neurons: use a network that does.")

    def mixed(self, layer: str, into: Float[Array, "g m"], out: Float[Array, "g m"]) -> Network:
        """Put g neurons in place of a layer's m: input weights Σ_j into_gj w_j, output weights Σ_j out_gj a_j."""
        raise UserError(f"The neurons of {type(self).__name__} cannot be merged: use a network whose neurons can.")

    @abc.abstractmethod
    def permute(self: N, layer: str, order: Int[Array, " m"]) -> N:
        """Reorder the neurons of a layer, each with all that belongs to it; the function stays the same."""

    def responses(self, x: Inputs) -> dict[str, Float[Array, "n m"]]:
        """What the neurons of every layer answer, σ(h_j(x)), by layer name: the features that `Transfer` hands on."""
        raise UserError(_no_neurons(self))

    def importance(self) -> dict[str, Float[Array, " m"]]:
        """How much each neuron weighs, by layer name: the order in which `Pruning` takes them away."""
        raise UserError(_no_neurons(self))

    def silenced(self: N, layer: str, kept: Float[Array, " m"]) -> N:
        """Multiply what each neuron of a layer sends on by ``kept``: 0 takes it away, 1 keeps it."""
        raise UserError(_no_neurons(self))

    def nested(self, x: Inputs, layer: str, order: Int[Array, " m"], judge: Callable[[Outputs], PyTree]) -> PyTree:
        """``judge(f(x))`` with only the first c neurons of ``order`` in a layer, for c = 0, ..., m (a leading axis).

        Any network can do it by `silenced`, at the price of m forward passes; where outputs are a sum over neurons use
        `nested_sums`, at the price of one.
        """
        place = jnp.argsort(order)

        def one(count: Int[Array, ""]) -> PyTree:
            return judge(self.silenced(layer, (place < count).astype(x.dtype))(x))

        return jax.lax.map(one, jnp.arange(order.shape[0] + 1))

    @abc.abstractmethod
    def tangent_kernel(self, x: Inputs, z: OtherInputs) -> Float[Array, "..."]:
        """Tangent kernel Θ(x, z) = J(x) R J(z)^T, of shape (n, n') or (n, k, n', k).

        Along the flow f' = -Θ dL/df. Use structure where there is some, else `jacobian_kernel`.
        """

    def output_kernel(self, x: Inputs, z: OtherInputs, output: int) -> Float[Array, "n p"]:
        """Θ(x, z) of one of several outputs; cut out of the whole, unless a network knows a cheaper way."""
        return self.tangent_kernel(x, z)[:, output, :, output]

    def pull(self, x: Inputs, signal: Outputs) -> PyTree:
        """R J(x)^T u: what a signal u on the outputs means for the trained parameters (a tree as of `divide`)."""
        trained, frozen = divide(self)
        _, back = jax.vjp(lambda leaves: eqx.combine(leaves, frozen)(x), trained)
        return jax.tree.map(lambda rate, leaf: rate * leaf, trained_rates(self), back(signal)[0])

    def push(self, x: Inputs, change: PyTree) -> Outputs:
        """J(x) v: what a change v of the trained parameters means for the outputs."""
        trained, frozen = divide(self)
        return jax.jvp(lambda leaves: eqx.combine(leaves, frozen)(x), (trained,), (change,))[1]

    def view(self, x: Inputs) -> View:
        """Look at the network on ``x``; `chord` starts from here."""
        return View(self(x))

    def chord(self, view: View, signal: Outputs, x: OtherInputs) -> Chord:
        """Linearise along the way on which ``signal`` would lead, seen on ``x``.

        The first inputs of ``x`` are those that the signal belongs to, the training inputs; more may follow, which are
        only watched: Θ̄ has a row for each input and a column for each training input.
        """
        trained, frozen = divide(self)
        train = x[: signal.shape[0]]
        halfway = jax.tree.map(lambda leaf, way: leaf - way / 2, trained, self.pull(train, signal))
        middle = eqx.combine(halfway, frozen)
        return Tangent(kernel=middle.tangent_kernel(x, train), network=middle, x=train)

    @classmethod
    @abc.abstractmethod
    def examples(cls, *, key: PRNGKey) -> list[tuple[Network, Dataset]]:
        """Small networks, with data they fit, that show all of the class; every contract in the tests runs on them."""


class Tangent(Chord):
    """The linearisation at one point."""

    network: Network
    x: Float[Array, "..."]
    kernel: Float[Array, "..."]

    def response(self, signal: Outputs) -> PyTree:
        """-R J^T u."""
        return jax.tree.map(jnp.negative, self.network.pull(self.x, signal))


def _no_neurons(network: Network) -> str:
    return f"{type(network).__name__} has no neurons that could be weighed or taken away: leave this probe out."


def nested_sums(
    responses: Float[Array, "n m"],
    readout: Float[Array, "m *k"],
    order: Int[Array, " m"],
    judge: Callable[[Outputs], PyTree],
    memory: float = 2.0**26,
) -> PyTree:
    """`Network.nested` where f = Σ_j c_j r_j(x): cumulative sums in the order given, block by block of neurons.

    A block takes about ``memory`` bytes, whatever m and n are.
    """
    n, m = responses.shape
    row = n * int(np.prod(readout.shape[1:], initial=1)) * responses.dtype.itemsize
    block = int(np.clip(memory // row, 1, m))
    blocks = -(-m // block)
    padded = jnp.concatenate([order, jnp.zeros(blocks * block - m, order.dtype)]).reshape(blocks, block)

    def go(f: Outputs, chosen: Int[Array, " b"]) -> tuple[Outputs, PyTree]:
        here = readout[chosen]
        each = jnp.einsum("nb,b...->bn...", responses[:, chosen], here)
        sums = f[None] + jnp.cumsum(each, axis=0)
        return sums[-1], jax.vmap(judge)(sums)

    nothing = jnp.zeros((n, *readout.shape[1:]), responses.dtype)
    _, seen = jax.lax.scan(go, nothing, padded)

    def joined(first: Array, rest: Array) -> Array:
        return jnp.concatenate([first[None], rest.reshape(blocks * block, *rest.shape[2:])[:m]])

    return jax.tree.map(joined, judge(nothing), seen)


def altered(network: M, **changes: object) -> M:
    """Copy a network, or another module, with some fields changed and nothing drawn anew (`__init__` is not run)."""
    new = object.__new__(type(network))
    for field in dataclasses.fields(network):
        object.__setattr__(new, field.name, changes.get(field.name, getattr(network, field.name)))
    return new


def frozen_rates(network: Network) -> PyTree:
    """Give the rates of a network of which nothing is trained: the tree that `Network.rates` fills in."""
    return jax.tree.map(lambda _: 0.0, eqx.filter(network, eqx.is_inexact_array))


def divide(network: N) -> tuple[N, N]:
    """Split a network into what its rates train and the rest, so that frozen leaves are never differentiated."""
    trained = jax.tree.map(lambda rate: not (isinstance(rate, float) and rate == 0.0), network.rates())
    nothing = jax.tree.map(lambda _: False, network)
    return eqx.partition(network, eqx.combine(trained, nothing))


def trained_rates(network: Network) -> PyTree:
    """Rates of the trained leaves only: the same tree as the first half of `divide`."""
    return jax.tree.map(lambda rate: None if isinstance(rate, float) and rate == 0.0 else rate, network.rates())


def jacobian_kernel(network: Network, x: Inputs, z: OtherInputs, memory: float = 2.0**28) -> Float[Array, "..."]:
    """Tangent kernel J(x) R J(z)^T of any network by automatic differentiation.

    Jacobian rows are made in blocks of samples so that they take about ``memory`` bytes, whatever n is.
    """
    trained, frozen = divide(network)
    rates = trained_rates(network)
    size = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(trained))
    outputs = jax.eval_shape(network, x).size // x.shape[0]
    block = max(1, int(memory / (2 * size * outputs)))

    def rows(sample: Float[Array, "..."], power: float) -> Float[Array, "k p"]:
        value = lambda leaves: eqx.combine(leaves, frozen)(sample[None]).reshape(-1)  # noqa: E731
        jacobian = jax.jacrev(value)(trained)
        scaled = jax.tree.map(lambda rate, leaf: (rate**power * leaf).reshape(outputs, -1), rates, jacobian)
        return jnp.concatenate(jax.tree.leaves(scaled), axis=1)

    def against_all(sample: Float[Array, "..."]) -> Float[Array, "..."]:
        here = rows(sample, 1.0)
        return jax.lax.map(lambda other: here @ rows(other, 0.0).T, z, batch_size=min(block, z.shape[0]))

    kernel = jax.lax.map(against_all, x, batch_size=min(block, x.shape[0]))  # (n, n', k, k)
    if jax.eval_shape(network, x).ndim == 1:
        return kernel[:, :, 0, 0]
    return jnp.transpose(kernel, (0, 2, 1, 3))
