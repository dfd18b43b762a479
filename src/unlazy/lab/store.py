"""The store: one immutable netCDF file a run, named by its recipe's digest, openable anywhere.

A file is written under a temporary name and renamed when it is whole. Next to it, while a run is on its way, lies its
checkpoint, from which an interrupted run goes on.
"""

from __future__ import annotations

import functools
import importlib.metadata
import os
import platform
import re
import subprocess
import time
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from unlazy._errors import UserError
from unlazy.flows import Trajectory
from unlazy.lab.recipe import Recipe

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

    def prepare(self) -> None:
        """Make the folder, and find out now rather than after hours that nothing can be written there."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            probe = self.folder / f".writable-{os.getpid()}"
            probe.touch()
            probe.unlink()
        except OSError as error:
            raise UserError(
                f"Results cannot be written to '{self.folder}' ({error.strerror}): choose another --out."
            ) from None

    def load(self, recipe: Recipe) -> xr.Dataset | None:
        """Give the stored result of ``recipe``, or None if there is none."""
        path = self.path(recipe)
        return read_run(path) if path.exists() else None

    def save(self, recipe: Recipe, run: xr.Dataset) -> Path:
        """Keep a result; it appears whole or not at all."""
        path = self.path(recipe)
        temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
        try:
            run.to_netcdf(temporary, engine="h5netcdf")
            os.replace(temporary, path)
        except OSError as error:
            temporary.unlink(missing_ok=True)
            raise UserError(
                f"The result could not be written to '{path}' ({error.strerror or error}): free some space, or choose "
                "another --out; the run goes on from its checkpoint."
            ) from None
        self.checkpoint(recipe).unlink(missing_ok=True)
        return path


def read_run(path: Path) -> xr.Dataset:
    """Open one stored run."""
    try:
        with xr.open_dataset(path, engine="h5netcdf") as run:
            return run.load()
    except FileNotFoundError:
        raise UserError(f"There is no stored run at '{path}'.") from None
    except (OSError, ValueError, KeyError) as error:
        raise UserError(
            f"'{path}' is not a whole stored run ({type(error).__name__}): it may have been cut short. "
            "Delete it and run the recipe again."
        ) from None


def as_dataset(recipe: Recipe, trajectories: list[Trajectory]) -> xr.Dataset:
    """Label what the probes saw: dimensions seed and time first, then whatever a probe adds."""
    variables: dict[str, Any] = {}
    for probe, values in _stack([t.seen for t in trajectories]).items():
        variables[probe] = (("seed", "time", *(f"{probe}_{axis}" for axis in range(values.ndim - 2))), values)
    run = xr.Dataset(
        variables, coords={"seed": recipe.seed + np.arange(len(trajectories)), "time": trajectories[0].times}
    )
    run.attrs |= {
        "recipe": recipe.json(),
        "name": recipe.name,
        "digest": recipe.digest,
        "status": [t.status.name for t in trajectories],
        "finished": int(all(t.status.ok for t in trajectories)),
        "seconds": float(trajectories[0].stats["seconds"]),
        "steps": [int(t.stats["steps"]) for t in trajectories],
        "rejected": [int(t.stats["rejected"]) for t in trajectories],
    }
    run.attrs |= provenance()
    return run


def _stack(seen: list[dict[str, Any]]) -> dict[str, np.ndarray]:
    """Flatten dictionaries of probes to one level, ``kernel.drift``, and put the seeds first."""

    def flat(tree: dict[str, Any], prefix: str = "") -> dict[str, np.ndarray]:
        found = {}
        for name, value in tree.items():
            found |= (
                flat(value, f"{prefix}{name}.") if isinstance(value, dict) else {f"{prefix}{name}": np.asarray(value)}
            )
        return found

    each = [flat(one) for one in seen]
    return {name: np.stack([one[name] for one in each]) for name in each[0]}


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
