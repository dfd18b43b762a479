"""Theorem 2.2: where training comes to rest, the loss is minimal. Assumptions C.1 to C.6, one by one."""

import math
from typing import ClassVar, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from unlazy._errors import UserError
from unlazy.flows import Trajectory
from unlazy.losses import Squared
from unlazy.networks import Block, Network
from unlazy.papers.aiad2026.theorems import problems
from unlazy.papers.aiad2026.theorems.setting import AUTHORS, Setting, largest, random_features
from unlazy.papers.chen2022.theorems.decay import slope_floor
from unlazy.theory import Example, Finding, Hypothesis, Reading, Theorem
from unlazy.theory.hypotheses import gradient_flow, observed_later, rounding

_CANCELLED = 1e-6  # signals below this share of what they are without cancellation count as zero
_ALWAYS = "always true on a run, which has finitely many numbers"


def subgaussian(values: np.ndarray, moments: int = 64) -> float:
    """Compute sup_m m^-½ (E|w|^m)^(1/m) over the first moments (Assumption C.2), in units that cannot overflow.

    Parameters
    ----------
    values
        Samples of w.
    moments
        The largest m.
    """
    size = float(np.max(np.abs(values), initial=0.0))
    if size == 0 or not np.isfinite(size):
        return size
    order = np.arange(1, moments + 1)
    means = np.mean((np.abs(values).ravel()[:, None] / size) ** order[None], axis=0)
    return float(size * np.max(means ** (1 / order) / np.sqrt(order)))


def loss_speed(network: Network, run: Trajectory) -> float:
    """Compute -dL/dt = g·Θ g with g = dL/df on the data of a run: the squared gradient norm, in the flow's metric."""
    slope = np.asarray(run.loss.slope(network(run.data.x), run.data.y, run.data.weight), float)
    kernel = np.asarray(network.tangent_kernel(run.data.x, run.data.x), float)
    return max(0.0, float(slope @ kernel @ slope))


def without_cancellation(setting: Setting) -> float:
    """Compute an upper bound on |B| = (Σ_k B_k²)^½ at the end: sup|φ'| E[|L_k| |w_2|] for two blocks.

    Signals that are much smaller vanish by cancellation. With more blocks the bound is applied from the top down.
    """
    bound = np.ones(1)
    for block in reversed(setting.ends[-1].restore().blocks[1:]):
        if isinstance(block, Block) and block.a is not None:
            back = np.abs(np.asarray(block.a, float)).reshape(block.width, -1) @ bound
            bound = block.activation.lipschitz * np.abs(np.asarray(block.w, float)).T @ back / block.width
    return float(np.linalg.norm(bound))


def distinct(setting: Setting) -> tuple[np.ndarray, np.ndarray, float]:
    """Merge training samples with the same x, which may have different labels.

    Return the index of one sample of each distinct point, the sums of π_p over the samples of each, and the loss that
    remains when the output at every point is the mean of its labels.
    """
    _, index, point = np.unique(setting.x, axis=0, return_index=True, return_inverse=True)
    if index.size == len(setting.x):
        return np.arange(index.size), setting.shares, 0.0
    point, run, y = point.ravel(), setting.run, np.asarray(setting.run.data.y, float)
    shares = np.bincount(point, setting.shares)
    means = np.bincount(point, setting.shares * y) / np.maximum(shares, 1e-300)
    best = jnp.asarray(means[point], run.data.y.dtype)
    return index, shares, float(run.loss(best, run.data.y, run.data.weight))


class LimitPoint(NamedTuple):
    """What Theorem 2.2 takes from a run that has come to rest."""

    base: Setting
    smallest: float  # the smallest eigenvalue of K(X, X)
    before: float  # the loss at the start
    speed: float  # -dL/dt at the end
    signals: np.ndarray  # |B(x_p)| = (Σ_k B_k²)^½ at every distinct training point, at the end
    shares: np.ndarray  # π_p of these points
    noise: float  # the loss that no function of x avoids


def _assumptions(setting: Setting, tolerance: float) -> Reading[LimitPoint]:
    """Check C.1 to C.6 in this order, as far as a run on finitely many points allows, and one that the paper lacks."""
    run, first, rest = setting.run, setting.first, setting.above
    samples, shares, noise = distinct(setting)
    x = setting.x[samples]
    lipschitz = max(block.activation.lipschitz for block in (first, *rest))
    yield Hypothesis("C.1: activations are Lipschitz", math.isfinite(lipschitz), lipschitz)
    floor = min(slope_floor(block.activation) for block in rest)
    yield Hypothesis("C.1: |phi'| bounded away from 0 above the first block", floor > 0, floor, 0.0)
    entries = max(largest(block.w) for block in rest)
    yield Hypothesis(f"C.1: mixing entries bounded ({_ALWAYS})", math.isfinite(entries), entries)

    weights = [*(block.a for block in rest), first.a if isinstance(first, Block) else first.mean]
    spread = max(subgaussian(np.asarray(one, float)) for one in weights)
    yield Hypothesis(f"C.2: initial weights sub-Gaussian ({_ALWAYS})", math.isfinite(spread), spread)

    kernel = setting.kernel(x, x)
    size = max(float(np.max(np.linalg.norm(x, axis=1))), float(np.sqrt(np.max(np.diag(kernel)))))
    yield Hypothesis(f"C.3: inputs and features bounded on the data ({_ALWAYS})", math.isfinite(size), size)
    yield Hypothesis("C.3: a loss whose slope vanishes only with it (squared)", isinstance(run.loss, Squared))

    values = np.linalg.eigvalsh(kernel)
    rank, least = float(values[0] / values[-1]), len(x) * rounding(run)
    yield Hypothesis("C.4: features span all functions on the data (eig_min/eig_max)", rank > least, rank, least)

    y, weight = run.data.y, run.data.weight
    before, nothing = (float(run.loss(f, y, weight)) for f in (run.start(run.data.x), 0 * y))
    yield Hypothesis("C.5: initial loss below that of the zero predictor", before < nothing, before, nothing)

    speed = loss_speed(run.final, run)
    fell = math.sqrt(speed / max(loss_speed(run.start, run), 1e-300))
    yield Hypothesis("C.6: a limit point (gradient norm, in units of its start)", fell <= tolerance, fell, tolerance)

    # What the proof tacitly takes from C.5: at every data point some channel has a signal that is not 0. "Not 0" is
    # relative to what B would be if no two terms of E[L φ' w] cancelled, as all signals may vanish at once.
    signals = np.linalg.norm(np.asarray(setting.ends[-1].signals(run.data.x)[0][0], float), axis=0)[samples]
    left = float(signals.min() / max(without_cancellation(setting), 1e-300))
    what = "B(x) not 0 at any data point of the limit (smallest, over sup|phi'| E[|L||w|])"
    yield Hypothesis(what, left > _CANCELLED, left, _CANCELLED)
    return LimitPoint(setting, float(values[0]), before, speed, signals, shares, noise)


class LimitsAreGlobal(Theorem[LimitPoint]):
    """Theorem 2.2: at a limit point with features that span, the loss is zero, or that of the labels' noise.

    A run only comes near its limit, so the proof is evaluated with numbers. The first block alone makes the loss fall
    at the rate -dL/dt >= λ_min(K) Σ_p g_p² |B(x_p)|² with g_p = π_p d_p. A small gradient therefore leaves a loss of at
    most max_p 1/(2 π_p |B(x_p)|²) (-dL/dt) / λ_min(K), and the measured loss is compared with this bound.

    C.3 infers E[L | x] = 0 from E[∂L | x] = 0, which is false if the label is not a function of x. Samples with equal
    x are therefore merged: d_p is the distance of the output from the mean of their labels, and the bound is on the
    excess over the smallest loss of any function of x.

    Assumptions are interpreted so that they can be met. The population is the data set, and the law of neurons is that
    of the network. C.3 asks for bounded features and C.4 for features whose support is all of R^d: no law satisfies
    both. On n points C.4 serves to make K(X, X) invertible, and that is checked. C.3 asks for a bounded ∂L, which
    excludes the squared loss, its own example; on a run it is bounded. C.1 excludes ReLU and, since φ' -> 0, tanh and
    sigmoid above the first block. C.5 is not enough: one more hypothesis states what the proof uses (without it, the
    limits of `odd_channels` and `independent_laws` are not minimisers, although C.1 to C.6 are met). Those of C.1 to
    C.3 that a run with finitely many numbers always meets say so.

    Parameters
    ----------
    tolerance
        The largest gradient norm that counts as a limit point, relative to the gradient norm at the start.
    """

    key: ClassVar[str] = "aiad2026/theorem-2.2"
    source: ClassVar[str] = f"{AUTHORS}, Theorem 2.2"
    statement: ClassVar[str] = "Where a low-rank random-feature network comes to rest, its loss is zero."
    example: ClassVar[Example] = Example(problems.fitted)
    counterexample: ClassVar[Example] = Example(problems.odd_channels)
    tolerance: float = eqx.field(static=True, default=1e-2)

    def __check_init__(self) -> None:
        if not 0 < self.tolerance < 1:
            raise UserError(
                f"The gradient must fall to a share between 0 and 1, not to {self.tolerance}: try tolerance = 0.01."
            )

    def read(self, run: Trajectory) -> Reading[LimitPoint]:
        setting = yield from random_features(run)
        yield gradient_flow(run)
        yield observed_later(run)
        return (yield from _assumptions(setting, self.tolerance))

    def conclude(self, setting: LimitPoint) -> Finding:
        run, speed, sizes = setting.base.run, setting.speed, setting.signals
        # L_p = π_p r²/2 and g_p = π_p r, or L_p = π_p r² and g_p = 2 π_p r without the factor ½.
        noise = setting.noise
        factor = float(np.max(0.5 / setting.base.loss_slope / (setting.shares * sizes**2)))
        allowed = factor * speed / setting.smallest
        end = float(run.loss(run.final(run.data.x), run.data.y, run.data.weight)) - noise
        before = setting.before - noise
        slack = 1e4 * rounding(run) ** 2 * float(np.mean(np.square(run.data.y)))
        numbers = {
            "loss at the end": end,
            "loss allowed by the gradient": allowed,
            "loss at the start": before,
            "gradient norm at the end": math.sqrt(speed),
            "eig_min of the features": setting.smallest,
            "smallest |B(x)|": float(sizes.min()),
        } | ({"loss of the noise, subtracted": noise} if noise else {})
        why = (
            f"The gradient has fallen to {math.sqrt(speed):.2g}, which leaves a loss of {allowed:.2g} at most; it is "
            f"{end:.2g}, and was {before:.2g} at the start."
            + (f" All three are above {noise:.2g}, which the noise of the labels leaves." if noise else "")
        )
        holds = end <= allowed * (1 + 1e-6) + slack
        margin = (allowed + slack) / max(end, 1e-300) if holds else allowed / end
        return Finding.judge(holds, why, margin, numbers, vacuous=allowed >= before)
