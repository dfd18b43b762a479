"""Candidates for following gradient flow, by error per second, on P-3L (m = D = 1024, n = 600, t = 50,000).

All in Gram coordinates and float32, compiled beforehand, set-up included. The error is the relative root mean square
difference of test outputs from gradient descent with step 1, at the end and at the worst of nine times (see `_p3l.py`;
Euler's method is not asked about times before its first step).
Implicit Runge-Kutta methods are not among them: their linear systems have m n = 614,400 unknowns.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

from unlazy import Descent, Exponential, RungeKutta, Stabilised
from unlazy.flows import Flow
from unlazy.probes import TestOutputs

sys.path.insert(0, str(Path(__file__).parent))
from _p3l import ACTIVATIONS, REFERENCE_WIDTH, TIMES, errors, problem

GRAM: dict[str, Any] = {"coordinates": "gram"}
CANDIDATES: dict[str, Flow] = {
    "Euler, step 10": Descent(rate=10.0, **GRAM),
    "Euler, step 40": Descent(rate=40.0, **GRAM),
    "Runge-Kutta-Chebyshev, tolerance 1e-3": Stabilised(tolerance=1e-3, **GRAM),
    "exponential, tolerance 1e-3": Exponential(tolerance=1e-3, **GRAM),
    "exponential, tolerance 3e-4": Exponential(tolerance=3e-4, **GRAM),
    "Diffrax Tsit5, rtol 1e-3, at most 1,000 steps": RungeKutta(rtol=1e-3, atol=1e-5, max_steps=1000, **GRAM),
}


def measure() -> list[dict[str, Any]]:
    """Give a row for each candidate and activation."""
    rows = []
    for activation in ACTIVATIONS:
        network, data = problem(activation, REFERENCE_WIDTH, REFERENCE_WIDTH)
        for name, flow in CANDIDATES.items():
            print(f"  {activation}: {name} ...", file=sys.stderr, flush=True)
            times = [t for t in TIMES if not isinstance(flow, Descent) or t >= float(flow.rate)]
            flow(network, data, times[:1], [TestOutputs()], progress=lambda share, t: None)  # compiles
            begun = time.perf_counter()
            run = flow(network, data, times, [TestOutputs()], progress=lambda share, t: None)
            seconds = time.perf_counter() - begun
            seen = run.observed.get("test-outputs", [])
            off = errors(activation, seen) if len(seen) == len(times) else None
            rows.append(
                {
                    "activation": activation,
                    "candidate": name,
                    "seconds": seconds,
                    "steps": run.stats["steps"],
                    "rejected": run.stats["rejected"],
                    "gradients": run.stats["evaluations"],
                    "error": "did not arrive" if off is None else float(off[-1]),
                    "worst error": f"at t < {times[len(seen)]:g}" if off is None else float(off.max()),
                }
            )
    return rows
