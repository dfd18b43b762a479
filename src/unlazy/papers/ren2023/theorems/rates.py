"""The convergence rate of ren2023, Lemmas D.20 to D.22, with constants, for a first layer of infinite width.

Let P_j = E[(f* - f) σ'(h_j) (F, 1)] be the pull on (w_2, b_2) of neuron j, and Q = E[(f* - f) |x| mean σ'(h_j) w_j]
that on α. At infinite width L' = -mean|P_j|² - κ Q² with κ = (4 C_Γ/√d) α, which is Lemma D.5 after Lemma B.3.

Take any number a, and let u_j = (-(1 + w_j α + w_j a)/α, 1 - b_j): to first order a change of all (w_j, b_j) by u_j and
of α by a turns h_j into 1 - |x|. The pulls along it are mean P_j·u_j + Q a = E[(f* - f) mean σ'(h_j) (1 - |x| - h_j)].
Where |x| <= 1 and all neurons are active this is (f* - f)²; where |x| > 1, -f (mean σ'(h_j) (1 - |x|) - f) >= f². So
the sum is at least E(f* - f)² = 2 L, and by the inequality of Cauchy and Schwarz

    L' <= -4 L²/D,  D = mean|u_j|² + a²/κ,  or  d/dt (1/L) >= 4/D.

`rate_bound` takes the a for which D is smallest. With equal neurons 4/D is 4 A²/((1 + w̄_2 α)² + A² (1 - b̄_2)²), as in
the proof of Lemma D.21, where A² = α² + κ w̄_2².
"""

from typing import ClassVar

import numpy as np

from unlazy.networks.limits import sphere_mean
from unlazy.papers.ren2023.theorems import problems
from unlazy.papers.ren2023.theorems import setting as s
from unlazy.theory import Example, Finding


def rate_bound(neurons: np.ndarray, alpha: np.ndarray, d: int) -> np.ndarray:
    """Compute the least speed of 1/L at infinite width, 4/D (Lemmas D.20 and D.21), at every time.

    Parameters
    ----------
    neurons
        (w_2, b_2) of every second-layer neuron, of shape (times, neurons, 2).
    alpha
        The slope α, one per time.
    d
        Number of inputs.
    """
    w, b = neurons[..., 0], neurons[..., 1]
    inverse = 1 / (4 * sphere_mean(d) * alpha)  # 1/κ
    miss = 1 + w * alpha[:, None]
    square, both, curve = (np.mean(part, axis=1) / alpha**2 for part in (miss**2, miss * w, w**2))
    least = square - both**2 / (curve + inverse) + np.mean((1 - b) ** 2, axis=1)
    return 4 / np.maximum(least, 1e-300)


def degree_rates(d: int) -> tuple[float, float]:
    """Compute λ_1 and λ_2, the rates at which harmonics of degree 1 and 2 in F/α decay, up to a common factor.

    They are eigenvalues of the kernel of Lemma D.4 on the sphere for neurons spread evenly over directions, per unit of
    E|w_1|²: k(t) = 3 A(t) + t (π - arccos t)/(2π) with A(t) = (√(1 - t²) + (π - arccos t) t)/(2π d). Its odd part is
    linear, so that λ_1 = (1 + 3/d)/(4 d); λ_2 is the mean of k P_2 over a coordinate t, about 1/(π d²).

    Parameters
    ----------
    d
        Number of inputs, at least 2.
    """
    node, share = np.polynomial.legendre.leggauss(256)
    angle = np.pi / 2 * node  # t = sin φ has the density ∝ cos^(d-2) φ in φ
    weight = share * np.cos(angle) ** (d - 2)
    t, turn = np.sin(angle), np.pi / 2 + angle
    kernel = 3 * (np.cos(angle) + turn * t) / (2 * np.pi * d) + t * turn / (2 * np.pi)
    return (1 + 3 / d) / (4 * d), float(weight @ (kernel * (d * t**2 - 1) / (d - 1)) / weight.sum())


def least_rate_ratio(times: np.ndarray, loss: np.ndarray, bound: np.ndarray) -> float:
    """Compute the least ratio of the increase of 1/L between two observations to the integral of its lower bound.

    Parameters
    ----------
    times, loss
        Times, and the loss there.
    bound
        What `rate_bound` gives there; it is integrated by the trapezoidal rule.
    """
    least = np.diff(times) * (bound[1:] + bound[:-1]) / 2
    return float(np.min(np.diff(1 / loss) / least))


class ConvergenceRate(s.OfInfiniteLearner):
    """Lemmas D.20 and D.21: 1/L grows at least at the rate 4/D of `rate_bound`, so L falls at least as 1/t.

    It is exact at infinite width, for any second layer whose neurons are all active on |x| <= 1. Lemma D.22 concludes
    L <= O(d³/t) from α >= Ω(d^-1.5).
    """

    key: ClassVar[str] = "ren2023/lemma-d.21"
    source: ClassVar[str] = f"{s.AUTHORS}, Lemmas D.20 to D.22, with constants"
    statement: ClassVar[str] = "In stage 2 the loss falls at least as fast as 1/t, at an explicit rate."
    example: ClassVar[Example] = Example(problems.infinite_stage)
    counterexample: ClassVar[Example] = Example(problems.infinite_stage, weight=-8.0)  # not active on |x| <= 1
    probes: ClassVar[s.Probes] = s.FIT
    conditions: ClassVar[s.Conditions] = (s.followed, s.radial_target, s.half_squared, *s.UNCLIPPED, s.active)

    def conclude(self, setting: s.Setting) -> Finding:
        second, first, loss = setting.observed(*s.FIT)
        bound = rate_bound(second["neurons"], first["alpha"], setting.d)
        margin = least_rate_ratio(setting.run.times, np.asarray(loss), bound)
        why = f"Between observations 1/L grows by at least {margin:.3g} times the lemmas' lower bound."
        numbers = {"least ratio": margin, "first bound": float(bound[0]), "last bound": float(bound[-1])}
        return Finding.judge(margin >= 1 - setting.error, why, margin, numbers)
