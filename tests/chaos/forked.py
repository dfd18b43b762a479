"""Commands in forked processes that can be killed, limited and timed.

This process has imported everything but has not started JAX's backend, which does not survive a fork. A trial then
costs what its command costs, and not the seconds of the imports.
"""

import contextlib
import dataclasses
import os
import resource
import signal
import sys
import tempfile
import time
import traceback
from pathlib import Path

import unlazy.flows.driver as driver
from unlazy._listing import listing
from unlazy.cli import main
from unlazy.lab import made_by

made_by._code(), made_by._commit(), listing()  # found out once, for all trials
STATUSES = {0, 1, 2, 130, 143}  # the only ones that a command may end with
GIB = 2**30


@dataclasses.dataclass
class Outcome:
    """How a process ended."""

    status: int  # negative: the number of the signal that ended it
    output: str
    seconds: float
    hung: bool = False
    after: float = 0.0  # seconds that it lived after it was sent a signal
    sent: bool = False  # whether it was still there to be sent a signal

    @property
    def traceback(self):
        return "Traceback" in self.output


@dataclasses.dataclass
class Limits:
    """What a process may use."""

    seconds: float = 600.0
    memory: int | None = None
    file: int | None = None  # bytes of a file, as on a full disk
    checkpoints: float = 0.1  # seconds between two of them


def command(arguments, cwd, limits=Limits(), kill=None):  # noqa: B008
    """Call a command and wait until it ends; ``kill`` is a signal and the seconds after which it is sent."""
    return finish(start(lambda: main([str(one) for one in arguments]), cwd, limits), limits, kill)


def start(call, cwd, limits=Limits()):  # noqa: B008
    """Fork a process that calls something; return what `finish` needs."""
    output = tempfile.TemporaryFile()  # noqa: SIM115  (closed by `finish`)
    sys.stdout.flush(), sys.stderr.flush()
    child = os.fork()
    if child == 0:
        _child(call, cwd, limits, output)
    return child, output, time.monotonic()


def _child(call, cwd, limits, output):
    """Do not return."""
    status = 70
    try:
        os.chdir(cwd)
        os.dup2(output.fileno(), 1), os.dup2(output.fileno(), 2)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        driver._CHECKPOINT_SECONDS = limits.checkpoints
        driver._SLICE_SECONDS = 0.02
        if limits.memory is not None:
            resource.setrlimit(resource.RLIMIT_AS, (limits.memory, limits.memory))
        if limits.file is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (limits.file, limits.file))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        call()
        status = 0
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
    except KeyboardInterrupt:
        status = 130  # before the command had begun
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(BaseException):
            sys.stdout.flush(), sys.stderr.flush()
        os._exit(status)


def finish(started, limits=Limits(), kill=None):  # noqa: B008
    """Wait for a process, send it a signal on the way, and end it when it takes too long."""
    child, output, begun = started
    number, delay = kill or (None, float("inf"))
    sent = hung = False
    when = time.monotonic()
    while True:
        ended, status = os.waitpid(child, os.WNOHANG)
        now = time.monotonic()
        if ended:
            break
        if not sent and now - begun >= delay:
            os.kill(child, number)
            sent, when = True, now
        if now - begun > limits.seconds:
            hung = True
            os.kill(child, signal.SIGKILL)
        time.sleep(0.002)
    output.seek(0)
    text = output.read().decode(errors="replace")
    output.close()
    lived = now - when if sent else 0.0
    return Outcome(os.waitstatus_to_exitcode(status), text, now - begun, hung, lived, sent)


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
    return found
