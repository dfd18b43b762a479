"""Features must move: what chen2022 says of the mean-field scaling before any convergence."""

from __future__ import annotations

from typing import ClassVar, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from unlazy.flows import Trajectory
from unlazy.networks import TwoLayer, ntk
from unlazy.papers.chen2022.theorems._setting import AUTHORS, lipschitz, one_size, small_inputs, two_layers
from unlazy.theory._base import Finding, Hypothesis, Reading, Verdict
from unlazy.theory._runs import AtEnds


class Ends(NamedTuple):
    """Training inputs, and the networks at both ends of a run."""

    x: Array
    start: TwoLayer
    final: TwoLayer


class FeaturesMustMove(AtEnds[Ends]):
    """Eq. 15: (1/m) Σ_j |Δh_j(x)| >= |Δf(x)| / (c L_σ) for every input, whatever the width.

    In the mean-field scaling a function cannot change unless its features move as much; this is what the NTK scaling
    lacks, where the left side vanishes like m^-½.
    """

    key: ClassVar[str] = "chen2022/eq-15"
    source: ClassVar[str] = f"{AUTHORS}, eq. 15"
    statement: ClassVar[str] = "In the mean-field scaling features move at least as much as the function does."

    def read(self, run: Trajectory) -> Reading[Ends | None]:
        """Mean-field node scales, one |a_j| = c, one output and a Lipschitz activation."""
        start = yield from two_layers(run.start)
        if start is None:
            return None
        final, scales = run.final, np.asarray(start.s, float)
        one_over_m = bool(np.allclose(scales * start.width, 1.0, rtol=1e-6))
        yield Hypothesis("node scales s_j = 1/m", one_over_m, float(scales.max()), 1 / start.width)
        yield one_size(start)
        yield lipschitz(start.activation)
        return Ends(run.data.x, start, final) if isinstance(final, TwoLayer) else None

    def conclude(self, setting: Ends) -> Finding:
        """Compare both sides on every training input."""
        x, start, final = setting
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
