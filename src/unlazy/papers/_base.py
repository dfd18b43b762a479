"""What a panel is: a figure of a paper that can be run, with the paper's claims as checks."""

from __future__ import annotations

import abc
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import xarray as xr

from unlazy._errors import UserError
from unlazy.lab import Lab

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Scale = Literal["quick", "paper"]
Results = Mapping[str, xr.Dataset]  # stored runs by label


@dataclass(frozen=True)
class Claim:
    """Something the paper says, what the run showed, and whether the two agree."""

    text: str  # what is checked, with its threshold
    paper: str  # the paper's own words or value
    measured: str  # numbers from the run
    holds: bool


class Panel(abc.ABC):
    """A figure or table of a paper, reproduced at ``quick`` scale (same claim, smaller) or at ``paper`` scale."""

    key: str  # "chen2022/fig1"
    title: str
    demo: bool = False  # one quick panel of each paper makes the demo

    @property
    @abc.abstractmethod
    def scales(self) -> dict[Scale, str]:
        """What is run at each scale, in a few words."""

    @abc.abstractmethod
    def run(self, scale: Scale, lab: Lab, seeds: int | None = None) -> Results:
        """Run all that the figure needs, or take it from the lab's store."""

    @abc.abstractmethod
    def claims(self, results: Results) -> list[Claim]:
        """Check the paper's claims on the results."""

    @abc.abstractmethod
    def draw(self, results: Results) -> Figure:
        """Draw the figure as in the paper."""

    @property
    @abc.abstractmethod
    def caption(self) -> str:
        """What the figure shows and what was chosen where the paper is silent."""


def check_finished(results: Results) -> None:
    """Refuse to judge claims on runs that did not reach their end."""
    for label, run in results.items():
        if not run.attrs["finished"]:
            raise UserError(
                f"The run '{label}' ended early ({_text(run.attrs['status'])}): its claims cannot be judged."
            )


def _text(status: Any) -> str:
    return status if isinstance(status, str) else ", ".join(map(str, status))
