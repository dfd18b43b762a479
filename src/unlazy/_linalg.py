"""Eigenvalues and singular values: decompositions that can be batched, and extreme eigenvalues of large matrices.

JAX hands a batch of matrices to LAPACK in pieces, as tasks of the thread pool on which the program itself runs, and
waits for them. Two batches in flight on a machine with two cores then wait for each other forever. Matrices of a batch
therefore take turns here (`jax.custom_batching.sequential_vmap`); that costs nothing, as LAPACK fills the cores.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import jax
import jax.numpy as jnp
from jax.custom_batching import sequential_vmap
from jax.scipy.linalg import cho_solve
from jaxtyping import Array, Float
from threadpoolctl import threadpool_limits

DENSE = 768  # rows up to which all eigenvalues are computed: it then costs about as much
_STEPS = 96  # of Lanczos; outer eigenvalues are found to rounding long before, unless many crowd there
_INVERSE_STEPS = 32  # inversion spreads the small eigenvalues out: fewer will do

_lock = threading.Lock()
_limits: list[threadpool_limits] = []  # one per active `one_lapack_thread`; the first has set the limit


@contextmanager
def one_lapack_thread() -> Iterator[None]:
    """Limit LAPACK to one thread: its idle threads spin on cores that XLA needs, for longer than a small matrix takes.

    The limit is global to the process. If several Python threads set it, it lasts until the last of them leaves.
    """
    with _lock:
        _limits.append(_limits[0] if _limits else threadpool_limits(1, user_api="blas"))
    try:
        yield
    finally:
        with _lock:
            last = _limits.pop()
            if not _limits:
                last.restore_original_limits()


@functools.partial(jax.jit, static_argnames="axis")  # traced once for each shape: most probes and flows call it
def scaled(values: Float[Array, "..."], axis: int | None = None) -> tuple[Float[Array, "..."], Float[Array, "..."]]:
    """Divide values by the power of two that brings the largest near 1, so that squares neither vanish nor overflow.

    Squares of float32 numbers below 1e-19 are 0. Powers of two change no other bits.

    Parameters
    ----------
    values
        The values.
    axis
        The axis along which each vector gets a power of its own; one for all values if omitted.

    Returns
    -------
    tuple
        The values and the powers, in the shape that broadcasts against them.
    """
    largest = jnp.max(jnp.abs(values), axis=axis, keepdims=True, initial=0)
    most = jnp.finfo(values.dtype).maxexp - 2  # the inverse of any larger power would be 0 too
    power = jnp.clip(jnp.frexp(jnp.where(jnp.isfinite(largest), largest, 1))[1], -most, most)
    power = jnp.where(largest > 0, power, 0)
    one = jnp.ones_like(largest)
    return values * jnp.ldexp(one, -power), jnp.ldexp(one, power)


def norm(values: Float[Array, "..."], axis: int | None = None, keepdims: bool = False) -> Float[Array, "..."]:
    """Compute the root of the sum of squares along an axis, or of all values, however small or large they are."""
    small, unit = scaled(values, axis)
    unit = unit if keepdims else jnp.squeeze(unit, axis)
    return jnp.sqrt(jnp.sum(jnp.square(small), axis=axis, keepdims=keepdims)) * unit


@sequential_vmap
def eigvalsh(matrix: Float[Array, "p p"]) -> Float[Array, " p"]:
    """Compute the eigenvalues of a symmetric matrix, in ascending order."""
    return jnp.linalg.eigvalsh(matrix)


@sequential_vmap
def eigh(matrix: Float[Array, "p p"]) -> tuple[Float[Array, " p"], Float[Array, "p p"]]:
    """Compute the eigenvalues of a symmetric matrix, in ascending order, and its eigenvectors as columns."""
    values, vectors = jnp.linalg.eigh(matrix)
    return values, vectors


@sequential_vmap
def singular_values(matrix: Float[Array, "p q"]) -> Float[Array, " r"]:
    """Compute the singular values of a matrix, in descending order."""
    return jnp.linalg.svd(matrix, compute_uv=False)


def extreme_eigenvalues(matrix: Float[Array, "p p"]) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """Compute the smallest and the largest eigenvalue of a positive semi-definite matrix.

    Large matrices go through Lanczos, the smallest eigenvalue by inversion: a plain iteration would need some
    √(largest / smallest) steps, and a tangent kernel is ill-conditioned. The smallest eigenvalue is then that of Θ + s,
    less s, where s starts at rounding (eps ‖Θ‖_∞) and grows until a Cholesky factor exists. Both are known up to a few
    s.
    """
    values = _outer_eigenvalues(matrix)
    return values[0] if matrix.shape[0] <= DENSE else _smallest(matrix), jnp.max(values)


def operator_norm(matrix: Float[Array, "p p"]) -> Float[Array, ""]:
    """Compute ‖A‖_2 of a symmetric matrix: the largest |eigenvalue|, by Lanczos if the matrix is large."""
    return jnp.max(jnp.abs(_outer_eigenvalues(matrix)))


def _outer_eigenvalues(matrix: Float[Array, "p p"]) -> Float[Array, " k"]:
    """All eigenvalues of a small matrix; of a large one, Ritz values that include the largest |eigenvalue|."""
    if matrix.shape[0] <= DENSE:
        return eigvalsh(matrix)
    return _ritz(lambda v: matrix @ v, matrix.shape[0], matrix.dtype, _STEPS)


def _smallest(matrix: Float[Array, "p p"]) -> Float[Array, ""]:
    size, dtype = matrix.shape[0], matrix.dtype
    scale = jnp.max(jnp.sum(jnp.abs(matrix), axis=1))
    first = jnp.finfo(dtype).eps * jnp.where(scale > 0, scale, 1)

    def factor(shift: Array) -> Array:
        return jnp.linalg.cholesky(matrix + shift * jnp.eye(size, dtype=dtype))

    def grow(state: tuple[Array, Array]) -> tuple[Array, Array]:
        shift = 8 * state[0]
        return shift, factor(shift)

    def broken(state: tuple[Array, Array]) -> Array:
        # A larger shift does not help a matrix that is not finite, or negative by more than rounding.
        return jnp.isnan(state[1][-1, -1]) & (state[0] < 1e6 * first) & jnp.isfinite(scale)

    shift, lower = jax.lax.while_loop(broken, grow, (first, factor(first)))
    values = _ritz(lambda v: cho_solve((lower, True), v), size, dtype, _INVERSE_STEPS)
    return 1 / jnp.max(values) - shift


def _ritz(act: Callable[[Array], Array], size: int, dtype: jnp.dtype, steps: int) -> Float[Array, " k"]:
    """Ritz values of a symmetric operator after ``steps`` steps of Lanczos with full orthogonalisation.

    Once the Krylov space is exhausted, the remaining values are 0, which is never the largest |eigenvalue|.
    """
    steps = min(steps, size)
    start = jax.random.normal(jax.random.key(0), (size,), dtype)

    def step(basis: Array, index: Array) -> tuple[Array, tuple[Array, Array]]:
        here = basis[index]
        new = act(here)
        diagonal = here @ new
        for _ in range(2):  # twice is enough
            new = new - basis.T @ (basis @ new)
        length = norm(new)
        alive = length > 10 * size * jnp.finfo(dtype).eps * jnp.abs(diagonal)
        new = jnp.where(alive, new / jnp.where(alive, length, 1), 0)
        return basis.at[index + 1].set(new), (diagonal, jnp.where(alive, length, 0))

    basis = jnp.zeros((steps + 1, size), dtype).at[0].set(start / jnp.linalg.norm(start))
    _, (diagonal, beside) = jax.lax.scan(step, basis, jnp.arange(steps))
    tridiagonal = jnp.diag(diagonal) + jnp.diag(beside[:-1], 1) + jnp.diag(beside[:-1], -1)
    return eigvalsh(tridiagonal)
