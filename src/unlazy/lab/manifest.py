"""The manifest of a sweep: a file beside its results that says which run belongs to which values of the fields."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import msgspec

from unlazy._errors import UserError
from unlazy._files import CHECKSUM, atomic_write, writing

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
        plain = msgspec.to_builtins(self)
        whole = json.dumps(plain | {CHECKSUM: _checksum(plain)}, indent=1, ensure_ascii=False)
        with writing("The list of runs", path, "choose another --out"), atomic_write(path) as temporary:
            temporary.write_text(whole, encoding="utf-8")
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
            plain = json.loads(Path(path).read_text(encoding="utf-8"))
            given = plain.pop(CHECKSUM)
            found = msgspec.convert(plain, cls)
        except FileNotFoundError:
            raise UserError(f"There is no sweep at '{path}'.") from None
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise UserError(
                f"'{path}' is not the whole list of a sweep's runs ({type(error).__name__}): {again}"
            ) from None
        if given != _checksum(plain):
            raise UserError(f"'{path}' was changed or damaged after it was stored (its checksum is wrong): {again}")
        return found


def _checksum(plain: Any) -> str:
    return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()
