"""Gram coordinates: a layer trained on fixed features, kept by its coefficients on the training points.

If h(x) = e W Φ(x), then along every flow W(t) = W(0) - e B(t) Φ(X)^T with B' = R dL/dh, so that h(x) = h_0(x) - B G(X,
x) with G = e² Φ^T Φ. All follows from the n x n matrix G: a gradient costs 2 m n² operations instead of 4 m D n, and D
may be infinite. Biases trained at the rate R_b add R_b/R to every entry of G. It is the same flow, and any Runge-Kutta
method or descent takes the same steps up to rounding.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec
from jaxtyping import Array, Float, Int

from unlazy._types import Outputs, PyTree
from unlazy.activations import Activation
from unlazy.data import Dataset
from unlazy.networks._base import Chord, Network, View, frozen_rates, with_fields
from unlazy.networks._overlaps import assembled_kernel, gate_overlap
from unlazy.networks._points import Points, between, rows_of
from unlazy.networks._prepared import Batch, OtherBatch, Places, Prepared
from unlazy.networks._sweep import AXIS, Layout, sweep
from unlazy.networks.layers import Judge, Layer, Rewire, nested_sums
from unlazy.networks.two_layer import TwoLayer


class _Neurons(eqx.Module):
    """What belongs to neurons: coefficients, read-outs, scales, pre-activations at t = 0."""

    b: Float[Array, "m n"]
    a: Float[Array, "m *k"]
    s: Float[Array, " m"]
    h0: Float[Array, "m p"]

    def scale(self) -> Float[Array, "m *1"]:
        """s_j, to be multiplied with read-outs."""
        return self.s.reshape((-1,) + (1,) * (self.a.ndim - 1))


def _h(neurons: _Neurons, points: Points) -> Float[Array, "m q"]:
    start = points.columns(neurons.h0)
    return start - neurons.b.astype(start.dtype) @ points.rows.T


def _readout(neurons: _Neurons) -> Float[Array, "m *k"]:
    return neurons.scale() * neurons.a


def _onto_neurons(readout: Array, signal: Array) -> Float[Array, "m q"]:
    """Σ_k c_jk u_ik: what a signal on the outputs says to each neuron at each point."""
    return readout[:, None] * signal[None, :] if readout.ndim == 1 else readout @ signal.T


def _outputs(values: Float[Array, "m q"], readout: Array) -> Outputs:
    # Summed in the precision of the state, and in the order in which values lie in memory.
    values = values.astype(readout.dtype)
    return readout @ values if readout.ndim == 1 else values.T @ readout


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _forward(activation: Activation, layout: Layout, b: Array, a: Array, rest: tuple[Array, Array, Points]) -> Outputs:
    def body(neurons: _Neurons, points: Points) -> tuple[None, Array]:
        return None, _outputs(activation(_h(neurons, points)), _readout(neurons))

    s, h0, points = rest
    return sweep(body, _Neurons(b, a, s, h0), points, layout.slab, layout.mesh)[1]


def _forward_kept(activation: Activation, layout: Layout, b: Array, a: Array, rest: Any) -> tuple[Outputs, Any]:
    return _forward(activation, layout, b, a, rest), (b, a, rest)


def _backward(activation: Activation, layout: Layout, kept: Any, signal: Outputs) -> tuple[Array, Array, None]:
    # The flow is B' = R dL/dh and flows follow minus the gradient: what B gets for a gradient is -dL/dh, sample by
    # sample. Written on batches: under a vmap over samples the signals would be summed before they are told apart.
    b, a, (s, h0, points) = kept
    n = b.shape[1]

    def body(neurons: _Neurons, shared: tuple[Points, Array]) -> tuple[tuple[Array, Array], None]:
        points, signal = shared
        h = _h(neurons, points)
        each = activation.derivative(h) * _onto_neurons(_readout(neurons), signal).astype(h.dtype)

        read = neurons.scale() * (activation(h).astype(signal.dtype) @ signal)
        return (-points.scattered(each, n).astype(neurons.b.dtype), read), None

    each, _ = sweep(body, _Neurons(b, a, s, h0), (points, signal), layout.slab, layout.mesh)
    return (*each, None)


_forward.defvjp(_forward_kept, _backward)


class GramTwoLayer(Network):
    """A `TwoLayer` network in Gram coordinates; `to_gram` makes it.

    Handles are `Places`. On raw inputs it is evaluated through the weights. What autodiff gives for B is a velocity and
    not a differential, so kernels and movement come from the methods here, and whatever depends on the size of a
    gradient (Adam, clipping) has to stay in weights.
    """

    b: Float[Array, "m n"]
    a: Float[Array, "m *k"]
    s: Float[Array, " m"]
    h0: Float[Array, "m p"]  # at all points, training points first; in the precision of products
    gram: Float[Array, "p n"]
    data: Dataset
    origin: TwoLayer  # the network at t = 0
    activation: Activation
    rate: float = eqx.field(static=True)
    readout_rate: float = eqx.field(static=True)
    bias_rate: float = eqx.field(static=True)
    layout: Layout = eqx.field(static=True)

    def _neurons(self) -> _Neurons:
        return _Neurons(self.b, self.a, self.s, self.h0)

    def _sweep(self, body: Any, neurons: Any, shared: Any) -> Any:
        return sweep(body, neurons, shared, self.layout.slab, self.layout.mesh)

    def __call__(self, x: Batch) -> Outputs:
        """Evaluate Σ_j s_j a_j σ(h_j(x))."""
        if not isinstance(x, Places):
            return self.restore()(x)
        return _forward(self.activation, self.layout, self.b, self.a, (self.s, self.h0, rows_of(self.gram, x)))

    def rates(self) -> PyTree:
        """Return the rates of the original network: that of w for its coefficients B."""
        return eqx.tree_at(lambda tree: (tree.b, tree.a), frozen_rates(self), (self.rate, self.readout_rate))

    @property
    def has_kinks(self) -> bool:
        """As its activation."""
        return bool(self.activation.kinks)

    @property
    def cheap_kernel(self) -> bool:
        """One sum over neurons."""
        return True

    def restore(self) -> TwoLayer:
        """Return W = W(0) - e B Φ(X)^T, b = b(0) - (R_b / R) B 1."""
        origin = self.origin.anchored(self.data)
        w, b = origin.w, origin.b
        assert w is not None
        moved = w - origin.factor() * self.b @ origin.embedding(self.data.x)
        if b is not None:
            b = b - self.bias_rate / self.rate * jnp.sum(self.b, axis=1)
        return with_fields(origin, w=moved, a=self.a, b=b)

    def layers(self) -> Mapping[str, Layer]:
        """Return the one layer of neurons, ``hidden``."""
        return {"hidden": GramHidden(self)}

    def movement(self, start: Network) -> dict[str, Float[Array, " m"]]:
        """Return |w_j - w_j(0)| = sqrt(B_j G B_j^T), without ever building w."""
        if not isinstance(start, GramTwoLayer):
            return self.restore().movement(start.restore())
        # Of R_b / R in each entry of G, a bias moves by the square.
        ratio = self.bias_rate / self.rate
        extra = ratio**2 - ratio

        def body(neurons: tuple[Array, Array], gram: Array) -> tuple[Array, None]:
            moved = (neurons[0] - neurons[1]).astype(gram.dtype)
            square = jnp.sum((moved @ gram) * moved, axis=1)
            if self.bias_rate:
                square = square + extra * jnp.square(jnp.sum(moved, axis=1))
            return jnp.sqrt(jnp.maximum(square, 0.0)).astype(neurons[0].dtype), None

        return {"hidden": self._sweep(body, (self.b, start.b), self.gram[: self.b.shape[1]])[0]}

    def tangent_kernel(self, x: Batch, z: OtherBatch | None = None) -> Float[Array, "..."]:
        """Return Θ = R G(x, z) Σ_j s_j² a_j² σ'(h_j(x)) σ'(h_j(z)), plus the read-out's part where it is trained."""
        z = x if z is None else z
        if not (isinstance(x, Places) and isinstance(z, Places)):
            return self.restore().tangent_kernel(x, z)
        sigma, trained = self.activation, self.readout_rate != 0

        def body(neurons: _Neurons, shared: tuple[Points, Points]) -> tuple[None, Any]:
            h_x, h_z = (_h(neurons, points) for points in shared)
            return None, self._overlaps(
                neurons, (sigma.derivative(h_x), sigma.derivative(h_z)), (sigma(h_x), sigma(h_z)) if trained else None
            )

        points = rows_of(self.gram, x), rows_of(self.gram, z)
        gates, values = self._sweep(body, self._neurons(), points)[1]

        def afresh() -> Array:  # between test points, which is rare
            origin = self.origin.anchored(self.data)
            phi_x, phi_z = (origin.embedding(one.raw).astype(self.gram.dtype) for one in (x, z))
            return origin.factor() ** 2 * (phi_x @ phi_z.T) + self.bias_rate / self.rate

        return self._assembled(between(*points, self.b.shape[1], afresh), gates, values)

    def output_kernel(self, x: Batch, z: OtherBatch, output: int) -> Float[Array, "n p"]:
        """Return Θ of the network with one read-out only: it costs a k²-th of the whole."""
        return with_fields(self, a=self.a[:, output]).tangent_kernel(x, z)

    def _overlaps(self, neurons: _Neurons, slopes: tuple[Array, Array], values: tuple[Array, Array] | None) -> Any:
        """Sums over neurons, made in the precision of products and handed on in that of the state."""
        left, right = slopes
        gates = gate_overlap(left, right, _readout(neurons).astype(left.dtype)).astype(neurons.b.dtype)
        if values is None:
            return gates, None
        left, right = values
        own = (left * (neurons.s**2)[:, None].astype(left.dtype)).T @ right
        return gates, own.astype(neurons.b.dtype)

    def _assembled(self, gram: Array, gates: Array, values: Array | None) -> Array:
        return assembled_kernel(self.rate * gram.astype(gates.dtype), gates, values, self.readout_rate)

    def push(self, x: Batch, change: PyTree) -> Outputs:
        """J(x) v = Σ_j c_j σ'(h_j) h_j', with h' = -B' G, plus the read-out's part where it is trained."""

        def body(neurons: tuple[_Neurons, Array, Array | None], points: Points) -> tuple[None, Array]:
            here, b, a = neurons
            h = _h(here, points)
            moved = self.activation.derivative(h) * (b.astype(h.dtype) @ points.rows.T)
            out = -_outputs(moved, _readout(here))
            if a is not None:
                out = out + _outputs(self.activation(h), here.scale() * a)
            return None, out

        return self._sweep(body, (self._neurons(), change.b, change.a), rows_of(self.gram, _placed(x)))[1]

    def view(self, x: Batch) -> View:
        """Outputs, and pre-activations if there is room to keep them."""
        kept = self.layout.slab is None

        def body(neurons: _Neurons, points: Points) -> tuple[Array | None, Array]:
            h = _h(neurons, points)
            return h if kept else None, _outputs(self.activation(h), _readout(neurons))

        hidden, outputs = self._sweep(body, self._neurons(), rows_of(self.gram, _placed(x)))
        return View(outputs, hidden)

    def chord(self, view: View, signal: Outputs, x: OtherBatch) -> GramChord:
        """Slopes averaged, neuron by neuron and point by point, over the way on which ``signal`` would lead."""
        points, kept = rows_of(self.gram, _placed(x)), self.layout.slab is None

        def body(neurons: Any, shared: Any) -> tuple[Any, Any]:
            slopes, values, a = self._along(*neurons, *shared)
            n = signal.shape[0]
            middle = _Neurons(neurons[0].b, a, neurons[0].s, neurons[0].h0)
            sums = self._overlaps(middle, (slopes, slopes[:, :n]), None if values is None else (values, values[:, :n]))
            each = (slopes[:, :n], None if values is None else values[:, :n], a) if kept else None
            return each, sums

        each, (gates, values) = self._sweep(body, (self._neurons(), view.hidden), (points, signal))
        kernel = self._assembled(points.rows, gates, values)
        return GramChord(kernel=kernel, network=self, points=points, signal=signal, each=each)

    def _along(
        self, neurons: _Neurons, hidden: Array | None, points: Points, signal: Outputs
    ) -> tuple[Array, Array | None, Array]:
        """σ', σ (for a trained read-out) and a, averaged over the way on which ``signal`` leads from here."""
        n, sigma = signal.shape[0], self.activation
        h = _h(neurons, points) if hidden is None else hidden
        told = _onto_neurons(_readout(neurons), signal).astype(h.dtype)
        kick = self.rate * sigma.derivative(h[:, :n]) * told
        ahead = h - kick @ points.rows.T
        slopes = sigma.slope_between(h, ahead)
        if self.readout_rate == 0:
            return slopes, None, neurons.a
        read = self.readout_rate * neurons.scale() * (sigma(h[:, :n]).astype(signal.dtype) @ signal)
        return slopes, 0.5 * (sigma(h) + sigma(ahead)), neurons.a - 0.5 * read


class GramChord(Chord):
    """Secant linearisation over one step; per-neuron slopes are stored, or recomputed per slab when memory is short."""

    network: GramTwoLayer
    points: Points
    signal: Outputs  # that leads along the stretch
    each: tuple[Array, Array | None, Array] | None
    kernel: Float[Array, "..."]

    def response(self, signal: Outputs) -> PyTree:
        """B' = R c σ' u and a' = -R_a s σ u, with everything averaged along the stretch."""
        net, n = self.network, signal.shape[0]

        def body(neurons: tuple[_Neurons, Any], shared: Any) -> tuple[Any, None]:
            here, each = neurons
            points, lead, signal = shared
            slopes, values, a = net._along(here, None, points, lead) if each is None else each
            told = _onto_neurons(_readout(_Neurons(here.b, a, here.s, here.h0)), signal)
            b = (net.rate * slopes * told.astype(slopes.dtype)).astype(here.b.dtype)
            if values is None:
                return (b, None), None
            return (b, -net.readout_rate * here.scale() * (values.astype(signal.dtype) @ signal)), None

        train = self.points.first_ones(n)
        (b, a), _ = net._sweep(body, (net._neurons(), self.each), (train, self.signal, signal))
        nothing = jax.tree.map(lambda _: None, eqx.filter(net, eqx.is_array))
        return eqx.tree_at(lambda tree: (tree.b, tree.a), nothing, (b, a), is_leaf=lambda leaf: leaf is None)


class GramHidden(Layer):
    """The neurons of a two-layer network in Gram coordinates; what changes them returns a network in weights."""

    network: GramTwoLayer
    name: str = eqx.field(static=True, default="hidden")

    def _in_weights(self) -> Layer:
        return self.network.restore().layers()[self.name]

    def preactivations(self, x: Batch) -> Float[Array, "q m"]:
        """Return h_j(x)."""
        net = self.network
        if not isinstance(x, Places):
            return self._in_weights().preactivations(x)
        h = net._sweep(lambda some, points: (_h(some, points), None), net._neurons(), rows_of(net.gram, x))[0]
        return h.astype(net.b.dtype).T

    def weights(self) -> Float[Array, "m d"]:
        """Return w_j, built when asked for."""
        return self._in_weights().weights()

    def outgoing(self) -> Float[Array, "m *k"]:
        """Return s_j a_j."""
        return _readout(self.network._neurons())

    def permute(self, order: Int[Array, " m"]) -> Network:
        """Reorder the neurons."""
        return self._in_weights().permute(order)

    def rewired(self, into: Rewire, out: Rewire) -> Network:
        """Replace the neurons."""
        return self._in_weights().rewired(into, out)

    def silence(self, kept: Float[Array, " m"]) -> GramTwoLayer:
        """Multiply the node scales."""
        net, origin = self.network, self.network.origin
        return with_fields(net, s=net.s * kept, origin=with_fields(origin, s=origin.s * kept))

    def nested(self, x: Batch, order: Int[Array, " m"], judge: Judge) -> PyTree:
        """Add up neurons, in one pass for all counts."""
        return nested_sums(self.responses(x), self.outgoing(), order, judge)


def _placed(x: Batch) -> Places:
    if not isinstance(x, Places):
        raise TypeError("Flows evaluate a network in Gram coordinates on the handles that were made with it.")
    return x


def to_gram(network: TwoLayer, data: Dataset, layout: Layout = Layout()) -> Prepared:  # noqa: B008
    """Write a network and its data in Gram coordinates; an infinite embedding becomes exact on the data's points."""
    there, points, n = network.anchored(data), data.points(), data.n
    phi, w = there.embedding(points), there.w
    assert w is not None
    product = points.dtype if layout.product is None else layout.product
    phi, w = phi.astype(product), w.astype(product)
    e, rates = there.factor(), there.rates()
    h0, gram = e * (w @ phi.T), e**2 * (phi @ phi[:n].T)
    if there.b is not None:
        h0, gram = h0 + there.b[:, None].astype(product), gram + rates.b / rates.w
    if layout.mesh is not None:
        h0 = jax.lax.with_sharding_constraint(h0, NamedSharding(layout.mesh, PartitionSpec(AXIS)))
    made = GramTwoLayer(
        jnp.zeros((network.width, n), points.dtype),
        network.a,
        network.s,
        h0,
        gram,
        data,
        network,
        network.activation,
        rates.w,
        rates.a,
        0.0 if there.b is None else rates.b,
        layout,
    )
    test = None if data.x_test is None else Places(data.x_test, first=n, count=data.x_test.shape[0])
    return Prepared(made, Places(data.x, first=0, count=n), test)
