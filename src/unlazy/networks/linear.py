"""A linear map trained on fixed features, h(x) = e W Φ(x) + b: by its weights, or by its coefficients on the data.

Let W be trained at the rate R and b at the rate R_b. Along every flow W(t) = W(0) - (R/r) e B(t) Φ(X) with B' = r dL/dh
on the n training points X, so that h(x) = h_0(x) - B G(X, x) with G = (R/r) e² Φ·Φ + R_b/r: these are Gram coordinates.
Everything follows from the n x n matrix G: a gradient costs 2 m n² operations instead of 4 m D n, and D may be
infinite. It is the same flow, and any Runge-Kutta method or descent takes the same steps up to rounding. The unit r of
B is free.

Rows of h interact only through sums over all rows, whose results have the size of the data. So every computation on
rows is written once, as a function of some of them that returns what belongs to each row and their part of the sums.
`sweep` applies it slab by slab, so that memory stays bounded, and on several devices.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, Float

from unlazy._inputs import like
from unlazy._types import Number, PyTree
from unlazy.networks.prepared import Batch, Places, Points

Body = Callable[[PyTree, PyTree], tuple[PyTree, PyTree]]
AXIS = "neurons"


@dataclasses.dataclass(frozen=True)
class Layout:
    """How sums over neurons are computed.

    Parameters
    ----------
    slab
        Number of neurons processed at a time. Without it everything fits into memory, and the results of one pass are
        stored for the next.
    mesh
        Devices over which neurons are distributed, along the axis `AXIS`.
    product
        Precision of matrix products; that of the data if omitted.
    """

    slab: int | None = None
    mesh: Mesh | None = None
    product: jnp.dtype | None = None


def sweep(body: Body, neurons: PyTree, shared: PyTree, layout: Layout) -> Any:
    """Return (each, total) = body(neurons, shared): ``each`` has a leading axis of neurons, and ``total`` is a sum.

    With a slab the body sees that many neurons at a time, which bounds the size of intermediate results. With a mesh
    every device does its own part of the neurons and only the totals cross between devices.
    """
    if layout.mesh is None:
        return _in_slabs(body, neurons, shared, layout.slab)

    def part(neurons: PyTree, shared: PyTree) -> tuple[PyTree, PyTree]:
        each, total = _in_slabs(body, neurons, shared, layout.slab)
        return each, jax.lax.psum(total, AXIS)

    split, whole = PartitionSpec(AXIS), PartitionSpec()
    return jax.shard_map(part, mesh=layout.mesh, in_specs=(split, whole), out_specs=(split, whole), check_vma=False)(
        neurons, shared
    )


def _in_slabs(body: Body, neurons: PyTree, shared: PyTree, slab: int | None) -> tuple[PyTree, PyTree]:
    m = jax.tree.leaves(neurons)[0].shape[0]
    if slab is None or slab >= m:
        return body(neurons, shared)
    count, rest = divmod(m, slab)

    def some(start: Array | int, size: int) -> tuple[PyTree, PyTree]:
        return body(jax.tree.map(lambda leaf: jax.lax.dynamic_slice_in_dim(leaf, start, size), neurons), shared)

    def put(carry: tuple[PyTree, PyTree], start: Array | int, size: int) -> tuple[PyTree, PyTree]:
        (all_, sums), (each, total) = carry, some(start, size)
        all_ = jax.tree.map(lambda a, e: jax.lax.dynamic_update_slice_in_dim(a, e, start, 0), all_, each)
        return all_, jax.tree.map(jnp.add, sums, total)

    each, total = jax.eval_shape(lambda: some(0, slab))
    nothing = (
        jax.tree.map(lambda leaf: jnp.zeros((m, *leaf.shape[1:]), leaf.dtype), each),
        jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), total),
    )
    done = jax.lax.fori_loop(0, count, lambda i, carry: put(carry, i * slab, slab), nothing)
    return put(done, count * slab, rest) if rest else done


class Weights(eqx.Module):
    """The map by its weights; points are given by their features."""

    w: Float[Array, "m D"]
    b: Float[Array, " m"] | None
    factor: Number  # e
    rate: Number  # R
    bias_rate: Number  # R_b

    def __call__(self, phi: Float[Array, "n D"]) -> Float[Array, "m n"]:
        """Return e W Φ(x) + b."""
        # Rows of h lie first in memory: products then run along rows of w, which makes a gradient a fifth cheaper.
        h = self.w @ phi.T
        h = like(self.factor, h) * h
        return h if self.b is None else h + self.b[:, None]

    def kernel(self, phi: Float[Array, "n D"], psi: Float[Array, "p D"], unit: Number = 1.0) -> Float[Array, "n p"]:
        """Return (R e² Φ(x)·Φ(z) + R_b) / r: how a signal on h(z) moves h(x)."""
        gram = phi @ psi.T
        gram = like(self.rate / unit * self.factor**2, gram) * gram
        return gram if self.b is None else gram + like(self.bias_rate / unit, gram)

    def to_gram(
        self, phi: Float[Array, "p D"], points: Float[Array, "p d"], n: int, unit: Number, layout: Layout
    ) -> Gram:
        """Change to Gram coordinates on points with features ``phi``, of which the first ``n`` are trained on."""
        product = points.dtype if layout.product is None else layout.product
        phi, b = phi.astype(product), None if self.b is None else self.b.astype(product)
        here = dataclasses.replace(self, w=self.w.astype(product), b=b)
        start = here(phi)
        if layout.mesh is not None:
            start = jax.lax.with_sharding_constraint(start, NamedSharding(layout.mesh, PartitionSpec(AXIS)))
        nothing = jnp.zeros((start.shape[0], n), points.dtype)
        return Gram(nothing, start, here.kernel(phi, phi[:n], unit), points, unit, layout)

    def moved(self, gram: Gram, phi: Float[Array, "n D"]) -> Weights:
        """Return W - (R/r) e B Φ(X) and b - (R_b/r) B 1, with ``phi`` the features of the training points."""
        w = self.w - like(self.rate / gram.unit * self.factor, self.w) * gram.coefficients @ phi
        b = self.b
        if b is not None:
            b = b - like(self.bias_rate / gram.unit, b) * jnp.sum(gram.coefficients, axis=1)
        return dataclasses.replace(self, w=w, b=b)


class Gram(eqx.Module):
    """The map in Gram coordinates; points are given by their `Places` among its own.

    What autodiff gives for B is a velocity and not a differential, so kernels and movement come from methods, and
    whatever depends on the size of a gradient (Adam, clipping) has to stay in weights.
    """

    coefficients: Float[Array, "m n"]  # B
    start: Float[Array, "m p"]  # h_0 at all points, training points first; in the precision of products
    gram: Float[Array, "p n"]
    points: Float[Array, "p d"]
    unit: Number  # r, the rate at which B is trained
    layout: Layout = eqx.field(static=True)

    @property
    def n(self) -> int:
        """Number of training points."""
        return self.coefficients.shape[1]

    def at(self, x: Batch) -> Points:
        """Look up the points of a handle."""
        if not isinstance(x, Places):
            raise TypeError("Flows evaluate a network in Gram coordinates on the handles that were made with it.")
        return x.rows_of(self.gram)

    def __call__(self, x: Batch) -> Float[Array, "m q"]:
        """Return h_0(x) - B G(X, x)."""
        points = self.at(x)
        return _expansion(self.coefficients, points.columns(self.start), points)

    def push(self, x: Batch, change: Float[Array, "m n"]) -> Float[Array, "m q"]:
        """Return the effect of a change of B on h."""
        return -change @ self.at(x).rows.T

    def kernel(self, x: Points, z: Points, recompute: Callable[[], Array]) -> Float[Array, "..."]:
        """Return r G(x, z), how a signal on h(z) moves h(x); between test points G comes from ``recompute``."""
        return like(self.unit, self.coefficients) * x.against(z, self.n, recompute).astype(self.coefficients.dtype)

    def distance(self, start: Gram, bias: Number | None) -> Float[Array, " m"]:
        """Return |(w_j, b_j) - (w_j, b_j)(0)| = √(B_j G B_j^T), without building w; ``bias`` is R_b/R if any; r = R."""

        def body(neurons: tuple[Array, Array], gram: Array) -> tuple[Array, None]:
            moved = (neurons[0] - neurons[1]).astype(gram.dtype)
            square = jnp.sum((moved @ gram) * moved, axis=1)
            if bias is not None:  # of R_b / R in each entry of G, a bias moves by the square
                square = square + like(bias**2 - bias, square) * jnp.square(jnp.sum(moved, axis=1))
            return jnp.sqrt(jnp.maximum(square, 0.0)).astype(neurons[0].dtype), None

        return sweep(body, (self.coefficients, start.coefficients), self.gram[: self.n], self.layout)[0]


@jax.custom_vjp
def _expansion(coefficients: Array, start: Array, points: Points) -> Array:
    return start - coefficients.astype(start.dtype) @ points.rows.T


def _expansion_forward(coefficients: Array, start: Array, points: Points) -> tuple[Array, Any]:
    return _expansion(coefficients, start, points), (coefficients.shape[1], points)


def _expansion_backward(residuals: Any, signal: Array) -> tuple[Array, None, None]:
    # B' = r dL/dh and flows follow minus the gradient: what B gets for one is -dL/dh, sample by sample.
    count, points = residuals
    return -points.scattered(signal, count), None, None


_expansion.defvjp(_expansion_forward, _expansion_backward)
