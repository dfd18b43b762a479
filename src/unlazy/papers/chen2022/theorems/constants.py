"""The constants of chen2022, explicit and checked.

The paper proves that constants exist; here they are made explicit. Where a proof is in error, the corrected form has
the plain name, and the name of the printed form says so (see `docs/errata.md`).
"""

import math
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from scipy.special import ndtr

from unlazy._errors import UserError
from unlazy.activations import Activation, ActiveInterval


def kappa(smallest: float, largest: float, interval: ActiveInterval) -> float:
    """κ of Lemma 1: (9/√2) λ_max / (λ_min K_σ' (I_r - I_l)).

    From the proof: with ξ = (I_r - I_l)/3 and C_2 = λ_max / (√2 ξ K_σ' λ_min), eq. 51 gives √η̃ η̃' >= (C_2/ĉ) L'/√L =
    (2 C_2/ĉ) (√L)', hence η̃^(3/2) falls by at most 3 C_2 (√L^0 - √L^t) / ĉ, and κ = 3 C_2.
    """
    return 9 / math.sqrt(2) * largest / (smallest * interval.slope * (interval.right - interval.left))


def printed_kappa(smallest: float, largest: float, interval: ActiveInterval) -> float:
    """κ as printed below eq. 19, 9 λ_max (I_r - I_l) / (2 λ_min K_σ'): wrong for short intervals."""
    return 9 * largest * (interval.right - interval.left) / (2 * smallest * interval.slope)


def middle_mass(interval: ActiveInterval, variance: float | np.ndarray) -> np.ndarray:
    """P(h ∈ middle third of I) for h ~ N(0, variance), exactly: π(I_0; G_aa) of eq. 67."""
    return _mass(*interval.middle, np.sqrt(variance))


def _mass(left: float | np.ndarray, right: float | np.ndarray, deviation: np.ndarray) -> np.ndarray:
    """P(left < h < right) for h ~ N(0, deviation²), as a difference of the smaller tails, which cancel least."""
    a, b = np.asarray(left) / deviation, np.asarray(right) / deviation
    return np.where(a > 0, ndtr(-a) - ndtr(-b), ndtr(b) - ndtr(a))


def printed_middle_mass(interval: ActiveInterval, low: float, high: float) -> float:
    """2 K(I, G_min, G_max) of Lemma 3 as printed: meant as a lower bound on every π(I_0; G_aa), which it is not."""
    reach = max(abs(interval.left), abs(interval.right))
    return (interval.right - interval.left) / (3 * math.sqrt(2 * math.pi) * high) * math.exp(-reach / low**2)


def start_size(activation: Activation, variance: float | np.ndarray) -> np.ndarray:
    """Size s = |σ(0)| + L_σ √variance: E[σ(h)^(2k)] <= s^(2k) (2k-1)!! for h ~ N(0, variance), as for a Gaussian.

    By Minkowski's inequality for |σ(h)| <= |σ(0)| + L_σ |h|. So c σ(h), with c = ±ĉ with equal probabilities, is
    sub-Gaussian with variance proxy ĉ² s² (compare even moments). This makes eq. 62-63 explicit, which omit σ(0).
    """
    return abs(float(activation(jnp.zeros(())))) + activation.lipschitz * np.sqrt(variance)


def width_for_loss(spread: float, c: float, size: float, n: int, delta: float) -> float:
    """Compute the m from which on L^0 <= |y|² with probability 1 - δ (Lemma 2), with |y| = ``size`` for n points.

    2 n ĉ² s² log(2n/δ) / ((√2 - 1)² |y|²): c σ(h) is sub-Gaussian with proxy ĉ² s², ``spread`` = s of `start_size`, so
    that |f(x_a)| <= (√2 - 1) |y| / √n for all a.
    """
    return 2 * n * (c * spread / ((math.sqrt(2) - 1) * size)) ** 2 * math.log(2 * n / delta)


def width_for_share(share: float, n: int, delta: float) -> float:
    """Compute the m from which on η̃^0 > K = ``share`` with probability 1 - δ (Lemma 3): log(n/δ) / (2 K²)."""
    return math.log(n / delta) / (2 * share**2)


class Requirements(NamedTuple):
    """What a theorem requires, and the rate that it then guarantees."""

    interval: ActiveInterval
    share: float  # K: the share of neurons that start in the middle third, at least
    c: float  # ĉ, at least
    width: float  # m, at least, at the larger of this ĉ and the network's own
    rate: float  # guaranteed rate of the loss in the paper's time, at the network's own ĉ


def requirements(
    smallest: float,
    largest: float,
    variances: tuple[float, float],
    activation: Activation,
    y: np.ndarray,
    c: float,
    delta: float,
    interval: ActiveInterval,
    random: bool = False,
) -> Requirements:
    """Compute the constants of Theorem 1 for a Gram matrix G, or of Theorems 2 and 3 (``random``) for its limit Ḡ.

    Theorem 1, for failure probability δ, half of it for each of two events:

    - the share η̃^0 exceeds K = ½ min_a π(I_0; G_aa) if m >= log(2n/δ) / (2 K²) (Lemma 3, Hoeffding);
    - |f^0(x_a)| <= (√2 - 1) |y| / √n for all a, and therefore L^0 <= ½ (|f^0| + |y|)² <= |y|² (Lemma 2), if
      m >= 2 n ĉ² s² log(4n/δ) / ((√2 - 1)² |y|²) with s of `start_size` at G_max. The printed condition lacks the
      factor n: eq. 64 applies a union bound over n points to a sum of squares without dividing it.

    If then κ |y| / ĉ <= ½ K^(3/2), Lemma 1 gives η^t >= 2^(-2/3) K for all t, and eq. 50 the rate 2^(1/3) ĉ² λ_min
    K_σ'² K (eq. 60).

    Theorems 2 and 3 allow G to differ from Ḡ by λ_min(Ḡ)/2. Eigenvalues and diagonal entries may then differ by a
    factor 2 in either direction, so that κ may be 4 times as large, K is the smallest over [Ḡ_min/2, 2 Ḡ_max], λ_min is
    halved, and each event has the probability δ/4.
    """
    low, high = (variances[0] / 2, 2 * variances[1]) if random else variances
    # As a function of the variance the mass rises and then falls, so its least value is at an end.
    share = 0.5 * float(np.min(middle_mass(interval, np.array([low, high]))))
    worse, parts = (4.0, 4) if random else (1.0, 2)
    n, size = y.size, float(np.linalg.norm(y))
    needed_c = 2 * worse * kappa(smallest, largest, interval) * size / share**1.5
    width = max(
        width_for_share(share, n, delta / parts),
        width_for_loss(float(start_size(activation, high)), max(c, needed_c), size, n, delta / parts),
    )
    rate = 2 ** (1 / 3) / (2 if random else 1) * c**2 * smallest * interval.slope**2 * share
    return Requirements(interval, share, needed_c, width, rate)


def concentration_bound(sizes: np.ndarray, features: float, delta: float) -> float:
    """Compute a bound on ‖G - Ḡ‖ of D random features that holds with probability 1 - δ: Lemma 4 with constants.

    With s_a of `start_size` the moments of X = φ(x_a) φ(x_b) are E|X|^k <= (s_a s_b)^k (2k-1)!!, which is at most
    (k!/2) 3 (s_a s_b)² (2 s_a s_b)^(k-2). Bernstein's inequality (Boucheron, Lugosi and Massart 2013, Theorem 2.10,
    which does not ask for centred X) then bounds one entry by s_a s_b (√(6t/D) + 2t/D) with probability 1 - 2 e^(-t).
    All n (n+1)/2 entries are covered with t = log(n (n+1) / δ), and the Frobenius norm bounds the spectral one.
    """
    n = sizes.size
    t = math.log(n * (n + 1) / delta)
    return float(np.sum(sizes**2)) * (math.sqrt(6 * t / features) + 2 * t / features)


def features_needed(sizes: np.ndarray, distance: float, delta: float) -> float:
    """Compute the D from which on `concentration_bound` is at most ``distance``: D_min(δ, u) of Condition 1."""
    n = sizes.size
    t = math.log(n * (n + 1) / delta)
    ratio = distance / float(np.sum(sizes**2))
    # With z = √(t/D): 2 z² + √6 z = ratio, solved without cancellation.
    z = 2 * ratio / (math.sqrt(6) + math.sqrt(6 + 8 * ratio))
    return t / z**2


def best_interval(activation: Activation, low: float, high: float) -> ActiveInterval:
    """Return the interval of `find_interval`, and raise an error if there is none."""
    found = find_interval(activation, low, high)
    if found is None:
        raise UserError(
            f"{activation} has no interval inside (-4, 4) on which |σ'| is bounded away from 0: the theorems need an "
            "activation that has one."
        )
    return found


def find_interval(activation: Activation, low: float, high: float) -> ActiveInterval | None:
    """Find the active interval that requires the smallest ĉ, for pre-activations of variance from ``low`` to ``high``.

    The theorems hold with any interval. This one maximises K_σ' (I_r - I_l) min π(I_0)^(3/2), to which ĉ is inversely
    proportional, over ends on two grids of 81 points: within eight standard deviations, and within (-4, 4). It is None
    if |σ'| is not bounded away from 0 on any of them.
    """
    scale = float(f"{math.sqrt(high):.1e}")  # two digits: the same interval whatever the rounding of G
    kinks = [kink for kink in activation.kinks if abs(kink) < 4]
    ends = np.unique(np.round(np.concatenate([np.linspace(-8, 8, 81) * scale, np.linspace(-4, 4, 81), kinks]), 12))
    # The smallest |σ'| in each cell between neighbouring ends, at points off the ends, where kinks are.
    points = ends[:-1, None] + np.diff(ends)[:, None] * (np.arange(8) + 0.5) / 8
    slopes = np.asarray(activation.derivative(jnp.asarray(points)), float)
    cells = np.where((slopes > 0).all(axis=1) | (slopes < 0).all(axis=1), np.abs(slopes).min(axis=1), 0.0)
    deviations = np.sqrt(np.maximum([low, high], 1e-300))[:, None]  # an input may be 0
    best, chosen = 0.0, None
    for first, left in enumerate(ends[:-1]):
        stop = next((index for index in range(first + 1, ends.size) if ends[index] in kinks), ends.size - 1)
        right = ends[first + 1 : stop + 1]
        slope = np.minimum.accumulate(cells[first:stop])
        mass = np.min(_mass((2 * left + right) / 3, (left + 2 * right) / 3, deviations), axis=0)
        score = slope * (right - left) * mass**1.5
        if score.max(initial=0.0) > best * (1 + 1e-9):
            best, chosen = float(score.max()), (float(left), float(right[np.argmax(score)]))
    return None if chosen is None else activation.interval(*chosen)
