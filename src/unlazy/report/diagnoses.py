"""Diagnoses, coordinate checks, searches of learning rates and phase diagrams, read from the files they write."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unlazy._errors import UserError
from unlazy._plain import check_figure, parse_json, read_sealed, read_text

_KINDS = {
    "diagnosis": "Regime",
    "coordinate check": "Coordinate check",
    "rate transfer": "Best learning rate",
    "phase diagram": "Phase diagram",
}
_POWERS = (
    "A dot is one seed; lines are fitted powers of the width, bands the 95 % intervals of their exponents. A cross "
    "marks widths at which runs diverged."
)
_CAPTIONS = {
    "diagnosis": _POWERS,
    "coordinate check": f"{_POWERS} Dotted lines have the predicted exponents.",
    "rate transfer": (
        "A dot is one seed, lines are medians, a star marks the best learning rate of each width, and a cross rates at "
        "which training diverged."
    ),
    "phase diagram": "Dots are computed runs. Between them, within cells of one regime, the quantity is interpolated.",
}


@dataclass(frozen=True)
class Diagnosed:
    """What a report shows of one diagnosis."""

    title: str
    answer: str
    reason: str
    head: list[str]
    rows: list[list[str]]
    figure: str
    caption: str
    settings: dict[str, str]
    command: str


def is_diagnosis(path: Path) -> bool:
    """Return whether a JSON file is one that a diagnosis, a coordinate check or a search of rates has written."""
    try:
        content = parse_json(read_text(path))
    except (OSError, ValueError):
        return False
    return isinstance(content, dict) and content.get("kind") in _KINDS


def read_diagnosis(path: Path) -> Diagnosed:
    """Read a diagnosis, and the figure beside it if there is one."""
    if not is_diagnosis(path):
        raise UserError(f"'{path}' is not a diagnosis: delete the file, or make it again.")
    try:
        return _shown(path, *read_sealed(path))
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise UserError(f"'{path}' cannot be used ({error}): delete the file, or make it again.") from None


def _shown(path: Path, content: dict[str, Any], sealed: bool) -> Diagnosed:
    file, table = path.with_suffix(".svg"), content.get("table", {})
    figure = read_text(file) if file.is_file() else ""
    if sealed:
        check_figure(figure, content.get("figure_sha256"))
    settings = {name: str(value) for name, value in content.get("settings", {}).items()}
    return Diagnosed(
        title=f"{_KINDS[content['kind']]} of {path.stem}",
        answer=str(content.get("answer", "")),
        reason=str(content.get("reason", "")),
        head=[str(name) for name in table.get("head", [])],
        rows=[[str(cell) for cell in row] for row in table.get("rows", [])],
        figure=figure,
        caption=_CAPTIONS[content["kind"]],
        command=settings.pop("command", ""),
        settings=settings,
    )
