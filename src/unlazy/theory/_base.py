"""What a theorem is: an object that looks at a run and says whether it speaks about it, and whether it holds."""

from __future__ import annotations

import abc
import enum
from dataclasses import dataclass, field

import equinox as eqx

from unlazy.flows import Trajectory


class Verdict(enum.Enum):
    """What a theorem says of a run."""

    HOLDS = "Its hypotheses are met and its conclusion holds."
    FAILS = "Its hypotheses are met but its conclusion does not hold."
    SILENT = "A hypothesis is not met, so it says nothing."
    VACUOUS = "It holds, but its bound is too weak to say anything."


@dataclass(frozen=True)
class Finding:
    """A verdict, why, and the numbers behind it."""

    verdict: Verdict
    why: str
    numbers: dict[str, float] = field(default_factory=dict)


class Theorem(eqx.Module):
    """A statement of a paper that checks itself on a run."""

    source: eqx.AbstractVar[str]  # "chen2022 eq. 15"
    statement: eqx.AbstractVar[str]  # one sentence

    @abc.abstractmethod
    def hypotheses(self, run: Trajectory) -> str | None:
        """Give the first hypothesis that data, network or run do not meet, or None."""

    @abc.abstractmethod
    def conclude(self, run: Trajectory) -> Finding:
        """Check the conclusion on a run that meets the hypotheses."""

    @abc.abstractmethod
    def example(self) -> Trajectory:
        """Give a run about which the theorem speaks, and holds."""

    @abc.abstractmethod
    def counterexample(self) -> Trajectory:
        """Give a run about which it must not say that it holds."""

    def check(self, run: Trajectory) -> Finding:
        """Speak about ``run``, or say why not."""
        missing = self.hypotheses(run)
        return self.conclude(run) if missing is None else Finding(Verdict.SILENT, missing)
