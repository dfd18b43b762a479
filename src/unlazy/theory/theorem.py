"""Theorems: objects that check their hypotheses and their conclusion on a run."""

import abc
import dataclasses
import enum
from collections.abc import Callable, Generator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Self, TypeVar

import equinox as eqx
import numpy as np

from unlazy._errors import UserError
from unlazy.data import Dataset
from unlazy.flows import Trajectory
from unlazy.networks import Network
from unlazy.probes import Probe

if TYPE_CHECKING:  # what type checkers understand; it has to be imported in the file that uses it
    from typing import ClassVar as AbstractVar
else:
    from equinox import AbstractVar


class Verdict(enum.Enum):
    """What a theorem says about a run."""

    HOLDS = "Its hypotheses are met and its conclusion holds."
    FAILS = "Its hypotheses are met but its conclusion does not hold."
    SILENT = "A hypothesis is not met, so it says nothing."
    VACUOUS = "It holds, but its bound is too weak to say anything."


@dataclasses.dataclass(frozen=True)
class Hypothesis:
    """One condition of a theorem, checked on a run.

    Parameters
    ----------
    what
        The condition in words or formulas: "eig_min(G) > 0".
    met
        Whether the run satisfies it.
    found, needed
        The value found in the run, and the one that the theorem needs, where the condition is about a number.
    """

    what: str
    met: bool
    found: float | None = None
    needed: float | None = None

    def __str__(self) -> str:
        named = {"found": self.found, "needed": self.needed}
        numbers = [f"{name} {_short(value)}" for name, value in named.items() if value is not None]
        return self.what + (f" ({', '.join(numbers)})" if numbers else "")


def _short(value: float) -> str:
    """Format with three digits, but counts in full."""
    return f"{value:.0f}" if abs(value) < 1e6 and value == int(value) else f"{value:.3g}"


@dataclasses.dataclass(frozen=True)
class Finding:
    """The verdict of a theorem on a run, with its reasons.

    Parameters
    ----------
    verdict
        Whether the theorem applies and holds.
    why
        The reason, in sentences with numbers.
    margin
        The smallest factor by which the conclusion is satisfied: measured over guaranteed, or the inverse for an upper
        bound. It is at least 1 where the theorem holds (up to the error of the run), and None where the theorem is
        silent or the run is not accurate enough to measure it.
    numbers
        The numbers behind the verdict, by name.
    hypotheses
        Every condition that was checked; `Theorem.check` fills them in.
    """

    verdict: Verdict
    why: str
    margin: float | None = None
    numbers: dict[str, float] = dataclasses.field(default_factory=dict)
    hypotheses: tuple[Hypothesis, ...] = ()

    @classmethod
    def judge(
        cls,
        holds: bool | np.bool,
        why: str,
        margin: float | None,
        numbers: dict[str, float],
        *,
        vacuous: bool | np.bool = False,
        if_vacuous: str = "",
        if_fails: str = "",
    ) -> Self:
        """Return the finding for a conclusion that holds or fails.

        Parameters
        ----------
        holds
            Whether the conclusion holds.
        why, margin, numbers
            As in `Finding`.
        vacuous
            Whether the conclusion, if it holds, is too weak to say anything.
        if_vacuous, if_fails
            A sentence to add to ``why`` if the verdict is VACUOUS or FAILS.
        """
        verdict, more = Verdict.HOLDS, ""
        if not holds:
            verdict, more = Verdict.FAILS, if_fails
        elif vacuous:
            verdict, more = Verdict.VACUOUS, if_vacuous
        return cls(verdict, f"{why} {more}" if more else why, margin, numbers)


class Example:
    """An `example` or `counterexample` of a theorem: a run that is computed when it is called.

    ``theorem.example()`` trains the network and returns the run.

    Parameters
    ----------
    make
        Function that returns the run.
    *args, **options
        Passed on to ``make``.
    """

    def __init__(self, make: Callable[..., Trajectory], *args: Any, **options: Any) -> None:
        self.make, self.args, self.options = make, args, options

    def __call__(self) -> Trajectory:
        """Compute the run."""
        return self.make(*self.args, **self.options)


Setting = TypeVar("Setting")
Value = TypeVar("Value")
Reading = Generator[Hypothesis, None, Setting]


class Theorem(eqx.Module, Generic[Setting]):
    """A statement of a paper that checks itself on a run.

    It reads a run once: `read` yields the hypotheses and returns what the conclusion needs, its setting. Readings
    compose: ``setting = yield from another_reading(run)``.

    For a theorem about data and network alone, a run to ``times=[0]`` is enough. Free constants of a theorem (a
    probability, an interval) are fields; listings show the theorem with their defaults.

    Attributes
    ----------
    key
        The name in lists and commands: "chen2022/theorem-1".
    source
        Where it is proved: "Chen, Vanden-Eijnden, Bruna (2022), Theorem 1".
    statement
        What it says, in one sentence.
    example
        A run on which it holds; if it is not feasible, a run that comes as close as possible.
    counterexample
        A run on which it must not hold.
    feasible
        False if no problem that fits into a computer meets its hypotheses.
    probes
        The probes that a run must have for `conclude`.
    """

    key: AbstractVar[str]
    source: AbstractVar[str]
    statement: AbstractVar[str]
    example: AbstractVar[Example]
    counterexample: AbstractVar[Example]
    feasible: ClassVar[bool] = True
    probes: ClassVar[tuple[Probe, ...]] = ()

    @staticmethod
    def knows(network: Network) -> bool:
        """Return whether the theorem may apply to a network, as far as its initial state shows."""
        return True

    def needs(self, network: Network, data: Dataset) -> Sequence[Probe]:
        """Return the probes that a run from this network on these data must have.

        By default they are `probes` for networks that the theorem knows, and none for others.
        """
        return self.probes if self.knows(network) else ()

    @abc.abstractmethod
    def read(self, run: Trajectory) -> Reading[Setting | None]:
        """Yield the hypotheses on data, network and run, and return the setting for `conclude`.

        A reading ends early, by `require`, `require_type` or ``return None``, if a hypothesis is not met that the
        others depend on. Use observations in `conclude` only: here ``run`` is any run, which may lack a probe.
        """

    @abc.abstractmethod
    def conclude(self, setting: Setting) -> Finding:
        """Check the conclusion on what `read` returned for a run that meets all hypotheses and has all probes."""

    def check(self, run: Trajectory) -> Finding:
        """Check hypotheses and conclusion on any run."""
        hypotheses, setting = read_all(self.read(run))
        unmet = [one for one in hypotheses if not one.met]
        if setting is None and not unmet:
            raise TypeError(f"{type(self).__name__}.read returned no setting although all hypotheses are met.")
        if unmet or setting is None:
            why = "Not met: " + "; ".join(map(str, unmet)) + "."
            return Finding(Verdict.SILENT, why, hypotheses=hypotheses)
        missing = [probe for probe in self.needs(run.start, run.data) if through(run, probe) is None]
        if missing:
            why = f"It needs observations of the run: add probes=[{', '.join(map(repr, missing))}]."
            return Finding(Verdict.SILENT, why, hypotheses=hypotheses)
        return dataclasses.replace(self.conclude(setting), hypotheses=hypotheses)


class WithProbability(Theorem[Setting]):
    """A theorem that holds with probability 1 - δ over random starts.

    Parameters
    ----------
    delta
        Failure probability δ.
    """

    delta: float = eqx.field(static=True, default=0.05)

    def __check_init__(self) -> None:
        check_probability(self.delta)


def check_probability(delta: float) -> None:
    """Raise an error unless a failure probability lies between 0 and 1.

    Parameters
    ----------
    delta
        The failure probability.
    """
    if not 0 < delta < 1:
        raise UserError(f"delta = {delta} is not a probability between 0 and 1: try delta = 0.05.")


class _NotMet(Exception):
    """Ends a reading after a hypothesis that is not met."""


def require(*hypotheses: Hypothesis) -> Generator[Hypothesis, None, None]:
    """Yield hypotheses, and end the reading unless all of them are met: ``yield from require(...)``.

    Parameters
    ----------
    *hypotheses
        Conditions without which the rest of the reading makes no sense.
    """
    yield from hypotheses
    if not all(one.met for one in hypotheses):
        raise _NotMet


def require_type(what: str, value: object, kind: type[Value]) -> Reading[Value]:
    """Return a value that has the required type, else end the reading: ``yield from require_type(...)``.

    Parameters
    ----------
    what
        The hypothesis in words.
    value
        Any object.
    kind
        The type that it must have.
    """
    yield Hypothesis(what, isinstance(value, kind))
    if not isinstance(value, kind):
        raise _NotMet
    return value


def read_all(reading: Reading[Value]) -> tuple[tuple[Hypothesis, ...], Value | None]:
    """Run a reading to its end, and return all hypotheses, and the setting unless the reading ended early.

    Parameters
    ----------
    reading
        What `Theorem.read` returns.
    """
    hypotheses: list[Hypothesis] = []
    while True:
        try:
            hypotheses.append(next(reading))
        except StopIteration as end:
            return tuple(hypotheses), end.value
        except _NotMet:
            return tuple(hypotheses), None


def through(run: Trajectory, probe: Probe) -> Any:
    """Return the observations of a probe equal to ``probe``, under any name; None if the run has no such probe.

    Parameters
    ----------
    run
        The run.
    probe
        The probe, compared by type and fields.
    """
    for name, one in run.probes.items():
        if name in run.observed and type(one) is type(probe) and bool(eqx.tree_equal(one, probe)):
            return run.observed[name]
    return None
