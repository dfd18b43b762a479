"""Decompositions under vmap."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from unlazy._linalg import eigh, eigvalsh, singular_values

MATRICES = jnp.asarray(np.random.default_rng(0).normal(size=(3, 6, 6)))
SYMMETRIC = MATRICES + jnp.swapaxes(MATRICES, 1, 2)


def test_a_batch_agrees_with_numpy():
    values, vectors = jax.vmap(eigh)(SYMMETRIC)
    np.testing.assert_allclose(jax.vmap(eigvalsh)(SYMMETRIC), np.linalg.eigvalsh(SYMMETRIC), atol=1e-13)
    np.testing.assert_allclose(values, np.linalg.eigvalsh(SYMMETRIC), atol=1e-13)
    np.testing.assert_allclose((vectors * values[:, None]) @ jnp.swapaxes(vectors, 1, 2), SYMMETRIC, atol=1e-13)
    np.testing.assert_allclose(
        jax.vmap(singular_values)(MATRICES), np.linalg.svd(MATRICES, compute_uv=False), atol=1e-13
    )


def test_no_batch_reaches_lapack():
    """A batch is cut up by LAPACK's wrapper on the pool that waits for it: two at once can wait for ever."""
    for function, name in ((eigvalsh, "eigh"), (eigh, "eigh"), (singular_values, "svd")):
        program = str(jax.make_jaxpr(jax.vmap(function))(SYMMETRIC))
        calls = [line for line in program.splitlines() if f"= {name}" in line]
        assert calls, program
        assert not any("[3,6" in line for line in calls), program
