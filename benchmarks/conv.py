"""One full-batch step of a two-layer convolutional network on 500 images of CIFAR-10's size, against PyTorch.

The network is that of zhou2023 figure 6 (32 kernels of 3 x 3, tanh, linear read-out, one output) and, in a second row,
the same with kernels of 5 x 5. Both start from the same weights and images in float32 and take the same steps; the
error is the relative difference between the kernels' movements. Real images are used where a data folder is set, else
noise: a step takes the same time on either.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from unlazy import Dataset, Descent
from unlazy._errors import UserError
from unlazy.data import cifar10
from unlazy.networks import ConvNet

sys.path.insert(0, str(Path(__file__).parent))
from _timing import best_of

SAMPLES, CHANNELS, STEPS, RATE, REPEATS = 500, 32, 10, 1e-5, 3


def images() -> Dataset:
    """CIFAR-10 with pixels in [-1, 1] and class numbers, or noise of the same shape."""
    try:
        return cifar10(SAMPLES, 0, flat=False, pixels="signed", targets="number", key=jax.random.key(0)).astype(
            "float32"
        )
    except (UserError, OSError):
        keys = jax.random.split(jax.random.key(0))
        x = jax.random.uniform(keys[0], (SAMPLES, 3, 32, 32), jnp.float32, -1.0, 1.0)
        return Dataset(x, jax.random.randint(keys[1], (SAMPLES,), 0, 10).astype(jnp.float32), name="noise")


def torch_loop(network: ConvNet, data: Dataset) -> np.ndarray:
    """The script that users write today: a convolution of PyTorch, autograd and a Python loop."""
    import torch

    x, y = (torch.tensor(np.asarray(part)) for part in (data.x, data.y))
    readout = np.asarray(network.readout).reshape(-1, CHANNELS).T.ravel()  # channels first, as PyTorch has them
    start = (np.asarray(network.kernels[0]), np.asarray(network.biases[0]), readout)
    w, b, a = (torch.tensor(part.copy(), requires_grad=True) for part in start)
    for _ in range(STEPS):
        f = torch.tanh(torch.nn.functional.conv2d(x, w, b)).flatten(1) @ a
        slopes = torch.autograd.grad(0.5 * torch.mean((f - y) ** 2), (w, b, a))
        with torch.no_grad():
            for leaf, slope in zip((w, b, a), slopes, strict=True):
                leaf.sub_(RATE * slope)
    return w.detach().numpy()


def measure() -> list[dict[str, Any]]:
    """Give two rows for the table of `unlazy bench`."""
    try:
        import torch
    except ImportError:
        raise UserError('This benchmark compares with PyTorch: pip install "unlazy[bench]", or make bench.') from None
    data, rows = images(), []
    for side in (3, 5):
        network = ConvNet((CHANNELS,), side, image=(3, 32, 32), scale=1e-2, key=jax.random.key(1))
        network = jax.tree.map(lambda leaf: leaf.astype(jnp.float32) if eqx.is_array(leaf) else leaf, network)
        baseline, theirs = best_of(REPEATS, lambda network=network: torch_loop(network, data))
        begun, _ = best_of(REPEATS, lambda network=network: Descent(rate=RATE)(network, data, [0.0]))
        ours, run = best_of(REPEATS, lambda network=network: Descent(rate=RATE)(network, data, [STEPS * RATE]))
        first = np.asarray(network.kernels[0])
        moved = np.asarray(run.final.kernels[0]) - first
        rows.append(
            {
                "name": f"conv, one step, {CHANNELS} kernels of {side} x {side}, n={SAMPLES} ({data.name})",
                "ratio": baseline / ours,
                "baseline_seconds": baseline / STEPS,
                "seconds": ours / STEPS,
                "error": float(np.linalg.norm(moved - (theirs - first)) / np.linalg.norm(moved)),
                "preparation_seconds": begun,
                "baseline": f"PyTorch {torch.__version__}, {torch.get_num_threads()} threads",
            }
        )
    return rows
