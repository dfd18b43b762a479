"""Family A: one trained layer on a fixed embedding (chen2022, caron2023)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from unlazy._errors import UserError
from unlazy._inputs import as_key, like
from unlazy._memory import must_fit
from unlazy._types import Count, NotNegative, Number, Outputs, PRNGKey, PyTree
from unlazy.activations import Activation, Erf, Gelu, Softplus, as_activation
from unlazy.data import Dataset
from unlazy.networks._base import GramForm, Network, example_data, frozen_rates, with_fields
from unlazy.networks.embeddings import Anchored, Embedding, Identity, Infinite, Quadratic, RandomLayers
from unlazy.networks.laws import Law, Normal, draw_readout
from unlazy.networks.layers import Layer
from unlazy.networks.linear import Layout, Weights
from unlazy.networks.neuron_sum import Hidden, NeuronSum, assembled_kernel, overlaps
from unlazy.networks.prepared import (
    Batch,
    Features,
    OtherBatch,
    Prepared,
    in_places,
    known_as,
    prepared_by,
    raw_vectors,
)
from unlazy.networks.scalings import Scaling, Zipf, asymmetrical, mean_field, multilayer_mean_field, ntk


class TwoLayer(Network):
    """f(x) = Σ_j s_j a_j σ(h_j(x)),  h_j(x) = e w_j·Φ(x) + b_j,  with w trained and a = ±c frozen by default.

    chen2022 eq. 2-3 and caron2023 eq. 2. The scaling gives s_j, e = D^feature and the learning-rate factor of w.
    On an infinite embedding the network is exact on the points that it is trained and tested on.

    Parameters
    ----------
    width
        Number of neurons m.
    inputs
        Input dimension d.
    outputs
        Number of outputs k; if omitted, f is a scalar. With k outputs the read-out a is an m x k matrix.
    activation
        σ: an activation, its name, or a plain function. Tanh by default.
    embedding
        Fixed features Φ; the inputs themselves by default.
    scaling
        How terms scale with width: ``mean_field`` (default), ``ntk``, ``multilayer_mean_field``, ``asymmetrical(...)``.
    readout
        A number c draws a = ±c with equal probability; a `Law` draws a from it; a list or an array is taken as it is.
    weights
        Law of the rows w_j at the start; standard normal by default.
    bias
        False for none, True for b_j drawn from N(0, 1), or a `Law`. Biases are trained with w, at the rate m^rate.
    scale
        Factor on the weights and biases at the start.
    symmetrised
        Start from pairs of equal neurons with opposite read-outs, so that f = 0 at t = 0 (chen2022 App. I does so for
        the NTK scaling).
    train_readout
        Whether a is trained as well, at the rate m^rate.
    key
        Random key, or a whole number as a seed.

    Examples
    --------
    >>> network = TwoLayer(width=512, inputs=20, scaling=ntk, activation="relu", key=0)
    """

    number_fields: ClassVar[tuple[str, ...]] = ("scaling", "spread")
    w: Float[Array, "m D"] | None
    a: Float[Array, "m *k"]
    s: Float[Array, " m"]
    b: Float[Array, " m"] | None
    embedding: Embedding
    activation: Activation
    scaling: Scaling
    train_readout: bool = eqx.field(static=True)
    process: PRNGKey | None  # draws h(0), a Gaussian process, at the points of an infinite embedding
    spread: Number  # its standard deviation, in units of that of the embedding's kernel
    prepared: bool = eqx.field(static=True, default=False)  # whether features in handles are its own

    def __init__(
        self,
        width: Count,
        inputs: Count,
        outputs: Count | None = None,
        *,
        activation: Activation | str | Callable[[Array], Array] = "tanh",
        embedding: Embedding = Identity(),
        scaling: Scaling = mean_field,
        readout: float | Law | tuple[float, ...] | Array | np.ndarray = 1.0,
        weights: Law = Normal(),
        bias: Law | bool = False,
        scale: NotNegative = 1.0,
        symmetrised: bool = False,
        train_readout: bool = False,
        key: PRNGKey | int,
    ) -> None:
        if math.isfinite(embedding.size(inputs)):
            must_fit(
                2.0 * width * embedding.size(inputs) * jnp.result_type(float).itemsize,
                f"A layer of {width:,} neurons on {int(embedding.size(inputs)):,} features",
                "take fewer, float32, or embedding=Infinite(), whose features need no memory",
            )
        weight_key, sign_key, embedding_key = jax.random.split(as_key(key), 3)
        self.activation = as_activation(activation)
        self.embedding = embedding.draw(inputs, self.activation, key=embedding_key)
        self.scaling = scaling
        self.train_readout = train_readout
        self.prepared = False
        features = self.embedding.size(inputs)
        scales = scaling.nodes(width)
        if symmetrised and (width % 2 or scales.min() != scales.max()):
            raise UserError(
                f"Symmetrising pairs neurons of equal scale: it needs an even width (not {width}) and a scaling that "
                "treats all neurons alike."
            )
        distinct = width // 2 if symmetrised else width
        self.s = jnp.asarray(scales, jnp.result_type(float))
        drawn = draw_readout(readout, distinct, outputs, sign_key)
        self.a = jnp.concatenate([drawn, -drawn]) if symmetrised else drawn
        self.b = None
        if bias is not False:
            law = Normal() if bias is True else bias
            drawn = scale * law.draw(distinct, 1, inputs, key=jax.random.fold_in(weight_key, 1))[:, 0]
            self.b = jnp.concatenate([drawn, drawn]) if symmetrised else drawn
        self.spread = 1.0
        if math.isinf(features):
            if symmetrised:
                raise UserError(
                    "An infinite embedding draws its neurons later and cannot symmetrise them: use RandomLayers."
                )
            if not (isinstance(weights, Normal) and weights.mean == 0):
                raise UserError(f"An infinite embedding needs Gaussian weights of mean 0, not {weights}.")
            self.w, self.process = None, weight_key
            self.spread = scale * weights.spread * scaling.spread(math.inf)
            movement = scaling.movement(math.inf)
            if not (math.isfinite(self.spread) and math.isfinite(movement) and movement > 0):
                raise UserError(
                    f"Under this scaling (feature = {scaling.feature}, feature_rate = {scaling.feature_rate}) the flow "
                    "has no limit as D grows: it needs feature <= -1/2 and feature_rate = -1 - 2 feature."
                )
        else:
            rows = weights.draw(distinct, int(features), int(features), key=weight_key)
            rows = rows if scale == 1 else scale * rows
            self.w = jnp.concatenate([rows, rows]) if symmetrised else rows
            self.process = None

    @property
    def width(self) -> int:
        """Number of neurons m."""
        return self.s.shape[0]

    @property
    def has_kinks(self) -> bool:
        return bool(self.activation.kinks)

    @property
    def cheap_kernel(self) -> bool:
        """One matrix product over neurons and one over features."""
        return True

    def __call__(self, x: Batch) -> Outputs:
        values, readout = self.activation(self.features(x)[1]), self.readout()
        return readout @ values.T if readout.ndim == 1 else values @ readout

    def readout(self) -> Float[Array, "m *k"]:
        """Return s_j a_j."""
        return self.s.reshape((-1,) + (1,) * (self.a.ndim - 1)) * self.a

    def factor(self) -> Number:
        """Return e = D^feature."""
        return float(self._weights().shape[1]) ** self.scaling.feature

    def _weights(self) -> Float[Array, "m D"]:
        if self.w is None:
            raise UserError(
                "A network on an infinite embedding is defined on the points that it is trained and tested on: train "
                "it first, or take the network of `network.prepare(data)`."
            )
        return self.w

    def features(self, x: Batch) -> tuple[Float[Array, "n D"], Float[Array, "n m"]]:
        """Return Φ(x) and h(x)."""
        linear, raw = self._linear(), raw_vectors(x)
        known = known_as(x, Features) if self.prepared else None
        phi = self.embedding(raw) if known is None else known
        self._check_features(phi)
        return phi, linear(phi).T

    def _check_features(self, phi: Float[Array, "n D"]) -> None:
        made_for = self._weights().shape[1]
        if phi.shape[1] != made_for:
            raise UserError(f"This network was made for {made_for} features but was given {phi.shape[1]}.")

    def _linear(self) -> Weights:
        """Return h as a function of features."""
        w, each = self._weights(), float(self.width) ** self.scaling.rate
        rate = each * float(w.shape[1]) ** self.scaling.feature_rate
        return Weights(w, self.b, self.factor(), rate, 0.0 if self.b is None else each)

    def preactivations(self, x: Batch) -> Float[Array, "n m"]:
        """Return h_j(x)."""
        return self.features(x)[1]

    def rates(self) -> PyTree:
        """Return m^rate D^feature_rate for w, m^rate for biases and for a read-out that is trained."""
        each, rates = like(float(self.width) ** self.scaling.rate, self.a), frozen_rates(self)
        if self.train_readout:
            rates = eqx.tree_at(lambda tree: tree.a, rates, each)
        if self.b is not None:
            rates = eqx.tree_at(lambda tree: tree.b, rates, each)
        return rates if self.w is None else eqx.tree_at(lambda tree: tree.w, rates, like(self._linear().rate, self.w))

    def prepare(self, data: Dataset) -> Prepared:
        """Send the data through the embedding once; an infinite one becomes exact on these points."""
        if isinstance(self.embedding, Identity):
            return super().prepare(data)
        network = with_fields(self.anchored(data.points()), prepared=True)
        return prepared_by(network, data, lambda x: Features(x, network.embedding(x)))

    def restore(self) -> TwoLayer:
        return with_fields(self, prepared=False) if self.prepared else self

    def gram_form(self, data: Dataset) -> GramForm:
        """Train the coefficients of w on the training points; an infinite embedding becomes exact on the data."""

        def prepare(layout: Layout) -> Prepared:
            points = data.points()
            there = self.anchored(points)
            linear, phi = there._linear(), there.embedding(points)
            there._check_features(phi)
            gram = linear.to_gram(phi, points, data.n, linear.rate, layout)
            return in_places(NeuronSum(gram, self.a, self.s, self), data)

        features = math.inf if self.process is not None else self.embedding.size(data.inputs)
        return GramForm(features, self.width, prepare)

    def anchored(self, points: Float[Array, "p d"]) -> TwoLayer:
        """Make an infinite embedding exact on ``points``; a finite one stays as it is.

        A network that was trained on other points P keeps h on P as it is now. Elsewhere h is drawn from the Gaussian
        process conditioned on the values at P, so that training goes on in the exact kernel on all points.
        """
        if self.process is None:
            return self
        if self.w is not None:
            return self._extended(points)
        # Exact, because only h on these points enters the flow: h(0) is a Gaussian process with covariance
        # spread² G, and moves by movement·G. Both factors are the D -> inf limits of the scaling.
        w = jax.random.normal(self.process, (self.width, points.shape[0]), points.dtype)
        scaling = with_fields(self.scaling, feature=-0.5, feature_rate=0.0)
        w = like(self.spread, w) * w
        return with_fields(self, w=w, embedding=Anchored(self.embedding.kernel, points), scaling=scaling)

    def _extended(self, points: Float[Array, "p d"]) -> TwoLayer:
        old, w, key = self.embedding, self._weights(), self.process
        assert isinstance(old, Anchored)
        assert key is not None
        new = Anchored(old.kernel_of, jnp.concatenate([old.points, points]))
        count = new.points.shape[0]
        drawn = jax.random.normal(jax.random.fold_in(key, count), (self.width, count), w.dtype)
        drawn = like(self.spread, drawn) * drawn
        h = like(self.factor(), w) * (w @ old(old.points).T)
        return with_fields(self, w=new.conditioned(drawn, old.points, h), embedding=new)

    def layers(self) -> Mapping[str, Layer]:
        """Return the one layer of neurons, ``hidden``."""
        return {"hidden": Hidden(self)}

    def tangent_kernel(self, x: Batch, z: OtherBatch | None = None) -> Float[Array, "..."]:
        """Return Θ = (R e² Φ(x)·Φ(z) + R_b) Σ_j s_j² a_j² σ'(h_j(x)) σ'(h_j(z)), plus the read-out's part if trained.

        Costs one matrix product over neurons and one over features; nothing of size n x n' x m is built.
        """
        phi_x, h_x = self.features(x)
        phi_z, h_z = (phi_x, h_x) if z is None else self.features(z)
        sigma, linear = self.activation, self._linear()
        values = (sigma(h_x).T, sigma(h_z).T) if self.train_readout else None
        sums = overlaps(self.readout(), self.s**2, (sigma.derivative(h_x).T, sigma.derivative(h_z).T), values)
        return assembled_kernel(linear.kernel(phi_x, phi_z), *sums, float(self.width) ** self.scaling.rate)

    def output_kernel(self, x: Batch, z: OtherBatch, output: int) -> Float[Array, "n p"]:
        """Return Θ of the network with one read-out only: it costs a k²-th of the whole."""
        return with_fields(self, a=self.a[:, output]).tangent_kernel(x, z)

    @classmethod
    def examples(cls, *, key: PRNGKey) -> list[tuple[Network, Dataset]]:
        """Every scaling and embedding, one output and several, read-out frozen and trained."""
        keys = iter(jax.random.split(key, 17))
        data, several = example_data(7, 4, (3,), keys)
        zipf = asymmetrical(0.3, Zipf(0.6))

        def one(**options: Any) -> TwoLayer:
            return cls(8, 3, key=next(keys), **options)

        return [
            (one(), data),
            (one(scaling=ntk, bias=True, weights=Normal(0.5), readout=Normal(), train_readout=True, scale=2.0), data),
            (one(scaling=ntk, symmetrised=True, activation=Softplus()), data),
            (one(scaling=zipf, embedding=Quadratic(), activation=Gelu()), data),
            (one(scaling=multilayer_mean_field, embedding=RandomLayers((10,))), data),
            (one(embedding=RandomLayers((6, 5)), activation=Gelu(), train_readout=True), data),
            (one(embedding=Infinite(depth=2, activation=Erf())), data),
            (one(outputs=3, train_readout=True, scaling=ntk), several),
        ]
