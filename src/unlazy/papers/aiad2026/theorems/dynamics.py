"""How channels move: eq. 10, and its closed form on finitely many points, eq. 16."""

from typing import ClassVar, cast

import equinox as eqx
import jax
import numpy as np

from unlazy.flows import Trajectory, velocity
from unlazy.networks import Block, MeanFieldStack, Samples, split_trained
from unlazy.papers.aiad2026.probes import ChannelDrive
from unlazy.papers.aiad2026.theorems import problems
from unlazy.papers.aiad2026.theorems.setting import AUTHORS, Setting, driven, from_start, integrated, is_driven, largest
from unlazy.probes import Probe
from unlazy.theory import Example, Finding, Hypothesis, Reading, Theorem
from unlazy.theory.hypotheses import gradient_flow, rounding

_COARSE = 1e-3  # an integral over time with a larger error, as a share of the movement, says nothing


class _OnFixedFeatures(Theorem[Setting]):
    """What eq. 10 implies for any stack whose first block trains its amplitudes on fixed features."""

    example: ClassVar[Example] = Example(problems.few_points)  # an infinite first block: its kernel has a closed form
    counterexample: ClassVar[Example] = problems.TRAINED_FEATURES

    def read(self, run: Trajectory) -> Reading[Setting]:
        return driven(run)


class ChannelsMove(_OnFixedFeatures):
    """Eq. 10: ∂_t f_k(x) = -Σ_p π_p d_p B_k(x_p) K_μ0(x, x_p), at both ends of the run.

    The left side is the velocity of all parameters, pushed forward to the channels; the right side does not involve
    the parameters of the first block. With the general signals B_k = ∂f/∂f_k it holds at any depth and width and for
    any loss.
    """

    key: ClassVar[str] = "aiad2026/eq-10"
    source: ClassVar[str] = f"{AUTHORS}, eq. 10"
    statement: ClassVar[str] = "Channels move by kernel bumps on the data, as high as residual times signal."

    def conclude(self, setting: Setting) -> Finding:
        run, x = setting.run, np.asarray(setting.run.data.points(), float)
        speeds = [channel_speed(network, run) for network in setting.ends]
        expected = [-setting.kernel(x) @ _force(network, run) for network in setting.ends]
        off, size = largest(np.subtract(speeds, expected)), largest(expected)
        # Rounding in sums over neurons and points; the features of an infinite block are roots of its kernel.
        kernel = np.linalg.eigvalsh(setting.kernel(x, x))
        spread = 1.0 if isinstance(setting.first, Block) else kernel[-1] / max(kernel[0], 1e-12 * kernel[-1])
        slack = 1e3 * rounding(run) * size * spread
        numbers = {"largest difference": off, "largest speed": size, "slack": slack}
        why = f"Channels move at up to {size:.3g}, and both sides agree to {off:.2g}."
        return Finding.judge(off <= slack, why, slack / max(off, slack * 1e-9, 1e-300), numbers, vacuous=size == 0)


def channel_speed(network: MeanFieldStack, run: Trajectory) -> np.ndarray:
    """Compute ∂_t f_k at all points of the run's data, while all parameters move as in the flow: (points, D).

    Parameters
    ----------
    network
        The network at some time.
    run
        A run with its data and loss.
    """
    there, x, x_test = network.prepare(run.data)
    trained, frozen = split_trained(there)

    def channels(leaves: MeanFieldStack) -> list[jax.Array]:
        now = cast(MeanFieldStack, eqx.combine(leaves, frozen))
        return [now.channels(part)[0] for part in (x, x_test) if part is not None]

    speed = velocity(trained, frozen, Samples(x, run.data.y, run.data.weight), run.loss)
    return np.concatenate([np.asarray(part, float) for part in jax.jvp(channels, (trained,), (speed,))[1]])


def _force(network: MeanFieldStack, run: Trajectory) -> np.ndarray:
    """Compute π_p d_p B_k(x_p)."""
    slope = run.loss.slope(network(run.data.x), run.data.y, run.data.weight)
    signals = network.signals(run.data.x)[0]
    return np.einsum("ikp,pi->pk", signals, np.asarray(slope).reshape(run.data.n, -1))


class KernelBumps(_OnFixedFeatures):
    """Eq. 16: f_k(t, x) = f_k(0, x) - Σ_p Γ_kp(t) K_μ0(x, x_p), with Γ_kp(t) = ∫ π_p d_p B_kp ds (eq. 15).

    It is checked at every time and at all training and test points. Γ is integrated from the observed residuals and
    signals, independently of the flow's own state. Eq. 15 has the factor π_p, the Γ of section 3.2 lacks it; `numbers`
    has the error of that version.
    """

    key: ClassVar[str] = "aiad2026/eq-16"
    source: ClassVar[str] = f"{AUTHORS}, eq. 14-16 and eq. 4"
    statement: ClassVar[str] = "On finitely many points a channel is its start plus one kernel bump per point."
    probes: ClassVar[tuple[Probe, ...]] = (ChannelDrive(),)
    knows = staticmethod(is_driven)

    def read(self, run: Trajectory) -> Reading[Setting]:
        setting = yield from driven(run)
        yield gradient_flow(run)
        yield (whole := from_start(run))
        if whole.met and setting.observed:
            gamma, error = setting.gamma
            moved, what = largest(gamma), "observations close enough in time to integrate them"
            yield Hypothesis(what, error <= _COARSE * moved, error, moved)
        return setting

    def conclude(self, setting: Setting) -> Finding:
        (channels, signals, slope), (gamma, error) = setting.drive, setting.gamma
        kernel = setting.kernel(np.asarray(setting.run.data.points(), float))
        bumps = np.einsum("xp,tpk->txk", kernel, gamma)
        off, moved = largest(channels - channels[:1] + bumps), largest(bumps)
        total = float(np.abs(kernel).sum(axis=1).max())
        slack = setting.precision * (largest(channels) + total * largest(gamma)) + total * error
        numbers = {
            "largest difference": off,
            "slack": slack,
            "movement of channels": moved,
            "error of the integral": total * error,
        }
        if slope.ndim == 2:
            printed, _ = integrated(setting.run.times, np.einsum("tpk,tp->tpk", signals, slope / setting.shares))
            wrong = channels - channels[:1] + np.einsum("xp,tpk->txk", kernel, printed)
            numbers["largest difference without pi, as printed in section 3.2"] = largest(wrong)
        why = f"Channels move by up to {moved:.3g}; eq. 16 is off by {off:.2g}, and the run is accurate to {slack:.2g}."
        return Finding.judge(off <= slack, why, slack / max(off, 1e-300), numbers, vacuous=moved <= slack)
