"""Pruning and transfer, against loops written out in NumPy."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from close import close
from unlazy._errors import UserError
from unlazy.activations import Relu
from unlazy.data import Dataset
from unlazy.flows import Descent, OnlyAtEnd
from unlazy.losses import CrossEntropy, Squared
from unlazy.networks import Layout, TwoLayer, Zipf, asymmetrical
from unlazy.networks.layers import nested_sums
from unlazy.probes import DenseTransfer, Importance, Observation, Pruning, PruningByScale, TrainLoss, Transfer
from unlazy.probes.transfer import _alike

M, D = 9, 4


def made(outputs=None, seed=0):
    scaling = asymmetrical(0.3, Zipf(0.6))
    return TwoLayer(M, D, outputs, activation=Relu(), scaling=scaling, key=jax.random.key(seed))


def drawn(n, outputs=None, seed=0):
    x_key, y_key = jax.random.split(jax.random.key(seed))
    x = jax.random.normal(x_key, (n, D))
    y = jax.random.normal(y_key, (n,)) if outputs is None else jax.nn.one_hot(jnp.arange(n) % outputs, outputs)
    return x, y


@pytest.fixture(scope="module", params=[None, 3], ids=["one output", "three outputs"])
def problem(request):
    outputs = request.param
    data = Dataset(*drawn(6, outputs), *drawn(5, outputs, seed=1), held_out=Dataset(*drawn(8, outputs, seed=2)))
    return made(outputs), data


def values(network, x, kept):
    """f with some neurons only, by the formula."""
    w, a, s = (np.asarray(leaf) for leaf in (network.w, network.a, network.s))
    h = np.maximum(np.asarray(x) @ w.T / np.sqrt(D), 0)
    return sum((np.multiply.outer(h[:, j], s[j] * a[j]) for j in kept), np.zeros((len(x), *a.shape[1:])))


def importance(network):
    return np.asarray(network.s) ** 2 * np.sum(np.asarray(network.w) ** 2, axis=1)


def test_importance_is_that_of_the_paper(problem):
    network, data = problem
    seen = Importance().of(network, network, data, Squared())
    close(seen["hidden"], importance(network), rel=1e-12)


def test_pruned_networks_lose_their_least_important_neurons(problem):
    network, data = problem
    seen = Pruning().of(network, network, data, Squared(half=False))["hidden"]
    order = np.argsort(importance(network))
    for pruned in range(M + 1):
        for which, x, y in (("train", data.x, data.y), ("test", data.x_test, data.y_test)):
            f, y = values(network, x, order[pruned:]), np.asarray(y)
            close(seen[f"{which}_risk"][pruned], np.mean(np.sum((f - y).reshape(len(y), -1) ** 2, axis=1)), rel=1e-10)
            wrong = (f > 0) != (y > 0) if y.ndim == 1 else f.argmax(1) != y.argmax(1)
            close(seen[f"{which}_error"][pruned], wrong.mean(), abs=1e-12)


def test_neurons_can_be_ranked_by_their_scale_alone(problem):
    network, data = problem
    seen = PruningByScale().of(network, network, data, Squared(half=False))["hidden"]["train_risk"]
    order = np.argsort(np.asarray(network.s))  # λ_j, whatever |w_j| is
    assert list(order) != list(np.argsort(importance(network)))
    for pruned in range(M + 1):
        f, y = values(network, data.x, order[pruned:]), np.asarray(data.y)
        close(seen[pruned], np.mean(np.sum((f - y).reshape(len(y), -1) ** 2, axis=1)), rel=1e-10)


def test_pruning_knows_losses_weights_and_missing_test_sets():
    x, y = drawn(6, 3)
    network, weight = made(3), jnp.arange(1.0, 7.0)
    data = Dataset(x, y, weight=weight)
    seen = Pruning().of(network, network, data, CrossEntropy())["hidden"]
    assert set(seen) == {"train_risk", "train_error"}
    close(seen["train_risk"][0], CrossEntropy()(network(x), y, weight), rel=1e-10)
    close(seen["train_risk"][-1], np.log(3), rel=1e-10)


def test_pruning_is_the_same_in_gram_coordinates(problem):
    network, data = problem
    other, x, x_test = network.gram_form(data).prepare(Layout())
    one = Pruning().of(network, network, data, Squared())["hidden"]
    two = Pruning()(Observation(other, other, data, Squared(), x, x_test))["hidden"]
    raw = Pruning().of(other, other, data, Squared())["hidden"]
    for name in one:
        close(two[name], one[name], rel=1e-9, abs=1e-12)
        close(raw[name], one[name], rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("memory", [1.0, 200.0, 2.0**26])
@pytest.mark.parametrize("k", [(), (3,)])
def test_blocks_of_neurons_change_nothing(memory, k):
    rng = np.random.default_rng(0)
    values, readout, order = rng.normal(size=(5, M)), rng.normal(size=(M, *k)), rng.permutation(M)
    found = nested_sums(*map(jnp.asarray, (values, readout, order)), lambda f: f, memory)
    for count in range(M + 1):
        some = order[:count]
        close(found[count], np.tensordot(values[:, some], readout[some], axes=1), rel=1e-10, abs=1e-12)


def trained(features, y, k, hidden, steps, most, unit):
    """The small network, its gradient written out, with only k features there."""
    small = TwoLayer(hidden, most, activation=Relu(), scaling=asymmetrical(1.0, Zipf(0.5)), key=jax.random.key(0))
    w, a = np.asarray(small.w)[:, :k], np.asarray(small.a)
    half = len(y) // 2
    phi = features / (np.sqrt(np.mean(features[:half] ** 2)) if unit else 1.0)
    x, z, targets = phi[:half], phi[half:], y[:half]

    def f(w, x):
        return np.maximum(x @ w.T / np.sqrt(k), 0) @ a / np.sqrt(hidden)

    for _ in range(steps):
        gates = (x @ w.T > 0) * a / np.sqrt(hidden * k)
        w = w - (gates * (2 * (f(w, x) - targets) / half)[:, None]).T @ x
    return np.mean((f(w, x) - targets) ** 2), np.mean((f(w, z) - y[half:]) ** 2)


@pytest.mark.parametrize("unit", [True, False])
def test_transfer_trains_a_small_network_on_the_best_features(unit):
    network = made()
    data = Dataset(*drawn(6), held_out=Dataset(*drawn(10, seed=2)))
    seen = Transfer(features=(1, 3, 9), hidden=5, steps=20, unit=unit).of(network, network, data, Squared(half=False))
    x, y = (np.asarray(part) for part in (data.held_out.x, data.held_out.y))
    answers = np.maximum(x @ np.asarray(network.w).T / np.sqrt(D), 0)
    order = np.argsort(-importance(network))
    for index, (k, most) in enumerate([(1, 3), (3, 3), (9, 9)]):
        train, test = trained(answers[:, order[:k]], y, k, 5, 20, most, unit)
        close(seen["hidden"]["train_risk"][index], train, rel=1e-8)
        close(seen["hidden"]["test_risk"][index], test, rel=1e-8)


def dense(features, y, k, hidden, steps, most, outputs):
    """Two hidden layers with biases, all gradients written out."""
    keys, sizes = jax.random.split(jax.random.key(0), 6), [most, hidden, hidden, outputs]
    parts = []
    for place in range(3):
        fan_in, size = sizes[place : place + 2]
        reach = 1.0 if place == 0 else fan_in**-0.5
        for i, shape in enumerate([(size, fan_in), (size,)]):
            parts.append(np.asarray(jax.random.uniform(keys[2 * place + i], shape, minval=-reach, maxval=reach)))
    u, p, v, q, w, r = parts
    u, p = u[:, :k] / np.sqrt(k), p / np.sqrt(k)
    half = len(y) // 2

    def layers(x):
        one = np.maximum(x @ u.T + p, 0)
        two = np.maximum(one @ v.T + q, 0)
        return one, two, two @ w.T + r

    x, targets = features[:half], y[:half]
    for _ in range(steps):
        one, two, f = layers(x)
        df = 2 * (f - targets) / half
        dtwo = (df @ w) * (two > 0)
        done = (dtwo @ v) * (one > 0)
        slopes = [done.T @ x, done.sum(0), dtwo.T @ one, dtwo.sum(0), df.T @ two, df.sum(0)]
        u, p, v, q, w, r = (a - 0.1 * b for a, b in zip((u, p, v, q, w, r), slopes, strict=True))
    return [np.mean(np.sum((layers(a)[2] - b) ** 2, axis=1)) for a, b in ((x, targets), (features[half:], y[half:]))]


@pytest.mark.parametrize("outputs", [None, 3])
def test_transfer_trains_the_network_of_the_released_code(outputs):
    network = made(outputs)
    data = Dataset(*drawn(6, outputs), held_out=Dataset(*drawn(10, outputs, seed=2)))
    seen = DenseTransfer(features=(1, 3), hidden=5, steps=20).of(network, network, data, Squared(half=False))
    x, y = (np.asarray(part) for part in (data.held_out.x, data.held_out.y))
    answers = np.maximum(x @ np.asarray(network.w).T / np.sqrt(D), 0) * np.asarray(network.s)
    order = np.argsort(-np.asarray(network.s))
    for index, k in enumerate((1, 3)):
        train, test = dense(answers[:, order[:k]], y.reshape(len(y), -1), k, 5, 20, 3, outputs or 1)
        close(seen["hidden"]["train_risk"][index], train, rel=1e-8)
        close(seen["hidden"]["test_risk"][index], test, rel=1e-8)
    with pytest.raises(UserError, match="layers = 0 is not in range: give a number of at least 1"):
        DenseTransfer(layers=0)
    with pytest.raises(UserError, match="'half' is not one of 'float32', 'float64'"):
        DenseTransfer(dtype="half")


def test_transfer_in_single_precision_is_that_of_a_run_in_single_precision():
    network, data = made(3), Dataset(*drawn(6, 3), held_out=Dataset(*drawn(10, 3, seed=2)))
    options = {"features": (1, 3), "hidden": 5, "steps": 20}
    low = jax.tree.map(lambda leaf: leaf.astype(jnp.float32) if eqx.is_inexact_array(leaf) else leaf, (network, data))
    mixed = DenseTransfer(**options, dtype="float32").of(network, network, data, Squared())["hidden"]
    single = DenseTransfer(**options).of(low[0], low[0], low[1], Squared())["hidden"]
    for name, values in mixed.items():
        assert values.dtype == jnp.float64
        assert single[name].dtype == jnp.float32
        close(values, single[name], rel=1e-5)


def test_transfer_looks_at_raw_inputs_from_gram_coordinates():
    network = made(3)
    data = Dataset(*drawn(6, 3), held_out=Dataset(*drawn(8, 3, seed=2)))
    other = network.gram_form(data).prepare(Layout()).network
    probe = Transfer(features=(2,), hidden=3, steps=4, samples=6)
    one, two = (probe.of(net, net, data, Squared())["hidden"] for net in (network, other))
    for name in one:
        close(two[name], one[name], rel=1e-9, abs=1e-12)


def test_transfer_says_what_it_needs():
    network, (x, y) = made(), drawn(6)
    with pytest.raises(UserError, match="has no held-out set"):
        Transfer().of(network, network, Dataset(x, y), Squared())
    with pytest.raises(UserError, match="features asks for 10 of only 9 neurons"):
        Transfer(features=(10,)).of(network, network, Dataset(x, y, held_out=Dataset(x, y)), Squared())
    for features in ((), (4, 2)):
        with pytest.raises(UserError, match="is not an increasing list of numbers"):
            Transfer(features=features)
    with pytest.raises(UserError, match=r"features = .* in which each entry is in range: give a number of at least 1"):
        Transfer(features=(0, 1))
    with pytest.raises(UserError, match="hidden = 0 is not in range"):
        Transfer(hidden=0)


def test_numbers_of_features_of_one_size_are_trained_together():
    assert _alike((1, 2, 5, 10, 20, 50, 100)) == [(1, 2, 5), (10, 20, 50), (100,)]
    assert Transfer().counts(9) == (1, 2, 4, 8)


def test_a_probe_at_the_end_looks_once(problem):
    network, data = problem
    run = Descent(rate=0.1)(network, data, [0.0, 0.1, 0.2], {"loss": TrainLoss(), "pruning": OnlyAtEnd(Pruning())})
    assert run.observed["loss"].shape == (3,)
    curve = run.observed["pruning"]["hidden"]["train_risk"]
    assert curve.shape == (M + 1,)
    close(curve[0], run.observed["loss"][-1], rel=1e-9)
    close(curve, Pruning().of(run.final, run.start, data, Squared())["hidden"]["train_risk"], rel=1e-9)
