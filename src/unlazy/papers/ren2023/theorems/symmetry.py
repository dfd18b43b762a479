"""What spherical symmetry implies: Lemmas 3.1, B.1 to B.3 and B.5 of ren2023, each compared with samples.

They are statements about laws. Each check asks whether a draw could come from such a law: it compares the largest
deviation, in standard errors, with the one that a draw stays below with probability 1 - δ. Options:

- ``scale``: The paper's αβ.
"""

import dataclasses
from collections.abc import Iterator
from typing import ClassVar

import equinox as eqx
import numpy as np
from scipy import stats

from unlazy.networks.limits import sphere_mean
from unlazy.papers.ren2023.radial import radial_cdf, truncated_mean_bounds, truncated_moment
from unlazy.papers.ren2023.theorems import problems
from unlazy.papers.ren2023.theorems import setting as s
from unlazy.theory import Example, Finding, Hypothesis, Verdict, WithProbability


def within_chance(
    what: str, deviation: np.ndarray, error: np.ndarray, delta: float, scale: float, scale_name: str = "measured"
) -> Finding:
    """Check that no deviation, in standard errors, is larger than chance allows.

    Parameters
    ----------
    what
        The quantity, for the text of the finding.
    deviation, error
        Its deviations, and their standard errors.
    delta
        Failure probability of all comparisons together.
    scale, scale_name
        The size of the quantity, and its name in `Finding.numbers`. Where errors exceed it the finding is vacuous.
    """
    z = float(np.max(np.abs(deviation) / np.maximum(error, 1e-300)))
    allowed = float(stats.norm.isf(delta / (2 * deviation.size)))
    largest = float(np.max(np.abs(deviation)))
    numbers = {"largest deviation": largest, "in standard errors": z, "allowed": allowed, scale_name: scale}
    why = f"{what}: off by {largest:.2g} at most, {z:.2f} standard errors; chance allows {allowed:.2f}."
    weak, large = allowed * float(np.max(error)) > scale, f"That is as large as the quantity itself, {scale:.2g}."
    return Finding.judge(z <= allowed, why, allowed / max(z, 1e-300), numbers, vacuous=weak, if_vacuous=large)


def _mean(each: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the means of all columns, and their standard errors."""
    return each.mean(axis=0), each.std(axis=0, ddof=1) / np.sqrt(len(each))


class _OfLaws(s.OfLearner, WithProbability[s.Setting]):
    """A statement about laws, which a draw from them satisfies with probability 1 - δ."""

    example: ClassVar[Example] = Example(problems.at_start)
    delta: float = eqx.field(static=True, default=0.01)


def _even_neurons(setting: s.Setting) -> Iterator[Hypothesis]:
    yield s.no_preferred_direction(setting.weights, "first-layer neurons")


class EvenFeatures(_OfLaws, s.OfFiniteLearner):
    """Lemma 3.1: E|w| σ(w·x) = C_Γ/√d E|w|² |x| for a spherically symmetric law of w.

    For a finite first layer F/α - |x| has the standard error of a mean over neurons; it is checked in the directions
    of up to 200 inputs.
    """

    key: ClassVar[str] = "ren2023/lemma-3.1"
    source: ClassVar[str] = f"{s.AUTHORS}, Lemma 3.1"
    statement: ClassVar[str] = "Neurons spread evenly over directions compute a multiple of |x|."
    counterexample: ClassVar[Example] = Example(problems.at_start, even_features=False)
    conditions: ClassVar[s.Conditions] = (_even_neurons,)

    def conclude(self, setting: s.Setting) -> Finding:
        w, (x, r, _) = setting.weights, setting.inputs
        u = (x / np.where(r > 0, r, 1)[:, None])[:200]
        square = np.sum(w**2, axis=1)
        # The contribution of each neuron to F/α; the mean of |w|² is taken as given.
        part = np.sqrt(square)[:, None] * np.maximum(w @ u.T, 0) / (sphere_mean(w.shape[1]) * square.mean())
        mean, error = _mean(part)
        return within_chance("F/(α |x|)", mean - 1, error, self.delta, 1.0)


class _OfRadius(_OfLaws):
    """A statement about the law of |x|."""

    counterexample: ClassVar[Example] = Example(problems.at_start, law="gaussian")
    conditions: ClassVar[s.Conditions] = (s.symmetric_draws,)
    scale: float = eqx.field(static=True, default=1.0)


class RadialDensity(_OfRadius):
    """Lemma B.1: |x| has the density (d/r) J_{d/2}(c r)², and P(|x| >= R) = O(1/R).

    It is checked by a Kolmogorov-Smirnov test at level δ.
    """

    key: ClassVar[str] = "ren2023/lemma-b.1"
    source: ClassVar[str] = f"{s.AUTHORS}, Lemma B.1"
    statement: ClassVar[str] = "The radius of the inputs has the density (d/r) J²(c r) with ν = d/2."

    def conclude(self, setting: s.Setting) -> Finding:
        x, r, _ = setting.inputs
        apart = float(stats.kstest(r, lambda radius: radial_cdf(radius, x.shape[1], self.scale)).statistic)
        allowed = float(stats.kstwobign.isf(self.delta) / np.sqrt(r.size))
        tail = float(np.max(np.sort(r)[::-1] * np.arange(1, r.size + 1) / r.size))
        numbers = {"distance": apart, "allowed": allowed, "largest R P(|x| >= R)": tail}
        why = f"Distribution functions differ by {apart:.3g} at most; chance allows {allowed:.3g} for n = {r.size}."
        return Finding.judge(apart <= allowed, why, allowed / max(apart, 1e-300), numbers)


class RadialMoments(_OfRadius):
    """Lemma B.2: E[|x|; |x| <= 0.99] and E f* are of order 1, and E[|x|; |x| <= d] of order log d.

    With P = P(0.1 <= |x| <= 0.99) the constants are, from its proof, (a) 0.1 P <= E[|x|; |x| <= 0.99] <= 0.99 and
    (b) E f* >= 0.01 P, and for (c) those of `truncated_mean_bounds`. The integrals must satisfy them, and the means of
    the data must agree with the integrals up to chance, at level δ.
    """

    key: ClassVar[str] = "ren2023/lemma-b.2"
    source: ClassVar[str] = f"{s.AUTHORS}, Lemma B.2, with constants"
    statement: ClassVar[str] = "The law of inputs has mass inside the unit ball, and a mean that diverges like log R."

    def conclude(self, setting: s.Setting) -> Finding:
        """Compare integrals with bounds, and means of the data with integrals."""
        x, r, y = setting.inputs
        d, scale = x.shape[1], self.scale
        zero, one = (truncated_moment(power, 1.0, d, scale) for power in (0, 1))
        exact = np.array([truncated_moment(1, 0.99, d, scale), zero - one, truncated_moment(1, float(d), d, scale)])
        mean, error = _mean(np.stack([np.where(r <= 0.99, r, 0), y, np.where(r <= d, r, 0)]).T)
        found = within_chance("Means of three functions of |x|", mean - exact, error, self.delta, float(exact.min()))
        middle = float(np.diff(radial_cdf([0.1, 0.99], d, scale))[0])
        low, high = truncated_mean_bounds(float(d), d, scale)
        near, target, far = (float(one) for one in exact)
        ratios = {
            "(a) over its lower bound": near / (0.1 * middle),
            "(a) below 0.99": 0.99 / near,
            "(b) over its bound": target / (0.01 * middle),
            "(c) over its lower bound": far / max(low, 1e-300),
            "(c) below its upper bound": high / far,
        }
        margin = min(*ratios.values(), found.margin or 0.0)
        verdict = found.verdict if min(ratios.values()) >= 1 else Verdict.FAILS
        named = dict(zip(("E[|x|; 0.99]", "E f*", "E[|x|; d]"), exact.tolist(), strict=True))
        return dataclasses.replace(found, verdict=verdict, margin=margin, numbers=found.numbers | ratios | named)


class _OnSamples(_OfLaws, s.OfFiniteLearner):
    """Lemmas B.3 to B.5 with g = f*, which has bounded support, so that all standard errors are finite."""

    counterexample: ClassVar[Example] = Example(problems.at_start, law="subspace")
    conditions: ClassVar[s.Conditions] = (s.symmetric_draws,)


def _sides(setting: s.Setting) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return v̄ of all neurons, x, g(x) = f*(x), and C_Γ/√d g |x| of all samples."""
    v, (x, r, g) = setting.weights, setting.inputs
    return v / np.linalg.norm(v, axis=1, keepdims=True), x, g, sphere_mean(x.shape[1]) * g * r


class ScalarSymmetry(_OnSamples):
    """Lemma B.3: E[g σ(v·x)] = C_Γ/√d E[g |x|] |v| for a function g of |x| and any v; here g = f*, v all neurons."""

    key: ClassVar[str] = "ren2023/lemma-b.3"
    source: ClassVar[str] = f"{s.AUTHORS}, Lemma B.3"
    statement: ClassVar[str] = "Tested against functions of |x|, a neuron σ(v·x) is a multiple of |v| |x|."

    def conclude(self, setting: s.Setting) -> Finding:
        unit, x, g, ideal = _sides(setting)
        each = g[:, None] * np.maximum(x @ unit.T, 0) - ideal[:, None]
        return within_chance("E[g σ(v̄·x)]", *_mean(each), self.delta, float(ideal.mean()))


class FeatureSymmetry(_OnSamples):
    """Corollary B.4: E[g F] = α E[g |x|] for a function g of |x|; here g = f*."""

    key: ClassVar[str] = "ren2023/corollary-b.4"
    source: ClassVar[str] = f"{s.AUTHORS}, Corollary B.4"
    statement: ClassVar[str] = "Tested against functions of |x|, the first layer is α |x| whatever its neurons."

    def conclude(self, setting: s.Setting) -> Finding:
        w, (x, r, g) = setting.weights, setting.inputs
        length = np.linalg.norm(w, axis=1)
        value, alpha = np.maximum(x @ w.T, 0) @ length / len(w), sphere_mean(x.shape[1]) * np.mean(length**2)
        each = g * (value - alpha * r)
        return within_chance("E[g F]", *_mean(each[:, None]), self.delta, float(np.mean(g * alpha * r)))


class VectorSymmetry(_OnSamples):
    """Lemma B.5: E[g σ'(v·x) x] = E[g |x|] C_Γ/√d v̄ for a function g of |x| and any v; here g = f*, v all neurons."""

    key: ClassVar[str] = "ren2023/lemma-b.5"
    source: ClassVar[str] = f"{s.AUTHORS}, Lemma B.5"
    statement: ClassVar[str] = "Averaged against functions of |x|, a neuron's gradient points along the neuron."

    def conclude(self, setting: s.Setting) -> Finding:
        unit, x, g, ideal = _sides(setting)
        gate, n = (x @ unit.T > 0).astype(float), len(x)
        # Each sample contributes g σ' x - ideal v̄; the first two moments are matrix products over samples.
        first = gate.T @ (g[:, None] * x) / n
        crossed = gate.T @ ((g * ideal)[:, None] * x) / n
        squared = gate.T @ ((g**2)[:, None] * x**2) / n - 2 * crossed * unit + np.mean(ideal**2) * unit**2
        mean = first - ideal.mean() * unit
        error = np.sqrt(np.maximum(squared - mean**2, 0) / (n - 1))
        return within_chance("E[g σ'(v̄·x) x]", mean, error, self.delta, float(ideal.mean()))
