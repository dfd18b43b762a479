"""Runs many recipes: one after another, or in several processes on one machine.

A worker is a Python process of its own with its own share of the cores. It is handed recipes as lines of JSON and
answers with lines of JSON; results go through the store. Claims in the store keep two workers from computing the same
trajectory, so that a recipe which needs what another one is computing is put back and tried again later.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections import deque
from collections.abc import Mapping, Sequence
from typing import IO, TYPE_CHECKING, Any

import msgspec
import xarray as xr

from unlazy._errors import UserError
from unlazy.lab.identity import identify
from unlazy.lab.made_by import OtherCode
from unlazy.lab.recipe import Recipe, parse

if TYPE_CHECKING:
    from unlazy.lab.runner import Lab

_WAIT = 0.2  # seconds before a recipe is tried again that another process is computing
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS")


def run_all(lab: Lab, recipes: Mapping[str, Recipe] | Sequence[Recipe], workers: int) -> dict[str, xr.Dataset]:
    """Run recipes and give their results by label; see `Lab.run_all`."""
    labelled = labels(recipes)
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
    if failed:
        raise _summary({label: failed[one.digest] for label, one in labelled.items() if one.digest in failed}, labelled)
    return {label: results[recipe.digest] for label, recipe in labelled.items()}


def labels(recipes: Mapping[str, Recipe] | Sequence[Recipe]) -> dict[str, Recipe]:
    """Give recipes by label: those of a list by their names."""
    if isinstance(recipes, Mapping):
        return dict(recipes)
    found: dict[str, Recipe] = {}
    for recipe in recipes:
        if found.setdefault(recipe.name, recipe) != recipe:
            raise UserError(f"Two different recipes are called '{recipe.name}': rename one, or give a dictionary.")
    return found


def _summary(failed: dict[str, UserError], everything: dict[str, Recipe]) -> UserError:
    if len(everything) == 1:
        return next(iter(failed.values()))
    sentences = " ".join(f"{label}: {error}" for label, error in failed.items())
    return UserError(f"{len(failed)} of {len(everything)} runs failed, and the others are stored. {sentences}")


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
        if idle >= len(waiting):  # nothing is left that nobody is computing
            lab.wait(recipes[digest])
    return results, failed


class Crew:
    """Worker processes, and what each of them is doing."""

    def __init__(self, lab: Lab, recipes: dict[str, Recipe], workers: int) -> None:
        self.lab, self.recipes, self.count = lab, recipes, min(workers, len(recipes))
        self.waiting = deque(recipes)
        self.results: dict[str, xr.Dataset] = {}
        self.messages: queue.Queue[tuple[Member, dict[str, Any] | None]] = queue.Queue()
        self.failed: dict[str, UserError] = {}
        self.shares = _cores(self.count)
        self.not_before: dict[str, float] = {}

    def work(self) -> Outcome:
        """Run everything. Ctrl-C lets all workers save their state first."""
        members = [Member(self, number) for number in range(self.count)]
        try:
            for member in members:
                self._next(member)
            while any(member.digest is not None for member in members) or self.waiting:
                with contextlib.suppress(queue.Empty):
                    self._hear(*self.messages.get(timeout=_WAIT))
                for number, member in enumerate(members):
                    if member.digest is None and self.waiting:
                        if member.ended:
                            member.end()
                            members[number] = member = Member(self, number)
                        self._next(member)
        except KeyboardInterrupt:
            self._stop(members)
            done = f"{len(self.results)} of {len(self.recipes)} runs are stored"
            raise KeyboardInterrupt(f"Interrupted: {done}, and the same command goes on from there.") from None
        finally:
            for member in members:
                member.end()
        return self.results, self.failed

    def _next(self, member: Member) -> None:
        for _ in range(len(self.waiting)):
            digest = self.waiting.popleft()
            if self.not_before.get(digest, 0.0) <= time.monotonic():
                member.give(digest, self.recipes[digest])
                return
            self.waiting.append(digest)

    def _hear(self, member: Member, message: dict[str, Any] | None) -> None:
        digest = member.digest
        member.ended = message is None
        if digest is None:
            return
        recipe, what = self.recipes[digest], "gone" if message is None else message["what"]
        if message is not None and what == "progress":
            self.lab.tell(recipe, float(message["share"]), str(message["note"]))
            return
        if message is not None and what == "warning":
            warnings.warn(str(message["text"]), OtherCode, stacklevel=2)
            return
        member.digest = None
        if message is None:
            status = member.process.wait()
            how = f"signal {signal.Signals(-status).name}" if status < 0 else f"status {status}"
            sentence = f"the process that ran '{recipe.name}' ended unexpectedly ({how}): try fewer workers."
            self.failed[digest] = UserError(sentence)
        elif what == "error":
            self.failed[digest] = UserError(str(message["text"]))
        elif what == "busy":
            self.lab.tell(recipe, 0.0, "waiting for another process")
            self.not_before[digest] = time.monotonic() + _WAIT
            self.waiting.append(digest)
        else:
            found = self.lab.store.load(recipe)
            self.results[digest] = found if found is not None else self.lab.run(recipe)
            self.lab.tell(recipe, 1.0, "stored")

    def _stop(self, members: list[Member]) -> None:
        """Ask all workers to save their state, and wait until they have."""
        for member in members:
            member.interrupt()
        while any(not member.ended for member in members):
            try:
                member, message = self.messages.get(timeout=1.0)
                member.ended = member.ended or message is None
            except queue.Empty:
                continue
            except KeyboardInterrupt:  # once more: they have heard
                continue


class Member:
    """One worker process."""

    def __init__(self, crew: Crew, number: int) -> None:
        self.digest: str | None = None
        self.ended = False
        lab, share = crew.lab, crew.shares[number]
        settings = {"folder": str(lab.store.folder), "fresh": lab.fresh, "snapshots": lab.snapshots, "path": sys.path}
        # Cores are shared out before anything counts them, and an interruption before there is any work simply ends it.
        start = "import os, signal; signal.signal(signal.SIGINT, lambda *_: os._exit(0)); "
        start += f"os.sched_setaffinity(0, {share!r}); " if share else ""
        start += "from unlazy.lab.schedule import serve; serve()"
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(one for one in sys.path if one)}
        environment |= {name: str(max(1, len(share))) for name in _THREADS} if share else {}
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-c", start],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            start_new_session=True,  # Ctrl-C goes to this process, which passes it on
        )
        self._say(settings)
        self.listener = threading.Thread(target=self._listen, args=(crew.messages,), daemon=True)
        self.listener.start()

    def _listen(self, messages: queue.Queue) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as lines:
            for line in lines:
                with contextlib.suppress(ValueError):
                    messages.put((self, json.loads(line)))
        messages.put((self, None))

    def _say(self, message: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        with contextlib.suppress(OSError):  # a process that is gone is noticed by its end
            self.process.stdin.write(json.dumps(message).encode() + b"\n")
            self.process.stdin.flush()

    def give(self, digest: str, recipe: Recipe) -> None:
        """Hand it a recipe."""
        self.digest = digest
        self._say({"recipe": recipe.json()})

    def interrupt(self) -> None:
        """Ask it to save its state and end."""
        if self.process.poll() is None:
            with contextlib.suppress(OSError):
                self.process.send_signal(signal.SIGINT)
        with contextlib.suppress(OSError):
            assert self.process.stdin is not None
            self.process.stdin.close()

    def end(self) -> None:
        """Let it end; one that is in the middle of something saves its state first."""
        if self.digest is not None:
            self.interrupt()
        with contextlib.suppress(OSError):
            assert self.process.stdin is not None
            self.process.stdin.close()
        self.process.wait()
        self.listener.join()


def _cores(workers: int) -> list[set[int]]:
    """Share the cores that this process may use; where there are fewer than workers, each is used by several."""
    if not hasattr(os, "sched_getaffinity"):
        return [set()] * workers
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < workers:
        return [{cores[number % len(cores)]} for number in range(workers)]
    return [set(cores[number::workers]) for number in range(workers)]


# ---------------------------------------------------------------- in the worker


def serve() -> None:
    """Run the recipes that come in on standard input, and say on standard output what comes of them."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what anything prints must not be taken for an answer
    Server(sys.stdin.buffer, answers).work()


class Server:
    """A worker's side of the conversation."""

    def __init__(self, orders: IO[bytes], answers: IO[bytes]) -> None:
        self.orders, self.answers, self.stopping = orders, answers, False

    def work(self) -> None:
        """Run recipes until there are no more, or until a signal says stop."""
        from unlazy.lab.runner import Lab

        # The signal is only noted, and obeyed between two slices of work: it is never lost and never comes amiss.
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._stop)
        settings = json.loads(self.orders.readline())
        sys.path[:] = settings["path"]
        lab = Lab(settings["folder"], self._tell, settings["fresh"], settings["snapshots"])
        warnings.simplefilter("always", OtherCode)
        while not self.stopping and (line := self.orders.readline()):
            recipe = parse(json.loads(json.loads(line)["recipe"]))
            try:
                with warnings.catch_warnings(record=True) as caught:
                    warnings.simplefilter("always", OtherCode)
                    found = lab.attempt(recipe)
                for one in caught:
                    if issubclass(one.category, OtherCode):
                        self._answer(what="warning", text=str(one.message))
                self._answer(what="busy" if found is None else "done")
            except KeyboardInterrupt:
                return
            except UserError as error:
                self._answer(what="error", text=str(error))
            except Exception as error:
                self._answer(what="error", text=f"this should not have happened ({type(error).__name__}: {error}).")

    def _stop(self, *_: Any) -> None:
        self.stopping = True

    def _tell(self, recipe: Recipe, share: float, note: str) -> None:
        if self.stopping:
            raise KeyboardInterrupt
        self._answer(what="progress", share=share, note=note)

    def _answer(self, **message: Any) -> None:
        try:
            self.answers.write(msgspec.json.encode(message) + b"\n")
            self.answers.flush()
        except BrokenPipeError:  # whoever started this is gone: save and end
            raise KeyboardInterrupt from None
