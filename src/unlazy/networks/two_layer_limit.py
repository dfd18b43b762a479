"""The limit of infinitely many nodes of a two-layer network: a kernel machine and a list of nodes that learn features.

Under the scalings whose node variances λ_{m,j} = s_j² sum to 1 (`ntk`, `asymmetrical`), let m → ∞. A node moves by
w_j' = -√λ_{m,j} a_j Σ_i u_i σ'(h_j(x_i)) Φ(x_i) / √D with u = dL/df, and two kinds of nodes remain.

- Light nodes, of variance γ/m: each moves by O(m^-½), so that its gates do not change, and all of them together move
  the outputs by -γ Θ*(x, X) u, where Θ* is the mean tangent kernel of one node (law of large numbers). At the start
  they add up to √γ times a Gaussian process with the kernel E[σ(h(x)) σ(h(z))] (central limit theorem).
- Heavy nodes, of variance (1-γ) λ̃_j: they do not shrink, and keep learning features.

Of countably many heavy nodes the first K are kept. The others, of variance τ = (1-γ) Σ_{j>K} λ̃_j together, are counted
as light. The mean of their tangent kernel, τ Θ*, is then right, and so is the variance of their outputs at the start.
What is neglected is how far their kernel is from its mean, (1-γ) (C_0 Σ_{j>K} λ̃_j²)^½ in root mean square, where C_0 is
the variance of the tangent kernel of one node; and that it moves, by at most O((1-γ)^{3/2} Σ_{j>K} λ̃_j^{3/2}).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from unlazy._errors import UserError
from unlazy._inputs import as_key
from unlazy._types import Count, Natural, NotNegative, Outputs, Positive, PRNGKey, PyTree
from unlazy.activations import Activation, Gelu, Relu, as_activation
from unlazy.data import Dataset
from unlazy.networks._base import Network, example_data, frozen_rates, with_fields
from unlazy.networks.embeddings import Anchored, Embedding, Identity, Infinite, RandomLayers
from unlazy.networks.layers import InnerLayer, Judge, Layer, nested_sums
from unlazy.networks.node_kernels import GaussianProcess, LightKernel, NodeKernels, heavy_variances
from unlazy.networks.prepared import Batch, Features, LimitFeatures, OtherBatch, Prepared, raw_inputs, raw_vectors
from unlazy.networks.scalings import FirstNodes, Scaling, Zipf, asymmetrical, ntk
from unlazy.networks.two_layer import TwoLayer


class TwoLayerLimit(Network):
    """A two-layer network of infinite width: f(x) = g(x) + Σ_{j<=K} √((1-γ) λ̃_j) a_j σ(h_j(x)), g' = -ρ Θ*(x, X) dL/df.

    It is the limit m → ∞ of `TwoLayer` with node variances λ_{m,j} = γ/m + (1-γ) λ̃_j / Σ_{k<=m} λ̃_k (caron2023 eq. 1),
    and for γ = 1 the kernel machine of the NTK scaling. K heavy nodes learn features and are trained as they are. All
    other nodes, of variance ρ = 1 - (1-γ) Σ_{j<=K} λ̃_j together, form the light part g: a kernel machine with the mean
    tangent kernel Θ* of one node, in closed form. Whatever its training, g(x) = g_0(x) + Σ_p Γ_p ρ Θ*(x, x_p) over
    the points x_p that it was trained on, and is exact at any x.

    Heavy nodes have the weights and signs of the first K nodes of a `TwoLayer` network with the same key.

    Parameters
    ----------
    inputs
        Input dimension d.
    outputs
        Number of outputs k; if omitted, f is a scalar.
    activation
        σ: an activation, its name, or a plain function. Tanh by default.
    embedding
        Fixed features Φ; the inputs themselves by default.
    scaling
        ``ntk`` (γ = 1, default) or ``asymmetrical(gamma, weights)``.
    readout
        The number c of read-outs a = ±c.
    bias
        Whether nodes have biases, drawn from N(0, 1) and trained with w.
    scale
        Factor on the weights and biases at the start.
    train_readout
        Whether a is trained as well; then E[σ(h(x)) σ(h(z))] is added to Θ*.
    heavy
        Number K of heavy nodes that are kept; chosen by ``tail`` if omitted.
    tail
        K is the smallest number for which (1-γ) (Σ_{j>K} λ̃_j²)^½ is at most this. Times C_0^½, it is the root mean
        square error of the tangent kernel at the start by counting the other nodes as light.
    start
        What the light part is at t = 0. ``"gaussian"``: √ρ times the Gaussian process of infinitely many nodes, drawn
        at the training and test points; elsewhere it is the conditional mean. ``"zero"``: nothing, as if the nodes came
        in pairs that cancel. A number m: the difference to the outputs of the `TwoLayer` network of width m with the
        same key, so that the limit starts from the function of that network and can be compared with it.
    key
        Random key, or a whole number as a seed.

    Examples
    --------
    >>> network = TwoLayerLimit(inputs=20, scaling=asymmetrical(0.5, Zipf(0.5)), activation="relu", key=0)
    """

    kernel: LightKernel
    heavy: TwoLayer | None
    start: TwoLayer | None
    points: Float[Array, "p d"] | None  # that the light part was trained on
    coefficients: Float[Array, "p k"] | None  # Γ
    anchor: Anchored | None  # features of the light part, exact wherever one of two points is trained on
    v: Float[Array, "k n"] | None  # its weights
    outputs: int | None = eqx.field(static=True)
    prepared: bool = eqx.field(static=True, default=False)

    def __init__(
        self,
        inputs: Count,
        outputs: Count | None = None,
        *,
        activation: Activation | str | Callable[[Array], Array] = "tanh",
        embedding: Embedding = Identity(),
        scaling: Scaling = ntk,
        readout: float = 1.0,
        bias: bool = False,
        scale: NotNegative = 1.0,
        train_readout: bool = False,
        heavy: Natural | None = None,
        tail: Positive = 1e-3,
        start: Literal["gaussian", "zero"] | Count = "gaussian",
        key: PRNGKey | int,
    ) -> None:
        variances, share = heavy_variances(scaling, heavy, tail)
        count, sigma = len(variances), as_activation(activation)
        common: dict[str, Any] = {"activation": sigma, "embedding": embedding, "scaling": scaling}
        common |= {"readout": readout, "bias": bias, "scale": scale, "train_readout": train_readout}
        first = TwoLayer(max(count, 1), inputs, outputs, **common, key=key)
        sizes = jnp.asarray(np.sqrt(variances), first.s.dtype)
        self.heavy = with_fields(first, s=sizes) if count else None
        nodes = NodeKernels(sigma, first.embedding, float(scale), bias)
        self.kernel, self.outputs = LightKernel(nodes, share * readout**2, share * train_readout), outputs
        self.points = self.coefficients = self.anchor = self.v = self.start = None
        self.prepared = False
        if start == "zero" or (share == 0 and isinstance(start, str)):
            return
        if isinstance(start, str):
            process = GaussianProcess(nodes)
            self.start = TwoLayer(outputs or 1, inputs, embedding=process, key=jax.random.fold_in(as_key(key), 3))
        elif start < max(count, 1) or math.isinf(first.embedding.size(inputs)):
            raise UserError(
                f"To start from a network of width m, take a finite embedding and m of at least the {count} heavy "
                f"nodes, not {start}: or reduce `heavy`, or use start='gaussian'."
            )
        else:
            whole = TwoLayer(start, inputs, outputs, **common, key=key)
            self.start = with_fields(whole, s=whole.s.at[:count].add(-sizes))

    @property
    def activation(self) -> Activation:
        """Activation σ."""
        return self.kernel.nodes.activation

    @property
    def has_kinks(self) -> bool:
        """The light part is linear in its parameters, whatever σ is."""
        return self.heavy is not None and self.heavy.has_kinks

    @property
    def cheap_kernel(self) -> bool:
        """The light part does not move, and there are few heavy nodes."""
        return True

    # ------------------------------------------------------------ values

    def __call__(self, x: Batch) -> Outputs:
        light = self.light(x)
        return light if self.heavy is None else light + self.heavy(self.for_heavy(x))

    def light(self, x: Batch) -> Outputs:
        """Return g(x), the outputs of the light part."""
        features, offset = self._columns(x)
        if self.v is not None and self.anchor is not None:
            offset = offset + float(self.v.shape[1]) ** -0.5 * features @ self.v.T
        return offset[:, 0] if self.outputs is None else offset

    def for_heavy(self, x: Batch) -> Batch:
        """Return a batch as the heavy nodes take it."""
        known, raw = self._known(x), raw_inputs(x)
        if known is None or self.heavy is None or not self.heavy.prepared:
            return raw
        return Features(raw, known[:, : known.shape[1] - self._light_columns()])

    def _light_columns(self) -> int:
        return (0 if self.v is None else self.v.shape[1]) + (self.outputs or 1)

    def _known(self, x: Batch) -> Array | None:
        return x.known if self.prepared and isinstance(x, LimitFeatures) else None

    def _columns(self, x: Batch) -> tuple[Float[Array, "n q"], Float[Array, "n k"]]:
        """Features of the light part (none before it is prepared), and what is added to it."""
        known, outputs = self._known(x), self.outputs or 1
        if known is not None:
            own = known[:, known.shape[1] - self._light_columns() :]
            return own[:, :-outputs], own[:, -outputs:]
        raw = raw_vectors(x)
        features = raw[:, :0] if self.anchor is None else self.anchor(raw)
        return features, self._offset(raw)

    def _offset(self, x: Float[Array, "n d"]) -> Float[Array, "n k"]:
        """g_0(x), and what earlier training has added."""
        offset = jnp.zeros((x.shape[0], self.outputs or 1), x.dtype)
        if self.start is not None and self.start.process is not None:
            if self.start.w is None:
                raise UserError(
                    "A Gaussian start is drawn at the points that the network is trained and tested on: train it "
                    "first, take the network of `network.prepare(data)`, or use start='zero' or a width."
                )
            offset = self.kernel.alpha**0.5 * self.start.preactivations(x)
        elif self.start is not None:
            offset = self.start(x).reshape(offset.shape)
        if self.points is None or self.coefficients is None:
            return offset
        return offset + self.kernel(x, self.points) @ self.coefficients

    # ------------------------------------------------------------ training

    def rates(self) -> PyTree:
        """Return those of the heavy nodes, and 1 for the light part once it is prepared."""
        rates = frozen_rates(self)
        if self.heavy is not None:
            rates = eqx.tree_at(lambda tree: tree.heavy, rates, self.heavy.rates())
        return rates if self.v is None else eqx.tree_at(lambda tree: tree.v, rates, 1.0)

    def prepare(self, data: Dataset) -> Prepared:
        """Write the light part by features that are exact on these data, and draw its start there."""
        heavy, start, anchor, v = self.heavy, self.start, None, None
        own: list[Array | None] = [None, None]
        if heavy is not None:
            heavy, *handles = heavy.prepare(data)
            own = [one.known if isinstance(one, Features) else None for one in handles]
        if start is not None and start.process is not None:
            start = start.anchored(data.points())
        if self.kernel.alpha > 0:
            anchor, v = Anchored(self.kernel, data.x), jnp.zeros((self.outputs or 1, data.n), data.x.dtype)
        network = with_fields(self, heavy=heavy, start=start, anchor=anchor, v=v, prepared=True)

        def handle(x: Float[Array, "n d"], features: Array | None, trained: int) -> LimitFeatures:
            columns = [] if features is None else [features]
            return LimitFeatures(x, jnp.concatenate([*columns, *network._columns(x)], axis=1), trained)

        test = None if data.x_test is None else handle(data.x_test, own[1], 0)
        return Prepared(network, handle(data.x, own[0], data.n), test)

    def restore(self) -> TwoLayerLimit:
        """Return the network that reads raw inputs; its light part has become an expansion over the training points."""
        if not self.prepared:
            return self
        heavy = None if self.heavy is None else self.heavy.restore()
        points, coefficients = self.points, self.coefficients
        if self.anchor is not None and self.v is not None:
            # e √n G(x, X) G(X, X)^(-1/2) v with e = n^(-1/2)
            added = self.anchor.inverse_root @ self.v.T
            new = self.anchor.points
            points = new if points is None else jnp.concatenate([points, new])
            coefficients = added if coefficients is None else jnp.concatenate([coefficients, added])
        return with_fields(
            self, heavy=heavy, points=points, coefficients=coefficients, anchor=None, v=None, prepared=False
        )

    # ------------------------------------------------------------ observation

    def tangent_kernel(self, x: Batch, z: OtherBatch | None = None) -> Float[Array, "..."]:
        """Return Θ(x, z): that of the light part, which does not move, and that of the heavy nodes."""
        z = x if z is None else z
        own = self._light_part(x, z)
        if self.outputs is not None:
            own = own[:, None, :, None] * jnp.eye(self.outputs, dtype=own.dtype)[None, :, None, :]
        if self.heavy is None:
            return own
        return own + self.heavy.tangent_kernel(self.for_heavy(x), self.for_heavy(z))

    def output_kernel(self, x: Batch, z: OtherBatch, output: int) -> Float[Array, "n p"]:
        own = self._light_part(x, z)
        return (
            own if self.heavy is None else own + self.heavy.output_kernel(self.for_heavy(x), self.for_heavy(z), output)
        )

    def _light_part(self, x: Batch, z: OtherBatch) -> Float[Array, "n p"]:
        known = [one for one in (x, z) if self._known(one) is not None]
        if len(known) == 2 and any(isinstance(one, LimitFeatures) and one.all_trained for one in known):
            left, right = (self._columns(one)[0] for one in (x, z))
            return left @ right.T / max(left.shape[1], 1)
        return self.kernel(raw_inputs(x), raw_inputs(z))

    def layers(self) -> Mapping[str, Layer]:
        """Return the heavy nodes as the layer ``hidden``; the light part has no single neurons."""
        return {} if self.heavy is None else {"hidden": HeavyNodes(self)}

    def movement(self, start: Network) -> dict[str, Float[Array, "..."]]:
        """Return |w_j - w_j(0)| of each heavy node, and (Σ_j |w_j - w_j(0)|²)^½ of all light ones together, ``light``.

        A single light node does not move. Their sum of squares is Γ^T ρΘ*(X, X) Γ, the squared norm of the change of g
        in the space of functions that belongs to its kernel.
        """
        if not isinstance(start, TwoLayerLimit):
            raise UserError(
                f"The movement of a limit is measured from another limit, not from a {type(start).__name__}."
            )
        moved = {}
        if self.heavy is not None and start.heavy is not None:
            moved |= self.heavy.movement(start.heavy)
        if self.kernel.alpha == 0:
            return moved
        if self.v is not None and start.v is not None:
            return moved | {"light": jnp.sqrt(jnp.sum(jnp.square(self.v - start.v)))}
        here, there = self.restore(), start.restore()
        if here.points is None or here.coefficients is None:
            return moved | {"light": jnp.zeros(())}
        change = here.coefficients
        if there.coefficients is not None:  # training adds terms to those that are there
            change = change.at[: there.coefficients.shape[0]].add(-there.coefficients)
        square = jnp.sum(change * (self.kernel(here.points, here.points) @ change))
        return moved | {"light": jnp.sqrt(jnp.maximum(square, 0.0))}

    @classmethod
    def examples(cls, *, key: PRNGKey) -> list[tuple[Network, Dataset]]:
        """Light and heavy nodes, or only one kind; all starts, embeddings, and several outputs with all trained."""
        keys = iter(jax.random.split(key, 12))
        data, several = example_data(7, 4, (3,), keys)
        mixed = asymmetrical(0.4, Zipf(0.5))

        def one(**options: Any) -> TwoLayerLimit:
            return cls(3, key=next(keys), **options)

        return [
            (one(scaling=mixed, heavy=5), data),
            (one(activation=Relu()), data),
            (one(scaling=mixed, heavy=4, embedding=RandomLayers((6,)), start=9, activation=Gelu()), data),
            (one(scaling=mixed, heavy=3, outputs=3, bias=True, train_readout=True, scale=0.8, readout=1.5), several),
            (one(scaling=mixed, heavy=4, embedding=Infinite(), activation=Relu(), start="zero"), data),
            (one(scaling=asymmetrical(0.0, FirstNodes(4))), data),
        ]


class HeavyNodes(InnerLayer):
    """The heavy nodes of an infinitely wide network; what is done to them leaves the light part as it is."""

    network: TwoLayerLimit
    name: str = eqx.field(static=True, default="hidden")

    def inner(self) -> Layer:
        assert self.network.heavy is not None
        return self.network.heavy.layers()["hidden"]

    def around(self, change: Callable[[Layer], Network]) -> TwoLayerLimit:
        return with_fields(self.network, heavy=change(self.inner()))

    def preactivations(self, x: Batch) -> Float[Array, "n m"]:
        return self.inner().preactivations(self.network.for_heavy(x))

    def nested(self, x: Batch, order: Int[Array, " m"], judge: Judge) -> PyTree:
        """Add up heavy nodes on top of the light part."""
        light = self.network.light(x)
        return nested_sums(self.responses(x), self.outgoing(), order, lambda outputs: judge(light + outputs))
