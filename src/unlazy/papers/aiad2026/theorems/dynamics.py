"""How channels move: eq. 10, and its closed form on finitely many points, eq. 16."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar

import equinox as eqx
import jax
import numpy as np

from unlazy.data import Dataset
from unlazy.flows import Trajectory, velocity
from unlazy.networks import Block, MeanFieldStack, Network, Samples, split_trained
from unlazy.papers.aiad2026.theorems._problems import few_points
from unlazy.papers.aiad2026.theorems._setting import (
    AUTHORS,
    DRIVE,
    drive,
    driven,
    feature_kernel,
    first_block,
    forces,
    from_start,
    integrated,
    is_driven,
    points,
    precision,
    shares,
)
from unlazy.probes import Probe
from unlazy.theory._base import Finding, Hypothesis, Theorem, Verdict, through
from unlazy.theory._runs import gradient_flow

_COARSE = 1e-3  # an integral over time that is known no better, as a share of what moved, says nothing


class ChannelsMove(Theorem):
    """Eq. 10: ∂_t f_k(x) = -Σ_p π_p d_p B_k(x_p) K_μ0(x, x_p), at both ends of the run.

    The left side is the velocity of all parameters, pushed forward to the channels; the right side needs no parameter
    of the first block. It holds at any depth, width and loss, with the signals B_k that are right there.
    """

    key: ClassVar[str] = "aiad2026/eq-10"
    source: ClassVar[str] = f"{AUTHORS}, eq. 10"
    statement: ClassVar[str] = "Channels move by kernel bumps on the data, as high as residual times signal."
    feasible: ClassVar[bool] = True

    def needs(self, network: Network, data: Dataset) -> Sequence[Probe]:
        """Nothing along the run."""
        return []

    def hypotheses(self, run: Trajectory) -> Iterator[Hypothesis]:
        """Fixed features in the first block."""
        yield driven(run)

    def conclude(self, run: Trajectory) -> Finding:
        """Compare both sides at the start and at the end."""
        x, off, size = points(run), 0.0, 0.0
        for network in (run.start, run.final):
            moved, wanted = channel_speed(network, run), -_spread(network, x, run)
            off = max(off, float(np.max(np.abs(moved - wanted))))
            size = max(size, float(np.max(np.abs(wanted))))
        # Sums over neurons and points; and an infinite block is moved by features that are roots of its kernel.
        kernel = np.linalg.eigvalsh(feature_kernel(run.start, x, x))
        spread = 1.0 if isinstance(first_block(run.start), Block) else kernel[-1] / max(kernel[0], 1e-12 * kernel[-1])
        slack = 1e3 * float(np.finfo(np.asarray(run.data.x).dtype).eps) * size * spread
        numbers = {"largest difference": off, "largest speed": size, "slack": slack}
        why = f"Channels move at up to {size:.3g}, and both sides agree to {off:.2g}."
        verdict = Verdict.FAILS if off > slack else Verdict.HOLDS if size > 0 else Verdict.VACUOUS
        return Finding(verdict, why, slack / max(off, slack * 1e-9, 1e-300), numbers)

    def example(self) -> Trajectory:
        """An infinitely wide first block."""
        return few_points()

    def counterexample(self) -> Trajectory:
        """Features that are trained too."""
        return few_points(first=24, train="wa")


def channel_speed(network: Network, run: Trajectory) -> np.ndarray:
    """∂_t f_k at all points of the run's data, by moving every parameter as the flow does: (points, D)."""
    there, x, x_test = network.prepare(run.data)
    trained, frozen = split_trained(there)

    def look(leaves: MeanFieldStack) -> list[jax.Array]:
        now = eqx.combine(leaves, frozen)
        assert isinstance(now, MeanFieldStack)
        return [now.channels(part)[0] for part in (x, x_test) if part is not None]

    speed = velocity(trained, frozen, Samples(x, run.data.y, run.data.weight), run.loss)
    return np.concatenate([np.asarray(part, float) for part in jax.jvp(look, (trained,), (speed,))[1]])


def _spread(network: Network, x: np.ndarray, run: Trajectory) -> np.ndarray:
    """Σ_p π_p d_p B_k(x_p) K(x, x_p)."""
    assert isinstance(network, MeanFieldStack)
    signals = network.signals(run.data.x)[0]
    slope = run.loss.slope(network(run.data.x), run.data.y, run.data.weight)
    force = np.einsum("ikp,pi->pk", signals, np.asarray(slope).reshape(run.data.n, -1))
    return feature_kernel(network, x, np.asarray(run.data.x)) @ force


class KernelBumps(Theorem):
    """Eq. 16: f_k(t, x) = f_k(0, x) - Σ_p Γ_kp(t) K_μ0(x, x_p), with Γ_kp(t) = ∫ π_p d_p B_kp ds (eq. 15).

    Checked at every look and every point of the data, tests included. Γ is integrated from the residuals and signals
    that were seen; the flow itself keeps track of other things. π_p is in eq. 15 and missing from the Γ of section 3.2,
    which is kept in `numbers` as what it would be off by.
    """

    key: ClassVar[str] = "aiad2026/eq-16"
    source: ClassVar[str] = f"{AUTHORS}, eq. 14-16 and eq. 4"
    statement: ClassVar[str] = "On finitely many points a channel is its start plus one kernel bump a point."
    feasible: ClassVar[bool] = True

    def needs(self, network: Network, data: Dataset) -> Sequence[Probe]:
        """Channels, signals and residuals at the data."""
        return [DRIVE] if is_driven(network) else []

    def hypotheses(self, run: Trajectory) -> Iterator[Hypothesis]:
        """Fixed features, gradient flow, and looks close enough together to integrate what they see."""
        known = driven(run)
        yield known
        yield gradient_flow(run)
        enough = from_start(run)
        yield enough
        if known.met and enough.met and through(run, DRIVE) is not None:
            error, moved = _coarseness(run)
            yield Hypothesis("looks close enough for an integral over time", error <= _COARSE * moved, error, moved)

    def conclude(self, run: Trajectory) -> Finding:
        """Compare both sides at every look and point."""
        channels, signals, slope = drive(run)
        kernel = feature_kernel(run.start, points(run), np.asarray(run.data.x))
        gamma, error = integrated(run.times, forces(run))
        bumps = np.einsum("xp,tpk->txk", kernel, gamma)
        off = float(np.max(np.abs(channels - channels[:1] + bumps)))
        moved, total = float(np.max(np.abs(bumps))), float(np.abs(kernel).sum(axis=1).max())
        size = float(np.max(np.abs(channels))) + total * float(np.max(np.abs(gamma)))
        slack = precision(run) * size + total * error
        numbers = {
            "largest difference": off,
            "slack": slack,
            "movement of channels": moved,
            "error of the integral": total * error,
        }
        if slope.ndim == 2:
            printed, _ = integrated(run.times, np.einsum("tpk,tp->tpk", signals, slope / shares(run)))
            wrong = channels - channels[:1] + np.einsum("xp,tpk->txk", kernel, printed)
            numbers["largest difference without pi, as printed in section 3.2"] = float(np.max(np.abs(wrong)))
        why = f"Channels move by up to {moved:.3g}; eq. 16 is off by {off:.2g}, and the run is known to {slack:.2g}."
        verdict = Verdict.FAILS if off > slack else Verdict.HOLDS if moved > slack else Verdict.VACUOUS
        return Finding(verdict, why, slack / max(off, 1e-300), numbers)

    def example(self) -> Trajectory:
        """An infinitely wide first block, whose kernel is known in closed form."""
        return few_points()

    def counterexample(self) -> Trajectory:
        """Features that are trained too."""
        return few_points(first=24, train="wa")


def _coarseness(run: Trajectory) -> tuple[float, float]:
    """Error of the integrals Γ, and the largest of them."""
    gamma, error = integrated(run.times, forces(run))
    return error, float(np.max(np.abs(gamma)))
