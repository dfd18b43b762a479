"""Prepared inputs: points together with what a network has computed on them once.

A `Dataset` stays raw from the user's call to the stored result. Where a network can do work on its points in advance
(send them through a frozen embedding, cut images into patches, look up their rows of a Gram matrix), `Network.prepare`
returns handles of the types below. A handle keeps the raw points and the precomputed arrays in step, and any of our
networks may be called on it: one that does not know the precomputed arrays uses the raw points. A network with nothing
to precompute, such as a user's own that defines ``__call__`` only, is always called on raw arrays.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from unlazy._errors import UserError
from unlazy._types import Inputs

if TYPE_CHECKING:
    from unlazy.data import Dataset
    from unlazy.networks._base import Network


class PreparedInputs(eqx.Module):
    """A batch of points, and what some network has computed on them.

    Slicing (``x[-5:]``, ``x[indices]``) keeps both in step. Inside a probe ``obs.network(obs.x)`` is the fast way to
    evaluate the network on the training inputs, and ``obs.network(obs.data.x)`` gives the same values.

    Attributes
    ----------
    raw
        The points as they are in the data set, sample axis first.
    known
        What was computed on them, sample axis first; None where nothing was.
    """

    raw: Inputs
    known: Float[Array, "..."] | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the raw points."""
        return self.raw.shape

    @property
    def ndim(self) -> int:
        """Number of axes of the raw points."""
        return self.raw.ndim

    @property
    def dtype(self) -> jnp.dtype:
        """Precision of the raw points."""
        return self.raw.dtype

    def __len__(self) -> int:
        return self.raw.shape[0]

    def __getitem__(self, index: Any) -> PreparedInputs:
        index = _batch_index(index)
        return type(self)(self.raw[index], None if self.known is None else self.known[index])

    def joined(self, other: PreparedInputs) -> PreparedInputs:
        """Return the points of both handles, which one network has prepared, as one handle."""
        raw = jnp.concatenate([self.raw, other.raw])
        if self.known is None or other.known is None:
            return type(self)(raw)
        return type(self)(raw, jnp.concatenate([self.known, other.known]))


class Features(PreparedInputs):
    """Points with their fixed features, which a layer is trained on."""


class Patches(PreparedInputs):
    """Images with all their patches."""


class Radii(PreparedInputs):
    """Points with their lengths |x|."""


class LimitFeatures(PreparedInputs):
    """Points with all that a `TwoLayerLimit` has computed on them, of which the first ``trained`` are trained on.

    Columns: features of the heavy nodes (none if they are the inputs), features of the light part, and what the light
    part gives at the start.
    """

    trained: int = eqx.field(static=True, default=0)

    def __getitem__(self, index: Any) -> LimitFeatures:
        cut = super().__getitem__(index)
        count = len(cut) if self.all_trained else 0
        if isinstance(index, slice) and (step := index.indices(len(self)))[2] == 1:
            count = min(max(self.trained - step[0], 0), len(cut))
        return LimitFeatures(cut.raw, cut.known, count)

    def joined(self, other: PreparedInputs) -> LimitFeatures:
        both = super().joined(other)
        more = other.trained if self.all_trained and isinstance(other, LimitFeatures) else 0
        return LimitFeatures(both.raw, both.known, self.trained + more)

    @property
    def all_trained(self) -> bool:
        """Whether the network is trained on all of them."""
        return self.trained == len(self)


class Places(PreparedInputs):
    """Points that are rows of a Gram matrix: consecutive ones, beginning with ``first``, or those of ``index``.

    A range that is known when a computation is compiled costs nothing; an index has to be looked up.
    """

    index: Int[Array, " q"] | None = None
    first: int = eqx.field(static=True, default=0)
    count: int | None = eqx.field(static=True, default=None)

    def __getitem__(self, index: Any) -> Places:
        index = _batch_index(index)
        raw = self.raw[index]
        self.check()
        if self.index is not None:
            return Places(raw, index=self.index[index])
        if isinstance(index, slice) and (step := index.indices(len(self)))[2] == 1:
            return Places(raw, first=self.first + step[0], count=raw.shape[0])
        return Places(raw, index=jnp.arange(self.first, self.first + len(self), dtype=jnp.int32)[index])

    def joined(self, other: PreparedInputs) -> Places:
        if not isinstance(other, Places):
            raise UserError("Only points of one Gram matrix can be joined.")
        raw = jnp.concatenate([self.raw, other.raw])
        if self.index is None and other.index is None and other.first == self.first + len(self):
            return Places(raw, first=self.first, count=raw.shape[0])
        return Places(raw, index=jnp.concatenate([self.place(), other.place()]))

    def place(self) -> Int[Array, " q"]:
        """Rows of the Gram matrix, one for each point."""
        self.check()
        return jnp.arange(self.first, self.first + len(self), dtype=jnp.int32) if self.index is None else self.index

    def rows_of(self, gram: Float[Array, "p n"]) -> Points:
        """Look up these points in a Gram matrix with a row for each point and a column for each training point."""
        self.check()
        if self.index is not None:
            return Points(self.index, pick(gram, self.index, 0))
        return Points(None, gram[self.first : self.first + len(self)], self.first)

    def check(self) -> None:
        """Refuse a range whose points were taken apart by a transformation such as ``jax.vmap``."""
        if self.index is None and self.count != self.raw.shape[0]:
            raise UserError(
                "Prepared inputs in Gram coordinates cannot be mapped over sample by sample: take slices x[i : i + 1], "
                "or evaluate the network on the raw inputs."
            )


class Points(eqx.Module):
    """Points by their place among all points of a Gram matrix, with their rows of it; made by `Places.rows_of`.

    Without an index they are consecutive, beginning with ``first``.
    """

    index: Int[Array, " q"] | None
    rows: Float[Array, "q n"]
    first: int = eqx.field(static=True, default=0)

    def head(self, count: int) -> Points:
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
        # Usually these are all samples in their own order, and there is nothing to sort.
        return jax.lax.cond(jnp.all(index == jnp.arange(n)), lambda: each, sorted_in)

    def against(self, other: Points, n: int, recompute: Callable[[], Array]) -> Array:
        """Return the Gram matrix between these and other points; between test points it comes from ``recompute``."""
        if other.index is None:
            end = other.first + other.rows.shape[0]
            return self.rows[:, other.first : end] if end <= n else recompute()
        index = other.index
        return jax.lax.cond(jnp.all(index < n), lambda: pick(self.rows, index, 1), recompute)


def pick(array: Array, index: Int[Array, " q"], axis: int) -> Array:
    """Take entries along an axis, as one slice if they are contiguous, which they usually are."""
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


def _batch_index(index: Any) -> Any:
    if isinstance(index, int) or index is None or (hasattr(index, "ndim") and index.ndim == 0):
        raise UserError(f"Prepared inputs are batches: take the slice x[{index}:{index} + 1] instead of x[{index}].")
    return index


Batch: TypeAlias = Inputs | PreparedInputs
OtherBatch: TypeAlias = Float[Array, "p ..."] | PreparedInputs


def known_as(x: Any, kind: type[PreparedInputs]) -> Array | None:
    """Return what was computed on a batch, if it is a handle of this kind."""
    return x.known if isinstance(x, kind) else None


def raw_inputs(x: Batch) -> Inputs:
    """Return the raw points of a batch, prepared or not.

    Parameters
    ----------
    x
        Raw inputs, or a handle.
    """
    return x.raw if isinstance(x, PreparedInputs) else x


def raw_vectors(x: Batch) -> Float[Array, "n d"]:
    """Return the raw points of a batch; raise an error unless they are vectors."""
    raw = raw_inputs(x)
    if raw.ndim != 2:
        raise UserError(
            f"This network takes a batch of vectors (n, d), not an array of shape {raw.shape}: use data.flat(), or "
            "x[None] for one sample."
        )
    return raw


class Prepared(NamedTuple):
    """A network in the form in which it is trained, with its inputs.

    Attributes
    ----------
    network
        The network in the form in which it is trained.
    x, x_test
        Training and test inputs: handles, or raw arrays.
    """

    network: Network
    x: Batch
    x_test: Batch | None


def prepared_by(network: Network, data: Dataset, make: Callable[[Inputs], Batch]) -> Prepared:
    """Prepare training and test inputs with ``make``, a function from raw points to a handle."""
    return Prepared(network, make(data.x), None if data.x_test is None else make(data.x_test))


def in_places(network: Network, data: Dataset) -> Prepared:
    """Prepare a network in Gram coordinates: training points first, then test points."""
    test = None if data.x_test is None else Places(data.x_test, first=data.n, count=data.x_test.shape[0])
    return Prepared(network, Places(data.x, first=0, count=data.n), test)


class Samples(eqx.Module):
    """Training samples as a prepared network takes them: what a flow descends on and controls its errors by.

    Attributes
    ----------
    x, y
        Training inputs and targets.
    weight
        Weight of each sample.
    x_test
        Test inputs.
    """

    x: Batch
    y: Float[Array, "n *k"]
    weight: Float[Array, " n"] | None = None
    x_test: OtherBatch | None = None

    @property
    def n(self) -> int:
        """Number of samples."""
        return self.y.shape[0]

    @property
    def dtype(self) -> jnp.dtype:
        """Precision of the samples."""
        return self.x.dtype

    def __getitem__(self, index: Any) -> Samples:
        weight = None if self.weight is None else self.weight[index]
        return Samples(self.x[index], self.y[index], weight, self.x_test)

    def judged(self, most: int) -> Batch:
        """Inputs on which errors are judged: all that are trained on, and up to ``most`` of the test inputs."""
        if self.x_test is None:
            return self.x
        test = self.x_test[:most]
        if isinstance(self.x, PreparedInputs) and isinstance(test, PreparedInputs):
            return self.x.joined(test)
        return jnp.concatenate([raw_inputs(self.x), raw_inputs(test)])
