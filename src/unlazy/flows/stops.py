"""Save times: which of them a method reaches, and how far they are apart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from unlazy._errors import UserError, short
from unlazy.flows.state import check_steps

if TYPE_CHECKING:
    from unlazy.flows.method import Method

Times = Sequence[float] | np.ndarray


class Stops(NamedTuple):
    """The save times of one run; times that fall on the same step are merged."""

    asked: np.ndarray  # the times as requested
    reached: np.ndarray  # ... and as the method can reach them
    amounts: np.ndarray  # the distance to each from the one before, in units of `State.remaining`


def stops_of(method: Method, times: Times, since: float = 0.0, underway: bool = False, counted: bool = False) -> Stops:
    """Plan the save times of a run that has reached the time ``since``.

    ``underway`` says whether it was interrupted on its way to the first of the times, and ``counted`` whether distances
    are numbers of steps.
    """
    asked = _checked(times, since)
    counts, reached = method.plan(np.concatenate([[since], asked]))
    if counted:
        check_steps(counts, asked[-1])
    amounts = np.diff(counts)
    if asked[-1] > since and amounts.sum() == 0 and not underway:
        raise UserError(f"No step fits between t = {since:g} and t = {asked[-1]:g}: take smaller steps.")
    apart = (amounts > 0) | (np.arange(asked.size) == 0)
    return Stops(asked[apart], reached[1:][apart], amounts[apart])


def each_times(times: Times | Sequence[Times], runs: int) -> Sequence[Any]:
    """Return the requested times of each run, given the times of all runs, or a list with the times of each."""
    if isinstance(times, Sequence) and times and isinstance(times[0], list | tuple | np.ndarray):
        return times
    return [times] * runs


def _checked(times: Times, since: float) -> np.ndarray:
    """Return save times as an array; reject times that do not increase, or lie before the current one."""
    try:
        asked = np.asarray(times, dtype=float)
    except (TypeError, ValueError):
        raise UserError(
            f"times = {short(times)} is not a list of numbers: give increasing times, such as [0, 1, 10]."
        ) from None
    if asked.ndim != 1 or asked.size == 0 or not np.isfinite(asked).all() or (np.diff(asked) <= 0).any():
        raise UserError(f"Times must be a list of finite, increasing numbers, not {short(times)}.")
    if asked[0] < since:
        raise UserError(f"The run is at t = {since:g} and cannot go back to t = {asked[0]:g}: ask for later times.")
    return asked
