"""Theorems of chen2022: On feature learning in neural networks with global convergence guarantees."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from unlazy.data import random_labels
from unlazy.flows import GradientFlow, Trajectory
from unlazy.networks import Scaling, TwoLayer, mean_field, ntk
from unlazy.theory._base import Finding, Theorem, Verdict


class FeaturesMustMove(Theorem):
    """Eq. 15: (1/m) Σ_j |Δh_j(x)| >= |Δf(x)| / (c L_σ) for every input, whatever the width.

    In the mean-field scaling a function cannot change unless its features move as much; this is what the NTK scaling
    lacks, where the left side vanishes like m^-½.
    """

    source: str = eqx.field(static=True, default="chen2022 eq. 15")
    statement: str = eqx.field(
        static=True, default="In the mean-field scaling features move at least as much as the function does."
    )

    def hypotheses(self, run: Trajectory) -> str | None:
        """Ask for mean-field node scales, one |a_j| = c, one output and a Lipschitz activation."""
        network = run.start
        if not isinstance(network, TwoLayer):
            return f"It speaks of two-layer networks, not of {type(network).__name__}."
        if not np.allclose(network.s * network.width, 1.0, rtol=1e-6):
            return "It needs node scales s_j = 1/m."
        size = np.abs(np.asarray(network.a))
        if network.a.ndim != 1 or network.train_readout or size.min() != size.max():
            return "It needs one output and frozen read-outs a_j = ±c."
        if not np.isfinite(network.activation.lipschitz):
            return f"{type(network.activation).__name__} is not Lipschitz."
        return None

    def conclude(self, run: Trajectory) -> Finding:
        """Compare both sides on every training input."""
        start, final = run.start, run.final
        assert isinstance(start, TwoLayer)
        assert isinstance(final, TwoLayer)
        x = run.data.x
        moved = jnp.mean(jnp.abs(final.hidden(x)["hidden"] - start.hidden(x)["hidden"]), axis=1)
        needed = jnp.abs(final(x) - start(x)) / (jnp.abs(start.a[0]) * start.activation.lipschitz)
        # Both sides are averages of m numbers; their rounding is what may turn an equality around.
        slack = 1e3 * float(jnp.finfo(x.dtype).eps) * float(jnp.max(moved) + jnp.max(needed))
        holds = bool(jnp.all(moved >= needed - slack))
        tightest = float(jnp.min(moved / jnp.maximum(needed, jnp.finfo(x.dtype).tiny)))
        why = f"Features moved at least {tightest:.3g} times as far as the change of f asks for, on every input."
        return Finding(Verdict.HOLDS if holds else Verdict.FAILS, why, {"margin": tightest})

    def example(self) -> Trajectory:
        """A shallow mean-field network on random labels."""
        return _random_labels(mean_field)

    def counterexample(self) -> Trajectory:
        """The same network in the NTK scaling."""
        return _random_labels(ntk)


def _random_labels(scaling: Scaling) -> Trajectory:
    keys = jax.random.split(jax.random.key(0))
    network = TwoLayer(64, 5, scaling=scaling, key=keys[0])
    return GradientFlow(tolerance=1e-4)(network, random_labels(5, 5, key=keys[1]), [50.0])
