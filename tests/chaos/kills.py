"""Commands and writers are killed at random times, and go on until they are done: nothing may be lost."""

import contextlib
import itertools
import mmap
import os
import random
import re
import shutil
import signal
import struct
import sys
import time
from collections import Counter
from pathlib import Path

import numpy as np
import xarray as xr
from forked import Kill, Limits, bits, command, finish, real_command, recipe, start

from unlazy._errors import UserError
from unlazy._files import clean, write
from unlazy.flows import read_checkpoint
from unlazy.lab import Manifest, read_run
from unlazy.lab.certificates import read_certificates, store_certificates
from unlazy.lab.recipe import read
from unlazy.report.verify import verify

SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
ASKED = {signal.SIGKILL: -9, signal.SIGTERM: 143, signal.SIGINT: 130}  # the status if the command deals with signals
# Before a command begins, or at its end: the last that Python does is to give both signals back to the system, which
# ends the process by them. A shell shows that as 130 or 143 too.
USUAL = {signal.SIGKILL: {-9}, signal.SIGTERM: {143, -15}, signal.SIGINT: {130, -2}}
MOMENT = 0.5  # seconds of computing: a process that has ended of itself sooner had done its work when the signal came
MOST = 12  # trials for each kill that is wanted: some commands end before their signal
# Of all kills. "In a write": the process sends itself the signal in the midst of an operation on files. "Twice": a
# second signal follows the first. "Real command": a new Python with the command as users type it.
SHARES = {
    "run": 0.19,
    "run, in a write": 0.21,
    "run, twice": 0.04,
    "reproduce": 0.09,
    "reproduce, in a write": 0.06,
    "sweep": 0.09,
    "sweep, in a write": 0.06,
    "certify, in a write": 0.03,
    "diagnose": 0.03,
    "writer": 0.12,
    "run, 2 workers": 0.02,
    "run, real command": 0.06,
}


def kills(numbers, seed, place):
    """Kill a process for each of the numbers; return rows of the table, and what went wrong."""
    sys.path.append(str(Path(__file__).parent))
    chance = random.Random(f"{seed} {numbers.start}")
    each = _divided(len(numbers), numbers.start)
    rows, wrong = [], []
    for name, count in each.items():
        if count:
            row = (
                _writers(count, chance, place, wrong)
                if name == "writer"
                else _command(name, count, chance, place, wrong)
            )
            rows.append({"what": name} | dict(row))
    return rows, wrong


def _divided(count, lane):
    """Return how many kills each task gets: at least one of each, in one lane or another."""
    each = {name: int(count * share) for name, share in SHARES.items()}
    few = [
        name for place, name in enumerate(SHARES) if not each[name] and (count < len(SHARES) or place % 2 == lane % 2)
    ]
    for name in few:
        each[name] = 1
    each["run"] += max(0, count - sum(each.values()))
    return each


def _arguments(name, folder):
    match name.partition(",")[0], name.partition(", ")[2]:
        case "run", "2 workers":
            return ["run", recipe(folder), recipe(folder, "b", seed=7), "--workers", "2", "-o", "runs"]
        case "run", _:
            return ["run", recipe(folder), "-o", "runs"]
        case "reproduce", _:
            return ["reproduce", "tiny_panel:fig1", "-o", "runs"]
        case "certify", _:
            return ["certify", recipe(folder), "--theorem", "chen2022", "-o", "runs"]
        case "diagnose", _:
            model = ["tiny_model:make", "--data", "random-labels", "--samples", "8", "--widths", "8,16,32"]
            return ["diagnose", *model, "-o", "runs"]
    path = folder / "sweep.toml"
    path.write_text(recipe(folder, "swept").read_text() + "\n[sweep]\nseed = [0, 1, 2]\n")
    return ["sweep", path, "-o", "runs"]


def _command(name, count, chance, place, wrong):
    tally, limits, reference = Counter(), Limits(), _fresh(place / "reference")
    call = real_command if name.endswith("real command") else command
    operations = reference / "operations" if name.endswith("in a write") else None
    # Undisturbed: with slices and checkpoints as users have them, and once more to learn how long it takes from now on.
    _fresh(place / "killed")
    for undisturbed, own in ((reference, Limits(checkpoints=None)), (place / "killed", limits)):
        given = {} if operations is None else {"count": operations}
        whole = call(_arguments(name, undisturbed), undisturbed, own, **given)
        if whole.status not in (0, 1) or not bits(undisturbed / "runs"):
            wrong.append(f"{name}: the undisturbed command ended with {whole.status}: {whole.output[-800:]}")
            return tally
    expected, folder, stopped = bits(reference / "runs"), _fresh(place / "killed"), 0
    while tally["kills"] < count:
        if tally["trials"] >= MOST * count:
            wrong.append(f"{name}: only {tally['kills']} kills in {tally['trials']} trials")
            break
        number, before = chance.choice(SIGNALS), _stored(folder / "runs")
        if operations is not None:
            kill = Kill(number, operation=chance.randint(1, int(operations.read_text())), share=chance.random())
        else:
            kill = Kill(number, delay=chance.uniform(0.0, 1.1 * whole.seconds))
            if name.endswith("twice"):
                kill.number, kill.again = chance.choice(SIGNALS[1:]), chance.uniform(0.0, 0.3)
        ended = call(_arguments(name, folder), folder, limits, kill)
        tally["trials"] += 1
        complete = ended.status in (0, 1) and not ended.hung
        wrong += [f"{name}: {one}" for one in _judged(ended, kill, complete, tally)]
        after = _stored(folder / "runs")
        lost = _lost(before, after)
        told = re.search(r"interrupted at (\d+)%", ended.output)
        if told and int(told[1]) and not complete and "ended at once" not in ended.output and name != "run, 2 workers":
            saved = max(after[1].values(), default=-1.0)
            tally["saved"] += saved >= 0
            # The share that was told is that of 21 times up to t = 100, of which the next is in the checkpoint.
            least = np.linspace(0, 100, 21)[int(told[1]) * 21 // 101] - 5.1 if name.startswith("run") else 0.0
            if saved < max(0.0, least):
                lost.append(f"the state at an interruption ({told[0]}, the checkpoint is on its way to {saved:g})")
        tally["lost"] += len(lost)
        wrong += [f"{name}: {one} was lost after {kill.number.name}: {ended.output[-300:]}" for one in lost]
        tally["continued"] += bool(before[1])
        broken = [one for one in verify(folder / "runs") if one.damaged] if (folder / "runs").is_dir() else []
        tally["half-written"] += len(broken)
        wrong += [f"{name}: {one.file} is {one.state}: {one.why}" for one in broken]
        stopped += not complete
        if complete:
            _compare(name, folder, expected, tally if stopped else Counter(), wrong)
            folder, stopped = _fresh(place / "killed"), 0
    if (folder / "runs").is_dir():  # what the last signal left goes on to the end
        ended = call(_arguments(name, folder), folder, limits)
        if ended.status not in (0, 1):
            wrong.append(f"{name}: status {ended.status} in the end: {ended.output[-500:]}")
        _compare(name, folder, expected, tally, wrong)
    return tally


def _judged(ended, kill, complete, tally):
    """Count how a process ended, and yield what is wrong with that."""
    if ended.hung:
        yield f"hung after {kill.number.name}: {ended.output[-300:]}"
    if ended.traceback:
        yield f"a traceback after {kill.number.name}: {ended.output[-1500:]}"
    if ended.left:
        yield f"left {ended.left} processes after {kill.number.name}: {ended.output[-300:]}"
    if not ended.sent:
        if not complete:
            yield f"status {ended.status} without any signal: {ended.output[-500:]}"
        return
    tally["kills"] += 1
    tally[kill.number.name] += 1
    tally["asked"] += ended.asked
    if ended.status == ASKED[kill.number] or (ended.status in USUAL[kill.number] and not ended.asked):
        tally["stopped"] += 1
        if ended.twice and ended.asked:
            tally["at once"] += 1
            if ended.after > MOMENT:
                yield f"a second {kill.number.name} was ignored for {ended.after:.1f} s: {ended.output[-300:]}"
    elif complete and kill.delay is not None and not ended.asked and ended.after < MOMENT:
        tally["was done"] += 1
    elif complete:
        tally["ignored"] += 1
        yield f"{kill.number.name} was ignored for {ended.after:.1f} s: {ended.output[-300:]}"
    else:
        yield f"status {ended.status} after {kill.number.name}: {ended.output[-500:]}"


def _stored(runs):
    """Return the results in a folder, how far its checkpoints are, and the names of its tracks."""
    found, targets = {}, {}
    with contextlib.suppress(ValueError):  # `verify` names what is damaged
        for path in runs.glob("*.nc"):
            found[path.name] = read_run(path).attrs["checksum"]
        for path in runs.glob("*.checkpoint"):
            targets[path.name] = read_checkpoint(path)[0]["target"]
    return found, targets, {path.name for path in runs.glob("trajectories/*.npz")}


def _lost(before, after):
    """Return what was stored before and is not any more, or not as far."""
    lost = [name for name, checksum in before[0].items() if after[0].get(name) != checksum]
    gone = [name for name in before[1] if name not in after[1]]
    lost += [name for name, target in before[1].items() if after[1].get(name, target) < target]
    lost += before[2] - after[2]
    return lost + (gone if len(gone) > len(after[2] - before[2]) else [])  # a checkpoint is removed for a track


def _compare(name, folder, expected, tally, wrong):
    tally["completed"] += 1
    if bits(folder / "runs") == expected:
        tally["same bits"] += 1
    else:
        wrong.append(f"{name}: other bits in the end")


# ---------------------------------------------------------------- writers


class _Finding:
    """A finding of a theorem, whose seed is the version of the file."""

    def __init__(self, version):
        self.version = version

    def summary(self):
        return {"theorem": "a", "seed": self.version, "verdict": "HOLDS", "margin": 1.0, "why": ""}


def _write_run(folder, version):
    values = np.arange(60_000.0).reshape(2, 3, 10_000) + version
    run = xr.Dataset({"a": (("seed", "time", "x"), values)}, {"seed": [0, 1], "time": [0.0, 1.0, 2.0]})
    write(run, folder / "run.nc")


def _read_run(folder):
    values = read_run(folder / "run.nc")["a"].values
    version = values.flat[0]
    return int(version) if np.array_equal(values.ravel(), np.arange(60_000.0) + version) else None


def _write_manifest(folder, version):
    Manifest(sweep="a", digest=str(version), axes={"a": list(range(1000))}, points=[], base={}, made_by={}).write(
        folder / "a.sweep.json"
    )


def _write_certificates(folder, version):
    store_certificates(folder, read(folder / "tiny.toml"), [_Finding(version)])


# How each kind of file is written with the number of its version in it, and how that number is read.
WRITERS = {
    "run": (_write_run, _read_run),
    "sweep": (_write_manifest, lambda folder: int(Manifest.read(folder / "a.sweep.json").digest)),
    "certificates": (
        _write_certificates,
        lambda folder: read_certificates(next(folder.glob("certificates/*.json"))).findings[0]["seed"],
    ),
}


def _writers(count, chance, place, wrong):
    """Kill processes that write a file again and again, each time another version of it.

    What is in the file afterwards must be whole, and at least as new as the last version whose writing had ended.
    """
    tally, folders = Counter(), {kind: _fresh(place / f"writer of {kind}" / "runs") for kind in WRITERS}
    for _ in range(count):
        kind, number = chance.choice(sorted(WRITERS)), chance.choice(SIGNALS)
        folder, (write_version, read_version) = folders[kind], WRITERS[kind]
        recipe(folder)
        last = _version(folder, read_version) or 0
        progress = mmap.mmap(-1, 16)  # the versions that were begun and ended last, shared with the process
        progress[:] = struct.pack("qq", last, last)

        def forever(write_version=write_version, folder=folder, progress=progress, last=last):
            for version in itertools.count(last + 1):
                progress[:8] = struct.pack("q", version)
                write_version(folder, version)
                progress[8:] = struct.pack("q", version)

        inside = chance.random() < 0.5
        kill = Kill(number, operation=chance.randint(1, 60), share=chance.random()) if inside else None
        started = start(forever, folder.parent, Limits(), kill)
        if kill is None:  # once it writes
            while struct.unpack("qq", progress[:])[1] == last and not _has_ended(started[0]):
                time.sleep(0.001)
            kill = Kill(number, delay=time.monotonic() - started[2] + chance.uniform(0.0, 0.1))
        ended = finish(started, Limits(), kill)
        begun, done = struct.unpack("qq", progress[:])
        tally.update({"trials": 1, "kills": 1, number.name: 1, "while writing": begun > done})
        broken = [one for one in verify(folder) if one.damaged]
        tally["half-written"] += len(broken)
        wrong += [f"writer of {kind}: {one.file} is {one.state}: {one.why}" for one in broken]
        if ended.status in USUAL[number]:
            tally["stopped"] += 1
        else:
            wrong.append(f"writer of {kind}: status {ended.status} after {number.name}: {ended.output[-800:]}")
        version = _version(folder, read_version) or 0
        if done <= version <= begun:
            tally.update({"completed": 1, "same bits": 1})
        else:
            tally["lost"] += 1
            wrong.append(f"writer of {kind}: version {version} is stored, {done} was written and {begun} begun")
        left = list(folder.rglob("*.part"))
        tally["left behind"] += len(left)
        for part in (folder, folder / "certificates"):
            clean(part)
        wrong += [f"writer of {kind}: {one.name} is not removed" for one in folder.rglob("*.part")]
    return tally


def _version(folder, read_version):
    """Return the version in a file; None if there is no file."""
    try:
        return read_version(folder)
    except (UserError, StopIteration):
        return None


def _has_ended(process):
    return os.waitid(os.P_PID, process, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _fresh(folder):
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder
