"""The empirical tangent kernel Θ(x, z) = J(x) R J(z)^T of any JAX function, at a cost that is chosen."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from unlazy._checked import checked
from unlazy._errors import UserError
from unlazy._memory import GIB, available, must_fit
from unlazy._types import PyTree
from unlazy.kernels.blocks import Blocks, blocks_within
from unlazy.kernels.factors import combined, factors_of
from unlazy.kernels.problem import Problem, cut, problem_of, pushed, samples_of, split
from unlazy.kernels.structure import Choice, Method, Structure, choose

MEMORY = 2.0**29  # bytes of a block, if `memory` is not given


class Costs(NamedTuple):
    """What one way of computing Θ costs; made by `kernel_costs`.

    Attributes
    ----------
    method
        ``"layers"``, ``"jacobian"`` or ``"products"``, or ``"auto"`` for the choice among them, leaf by leaf.
    operations
        Multiplications and additions, estimated.
    bytes
        Working memory beside the result, estimated.
    blocks
        Number of blocks of samples and outputs.
    gram
        Names of the parameters whose part is computed by Gram matrices.
    """

    method: str
    operations: float
    bytes: float
    blocks: int
    gram: tuple[str, ...]


@checked
def tangent_kernel(
    apply: Callable[[Any, Any], Array],
    params: PyTree,
    x: PyTree,
    z: PyTree | None = None,
    *,
    rates: PyTree | None = None,
    outputs: Literal["all", "trace"] | int = "all",
    method: Method = "auto",
    memory: float | None = None,
) -> Float[Array, "..."]:
    """Compute the empirical tangent kernel Θ(x, z) = J(x) R J(z)^T of a function of parameters and a batch.

    ``"layers"`` uses that a weight's part of Θ is Σ_pq (a_p · a'_q) (s_p · s'_q), with the layer's inputs a and
    backpropagated signals s at its places p; it builds no Jacobian. ``"jacobian"`` builds the Jacobian of each
    parameter in blocks and multiplies them. ``"products"`` builds the columns J (R J^T e). For n samples, k outputs, P
    parameters, a forward pass of F operations per sample, and a layer of D inputs, M units and p places:

    ============== =========================== =========================== ======================================
    method         operations                  memory for a block of b     cheapest for
    ============== =========================== =========================== ======================================
    ``"layers"``   n k F + n² Σ p² (D + k² M)  b Σ p (D + k M) + b² k² p²  dense layers with few places
    ``"jacobian"`` n k F + n² k² P             b k P                       convolutions, biases, other parameters
    ``"products"`` n² k F                      b k P                       many outputs and many places
    ============== =========================== =========================== ======================================

    ``"auto"`` estimates the operations and takes the cheapest, for each parameter by itself. If the factors of all
    samples do not fit into ``memory``, they are computed again for each block of rows. The computation is compiled once
    for each function object ``apply`` and shape: define the function once.

    Parameters
    ----------
    apply
        Function ``apply(params, batch)`` that returns outputs (n,) or (n, k). Each sample must be treated
        independently: the kernel is that of batches of one.
    params
        Parameters: any tree, of which the floating-point arrays are trained; an Equinox module is one.
    x, z
        Two batches: arrays, or trees of arrays, with the samples along the first axis. Without ``z`` it is x.
    rates
        Tree of learning-rate factors R of the floating-point leaves, numbers or arrays of their shapes; 0.0 for a
        frozen one, which is not differentiated. Ones if omitted.
    outputs
        ``"all"`` for the kernel (n, k, n', k), or (n, n') for scalar outputs; ``"trace"`` for its sum over equal
        outputs, (n, n'), at a k-th of the cost; the index of one output for the kernel of this one, (n, n').
    method
        ``"auto"``, ``"layers"``, ``"jacobian"`` or ``"products"``.
    memory
        Bound on the working memory in bytes, the result not included. By default blocks of 512 MiB, or of whatever one
        sample and one output need.

    Examples
    --------
    >>> theta = tangent_kernel(lambda model, x: jax.vmap(model)(x), equinox_model, x)
    """
    trained, rest, rates = split(params, rates)
    return _compiled(apply, trained, rest, x, z, rates, outputs, method, memory)


@eqx.filter_jit
def _compiled(
    apply: Any, trained: Any, rest: Any, x: Any, z: Any, rates: Any, outputs: Any, method: Any, memory: Any
) -> Array:
    return kernel_of(problem_of(apply, trained, rest, rates), x, z, outputs=outputs, method=method, memory=memory)


@checked
def kernel_costs(
    apply: Callable[[Any, Any], Array],
    params: PyTree,
    x: PyTree,
    z: PyTree | None = None,
    *,
    rates: PyTree | None = None,
    outputs: Literal["all", "trace"] | int = "all",
    memory: float | None = None,
) -> dict[str, Costs]:
    """Estimate what each way of computing the tangent kernel costs, without computing it.

    Parameters
    ----------
    apply, params, x, z, rates, outputs, memory
        As in `tangent_kernel`. Without ``memory``, everything is one block.
    """
    trained, rest, rates = split(params, rates)
    problem = problem_of(apply, trained, rest, rates)
    structure, rows, columns, reduced = _traced(problem, x, z, outputs)
    found = {}
    for method in ("auto", "layers", "jacobian", "products"):
        choice = _choice(structure, problem, method, rows, columns, reduced)
        bound = math.inf if memory is None else memory
        blocks = blocks_within(structure, problem.leaves, choice, rows, columns, reduced, bound)
        k = 1 if reduced == "one" else structure.outputs
        count = math.prod(-(-a // b) for a, b in zip((rows, columns, k, k), (*blocks[:3], blocks.outputs), strict=True))
        gram = tuple(name for name, by_gram in zip(problem.names, choice.gram, strict=True) if by_gram)
        found[method] = Costs("products" if choice.products else method, choice.operations, blocks.bytes, count, gram)
    return found


def kernel_of(
    problem: Problem,
    x: PyTree,
    z: PyTree | None = None,
    *,
    outputs: Literal["all", "trace"] | int = "all",
    method: Method = "auto",
    memory: float | None = None,
) -> Float[Array, "..."]:
    """Compute the tangent kernel inside a compiled computation; see `tangent_kernel`."""
    structure, rows, columns, reduced = _traced(problem, x, z, outputs)
    if not problem.leaves:
        raise UserError("There is no trained parameter: a tangent kernel needs a floating-point array with a rate.")
    k = 1 if reduced == "one" else structure.outputs
    result = rows * columns * (k * k if reduced == "all" else 1) * structure.dtype.itemsize
    must_fit(
        2.0 * result,
        f"A tangent kernel of {rows} x {columns} samples and {k} outputs",
        "take fewer samples, or 'trace'",
    )
    choice = _choice(structure, problem, method, rows, columns, reduced)
    blocks = blocks_within(
        structure, problem.leaves, choice, rows, columns, reduced, MEMORY if memory is None else memory
    )
    limit = available() if memory is None else memory
    if blocks.bytes > limit:
        raise UserError(
            f"One sample and one output of this tangent kernel need about {blocks.bytes / GIB:.3g} GiB, but `memory` "
            f"is {limit / GIB:.3g} GiB: allow more, or use `tangent_product`."
        )
    basis = jnp.eye(structure.outputs, dtype=structure.dtype)
    basis = basis[outputs][None] if isinstance(outputs, int) else basis
    z = x if z is None else z
    if choice.products:
        theta = _by_products(structure, problem, blocks, x, z, basis, trace=reduced == "trace")
    else:
        theta = _by_factors(structure, problem, choice, blocks, x, z, basis, trace=reduced == "trace")
    return theta[:, 0, :, 0] if reduced == "one" or (reduced == "all" and structure.scalar) else theta


def _traced(
    problem: Problem, x: PyTree, z: PyTree | None, outputs: Literal["all", "trace"] | int
) -> tuple[Structure, int, int, str]:
    rows = samples_of(x)
    one = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), x)
    structure = Structure(problem.function, problem.leaves, problem.names, one)
    if isinstance(outputs, int) and not 0 <= outputs < structure.outputs:
        raise UserError(f"There is no output {outputs}: the function has {structure.outputs}, counted from 0.")
    reduced = "one" if isinstance(outputs, int) else outputs
    return structure, rows, rows if z is None else samples_of(z), reduced


def _choice(structure: Structure, problem: Problem, method: Method, rows: int, columns: int, reduced: str) -> Choice:
    return choose(structure, method, rows, columns, reduced, [np.ndim(rate) == 0 for rate in problem.rates])


def _by_factors(
    structure: Structure,
    problem: Problem,
    choice: Choice,
    blocks: Blocks,
    x: PyTree,
    z: PyTree,
    basis: Array,
    *,
    trace: bool,
) -> Array:
    factors = factors_of(structure, choice, problem.leaves)
    shapes = [leaf.shape for leaf in problem.leaves]

    def pair(one: list[Any], other: list[Any]) -> Array:
        return combined(structure, choice, problem.rates, shapes, one, other, trace=trace)

    rows, columns, k = samples_of(x), samples_of(z), basis.shape[0]
    if (blocks.rows, blocks.columns, blocks.outputs) == (rows, columns, k):
        here = factors(x, basis)
        return pair(here, here if z is x else factors(z, basis))
    left, right, cotangents = cut(x, blocks.rows), cut(z, blocks.columns), cut(basis, blocks.outputs)
    if trace:

        def against(points: PyTree) -> Array:
            def one(others: PyTree) -> Array:
                def add(total: Array, some: Array) -> tuple[Array, None]:
                    return total + pair(factors(points, some), factors(others, some)), None

                return jax.lax.scan(add, jnp.zeros((blocks.rows, blocks.columns), structure.dtype), padded)[0]

            return jax.lax.map(one, right)

        padded = cut(basis, blocks.outputs, repeat=False)
        theta = jax.lax.map(against, left)  # (I, J, b, c)
        return jnp.swapaxes(theta, 1, 2).reshape(-1, theta.shape[1] * blocks.columns)[:rows, :columns]

    def row(points: PyTree) -> Array:
        def some(mine: Array) -> Array:
            here = factors(points, mine)
            return jax.lax.map(
                lambda others: jax.lax.map(lambda theirs: pair(here, factors(others, theirs)), cotangents), right
            )

        return jax.lax.map(some, cotangents)

    theta = jax.lax.map(row, left)  # (I, K, J, L, b, k, c, l)
    theta = jnp.transpose(theta, (0, 4, 1, 5, 2, 6, 3, 7))
    sizes = [theta.shape[at] * theta.shape[at + 1] for at in (0, 2, 4, 6)]
    return theta.reshape(sizes)[:rows, :k, :columns, :k]


def _by_products(
    structure: Structure, problem: Problem, blocks: Blocks, x: PyTree, z: PyTree, basis: Array, *, trace: bool
) -> Array:
    """Columns J(x) R J(z_j)^T e_c, a block of them at a time."""
    rows, columns, k = samples_of(x), samples_of(z), basis.shape[0]
    left, right, cotangents = cut(x, blocks.rows), cut(z, blocks.columns), cut(basis, blocks.outputs)

    def batch(leaves: list[Array], points: PyTree) -> Array:
        return jax.vmap(lambda sample: problem.function(leaves, sample).reshape(-1))(points) @ basis.T

    def pulled(sample: PyTree, some: Array) -> list[Array]:
        _, back = jax.vjp(lambda leaves: problem.function(leaves, sample).reshape(-1), problem.leaves)
        slopes = jax.vmap(back)(some)[0]
        spread = [jnp.broadcast_to(rate, slope.shape) for rate, slope in zip(problem.rates, slopes, strict=True)]
        return [rate.astype(slope.dtype) * slope for rate, slope in zip(spread, slopes, strict=True)]

    def column(some: Array) -> Callable[[PyTree], Array]:
        def of(others: PyTree) -> Array:
            tangents = jax.vmap(pulled, in_axes=(0, None))(others, some)  # (c, l, *leaf)

            def push(points: PyTree) -> Array:
                move = lambda one: pushed(lambda leaves: batch(leaves, points), problem.leaves, one)  # noqa: E731
                return jax.vmap(jax.vmap(move))(tangents)  # (c, l, b, k)

            return jax.lax.map(push, left)

        return of

    theta = jax.lax.map(lambda some: jax.lax.map(column(some), right), cotangents)  # (L, J, I, c, l, b, k)
    theta = jnp.transpose(theta, (2, 5, 6, 1, 3, 0, 4))  # (I, b, k, J, c, L, l)
    i, b, _, j, c, outer, inner = theta.shape
    theta = theta.reshape(i * b, k, j * c, outer * inner)[:rows, :, :columns, :k]
    return jnp.einsum("nkmk->nm", theta) if trace else theta
