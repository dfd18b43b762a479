"""Notes on runs in progress: a small file next to the checkpoint, which `unlazy watch` reads.

The file appears once a run has taken a few seconds, and is removed when the run ends, unless its process is killed.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from unlazy._files import replace
from unlazy._plain import finite_or_none, parse_json, read_text
from unlazy.lab.claims import ended, this_process
from unlazy.lab.recipe import Recipe
from unlazy.lab.store import LIVE, parts

_EVERY_SECONDS = 2.0  # often enough to watch, rarely enough to cost nothing


class Note(msgspec.Struct, frozen=True, kw_only=True):
    """The progress of a run.

    Attributes
    ----------
    name, digest, seeds
        The name, digest and number of seeds of the recipe.
    end, clock
        The last of the requested times, and the one that the run is heading for.
    share, first_share
        The fraction that is done, and the one that was done when this process began (0 unless it continues a run).
    begun, written
        When the process began and when this note was written, in seconds since 1970.
    times, observed
        The observed times, and the observations by name: means over seeds and all axes but time, or None if the mean
        is not finite.
    process
        The process that writes the note, as `unlazy.lab.claims` names it.
    ended
        Whether that process has ended without removing the note: it was killed. `notes` finds out.
    """

    name: str
    digest: str
    seeds: int
    end: float
    clock: float
    share: float
    first_share: float
    begun: float
    written: float
    times: list[float]
    observed: dict[str, list[float | None]]
    process: dict[str, Any] = {}
    ended: bool = False

    @property
    def seconds_left(self) -> float | None:
        """The remaining time at the average speed of this process so far; None before there is any progress."""
        done = self.share - self.first_share
        return (1 - self.share) * (self.written - self.begun) / done if done > 0 else None


class Live:
    """Updates the note of one run. If it cannot be written, the run goes on."""

    def __init__(self, path: Path, recipe: Recipe) -> None:
        self.path, self.recipe, self.process = path, recipe, this_process()
        self.begun = self.written = time.time()
        self.first_share: float | None = None
        self.observed: list[dict[str, float | None]] = []

    def tell(self, share: float, clock: float, times: np.ndarray, observed: Sequence[dict[str, Any]]) -> None:
        """Write, every few seconds, the progress of the run along ``times`` and what was observed."""
        if self.first_share is None:
            self.first_share = share
        now = time.time()
        if now - self.written < _EVERY_SECONDS:
            return
        self.written = now
        self.observed += [_means(one) for one in observed[len(self.observed) :]]
        names = self.observed[0] if self.observed else {}
        note = Note(
            name=self.recipe.name,
            digest=self.recipe.digest,
            seeds=self.recipe.seeds,
            end=float(times[-1]),
            clock=clock,
            share=share,
            first_share=self.first_share,
            begun=self.begun,
            written=now,
            times=times[: len(self.observed)].tolist(),
            observed={name: [one.get(name) for one in self.observed] for name in names},
            process=self.process,
        )
        with contextlib.suppress(OSError):
            replace(self.path, msgspec.json.encode(note))

    def end(self) -> None:
        """Remove the note."""
        with contextlib.suppress(OSError):
            self.path.unlink(missing_ok=True)


def _means(observed: dict[str, Any]) -> dict[str, float | None]:
    return {".".join(part): finite_or_none(float(np.mean(values))) for part, values in parts(observed).items()}


def notes(folder: Path) -> list[Note]:
    """Read the notes of all runs in progress; a note that is just being replaced is left out.

    Parameters
    ----------
    folder
        The folder of results.
    """
    found = []
    for path in sorted(folder.glob("*" + LIVE)):
        with contextlib.suppress(OSError, ValueError):
            note = msgspec.convert(parse_json(read_text(path)), Note)
            dead = ended(note.process, path.stat().st_mtime)
            found.append(msgspec.structs.replace(note, ended=dead))
    return found
