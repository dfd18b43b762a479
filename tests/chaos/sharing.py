"""Several processes on one folder, and a full disk: all end well or with a sentence, and results are the same."""

import contextlib
import json
import os
import random
import shutil
import signal
import time
from collections import Counter

from forked import Limits, bits, command, finish, recipe, start

from unlazy.cli import main
from unlazy.report.verify import verify

PROCESSES = 16


def sharing(numbers, seed, place):
    """Repeat both for each of the numbers; return rows of the table, and what went wrong."""
    count, seed = len(numbers), f"{seed} {numbers.start}"
    wrong = []
    reference = place / "reference"
    reference.mkdir()
    limits = Limits(checkpoints=0.02)
    whole = command(["run", recipe(reference), "-o", "runs"], reference, limits)
    if whole.status != 0:
        return [], [f"the undisturbed command ended with {whole.status}: {whole.output[-500:]}"]
    expected = bits(reference / "runs")
    return [_together(count, seed, place, expected, limits, wrong), _full(count, seed, place, expected, wrong)], wrong


def _together(count, seed, place, expected, limits, wrong):
    """Run one recipe in many processes; in every second trial the one that computes it is killed on the way."""
    tally, chance = Counter(), random.Random(seed)
    for number in range(count):
        folder = place / f"together-{number}"
        folder.mkdir()
        path = recipe(folder)
        started = [start(lambda: main(["run", str(path), "-o", "runs"]), folder, limits) for _ in range(PROCESSES)]  # noqa: B023
        killed = _kill_claimant(folder / "runs", chance) if number % 2 else None
        for one in started:
            ended = finish(one, limits)
            tally["trials"] += 1
            tally[f"status {ended.status}"] += 1
            if ended.status != 0 and (one[0], ended.status) != (killed, -9):
                wrong.append(f"one of {PROCESSES} processes ended with {ended.status}: {ended.output[-500:]}")
        same = bits(folder / "runs") == expected and not any(one.damaged for one in verify(folder / "runs"))
        tally["same bits"] += same
        if not same:
            wrong.append(f"{PROCESSES} processes together have another result")
        shutil.rmtree(folder)
    return {"what": f"{PROCESSES} processes"} | dict(tally)


def _kill_claimant(runs, chance):
    """Kill the process that has the claim, once there is a checkpoint; return its number, or None if it was done."""
    checkpoints = chance.random() < 0.5  # or as soon as there is a claim
    until = time.monotonic() + 60
    while time.monotonic() < until and not list(runs.glob("*.nc")):
        for claim in runs.glob("trajectories/*.claim"):
            with contextlib.suppress(OSError, ValueError):
                process = json.loads(claim.read_text())["pid"]
                if not checkpoints or list(runs.glob("*.checkpoint")):
                    os.kill(process, signal.SIGKILL)
                    return process
        time.sleep(0.002)
    return None


def _full(count, seed, place, expected, wrong):
    tally, chance = Counter(), random.Random(seed)
    for number in range(3 * count):
        folder = place / f"full-{number}"
        folder.mkdir()
        path = recipe(folder)
        limits = Limits(file=chance.choice((0, 100, 1000, 4000, 10_000, 20_000)))
        ended = command(["run", path, "-o", "runs"], folder, limits)
        tally["trials"] += 1
        tally[f"status {ended.status}"] += 1
        stored = (folder / "runs").is_dir() and bits(folder / "runs") == expected
        if ended.status not in (0, 2) or ended.traceback or (ended.status == 0) != stored:
            wrong.append(f"a full disk ({limits.file} bytes): status {ended.status}: {ended.output[-500:]}")
        runs = folder / "runs"
        damaged = [one for one in verify(runs) if one.damaged] if runs.is_dir() else []
        wrong += [f"a full disk ({limits.file} bytes) left {one.file}: {one.why}" for one in damaged]
        again = command(["run", path, "-o", "runs"], folder, Limits())
        if again.status == 0 and bits(runs) == expected:
            tally["same bits"] += 1
        else:
            wrong.append(f"after a full disk ({limits.file} bytes): status {again.status}: {again.output[-500:]}")
        shutil.rmtree(folder)
    return {"what": "full disk"} | dict(tally)
