"""Sweeps over neurons: slab by slab so that memory stays bounded, and shared out over devices.

Neurons only meet in sums over all of them, of the size of the data. So whatever is done to neurons is written once, for
some of them, as a function that gives what belongs to each and its share of the sums.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, PartitionSpec
from jaxtyping import Array

from unlazy._types import PyTree


@dataclasses.dataclass(frozen=True)
class Layout:
    """How neurons are gone through: at most ``slab`` at a time, shared out over ``mesh``, products in ``product``.

    Without a slab everything fits into memory, and what one pass has made is kept for the next.
    """

    slab: int | None = None
    mesh: Mesh | None = None
    product: jnp.dtype | None = None


Body = Callable[[PyTree, PyTree], tuple[PyTree, PyTree]]
AXIS = "neurons"


def sweep(body: Body, neurons: PyTree, shared: PyTree, slab: int | None = None, mesh: Mesh | None = None) -> Any:
    """Give (each, total) = body(neurons, shared), where ``each`` has a leading axis of neurons and ``total`` is a sum.

    With ``slab`` the body sees that many neurons at a time, so that what it makes on its way is no larger. With
    ``mesh`` every device does its own part of the neurons and only the totals cross between devices.
    """

    def local(neurons: PyTree, shared: PyTree) -> tuple[PyTree, PyTree]:
        return _in_slabs(body, neurons, shared, slab)

    if mesh is None:
        return local(neurons, shared)

    def part(neurons: PyTree, shared: PyTree) -> tuple[PyTree, PyTree]:
        each, total = local(neurons, shared)
        return each, jax.lax.psum(total, AXIS)

    split, whole = PartitionSpec(AXIS), PartitionSpec()
    return jax.shard_map(part, mesh=mesh, in_specs=(split, whole), out_specs=(split, whole), check_vma=False)(
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
