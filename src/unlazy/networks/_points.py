"""The points of a data set at which neurons in Gram coordinates are looked at."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int


class Points(eqx.Module):
    """The points at which neurons are looked at: their place among all points, and their rows of the kernel.

    Without an index they are the first ones in their order.
    """

    index: Int[Array, " q"] | None
    rows: Float[Array, "q n"]

    def place(self) -> Int[Array, " q"]:
        """Their place among all points."""
        return jnp.arange(self.rows.shape[0]) if self.index is None else self.index

    def first(self, count: int) -> Points:
        """The first of them."""
        return Points(None if self.index is None else self.index[:count], self.rows[:count])

    def of(self, array: Float[Array, "m p"]) -> Float[Array, "m q"]:
        """Their columns of an array."""
        return array[:, : self.rows.shape[0]] if self.index is None else pick(array, self.index, 1)


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


def columns_of(each: Float[Array, "m q"], index: Int[Array, " q"] | None, n: int) -> Float[Array, "m n"]:
    """Bring what belongs to points to their columns."""
    if index is None:
        return jnp.pad(each[:, :n], ((0, 0), (0, max(0, n - each.shape[1]))))

    def sorted_in() -> Array:
        return each @ jax.nn.one_hot(index, n, dtype=each.dtype)

    if index.shape[0] != n:
        return sorted_in()
    # All samples, as a rule in their own order: nothing to sort.
    return jax.lax.cond(jnp.all(index == jnp.arange(n)), lambda: each, sorted_in)
