"""Writes gallery.md and fidelity.md from the records of panels, and makes figures small: python docs/make_gallery.py.

Figures and records are what `unlazy reproduce PANEL --scale paper` leaves in the folder `panels` of its results: copy
them to docs/gallery and run this. Coordinates are rounded to 0.01 pt, and points that are nearer than 0.05 pt to the
line through the others are left out: a twentieth of the width of a line, and of what a screen can show.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import json
import math
import re
from collections import Counter
from collections.abc import Collection, Sequence
from pathlib import Path

import msgspec

from unlazy._errors import UserError
from unlazy._plain import parse_json, seal, unseal
from unlazy.lab import parse
from unlazy.lab.identity import identify
from unlazy.papers import Claim, Panel, Reference, panels
from unlazy.papers.outcomes import tally
from unlazy.report.record import EARLIER_RULES, Record, read_record, stem

FOLDER = Path(__file__).parent / "gallery"
HEAD = """# Gallery

The figures and tables of the papers, reproduced at the papers' own sizes. Below each figure are the claims that were
checked on its runs, the command that reproduces it, and how long that took on one or two cores (some of it while other
programs were running). Older records leave out the time for judging claims, in which figures 7 and 14 of zhou2023 are
computed. The record (JSON) beside each figure holds its recipes, versions and machine. This page is generated from the
records by `docs/make_gallery.py`. [Fidelity](fidelity.md) compares our numbers with the authors', and quotes the paper
on each claim.

A claim holds, does not hold, is vacuous (no result of the runs could have contradicted it) or undecided (the difference
is within the spread of the seeds, or there are too few seeds). Outcomes "by earlier rules" are from records older than
these four outcomes: those claims were judged by a threshold on means or medians over seeds, and some of them could not
have failed. Where the runs of a panel are stored, `unlazy reproduce PANEL --scale paper --stored` judges them by the
present rules without training again; the runs of these records were not kept. A record "made with earlier settings" is
of runs whose settings are not those that the panel has now: the panel has not been run again since they changed.
"""
EARLIER_SETTINGS = "made with earlier settings"
# Times of these panels follow from their data, without which their recipes cannot be stated.
FROM_DATA = {"zhou2023/prediction", "zhou2023/theorem-1"}


def kept() -> list[Record]:
    """Read the records of the gallery, in the order of the pages."""
    return sorted(map(read_record, FOLDER.glob("*.json")), key=lambda record: (_order(record.panel), record.scale))


def is_earlier(record: Record, every: Sequence[Panel]) -> bool:
    """Whether a panel has other data, networks, methods or ends now than those of its record.

    Parameters
    ----------
    record
        The record.
    every
        All panels.
    """
    found = [panel for panel in every if panel.key == record.panel]
    if not found or record.panel in FROM_DATA:
        return False
    try:
        made = set(map(_trained, record.recipes.values()))
    except UserError:
        return True  # with names or options that are no longer known
    return made != {_trained(recipe.json()) for recipe in found[0].recipes(record.scale).values()}


@functools.cache
def _trained(recipe: str) -> tuple[str, float]:
    """Identify what a recipe trains and for how long, whatever its seeds and probes."""
    one = msgspec.structs.replace(parse(json.loads(recipe)), seed=0, seeds=1)
    return identify(one).trajectories[0], float(one.grid()[-1])


def page(records: Sequence[Record], every: Sequence[Panel]) -> str:
    """Write the gallery.

    Parameters
    ----------
    records
        The records of the gallery.
    every
        All panels.
    """
    return "\n".join([HEAD, *(_section(record, is_earlier(record, every)) for record in records)])


def _order(panel: str) -> tuple[str, str, int, str]:
    paper, _, name = panel.partition("/")
    kind, number = re.fullmatch(r"([a-z-]*)([0-9]*).*", name).groups()
    return paper, kind, int(number or 0), name


def _section(record: Record, earlier: bool) -> str:
    seconds = record.seconds + record.judging
    took = _plural(round(seconds), "second") if seconds < 120 else f"{seconds / 60:.0f} minutes"
    rows = [f"| {_cell(claim.text)} | {_cell(claim.measured)} | {_outcome(claim)} |" for claim in record.claims]
    numbers = [
        f"| {_cell(one.name)} | {one.ours_in_words} | {one.authors_in_words} | {one.distance} | {one.agreement} |"
        for one in record.references or ()
    ]
    if numbers:
        numbers = ["\n| quantity | ours | the authors' | distance | |\n|---|---|---|---|---|", *numbers]
    return "\n".join(
        [
            f"## {record.paper}, {record.title[0].lower()}{record.title[1:]}\n",
            f"![{_cell(record.title)}: {_cell(record.settings)}](gallery/{stem(record.panel, record.scale)}.svg)\n",
            *([f"**This record was {EARLIER_SETTINGS}.**\n"] if earlier else []),
            f"{record.settings}. {record.caption}\n",
            "| claim | measured | |\n|---|---|---|",
            *rows,
            *numbers,
            f"\n`{_command(record)}`: {took}.\n",
        ]
    )


def _command(record: Record) -> str:
    seeds = re.search(r"\(run with seeds = ([0-9]+)\)", record.settings)
    return f"unlazy reproduce {record.panel} --scale {record.scale}" + (f" --seeds {seeds[1]}" if seeds else "")


def _outcome(claim: Claim) -> str:
    """Give the outcome of a claim and what it rests on."""
    if _by_earlier_rules(claim):
        return f"{'held' if claim.holds else 'did not hold'} by earlier rules"
    return f"**{claim.outcome.value}**" + (f" ({_cell(claim.basis)})" if claim.basis else "")


def _by_earlier_rules(claim: Claim) -> bool:
    return claim.judgement.test == EARLIER_RULES


def _cell(text: str) -> str:
    """Text that neither Markdown nor a table takes for something else."""
    return re.sub(r"([|\\*_<>\[\]])", r"\\\1", text)


# ---------------------------------------------------------------- fidelity

FIDELITY = """# Fidelity

How close the reproductions are to the papers: for every panel, our numbers beside those of the authors, and the outcome
of every claim. This page is generated by `docs/make_gallery.py` from the records of the [gallery](gallery.md), which
`unlazy reproduce PANEL --scale paper` writes; nothing in it is typed by hand. A panel without a record is listed as not
run yet.

Our number is the mean over seeds ± their standard deviation (SD). Its distance is given relative to the authors'
number, and in units of our SD. The two *agree* if the authors' number lies in the 95 % interval that our runs predict
for it, and *differ* if it lies outside; a single seed, a very wide interval or runs of another size leave the
comparison *undecided*. Where a paper prints no number, its words are quoted beside the claim. Outcomes of claims are
those of the [gallery](gallery.md). Records made with earlier settings, which are not those that their panels have now,
are shown but not counted.
"""
NO_NUMBERS = "There is no number of the authors to compare with: the paper is quoted beside the claims."
OLDER = "This record is older than the comparison of numbers: only claims can be shown until the panel is run again."


def fidelity(records: Sequence[Record], every: Sequence[Panel]) -> str:
    """Write the page that sets the authors' numbers beside ours.

    Parameters
    ----------
    records
        The records of the gallery.
    every
        All panels, of which those without a record are listed too.
    """
    earlier = {stem(record.panel, record.scale) for record in records if is_earlier(record, every)}
    parts = [FIDELITY, _counts(records, every, earlier)]
    names = sorted({panel.key for panel in every} | {record.panel for record in records}, key=_order)
    for paper, members in itertools.groupby(names, key=lambda name: name.partition("/")[0]):
        parts.append(f"## {paper}\n\n| panel | scale | seeds | commit | numbers | claims |\n|---|---|---|---|---|---|")
        shown = [(name, [record for record in records if record.panel == name]) for name in members]
        parts += [_row(name, record, earlier) for name, found in shown for record in found or [None]]
        parts += [_compared(record, earlier) for _, found in shown for record in found]
    return "\n".join(parts)


def _counts(records: Sequence[Record], every: Sequence[Panel], earlier: Collection[str]) -> str:
    now = [record for record in records if stem(record.panel, record.scale) not in earlier]
    run = {record.panel for record in now if record.scale == "paper"}
    every_claim = [claim for record in now for claim in record.claims]
    judged = [claim.outcome for claim in every_claim if not _by_earlier_rules(claim)]
    others = len(every_claim) - len(judged)
    numbers = _numbers([one for record in now for one in record.references or ()])
    missing = sum(panel.key not in run for panel in every)
    have, wait = _verb(len(run), "has", "have"), _verb(missing, "waits", "wait")
    left_out = f"{_plural(others, 'claim')} judged by earlier rules {_verb(others, 'is', 'are')} not counted. "
    return (
        f"{_plural(len(run), 'panel')} {have} a record at paper scale with the present settings, and {missing} {wait} "
        f"to be run at that scale ({len(earlier)} of them with a record made with earlier settings). {tally(judged)}. "
        f"{left_out if others else ''}Numbers of the authors: {numbers or 'none yet'}.\n"
    )


def _plural(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def _verb(count: int, one: str, many: str) -> str:
    return one if count == 1 else many


def _numbers(references: Sequence[Reference]) -> str:
    """Count how numbers compare: "12 agree, 1 differs, 4 undecided"."""
    found = Counter(one.agreement for one in references)
    words = {"agrees": "agree", "differs": "differ", "undecided": "undecided"}
    return ", ".join(f"{found[one]} {_verb(found[one], one, many)}" for one, many in words.items() if found[one])


def _row(name: str, record: Record | None, earlier: Collection[str]) -> str:
    if record is None:
        return f"| {name} | not run yet at paper scale | | | | |"
    seeds = f"{record.seeds}" + (f" (the panel has {record.usual_seeds})" if record.fewer_seeds else "")
    numbers = "not compared" if record.references is None else _numbers(record.references) or "no number"
    claims = tally(claim.outcome for claim in record.claims)
    if stem(record.panel, record.scale) in earlier:
        numbers, claims = "", EARLIER_SETTINGS
    elif all(map(_by_earlier_rules, record.claims)):
        claims = f"{sum(claim.holds for claim in record.claims)} of {len(record.claims)} claims held by earlier rules"
    return f"| {name} | {record.scale} | {seeds} | {_commit(record)} | {numbers} | {claims} |"


def _commit(record: Record) -> str:
    commit, _, changed = record.made_by.get("commit", "unknown").partition(" ")
    return f"`{commit}`" + (" with uncommitted changes" if changed else "")


def _compared(record: Record, earlier: Collection[str]) -> str:
    rows = [
        f"| {_cell(one.name)} | {one.ours_in_words} | {_theirs(one)} | "
        f"{one.distance} | **{one.agreement}** ({_cell(one.judgement.test)}) |"
        for one in record.references or ()
    ]
    rows += [
        f"| {_cell(claim.text)} | {_cell(claim.measured)} | {_cell(claim.paper)} | | {_outcome(claim)} |"
        for claim in record.claims
    ]
    note = OLDER if record.references is None else "" if record.references else NO_NUMBERS
    if stem(record.panel, record.scale) in earlier:
        note = f"**This record was {EARLIER_SETTINGS}**: its outcomes are not those of the panel as it is now."
    return "\n".join(
        [
            f"\n### {record.panel}\n",
            f"{record.title}. {_cell(record.settings)}. {note}".rstrip() + "\n",
            "| quantity or claim | ours | the authors' number or words | distance | outcome |\n|---|---|---|---|---|",
            *rows,
            "",
        ]
    )


def _theirs(number: Reference) -> str:
    """Give the authors' number and, if it is known, where it is from."""
    return number.authors_in_words + ("" if number.authors is None else f" ({_cell(number.source)})")


def own_panels() -> list[Panel]:
    """Return the panels of the papers, without those of plug-ins."""
    return [panel for panel in panels().values() if type(panel).__module__.startswith("unlazy.")]


# ---------------------------------------------------------------- small figures

TOLERANCE = 0.05  # pt


def make_small(figure: Path) -> None:
    """Write a figure in fewer bytes, and its new checksum into the record beside it, if the old one was right.

    Parameters
    ----------
    figure
        The SVG file.
    """
    svg = figure.read_text(encoding="utf-8")
    small, path = compact(svg), figure.with_suffix(".json")
    content, sealed = unseal(parse_json(path.read_text(encoding="utf-8")))
    if sealed and content["figure_sha256"] == _digest(svg):
        content["figure_sha256"] = _digest(small)
        path.write_bytes(msgspec.json.format(msgspec.json.encode(seal(content))))
    figure.write_text(small, encoding="utf-8")


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


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
        make_small(figure)
    found, every = kept(), own_panels()
    (FOLDER.parent / "gallery.md").write_text(page(found, every), encoding="utf-8")
    (FOLDER.parent / "fidelity.md").write_text(fidelity(found, every), encoding="utf-8")
