"""The report: one self-contained HTML file with every figure, claim, table and recipe inside it.

All text from files is escaped by the template, figures are reduced to what a drawing needs (`svg.harmless`), and the
security policy of the page forbids it to load anything or to run any script but its own.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from unlazy._errors import UserError
from unlazy._files import replace, writable, writing
from unlazy.papers.outcomes import tally
from unlazy.report.citations import source
from unlazy.report.contents import Contents, duration, seeds, toml
from unlazy.report.films import HEIGHT, WIDTH, reels
from unlazy.report.own_runs import Family, families, verdicts
from unlazy.report.record import Record
from unlazy.report.svg import harmless
from unlazy.report.sweeps import Swept, sweeps

_LARGEST = 10 * 2**20  # bytes: what can be sent by mail
_FRAMES = (13, 7, 4, 0)  # of a film; fewer where the page would become too large
_TEMPLATES = Path(__file__).parent / "templates"


def find_place(path: Path, option: str) -> None:
    """Raise an error, before anything is computed, if a report cannot be written there."""
    _check_file(path)
    writable(path.parent, "The report", option)


def _check_file(path: Path) -> None:
    if path.is_dir():
        raise UserError(f"The report cannot be written to '{path}', which is a folder: give the name of a file.")


def write_report(shown: Contents | Sequence[Record], path: Path) -> Path:
    """Write a report as one HTML file, which appears complete or not at all, and return its path.

    Parameters
    ----------
    shown
        What the report shows: the result of `gather`, or records of panels.
    path
        The file to write.
    """
    contents = shown if isinstance(shown, Contents) else Contents(records=list(shown))
    _check_file(path)
    text, own, swept = b"", families(contents), sweeps(contents)
    for frames in _FRAMES:
        text = page(contents, own, swept, frames).encode()
        if len(text) <= _LARGEST:
            break
    else:
        size = f"{len(text) / 2**20:.0f} MiB"
        raise UserError(f"The report would take {size}: give fewer results, such as some records RUNS/panels/*.json.")
    with writing("The report", path, "choose another file"):
        path.parent.mkdir(parents=True, exist_ok=True)
        replace(path, text)
    return path


def page(contents: Contents, own: Sequence[Family], swept: Sequence[Swept] = (), frames: int = _FRAMES[0]) -> str:
    """Return the report as text, with films of this number of frames."""
    papers: dict[str, list[dict[str, Any]]] = {}
    for index, record in enumerate(contents.records):
        papers.setdefault(record.paper, []).append(_panel(record, contents, index, frames))
    articles = [article for members in papers.values() for article in members]
    return render(
        "report.html",
        "report.js",
        *(["sweep.js"] if swept else []),
        papers={source(key): members for key, members in papers.items()},
        families=[(one, _figures(one), reels(one.runs, frames)) for one in own],
        diagnoses=[
            (f"d{index}", one, _figure(one.figure, f"d{index}", f"{one.title}: {one.answer}. {one.reason}"))
            for index, one in enumerate(contents.diagnoses)
        ],
        swept=[(one, one.data(frames)) for one in swept],
        panels=len(articles),
        runs=len(contents.runs) + sum(one.total - one.runs.attrs["missing"] for one in swept if one.command),
        tally=tally(claim.outcome for article in articles for claim in article["claims"]),
        fails=any(article["fails"] for article in articles),
        total=sum(len(article["claims"]) for article in articles),
        seconds=sum(article["seconds"] for article in articles) + sum(one.seconds for one in (*own, *swept)),
        width=WIDTH,
        height=HEIGHT,
    )


def render(template: str, *scripts: str, **words: Any) -> str:
    """Fill in a template; the security policy of the page allows its own script only."""
    import jinja2
    from markupsafe import Markup

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["duration"] = duration
    code = "".join((_TEMPLATES / script).read_text(encoding="utf-8") for script in scripts)
    name = base64.b64encode(hashlib.sha256(code.encode()).digest()).decode()
    style = (_TEMPLATES / "page.css").read_text(encoding="utf-8")
    own = {"script": Markup(code), "style": Markup(style), "script_hash": f"sha256-{name}"}
    return environment.get_template(template).render(**words, **own)


def _panel(record: Record, contents: Contents, index: int, frames: int) -> dict[str, Any]:
    """Return what the page shows of one panel."""
    return msgspec.structs.asdict(record) | {
        "anchor": f"p{index}",
        "key": f"{record.panel} at {record.scale} scale",
        "command": f"unlazy reproduce {record.panel} --scale {record.scale}",
        "tally": tally(claim.outcome for claim in record.claims),
        "fails": record.fails,
        "verdicts": verdicts(contents, record.digests),
        "figure": _figure(record.figure, f"p{index}", f"{record.title}. {record.alt or record.settings}"),
        "reels": reels(contents.of_panel(record) if frames else {}, frames),
        "recipes": {label: toml(recipe) for label, recipe in record.recipes.items()},
        "seeds": seeds(record.recipes.values()),
        "fewer_seeds": record.fewer_seeds,
    }


def _figures(family: Family) -> list[Any]:
    drawn = enumerate(family.figures)
    shown = [_figure(svg, f"{family.anchor}-{index}", f"{family.title}. {words}") for index, (svg, words) in drawn]
    return list(filter(None, shown))


def _figure(svg: str, prefix: str, words: str) -> Any:
    from markupsafe import Markup

    clean = harmless(svg, prefix, words)
    return None if clean is None else Markup(clean)
