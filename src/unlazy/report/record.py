"""Records of reproduced panels: claims, figure and provenance, as a small JSON file and an SVG file beside it."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import time
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from unlazy._errors import Notice, UserError, usable
from unlazy._files import recipe_table, write_with_figure, writing
from unlazy._plain import check_figure, parse_json, read_sealed, read_text
from unlazy.lab import Lab, Recipe, parse, provenance, read, read_run
from unlazy.papers import Claim, Panel, Reference, Results, Scale, check_claims
from unlazy.papers.outcomes import certain
from unlazy.report.figures import describe, draw, encode

EARLIER_RULES = "judged under earlier rules: a threshold on means or medians"


class Record(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A reproduced panel, with its claims and its figure.

    Parameters
    ----------
    panel, title, caption
        Key of the panel, its title and the caption of its figure.
    scale, settings
        The scale at which it was run, and the settings of that scale in words.
    seconds
        Computing time of its runs, when they were run.
    judging
        Time that judging the claims and drawing took, which is most of it where predictions are computed again; 0 in
        older records.
    claims
        The claims, with what was measured.
    recipes
        The recipe of every run, as JSON, by label.
    made_by
        Versions, machine and method that made the runs.
    alt
        The figure in words; empty in older records.
    references
        The authors' numbers beside ours; None in records of versions that had none.
    seeds, usual_seeds
        Number of different seeds that were run, and that of the panel at this scale; 0 where it is not known.
    figure_sha256
        SHA-256 digest of the figure; empty in records of versions that wrote no checksums.
    figure
        The figure as SVG, which is stored in a file of its own.
    """

    panel: str
    title: str
    scale: Scale
    settings: str
    caption: str
    seconds: float
    claims: list[Claim]
    recipes: dict[str, str]
    made_by: dict[str, str]
    alt: str = ""
    references: list[Reference] | None = None
    judging: float = 0.0
    seeds: int = 0
    usual_seeds: int = 0
    figure_sha256: str = ""
    figure: str = ""

    @property
    def fewer_seeds(self) -> str:
        """A sentence if fewer seeds were run than the panel has at this scale; empty otherwise."""
        if not 0 < self.seeds < self.usual_seeds:
            return ""
        return f"run with {self.seeds} seed{'' if self.seeds == 1 else 's'}, fewer than the panel's {self.usual_seeds}"

    @property
    def paper(self) -> str:
        """Key of the paper."""
        return self.panel.partition("/")[0]

    @property
    def digests(self) -> dict[str, str]:
        """The digest that is part of the file name of every stored run, by label."""
        return {label: digest(recipe) for label, recipe in self.recipes.items()}

    @property
    def fails(self) -> bool:
        """Whether a claim does not hold."""
        return any(claim.fails for claim in self.claims)

    def summary(self) -> dict[str, object]:
        """Return what the command line prints as JSON."""
        claims = [
            {name: getattr(claim, name) for name in ("text", "paper", "measured", "weaker", "hindsight")}
            | {name: getattr(claim.judgement, name) for name in ("test", "agree", "seeds")}
            | {"outcome": claim.outcome.value}
            for claim in self.claims
        ]
        found = {name: getattr(self, name) for name in ("panel", "scale", "seconds", "seeds", "usual_seeds")}
        references = [one.summary() for one in self.references or ()]
        return {**found, "seconds": round(self.seconds, 2), "claims": claims, "references": references}


def digest(recipe: str) -> str:
    """Return the digest of a recipe that is written as the store writes it."""
    return hashlib.sha256(recipe.encode()).hexdigest()[:12]


def seed_spans(recipes: Iterable[str]) -> list[range]:
    """Return the different ranges of seeds of recipes that are written as JSON, in order."""
    spans = set()
    for table in filter(None, map(recipe_table, recipes)):
        with contextlib.suppress(ValueError, TypeError):
            first = int(table.get("seed", 0))
            spans.add(range(first, first + int(table.get("seeds", 1))))
    return sorted(spans, key=lambda span: (span.start, span.stop))


def count_seeds(recipes: Iterable[str]) -> int:
    """Return the number of different seeds of recipes that are written as JSON."""
    return len({seed for span in seed_spans(recipes) for seed in span})


def stem(panel: str, scale: Scale) -> str:
    """Return the name, without suffix, of the files of a panel.

    Parameters
    ----------
    panel
        Key of the panel.
    scale
        "quick" or "paper".
    """
    return f"{panel.replace('/', '-')}-{scale}"


def run_panel(panel: Panel, scale: Scale, lab: Lab, seeds: int | None = None, workers: int = 1) -> Results:
    """Run all recipes of a panel, or take their results from the lab's store, and return the results by label.

    Parameters
    ----------
    panel, scale, lab, seeds, workers
        As for `reproduce`.
    """
    return lab.run_all(panel.recipes(scale, seeds), workers)


def is_stored(panel: Panel, scale: Scale, lab: Lab, seeds: int | None = None) -> bool:
    """Return whether all results of a panel are stored, so that `reproduce` judges and draws it without computing them.

    Parameters
    ----------
    panel, scale, lab, seeds
        As for `reproduce`.
    """
    return all(lab.has(recipe) for recipe in panel.recipes(scale, seeds).values())


def reproduce(panel: Panel, scale: Scale, lab: Lab, seeds: int | None = None, workers: int = 1) -> Record:
    """Run a panel, check its claims, draw it, and store the record in the lab's folder.

    Parameters
    ----------
    panel
        A `Panel`, or any object with the same attributes and methods.
    scale
        "quick" or "paper".
    lab
        Runs the recipes and stores their results.
    seeds
        Number of seeds; that of the scale if omitted.
    workers
        Number of processes that share the runs.
    """
    results = run_panel(panel, scale, lab, seeds, workers)
    begun = time.perf_counter()
    claims = check_claims(panel, results)  # first: it raises an error if a run ended early and cannot be drawn
    compared = getattr(panel, "references", None)
    figure = draw(panel, results)
    references = [] if compared is None else compared(results)
    texts = {label: str(run.attrs["recipe"]) for label, run in results.items()}
    count = count_seeds(texts.values())
    record = Record(
        panel=panel.key,
        title=panel.title,
        scale=scale,
        settings=panel.scales[scale] if seeds is None else f"{panel.scales[scale]} (run with seeds = {seeds})",
        caption=panel.caption,
        seconds=sum(float(run.attrs["seconds"]) for run in results.values()),
        claims=claims,
        recipes=texts,
        made_by=_made_by(results),
        alt=describe(figure),
        references=references,
        judging=round(time.perf_counter() - begun, 2),
        seeds=count,
        usual_seeds=count if seeds is None else count_seeds(one.json() for one in panel.recipes(scale).values()),
        figure=encode(figure, "svg", panel.title).decode(),
    )
    try:
        _write(record, lab.store.folder)
    except UserError as error:
        if not lab.store.folder.is_dir() or os.access(lab.store.folder, os.W_OK):
            raise
        # The results of a read-only folder can still be shown.
        warnings.warn(str(error), Notice, stacklevel=2)
    return record


def _made_by(results: Results) -> dict[str, str]:
    """Return the provenance of the first run, which may have been stored long ago, and the methods of all runs."""
    attributes = next(iter(results.values())).attrs
    made_by = {name: str(attributes[name]) if name in attributes else value for name, value in provenance().items()}
    methods = sorted({str(run.attrs["method"]) for run in results.values() if run.attrs.get("method")})
    return made_by | ({"method": "; ".join(methods)} if methods else {})


def _write(record: Record, folder: Path) -> None:
    base = folder / "panels" / stem(record.panel, record.scale)
    with writing(f"The record of {record.panel}", base.parent, "choose another --out"):
        base.parent.mkdir(parents=True, exist_ok=True)
        content = msgspec.to_builtins(msgspec.structs.replace(record, figure=""))
        write_with_figure(base.with_name(f"{base.name}.json"), content, record.figure.encode())


def records(folder: Path) -> list[Record]:
    """Read all records of panels in a folder of results; those that cannot be used are left out, with a warning.

    Parameters
    ----------
    folder
        The folder; the records are in its subfolder ``panels``.
    """
    return list(usable(sorted((folder / "panels").glob("*.json")), read_record).values())


def read_record(path: Path) -> Record:
    """Read one record, with the figure beside it, and verify their checksums, which older records do not have."""
    try:
        content, sealed = read_sealed(path)
        record = msgspec.convert(_updated(content), Record)
        figure = read_text(path.with_suffix(".svg"))
        if sealed:
            check_figure(figure, record.figure_sha256)
    except (ValueError, TypeError, AttributeError, LookupError, OSError) as error:
        advice = "delete it and reproduce the panel again"
        raise UserError(f"'{path}' is not a complete record ({error}): {advice}.") from None
    return msgspec.structs.replace(record, figure=figure, figure_sha256="")


def _updated(content: dict[str, Any]) -> dict[str, Any]:
    """Return the content of a record in the current format."""
    for claim in content.get("claims", ()):
        if "holds" in claim:  # written before there were four outcomes
            claim["judged"] = msgspec.to_builtins(certain(claim.pop("holds"), EARLIER_RULES))
    if "seeds" not in content and isinstance(content.get("recipes"), dict):
        content["seeds"] = content["usual_seeds"] = count_seeds(content["recipes"].values())
        chosen = re.search(r"([0-9]+) seeds?\b.*\(run with seeds = [0-9]+\)", str(content.get("settings")))
        if chosen:
            content["usual_seeds"] = int(chosen[1])
    return content


def recipes(path: Path) -> dict[str, Recipe]:
    """Return the recipes, by label, from which results were made.

    Parameters
    ----------
    path
        A stored run (.nc), the record of a panel (.json), or a recipe (.toml).
    """
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
        tables = {label: parse_json(text) for label, text in texts.items()}
    except ValueError as error:
        raise UserError(f"'{path}' holds a recipe that cannot be read ({error}): delete it and run it again.") from None
    return {label: parse(table, label) for label, table in tables.items()}
