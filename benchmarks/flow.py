"""Gradient flow of P-3L (chen2022, experiment 3) to t = 50,000, against what users run today.

Baselines, all in weights with the frozen features made beforehand: (a) PyTorch, full-batch gradient descent with step
1, timed over a few steps and extrapolated to 50,000; (b) the same in JAX; (c) Diffrax's Tsit5 at rtol 1e-3, whose
gradient evaluations are counted at m = D = 1024 and multiplied by the time of one gradient at full size. Ours is timed
whole, embedding, Gram matrix and pre-activations at t = 0 included, first with compilation and then without.

Accuracy is that of the same flow and tolerance at m = D = 1024, against gradient descent with step 1 (see `_p3l.py`):
the root mean square difference of the outputs on 500 test inputs, relative, at the end and at the worst of nine times.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from unlazy import Dataset, GradientFlow, RungeKutta, TwoLayer
from unlazy._errors import UserError
from unlazy.flows import velocity
from unlazy.networks import Samples, split_trained
from unlazy.probes import TestOutputs

sys.path.insert(0, str(Path(__file__).parent))
from _p3l import REFERENCE_WIDTH, TIMES, errors, problem

WIDTH, END, STEPS = 8192, 50_000.0, 5
TOLERANCE = 4e-3
CHATTER = 1_500  # steps after which Tsit5 on ReLU is given up


def say(what: str) -> None:
    """Tell on stderr what is being measured: the whole takes minutes."""
    print(f"  {what} ...", file=sys.stderr, flush=True)


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    """Seconds that some work took, and its result."""
    begun = time.perf_counter()
    result = work()
    return time.perf_counter() - begun, result


def torch_step(network: TwoLayer, data: Dataset) -> float:
    """Seconds of one step of the script that users write today: autograd and a Python loop."""
    import torch

    sigma = {"Relu": torch.relu, "Gelu": torch.nn.functional.gelu}[type(network.activation).__name__]
    phi, y = (torch.tensor(np.asarray(part)) for part in (network.embedding(data.x), data.y))
    readout = torch.tensor(np.asarray(network.s * network.a))
    w = torch.tensor(np.asarray(network.w), requires_grad=True)
    factor, rate = w.shape[1] ** -0.5, float(network.width)

    def step() -> None:
        loss = 0.5 * torch.mean((sigma(factor * (phi @ w.T)) @ readout - y) ** 2)
        (slope,) = torch.autograd.grad(loss, w)
        with torch.no_grad():
            w.sub_(rate * slope)

    step()
    return min(timed(step)[0] for _ in range(STEPS))


def jax_step(network: TwoLayer, data: Dataset) -> float:
    """Seconds of one step of the same in JAX, compiled."""
    prepared, x, _ = network.prepare(data)
    trained, frozen = split_trained(prepared)
    flow, samples = GradientFlow(), Samples(x, data.y)

    @jax.jit
    def step(trained: Any, samples: Samples) -> Any:
        return jax.tree.map(jnp.add, trained, velocity(trained, frozen, samples, flow.loss))

    jax.block_until_ready(step(trained, samples))
    return min(timed(lambda: jax.block_until_ready(step(trained, samples)))[0] for _ in range(STEPS))


def ours(activation: str, width: int, features: int, n: int = 600, end: float = END) -> tuple[float, float, Any]:
    """Seconds of a first and of a second run, and the second."""
    say(f"{activation}: gradient flow, m = {width}, D = {features}, n = {n}, t = {end:,.0f}")
    network, data = problem(activation, width, features, n)
    flow = GradientFlow(tolerance=TOLERANCE)

    def run() -> Any:
        return flow(network, data, [end], [TestOutputs()], progress=lambda share, t: None)

    first, _ = timed(run)
    second, done = timed(run)
    if not done.status.ok:
        raise UserError(f"The run with {activation}, m = {width}, n = {n} failed: {done.status.value}")
    return first, second, done


def exponent(sizes: list[float], seconds: list[float]) -> float:
    """Slope of log seconds over log size."""
    return float(np.polyfit(np.log(sizes), np.log(seconds), 1)[0])


def comparison(activation: str) -> list[dict[str, Any]]:
    """Give the rows of one activation at full size."""
    import torch

    say(f"{activation}: steps of PyTorch and JAX at m = D = {WIDTH}")
    network, data = problem(activation, WIDTH, WIDTH)
    in_torch, in_jax = torch_step(network, data), jax_step(network, data)
    del network
    first, second, run = ours(activation, WIDTH, WIDTH)
    say(f"{activation}: accuracy at m = D = {REFERENCE_WIDTH}")
    small, points = problem(activation, REFERENCE_WIDTH, REFERENCE_WIDTH)
    flow = GradientFlow(tolerance=TOLERANCE)
    seen = flow(small, points, TIMES, [TestOutputs()], progress=lambda share, t: None).observed["test-outputs"]
    off = errors(activation, seen)
    say(f"{activation}: Tsit5")
    tsit5 = RungeKutta(rtol=1e-3, atol=1e-5, coordinates="gram", max_steps=CHATTER)
    given = tsit5(small, points, [END], progress=lambda share, t: None)
    reached = given.status.ok
    baselines = [
        (f"(a) PyTorch {torch.__version__}, {torch.get_num_threads()} threads, extrapolated", END * in_torch, END),
        ("(b) JAX, extrapolated", END * in_jax, END),
        (
            f"(c) Diffrax Tsit5, {'counted' if reached else 'given up before t = 50,000: at least this'}",
            given.stats["evaluations"] * in_jax,
            given.stats["evaluations"],
        ),
    ]
    return [
        {
            "name": f"{activation} in both layers, m = D = {WIDTH}, n = 600, t = {END:,.0f}",
            "baseline": label,
            "ratio": seconds / second,
            "ratio, compilation included": seconds / first,
            "baseline_seconds": seconds,
            "seconds": second,
            "first_seconds": first,
            "baseline_gradients": int(gradients),
            "gradients": run.stats["evaluations"],
            "method": run.stats["method"],
            "error": float(off[-1]),
            "worst error": float(off.max()),
        }
        for label, seconds, gradients in baselines
    ]


def growth() -> list[dict[str, Any]]:
    """Give how time grows with m (at D = 8192), with n, and with t, for GELU."""
    widths, sizes = [2048, 4096, WIDTH], [150, 300, 600]
    by_width = [ours("gelu", width, WIDTH)[1] for width in widths]
    by_n = [ours("gelu", WIDTH, WIDTH, n)[1] for n in sizes[:-1]] + by_width[-1:]
    later = ours("gelu", WIDTH, WIDTH, end=10 * END)[1]
    return [
        {"name": f"exponent of time in m, {widths}", "value": exponent(list(map(float, widths)), by_width)},
        {"name": f"exponent of time in n, {sizes}", "value": exponent(list(map(float, sizes)), by_n)},
        {"name": "time to t = 500,000 over time to t = 50,000", "value": later / by_width[-1]},
    ]


def measure() -> list[dict[str, Any]]:
    """Give the rows of `unlazy bench flow`."""
    try:
        import torch  # noqa: F401
    except ImportError:
        raise UserError('This benchmark compares with PyTorch: pip install "unlazy[bench]", or make bench.') from None
    return [*comparison("relu"), *comparison("gelu"), *growth()]
