"""Data sets drawn from a known law, most of them from one that a paper writes down.

Every maker takes a ``key``: the same key gives the same bits, and the training set does not depend on ``n_test``.
"""

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp

from unlazy._checked import checked
from unlazy._inputs import as_key
from unlazy._memory import must_fit
from unlazy._types import Count, Inputs, KeyLike, Natural, NotNegative, Outputs, Positive, PRNGKey
from unlazy.activations import Activation, as_activation
from unlazy.data import checks
from unlazy.data._base import Dataset, draw_twice


@checked
def random_labels(n: Count, d: Count = 20, *, key: KeyLike) -> Dataset:
    """Gaussian inputs with labels that do not depend on them: x ~ N(0, I_d), y ~ U[-1/2, 1/2].

    chen2022, experiment 1 (section 4.1). There is no test set: nothing can be learnt but the samples themselves.

    Parameters
    ----------
    n
        Number of samples.
    d
        Input dimension.
    key
        Random key, or a whole number as a seed.
    """

    def draw(count: int, key: PRNGKey) -> tuple[Inputs, Outputs]:
        x_key, y_key = jax.random.split(key)
        return jax.random.normal(x_key, (count, d)), jax.random.uniform(y_key, (count,), minval=-0.5, maxval=0.5)

    return draw_twice(draw, n, 0, name="random labels", key=key)


@checked
def quadratic_teacher(n: Count, d: Count = 30, neurons: Count = 5, n_test: Natural = 500, *, key: KeyLike) -> Dataset:
    """Gaussian inputs labelled by a small mean-field network on the quadratic embedding.

    chen2022, experiment 2 (section 4.2): y = (1/m) Σ_i c_i relu(h_i(x)) with h_i = D^(-1/2) w_i · Φ(x) (eq. 2-3),
    Φ(x) = vec(x xᵀ) and D = d², so that h_i(x) = xᵀ W_i x / d. The paper gives m = 5 ``neurons`` and d = 30, and its
    Appendix I the initial law that the teacher shares: c Rademacher, W ~ N(0, 1). Inputs x ~ N(0, I_d) are our reading:
    the text names no other law.

    Parameters
    ----------
    n, n_test
        Number of training and of test samples.
    d
        Input dimension.
    neurons
        Width m of the teacher.
    key
        Random key, or a whole number as a seed.
    """
    w_key, c_key, data_key = jax.random.split(as_key(key), 3)
    must_fit(2.0 * neurons * d**2 * jnp.result_type(float).itemsize, "The teacher", "take fewer neurons or inputs")
    w = jax.random.normal(w_key, (neurons, d, d))
    c = jax.random.rademacher(c_key, (neurons,), dtype=w.dtype)

    def draw(count: int, key: PRNGKey) -> tuple[Inputs, Outputs]:
        x = jax.random.normal(key, (count, d))
        h = jnp.einsum("nmb,nb->nm", jnp.einsum("na,mab->nmb", x, w), x) / d
        return x, jax.nn.relu(h) @ c / neurons

    return draw_twice(draw, n, n_test, name="quadratic teacher", key=data_key)


@checked
def orthogonal_clusters(n: Count = 600, d: Count = 50, n_test: Natural = 500, *, key: KeyLike) -> Dataset:
    """Labels decided by which of two coordinates is not zero, among d - 2 coordinates of noise.

    chen2022, experiment 3 (eq. 93-96, after Wei, Lee, Liu and Ma): (x_1, x_2, y) is (±1, 0, 1) or (0, ±1, -1), each
    with probability 1/4, and x_3, ..., x_d ~ U[-1, 1] independently. No linear function of x separates the classes.

    Parameters
    ----------
    n, n_test
        Number of training and of test samples.
    d
        Input dimension, the d - 2 coordinates of noise included.
    key
        Random key, or a whole number as a seed.
    """
    checks.count("d", d, 2)

    def draw(count: int, key: PRNGKey) -> tuple[Inputs, Outputs]:
        corner_key, noise_key = jax.random.split(key)
        noise = jax.random.uniform(noise_key, (count, d - 2), minval=-1.0, maxval=1.0)
        corner = jax.random.randint(corner_key, (count,), 0, 4)
        corners = jnp.array([[1, 0], [-1, 0], [0, 1], [0, -1]], noise.dtype)
        labels = jnp.array([1, 1, -1, -1], noise.dtype)
        return jnp.concatenate([corners[corner], noise], axis=1), labels[corner]

    return draw_twice(draw, n, n_test, name="orthogonal clusters", key=key)


@checked
def single_index(
    n: Count = 300,
    d: Count = 30,
    link: Activation | str = "tanh",
    noise: NotNegative = 0.0,
    n_test: Natural = 1000,
    *,
    key: KeyLike,
) -> Dataset:
    """Gaussian inputs whose targets depend on one direction only: y = g(u·x) + ε with x ~ N(0, I_d), |u| = 1.

    The simplest target on which learning features pays: a network that finds the direction u has a problem in one
    dimension left, and a fixed kernel has one in d dimensions.

    Parameters
    ----------
    n, n_test
        Number of training and of test samples.
    d
        Input dimension.
    link
        The function g: the name of an activation, ``"package.module:function"``, or an `Activation`, such as
        ``Custom(jnp.sin)``.
    noise
        Standard deviation of ε ~ N(0, noise²), in training and in test targets.
    key
        Random key, or a whole number as a seed. It draws u, uniform on the unit sphere, and the samples.

    Returns
    -------
    Dataset
        Inputs of shape (n, d) and targets of shape (n,), with a test set from the same law.
    """
    must_fit(2.0 * d * jnp.result_type(float).itemsize, "The direction", "take fewer inputs")
    g = as_activation(link)
    direction_key, data_key = jax.random.split(as_key(key))
    u = jax.random.normal(direction_key, (d,))
    u = u / jnp.linalg.norm(u)

    def draw(count: int, key: PRNGKey) -> tuple[Inputs, Outputs]:
        x_key, noise_key = jax.random.split(key)
        x = jax.random.normal(x_key, (count, d))
        return x, g(x @ u) + noise * jax.random.normal(noise_key, (count,))

    return draw_twice(draw, n, n_test, name="single index", key=data_key)


@checked
def sphere_sine(
    n: Count = 100, d: Count = 50, noise: NotNegative = 1.0, n_test: Natural = 0, n_held: Natural = 0, *, key: KeyLike
) -> Dataset:
    """Uniform inputs on the unit sphere with targets y = (5/d) Σ_j sin(π x_j) + ε with ε ~ N(0, noise²).

    caron2023, section 6.1. The text says noise of standard deviation 1; the authors' released simulation draws 0.1.
    Test targets have noise, too.

    Parameters
    ----------
    n, n_test, n_held
        Number of training, test and held-out samples; the last are for transfer.
    d
        Input dimension.
    noise
        Standard deviation of ε.
    key
        Random key, or a whole number as a seed.
    """

    def draw(count: int, key: PRNGKey) -> tuple[Inputs, Outputs]:
        x_key, noise_key = jax.random.split(key)
        x = jax.random.normal(x_key, (count, d))
        x = x / jnp.linalg.norm(x, axis=1, keepdims=True)
        y = 5 / d * jnp.sum(jnp.sin(math.pi * x), axis=1)
        return x, y + noise * jax.random.normal(noise_key, (count,))

    data = draw_twice(draw, n, n_test, name="sphere sine", key=key)
    if not n_held:
        return data
    held = Dataset(*draw(n_held, jax.random.fold_in(as_key(key), 2)), name="sphere sine, held out")
    return Dataset(data.x, data.y, data.x_test, data.y_test, held_out=held, name=data.name)


def _on_a_line(target: Callable[[Outputs], Outputs], n: int, n_test: int, *, name: str, key: KeyLike) -> Dataset:
    """Train on a uniform grid over [-1, 1]; test at points drawn uniformly from it."""
    must_fit(8.0 * (n + n_test) * jnp.result_type(float).itemsize, f"{n + n_test:,} samples", "take fewer samples")
    train = jnp.linspace(-1.0, 1.0, n)
    test = jax.random.uniform(as_key(key), (n_test,), minval=-1.0, maxval=1.0)
    x_test, y_test = (test[:, None], target(test)) if n_test else (None, None)
    return Dataset(train[:, None], target(train), x_test, y_test, name=name)


@checked
def cosine(n: Count = 5000, frequency: float = 8.0, n_test: Natural = 0, *, key: KeyLike) -> Dataset:
    """One cosine, y = cos(f π x), on a uniform grid over [-1, 1]; only the test points are random.

    aiad2026: frequency f = 2 in figure 2, f = 8 in the log-ratio figures 5 and 6 (Appendix I.3), n = 5000 in both.

    Parameters
    ----------
    n, n_test
        Number of training and of test samples.
    frequency
        The frequency f.
    key
        Random key, or a whole number as a seed.
    """
    return _on_a_line(lambda x: jnp.cos(frequency * math.pi * x), n, n_test, name=f"cos({frequency:g} pi x)", key=key)


@checked
def chirp(n: Count = 1000, f1: float = 36.0, f2: float = 12.0, n_test: Natural = 1234, *, key: KeyLike) -> Dataset:
    """Two chirps, y = cos(f1 π x²) - 0.8 cos(f2 π x²), on a uniform grid over [-1, 1]; only the test points are random.

    aiad2026, Appendix I.1: (f1, f2) = (36, 12), (72, 24), (144, 48) with n = 1000, 2000, 4000 and n_test = 1234, 2468,
    4936. "Test: different distribution" is all the paper says of the test points; here they are uniform on [-1, 1].

    Parameters
    ----------
    n, n_test
        Number of training and of test samples.
    f1, f2
        Frequencies of the two chirps.
    key
        Random key, or a whole number as a seed.
    """

    def target(x: Outputs) -> Outputs:
        return jnp.cos(f1 * math.pi * x**2) - 0.8 * jnp.cos(f2 * math.pi * x**2)

    return _on_a_line(target, n, n_test, name=f"chirp ({f1:g}, {f2:g})", key=key)


@checked
def two_sided_step(delta: Positive = 1.0, amplitude: float = 1.0) -> Dataset:
    """Two samples: y = +A at x = -δ and y = -A at x = +δ (aiad2026, section 3.2 and figure 4).

    Parameters
    ----------
    delta
        Distance δ of the samples from 0.
    amplitude
        Size A of the targets.
    """
    dtype = jnp.result_type(float)
    x = jnp.array([[-delta], [delta]], dtype)
    return Dataset(x, jnp.array([amplitude, -amplitude], dtype), name="two-sided step")
