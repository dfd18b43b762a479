"""Run many recipes: divide them into tasks, give these to an engine, and deal with what comes back.

Claims in the store keep two workers from computing the same trajectory: a recipe that needs what another process is
computing is tried again later. A task whose worker ends is tried again, in smaller parts if that happens repeatedly,
until the run that ends its workers is found, which is then not tried again.
"""

from __future__ import annotations

import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import xarray as xr

from unlazy._errors import FullDiskError, UserError
from unlazy._signals import check
from unlazy.lab import claims
from unlazy.lab.engines import Engine, Local, Serial
from unlazy.lab.identity import Identity, identify
from unlazy.lab.made_by import OtherCode
from unlazy.lab.recipe import Recipe
from unlazy.lab.tasks import Lost, Task, outline, plan_tasks

if TYPE_CHECKING:
    from unlazy.lab.runner import Lab

_WAIT = 0.2  # seconds before recipes are tried again that other processes are computing
_MOST_SHOWN = 5  # errors in one message
_MOST_DEATHS = 3  # of workers on one run alone, after which it is not tried again
_MOST_FALSE_STARTS = 20  # of workers that end before they begin with anything, one after another


class Runs(Mapping[str, xr.Dataset]):
    """The results of many recipes by label; each is read when it is first used."""

    def __init__(self, lab: Lab, recipes: Mapping[str, Recipe]) -> None:
        self._lab, self._recipes = lab, recipes
        self._read: dict[str, xr.Dataset] = {}

    def __getitem__(self, label: str) -> xr.Dataset:
        if label not in self._read:
            recipe = self._recipes[label]
            found = self._lab.store.load(recipe)
            self._read[label] = self._lab.run(recipe) if found is None else found
        return self._read[label]

    def __iter__(self) -> Iterator[str]:
        return iter(self._recipes)

    def __len__(self) -> int:
        return len(self._recipes)

    def __repr__(self) -> str:
        return f"Runs({list(self._recipes)!r})"


def run_all(
    lab: Lab,
    recipes: Mapping[str, Recipe] | Sequence[Recipe],
    workers: int,
    engine: Engine | None = None,
    begin: Callable[[], None] = lambda: None,
) -> Runs:
    """Run recipes and return their results by label; ``begin`` is called after they were checked. See `Lab.run_all`."""
    labelled: dict[str, Recipe] = {}
    for label, recipe in recipes.items() if isinstance(recipes, Mapping) else [(one.name, one) for one in recipes]:
        if labelled.setdefault(label, recipe) != recipe:
            raise UserError(f"Two different recipes are called '{label}': rename one, or give a dictionary.")
    identities = check_all(labelled, workers)
    begin()
    distinct = {recipe.digest: recipe for recipe in labelled.values()}
    lab.expect(len(distinct))
    if engine is None:
        engine = Local(min(workers, len(distinct))) if workers > 1 and len(distinct) > 1 else Serial()
    failed = Schedule(lab, distinct, engine).work(identities)
    if len(labelled) == 1 and failed:
        raise next(iter(failed.values()))
    if failed:
        raise UserError(_failures({label: failed.get(recipe.digest) for label, recipe in labelled.items()}))
    return Runs(lab, labelled)


def _failures(errors: Mapping[str, UserError | None]) -> str:
    """Say which of some runs failed, by label, and how; runs that failed with the same words are counted."""
    by_words: dict[str, list[str]] = {}
    for label, error in errors.items():
        if error is not None:
            by_words.setdefault(str(error), []).append(label)
    count = sum(map(len, by_words.values()))
    head = f"{count} of {len(errors)} runs failed, and the others are stored."
    head = f"All {count} runs failed." if count == len(errors) else head
    shown = []
    for words, labels in list(by_words.items())[:_MOST_SHOWN]:
        also = f" and {len(labels) - 1} more" if len(labels) > 1 else ""
        shown.append(f"{labels[0]}{also}: {words}")
    more = sum(map(len, list(by_words.values())[_MOST_SHOWN:]))
    return " ".join([head, *shown, *([f"And {more} more."] if more else [])])


def check_all(recipes: Mapping[str, Recipe], workers: int) -> dict[str, Identity]:
    """Return the identities of recipes by digest; a wrong name or option in any of them raises a `UserError`."""
    if workers < 1:
        raise UserError(f"workers = {workers} is out of range: give a whole number of at least 1.")
    identities: dict[str, Identity] = {}
    for label, recipe in recipes.items():
        try:
            identities[recipe.digest] = identify(recipe)
        except UserError as error:
            raise UserError(f"{label}: {error}" if len(recipes) > 1 else str(error)) from None
    return identities


class Schedule:
    """The recipes that are left, and what has happened to them."""

    def __init__(self, lab: Lab, recipes: dict[str, Recipe], engine: Engine) -> None:
        self.lab, self.recipes, self.engine = lab, recipes, engine
        shapes = {digest: outline(recipe) for digest, recipe in recipes.items()}
        several = Counter(shapes.values())
        # By the whole list, and not by what is left of it: what is stored already must not change a result's bits.
        self.together = {digest: several[shape] > 1 for digest, shape in shapes.items()}
        self.failed: dict[str, UserError] = {}
        self.stored: set[str] = set()
        self.deaths: Counter[str] = Counter()
        self.false_starts = 0

    def work(self, identities: Mapping[str, Identity]) -> dict[str, UserError]:
        """Run everything, and return the errors by digest."""
        for digest, recipe in self.recipes.items():
            try:
                if self.lab.known(recipe, identities[digest]) is not None:
                    self._done(digest)
            except UserError as error:
                self.failed[digest] = error
        waiting = {digest: one for digest, one in self.recipes.items() if digest not in self.stored | {*self.failed}}
        if not waiting:
            claims.sharers(self.lab.store.claims)  # which removes what a killed process has left
            return self.failed
        self.lab.store.prepare()
        try:
            with self.engine, claims.present(self.lab.store.claims):
                tasks = plan_tasks(self.lab, waiting, self.together, self.engine.workers)
                while tasks:
                    tasks = self._round(tasks)
        except KeyboardInterrupt as stop:
            if len(self.recipes) == 1:
                raise
            done = f"{len(self.stored)} of {len(self.recipes)} runs are stored"
            raise KeyboardInterrupt(f"Interrupted: {done}, and the same command continues from there.") from stop
        return self.failed

    def _round(self, tasks: list[Task]) -> list[Task]:
        """Let the engine carry out tasks, and return those that are left."""
        again: list[Task] = []
        busy, before = 0, len(self.stored) + len(self.failed)
        for task, found in self.engine.run(self.lab, tasks):
            check()
            if isinstance(found, Lost):
                again += self._divided(task, found)
                continue
            self.false_starts = 0
            if found.full:
                self._stop(found.full)
            for text in found.notices:
                warnings.warn(text, OtherCode, stacklevel=2)
            for digest, sentence in found.outcomes.items():
                if sentence:
                    self.failed[digest] = UserError(sentence)
                elif sentence is not None:
                    self._done(digest)
            left = [digest for digest in task.recipes if found.outcomes.get(digest) is None]
            again += [task.part(left)] if left else []
            busy += len(left)
        if busy and len(self.stored) + len(self.failed) == before:  # other processes are computing all that is left
            time.sleep(_WAIT)
        return again

    def _stop(self, full: str) -> None:
        """Raise a `UserError`: every other run would fail as well."""
        if len(self.recipes) == 1:
            raise FullDiskError(full)
        stored = sum(self.lab.store.path(recipe).exists() for recipe in self.recipes.values())
        raise FullDiskError(f"{stored} of {len(self.recipes)} runs are stored, and the others need more room. {full}")

    def _done(self, digest: str) -> None:
        self.stored.add(digest)
        self.lab.tell(self.recipes[digest], 1.0, "stored")

    def _divided(self, task: Task, lost: Lost) -> list[Task]:
        """Return what to do instead of a task whose worker has ended: the same, its halves, or nothing."""
        if not lost.begun:
            self.false_starts += 1
            if self.false_starts >= _MOST_FALSE_STARTS:
                why = f"{self.false_starts} workers ended before they began ({lost.reason})"
                raise UserError(f"{why}: free some memory, or try fewer workers. What was computed is stored.")
            return [task]
        digests = list(task.recipes)
        key = " ".join(digests)
        self.deaths[key] += 1
        if len(digests) > 1 and self.deaths[key] > 1:
            half = len(digests) // 2
            return [task.part(digests[:half]), task.part(digests[half:])]
        if len(digests) == 1 and self.deaths[key] >= _MOST_DEATHS:
            name, times = self.recipes[digests[0]].name, f"ended its worker {self.deaths[key]} times"
            advice = "it may need more memory than there is, so try fewer workers"
            self.failed[digests[0]] = UserError(
                f"'{name}' {times} (most recently by {lost.reason}) and is not tried again: {advice}."
            )
            return []
        return [task]
