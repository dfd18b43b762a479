"""The exception for bad input, whose message says what was given, what was expected and which option to change."""

import warnings
from collections.abc import Callable, Iterable
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypeVar

V = TypeVar("V")


class UserError(ValueError):
    """Bad input. The command line prints the message without a traceback and exits with status 2."""


class FullDiskError(UserError):
    """There is no room on a disk, so that whatever else would be written there fails as well."""


class Notice(UserWarning):
    """Something that the user should know; the command line prints the message on one line."""


class SkippedFile(Notice):
    """A file that cannot be used was left out."""


def skip(error: UserError) -> None:
    """Warn that a file is left out, because of an error that names it."""
    warnings.warn(f"left out: {error}", SkippedFile, stacklevel=3)


def usable(paths: Iterable[Path], read: Callable[[Path], V]) -> dict[Path, V]:
    """Read files, and leave out, with a warning, those that cannot be used."""
    found: dict[Path, V] = {}
    for path in paths:
        try:
            found[path] = read(path)
        except UserError as error:
            skip(error)
    return found


def suggest(given: str, known: Iterable[str]) -> str:
    """Suggest the known name that is closest to the given one, or list all names if none is close."""
    names = sorted(known)
    near = get_close_matches(given, names, n=1, cutoff=0.6)
    if near:
        return f"Did you mean '{near[0]}'?"
    return f"Known: {', '.join(names)}."


def article(noun: str) -> str:
    """``"loss"`` -> ``"a loss"``, ``"MLP"`` -> ``"an MLP"``."""
    spelt = noun[:2].isupper() and noun[0] in "AEFHILMNORSX"
    return f"an {noun}" if spelt or noun[:1].lower() in "aeio" else f"a {noun}"


def short(value: Any) -> str:
    """Show a value in at most 60 characters."""
    text = " ".join(repr(value).split())
    return text if len(text) <= 60 else text[:57] + "..."


def first_line(error: BaseException) -> str:
    """Show the kind of an error that is not ours and the first line of its message, in at most 160 characters."""
    text = f"{type(error).__name__}: {next(iter(str(error).splitlines()), '')}".removesuffix(": ")
    return text if len(text) <= 160 else text[:157] + "..."
