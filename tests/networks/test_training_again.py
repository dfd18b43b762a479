"""Training a trained network again on other data is training afresh from that state."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from close import close
from network_examples import NETWORKS, of_kind
from unlazy.activations import Relu
from unlazy.data import Dataset
from unlazy.flows import Descent
from unlazy.networks import Infinite, Layout, MeanFieldStack, Normal, TwoLayer
from unlazy.probes import KernelMatrix, TestOutputs, TrainOutputs

FLOW = Descent(rate=0.05)
each_network = pytest.mark.parametrize(("kind", "index"), NETWORKS, ids=[f"{kind}-{index}" for kind, index in NETWORKS])


def elsewhere(data):
    """Other points, of which two are known."""
    x = jnp.concatenate([data.x[:2], 0.8 * data.x[2:] + 0.1])
    return Dataset(x, -data.y, 0.5 * data.x[:3], data.y[:3], name="other data")


@each_network
def test_the_second_training_starts_where_the_first_ended(kind, index):
    network, data = of_kind(kind)[index]
    first = FLOW(network, data, [0.2])
    other = elsewhere(data)
    again = FLOW(first.final, other, [0.0, 0.2], [TrainOutputs(), TestOutputs()])
    assert again.status.ok
    close(again.start(data.x), first.final(data.x), rel=1e-6, abs=1e-8)  # where it was trained nothing has changed
    close(again.observed["train-outputs"][0], again.start(other.x), rel=1e-6, abs=1e-8)
    close(again.observed["train-outputs"][0][:2], first.final(data.x)[:2], rel=1e-6, abs=1e-8)
    parts = (network, getattr(network, "start", None), getattr(network, "heavy", None))
    drawn_now = any(getattr(one, "process", None) is not None for one in parts)  # elsewhere, at the new points
    if not drawn_now:
        close(again.observed["train-outputs"][0], first.final(other.x), rel=1e-6, abs=1e-8)
        close(again.observed["test-outputs"][0], first.final(other.x_test), rel=1e-6, abs=1e-8)


@each_network
def test_coordinates_do_not_matter_to_a_network_that_was_trained(kind, index):
    network, data = of_kind(kind)[index]
    first, other = FLOW(network, data, [0.2]), elsewhere(data)
    if first.final.gram_form(other) is None:
        return
    weights, gram = (
        Descent(rate=0.05, coordinates=c)(first.final, other, [0.2], [TrainOutputs(), TestOutputs()])
        for c in ("weights", "gram")
    )
    for name in weights.observed:
        close(gram.observed[name], weights.observed[name], rel=1e-6, abs=1e-8)


def test_an_infinite_block_keeps_its_exact_kernel():
    """The kernel of the first block on new points is K_μ0, not its projection onto the old points."""
    keys = jax.random.split(jax.random.key(0), 3)
    x, new = jax.random.normal(keys[0], (6, 3)), jax.random.normal(keys[1], (5, 3))
    network = MeanFieldStack((math.inf, 7), 3, ranks=2, amplitude=(Normal(mean=(1.0, -0.5)), Normal()), key=keys[2])
    trained = FLOW(network, Dataset(x, x[:, 0]), [1.0]).final
    assert trained.gram_form(Dataset(new, new[:, 0])).features == math.inf  # again a limit
    exact = network.blocks[0].limit_kernel(new, new)
    for form in (trained.prepare, lambda data: trained.gram_form(data).prepare(Layout())):
        prepared, handle, _ = form(Dataset(new, new[:, 0]))
        first = prepared.blocks[0]
        up = jnp.ones((1, 2, 5)) / math.sqrt(2)
        close(first.kernel(handle, handle, up, up)[:, 0, :, 0], exact + 1, rel=1e-7, abs=1e-9)  # and 1 for c


def test_channels_of_a_trained_infinite_block_are_exact_everywhere():
    """f_k(t, x) = f_k(0, x) - Σ_p Γ_kp K(x, x_p) at any x: a wide finite block comes near it, away from all points."""
    keys = jax.random.split(jax.random.key(3), 3)
    x, away = jax.random.normal(keys[0], (6, 2)), jax.random.normal(keys[1], (4, 2))
    data = Dataset(x, jnp.sin(x[:, 0]))
    options = {"ranks": 1, "train": ("a", ""), "activation": Relu(), "amplitude": (Normal(0.0, mean=1.0), Normal())}
    limit = MeanFieldStack((math.inf, 8), 2, **options, key=keys[2])
    wide = MeanFieldStack((20_000, 8), 2, **options, key=keys[2])
    wide = eqx.tree_at(lambda net: net.blocks[1], wide, limit.blocks[1])
    ends = [FLOW(network, data, [1.0]).final.channels(away)[0] for network in (limit, wide)]
    moved = np.abs(ends[0] - limit.channels(away)[0]).max()
    assert np.abs(ends[0] - ends[1]).max() < 0.05 * moved + 4 / math.sqrt(
        20_000
    )  # sampling error 1/√m of order-1 features


def test_an_infinite_embedding_extends_to_new_points():
    """The kernel on all points is exact, old values stay, and new ones have the law of the conditioned process."""
    keys = jax.random.split(jax.random.key(0), 3)
    x, new = jax.random.normal(keys[0], (5, 3)), jax.random.normal(keys[1], (4, 3))
    raw = TwoLayer(20_000, 3, embedding=Infinite(), activation=Relu(), key=keys[2])
    first = raw.prepare(Dataset(x, x[:, 0])).network.restore()
    second = first.prepare(Dataset(new, new[:, 0])).network.restore()
    both = jnp.concatenate([x, new])
    kernel = np.asarray(raw.embedding.kernel(both, both))
    close(second.embedding.kernel(both, both), kernel, rel=1e-7, abs=1e-9)
    close(second.features(x)[1], first.features(x)[1], rel=1e-6, abs=1e-8)
    h = np.asarray(second.features(both)[1])
    scale = np.sqrt(2 * np.outer(np.diag(kernel), np.diag(kernel)) / h.shape[1])
    assert np.all(np.abs(h @ h.T / h.shape[1] - kernel) < 4.5 * scale)
    close(second.tangent_kernel(both), exact_kernel(second, kernel, h), rel=1e-7, abs=1e-9)


def exact_kernel(network, kernel, h):
    """Θ = m Σ_j (a_j/m)² σ'(h_j(x)) σ'(h_j(z)) G(x, z) of the mean-field scaling."""
    gates = (h > 0).astype(float)
    return kernel * (gates @ gates.T) / network.width


def test_the_tangent_kernel_is_watched_on_new_data():
    network, data = of_kind("two-layer")[0]
    other = elsewhere(data)
    run = FLOW(FLOW(network, data, [0.2]).final, other, [0.0], [KernelMatrix()])
    close(run.observed["kernel-matrix"][0], run.start.tangent_kernel(other.x), rel=1e-9, abs=1e-12)
