"""Descent against loops written by hand."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from close import close
from unlazy._errors import UserError
from unlazy.activations import Linear
from unlazy.data import Dataset
from unlazy.flows import Adam, Constant, Cosine, Descent, Momentum, Plain, RungeKutta, Status, StepDecay, Transform
from unlazy.losses import CrossEntropy, Squared
from unlazy.networks import TwoLayer, ntk, split_trained
from unlazy.probes import TrainLoss

M, D, N = 7, 3, 10


@pytest.fixture(scope="module")
def network():
    return TwoLayer(M, D, scaling=ntk, key=jax.random.key(0))


@pytest.fixture(scope="module")
def data():
    k1, k2 = jax.random.split(jax.random.key(1))
    return Dataset(jax.random.normal(k1, (N, D)), jax.random.normal(k2, (N,)))


def gradient_by_hand(w, a, x, y):
    """NumPy, from chen2022 eq. 8 with the NTK scaling and the mean loss."""
    h = x @ w.T / np.sqrt(D)
    residual = np.tanh(h) @ a / np.sqrt(M) - y
    return ((residual[:, None] * (1 - np.tanh(h) ** 2)) * a / np.sqrt(M)).T @ x / np.sqrt(D) / len(y)


def test_plain_descent_is_the_loop_by_hand(network, data):
    w, a, x, y = (np.asarray(part) for part in (network.w, network.a, data.x, data.y))
    w = w.copy()
    for _ in range(40):
        w -= 0.3 * gradient_by_hand(w, a, x, y)
    run = Descent(rate=0.3)(network, data, [12.0])
    assert run.stats["steps"] == 40
    close(run.final.w, w, rel=1e-10)


@pytest.mark.parametrize(
    ("optimiser", "reference"),
    [
        (Plain(), optax.sgd(0.05)),
        (Momentum(0.8), optax.sgd(0.05, 0.8)),
        (Momentum(0.8, nesterov=True), optax.sgd(0.05, 0.8, nesterov=True)),
        (Adam(), optax.adam(0.05)),
        (Transform(optax.scale_by_rms()), optax.rmsprop(0.05)),
    ],
)
def test_optimisers_are_optax_with_the_rate_apart(network, data, optimiser, reference):
    trained, frozen = split_trained(network)
    state = reference.init(trained)
    for _ in range(15):
        slope = jax.grad(lambda t: 0.5 * jnp.mean((eqx.combine(t, frozen)(data.x) - data.y) ** 2))(trained)
        updates, state = reference.update(slope, state, trained)
        trained = optax.apply_updates(trained, updates)
    run = Descent(rate=0.05, optimiser=optimiser)(network, data, [0.75])
    close(run.final.w, trained.w, rel=1e-9)


def test_learning_rate_factors_multiply_the_direction(data):
    """As with parameter groups: Adam forgets the size of a gradient, but not its group's learning rate."""
    slow = TwoLayer(M, D, key=jax.random.key(0))  # mean field: factor m
    run = Descent(rate=1e-3, optimiser=Adam())(slow, data, [1e-3])
    first = np.abs(np.asarray(run.final.w - slow.w))
    close(np.median(first), 1e-3 * M, rel=1e-3)


def test_descent_converges_to_the_flow_at_first_order(network, data):
    exact = RungeKutta(rtol=1e-10, atol=1e-11)(network, data, [4.0]).final.w
    rates = np.array([0.2, 0.1, 0.05, 0.025])
    errors = [np.linalg.norm(Descent(rate=rate)(network, data, [4.0]).final.w - exact) for rate in rates]
    assert np.polyfit(np.log(rates), np.log(errors), 1)[0] == pytest.approx(1, abs=0.1)


def test_norm_clipping_is_that_of_the_whole_gradient(network, data):
    w, a, x, y = (np.asarray(part) for part in (network.w, network.a, data.x, data.y))
    slope = gradient_by_hand(w, a, x, y)
    bound = 0.5 * np.linalg.norm(slope)
    run = Descent(rate=1.0, clip_norm=float(bound))(network, data, [1.0])
    close(run.final.w, w - 0.5 * slope, rel=1e-10)


def test_sample_clipping_is_inside_the_average(network, data):
    w, a, x, y = (np.asarray(part) for part in (network.w, network.a, data.x, data.y))
    singles = np.stack([gradient_by_hand(w, a, x[i : i + 1], y[i : i + 1]) for i in range(N)])
    norms = np.linalg.norm(singles.reshape(N, -1), axis=1)
    radius = float(np.median(norms))
    clipped = singles * np.minimum(1, radius / norms)[:, None, None]
    run = Descent(rate=1.0, clip_sample=radius)(network, data, [1.0])
    close(run.final.w, w - clipped.mean(axis=0), rel=1e-10)
    free = Descent(rate=1.0, clip_sample=1e9)(network, data, [3.0])
    close(free.final.w, Descent(rate=1.0)(network, data, [3.0]).final.w, rel=1e-10)


def test_sample_clipping_in_blocks_with_weights(network, data, monkeypatch):
    weight = jnp.linspace(0.5, 2.0, N)
    weighted = Dataset(data.x, data.y, weight=weight)
    for loss in (Squared("mean"), Squared("sum")):
        whole = Descent(loss, rate=0.1, clip_sample=0.2)(network, weighted, [0.3]).final.w
        # Room for the gradients of three samples: blocks of 3, 3, 3 and 1.
        monkeypatch.setattr("unlazy.flows.descent._CLIP_BYTES", 3 * M * D * 8)
        other = TwoLayer(M, D, scaling=ntk, key=jax.random.key(0))
        blocks = Descent(loss, rate=0.1, clip_sample=0.2, clip_norm=1e9)(other, weighted, [0.3]).final.w
        close(blocks, whole, rel=1e-12)
        monkeypatch.undo()


@pytest.mark.parametrize("batch", [2, 3, 10, 64])
def test_an_epoch_sees_every_sample_once(network, batch):
    """With inputs so far apart that gradients do not mix, an epoch's steps must add up to all samples."""
    data = Dataset(1e-9 * jnp.eye(N, D) + jnp.ones((N, D)) * 1e-12, jnp.arange(1.0, N + 1))
    batches = -(-N // min(batch, N))
    run = Descent(Squared("sum"), rate=1.0, batch=batch)(network, data, [float(batches)])
    full = Descent(Squared("sum"), rate=1.0)(network, data, [1.0])
    # f stays 0 to 1e-9, so the order of the samples does not matter.
    close(np.asarray(run.final.w - network.w), np.asarray(full.final.w - network.w), rel=1e-5, abs=1e-20)


def test_a_small_last_batch_weighs_by_its_own_size(network):
    data = Dataset(1e-9 * jnp.ones((3, D)), jnp.array([1.0, 1.0, 1.0]))
    run = Descent(Squared("mean"), rate=1.0, batch=2)(network, data, [2.0])
    one = Descent(Squared("mean"), rate=1.0)(network, data, [1.0])
    # Two batches of equal targets, each averaged over its own samples: twice the full gradient.
    close(np.asarray(run.final.w - network.w), 2 * np.asarray(one.final.w - network.w), rel=1e-5, abs=1e-22)


def test_batches_are_shuffled_by_key(network, data):
    one, same, other = (
        Descent(rate=0.1, batch=3)(network, data, [1.0], key=jax.random.key(k)).final.w for k in (1, 1, 2)
    )
    assert np.array_equal(one, same)
    assert not np.array_equal(one, other)


def test_schedules_count_time_as_the_sum_of_rates(network, data):
    flow = Descent(rate=0.5, schedule=StepDecay(0.5, 4))
    run = flow(network, data, [1.0, 2.0, 2.6], [TrainLoss()])
    # Rates: four of 0.5, four of 0.25, then 0.125.
    close(run.times, [1.0, 2.0, 2.5])
    assert run.stats["steps"] == 6
    w, a, x, y = (np.asarray(part) for part in (network.w, network.a, data.x, data.y))
    w = w.copy()
    for rate in (0.5, 0.5, 0.5, 0.5, 0.25, 0.25):
        w -= rate * gradient_by_hand(w, a, x, y)
    close(run.final.w, w, rel=1e-10)
    with pytest.raises(UserError, match="never reach t = 100"):
        flow(network, data, [100.0])
    close(Cosine(10)(jnp.array([0, 5, 10])), [1.0, 0.5, 0.0], abs=1e-12)
    close(Constant()(jnp.arange(3)), np.ones(3))


def test_times_are_rounded_to_steps(network, data):
    run = Descent(rate=0.4)(network, data, [0.5, 1.0], [TrainLoss()])
    close(run.times, [0.4, 0.8])


def test_divergence_is_a_status(network, data):
    linear = TwoLayer(M, D, scaling=ntk, activation=Linear(), key=jax.random.key(0))
    run = Descent(rate=100.0)(linear, data, [1e5], [TrainLoss()])
    assert run.status in (Status.diverged, Status.not_finite)
    assert run.stats["steps"] < 100


def test_cross_entropy_classifies(data):
    labels = jax.nn.one_hot((data.x[:, 0] > 0).astype(int) + (data.x[:, 1] > 0), 3)
    network = TwoLayer(64, D, 3, scaling=ntk, key=jax.random.key(0))
    run = Descent(CrossEntropy(), rate=1.0)(network, Dataset(data.x, labels), [3000.0])
    assert np.array_equal(np.argmax(run.final(data.x), 1), np.argmax(labels, 1))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rate": 0.0}, "learning rate"),
        ({"rate": np.nan}, "learning rate"),
        ({"batch": 0}, "at least one sample"),
        ({"clip_norm": -1.0}, "clip_norm must be positive"),
        ({"clip_sample": 0.0}, "clip_sample must be positive"),
    ],
)
def test_settings_that_cannot_work_are_refused(network, data, options, message):
    with pytest.raises(UserError, match=message):
        Descent(**options)(network, data, [1.0])


def test_changing_the_rate_does_not_recompile(network, data, compilations):
    Descent(rate=0.1, optimiser=Momentum(0.5))(network, data, [1.0])
    compilations.count = 0
    Descent(rate=0.2, optimiser=Momentum(0.5))(network, data, [3.0])
    assert compilations.count == 0
