"""Checks that the makers of data share: the error says what was given, what was expected and what to try."""

import math
from collections.abc import Callable, Collection
from typing import Any

import jax

from unlazy._errors import UserError, short, suggest
from unlazy._memory import must_fit


def count(what: str, given: int, least: int = 1) -> None:
    """Raise a `UserError` if a number of things is below ``least``."""
    if given >= 2**31:
        raise UserError(f"{what} = {given} is too large: give a whole number below {2**31}, which arrays can count.")
    if given < least:
        raise UserError(f"{what} = {given} is too small: give a whole number of at least {least}.")


def positive(what: str, given: float) -> None:
    """Raise a `UserError` unless a quantity is finite and above 0."""
    if not (math.isfinite(given) and given > 0):
        raise UserError(f"{what} = {given} is out of range: give a finite number above 0.")


def fits(make: Callable[[Any], Any], key: Any, what: str) -> None:
    """Raise a `UserError` if the arrays that ``make(key)`` would return do not fit into memory, without making them."""
    try:
        shapes = jax.tree.leaves(jax.eval_shape(make, key))
    except (OverflowError, NotImplementedError, MemoryError) as error:
        raise UserError(f"{what} cannot be drawn ({type(error).__name__}): take fewer samples or inputs.") from error
    except Exception:  # what uses NumPy has no shapes without values
        return
    wanted = sum(math.prod(map(float, one.shape)) * one.dtype.itemsize for one in shapes)
    must_fit(2 * wanted, f"To draw {what}", "take fewer samples or inputs")


def choice(what: str, given: str, known: Collection[str]) -> None:
    """Raise a `UserError` if a word is not one of the ``known`` ones."""
    if given not in known:
        raise UserError(f"{what} = {short(given)} is unknown. {suggest(given, known)}")
