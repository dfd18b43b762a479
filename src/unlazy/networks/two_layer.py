"""Family A: one trained layer on a fixed embedding (chen2022, caron2023)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from unlazy._errors import UserError
from unlazy._inputs import as_key
from unlazy._memory import must_fit
from unlazy._types import Outputs, PRNGKey, PyTree
from unlazy.activations import Activation, Erf, Gelu, Softplus, as_activation
from unlazy.data import Dataset
from unlazy.networks._anchored import Anchored, power
from unlazy.networks._base import GramForm, Network, frozen_rates, with_fields
from unlazy.networks._overlaps import assembled_kernel, gate_overlap
from unlazy.networks._prepared import Batch, Features, OtherBatch, Prepared, known_as, prepared_by, raw_inputs
from unlazy.networks.embeddings import Embedding, Identity, Infinite, Quadratic, RandomLayers
from unlazy.networks.laws import Law, Normal
from unlazy.networks.layers import Judge, Layer, Rewire, nested_sums
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
        Number of outputs k; left out, f is a scalar. With k outputs the read-out a is an m x k matrix.
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

    w: Float[Array, "m D"] | None
    a: Float[Array, "m *k"]
    s: Float[Array, " m"]
    b: Float[Array, " m"] | None
    embedding: Embedding
    activation: Activation
    scaling: Scaling
    train_readout: bool = eqx.field(static=True)
    process: PRNGKey | None  # draws h(0), a Gaussian process, at the points of an infinite embedding
    spread: float = eqx.field(static=True)  # its standard deviation, in units of that of the embedding's kernel
    prepared: bool = eqx.field(static=True, default=False)  # whether features in handles are its own

    def __init__(
        self,
        width: int,
        inputs: int,
        outputs: int | None = None,
        *,
        activation: Activation | str | Callable[[Array], Array] = "tanh",
        embedding: Embedding = Identity(),
        scaling: Scaling = mean_field,
        readout: float | Law | tuple[float, ...] | Array | np.ndarray = 1.0,
        weights: Law = Normal(),
        bias: Law | bool = False,
        scale: float = 1.0,
        symmetrised: bool = False,
        train_readout: bool = False,
        key: PRNGKey | int,
    ) -> None:
        if width < 1 or inputs < 1 or (outputs is not None and outputs < 1):
            raise UserError(f"A network needs at least one neuron, input and output, not {(width, inputs, outputs)}.")
        for given, wanted, example in (
            (embedding, Embedding, "embedding=Quadratic()"),
            (scaling, Scaling, "scaling=ntk"),
            (weights, Law, "weights=Normal(0.1)"),
            (bias, Law | bool, "bias=True"),
        ):
            if not isinstance(given, wanted):
                raise UserError(f"{given!r} was given where {example} or the like was expected.")
        if math.isinf(width):
            raise UserError("The width of a TwoLayer network is finite: take a large one, or embedding=Infinite().")
        if not (math.isfinite(scale) and scale >= 0):
            raise UserError(f"scale is the size of the weights at the start, a finite number >= 0, not {scale:g}.")
        _check_memory(width, inputs, embedding)
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
        drawn = _readout(readout, distinct, outputs, sign_key)
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
        """As its activation."""
        return bool(self.activation.kinks)

    @property
    def cheap_kernel(self) -> bool:
        """One matrix product over neurons and one over features."""
        return True

    def __call__(self, x: Batch) -> Outputs:
        """Evaluate Σ_j s_j a_j σ(h_j(x))."""
        values, readout = self.activation(self.features(x)[1]), self.readout()
        return readout @ values.T if readout.ndim == 1 else values @ readout

    def readout(self) -> Float[Array, "m *k"]:
        """Return s_j a_j."""
        return self.s.reshape((-1,) + (1,) * (self.a.ndim - 1)) * self.a

    def factor(self) -> float:
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
        raw, w = raw_inputs(x), self._weights()
        if raw.ndim != 2:
            raise UserError(
                f"This network takes a batch of vectors (n, d), not an array of shape {raw.shape}: use data.flat(), or "
                "x[None] for one sample."
            )
        known = known_as(x, Features) if self.prepared else None
        phi = self.embedding(raw) if known is None else known
        if phi.shape[1] != w.shape[1]:
            raise UserError(f"This network was made for {w.shape[1]} features but was given {phi.shape[1]}.")
        # Neurons lie first in memory: products then run along rows of w, which makes a gradient a fifth cheaper.
        h = self.factor() * (w @ phi.T)
        return phi, (h if self.b is None else h + self.b[:, None]).T

    def rates(self) -> PyTree:
        """Return m^rate D^feature_rate for w, and m^rate for biases and for a read-out that is trained."""
        each = float(self.width) ** self.scaling.rate
        rates = frozen_rates(self)
        if self.train_readout:
            rates = eqx.tree_at(lambda tree: tree.a, rates, each)
        if self.b is not None:
            rates = eqx.tree_at(lambda tree: tree.b, rates, each)
        if self.w is not None:
            rates = eqx.tree_at(lambda tree: tree.w, rates, each * float(self.w.shape[1]) ** self.scaling.feature_rate)
        return rates

    def prepare(self, data: Dataset) -> Prepared:
        """Send the data through the embedding once; an infinite one becomes exact on these points."""
        if isinstance(self.embedding, Identity):
            return super().prepare(data)
        network = with_fields(self.anchored(data), prepared=True)
        return prepared_by(network, data, lambda x: Features(x, network.embedding(x)))

    def restore(self) -> TwoLayer:
        """Return the network that reads raw inputs."""
        return with_fields(self, prepared=False) if self.prepared else self

    def gram_form(self, data: Dataset) -> GramForm:
        """Train the coefficients of w on the training points."""
        from unlazy.networks._gram_layer import to_gram

        features = math.inf if self.process is not None else self.embedding.size(data.inputs)
        return GramForm(features, self.width, lambda layout: to_gram(self, data, layout))

    def anchored(self, data: Dataset) -> TwoLayer:
        """Make an infinite embedding exact on the points of ``data``; a finite one stays as it is.

        A network that was trained on other points P keeps h on P as it is now. Elsewhere h is drawn from the Gaussian
        process conditioned on the values at P, so that training goes on in the exact kernel on all points.
        """
        if self.process is None:
            return self
        points = data.points()
        if self.w is not None:
            return self._extended(points)
        # Exact, because only h on these points enters the flow: h(0) is a Gaussian process with covariance
        # spread² G, and moves by movement·G. Both factors are the D -> inf limits of the scaling.
        movement = self.scaling.movement(math.inf)
        if not (math.isfinite(self.spread) and math.isfinite(movement) and movement > 0):
            raise UserError(
                f"Under this scaling (feature = {self.scaling.feature}, feature_rate = {self.scaling.feature_rate}) "
                "the flow has no limit as D grows: it needs feature <= -1/2 and feature_rate = -1 - 2 feature."
            )
        w = self.spread * jax.random.normal(self.process, (self.width, points.shape[0]), points.dtype)
        scaling = Scaling(self.scaling.node, feature=-0.5, rate=self.scaling.rate)
        return with_fields(self, w=w, embedding=Anchored(self.embedding.kernel, points), scaling=scaling)

    def _extended(self, points: Float[Array, "p d"]) -> TwoLayer:
        old, w, key = self.embedding, self._weights(), self.process
        assert isinstance(old, Anchored)
        assert key is not None
        before = old.points
        new = Anchored(old.kernel_of, jnp.concatenate([before, points]))
        count = new.points.shape[0]
        there = new(before)
        h = self.factor() * (w @ old(before).T)
        drawn = self.spread * jax.random.normal(jax.random.fold_in(key, count), (self.width, count), w.dtype)
        inverse = power(old.kernel_of(before, before), -1.0) / count
        return with_fields(self, w=drawn + (math.sqrt(count) * h - drawn @ there.T) @ inverse @ there, embedding=new)

    def movement(self, start: Network) -> dict[str, Float[Array, " m"]]:
        """Return |(w_j, b_j) - (w_j(0), b_j(0))|."""
        now, before = self.layers()["hidden"], start.layers()["hidden"]
        return {"hidden": jnp.linalg.norm(now.weights() - before.weights(), axis=1)}

    def layers(self) -> Mapping[str, Layer]:
        """Return the one layer of neurons, ``hidden``."""
        return {"hidden": Hidden(self)}

    def tangent_kernel(self, x: Batch, z: OtherBatch | None = None) -> Float[Array, "..."]:
        """Return Θ = (R e² Φ(x)·Φ(z) + R_b) Σ_j s_j² a_j² σ'(h_j(x)) σ'(h_j(z)), plus the read-out's part if trained.

        Costs one matrix product over neurons and one over features; nothing of size n x n' x m is built.
        """
        phi_x, h_x = self.features(x)
        phi_z, h_z = (phi_x, h_x) if z is None else self.features(z)
        rates, sigma, slope = self.rates(), self.activation, self.activation.derivative
        gates = gate_overlap(slope(h_x).T, slope(h_z).T, self.readout())
        values = sigma(h_x) @ ((self.s**2)[:, None] * sigma(h_z).T) if self.train_readout else None
        gram = rates.w * self.factor() ** 2 * (phi_x @ phi_z.T)
        return assembled_kernel(gram if self.b is None else gram + rates.b, gates, values, rates.a)

    def output_kernel(self, x: Batch, z: OtherBatch, output: int) -> Float[Array, "n p"]:
        """Return Θ of the network with one read-out only: it costs a k²-th of the whole."""
        return with_fields(self, a=self.a[:, output]).tangent_kernel(x, z)

    @classmethod
    def examples(cls, *, key: PRNGKey) -> list[tuple[Network, Dataset]]:
        """Every scaling and embedding, one output and several, read-out frozen and trained."""
        keys = iter(jax.random.split(key, 17))
        x, y, x_test, y_test = (jax.random.normal(next(keys), shape) for shape in ((7, 3), (7,), (4, 3), (4,)))
        data = Dataset(x, y, x_test, y_test, name="example")
        several = Dataset(x, jnp.stack([y, -y, y**2], axis=1), name="example with three outputs")
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


class Hidden(Layer):
    """The neurons of a `TwoLayer` network."""

    network: TwoLayer
    name: str = eqx.field(static=True, default="hidden")

    def preactivations(self, x: Batch) -> Float[Array, "n m"]:
        """Return h_j(x)."""
        return self.network.features(x)[1]

    def weights(self) -> Float[Array, "m d"]:
        """Return w_j, with b_j last where there is one."""
        w, b = self.network._weights(), self.network.b
        return w if b is None else jnp.concatenate([w, b[:, None]], axis=1)

    def outgoing(self) -> Float[Array, "m *k"]:
        """Return s_j a_j."""
        return self.network.readout()

    def permute(self, order: Int[Array, " m"]) -> TwoLayer:
        """Reorder weights, biases, read-outs and node scales."""
        net = self.network
        w, a, s, b = (None if leaf is None else leaf[order] for leaf in (net.w, net.a, net.s, net.b))
        return with_fields(net, w=w, a=a, s=s, b=b)

    def rewired(self, into: Rewire, out: Rewire) -> TwoLayer:
        """Replace the neurons; the read-out then carries the node scales."""
        net, readout = self.network, out(self.network.readout())
        b = None if net.b is None else into(net.b)
        return with_fields(net, w=into(net._weights()), b=b, a=readout, s=jnp.ones(readout.shape[0], net.s.dtype))

    def silence(self, kept: Float[Array, " m"]) -> TwoLayer:
        """Multiply the node scales."""
        return with_fields(self.network, s=self.network.s * kept)

    def nested(self, x: Batch, order: Int[Array, " m"], judge: Judge) -> PyTree:
        """Add up neurons, in one pass for all counts."""
        return nested_sums(self.responses(x), self.network.readout(), order, judge)


def _readout(
    given: float | Law | tuple[float, ...] | Array | np.ndarray, width: int, outputs: int | None, key: PRNGKey
) -> Float[Array, "m *k"]:
    shape = (width,) if outputs is None else (width, outputs)
    if isinstance(given, Law):
        return given.draw(width, outputs or 1, width, key=key).reshape(shape)
    if isinstance(given, float | int) or np.ndim(given) == 0:
        return float(np.asarray(given)) * jax.random.rademacher(key, shape, jnp.result_type(float))
    values = jnp.asarray(given, jnp.result_type(float))
    if values.shape != shape:
        raise UserError(f"Read-outs of shape {values.shape} were given where {shape} is needed.")
    return values


def _check_memory(width: int, inputs: int, embedding: Embedding) -> None:
    """Refuse weights that memory cannot hold before they are drawn, which takes about twice their size."""
    features = embedding.size(inputs)
    if math.isfinite(features):
        must_fit(
            2.0 * width * features * jnp.result_type(float).itemsize,
            f"A layer of {width:,} neurons on {int(features):,} features",
            "take fewer, float32, or embedding=Infinite(), whose features need no memory",
        )
