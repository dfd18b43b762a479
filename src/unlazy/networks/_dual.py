"""Gram coordinates: a layer trained on fixed features, kept by its coefficients on the training points.

If h(x) = e W Φ(x), then along every flow W(t) = W(0) - e B(t) Φ(X)^T with B' = R dL/dh, so that h(x) = h_0(x) - B G(X,
x) with G = e² Φ^T Φ. All follows from the n x n matrix G: a gradient costs 2 m n² operations instead of 4 m D n, and D
may be infinite. It is the same flow, and any Runge-Kutta method or descent takes the same steps up to rounding.
"""

from __future__ import annotations

from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from unlazy._errors import UserError
from unlazy._types import Inputs, OtherInputs, Outputs, PRNGKey, PyTree
from unlazy.activations import Activation
from unlazy.data import Dataset
from unlazy.networks._base import Network, altered, frozen_rates
from unlazy.networks.two_layer import TwoLayer


@jax.custom_vjp
def _pre_activations(b: Array, h0: Array, rows: Array, index: Array) -> Array:
    return h0 - rows[:, : b.shape[1]] @ b.T


def _forward(b: Array, h0: Array, rows: Array, index: Array) -> tuple[Array, tuple[Array, Array, Array]]:
    return _pre_activations(b, h0, rows, index), (b, rows, index)


def _backward(kept: tuple[Array, Array, Array], signal: Array) -> tuple[Any, ...]:
    # The flow is B' = R dL/dh and flows follow minus the gradient: what B gets for a gradient is -dL/dh, sample by
    # sample. Written on batches: under a vmap over samples the signals would be summed before they are told apart.
    b, rows, index = kept
    n = b.shape[1]

    def each_to_its_column() -> Array:
        return signal.T @ jax.nn.one_hot(index, n, dtype=signal.dtype)

    if index.shape[0] == n:  # all samples, as a rule in their own order: nothing to sort
        columns = jax.lax.cond(jnp.all(index == jnp.arange(n)), lambda: signal.T, each_to_its_column)
    else:
        columns = each_to_its_column()
    return -columns, signal, jnp.zeros_like(rows), None


_pre_activations.defvjp(_forward, _backward)


class Dual(Network):
    """A `TwoLayer` in Gram coordinates; `dual` makes it.

    A sample is its initial pre-activations h_0(x), its row of the kernel G(x, ·) on all points, and its index. What
    autodiff gives for B is a velocity and not a differential, so kernels and movement come from the methods here, and
    whatever looks at the size of a gradient (Adam, clipping) has to stay in weights.
    """

    b: Float[Array, "m n"]
    a: Float[Array, "m *k"]
    s: Float[Array, " m"]
    gram: Float[Array, "n n"]
    x: Float[Array, "n d"]  # the raw training inputs, for the way back
    origin: TwoLayer  # the network at t = 0
    activation: Activation

    def _parts(self, x: Inputs) -> tuple[Array, Array, Array]:
        m = self.s.shape[0]
        return x[:, :m], x[:, m:-1], x[:, -1].astype(jnp.int32)

    def _h(self, x: Inputs) -> Float[Array, "q m"]:
        return _pre_activations(self.b, *self._parts(x))

    def _readout(self) -> Float[Array, "m *k"]:
        return self.s.reshape((-1,) + (1,) * (self.a.ndim - 1)) * self.a

    def __call__(self, x: Inputs) -> Outputs:
        """Σ_j s_j a_j σ(h_j(x))."""
        return self.activation(self._h(x)) @ self._readout()

    def rates(self) -> PyTree:
        """The rates of the origin: that of w for its coefficients B."""
        rates = self.origin.rates()
        return eqx.tree_at(lambda tree: (tree.b, tree.a), frozen_rates(self), (rates.w, rates.a))

    def on(self, data: Dataset) -> tuple[Network, Dataset]:
        """Nothing is left to prepare."""
        return self, data

    def off(self) -> Network:
        """W = W(0) - e B Φ(X)^T."""
        w = self.origin.w
        assert w is not None
        moved = w - float(w.shape[1]) ** self.origin.scaling.feature * self.b @ self.origin.embedding(self.x)
        return altered(self.origin, w=moved, a=self.a)

    def hidden(self, x: Inputs) -> dict[str, Float[Array, "q m"]]:
        """h_j(x)."""
        return {"hidden": self._h(x)}

    def movement(self, start: Network) -> dict[str, Float[Array, " m"]]:
        """|w_j - w_j(0)| = sqrt(b_j G b_j^T), without ever building w."""
        assert isinstance(start, Dual)
        moved = self.b - start.b
        return {"hidden": jnp.sqrt(jnp.maximum(jnp.sum((moved @ self.gram) * moved, axis=1), 0.0))}

    def permute(self, layer: str, order: Int[Array, " m"]) -> Dual:
        """Refuse: the samples carry h_0 in the order of the neurons."""
        raise UserError("In Gram coordinates samples know the order of the neurons: permute before `dual`.")

    def tangent_kernel(self, x: Inputs, z: OtherInputs) -> Float[Array, "..."]:
        """Θ = R G(x, z) Σ_j s_j² a_j² σ'(h_j(x)) σ'(h_j(z)), plus the read-out's part where it is trained."""
        (_, rows, _), (_, _, index) = self._parts(x), self._parts(z)
        return altered(self.origin, a=self.a).kernel_of(rows[:, index], self._h(x), self._h(z))

    @classmethod
    def examples(cls, *, key: PRNGKey) -> list[tuple[Network, Dataset]]:
        """Give all examples of `TwoLayer`, in Gram coordinates."""
        return [dual(network, data) for network, data in TwoLayer.examples(key=key) if isinstance(network, TwoLayer)]


def dual(network: TwoLayer, data: Dataset) -> tuple[Dual, Dataset]:
    """Write a network and its data in Gram coordinates; an infinite embedding becomes exact on the data's points."""
    network = network.anchored(data)
    points = data.x if data.x_test is None else jnp.concatenate([data.x, data.x_test])
    phi, h0 = network.features(points)
    assert network.w is not None
    rows = float(network.w.shape[1]) ** (2 * network.scaling.feature) * (phi @ phi.T)
    index = jnp.arange(points.shape[0], dtype=points.dtype)
    samples = jnp.concatenate([h0, rows, index[:, None]], axis=1)
    n = data.n
    prepared = eqx.tree_at(
        lambda d: (d.x, d.x_test),
        data,
        (samples[:n], None if data.x_test is None else samples[n:]),
        is_leaf=lambda leaf: leaf is None,
    )
    b = jnp.zeros((network.width, n), points.dtype)
    coordinates = Dual(b, network.a, network.s, rows[:n, :n], data.x, network, network.activation)
    return coordinates, prepared


Coordinates = Literal["weights", "gram"]


def prepare(network: Network, data: Dataset, coordinates: Coordinates) -> tuple[Network, Dataset]:
    """Do the frozen work once, in the coordinates asked for."""
    if coordinates == "weights":
        return network.on(data)
    if coordinates != "gram":
        raise UserError(f"Coordinates are 'weights' or 'gram', not '{coordinates}'.")
    if not isinstance(network, TwoLayer):
        raise UserError(f"Gram coordinates are those of a TwoLayer network; {type(network).__name__} stays in weights.")
    return dual(network, data)
