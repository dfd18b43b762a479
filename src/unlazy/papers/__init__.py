"""Papers: every figure as a runnable panel with its claims as checks. One file or folder for each paper."""

from unlazy import _registry
from unlazy.papers._base import Claim, Panel, Results, Scale, agreement, check_claims, grid, option, recipe_of, values
from unlazy.papers.outcomes import Judgement, Outcome
from unlazy.papers.references import Reference, compare


def panels() -> dict[str, Panel]:
    """Return all panels by key, of unlazy and of plug-ins."""
    return {panel.key: panel for panel in _registry.choose("panel")}


def choose(name: str) -> list[Panel]:
    """Return panels by name.

    Parameters
    ----------
    name
        A panel ("chen2022/fig1"), a paper ("chen2022") for all of its panels, or one of your own as
        "package.module:name".
    """
    return _registry.choose("panel", name)


__all__ = [
    "Claim",
    "Judgement",
    "Outcome",
    "Panel",
    "Reference",
    "Results",
    "Scale",
    "agreement",
    "check_claims",
    "choose",
    "compare",
    "grid",
    "option",
    "panels",
    "recipe_of",
    "values",
]
