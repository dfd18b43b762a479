"""1,000 full-batch steps of a two-layer network (m = 2000, d = 50, n = 100), against the same loop in PyTorch.

The sizes are those of caron2023's simulation. Both start from the same weights and data in float32 and take the same
steps; the error is the largest relative difference between their final weights.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from unlazy import Dataset, Descent, TwoLayer, Zipf, asymmetrical
from unlazy._errors import UserError
from unlazy.activations import Relu

sys.path.insert(0, str(Path(__file__).parent))
from _timing import best_of

WIDTH, INPUTS, SAMPLES, STEPS, RATE, REPEATS = 2000, 50, 100, 1000, 0.1, 5


def torch_loop(network: TwoLayer, data: Dataset) -> np.ndarray:
    """The script that users write today: autograd and a Python loop."""
    import torch

    x, y = (torch.tensor(np.asarray(part)) for part in (data.x, data.y))
    readout = torch.tensor(np.asarray(network.s * network.a))
    w = torch.tensor(np.asarray(network.w), requires_grad=True)
    for _ in range(STEPS):
        f = torch.relu(x @ w.T / INPUTS**0.5) @ readout
        loss = 0.5 * torch.mean((f - y) ** 2)
        (slope,) = torch.autograd.grad(loss, w)
        with torch.no_grad():
            w.sub_(RATE * slope)
    return w.detach().numpy()


def measure() -> list[dict[str, Any]]:
    """Give one row for the table of `unlazy bench`."""
    try:
        import torch
    except ImportError:
        raise UserError('This benchmark compares with PyTorch: pip install "unlazy[bench]", or make bench.') from None
    keys = jax.random.split(jax.random.key(0), 3)
    x = jax.random.normal(keys[0], (SAMPLES, INPUTS), jnp.float32)
    data = Dataset(x / jnp.linalg.norm(x, axis=1, keepdims=True), jax.random.normal(keys[1], (SAMPLES,), jnp.float32))
    network = TwoLayer(WIDTH, INPUTS, scaling=asymmetrical(0.5, Zipf(0.5)), activation=Relu(), key=keys[2])
    flow = Descent(rate=RATE)
    baseline, theirs = best_of(REPEATS, lambda: torch_loop(network, data))
    ours, run = best_of(REPEATS, lambda: flow(network, data, [STEPS * RATE]))
    moved = np.asarray(run.final.w) - np.asarray(network.w)
    difference = np.linalg.norm(np.asarray(run.final.w) - theirs) / np.linalg.norm(moved)
    return [
        {
            "name": f"descent, {STEPS} steps, m={WIDTH}, d={INPUTS}, n={SAMPLES}",
            "ratio": baseline / ours,
            "baseline_seconds": baseline,
            "seconds": ours,
            "error": float(difference),
            "baseline": f"PyTorch {torch.__version__}, {torch.get_num_threads()} threads",
        }
    ]
