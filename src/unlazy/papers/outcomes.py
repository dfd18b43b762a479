"""How a claim is judged: four outcomes, and the tests over seeds that lead to them.

A comparison of random runs is judged by a one-sided t-test over seeds at the level `LEVEL`, paired where the runs share
data and initial weights seed by seed. It *holds* if the difference has the claimed sign at that level, *fails* if it
has the opposite sign at that level, and is *undecided* in between. A threshold is checked on every seed: it holds if
all seeds satisfy it, fails if none does, and is undecided otherwise.

These functions share their arguments:

values, first, second, groups
    One value per seed, of each group of runs.
paired
    Whether runs share their data (and, as far as possible, their initial weights) seed by seed.
log
    Whether to compare logarithms, for positive quantities that vary over orders of magnitude.
error
    Error of a difference that is not due to chance, such as that of the integration: a smaller mean difference leaves
    the claim undecided.
bound
    The bound, one for all seeds or one per seed.
loose
    The claim is vacuous if every seed satisfies the bound by at least this factor; never if it is infinite.
"""

import enum
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from scipy.special import stdtr

LEVEL = 0.05
LOOSE = 1e3  # a bound that is satisfied by this factor does not test anything


class Outcome(enum.Enum):
    """What a run says about a claim of a paper."""

    HOLDS = "holds"
    FAILS = "does not hold"
    VACUOUS = "vacuous"  # nothing could have failed
    UNDECIDED = "undecided"  # within the spread of the seeds or the error of the run


@dataclass(frozen=True)
class Judgement:
    """An outcome and what it rests on.

    Attributes
    ----------
    outcome
        The outcome.
    test
        The test in words, such as "paired t-test over 5 seeds".
    agree, seeds
        The number of seeds that agree with the claim, and of all seeds; both 0 if there are no seeds to count. Without
        pairs, a seed of the second run agrees if it is larger than the mean of the first.
    """

    outcome: Outcome
    test: str = ""
    agree: int = 0
    seeds: int = 0

    @property
    def counted(self) -> str:
        """The number of seeds that agree, in words; empty if there are no seeds to count."""
        if self.seeds == 1:
            return f"the only seed {'agrees' if self.agree else 'disagrees'}"
        return f"{self.agree} of {self.seeds} seeds agree" if self.seeds else ""


def certain(holds: bool, test: str = "direct comparison") -> Judgement:
    """Judge a statement that chance cannot affect, such as a count of parameters; ``test`` says what was compared."""
    return Judgement(Outcome.HOLDS if holds else Outcome.FAILS, test)


def vacuous(why: str) -> Judgement:
    """Judge a statement that no outcome of the runs could have contradicted, for the reason ``why``."""
    return Judgement(Outcome.VACUOUS, why)


def undecided(why: str) -> Judgement:
    """Judge a statement that these runs cannot decide, for the reason ``why``."""
    return Judgement(Outcome.UNDECIDED, why)


def increases(
    first: np.ndarray, second: np.ndarray, *, paired: bool = True, log: bool = False, error: float = 0.0
) -> Judgement:
    """Judge the claim that ``second`` is larger than ``first``.

    The test is a one-sided t-test at the level 5 %: of the differences by seed if ``paired``, Welch's otherwise. A
    single seed does not show a spread, so it leaves the claim undecided.
    """
    a, b = (np.ravel(np.asarray(one, float)) for one in (first, second))
    if log:
        with np.errstate(divide="ignore", invalid="ignore"):
            a, b = np.log(a), np.log(b)
    if not (np.isfinite(a).all() and np.isfinite(b).all()):
        return undecided("a value is not finite")
    if paired:
        if a.size != b.size:
            raise ValueError(f"A paired comparison needs as many values of both: got {a.size} and {b.size}.")
        difference, seeds = b - a, a.size
        agree, mean, freedom = int(np.sum(difference > error)), float(difference.mean()), seeds - 1
        spread = float(difference.std(ddof=1)) / seeds**0.5 if seeds > 1 else np.nan
    else:
        seeds = b.size
        agree, mean = int(np.sum(b > a.mean() + error)), float(b.mean() - a.mean())
        parts = [one.var(ddof=1) / one.size if one.size > 1 else np.nan for one in (a, b)]
        spread, freedom = float(np.sqrt(sum(parts))), np.nan
        if sum(parts) > 0:
            freedom = sum(parts) ** 2 / sum(part**2 / (one.size - 1) for part, one in zip(parts, (a, b), strict=True))
    test = f"{'paired' if paired else 'Welch'} t-test over {seeds} seeds{', of logarithms' if log else ''}"
    if min(a.size, b.size) < 2:
        return Judgement(Outcome.UNDECIDED, "one seed shows no spread", agree, seeds)
    if abs(mean) <= error:
        return Judgement(Outcome.UNDECIDED, f"{test}: smaller than the error {error:.2g}", agree, seeds)
    # P(T > mean / spread) for Student's T; without spread the sign decides.
    p = 0.5 * (1 - np.sign(mean)) if spread == 0 else float(stdtr(freedom, -mean / spread))
    outcome = Outcome.HOLDS if p < LEVEL else Outcome.FAILS if p > 1 - LEVEL else Outcome.UNDECIDED
    return Judgement(outcome, f"{test}, p = {p:.2g}", agree, seeds)


def ordered(groups: Sequence[np.ndarray], *, paired: bool = True, log: bool = False, error: float = 0.0) -> Judgement:
    """Judge the claim that values increase from each group to the next, by `increases` for every two neighbours."""
    steps = [increases(a, b, paired=paired, log=log, error=error) for a, b in pairwise(groups)]
    joint = together(steps)
    if paired and len({np.size(one) for one in groups}) == 1:
        stacked = np.stack([np.ravel(one) for one in groups])
        return replace(joint, agree=int(np.sum(np.all(np.diff(stacked, axis=0) > 0, axis=0))))
    return joint


def at_most(values: np.ndarray, bound: float | np.ndarray, *, loose: float = LOOSE) -> Judgement:
    """Judge the claim that positive ``values`` do not exceed a bound; of several values per seed, pass the largest."""
    values, bound = np.broadcast_arrays(np.ravel(np.asarray(values, float)), np.asarray(bound, float))
    if not np.isfinite(bound).all():
        return Judgement(Outcome.VACUOUS, "the bound is infinite", values.size, values.size)
    easy = np.isfinite(loose) and bool(np.all(np.abs(values) * loose <= np.abs(bound)))
    return _each(values <= bound, easy, loose)


def at_least(values: np.ndarray, bound: float | np.ndarray, *, loose: float = LOOSE) -> Judgement:
    """Judge the claim that ``values`` are not below a bound; of several values per seed, pass the smallest."""
    values, bound = np.broadcast_arrays(np.ravel(np.asarray(values, float)), np.asarray(bound, float))
    easy = bool(np.all((bound <= 0) & (values >= 0))) if np.all(bound <= 0) else bool(np.all(values >= loose * bound))
    return _each(values >= bound, easy, loose)


def near(values: np.ndarray, target: float, within: float) -> Judgement:
    """Judge the claim that |value - target| <= within, seed by seed."""
    return _each(np.abs(np.ravel(np.asarray(values, float)) - target) <= within, False, LOOSE)


def power_law(x: np.ndarray, values: np.ndarray, expected: float, within: float) -> Judgement:
    """Judge the claim that ``values`` grow as a power of x, with |exponent - expected| <= within.

    Values are positive, with a row for each size x and a column for each seed. Exponents are fitted seed by seed, and
    their mean is compared with both ends of the interval by t-tests.
    """
    with np.errstate(divide="ignore"):
        logs = np.log(values)
    if not np.isfinite(logs).all():
        return undecided("a value is not finite")
    found = np.polyfit(np.log(x), logs, 1)[0]
    both = between(found, expected - within, expected + within)
    return replace(both, test=f"t-tests of the exponents of {found.size} seeds") if found.size > 1 else both


def between(values: np.ndarray, low: float, high: float) -> Judgement:
    """Judge the claim that the mean of ``values`` over seeds lies between ``low`` and ``high``, each by a t-test."""
    found = np.ravel(np.asarray(values, float))
    both = together([increases(np.full(found.size, low), found), increases(found, np.full(found.size, high))])
    return replace(both, agree=int(np.sum((found >= low) & (found <= high))))


def _each(satisfied: np.ndarray, loose: bool, factor: float) -> Judgement:
    agree, seeds = int(np.sum(satisfied)), satisfied.size
    if not seeds:
        return undecided("there is no seed to judge")
    if agree == seeds and loose:
        return Judgement(Outcome.VACUOUS, f"satisfied by every seed by a factor of more than {factor:g}", agree, seeds)
    outcome = Outcome.HOLDS if agree == seeds else Outcome.UNDECIDED if agree else Outcome.FAILS
    return Judgement(outcome, "every seed against the threshold", agree, seeds)


def together(parts: Iterable[Judgement]) -> Judgement:
    """Judge a claim that makes several statements at once.

    It fails if one of its ``parts`` fails, else it is undecided if one is undecided, else vacuous if one is vacuous. It
    counts the seeds of the statement on which the fewest agree.
    """
    parts = list(parts)
    for outcome in (Outcome.FAILS, Outcome.UNDECIDED, Outcome.VACUOUS, Outcome.HOLDS):
        which = [one for one in parts if one.outcome is outcome]
        if which:
            break
    counted = min((one for one in parts if one.seeds), key=lambda one: one.agree / one.seeds, default=which[0])
    return Judgement(which[0].outcome, which[0].test, counted.agree, counted.seeds)


def tally(outcomes: Iterable[Outcome]) -> str:
    """Count outcomes in words: "24 of 30 claims hold (2 do not hold, 3 undecided, 1 vacuous)"."""
    found = list(outcomes)
    fails = "does not hold" if found.count(Outcome.FAILS) == 1 else "do not hold"
    words = {Outcome.FAILS: fails, Outcome.UNDECIDED: "undecided", Outcome.VACUOUS: "vacuous"}
    others = [f"{found.count(one)} {word}" for one, word in words.items() if one in found]
    return f"{found.count(Outcome.HOLDS)} of {len(found)} claims hold" + (f" ({', '.join(others)})" if others else "")
