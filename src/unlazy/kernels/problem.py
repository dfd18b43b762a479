"""A function of parameters and a batch, as a function of its trained leaves and of one sample."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from unlazy._errors import UserError
from unlazy._types import PyTree
from unlazy.kernels.counts import has_own_vjp
from unlazy.kernels.structure import Function


class Problem(NamedTuple):
    """A function of trained leaves and one sample, with names and rates of the leaves."""

    function: Function
    leaves: list[Any]
    names: list[str]
    rates: list[Any]


def pushed(outputs: Callable[[list[Any]], Array], leaves: list[Any], step: list[Any]) -> Array:
    """Return J v by forward-mode derivatives, or twice by reverse mode where a function has no other."""
    closed, shape = jax.make_jaxpr(outputs, return_shape=True)(leaves)
    if not has_own_vjp(closed.jaxpr):
        return jax.jvp(outputs, (leaves,), (step,))[1]
    _, back = jax.vjp(outputs, leaves)  # u -> J^T u is linear: its own transpose is J
    _, forth = jax.vjp(lambda u: back(u)[0], jnp.zeros(shape.shape, shape.dtype))
    return forth(step)[0]


def cut(tree: PyTree, size: int, *, repeat: bool = True) -> PyTree:
    """Cut the first axis into blocks; the last one is filled up with first rows again, or with zeros."""

    def blocks_of(leaf: Array) -> Array:
        n = leaf.shape[0]
        blocks = -(-n // size)
        if repeat:
            leaf = leaf[np.arange(blocks * size) % n]
        else:
            leaf = jnp.pad(leaf, [(0, blocks * size - n), *[(0, 0)] * (leaf.ndim - 1)])
        return leaf.reshape(blocks, size, *leaf.shape[1:])

    return jax.tree.map(blocks_of, tree)


def samples_of(x: PyTree) -> int:
    """Return the number of samples of a batch."""
    sizes = {leaf.shape[0] if getattr(leaf, "ndim", 0) else 0 for leaf in jax.tree.leaves(x)}
    if len(sizes) != 1 or 0 in sizes:
        raise UserError("A batch is an array, or a tree of arrays, with the samples along the first axis.")
    return sizes.pop()


def split(params: PyTree, rates: PyTree | None) -> tuple[PyTree, PyTree, PyTree]:
    """Split parameters into trained leaves and the rest, and give the rates of the trained ones as arrays or 1.0."""
    params = jax.tree.map(lambda leaf: jnp.asarray(leaf) if isinstance(leaf, np.ndarray) else leaf, params)
    trained, rest = eqx.partition(params, eqx.is_inexact_array)
    if rates is None:
        return trained, rest, jax.tree.map(lambda _: 1.0, trained)
    if jax.tree.structure(rates) != jax.tree.structure(trained):
        raise UserError("`rates` must be a tree with one number or array for each floating-point array of `params`.")
    moves = jax.tree.map(lambda rate: not (isinstance(rate, (int, float)) and rate == 0), rates)
    trained, frozen = eqx.partition(trained, moves)
    kept = jax.tree.map(lambda rate, moves: _as_rate(rate) if moves else None, rates, moves)
    return trained, eqx.combine(rest, frozen), kept


def _as_rate(rate: Any) -> Any:
    """Numbers other than 1 become arrays, so that nothing is compiled anew for another number."""
    return 1.0 if isinstance(rate, (int, float)) and rate == 1 else jnp.asarray(rate)


def problem_of(apply: Callable[[Any, Any], Array], trained: PyTree, rest: PyTree, rates: PyTree) -> Problem:
    """Write ``apply`` as a function of the list of trained leaves and of one sample."""
    with_paths, tree = jax.tree_util.tree_flatten_with_path(trained)

    def one(leaves: list[Any], sample: PyTree) -> Array:
        params = eqx.combine(jax.tree.unflatten(tree, leaves), rest)
        out = apply(params, jax.tree.map(lambda leaf: leaf[None], sample))
        if not hasattr(out, "shape") or out.shape[:1] != (1,):
            shape = getattr(out, "shape", type(out).__name__)
            raise UserError(f"The function must return outputs (n,) or (n, k); for a batch of one it returned {shape}.")
        return out[0]

    return Problem(
        one,
        [leaf for _, leaf in with_paths],
        [leaf_name(path) or "params" for path, _ in with_paths],
        jax.tree.leaves(rates),
    )


def leaf_name(path: Sequence[Any]) -> str:
    """Return the place of a leaf in a tree as a name with dots: ``mlp.layers.0.weight``; empty for an array alone."""
    return re.sub(r"[./~\s]+", ".", jax.tree_util.keystr(tuple(path), simple=True, separator=".")).strip(".")
