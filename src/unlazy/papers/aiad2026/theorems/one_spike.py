"""One spike: half-space symmetry of mixing vectors (Lemma H.1), and the manifold on which one channel learns (H.2)."""

from typing import ClassVar, NamedTuple

import equinox as eqx
import numpy as np
from scipy import stats

from unlazy.activations import Relu
from unlazy.flows import Trajectory
from unlazy.networks import Block, MeanFieldStack, Network
from unlazy.papers.aiad2026.probes import ChannelDrive
from unlazy.papers.aiad2026.theorems import problems
from unlazy.papers.aiad2026.theorems import setting as common
from unlazy.papers.aiad2026.theorems.setting import AUTHORS, Setting, largest
from unlazy.papers.ren2023.theorems.symmetry import within_chance
from unlazy.probes import Probe
from unlazy.theory import Example, Finding, Hypothesis, Reading, Theorem, WithProbability, require
from unlazy.theory.hypotheses import gradient_flow

_CHANCE = 1e-3  # how often a test of symmetry may reject a symmetric law
_DEVIATIONS = 5.0  # standard errors by which a finite second layer may deviate


def mixing(network: Network) -> np.ndarray | None:
    """Return L_{c_2,k}: the features of the second block, one row per neuron."""
    second = network.blocks[1] if isinstance(network, MeanFieldStack) else None
    return np.asarray(second.w, float) if isinstance(second, Block) else None


def symmetry_chance(rows: np.ndarray) -> float:
    """Compute the p-value of a signed-rank test that all columns are symmetric about 0."""
    if np.all(rows == 0):
        return 1.0
    chances = [float(np.asarray(stats.wilcoxon(column, method="approx"))[1]) for column in rows.T if np.any(column)]
    return float(min(1.0, min(chances) * len(chances)))


def closed_under_flips(rows: np.ndarray) -> bool:
    """Return whether the set of rows stays the same when the sign of any one coordinate is changed in all of them."""
    start = _sorted(rows)
    flips = (rows * np.where(np.arange(rows.shape[1]) == k, -1.0, 1.0) for k in range(rows.shape[1]))
    return all(np.allclose(_sorted(flip), start, rtol=1e-12, atol=1e-12) for flip in flips)


def _symmetric(chance: float) -> Hypothesis:
    return Hypothesis("mixing entries symmetric (p-value of a signed-rank test)", chance > _CHANCE, chance, _CHANCE)


def _sorted(rows: np.ndarray) -> np.ndarray:
    rounded = np.round(rows, 12) + 0.0  # no negative zeros
    return rounded[np.lexsort(rounded.T[::-1])]


class HalfSpaceMoments(WithProbability[np.ndarray]):
    """Lemma H.1: E[U 1{aU > 0}] = sign(a) ½ E|U| and E[U² 1{aU > 0}] = ½ E U² for symmetric U.

    U is each column of the mixing matrix L. The lemma is about its law, from which a draw deviates by chance: both
    differences, for both signs of a, are compared with their standard errors.

    Parameters
    ----------
    delta
        Probability that a symmetric law fails the check.
    """

    key: ClassVar[str] = "aiad2026/lemma-h.1"
    source: ClassVar[str] = f"{AUTHORS}, Lemma H.1"
    statement: ClassVar[str] = "A half-space holds half of the first and second moments of a symmetric entry."
    example: ClassVar[Example] = Example(problems.one_spike, mixing="drawn")
    counterexample: ClassVar[Example] = Example(problems.one_spike, mixing="biased")
    delta: float = eqx.field(static=True, default=0.01)

    def read(self, run: Trajectory) -> Reading[np.ndarray | None]:
        rows = mixing(run.start)
        many = 0 if rows is None else len(rows)
        yield from require(Hypothesis("a second block of at least 100 neurons", many >= 100, many, 100))
        if rows is not None:
            yield _symmetric(symmetry_chance(rows))
        return rows

    def conclude(self, setting: np.ndarray) -> Finding:
        rows, sides = setting, []
        for sign in (1.0, -1.0):
            gate = (sign * rows > 0).astype(float)
            sides += [(rows * gate, sign * np.abs(rows) / 2), (rows**2 * gate, rows**2 / 2)]
        each = np.stack([part - half for part, half in sides])  # (moments, neurons, D)
        error = each.std(axis=1, ddof=1) / np.sqrt(len(rows))
        size = float(min(np.abs(half).mean(axis=0).min() for _, half in sides))
        return within_chance("Half-space moments", each.mean(axis=1), error, self.delta, size, "smallest half moment")


class Spike(NamedTuple):
    """The one-spike system along a run, and what Lemma H.2 says of it.

    Attributes
    ----------
    channel, a
        The channel j, and its value a at every time.
    signal, formula
        B_j as observed, and by the lemma.
    others, other_signals
        The largest |f_k| and |B_k| with k ≠ j.
    by_eq_11, by_printed_eq_11
        a by eq. 11 with K(x*, x*), and without this factor, as printed.
    error
        Error of the integrals over time.
    chance
        Standard error of B_k for all k, at every time: (times, D).
    """

    channel: int
    a: np.ndarray
    signal: np.ndarray
    formula: np.ndarray
    others: np.ndarray
    other_signals: np.ndarray
    by_eq_11: np.ndarray
    by_printed_eq_11: np.ndarray
    error: float
    chance: np.ndarray


def spike(run: Trajectory) -> Spike:
    """Follow the one-spike system along a run of two blocks on one point.

    Parameters
    ----------
    run
        A run that was observed with `ChannelDrive`.
    """
    setting = common.required(common.three_layers(run))
    rows, times, (channels, signals, slope) = setting.mixing, setting.run.times, setting.drive
    f, b, d = channels[:, 0], signals[:, 0], slope[:, 0] / setting.shares[0]
    j = int(np.argmax(np.abs(f[0])))
    rest = np.arange(f.shape[1]) != j
    w0 = float(np.asarray(setting.second.a, float)[0, 0])
    grown, error = common.integrated(times, -d * f[:, j])
    moments = np.mean(np.abs(rows[:, j])), np.mean(rows[:, j] ** 2)
    kernel = float(setting.kernel(setting.x)[0, 0])
    pushed, other = common.integrated(times, -d * b[:, j])
    # On the manifold w_2 = w_2^0 + (L_j)_+ ∫ -d a, so the part of each neuron in B_k is known, and its variance.
    weight = (rows[:, j] > 0) * (w0 + grown[:, None] * np.maximum(rows[:, j], 0)[None])
    chance = np.stack([np.std(rows[:, k] * weight, axis=1) for k in range(rows.shape[1])], axis=1) / np.sqrt(len(rows))
    return Spike(
        j,
        f[:, j],
        b[:, j],
        w0 / 2 * moments[0] + moments[1] / 2 * grown,
        np.max(np.abs(f[:, rest]), axis=1, initial=0.0),
        np.max(np.abs(b[:, rest]), axis=1, initial=0.0),
        f[0, j] + kernel * pushed,
        f[0, j] + pushed,
        error * float(moments[1]) + other * kernel,
        chance,
    )


class OneSparse(Theorem[Setting]):
    """Lemma H.2: from f(0) = a_0 e_j one channel learns alone, and its signal is known.

    f(t) = a(t) e_j, B_k = 0 for k ≠ j, and B_j = ½ w_2^0 E|L_j| + ½ E[L_j²] ∫ (-d) a ds. All of it is exact if the
    mixing vectors of the network are closed under changes of sign. A drawn second layer may deviate by five standard
    errors of B_k, times the growth of a: deviations from the manifold do not grow faster. "B_j > 0" requires w_2^0 > 0,
    or t > 0.
    """

    key: ClassVar[str] = "aiad2026/lemma-h.2"
    source: ClassVar[str] = f"{AUTHORS}, Lemma H.2"
    statement: ClassVar[str] = "One channel that starts alone stays alone, and grows while the output is too low."
    example: ClassVar[Example] = Example(problems.one_spike)
    counterexample: ClassVar[Example] = Example(problems.one_spike, target=-1.0)  # below the output: d > 0
    probes: ClassVar[tuple[Probe, ...]] = (ChannelDrive(),)
    knows = staticmethod(common.is_random_features)

    def read(self, run: Trajectory) -> Reading[Setting]:
        setting = yield from common.three_layers(run)
        yield Hypothesis("one data point", run.data.n == 1, run.data.n, 1)
        yield gradient_flow(run)
        yield common.from_start(run)
        yield Hypothesis("ReLU in the second block", isinstance(setting.second.activation, Relu))
        yield common.without_biases(setting.second)
        weight = np.asarray(setting.second.a, float)
        spread, least = float(np.ptp(weight)), float(weight.min())
        yield Hypothesis("w_2(0) the same for all neurons, and >= 0", spread == 0 and least >= 0, least, 0.0)
        yield _symmetric(1.0 if closed_under_flips(setting.mixing) else symmetry_chance(setting.mixing))
        if setting.observed and run.data.n == 1:
            channels, _, slope = setting.drive
            start = np.sort(np.abs(channels[0, 0]))
            alone = start.size == 1 or start[-2] <= 1e-12 * start[-1]
            first = float(channels[0, 0, np.argmax(np.abs(channels[0, 0]))])
            yield Hypothesis("f(0) = a_0 e_j with a_0 > 0", bool(alone and first > 0), first, 0.0)
            largest = float(slope.max())
            yield Hypothesis("d(t) <= 0 at every observation", largest <= 0, largest, 0.0)
        return setting

    def conclude(self, setting: Setting) -> Finding:
        found, exact = spike(setting.run), closed_under_flips(setting.mixing)
        known = setting.precision * float(largest(found.signal) + np.max(found.a)) + found.error
        growth = found.a / found.a[0]
        # The spread is that of single entries, not of their halves: ½ (L_j + |L_j|) is centred at ½ |L_j|.
        allowed = np.zeros_like(found.chance) if exact else _DEVIATIONS * found.chance * growth[:, None]
        others, apart = np.max(allowed, axis=1), np.abs(found.signal - found.formula)
        off = {
            "B_k of the others": np.max(found.other_signals - others) / known,
            "B_j compared with its formula": np.max(apart - allowed[:, found.channel]) / known,
            "fall of a": np.max(-np.diff(found.a)) / known,
        }
        numbers = {
            "largest B_k of the others": float(found.other_signals.max()),
            "largest f_k of the others": float(found.others.max()),
            "largest difference of B_j to its formula": float(np.max(apart)),
            "a at the start": float(found.a[0]),
            "a at the end": float(found.a[-1]),
            "a by eq. 11 with K(x*, x*)": float(found.by_eq_11[-1]),
            "a by eq. 11 as printed": float(found.by_printed_eq_11[-1]),
            "slack": known,
            "allowed to chance": float(others.max()),
        }
        worst = max(off, key=lambda name: off[name])
        ratios = (known + others) / np.maximum(found.other_signals, 1e-300)
        margin = float(min(np.min(ratios), np.min((known + allowed[:, found.channel]) / np.maximum(apart, 1e-300))))
        why = (
            f"Channel {found.channel + 1} grows from {found.a[0]:.3g} to {found.a[-1]:.3g}; signals to the others stay "
            f"below {found.other_signals.max():.2g}, and B_j differs from its formula by {np.max(apart):.2g} "
            f"({known + float(others.max()):.2g} allowed)."
        )
        fails, still = f"The difference is too large: {worst}.", largest(found.a - found.a[0]) <= known
        return Finding.judge(off[worst] <= 1, why, margin, numbers, vacuous=still, if_fails=fails)
