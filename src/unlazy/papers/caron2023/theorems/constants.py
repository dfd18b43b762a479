"""The numbers in the theorems of caron2023, and how far a run is from them.

The paper's model is f = Σ_j √λ_j a_j σ(w_j·x/√d) with a_j = ±1 and Σ_j λ_j = 1, trained by gradient flow on ½ Σ_i (y_i
- f(x_i))². Everything here is in these units. Other squared losses give the same flow in another unit of time: with the
mean squared error without the half, time passes 2/n times as fast.
"""

import math
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from unlazy._errors import UserError
from unlazy.activations import Activation, Relu
from unlazy.theory import check_probability

_POINTS = 4097


class Guarantee(NamedTuple):
    """Theorem 4.1 (ReLU) or 4.2 (smooth activations) in numbers: from this width on, (a)-(d) with probability 1 - δ.

    Without a symmetric part (γ = 0), or where κ_n is not above 0, they guarantee nothing: the width is infinite.
    """

    width: float
    smallest: float  # (a) eig_min(Θ_t) >= γ κ_n / 4
    rate: float  # (b) L_t <= L_0 e^(-rate t), rate = γ κ_n / 2
    reach: float  # (c) |w_tj - w_0j| <= reach √λ_j
    drift: float  # (d) ‖Θ_t - Θ_0‖_2


def guarantee(
    activation: Activation,
    variances: np.ndarray,
    gamma: float,
    kappa: float,
    n: int,
    d: int,
    largest: float,
    delta: float = 0.05,
) -> Guarantee:
    """Return the width that Theorem 4.1 or 4.2 requires, and what it guarantees from there on.

    Parameters
    ----------
    activation
        ReLU for Theorem 4.1; otherwise one with |σ'| <= 1 and |σ''| <= M, as Theorem 4.2 requires.
    variances
        λ_{m,j} of all m nodes, summing to 1 (``asymmetrical(gamma, weights).node.variances(m)``).
    gamma, kappa
        The symmetric share γ, and κ_n, the smallest eigenvalue of the mean NTG: `smallest_mean_eigenvalue`.
    n, d
        Numbers of training points and of inputs (or features).
    largest
        C = max_i |y_i|.
    delta
        Failure probability.

    The two large widths of Theorem 4.1 are printed at twice what its proof needs (`printed_width`).
    """
    check_probability(delta)
    if not (gamma > 0 and kappa > 0):
        return Guarantee(math.inf, 0.0, 0.0, math.inf, math.inf)
    shares = np.asarray(variances, float)
    if isinstance(activation, Relu):
        # The proof's D: c_{m,j} = D √λ_{m,j} in Lemma D.3.
        spread = 2**9 * n * relu_size(largest, d) / (gamma * delta**2.5 * kappa * d**0.5)
        start = 8 * n * math.log(4 * n / delta) / (kappa * d)
        width = max(start, (8 * n * spread / (d * kappa)) ** 2, (16**2 * n**2 * spread / (d * kappa) ** 2) ** 2)
        total = float(np.sum(shares**1.5))
        drift = n / d * spread * total + 2 * math.sqrt(2) * n / d * math.sqrt(spread * total)
        reach = delta**2 / 64 * spread
    else:
        size, bend = largest**2 + start_moment(activation, d), curvature(activation)
        # The proof's c_{m,j} = spread √λ_{m,j} in Lemma D.5.
        spread = n * math.sqrt(size * 2 * 64**2 / (gamma**2 * delta**3 * kappa**2 * d))
        start = 8 * n * math.log(2 * n / delta) / (kappa * d)
        near = n * (bend * delta * spread) ** 2 / (8 * d**2 * kappa)
        far = 4 * (n * bend * delta * spread) ** 2 / (d**3 * kappa**2)
        width = max(start, near, far)
        total = spread**2 * float(np.sum(shares**2))
        drift = n * (bend * delta) ** 2 / (64 * d**2) * total + n * bend * delta / (2 * d) ** 1.5 * math.sqrt(total)
        reach = delta / 8 * spread
    return Guarantee(width, gamma * kappa / 4, gamma * kappa / 2, reach, drift)


def printed_width(gamma: float, kappa: float, n: int, d: int, largest: float, delta: float = 0.05) -> float:
    """Return the width in the printed Theorem 4.1, which is up to twice that of its proof."""
    square = relu_size(largest, d) ** 2 / (gamma**2 * delta**5)
    return max(
        2**3 * n * math.log(4 * n / delta) / (kappa * d),
        2**25 * n**4 * square / (kappa**4 * d**3),
        2**35 * n**6 * square / (kappa**6 * d**5),
    )


def relu_size(largest: float, d: int) -> float:
    """D_0 = √(2 C² + 2/d) of Theorem 4.1: |y - f(X; W_0)| <= D_0 √(n/δ) with probability 1 - δ/2."""
    return math.sqrt(2 * largest**2 + 2 / d)


def start_moment(activation: Activation, d: int) -> float:
    """C_1 = sup_{0 < c <= 1} E[σ(c z / √d)²], z ~ N(0, 1) (eq. 13)."""
    variances = jnp.linspace(0.0, 1 / d, 65)
    return float(jnp.max(activation.moment(variances)))


def curvature(activation: Activation) -> float:
    """M = sup |σ''| over |h| < 20 (Assumption 2.2(b)) except at kinks; infinite if |σ''| is largest at the ends."""
    ends, largest = (-20.0, 20.0), 0.0
    for _ in range(2):  # on a grid, then on one around the largest value
        points = np.linspace(*ends, _POINTS)
        values = np.abs(np.asarray(activation.second_derivative(jnp.asarray(points)), float))
        place = int(np.argmax(values))
        largest = float(values[place])
        if place in (0, _POINTS - 1) and values[place] > 1.01 * values[_POINTS // 2]:
            return math.inf
        ends = float(points[max(place - 1, 0)]), float(points[min(place + 1, _POINTS - 1)])
    return largest


class Margins(NamedTuple):
    """The factors by which (a)-(d) of Theorem 4.1 or 4.2 are satisfied, time by time: at least 1 where they hold.

    The theorem guarantees them only from ``width`` on, but narrower networks may well satisfy them.
    """

    smallest: np.ndarray  # (a) eig_min(Θ_t) over γ κ_n / 4
    loss: np.ndarray  # (b) the bound on the loss over the loss
    weights: np.ndarray  # (c) how far a node may move over how far it has moved, for the worst node
    drift: np.ndarray  # (d) how far the NTG may move over how far it has moved
    width: float  # the width that the theorem requires

    def least(self) -> dict[str, float]:
        """Return the smallest margin of each: {"a": ..., "b": ..., "c": ..., "d": ...}.

        The start is left out for (b), which is an equality there, and for (c) and (d), which say nothing there.
        """
        curves = {"a": self.smallest, "b": self.loss[1:], "c": self.weights[1:], "d": self.drift[1:]}
        return {name: float(np.min(curve, initial=np.inf)) for name, curve in curves.items()}


def margins(
    promised: Guarantee,
    variances: np.ndarray,
    times: np.ndarray,
    losses: np.ndarray,
    smallest: np.ndarray,
    movement: np.ndarray,
    drift: np.ndarray,
    *,
    speed: float = 1.0,
    resolution: float = 0.0,
) -> Margins:
    """Compare (a)-(d) of Theorem 4.1 or 4.2 with what was observed of a run at T times.

    Parameters
    ----------
    promised
        From `guarantee`.
    variances : (m,)
        λ_{m,j} of the nodes in ``movement``, in their order.
    times, losses : (T,)
        The observed times, from t = 0 on, and the training loss there in any units: only its ratio to the first counts.
    smallest : (T,)
        eig_min of the NTG: "smallest" of ``Kernel()``.
    movement : (T, m)
        |w_tj - w_0j|, node by node: "hidden" of ``WeightMovement()``. Some of the nodes are enough.
    drift : (T,)
        ‖Θ_t - Θ_0‖_2: "drift_operator" of ``Kernel()``.
    speed
        The paper's time that passes in one unit of the run's: 1 for the sum of ½ (f - y)², 1/n for its mean, 2/n for
        the mean without the half.
    resolution
        Relative error of √L, below which a fall of the loss cannot be observed.

    Where the theorem guarantees nothing (γ = 0), margins are infinite, except for (b), which then requires that the
    loss does not rise. They are also infinite for what has not moved.
    """
    shares, times, losses, smallest, movement, drift = (
        np.asarray(values, float) for values in (variances, times, losses, smallest, movement, drift)
    )
    if movement.shape != (times.size, shares.size) or any(
        one.shape != times.shape for one in (losses, smallest, drift)
    ):
        raise UserError(
            "`margins` needs one loss, eigenvalue and drift per time and one movement per time and node, but got "
            f"shapes {losses.shape}, {smallest.shape}, {drift.shape} and {movement.shape} for {times.size} times and "
            f"{shares.size} nodes."
        )
    if times.size == 0 or times[0] != 0:
        raise UserError("`margins` compares a run with its start: the first time must be 0.")
    left = np.exp(-promised.rate * speed * times / 2) + resolution
    return Margins(
        smallest=_over(smallest, np.full(times.shape, promised.smallest)),
        loss=_over(left, np.sqrt(losses / losses[0])) ** 2,
        weights=_over(promised.reach * np.sqrt(shares), movement).min(axis=1),
        drift=_over(np.full(times.shape, promised.drift), drift),
        width=promised.width,
    )


def _over(above: np.ndarray, below: np.ndarray) -> np.ndarray:
    """Divide; the quotient by 0 is infinite."""
    above, below = np.broadcast_arrays(above, below)
    return np.divide(above, below, out=np.full(below.shape, np.inf), where=below != 0)
