"""The store: one immutable netCDF file a run, named by its recipe's digest, openable anywhere.

A file is written under a temporary name and renamed when it is whole. Next to it, while a run is on its way, lies its
checkpoint, from which an interrupted run goes on.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.metadata
import os
import platform
import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from unlazy._errors import UserError
from unlazy.flows import AtEnd, Trajectory
from unlazy.lab.recipe import Recipe

LIVE = ".live.json"  # how the note of a run that is on its way is called
_LIBRARIES = ("unlazy", "jax", "jaxlib", "equinox", "diffrax", "optax", "numpy", "scipy")


class Store:
    """A folder of runs."""

    def __init__(self, folder: Path | str) -> None:
        self.folder = Path(folder)

    def path(self, recipe: Recipe) -> Path:
        """Where the result of ``recipe`` is, or will be."""
        readable = re.sub(r"[^a-z0-9]+", "-", recipe.name.lower()).strip("-")[:60] or "run"
        return self.folder / f"{readable}-{recipe.digest}.nc"

    def checkpoint(self, recipe: Recipe) -> Path:
        """Where ``recipe`` keeps its state while it is on its way."""
        return self.path(recipe).with_suffix(".checkpoint.npz")

    def live(self, recipe: Recipe) -> Path:
        """Where ``recipe`` tells how far it is, while it is on its way."""
        return self.path(recipe).with_suffix(LIVE)

    def prepare(self) -> None:
        """Make the folder, and find out now rather than after hours that nothing can be written there."""
        writable(self.folder, "Results", "--out")

    def load(self, recipe: Recipe) -> xr.Dataset | None:
        """Give the stored result of ``recipe``, or None if there is none."""
        path = self.path(recipe)
        return read_run(path) if path.exists() else None

    def save(self, recipe: Recipe, run: xr.Dataset) -> Path:
        """Keep a result; it appears whole or not at all."""
        path = self.path(recipe)
        whole = run.to_netcdf(engine="h5netcdf")  # in memory: on a full disk HDF5 does not fail, it crashes
        try:
            with written_whole(path) as temporary:
                temporary.write_bytes(whole)
        except OSError as error:
            raise UserError(f"The result cannot be written to '{path}' ({reason(error)}): free some space.") from None
        self.checkpoint(recipe).unlink(missing_ok=True)
        return path


def writable(folder: Path, what: str, option: str) -> None:
    """Make a folder, and find out now rather than after hours that nothing can be written there."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / f".writable-{os.getpid()}"
        probe.touch()
        probe.unlink()
    except OSError as error:
        where = f"{what} cannot be written to '{folder}'"
        raise UserError(f"{where} ({reason(error)}): choose another {option}.") from None


@contextlib.contextmanager
def written_whole(path: Path) -> Iterator[Path]:
    """Give a temporary file to write; it takes the place of ``path`` when it is whole, and vanishes if it is not."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        yield temporary
        os.replace(temporary, path)
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink()


def reason(error: Exception) -> str:
    """Say why the system refused, in its own few words."""
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


def read_run(path: Path) -> xr.Dataset:
    """Open one stored run."""
    try:
        with xr.open_dataset(path, engine="h5netcdf") as stored:
            run = stored.load()
    except FileNotFoundError:
        raise UserError(f"There is no stored run at '{path}'.") from None
    except (OSError, ValueError, KeyError, RuntimeError) as error:
        raise UserError(
            f"'{path}' is not a whole stored run ({type(error).__name__}): it may have been cut short. "
            "Delete it and run the recipe again."
        ) from None
    if "recipe" not in run.attrs:
        raise UserError(f"'{path}' holds no recipe, so it is not a stored run: move it away.")
    return run


def as_dataset(recipe: Recipe, trajectories: list[Trajectory]) -> xr.Dataset:
    """Label what the probes saw: dimensions seed and (but `AtEnd`) time first, then whatever a probe adds."""
    variables: dict[str, Any] = {}
    late = {name for name, probe in trajectories[0].probes.items() if isinstance(probe, AtEnd)}
    for probe, values in _stack([t.seen for t in trajectories]).items():
        first = ("seed",) if probe.partition(".")[0] in late else ("seed", "time")
        variables[probe] = ((*first, *(f"{probe}_{axis}" for axis in range(values.ndim - len(first)))), values)
    run = xr.Dataset(
        variables, coords={"seed": recipe.seed + np.arange(len(trajectories)), "time": trajectories[0].times}
    )
    run.attrs |= {
        "recipe": recipe.json(),
        "name": recipe.name,
        "seed": recipe.seed,
        "dtype": recipe.dtype,
        "digest": recipe.digest,
        "status": [t.status.name for t in trajectories],
        "finished": int(all(t.status.ok for t in trajectories)),
        "seconds": float(trajectories[0].stats["seconds"]),
    }
    stats = trajectories[0].stats
    run.attrs["method"] = f"{stats['method']}, coordinates: {stats['coordinates']}, precision: {stats['precision']}"
    run.attrs |= {name: [t.stats[name] for t in trajectories] for name in ("steps", "rejected", "evaluations", "error")}
    run.attrs |= provenance()
    return run


def _stack(seen: list[dict[str, Any]]) -> dict[str, np.ndarray]:
    """Flatten dictionaries of probes to one level and put the seeds first."""
    each = [flat(one) for one in seen]
    return {name: np.stack([one[name] for one in each]) for name in each[0]}


def flat(tree: dict[str, Any], prefix: str = "") -> dict[str, np.ndarray]:
    """Bring dictionaries of probes to one level: ``kernel.drift``."""
    found: dict[str, np.ndarray] = {}
    for name, value in tree.items():
        inner = flat(value, f"{prefix}{name}.") if isinstance(value, dict) else {f"{prefix}{name}": np.asarray(value)}
        found |= inner
    return found


def provenance() -> dict[str, str]:
    """Say what made a result: versions, commit, device, precision."""
    import jax

    return {
        "versions": ", ".join(f"{name} {importlib.metadata.version(name)}" for name in _LIBRARIES),
        "python": platform.python_version(),
        "commit": _commit(),
        "device": ", ".join(sorted({device.device_kind for device in jax.devices()})),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "written": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }


@functools.cache
def _commit() -> str:
    here = Path(__file__).parent
    ask = functools.partial(subprocess.run, cwd=here, capture_output=True, text=True, timeout=5, check=True)
    try:
        head = ask(["git", "rev-parse", "--short=12", "HEAD"]).stdout.strip()
        return head + (" (changed)" if ask(["git", "status", "--porcelain", "--", "."]).stdout.strip() else "")
    except (OSError, subprocess.SubprocessError):
        return "unknown"
