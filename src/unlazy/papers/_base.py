"""Panels, which describe a figure of a paper by recipes, claims and a drawing, and functions that read stored runs."""

import abc
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Literal

import xarray as xr

from unlazy._errors import UserError
from unlazy.lab import Recipe, parse
from unlazy.lab.stored import statuses
from unlazy.papers.outcomes import Judgement, Outcome, certain, together
from unlazy.papers.references import Reference

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
else:
    Axes = Figure = Any  # only in annotations: Matplotlib is imported when something is drawn

Scale = Literal["quick", "paper"]
Results = Mapping[str, xr.Dataset]  # stored runs by label
_REQUIRED: Any = object()


@dataclass(frozen=True)
class Claim:
    """A statement of the paper, what the runs showed, and whether the two agree.

    Attributes
    ----------
    text
        What is checked, with its threshold.
    paper
        The paper's own words or value.
    measured
        Numbers from the runs.
    judged
        The outcome, and the test that led to it (see `unlazy.papers.outcomes`); True or False for a statement that
        chance cannot affect.
    weaker
        Whether this is a weaker statement than the paper's, checked in addition to the strict one.
    hindsight
        Whether the statement was fixed after its outcome had been seen.
    """

    text: str
    paper: str
    measured: str
    judged: Judgement | bool
    weaker: bool = False
    hindsight: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "judged", self.judgement)

    @property
    def judgement(self) -> Judgement:
        """The outcome with the test that led to it."""
        return self.judged if isinstance(self.judged, Judgement) else certain(bool(self.judged))

    @property
    def outcome(self) -> Outcome:
        """What the runs say about the claim."""
        return self.judgement.outcome

    @property
    def basis(self) -> str:
        """What the outcome rests on, in words: the test, the number of seeds that agree, and caveats."""
        notes = [self.judgement.test, self.judgement.counted]
        notes += ["a weaker statement than the paper's"] if self.weaker else []
        notes += ["fixed after its outcome had been seen"] if self.hindsight else []
        return "; ".join(filter(None, notes))

    @property
    def holds(self) -> bool:
        """Whether the outcome is that the claim holds."""
        return self.outcome is Outcome.HOLDS

    @property
    def fails(self) -> bool:
        """Whether the outcome is that the claim does not hold."""
        return self.outcome is Outcome.FAILS


class Panel(abc.ABC):
    """A figure or table of a paper, reproduced at ``quick`` scale (same claim, smaller) or at ``paper`` scale.

    Its methods take ``results``, the stored runs by the labels of the recipes.

    Attributes
    ----------
    key
        Paper and figure, such as "chen2022/fig1"; every panel has its own.
    title
        One line for lists and reports.
    caption
        What the figure shows, and what was chosen where the paper does not say.
    scales
        What is run at each scale, in a few words.
    demo
        Whether `unlazy demo` reproduces the panel at quick scale.
    may_diverge
        Whether the claims can be checked on a run that diverged. Otherwise every run has to reach its end.
    """

    key: str
    title: str
    caption: str
    scales: Mapping[Scale, str]
    demo: bool = False
    may_diverge: bool = False

    def __repr__(self) -> str:
        return f"<Panel {self.key}: {self.title}>"

    @abc.abstractmethod
    def recipes(self, scale: Scale, seeds: int | None = None) -> dict[str, Recipe]:
        """Return the recipes of all runs that the figure needs, by label; nothing is run.

        Parameters
        ----------
        scale
            "quick" or "paper".
        seeds
            Number of seeds of each run, if not that of the scale.
        """

    @abc.abstractmethod
    def claims(self, results: Results) -> list[Claim]:
        """Check the paper's claims on finished runs."""

    @abc.abstractmethod
    def draw(self, results: Results) -> Figure:
        """Draw the figure as in the paper."""

    def references(self, results: Results) -> list[Reference]:
        """Return the authors' numbers beside ours (see `unlazy.papers.compare`); none by default."""
        return []


def check_claims(panel: Panel, results: Results) -> list[Claim]:
    """Check a panel's claims on its results; it is an error if a run ended early.

    Parameters
    ----------
    panel
        The panel.
    results
        Stored runs, by the labels of the panel's recipes.
    """
    for label, run in results.items():
        status = statuses(run)
        if not (run.attrs["finished"] or (getattr(panel, "may_diverge", False) and "diverged" in status)):
            raise UserError(f"The run '{label}' ended early ({', '.join(status)}): its claims cannot be judged.")
    return panel.claims(results)


def agreement(references: Iterable[Reference]) -> list[Claim]:
    """Claim, for each quantity, that the authors' numbers agree with ours in every setting.

    Parameters
    ----------
    references
        The authors' numbers beside ours, as `Panel.references` returns them. Unknown numbers are shown, but not judged.
    """
    groups: dict[str, list[Reference]] = {}
    for one in references:
        groups.setdefault(one.quantity, []).append(one)
    found = []
    for quantity, members in groups.items():
        known = [one for one in members if one.authors is not None]
        if not known:
            continue
        several = "" if len(known) == 1 else " in every setting"
        found.append(
            Claim(
                text=f"{quantity} agrees with the authors' number{several}: it lies in the 95 % interval that our runs "
                "predict for it",
                paper=", ".join(dict.fromkeys(one.source for one in members)),
                measured="; ".join(map(_beside, members)),
                judged=together(one.judgement for one in known),
            )
        )
    return found


def _beside(one: Reference) -> str:
    authors = ", ".join(filter(None, (one.authors_in_words, one.distance)))
    return f"{one.setting + ': ' if one.setting else ''}{one.ours_in_words} (authors: {authors})"


def recipe_of(run: xr.Dataset) -> Recipe:
    """Return the recipe of a stored run.

    Parameters
    ----------
    run
        A run as it is read from the store.
    """
    return parse(json.loads(run.attrs["recipe"]))


def option(run: xr.Dataset, path: str, default: Any = _REQUIRED) -> Any:
    """Return an entry of the recipe of a stored run.

    Parameters
    ----------
    run
        A run as it is read from the store.
    path
        Names joined by dots, with a number for an element of a list: "network.width", "network.widths.0". The kind of a
        section is found under "kind" also where the recipe has only its name: "flow.kind".
    default
        What to return where the recipe has no such entry. Without a default, a missing entry is a `KeyError`.
    """
    found: Any = json.loads(run.attrs["recipe"])
    for name in path.split("."):
        if isinstance(found, list):
            found = found[int(name)]
            continue
        section = {"kind": found} if isinstance(found, str) else found
        if name not in section:
            if default is _REQUIRED:
                raise KeyError(f"'{path}' is not in the recipe of this run")
            return default
        found = section[name]
    return found


def values(results: Results, path: str) -> list[Any]:
    """Return the distinct values of an entry of the recipes, in the order of the runs.

    Parameters
    ----------
    results
        Stored runs by label; those whose recipe has no such entry are left out.
    path
        The entry, as in `option`.
    """
    found: list[Any] = []
    for run in results.values():
        value = option(run, path, None)
        if value is not None and value not in found:
            found.append(value)
    return found


def grid(results: Results, *paths: str) -> dict[tuple[Any, ...], xr.Dataset]:
    """Arrange runs by entries of their recipes, such as "network.width" and "data.n": a run for each combination.

    Parameters
    ----------
    results
        Stored runs by label.
    paths
        The entries, as in `option`.
    """
    return {tuple(option(run, path) for path in paths): run for run in results.values()}


class Sizes(SimpleNamespace):
    """The sizes of a panel's runs at one scale, by name: ``Sizes(width=1000, seeds=2)``."""


def by_scale(sizes: Mapping[Scale, Any], words: Callable[[Any], str]) -> dict[Scale, str]:
    """Describe the sizes of each scale with the same words, for `Panel.scales`."""
    return {scale: words(one) for scale, one in sizes.items()}
