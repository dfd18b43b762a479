"""Decompositions under vmap."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from threadpoolctl import threadpool_info, threadpool_limits

from unlazy._linalg import eigh, eigvalsh, norm, one_lapack_thread, singular_values

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


# ---------------------------------------------------------------- norms of numbers whose squares cannot be held


def test_norms_of_any_size_are_those_of_numpy():
    """In float32 the squares of numbers below 1e-19 are 0, and those above 1e19 infinite."""
    values = np.random.default_rng(1).normal(size=(5, 7))
    for size in (1e-33, 1e-30, 1e-22, 1e-3, 1.0, 1e10, 1e25, 1e37):
        some = jnp.asarray(size * values, jnp.float32)
        true = np.linalg.norm(np.asarray(some, float), axis=1)
        np.testing.assert_allclose(norm(some, axis=1), true, rtol=1e-6)
        np.testing.assert_allclose(norm(some), np.linalg.norm(true), rtol=1e-6)
        assert norm(some, axis=1, keepdims=True).shape == (5, 1)


def test_norms_of_usual_numbers_have_the_bits_that_they_had():
    for dtype in (jnp.float32, jnp.float64):
        values = jnp.asarray(np.random.default_rng(2).normal(size=(40, 9)), dtype)
        assert np.array_equal(norm(values, axis=1), jnp.linalg.norm(values, axis=1))
        assert np.array_equal(norm(values), jnp.linalg.norm(values))


def test_norms_of_zeros_and_of_what_is_not_finite():
    rows = jnp.asarray([[0.0, 0.0], [jnp.nan, 1.0], [jnp.inf, 1.0], [3.0, 4.0]])
    np.testing.assert_array_equal(norm(rows, axis=1), [0.0, np.nan, np.inf, 5.0])
    assert norm(jnp.zeros((3, 0))) == 0
    assert norm(jnp.asarray(-2.0)) == 2
