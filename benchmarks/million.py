"""A million neurons on an infinite embedding: GELU, n = 200, t = 50,000, its time, peak memory and loss curve.

The curve is laid beside those of m = 8192 with five seeds (the same data, other neurons): it should lie within their
spread, as every width follows the same mean-field limit. Each run is a process of its own, so that peak memory is its
own; the limit of 5 GiB given to the flow makes it go through the neurons in slabs.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import numpy as np

WIDTH, SMALL, SEEDS = 1_000_000, 8192, 5

SCRIPT = """
import json, resource, sys, time
import jax, jax.numpy as jnp
from unlazy import GradientFlow, Infinite, TrainLoss, TwoLayer
from unlazy.activations import Gelu
from unlazy.data import Dataset, orthogonal_clusters

width, seeds = int(sys.argv[1]), int(sys.argv[2])
data = orthogonal_clusters(200, 50, 1, key=jax.random.key(0))
data = Dataset(data.x, data.y)
times = [float(t) for t in jnp.logspace(1, jnp.log10(50_000.0), 25)]
begun, losses = time.perf_counter(), []
for seed in range(seeds):
    network = TwoLayer(width, 50, embedding=Infinite(), activation=Gelu(), key=jax.random.key(1 + seed))
    run = GradientFlow(tolerance=1e-3, memory=5.0)(network, data, times, [TrainLoss()], progress=lambda s, t: None)
    losses.append([float(value) for value in run.observed["train-loss"]])
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
print(json.dumps({"seconds": time.perf_counter() - begun, "peak": peak, "losses": losses, "stats": run.stats}))
"""


def process(width: int, seeds: int) -> dict[str, Any]:
    """Run in a process of its own, in float32."""
    print(f"  m = {width:,}, {seeds} seeds ...", file=sys.stderr, flush=True)
    done = subprocess.run([sys.executable, "-c", SCRIPT, str(width), str(seeds)], capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])
    return json.loads(done.stdout)


def measure() -> list[dict[str, Any]]:
    """Give one row."""
    small, large = process(SMALL, SEEDS), process(WIDTH, 1)
    curves, curve = np.log(small["losses"]), np.log(large["losses"][0])
    spread = curves.std(axis=0, ddof=1)
    away = np.abs(curve - curves.mean(axis=0)) / spread
    return [
        {
            "name": f"m = {WIDTH:,}, D = inf, n = 200, gelu, t = 50,000",
            "seconds": large["seconds"],
            "peak, GiB": large["peak"],
            "steps": large["stats"]["steps"],
            "largest distance from the mean of five seeds of m = 8192, in standard deviations of log loss": float(
                away.max()
            ),
            "inside the five seeds' range, share of times": float(
                np.mean((curve >= curves.min(axis=0)) & (curve <= curves.max(axis=0)))
            ),
            "largest relative difference from their mean": float(np.abs(np.expm1(curve - curves.mean(axis=0))).max()),
            "seed spread there": float(spread[np.argmax(np.abs(curve - curves.mean(axis=0)))]),
        }
    ]
