"""Family A: one trained layer on a fixed embedding (chen2022, caron2023)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from unlazy._errors import UserError
from unlazy._memory import must_fit
from unlazy._types import Inputs, OtherInputs, Outputs, PRNGKey, PyTree
from unlazy.activations import Activation, Erf, Gelu, Softplus, Tanh
from unlazy.data import Dataset
from unlazy.networks._base import Network, altered, frozen_rates, nested_sums
from unlazy.networks.embeddings import (
    Anchored,
    Embedding,
    Identity,
    Infinite,
    Precomputed,
    Quadratic,
    RandomLayers,
)
from unlazy.networks.scalings import Scaling, Zipf, asymmetrical, mean_field, multilayer_mean_field, ntk


class TwoLayer(Network):
    """f(x) = Σ_j s_j a_j σ(h_j(x)),  h_j(x) = e w_j·Φ(x),  with w trained and a = ±c (``readout``) frozen by default.

    chen2022 eq. 2-3 and caron2023 eq. 2. The scaling gives s_j, e = D^feature and the learning-rate factor of w. With
    ``outputs`` = k the read-out a is m x k and f has k outputs. A symmetrised network starts from pairs of equal
    neurons with opposite read-outs, so that f = 0 at t = 0 (chen2022 App. I does so for the NTK scaling).

    >>> network = TwoLayer(width=512, inputs=20, scaling=ntk, activation=Relu(), key=jax.random.key(0))
    """

    w: Float[Array, "m D"] | None
    a: Float[Array, "m *k"]
    s: Float[Array, " m"]
    embedding: Embedding
    activation: Activation
    scaling: Scaling
    train_readout: bool = eqx.field(static=True)
    process: PRNGKey | None  # draws h(0), a Gaussian process, once the points of an infinite embedding are known

    def __init__(
        self,
        width: int,
        inputs: int,
        outputs: int | None = None,
        *,
        activation: Activation | None = None,
        embedding: Embedding | None = None,
        scaling: Scaling = mean_field,
        readout: float = 1.0,
        symmetrised: bool = False,
        train_readout: bool = False,
        key: PRNGKey,
    ) -> None:
        if width < 1 or inputs < 1 or (outputs is not None and outputs < 1):
            raise UserError(f"A network needs at least one neuron, input and output, not {(width, inputs, outputs)}.")
        for given, wanted, name in (
            (activation, Activation, "activation=Relu()"),
            (embedding, Embedding, "embedding=Quadratic()"),
            (scaling, Scaling, "scaling=ntk"),
        ):
            if given is not None and not isinstance(given, wanted):
                raise UserError(f"{given!r} is no {wanted.__name__}: give an object, say {name}.")
        _room_for(width, inputs, embedding or Identity())
        weight_key, sign_key, embedding_key = jax.random.split(key, 3)
        self.activation = Tanh() if activation is None else activation
        self.embedding = (embedding or Identity()).draw(inputs, self.activation, key=embedding_key)
        self.scaling = scaling
        self.train_readout = train_readout
        features = self.embedding.size(inputs)
        scales = scaling.nodes(width)
        if symmetrised and (width % 2 or scales.min() != scales.max()):
            raise UserError(
                f"Symmetrising pairs neurons of equal scale: it needs an even width (not {width}) and a scaling that "
                "treats all neurons alike."
            )
        distinct = width // 2 if symmetrised else width
        shape = (distinct,) if outputs is None else (distinct, outputs)
        signs = jax.random.rademacher(sign_key, shape, jnp.result_type(float))
        self.s = jnp.asarray(scales, jnp.result_type(float))
        self.a = readout * (jnp.concatenate([signs, -signs]) if symmetrised else signs)
        if math.isinf(features):
            if symmetrised:
                raise UserError(
                    "An infinite embedding draws its neurons later and cannot symmetrise them: use RandomLayers."
                )
            self.w, self.process = None, weight_key
        else:
            weights = jax.random.normal(weight_key, (distinct, int(features)))
            self.w = jnp.concatenate([weights, weights]) if symmetrised else weights
            self.process = None

    @property
    def width(self) -> int:
        """Number of neurons m."""
        return self.s.shape[0]

    def __call__(self, x: Inputs) -> Outputs:
        """Σ_j s_j a_j σ(h_j(x))."""
        values, readout = self.activation(self.features(x)[1]), self._readout()
        return readout @ values.T if readout.ndim == 1 else values @ readout

    def _readout(self) -> Float[Array, "m *k"]:
        return self.s.reshape((-1,) + (1,) * (self.a.ndim - 1)) * self.a

    def _factor(self) -> float:
        return float(self._trained().shape[1]) ** self.scaling.feature

    def _trained(self) -> Float[Array, "m D"]:
        if self.w is None:
            raise UserError(
                "A network with an infinite embedding lives on the points it is trained and tested on: "
                "use `network.on(data)` first, or let a flow do it."
            )
        return self.w

    def features(self, x: Inputs) -> tuple[Float[Array, "n D"], Float[Array, "n m"]]:
        """Φ(x) and h(x), with an error that names what does not fit."""
        if x.ndim != 2:
            raise UserError(
                f"This network takes a batch of vectors (n, d), not an array of shape {x.shape}: use data.flat(), or "
                "x[None] for one sample."
            )
        w, phi = self._trained(), self.embedding(x)
        if phi.shape[1] != w.shape[1]:
            raise UserError(f"This network was made for {w.shape[1]} features but was given {phi.shape[1]}.")
        # Neurons lie first in memory: products then run along rows of w, which makes a gradient a fifth cheaper.
        return phi, (self._factor() * (w @ phi.T)).T

    def hidden(self, x: Inputs) -> dict[str, Float[Array, "n m"]]:
        """h_j(x) of the one hidden layer."""
        return {"hidden": self.features(x)[1]}

    def rates(self) -> PyTree:
        """m^rate D^feature_rate for w; m^rate for the read-out where it is trained."""
        each = float(self.width) ** self.scaling.rate
        rates = frozen_rates(self)
        if self.train_readout:
            rates = eqx.tree_at(lambda tree: tree.a, rates, each)
        if self.w is not None:
            rates = eqx.tree_at(lambda tree: tree.w, rates, each * float(self.w.shape[1]) ** self.scaling.feature_rate)
        return rates

    @property
    def kinked(self) -> bool:
        """As its activation."""
        return bool(self.activation.kinks)

    def on(self, data: Dataset) -> tuple[Network, Dataset]:
        """Send the data through the embedding once; an infinite one first becomes exact on these points."""
        if isinstance(self.embedding, Identity | Precomputed):
            return self, data
        network = self.anchored(data)
        features = eqx.tree_at(
            lambda d: (d.x, d.x_test),
            data,
            (network.embedding(data.x), None if data.x_test is None else network.embedding(data.x_test)),
            is_leaf=lambda leaf: leaf is None,
        )
        return altered(network, embedding=Precomputed(network.embedding)), features

    def anchored(self, data: Dataset) -> TwoLayer:
        """Make an infinite embedding exact on the points of ``data``; a finite one stays as it is."""
        if self.w is not None:
            return self
        # Exact, because only h on these points enters the flow: h(0) is a Gaussian process with covariance
        # spread² G, and moves by movement·G. Both factors are the D -> inf limits of the scaling.
        spread, movement = self.scaling.spread(math.inf), self.scaling.movement(math.inf)
        if not (math.isfinite(spread) and math.isfinite(movement) and movement > 0):
            raise UserError(
                f"Under this scaling (feature = {self.scaling.feature}, feature_rate = {self.scaling.feature_rate}) "
                "the flow has no limit as D grows: it needs feature <= -1/2 and feature_rate = -1 - 2 feature."
            )
        assert self.process is not None
        points = data.x if data.x_test is None else jnp.concatenate([data.x, data.x_test])
        embedding = Anchored(self.embedding.kernel, points)
        w = spread * jax.random.normal(self.process, (self.width, points.shape[0]), points.dtype)
        scaling = Scaling(self.scaling.node, feature=-0.5, rate=self.scaling.rate)
        return altered(self, w=w, embedding=embedding, scaling=scaling, process=None)

    def off(self) -> Network:
        """Put the embedding back."""
        if isinstance(self.embedding, Precomputed):
            return altered(self, embedding=self.embedding.inner)
        return self

    def movement(self, start: Network) -> dict[str, Float[Array, " m"]]:
        """|w_j - w_j(0)|."""
        assert isinstance(start, TwoLayer)
        return {"hidden": jnp.linalg.norm(self._trained() - start._trained(), axis=1)}

    def weights(self) -> dict[str, Float[Array, "_ _"]]:
        """w_j of every neuron."""
        return {"hidden": self._trained()}

    def mixed(self, layer: str, into: Float[Array, "g m"], out: Float[Array, "g m"]) -> TwoLayer:
        """Merge neurons; the read-out then carries the node scales."""
        if layer != "hidden":
            raise UserError(f"A two-layer network has one layer of neurons, 'hidden', not '{layer}'.")
        nodes = jnp.ones(into.shape[0], self.s.dtype)
        return altered(self, w=into @ self._trained(), a=out @ self._readout(), s=nodes)

    def permute(self, layer: str, order: Int[Array, " m"]) -> TwoLayer:
        """Reorder neurons with their weights, read-outs and node scales."""
        _only_layer(layer)
        w, a, s = (None if leaf is None else leaf[order] for leaf in (self.w, self.a, self.s))
        return altered(self, w=w, a=a, s=s)

    def responses(self, x: Inputs) -> dict[str, Float[Array, "n m"]]:
        """σ(h_j(x)), without node scales and read-outs."""
        return {"hidden": self.activation(self.features(x)[1])}

    def importance(self) -> dict[str, Float[Array, " m"]]:
        """s_j² a_j² |w_j|², with the mean of a² over outputs: λ_j |w_j|² of caron2023 section 6.2, where a = ±1."""
        read = jnp.mean(jnp.square(self._readout()).reshape(self.width, -1), axis=1)
        return {"hidden": read * jnp.sum(jnp.square(self._trained()), axis=1)}

    def silenced(self, layer: str, kept: Float[Array, " m"]) -> TwoLayer:
        """Scale the node scales."""
        _only_layer(layer)
        return altered(self, s=self.s * kept)

    def nested(self, x: Inputs, layer: str, order: Int[Array, " m"], judge: Callable[[Outputs], PyTree]) -> PyTree:
        """Sums over neurons, one pass for all."""
        _only_layer(layer)
        return nested_sums(self.responses(x)["hidden"], self._readout(), order, judge)

    def tangent_kernel(self, x: Inputs, z: OtherInputs) -> Float[Array, "..."]:
        """Θ = R e² Φ(x)·Φ(z) Σ_j s_j² a_j² σ'(h_j(x)) σ'(h_j(z)), plus the read-out's part where it is trained.

        Costs one matrix product over neurons and one over features; nothing of size n x n' x m is built.
        """
        (phi_x, h_x), (phi_z, h_z) = self.features(x), self.features(z)
        rates, sigma, slope = self.rates(), self.activation, self.activation.derivative
        gates = gate_overlap(slope(h_x).T, slope(h_z).T, self._readout())
        values = sigma(h_x) @ ((self.s**2)[:, None] * sigma(h_z).T) if self.train_readout else None
        return assembled_kernel(rates.w * self._factor() ** 2 * (phi_x @ phi_z.T), gates, values, rates.a)

    def output_kernel(self, x: Inputs, z: OtherInputs, output: int) -> Float[Array, "n p"]:
        """Θ of the network with one read-out only: a k²-th of the whole."""
        return altered(self, a=self.a[:, output]).tangent_kernel(x, z)

    @classmethod
    def examples(cls, *, key: PRNGKey) -> list[tuple[Network, Dataset]]:
        """Every scaling and embedding, one output and several, read-out frozen and trained."""
        keys = iter(jax.random.split(key, 16))
        x, y, x_test, y_test = (jax.random.normal(next(keys), shape) for shape in ((7, 3), (7,), (4, 3), (4,)))
        data = Dataset(x, y, x_test, y_test, name="example")
        several = Dataset(x, jnp.stack([y, -y, y**2], axis=1), name="example with three outputs")
        zipf = asymmetrical(0.3, Zipf(0.6))

        def one(**options: Any) -> TwoLayer:
            return cls(8, 3, key=next(keys), **options)

        return [
            (one(), data),
            (one(scaling=ntk, symmetrised=True, activation=Softplus()), data),
            (one(scaling=zipf, embedding=Quadratic(), activation=Gelu()), data),
            (one(scaling=multilayer_mean_field, embedding=RandomLayers((10,))), data),
            (one(embedding=RandomLayers((6, 5)), activation=Gelu(), train_readout=True), data),
            (one(embedding=Infinite(depth=2, activation=Erf())), data),
            (one(outputs=3, train_readout=True, scaling=ntk), several),
        ]


def _only_layer(layer: str) -> None:
    if layer != "hidden":
        raise UserError(f"A two-layer network has one layer of neurons, 'hidden', not '{layer}'.")


def _room_for(width: int, inputs: int, embedding: Embedding) -> None:
    """Refuse weights that memory cannot hold before they are drawn, which takes about twice their size."""
    features = embedding.size(inputs)
    if math.isfinite(features):
        must_fit(
            2.0 * width * features * jnp.result_type(float).itemsize,
            f"A layer of {width:,} neurons on {int(features):,} features",
            "take fewer, float32, or embedding=Infinite(), whose features need no memory",
        )


def gate_overlap(
    slope_x: Float[Array, "m n"], slope_z: Float[Array, "m p"], readout: Float[Array, "m *k"]
) -> Float[Array, "..."]:
    """Σ_j c_j² σ'(h_j(x)) σ'(h_j(z)), of shape (n, p); with several outputs Σ_j c_jk c_jl ... (n, k, p, l)."""
    if readout.ndim == 1:
        return (slope_x * (readout**2)[:, None]).T @ slope_z
    return jnp.einsum("jn,jc,jd,jp->ncpd", slope_x, readout, readout, slope_z, optimize="optimal")


def assembled_kernel(
    gram: Float[Array, "n p"], gates: Float[Array, "..."], values: Float[Array, "n p"] | None, rate: float
) -> Float[Array, "..."]:
    """Θ from the features' kernel R e² Φ(x)·Φ(z), the overlap of gates, and that of a trained read-out's values."""
    several = gates.ndim == 4
    kernel = (gram[:, None, :, None] if several else gram) * gates
    if values is None:
        return kernel
    own = rate * values
    if several:  # each output has a read-out of its own: no part across outputs
        own = own[:, None, :, None] * jnp.eye(gates.shape[1], dtype=own.dtype)[None, :, None, :]
    return kernel + own
