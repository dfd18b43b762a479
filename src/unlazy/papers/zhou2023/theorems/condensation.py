"""What zhou2023 says of a run: kernels follow the linear flow (eq. 44), and gather along v_1 (Theorem 1)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar, NamedTuple

import equinox as eqx
import jax
import numpy as np

from unlazy._errors import UserError
from unlazy._types import PRNGKey
from unlazy.data import Dataset
from unlazy.flows import Trajectory
from unlazy.losses import Loss
from unlazy.networks import ConvNet, Network
from unlazy.papers.zhou2023.theorems._setting import AUTHORS, WEIGHTS, Setting, is_known, read, small_images
from unlazy.papers.zhou2023.theorems.dynamics import predict
from unlazy.papers.zhou2023.theorems.linearisation import Linearisation
from unlazy.probes import Probe
from unlazy.theory._base import Finding, Reading, Theorem, Verdict

_DEVIATIONS = 5.0  # how many standard deviations of the start are allowed for


class LinearFlow(Theorem[Setting]):
    """Proposition 1 with eq. 54: up to T_eff the input weights follow eq. 44, to ``within`` of their length (5 %).

    The paper bounds the difference only up to constants that it leaves out, so the number is ours. `numbers` says how
    long the prediction held along the whole run, whatever T_eff is.
    """

    key: ClassVar[str] = "zhou2023/proposition-1"
    source: ClassVar[str] = f"{AUTHORS}, Proposition 1 and eq. 54"
    statement: ClassVar[str] = "From small weights every kernel follows a linear flow that is known before training."
    feasible: ClassVar[bool] = True
    within: float = eqx.field(static=True, default=0.05)

    def needs(self, network: Network, data: Dataset) -> Sequence[Probe]:
        """The weights."""
        return [WEIGHTS] if is_known(network) else []

    def read(self, run: Trajectory) -> Reading[Setting | None]:
        """The paper's model, observed before T_eff."""
        return (yield from read(run))

    def conclude(self, setting: Setting) -> Finding:
        """Compare weights with eq. 44 at every time."""
        run, found, end, there = setting.run, setting.prediction, setting.end, setting.inside
        seen = setting.weights()
        off = np.array([found.deviation(float(t), w) for t, w in zip(run.times, seen, strict=True)])
        bad = np.flatnonzero(off > self.within)
        aligned = found.time_of(0.999)
        numbers = {
            "largest deviation up to T_eff": float(off[there].max()),
            "T_eff": end,
            "within 5 % until" if self.within == 0.05 else "within until": float(
                run.times[-1] if not bad.size else run.times[max(bad[0] - 1, 0)]
            ),
            "predicted time of alignment 0.999": aligned,
            "eig_max": float(found.linear.values[0]),
            "spectral gap": found.linear.gap,
        }
        holds = numbers["largest deviation up to T_eff"] <= self.within
        why = (
            f"Up to T_eff = {end:.3g} the weights are within {100 * off[there].max():.2g} % of the linear flow; "
            f"{100 * self.within:g} % are allowed."
        )
        margin = self.within / max(float(off[there].max()), 1e-300)
        return Finding(Verdict.HOLDS if holds else Verdict.FAILS, why, margin, numbers)

    def example(self) -> Trajectory:
        """Weights of size 1e-6."""
        return small_images(self)

    def counterexample(self) -> Trajectory:
        """Weights of size 0.3: γ < 1."""
        return small_images(self, scale=0.3)


class KernelsCondense(Theorem[Setting]):
    """Theorem 1: up to T_eff weights change beyond any bound (eq. 14) and lie along v_1 (eq. 15) as M → ∞.

    A run has one M. What the limit is made of can be checked on it: as M grows at a fixed time the two ratios tend to

        |θ_W(t) - θ_W(0)|² / |θ_W(0)|² → Σ_k ((cosh λ_k t - 1)² + sinh² λ_k t) / (C_0 m² + 1),
        |θ_W,v_1(t)|² / |θ_W(t)|² → cosh 2λ_1 t / Σ_k cosh 2λ_k t,

    with λ_k = 0 for directions that stay (`limits`), and T_eff grows like log M, which takes the first to infinity and
    the second to 1. A run with M channels has to reach both up to what chance allows: five standard deviations, of the
    order of M^-½. `against_channels` follows both as M grows.
    """

    key: ClassVar[str] = "zhou2023/theorem-1"
    source: ClassVar[str] = f"{AUTHORS}, Theorem 1 (eq. 14-15)"
    statement: ClassVar[str] = "Before T_eff kernels move far from their start and gather along v_1, if M is large."
    feasible: ClassVar[bool] = True

    def needs(self, network: Network, data: Dataset) -> Sequence[Probe]:
        """The weights."""
        return [WEIGHTS] if is_known(network) else []

    def read(self, run: Trajectory) -> Reading[Setting | None]:
        """The paper's model, no zero pixels, observed before T_eff."""
        return (yield from read(run, zero_pixels=False))

    def conclude(self, setting: Setting) -> Finding:
        """Compare both ratios with their limits at the last time before T_eff."""
        run, found, end, there = setting.run, setting.prediction, setting.end, setting.inside
        last = int(np.flatnonzero(there)[-1])
        t, v = float(run.times[last]), found.linear.right[0]
        seen = setting.weights()
        start, now = seen[0] if run.times[0] == 0 else found.weights, seen[last]
        change = float(np.linalg.norm(now - start) / np.linalg.norm(start))
        aligned = float(np.linalg.norm(now @ v) / np.linalg.norm(now))
        far, near = limits(found.linear, t)
        chance = _DEVIATIONS * math.sqrt(2 / len(now))
        needed_far = far * math.sqrt(max(0.0, (1 - chance) / (1 + chance)))
        needed_near = math.sqrt(max(0.0, near**2 - chance * (1 - near**2)))
        numbers = {
            "change": change,
            "change as M grows": far,
            "alignment": aligned,
            "alignment as M grows": near,
            "T_eff": end,
            "looked at": t,
            "channels": float(len(now)),
            "gamma": -2 * math.log(setting.epsilon) / math.log(len(now)),
        }
        margin = min(change / max(needed_far, 1e-300), aligned / max(needed_near, 1e-300))
        weak = needed_near == 0 and needed_far == 0
        verdict = Verdict.FAILS if margin < 1 else Verdict.VACUOUS if weak else Verdict.HOLDS
        why = (
            f"At t = {t:.3g}, before T_eff = {end:.3g}, weights have changed by {change:.3g} times their start and a "
            f"share {aligned:.4g} of their length lies along v_1; as M grows these are {far:.3g} and {near:.4g}."
        )
        return Finding(verdict, why, margin, numbers)

    def example(self) -> Trajectory:
        """Images without a zero pixel, weights of size 1e-6."""
        return small_images(self)

    def counterexample(self) -> Trajectory:
        """The same images with a column of zeros, as MNIST has them."""
        return small_images(self, zero=True)


def limits(linear: Linearisation, t: float) -> tuple[float, float]:
    """The left sides of eq. 14 and 15 at time t as M → ∞ (see `KernelsCondense`)."""
    rates = np.zeros(linear.z.shape[1])
    rates[: linear.rank] = linear.values[: linear.rank]
    with np.errstate(over="ignore"):  # late enough the change is infinite
        square = (np.cosh(rates * t) - 1) ** 2 + np.sinh(rates * t) ** 2
    shares = np.exp(2 * (rates - rates[0]) * t) + np.exp(-2 * (rates + rates[0]) * t)  # cosh 2λt over e^(2λ_1 t)/2
    return math.sqrt(float(square.sum()) / rates.size), math.sqrt(float(shares[0] / shares.sum()))


class AgainstChannels(NamedTuple):
    """Theorem 1 as M grows at a fixed γ: T_eff, and both ratios there."""

    channels: np.ndarray
    epsilon: np.ndarray
    effective_time: np.ndarray
    change: np.ndarray
    alignment: np.ndarray


def against_channels(
    data: Dataset, kernel: int, gamma: float, channels: Sequence[int], loss: Loss | None = None, *, key: PRNGKey
) -> AgainstChannels:
    """Draw networks with ε = M^(-γ/2) and give T_eff and the ratios of eq. 14 and 15 by eq. 44, for each M."""
    if not gamma > 1:
        raise UserError(f"Theorem 1 needs γ > 1, not {gamma}.")
    rows = []
    for index, m in enumerate(channels):
        size = float(m) ** (-gamma / 2)
        network = ConvNet(
            (m,), kernel, data.outputs, image=data.x.shape[1:], scale=size, key=jax.random.fold_in(key, index)
        )
        found = predict(network, data, loss)
        end = found.effective_time(size)
        rows.append((m, size, end, found.change(end), found.overall(end)))
    return AgainstChannels(*np.array(rows, float).T)
