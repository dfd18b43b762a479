"""Convolutional networks against loops in SciPy, XLA's own convolution, and what rescaling must not change."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.signal import correlate2d

from close import close
from unlazy._errors import UserError
from unlazy.activations import Relu, Tanh
from unlazy.data import Dataset
from unlazy.flows import Descent, GradientFlow
from unlazy.flows.optimisers import Adam
from unlazy.lab import parse
from unlazy.lab.recipe import instantiate
from unlazy.losses import CrossEntropy
from unlazy.networks import ConvNet
from unlazy.networks.conv import convolve, patches
from unlazy.probes.condensation import vectors_of

IMAGE = (2, 6, 5)


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    return Dataset(jnp.asarray(rng.normal(size=(4, *IMAGE))), jnp.asarray(rng.normal(size=4)))


def network(channels=(3,), kernel=3, *, seed=1, **options):
    options = {"gamma": 0.5, "linear": None} | options
    return ConvNet(channels, kernel, image=IMAGE, key=jax.random.key(seed), **options)


def layer(maps, kernels, biases):
    """One convolution of one sample, pair of channels by pair of channels: (channel, height, width)."""
    pairs = [[correlate2d(one, k, "valid") for one, k in zip(maps, row, strict=True)] for row in kernels]
    return np.stack([sum(row) + b for row, b in zip(pairs, biases, strict=True)])


def by_loops(net, x):
    """zhou2023 section 3.2, sample by sample and channel by channel."""
    outputs = []
    for sample in np.asarray(x):
        maps, first = sample, True
        for kernels, biases in zip(net.kernels, net.biases, strict=True):
            maps = layer(maps if first else np.tanh(maps), np.asarray(kernels), np.asarray(biases))
            first = False
        features = np.moveaxis(np.tanh(maps), 0, -1).ravel()
        if net.dense is not None:
            features = np.maximum(np.asarray(net.dense) @ features + np.asarray(net.dense_bias), 0)
        f = features @ np.asarray(net.readout)
        outputs.append(f if net.output_bias is None else f + np.asarray(net.output_bias))
    return np.stack(outputs)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"channels": (3, 4), "kernel": (3, 2)},
        {"channels": (3, 2), "kernel": 2, "dense": 5, "outputs": 3, "output_bias": True},
    ],
    ids=["two layers", "three layers", "dense"],
)
def test_the_function_is_that_of_the_paper(data, options):
    net = network(**options)
    close(net(data.x), by_loops(net, data.x), rel=1e-10, abs=1e-13)
    prepared, x, _ = net.prepare(data)
    close(prepared(x), net(data.x), rel=1e-12)


def test_convolutions_and_their_gradients_are_those_of_xla():
    keys = jax.random.split(jax.random.key(0), 2)
    x, w = jax.random.normal(keys[0], (23, 7, 6, 2)), jax.random.normal(keys[1], (3, 2, 3, 3))  # more than one block

    def theirs(x, w):
        return jax.lax.conv_general_dilated(x, w, (1, 1), "VALID", dimension_numbers=("NHWC", "OIHW", "NHWC"))

    def both(convolution):
        value = lambda x, w: jnp.sum(jnp.sin(convolution(x, w)))  # noqa: E731
        return jax.jit(lambda: (convolution(x, w), *jax.grad(value, argnums=(0, 1))(x, w)))()

    for ours, reference in zip(both(convolve), both(theirs), strict=True):
        close(ours, reference, rel=1e-10, abs=1e-11)


def test_patches_are_cut_row_by_row():
    x = np.arange(2 * 2 * 3 * 4, dtype=float).reshape(2, 2, 3, 4)
    cut = np.asarray(patches(jnp.asarray(x), 2))
    assert cut.shape == (2, 6, 9)
    close(cut[1, 4], [*x[1, :, 1:3, 1:3].ravel(), 1.0])  # the fifth place is row 1, column 1


def test_the_start_has_the_sizes_asked_for():
    key = jax.random.key(0)
    net = ConvNet((40, 50), 5, 10, image=(3, 12, 12), dense=64, gamma=2.0, output_bias=True, key=key)
    sizes = [(43 * 25 / 2) ** -2.0, (90 * 25 / 2) ** -2.0, 1e-4, 1e-4]
    assert net.scales == pytest.approx(sizes)
    for leaf, size in zip((*net.kernels, net.dense, net.readout), sizes, strict=True):
        # The standard deviation of N numbers is known to 1 / √(2N); five times that is chance enough.
        assert float(jnp.std(leaf)) == pytest.approx(size, rel=5 / np.sqrt(2 * leaf.size))
    small = ConvNet((40,), 5, image=(3, 12, 12), scale=1e-6, rescaled=True, key=key)
    assert small.scales == (1e-6, 1e-6)
    assert float(jnp.std(small.kernels[0])) == pytest.approx(1.0, rel=0.1)
    assert network().scales == pytest.approx([(5 * 9 / 2) ** -0.5, ((12 * 3 + 1) / 2) ** -0.5])


def test_rescaled_coordinates_are_the_same_network_and_the_same_descent(data):
    plain = network((3, 2), 2, dense=4, gamma=1.0, linear=0.1, activation=Tanh())
    other = plain.in_units(rescaled=True)
    close(other(data.x), plain(data.x), rel=1e-12)
    close(other.parameters().kernels[1], plain.kernels[1], rel=1e-15)
    flow = Descent(rate=0.2)
    ends = [flow(net, data, [4.0]).final.parameters() for net in (plain, other)]
    for one, two in zip(jax.tree.leaves(ends[0]), jax.tree.leaves(ends[1]), strict=True):
        close(two, one, rel=1e-9, abs=1e-13)
    assert all(rate == 1.0 for rate in jax.tree.leaves(plain.rates()))
    assert other.rates().dense == pytest.approx(100.0)


def test_a_scale_of_a_millionth_loses_no_digits(data):
    """In float32 the movement of the weights, itself 1e-6 in size, is right to the seven digits that float32 has."""
    net = network(scale=1e-6, rescaled=True)
    flow = Descent(rate=0.02)
    exact = flow(net, data, [0.4]).final.kernels[0] - net.kernels[0]
    single = jax.tree.map(lambda leaf: leaf.astype(jnp.float32) if eqx.is_array(leaf) else leaf, net)
    rounded = flow(single, data.astype("float32"), [0.4]).final.kernels[0] - single.kernels[0]
    assert float(jnp.linalg.norm(exact)) > 0.05
    assert float(jnp.linalg.norm(rounded - exact) / jnp.linalg.norm(exact)) < 1e-5


def test_the_flow_watches_parameters_where_outputs_are_too_small_to_tell(data):
    small, tiny = (network(scale=eps, rescaled=True) for eps in (1e-5, 1e-7))
    flow = GradientFlow(tolerance=1e-6)
    runs = [flow(net, data, [0.5]) for net in (small, tiny)]
    assert {run.stats["method"] for run in runs} == {"runge-kutta"}
    # θ̄ follows the same linear flow whatever ε is, up to ε² θ̄².
    moved = [run.final.in_units(rescaled=True).kernels[0] - run.start.kernels[0] for run in runs]
    close(moved[0], moved[1], rel=1e-6, abs=1e-8)
    assert float(jnp.max(jnp.abs(moved[0]))) > 0.1


def test_adam_is_refused_in_rescaled_coordinates_only(data):
    flow = Descent(rate=1e-3, optimiser=Adam())
    assert flow(network(), data, [2e-3]).status.ok
    with pytest.raises(UserError, match="which rescaled=True changes"):
        flow(network(rescaled=True), data, [2e-3])


def test_cross_entropy_trains_a_classifier(data):
    labels = Dataset(data.x, jnp.eye(3)[jnp.asarray([0, 1, 2, 1])])
    run = Descent(loss=CrossEntropy(), rate=0.2)(network(outputs=3, dense=6), labels, [20.0])
    before, after = (float(CrossEntropy()(net(labels.x), labels.y)) for net in (run.start, run.final))
    assert after < before / 2


def test_weights_are_neurons_and_kernels():
    net = ConvNet((32, 4), (3, 2), image=(3, 8, 8), dense=7, scale=0.1, rescaled=True, key=jax.random.key(0))
    shapes = {name: w.shape for name, w in vectors_of(net).items()}
    assert shapes == {
        "conv1": (32, 28),
        "conv1-kernels": (96, 9),  # one for each input and output channel
        "conv2": (4, 129),
        "conv2-kernels": (128, 4),
        "dense": (7, 4 * 25 + 1),
    }
    own, weights = net.parameters(), vectors_of(net)
    close(weights["conv1-kernels"][5], own.kernels[0][1, 2].ravel())
    close(weights["conv1"][1], [*own.kernels[0][1].ravel(), own.biases[0][1]])


@pytest.mark.parametrize("name", ["conv1", "conv2", "dense"])
def test_equal_neurons_can_be_merged(data, name):
    net = network((3, 4), (3, 2), dense=5)
    width = net.layers()[name].weights().shape[0]
    same = jnp.eye(width).at[1].set(jnp.eye(width)[0])  # neuron 1 becomes a copy of neuron 0
    twin = net.layers()[name].merge(same, jnp.eye(width))
    keep = jnp.delete(jnp.eye(width), 1, axis=0)
    merged = twin.layers()[name].merge(keep, keep.at[0, 1].set(1.0))  # with the sum of both outputs
    assert merged.layers()[name].weights().shape[0] == width - 1
    close(merged(data.x), twin(data.x), rel=1e-12)
    close(net.layers()[name].merge(jnp.eye(width), jnp.eye(width))(data.x), net(data.x), rel=1e-14)


def test_recipes_know_convolutional_networks():
    table = {
        "data": {"kind": "digits", "n": 6, "n_test": 2, "flat": False},
        "network": {"kind": "conv-net", "channels": [4, 3], "kernel": [3, 2], "activation": "relu", "dense": 8},
        "flow": {"kind": "descent", "loss": "cross-entropy", "optimiser": "adam", "rate": 1e-3},
        "times": [0.0, 1e-3],
        "dtype": "float32",
    }
    made = instantiate(parse(table)).networks[0]
    assert isinstance(made, ConvNet)
    assert made.image == (1, 8, 8)
    assert made.readout.shape == (8, 10)
    assert (made.activation, made.kernels[1].dtype) == (Relu(), jnp.float32)
    flat = table | {"data": {"kind": "digits", "n": 6, "n_test": 2}}
    with pytest.raises(
        UserError, match=r"network: A convolutional network takes images .* not inputs of shape \(64,\)"
    ):
        instantiate(parse(flat))
    with pytest.raises(UserError, match="'image' is filled in from the data"):
        instantiate(parse(table | {"network": table["network"] | {"image": [1, 8, 8]}}))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"channels": ()}, "0 layers"),
        ({"channels": (3, 3), "kernel": (3,)}, "2 layers and 1 kernel sizes"),
        ({"channels": (0,)}, "at least 1"),
        ({"channels": (3, 3), "kernel": 4}, "leave nothing of images of 6 x 5"),
        ({"scale": 0.0}, "scale = 0.0 is not in range"),
    ],
)
def test_what_is_no_network_is_refused(options, words):
    with pytest.raises(UserError, match=words):
        network(**options)


def test_what_does_not_fit_is_told(data):
    net = network()
    with pytest.raises(UserError, match=r"was made for images \(2, 6, 5\)"):
        net(data.x[:, :1])
    with pytest.raises(UserError, match="flat = false"):
        net(data.x.reshape(4, -1))
