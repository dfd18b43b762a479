"""Decompositions under vmap."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from threadpoolctl import threadpool_info, threadpool_limits

from unlazy._linalg import eigh, eigvalsh, one_lapack_thread, singular_values

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


def _threads() -> set[int]:
    return {library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"}


def test_the_limit_of_threads_lasts_until_the_last_is_done():
    with threadpool_limits(2, user_api="blas"):
        first, second = one_lapack_thread(), one_lapack_thread()
        first.__enter__()
        second.__enter__()
        assert _threads() == {1}
        first.__exit__(None, None, None)
        assert _threads() == {1}
        second.__exit__(None, None, None)
        assert _threads() == {2}
