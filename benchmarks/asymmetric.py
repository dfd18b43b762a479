"""Figure 1 of caron2023 (m = 2000, n = 100, d = 50), against the script that its authors published, in PyTorch.

Four settings of (γ, α) and five seeds on one data set, to t = 50,000, with the training and test risk, the weights'
movement, the tangent kernel (NTG) and all of its eigenvalues at 51 times. The baseline does what the authors' script
does: layers as modules, 50,000 steps of size 1 of gradient descent by autograd, a kernel from one backward pass a
sample, `numpy.linalg.eigh`. A stretch of its steps and a few of its kernels are timed and extrapolated; both sides
start from the same weights in float32. Errors are the largest relative differences, over times and settings, between
the first seed's curves and those of gradient descent with step 1: of the root of the risk, of the movement, of the
kernel (in norm) and of its smallest eigenvalue.
"""

from __future__ import annotations

import sys
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from unlazy import Dataset, Descent, GradientFlow, TwoLayer, Zipf, asymmetrical, ntk
from unlazy._errors import UserError
from unlazy.activations import Relu
from unlazy.data import sphere_sine
from unlazy.flows import Journey
from unlazy.losses import Squared
from unlazy.networks import Scaling
from unlazy.probes import KernelMatrix, TestLoss, TrainLoss, WeightMovement

WIDTH, INPUTS, SAMPLES, END, SEEDS = 2000, 50, 100, 50_000, 5
LOOKS = np.linspace(0.0, END, 51)
STEPS, KERNELS = 1_000, 3  # timed, of the baseline
TOLERANCE = 1e-2
SETTINGS: dict[str, Scaling] = {
    "γ = 1": ntk,
    "γ = 0.5, α = 0.7": asymmetrical(0.5, Zipf(0.7)),
    "γ = 0.5, α = 0.5": asymmetrical(0.5, Zipf(0.5)),
    "γ = 0, α = 0.4": asymmetrical(0.0, Zipf(0.4)),
}
LOSS = Squared(reduction="mean", half=False)


class Eigenvalues(KernelMatrix):
    """All eigenvalues of the kernel: what the authors' script keeps beside the kernel itself."""

    def __call__(self, *seen: Any) -> jax.Array:
        """Build Θ, as the probe beside this one does (compiled together, it is built once), and decompose it."""
        return jnp.linalg.eigvalsh(super().__call__(*seen))


def say(what: str) -> None:
    """Tell on stderr what is being measured: the whole takes minutes."""
    print(f"  {what} ...", file=sys.stderr, flush=True)


def torch_seconds(network: TwoLayer, data: Dataset) -> tuple[float, float]:
    """Seconds of one step and of one look (kernel, eigenvalues, test risk) of the authors' way."""
    import torch
    from torch import nn

    class Scaled(nn.Module):
        def __init__(self, weights: np.ndarray) -> None:
            super().__init__()
            self.log_weights = nn.Parameter(torch.tensor(np.log(weights)), requires_grad=False)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * (0.5 * self.log_weights).exp()[None]

    first, last = nn.Linear(INPUTS, WIDTH, bias=False), nn.Linear(WIDTH, 1, bias=False)
    first.weight.data = torch.tensor(np.asarray(network.w))
    last.weight.data = torch.tensor(np.asarray(network.a)[None])
    last.weight.requires_grad = False
    per_input = np.full(INPUTS, 1 / INPUTS, np.float32)
    model = nn.Sequential(Scaled(per_input), first, nn.ReLU(), Scaled(np.asarray(network.s) ** 2), last)
    assert data.x_test is not None
    x, x_test = torch.tensor(np.asarray(data.x)), torch.tensor(np.asarray(data.x_test))
    y = torch.tensor(np.asarray(data.y)[:, None])
    risk, optimiser = nn.MSELoss(), torch.optim.SGD(model.parameters(), lr=1.0)

    def steps(count: int) -> None:
        for _ in range(count):
            value = risk(model(x), y)
            optimiser.zero_grad()
            value.backward()
            optimiser.step()

    def look() -> None:
        outputs, gradients = model(x), torch.zeros(SAMPLES, WIDTH * INPUTS)
        with torch.no_grad():
            model(x_test)
        for i in range(SAMPLES):
            optimiser.zero_grad()
            outputs[i].backward(retain_graph=True)
            gradients[i] = first.weight.grad.reshape(-1)
        np.linalg.eigh((gradients @ gradients.T).numpy())

    def timed(work: Any, count: int) -> float:
        begun = time.perf_counter()
        work(count)
        return (time.perf_counter() - begun) / count

    steps(20)
    return timed(steps, STEPS), timed(lambda count: [look() for _ in range(count)], KERNELS)


def ours(networks: dict[str, list[TwoLayer]], data: Dataset) -> tuple[float, dict[str, list[Any]]]:
    """Seconds of all runs, and the runs by setting; seeds of one setting run together, as those of a recipe do."""
    flow, probes = GradientFlow(loss=LOSS, tolerance=TOLERANCE), looked_at()
    begun = time.perf_counter()
    runs = {}
    for label, seeds in networks.items():
        keys = list(jax.random.split(jax.random.key(0), len(seeds)))
        journey = Journey.begin(flow, seeds, [data] * len(seeds), LOOKS, probes, keys)
        runs[label] = journey.go(lambda share, t: None).trajectories()
    return time.perf_counter() - begun, runs


def looked_at() -> list[Any]:
    """Give the probes: what figure 1 shows, and what the authors' script keeps."""
    return [TrainLoss(), TestLoss(), WeightMovement(), KernelMatrix(), Eigenvalues()]


def difference(run: Any, exact: Any) -> dict[str, float]:
    """Largest relative differences of two runs' curves."""

    def apart(a: np.ndarray, b: np.ndarray) -> float:
        axes = tuple(range(1, a.ndim))
        return float(np.max(np.sqrt(np.sum((a - b) ** 2, axis=axes) / np.sum(b**2, axis=axes))))

    def of(seen: Any) -> dict[str, np.ndarray]:
        return {
            "risk": np.sqrt(seen["train-loss"]),
            "test risk": np.sqrt(seen["test-loss"]),
            "movement": seen["weight-movement"]["hidden"][1:],  # none at t = 0
            "kernel": seen["kernel-matrix"],
            "smallest eigenvalue": seen["eigenvalues"][:, 0],
        }

    here, there = of(run.seen), of(exact.seen)
    return {name: apart(here[name], there[name]) for name in here}


def measure() -> list[dict[str, Any]]:
    """Give the rows of `unlazy bench asymmetric`."""
    try:
        import torch
    except ImportError:
        raise UserError('This benchmark compares with PyTorch: pip install "unlazy[bench]", or make bench.') from None
    with jax.enable_x64(False):
        data = sphere_sine(SAMPLES, INPUTS, noise=0.1, n_test=SAMPLES, key=jax.random.key(0))
        networks = {
            label: [
                TwoLayer(WIDTH, INPUTS, scaling=scaling, activation=Relu(), key=jax.random.key(seed))
                for seed in range(1, SEEDS + 1)
            ]
            for label, scaling in SETTINGS.items()
        }
        say("steps and kernels of PyTorch")
        step, look = torch_seconds(networks["γ = 1"][0], data)
        say("gradient flow, four settings and five seeds, twice")
        first, _ = ours(networks, data)
        second, runs = ours(networks, data)
        baseline = len(SETTINGS) * SEEDS * (END * step + len(LOOKS) * look)
        rows = []
        for label, (network, *_) in networks.items():
            say(f"gradient descent with step 1, {label}")
            descent = Descent(rate=1.0, loss=LOSS)
            exact = descent(network, data, LOOKS, looked_at(), progress=lambda share, t: None)
            stats = runs[label][0].stats
            found = difference(runs[label][0], exact)
            rows.append({"name": label, "gradients": stats["evaluations"], "method": stats["method"], **found})
        return [
            {
                "name": f"caron2023 figure 1, {len(SETTINGS) * SEEDS} runs to t = {END:,}",
                "ratio": baseline / second,
                "ratio, compilation included": baseline / first,
                "baseline_seconds": baseline,
                "seconds": second,
                "first_seconds": first,
                "baseline": f"PyTorch {torch.__version__}, {torch.get_num_threads()} threads, extrapolated",
                "error": max(value for row in rows for value in row.values() if isinstance(value, float)),
            },
            *rows,
        ]
