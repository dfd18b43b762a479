"""What a phase diagram shows of each run: a quantity that a probe observed, a diagnosis, or a function of your own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import xarray as xr

from unlazy._errors import UserError, short, suggest
from unlazy._files import probe_names
from unlazy._plain import is_number
from unlazy._registry import load
from unlazy.flows import Status
from unlazy.lab.answers import Answer
from unlazy.lab.recipe import Recipe
from unlazy.lab.stored import statuses

if TYPE_CHECKING:
    from unlazy.lab.runner import Lab

DIAGNOSIS = "diagnosis"
DIVERGED = "diverged"
_REDUCTIONS: dict[str, Callable[[np.ndarray], np.ndarray]] = {  # of values with shape (seed, time)
    "last": lambda values: values[:, -1],
    "ratio": lambda values: values[:, -1] / values[:, 0],
    "largest": lambda values: values.max(axis=1),
    "smallest": lambda values: values.min(axis=1),
}


class Found(NamedTuple):
    """What was found at one point: the value of the quantity (NaN if it is not a number), and the region."""

    value: float
    region: str


class Measure(NamedTuple):
    """What is measured on each run, and to which region a run belongs.

    Attributes
    ----------
    quantity
        A quantity of the results, such as ``"kernel.drift"``; ``"diverged"``, the share of seeds that did not reach the
        last time; ``"diagnosis"``, the answer of `diagnose` on the networks at the start and at the end; or a function
        ``"package.module:function"`` from the result of a run to a number, a number for each seed, or a word.
    value
        Which value of a quantity over time: ``"last"``, ``"ratio"`` (the last divided by the first), ``"largest"`` or
        ``"smallest"``.
    threshold
        The value from which on a run belongs to the second region; the median over seeds is compared.
    names
        The names of the regions below and above the threshold.
    diverged
        The region of runs most of whose seeds did not reach the last time.
    """

    quantity: str
    value: str = "last"
    threshold: float | None = None
    names: tuple[str, str] = ("below", "above")
    diverged: str = DIVERGED

    @property
    def numeric(self) -> bool:
        """Whether the quantity is a number with a threshold."""
        return self.threshold is not None

    def check(self, table: dict[str, Any]) -> None:
        """Raise a `UserError` if something cannot be right, before any time is spent."""
        if self.value not in _REDUCTIONS:
            raise UserError(f"phase.value: there is no '{self.value}'. {suggest(self.value, _REDUCTIONS)}")
        if self.quantity != DIAGNOSIS and ":" not in self.quantity and self.threshold is None:
            raise UserError(f"phase.threshold: give the value of '{self.quantity}' at which the two regions meet.")
        if self.quantity == DIAGNOSIS and self.threshold is not None:
            raise UserError("phase.threshold: a diagnosis has no threshold: leave it out.")
        if ":" in self.quantity:
            if not callable(load(self.quantity)):
                raise UserError(f"phase.measure: '{self.quantity}' is not a function.")
        elif self.quantity not in (DIAGNOSIS, DIVERGED):
            name, names = self.quantity.partition(".")[0], probe_names(table)
            if name not in names:
                near = suggest(self.quantity, [*names, DIAGNOSIS, DIVERGED])
                how = "A function of your own is written as 'package.module:function'."
                raise UserError(f"phase.measure: no probe of the recipe is called '{name}'. {near} {how}")

    def regions(self, seen: Sequence[str]) -> list[str]:
        """Return the names of all regions in their order, given those that were found."""
        if self.numeric:
            known = [*self.names, self.diverged]
        else:
            known = [one.label for one in Answer] if self.quantity == DIAGNOSIS else []
        return [one for one in dict.fromkeys([*known, *sorted(seen)]) if one in seen]

    def at_end(self, lab: Lab, recipe: Recipe, run: xr.Dataset) -> Found:
        """Measure a run at its end."""
        ended = np.array([not Status[one].ok for one in statuses(run)])
        if self.quantity == DIAGNOSIS:
            return self._diagnosed(lab, recipe, ended)
        if ":" in self.quantity:
            return self._asked(run, ended)
        if self.quantity == DIVERGED:
            return self._judged(ended.astype(float), np.zeros_like(ended))
        return self._judged(_REDUCTIONS[self.value](self._values(run)), ended)

    def over_time(self, run: xr.Dataset, times: Sequence[float]) -> list[Found]:
        """Measure a run at all times; from where a seed stopped on, it counts as diverged."""
        if self.quantity == DIAGNOSIS or ":" in self.quantity or self.quantity == DIVERGED:
            advice = "choose a quantity of a probe"
            raise UserError(f"phase.measure: '{self.quantity}' is not known at every time: {advice}.")
        values, reached = self._values(run), run["time"].values
        found = []
        for time in times:
            place = int(np.argmin(np.abs(reached - time)))
            so_far = values[:, : place + 1]
            late = time > reached[-1] * (1 + 1e-9) and not run.attrs["finished"]
            ended = np.array([not Status[one].ok for one in statuses(run)]) & (late | ~np.isfinite(so_far[:, -1]))
            found.append(self._judged(_REDUCTIONS[self.value](so_far), ended))
        return found

    def _values(self, run: xr.Dataset) -> np.ndarray:
        if self.quantity not in run.data_vars:
            known = [str(name) for name, one in run.data_vars.items() if one.dims in (("seed", "time"), ("seed",))]
            raise UserError(f"phase.measure: there is no quantity '{self.quantity}'. {suggest(self.quantity, known)}")
        found = run[self.quantity]
        if found.dims == ("seed",):
            return found.values[:, None]
        if found.dims != ("seed", "time"):
            advice = "choose another quantity, or write a function of your own as 'package.module:function'"
            raise UserError(f"phase.measure: '{self.quantity}' has several numbers at each time: {advice}.")
        return found.values

    def _judged(self, each: np.ndarray, ended: np.ndarray) -> Found:
        """Return the median over seeds and its region."""
        fine = ~ended & np.isfinite(each)
        if 2 * fine.sum() <= len(fine) or self.threshold is None:
            return Found(np.nan, self.diverged)
        value = float(np.median(each[fine]))
        return Found(value, self.names[value >= self.threshold])

    def _asked(self, run: xr.Dataset, ended: np.ndarray) -> Found:
        found = load(self.quantity)(run)
        if isinstance(found, str):
            return Found(np.nan, found)
        try:
            each = np.atleast_1d(np.asarray(found, float))
        except (TypeError, ValueError):
            raise UserError(
                f"phase.measure: '{self.quantity}' returned {short(found)}, not a number or a word."
            ) from None
        if self.threshold is None:
            raise UserError(f"phase.threshold: '{self.quantity}' returns numbers: give the value where regions meet.")
        return self._judged(each, ended if len(each) == len(ended) else np.zeros(len(each), bool))

    def _diagnosed(self, lab: Lab, recipe: Recipe, ended: np.ndarray) -> Found:
        from unlazy.lab.diagnosis import diagnose_checkpoints

        if 2 * ended.sum() >= len(ended):
            return Found(np.nan, self.diverged)
        runs = [run for run, over in zip(lab.trajectories(recipe), ended, strict=True) if not over]
        answers = Counter(diagnose_checkpoints(run.start, run.final, run.data).answer.label for run in runs)
        return Found(np.nan, answers.most_common(1)[0][0])


def measure_of(given: Mapping[str, Any]) -> Measure:
    """Make the measure that a section ``phase`` describes."""
    threshold, names = given.get("threshold"), given.get("names", ["below", "above"])
    value, diverged = given.get("value", "last"), given.get("diverged", DIVERGED)
    if threshold is not None and not is_number(threshold):
        raise UserError(f"phase.threshold: expected a number, not {short(threshold)}.")
    if not (isinstance(names, list) and len(names) == 2 and all(isinstance(one, str) for one in names)):
        wanted = "a list of two names, of the regions below and above the threshold"
        raise UserError(f"phase.names: expected {wanted}, not {short(names)}.")
    if not isinstance(diverged, str):
        raise UserError(f"phase.diverged: expected the name of a region, not {short(diverged)}.")
    return Measure(given["measure"], value, threshold, (names[0], names[1]), diverged)
