"""Runs recipes: from the store where they are known, from a checkpoint where they were interrupted, else afresh."""

from __future__ import annotations

import contextlib
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

import jax
import xarray as xr

from unlazy._errors import UserError
from unlazy.flows import Journey
from unlazy.lab.live import Live
from unlazy.lab.recipe import Recipe, bring_to_life
from unlazy.lab.store import Store, as_dataset, read_run, reason

Told = Callable[[Recipe, float, str], None]  # (recipe, share done, what is being done)


class Interrupted(KeyboardInterrupt):
    """Ctrl-C, after the state was saved."""

    def __init__(self, recipe: Recipe, share: float, fresh: bool) -> None:
        rest = "--fresh starts over" if fresh else "the same command goes on from there"
        super().__init__(f"'{recipe.name}' was interrupted at {share:.0%}; {rest}.")


class Lab:
    """A store and a way to tell the user what is going on: all that running a recipe needs."""

    def __init__(self, folder: Path | str = "runs", tell: Told | None = None, fresh: bool = False) -> None:
        self.store, self.fresh = Store(folder), fresh
        self.tell: Told = tell or (lambda recipe, share, note: None)

    def run(self, recipe: Recipe) -> xr.Dataset:
        """Give the result of a recipe with dimensions seed and time; what is stored is not computed again."""
        self.store.prepare()
        known = None if self.fresh else self.store.load(recipe)
        if known is not None:
            self.tell(recipe, 1.0, "stored")
            return known
        with jax.enable_x64(True):  # a recipe says itself how precise it is, and has one result however JAX is set
            return self._compute(recipe)

    def _compute(self, recipe: Recipe) -> xr.Dataset:
        self.tell(recipe, 0.0, "drawing")
        experiment = bring_to_life(recipe)
        journey = Journey.begin(
            experiment.flow, experiment.networks, experiment.data, experiment.times, experiment.probes, experiment.keys
        )
        checkpoint = self.store.checkpoint(recipe)
        if checkpoint.exists() and not self.fresh:
            self._continue(journey, checkpoint)
        share, live = 0.0, Live(self.store.live(recipe), recipe, journey.reached)

        def listen(done: float, clock: float) -> None:
            nonlocal share
            share = done
            live.tell(done, clock, journey.looks)
            self.tell(recipe, done, f"t = {clock:g}")

        try:
            journey.go(listen, checkpoint=lambda: self._keep(journey, checkpoint))
        finally:
            live.end()
        if journey.interrupted:
            self._keep(journey, checkpoint)
            raise Interrupted(recipe, share, self.fresh)
        trajectories = journey.trajectories()
        if not journey.looks:
            raise UserError(f"'{recipe.name}' failed before its first look: {trajectories[0].status.value}")
        try:
            path = self.store.save(recipe, as_dataset(recipe, trajectories))
        except UserError as error:
            self._keep(journey, checkpoint)
            raise UserError(f"{error} What was computed is kept: the same command goes on from there.") from None
        return read_run(path)  # what is returned now is what will be read later

    def _keep(self, journey: Journey, checkpoint: Path) -> None:
        try:
            journey.save(checkpoint)
        except OSError as error:
            with contextlib.suppress(OSError):
                checkpoint.with_name(checkpoint.name + ".part").unlink()
            raise UserError(
                f"The checkpoint '{checkpoint}' cannot be written ({reason(error)}): free some space."
            ) from None

    def _continue(self, journey: Journey, checkpoint: Path) -> None:
        try:
            journey.load(checkpoint)
        except UserError:
            raise
        except (OSError, ValueError, TypeError, LookupError, EOFError, zipfile.BadZipFile, zlib.error) as error:
            raise UserError(
                f"The checkpoint '{checkpoint}' cannot be used ({type(error).__name__}): delete it to start afresh."
            ) from None
