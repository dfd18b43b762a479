"""What is kept of a reproduced panel: its claims, figure and provenance, as a small JSON file and an SVG beside it."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import msgspec

from unlazy._errors import UserError
from unlazy._files import atomic_write, writing
from unlazy.lab import Lab, Recipe, parse, provenance, read, read_run
from unlazy.papers import Claim, Panel, Results, Scale, check_claims
from unlazy.report.figures import describe, draw, encode


class Record(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A panel that was run."""

    panel: str
    title: str
    scale: Scale
    settings: str
    caption: str
    seconds: float  # what its runs took, when they were run
    claims: list[Claim]
    recipes: dict[str, str]  # the recipe of every run, by label
    made_by: dict[str, str]
    alt: str = ""  # the figure in words; older records have none
    figure: str = ""  # SVG, kept in a file of its own

    @property
    def paper(self) -> str:
        """The paper's key."""
        return self.panel.partition("/")[0]

    @property
    def digests(self) -> dict[str, str]:
        """What names the stored result of every run, by label."""
        return {label: digest(recipe) for label, recipe in self.recipes.items()}

    @property
    def holds(self) -> bool:
        """Whether every claim held."""
        return all(claim.holds for claim in self.claims)

    def summary(self) -> dict[str, object]:
        """Give what the command line prints as JSON."""
        names = ("text", "paper", "measured", "holds")
        claims = [{name: getattr(claim, name) for name in names} for claim in self.claims]
        return {"panel": self.panel, "scale": self.scale, "seconds": round(self.seconds, 2), "claims": claims}


def digest(recipe: str) -> str:
    """Name a recipe that is written as the store writes it."""
    return hashlib.sha256(recipe.encode()).hexdigest()[:12]


def stem(panel: str, scale: Scale) -> str:
    """How the files of a panel are called."""
    return f"{panel.replace('/', '-')}-{scale}"


def run_panel(panel: Panel, scale: Scale, lab: Lab, seeds: int | None = None, workers: int = 1) -> Results:
    """Run all recipes of a panel, or take their results from the lab's store."""
    return lab.run_all(panel.recipes(scale, seeds), workers)


def reproduce(panel: Panel, scale: Scale, lab: Lab, seeds: int | None = None, workers: int = 1) -> Record:
    """Run a panel, check its claims, draw it, and keep the record in the lab's folder.

    Parameters
    ----------
    panel
        A `Panel`, or any object with the same attributes and methods.
    scale
        "quick" or "paper".
    lab
        Runs the recipes and keeps their results.
    seeds
        Number of seeds, if not that of the scale.
    workers
        Number of processes that share the runs.
    """
    results = run_panel(panel, scale, lab, seeds, workers)
    claims = check_claims(panel, results)  # first: it refuses runs that ended early, which cannot be drawn either
    figure = draw(panel, results)
    record = Record(
        panel=panel.key,
        title=panel.title,
        scale=scale,
        settings=panel.scales[scale] if seeds is None else f"{panel.scales[scale]} (run with seeds = {seeds})",
        caption=panel.caption,
        seconds=sum(float(run.attrs["seconds"]) for run in results.values()),
        claims=claims,
        recipes={label: str(run.attrs["recipe"]) for label, run in results.items()},
        made_by=_made_by(results),
        alt=describe(figure),
        figure=encode(figure, "svg", panel.title).decode(),
    )
    _write(record, lab.store.folder)
    return record


def _made_by(results: Results) -> dict[str, str]:
    """Say what made the runs, which may have been stored long ago; of several, the first."""
    attributes = next(iter(results.values())).attrs
    made_by = {name: str(attributes[name]) if name in attributes else value for name, value in provenance().items()}
    methods = sorted({str(run.attrs["method"]) for run in results.values() if run.attrs.get("method")})
    return made_by | ({"method": "; ".join(methods)} if methods else {})


def _write(record: Record, folder: Path) -> None:
    base = folder / "panels" / stem(record.panel, record.scale)
    with writing(f"The record of {record.panel}", base.parent, "choose another --out"):
        base.parent.mkdir(parents=True, exist_ok=True)
        for suffix, content in (
            (".svg", record.figure.encode()),
            (".json", msgspec.json.format(msgspec.json.encode(msgspec.structs.replace(record, figure="")))),
        ):
            with atomic_write(base.with_name(base.name + suffix)) as temporary:
                temporary.write_bytes(content)


def records(folder: Path) -> list[Record]:
    """Read all records kept in ``folder``."""
    return [read_record(path) for path in sorted((folder / "panels").glob("*.json"))]


def read_record(path: Path) -> Record:
    """Read one record, with the figure beside it."""
    try:
        record = msgspec.json.decode(path.read_bytes(), type=Record)
        figure = path.with_name(path.stem + ".svg").read_text(encoding="utf-8")
    except (msgspec.DecodeError, UnicodeDecodeError, OSError) as error:
        raise UserError(
            f"'{path}' is not a complete record ({type(error).__name__}): delete it and reproduce the panel again."
        ) from None
    return msgspec.structs.replace(record, figure=figure)


def recipes(path: Path) -> dict[str, Recipe]:
    """Give the recipes, by label, behind a stored run (.nc) or a panel's record (.json), or that of a file (.toml)."""
    if path.suffix == ".nc":
        made = read_run(path).attrs
        if "recipe" not in made:
            raise UserError(f"'{path}' was made in Python and has no recipe: give a run of a recipe.")
        texts = {path.name: str(made["recipe"])}
    elif path.suffix == ".json":
        texts = read_record(path).recipes
    else:
        recipe = read(path)
        return {recipe.name: recipe}
    try:
        return {label: parse(json.loads(text), label) for label, text in texts.items()}
    except json.JSONDecodeError:
        raise UserError(f"'{path}' holds a recipe that cannot be read: delete it and run it again.") from None
