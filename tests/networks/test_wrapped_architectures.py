"""A convolutional network with pooling, a residual perceptron and a transformer, in Equinox and in Flax.

Their tangent kernels are those of Jacobians written out row by row, and their layers are found.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import unlazy
from unlazy.networks import layers_on

KEY = jax.random.key(5)
TOKENS, WORDS, SIZE = 4, 7, 6


class Convolutional(eqx.Module):
    conv: list[eqx.nn.Conv2d]
    out: eqx.nn.Linear

    def __init__(self, key):
        keys = jax.random.split(key, 3)
        self.conv = [eqx.nn.Conv2d(1, 3, 3, padding=1, key=keys[0]), eqx.nn.Conv2d(3, 4, 2, key=keys[1])]
        self.out = eqx.nn.Linear(4, 2, key=keys[2])

    def __call__(self, x):
        x = eqx.nn.MaxPool2d(2, 2)(jax.nn.relu(self.conv[0](x)))
        return self.out(jnp.mean(jnp.tanh(self.conv[1](x)), axis=(1, 2)))


class Residual(eqx.Module):
    first: eqx.nn.Linear
    blocks: list[eqx.nn.Linear]
    out: eqx.nn.Linear

    def __init__(self, key):
        keys = jax.random.split(key, 4)
        self.first, self.out = eqx.nn.Linear(3, 5, key=keys[0]), eqx.nn.Linear(5, 2, key=keys[3])
        self.blocks = [eqx.nn.Linear(5, 5, key=one) for one in keys[1:3]]

    def __call__(self, x):
        x = self.first(x)
        for block in self.blocks:
            x = x + jax.nn.gelu(block(x))
        return self.out(x)


class Transformer(eqx.Module):
    """One block; the table of words is used again for the outputs."""

    words: eqx.nn.Embedding
    places: jax.Array
    norms: list[eqx.nn.LayerNorm]
    attention: eqx.nn.MultiheadAttention
    mlp: eqx.nn.MLP

    def __init__(self, key):
        keys = jax.random.split(key, 4)
        self.words = eqx.nn.Embedding(WORDS, SIZE, key=keys[0])
        self.places = jax.random.normal(keys[1], (TOKENS, SIZE))
        self.norms = [eqx.nn.LayerNorm(SIZE) for _ in range(3)]
        self.attention = eqx.nn.MultiheadAttention(2, SIZE, key=keys[2])
        self.mlp = eqx.nn.MLP(SIZE, SIZE, 8, 1, activation=jax.nn.gelu, key=keys[3])

    def __call__(self, tokens):
        x = jax.vmap(self.words)(tokens) + self.places
        h = jax.vmap(self.norms[0])(x)
        x = x + self.attention(h, h, h)
        x = x + jax.vmap(self.mlp)(jax.vmap(self.norms[1])(x))
        return self.words.weight @ jnp.mean(jax.vmap(self.norms[2])(x), axis=0)


def linen():
    return pytest.importorskip("flax.linen", reason="Flax is not installed")


def flax_convolutional():
    nn = linen()

    class Net(nn.Module):
        @nn.compact
        def __call__(self, x):
            x = nn.max_pool(nn.relu(nn.Conv(3, (3, 3))(jnp.moveaxis(x, 1, -1))), (2, 2), (2, 2))
            x = nn.Dense(4)(nn.avg_pool(jnp.tanh(nn.Conv(4, (2, 2))(x)), (2, 2), (2, 2)).reshape(x.shape[0], -1))
            return nn.Dense(2)(jnp.tanh(x))

    return Net(), jnp.ones((1, 1, 4, 4))


def flax_residual():
    nn = linen()

    class Net(nn.Module):
        @nn.compact
        def __call__(self, x):
            x = nn.Dense(5)(x)
            for _ in range(2):
                x = x + nn.gelu(nn.Dense(5)(x))
            return nn.Dense(2)(x)

    return Net(), jnp.ones((1, 3))


def flax_transformer():
    nn = linen()

    class Net(nn.Module):
        @nn.compact
        def __call__(self, tokens):
            words = nn.Embed(WORDS, SIZE)
            x = words(tokens) + self.param("places", nn.initializers.normal(1.0), (TOKENS, SIZE))[None]
            x = x + nn.MultiHeadDotProductAttention(2)(nn.LayerNorm()(x))
            x = x + nn.Dense(SIZE)(nn.gelu(nn.Dense(8)(nn.LayerNorm()(x))))
            return words.attend(jnp.mean(nn.LayerNorm()(x), axis=1))

    return Net(), jnp.zeros((1, TOKENS), int)


def flax(make):
    module, sample = make()
    variables = jax.tree.map(lambda leaf: leaf.astype(float), module.init(KEY, sample))
    return module, variables


SAMPLES = {
    "convolutional": jax.random.normal(KEY, (5, 1, 4, 4)),
    "residual": jax.random.normal(KEY, (5, 3)),
    "transformer": jax.random.randint(KEY, (5, TOKENS), 0, WORDS).astype(float),
}
MODELS = {
    ("equinox", "convolutional"): lambda: Convolutional(KEY),
    ("equinox", "residual"): lambda: Residual(KEY),
    ("equinox", "transformer"): lambda: Transformer(KEY),
    ("flax", "convolutional"): lambda: flax(flax_convolutional),
    ("flax", "residual"): lambda: flax(flax_residual),
    ("flax", "transformer"): lambda: flax(flax_transformer),
}
LAYERS = {"convolutional": (2, 3), "residual": (3, 3), "transformer": (6, 6)}  # read-outs are not counted


def rows(network, x):
    """The Jacobian by one backward pass for each output of each sample, (n, k, parameters)."""
    arrays, rest = eqx.partition(network, eqx.is_inexact_array)
    k = network(x).shape[1]

    @jax.jit
    def row(sample, output):
        slope = jax.grad(lambda some: eqx.combine(some, rest)(sample[None])[0, output])(arrays)
        return jnp.concatenate([leaf.reshape(-1) for leaf in jax.tree.leaves(slope)])

    return np.array([[row(sample, output) for output in range(k)] for sample in x])


@pytest.mark.parametrize(("library", "name"), MODELS, ids=["-".join(one) for one in MODELS])
def test_kernels_are_those_of_jacobians_row_by_row(library, name):
    x = SAMPLES[name]
    network = unlazy.wrap(MODELS[library, name](), integer_inputs=name == "transformer")
    jacobian = rows(network, x)
    exact = np.einsum("ikp,jlp->ikjl", jacobian, jacobian)
    kernel = network.tangent_kernel(x)
    np.testing.assert_allclose(kernel, exact, rtol=0, atol=1e-10 * np.max(np.abs(exact)))
    assert len(layers_on(network, x)) == LAYERS[name][library == "flax"]
