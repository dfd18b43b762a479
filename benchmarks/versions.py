"""Two versions of unlazy on the same workloads, side by side.

The other version is given by the folder of its source, as in `UNLAZY_BASELINE=/path/to/src unlazy bench versions`. Each
version runs in a process of its own; the two take turns, so that a slow spell of the machine meets both, and every
workload is compiled before it is timed. The workloads are small versions of the benchmarks `flow`, `asymmetric`,
`stack`, `conv` and `million`. A ratio above 1 means that this version is faster. The error is the relative difference
between the final outputs or kernels of the two versions.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

from unlazy._errors import UserError

REPEATS = 12
WORKLOADS = ("flow, gelu", "flow, relu", "asymmetric", "stack", "conv", "million")

WORKER = """
import json, sys, time
import jax, jax.numpy as jnp, numpy as np
from unlazy import (
    Dataset, Descent, GradientFlow, Infinite, MeanFieldStack, RandomLayers, TwoLayer, Zipf, asymmetrical
)
from unlazy.activations import Gelu, Relu
from unlazy.data import orthogonal_clusters, sphere_sine
from unlazy.flows import Adam
from unlazy.losses import Squared
from unlazy.networks import ConvNet
from unlazy.probes import Kernel, TrainLoss

key, quiet = jax.random.key, lambda share, t: None
single = lambda leaf: leaf.astype(jnp.float32) if getattr(leaf, "dtype", None) == jnp.float64 else leaf
low = lambda tree: jax.tree.map(single, tree)


def flow(sigma, width, end):
    data = low(orthogonal_clusters(300, 50, 1, key=key(0)))
    network = low(TwoLayer(width, 50, embedding=RandomLayers((width,)), activation=sigma, key=key(1)))
    return lambda: GradientFlow(tolerance=4e-3)(network, data, [end], [TrainLoss()], progress=quiet).final(data.x)


def asymmetric():
    data = low(sphere_sine(100, 50, noise=0.1, n_test=100, key=key(0)))
    network = low(TwoLayer(1000, 50, scaling=asymmetrical(0.5, Zipf(0.5)), activation=Relu(), key=key(1)))
    loss, probes = Squared(reduction="mean", half=False), [TrainLoss(), Kernel()]
    times = [float(t) for t in np.linspace(0, 1000, 21)]
    return lambda: GradientFlow(loss=loss, tolerance=4e-2)(network, data, times, probes, progress=quiet).final(data.x)


def stack():
    x = jnp.linspace(-1, 1, 2000, dtype=jnp.float32)[:, None]
    data = Dataset(x, jnp.cos(20 * jnp.pi * x[:, 0] ** 2))
    network = MeanFieldStack((512,) * 6, 1, ranks=15, activation=Relu(), parameterisation="standard", key=key(0))
    network, rate = low(network), 1e-3
    flow = Descent(rate=rate, optimiser=Adam(), batch=100)
    return lambda: flow(network, data, [5 * 20 * rate], key=key(1), progress=quiet).final(x)


def conv():
    x = jax.random.uniform(key(0), (250, 3, 32, 32), jnp.float32, -1.0, 1.0)
    data = Dataset(x, jax.random.normal(key(1), (250,), jnp.float32))
    network = low(ConvNet((32,), 3, image=(3, 32, 32), scale=1e-2, key=key(2)))
    return lambda: Descent(rate=1e-5)(network, data, [1e-4], progress=quiet).final.kernels[0]


def million():
    data = low(orthogonal_clusters(100, 50, 1, key=key(0)))
    network = low(TwoLayer(100_000, 50, embedding=Infinite(), activation=Gelu(), key=key(1)))
    return lambda: GradientFlow(tolerance=1e-3)(network, data, [10.0], [TrainLoss()], progress=quiet).final(data.x)


made = {
    "flow, gelu": lambda: flow(Gelu(), 2048, 1000.0),
    "flow, relu": lambda: flow(Relu(), 1024, 30.0),
    "asymmetric": asymmetric, "stack": stack, "conv": conv, "million": million,
}
work = {}
for line in sys.stdin:
    name = line.strip()
    if name not in work:
        work[name] = made[name]()
        result = work[name]()
        print(json.dumps({"result": np.asarray(result, float).ravel()[:1000].tolist()}), flush=True)
        continue
    begun, spent = time.perf_counter(), time.process_time()
    jax.block_until_ready(work[name]())
    print(json.dumps([time.perf_counter() - begun, time.process_time() - spent]), flush=True)
"""


class Version:
    """One version of unlazy in a process of its own, which runs a workload when it is asked to."""

    def __init__(self, source: Path) -> None:
        """Start the process.

        Parameters
        ----------
        source
            The folder that holds the package `unlazy`.
        """
        command = [sys.executable, "-P", "-c", WORKER]
        environment = os.environ | {"PYTHONPATH": str(source)}
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        self.process = subprocess.Popen(command, env=environment, **pipes)

    def __call__(self, workload: str) -> Any:
        """Run a workload; the first time it is compiled and its result returned, later the seconds it took."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(workload + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            raise UserError(f"The workload '{workload}' fails with one of the two versions: see the message above.")
        return json.loads(answer)


def measure() -> list[dict[str, Any]]:
    """Give a row for each workload."""
    if not (Path(os.environ.get("UNLAZY_BASELINE", "")) / "unlazy" / "__init__.py").is_file():
        raise UserError(
            "This benchmark compares two versions: set UNLAZY_BASELINE to the folder `src` of the other, such as that "
            "of a worktree made by `git worktree add ../before COMMIT`."
        )
    other, own = Version(Path(os.environ["UNLAZY_BASELINE"])), Version(Path(__file__).parents[1] / "src")
    rows = []
    for workload in WORKLOADS:
        print(f"  {workload} ...", file=sys.stderr, flush=True)
        before, now = (np.asarray(version(workload)["result"]) for version in (other, own))
        times = np.empty((REPEATS, 2, 2))  # repeat; the other version, this one; seconds by the clock, of the processor
        for repeat in range(REPEATS):
            for which in (0, 1) if repeat % 2 else (1, 0):
                times[repeat, which] = (other, own)[which](workload)
        best, middle = times.min(axis=0), np.median(times, axis=0)
        rows.append(
            {
                "name": workload,
                "ratio": best[0, 0] / best[1, 0],
                "ratio of medians": middle[0, 0] / middle[1, 0],
                "ratio of processor times": best[0, 1] / best[1, 1],
                "baseline_seconds": best[0, 0],
                "seconds": best[1, 0],
                "error": float(np.linalg.norm(now - before) / np.linalg.norm(before)),
                "baseline": "the version in UNLAZY_BASELINE, shortest of its repeats",
            }
        )
    return rows
