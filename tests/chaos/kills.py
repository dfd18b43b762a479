"""Commands and writers are killed at random times, and go on until they are done: nothing may be lost."""

import random
import shutil
import signal
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import xarray as xr
from forked import Limits, bits, command, finish, recipe, start

from unlazy._files import write
from unlazy.lab import read_run
from unlazy.report.verify import verify

SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
PROMPT = 5.0  # seconds: a process that has ended of itself sooner had done its work already when the signal came


def kills(count, seed, place):
    """Kill ``count`` processes; return rows of the table, and what went wrong."""
    here = str(Path(__file__).parent)
    sys.path.append(here)
    tasks = {
        "run": lambda folder: ["run", recipe(folder), "-o", "runs"],
        "run, 2 workers": lambda folder: [
            "run",
            recipe(folder),
            recipe(folder, "b", seed=7),
            "--workers",
            "2",
            "-o",
            "runs",
        ],
        "reproduce": lambda folder: ["reproduce", "tiny_panel:fig1", "-o", "runs"],
    }
    from unlazy.cli.application import app

    if "sweep" in app:
        tasks["sweep"] = lambda folder: ["sweep", _sweep(folder), "-o", "runs"]
    shares = {"run": 0.55, "run, 2 workers": 0.02, "reproduce": 0.2, "sweep": 0.05, "writer": 0.18}
    total = sum(shares[name] for name in (*tasks, "writer"))
    rows, wrong = [], []
    for name, arguments in tasks.items():
        share = max(1, round(count * shares[name] / total))
        rows.append(_command(name, arguments, share, seed, place, wrong))
    rows.append(_writers(max(1, round(count * shares["writer"] / total)), seed, place, wrong))
    return rows, wrong


def _sweep(folder):
    path = folder / "sweep.toml"
    path.write_text(recipe(folder, "swept", end=100.0).read_text() + "\n[sweep]\nseed = [0, 1, 2]\n")
    return path


def _command(name, arguments, count, seed, place, wrong):
    chance = random.Random(f"{name} {seed}")
    reference = _fresh(place / "reference")
    limits = Limits()
    whole = command(arguments(reference), reference, limits)
    if whole.status not in (0, 1):
        wrong.append(f"{name}: the undisturbed command ended with {whole.status}: {whole.output[-800:]}")
        return {"what": name}
    expected, tally, done, folder = bits(reference / "runs"), Counter(), 0, _fresh(place / "killed")
    while done < count:
        number = chance.choice(SIGNALS)
        ended = command(arguments(folder), folder, limits, (number, chance.uniform(0.0, 1.1 * whole.seconds)))
        tally["trials"] += 1
        complete = ended.status in (0, 1) and not ended.hung
        if ended.hung:
            wrong.append(f"{name}: hung after {number.name}: {ended.output[-300:]}")
        if ended.sent:
            done += 1
            tally[number.name] += 1
            usual = {signal.SIGKILL: {-9}, signal.SIGTERM: {143, -15}, signal.SIGINT: {130}}[number]
            if ended.status in usual:
                tally["stopped"] += 1
            elif complete and ended.after < PROMPT:
                tally["was done"] += 1
            elif complete:
                tally["ignored"] += 1
                wrong.append(f"{name}: {number.name} was ignored for {ended.after:.1f} s: {ended.output[-300:]}")
            else:
                wrong.append(f"{name}: status {ended.status} after {number.name}: {ended.output[-500:]}")
        elif not complete:
            wrong.append(f"{name}: status {ended.status} without any signal: {ended.output[-500:]}")
        if ended.traceback:
            wrong.append(f"{name}: a traceback: {ended.output[-800:]}")
        runs = folder / "runs"
        broken = [one for one in verify(runs) if one.damaged and one.kind != "claim"] if runs.is_dir() else []
        tally["half-written"] += len(broken)
        wrong += [f"{name}: {one.file} is {one.state}: {one.why}" for one in broken]
        if complete:
            tally["completed"] += 1
            if bits(runs) == expected:
                tally["same bits"] += 1
            else:
                wrong.append(f"{name}: other bits in the end")
            folder = _fresh(place / "killed")
    if (folder / "runs").is_dir():  # what the last signal left goes on to the end
        command(arguments(folder), folder, limits)
        tally["completed"] += 1
        if bits(folder / "runs") == expected:
            tally["same bits"] += 1
        else:
            wrong.append(f"{name}: other bits after the last signal")
    return {"what": name} | dict(tally)


def _writers(count, seed, place, wrong):
    """Kill processes that write stored runs in a loop."""
    chance, tally, folder = random.Random(seed), Counter(), _fresh(place / "writers")
    values = np.arange(60_000.0).reshape(2, 3, 10_000)
    run = xr.Dataset({"a": (("seed", "time", "x"), values)}, {"seed": [0, 1], "time": [0.0, 1.0, 2.0]})

    def forever():
        while True:
            write(run, folder / "run.nc")

    for _ in range(count):
        (folder / "run.nc").unlink(missing_ok=True)
        number = chance.choice(SIGNALS)
        ended = finish(start(forever, folder), Limits(), (number, chance.uniform(0.02, 0.25)))
        tally["trials"] += 1
        tally[number.name] += 1
        tally["stopped"] += 1
        if ended.hung:
            wrong.append(f"writer: hung after {number.name}")
        if not (folder / "run.nc").exists():
            tally["absent"] += 1
            continue
        if np.array_equal(read_run(folder / "run.nc")["a"].values, values):
            tally["completed"] += 1
            tally["same bits"] += 1
        else:
            wrong.append("writer: other bits")
    return {"what": "writer"} | dict(tally)


def _fresh(folder):
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder
