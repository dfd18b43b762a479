"""Gram coordinates of a stack: its first block, trained on fixed features, kept by its coefficients on the data.

Along every flow the channels are f_k(t, x) = f_k(0, x) - Σ_p Γ_kp(t) G(x, x_p) with Γ' = dL/df (aiad2026 eq. 4 and 16).
G is R s² φ·φ, the kernel K_μ0 at infinite width, and a trained offset c adds 1 to it. Widths drop out of the cost.
"""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from unlazy.data import Dataset
from unlazy.networks._block import (
    Block,
    Channels,
    Columns,
    Layer,
    Limit,
    Lower,
    OtherColumns,
    OtherSignals,
    Overlap,
    Signals,
    overlap,
    spread_out,
)
from unlazy.networks._points import Points, columns_of, pick


@jax.custom_vjp
def _expansion(coefficients: Array, start: Array, points: Points) -> Array:
    return start - coefficients @ points.rows.T


def _kept(coefficients: Array, start: Array, points: Points) -> tuple[Array, Any]:
    return _expansion(coefficients, start, points), (coefficients.shape[1], points)


def _backward(kept: Any, signal: Array) -> tuple[Array, None, None]:
    # Γ' = dL/df and flows follow minus the gradient: what Γ gets for one is -dL/df, sample by sample.
    count, points = kept
    return -columns_of(signal, points.index, count), None, None


_expansion.defvjp(_kept, _backward)


class GramBlock(Layer):
    """The first block by its coefficients Γ on the training points; a sample is its place among all points.

    What autodiff gives for Γ is a velocity and not a differential, as in `Dual`.
    """

    coefficients: Float[Array, "D n"]
    start: Float[Array, "D p"]  # f_k(0, x) at all points, training points first
    gram: Float[Array, "p n"]
    points: Float[Array, "p d"]
    origin: Block | Limit  # the block at t = 0

    @property
    def inputs(self) -> int:
        """Number of raw inputs d."""
        return self.origin.inputs

    @property
    def train(self) -> str:
        """What is trained, in letters."""
        return self.origin.train

    def _points(self, x: Columns) -> Points:
        if x.shape[0] == 0:  # the first points in their order
            return Points(None, self.gram[: x.shape[1]])
        index = x[0].astype(jnp.int32)
        return Points(index, pick(self.gram, index, 0))

    def __call__(self, x: Columns) -> Channels:
        """f_k(0, x) - Σ_p Γ_kp G(x, x_p)."""
        points = self._points(x)
        return _expansion(self.coefficients, points.of(self.start), points)

    def rates(self) -> dict[str, float]:
        """All factors are in G."""
        return {"coefficients": 1.0}

    def push(self, x: Columns, change: Float[Array, "D points"]) -> Channels:
        """What a change of Γ means for the channels."""
        return -change @ self._points(x).rows.T

    def back(self, x: Columns, up: Signals) -> Lower:
        """Refuse: nothing is trained below."""
        raise NotImplementedError("A block in Gram coordinates is the first of its stack.")

    def kernel(self, x: Columns, z: OtherColumns, up_x: Signals, up_z: OtherSignals) -> Overlap:
        """G(x, z) u(x)·u(z)."""
        left, right = self._points(x), self._points(z)
        n = self.coefficients.shape[1]
        place = right.place()

        def afresh() -> Array:  # between test points, which is rare
            return kernel_of(self.origin, self.points[left.place()], self.points[place])

        own = jax.lax.cond(jnp.all(place < n), lambda: pick(left.rows, place, 1), afresh)
        return spread_out(own) * overlap(up_x, up_z)

    def raw(self) -> Layer:
        """A = A(0) - R s Γ φ(X)^T and c = c(0) - Σ_p Γ_p: the block on raw inputs."""
        n = self.coefficients.shape[1]
        if isinstance(self.origin, Block):
            block, features = self.origin, self.origin.column(self.points[:n].T)
            factor = self.origin.rates().get("a", 0.0) * self.origin.scale
        else:
            block = self.origin.anchored(self.points)
            features, factor = block.parts(self.points[:n].T)[0], float("a" in self.train)
        a, c = block.a, block.c
        assert a is not None
        if "a" in self.train:
            a = a - factor * (features @ self.coefficients.T)
        if "c" in self.train:
            c = c - jnp.sum(self.coefficients, axis=1)
        return eqx.tree_at(lambda one: (one.a, one.c), block, (a, c))

    def rows(self) -> Float[Array, "m D"] | None:
        """The amplitudes, if they are trained and belong to neurons."""
        return self.raw().rows()


def kernel_of(block: Block | Limit, x: Float[Array, "n d"], z: Float[Array, "p d"]) -> Float[Array, "n p"]:
    """G(x, z): how a push on the channels at z moves them at x."""
    constant = float("c" in block.train)
    if isinstance(block, Limit):
        return float("a" in block.train) * block.limit_kernel(x, z) + constant
    factor = block.rates().get("a", 0.0) * block.scale**2
    return factor * (block.column(x.T).T @ block.column(z.T)) + constant


def gram_block(block: Block | Limit, data: Dataset) -> tuple[GramBlock, Dataset]:
    """Write a first block on fixed features in Gram coordinates, and data as places among its points."""
    points = data.x if data.x_test is None else jnp.concatenate([data.x, data.x_test])
    index = jnp.arange(points.shape[0], dtype=points.dtype)[:, None]
    seen = eqx.tree_at(
        lambda d: (d.x, d.x_test),
        data,
        (index[: data.n], None if data.x_test is None else index[data.n :]),
        is_leaf=lambda leaf: leaf is None,
    )
    start = block(points.T)
    nothing = jnp.zeros((start.shape[0], data.n), points.dtype)
    return GramBlock(nothing, start, kernel_of(block, points, points[: data.n]), points, block), seen
