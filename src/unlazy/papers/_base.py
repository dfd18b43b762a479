"""Panels, each a figure of a paper as data (recipes, claims and a drawing), and helpers that panels share."""

from __future__ import annotations

import abc
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import xarray as xr

from unlazy._errors import UserError
from unlazy.lab import Recipe, parse
from unlazy.lab.store import statuses

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
else:
    Axes = Figure = Any  # only in annotations: Matplotlib is imported when something is drawn

Scale = Literal["quick", "paper"]
Results = Mapping[str, xr.Dataset]  # stored runs by label
Sizes = TypeVar("Sizes")
_REQUIRED: Any = object()


@dataclass(frozen=True)
class Claim:
    """A statement of the paper, what the run showed, and whether the two agree."""

    text: str  # what is checked, with its threshold
    paper: str  # the paper's own words or value
    measured: str  # numbers from the run
    holds: bool


class Panel(abc.ABC):
    """A figure or table of a paper, reproduced at ``quick`` scale (same claim, smaller) or at ``paper`` scale.

    Attributes
    ----------
    key
        Paper and figure, such as "chen2022/fig1"; no two panels share one.
    title
        One line for lists and reports.
    caption
        What the figure shows, and what was chosen where the paper is silent.
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
        """Give the recipes of all runs that the figure needs, by label; nothing is run.

        Parameters
        ----------
        scale
            "quick" or "paper".
        seeds
            Number of seeds of each run, if not that of the scale.
        """

    @abc.abstractmethod
    def claims(self, results: Results) -> list[Claim]:
        """Check the paper's claims on the results, which have the labels of the recipes; all runs are finished."""

    @abc.abstractmethod
    def draw(self, results: Results) -> Figure:
        """Draw the figure as in the paper."""


def check_claims(panel: Panel, results: Results) -> list[Claim]:
    """Check a panel's claims on its results; results of runs that ended early are an error."""
    for label, run in results.items():
        status = statuses(run)
        allowed = getattr(panel, "may_diverge", False) and "diverged" in status
        if not (run.attrs["finished"] or allowed):
            raise UserError(f"The run '{label}' ended early ({', '.join(status)}): its claims cannot be judged.")
    return panel.claims(results)


def recipe_of(run: xr.Dataset) -> Recipe:
    """Give the recipe of a stored run."""
    return parse(json.loads(run.attrs["recipe"]))


def option(run: xr.Dataset, path: str, default: Any = _REQUIRED) -> Any:
    """Give an entry of the recipe of a stored run.

    Parameters
    ----------
    run
        A run as the store gives it.
    path
        Names joined by dots, with a number for an element of a list: "network.width", "network.widths.0". The kind of a
        section is found under "kind" also where the recipe has only its name: "flow.kind".
    default
        What to give where the recipe has no such entry. Without a default, that is a `KeyError`.
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
    """Give the different values of an entry of the recipe over all runs that have it, in the order of the runs."""
    found: list[Any] = []
    for run in results.values():
        value = option(run, path, None)
        if value is not None and value not in found:
            found.append(value)
    return found


def grid(results: Results, *paths: str) -> dict[tuple[Any, ...], xr.Dataset]:
    """Arrange runs by entries of their recipes, such as "network.width" and "data.n": a run for each combination."""
    return {tuple(option(run, path) for path in paths): run for run in results.values()}


def by_scale(sizes: Mapping[Scale, Sizes], words: Callable[[Sizes], str]) -> dict[Scale, str]:
    """Describe the sizes of each scale with the same words, for `Panel.scales`."""
    return {scale: words(one) for scale, one in sizes.items()}
