"""Which runs zhou2023 speaks about: its network, its Assumptions 1-4 on the data at hand, and what to look through."""

from __future__ import annotations

import functools
from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np

from unlazy.activations import Tanh
from unlazy.data import Dataset
from unlazy.flows import Descent, RungeKutta, Trajectory
from unlazy.networks import ConvNet, Network
from unlazy.papers.zhou2023.theorems.dynamics import Prediction, order, predict
from unlazy.probes import InputWeights
from unlazy.theory._base import Hypothesis, Theorem

AUTHORS = "Zhou, Zhou, Li, Xu (2023)"
WEIGHTS = InputWeights(("conv1",))  # θ_W,β = (W_β; b_β) of every channel


def is_known(network: Network) -> bool:
    """Whether it is the paper's network: one convolution and a linear read-out without bias."""
    if not isinstance(network, ConvNet):
        return False
    return len(network.kernels) == 1 and network.dense is None and network.output_bias is None


def model(run: Trajectory) -> Iterator[Hypothesis]:
    """The paper's network, from one small scale, followed as a flow; Assumptions 1, 3 and 4."""
    network = run.start
    known = is_known(network)
    yield Hypothesis("two layers: a convolution and a linear read-out", known)
    if not known:
        return
    assert isinstance(network, ConvNet)
    sigma = network.activation
    smooth = not sigma.kinks and sigma.multiplicity == 1
    yield Hypothesis("Assumption 1: σ twice differentiable with σ(0) = 0 and σ'(0) ≠ 0", smooth)
    one, many = len(set(network.scales)) == 1, network.kernels[0].shape[0] > 1
    gamma = order(network.scales[0], network.kernels[0].shape[0]) if many else float("-inf")
    yield Hypothesis("all weights drawn with one standard deviation ε, several channels", one and many)
    yield Hypothesis("Assumption 3 with γ = -log ε² / log M > 1", gamma > 1, gamma, 1.0)
    flows = not isinstance(run.flow, Descent) and bool(np.isfinite(run.stats["error"]))
    yield Hypothesis("gradient flow, followed with error control", flows)
    if smooth and one and many:
        linear = prediction(run).linear
        relative = linear.gap / float(linear.values[0])
        yield Hypothesis("Assumption 4: a spectral gap λ_1 > λ_2, as a share of λ_1", relative > 1e-8, relative)


def pixels(run: Trajectory) -> Hypothesis:
    """Assumption 2: no pixel is zero."""
    x = np.abs(np.asarray(run.data.x))
    zero = float(np.mean(x == 0))
    what = "Assumption 2: |pixels| bounded away from 0, that is, a share 0 of zero pixels"
    return Hypothesis(what, zero == 0, zero, 0.0)


_last: list[tuple[Trajectory, Prediction]] = []  # hypotheses and conclusion ask for the same one


def prediction(run: Trajectory) -> Prediction:
    """Eq. 44 from the run's own start."""
    for known, value in _last:
        if known is run:
            return value
    assert isinstance(run.start, ConvNet)
    value = predict(run.start, run.data, run.loss)
    _last[:] = [(run, value)]
    return value


def epsilon(run: Trajectory) -> float:
    """ε of the run's network."""
    assert isinstance(run.start, ConvNet)
    return run.start.scales[0]


def inside(run: Trajectory) -> tuple[float, np.ndarray]:
    """T_eff, and which looks lie in (0, T_eff]."""
    end = prediction(run).effective_time(epsilon(run))
    return end, (run.times > 0) & (run.times <= end * (1 + 1e-9))


def looked(run: Trajectory) -> Hypothesis:
    """At least one look in (0, T_eff]."""
    end, there = inside(run)
    times = run.times[run.times > 0]
    first = float(times.min()) if times.size else None
    return Hypothesis("a look at the run in (0, T_eff], T_eff of eq. 54", bool(there.any()), first, end)


@functools.lru_cache(maxsize=4)
def _images(zero: bool) -> Dataset:
    keys = jax.random.split(jax.random.key(0))
    x = jax.random.uniform(keys[0], (6, 1, 6, 6), minval=0.2)
    x = jnp.where(jnp.arange(6) == 0, 0.0, x) if zero else x
    return Dataset(x, jax.random.uniform(keys[1], (6,), minval=1.0, maxval=3.0), name="six small images")


def small_images(theorem: Theorem, *, scale: float = 1e-6, zero: bool = False, looks: int = 4) -> Trajectory:
    """Six images of 6 x 6 pixels, 32 kernels of 3 x 3, seen up to T_eff through the probes that ``theorem`` needs."""
    data = _images(zero)
    network = ConvNet((32,), 3, image=(1, 6, 6), scale=scale, rescaled=True, activation=Tanh(), key=jax.random.key(1))
    found = predict(network, data)
    end = found.effective_time(scale) or 1 / float(found.linear.values[0])
    times = np.linspace(0.0, end, looks)
    return RungeKutta(rtol=1e-6)(network, data, times, list(theorem.needs(network, data)))
