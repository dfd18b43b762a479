"""What spherical symmetry gives: Lemmas 3.1, B.1, B.3 and B.5 of ren2023, each held against the samples at hand.

They are statements about laws. What is checked is whether the draw at hand could come from them: the largest of all
deviations, in standard errors, against what chance allows with probability 1 - δ.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, TypeVar

import equinox as eqx
import numpy as np
from scipy import stats

from unlazy.data import Dataset
from unlazy.flows import Trajectory
from unlazy.networks import Network, sphere_mean
from unlazy.papers.ren2023.radial import radial_cdf
from unlazy.papers.ren2023.theorems._setting import (
    AUTHORS,
    Finite,
    Setting,
    at_start,
    even,
    finite_model,
    model,
    plain_inputs,
    symmetric,
)
from unlazy.probes import Probe
from unlazy.theory._base import Finding, Reading, Theorem, Verdict
from unlazy.theory._runs import probability

S = TypeVar("S", bound=Setting)


def _judge(deviation: np.ndarray, error: np.ndarray, scale: float, delta: float, what: str) -> Finding:
    """Compare deviations with standard errors; the bound is vacuous where errors are as large as what is measured."""
    z = float(np.max(np.abs(deviation) / np.maximum(error, 1e-300)))
    allowed = float(stats.norm.isf(delta / (2 * deviation.size)))
    largest = float(np.max(np.abs(deviation)))
    why = f"{what} is off by {largest:.2g} at most, {z:.2f} standard errors; chance allows {allowed:.2f}."
    verdict = Verdict.HOLDS if z <= allowed else Verdict.FAILS
    if verdict is Verdict.HOLDS and allowed * float(np.max(error)) > scale:
        verdict, why = Verdict.VACUOUS, why + f" That is as large as what is measured, {scale:.2g}."
    numbers = {"largest deviation": largest, "in standard errors": z, "allowed": allowed, "measured": scale}
    return Finding(verdict, why, allowed / max(z, 1e-300), numbers)


class _OfLaws(Theorem[S]):
    """A statement about laws, which a draw from them meets with probability 1 - ``delta``."""

    delta: float = eqx.field(static=True, default=0.01)

    def __check_init__(self) -> None:
        probability(self.delta)

    def needs(self, network: Network, data: Dataset) -> Sequence[Probe]:
        """Nothing along the run."""
        return []

    def example(self) -> Trajectory:
        """2000 inputs of the paper's law, 400 neurons on a sphere."""
        return at_start()


def _samples(run: Trajectory, setting: S | None) -> Reading[S | None]:
    """Independent inputs without a preferred direction, and the paper's target."""
    plain = plain_inputs(run)
    yield plain
    if setting is not None and plain.met:
        yield from symmetric(run)
    return setting


class EvenFeatures(_OfLaws[Finite]):
    """Lemma 3.1: E|w| σ(w·x) = C_Γ/√d E|w|² |x| for a spherically symmetric law of w.

    On a finite first layer F/α - |x| has the standard error of a mean over neurons; it is checked in the directions of
    up to 200 inputs.
    """

    key: ClassVar[str] = "ren2023/lemma-3.1"
    source: ClassVar[str] = f"{AUTHORS}, Lemma 3.1"
    statement: ClassVar[str] = "Neurons spread evenly over directions compute a multiple of |x|."

    def read(self, run: Trajectory) -> Reading[Finite | None]:
        """A finite learner whose neurons prefer no direction."""
        setting = yield from finite_model(run)
        if setting is not None:
            yield even(np.asarray(setting.first.w, float), "first-layer neurons")
        return setting

    def conclude(self, setting: Finite) -> Finding:
        """Compare F/α with 1 on the sphere."""
        w, (x, r, _) = np.asarray(setting.first.w, float), setting.inputs
        u = (x / np.where(r > 0, r, 1)[:, None])[:200]
        square = np.sum(w**2, axis=1)
        # Each neuron's part of F/α; the mean of |w|² is known, so it counts as given.
        part = np.sqrt(square)[:, None] * np.maximum(w @ u.T, 0) / (sphere_mean(w.shape[1]) * square.mean())
        error = part.std(axis=0, ddof=1) / np.sqrt(len(w))
        return _judge(part.mean(axis=0) - 1, error, 1.0, self.delta, "F/(α |x|)")

    def counterexample(self) -> Trajectory:
        """Neurons that all point one way."""
        return at_start(even_features=False)


class RadialDensity(_OfLaws[Setting]):
    """Lemma B.1: |x| has the density (d/r) J_{d/2}(c r)², and P(|x| >= R) = O(1/R).

    ``scale`` is the paper's αβ. Checked by the test of Kolmogorov and Smirnov at level δ.
    """

    key: ClassVar[str] = "ren2023/lemma-b.1"
    source: ClassVar[str] = f"{AUTHORS}, Lemma B.1"
    statement: ClassVar[str] = "The radius of the inputs has the density (d/r) J²(c r) with ν = d/2."
    scale: float = eqx.field(static=True, default=1.0)

    def read(self, run: Trajectory) -> Reading[Setting | None]:
        """Independent inputs without a preferred direction, and the paper's target."""
        return (yield from _samples(run, (yield from model(run))))

    def conclude(self, setting: Setting) -> Finding:
        """Compare distribution functions."""
        x, r, _ = setting.inputs
        apart = float(stats.kstest(r, lambda radius: radial_cdf(radius, x.shape[1], self.scale)).statistic)
        allowed = float(stats.kstwobign.isf(self.delta) / np.sqrt(r.size))
        tail = float(np.max(np.sort(r)[::-1] * np.arange(1, r.size + 1) / r.size))
        numbers = {"distance": apart, "allowed": allowed, "largest R P(|x| >= R)": tail}
        why = f"Distribution functions are {apart:.3g} apart at most; chance allows {allowed:.3g} for n = {r.size}."
        return Finding(Verdict.HOLDS if apart <= allowed else Verdict.FAILS, why, allowed / max(apart, 1e-300), numbers)

    def counterexample(self) -> Trajectory:
        """Gaussian inputs."""
        return at_start(law="gaussian")


class _OnSamples(_OfLaws[Finite]):
    """Lemmas B.3 and B.5 with g = f*, which has bounded support, so that all errors are finite."""

    def read(self, run: Trajectory) -> Reading[Finite | None]:
        """Symmetric inputs, and g a function of |x|."""
        return (yield from _samples(run, (yield from finite_model(run))))

    def counterexample(self) -> Trajectory:
        """A target that depends on two coordinates only."""
        return at_start(law="subspace")


class ScalarSymmetry(_OnSamples):
    """Lemma B.3: E[g σ(v·x)] = C_Γ/√d E[g |x|] |v| for a function g of |x| and any v; here g = f*, v all neurons."""

    key: ClassVar[str] = "ren2023/lemma-b.3"
    source: ClassVar[str] = f"{AUTHORS}, Lemma B.3"
    statement: ClassVar[str] = "Against functions of |x| a neuron σ(v·x) is a multiple of |v| |x|."

    def conclude(self, setting: Finite) -> Finding:
        """Compare both sides for every first-layer neuron, sample by sample."""
        v, (x, r, g) = np.asarray(setting.first.w, float), setting.inputs
        unit = v / np.linalg.norm(v, axis=1, keepdims=True)
        ideal = sphere_mean(x.shape[1]) * g * r
        each = g[:, None] * np.maximum(x @ unit.T, 0) - ideal[:, None]
        error = each.std(axis=0, ddof=1) / np.sqrt(len(x))
        return _judge(each.mean(axis=0), error, float(ideal.mean()), self.delta, "E[g σ(v̄·x)]")


class VectorSymmetry(_OnSamples):
    """Lemma B.5: E[g σ'(v·x) x] = E[g |x|] C_Γ/√d v̄ for a function g of |x| and any v; here g = f*, v all neurons."""

    key: ClassVar[str] = "ren2023/lemma-b.5"
    source: ClassVar[str] = f"{AUTHORS}, Lemma B.5"
    statement: ClassVar[str] = "Against functions of |x| a neuron's gradient points along the neuron."

    def conclude(self, setting: Finite) -> Finding:
        """Compare both sides for every neuron and coordinate."""
        v, (x, r, g) = np.asarray(setting.first.w, float), setting.inputs
        unit = v / np.linalg.norm(v, axis=1, keepdims=True)
        ideal, n = sphere_mean(x.shape[1]) * g * r, len(x)
        gate = (x @ unit.T > 0).astype(float)
        # Each sample adds a = g σ' x - ideal v̄; its first two moments are matrix products over samples.
        first = gate.T @ (g[:, None] * x) / n
        crossed = gate.T @ ((g * ideal)[:, None] * x) / n
        squared = gate.T @ ((g**2)[:, None] * x**2) / n - 2 * crossed * unit + np.mean(ideal**2) * unit**2
        mean = first - ideal.mean() * unit
        error = np.sqrt(np.maximum(squared - mean**2, 0) / (n - 1))
        return _judge(mean, error, float(ideal.mean()), self.delta, "E[g σ'(v̄·x) x]")
