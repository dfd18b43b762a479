"""The empirical tangent kernel of networks that are given as functions, against full Jacobians and PyTorch.

The first networks are 784-512-512-k with tanh, the last is a small convolutional network. Networks with several outputs
have the whole kernel (n, k, n, k) computed. The baselines are measured on `BASE` samples only; for more samples, for
which a full Jacobian does not fit into memory, their time is that of these times (n / `BASE`)², the growth of the
contraction. The error is the largest difference between kernels on the `BASE` samples, relative to their largest entry.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from unlazy.kernels import kernel_costs, tangent_kernel

sys.path.insert(0, str(Path(__file__).parent))
from _timing import best_of

BASE, REPEATS = 32, 3
SIZES = {"784-512-512-1": (32, 256, 1000), "784-512-512-10": (32, 256), "small CNN, k=10": (32, 256)}


class Convolutional(eqx.Module):
    """Two convolutions with strides and a linear read-out, on images of 28 x 28."""

    layers: list[Any]

    def __init__(self, *, key: jax.Array) -> None:
        keys = jax.random.split(key, 3)
        self.layers = [
            eqx.nn.Conv2d(1, 16, 5, 2, key=keys[0]),
            eqx.nn.Conv2d(16, 32, 3, 2, key=keys[1]),
            eqx.nn.Linear(800, 10, key=keys[2]),
        ]

    def __call__(self, x: jax.Array) -> jax.Array:
        """Evaluate one image."""
        x = jnp.tanh(self.layers[0](x.reshape(1, 28, 28)))
        return self.layers[2](jnp.tanh(self.layers[1](x)).reshape(-1))


def apply(model: eqx.Module, x: jax.Array) -> jax.Array:
    return jax.vmap(model)(x)


@eqx.filter_jit
def full_jacobians(model: eqx.Module, x: jax.Array) -> jax.Array:
    """Contract the whole Jacobian, as in a script of a few lines."""
    trained, rest = eqx.partition(model, eqx.is_inexact_array)
    jacobian = jax.jacrev(lambda leaves: apply(eqx.combine(leaves, rest), x))(trained)
    rows = [leaf.reshape(*leaf.shape[:2], -1) for leaf in jax.tree.leaves(jacobian)]
    return sum(jnp.einsum("iks,jls->ikjl", one, one) for one in rows)


def with_torch(model: eqx.nn.MLP) -> Callable[[np.ndarray], np.ndarray] | None:
    """The same network and a contraction of its Jacobian with torch.func; None where PyTorch is not installed."""
    try:
        import torch
    except ImportError:
        return None
    params = [(torch.tensor(np.asarray(one.weight)), torch.tensor(np.asarray(one.bias))) for one in model.layers]

    def one(params: Any, sample: Any) -> Any:
        for weight, bias in params[:-1]:
            sample = torch.tanh(weight @ sample + bias)
        return params[-1][0] @ sample + params[-1][1]

    def kernel(x: np.ndarray) -> np.ndarray:
        rows = torch.func.vmap(torch.func.jacrev(one), (None, 0))(params, torch.tensor(x))
        flat = [leaf.flatten(2) for pair in rows for leaf in pair]
        return sum(torch.einsum("iks,jls->ikjl", leaf, leaf) for leaf in flat).numpy()

    return kernel


def measure() -> list[dict[str, Any]]:
    """Give a row for each network and number of samples."""
    rows = []
    models = {
        f"784-512-512-{k}": eqx.nn.MLP(784, k, 512, 2, activation=jnp.tanh, key=jax.random.key(0)) for k in (1, 10)
    }
    for name, model in {**models, "small CNN, k=10": Convolutional(key=jax.random.key(1))}.items():
        base = jax.random.normal(jax.random.key(2), (BASE, 784))
        full, exact = best_of(1, lambda m=model, x=base: jax.block_until_ready(full_jacobians(m, x)))
        theirs, points = with_torch(model) if isinstance(model, eqx.nn.MLP) else None, np.asarray(base)
        torch_seconds = best_of(1, lambda f=theirs, x=points: f(x))[0] if theirs else None
        for n in SIZES[name]:
            x = jax.random.normal(jax.random.key(2), (n, 784))
            begun = time.perf_counter()
            jax.block_until_ready(tangent_kernel(apply, model, x))
            compiled = time.perf_counter() - begun
            ours, _ = best_of(REPEATS, lambda m=model, x=x: jax.block_until_ready(tangent_kernel(apply, m, x)))
            error = jnp.max(jnp.abs(tangent_kernel(apply, model, base) - exact)) / jnp.max(jnp.abs(exact))
            scale = (n / BASE) ** 2
            rows.append(
                {
                    "name": f"tangent kernel, {name}, n={n}",
                    "ratio": full * scale / ours,
                    "baseline_seconds": full * scale,
                    "seconds": ours,
                    "error": float(error),
                    "first_call_seconds": compiled,
                    "torch_seconds": None if torch_seconds is None else torch_seconds * scale,
                    "MiB": kernel_costs(apply, model, x)["auto"].bytes / 2**20,
                    "baseline": f"jax.jacrev and contraction, measured at n={BASE}" + (", scaled" if n != BASE else ""),
                }
            )
    return rows
