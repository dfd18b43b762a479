"""The manifest of a sweep: a file beside its results that says which run belongs to which values of the fields."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from unlazy._errors import UserError
from unlazy._files import write_sealed, writing
from unlazy._plain import DamagedError, read_sealed
from unlazy.lab.axes import key_of

SUFFIX = ".sweep.json"


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One run of a sweep.

    Attributes
    ----------
    label
        Its swept fields in words.
    fields, derived
        The values of the swept fields and of those that were derived from them, by name.
    digest
        The digest of the recipe.
    file
        The name of the result's file, in the folder of the manifest; it exists once the run is done.
    """

    label: str
    fields: dict[str, Any]
    derived: dict[str, Any] = {}
    digest: str
    file: str


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """A sweep as it is stored beside its results, in ``<name>-<digest>.sweep.json``.

    Attributes
    ----------
    sweep
        The name of the sweep.
    digest
        Twelve hexadecimal digits that name the sweep, whatever it is called.
    axes
        For each swept field its values, in the order of the file.
    points
        The runs, each an `Entry`.
    base
        The recipe as a table, before any field is set.
    made_by
        The versions and the machine, as `provenance` returns them.
    """

    sweep: str
    digest: str
    axes: dict[str, list[Any]]
    points: list[Entry]
    base: dict[str, Any]
    made_by: dict[str, str]

    def write(self, path: Path) -> Path:
        """Write the manifest, with a checksum, atomically.

        Parameters
        ----------
        path
            The file, whose name ends in ``.sweep.json``.
        """
        with writing("The list of runs", path, "choose another --out"):
            write_sealed(path, msgspec.to_builtins(self))
        return path

    @classmethod
    def read(cls, path: Path | str) -> Manifest:
        """Read a manifest. One that was edited or cut short raises a `UserError`.

        Parameters
        ----------
        path
            The file.
        """
        again = "delete it and call `unlazy sweep` again."
        try:
            plain, sealed = read_sealed(Path(path))
            if not sealed:
                raise DamagedError("it has no checksum")
            return msgspec.convert(plain, cls)
        except FileNotFoundError:
            raise UserError(f"There is no sweep at '{path}': give a file that ends in {SUFFIX}.") from None
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise UserError(f"'{path}' is not the whole list of a sweep's runs ({error}): {again}") from None


def words(value: Any) -> str:
    """Return the value of a field in words: ``{"kind": "zipf", "a": 2.0}`` becomes ``zipf (a 2)``."""
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, Mapping) and "kind" in value:
        rest = [f"{name} {words(one)}" for name, one in value.items() if name != "kind"]
        return f"{value['kind']} ({', '.join(rest)})" if rest else str(value["kind"])
    if isinstance(value, list):
        return "[" + ", ".join(map(words, value)) + "]"
    return str(value).lower() if isinstance(value, bool) else str(value)


def distinct_words(values: Sequence[Any]) -> list[str]:
    """Return values of a field in words, with all digits where different values would otherwise have the same words."""
    texts = [words(one) for one in values]
    if len(set(texts)) < len(set(map(key_of, values))):
        return [one if isinstance(one, str) else repr(one) for one in values]
    return texts
