"""The tangent kernel as an operator: products Θ v without Θ, and the leading eigenvalues by Lanczos iterations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from unlazy._checked import checked
from unlazy._errors import UserError
from unlazy._types import PyTree
from unlazy.kernels.problem import Problem, cut, problem_of, pushed, samples_of, split


@checked
def tangent_product(
    apply: Callable[[Any, Any], Array],
    params: PyTree,
    x: PyTree,
    signal: Float[Array, "n *k"] | Float[np.ndarray, "n *k"],
    z: PyTree | None = None,
    *,
    rates: PyTree | None = None,
    block: int | None = None,
) -> Float[Array, "p *k"]:
    """Compute Θ(z, x) v = J(z) R (J(x)^T v) without Θ: one backward and one forward derivative.

    The cost is that of about five evaluations of the function on each sample, and memory for the parameters twice and
    for the intermediate results of one block of samples. It wins over Θ itself as long as there are fewer products than
    samples times outputs.

    Parameters
    ----------
    apply, params, x
        As in `unlazy.kernels.tangent_kernel`.
    signal
        v, of the shape of the outputs on x.
    z
        The batch on which the product is evaluated; x if omitted.
    rates
        As in `unlazy.kernels.tangent_kernel`.
    block
        Samples that are differentiated at a time; all if omitted.
    """
    trained, rest, rates = split(params, rates)
    return _product(apply, trained, rest, x, jnp.asarray(signal), z, rates, block)


@eqx.filter_jit
def _product(
    apply: Any, trained: Any, rest: Any, x: Any, signal: Array, z: Any, rates: Any, block: int | None
) -> Array:
    return _act(problem_of(apply, trained, rest, rates), x, x if z is None else z, signal, block)


def _act(problem: Problem, x: PyTree, z: PyTree, signal: Array, block: int | None) -> Array:
    function, leaves = problem.function, problem.leaves

    def outputs(values: list[Array], points: PyTree) -> Array:
        return jax.vmap(lambda sample: function(values, sample))(points)

    def pull(points: PyTree, some: Array) -> list[Array]:
        _, back = jax.vjp(lambda values: outputs(values, points), leaves)
        return back(some)[0]

    def push(points: PyTree, step: list[Array]) -> Array:
        return pushed(lambda values: outputs(values, points), leaves, step)

    n, p = samples_of(x), samples_of(z)
    whole = jax.eval_shape(lambda: outputs(leaves, x))
    if signal.shape != whole.shape:
        raise UserError(
            f"The signal has shape {signal.shape}, but the outputs have {whole.shape}: give one entry for each."
        )
    signal = signal.astype(whole.dtype)
    if block is None or block >= max(n, p):
        step = pull(x, signal)
    else:
        padded = cut(signal, min(block, n), repeat=False)  # the samples that fill up the last block have no signal

        def add(total: list[Array], part: tuple[PyTree, Array]) -> tuple[list[Array], None]:
            return jax.tree.map(jnp.add, total, pull(*part)), None

        zero = [jnp.zeros_like(leaf) for leaf in leaves]
        step, _ = jax.lax.scan(add, zero, (cut(x, min(block, n)), padded))
    step = [jnp.asarray(rate, leaf.dtype) * leaf for rate, leaf in zip(problem.rates, step, strict=True)]
    if block is None or block >= p:
        return push(z, step)
    moved = jax.lax.map(lambda points: push(points, step), cut(z, block))
    return moved.reshape(-1, *moved.shape[2:])[:p]


@checked
def leading_eigenvalues(
    apply: Callable[[Any, Any], Array],
    params: PyTree,
    x: PyTree,
    count: int = 6,
    *,
    rates: PyTree | None = None,
    tolerance: float = 0.0,
    block: int | None = None,
) -> tuple[Float[np.ndarray, " count"], Float[np.ndarray, "count ..."]]:
    """Compute the largest eigenvalues of Θ(x, x) and their eigenvectors by Lanczos iterations, without Θ.

    ``scipy.sparse.linalg.eigsh`` (ARPACK) needs some 20 to 100 products Θ v, each as cheap as a few evaluations of the
    function, and memory for 2 ``count`` + 1 vectors of n k numbers. It wins over a decomposition of Θ when n k exceeds
    a few thousand; it does not find small eigenvalues.

    Parameters
    ----------
    apply, params, x, rates
        As in `unlazy.kernels.tangent_kernel`.
    count
        Number of eigenvalues, fewer than samples times outputs.
    tolerance
        Relative accuracy of the eigenvalues; 0 for rounding.
    block
        Samples that are differentiated at a time; all if omitted.

    Returns
    -------
    values
        The eigenvalues, in descending order.
    vectors
        The eigenvectors, one for each eigenvalue, of the shape of the outputs.
    """
    from scipy.sparse.linalg import LinearOperator, eigsh

    trained, rest, rates = split(params, rates)
    whole = eqx.filter_eval_shape(apply, params, x)
    size = int(np.prod(whole.shape))
    if not 1 <= count < size:
        raise UserError(f"count = {count} is out of range: Θ has {size} eigenvalues, and fewer than all can be found.")

    def act(v: np.ndarray) -> np.ndarray:
        signal = jnp.asarray(v.reshape(whole.shape), whole.dtype)
        return np.asarray(_product(apply, trained, rest, x, signal, None, rates, block)).reshape(-1)

    start = np.random.default_rng(0).standard_normal(size).astype(whole.dtype)
    operator: Any = LinearOperator  # SciPy declares its internal constructor only
    theta = operator((size, size), matvec=act, dtype=whole.dtype)
    options: dict[str, Any] = {"tol": tolerance, "v0": start}
    values, vectors = eigsh(theta, k=count, which="LA", **options)
    return values[::-1], vectors.T[::-1].reshape(count, *whole.shape)
