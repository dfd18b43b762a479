"""Run many recipes: one after another, or in several processes on one machine.

A worker is a separate Python process with its own share of the cores. It receives recipes and sends messages through a
pipe; results go through the store. Claims in the store keep two workers from computing the same trajectory, so that a
recipe that needs what another worker is computing is put back and tried again later.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
import warnings
from collections import deque
from collections.abc import Mapping, Sequence
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from typing import TYPE_CHECKING, Any

import xarray as xr

from unlazy._errors import UserError
from unlazy._signals import check, deferred
from unlazy.lab.identity import identify
from unlazy.lab.made_by import OtherCode
from unlazy.lab.recipe import Recipe

if TYPE_CHECKING:
    from unlazy.lab.runner import Lab

_WAIT = 0.2  # seconds before a recipe is tried again that another process is computing
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS")


def run_all(lab: Lab, recipes: Mapping[str, Recipe] | Sequence[Recipe], workers: int) -> dict[str, xr.Dataset]:
    """Run recipes and return their results by label; see `Lab.run_all`."""
    labelled: dict[str, Recipe] = {}
    for label, recipe in recipes.items() if isinstance(recipes, Mapping) else [(one.name, one) for one in recipes]:
        if labelled.setdefault(label, recipe) != recipe:
            raise UserError(f"Two different recipes are called '{label}': rename one, or give a dictionary.")
    if workers < 1:
        raise UserError(f"At least one worker is needed, not {workers}.")
    for label, recipe in labelled.items():  # every wrong name or option is found before any time is spent
        try:
            identify(recipe)
        except UserError as error:
            raise UserError(f"{label}: {error}" if len(labelled) > 1 else str(error)) from None
    distinct = {recipe.digest: recipe for recipe in labelled.values()}
    several = workers > 1 and len(distinct) > 1
    results, failed = Crew(lab, distinct, workers).work() if several else _in_turn(lab, distinct)
    if len(labelled) == 1 and failed:
        raise next(iter(failed.values()))
    if failed:
        errors = {label: failed[recipe.digest] for label, recipe in labelled.items() if recipe.digest in failed}
        sentences = " ".join(f"{label}: {error}" for label, error in errors.items())
        raise UserError(f"{len(errors)} of {len(labelled)} runs failed, and the others are stored. {sentences}")
    return {label: results[recipe.digest] for label, recipe in labelled.items()}


Outcome = tuple[dict[str, xr.Dataset], dict[str, UserError]]  # results and errors, by digest of the recipe


def _in_turn(lab: Lab, recipes: dict[str, Recipe]) -> Outcome:
    """Run recipes one after another; those that another process is computing come later."""
    waiting, results, failed, idle = deque(recipes), {}, {}, 0
    while waiting:
        digest = waiting.popleft()
        try:
            found = lab.attempt(recipes[digest])
        except UserError as error:
            failed[digest] = error
            continue
        if found is not None:
            results[digest], idle = found, 0
            continue
        waiting.append(digest)
        idle += 1
        if idle >= len(waiting):  # other processes are computing all that is left
            lab.wait(recipes[digest])
    return results, failed


class Crew:
    """Worker processes that share a number of recipes."""

    def __init__(self, lab: Lab, recipes: dict[str, Recipe], workers: int) -> None:
        self.lab, self.recipes, self.cores = lab, recipes, _cores(min(workers, len(recipes)))
        self.waiting = deque(recipes)
        self.not_before: dict[str, float] = {}
        self.results: dict[str, xr.Dataset] = {}
        self.failed: dict[str, UserError] = {}

    def work(self) -> Outcome:
        """Run everything. On Ctrl-C all workers save their state first."""
        members = [Member(self.lab, cores) for cores in self.cores]
        try:
            while self.waiting or any(member.digest is not None for member in members):
                check()
                for number, member in enumerate(members):
                    if member.digest is None and self.waiting:
                        if member.ended:
                            member.end()
                            members[number] = member = Member(self.lab, self.cores[number])
                        self._next(member)
                ready = wait([member.connection for member in members if not member.ended], _WAIT)
                for member in members:
                    if member.connection in ready:
                        self._receive(member)
        except KeyboardInterrupt:
            for member in members:
                member.interrupt()
            for member in members:
                while member.process.poll() is None:
                    with contextlib.suppress(KeyboardInterrupt, subprocess.TimeoutExpired):  # they know already
                        member.process.wait(1.0)
            done = f"{len(self.results)} of {len(self.recipes)} runs are stored"
            raise KeyboardInterrupt(f"Interrupted: {done}, and the same command goes on from there.") from None
        finally:
            for member in members:
                member.end()
        return self.results, self.failed

    def _next(self, member: Member) -> None:
        """Give a worker the next recipe that may be tried now."""
        for _ in range(len(self.waiting)):
            digest = self.waiting.popleft()
            if self.not_before.get(digest, 0.0) <= time.monotonic():
                member.give(digest, self.recipes[digest])
                return
            self.waiting.append(digest)

    def _receive(self, member: Member) -> None:
        message, digest = member.receive(), member.digest
        if digest is None:
            return
        recipe = self.recipes[digest]
        match message:
            case ("progress", fraction, note):
                self.lab.tell(recipe, fraction, note)
                return
            case ("warning", text):
                warnings.warn(text, OtherCode, stacklevel=2)
                return
            case ("error", text):
                self.failed[digest] = UserError(text)
            case ("busy",):
                self.lab.tell(recipe, 0.0, "waiting for another process")
                self.not_before[digest] = time.monotonic() + _WAIT
                self.waiting.append(digest)
            case ("done",):
                found = self.lab.store.load(recipe)
                self.results[digest] = found if found is not None else self.lab.run(recipe)
                self.lab.tell(recipe, 1.0, "stored")
            case _:
                status = member.process.wait()
                how = f"signal {signal.Signals(-status).name}" if status < 0 else f"status {status}"
                sentence = f"the process that ran '{recipe.name}' ended unexpectedly ({how}): try fewer workers."
                self.failed[digest] = UserError(sentence)
        member.digest = None


class Member:
    """One worker process.

    Attributes
    ----------
    digest
        The digest of the recipe that it is running, if any.
    ended
        Whether the process has closed its side of the connection.
    """

    def __init__(self, lab: Lab, cores: set[int]) -> None:
        self.digest: str | None = None
        self.ended = False
        self.connection, other = Pipe()
        # Cores are assigned before any library counts them, and an interruption before there is any work just ends it.
        start = "import os, signal; signal.signal(signal.SIGINT, lambda *_: os._exit(0)); "
        start += f"os.sched_setaffinity(0, {cores!r}); " if cores else ""
        start += f"from unlazy.lab.schedule import serve; serve({other.fileno()})"
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(one for one in sys.path if one)}
        environment |= {name: str(max(1, len(cores))) for name in _THREADS} if cores else {}
        with other:
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-c", start],
                stdin=subprocess.DEVNULL,
                stdout=2,  # standard output is for results only
                env=environment,
                pass_fds=[other.fileno()],
                start_new_session=True,  # Ctrl-C goes to this process, which passes it on
            )
        settings = {"folder": lab.store.folder, "fresh": lab.fresh, "snapshots": lab.snapshots}
        self._send((sys.path, settings))

    def _send(self, message: Any) -> None:
        with contextlib.suppress(OSError):  # if the process has ended, `receive` notices it
            self.connection.send(message)

    def receive(self) -> Any:
        """Return the next message, or None if the process has ended."""
        try:
            return self.connection.recv()
        except (EOFError, OSError):
            self.ended = True
            return None

    def give(self, digest: str, recipe: Recipe) -> None:
        """Send a recipe to the process."""
        self.digest = digest
        self._send(recipe)

    def interrupt(self) -> None:
        """Ask the process to save its state and end."""
        if self.process.poll() is None:
            with contextlib.suppress(OSError):
                self.process.send_signal(signal.SIGINT)
        self.connection.close()

    def end(self) -> None:
        """Wait until the process has ended; if it is computing, it saves its state first."""
        if self.digest is not None:
            self.interrupt()
        self.connection.close()
        self.process.wait()


def _cores(workers: int) -> list[set[int]]:
    """Divide the cores that this process may use; if there are fewer cores than workers, workers share them."""
    if not hasattr(os, "sched_getaffinity"):
        return [set()] * workers
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < workers:
        return [{cores[number % len(cores)]} for number in range(workers)]
    return [set(cores[number::workers]) for number in range(workers)]


def serve(descriptor: int) -> None:
    """Run recipes in a worker process, as they arrive on a connection, until it is closed or a signal arrives."""
    from unlazy.lab.runner import Lab

    connection = Connection(descriptor)

    def answer(*message: Any) -> None:
        try:
            connection.send(message)
        except OSError:  # the other process has ended or is stopping: save and end
            raise KeyboardInterrupt from None

    def tell(recipe: Recipe, fraction: float, note: str) -> None:
        check()
        answer("progress", float(fraction), note)

    # The other process passes signals on, and a batch system may send them to all: only the first one counts.
    with contextlib.suppress(KeyboardInterrupt, EOFError), deferred(impatient=False):
        sys.path[:], settings = connection.recv()
        lab = Lab(tell=tell, **settings)
        while True:
            while not connection.poll(_WAIT):
                check()
            recipe = connection.recv()
            try:
                with warnings.catch_warnings(record=True) as caught:
                    warnings.simplefilter("always", OtherCode)
                    found = lab.attempt(recipe)
                for one in caught:
                    if issubclass(one.category, OtherCode):
                        answer("warning", str(one.message))
                answer("busy" if found is None else "done")
            except UserError as error:
                answer("error", str(error))
            except Exception as error:
                answer("error", f"this should not have happened ({type(error).__name__}: {error}).")
