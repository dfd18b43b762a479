"""Family A against the papers' formulas written out by hand."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from close import close
from unlazy._errors import UserError
from unlazy.activations import Linear, Relu, Tanh
from unlazy.data import Dataset
from unlazy.networks import (
    FirstNodes,
    GivenNodes,
    Identity,
    Infinite,
    Quadratic,
    RandomLayers,
    Scaling,
    TwoLayer,
    Zipf,
    asymmetrical,
    mean_field,
    multilayer_mean_field,
    ntk,
)

M, D = 6, 4


@pytest.fixture
def x(key):
    return jax.random.normal(key, (5, D))


def test_shallow_mean_field_is_equation_1(key, x):
    network = TwoLayer(M, D, activation=Tanh(), readout=2.0, key=key)
    w, a = np.asarray(network.w), np.asarray(network.a)
    assert set(np.abs(a)) == {2.0}
    by_hand = [sum(a[i] * math.tanh(w[i] @ row / math.sqrt(D)) for i in range(M)) / M for row in np.asarray(x)]
    close(network(x), np.array(by_hand), rel=1e-12)
    assert network.rates().w == M  # eq. 9: the step is m δ


def test_partially_trained_three_layer_is_equation_4_and_5(key, x):
    network = TwoLayer(M, D, activation=Relu(), embedding=RandomLayers((7,)), key=key)
    (z,) = network.embedding.weights
    phi = np.maximum(np.asarray(x) @ np.asarray(z).T / math.sqrt(D), 0)
    by_hand = np.maximum(phi @ np.asarray(network.w).T / math.sqrt(7), 0) @ np.asarray(network.a) / M
    close(network(x), by_hand, rel=1e-12)


def test_table_1_with_equal_widths(key, x):
    columns = {
        mean_field: (1 / M, 1 / math.sqrt(M), M),
        ntk: (M**-0.5, M**-0.5, 1),
        multilayer_mean_field: (1 / M, 1 / M, M**2),
    }
    for scaling, (outer, inner, rate) in columns.items():
        network = TwoLayer(M, D, activation=Linear(), embedding=RandomLayers((M,)), scaling=scaling, key=key)
        h = inner * np.asarray(network.embedding(x)) @ np.asarray(network.w).T
        close(network(x), outer * h @ np.asarray(network.a), rel=1e-12)
        close(network.rates().w, rate)


def test_asymmetrical_scaling_is_equation_1_of_caron2023():
    m, gamma, alpha = 50, 0.3, 0.5
    tilde = 6 / math.pi**2 / np.arange(1, m + 1) ** 2  # the paper's own example: alpha = 1/2
    variances = gamma / m + (1 - gamma) * tilde / tilde.sum()
    scales = asymmetrical(gamma, Zipf(alpha)).nodes(m)
    close(scales**2, variances, rel=1e-12)
    close((scales**2).sum(), 1)
    close(asymmetrical(1.0, Zipf(0.4)).nodes(m), ntk.nodes(m))
    close(asymmetrical(0.0, FirstNodes(3)).nodes(m)[:4], [3 ** (-0.5)] * 3 + [0])
    close(asymmetrical(0.0, GivenNodes((3.0, 1.0))).nodes(m)[:3] ** 2, [0.75, 0.25, 0])


def test_zipf_weights_sum_to_one():
    # The tail beyond m behaves like m^(1 - 1/α) / (1/α - 1) / ζ.
    for alpha in (0.4, 0.5):
        close(Zipf(alpha).first(200000).sum(), 1, abs=0.0001)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Zipf(1.2), "alpha = 1.2 is not in range: give a number above 0 and below 1"),
        (lambda: asymmetrical(1.5, Zipf(0.5)), "give a number of at least 0 and of at most 1"),
        (lambda: FirstNodes(0), "count = 0 is not in range: give a number of at least 1"),
        (lambda: GivenNodes((2.0, -1.0)), "each entry is in range: give a number of at least 0"),
        (lambda: GivenNodes((0.0,)), "at least one of them positive"),
        (lambda: RandomLayers(()), "a width for each layer"),
        (lambda: RandomLayers((0,)), "each entry is in range: give a number of at least 1"),
        (lambda: Infinite(depth=0), "depth = 0 is not in range: give a number of at least 1"),
    ],
)
def test_values_that_make_no_sense_are_refused(make, message):
    with pytest.raises(UserError, match=message):
        make()


def test_symmetrised_network_starts_at_zero(key, x):
    network = TwoLayer(8, D, scaling=ntk, symmetrised=True, key=key)
    assert np.abs(network(x)).max() < 1e-15
    assert len(np.unique(np.asarray(network.w)[:, 0])) == 4
    with pytest.raises(UserError, match="even width"):
        TwoLayer(7, D, symmetrised=True, key=key)
    with pytest.raises(UserError, match="all neurons alike"):
        TwoLayer(8, D, symmetrised=True, scaling=asymmetrical(0.5, Zipf(0.5)), key=key)


def test_shapes_that_do_not_fit_are_named(key, x):
    network = TwoLayer(M, D, key=key)
    with pytest.raises(UserError, match="made for 4 features but was given 3"):
        network(x[:, :3])
    with pytest.raises(UserError, match=r"data\.flat"):
        network(x[:, :, None])
    with pytest.raises(UserError, match="width = 0 is not in range: give a number of at least 1"):
        TwoLayer(0, D, key=key)


def test_quadratic_kernel_never_builds_the_features(x):
    phi = np.stack([np.outer(row, row).ravel() for row in np.asarray(x)])
    close(Quadratic()(x), phi)
    close(Quadratic().kernel(x, x[:2]), phi @ phi[:2].T / D**2, rel=1e-12)
    close(Identity().kernel(x, x), np.asarray(x) @ np.asarray(x).T / D)


@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize("activation", [Relu(), Tanh()])
def test_infinite_kernel_is_the_limit_of_random_layers(key, x, depth, activation):
    limit = Infinite(depth).draw(D, activation, key=key).kernel(x, x)
    draws = [RandomLayers((1000,) * depth).draw(D, activation, key=k).kernel(x, x) for k in jax.random.split(key, 12)]
    mean, error = np.mean(draws, axis=0), np.std(draws, axis=0) / math.sqrt(12)
    # Four standard errors, and a bias of order 1/D that composing a nonlinearity with a fluctuating kernel leaves.
    assert np.all(np.abs(mean - limit) < 4 * error + 2 / 1000)


def test_infinite_network_is_exact_on_its_points(key, x):
    data = Dataset(x, x[:, 0], x[:2] + 0.5, x[:2, 0])
    raw = TwoLayer(20_000, D, embedding=Infinite(), activation=Relu(), key=key)
    with pytest.raises(UserError, match="is defined on the points"):
        raw(x)
    network, train, test = raw.prepare(data)
    points = jnp.concatenate([data.x, data.x_test])
    kernel = raw.embedding.kernel(points, points)
    both = train.joined(test)
    close(both.known @ both.known.T / both.known.shape[1], kernel, rel=1e-08, abs=1e-10)
    h = np.asarray(network.layers()["hidden"].preactivations(both))
    # Each entry of the sample covariance over m neurons has a standard deviation of at most sqrt(2 K_aa K_bb / m).
    scale = np.sqrt(2 * np.outer(np.diag(kernel), np.diag(kernel)) / h.shape[1])
    assert np.all(np.abs(h @ h.T / h.shape[1] - kernel) < 4.5 * scale)
    close(network.restore()(data.x), network(train), rel=1e-06, abs=1e-09)


def test_infinite_network_with_repeated_points_is_finite(key, x):
    twice = Dataset(jnp.concatenate([x, x]), jnp.concatenate([x[:, 0], x[:, 0]]))
    network, x, _ = TwoLayer(16, D, embedding=Infinite(), activation=Relu(), key=key).prepare(twice)
    f = np.asarray(network(x))
    assert np.isfinite(f).all()
    close(f[:5], f[5:], abs=1e-06)


def test_infinite_limit_of_the_multilayer_mean_field_scaling_starts_at_zero(key, x):
    data = Dataset(x, x[:, 0])
    network, x, _ = TwoLayer(16, D, embedding=Infinite(), scaling=multilayer_mean_field, key=key).prepare(data)
    assert np.all(np.asarray(network.layers()["hidden"].preactivations(x)) == 0)
    with pytest.raises(UserError, match="no limit as D grows"):
        TwoLayer(16, D, embedding=Infinite(), scaling=Scaling(node=-1.0, feature=0.0), key=key)


def test_equal_networks_share_a_compilation(key, x, compilations):
    call = eqx.filter_jit(lambda network, points: network(points))
    call(TwoLayer(M, D, scaling=asymmetrical(0.5, Zipf(0.5)), key=key), x)
    compilations.count = 0
    other = TwoLayer(M, D, scaling=asymmetrical(0.5, Zipf(0.5)), key=jax.random.key(9))
    compilations.count = 0
    call(other, x)
    assert compilations.count == 0
