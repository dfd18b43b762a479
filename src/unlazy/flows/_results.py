"""What was observed along trajectories as labelled arrays, and as text and HTML for the screen."""

from __future__ import annotations

import html
import importlib.metadata
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from unlazy._errors import UserError

if TYPE_CHECKING:
    import xarray as xr

    from unlazy.flows._state import Trajectory

_COUNTERS = ("steps", "rejected", "evaluations", "error")


def to_xarray(trajectories: Trajectory | Sequence[Trajectory], seeds: Sequence[int] | None = None) -> xr.Dataset:
    """Give what the probes observed along one or several trajectories as one labelled data set.

    Parameters
    ----------
    trajectories
        One trajectory, or several with the same probes and times, such as those of `Flow.over_seeds`.
    seeds
        A number for each trajectory; 0, 1, ... if left out.

    Returns
    -------
    xarray.Dataset
        A variable for each probe, or for each part of what it returns (``kernel.drift``), with dimensions ``seed``,
        ``time`` (unless the probe observes at the end only) and those of the probe. Trajectories that ended early are
        filled up with NaN. Its attributes say how the trajectories ended and how they were computed.
    """
    import xarray as xr

    from unlazy._netcdf import labelled

    each = list(trajectories) if isinstance(trajectories, Sequence) else [trajectories]
    if not each:
        raise UserError("There are no trajectories: give at least one.")
    longest = max(each, key=lambda one: len(one.times))
    for one in each:
        if set(one.observed) != set(longest.observed) or not np.array_equal(one.times, longest.times[: len(one.times)]):
            raise UserError("These trajectories have different probes or times: convert them one by one.")
    late = at_end(longest)
    variables: dict[str, Any] = {}
    columns = [flat(one.observed) for one in each]
    for name in flat(longest.observed):
        first = ("seed",) if name.partition(".")[0] in late else ("seed", "time")
        parts = [column[name] for column in columns]
        values = np.stack(parts if len(first) == 1 else [_filled(part, len(longest.times)) for part in parts])
        variables[name] = ((*first, *(f"{name}_{axis}" for axis in range(values.ndim - len(first)))), values)
    numbers = list(range(len(each))) if seeds is None else [int(seed) for seed in seeds]
    run = xr.Dataset(variables, coords={"seed": numbers, "time": np.asarray(longest.times, float)})
    stats = longest.stats
    run.attrs = {
        "made": "python",
        "recipe": "",
        "status": [one.status.name for one in each],
        "finished": int(all(one.status.ok for one in each)),
        "seconds": float(stats["seconds"]),
        "method": f"{stats['method']}, coordinates: {stats['coordinates']}, precision: {stats['precision']}",
        "versions": f"unlazy {importlib.metadata.version('unlazy')}, jax {importlib.metadata.version('jax')}",
        "written": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }
    run.attrs |= {name: [one.stats[name] for one in each] for name in _COUNTERS}
    inner = {name: getattr(probe, "probe", probe) if name in late else probe for name, probe in longest.probes.items()}
    return labelled(run, inner)


def _filled(values: np.ndarray, count: int) -> np.ndarray:
    missing = np.full((count - len(values), *values.shape[1:]), np.nan)
    return np.concatenate([values, missing]) if len(missing) else values


def at_end(trajectory: Trajectory) -> set[str]:
    """Give the names of the probes that observe at the end only."""
    from unlazy.flows._state import OnlyAtEnd

    return {name for name, probe in trajectory.probes.items() if isinstance(probe, OnlyAtEnd)}


def flat(tree: Mapping[str, Any], prefix: str = "") -> dict[str, np.ndarray]:
    """Bring nested dictionaries of observations to one level: ``kernel.drift``."""
    found: dict[str, np.ndarray] = {}
    for name, value in tree.items():
        key = f"{prefix}{name}"
        found |= flat(value, f"{key}.") if isinstance(value, Mapping) else {key: np.asarray(value)}
    return found


# ---------------------------------------------------------------- on the screen


def _rows(trajectory: Trajectory) -> list[tuple[str, str]]:
    """Give names and values: how the run ended, its times, and the last value of each probe."""
    times, stats, late = trajectory.times, trajectory.stats, at_end(trajectory)
    ended = f"{trajectory.status.name}, {int(stats['steps'])} steps of {stats['method']} in {stats['seconds']:.3g} s"
    span = f"{len(times)}, from {times[0]:g} to {times[-1]:g}" if len(times) else "none"
    rows = [("status", ended), ("times", span)]
    for name, values in flat(trajectory.observed).items():
        last = values if name.partition(".")[0] in late else values[-1] if len(values) else np.empty(0)
        rows.append((name, f"{float(last):.6g}" if np.ndim(last) == 0 else f"array of shape {np.shape(last)}"))
    return rows


def as_text(trajectory: Trajectory) -> str:
    """Describe a trajectory in a few lines of text."""
    rows = _rows(trajectory)
    width = max(len(name) for name, _ in rows)
    return "Trajectory\n" + "\n".join(f"  {name:<{width}}  {value}" for name, value in rows)


def as_html(trajectory: Trajectory) -> str:
    """Describe a trajectory as an HTML table, for notebooks."""
    cells = "".join(
        f"<tr><th style='text-align:left'>{html.escape(name)}</th>"
        f"<td style='text-align:left'>{html.escape(value)}</td></tr>"
        for name, value in _rows(trajectory)
    )
    return f"<table><caption>Trajectory: last values</caption>{cells}</table>"
