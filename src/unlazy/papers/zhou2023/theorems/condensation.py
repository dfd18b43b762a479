"""What zhou2023 proves about training: kernels follow the linear flow (eq. 44) and align with v_1 (Theorem 1)."""

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
from unlazy.papers.zhou2023.theorems.dynamics import order, predict
from unlazy.papers.zhou2023.theorems.linearisation import Linearisation
from unlazy.papers.zhou2023.theorems.setting import AUTHORS, Setting, is_known, read, small_images, weights_of
from unlazy.probes import Probe
from unlazy.theory import Example, Finding, Reading, Theorem

_DEVIATIONS = 5.0  # standard deviations, over initialisations, that are allowed


class _OfKernels(Theorem[Setting]):
    """A theorem on the input weights of the paper's network."""

    example: ClassVar[Example] = Example(small_images)
    knows = staticmethod(is_known)

    def needs(self, network: Network, data: Dataset) -> tuple[Probe, ...]:
        return weights_of(network)


class LinearFlow(_OfKernels):
    """A consequence of Proposition 2, as in the proof of Theorem 3: up to T_eff the input weights follow eq. 44.

    Proposition 1 is eq. 44 itself, the solution of a linear flow, and is always true. Proposition 2 and the proof of
    Theorem 3 show that training stays close to it, up to constants that the paper leaves open, so ``within`` is our
    choice. T_eff is that of eq. 54 for the linear flow, which is known before training; the paper's is that of
    training. `numbers` also has the time until which the prediction holds, which may be later than T_eff.

    Parameters
    ----------
    within
        Allowed difference, as a share of the length of the weights.
    """

    key: ClassVar[str] = "zhou2023/proposition-1"
    source: ClassVar[str] = f"{AUTHORS}, Proposition 2 and the proof of Theorem 3, with our constant"
    statement: ClassVar[str] = "Small weights follow the linear flow of Proposition 1 to 5 % up to T_eff of that flow."
    counterexample: ClassVar[Example] = Example(small_images, scale=0.3)  # γ < 1
    within: float = eqx.field(static=True, default=0.05)

    def read(self, run: Trajectory) -> Reading[Setting]:
        return read(run)

    def conclude(self, setting: Setting) -> Finding:
        run, found, end = setting.run, setting.prediction, setting.end
        off = np.array([found.deviation(float(t), w) for t, w in zip(run.times, setting.weights(), strict=True)])
        largest, bad = float(off[setting.inside].max()), np.flatnonzero(off > self.within)
        numbers = {
            "largest deviation up to T_eff": largest,
            "T_eff": end,
            f"within {100 * self.within:g} % until": float(run.times[max(bad[0] - 1, 0) if bad.size else -1]),
            "predicted time of alignment 0.999": found.time_of(0.999),
            "eig_max": float(found.linear.values[0]),
            "spectral gap": found.linear.gap,
        }
        why = (
            f"Up to T_eff = {end:.3g} the weights are within {100 * largest:.2g} % of the linear flow; "
            f"{100 * self.within:g} % are allowed."
        )
        return Finding.judge(largest <= self.within, why, self.within / max(largest, 1e-300), numbers)


class KernelsCondense(_OfKernels):
    """Theorem 1: up to T_eff the relative change of the weights diverges (eq. 14) and they align with v_1 (eq. 15).

    Both are limits as M → ∞, and a run has one M. What can be checked on it are their ingredients: as M grows at a
    fixed time, the two ratios tend to

        |θ_W(t) - θ_W(0)|² / |θ_W(0)|² → Σ_k ((cosh λ_k t - 1)² + sinh² λ_k t) / (C_0 m² + 1),
        |θ_W,v_1(t)|² / |θ_W(t)|² → cosh 2λ_1 t / Σ_k cosh 2λ_k t,

    with λ_k = 0 for directions that do not change (`limits`), and T_eff grows like log M, so that the first ratio tends
    to infinity and the second to 1. A run with M channels has to reach both values up to five standard deviations, of
    the order of M^-½. `against_channels` computes both ratios as M grows.
    """

    key: ClassVar[str] = "zhou2023/theorem-1"
    source: ClassVar[str] = f"{AUTHORS}, Theorem 1 (eq. 14-15)"
    statement: ClassVar[str] = "For large M, kernels move far and align with v_1 before T_eff."
    counterexample: ClassVar[Example] = Example(small_images, zero=True)  # a column of zeros, as MNIST has them

    def read(self, run: Trajectory) -> Reading[Setting]:
        return read(run, zeros=False)

    def conclude(self, setting: Setting) -> Finding:
        run, found, end = setting.run, setting.prediction, setting.end
        last = int(np.flatnonzero(setting.inside)[-1])
        t, weights = float(run.times[last]), setting.weights()
        start, now = weights[0] if run.times[0] == 0 else found.weights, weights[last]
        change = float(np.linalg.norm(now - start) / np.linalg.norm(start))
        aligned = float(np.linalg.norm(now @ found.linear.right[0]) / np.linalg.norm(now))
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
            "time": t,
            "channels": float(len(now)),
            "gamma": order(setting.epsilon, len(now)),
        }
        margin = min(change / max(needed_far, 1e-300), aligned / max(needed_near, 1e-300))
        weak = needed_near == 0 and needed_far == 0
        why = (
            f"At t = {t:.3g}, before T_eff = {end:.3g}, the relative change of the weights is {change:.3g} and their "
            f"alignment with v_1 {aligned:.4g}; as M grows these tend to {far:.3g} and {near:.4g}."
        )
        return Finding.judge(margin >= 1, why, margin, numbers, vacuous=weak)


def limits(linear: Linearisation, t: float) -> tuple[float, float]:
    """Compute the left sides of eq. 14 and 15 at time t as M → ∞ (see `KernelsCondense`).

    Parameters
    ----------
    linear
        The linear flow.
    t
        The time.
    """
    rates = np.zeros(linear.z.shape[1])
    rates[: linear.rank] = linear.values[: linear.rank]
    with np.errstate(over="ignore"):  # late enough the change is infinite
        square = (np.cosh(rates * t) - 1) ** 2 + np.sinh(rates * t) ** 2
    shares = np.exp(2 * (rates - rates[0]) * t) + np.exp(-2 * (rates + rates[0]) * t)  # cosh 2λt over e^(2λ_1 t)/2
    return math.sqrt(float(square.sum()) / rates.size), math.sqrt(float(shares[0] / shares.sum()))


class AgainstChannels(NamedTuple):
    """Theorem 1 as M grows at a fixed γ.

    Attributes
    ----------
    channels, epsilon
        M, and the standard deviation of the weights.
    effective_time, change, alignment
        T_eff, and the ratios of eq. 14 and 15 there.
    """

    channels: np.ndarray
    epsilon: np.ndarray
    effective_time: np.ndarray
    change: np.ndarray
    alignment: np.ndarray


def against_channels(
    data: Dataset, kernel: int, gamma: float, channels: Sequence[int], loss: Loss | None = None, *, key: PRNGKey
) -> AgainstChannels:
    """Compute T_eff, and by eq. 44 the ratios of eq. 14 and 15, for a draw of a network with ε = M^(-γ/2) for each M.

    Parameters
    ----------
    data, loss
        The training problem.
    kernel
        Side of the kernels.
    gamma
        The exponent γ.
    channels
        Values of M.
    key
        A JAX key.
    """
    if not gamma > 1:
        raise UserError(f"Theorem 1 needs γ > 1, not {gamma}.")
    rows = []
    for index, m in enumerate(channels):
        size = float(m) ** (-gamma / 2)
        one = jax.random.fold_in(key, index)
        network = ConvNet((m,), kernel, data.outputs, image=data.x.shape[1:], scale=size, key=one)
        found = predict(network, data, loss)
        end = found.effective_time(size)
        rows.append((m, size, end, found.change(end), found.overall(end)))
    return AgainstChannels(*np.array(rows, float).T)
