"""One function, tanh(tanh(x W0 + b0) W1 + b1) W2 + b2, in every library whose models can be wrapped."""

import functools
import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from unlazy.data import Dataset

SIZES = (3, 5, 4, 2)


def weights(dtype=float):
    """Pairs of a kernel (inputs, outputs) and a bias."""
    rng = np.random.default_rng(0)
    pairs = itertools.pairwise(SIZES)
    return [(rng.normal(size=(a, b)).astype(dtype), rng.normal(size=b).astype(dtype)) for a, b in pairs]


def samples(n=6, outputs=2):
    rng = np.random.default_rng(1)
    x, y, x_test = rng.normal(size=(n, SIZES[0])), rng.normal(size=(n, outputs)), rng.normal(size=(4, SIZES[0]))
    return Dataset(x, y, x_test, rng.normal(size=(4, outputs)))


def by_hand(x):
    (w0, b0), (w1, b1), (w2, b2) = weights()
    return np.tanh(np.tanh(x @ w0 + b0) @ w1 + b1) @ w2 + b2


def equinox():
    mlp = eqx.nn.MLP(SIZES[0], SIZES[-1], SIZES[1], 2, activation=jnp.tanh, key=jax.random.key(0))
    for index, (kernel, bias) in enumerate(weights()):
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


def linen():
    found = {f"Dense_{index}": {"kernel": w, "bias": b} for index, (w, b) in enumerate(weights())}
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


def nnx():
    module, mlp = nnx_class()
    model = mlp(module.Rngs(0))
    for layer, (w, b) in zip(model.layers, weights(), strict=True):
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


def haiku():
    names = ["linear", "linear_1", "linear_2"]
    return haiku_function(), {name: {"w": w, "b": b} for name, (w, b) in zip(names, weights(), strict=True)}


def mlp(params, x):
    *hidden, (w, b) = params
    for into, bias in hidden:
        x = jnp.tanh(x @ into + bias[None])
    return x @ w + b[None]


def function():
    return mlp, weights()


def torch(dtype="float64"):
    module = pytest.importorskip("torch")
    layers = []
    for w, b in weights():
        linear = module.nn.Linear(*w.shape, dtype=getattr(module, dtype))
        linear.load_state_dict({"weight": module.tensor(w.T), "bias": module.tensor(b)})
        layers += [linear, module.nn.Tanh()]
    return module.nn.Sequential(*layers[:-1])


JAX = [equinox, linen, nnx, haiku, function]
