"""The parameters at initialisation: Lemma 1 and Proposition 3 of zhou2023, with the constants that they leave open.

Proposition 3 uses Bernstein's inequality (its Theorem 2) with an absolute constant C_0 that is not given. For i.i.d.
X_k with |X|_ψ1 = K (Definition 4), C_0 = e²/128 is valid: |EX| ≤ K log 2 by Jensen's inequality, so Y = X - EX has
E e^(|Y|/K) ≤ 4. As z² e^(-z/2) ≤ 16 e^-2, E[Y² e^(|Y|/2K)] ≤ 64 e^-2 K², and log E e^(sY) ≤ 32 e^-2 K² s² for
|s| ≤ 1/(2K). Chernoff's bound at the smaller of s = e² η / (64 K²) and 1/(2K) gives e²/128 (η/K)² and η/(4K).
"""

import math
from typing import ClassVar

import equinox as eqx
import jax
import numpy as np
from scipy.special import ndtr

from unlazy._errors import UserError
from unlazy.flows import GradientFlow, Trajectory
from unlazy.networks import ConvNet
from unlazy.papers.zhou2023.theorems.setting import AUTHORS, one_size, read_form, six_images
from unlazy.papers.zhou2023.theorems.structure import TwoLayerForm
from unlazy.theory import Example, Finding, Hypothesis, Reading, WithProbability, require
from unlazy.theory.hypotheses import gaussian_start

BERNSTEIN = math.e**2 / 128  # C_0, as derived above


def chi_square_norm(freedom: int) -> float:
    """Compute |X|_ψ1 of X ~ χ²(d): E e^(X/s) = (1 - 2/s)^(-d/2) is 2 at s = 2 / (1 - 2^(-2/d)) (Remark 6).

    It is 8/3 for d = 1 and grows like d / log 2; the remark's upper bound 3 is true for d = 1 only.

    Parameters
    ----------
    freedom
        Degrees of freedom d.
    """
    if freedom < 1:
        raise UserError(f"A χ² distribution has at least one degree of freedom, not {freedom}.")
    return 2 / (1 - 2 ** (-2 / freedom))


def bernstein(deviation: float, norm: float, count: int, constant: float = BERNSTEIN) -> float:
    """Bound P(|mean - EX| ≥ η) of n i.i.d. X by 2 exp(-C_0 n min(η²/K², η/K)), at most 1 (Theorem 2).

    Parameters
    ----------
    deviation
        η.
    norm
        K = |X|_ψ1.
    count
        n.
    constant
        C_0.
    """
    ratio = deviation / norm
    return min(1.0, 2 * math.exp(-constant * count * min(ratio**2, ratio)))


Start = tuple[TwoLayerForm, float]  # a network at its start, and ε


def small_start(channels: int, *, scale: float | None = 1e-6) -> Trajectory:
    """Draw a network with this number of ``channels`` and kernels of 3 x 3 pixels for six images, without training it.

    ``scale`` is the standard deviation of all weights; None for those of the paper's experiments, which differ between
    layers.
    """
    network = ConvNet((channels,), 3, image=(1, 6, 6), scale=scale, rescaled=True, key=jax.random.key(1))
    return GradientFlow()(network, six_images(), [0.0], [])


def _read(run: Trajectory) -> Reading[Start]:
    """Require the paper's network, with all parameters from N(0, ε²)."""
    form = yield from read_form(run)
    alike, epsilon = one_size(form)
    yield from require(alike)
    yield from gaussian_start(np.concatenate([form.weights, form.readouts], axis=1) / epsilon, "channels")
    return form, epsilon


class LargestParameter(WithProbability[Start]):
    """Lemma 1 (eq. 49), and eq. 53 that follows: no parameter is larger than √(2 log(2N/δ)) ε, N being their number."""

    key: ClassVar[str] = "zhou2023/lemma-1"
    source: ClassVar[str] = f"{AUTHORS}, Lemma 1 (eq. 49) and eq. 53"
    statement: ClassVar[str] = "At the start no parameter exceeds ε √(2 log(2N/δ)), with probability 1 - δ."
    example: ClassVar[Example] = Example(small_start, 32)
    counterexample: ClassVar[Example] = Example(small_start, 32, scale=None)  # two sizes

    def read(self, run: Trajectory) -> Reading[Start]:
        return _read(run)

    def conclude(self, setting: Start) -> Finding:
        form, epsilon = setting
        every = np.concatenate([form.weights, form.readouts], axis=1) / epsilon
        bound = math.sqrt(2 * math.log(2 * every.size / self.delta))
        largest, energy = float(np.abs(every).max()), float(np.linalg.norm(every, axis=1).max())
        energy_bound = bound * math.sqrt(every.shape[1])
        tail = 2 * float(ndtr(-bound))
        numbers = {
            "largest / ε": largest,
            "its bound": bound,
            "φ(0) / ε": energy,
            "its bound (eq. 53)": energy_bound,
            "parameters": float(every.size),
            "exact failure probability": -math.expm1(every.size * math.log1p(-tail)),
        }
        why = (
            f"The largest of {every.size} parameters is {largest:.3g} ε, and its bound, with probability "
            f"{1 - self.delta:g}, {bound:.3g} ε; the largest energy of a channel is {energy:.3g} ε, and its bound "
            f"{energy_bound:.3g} ε."
        )
        margin = min(bound / largest, energy_bound / energy)
        return Finding.judge(margin >= 1, why, margin, numbers)


class LengthOfWeights(WithProbability[Start]):
    """Proposition 3 (eq. 51): |θ_W|² at the start is between ½ and 3/2 of its mean, if there are enough channels.

    The condition on M is that of the proof, M ≥ 4 C_ψ,1² / (C_0 d) log(2/δ) with C_ψ,1 = 8/3 (`chi_square_norm`) and
    d = C_0 m² + 1 input weights of a channel.

    Parameters
    ----------
    constant
        Bernstein's constant C_0; the default is derived in this module.
    """

    key: ClassVar[str] = "zhou2023/proposition-3"
    source: ClassVar[str] = f"{AUTHORS}, Proposition 3 (eq. 51), with a constant for its Theorem 2"
    statement: ClassVar[str] = "For M = Ω(log 2/δ) channels |θ_W|² at the start is between ½ and 3/2 of its mean."
    example: ClassVar[Example] = Example(small_start, 200)
    counterexample: ClassVar[Example] = Example(small_start, 32)  # too few channels
    constant: float = eqx.field(static=True, default=BERNSTEIN)

    def read(self, run: Trajectory) -> Reading[Start]:
        form, epsilon = yield from _read(run)
        m, d = form.weights.shape
        needed = 4 * chi_square_norm(1) ** 2 / (self.constant * d) * math.log(2 / self.delta)
        yield Hypothesis("channels M", m >= needed, m, needed)
        return form, epsilon

    def conclude(self, setting: Start) -> Finding:
        form, epsilon = setting
        size = form.weights.size
        share = float(np.sum(form.weights**2)) / (size * epsilon**2)
        numbers = {
            "|θ_W|² over its mean": share,
            "Bernstein's bound of the failure probability": bernstein(0.5, chi_square_norm(1), size, self.constant),
            "standard deviation": math.sqrt(2 / size),
        }
        why = f"|θ_W|² of {size} parameters is {share:.4g} times its mean; a factor from ½ to 3/2 is guaranteed."
        margin = math.sqrt(min(share / 0.5, 1.5 / share))
        return Finding.judge(margin >= 1, why, margin, numbers)
