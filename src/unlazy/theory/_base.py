"""What a theorem is: an object that looks at a run and says whether it speaks about it, and whether it holds."""

import abc
import dataclasses
import enum
from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

import equinox as eqx

from unlazy.data import Dataset
from unlazy.flows import Trajectory
from unlazy.networks import Network
from unlazy.probes import Probe

if TYPE_CHECKING:  # what type checkers understand; it has to be imported in the file that uses it
    from typing import ClassVar as AbstractVar
else:
    from equinox import AbstractVar


class Verdict(enum.Enum):
    """What a theorem says of a run."""

    HOLDS = "Its hypotheses are met and its conclusion holds."
    FAILS = "Its hypotheses are met but its conclusion does not hold."
    SILENT = "A hypothesis is not met, so it says nothing."
    VACUOUS = "It holds, but its bound is too weak to say anything."


@dataclasses.dataclass(frozen=True)
class Hypothesis:
    """One condition of a theorem on the data, network or run at hand: whether it is met, and by which numbers."""

    what: str  # as a reader would write it: "eig_min(G) > 0"
    met: bool
    found: float | None = None
    needed: float | None = None

    def __str__(self) -> str:
        named = {"found": self.found, "needed": self.needed}
        numbers = [f"{name} {_short(value)}" for name, value in named.items() if value is not None]
        return self.what + (f" ({', '.join(numbers)})" if numbers else "")


def _short(value: float) -> str:
    """Three digits, but counts in full."""
    return f"{value:.0f}" if abs(value) < 1e6 and value == int(value) else f"{value:.3g}"


@dataclasses.dataclass(frozen=True)
class Finding:
    """A verdict, why, and the numbers behind it.

    ``margin`` says how many times over the conclusion is met where it is met least: what was measured over what is
    guaranteed, or the other way round for an upper bound. It is at least 1 where the theorem holds (up to the error of
    the run), and None where it is silent. ``hypotheses`` lists every condition that was looked at.
    """

    verdict: Verdict
    why: str
    margin: float | None = None
    numbers: dict[str, float] = dataclasses.field(default_factory=dict)
    hypotheses: tuple[Hypothesis, ...] = ()


Setting = TypeVar("Setting")
Reading = Generator[Hypothesis, None, Setting]


class Theorem(eqx.Module, Generic[Setting]):
    """A statement of a paper that checks itself on a run.

    It reads a run once: `read` yields the hypotheses and returns what the conclusion needs, its setting. Readings
    compose: ``setting = yield from another_reading(run)``.

    A theorem on data and network alone takes them from the run's start: a run to ``times=[0]`` is enough for it.
    Theorems with free constants (a probability, an interval) have them as fields, and stand in the catalogue with
    their defaults.
    """

    key: AbstractVar[str]  # "chen2022/theorem-1"
    source: AbstractVar[str]  # "Chen, Vanden-Eijnden, Bruna (2022), Theorem 1"
    statement: AbstractVar[str]  # one sentence
    feasible: ClassVar[bool] = True  # False: no problem that fits into a computer meets its hypotheses

    @abc.abstractmethod
    def needs(self, network: Network, data: Dataset) -> Sequence[Probe]:
        """Give the probes that the theorem has to look through along the run; none for networks it does not know."""

    @abc.abstractmethod
    def read(self, run: Trajectory) -> Reading[Setting | None]:
        """Yield the hypotheses on data, network and run, and return the setting for `conclude`.

        A reading may end early, with ``return None``, once it has yielded a hypothesis that is not met and without
        which the others make no sense. What the probes observed is not there yet if a probe is missing: read it in
        `conclude`.
        """

    @abc.abstractmethod
    def conclude(self, setting: Setting) -> Finding:
        """Check the conclusion on a run that meets all hypotheses and was observed with all probes needed."""

    @abc.abstractmethod
    def example(self) -> Trajectory:
        """Give a run about which the theorem speaks, and holds; where it is not feasible, one as near as can be."""

    @abc.abstractmethod
    def counterexample(self) -> Trajectory:
        """Give a run about which it must not say that it holds."""

    def check(self, run: Trajectory) -> Finding:
        """Speak about ``run``, or say why not."""
        hypotheses, setting = read_all(self.read(run))
        unmet = [one for one in hypotheses if not one.met]
        if setting is None and not unmet:
            raise TypeError(f"{type(self).__name__}.read returned no setting although all hypotheses are met.")
        if unmet or setting is None:
            why = "Not met: " + "; ".join(map(str, unmet)) + "."
            return Finding(Verdict.SILENT, why, hypotheses=hypotheses)
        missing = [probe for probe in self.needs(run.start, run.data) if through(run, probe) is None]
        if missing:
            why = f"It has to watch the run: add probes=[{', '.join(map(repr, missing))}]."
            return Finding(Verdict.SILENT, why, hypotheses=hypotheses)
        return dataclasses.replace(self.conclude(setting), hypotheses=hypotheses)


def read_all(reading: Reading[Setting]) -> tuple[tuple[Hypothesis, ...], Setting]:
    """Go through a reading to its end, and give all hypotheses and the setting."""
    hypotheses: list[Hypothesis] = []
    while True:
        try:
            hypotheses.append(next(reading))
        except StopIteration as end:
            return tuple(hypotheses), end.value


def through(run: Trajectory, probe: Probe) -> Any:
    """Give what ``run`` saw through a probe equal to ``probe``, whatever it was called; None if there was none."""
    for name, one in run.probes.items():
        if name in run.observed and type(one) is type(probe) and bool(eqx.tree_equal(one, probe)):
            return run.observed[name]
    return None
