"""Writes gallery.md from the records beside the figures, and makes the figures small: python docs/make_gallery.py.

Figures and records are what `unlazy reproduce PANEL --scale paper` leaves in the folder `panels` of its results: copy
them to docs/gallery and run this. Coordinates are rounded to 0.01 pt, and points that are nearer than 0.05 pt to the
line through the others are left out: a twentieth of the width of a line, and of what a screen can show.
"""

from __future__ import annotations

import itertools
import json
import math
import re
from collections import Counter
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


# ---------------------------------------------------------------- small figures

TOLERANCE = 0.05  # pt


def compact(svg: str) -> str:
    """Give the same drawing in fewer bytes; what is compact already stays as it is."""
    svg = re.sub(r"<!--.*?-->\n?", "", svg, flags=re.DOTALL)
    svg = re.sub(r"\n +(?=<)", "\n", svg)
    svg = re.sub(r'(?<= )(x|y)="(-?[0-9.]+)"', lambda found: f'{found[1]}="{_number(float(found[2]))}"', svg)
    svg = re.sub(r'(?<= )d="([^"]*)"', lambda found: f'd="{_path(found[1])}"', svg)
    often = [style for style, count in Counter(re.findall(r' style="([^"]*)"', svg)).items() if count > 2]
    for index, style in enumerate(often):
        svg = svg.replace(f' style="{style}"', f' class="s{index}"')
    classes = "".join(f".s{index}{{{style}}}" for index, style in enumerate(often))
    return svg.replace("</style>", f"{classes}</style>", 1)


def _number(value: float) -> str:
    text = f"{value:.2f}".rstrip("0").rstrip(".")
    return "0" if text == "-0" else text


def _path(path: str) -> str:
    if " " not in re.sub(r"[0-9] -?[0-9]", "", path):  # compact already: no space but between numbers
        return path
    commands = re.findall(r"([A-Za-z])([^A-Za-z]*)", path)
    if {command for command, _ in commands} <= set("MLz"):
        return "".join(_polyline(part) for part in re.split(r"(?=M)", path) if part.strip())
    return "".join(command + " ".join(_number(float(one)) for one in numbers.split()) for command, numbers in commands)


def _polyline(part: str) -> str:
    """Write a line as its start and steps, which are shorter than places; they add up to the rounded places."""
    numbers = [float(one) for one in re.findall(r"-?[0-9.]+", part)]
    points = [(round(x, 2), round(y, 2)) for x, y in _thinned(list(zip(numbers[::2], numbers[1::2], strict=True)))]
    steps = [f"l{_number(x - a)} {_number(y - b)}" for (a, b), (x, y) in itertools.pairwise(points)]
    return f"M{_number(points[0][0])} {_number(points[0][1])}" + "".join(steps) + ("z" if "z" in part else "")


def _thinned(points: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """The points without which the line would leave its place (Douglas and Peucker 1973)."""
    kept, parts = {0, len(points) - 1}, [(0, len(points) - 1)]
    while parts:
        first, last = parts.pop()
        apart, where = max(
            ((_distance(points[one], points[first], points[last]), one) for one in range(first + 1, last)),
            default=(0.0, first),
        )
        if apart > TOLERANCE:
            kept.add(where)
            parts += [(first, where), (where, last)]
    return [points[one] for one in sorted(kept)]


def _distance(point: tuple[float, float], start: tuple[float, float], end: tuple[float, float]) -> float:
    """The distance of a point from a segment."""
    along = (end[0] - start[0], end[1] - start[1])
    length = along[0] ** 2 + along[1] ** 2
    share = ((point[0] - start[0]) * along[0] + (point[1] - start[1]) * along[1]) / length if length else 0.0
    share = min(max(share, 0.0), 1.0)
    return math.hypot(point[0] - start[0] - share * along[0], point[1] - start[1] - share * along[1])


if __name__ == "__main__":
    for figure in FOLDER.glob("*.svg"):
        figure.write_text(compact(figure.read_text(encoding="utf-8")), encoding="utf-8")
    (FOLDER.parent / "gallery.md").write_text(page(), encoding="utf-8")
