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
    AbstractBlock,
    Block,
    Channels,
    Columns,
    Limit,
    Lower,
    OtherColumns,
    OtherSignals,
    Overlap,
    Signals,
    kernel_of,
    overlap,
    raw_columns,
    spread_out,
)
from unlazy.networks._points import Points, between, rows_of
from unlazy.networks._prepared import Places, PreparedInputs


@jax.custom_vjp
def _expansion(coefficients: Array, start: Array, points: Points) -> Array:
    return start - coefficients @ points.rows.T


def _kept(coefficients: Array, start: Array, points: Points) -> tuple[Array, Any]:
    return _expansion(coefficients, start, points), (coefficients.shape[1], points)


def _backward(kept: Any, signal: Array) -> tuple[Array, None, None]:
    # Γ' = dL/df and flows follow minus the gradient: what Γ gets for one is -dL/df, sample by sample.
    count, points = kept
    return -points.scattered(signal, count), None, None


_expansion.defvjp(_kept, _backward)


class GramBlock(AbstractBlock):
    """The first block by its coefficients Γ on the training points; its handles are `Places`.

    What autodiff gives for Γ is a velocity and not a differential, as in `GramTwoLayer`.
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

    @property
    def has_neurons(self) -> bool:
        """Whether it stands for a block of finite width."""
        return isinstance(self.origin, Block)

    def __call__(self, x: Columns | PreparedInputs) -> Channels:
        """f_k(0, x) - Σ_p Γ_kp G(x, x_p)."""
        if not isinstance(x, Places):
            return self.restored()(raw_columns(x))
        points = rows_of(self.gram, x)
        return _expansion(self.coefficients, points.columns(self.start), points)

    def rates(self) -> dict[str, float]:
        """All factors are in G."""
        return {"coefficients": 1.0}

    def push(self, x: Places, change: Float[Array, "D points"]) -> Channels:
        """The effect of a change of Γ on the channels."""
        return -change @ rows_of(self.gram, x).rows.T

    def back(self, x: Columns | PreparedInputs, up: Signals) -> Lower:
        """Refuse: nothing is trained below."""
        raise NotImplementedError("A block in Gram coordinates is the first of its stack.")

    def kernel(
        self, x: Columns | PreparedInputs, z: OtherColumns | PreparedInputs, up_x: Signals, up_z: OtherSignals
    ) -> Overlap:
        """G(x, z) u(x)·u(z)."""

        def afresh() -> Array:
            return kernel_of(self.origin, raw_columns(x).T, raw_columns(z).T)

        if isinstance(x, Places) and isinstance(z, Places):
            own = between(rows_of(self.gram, x), rows_of(self.gram, z), self.coefficients.shape[1], afresh)
        else:
            own = afresh()
        return spread_out(own) * overlap(up_x, up_z)

    def restored(self) -> Block | Limit:
        """A = A(0) - R s Γ φ(X)^T and c = c(0) - Σ_p Γ_p; at infinite width an expansion with the coefficients Γ."""
        n, block, c = self.coefficients.shape[1], self.origin, self.origin.c
        if "c" in self.train:
            c = c - jnp.sum(self.coefficients, axis=1)
        if isinstance(block, Limit):
            return block.trained_on(self.points[:n], float("a" in self.train) * self.coefficients, c)
        a = block.a
        assert a is not None
        if "a" in self.train:
            factor = block.rates().get("a", 0.0) * block.scale
            a = a - factor * (block.column(self.points[:n].T) @ self.coefficients.T)
        return eqx.tree_at(lambda one: (one.a, one.c), block, (a, c))

    def rows(self) -> Float[Array, "m D"] | None:
        """The amplitudes, if they are trained and belong to neurons."""
        return self.restored().rows()


def gram_block(block: Block | Limit, data: Dataset) -> GramBlock:
    """Write a first block on fixed features in Gram coordinates."""
    points = data.points()
    start = block(points.T)
    nothing = jnp.zeros((start.shape[0], data.n), points.dtype)
    return GramBlock(nothing, start, kernel_of(block, points, points[: data.n]), points, block)
