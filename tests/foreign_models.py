"""One perceptron with three hidden layers of tanh neurons, in every library whose models can be wrapped.

``moved`` adds that multiple of a fixed direction to all weights, as training would.
"""

import functools
import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from unlazy.data import Dataset

SIZES = (3, 5, 4, 6, 2)


def weights(moved=0.0):
    """Pairs of a kernel (inputs, outputs) and a bias."""
    rng, way = np.random.default_rng(0), np.random.default_rng(2)

    def drawn(*shape):
        return rng.normal(size=shape) + moved * way.normal(size=shape)

    return [(drawn(a, b), drawn(b)) for a, b in itertools.pairwise(SIZES)]


def samples(n=6, outputs=2):
    rng = np.random.default_rng(1)
    x, y, x_test = rng.normal(size=(n, SIZES[0])), rng.normal(size=(n, outputs)), rng.normal(size=(4, SIZES[0]))
    return Dataset(x, y, x_test, rng.normal(size=(4, outputs)))


def by_hand(x):
    *hidden, (w, b) = weights()
    for into, bias in hidden:
        x = np.tanh(x @ into + bias)
    return x @ w + b


def equinox(moved=0.0):
    mlp = eqx.nn.MLP(SIZES[0], SIZES[-1], SIZES[1], 3, activation=jnp.tanh, key=jax.random.key(0))
    for index, (kernel, bias) in enumerate(weights(moved)):
        linear = eqx.nn.Linear(*kernel.shape, key=jax.random.key(0))
        linear = eqx.tree_at(lambda one: (one.weight, one.bias), linear, (jnp.asarray(kernel.T), jnp.asarray(bias)))
        mlp = eqx.tree_at(lambda one, index=index: one.layers[index], mlp, linear)
    return mlp


@functools.cache
def linen_class():
    nn = pytest.importorskip("flax.linen")

    class Mlp(nn.Module):
        @nn.compact
        def __call__(self, x, train: bool):
            for size in SIZES[1:-1]:
                x = nn.Dropout(0.5, deterministic=not train)(jnp.tanh(nn.Dense(size)(x)))
            return nn.Dense(SIZES[-1])(x)

    return Mlp


def linen(moved=0.0):
    found = {f"Dense_{index}": {"kernel": w, "bias": b} for index, (w, b) in enumerate(weights(moved))}
    return linen_class()(), {"params": found}


@functools.cache
def nnx_class():
    nnx = pytest.importorskip("flax.nnx")

    class Mlp(nnx.Module):
        def __init__(self, rngs):
            sizes = itertools.pairwise(SIZES)
            self.layers = nnx.List([nnx.Linear(a, b, param_dtype=float, rngs=rngs) for a, b in sizes])
            self.dropout = nnx.Dropout(0.5, rngs=rngs)

        def __call__(self, x):
            *hidden, last = self.layers
            for layer in hidden:
                x = self.dropout(jnp.tanh(layer(x)))
            return last(x)

    return nnx, Mlp


def nnx(moved=0.0):
    module, mlp = nnx_class()
    model = mlp(module.Rngs(0))
    for layer, (w, b) in zip(model.layers, weights(moved), strict=True):
        layer.kernel[...], layer.bias[...] = jnp.asarray(w), jnp.asarray(b)
    return model


@functools.cache
def haiku_function():
    hk = pytest.importorskip("haiku")

    def apply(x, is_training):
        for size in SIZES[1:-1]:
            x = jnp.tanh(hk.Linear(size)(x))
            x = hk.dropout(hk.next_rng_key(), 0.5, x) if is_training else x
        return hk.Linear(SIZES[-1])(x)

    return hk.transform(apply)


def haiku(moved=0.0):
    names = ["linear", "linear_1", "linear_2", "linear_3"]
    return haiku_function(), {name: {"w": w, "b": b} for name, (w, b) in zip(names, weights(moved), strict=True)}


def mlp(params, x):
    *hidden, (w, b) = params
    for into, bias in hidden:
        x = jnp.tanh(x @ into + bias[None])
    return x @ w + b[None]


def function(moved=0.0):
    return mlp, weights(moved)


def torch(moved=0.0):
    module = pytest.importorskip("torch", reason="PyTorch is not installed: `make test-torch` installs it")
    layers = []
    for w, b in weights(moved):
        linear = module.nn.Linear(*w.shape, dtype=module.float64)
        linear.load_state_dict({"weight": module.tensor(w.T), "bias": module.tensor(b)})
        layers += [linear, module.nn.Tanh()]
    return module.nn.Sequential(*layers[:-1])


JAX = [equinox, linen, nnx, haiku, function]
