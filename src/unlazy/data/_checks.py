"""Refusals that the makers of data share: one sentence with what was given, what was wanted and what to try."""

import math
from collections.abc import Iterable

from unlazy._errors import UserError, suggest


def count(what: str, given: int, least: int = 1) -> None:
    """Refuse a number of things below ``least``."""
    if given < least:
        raise UserError(f"{what} = {given} is too small: give a whole number of at least {least}.")


def positive(what: str, given: float) -> None:
    """Refuse a quantity that is not finite and above 0."""
    if not (math.isfinite(given) and given > 0):
        raise UserError(f"{what} = {given} is out of range: give a finite number above 0.")


def finite(what: str, given: float, least: float = -math.inf) -> None:
    """Refuse a quantity that is NaN, infinite or below ``least``."""
    if not math.isfinite(given) or given < least:
        wanted = "" if least == -math.inf else f" of at least {least:g}"
        raise UserError(f"{what} = {given} is out of range: give a finite number{wanted}.")


def choice(what: str, given: str, known: Iterable[str]) -> None:
    """Refuse a word that is not one of the ``known`` ones."""
    names = tuple(known)
    if given not in names:
        raise UserError(f"{what} = '{given}' is unknown. {suggest(given, names)}")
