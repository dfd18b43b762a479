"""The laws that the papers write down, checked on seeded draws. Bounds are 5 standard errors, or a p-value of 1e-3."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from unlazy._errors import UserError
from unlazy.activations import Custom
from unlazy.data import (
    chirp,
    cosine,
    orthogonal_clusters,
    quadratic_teacher,
    random_labels,
    single_index,
    sphere_sine,
    two_sided_step,
)


def test_random_labels_law(key):
    data = random_labels(20_000, 3, key=key)
    assert stats.kstest(np.asarray(data.x).ravel(), "norm").pvalue > 1e-3
    assert stats.kstest(np.asarray(data.y) + 0.5, "uniform").pvalue > 1e-3
    assert np.max(np.abs(np.corrcoef(data.x.T, data.y)[-1, :-1])) < 5 / np.sqrt(data.n)


def test_quadratic_teacher_is_a_network_on_the_quadratic_embedding(key):
    d, neurons = 4, 3
    data = quadratic_teacher(6, d, neurons, n_test=6, key=key)
    w_key, c_key, _ = jax.random.split(key, 3)
    w = np.asarray(jax.random.normal(w_key, (neurons, d, d))).reshape(neurons, d * d)
    c = np.asarray(jax.random.rademacher(c_key, (neurons,)))
    for x, y in ((data.x, data.y), (data.x_test, data.y_test)):
        phi = np.stack([np.outer(sample, sample).ravel() for sample in np.asarray(x)])
        h = phi @ w.T / np.sqrt(d * d)
        assert np.allclose(y, np.maximum(h, 0) @ c / neurons, rtol=1e-5, atol=1e-6)


def test_orthogonal_clusters_law(key):
    data = orthogonal_clusters(8000, 5, n_test=8000, key=key)
    for x, y in ((data.x, data.y), (data.x_test, data.y_test)):
        assert np.array_equal(np.abs(x[:, 0]) + np.abs(x[:, 1]), np.ones(len(x)))
        assert np.array_equal(np.abs(x[:, 0]) - np.abs(x[:, 1]), y)
    corner = np.asarray(data.x[:, 0] + 3 * data.x[:, 1])
    counts = np.array([np.sum(corner == value) for value in (1, -1, 3, -3)])
    assert counts.sum() == data.n
    assert np.all(np.abs(counts - data.n / 4) < 5 * np.sqrt(data.n * 3 / 16))
    assert stats.kstest((np.asarray(data.x[:, 2:]).ravel() + 1) / 2, "uniform").pvalue > 1e-3


@pytest.mark.parametrize(("link", "g"), [("relu", lambda z: np.maximum(z, 0)), (Custom(jnp.sin), np.sin)])
def test_a_single_index_target_depends_on_one_direction(link, g, key):
    data = single_index(4000, 6, link, n_test=5, key=key)
    u = np.array(jax.random.normal(jax.random.split(key)[0], (6,)), float)
    u /= np.linalg.norm(u)
    for x, y in ((data.x, data.y), (data.x_test, data.y_test)):
        assert np.allclose(y, g(np.asarray(x, float) @ u), atol=1e-5)
    assert stats.kstest(np.asarray(data.x).ravel(), "norm").pvalue > 1e-3
    # Stein's lemma: E[y x] = E[g'(z)] u, so the targets themselves point along u and nowhere else.
    along = np.asarray(data.y) @ np.asarray(data.x) / data.n
    assert np.linalg.norm(along - (along @ u) * u) < 5 * np.sqrt(5 / data.n)
    noisy = single_index(4000, 6, link, noise=0.5, n_test=5, key=key)
    assert stats.kstest(np.asarray((noisy.y - data.y) / 0.5), "norm").pvalue > 1e-3


def test_sphere_sine_law(key):
    data = sphere_sine(4000, 10, noise=0.5, key=key)
    x = np.asarray(data.x)
    assert np.allclose(np.linalg.norm(x, axis=1), 1, atol=1e-5)
    assert np.all(np.abs(x.mean(0)) < 5 / np.sqrt(10 * data.n))
    assert np.allclose(10 * x.T @ x / data.n, np.eye(10), atol=0.12)
    clean = 0.5 * np.sum(np.sin(np.pi * x), axis=1)
    assert stats.kstest((data.y - clean) / 0.5, "norm").pvalue > 1e-3
    assert np.allclose(sphere_sine(4000, 10, noise=0.0, key=key).y, clean, atol=1e-5)


def test_cosine_on_the_grid_and_off_it(key):
    data = cosine(9, 2.0, n_test=400, key=key)
    assert np.allclose(data.x[:, 0], np.arange(-4, 5) / 4)
    assert np.allclose(data.y, [1, 0, -1, 0, 1, 0, -1, 0, 1], atol=1e-5)
    assert np.allclose(data.y_test, np.cos(2 * np.pi * data.x_test[:, 0]), atol=1e-5)
    assert stats.kstest((np.asarray(data.x_test[:, 0]) + 1) / 2, "uniform").pvalue > 1e-3
    assert cosine(key=key).n == 5000


def test_chirp_of_the_paper(key):
    data = chirp(key=key)
    assert (data.x.shape, data.x_test.shape) == ((1000, 1), (1234, 1))
    assert np.allclose(data.y, data.y[::-1], atol=1e-4)
    x = np.asarray(data.x_test[:, 0], float)
    assert np.allclose(data.y_test, np.cos(36 * np.pi * x**2) - 0.8 * np.cos(12 * np.pi * x**2), atol=1e-4)


def test_two_sided_step_is_two_samples():
    data = two_sided_step(0.5, 2.0)
    assert np.array_equal(data.x, jnp.array([[-0.5], [0.5]]))
    assert np.array_equal(data.y, jnp.array([2.0, -2.0]))


@pytest.mark.parametrize(("make", "option"), [(cosine, "frequency"), (chirp, "f1"), (chirp, "f2")])
def test_a_frequency_must_be_finite(make, option, key):
    with pytest.raises(UserError, match=f"{option} = nan is not a finite number"):
        make(**{option: float("nan")}, key=key)


def test_the_amplitude_must_be_finite():
    with pytest.raises(UserError, match="amplitude = inf is not a finite number"):
        two_sided_step(amplitude=float("inf"))
