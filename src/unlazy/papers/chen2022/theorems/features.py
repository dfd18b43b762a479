"""Features must move: what chen2022 says of the mean-field scaling before any convergence."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar

import jax.numpy as jnp
import numpy as np

from unlazy.data import Dataset
from unlazy.flows import Trajectory
from unlazy.networks import Network, TwoLayer, ntk
from unlazy.papers.chen2022.theorems._problems import small_inputs
from unlazy.papers.chen2022.theorems._setting import AUTHORS, one_size
from unlazy.probes import Probe
from unlazy.theory._base import Finding, Hypothesis, Theorem, Verdict


class FeaturesMustMove(Theorem):
    """Eq. 15: (1/m) Σ_j |Δh_j(x)| >= |Δf(x)| / (c L_σ) for every input, whatever the width.

    In the mean-field scaling a function cannot change unless its features move as much; this is what the NTK scaling
    lacks, where the left side vanishes like m^-½.
    """

    key: ClassVar[str] = "chen2022/eq-15"
    source: ClassVar[str] = f"{AUTHORS}, eq. 15"
    statement: ClassVar[str] = "In the mean-field scaling features move at least as much as the function does."
    feasible: ClassVar[bool] = True

    def needs(self, network: Network, data: Dataset) -> Sequence[Probe]:
        """Both ends of the run are enough."""
        return []

    def hypotheses(self, run: Trajectory) -> Iterator[Hypothesis]:
        """Ask for mean-field node scales, one |a_j| = c, one output and a Lipschitz activation."""
        network = run.start
        two_layers = isinstance(network, TwoLayer)
        yield Hypothesis("a two-layer network: a trained layer on an embedding", two_layers)
        if not two_layers:
            return
        scales = np.asarray(network.s, float)
        one_over_m = np.allclose(scales * network.width, 1.0, rtol=1e-6)
        yield Hypothesis("node scales s_j = 1/m", one_over_m, float(scales.max()), 1 / network.width)
        yield one_size(network)
        yield Hypothesis("a Lipschitz activation", np.isfinite(network.activation.lipschitz))

    def conclude(self, run: Trajectory) -> Finding:
        """Compare both sides on every training input."""
        start, final = run.start, run.final
        assert isinstance(start, TwoLayer)
        assert isinstance(final, TwoLayer)
        x = run.data.x
        moved = jnp.mean(jnp.abs(final.features(x)[1] - start.features(x)[1]), axis=1)
        needed = jnp.abs(final(x) - start(x)) / (jnp.abs(start.a[0]) * start.activation.lipschitz)
        # Both sides are averages of m numbers; their rounding is what may turn an equality around.
        slack = 1e3 * float(jnp.finfo(x.dtype).eps) * float(jnp.max(moved) + jnp.max(needed))
        numbers = {"largest change of f": float(jnp.max(jnp.abs(final(x) - start(x)))), "c": float(jnp.abs(start.a[0]))}
        changed = np.asarray(needed > slack)
        if not changed.any():
            why = "The function did not change, so nothing is asked of features."
            return Finding(Verdict.VACUOUS, why, None, numbers)
        holds = bool(jnp.all(moved >= needed - slack))
        tightest = float(np.min(np.asarray(moved)[changed] / np.asarray(needed)[changed]))
        why = f"Features moved at least {tightest:.3g} times as far as the change of f asks for, on every input."
        return Finding(Verdict.HOLDS if holds else Verdict.FAILS, why, tightest, numbers)

    def example(self) -> Trajectory:
        """A shallow mean-field network."""
        return small_inputs(self)

    def counterexample(self) -> Trajectory:
        """The same network in the NTK scaling."""
        return small_inputs(self, scaling=ntk)
