"""Decompositions of symmetric matrices that several runs side by side can ask for at once.

JAX hands a batch of matrices to LAPACK in pieces, as tasks of the thread pool on which the program itself runs, and
waits for them. Two batches in flight on a machine with two cores then wait for each other for ever. Matrices of a batch
therefore take turns here (`jax.custom_batching.sequential_vmap`); that costs nothing, as LAPACK fills the cores.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import jax.numpy as jnp
from jax.custom_batching import sequential_vmap
from jaxtyping import Array, Float
from threadpoolctl import threadpool_limits

_counting = threading.Lock()
_asked: list[threadpool_limits] = []  # one for each that asks; the first has set the limit


@contextmanager
def one_lapack_thread() -> Iterator[None]:
    """Keep LAPACK to one thread: its idle threads spin on cores that XLA needs, for longer than a small matrix takes.

    The limit is the process's: where several Python threads ask for it, it lasts until the last of them is done.
    """
    with _counting:
        _asked.append(_asked[0] if _asked else threadpool_limits(1, user_api="blas"))
    try:
        yield
    finally:
        with _counting:
            last = _asked.pop()
            if not _asked:
                last.restore_original_limits()


@sequential_vmap
def eigvalsh(matrix: Float[Array, "p p"]) -> Float[Array, " p"]:
    """Give the eigenvalues of a symmetric matrix, in ascending order."""
    return jnp.linalg.eigvalsh(matrix)


@sequential_vmap
def eigh(matrix: Float[Array, "p p"]) -> tuple[Float[Array, " p"], Float[Array, "p p"]]:
    """Give the eigenvalues of a symmetric matrix, in ascending order, and its eigenvectors as columns."""
    values, vectors = jnp.linalg.eigh(matrix)
    return values, vectors


@sequential_vmap
def singular_values(matrix: Float[Array, "p q"]) -> Float[Array, " r"]:
    """Give the singular values of a matrix, in descending order."""
    return jnp.linalg.svd(matrix, compute_uv=False)
