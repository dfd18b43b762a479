"""What a run tells while it is on its way: a small file beside its checkpoint, from which `unlazy watch` reads.

The file is there as long as the run is: it appears once a run has taken a few seconds, and goes when the run ends,
whatever the end.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from unlazy._files import atomic_write
from unlazy.lab.recipe import Recipe
from unlazy.lab.store import LIVE, flat

_EVERY_SECONDS = 2.0  # often enough for an eye, seldom enough to cost nothing


class Note(msgspec.Struct, frozen=True, kw_only=True):
    """Where a run stands. What the probes saw is a mean over seeds and all axes but time; None is not finite."""

    name: str
    digest: str
    seeds: int
    end: float  # the last time asked for
    clock: float  # the time that it is heading for
    share: float  # of the way that is behind
    first_share: float  # where this process began: not 0 where it goes on from a checkpoint
    begun: float  # seconds since 1970
    told: float
    times: list[float]
    observed: dict[str, list[float | None]]

    @property
    def seconds_left(self) -> float | None:
        """Time left, if the rest goes as fast as this process went so far; None before anything is known."""
        done = self.share - self.first_share
        return (1 - self.share) * (self.told - self.begun) / done if done > 0 else None


class Live:
    """Keeps the note of one run up to date; a disk that refuses is no reason to stop the run."""

    def __init__(self, path: Path, recipe: Recipe) -> None:
        self.path, self.recipe = path, recipe
        self.begun = self.told = time.time()
        self.first_share: float | None = None
        self.observed: list[dict[str, float | None]] = []

    def tell(self, share: float, clock: float, times: np.ndarray, looks: Sequence[dict[str, Any]]) -> None:
        """Note, every few seconds, how far the run is on its way through ``times`` and what was observed."""
        if self.first_share is None:
            self.first_share = share
        now = time.time()
        if now - self.told < _EVERY_SECONDS:
            return
        self.told = now
        self.observed += [_means(look) for look in looks[len(self.observed) :]]
        note = Note(
            name=self.recipe.name,
            digest=self.recipe.digest,
            seeds=self.recipe.seeds,
            end=float(times[-1]),
            clock=clock,
            share=share,
            first_share=self.first_share,
            begun=self.begun,
            told=now,
            times=times[: len(self.observed)].tolist(),
            observed={
                name: [look.get(name) for look in self.observed] for name in (self.observed[0] if self.observed else {})
            },
        )
        with contextlib.suppress(OSError), atomic_write(self.path) as temporary:
            temporary.write_bytes(msgspec.json.encode(note))

    def end(self) -> None:
        """Say no more."""
        with contextlib.suppress(OSError):
            self.path.unlink(missing_ok=True)


def _means(look: dict[str, Any]) -> dict[str, float | None]:
    means = {name: float(np.mean(values)) for name, values in flat(look).items()}
    return {name: mean if np.isfinite(mean) else None for name, mean in means.items()}


def notes(folder: Path) -> list[Note]:
    """Read the notes of all runs that are on their way in ``folder``; one that is just being replaced is left out."""
    found = []
    for path in sorted(folder.glob("*" + LIVE)):
        with contextlib.suppress(OSError, msgspec.DecodeError):
            found.append(msgspec.json.decode(path.read_bytes(), type=Note))
    return found
