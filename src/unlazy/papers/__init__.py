"""Papers: every figure as a runnable panel with its claims as checks. One file or folder for each paper."""

from unlazy import _registry
from unlazy.papers._base import Claim, Panel, Results, Scale, check_claims, grid, option, recipe_of, values


def panels() -> dict[str, Panel]:
    """Give all panels by key, of unlazy and of plug-ins."""
    return {panel.key: panel for panel in _registry.choose("panel")}


def choose(name: str) -> list[Panel]:
    """Give panels by name.

    Parameters
    ----------
    name
        A panel ("chen2022/fig1"), a paper ("chen2022") for all of its panels, or one of your own as
        "package.module:name".
    """
    return _registry.choose("panel", name)


__all__ = [
    "Claim",
    "Panel",
    "Results",
    "Scale",
    "check_claims",
    "choose",
    "grid",
    "option",
    "panels",
    "recipe_of",
    "values",
]
