"""Layers found by tracing: names, inputs, weights and pre-activations of any model, with the batch axis first."""

import jax
import jax.numpy as jnp
import pytest

import small_models
from close import close
from small_models import MODELS, drawn
from unlazy._errors import UserError
from unlazy.networks import ConvNet, as_function, preactivations, trace_layers

NAMES = {
    "mlp": ["layers.0.w", "layers.1.w", "layers.2.w"],
    "scalar": ["w", "a"],
    "cnn": ["first", "grouped", "spread", "last"],
    "tied": ["w", "w#2", "w#3", "out"],
    "tied autoencoder": ["w", "w#2"],
    "tied otherwise": ["w", "w#2", "d"],
    "scan": ["w[0]", "w[1]", "w[2]"],
    "stacked by hand": ["w[0]", "w[1]", "w[2]"],
    "recurrent": ["u", "w", "u#2", "w#2", "u#3", "w#3", "u#4", "w#4", "u#5"],
    "attention": ["q", "k", "v", "o", "up", "down"],
    "residual, remat, jit": ["a", "a#2", "b"],
    "own derivatives": ["a", "b"],
    "vmap": ["a", "b"],
    "functions of parameters": ["w", "left+right"],
    "equinox": ["conv.weight", "mlp.layers.0.weight", "mlp.layers.1.weight"],
}


@pytest.mark.parametrize("name", NAMES)
def test_layers_are_found_by_name_and_are_what_they_say(name):
    apply, params, x = drawn(name)
    layers = trace_layers(apply, params, x)
    found = preactivations(apply, params, x)
    assert set(found) == set(layers)
    if name != "recurrent":
        assert list(layers) == NAMES[name]
    for layer in layers.values():
        close(found[layer.name], layer.preactivations, rel=1e-12, abs=1e-14)
        assert layer.preactivations.shape[0] == layer.inputs.shape[0] == x.shape[0]
        assert layer.preactivations.shape[-1] == layer.weights.shape[0]
        assert layer.rows().shape[1] == layer.weights.shape[0]
        if layer.groups == 1 and not layer.biases and layer.name != "layers.2.w":
            close(layer.inputs @ layer.weights.T, layer.preactivations, rel=1e-10, abs=1e-12)


def test_a_bias_and_a_factor_that_follow_belong_to_the_layer():
    apply, params, x = drawn("mlp")
    layers, p = trace_layers(apply, params, x), params["layers"]
    first = x @ p[0]["w"] + p[0]["b"][None]
    close(layers["layers.0.w"].preactivations, first, rel=1e-12, abs=1e-14)
    assert layers["layers.0.w"].biases == ("layers.0.b",)
    close(layers["layers.1.w"].inputs, jnp.tanh(first), rel=1e-12)
    close(layers["layers.1.w"].weights, p[1]["w"].T, rel=1e-12)
    assert layers["layers.2.w"].biases == ()
    close(layers["layers.2.w"].preactivations, apply(params, x), rel=1e-12, abs=1e-14)


def test_an_equinox_network_has_the_batch_first():
    model, x = small_models.net(), jax.random.normal(jax.random.key(0), (6, 1, 4, 4))
    layers = trace_layers(small_models.module, model, x)
    convolved = jax.vmap(model.conv)(x)  # (n, channel, row, column)
    conv = layers["conv.weight"]
    assert (conv.kind, conv.biases) == ("convolution", ("conv.bias",))
    close(conv.preactivations, jnp.moveaxis(convolved, 1, -1), rel=1e-12, abs=1e-14)
    last = layers["mlp.layers.1.weight"]
    close(last.preactivations, jax.vmap(model)(x), rel=1e-12, abs=1e-14)
    close(last.weights, model.mlp.layers[1].weight, rel=1e-12)


def test_grouped_convolutions():
    apply, params, x = drawn("cnn")
    layer = trace_layers(apply, params, x)["grouped"]
    assert layer.groups == 2
    by_group = jnp.einsum("nuvgd,gmd->nuvgm", layer.inputs, layer.weights.reshape(2, 3, -1))
    close(by_group.reshape(layer.preactivations.shape), layer.preactivations, rel=1e-10, abs=1e-12)


def test_each_step_of_a_scan_is_a_use_of_its_own():
    apply, params, x = drawn("scan")
    layers = trace_layers(apply, params, x)
    h = x
    for index in range(3):
        y = h @ params["w"][index] + params["b"][index][None]
        close(layers[f"w[{index}]"].preactivations, y, rel=1e-12, abs=1e-14)
        h = jnp.tanh(y)


def test_what_lies_in_a_long_scan_is_not_found():
    apply, params, x = drawn("long scan")
    with pytest.raises(UserError, match="No matrix product or convolution"):
        trace_layers(apply, params, x)


def test_the_layers_of_a_network_of_ours():
    network, data = ConvNet.examples(key=jax.random.key(2))[2]
    apply, params, _ = as_function(network)
    layers = trace_layers(apply, params, data.x)
    own = network.layers()["conv1"].preactivations(data.x)
    found = next(iter(layers.values()))
    close(found.rows(), own, rel=1e-10, abs=1e-12)


def test_new_numbers_are_not_compiled_again(compilations):
    apply, params, x = drawn("attention")
    preactivations(apply, params, x)
    other, y = jax.tree.map(lambda leaf: leaf + 1, params), x + 1
    compilations.count = 0
    preactivations(apply, other, y)
    assert compilations.count == 0


def test_all_models_are_listed():
    assert set(NAMES) == set(MODELS) - {"long scan"}
