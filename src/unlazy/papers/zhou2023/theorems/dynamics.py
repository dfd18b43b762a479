"""Closed-form linear dynamics (zhou2023 Proposition 1, eq. 44): where every kernel will be, before any training."""

from __future__ import annotations

import dataclasses
import functools
import math

import numpy as np

from unlazy._errors import UserError
from unlazy.data import Dataset
from unlazy.losses import Loss
from unlazy.networks import ConvNet
from unlazy.papers.zhou2023.theorems.linearisation import Linearisation, linearisation_of

_GRID = 400  # times on which a first crossing is looked for before it is refined
_FAR = 200.0  # ... up to this many times 1/λ_1, or 1/Δλ
_HALVINGS = 60


@dataclasses.dataclass(frozen=True, eq=False)
class Prediction:
    """The linear flow θ_W' = Z^T θ_a, θ_a' = Z θ_W + c of all channels from their start (rows of both arrays).

    Along v_k and u_k, with x = <θ_W, v_k>, y = <θ_a, u_k> and d = <c, u_k> / λ_k (0 in the paper),

        x(t) = (x_0 + d) cosh λt + y_0 sinh λt - d,    y(t) = y_0 cosh λt + (x_0 + d) sinh λt,

    which is eq. 44; what is orthogonal to all v_k stays where it is, and in θ_a grows by c t. Everything is divided by
    e^(λ_1 t) on the way, so that no time is too long.
    """

    linear: Linearisation
    weights: np.ndarray  # θ_W at the start, (M, C_0 m² + 1)
    readouts: np.ndarray  # θ_a at the start, (M, places x outputs)

    @functools.cached_property
    def _start(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """x_0 and y_0 along the r directions, and what is left over of both."""
        r = self.linear.rank
        v, u = self.linear.right[:r], self.linear.left[:r]
        x, y = self.weights @ v.T, self.readouts @ u.T
        return x, y, self.weights - x @ v, self.readouts - y @ u

    def _along(self, t: float) -> tuple[np.ndarray, np.ndarray, float]:
        """x(t) and y(t) along the directions, and the factor by which both, and all else, are to be multiplied."""
        r = self.linear.rank
        rate, (x, y, _, _) = self.linear.values[:r], self._start
        shift = (self.linear.left[:r] @ self.linear.drive / rate)[None]
        damped = np.exp((rate - rate[0]) * t)[None]
        back = np.exp(-(rate + rate[0]) * t)[None]
        cosh, sinh, small = (damped + back) / 2, (damped - back) / 2, math.exp(-rate[0] * t)
        return (x + shift) * cosh + y * sinh - small * shift, y * cosh + (x + shift) * sinh, small

    def at(self, t: float) -> tuple[np.ndarray, np.ndarray]:
        """θ_W and θ_a of every channel at a time: (M, C_0 m² + 1) and (M, places x outputs)."""
        r = self.linear.rank
        (x, y, small), (_, _, rest_w, rest_a) = self._along(t), self._start
        u = self.linear.left[:r]
        free = self.linear.drive - (self.linear.drive @ u.T) @ u
        grown = 1 / small if small > 0 else math.inf
        return grown * (x @ self.linear.right[:r]) + rest_w, grown * (y @ u) + rest_a + t * free[None]

    def deviation(self, t: float, weights: np.ndarray) -> float:
        """How far weights θ_W seen at a time are from these, as a share of their length, all channels together."""
        exact = self.at(t)[0]
        return float(np.linalg.norm(weights - exact) / np.linalg.norm(exact))

    def alignments(self, t: float, k: int = 0) -> np.ndarray:
        """|<θ_W,β, v_(k+1)>| / |θ_W,β| of every channel β at a time."""
        x, _, small = self._along(t)
        rest = small * np.linalg.norm(self._start[2], axis=1)
        return np.abs(x[:, k]) / np.sqrt(np.sum(x**2, axis=1) + rest**2)

    def overall(self, t: float) -> float:
        """|θ_W,v_1| / |θ_W| of all channels together: the left side of eq. 15."""
        x, _, small = self._along(t)
        rest = small * np.linalg.norm(self._start[2])
        return float(np.linalg.norm(x[:, 0]) / np.sqrt(np.sum(x**2) + rest**2))

    def change(self, t: float) -> float:
        """|θ_W(t) - θ_W(0)| / |θ_W(0)| of all channels together: the left side of eq. 14."""
        return float(np.linalg.norm(self.at(t)[0] - self.weights) / np.linalg.norm(self.weights))

    def time_of(self, level: float = 0.999, share: float = 0.5) -> float:
        """First time at which this share of the channels (½: the median one) is aligned with v_1 to ``level``.

        Infinite where it does not happen, as without a spectral gap.
        """
        if not (0 < level < 1 and 0 < share <= 1):
            raise UserError(f"An alignment below 1 and a share of the channels were wanted, not {level} and {share}.")

        def short(t: float) -> bool:
            return bool(np.quantile(self.alignments(t), 1 - share) < level)

        return _first(short, _FAR / max(self.linear.gap, 1e-9 * float(self.linear.values[0])))

    def energies(self, t: float) -> np.ndarray:
        """E_β = (|θ_W,β|² + |θ_a,β|²)^½ of every channel (Definition 3)."""
        w, a = self.at(t)
        return np.sqrt(np.sum(w**2, axis=1) + np.sum(a**2, axis=1))

    def effective_time(self, epsilon: float) -> float:
        """T_eff of eq. 54 as the linear flow has it: first t with M ε² φ(t)³ > M^-τ, τ = (γ - 1)/4.

        φ is the largest energy of a channel so far, in units of ε; γ = -log ε² / log M (eq. 8 at this M).
        """
        m = len(self.weights)
        gamma = order(epsilon, m)
        bound = m ** (-(gamma - 1) / 4)

        def short(t: float) -> bool:
            return m * epsilon**2 * (float(self.energies(t).max()) / epsilon) ** 3 <= bound

        if not short(0.0):
            return 0.0
        return _first(short, _FAR / float(self.linear.values[0]))


def order(epsilon: float, channels: int) -> float:
    """γ = -log ε² / log M, the exponent of eq. 8 at a finite number of channels M."""
    if not (channels > 1 and epsilon > 0):
        raise UserError(f"An exponent γ needs ε > 0 and M > 1 channels, not {epsilon} and {channels}.")
    return -2 * math.log(epsilon) / math.log(channels)


def least_effective_time(largest: float, epsilon: float, channels: int, slack: float) -> float:
    """Lower bound of T_eff for large M (eq. 13): (log ¼ + ((γ - 1)/4 - η_0) log M) / λ_1, with η_0 = ``slack``."""
    gamma = order(epsilon, channels)
    return (math.log(0.25) + ((gamma - 1) / 4 - slack) * math.log(channels)) / largest


def predict(network: ConvNet, data: Dataset, loss: Loss | None = None) -> Prediction:
    """Predict the training of a two-layer convolutional network on ``data`` by the flow's linear part at zero."""
    linear = linearisation_of(network, data, loss)
    own = network.parameters()
    channels = own.kernels[0].shape[0]
    readouts = np.asarray(own.readout, float).reshape(-1, channels, linear.z.shape[0] // _places(own))
    readouts = np.swapaxes(readouts, 0, 1).reshape(channels, -1)
    return Prediction(linear, np.asarray(own.layers()["conv1"].weights(), float), readouts)


def _places(network: ConvNet) -> int:
    height, width = network.places
    return height * width


def _first(short, end: float) -> float:
    """First time at which ``short`` is no longer true, on a grid that is fine at the start, then by bisection."""
    times = np.concatenate([[0.0], end * np.geomspace(1e-5, 1.0, _GRID)])
    after = next((index for index, t in enumerate(times) if not short(float(t))), None)
    if after is None:
        return math.inf
    if after == 0:
        return 0.0
    low, high = float(times[after - 1]), float(times[after])
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if short(middle) else (low, middle)
    return high
