"""Epochs of aiad2026's 8-layer network (n = 1024, r = 15, batch 100, 4,000 samples, Adam), against PyTorch.

It is the network of the symmetry runs: frozen random features, trained (A, c). Both start from the same weights, see
the same batches in the same order in float32 and take the same steps. Twenty epochs are timed, of the thousands that
these runs take. The error is the root mean square of the difference between the outputs of the two after one epoch,
relative to that of the targets: all of it is rounding, which steps of Adam enlarge (in float64 it is below 1e-14). The
baseline picks batches by index from tensors in memory, without a loader's overhead.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from unlazy import Dataset, Descent, MeanFieldStack
from unlazy._errors import UserError
from unlazy.activations import Relu
from unlazy.flows import Adam

sys.path.insert(0, str(Path(__file__).parent))
from _timing import best_of

LAYERS, WIDTH, RANK, SAMPLES, BATCH, EPOCHS, RATE, REPEATS = 8, 1024, 15, 4000, 100, 20, 1e-3, 3
KEY = jax.random.key(1)


def torch_network(network: MeanFieldStack) -> Any:
    """The same network as users write it today."""
    import torch

    layers: list[Any] = []
    blocks: Any = network.blocks
    for block in blocks:
        hidden, mix = torch.nn.Linear(block.w.shape[1], WIDTH), torch.nn.Linear(WIDTH, block.a.shape[1])
        with torch.no_grad():
            for parameter, value in (
                (hidden.weight, block.w),
                (hidden.bias, block.b),
                (mix.weight, block.a.T),
                (mix.bias, block.c),
            ):
                parameter.copy_(torch.tensor(np.array(value)))
        hidden.requires_grad_(False)
        layers += [hidden, torch.nn.ReLU(), mix]
    return torch.nn.Sequential(*layers)


def torch_loop(network: MeanFieldStack, data: Dataset, orders: list[np.ndarray]) -> np.ndarray:
    """Train as users do today: autograd and a Python loop over batches."""
    import torch

    x, y = (torch.tensor(np.array(part)) for part in (data.x, data.y))
    model = torch_network(network)
    optimiser = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=RATE)
    for order in orders:
        shuffled = torch.tensor(order)
        for start in range(0, SAMPLES, BATCH):
            chosen = shuffled[start : start + BATCH]
            optimiser.zero_grad()
            loss = 0.5 * torch.mean((model(x[chosen])[:, 0] - y[chosen]) ** 2)
            loss.backward()
            optimiser.step()
    with torch.no_grad():
        return model(x)[:, 0].numpy()


def measure() -> list[dict[str, Any]]:
    """Give one row for the table of `unlazy bench`."""
    try:
        import torch
    except ImportError:
        raise UserError('This benchmark compares with PyTorch: pip install "unlazy[bench]", or make bench.') from None
    x = jnp.linspace(-1, 1, SAMPLES, dtype=jnp.float32)[:, None]
    square = jnp.pi * x[:, 0] ** 2
    data = Dataset(x, jnp.cos(144 * square) - 0.8 * jnp.cos(48 * square))
    network = MeanFieldStack(
        (WIDTH,) * LAYERS, 1, ranks=RANK, activation=Relu(), parameterisation="standard", key=jax.random.key(0)
    )
    network = jax.tree.map(lambda leaf: leaf.astype(jnp.float32) if eqx.is_array(leaf) else leaf, network)
    flow = Descent(rate=RATE, optimiser=Adam(), batch=BATCH)
    epoch = (SAMPLES // BATCH) * RATE
    orders = [np.array(jax.random.permutation(jax.random.fold_in(KEY, count), SAMPLES)) for count in range(EPOCHS)]
    baseline, _ = best_of(REPEATS, lambda: torch_loop(network, data, orders))
    ours, _ = best_of(REPEATS, lambda: flow(network, data, [EPOCHS * epoch], key=KEY))
    theirs, outputs = torch_loop(network, data, orders[:1]), flow(network, data, [epoch], key=KEY).final(x)
    difference = np.sqrt(np.mean((np.asarray(outputs) - theirs) ** 2) / np.mean(np.asarray(data.y) ** 2))
    return [
        {
            "name": f"stack, an epoch of {LAYERS} layers, n={WIDTH}, r={RANK}, batch {BATCH}",
            "ratio": baseline / ours,
            "baseline_seconds": baseline / EPOCHS,
            "seconds": ours / EPOCHS,
            "error": float(difference),
            "baseline": f"PyTorch {torch.__version__}, {torch.get_num_threads()} threads",
        }
    ]
