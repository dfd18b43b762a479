"""Checks that the makers of data share: the error says what was given, what was expected and what to try."""

import math
from collections.abc import Collection

from unlazy._errors import UserError, suggest


def count(what: str, given: int, least: int = 1) -> None:
    """Raise a `UserError` if a number of things is below ``least``."""
    if given < least:
        raise UserError(f"{what} = {given} is too small: give a whole number of at least {least}.")


def positive(what: str, given: float) -> None:
    """Raise a `UserError` unless a quantity is finite and above 0."""
    if not (math.isfinite(given) and given > 0):
        raise UserError(f"{what} = {given} is out of range: give a finite number above 0.")


def finite(what: str, given: float, least: float = -math.inf) -> None:
    """Raise a `UserError` if a quantity is NaN, infinite or below ``least``."""
    if not math.isfinite(given) or given < least:
        wanted = "" if least == -math.inf else f" of at least {least:g}"
        raise UserError(f"{what} = {given} is out of range: give a finite number{wanted}.")


def choice(what: str, given: str, known: Collection[str]) -> None:
    """Raise a `UserError` if a word is not one of the ``known`` ones."""
    if given not in known:
        raise UserError(f"{what} = '{given}' is unknown. {suggest(given, known)}")
