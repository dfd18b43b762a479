"""The partially trained three-layer network (P-3L) of chen2022, experiment 3, and its trusted reference.

Inputs have d = 50, the frozen layer D and the trained one m neurons; the loss is the mean, t goes to 50,000. The
reference is plain gradient descent with step 1 (50,000 steps, Gram coordinates, float64) for m = D = 1024, n = 600:

    python benchmarks/_p3l.py

writes `flow_reference.npz` anew (outputs on 500 test inputs and training loss at nine times) in about half an hour.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from unlazy import Dataset, Descent, RandomLayers, TrainLoss, TwoLayer
from unlazy.activations import Gelu, Relu
from unlazy.data import orthogonal_clusters
from unlazy.probes import TestOutputs

ACTIVATIONS = {"relu": Relu(), "gelu": Gelu()}
TIMES = (10.0, 30.0, 100.0, 300.0, 1000.0, 3000.0, 10_000.0, 30_000.0, 50_000.0)
REFERENCE = Path(__file__).parent / "flow_reference.npz"
REFERENCE_WIDTH = 1024


def problem(
    activation: str, width: int, features: int, n: int = 600, dtype: Any = jnp.float32
) -> tuple[TwoLayer, Dataset]:
    """Draw data (seed 0) and network (seed 1) in float64 and round them, so that every precision starts alike."""
    jax.config.update("jax_enable_x64", True)
    data = orthogonal_clusters(n, 50, 500, key=jax.random.key(0))
    sigma = ACTIVATIONS[activation]
    network = TwoLayer(width, 50, embedding=RandomLayers((features,)), activation=sigma, key=jax.random.key(1))
    cast = lambda leaf: leaf.astype(dtype) if leaf.dtype == jnp.float64 else leaf  # noqa: E731
    return jax.block_until_ready((jax.tree.map(cast, network), data.astype(dtype)))


def errors(activation: str, outputs: np.ndarray) -> np.ndarray:
    """Root mean square difference from the reference's test outputs, relative to them, at each of its last times."""
    with np.load(REFERENCE) as kept:
        wanted = kept[f"{activation}_test_outputs"][-len(outputs) :]
    return np.linalg.norm(outputs - wanted, axis=1) / np.linalg.norm(wanted, axis=1)


def make_reference() -> None:
    """Compute the reference and keep it."""
    kept: dict[str, np.ndarray] = {"times": np.asarray(TIMES)}
    for activation in ACTIVATIONS:
        network, data = problem(activation, REFERENCE_WIDTH, REFERENCE_WIDTH, dtype=jnp.float64)
        run = Descent(rate=1.0, coordinates="gram")(network, data, TIMES, [TrainLoss(), TestOutputs()])
        kept[f"{activation}_test_outputs"] = run.observed["test-outputs"].astype(np.float32)
        kept[f"{activation}_train_loss"] = run.observed["train-loss"]
    np.savez_compressed(REFERENCE, **kept)


if __name__ == "__main__":
    make_reference()
