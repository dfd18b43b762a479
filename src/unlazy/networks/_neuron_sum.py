"""Sums over neurons in Gram coordinates, f(x) = Σ_j s_j a_j σ(h_j(x)): values, gradients, kernels and secants.

Everything is a sweep over neurons, so that it works slab by slab, on several devices and in mixed precision.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from unlazy._types import Outputs, PyTree
from unlazy.activations import Activation
from unlazy.networks._base import Chord
from unlazy.networks._prepared import Batch, Points
from unlazy.networks.linear import Gram, Layout, sweep

if TYPE_CHECKING:
    from unlazy.networks.two_layer import TwoLayer


class _Neurons(eqx.Module):
    """What belongs to neurons: coefficients, pre-activations at t = 0, read-outs, scales."""

    b: Float[Array, "m n"]
    h0: Float[Array, "m p"]
    a: Float[Array, "m *k"]
    s: Float[Array, " m"]

    def scale(self) -> Float[Array, "m *1"]:
        """s_j, to be multiplied with read-outs."""
        return self.s.reshape((-1,) + (1,) * (self.a.ndim - 1))

    def readout(self) -> Float[Array, "m *k"]:
        """s_j a_j."""
        return self.scale() * self.a

    def h(self, points: Points) -> Float[Array, "m q"]:
        """Pre-activations."""
        start = points.columns(self.h0)
        return start - self.b.astype(start.dtype) @ points.rows.T

    def signals(self, signal: Outputs) -> Float[Array, "m q"]:
        """Σ_k s_j a_jk u_ik: what a signal u on the outputs is to each neuron at each point."""
        readout = self.readout()
        return readout[:, None] * signal[None, :] if readout.ndim == 1 else readout @ signal.T

    def overlaps(self, slopes: tuple[Array, Array], values: tuple[Array, Array] | None) -> tuple[Array, Array | None]:
        """Sums over these neurons, made in the precision of products and returned in that of the state."""
        product = slopes[0].dtype
        sums = overlaps(self.readout().astype(product), (self.s**2).astype(product), slopes, values)
        return jax.tree.map(lambda leaf: leaf.astype(self.b.dtype), sums)


def _outputs(values: Float[Array, "m q"], readout: Array) -> Outputs:
    # Summed in the precision of the state, and in the order in which values lie in memory.
    values = values.astype(readout.dtype)
    return readout @ values if readout.ndim == 1 else values.T @ readout


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _sum(activation: Activation, layout: Layout, b: Array, a: Array, rest: tuple[Array, Array, Points]) -> Outputs:
    def body(neurons: _Neurons, points: Points) -> tuple[None, Array]:
        return None, _outputs(activation(neurons.h(points)), neurons.readout())

    h0, s, points = rest
    return sweep(body, _Neurons(b, h0, a, s), points, layout)[1]


def _sum_forward(activation: Activation, layout: Layout, b: Array, a: Array, rest: Any) -> tuple[Outputs, Any]:
    return _sum(activation, layout, b, a, rest), (b, a, rest)


def _sum_backward(activation: Activation, layout: Layout, residuals: Any, signal: Outputs) -> tuple[Array, Array, None]:
    # As in `_expansion_backward`. Written on batches: under a vmap over samples the signals would be summed before they
    # are told apart.
    b, a, (h0, s, points) = residuals

    def body(neurons: _Neurons, shared: tuple[Points, Array]) -> tuple[tuple[Array, Array], None]:
        points, signal = shared
        h = neurons.h(points)
        each = activation.derivative(h) * neurons.signals(signal).astype(h.dtype)
        read = neurons.scale() * (activation(h).astype(signal.dtype) @ signal)
        return (-points.scattered(each, b.shape[1]).astype(neurons.b.dtype), read), None

    each, _ = sweep(body, _Neurons(b, h0, a, s), (points, signal), layout)
    return (*each, None)


_sum.defvjp(_sum_forward, _sum_backward)


class NeuronSum(eqx.Module):
    """f(x) = Σ_j s_j a_j σ(h_j(x)) over neurons whose pre-activations are in Gram coordinates."""

    gram: Gram
    a: Float[Array, "m *k"]
    s: Float[Array, " m"]
    activation: Activation
    readout_rate: float = eqx.field(static=True)  # R_a; 0 where a is frozen

    def _neurons(self) -> _Neurons:
        return _Neurons(self.gram.coefficients, self.gram.start, self.a, self.s)

    def __call__(self, x: Batch) -> Outputs:
        """Evaluate the sum."""
        gram = self.gram
        return _sum(self.activation, gram.layout, gram.coefficients, self.a, (gram.start, self.s, gram.at(x)))

    def preactivations(self, x: Batch) -> Float[Array, "m q"]:
        """Give h_j(x)."""
        h, _ = sweep(lambda some, at: (some.h(at), None), self._neurons(), self.gram.at(x), self.gram.layout)
        return h.astype(self.gram.coefficients.dtype)

    def push(self, x: Batch, b: Float[Array, "m n"], a: Float[Array, "m *k"] | None) -> Float[Array, "q *k"]:
        """J(x) v = Σ_j s_j a_j σ'(h_j) h_j', with h' = -B' G, plus the read-out's part where it is trained."""

        def body(neurons: tuple[_Neurons, Array, Array | None], points: Points) -> tuple[None, Array]:
            here, b, a = neurons
            h = here.h(points)
            moved = self.activation.derivative(h) * (b.astype(h.dtype) @ points.rows.T)
            out = -_outputs(moved, here.readout())
            if a is not None:
                out = out + _outputs(self.activation(h), here.scale() * a)
            return None, out

        return sweep(body, (self._neurons(), b, a), self.gram.at(x), self.gram.layout)[1]

    def view(self, x: Batch) -> tuple[Float[Array, "m q"] | None, Outputs]:
        """Give pre-activations, if there is memory to store them, and outputs."""
        stored = self.gram.layout.slab is None

        def body(neurons: _Neurons, points: Points) -> tuple[Array | None, Array]:
            h = neurons.h(points)
            return h if stored else None, _outputs(self.activation(h), neurons.readout())

        return sweep(body, self._neurons(), self.gram.at(x), self.gram.layout)

    def kernel(self, x: Batch, z: Batch, afresh: Callable[[], Array]) -> Float[Array, "..."]:
        """Give the tangent kernel between points; G between test points comes from ``afresh``."""
        sigma, trained = self.activation, self.readout_rate != 0

        def body(neurons: _Neurons, shared: tuple[Points, Points]) -> tuple[None, Any]:
            h_x, h_z = (neurons.h(points) for points in shared)
            slopes = sigma.derivative(h_x), sigma.derivative(h_z)
            return None, neurons.overlaps(slopes, (sigma(h_x), sigma(h_z)) if trained else None)

        points = self.gram.at(x), self.gram.at(z)
        gates, values = sweep(body, self._neurons(), points, self.gram.layout)[1]
        return assembled_kernel(self.gram.kernel(*points, afresh), gates, values, self.readout_rate)

    def secant(self, hidden: Array | None, signal: Outputs, points: Points) -> tuple[Any, Float[Array, "..."]]:
        """Linearise along the path on which ``signal`` would lead, neuron by neuron and point by point.

        Returns what belongs to neurons on the training points, if there is memory to store it, and the kernel.
        """
        n, stored = signal.shape[0], self.gram.layout.slab is None

        def body(neurons: Any, shared: Any) -> tuple[Any, Any]:
            slopes, values, a = self._along(*neurons, *shared)
            middle = dataclasses.replace(neurons[0], a=a)
            sums = middle.overlaps((slopes, slopes[:, :n]), None if values is None else (values, values[:, :n]))
            each = (slopes[:, :n], None if values is None else values[:, :n], a) if stored else None
            return each, sums

        each, (gates, values) = sweep(body, (self._neurons(), hidden), (points, signal), self.gram.layout)
        gram = self.gram.unit * points.rows.astype(gates.dtype)
        return each, assembled_kernel(gram, gates, values, self.readout_rate)

    def response(
        self, each: Any, lead: Outputs, signal: Outputs, points: Points
    ) -> tuple[Float[Array, "m n"], Float[Array, "m *k"] | None]:
        """B' = r c σ' u and a' = -R_a s σ u, averaged along the path on which ``lead`` leads (see `secant`)."""

        def body(neurons: tuple[_Neurons, Any], shared: Any) -> tuple[Any, None]:
            here, each = neurons
            points, lead, signal = shared
            slopes, values, a = self._along(here, None, points, lead) if each is None else each
            onto = dataclasses.replace(here, a=a).signals(signal)
            b = (self.gram.unit * slopes * onto.astype(slopes.dtype)).astype(here.b.dtype)
            if values is None:
                return (b, None), None
            return (b, -self.readout_rate * here.scale() * (values.astype(signal.dtype) @ signal)), None

        train = points.first_ones(signal.shape[0])
        return sweep(body, (self._neurons(), each), (train, lead, signal), self.gram.layout)[0]

    def _along(
        self, neurons: _Neurons, hidden: Array | None, points: Points, signal: Outputs
    ) -> tuple[Array, Array | None, Array]:
        """σ', σ (for a trained read-out) and a, averaged over the path on which ``signal`` leads from here."""
        n, sigma = signal.shape[0], self.activation
        h = neurons.h(points) if hidden is None else hidden
        kick = self.gram.unit * sigma.derivative(h[:, :n]) * neurons.signals(signal).astype(h.dtype)
        ahead = h - kick @ points.rows.T
        slopes = sigma.slope_between(h, ahead)
        if self.readout_rate == 0:
            return slopes, None, neurons.a
        read = self.readout_rate * neurons.scale() * (sigma(h[:, :n]).astype(signal.dtype) @ signal)
        return slopes, 0.5 * (sigma(h) + sigma(ahead)), neurons.a - 0.5 * read


class Secant(Chord):
    """The linearisation over one step in Gram coordinates; slopes are stored, or recomputed where memory is short."""

    network: TwoLayer
    points: Points
    signal: Outputs  # that leads along the step
    each: PyTree
    kernel: Float[Array, "..."]

    def response(self, signal: Outputs) -> PyTree:
        """Return the change of coefficients and read-outs."""
        nothing = jax.tree.map(lambda _: None, eqx.filter(self.network, eqx.is_array))
        found = self.network._sum().response(self.each, self.signal, signal, self.points)
        where = lambda tree: (tree.gram.coefficients, tree.a)  # noqa: E731
        return eqx.tree_at(where, nothing, found, is_leaf=lambda leaf: leaf is None)


def overlaps(
    readout: Float[Array, "m *k"],
    square: Float[Array, " m"],
    slopes: tuple[Float[Array, "m n"], Float[Array, "m p"]],
    values: tuple[Float[Array, "m n"], Float[Array, "m p"]] | None,
) -> tuple[Float[Array, "..."], Float[Array, "n p"] | None]:
    """Give Σ_j c_j² σ'(h_j(x)) σ'(h_j(z)) and, for a trained read-out, Σ_j s_j² σ(h_j(x)) σ(h_j(z)).

    With k outputs the first is Σ_j c_jk c_jl ..., of shape (n, k, p, k).
    """
    left, right = slopes
    if readout.ndim == 1:
        gates = (left * (readout**2)[:, None]).T @ right
    else:
        gates = jnp.einsum("jn,jc,jd,jp->ncpd", left, readout, readout, right, optimize="optimal")
    return gates, None if values is None else (values[0] * square[:, None]).T @ values[1]


def assembled_kernel(
    gram: Float[Array, "n p"], gates: Float[Array, "..."], values: Float[Array, "n p"] | None, rate: float
) -> Float[Array, "..."]:
    """Θ from the kernel of h, the overlap of gates, and that of a trained read-out's values."""
    several = gates.ndim == 4
    kernel = (gram[:, None, :, None] if several else gram) * gates
    if values is None:
        return kernel
    own = rate * values
    if several:  # each output has a read-out of its own: no part across outputs
        own = own[:, None, :, None] * jnp.eye(gates.shape[1], dtype=own.dtype)[None, :, None, :]
    return kernel + own
