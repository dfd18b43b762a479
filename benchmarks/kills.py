"""A sweep whose processes are killed at random (SIGKILL), against the same sweep left alone: nothing is lost.

Workers are killed 20 times and the command itself 5 times, after which it is called again. In the end every run is
there, each trajectory is stored once, and all bits are those of the undisturbed sweep.
"""

from __future__ import annotations

import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import tomli_w

from unlazy.lab import read_run

WORKER_KILLS, CLIENT_KILLS, SEED = 20, 5, 0
TABLE: dict[str, Any] = {
    "name": "killed",
    "data": {"kind": "random-labels", "n": 20, "d": 10},
    "network": {"kind": "two-layer", "width": [16, 24]},
    "flow": {"kind": "descent", "rate": 0.05},
    "times": {"end": 20_000.0, "count": 101},
    "probes": ["train-loss", "kernel"],
    "sweep": {"flow.rate": [0.04, 0.05, 0.06], "seed": [0, 1, 2, 3]},
}


def start(path: Path, out: Path) -> psutil.Popen:
    """Begin the sweep with two workers."""
    command = [sys.executable, "-P", "-m", "unlazy", "sweep", str(path), "--workers", "2", "--out", str(out)]
    return psutil.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


def disturbed(path: Path, out: Path, workers: int, clients: int, seed: int, pause: float) -> tuple[int, int, str]:
    """Run a sweep, kill its processes at random meanwhile, and return the numbers of kills and the last message."""
    chance, killed, stopped = random.Random(seed), 0, 0
    process, begun = start(path, out), time.monotonic()
    while process.poll() is None:
        time.sleep(chance.uniform(0.5, 1.5) * pause)
        children = [child for child in _children(process) if time.time() - child.create_time() > pause]
        if killed < workers and children:
            chance.choice(children).kill()
            killed += 1
        elif stopped < clients and killed >= workers * (stopped + 1) // (clients + 1) and _busy(out):
            process.kill()
            process.wait()
            process.stderr.close()  # its workers may hold the other end for a while
            stopped += 1
            process = start(path, out)
        if time.monotonic() - begun > 3600:
            process.kill()
            raise RuntimeError("The sweep did not come to its end within an hour.")
    with process.stderr as messages:
        return killed, stopped, messages.read().decode()


def _children(process: psutil.Popen) -> list[psutil.Process]:
    try:
        return process.children()
    except psutil.NoSuchProcess:
        return []


def _busy(out: Path) -> bool:
    return any("present" not in path.name for path in out.glob("trajectories/*.claim"))


def differences(one: Path, other: Path) -> list[str]:
    """Return what differs between two folders of results: runs, their bits, and how often trajectories are stored."""
    found = []
    names = {path.name for folder in (one, other) for path in folder.glob("*.nc")}
    for name in sorted(names):
        if not ((one / name).exists() and (other / name).exists()):
            found.append(f"{name} is missing")
            continue
        here, there = read_run(one / name), read_run(other / name)
        found += [f"{name}: {key}" for key in here.variables if not np.array_equal(here[key], there[key], True)]
        found += [
            f"{name}: {key}" for key in ("steps", "status") if not np.array_equal(here.attrs[key], there.attrs[key])
        ]
    found += [f"{path.name} is stored twice" for path in (other / "trajectories").glob("*-1.npz")]
    return found + [f"{path.name} is left" for path in other.rglob("*.claim")]


def measure() -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        path = folder / "killed.toml"
        path.write_text(tomli_w.dumps(TABLE), encoding="utf-8")
        begun = time.perf_counter()
        if start(path, folder / "whole").wait():
            raise RuntimeError("The undisturbed sweep failed.")
        whole = time.perf_counter() - begun
        killed, stopped, message = disturbed(path, folder / "killed", WORKER_KILLS, CLIENT_KILLS, SEED, whole / 20)
        took = time.perf_counter() - begun - whole
        wrong = differences(folder / "whole", folder / "killed")
        row = {"name": "24 runs of 2 shapes, 2 workers", "workers_killed": killed, "commands_killed": stopped}
        runs = len(list((folder / "killed").glob("*.nc")))
        row |= {"runs": runs, "differences": len(wrong), "seconds": took, "undisturbed_seconds": whole}
        print(*wrong[:10], message, sep="\n", file=sys.stderr)
        return [row]


if __name__ == "__main__":
    print(measure())
