"""The two variants of a figure: in the settings of the paper's text, and in those of the authors' released code."""

from typing import Any

from unlazy.lab import Recipe
from unlazy.papers._base import Panel, Results, Sizes
from unlazy.papers.caron2023 import authors, comparison
from unlazy.papers.caron2023.comparison import COUNTS, IMPORTANCE, RELEASED, START, TEXT
from unlazy.papers.references import Reference

SHOWN = "Thick lines are medians over seeds, thin lines single seeds."


class Variant(Panel):
    """A figure as the text of the paper describes it, or, if ``released``, as the released code runs it."""

    data: str  # the data set, which also names the authors' numbers in `authors.ENDS`
    quantities: tuple[str, ...] | None = None  # the authors' numbers that the figure shows; all known ones if None

    def __init__(self, number: int, title: str, released: bool) -> None:
        self.released, self.settings = released, RELEASED if released else TEXT
        self.note = " (as released)" if released else ""
        self.key = f"caron2023/fig{number}" + ("-released" if released else "")
        self.title = f"Figure {number}: {title}{self.note}"

    def references(self, results: Results) -> list[Reference]:
        """For the released settings, the ends of the authors' curves."""
        return authors.references(results, self.data, self.quantities) if self.released else []

    def _recipes(self, name: str, sizes: Sizes, seeds: int | None, **options: Any) -> dict[str, Recipe]:
        """Return a recipe for each setting; options are those of `comparison.recipes`."""
        start = {"scale": START} if self.released else {}
        released = " released" if self.released else ""
        return comparison.recipes(f"{name}{released} {{}}", self.settings, sizes, seeds, **start, **options)

    def _at_end(self, transfer: dict[str, Any]) -> list[dict[str, Any]]:
        """Return the probes of pruning and transfer; the released code prunes and transfers by λ_j alone."""
        if self.released:
            return [
                {"kind": "pruning-by-scale", "as": "pruning", "when": "end"},
                {"kind": "pruning", "as": IMPORTANCE, "when": "end"},
                {"kind": "dense-transfer", "as": "transfer", "when": "end", **transfer},
            ]
        return [
            {"kind": "pruning", "when": "end"},
            {"kind": "transfer", "when": "end", "features": [*COUNTS], **transfer},
        ]
