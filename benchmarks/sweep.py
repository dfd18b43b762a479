"""A sweep of 200 small runs of four shapes against one command for each run, and against one process for all.

The 200 runs are 4 widths x 50 points, each with its own seed and end time. `unlazy run` is timed for a few of them, and
the mean is multiplied by 200. `Lab.run` in one process, with compiled code kept from before, is timed for 40: its start
and the first run of each shape as they are, the others multiplied up. Sweeps are timed as they are. Processor seconds
of all processes together depend less on what else the machine does. All processes find Python's bytecode stored, as
after an installation: without, every command needs seconds more, and the loop 200 times that.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import tomli_w

RUNS, LOOPED, SINGLE = 200, 5, 40
TABLE: dict[str, Any] = {
    "name": "small",
    "data": {"kind": "random-labels", "n": 20, "d": 10},
    "network": {"kind": "two-layer", "activation": "tanh", "scaling": "mean-field"},
    "flow": {"kind": "gradient-flow"},
    "times": {"end": 50.0, "count": 21},
    "probes": ["train-loss", "feature-movement", "kernel"],
}
WIDTHS = (16, 32, 48, 64)
# The baseline may be another version of unlazy: the folder of its source, as in UNLAZY_BASELINE=/path/to/src.
BASELINE = {"PYTHONPATH": os.environ["UNLAZY_BASELINE"]} if "UNLAZY_BASELINE" in os.environ else {}

ONE_BY_ONE = """
import sys, time
begun = time.perf_counter()
from pathlib import Path
import jax
jax.config.update("jax_enable_x64", True)
jax.config.update("jax_compilation_cache_dir", sys.argv[3])
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
from unlazy.lab import Lab, read
lab, first = Lab(sys.argv[2]), (0.0, 0.0)
recipes = [read(path) for path in sorted(Path(sys.argv[1]).glob("*.toml"))[: int(sys.argv[4])]]
for index, recipe in enumerate(recipes):
    lab.run(recipe)
    if index == 3:
        first = time.perf_counter() - begun, time.process_time()
print(*first, time.perf_counter() - begun, time.process_time())
"""


def tables() -> list[dict[str, Any]]:
    """Return the recipes of all runs."""
    found = []
    for index in range(RUNS):
        width, point = WIDTHS[index % len(WIDTHS)], index // len(WIDTHS)
        times = TABLE["times"] | {"end": 30.0 + point % 5 * 10.0}
        network = TABLE["network"] | {"width": width}
        found.append(TABLE | {"name": f"small {index:03d}", "seed": point, "network": network, "times": times})
    return found


def sweep_file(folder: Path) -> Path:
    """Write the same runs as one sweep."""
    path = folder / "sweep.toml"
    points = [{"times.end": 30.0 + point % 5 * 10.0, "seed": point} for point in range(RUNS // len(WIDTHS))]
    table = TABLE | {"network": TABLE["network"] | {"width": list(WIDTHS)}, "sweep": {"points": points}}
    path.write_text(tomli_w.dumps(table), encoding="utf-8")
    return path


def run(*command: str, **environment: str) -> tuple[np.ndarray, str]:
    """Run a command, and return its seconds by the clock and of the processor, and what it printed."""
    begun, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, env=os.environ | environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{command} ended with {done.returncode}: {done.stderr[-2000:]}")
    took, after = time.perf_counter() - begun, resource.getrusage(resource.RUSAGE_CHILDREN)
    return np.asarray([took, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime]), done.stdout


def measure() -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        recipes = folder / "recipes"
        recipes.mkdir()
        for index, table in enumerate(tables()):
            (recipes / f"{index:03d}.toml").write_text(tomli_w.dumps(table), encoding="utf-8")
        path, step = sweep_file(folder), RUNS // LOOPED
        os.environ |= {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(folder / "bytecode")}
        command = (sys.executable, "-P", "-c", "from unlazy.cli import main; main()")
        first = (str(recipes / "000.toml"), "--out", str(folder / "bytecode"))
        for environment in ({}, BASELINE):
            run(*command, "run", *first, UNLAZY_COMPILE_CACHE="off", **environment)
        rows = []
        for workers, state in ((1, "empty"), (1, "warm"), (2, "warm")):
            places = {"UNLAZY_COMPILE_CACHE": str(folder / "compiled")}
            out = str(folder / f"{workers}-{state}")
            took, _ = run(*command, "sweep", str(path), "--workers", str(workers), "--out", out, **places)
            several = "s" if workers > 1 else ""
            rows.append({"name": f"{RUNS} runs of {len(WIDTHS)} shapes, {workers} worker{several}, {state} cache"})
            rows[-1] |= {"seconds": took[0], "processor_seconds": took[1]}
            _say(rows[-1])
        one_by_one = (sys.executable, "-P", "-c", ONE_BY_ONE, str(recipes))
        for count, out in ((len(WIDTHS), "cold"), (SINGLE, "warm")):  # the first fills the cache
            _, text = run(*one_by_one, str(folder / out), str(folder / "cache"), str(count), **BASELINE)
        first, last = np.asarray(text.split(), float).reshape(2, 2)
        single = first + (last - first) / (SINGLE - len(WIDTHS)) * (RUNS - len(WIDTHS))
        _say({"one process": single.tolist()})
        looped = [
            run(*command, "run", str(recipes / f"{index:03d}.toml"), "--out", str(folder / "loop"), **BASELINE)[0]
            for index in range(0, LOOPED * step, step)
        ]
        loop = np.mean(looped, axis=0) * RUNS
        for row in rows:
            took = np.asarray([row["seconds"], row["processor_seconds"]])
            for what, baseline in (("loop", loop), ("one process", single)):
                row |= {f"{what}, seconds": baseline[0], f"{what}, processor_seconds": baseline[1]}
                row |= {f"{what}, ratio": (baseline / took)[0], f"{what}, processor ratio": (baseline / took)[1]}
        return rows


def _say(what: dict[str, Any]) -> None:
    print(what, file=sys.stderr, flush=True)  # it takes minutes


if __name__ == "__main__":
    print(measure())
