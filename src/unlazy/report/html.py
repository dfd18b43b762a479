"""The report: one HTML file that opens from a mail, with every figure, claim and recipe inside it.

Everything that a person wrote goes through the template's escaping; figures are shorn of all but their drawing
(`svg.harmless`); and the page forbids itself to load or run anything but its own script.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unlazy._errors import UserError
from unlazy.lab.store import reason, writable, written_whole
from unlazy.papers import Claim
from unlazy.report.contents import Contents, curves, seeds, toml
from unlazy.report.films import HEIGHT, WIDTH, Reel, reels
from unlazy.report.record import Record
from unlazy.report.svg import harmless

if TYPE_CHECKING:
    import xarray as xr

_LARGEST = 10 * 2**20  # bytes: what goes through a mail
_FRAMES = (13, 7, 4, 0)  # of a film; fewer where the page would become too large
_TEMPLATES = Path(__file__).parent / "templates"


@dataclass(frozen=True)
class Article:
    """What the page shows of one panel or run."""

    anchor: str
    group: str  # the paper, or "runs"
    key: str
    title: str
    settings: str
    caption: str
    seconds: float
    command: str
    claims: list[Claim]
    verdicts: list[dict[str, Any]]
    figure: Any  # markup, or None where there is none
    reels: list[Reel]
    recipes: dict[str, str]
    seeds: str
    made_by: dict[str, str]
    status: str

    @property
    def held(self) -> int:
        """How many claims hold."""
        return sum(claim.holds for claim in self.claims)

    @property
    def good(self) -> bool:
        """Whether nothing speaks against it: all claims hold, the run finished, and no theorem fails."""
        failed = any(one["verdict"] == "FAILS" for one in self.verdicts)
        return self.held == len(self.claims) and self.status in ("", "finished") and not failed


def find_place(path: Path, option: str) -> None:
    """Find out, before anything is computed, that a report cannot be written there."""
    if path.is_dir():
        raise UserError(f"The report cannot be written to '{path}', which is a folder: give the name of a file.")
    writable(path.parent, "The report", option)


def write_report(shown: Contents | Sequence[Record], path: Path) -> Path:
    """Write the report; it appears whole or not at all."""
    contents = shown if isinstance(shown, Contents) else Contents(records=list(shown))
    if path.is_dir():
        raise UserError(f"The report cannot be written to '{path}', which is a folder: give the name of a file.")
    text = b""
    for frames in _FRAMES:
        text = page(contents, frames).encode()
        if len(text) <= _LARGEST:
            break
    else:
        size = f"{len(text) / 2**20:.0f} MiB"
        raise UserError(f"The report would have {size}: give fewer results, say single records RUNS/panels/*.json.")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with written_whole(path) as temporary:
            temporary.write_bytes(text)
    except OSError as error:
        raise UserError(f"The report cannot be written to '{path}' ({reason(error)}): choose another file.") from None
    return path


def page(contents: Contents, frames: int = _FRAMES[0]) -> str:
    """Give the report as text, with films of so many frames."""
    articles = [_panel(record, contents, index, frames) for index, record in enumerate(contents.records)]
    articles += [
        _run(path, run, contents, index, frames)
        for index, (path, run) in enumerate(contents.runs.items(), len(articles))
    ]
    groups: dict[str, list[Article]] = {}
    for article in articles:
        groups.setdefault(article.group, []).append(article)
    return render(
        "report.html",
        "report.js",
        groups=groups,
        articles=articles,
        panels=len(contents.records),
        held=sum(article.held for article in articles),
        total=sum(len(article.claims) for article in articles),
        seconds=sum(article.seconds for article in articles),
        width=WIDTH,
        height=HEIGHT,
    )


def render(template: str, script: str, **words: Any) -> str:
    """Fill a template in; the page it makes runs its own script and nothing else."""
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
    code = (_TEMPLATES / script).read_text(encoding="utf-8")
    name = base64.b64encode(hashlib.sha256(code.encode()).digest()).decode()
    style = (_TEMPLATES / "page.css").read_text(encoding="utf-8")
    own = {"script": Markup(code), "style": Markup(style), "script_hash": f"sha256-{name}"}
    return environment.get_template(template).render(**words, **own)


def duration(seconds: float) -> str:
    """``95`` -> ``95 s``, ``600`` -> ``10 min``, ``9000`` -> ``2.5 h``."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def _panel(record: Record, contents: Contents, index: int, frames: int) -> Article:
    runs = contents.of_panel(record) if frames else {}
    return Article(
        anchor=f"p{index}",
        group=record.paper,
        key=f"{record.panel} at {record.scale} scale",
        title=record.title,
        settings=record.settings,
        caption=record.caption,
        seconds=record.seconds,
        command=f"unlazy reproduce {record.panel} --scale {record.scale}",
        claims=record.claims,
        verdicts=_verdicts(contents, record.digests),
        figure=_figure(record.figure, f"p{index}", f"{record.title}. {record.alt or record.settings}"),
        reels=reels(runs, frames),
        recipes={label: toml(recipe) for label, recipe in record.recipes.items()},
        seeds=seeds(record.recipes.values()),
        made_by=record.made_by,
        status="",
    )


def _run(path: Path, run: xr.Dataset, contents: Contents, index: int, frames: int) -> Article:
    attributes = run.attrs
    svg, words = curves(run)
    status = attributes.get("status", "")
    names = sorted({status} if isinstance(status, str) else set(map(str, status)))
    made_by = ("versions", "python", "commit", "device", "machine", "written", "method")
    recipe, name = str(attributes["recipe"]), str(attributes.get("name", path.stem))
    size = run.sizes
    return Article(
        anchor=f"p{index}",
        group="runs",
        key=path.name,
        title=name,
        settings=f"{size.get('seed', 1)} seeds, {size.get('time', 0)} times, {attributes.get('dtype', '')}",
        caption="What the probes saw along the run: thick lines are medians over seeds, thin ones the seeds.",
        seconds=float(attributes.get("seconds", 0.0)),
        command="unlazy run FILE.toml, with the recipe below in FILE.toml",
        claims=[],
        verdicts=_verdicts(contents, {"": str(attributes.get("digest", ""))}),
        figure=_figure(svg, f"p{index}", f"{name}. {words}") if svg else None,
        reels=reels({name: run}, frames),
        recipes={name: toml(recipe)},
        seeds=seeds([recipe]),
        made_by={one: str(attributes[one]) for one in made_by if one in attributes},
        status=", ".join(names),
    )


def _figure(svg: str, prefix: str, words: str) -> Any:
    from markupsafe import Markup

    clean = harmless(svg, prefix, words)
    return None if clean is None else Markup(clean)


def _verdicts(contents: Contents, digests: dict[str, str]) -> list[dict[str, Any]]:
    """What theorems said of these runs, silence last and without its reasons repeated seed by seed."""
    rank = {"FAILS": 0, "HOLDS": 1, "VACUOUS": 2, "SILENT": 3}
    found = [
        {"run": label, **finding} for label, name in digests.items() for finding in contents.findings.get(name, [])
    ]
    return sorted(found, key=lambda one: (rank.get(one["verdict"], 4), one["theorem"], one["run"], one["seed"]))
