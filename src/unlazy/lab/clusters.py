"""Engines on other machines: a running Dask cluster, and batch systems such as SLURM and PBS through dask-jobqueue.

Tasks are JSON and results go to the store, so a worker or scheduler that is lost takes nothing with it: another worker
continues from the last checkpoint, as soon as the claim of the lost one is seen to be dead. Workers need the same
versions of unlazy and JAX, modules of your own that recipes name, and a disk that all machines share.
"""

from __future__ import annotations

import importlib
import re
import shutil
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from unlazy._errors import Notice, UserError, suggest
from unlazy._files import reason
from unlazy._signals import check
from unlazy.lab.engines import Engine, decode
from unlazy.lab.live import notes
from unlazy.lab.recipe import read_table
from unlazy.lab.tasks import Lost, Report, Task, perform_anywhere, unpacked

if TYPE_CHECKING:
    from unlazy.lab.runner import Lab

_TIMEOUT = 20.0  # seconds in which a scheduler answers
_EVERY = 2.0  # seconds between two reports of progress
_BATCH_SYSTEMS = {  # their modules, classes, and the commands that submit jobs
    "slurm": ("dask_jobqueue", "SLURMCluster", "sbatch"),
    "pbs": ("dask_jobqueue", "PBSCluster", "qsub"),
    "local": ("dask_jobqueue.local", "LocalCluster", "sh"),
}


def _needs(module: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError:
        package = module.replace("_", "-")
        raise UserError(f"A cluster needs the package {package}: pip install 'unlazy[cluster]'.") from None


class Dask(Engine):
    """Carries out tasks on a running Dask cluster.

    Parameters
    ----------
    address
        The address of the scheduler, such as ``tcp://10.0.0.1:8786``.
    """

    def __init__(self, address: str) -> None:
        # Before Dask does: its own error leaves half a client behind.
        if not re.fullmatch(r"(\w+://)?[^/\s]+:\d+|inproc://.+", address):
            raise UserError(f"'{address}' is not the address of a scheduler: write it as tcp://10.0.0.1:8786.")
        self.address = address
        self._client: Any = None

    def __enter__(self) -> Self:
        distributed = _needs("distributed")
        try:
            self._client = distributed.Client(self._target(), timeout=_TIMEOUT, set_as_default=False)
            self.workers = max(1, len(self._places()))
        except UserError:
            raise
        except (OSError, TimeoutError, ValueError) as error:
            known = "start one by 'dask scheduler', and workers by 'dask worker ADDRESS'"
            text = f"No Dask scheduler answers at '{self.address}' ({reason(error)}): {known}."
            raise UserError(" ".join(text.split())) from None
        return self

    def _target(self) -> Any:
        return self.address

    def _places(self) -> list[str]:
        return sorted(self._client.nthreads())

    def run(self, lab: Lab, tasks: Sequence[Task]) -> Iterator[tuple[Task, Report | Lost]]:
        """Submit all tasks; those of one shape prefer one worker, and go elsewhere if it has too much to do."""
        distributed = _needs("distributed")
        places, shapes = self._places(), list(dict.fromkeys(task.shape for task in tasks))
        waiting: dict[Any, Task] = {}
        if not places:
            warnings.warn("No worker has started yet: the runs wait for one.", Notice, stacklevel=2)
        for task in tasks:
            wish: dict[str, Any] = {}
            if places:
                wish = {"workers": [places[shapes.index(task.shape) % len(places)]], "allow_other_workers": True}
            waiting[self._client.submit(perform_anywhere, task.json(), pure=False, **wish)] = task
        reported = 0.0
        try:
            while waiting:
                check()
                if self._client.status != "running":
                    raise self._lost(f"status {self._client.status}")
                try:
                    with self._client.as_current():
                        ended = distributed.wait(list(waiting), timeout=0.5, return_when="FIRST_COMPLETED").done
                except (TimeoutError, distributed.TimeoutError):
                    ended = ()
                except (distributed.CancelledError, OSError) as error:
                    raise self._lost(type(error).__name__) from None
                for future in ended:
                    task = waiting.pop(future)
                    yield task, self._outcome(distributed, task, future)
                if time.monotonic() - reported > _EVERY:
                    reported = time.monotonic()
                    self._tell(lab, waiting.values())
        finally:
            if self._client.status == "running":
                self._client.cancel(list(waiting))

    def _outcome(self, distributed: Any, task: Task, future: Any) -> Report | Lost:
        try:
            return decode(future.result())
        except distributed.KilledWorker:
            return Lost("the end of several workers")
        except (distributed.CancelledError, OSError) as error:
            raise self._lost(reason(error)) from None
        except Exception as error:  # `perform_anywhere` raises nothing: the worker could not call it
            text = " ".join(f"{type(error).__name__}: {error}".split())
            sentence = f"a worker cannot run it ({text}): install unlazy, and what your recipes name, on all workers."
            return Report(outcomes=dict.fromkeys(task.recipes, sentence))

    def _lost(self, why: str) -> UserError:
        kept = "What was computed is stored, and the same command continues from there."
        return UserError(f"The connection to the scheduler at '{self.address}' was lost ({why}). {kept}")

    def _tell(self, lab: Lab, tasks: Any) -> None:
        """Report the progress that workers note in the folder of results."""
        ours = {digest: text for task in tasks for digest, text in task.recipes.items()}
        for note in notes(lab.store.folder):
            if note.digest in ours:
                lab.tell(unpacked(ours[note.digest]), min(note.share, 0.999), f"t = {note.clock:g}")

    def close(self) -> None:
        """Close the connection. Tasks that a worker has begun go on there, and what they compute is stored."""
        if self._client is not None:
            self._client.close(timeout=_TIMEOUT)
            self._client = None


class BatchSystem(Dask):
    """Starts Dask workers as jobs of a batch system, and ends them when the work is done.

    Parameters
    ----------
    system
        ``"slurm"``, ``"pbs"``, or ``"local"``, which starts processes on this machine instead.
    options
        ``jobs``, the number of jobs (1 unless given), and the options of dask-jobqueue's cluster, such as ``cores``,
        ``memory``, ``walltime`` and ``queue``.
    """

    def __init__(self, system: str, options: Mapping[str, Any]) -> None:
        if system not in _BATCH_SYSTEMS:
            raise UserError(f"There is no batch system called '{system}'. {suggest(system, _BATCH_SYSTEMS)}")
        self.address, self._client = f"the jobs of {system}", None
        self.system, self.options = system, dict(options)
        self.jobs = self.options.pop("jobs", 1)
        if not isinstance(self.jobs, int) or self.jobs < 1:
            raise UserError(f"jobs is a whole number of at least 1, not {self.jobs!r}.")
        self._cluster: Any = None

    @classmethod
    def read(cls, system: str, path: Path) -> BatchSystem:
        """Read the options from a TOML file.

        Parameters
        ----------
        system
            The batch system.
        path
            The file.
        """
        if not path.is_file():
            raise UserError(f"There is no file '{path}': write the options of your jobs there, such as cores = 4.")
        return cls(system, read_table(path))

    def _target(self) -> Any:
        module, name, submit = _BATCH_SYSTEMS[self.system]
        make = getattr(_needs(module), name)
        if shutil.which(submit) is None:
            raise UserError(
                f"There is no command '{submit}' here, which submits jobs: call unlazy on a machine from which jobs of "
                f"{self.system} are submitted, or write a script for such a machine with --print-array."
            )
        try:
            self._cluster = make(**self.options)
            self._cluster.scale(jobs=self.jobs)
        except (TypeError, ValueError, RuntimeError, OSError) as error:
            self._end()
            text = " ".join(str(error).split()).partition(". ")[0].rstrip(".")  # its second sentence is a guess
            raise UserError(f"The options for {self.system} do not work: {text}.") from None
        return self._cluster

    def __enter__(self) -> Self:
        try:
            entered = super().__enter__()
        except BaseException:
            self._end()
            raise
        entered.workers = max(self.jobs, self.workers)
        return entered

    def _end(self) -> None:
        if self._cluster is not None:
            self._cluster.close(timeout=_TIMEOUT)
            self._cluster = None

    def close(self) -> None:
        super().close()
        self._end()
