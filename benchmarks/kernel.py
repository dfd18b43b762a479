"""The empirical tangent kernel of networks that are given as functions, against three ways to write it by hand.

The networks are 784-512-512-k with tanh, and a small convolutional network with ten outputs; all entries (n, k, n, k)
are computed, in float32. The baselines are

(a) the generic kernel of the first versions of this library, which computes the Jacobian of every pair of samples anew;
(b) Jacobians by `jax.jacrev`, sample by sample under `vmap`, contracted leaf by leaf;
(c) the same with `torch.func`, where PyTorch is installed.

(b) and (c) hold the Jacobian of all samples if it has at most `HELD` bytes, and otherwise use blocks of samples with
Jacobians of half that size. (a) is measured on `BASE` samples, and (b) and (c) wherever the contraction takes at most
`FEASIBLE` operations; for more samples their times are multiplied by the square of the number of samples, and the row
says so. Memory is the largest resident size of the process during the call beyond that before it, the result included,
on the samples that were measured. The error is the largest difference from (b) on `BASE` samples, relative to the
largest entry.
"""

from __future__ import annotations

import contextlib
import ctypes
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import psutil

from unlazy.kernels import tangent_kernel

sys.path.insert(0, str(Path(__file__).parent))
from _timing import best_of

BASE, REPEATS = 32, 3
HELD, FEASIBLE = 2.0**31, 1.5e13
SIZES = (32, 256, 1000)
_OLD_BLOCK = 2.0**28  # bytes of Jacobians in a block of (a)
_COMPILED_AGAIN = 20.0  # seconds beside which compilation does not count


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
def pair_by_pair(model: eqx.Module, x: jax.Array) -> jax.Array:
    """(a): Jacobian rows of all columns are made again for each block of rows."""
    trained, rest = eqx.partition(model, eqx.is_inexact_array)
    leaves = jax.tree.leaves(trained)
    k = eqx.filter_eval_shape(apply, model, x).shape[1]
    block = max(1, int(_OLD_BLOCK / (2 * k * sum(leaf.nbytes for leaf in leaves))))

    def rows(sample: jax.Array) -> jax.Array:
        jacobian = jax.jacrev(lambda some: apply(eqx.combine(some, rest), sample[None]).reshape(-1))(trained)
        return jnp.concatenate([leaf.reshape(k, -1) for leaf in jax.tree.leaves(jacobian)], axis=1)

    def against_all(sample: jax.Array) -> jax.Array:
        here = rows(sample)
        return jax.lax.map(lambda other: here @ rows(other).T, x, batch_size=min(block, len(x)))

    return jnp.transpose(jax.lax.map(against_all, x, batch_size=min(block, len(x))), (0, 2, 1, 3))


@eqx.filter_jit
def jacobians(model: eqx.Module, x: jax.Array) -> list[jax.Array]:
    trained, rest = eqx.partition(model, eqx.is_inexact_array)
    found = jax.vmap(lambda one: jax.jacrev(lambda some: eqx.combine(some, rest)(one))(trained))(x)
    return [leaf.reshape(*leaf.shape[:2], -1) for leaf in jax.tree.leaves(found)]


@jax.jit
def contracted(some: list[jax.Array], others: list[jax.Array]) -> jax.Array:
    return sum(jnp.einsum("iks,jls->ikjl", one, other) for one, other in zip(some, others, strict=True))


def in_blocks(
    rows: Callable[[Any], Any], contract: Callable[[Any, Any], Any], x: Any, sample_bytes: float
) -> np.ndarray:
    """Contract blocks of Jacobians, of which two are held at a time, or one if it has all samples."""
    size = len(x) if len(x) * sample_bytes <= HELD else max(1, int(HELD / 2 / sample_bytes))
    blocks = [x[at : at + size] for at in range(0, len(x), size)]
    lines = []
    for block in blocks:
        here = rows(block)
        columns = (here if other is block else rows(other) for other in blocks)
        lines.append(np.concatenate([np.asarray(contract(here, there)) for there in columns], axis=2))
    return np.concatenate(lines)


def jacobian_size(model: eqx.Module, x: jax.Array) -> int:
    """Number of entries of the Jacobian of one sample."""
    k = eqx.filter_eval_shape(apply, model, x).shape[1]
    return k * sum(leaf.size for leaf in jax.tree.leaves(eqx.filter(model, eqx.is_inexact_array)))


def with_jax(model: eqx.Module, size: int) -> Callable[[Any], np.ndarray]:
    """(b)."""
    return lambda x: in_blocks(lambda some: jacobians(model, some), contracted, x, 4.0 * size)


def with_torch(model: Any, size: int) -> Callable[[Any], np.ndarray] | None:
    """(c); None where PyTorch is not installed."""
    try:
        import torch
    except ImportError:
        return None
    params = [tuple(torch.tensor(np.asarray(a)) for a in (one.weight, one.bias)) for one in model.layers]

    def dense(params: Any, sample: Any) -> Any:
        for weight, bias in params[:-1]:
            sample = torch.tanh(weight @ sample + bias)
        return params[-1][0] @ sample + params[-1][1]

    def convolutional(params: Any, sample: Any) -> Any:
        image = sample.reshape(1, 1, 28, 28)
        for weight, bias in params[:-1]:
            image = torch.tanh(torch.nn.functional.conv2d(image, weight, bias.reshape(-1), stride=2))
        return params[-1][0] @ image.flatten() + params[-1][1]

    one = dense if isinstance(model, eqx.nn.MLP) else convolutional

    def rows(x: Any) -> list[Any]:
        found = torch.func.vmap(torch.func.jacrev(one), (None, 0))(params, x)
        return [leaf.flatten(2) for pair in found for leaf in pair]

    def contract(some: list[Any], others: list[Any]) -> Any:
        return sum(torch.einsum("iks,jls->ikjl", one, other) for one, other in zip(some, others, strict=True))

    return lambda x: in_blocks(rows, contract, torch.tensor(np.asarray(x)), 4.0 * size)


def peak_of(work: Callable[[], Any]) -> float:
    """MiB by which the resident size of this process grows while ``work`` is done."""
    with contextlib.suppress(OSError, AttributeError):  # give back what earlier work has freed, on Linux
        ctypes.CDLL("libc.so.6").malloc_trim(0)
    process, done, before = psutil.Process(), threading.Event(), psutil.Process().memory_info().rss
    found = [before]

    def watch() -> None:
        while not done.wait(0.002):
            found.append(process.memory_info().rss)

    watcher = threading.Thread(target=watch)
    watcher.start()
    work()
    done.set()
    watcher.join()
    return (max(found) - before) / 2**20


def baseline(work: Callable[[Any], Any] | None, x: jax.Array) -> tuple[float, float] | None:
    """Seconds and MiB; None where there is nothing to measure."""
    if work is None:
        return None
    seconds = 0.0

    def timed() -> None:
        nonlocal seconds
        begun = time.perf_counter()
        np.asarray(work(x))
        seconds = time.perf_counter() - begun

    peak = peak_of(timed)
    if seconds < _COMPILED_AGAIN:  # compilation counts at first: measure again without
        peak = peak_of(timed)
    return seconds, peak


def measure() -> list[dict[str, Any]]:
    """Give a row for each network and number of samples."""
    rows = []
    models: dict[str, Any] = {
        f"784-512-512-{k}": eqx.nn.MLP(784, k, 512, 2, activation=jnp.tanh, key=jax.random.key(0)) for k in (1, 10)
    }
    for name, model in {**models, "small CNN, k=10": Convolutional(key=jax.random.key(1))}.items():
        points = jax.random.normal(jax.random.key(2), (max(SIZES), 784))
        size = jacobian_size(model, points)
        by_jax, by_torch = with_jax(model, size), with_torch(model, size)
        exact = by_jax(points[:BASE])
        error = np.max(np.abs(tangent_kernel(apply, model, points[:BASE]) - exact)) / np.max(np.abs(exact))
        k = exact.shape[1]
        generic = pair_by_pair.lower(model, points[:BASE]).compile()
        slow = baseline(lambda x, model=model, generic=generic: generic(model, x), points[:BASE])
        fine = [n for n in SIZES if 2.0 * n**2 * k * size <= FEASIBLE]
        measured = {n: [baseline(one, points[:n]) for one in (by_jax, by_torch)] for n in fine}
        for n in SIZES:
            x, at = points[:n], max(one for one in fine if one <= n)
            work = lambda x=x, model=model: jax.block_until_ready(tangent_kernel(apply, model, x))  # noqa: E731
            seconds, _ = best_of(REPEATS, work)
            theirs = {"jacrev": (at, measured[at][0]), "torch": (at, measured[at][1]), "generic": (BASE, slow)}
            times = {f"{who}_seconds": one and one[0] * (n / base) ** 2 for who, (base, one) in theirs.items()}
            best = min(times[f"{who}_seconds"] for who in ("jacrev", "torch") if theirs[who][1])
            note = "" if at == n else f" (too slow here: extrapolated from n={at})"
            also = "" if n == BASE else f", extrapolated from n={BASE}"
            rows.append(
                {"name": f"tangent kernel, {name}, n={n}", "ratio": best / seconds}
                | {"ratio_to_generic": times["generic_seconds"] / seconds, "seconds": seconds}
                | times
                | {"MiB": peak_of(work)}
                | {f"{who}_MiB": one and one[1] for who, (_, one) in theirs.items()}
                | {"error": float(error), "baseline": f"best of jacrev and torch.func{note}; generic{also}"}
            )
    return rows
