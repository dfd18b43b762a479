"""ren2023's learner at infinite width (d = 100, one second-layer neuron) to loss 1e-12, against SciPy.

The baseline is what one writes first: the three equations of section 3 in NumPy, integrated by `solve_ivp` to the same
tolerance. The error is the difference of w_2 α at the end.
"""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np
from scipy.integrate import solve_ivp

from unlazy import MeanFieldStack, RungeKutta, TrainLoss
from unlazy.networks import Constant, Sphere, Tied
from unlazy.networks.limits import sphere_mean
from unlazy.papers.ren2023.data import spherical_quadrature
from unlazy.papers.ren2023.probes import FirstLayer, SecondLayer

sys.path.insert(0, str(Path(__file__).parent))
from _timing import best_of

D, WEIGHT, BIAS, END, TOLERANCE, REPEATS = 100, -1e-3, 0.1, 2000.0, 1e-9, 3


def section_3(r: np.ndarray, y: np.ndarray, share: np.ndarray, d: int) -> Any:
    """(ρ, w, b)' from E[S |x|] and so on."""
    gain = sphere_mean(d)

    def speed(_: float, state: np.ndarray) -> np.ndarray:
        rho, w, b = state
        value = gain * rho**2 * r
        h = w * value + b
        residual = share * (y - np.maximum(h, 0)) * (h > 0)
        return np.array([2 * gain * rho * w * (residual @ r), residual @ value, residual.sum()])

    return speed


def measure() -> list[dict[str, Any]]:
    """Give one row for the table of `unlazy bench`."""
    jax.config.update("jax_enable_x64", True)
    data = spherical_quadrature(D)
    network = MeanFieldStack(
        (math.inf, 1),
        D,
        ranks=1,
        train=("w", "wb"),
        features=(Sphere(D**-0.5), Constant(WEIGHT)),
        bias=(False, Constant(BIAS)),
        amplitude=(Tied(), Constant(1.0)),
        key=jax.random.key(0),
    )
    flow = RungeKutta(rtol=TOLERANCE, atol=TOLERANCE)
    probes = [TrainLoss(), FirstLayer(), SecondLayer()]
    ours, run = best_of(REPEATS, lambda: flow(network, data, [END], probes))
    r, y, share = (np.asarray(part, float) for part in (np.linalg.norm(data.x, axis=1), data.y, data.weight))
    speed, start = section_3(r, y, share, D), [D**-0.5, WEIGHT, BIAS]
    baseline, theirs = best_of(
        REPEATS, lambda: solve_ivp(speed, (0, END), start, rtol=TOLERANCE, atol=TOLERANCE).y[:, -1]
    )
    product = float(run.observed["first-layer"]["alpha"][-1] * run.observed["second-layer"]["weight"][-1])
    return [
        {
            "name": f"limit of infinite width, d={D}, loss {float(run.observed['train-loss'][-1]):.1g}",
            "ratio": baseline / ours,
            "baseline_seconds": baseline,
            "seconds": ours,
            "error": abs(product - sphere_mean(D) * theirs[0] ** 2 * theirs[1]),
            "baseline": "SciPy solve_ivp, NumPy right-hand side",
        }
    ]
