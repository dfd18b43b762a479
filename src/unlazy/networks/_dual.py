"""Gram coordinates: a layer trained on fixed features, kept by its coefficients on the training points.

If h(x) = e W Φ(x), then along every flow W(t) = W(0) - e B(t) Φ(X)^T with B' = R dL/dh, so that h(x) = h_0(x) - B G(X,
x) with G = e² Φ^T Φ. All follows from the n x n matrix G: a gradient costs 2 m n² operations instead of 4 m D n, and D
may be infinite. It is the same flow, and any Runge-Kutta method or descent takes the same steps up to rounding.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, Float, Int

from unlazy._errors import UserError
from unlazy._types import Inputs, OtherInputs, Outputs, PRNGKey, PyTree
from unlazy.activations import Activation
from unlazy.data import Dataset
from unlazy.networks._base import Chord, Network, View, altered, frozen_rates, nested_sums
from unlazy.networks._points import Points, columns_of, pick
from unlazy.networks._sweep import AXIS, sweep
from unlazy.networks.two_layer import TwoLayer, assembled_kernel, gate_overlap


@dataclasses.dataclass(frozen=True)
class Layout:
    """How neurons are gone through: at most ``slab`` at a time, shared out over ``mesh``, products in ``product``.

    Without a slab everything fits into memory, and what one pass has made is kept for the next.
    """

    slab: int | None = None
    mesh: Mesh | None = None
    product: jnp.dtype | None = None


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
    start = points.of(neurons.h0)
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
        return (-columns_of(each, points.index, n).astype(neurons.b.dtype), read), None

    each, _ = sweep(body, _Neurons(b, a, s, h0), (points, signal), layout.slab, layout.mesh)
    return (*each, None)


_forward.defvjp(_forward_kept, _backward)


class Dual(Network):
    """A `TwoLayer` in Gram coordinates; `dual` makes it.

    A sample is its place among the training and test points, (q, 1); where nothing has to be looked up (q, 0) stands
    for the first q points in their order, which saves a quarter of a step's time. What autodiff gives for B is a
    velocity and not a differential, so kernels and movement come from the methods here, and whatever looks at the size
    of a gradient (Adam, clipping) has to stay in weights.
    """

    b: Float[Array, "m n"]
    a: Float[Array, "m *k"]
    s: Float[Array, " m"]
    h0: Float[Array, "m p"]  # at all points, training points first; in the precision of products
    gram: Float[Array, "p n"]
    raw: Dataset  # for the way back
    origin: TwoLayer  # the network at t = 0
    activation: Activation
    rate: float = eqx.field(static=True)
    readout_rate: float = eqx.field(static=True)
    layout: Layout = eqx.field(static=True)

    def _neurons(self) -> _Neurons:
        return _Neurons(self.b, self.a, self.s, self.h0)

    def _points(self, x: OtherInputs) -> Points:
        if x.shape[1] == 0:
            return Points(None, self.gram[: x.shape[0]])
        index = x[:, 0].astype(jnp.int32)
        return Points(index, pick(self.gram, index, 0))

    def _sweep(self, body: Any, neurons: Any, shared: Any) -> Any:
        return sweep(body, neurons, shared, self.layout.slab, self.layout.mesh)

    def __call__(self, x: Inputs) -> Outputs:
        """Σ_j s_j a_j σ(h_j(x))."""
        return _forward(self.activation, self.layout, self.b, self.a, (self.s, self.h0, self._points(x)))

    def rates(self) -> PyTree:
        """The rates of the origin: that of w for its coefficients B."""
        return eqx.tree_at(lambda tree: (tree.b, tree.a), frozen_rates(self), (self.rate, self.readout_rate))

    @property
    def kinked(self) -> bool:
        """As its activation."""
        return bool(self.activation.kinks)

    def on(self, data: Dataset) -> tuple[Network, Dataset]:
        """Nothing is left to prepare."""
        return self, data

    def off(self) -> Network:
        """W = W(0) - e B Φ(X)^T."""
        origin = self.origin.anchored(self.raw)
        w = origin.w
        assert w is not None
        moved = w - float(w.shape[1]) ** origin.scaling.feature * self.b @ origin.embedding(self.raw.x)
        return altered(origin, w=moved, a=self.a)

    def hidden(self, x: Inputs) -> dict[str, Float[Array, "q m"]]:
        """h_j(x)."""
        body = lambda neurons, points: (_h(neurons, points), None)  # noqa: E731
        return {"hidden": self._sweep(body, self._neurons(), self._points(x))[0].T}

    def movement(self, start: Network) -> dict[str, Float[Array, " m"]]:
        """|w_j - w_j(0)| = sqrt(b_j G b_j^T), without ever building w."""
        assert isinstance(start, Dual)

        def body(neurons: tuple[Array, Array], gram: Array) -> tuple[Array, None]:
            moved = neurons[0] - neurons[1]
            square = jnp.sum((moved.astype(gram.dtype) @ gram) * moved.astype(gram.dtype), axis=1)
            return jnp.sqrt(jnp.maximum(square, 0.0)).astype(moved.dtype), None

        square = self.gram[: self.b.shape[1]]
        return {"hidden": self._sweep(body, (self.b, start.b), square)[0]}

    def weights(self) -> dict[str, Float[Array, "_ _"]]:
        """w_j of every neuron, built for this look."""
        return self.off().weights()

    def responses(self, x: Inputs) -> dict[str, Float[Array, "q m"]]:
        """σ(h_j(x))."""
        return {layer: self.activation(h) for layer, h in self.hidden(x).items()}

    def importance(self) -> dict[str, Float[Array, " m"]]:
        """As in weights."""
        return self.off().importance()

    def silenced(self, layer: str, kept: Float[Array, " m"]) -> Dual:
        """Scale the node scales, also those of the way back."""
        return altered(self, s=self.s * kept, origin=self.origin.silenced(layer, kept))

    def nested(self, x: Inputs, layer: str, order: Int[Array, " m"], judge: Callable[[Outputs], PyTree]) -> PyTree:
        """Sums over neurons, one pass for all."""
        values = self.responses(x)[layer].astype(self.a.dtype)
        return nested_sums(values, _readout(self._neurons()), order, judge)

    def permute(self, layer: str, order: Int[Array, " m"]) -> Dual:
        """Refuse: the way back, to weights, knows the order of the neurons."""
        raise UserError("In Gram coordinates the neurons keep their order: permute before `dual`.")

    def tangent_kernel(self, x: Inputs, z: OtherInputs) -> Float[Array, "..."]:
        """Θ = R G(x, z) Σ_j s_j² a_j² σ'(h_j(x)) σ'(h_j(z)), plus the read-out's part where it is trained."""
        sigma, trained = self.activation, self.readout_rate != 0

        def body(neurons: _Neurons, shared: tuple[Points, Points]) -> tuple[None, Any]:
            h_x, h_z = (_h(neurons, points) for points in shared)
            return None, self._overlaps(
                neurons, (sigma.derivative(h_x), sigma.derivative(h_z)), (sigma(h_x), sigma(h_z)) if trained else None
            )

        points = self._points(x), self._points(z)
        gates, values = self._sweep(body, self._neurons(), points)[1]
        n = self.b.shape[1]

        def afresh() -> Array:  # between test points, which is rare
            origin, all_ = self.origin.anchored(self.raw), _all_points(self.raw)
            phi_x, phi_z = (origin.embedding(all_[one.place()]).astype(self.gram.dtype) for one in points)
            return float(phi_x.shape[1]) ** (2 * origin.scaling.feature) * (phi_x @ phi_z.T)

        place = points[1].place()
        gram = jax.lax.cond(jnp.all(place < n), lambda: pick(points[0].rows, place, 1), afresh)
        return self._assembled(gram, gates, values)

    def output_kernel(self, x: Inputs, z: OtherInputs, output: int) -> Float[Array, "n p"]:
        """Θ of the network with one read-out only: a k²-th of the whole."""
        return altered(self, a=self.a[:, output]).tangent_kernel(x, z)

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

    def push(self, x: Inputs, change: PyTree) -> Outputs:
        """J(x) v = Σ_j c_j σ'(h_j) h_j', with h' = -B' G, plus the read-out's part where it is trained."""

        def body(neurons: tuple[_Neurons, Array, Array | None], points: Points) -> tuple[None, Array]:
            here, b, a = neurons
            h = _h(here, points)
            moved = self.activation.derivative(h) * (b.astype(h.dtype) @ points.rows.T)
            out = -_outputs(moved, _readout(here))
            if a is not None:
                out = out + _outputs(self.activation(h), here.scale() * a)
            return None, out

        return self._sweep(body, (self._neurons(), change.b, change.a), self._points(x))[1]

    def view(self, x: Inputs) -> View:
        """Outputs, and pre-activations if there is room to keep them."""
        kept = self.layout.slab is None

        def body(neurons: _Neurons, points: Points) -> tuple[Array | None, Array]:
            h = _h(neurons, points)
            return h if kept else None, _outputs(self.activation(h), _readout(neurons))

        hidden, outputs = self._sweep(body, self._neurons(), self._points(x))
        return View(outputs, hidden)

    def chord(self, view: View, signal: Outputs, x: OtherInputs) -> DualChord:
        """Slopes averaged, neuron by neuron and point by point, over the way on which ``signal`` would lead."""
        points, kept = self._points(x), self.layout.slab is None

        def body(neurons: Any, shared: Any) -> tuple[Any, Any]:
            slopes, values, a = self._along(*neurons, *shared)
            n = signal.shape[0]
            middle = _Neurons(neurons[0].b, a, neurons[0].s, neurons[0].h0)
            sums = self._overlaps(middle, (slopes, slopes[:, :n]), None if values is None else (values, values[:, :n]))
            each = (slopes[:, :n], None if values is None else values[:, :n], a) if kept else None
            return each, sums

        each, (gates, values) = self._sweep(body, (self._neurons(), view.hidden), (points, signal))
        kernel = self._assembled(points.rows, gates, values)
        return DualChord(kernel=kernel, network=self, points=points, signal=signal, each=each)

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

    @classmethod
    def examples(cls, *, key: PRNGKey) -> list[tuple[Network, Dataset]]:
        """Give all examples of `TwoLayer`, in Gram coordinates."""
        return [dual(network, data) for network, data in TwoLayer.examples(key=key) if isinstance(network, TwoLayer)]


class DualChord(Chord):
    """The linearisation of a `Dual` along a stretch of its way: slopes kept, or made again slab by slab."""

    network: Dual
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

        train = self.points.first(n)
        (b, a), _ = net._sweep(body, (net._neurons(), self.each), (train, self.signal, signal))
        nothing = jax.tree.map(lambda _: None, eqx.filter(net, eqx.is_array))
        return eqx.tree_at(lambda tree: (tree.b, tree.a), nothing, (b, a), is_leaf=lambda leaf: leaf is None)


def _all_points(data: Dataset) -> Float[Array, "p d"]:
    return data.x if data.x_test is None else jnp.concatenate([data.x, data.x_test])


def dual(network: TwoLayer, data: Dataset, layout: Layout = Layout()) -> tuple[Dual, Dataset]:  # noqa: B008
    """Write a network and its data in Gram coordinates; an infinite embedding becomes exact on the data's points."""
    there = network.anchored(data)
    points = _all_points(data)
    phi, w, n = there.embedding(points), there.w, data.n
    assert w is not None
    product = points.dtype if layout.product is None else layout.product
    phi, w = phi.astype(product), w.astype(product)
    e = float(w.shape[1]) ** there.scaling.feature
    h0 = e * (w @ phi.T)
    if layout.mesh is not None:
        h0 = jax.lax.with_sharding_constraint(h0, NamedSharding(layout.mesh, PartitionSpec(AXIS)))
    index = jnp.arange(points.shape[0], dtype=points.dtype)[:, None]
    prepared = eqx.tree_at(
        lambda d: (d.x, d.x_test),
        data,
        (index[:n], None if data.x_test is None else index[n:]),
        is_leaf=lambda leaf: leaf is None,
    )
    rates = there.rates()
    return (
        Dual(
            jnp.zeros((network.width, n), points.dtype),
            network.a,
            network.s,
            h0,
            e**2 * (phi @ phi[:n].T),
            data,
            network,
            network.activation,
            rates.w,
            rates.a,
            layout,
        ),
        prepared,
    )
