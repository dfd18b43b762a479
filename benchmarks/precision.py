"""What mixed precision costs and saves: P-3L with GELU, m = D = 4096, n = 600, t = 50,000, against all-float64.

The error is the relative root mean square difference of test outputs from the float64 run, at the same tolerance.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from unlazy import Exponential, TrainLoss
from unlazy.probes import TestOutputs

sys.path.insert(0, str(Path(__file__).parent))
from _p3l import problem

WIDTH, END = 4096, 50_000.0


def measure() -> list[dict[str, Any]]:
    """Give a row for each precision."""
    rows: list[dict[str, Any]] = []
    exact: Any = None
    for name, dtype, precision in (
        ("float64", jnp.float64, "full"),
        ("mixed: float32 products, float64 sums", jnp.float64, "mixed"),
        ("float32", jnp.float32, "full"),
    ):
        network, data = problem("gelu", WIDTH, WIDTH, dtype=dtype)
        flow = Exponential(tolerance=1e-3, precision=precision)
        flow(network, data, [1.0], [TestOutputs(), TrainLoss()], progress=lambda share, t: None)  # compiles
        begun = time.perf_counter()
        run = flow(network, data, [END], [TestOutputs(), TrainLoss()], progress=lambda share, t: None)
        seconds = time.perf_counter() - begun
        outputs, loss = run.observed["test-outputs"][-1], float(run.observed["train-loss"][-1])
        exact = (seconds, outputs, loss) if exact is None else exact
        rows.append(
            {
                "precision": name,
                "ratio": exact[0] / seconds,
                "seconds": seconds,
                "steps": run.stats["steps"],
                "error": float(np.linalg.norm(outputs - exact[1]) / np.linalg.norm(exact[1])),
                "relative error of the loss": abs(loss - exact[2]) / exact[2],
            }
        )
    return rows
