"""Condensation probes on weights whose clusters are known, against NumPy, Monte Carlo and SciPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from close import close
from unlazy._errors import UserError
from unlazy.activations import Relu, Sigmoid, Tanh
from unlazy.data import Dataset
from unlazy.losses import Squared
from unlazy.networks import ConvNet, MeanFieldStack, TwoLayer, mean_field, with_fields
from unlazy.probes import (
    Alignment,
    Condensation,
    CosineMatrix,
    InputWeights,
    chance,
    cluster_order,
    clusters,
    cosines,
    effective_rank,
    reduce,
)
from unlazy.probes.directions import condensed

rng = np.random.default_rng(11)
DIM = 9
AXES = np.linalg.qr(rng.normal(size=(DIM, 3)))[0].T
DATA = Dataset(jnp.asarray(rng.normal(size=(20, DIM))), jnp.zeros(20))


def gathered(sizes=(5, 4, 3), spread=0.02, signs=True):
    """Vectors of random lengths around known axes, in both senses, in a shuffled order; and whose axis each has."""
    which = np.repeat(np.arange(len(sizes)), sizes)
    which = rng.permutation(which)
    sense = np.where(rng.random(which.size) < 0.5, -1.0, 1.0) if signs else np.ones(which.size)
    length = rng.uniform(0.5, 2.0, which.size)
    noise = spread * rng.normal(size=(which.size, DIM)) / np.sqrt(DIM)
    return length[:, None] * (sense[:, None] * AXES[which] + noise), which, sense


def layer(vectors, activation="tanh", outputs=None):
    width = len(vectors)
    net = TwoLayer(width, DIM, outputs, activation=activation, scaling=mean_field, key=jax.random.key(0))
    return with_fields(net, w=jnp.asarray(vectors))


def look(probe, net):
    return probe.of(net, net, DATA, Squared())


def test_cosines_are_the_definition():
    vectors = rng.normal(size=(4, DIM))
    vectors[2] = 0
    exact = np.zeros((4, 4))
    for i in (0, 1, 3):
        for j in (0, 1, 3):
            exact[i, j] = vectors[i] @ vectors[j] / np.sqrt((vectors[i] @ vectors[i]) * (vectors[j] @ vectors[j]))
    close(cosines(jnp.asarray(vectors)), exact, rel=1e-12, abs=1e-14)


def test_clusters_are_found_and_stand_together():
    vectors, which, sense = gathered()
    found = clusters(jnp.asarray(vectors), 0.95)
    assert float(found.leaders) == 3
    for axis in range(3):
        assert len(set(np.asarray(found.leader)[which == axis])) == 1
    assert float(clusters(jnp.asarray(vectors), 0.95, signed=True).leaders) == len(set(zip(which, sense, strict=True)))
    order = np.asarray(cluster_order(jnp.asarray(vectors)))
    assert sorted(order) == list(range(12))
    assert np.count_nonzero(np.diff(which[order])) == 2  # the axis changes twice only
    for axis in range(3):
        mine = np.asarray(found.cosine)[order][which[order] == axis]
        assert np.all(np.diff(np.sign(mine)) <= 0)  # + before -


def test_the_numbers_are_counts():
    vectors, which, sense = gathered()
    seen = look(Condensation(), layer(vectors))["hidden"]
    d = cosines(jnp.asarray(vectors))
    near = [abs(d[i, j]) > 0.95 for i in range(12) for j in range(12) if i != j]
    apart = [d[i, j] < -0.95 for i in range(12) for j in range(12) if i != j]
    assert float(seen["pairs"]) == pytest.approx(np.mean(near))
    assert float(seen["opposite"]) == pytest.approx(np.sum(apart) / np.sum(near))
    assert float(seen["lines"]) == 3
    assert float(seen["directions"]) == len(set(zip(which, sense, strict=True)))
    assert 2.5 < float(seen["rank"]) < 4
    assert float(seen["alive"]) == 1
    assert float(look(Condensation(threshold=0.9999999), layer(vectors))["hidden"]["lines"]) == 12


def test_vectors_that_were_left_behind_are_told_apart():
    vectors, _, _ = gathered((6,), signs=False)
    dead = 1e-4 * rng.normal(size=(3, DIM))
    seen = look(Condensation(floor=0.01), layer(np.concatenate([vectors, dead])))["hidden"]
    assert float(seen["alive"]) == pytest.approx(6 / 9)
    assert (float(seen["lines"]), float(seen["directions"]), float(seen["pairs"])) == (1, 1, 1)
    assert float(look(Condensation(), layer(np.concatenate([vectors, dead])))["hidden"]["lines"]) == 4


def test_effective_rank_has_its_limits():
    assert float(effective_rank(jnp.outer(jnp.arange(1.0, 5.0), jnp.asarray(AXES[0])))) == pytest.approx(1.0, abs=1e-5)
    assert float(effective_rank(3 * jnp.eye(5))) == pytest.approx(5.0)
    values = np.linalg.svd(vectors := rng.normal(size=(7, 4)), compute_uv=False)
    share = values / values.sum()
    assert float(effective_rank(jnp.asarray(vectors))) == pytest.approx(np.exp(-np.sum(share * np.log(share))))


def test_chance_is_what_random_vectors_do():
    pairs = rng.normal(size=(2, 400_000, 4))
    pairs /= np.linalg.norm(pairs, axis=2, keepdims=True)
    seen = np.mean(np.abs(np.sum(pairs[0] * pairs[1], axis=1)) >= 0.9)
    wanted = chance(4, 0.9)
    assert seen == pytest.approx(wanted, abs=4 * np.sqrt(wanted / 400_000))
    assert chance(2, np.cos(0.1)) == pytest.approx(0.1 / (np.pi / 2))
    assert chance(9) < 1e-4
    assert chance(25) < 1e-11


def test_alignment_is_the_angle_with_the_direction_given():
    vectors, _, sense = gathered((8,), spread=1e-3)
    exact = np.abs(vectors @ AXES[0]) / np.linalg.norm(vectors, axis=1)
    seen = look(Alignment(AXES[0], "hidden"), layer(vectors))["hidden"]
    close(seen["cosine"], sense * exact, rel=1e-12)
    close(seen["amplitude"], np.linalg.norm(vectors, axis=1), rel=1e-12)
    assert float(seen["median"]) == pytest.approx(np.median(exact))
    assert float(seen["share"]) == 1
    own = look(Alignment(), layer(vectors))["hidden"]
    close(np.abs(own["cosine"]), exact, rel=1e-5)
    ones = look(Alignment("ones"), layer(vectors))["hidden"]
    close(ones["cosine"], vectors.sum(axis=1) / np.linalg.norm(vectors, axis=1) / 3, rel=1e-12)
    mixed = np.concatenate([vectors, np.tile(AXES[1], (4, 1))])
    assert float(look(Alignment(AXES[0], "hidden"), layer(mixed))["hidden"]["share"]) == pytest.approx(8 / 12)


def test_the_matrix_is_ordered():
    vectors, which, _ = gathered()
    matrix = np.asarray(look(CosineMatrix(), layer(vectors))["hidden"])
    size = np.bincount(which)
    blocks = np.abs(matrix) > 0.95
    assert blocks.sum() == np.sum(size**2)
    assert np.all(np.diag(blocks))
    changes = np.count_nonzero(~blocks[np.arange(11), np.arange(1, 12)])
    assert changes == 2


def test_dense_networks_of_several_layers_are_seen_and_reduced():
    """Neurons of a block that are copies of two others, opposite ones among them, are two directions."""
    net = MeanFieldStack((12, 6), DIM, ranks=3, bias=False, activation=Tanh(), train="wa", key=jax.random.key(0))
    lower, upper = net.blocks
    sense, which = np.tile([1.0, -1.0, 1.0], 2), np.repeat([0, 1], 3)
    copies = with_fields(upper, w=jnp.asarray(sense[:, None] * np.asarray(upper.w)[which]))
    net = with_fields(net, blocks=(lower, copies))
    seen = look(Condensation(), net)
    assert set(seen) == {"block-1", "block-2"}
    assert float(seen["block-2"]["lines"]) == 2
    assert look(CosineMatrix("block-2"), net)["block-2"].shape == (6, 6)
    along = look(Alignment(np.asarray(upper.w)[0], layer="block-2"), net)["block-2"]["cosine"]
    close(np.abs(along)[:3], np.ones(3), rel=1e-6)
    reduced = reduce(net, "block-2", DATA)
    assert reduced.neurons == 2
    assert reduced.change < 1e-6
    assert reduced.network.blocks[0].width == 12


@pytest.mark.parametrize("activation", [Tanh(), Relu(), Sigmoid()], ids=["odd", "relu", "sigmoid"])
def test_equal_neurons_are_reduced_without_a_change(activation):
    """Figure 1: equal inputs weights, outputs summed; opposite ones too where σ is odd."""
    sense = np.array([1, -1, 1, 1, -1, 1.0])
    vectors = sense[:, None] * AXES[[0, 0, 0, 1, 1, 1]]
    net = layer(vectors, activation)
    net = with_fields(net, a=jnp.asarray(rng.normal(size=6)))
    reduced = reduce(net, "hidden", DATA)
    assert reduced.neurons == (2 if activation == Tanh() else 4)
    assert reduced.change < 1e-12
    close(reduced.network(DATA.x), net(DATA.x), rel=1e-9, abs=1e-12)


def test_relu_neurons_of_any_length_are_reduced_exactly():
    vectors, _, _ = gathered((5, 4), spread=0.0, signs=False)
    reduced = reduce(layer(vectors, Relu(), outputs=3), "hidden", DATA)
    assert reduced.neurons == 2
    assert reduced.change < 1e-12


def test_a_condensed_convolution_is_reduced_to_third_order():
    """Small weights along v with read-outs in proportion, as condensation leaves them: what is lost is of order ε⁴."""
    changes, places = [], jnp.asarray(rng.normal(size=(9, 1)))
    for size in (0.2, 0.1):
        net = ConvNet((6,), 3, image=(1, 5, 5), scale=0.1, key=jax.random.key(0))
        length = jnp.asarray([1.0, -0.5, 0.7, 0.3, -1.2, 0.9])
        kernels = size * length[:, None, None, None] * jnp.asarray(AXES[0]).reshape(1, 1, 3, 3)
        read = (places * length[None]).ravel()
        net = with_fields(net, kernels=(kernels,), biases=(0 * net.biases[0],), readout=read)
        images = Dataset(jax.random.normal(jax.random.key(1), (8, 1, 5, 5)), jnp.zeros(8))
        reduced = reduce(net, "conv1", images)
        assert reduced.neurons == 1
        changes.append(reduced.change)
    assert changes[1] < 1e-3
    assert changes[0] / changes[1] == pytest.approx(16, rel=0.3)  # fifth order over first


def test_every_layer_of_a_convolutional_network_is_seen():
    net = ConvNet((4, 3), 2, image=(2, 5, 5), dense=6, key=jax.random.key(0))
    seen = look(Condensation(), net)
    assert set(seen) == {"conv1", "conv1-kernels", "conv2", "conv2-kernels", "dense"}
    assert set(look(Condensation("conv2"), net)) == {"conv2"}
    assert look(CosineMatrix("conv2-kernels"), net)["conv2-kernels"].shape == (12, 12)
    chosen = look(InputWeights(("conv1", "conv2-kernels")), net)
    close(chosen["conv1"], net.layers()["conv1"].weights())
    assert set(chosen) == {"conv1", "conv2-kernels"}
    assert set(look(InputWeights(), net)) == set(seen)
    for probe in (Condensation("conv3"), InputWeights(("conv3",))):
        with pytest.raises(UserError, match=r"no layer 'conv3'\. Did you mean"):
            look(probe, net)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Condensation(threshold=1.0), "threshold = 1.0 is not in range: give a number above 0 and below 1"),
        (lambda: Alignment("one"), "direction = 'one' is not one of 'leading', 'ones'"),
        (lambda: Alignment((1.0, 0.0)), "name that layer with the option layer"),
        (lambda: Alignment(degrees=90), "degrees = 90 is not in range: give a number above 0 and below 90"),
        (
            lambda: look(Alignment((1.0, 0.0), "hidden"), layer(np.ones((2, DIM)))),
            "direction has 2 entries, but vectors of 'hidden' have 9",
        ),
    ],
)
def test_bad_options_are_told(make, words):
    with pytest.raises(UserError, match=words):
        make()


@pytest.mark.parametrize("size", [1e-30, 1e-22, 1e25])
def test_weights_of_any_size_condense_alike(size):
    """In float32, the squares of weights of 1e-22 are 0: all were called dead, and none of them condensed."""
    vectors = gathered()[0].astype(np.float32)
    usual, other = (condensed(jnp.asarray(one * vectors)) for one in (np.float32(1), np.float32(size)))
    for name, value in usual.items():
        close(other[name], value, rel=1e-5)
    assert usual["lines"] == 3
    assert usual["alive"] == 1
