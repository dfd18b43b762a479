"""Engines carry out tasks: in this process, in worker processes on this machine, or in any way that you implement.

An engine of your own derives from `Engine`, hands ``task.json()`` to `perform` wherever it likes, and yields each task
with the `Report` that comes back, or with `Lost` if nothing does; docs/clusters.md has an example.
"""

from __future__ import annotations

import abc
import contextlib
import gc
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from typing import TYPE_CHECKING, Any

import msgspec

from unlazy._compilation import GARBAGE
from unlazy._signals import check, deferred
from unlazy.lab.recipe import Recipe
from unlazy.lab.tasks import Lost, Report, Task, perform, perform_anywhere

if TYPE_CHECKING:
    from unlazy.lab.runner import Lab

_WAIT = 0.2  # seconds after which signals are noticed
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS")


class Engine(contextlib.AbstractContextManager):
    """Carries out tasks; as a context manager, it keeps its workers until the end of the block.

    Attributes
    ----------
    workers
        The number of workers, among which recipes are divided as tasks.
    """

    workers: int = 1

    @abc.abstractmethod
    def run(self, lab: Lab, tasks: Sequence[Task]) -> Iterator[tuple[Task, Report | Lost]]:
        """Carry out tasks, in any order, and yield each of them as it is done.

        Parameters
        ----------
        lab
            The lab, whose `Lab.tell` may be called with progress.
        tasks
            The tasks. Those of one `Task.shape` should go to one worker, which then compiles once.
        """

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Release the workers; after an interruption they save their state first."""
        return


def decode(text: bytes) -> Report:
    """Read what `perform` returned.

    Parameters
    ----------
    text
        The report as JSON.
    """
    return msgspec.json.decode(text, type=Report)


class Serial(Engine):
    """Carries out tasks in this process, one after another."""

    def run(self, lab: Lab, tasks: Sequence[Task]) -> Iterator[tuple[Task, Report | Lost]]:
        for task in tasks:
            yield task, decode(perform(task.json(), lab.tell))


class Local(Engine):
    """Carries out tasks in worker processes on this machine, each with an equal share of the cores.

    Parameters
    ----------
    workers
        The number of processes.
    """

    def __init__(self, workers: int) -> None:
        self.workers = workers
        self._cores = _cores(workers)
        self._members: list[Member | None] = [None] * workers

    def run(self, lab: Lab, tasks: Sequence[Task]) -> Iterator[tuple[Task, Report | Lost]]:
        waiting = list(tasks)
        while waiting or any(member is not None and member.task is not None for member in self._members):
            check()
            for number, member in enumerate(self._members):
                if waiting and (member is None or member.task is None):
                    if member is None or member.ended:
                        self._members[number] = member = Member(self._cores[number])
                    member.give(waiting.pop(self._choice(member, waiting)))
            alive = [one for one in self._members if one is not None and not one.ended]
            ready = wait([one.connection for one in alive], _WAIT)
            for member in alive:
                if member.connection in ready and (found := self._receive(lab, member)) is not None:
                    yield found

    def _choice(self, member: Member, waiting: list[Task]) -> int:
        """Choose a task of a shape that this worker has had, or else one that no other worker has had."""
        others = {shape for one in self._members if one is not None and one is not member for shape in one.shapes}
        ranks = [0 if task.shape in member.shapes else 1 if task.shape not in others else 2 for task in waiting]
        return ranks.index(min(ranks))

    def _receive(self, lab: Lab, member: Member) -> tuple[Task, Report | Lost] | None:
        message, task = member.receive(), member.task
        if task is None:
            return None
        match message:
            case ("begun",):
                member.begun = True
                return None
            case ("progress", recipe, fraction, note):
                lab.tell(recipe, fraction, note)
                return None
            case ("done", text):
                member.task = None
                return task, decode(text)
        status = member.process.wait()
        member.task = None
        how = f"signal {signal.Signals(-status).name}" if status < 0 else f"status {status}"
        return task, Lost(how, member.begun)

    def close(self) -> None:
        members = [member for member in self._members if member is not None]
        self._members = [None] * self.workers
        for member in members:
            member.interrupt() if member.task is not None else member.connection.close()
        for member in members:
            while member.process.poll() is None:
                with contextlib.suppress(KeyboardInterrupt, subprocess.TimeoutExpired):  # they know already
                    member.process.wait(1.0)


class Member:
    """One worker process."""

    def __init__(self, cores: set[int]) -> None:
        self.task: Task | None = None  # that it is carrying out
        self.begun = False  # whether it has begun with that task
        self.shapes: set[str] = set()  # of all tasks that it has had
        self.ended = False  # whether the process has closed its side of the connection
        self.connection, other = Pipe()
        # Cores are assigned before any library counts them, and an interruption before there is any work just ends it.
        start = "import os, signal; signal.signal(signal.SIGINT, lambda *_: os._exit(0)); "
        start += f"os.sched_setaffinity(0, {cores!r}); " if cores else ""
        start += f"from unlazy.lab.engines import serve; serve({other.fileno()})"
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
        self._send(sys.path)

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

    def give(self, task: Task) -> None:
        """Send a task to the process."""
        self.task, self.begun = task, False
        self.shapes.add(task.shape)
        self._send(task.json())

    def interrupt(self) -> None:
        """Ask the process to save its state and end."""
        if self.process.poll() is None:
            with contextlib.suppress(OSError):
                self.process.send_signal(signal.SIGINT)
        self.connection.close()


def _cores(workers: int) -> list[set[int]]:
    """Divide the cores that this process may use; if there are fewer cores than workers, workers share them."""
    if not hasattr(os, "sched_getaffinity"):
        return [set()] * workers
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < workers:
        return [{cores[number % len(cores)]} for number in range(workers)]
    return [set(cores[number::workers]) for number in range(workers)]


def serve(descriptor: int) -> None:
    """Carry out tasks in a worker process, as they arrive on a connection, until it is closed or a signal arrives."""
    gc.set_threshold(GARBAGE)
    connection = Connection(descriptor)

    def answer(*message: Any) -> None:
        try:
            connection.send(message)
        except OSError:  # the other process has ended or is stopping: save and end
            raise KeyboardInterrupt from None

    def tell(recipe: Recipe, fraction: float, note: str) -> None:
        check()
        answer("progress", recipe, float(fraction), note)

    # The other process passes signals on, and a batch system may send them to all: only the first one counts.
    with contextlib.suppress(KeyboardInterrupt, EOFError), deferred(impatient=False):
        sys.path[:] = connection.recv()
        while True:
            while not connection.poll(_WAIT):
                check()
            task = connection.recv()
            answer("begun")
            answer("done", perform_anywhere(task, tell))
