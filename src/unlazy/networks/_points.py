"""The points of a data set at which a layer in Gram coordinates is evaluated."""

from __future__ import annotations

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from unlazy.networks._prepared import Places


class Points(eqx.Module):
    """Points by their place among all points of a Gram matrix, with their rows of it.

    Without an index they are those from ``first`` on, in their order.
    """

    index: Int[Array, " q"] | None
    rows: Float[Array, "q n"]
    first: int = eqx.field(static=True, default=0)

    def first_ones(self, count: int) -> Points:
        """Return the first ``count`` of them."""
        return Points(None if self.index is None else self.index[:count], self.rows[:count], self.first)

    def columns(self, array: Float[Array, "m p"]) -> Float[Array, "m q"]:
        """Return the columns of ``array`` that belong to these points."""
        if self.index is None:
            return jax.lax.slice_in_dim(array, self.first, self.first + self.rows.shape[0], axis=1)
        return pick(array, self.index, 1)

    def scattered(self, each: Float[Array, "m q"], n: int) -> Float[Array, "m n"]:
        """Add up what belongs to these points in the columns of the n training points."""
        if self.index is None:
            inside = each[:, : max(0, n - self.first)]
            return jnp.pad(inside, ((0, 0), (min(self.first, n), max(0, n - self.first - each.shape[1]))))
        index = self.index

        def sorted_in() -> Array:
            return each @ jax.nn.one_hot(index, n, dtype=each.dtype)

        if index.shape[0] != n:
            return sorted_in()
        # All samples, as a rule in their own order: nothing to sort.
        return jax.lax.cond(jnp.all(index == jnp.arange(n)), lambda: each, sorted_in)


def rows_of(gram: Float[Array, "p n"], x: Places) -> Points:
    """Look up the points of a handle."""
    x.check()
    if x.index is not None:
        return Points(x.index, pick(gram, x.index, 0))
    return Points(None, gram[x.first : x.first + len(x)], x.first)


def between(left: Points, right: Points, n: int, afresh: Callable[[], Array]) -> Array:
    """Return the Gram matrix between two sets of points; between test points it comes from ``afresh``."""
    if right.index is None:
        end = right.first + right.rows.shape[0]
        return left.rows[:, right.first : end] if end <= n else afresh()
    index = right.index
    return jax.lax.cond(jnp.all(index < n), lambda: pick(left.rows, index, 1), afresh)


def pick(array: Array, index: Int[Array, " q"], axis: int) -> Array:
    """Take entries along an axis; in one piece where they lie side by side, as a rule."""
    count = index.shape[0]
    if count == array.shape[axis]:
        whole = jnp.all(index == jnp.arange(count))
        return jax.lax.cond(whole, lambda: array, lambda: jnp.take(array, index, axis=axis))
    together = jnp.all(index == index[0] + jnp.arange(count))
    return jax.lax.cond(
        together,
        lambda: jax.lax.dynamic_slice_in_dim(array, index[0], count, axis),
        lambda: jnp.take(array, index, axis=axis),
    )
