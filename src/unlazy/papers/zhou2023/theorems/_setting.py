"""Which runs zhou2023 speaks about: its network, its Assumptions 1-4 on the data at hand, and what to look through."""

from __future__ import annotations

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np

from unlazy.activations import Tanh
from unlazy.data import Dataset
from unlazy.flows import RungeKutta, Trajectory
from unlazy.networks import ConvNet, Network
from unlazy.papers.zhou2023.theorems.dynamics import Prediction, order, predict
from unlazy.probes import InputWeights
from unlazy.theory._base import Hypothesis, Reading, Theorem, through
from unlazy.theory._runs import gradient_flow

AUTHORS = "Zhou, Zhou, Li, Xu (2023)"
WEIGHTS = InputWeights(("conv1",))  # θ_W,β = (W_β; b_β) of every channel


def is_known(network: Network) -> bool:
    """Whether it is the paper's network: one convolution and a linear read-out without bias."""
    if not isinstance(network, ConvNet):
        return False
    return len(network.kernels) == 1 and network.dense is None and network.output_bias is None


@dataclasses.dataclass(frozen=True)
class Setting:
    """The paper's network in a run, and what eq. 44 says of it before training."""

    run: Trajectory
    epsilon: float  # standard deviation of all weights
    prediction: Prediction
    end: float  # T_eff of eq. 54

    @property
    def inside(self) -> np.ndarray:
        """Which of the run's times lie in (0, T_eff]."""
        return (self.run.times > 0) & (self.run.times <= self.end * (1 + 1e-9))

    def weights(self) -> np.ndarray:
        """θ_W,β at every time of the run: (times, M, m² + 1)."""
        return np.asarray(through(self.run, WEIGHTS)["conv1"], float)


def read(run: Trajectory, zero_pixels: bool = True) -> Reading[Setting | None]:
    """The paper's network, from one small scale, followed as a flow, observed before T_eff; Assumptions 1 to 4.

    Assumption 2 is left out where ``zero_pixels`` are allowed.
    """
    network = run.start
    known = isinstance(network, ConvNet) and is_known(network)
    yield Hypothesis("two layers: a convolution and a linear read-out", known)
    if not zero_pixels and isinstance(network, ConvNet):
        zero = float(np.mean(np.asarray(run.data.x) == 0))
        what = "Assumption 2: |pixels| bounded away from 0, that is, a share 0 of zero pixels"
        yield Hypothesis(what, zero == 0, zero, 0.0)
    if not (isinstance(network, ConvNet) and known):
        return None
    sigma, epsilon = network.activation, network.scales[0]
    smooth = not sigma.kinks and sigma.multiplicity == 1
    yield Hypothesis("Assumption 1: σ twice differentiable with σ(0) = 0 and σ'(0) ≠ 0", smooth)
    one, many = len(set(network.scales)) == 1, network.kernels[0].shape[0] > 1
    gamma = order(epsilon, network.kernels[0].shape[0]) if many else float("-inf")
    yield Hypothesis("all weights drawn with one standard deviation ε, several channels", one and many)
    yield Hypothesis("Assumption 3 with γ = -log ε² / log M > 1", gamma > 1, gamma, 1.0)
    flow = gradient_flow(run)
    yield flow
    if not (smooth and one and many):
        return None
    prediction = predict(network, run.data, run.loss)
    relative = prediction.linear.gap / float(prediction.linear.values[0])
    yield Hypothesis("Assumption 4: a spectral gap λ_1 > λ_2, as a share of λ_1", relative > 1e-8, relative)
    if not (gamma > 1 and flow.met and relative > 1e-8):
        return None
    setting = Setting(run, epsilon, prediction, prediction.effective_time(epsilon))
    times = run.times[run.times > 0]
    first = float(times.min()) if times.size else None
    what = "an observation of the run in (0, T_eff], T_eff of eq. 54"
    yield Hypothesis(what, bool(setting.inside.any()), first, setting.end)
    return setting


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
