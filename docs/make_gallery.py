"""Writes gallery.md from the records beside the figures: python docs/make_gallery.py.

A record is what `unlazy reproduce PANEL --scale paper` leaves in the folder `panels` of its results.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "gallery"
HEAD = """# Gallery

Panels at the sizes of the papers, made by the command under each: what it shows, which claims were checked, and how
long it took on one or two cores. The record (JSON) beside each figure holds its recipes, versions and machine. This
page is generated from the records by `docs/make_gallery.py`.
"""


def page() -> str:
    """Give the page."""
    records = [(path, json.loads(path.read_text(encoding="utf-8"))) for path in FOLDER.glob("*.json")]
    records.sort(key=lambda one: _order(one[1]["panel"]))
    return "\n".join([HEAD, *(_section(path.stem, record) for path, record in records)])


def _order(panel: str) -> tuple[str, str, int]:
    paper, _, name = panel.partition("/")
    kind, number = re.fullmatch(r"([a-z-]*)([0-9]*).*", name).groups()
    return paper, kind, int(number or 0)


def _section(stem: str, record: dict[str, Any]) -> str:
    paper = record["panel"].partition("/")[0]
    seconds = record["seconds"]
    took = f"{seconds:.0f} seconds" if seconds < 120 else f"{seconds / 60:.0f} minutes"
    seeds = re.search(r"\(run with seeds = ([0-9]+)\)", record["settings"])
    command = f"unlazy reproduce {record['panel']} --scale {record['scale']}"
    command += f" --seeds {seeds[1]}" if seeds else ""
    rows = [
        f"| {_cell(claim['text'])} | {_cell(claim['measured'])} | {'holds' if claim['holds'] else 'does not hold'} |"
        for claim in record["claims"]
    ]
    return "\n".join(
        [
            f"## {paper}, {record['title'][0].lower()}{record['title'][1:]}\n",
            f"![{_cell(record['title'])}: {_cell(record['settings'])}](gallery/{stem}.svg)\n",
            f"{record['settings']}. {record['caption']}\n",
            "| claim | measured | |\n|---|---|---|",
            *rows,
            f"\n`{command}`: {took}.\n",
        ]
    )


def _cell(text: str) -> str:
    """Text that neither Markdown nor a table takes for something else."""
    return re.sub(r"([|\\*_<>\[\]])", r"\\\1", text)


if __name__ == "__main__":
    (FOLDER.parent / "gallery.md").write_text(page(), encoding="utf-8")
