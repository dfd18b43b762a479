"""Commands in processes that can be killed, limited and timed, and shares of the trials for each core.

This process has imported everything but has not started JAX's backend, which does not survive a fork. A trial in a
forked process then costs what its command costs, and not the seconds of the imports.
"""

import contextlib
import dataclasses
import gc
import mmap
import os
import pickle
import resource
import signal
import struct
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from jax._src import xla_bridge

import unlazy.flows.driver as driver
from unlazy._listing import listing
from unlazy.cli import main
from unlazy.lab import made_by

made_by._code(), made_by._commit(), listing()  # found out once, for all trials
STATUSES = {0, 1, 2, 130, 143}  # the only ones that a command may end with
GIB = 2**30
TICK = os.sysconf("SC_CLK_TCK")
SILENT = 120.0  # seconds without any computing after which a process hangs


@dataclasses.dataclass
class Outcome:
    """How a process ended."""

    status: int  # negative: the number of the signal that ended it
    output: str
    seconds: float  # from its start to its end
    computed: float = 0.0  # seconds of computing in all
    after: float = 0.0  # seconds of computing after it was sent its last signal; all of them, if it sent it itself
    hung: bool = False
    sent: bool = False  # whether the signal was sent before it had ended
    asked: bool = False  # whether the command was dealing with signals itself when it was sent
    twice: bool = False  # whether it was sent a second time
    left: int = 0  # processes that it had started, and that have not ended

    @property
    def traceback(self):
        return "Traceback" in self.output


@dataclasses.dataclass
class Limits:
    """What a process may use."""

    seconds: float = 120.0  # of computing
    memory: int | None = None
    file: int | None = None  # bytes of a file, as on a full disk
    checkpoints: float | None = 0.1  # seconds between two of them, and slices of 20 ms; None: what users have


@dataclasses.dataclass
class Kill:
    """A signal, sent after some seconds or by the process itself at one of its operations on files."""

    number: signal.Signals
    delay: float | None = None
    operation: int | None = None  # the number of the operation, counted from 1
    share: float = 1.0  # if the operation ends a write: the share of the bytes that are in the file by then
    again: float | None = None  # seconds after which it is sent a second time
    sent: mmap.mmap = dataclasses.field(default_factory=lambda: mmap.mmap(-1, 1))  # shared with the process


def command(arguments, cwd, limits=Limits(), kill=None, count=None):  # noqa: B008
    """Call a command and wait until it ends."""
    call = lambda: main([str(one) for one in arguments])  # noqa: E731
    return finish(start(call, cwd, limits, kill, count), limits, kill, cwd)


def real_command(arguments, cwd, limits=Limits(), kill=None):  # noqa: B008
    """Start a new Python for a command, as a user does, and wait until it ends."""
    output = tempfile.TemporaryFile()  # noqa: SIM115  (closed by `finish`)
    process = subprocess.Popen(
        [sys.executable, "-m", "unlazy", *map(str, arguments)],
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(one for one in sys.path if one)},
    )
    process.returncode = 0  # `finish` waits for it
    return finish((process.pid, output, time.monotonic()), limits, kill, cwd)


def start(call, cwd, limits=Limits(), kill=None, count=None):  # noqa: B008
    """Fork a process that calls something; return what `finish` needs."""
    output = tempfile.TemporaryFile()  # noqa: SIM115  (closed by `finish`)
    sys.stdout.flush(), sys.stderr.flush()
    assert not xla_bridge.backends_are_initialized()
    child = os.fork()
    if child == 0:
        _child(call, cwd, limits, output, kill, count)
    return child, output, time.monotonic()


def _child(call, cwd, limits, output, kill, count):
    """Do not return."""
    status = 70
    try:
        os.chdir(cwd)
        os.dup2(output.fileno(), 1), os.dup2(output.fileno(), 2)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        gc.enable()  # as in any other process: JAX runs code of its own in each collection
        if limits.checkpoints is not None:
            driver._CHECKPOINT_SECONDS, driver._SLICE_SECONDS = limits.checkpoints, 0.02
        if limits.memory is not None:
            resource.setrlimit(resource.RLIMIT_AS, (limits.memory, limits.memory))
        if limits.file is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (limits.file, limits.file))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if count is not None or (kill is not None and kill.operation is not None):
            _watch_files(Path(cwd) / "runs", kill, count)
        call()
        status = 0
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
    except KeyboardInterrupt:
        status = 130  # before the command had begun, or after it had ended
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(BaseException):
            sys.stdout.flush(), sys.stderr.flush()
        os._exit(status)


def _watch_files(folder, kill, count):
    """Count operations on files in a folder; kill this process at one of them, before or after it is carried out.

    Parameters
    ----------
    folder
        The folder.
    kill
        The signal, or None to count only.
    count
        The file to which the number of operations is written.
    """
    done = 0

    def send():
        kill.sent[0] = 1 if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL else 2
        os.kill(os.getpid(), kill.number)

    def counted(operation):
        def call(target, *rest, **named):
            nonlocal done
            path = os.readlink(f"/proc/self/fd/{target}") if isinstance(target, int) else os.fspath(target)
            if not os.path.abspath(path).startswith(str(folder)):
                return operation(target, *rest, **named)
            done += 1
            if count is not None:
                count.write_text(str(done))
            if kill is None or done != kill.operation:
                return operation(target, *rest, **named)
            if kill.number == signal.SIGKILL and operation is fsync and os.path.isfile(path):
                os.ftruncate(target, int(kill.share * os.fstat(target).st_size))
            if kill.share < 0.5:
                send()
            try:
                return operation(target, *rest, **named)
            finally:
                if kill.share >= 0.5:
                    send()

        return call

    fsync = os.fsync
    for name in ("open", "fsync", "replace", "link", "unlink"):
        setattr(os, name, counted(getattr(os, name)))


def finish(started, limits=Limits(), kill=None, cwd=None):  # noqa: B008
    """Wait for a process, send it a signal on the way, and end it when it computes for too long or hangs.

    Processes that it started in the folder ``cwd`` have to end soon after it.
    """
    child, output, begun = started
    sent, asked, hung, at_signal, quiet, last = 0.0, False, False, 0.0, begun, -1.0
    again = None if kill is None else kill.again
    while True:
        ended, status, used = os.wait4(child, os.WNOHANG)
        now = time.monotonic()
        if ended:
            break
        if not sent and kill is not None and kill.delay is not None and now - begun >= kill.delay:
            at_signal, before = computed(child), _catches(child)
            os.kill(child, kill.number)
            sent, asked = now, before and _catches(child)
        elif sent and again is not None and now - sent >= again:
            at_signal, again = computed(child), None
            os.kill(child, kill.number)
        if not hung and (spent := computed(child)) != last:
            quiet, last = now, spent
            hung = spent > limits.seconds
        if hung or now - quiet > SILENT:
            hung = True
            os.kill(child, signal.SIGKILL)
        time.sleep(0.02 if kill is None or (sent and again is None) else 0.002)
    output.seek(0)
    text = output.read().decode(errors="replace")
    output.close()
    total = used.ru_utime + used.ru_stime
    if kill is not None and kill.sent[0]:
        sent, asked = now, kill.sent[0] == 2
    return Outcome(
        os.waitstatus_to_exitcode(status),
        text,
        now - begun,
        total,
        total - at_signal if sent else 0.0,
        hung,
        bool(sent),
        asked,
        kill is not None and kill.again is not None and again is None,
        0 if cwd is None else _left(cwd),
    )


def _catches(process):
    """Whether a process deals with SIGTERM itself, as commands do while there is something to save."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{process}/status").read_text().splitlines():
            if line.startswith("SigCgt:"):
                return bool(int(line.split()[1], 16) >> (signal.SIGTERM - 1) & 1)
    return False


def _left(cwd):
    """Return how many processes are at work in a folder, after a while in which they may end, and end them."""
    until, folder = time.monotonic() + SILENT, os.path.realpath(cwd)
    while (found := _in_folder(folder)) and time.monotonic() < until:
        time.sleep(0.1)
    for process in found:
        with contextlib.suppress(OSError):
            os.kill(process, signal.SIGKILL)
    return len(found)


def _in_folder(folder):
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if os.readlink(path / "cwd") == folder and int(path.name) != os.getpid():
                found.append(int(path.name))
    return found


def computed(process):
    """Return the seconds that a process has computed; 0 if it has ended."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / TICK


# ---------------------------------------------------------------- many trials in one process


class Patient:
    """Runs many trials in one process after another, and notices those that end the process or hang.

    A trial that computes for longer than ``seconds`` is sent SIGINT, as a user would do, and half as long after that a
    second one, which ends the process at once. A trial that has not ended after twice the time, or does not compute at
    all for two minutes, hangs, and its process is killed. Computing is measured in CPU time, so that other work on the
    machine changes nothing.

    Parameters
    ----------
    trial
        Called with the number of a trial, in a forked process; returns what came of it.
    place
        An empty folder, in which the process works.
    seconds
        The CPU time of a trial.
    most
        The number of trials after which a new process is forked.
    memory
        A limit of address space in bytes.
    """

    def __init__(
        self, trial: Callable[[int], object], place: Path, seconds: float, most: int, memory: int | None = None
    ):
        self.trial, self.place, self.seconds, self.most, self.memory = trial, place, seconds, most, memory
        self.peak = 0  # MiB of memory that a process had
        self.tracebacks: list[str] = []  # that processes printed and went on, such as exceptions that were ignored

    def run(self, numbers):
        """Yield (number, what came of it) for each trial; a string that begins with "process" if the process ended."""
        waiting = list(numbers)
        while waiting:
            batch = waiting[: self.most]
            found, why = self._batch(batch)
            yield from zip(batch, found, strict=False)
            if len(found) < len(batch):
                yield batch[len(found)], why
                found.append(None)
            waiting = waiting[len(found) :]

    def _batch(self, batch):
        results = self.place / "results"
        results.write_bytes(b"")
        shared = mmap.mmap(-1, 16)  # the number of trials that are done, and the CPU time before this one

        def trials():
            with open(results, "ab") as file:
                for place, number in enumerate(batch):
                    used = resource.getrusage(resource.RUSAGE_SELF)
                    shared[:] = struct.pack("qd", place, used.ru_utime + used.ru_stime)
                    pickle.dump(self.trial(number), file)
                    file.flush()

        child, output, _ = start(trials, self.place, Limits(memory=self.memory))
        asked, twice, last, quiet, why = -1, -1, (0, 0.0), time.monotonic(), ""
        while True:
            ended, status, used = os.wait4(child, os.WNOHANG)
            if ended:
                break
            (place, before), spent, now = struct.unpack("qd", shared[:]), computed(child), time.monotonic()
            if (place, spent) != last:
                last, quiet = (place, spent), now
            if spent - before > 2 * self.seconds or now - quiet > SILENT:
                why = why or "process hung"
                os.kill(child, signal.SIGKILL)
            elif spent - before > (self.seconds if asked != place else 1.5 * self.seconds) and twice != place:
                twice, asked = place if asked == place else twice, place
                os.kill(child, signal.SIGINT)
            time.sleep(0.02)
        output.seek(0)
        text = output.read().decode(errors="replace")
        output.close()
        self.peak = max(self.peak, used.ru_maxrss // 1024)
        if "Traceback" in text and not why and os.waitstatus_to_exitcode(status) == 0:
            self.tracebacks.append(f"a traceback beside trials {batch[0]} to {batch[-1]}: {text[-1500:]}")
        if twice == place and os.waitstatus_to_exitcode(status) == 130:
            why = "process stopped at once"
        found = []
        with open(results, "rb") as file, contextlib.suppress(EOFError, pickle.UnpicklingError):
            while True:
                found.append(pickle.load(file))
        return found, why or f"process ended with {os.waitstatus_to_exitcode(status)}: {text[-600:]}"


# ---------------------------------------------------------------- a share of the trials for each core


def in_lanes(part, count, seed, place, lanes):
    """Divide the trials of a part between processes on a core each; return rows of its table, and what went wrong.

    Parameters
    ----------
    part
        Called with a range of numbers of trials, the seed and a folder; returns rows and what went wrong.
    count, seed
        The number of trials, and the seed.
    place
        An empty folder.
    lanes
        The number of processes.
    """
    cores = sorted(os.sched_getaffinity(0))
    started = []
    for lane in range(min(lanes, count)):
        folder = place / f"lane-{lane}"
        folder.mkdir()

        def work(lane=lane, folder=folder):
            os.sched_setaffinity(0, {cores[lane % len(cores)]})
            (folder / "work").mkdir()
            (folder / "found").write_bytes(pickle.dumps(part(range(lane, count, lanes), seed, folder / "work")))

        started.append((folder, start(work, folder)))
    rows, wrong = {}, []
    for folder, one in started:
        ended = finish(one, Limits(seconds=float("inf")))
        if ended.status != 0:
            wrong.append(f"a process of the suite ended with {ended.status}: {ended.output[-2000:]}")
            continue
        some, more = pickle.loads((folder / "found").read_bytes())
        wrong += more
        for row in some:
            _add(rows.setdefault(row.pop("what"), Counter()), row)
    return [{"what": what} | dict(row) for what, row in rows.items()], wrong


def _add(total, row):
    for name, value in row.items():
        total[name] = max(total[name], value) if name.startswith("peak") else total[name] + value


# ---------------------------------------------------------------- what is run


def recipe(folder: Path, name="tiny", **changes):
    """Write a recipe that takes about a second and has many steps; return its path."""
    fields = {"end": 100.0, "width": 64, "rate": 0.01, "seed": 0} | changes
    path = folder / f"{name}.toml"
    path.write_text(
        f'name = "{name}"\nseed = {fields["seed"]}\nprobes = ["train-loss", "weight-movement"]\n'
        f"times = {{ end = {fields['end']}, count = 21 }}\n"
        'data = { kind = "random-labels", n = 8, d = 4 }\n'
        f'network = {{ kind = "two-layer", width = {fields["width"]} }}\n'
        f'flow = {{ kind = "descent", rate = {fields["rate"]} }}\n'
    )
    return path


def bits(folder: Path):
    """Return everything that was computed in a folder, without what depends on the clock: arrays, and the claims."""
    from unlazy.lab import read_run
    from unlazy.lab.certificates import read_certificates
    from unlazy.report.diagnoses import read_diagnosis
    from unlazy.report.record import read_record

    found = {}
    for path in sorted(folder.glob("*.nc")):
        run = read_run(path)
        kept = {name: value for name, value in run.attrs.items() if name not in ("seconds", "written", "checksum")}
        arrays = {str(name): (one.dtype.str, one.shape, one.values.tobytes()) for name, one in run.variables.items()}
        found[path.name] = (arrays, repr(sorted(kept.items())))
    for path in sorted((folder / "panels").glob("*.json")):
        record = read_record(path)
        found[path.name] = ([claim.measured for claim in record.claims], record.recipes, record.figure)
    for path in sorted((folder / "certificates").glob("*.json")):
        found[f"certificates of {path.name}"] = read_certificates(path).findings
    for path in sorted((folder / "diagnoses").glob("*.json")):
        found[f"diagnosis {path.name}"] = read_diagnosis(path)
    return found
