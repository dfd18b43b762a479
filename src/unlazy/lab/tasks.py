"""Tasks: what an engine carries to a worker, and what comes back; all of it plain JSON.

A task is a few recipes that probably share their shape, so that one compiled call can run them. Their results go to the
store, and back come only sentences: which recipes are stored, which to try later, and what went wrong.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import socket
import sys
import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from unlazy._errors import FullDiskError, UserError
from unlazy.lab import claims
from unlazy.lab.identity import identify
from unlazy.lab.made_by import OtherCode, provenance
from unlazy.lab.recipe import Recipe, Times
from unlazy.lab.together import MOST_ROWS, Outcomes, attempt, attempt_all

if TYPE_CHECKING:
    from unlazy.lab.runner import Lab, Tell

_SAME_VERSIONS = ("unlazy", "jax", "jaxlib", "equinox")  # libraries that must agree


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """Some recipes, and where their results go.

    Attributes
    ----------
    recipes
        The recipes as JSON, by digest.
    shape
        Equal for tasks that probably compile the same code: one worker should get them all.
    together
        Whether the recipes, or what is left of them, share compiled calls.
    folder, fresh, snapshots
        The arguments of the `Lab`.
    path
        Folders in which modules of your own are found.
    made_by
        The versions of the process that made the task.
    """

    recipes: dict[str, str]
    shape: str
    together: bool
    folder: str
    fresh: bool
    snapshots: float
    path: list[str]
    made_by: dict[str, str]

    def json(self) -> bytes:
        """Return the task as JSON, for `perform`."""
        return msgspec.json.encode(self)

    def part(self, digests: Iterable[str]) -> Task:
        """Return the task with some of its recipes only."""
        return msgspec.structs.replace(self, recipes={digest: self.recipes[digest] for digest in digests})


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a task.

    Attributes
    ----------
    outcomes
        By digest of the recipe: an empty text if it is stored, None if it is to be tried again later, or what is wrong.
    notices
        Sentences to show.
    full
        Says that the disk is full, so that other tasks would fail as well; empty if it is not.
    """

    outcomes: dict[str, str | None]
    notices: list[str] = []
    full: str = ""


class Lost(msgspec.Struct, frozen=True):
    """A task whose worker has ended before it was done.

    Attributes
    ----------
    reason
        How it ended.
    begun
        Whether the worker had begun with the task; if not, the task is not to blame.
    """

    reason: str
    begun: bool = True


def plan_tasks(lab: Lab, recipes: Mapping[str, Recipe], together: Mapping[str, bool], workers: int) -> list[Task]:
    """Divide recipes into tasks: those of one shape stay together, in parts of which every worker gets some.

    ``together`` says of each recipe whether it shares its shape with another, stored or not.
    """
    shapes: dict[str, list[str]] = {}
    for digest, recipe in recipes.items():
        shapes.setdefault(outline(recipe), []).append(digest)
    common = {
        "folder": str(lab.store.folder.resolve()),
        "fresh": lab.fresh,
        "snapshots": lab.snapshots,
        "path": [one for one in sys.path if one],
        "made_by": signature(),
    }
    rows = sum(recipe.seeds for recipe in recipes.values())
    most = min(MOST_ROWS, max(4, -(-rows // (2 * workers)))) if workers > 1 else MOST_ROWS
    found = []
    for shape, digests in shapes.items():
        digests.sort(key=lambda digest: recipes[digest].grid()[-1])  # in one call all wait for the longest
        count = -(-sum(recipes[digest].seeds for digest in digests) // most)
        size = -(-len(digests) // count)
        for start in range(0, len(digests), size):
            some = {digest: recipes[digest].json() for digest in digests[start : start + size]}
            found.append(Task(recipes=some, shape=shape, together=any(together[one] for one in some), **common))
    # Processes that share a folder begin at different places of the list, which is the same for all of them.
    others = [mine for _, mine in claims.sharers(lab.store.claims)]
    start = len(found) * others.index(True) // len(others) if True in others else 0
    return found[start:] + found[:start]


def part_of(recipes: Mapping[str, Recipe], part: str) -> dict[str, Recipe]:
    """Return one of several parts of some recipes, of about equal size; recipes of one shape stay together.

    Parameters
    ----------
    recipes
        The recipes by label. All processes that share the work must give the same ones.
    part
        ``"i/N"``: the i-th of N parts, counted from 0.
    """
    found = re.fullmatch(r"(\d+)/(\d+)", part)
    if not found or not int(found[1]) < int(found[2]):
        raise UserError(f"'{part}' is not a part: write i/N with 0 <= i < N, as in 0/4, 1/4, 2/4 and 3/4.")
    index, count = int(found[1]), int(found[2])
    if count > len(recipes):
        raise UserError(f"{len(recipes)} runs cannot be divided into {count} parts: take at most {len(recipes)}.")
    labels = sorted(recipes, key=lambda label: outline(recipes[label]))  # stable: otherwise in the given order
    start, end = (len(labels) * one // count for one in (index, index + 1))
    chosen = set(labels[start:end])
    return {label: recipe for label, recipe in recipes.items() if label in chosen}


def outline(recipe: Recipe) -> str:
    """Return a digest of a recipe without its name, its seeds and its floating-point numbers."""
    return hashlib.sha256(without_numbers(json.loads(recipe.json())).encode()).hexdigest()[:16]


def without_numbers(table: dict[str, Any]) -> str:
    """Return a table of a recipe as text, without names, seeds and floating-point numbers."""

    def plain(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: plain(one) for name, one in value.items() if name not in ("name", "seed", "seeds")}
        if isinstance(value, list):
            return [plain(one) for one in value]
        return "number" if isinstance(value, float) else value

    return json.dumps(plain(table), sort_keys=True, default=str)


def signature() -> dict[str, str]:
    """Return the versions that client and worker must share, and a digest of the source of unlazy."""
    made = provenance()
    versions = dict(one.split(" ", 1) for one in made["versions"].split(", "))
    return {name: versions[name] for name in _SAME_VERSIONS} | {"source": made["code"]}


def perform(text: bytes, tell: Tell | None = None) -> bytes:
    """Carry out a task on a worker.

    Parameters
    ----------
    text
        What `Task.json` returned.
    tell
        Called with a recipe, the fraction done and a few words; for example to send them to the client.

    Returns
    -------
    bytes
        A `Report` as JSON.
    """
    from unlazy.lab.runner import Lab

    task = msgspec.json.decode(text, type=Task)
    refused = _refusal(task)
    if refused:
        return msgspec.json.encode(Report(outcomes=dict.fromkeys(task.recipes, refused)))
    sys.path += [one for one in task.path if one not in sys.path]
    lab = Lab(task.folder, tell, task.fresh, task.snapshots)
    recipes = [unpacked(one) for one in task.recipes.values()]
    found: Outcomes = {}
    full = ""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", OtherCode)
        try:
            if task.together:
                found = attempt_all(lab, recipes)
            else:
                found = {recipe.digest: attempt(lab, recipe) for recipe in recipes}
        except FullDiskError as error:
            full = str(error)
    outcomes = {
        digest: str(one) if isinstance(one, UserError) else "" if one else None for digest, one in found.items()
    }
    notices = [str(one.message) for one in caught if issubclass(one.category, OtherCode)]
    return msgspec.json.encode(Report(outcomes=outcomes, notices=notices, full=full))


def unpacked(text: str) -> Recipe:
    """Read a recipe so that its digest is the same: `parse` would make 1.0 of a time 1 that was given in Python."""
    table = json.loads(text)
    times = table.pop("times")
    return Recipe(**table, times=Times(**times) if isinstance(times, dict) else times)


def perform_anywhere(text: bytes, tell: Tell | None = None) -> bytes:
    """Carry out a task as `perform` does, in a process of its own: with stored compiled code, and errors in words."""
    from unlazy._compilation import use_cache

    use_cache()
    task = msgspec.json.decode(text, type=Task)
    try:
        if not _refusal(task):
            sys.path += [one for one in task.path if one not in sys.path]
            identify(unpacked(next(iter(task.recipes.values()))))  # raises if only the client finds what it names
        return perform(text, tell)
    except UserError as error:
        where = f"the worker on {socket.gethostname()} cannot build it"
        sentence = f"{where} ({str(error).rstrip('.')}): install your package there, or start the worker in its folder."
    except Exception as error:
        sentence = f"an unexpected error occurred on the worker ({type(error).__name__}: {error})."
    return msgspec.json.encode(Report(outcomes=dict.fromkeys(task.recipes, sentence)))


def _refusal(task: Task) -> str:
    """Say why this process cannot carry out a task; empty if it can."""
    host, mine = socket.gethostname(), signature()
    other = [name for name in mine if task.made_by.get(name) != mine[name]]
    if other:
        here = ", ".join(f"{name} {mine[name]}" for name in other)
        there = ", ".join(f"{name} {task.made_by.get(name, '?')}" for name in other)
        return f"the worker on {host} has {here}, and this is {there}: install the same versions on both."
    with contextlib.suppress(OSError):
        if Path(task.folder).is_dir():
            return ""
    return (
        f"the worker on {host} does not see the folder '{task.folder}': it must be on a disk that all machines share."
    )
