"""`unlazy cite`: BibTeX for the papers, data, methods and libraries that a run used.

What a run used is read from its recipe: the words in it, the method that was chosen, and the papers that the members
it names speak of in their docstrings. Entries are in `references.bib`; a paper that is not there but has a folder in
`unlazy.papers` gets one from what the folder says of itself.
"""

from __future__ import annotations

import importlib
import inspect
import json
import pkgutil
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from unlazy._errors import UserError
from unlazy.lab import read_run
from unlazy.report.record import read_record

_FILE = Path(__file__).parent / "references.bib"
_SECTIONS = ("data", "network", "flow", "probes")


def cite(path: Path) -> dict[str, str]:
    """Give the BibTeX entries, by key, of what a stored run (.nc), a panel's record (.json) or recipe (.toml) uses."""
    recipes, words = _used(path)
    words |= {word for recipe in recipes for word in _words({name: recipe.get(name) for name in _SECTIONS})}
    papers = _papers(words) | {
        key for recipe in recipes for key in _keys() if str(recipe.get("name", "")).startswith(f"{key} ")
    }
    known = _entries()
    found = {key: text for key, (calls, text) in known.items() if calls & (words | papers | {"always"})}
    return found | {key: _from_folder(key) for key in sorted(papers) if key not in known}


def _used(path: Path) -> tuple[list[dict[str, Any]], set[str]]:
    """Give the recipes behind a file, and words that are not in them."""
    if path.suffix == ".nc":
        run = read_run(path)
        return [json.loads(run.attrs["recipe"])], {str(run.attrs.get("method", "")).partition(",")[0]}
    if path.suffix == ".json" and path.is_file():
        record = read_record(path)
        methods = {one.partition(",")[0] for one in record.made_by.get("method", "").split("; ")}
        return [json.loads(recipe) for recipe in record.recipes.values()], {record.paper} | methods
    if path.suffix == ".toml" and path.is_file():
        try:
            return [tomllib.loads(path.read_text(encoding="utf-8"))], set()
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            raise UserError(f"'{path}' cannot be read as TOML ({error}).") from None
    raise UserError(
        f"There is nothing to cite at '{path}': give a stored run (.nc), a record (.json) or a recipe (.toml)."
    )


def _words(value: Any) -> Iterator[str]:
    """Go through all words of a recipe's sections, but for their names."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for name, one in value.items():
            if name not in ("as", "name"):
                yield from _words(one)
    elif isinstance(value, list):
        for one in value:
            yield from _words(one)


def _papers(words: set[str]) -> set[str]:
    """Papers that the members named by these words come from: the first that each speaks of where it is explained.

    What has an entry of its own, such as MNIST, comes from none of them.
    """
    from unlazy import activations, data, flows, networks, probes
    from unlazy._catalogue import kebab, modules

    keys = _keys()
    found, own_entry = words & keys, {call for calls, _ in _entries().values() for call in calls}
    for room in (activations, data, flows, networks, probes):
        for module in modules(room):
            for name, member in vars(module).items():
                made = inspect.isclass(member) or inspect.isfunction(member)
                if made and member.__module__ == module.__name__ and kebab(name) in words - own_entry:
                    first = re.search("|".join(keys), member.__doc__ or "")
                    found |= {first[0]} if first else set()
    return found


def _keys() -> set[str]:
    """Keys of all papers that are known."""
    from unlazy import papers

    folders = {one.name for one in pkgutil.iter_modules(papers.__path__) if not one.name.startswith("_")}
    return folders | {key for key, (calls, _) in _entries().items() if key in calls}


def _entries() -> dict[str, tuple[set[str], str]]:
    """Read the file: key -> (what calls for it, entry)."""
    text = _FILE.read_text(encoding="utf-8")
    found = re.findall(r"^% ([^\n]*)\n(@\w+\{([^,]+),.*?^\})", text, flags=re.DOTALL | re.MULTILINE)
    return {key: (set(calls.split()), entry) for calls, entry, key in found}


def _from_folder(key: str) -> str:
    paper = getattr(importlib.import_module(f"unlazy.papers.{key}"), "PAPER", {})
    year = re.search(r"\d{4}", key)
    fields = {
        "title": paper.get("title", key),
        "author": " and ".join(name.strip() for name in str(paper.get("authors", "")).split(",")),
        "howpublished": paper.get("venue", ""),
        "year": year[0] if year else "",
    }
    lines = ",\n".join(f"  {name} = {{{value}}}" for name, value in fields.items() if value)
    return f"@misc{{{key},\n{lines}\n}}"
