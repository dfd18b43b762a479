"""The authors' numbers beside ours: where theirs come from, and how far ours are from them.

Whether the two agree is judged by a 95 % prediction interval. From our seeds (Student's t) it gives the range in which
the mean of as many further runs as the authors had would lie, if their runs were like ours. If their number lies
outside, the two differ; if it lies inside, they agree, unless the interval is too wide to decide anything.
"""

from dataclasses import dataclass

import numpy as np
from scipy.special import stdtrit

from unlazy.papers.outcomes import Judgement, Outcome, undecided

_SURE = 0.975
_FACTOR = 2.0  # an interval that extends by more than this factor to either side decides nothing


@dataclass(frozen=True)
class Reference:
    """One of the authors' numbers beside ours; `compare` makes it.

    Attributes
    ----------
    quantity, setting
        What the number is, and for which of several settings; the setting is empty where there is one only.
    authors
        The authors' number; None where it is not known.
    source
        Where it comes from: "Table 1", "figure 7, read from the vector graphic", "the authors' released results".
    ours, spread, seeds
        Our mean over seeds, the standard deviation over seeds, and their number. The mean is None if a value is not
        finite, the spread is None for a single seed.
    interval
        Smallest and largest value of the 95 % prediction interval for the authors' number; None for a single seed.
    wide
        Whether the interval is too wide to decide anything.
    why
        What keeps the two numbers from being comparable, such as smaller runs; empty if nothing does.
    """

    quantity: str
    authors: float | None
    source: str
    ours: float | None
    spread: float | None = None
    seeds: int = 1
    interval: tuple[float, float] | None = None
    wide: bool = False
    setting: str = ""
    why: str = ""

    @property
    def name(self) -> str:
        """Quantity and setting."""
        return f"{self.quantity}, {self.setting}" if self.setting else self.quantity

    @property
    def relative(self) -> float | None:
        """Our mean over the authors' number, minus 1; None where one of them is missing or zero."""
        if self.ours is None or not self.authors:
            return None
        return self.ours / self.authors - 1

    @property
    def deviations(self) -> float | None:
        """Our mean minus the authors' number, in standard deviations over seeds; None where there is no spread."""
        if self.ours is None or self.authors is None or not self.spread:
            return None
        return (self.ours - self.authors) / self.spread

    @property
    def judgement(self) -> Judgement:
        """Whether the two numbers agree."""
        if self.authors is None:
            return undecided("the authors' number is not known")
        if self.why:
            return undecided(self.why)
        if self.ours is None:
            return undecided("a value is not finite")
        if self.interval is None:
            return undecided("one seed shows no spread")
        low, high = self.interval
        test = f"95 % prediction interval from {self.seeds} seeds, {_short(low)} to {_short(high)}"
        if not low <= self.authors <= high:
            return Judgement(Outcome.FAILS, test)
        return undecided(f"{test}: too wide") if self.wide else Judgement(Outcome.HOLDS, test)

    @property
    def outcome(self) -> Outcome:
        """Whether the two numbers agree (holds), differ (does not hold), or cannot be judged (undecided)."""
        return self.judgement.outcome

    @property
    def agreement(self) -> str:
        """The outcome in words: "agrees", "differs" or "undecided"."""
        return {Outcome.HOLDS: "agrees", Outcome.FAILS: "differs"}.get(self.outcome, self.outcome.value)

    @property
    def ours_in_words(self) -> str:
        """Our mean and standard deviation: "0.9976 ± 0.0009"."""
        if self.ours is None:
            return "not finite"
        if not self.spread:
            return _short(self.ours)
        exact = int(np.ceil(np.log10(max(abs(self.ours) / self.spread, 1.0)))) + 1
        return f"{self.ours:.{min(max(exact, 3), 7)}g} ± {self.spread:.1g}"

    @property
    def authors_in_words(self) -> str:
        """The authors' number, or that it is not known."""
        return "not known" if self.authors is None else _short(self.authors)

    @property
    def distance(self) -> str:
        """The relative distance, and that in standard deviations over seeds: "+12 %, +1.3 SD"; empty if unknown."""
        parts = []
        if self.relative is not None:
            ratio = 1 + self.relative
            parts.append(f"{100 * self.relative:+.2g} %" if 1 / 3 < ratio < 3 else f"{ratio:.2g} times")
        if self.deviations is not None:
            parts.append(f"{self.deviations:+.2g} SD")
        return ", ".join(parts)

    def summary(self) -> dict[str, object]:
        """Return what the command line prints as JSON."""
        names = ("quantity", "setting", "ours", "spread", "seeds", "authors", "source", "relative", "deviations")
        found = {name: getattr(self, name) for name in (*names, "interval", "agreement")}
        return {**found, "test": self.judgement.test}


def _short(value: float) -> str:
    return f"{value:.6g}" if abs(value) < 1e6 else f"{value:.3g}"


def compare(
    quantity: str,
    values: np.ndarray,
    authors: float | None,
    source: str,
    *,
    setting: str = "",
    runs: int = 1,
    log: bool = False,
    rounding: float = 0.0,
    within: float | None = None,
    why: str = "",
) -> Reference:
    """Compare one of the authors' numbers with ours.

    From n seeds with mean x̄ and standard deviation s, the mean of k further runs lies in x̄ ± t s √(1/k + 1/n) with a
    probability of 95 %, where t is the 97.5 % quantile of Student's distribution with n - 1 degrees of freedom.

    Parameters
    ----------
    quantity, authors, source, setting
        As in `Reference`; the authors' number may also be NaN where it is not known.
    values
        Our values, one per seed.
    runs
        Number k of independent runs over which the authors' number is a mean.
    log
        Whether to treat logarithms as Gaussian, for positive quantities that vary over orders of magnitude.
    rounding
        Half a unit of the last printed digit of the authors' number: the interval is extended by it.
    within
        The comparison is undecided if the authors' number lies in the interval but the interval extends further than
        this to either side: by default half of their number. With ``log`` it refers to logarithms, by default log 2.
    why
        What keeps the two numbers from being comparable; the comparison is then undecided.
    """
    values = np.ravel(np.asarray(values, float))
    known = None if authors is None or np.isnan(authors) else float(authors)
    count = values.size
    with np.errstate(divide="ignore", invalid="ignore"):
        scaled = np.log(values) if log else values
    finite = bool(np.isfinite(scaled).all())
    spread = interval = None
    wide = False
    if finite and count > 1:
        spread = float(values.std(ddof=1))
        half = float(stdtrit(count - 1, _SURE) * scaled.std(ddof=1) * np.sqrt(1 / runs + 1 / count))
        ends = scaled.mean() + half * np.array([-1.0, 1.0])
        low, high = np.exp(ends) if log else ends
        interval = (float(low) - rounding, float(high) + rounding)
        usual = float(np.log(_FACTOR)) if log else 0.5 * abs(known or 0.0)
        wide = half > (usual if within is None else within)
    return Reference(
        quantity=quantity,
        authors=known,
        source=source,
        ours=float(values.mean()) if np.isfinite(values).all() else None,
        spread=spread,
        seeds=count,
        interval=interval,
        wide=wide,
        setting=setting,
        why=why,
    )
