"""Extreme eigenvalues of symmetric matrices too large to be diagonalised at every observed time."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax.scipy.linalg import cho_solve
from jaxtyping import Array, Float

from unlazy._linalg import eigvalsh

DENSE = 768  # rows up to which all eigenvalues are computed: it then costs about as much
_STEPS = 96  # of Lanczos; outer eigenvalues are found to rounding long before, unless many crowd there
_INVERSE_STEPS = 32  # inversion spreads the small eigenvalues out: fewer will do


def ends(matrix: Float[Array, "p p"]) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """Give the smallest and the largest eigenvalue of a positive semi-definite matrix.

    Large ones go through Lanczos, the smallest by inversion: a plain iteration would need some √(largest / smallest)
    steps, and a tangent kernel is ill-conditioned. The smallest eigenvalue is then that of Θ + s, less s, where s
    starts at rounding (eps ‖Θ‖_∞) and grows until a Cholesky factor exists. Both are known up to a few s.
    """
    if matrix.shape[0] <= DENSE:
        values = eigvalsh(matrix)
        return values[0], values[-1]
    return _smallest(matrix), jnp.max(_ritz(lambda v: matrix @ v, matrix.shape[0], matrix.dtype, _STEPS))


def operator_norm(matrix: Float[Array, "p p"]) -> Float[Array, ""]:
    """‖A‖_2 of a symmetric matrix: the largest |eigenvalue|, by Lanczos where the matrix is large."""
    if matrix.shape[0] <= DENSE:
        return jnp.max(jnp.abs(eigvalsh(matrix)))
    return jnp.max(jnp.abs(_ritz(lambda v: matrix @ v, matrix.shape[0], matrix.dtype, _STEPS)))


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
        # What is not finite, or beyond any rounding, will not be mended by a larger shift.
        return jnp.isnan(state[1][-1, -1]) & (state[0] < 1e6 * first) & jnp.isfinite(scale)

    shift, lower = jax.lax.while_loop(broken, grow, (first, factor(first)))
    values = _ritz(lambda v: cho_solve((lower, True), v), size, dtype, _INVERSE_STEPS)
    return 1 / jnp.max(values) - shift


def _ritz(act: Callable[[Array], Array], size: int, dtype: jnp.dtype, steps: int) -> Float[Array, " k"]:
    """Ritz values of a symmetric operator after so many steps of Lanczos, each vector held against all before.

    Where a Krylov space is exhausted the rest counts as 0, which is never the largest |eigenvalue|.
    """
    steps = min(steps, size)
    start = jax.random.normal(jax.random.key(0), (size,), dtype)

    def step(basis: Array, index: Array) -> tuple[Array, tuple[Array, Array]]:
        here = basis[index]
        new = act(here)
        diagonal = here @ new
        for _ in range(2):  # twice is enough
            new = new - basis.T @ (basis @ new)
        length = jnp.linalg.norm(new)
        alive = length > 10 * size * jnp.finfo(dtype).eps * jnp.abs(diagonal)
        new = jnp.where(alive, new / jnp.where(alive, length, 1), 0)
        return basis.at[index + 1].set(new), (diagonal, jnp.where(alive, length, 0))

    basis = jnp.zeros((steps + 1, size), dtype).at[0].set(start / jnp.linalg.norm(start))
    _, (diagonal, beside) = jax.lax.scan(step, basis, jnp.arange(steps))
    tridiagonal = jnp.diag(diagonal) + jnp.diag(beside[:-1], 1) + jnp.diag(beside[:-1], -1)
    return eigvalsh(tridiagonal)
