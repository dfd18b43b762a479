"""The one exception meant for people: a sentence that says what was given, what was wanted and what to try."""

from collections.abc import Iterable
from difflib import get_close_matches


class UserError(ValueError):
    """Bad input. The command line prints it without a traceback and exits with status 2."""


def suggest(given: str, known: Iterable[str]) -> str:
    """Say which known name was probably meant, or list them all where none is near."""
    names = sorted(known)
    near = get_close_matches(given, names, n=1, cutoff=0.6)
    if near:
        return f"Did you mean '{near[0]}'?"
    return f"Known: {', '.join(names)}."
