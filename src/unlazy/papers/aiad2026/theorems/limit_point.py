"""Theorem 2.2: where training comes to rest, the loss is zero. Assumptions C.1 to C.6, one by one."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import ClassVar

import equinox as eqx
import numpy as np

from unlazy._errors import UserError
from unlazy.data import Dataset
from unlazy.flows import Trajectory
from unlazy.losses import Squared
from unlazy.networks import Block, Network
from unlazy.papers.aiad2026.theorems._setting import AUTHORS, Setting, fitted, odd_channels, random_features
from unlazy.papers.chen2022.theorems.decay import slope_floor
from unlazy.probes import Probe
from unlazy.theory._base import Finding, Hypothesis, Reading, Theorem, Verdict
from unlazy.theory._runs import gradient_flow, looked_later, rounding

_FADED = 1e-6  # signals below this share of the largest count as zero


def subgaussian(values: np.ndarray, moments: int = 64) -> float:
    """sup_m m^-½ (E|w|^m)^(1/m) over the first moments (Assumption C.2), in units that cannot overflow."""
    size = float(np.max(np.abs(values), initial=0.0))
    if size == 0 or not np.isfinite(size):
        return size
    order = np.arange(1, moments + 1)
    means = np.mean((np.abs(values).ravel()[:, None] / size) ** order[None], axis=0)
    return float(size * np.max(means ** (1 / order) / np.sqrt(order)))


def loss_speed(network: Network, run: Trajectory) -> float:
    """-dL/dt = g·Θ g with g = dL/df: the squared gradient norm, in the metric of the flow."""
    slope = np.asarray(run.loss.slope(network(run.data.x), run.data.y, run.data.weight), float)
    kernel = np.asarray(network.tangent_kernel(run.data.x, run.data.x), float)
    return max(0.0, float(slope @ kernel @ slope))


@dataclasses.dataclass(frozen=True, eq=False)
class LimitPoint:
    """What Theorem 2.2 needs to know of a run that has come to rest."""

    run: Trajectory
    loss: Squared
    shares: np.ndarray  # π_p
    smallest: float  # eigenvalue of K(X, X)
    before: float  # loss at the start
    speed: float  # -dL/dt at the end
    signals: np.ndarray  # |B(x_p)| = (Σ_k B_k²)^½ at every training point, at the end


def _assumptions(setting: Setting, tolerance: float) -> Reading[LimitPoint | None]:
    """C.1 to C.6 as far as a run on finitely many points can tell, in their order, and one that is missing."""
    run, first, rest, x = setting.run, setting.first, setting.above, setting.x
    lipschitz = max(block.activation.lipschitz for block in (first, *rest))
    yield Hypothesis("C.1: activations are Lipschitz", math.isfinite(lipschitz), lipschitz)
    floor = min(slope_floor(block.activation) for block in rest)
    yield Hypothesis("C.1: |phi'| bounded away from 0 above the first block", floor > 0, floor, 0.0)
    entries = max(float(np.max(np.abs(np.asarray(block.w)))) for block in rest)
    yield Hypothesis("C.1: mixing entries bounded", math.isfinite(entries), entries)

    weights = [*(block.a for block in rest), first.a if isinstance(first, Block) else first.mean]
    spread = max(subgaussian(np.asarray(one, float)) for one in weights)
    yield Hypothesis("C.2: initial weights sub-Gaussian", math.isfinite(spread), spread)

    kernel = setting.kernel(x)
    size = max(float(np.max(np.linalg.norm(x, axis=1))), float(np.sqrt(np.max(np.diag(kernel)))))
    yield Hypothesis("C.3: inputs and features bounded on the data", math.isfinite(size), size)
    yield Hypothesis("C.3: a loss whose slope vanishes only with it (squared)", isinstance(run.loss, Squared))

    values = np.linalg.eigvalsh(kernel)
    rank, least = float(values[0] / values[-1]), run.data.n * rounding(run)
    yield Hypothesis("C.4: features span all functions on the data (eig_min/eig_max)", rank > least, rank, least)

    y, weight = run.data.y, run.data.weight
    before, nothing = (float(run.loss(f, y, weight)) for f in (run.start(run.data.x), 0 * y))
    yield Hypothesis("C.5: initial loss below that of the zero predictor", before < nothing, before, nothing)

    speed = loss_speed(run.final, run)
    fell = math.sqrt(speed / max(loss_speed(run.start, run), 1e-300))
    yield Hypothesis("C.6: a limit point (gradient norm, in units of its start)", fell <= tolerance, fell, tolerance)

    # What the proof takes from C.5 without saying so: something is sent back to some channel at every data point.
    signals = np.linalg.norm(np.asarray(setting.ends[-1].signals(run.data.x)[0][0], float), axis=0)
    left = float(signals.min() / max(signals.max(), 1e-300))
    yield Hypothesis("B(x) not 0 at any data point of the limit (smallest over largest)", left > _FADED, left, _FADED)
    if not isinstance(run.loss, Squared):
        return None
    return LimitPoint(run, run.loss, setting.shares, float(values[0]), before, speed, signals)


class LimitsAreGlobal(Theorem[LimitPoint]):
    """Theorem 2.2: at a limit point with features that span, the loss is zero.

    A run comes near its limit, so that the proof is followed with numbers. The first block alone makes the loss fall at
    the rate -dL/dt >= λ_min(K) Σ_p g_p² |B(x_p)|² with g_p = π_p d_p; so a small gradient leaves a small loss, at most
    max_p 1/(2 π_p |B(x_p)|²) (-dL/dt) / λ_min(K), and that is what the measured loss is held against.

    Assumptions are read so that they can be met. The population is the data set and the law of neurons is the network's
    own. C.3 wants bounded features and C.4 features with all of R^d as support, which no law has; on n points C.4 is
    there to make K(X, X) invertible, and that is checked. C.3's bounded ∂L excludes the squared loss, its own example;
    on a run it is bounded. C.1 excludes ReLU and, with φ' -> 0, tanh and sigmoid above the first block. C.5 is not
    enough: one more hypothesis says what the proof uses (`odd_channels` has a limit that is no minimiser without it).
    """

    key: ClassVar[str] = "aiad2026/theorem-2.2"
    source: ClassVar[str] = f"{AUTHORS}, Theorem 2.2"
    statement: ClassVar[str] = "Where a low-rank random-feature network comes to rest, its loss is zero."
    tolerance: float = eqx.field(static=True, default=1e-2)

    def __check_init__(self) -> None:
        if not 0 < self.tolerance < 1:
            raise UserError(f"The gradient has to fall to a share between 0 and 1, not to {self.tolerance}: try 0.01.")

    def needs(self, network: Network, data: Dataset) -> Sequence[Probe]:
        """Nothing along the run: both ends are enough."""
        return []

    def read(self, run: Trajectory) -> Reading[LimitPoint | None]:
        """The paper's network and flow, and its assumptions."""
        setting = yield from random_features(run)
        yield gradient_flow(run)
        yield looked_later(run)
        return None if setting is None else (yield from _assumptions(setting, self.tolerance))

    def conclude(self, setting: LimitPoint) -> Finding:
        """Hold the loss at the end against what the gradient there allows."""
        run, speed, sizes = setting.run, setting.speed, setting.signals
        # L_p = π_p r²/2 and g_p = π_p r, or L_p = π_p r² and g_p = 2 π_p r without the half.
        factor = float(np.max((0.5 if setting.loss.half else 0.25) / (setting.shares * sizes**2)))
        allowed = factor * speed / setting.smallest
        end = float(run.loss(run.final(run.data.x), run.data.y, run.data.weight))
        slack = 1e4 * rounding(run) ** 2 * float(np.mean(np.square(run.data.y)))
        numbers = {
            "loss at the end": end,
            "loss allowed by the gradient": allowed,
            "loss at the start": setting.before,
            "gradient norm at the end": math.sqrt(speed),
            "eig_min of the features": setting.smallest,
            "smallest |B(x)|": float(sizes.min()),
        }
        why = (
            f"The gradient has fallen to {math.sqrt(speed):.2g}, which leaves a loss of {allowed:.2g} at most; it is "
            f"{end:.2g}, and was {setting.before:.2g} at the start."
        )
        if end > allowed * (1 + 1e-6) + slack:
            return Finding(Verdict.FAILS, why, allowed / end, numbers)
        verdict = Verdict.HOLDS if allowed < setting.before else Verdict.VACUOUS
        return Finding(verdict, why, (allowed + slack) / max(end, 1e-300), numbers)

    def example(self) -> Trajectory:
        """Three points, leaky ReLU above the features."""
        return fitted()

    def counterexample(self) -> Trajectory:
        """C.1 to C.6 are met, and the limit is no minimiser: nothing is sent back to one of the points."""
        return odd_channels()
