"""Bounds on the second layer's pre-activations by the first layer's weights: Lemmas D.1 and E.2."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar

import jax.numpy as jnp
import numpy as np

from unlazy.data import Dataset
from unlazy.flows import Trajectory
from unlazy.networks import Network
from unlazy.papers.aiad2026.theorems._problems import few_points
from unlazy.papers.aiad2026.theorems._setting import AUTHORS, DRIVE, drive, three_layers
from unlazy.papers.aiad2026.theorems.width import is_finite, two_blocks
from unlazy.probes import Probe, TrainedNeurons
from unlazy.theory._base import Finding, Hypothesis, Theorem, Verdict
from unlazy.theory._runs import looked_later
from unlazy.theory.coupling import neurons_of

_PROBES: tuple[Probe, ...] = (DRIVE, TrainedNeurons())


def _parts(run: Trajectory) -> tuple[np.ndarray, np.ndarray, float, np.ndarray]:
    """Channels at the training points, w_1 at every look, sup |φ_1| there, and the mixing matrix."""
    first, second = two_blocks(run.start)
    channels = drive(run)[0][:, : run.data.n]
    features = float(np.max(np.abs(np.asarray(first.column(run.data.x.T), float))))
    return channels, neurons_of(run)["block-1"], features, np.asarray(second.w, float)


def _setting(run: Trajectory) -> Iterator[Hypothesis]:
    finite = is_finite(run.start)
    yield Hypothesis("two blocks of finite width that train their amplitudes", finite)
    if finite:
        yield three_layers(run)
        bias = two_blocks(run.start)[1].b
        yield Hypothesis("no biases in the second block", bias is None or not np.any(np.asarray(bias)))
        yield looked_later(run)


class ForwardLipschitz(Theorem):
    """Lemma D.1: |H_2(W') - H_2(W'')| <= K |L|_∞,1 max_k E|w_1' - w_1''|, between the first look and every other.

    The K in front is the largest |φ_1| on the data. For φ_2(H_2) it comes with the Lipschitz constant of φ_2, which the
    lemma leaves out.
    """

    key: ClassVar[str] = "aiad2026/lemma-d.1"
    source: ClassVar[str] = f"{AUTHORS}, Lemma D.1 (second layer)"
    statement: ClassVar[str] = "Second-layer neurons move no further than the weights below allow."
    feasible: ClassVar[bool] = True

    def needs(self, network: Network, data: Dataset) -> Sequence[Probe]:
        """Channels, and every neuron."""
        return _PROBES if is_finite(network) else ()

    def hypotheses(self, run: Trajectory) -> Iterator[Hypothesis]:
        """The paper's three layers, of finite width."""
        yield from _setting(run)

    def conclude(self, run: Trajectory) -> Finding:
        """Compare both sides at every later look, for every neuron and point."""
        channels, weights, features, mixing = _parts(run)
        activation = two_blocks(run.start)[1].activation
        hidden = channels @ mixing.T  # (times, points, neurons)
        moved = np.max(np.abs(weights - weights[:1]).mean(axis=1), axis=1)[1:]
        allowed = features * np.abs(mixing).sum(axis=1).max() * moved
        seen = np.max(np.abs(hidden - hidden[:1]), axis=(1, 2))[1:]
        values = np.asarray(activation(jnp.asarray(hidden)), float)
        above = np.max(np.abs(values - values[:1]), axis=(1, 2))[1:]
        rounding = 1e3 * float(np.finfo(np.asarray(run.data.x).dtype).eps) * float(np.max(np.abs(hidden)))
        kept = [seen <= allowed + rounding, above <= activation.lipschitz * allowed + rounding]
        margin = float(np.min((allowed + rounding) / np.maximum(seen, 1e-300)))
        numbers = {"largest change of H_2": float(seen.max()), "allowed": float(allowed.max()), "sup |phi_1|": features}
        why = f"H_2 changes by {seen.max():.3g} at most, and {allowed.max():.3g} is allowed."
        return _verdict(bool(np.all(kept)), float(seen.max()) > rounding, why, margin, numbers)

    def example(self) -> Trajectory:
        """24 neurons a block."""
        return few_points(first=24)

    def counterexample(self) -> Trajectory:
        """Features that are trained too."""
        return few_points(first=24, train="wa")


class ForwardBound(Theorem):
    """Lemma E.2: sup |H_2| <= |L|_∞,1 max_k sup |f_k| and sup |f_k| <= K E[sup |w_1|], the suprema being over time.

    K is the largest |φ_1| on the data.
    """

    key: ClassVar[str] = "aiad2026/lemma-e.2"
    source: ClassVar[str] = f"{AUTHORS}, Lemma E.2"
    statement: ClassVar[str] = "Second-layer pre-activations are bounded by mixing entries times first-layer weights."
    feasible: ClassVar[bool] = True

    def needs(self, network: Network, data: Dataset) -> Sequence[Probe]:
        """Channels, and every neuron."""
        return _PROBES if is_finite(network) else ()

    def hypotheses(self, run: Trajectory) -> Iterator[Hypothesis]:
        """The paper's three layers, of finite width."""
        yield from _setting(run)

    def conclude(self, run: Trajectory) -> Finding:
        """Compare all three along the whole run."""
        channels, weights, features, mixing = _parts(run)
        hidden = float(np.max(np.abs(channels @ mixing.T)))
        norm, largest = float(np.abs(mixing).sum(axis=1).max()), np.max(np.abs(channels), axis=(0, 1))
        below = features * np.max(np.abs(weights), axis=0).mean(axis=0)
        slack = 1e3 * float(np.finfo(np.asarray(run.data.x).dtype).eps)
        holds = hidden <= norm * largest.max() * (1 + slack) and bool(np.all(largest <= below * (1 + slack)))
        margin = min(
            norm * float(largest.max()) / max(hidden, 1e-300), float(np.min(below / np.maximum(largest, 1e-300)))
        )
        numbers = {
            "sup |H_2|": hidden,
            "by channels": norm * float(largest.max()),
            "by weights": norm * float(below.max()),
        }
        why = (
            f"|H_2| reaches {hidden:.3g}; channels allow {numbers['by channels']:.3g}, weights "
            f"{numbers['by weights']:.3g}."
        )
        return _verdict(holds, hidden > 0, why, margin + slack, numbers)

    def example(self) -> Trajectory:
        """24 neurons a block."""
        return few_points(first=24)

    def counterexample(self) -> Trajectory:
        """Features that are trained too."""
        return few_points(first=24, train="wa")


def _verdict(holds: bool, says: bool, why: str, margin: float, numbers: dict[str, float]) -> Finding:
    verdict = Verdict.FAILS if not holds else Verdict.HOLDS if says else Verdict.VACUOUS
    return Finding(verdict, why, margin, numbers)
