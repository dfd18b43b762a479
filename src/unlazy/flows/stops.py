"""Save times: which of them a method reaches, and how far they are apart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from unlazy._errors import UserError

if TYPE_CHECKING:
    from unlazy.flows.method import Method

Times = Sequence[float] | np.ndarray


class Stops(NamedTuple):
    """The save times of one run; times that fall on the same step are merged.

    Attributes
    ----------
    asked, reached
        The times as requested, and as the method can reach them.
    amounts
        The distance to each from the one before, in units of `State.remaining`.
    """

    asked: np.ndarray
    reached: np.ndarray
    amounts: np.ndarray


def stops_of(method: Method, times: Times, since: float = 0.0, underway: bool = False) -> Stops:
    """Plan the save times of a run.

    Parameters
    ----------
    method
        The method, resolved.
    times
        The requested times.
    since
        The time that the run has reached.
    underway
        Whether the run was interrupted on its way to the first of the times.
    """
    asked = _checked_times(times, since)
    counts, reached = method.plan(np.concatenate([[since], asked]))
    amounts = np.diff(counts)
    if asked[-1] > since and amounts.sum() == 0 and not underway:
        raise UserError(f"Not one step fits between t = {since:g} and t = {asked[-1]:g}: take smaller steps.")
    apart = (amounts > 0) | (np.arange(asked.size) == 0)
    return Stops(asked[apart], reached[1:][apart], amounts[apart])


def _checked_times(times: Times, since: float) -> np.ndarray:
    asked = np.asarray(times, dtype=float)
    if asked.ndim != 1 or asked.size == 0 or not np.isfinite(asked).all() or (np.diff(asked) <= 0).any():
        raise UserError(f"Times must be a list of finite, increasing numbers, not {times!r}.")
    if asked[0] < since:
        raise UserError(f"The run is at t = {since:g} and cannot go back to t = {asked[0]:g}: ask for later times.")
    return asked
