"""Papers: every figure as a runnable panel with its claims as checks. One file a paper."""

import sys

from unlazy._catalogue import walk
from unlazy._errors import UserError, suggest
from unlazy.papers._base import Claim, Panel, Results, Scale


def panels() -> dict[str, Panel]:
    """Give all panels, by key."""
    # By key and not by name: more than one paper has a `fig1`.
    return {panel.key: panel for _, panel in walk(sys.modules[__name__], Panel) if isinstance(panel, Panel)}


def choose(name: str) -> list[Panel]:
    """Give the panel called ``name`` ("chen2022/fig1"), or all panels of a paper ("chen2022")."""
    known = panels()
    if name in known:
        return [known[name]]
    of_paper = [panel for key, panel in known.items() if key.partition("/")[0] == name]
    if not of_paper:
        raise UserError(f"There is no panel or paper called '{name}'. {suggest(name, [*known, *_papers(known)])}")
    return of_paper


def _papers(known: dict[str, Panel]) -> set[str]:
    return {key.partition("/")[0] for key in known}


__all__ = ["Claim", "Panel", "Results", "Scale", "choose", "panels"]
