"""`unlazy cite`: BibTeX for the papers, data, methods and libraries that a run used.

What a run used is read from its recipe and from the method that was chosen. Each entry of `references.bib` is preceded
by the words in a recipe for which it is cited. A member that is defined in the folder of a paper cites that paper. A
paper that is not in `references.bib` but has a folder in `unlazy.papers` gets an entry from the folder's ``PAPER``.
"""

from __future__ import annotations

import importlib
import pkgutil
import re
import sys
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unlazy._errors import UserError, skip
from unlazy._files import recipe_table
from unlazy._listing import listing
from unlazy._plain import parse_toml, read_text

_FILE = Path(__file__).parent / "references.bib"
_SECTIONS = ("data", "network", "flow", "probes")


def cite(*paths: Path) -> dict[str, str]:
    """Return the BibTeX entries, by key, of what was used in runs.

    Parameters
    ----------
    paths
        Stored runs (.nc), records of panels (.json), recipes (.toml) or folders of results. If there are several
        files, those that cannot be used are left out, with a warning.
    """
    files: list[Path] = []
    for path in paths:
        files += sorted(path.glob("*.nc")) + sorted(path.glob("panels/*.json")) if path.is_dir() else [path]
    recipes: list[dict[str, Any]] = []
    words: set[str] = set()
    errors: list[UserError] = []
    for file in files:
        try:
            more, others = _used(file)
        except UserError as error:
            errors.append(error)
        else:
            recipes, words = recipes + more, words | others
    if len(errors) == len(files):
        raise errors[0] if errors else UserError(f"There is nothing to cite at '{paths[0]}': there are no results.")
    for error in errors:
        skip(error)
    named = {(name, word) for recipe in recipes for name in _SECTIONS for word in _words(recipe.get(name))}
    words |= {word for _, word in named} | {f"{name}.{word}" for name, word in named}
    keys, known = _keys(), _entries()
    modules = [member["module"] for kind in listing().values() for name, member in kind.items() if name in words]
    folders = {module.removeprefix("unlazy.papers.").partition(".")[0] for module in modules}
    names = [str(recipe.get("name", "")) for recipe in recipes]
    papers = keys & (words | folders | {name.partition(" ")[0] for name in names if " " in name})
    found = {key: text for key, (calls, text) in known.items() if calls & (words | papers | {"always"})}
    return found | {key: _from_folder(source(key)) for key in sorted(papers) if key not in known}


def _used(path: Path) -> tuple[list[dict[str, Any]], set[str]]:
    """Return the recipes behind a file, and words to cite that are not in them."""
    if path.suffix == ".nc":
        attributes = _attributes(path)
        return [recipe_table(attributes.get("recipe"))], {str(attributes.get("method", "")).partition(",")[0]}
    if path.suffix == ".json" and path.is_file():
        from unlazy.report.record import read_record

        record = read_record(path)
        methods = {one.partition(",")[0] for one in record.made_by.get("method", "").split("; ")}
        return [recipe_table(recipe) for recipe in record.recipes.values()], {record.paper} | methods
    if path.suffix == ".toml" and path.is_file():
        try:
            return [parse_toml(read_text(path))], set()
        except (OSError, ValueError) as error:
            raise UserError(f"'{path}' cannot be read as TOML ({error}): correct the file.") from None
    known = "a stored run (.nc), a record (.json) or a recipe (.toml)"
    raise UserError(f"There is nothing to cite at '{path}': give {known}.")


def _attributes(path: Path) -> dict[str, Any]:
    """Read the attributes of a stored run; the store, which is slow to import, is used only if that fails."""
    from unlazy._netcdf import read_attributes

    try:
        found = read_attributes(path, ("recipe", "method"))
    except Exception:  # whatever the library raises on a damaged file
        found = {}
    if "recipe" in found and recipe_table(found["recipe"]):
        return found
    from unlazy.lab import read_run

    return dict(read_run(path).attrs)


def _words(value: Any) -> Iterator[str]:
    """Yield all words in a section of a recipe, except names."""
    if isinstance(value, str):
        yield value
    if isinstance(value, dict):
        value = [one for name, one in value.items() if name not in ("as", "name")]
    if isinstance(value, list):
        for one in value:
            yield from _words(one)


def _keys() -> set[str]:
    """Return the keys of all known papers."""
    loaded = sys.modules.get("unlazy.papers")  # not imported for this, because that is slow
    places = loaded.__path__ if loaded else [str(Path(__file__).parents[1] / "papers")]
    folders = {one.name for one in pkgutil.iter_modules(places) if not one.name.startswith("_")}
    folders -= {"outcomes", "references"}
    return folders | {key for key, (calls, _) in _entries().items() if key in calls}


def _entries() -> dict[str, tuple[set[str], str]]:
    """Read `references.bib`: key -> (words for which it is cited, entry)."""
    text = _FILE.read_text(encoding="utf-8")
    found = re.findall(r"^% ([^\n]*)\n(@\w+\{([^,]+),.*?^\})", text, flags=re.DOTALL | re.MULTILINE)
    return {key: (set(calls.split()), entry) for calls, entry, key in found}


@dataclass(frozen=True)
class Source:
    """A paper as a report introduces it."""

    key: str
    title: str
    authors: str
    year: str
    venue: str
    arxiv: str  # number, or empty
    about: str  # one sentence


def source(key: str) -> Source:
    """Describe a paper from `references.bib`, or from the ``PAPER`` of its folder."""
    try:
        own = getattr(importlib.import_module(f"unlazy.papers.{key}"), "PAPER", {})
    except ModuleNotFoundError:
        own = {}
    entry = _entries().get(key, (set(), ""))[1]

    def named(field: str) -> str:
        found = re.search(rf"^  {field} = {{(.*)}},?$", entry, flags=re.MULTILINE)
        return _plain(found[1]) if found else ""

    people = [" ".join(reversed(name.split(", "))) for name in filter(None, named("author").split(" and "))]
    return Source(
        key=key,
        title=named("title") or str(own.get("title", key)),
        authors=", ".join(people) or str(own.get("authors", "")),
        year=named("year") or "".join(re.findall(r"\d{4}", key)[:1]),
        venue=named("booktitle") or named("journal") or str(own.get("venue", "")),
        arxiv=named("eprint") or str(own.get("arxiv", "")),
        about=str(own.get("about", "")),
    )


def _plain(text: str) -> str:
    """Write BibTeX without its braces and accents."""
    accents = {"`": "\u0300", "'": "\u0301", "^": "\u0302", "~": "\u0303", '"': "\u0308", "c": "\u0327"}
    text = re.sub(r"\{\\([`'^~\"c]) ?\{?(\w)\}?\}", lambda one: one[2] + accents[one[1]], text)
    return unicodedata.normalize("NFC", text.replace("{", "").replace("}", "").replace("\\&", "&").replace("--", "–"))


def _from_folder(paper: Source) -> str:
    fields = {
        "title": paper.title,
        "author": " and ".join(name.strip() for name in paper.authors.split(",")),
        "howpublished": paper.venue,
        "year": paper.year,
    }
    lines = ",\n".join(f"  {name} = {{{value}}}" for name, value in fields.items() if value)
    return f"@misc{{{paper.key},\n{lines}\n}}"
