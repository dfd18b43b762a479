"""The closed-form linear flow (zhou2023 Proposition 1, eq. 44), which predicts every kernel before training."""

import dataclasses
import functools
import math
from collections.abc import Callable

import numpy as np

from unlazy._errors import UserError
from unlazy.data import Dataset
from unlazy.losses import Loss
from unlazy.networks import Network
from unlazy.papers.zhou2023.theorems.linearisation import Linearisation, linearisation_of
from unlazy.papers.zhou2023.theorems.structure import two_layer_form

_GRID = 400  # number of times among which a first crossing is searched for before it is refined
_FAR = 200.0  # the last of them, in units of 1/λ_1 or 1/Δλ
_HALVINGS = 60


@dataclasses.dataclass(frozen=True, eq=False)
class Prediction:
    """The linear flow θ_W' = Z^T θ_a, θ_a' = Z θ_W + c of all channels from their start (rows of both arrays).

    Along v_k and u_k, with x = <θ_W, v_k>, y = <θ_a, u_k> and d = <c, u_k> / λ_k (0 in the paper),

        x(t) = (x_0 + d) cosh λt + y_0 sinh λt - d,    y(t) = y_0 cosh λt + (x_0 + d) sinh λt,

    which is eq. 44. Components orthogonal to all v_k are constant in θ_W, and grow by c t in θ_a. Everything is divided
    by e^(λ_1 t) internally, so that late times do not overflow. If θ_W and θ_a are trained at rates ρ_W and ρ_a other
    than 1, all of this holds with √(ρ_W/ρ_a) θ_a in place of θ_a, and with the Z and c of `linearisation_of`.

    Parameters
    ----------
    linear
        Z and c.
    weights, readouts
        θ_W and θ_a at the start: (M, C_0 m² + 1) and (M, places x outputs).
    ratio
        √(ρ_W/ρ_a); 1 in the paper.
    """

    linear: Linearisation
    weights: np.ndarray
    readouts: np.ndarray
    ratio: float = 1.0

    @functools.cached_property
    def _start(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """x_0 and y_0 along the r directions, and the remainders of both."""
        r = self.linear.rank
        v, u = self.linear.right[:r], self.linear.left[:r]
        readouts = self.ratio * self.readouts
        x, y = self.weights @ v.T, readouts @ u.T
        return x, y, self.weights - x @ v, readouts - y @ u

    def _along(self, t: float) -> tuple[np.ndarray, np.ndarray, float]:
        """Compute x(t) and y(t) divided by e^(λ_1 t), and the factor e^(-λ_1 t)."""
        r = self.linear.rank
        rate, (x, y, _, _) = self.linear.values[:r], self._start
        shift = (self.linear.left[:r] @ self.linear.drive / rate)[None]
        damped = np.exp((rate - rate[0]) * t)[None]
        back = np.exp(-(rate + rate[0]) * t)[None]
        cosh, sinh, small = (damped + back) / 2, (damped - back) / 2, math.exp(-rate[0] * t)
        return (x + shift) * cosh + y * sinh - small * shift, y * cosh + (x + shift) * sinh, small

    def at(self, t: float) -> tuple[np.ndarray, np.ndarray]:
        """Compute θ_W and θ_a of every channel at time t: (M, C_0 m² + 1) and (M, places x outputs)."""
        r = self.linear.rank
        (x, y, small), (_, _, rest_w, rest_a) = self._along(t), self._start
        u = self.linear.left[:r]
        free = self.linear.drive - (self.linear.drive @ u.T) @ u
        grown = 1 / small if small > 0 else math.inf
        readouts = grown * (y @ u) + rest_a + t * free[None]
        return grown * (x @ self.linear.right[:r]) + rest_w, readouts / self.ratio

    def deviation(self, t: float, weights: np.ndarray) -> float:
        """Compute the distance of observed weights θ_W from the prediction for time t, as a share of its length."""
        exact = self.at(t)[0]
        return float(np.linalg.norm(weights - exact) / np.linalg.norm(exact))

    def alignments(self, t: float, k: int = 0) -> np.ndarray:
        """Compute |<θ_W,β, v_(k+1)>| / |θ_W,β| of every channel β at time t."""
        x, _, small = self._along(t)
        rest = small * np.linalg.norm(self._start[2], axis=1)
        return np.abs(x[:, k]) / np.sqrt(np.sum(x**2, axis=1) + rest**2)

    def overall(self, t: float) -> float:
        """Compute |θ_W,v_1| / |θ_W| of all channels together: the left side of eq. 15."""
        x, _, small = self._along(t)
        rest = small * np.linalg.norm(self._start[2])
        return float(np.linalg.norm(x[:, 0]) / np.sqrt(np.sum(x**2) + rest**2))

    def change(self, t: float) -> float:
        """Compute |θ_W(t) - θ_W(0)| / |θ_W(0)| of all channels together: the left side of eq. 14."""
        return float(np.linalg.norm(self.at(t)[0] - self.weights) / np.linalg.norm(self.weights))

    def time_of(self, level: float = 0.999, share: float = 0.5) -> float:
        """Return the first time at which a share of the channels is aligned with v_1; infinite if there is none.

        Parameters
        ----------
        level
            The alignment to be reached.
        share
            The share of the channels; ½ is the median channel.
        """
        if not (0 < level < 1 and 0 < share <= 1):
            raise UserError(
                f"Give an alignment below 1 and above 0 as `level`, and as `share` a share of channels in (0, 1], not "
                f"{level} and {share}."
            )
        end = _FAR / max(self.linear.gap, 1e-9 * float(self.linear.values[0]))
        return _first_false(lambda t: bool(np.quantile(self.alignments(t), 1 - share) < level), end)

    def energies(self, t: float) -> np.ndarray:
        """Compute E_β = (|θ_W,β|² + |θ_a,β|²)^½ of every channel at time t (Definition 3), with √(ρ_W/ρ_a) θ_a."""
        w, a = self.at(t)
        return np.sqrt(np.sum(w**2, axis=1) + self.ratio**2 * np.sum(a**2, axis=1))

    def effective_time(self, epsilon: float) -> float:
        """Compute T_eff of eq. 54 for the linear flow: the first t with M ε² φ(t)³ > M^-τ, τ = (γ - 1)/4.

        φ is the largest energy of a channel so far, in units of ε; γ = -log ε² / log M (eq. 8 at this M).

        Parameters
        ----------
        epsilon
            Standard deviation ε of the weights at the start.
        """
        m = len(self.weights)
        bound, end = m ** (-(order(epsilon, m) - 1) / 4), _FAR / float(self.linear.values[0])
        return _first_false(lambda t: m * epsilon**2 * (float(self.energies(t).max()) / epsilon) ** 3 <= bound, end)


def order(epsilon: float, channels: int) -> float:
    """Compute γ = -log ε² / log M, the exponent of eq. 8 at a finite number of channels M.

    Parameters
    ----------
    epsilon
        Standard deviation ε of the weights.
    channels
        Number of channels M.
    """
    if not (channels > 1 and epsilon > 0):
        raise UserError(f"An exponent γ needs ε > 0 and M > 1 channels, not {epsilon} and {channels}.")
    return -2 * math.log(epsilon) / math.log(channels)


def least_effective_time(largest: float, epsilon: float, channels: int, slack: float) -> float:
    """Compute the lower bound of T_eff for large M (eq. 13): (log ¼ + ((γ - 1)/4 - η_0) log M) / λ_1.

    Parameters
    ----------
    largest
        λ_1.
    epsilon, channels
        ε and M, which determine γ.
    slack
        η_0.
    """
    return (math.log(0.25) + ((order(epsilon, channels) - 1) / 4 - slack) * math.log(channels)) / largest


def predict(network: Network, data: Dataset, loss: Loss | None = None) -> Prediction:
    """Predict the training of a two-layer network by the linear part of its flow at zero.

    Parameters
    ----------
    network
        Two layers that are both trained: a `ConvNet` with one convolution and a linear read-out without bias, a
        `TwoLayer` with ``train_readout=True``, or any network of this form (`two_layer_form`).
    data, loss
        The training problem; ½ mean squares by default.
    """
    form = two_layer_form(network)
    linear = linearisation_of(form, data, loss)
    return Prediction(linear, form.weights, form.readouts, ratio=math.sqrt(form.rates[0] / form.rates[1]))


def _first_false(short: Callable[[float], bool], end: float) -> float:
    """Find the first time at which ``short`` is false, on a grid that is fine at the start, then by bisection."""
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
