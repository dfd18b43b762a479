"""Decompositions of symmetric matrices that several runs side by side can ask for at once.

JAX hands a batch of matrices to LAPACK in pieces, as tasks of the thread pool on which the program itself runs, and
waits for them. Two batches in flight on a machine with two cores then wait for each other for ever. Matrices of a batch
therefore take turns here (`jax.custom_batching.sequential_vmap`); that costs nothing, as LAPACK fills the cores.
"""

from __future__ import annotations

import jax.numpy as jnp
from jax.custom_batching import sequential_vmap
from jaxtyping import Array, Float


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
