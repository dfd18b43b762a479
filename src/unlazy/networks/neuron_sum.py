"""Two-layer networks in Gram coordinates, and the neurons of two-layer networks as a layer.

Values, gradients, kernels and secants of f(x) = Σ_j s_j a_j σ(h_j(x)) are all sweeps over neurons, so that they work
slab by slab, on several devices and in mixed precision.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from unlazy._inputs import like
from unlazy._types import Number, Outputs, PyTree
from unlazy.activations import Activation
from unlazy.networks._base import Chord, Network, View, frozen_rates, with_fields
from unlazy.networks.layers import Judge, Layer, Rewire, nested_sums
from unlazy.networks.linear import Gram, Layout, sweep
from unlazy.networks.prepared import Batch, OtherBatch, Places, Points, raw_inputs

if TYPE_CHECKING:
    from unlazy.networks.two_layer import TwoLayer


class Hidden(Layer):
    """The neurons of a two-layer network; from Gram coordinates, `permute` and `rewired` lead to weights."""

    network: TwoLayer | NeuronSum
    name: str = eqx.field(static=True, default="hidden")

    def _in_weights(self) -> TwoLayer:
        return self.network.restore() if isinstance(self.network, NeuronSum) else self.network

    def preactivations(self, x: Batch) -> Float[Array, "n m"]:
        return self.network.preactivations(x)

    def weights(self) -> Float[Array, "m d"]:
        net = self._in_weights()
        w, b = net._weights(), net.b
        return w if b is None else jnp.concatenate([w, b[:, None]], axis=1)

    def outgoing(self) -> Float[Array, "m *k"]:
        return self.network.readout()

    def permute(self, order: Int[Array, " m"]) -> TwoLayer:
        net = self._in_weights()
        w, a, s, b = (None if leaf is None else leaf[order] for leaf in (net.w, net.a, net.s, net.b))
        return with_fields(net, w=w, a=a, s=s, b=b)

    def rewired(self, into: Rewire, out: Rewire) -> TwoLayer:
        """Replace the neurons; the read-out then carries the node scales."""
        net = self._in_weights()
        readout, b = out(net.readout()), None if net.b is None else into(net.b)
        return with_fields(net, w=into(net._weights()), b=b, a=readout, s=jnp.ones(readout.shape[0], net.s.dtype))

    def silence(self, kept: Float[Array, " m"]) -> TwoLayer | NeuronSum:
        """Multiply the node scales."""
        return with_fields(self.network, s=self.network.s * kept)

    def nested(self, x: Batch, order: Int[Array, " m"], judge: Judge) -> PyTree:
        """Add up neurons, in one pass for all counts."""
        return nested_sums(self.responses(x), self.network.readout(), order, judge)


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
    # As in `_expansion_backward`. Written on batches: under a vmap over samples the signals would be summed before each
    # is multiplied with its own slope.
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


class NeuronSum(Network):
    """A `TwoLayer` network whose pre-activations are in Gram coordinates, f(x) = Σ_j s_j a_j σ(h_j(x))."""

    registered: ClassVar[bool] = False  # made by `TwoLayer.gram_form`
    gram: Gram  # the pre-activations h
    a: Float[Array, "m *k"]  # read-outs
    s: Float[Array, " m"]  # node scales
    origin: TwoLayer  # the network at t = 0, in weights

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the network in weights, such as ``w`` or ``scaling``, which is built for it."""
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self.restore(), name)

    @property
    def activation(self) -> Activation:
        """Activation σ."""
        return self.origin.activation

    @property
    def has_kinks(self) -> bool:
        return self.origin.has_kinks

    @property
    def cheap_kernel(self) -> bool:
        return True

    @property
    def _readout_rate(self) -> Any:
        """R_a; 0 where a is frozen."""
        return like(float(self.s.shape[0]) ** self.origin.scaling.rate, self.a) if self.origin.train_readout else 0.0

    @property
    def _unit(self) -> Any:
        """R, the rate at which coefficients are trained, in their precision."""
        return like(self.gram.unit, self.gram.coefficients)

    def _neurons(self) -> _Neurons:
        return _Neurons(self.gram.coefficients, self.gram.start, self.a, self.s)

    def __call__(self, x: Batch) -> Outputs:
        if not isinstance(x, Places):
            return self.restore()(x)
        gram = self.gram
        return _sum(self.activation, gram.layout, gram.coefficients, self.a, (gram.start, self.s, gram.at(x)))

    def readout(self) -> Float[Array, "m *k"]:
        """Return s_j a_j."""
        return self._neurons().readout()

    def rates(self) -> PyTree:
        """Return r for the coefficients, m^rate for a read-out that is trained."""
        rates = eqx.tree_at(lambda tree: tree.gram.coefficients, frozen_rates(self), self._unit)
        return eqx.tree_at(lambda tree: tree.a, rates, self._readout_rate)

    def restore(self) -> TwoLayer:
        there, train = self.origin.anchored(self.gram.points), self.gram.points[: self.gram.n]
        moved = there._linear().moved(self.gram, there.embedding(train))
        return with_fields(there, w=moved.w, b=moved.b, a=self.a, s=self.s)

    def layers(self) -> Mapping[str, Layer]:
        return {"hidden": Hidden(self)}

    def movement(self, start: Network) -> dict[str, Float[Array, " m"]]:
        """Return |(w_j, b_j) - (w_j(0), b_j(0))|, between Gram coordinates without building w."""
        if not isinstance(start, NeuronSum):
            return super().movement(start)
        bias = None if self.origin.b is None else float(self.s.shape[0]) ** self.origin.scaling.rate / self.gram.unit
        return {"hidden": self.gram.distance(start.gram, bias)}

    def preactivations(self, x: Batch) -> Float[Array, "q m"]:
        """Return h_j(x)."""
        if not isinstance(x, Places):
            return self.restore().preactivations(x)
        h, _ = sweep(lambda some, at: (some.h(at), None), self._neurons(), self.gram.at(x), self.gram.layout)
        return h.astype(self.gram.coefficients.dtype).T

    def push(self, x: Batch, change: PyTree) -> Outputs:
        """J(x) v = Σ_j s_j a_j σ'(h_j) h_j', with h' = -B' G, plus the read-out's part where it is trained."""

        def body(neurons: tuple[_Neurons, Array, Array | None], points: Points) -> tuple[None, Array]:
            here, b, a = neurons
            h = here.h(points)
            moved = self.activation.derivative(h) * (b.astype(h.dtype) @ points.rows.T)
            out = -_outputs(moved, here.readout())
            if a is not None:
                out = out + _outputs(self.activation(h), here.scale() * a)
            return None, out

        return sweep(body, (self._neurons(), change.gram.coefficients, change.a), self.gram.at(x), self.gram.layout)[1]

    def view(self, x: Batch) -> View:
        """Return outputs, and pre-activations if there is memory to store them."""
        stored = self.gram.layout.slab is None

        def body(neurons: _Neurons, points: Points) -> tuple[Array | None, Array]:
            h = neurons.h(points)
            return h if stored else None, _outputs(self.activation(h), neurons.readout())

        hidden, outputs = sweep(body, self._neurons(), self.gram.at(x), self.gram.layout)
        return View(outputs, hidden)

    def tangent_kernel(self, x: Batch, z: OtherBatch | None = None) -> Float[Array, "..."]:
        z = x if z is None else z
        if not (isinstance(x, Places) and isinstance(z, Places)):
            return self.restore().tangent_kernel(x, z)
        sigma, gram = self.activation, self.gram

        def recompute() -> Array:  # between test points, which is rare
            there = self.origin.anchored(gram.points)
            phi_x, phi_z = (there.embedding(raw_inputs(one)).astype(gram.gram.dtype) for one in (x, z))
            return there._linear().kernel(phi_x, phi_z, gram.unit)

        def body(neurons: _Neurons, shared: tuple[Points, Points]) -> tuple[None, Any]:
            h_x, h_z = (neurons.h(points) for points in shared)
            slopes = sigma.derivative(h_x), sigma.derivative(h_z)
            return None, neurons.overlaps(slopes, (sigma(h_x), sigma(h_z)) if self.origin.train_readout else None)

        points = gram.at(x), gram.at(z)
        gates, values = sweep(body, self._neurons(), points, gram.layout)[1]
        return assembled_kernel(gram.kernel(*points, recompute), gates, values, self._readout_rate)

    def output_kernel(self, x: Batch, z: OtherBatch, output: int) -> Float[Array, "n p"]:
        """Return Θ of the network with one read-out only: it costs a k²-th of the whole."""
        return with_fields(self, a=self.a[:, output]).tangent_kernel(x, z)

    def chord(self, view: View, signal: Outputs, x: OtherBatch) -> Secant:
        """Linearise along a path; slopes are averaged, neuron by neuron and point by point."""
        points, n, stored = self.gram.at(x), signal.shape[0], self.gram.layout.slab is None

        def body(neurons: Any, shared: Any) -> tuple[Any, Any]:
            slopes, values, a = self._along(*neurons, *shared)
            middle = dataclasses.replace(neurons[0], a=a)
            sums = middle.overlaps((slopes, slopes[:, :n]), None if values is None else (values, values[:, :n]))
            each = (slopes[:, :n], None if values is None else values[:, :n], a) if stored else None
            return each, sums

        each, (gates, values) = sweep(body, (self._neurons(), view.hidden), (points, signal), self.gram.layout)
        gram = like(self._unit, gates) * points.rows.astype(gates.dtype)
        kernel = assembled_kernel(gram, gates, values, self._readout_rate)
        return Secant(kernel=kernel, network=self, points=points, signal=signal, each=each)

    def _along(
        self, neurons: _Neurons, hidden: Array | None, points: Points, signal: Outputs
    ) -> tuple[Array, Array | None, Array]:
        """σ', σ (for a trained read-out) and a, averaged over the path on which ``signal`` leads from here."""
        n, sigma, rate = signal.shape[0], self.activation, self._readout_rate
        h = neurons.h(points) if hidden is None else hidden
        kick = like(self._unit, h) * sigma.derivative(h[:, :n]) * neurons.signals(signal).astype(h.dtype)
        ahead = h - kick @ points.rows.T
        slopes = sigma.slope_between(h, ahead)
        if not self.origin.train_readout:
            return slopes, None, neurons.a
        read = rate * neurons.scale() * (sigma(h[:, :n]).astype(signal.dtype) @ signal)
        return slopes, 0.5 * (sigma(h) + sigma(ahead)), neurons.a - 0.5 * read


class Secant(Chord):
    """The linearisation over one step in Gram coordinates; slopes are stored, or recomputed where memory is short."""

    network: NeuronSum
    points: Points
    signal: Outputs  # that leads along the step
    each: PyTree  # slopes, values and read-outs of each neuron on the training points
    kernel: Float[Array, "..."]

    def response(self, signal: Outputs) -> PyTree:
        """B' = r c σ' u and a' = -R_a s σ u, averaged along the path."""
        network = self.network
        unit, rate, layout = network._unit, network._readout_rate, network.gram.layout

        def body(neurons: tuple[_Neurons, Any], shared: Any) -> tuple[Any, None]:
            here, each = neurons
            points, lead, signal = shared
            slopes, values, a = network._along(here, None, points, lead) if each is None else each
            onto = dataclasses.replace(here, a=a).signals(signal)
            b = (like(unit, slopes) * slopes * onto.astype(slopes.dtype)).astype(here.b.dtype)
            if values is None:
                return (b, None), None
            return (b, -rate * here.scale() * (values.astype(signal.dtype) @ signal)), None

        train = self.points.head(signal.shape[0])
        found, _ = sweep(body, (network._neurons(), self.each), (train, self.signal, signal), layout)
        nothing = jax.tree.map(lambda _: None, eqx.filter(network, eqx.is_array))
        where = lambda tree: (tree.gram.coefficients, tree.a)  # noqa: E731
        return eqx.tree_at(where, nothing, found, is_leaf=lambda leaf: leaf is None)


def overlaps(
    readout: Float[Array, "m *k"],
    square: Float[Array, " m"],
    slopes: tuple[Float[Array, "m n"], Float[Array, "m p"]],
    values: tuple[Float[Array, "m n"], Float[Array, "m p"]] | None,
) -> tuple[Float[Array, "..."], Float[Array, "n p"] | None]:
    """Return Σ_j c_j² σ'(h_j(x)) σ'(h_j(z)) and, for a trained read-out, Σ_j s_j² σ(h_j(x)) σ(h_j(z)).

    With k outputs the first is Σ_j c_jk c_jl ..., of shape (n, k, p, k).
    """
    left, right = slopes
    if readout.ndim == 1:
        gates = (left * (readout**2)[:, None]).T @ right
    else:
        gates = jnp.einsum("jn,jc,jd,jp->ncpd", left, readout, readout, right, optimize="optimal")
    return gates, None if values is None else (values[0] * square[:, None]).T @ values[1]


def assembled_kernel(
    gram: Float[Array, "n p"], gates: Float[Array, "..."], values: Float[Array, "n p"] | None, rate: Number
) -> Float[Array, "..."]:
    """Θ from the kernel of h, the overlap of gates, and that of a trained read-out's values."""
    several = gates.ndim == 4
    kernel = (gram[:, None, :, None] if several else gram) * gates
    if values is None:
        return kernel
    own = like(rate, values) * values
    if several:  # each output has a read-out of its own: no part across outputs
        own = own[:, None, :, None] * jnp.eye(gates.shape[1], dtype=own.dtype)[None, :, None, :]
    return kernel + own
