"""What a recipe stands on outside unlazy: the data files that it reads, and the source of members that others wrote."""

from __future__ import annotations

import hashlib
import inspect
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from unlazy import _registry
from unlazy._errors import UserError
from unlazy._registry import find, kebab, load, members
from unlazy.lab.build import VALUES, Section

# Whose versions are known, and which are base classes of nearly everything.
_LIBRARIES = {"unlazy", "equinox", "diffrax", "optax", *VALUES}


def fingerprint(section: Section) -> dict[str, str]:
    """Give the SHA-256 of every data file that a section reads, by path.

    Parameters
    ----------
    section
        The section ``data`` of a recipe. Its maker says which files it reads by `unlazy.data.reads`.

    Returns
    -------
    dict
        Empty where no file is read, or where it would first have to be downloaded.
    """
    options = {} if isinstance(section, str) else {name.replace("-", "_"): one for name, one in section.items()}
    name = options.pop("kind", None) if isinstance(section, dict) else section
    if not isinstance(name, str):
        return {}
    files = getattr(find("data", name), "files_read", lambda _: ())(options)
    return {str(path): _sha256(path) for path in files}


def _sha256(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise UserError(f"The file '{path}' cannot be read ({error.strerror or error}).") from None


def sources(sections: Any) -> dict[str, str]:
    """Give the SHA-256 of the source file of every module outside unlazy that members of a recipe come from.

    Parameters
    ----------
    sections
        Sections of a recipe, in any nesting of tables and lists.

    Returns
    -------
    dict
        Hashes by name of module. A class brings the modules of the classes that it is derived from.
    """
    found: dict[str, str] = {}
    for word in _words(sections):
        for member in _named(word):
            made = member if hasattr(member, "__module__") else type(member)
            for one in inspect.getmro(made) if inspect.isclass(made) else (made,):
                module = sys.modules.get(getattr(one, "__module__", None) or "")
                file = getattr(module, "__file__", None)
                if module and file and module.__name__.partition(".")[0] not in _LIBRARIES:
                    found[module.__name__] = _sha256(Path(file))
        if ":" in word and (module := sys.modules.get(word.partition(":")[0])) and getattr(module, "__file__", None):
            found[module.__name__] = _sha256(Path(str(module.__file__)))
    return dict(sorted(found.items()))


def _words(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping | list | tuple):
        for one in value.values() if isinstance(value, Mapping) else value:
            yield from _words(one)


def _named(word: str) -> list[Any]:
    """Give whatever of others a word may name: it is not known here of which kind it should be."""
    if re.fullmatch(r"[\w.]+:[\w.]+", word):
        try:
            return [load(word)]
        except UserError:  # a text with a colon in it; what is really missing is an error when it is built
            return []
    kinds = _registry.KINDS if _registry.plugins() else {}
    return [members(kind)[kebab(word)] for kind in kinds if kebab(word) in members(kind)]
