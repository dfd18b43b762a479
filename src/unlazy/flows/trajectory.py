"""Trajectories: the results of a run, as labelled arrays, and as text and HTML for the screen."""

from __future__ import annotations

import dataclasses
import functools
import html
import importlib.metadata
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import equinox as eqx
import numpy as np

from unlazy._checked import Checked
from unlazy._errors import UserError, short
from unlazy._registry import kebab, resolve
from unlazy._types import PyTree
from unlazy.data import Dataset
from unlazy.flows.state import State, Status
from unlazy.losses import Loss
from unlazy.networks import Network, Samples, plain_numbers
from unlazy.probes.observation import Observation, Observe

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.figure import Figure

    from unlazy.figures import Style
    from unlazy.flows.method import Method

COUNTERS = ("steps", "rejected", "evaluations", "error")


class OnlyAtEnd(Checked):
    """A probe that is evaluated once, at the end of a run: for what is too expensive or too large to record often.

    ``observed`` then has no axis of times. In a recipe: ``{ kind = "pruning", when = "end" }``.

    Parameters
    ----------
    probe
        The probe.
    """

    only_at_end: ClassVar[bool] = True
    probe: Observe

    def __call__(self, obs: Observation) -> PyTree:
        return self.probe(obs)


def only_at_end(probe: Observe) -> bool:
    """Whether a probe is evaluated only at the end of a run, as those with a true attribute of this name are."""
    return bool(getattr(probe, "only_at_end", False))


def inner_probe(probe: Observe) -> Any:
    """Return what `OnlyAtEnd` evaluates; any other probe is returned as it is."""
    return getattr(probe, "probe", probe) if only_at_end(probe) else probe


class Recorded(eqx.Module):
    """What is recorded at one save time.

    Attributes
    ----------
    observed
        The results of the probes, by name.
    counters
        The status code and the counters of `State`, by name.
    trained
        The leaves of the trained parameters, if they were requested.
    """

    observed: dict[str, PyTree]
    counters: dict[str, Any]
    trained: list[Any] | None


class RunState(eqx.Module):
    """Everything that is needed to continue a run.

    Attributes
    ----------
    state
        The state of the method.
    frozen
        The part of the prepared network that is not trained.
    first
        The trained parameters at t = 0.
    data
        The samples, prepared for that network.
    raw
        The data set as the user gave it.
    target
        The save time that the run has reached, or is on its way to.
    flow
        The method, with all automatic choices made.
    """

    state: State
    frozen: PyTree
    first: PyTree
    data: Samples
    raw: Dataset
    target: float
    flow: Method


@dataclasses.dataclass(frozen=True, repr=False)
class Trajectory:
    """The results of a run: the networks at both ends, what the probes observed, and how the run ended.

    Attributes
    ----------
    data, loss
        The data set, and the loss that was minimised.
    times
        The save times that were reached.
    probes
        The probes by name.
    observed
        What each probe observed, by the same names; the first axis is that of ``times`` (not for `OnlyAtEnd`).
    stats
        Numbers of steps, rejected steps and gradient evaluations, seconds, the sum of the estimated errors, and the
        method, coordinates and precision that were chosen.
    status
        How the run ended.
    run_state
        What `Flow.extend` continues from.
    """

    data: Dataset
    loss: Loss
    times: np.ndarray
    probes: dict[str, Observe]
    observed: dict[str, Any]
    stats: dict[str, Any]
    status: Status
    run_state: RunState

    @property
    def flow(self) -> Method:
        """The method of the run, with all automatic choices made."""
        return self.run_state.flow

    @functools.cached_property
    def nonfinite(self) -> tuple[str, ...]:
        """The names of all observations that are NaN or infinite anywhere: ``("kernel.alignment",)``."""
        return nonfinite(flat(self.observed))

    @functools.cached_property
    def start(self) -> Network:
        """The network at t = 0, in weights."""
        return plain_numbers(eqx.combine(self.run_state.first, self.run_state.frozen).restore())

    @functools.cached_property
    def final(self) -> Network:
        """The network where the run ended, in weights."""
        return plain_numbers(eqx.combine(self.run_state.state.trained, self.run_state.frozen).restore())

    def to_xarray(self) -> xr.Dataset:
        """Return the results of the probes as labelled arrays with the dimension ``time`` first.

        `unlazy.flows.to_xarray` takes several trajectories and adds a dimension ``seed``.
        """
        return to_xarray(self).isel(seed=0, drop=True)

    def plot(self, probe: str | Sequence[str] | None = None, style: Style = "screen") -> Figure:
        """Draw what the probes observed; see `unlazy.figures.curves`, which also compares several runs.

        Parameters
        ----------
        probe
            The probe to draw, or several of them; all if omitted.
        style
            ``"screen"`` or ``"paper"``.
        """
        from unlazy.figures import curves

        return curves(self, probe, style)

    def save(self, path: Path | str, name: str = "") -> Path:
        """Write what the probes observed to a netCDF file, which `unlazy report` and `unlazy figure` read.

        Parameters
        ----------
        path
            The file; its name should end in ``.nc``.
        name
            The name of the run in reports; that of the file if omitted.
        """
        from unlazy._files import write

        path = Path(path)
        return write(to_xarray(self).assign_attrs(name=name or path.stem), path)

    def __repr__(self) -> str:
        rows = self._rows()
        width = max(len(name) for name, _ in rows)
        return "Trajectory\n" + "\n".join(f"  {name:<{width}}  {value}" for name, value in rows)

    def _repr_html_(self) -> str:
        cells = "".join(
            f"<tr><th style='text-align:left'>{html.escape(name)}</th>"
            f"<td style='text-align:left'>{html.escape(value)}</td></tr>"
            for name, value in self._rows()
        )
        return f"<table><caption>Trajectory: last values</caption>{cells}</table>"

    def _rows(self) -> list[tuple[str, str]]:
        """Return names and values: how the run ended, its times, and the last value of each probe."""
        times, stats, late = self.times, self.stats, at_end(self)
        ended = f"{self.status.name}, {int(stats['steps'])} steps of {stats['method']} in {stats['seconds']:.3g} s"
        span = f"{len(times)}, from {times[0]:g} to {times[-1]:g}" if len(times) else "none"
        rows = [("status", ended), ("times", span)]
        rows += [("not finite", ", ".join(self.nonfinite))] if self.nonfinite else []
        for name, values in flat(self.observed).items():
            last = values if name.partition(".")[0] in late else values[-1] if len(values) else np.empty(0)
            rows.append((name, f"{float(last):.6g}" if np.ndim(last) == 0 else f"array of shape {np.shape(last)}"))
        return rows


def to_xarray(trajectories: Trajectory | Sequence[Trajectory], seeds: Sequence[int] | None = None) -> xr.Dataset:
    """Combine what the probes observed along one or several trajectories into one labelled data set.

    Parameters
    ----------
    trajectories
        One trajectory, or several with the same probes and times, such as those of `Flow.over_seeds`.
    seeds
        A number for each trajectory; 0, 1, ... if omitted.

    Returns
    -------
    xarray.Dataset
        A variable for each probe, or for each part of what it returns (``kernel.drift``), with dimensions ``seed``,
        ``time`` (unless the probe observes at the end only) and those of the probe. Trajectories that ended early are
        padded with NaN. Its attributes say how the trajectories ended and how they were computed.
    """
    import xarray as xr

    from unlazy._files import labelled

    each = list(trajectories) if isinstance(trajectories, Sequence) else [trajectories]
    if not each:
        raise UserError("There are no trajectories: give at least one.")
    longest = max(each, key=lambda one: len(one.times))
    for one in each:
        other = len(one.times) > 0 and set(one.observed) != set(longest.observed)  # nothing may have been observed
        if other or not np.array_equal(one.times, longest.times[: len(one.times)]):
            raise UserError("These trajectories have different probes or times: convert them one by one.")
    late = at_end(longest)
    variables: dict[str, Any] = {}
    columns = [flat(one.observed) for one in each]
    for name, like in flat(longest.observed).items():
        once = name.partition(".")[0] in late
        nothing = np.full_like(like, np.nan, dtype=float) if once else like[:0]
        parts = [column.get(name, nothing) for column in columns]
        variables[name] = stacked(name, parts, None if once else len(longest.times))
    numbers = list(range(len(each))) if seeds is None else [int(seed) for seed in seeds]
    run = xr.Dataset(variables, coords={"seed": numbers, "time": np.asarray(longest.times, float)})
    stats = longest.stats
    run.attrs = {
        "made": "python",
        "recipe": "",
        "status": [one.status.name for one in each],
        "finished": int(all(one.status.ok for one in each)),
        "nonfinite": ", ".join(dict.fromkeys(name for one in each for name in one.nonfinite)),
        "seconds": float(stats["seconds"]),
        "method": f"{stats['method']}, coordinates: {stats['coordinates']}, precision: {stats['precision']}",
        "versions": f"unlazy {importlib.metadata.version('unlazy')}, jax {importlib.metadata.version('jax')}",
        "written": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }
    run.attrs |= {name: [one.stats[name] for one in each] for name in COUNTERS}
    return labelled(run, {name: inner_probe(probe) for name, probe in longest.probes.items()})


def stacked(name: str, columns: Sequence[np.ndarray], times: int | None) -> tuple[tuple[str, ...], np.ndarray]:
    """Return the dimensions and values of a variable: seeds, times unless that is None, and the axes of the probe.

    ``columns`` are the values of each seed. Where it ended early, NaN stands for the times that it did not reach.
    """
    first = ("seed",) if times is None else ("seed", "time")
    values = np.stack([one if times is None else _padded(one, times) for one in columns])
    return (*first, *(f"{name}_{axis}" for axis in range(values.ndim - len(first)))), values


def _padded(values: np.ndarray, count: int) -> np.ndarray:
    missing = (count - len(values), *values.shape[1:])
    dtype = values.dtype if values.dtype.kind in "fc" else float
    return np.concatenate([values, np.full(missing, np.nan, dtype)]) if missing[0] else values


def at_end(trajectory: Trajectory) -> set[str]:
    """Return the names of the probes that are evaluated only at the end."""
    return {name for name, probe in trajectory.probes.items() if only_at_end(probe)}


def flat(tree: Mapping[str, Any], prefix: str = "") -> dict[str, np.ndarray]:
    """Flatten nested dictionaries of observations: ``kernel.drift``."""
    found: dict[str, np.ndarray] = {}
    for name, value in tree.items():
        key = f"{prefix}{name}"
        found |= flat(value, f"{key}.") if isinstance(value, Mapping) else {key: np.asarray(value)}
    return found


def nonfinite(values: Mapping[Any, Any]) -> tuple[Any, ...]:
    """Return the names of all arrays that have entries which are NaN or infinite."""
    numbers = {name: np.asarray(one) for name, one in values.items()}
    return tuple(name for name, one in numbers.items() if one.dtype.kind in "fc" and not np.isfinite(one).all())


def named(probes: Any) -> dict[str, Observe]:
    """Resolve probes that are given by name, and name those that are given without one after their class.

    ``TrainLoss()`` and ``"train-loss"`` are both called ``train-loss``.
    """
    if isinstance(probes, Mapping):
        return {name: _probe(probe) for name, probe in probes.items()}
    found: dict[str, Observe] = {}
    one = callable(probes) or isinstance(probes, str)
    if not one and not isinstance(probes, Iterable):
        raise UserError(f"probes = {short(probes)} is not a list of probes: give their names, as ['train-loss'].")
    each: Any = [probes] if one else probes
    for given in each:
        probe = _probe(given)
        name = given.rpartition(":")[2] if isinstance(given, str) else getattr(probe, "__name__", type(probe).__name__)
        name = kebab(name).strip("<>")
        if name in found:
            raise UserError(f"Two probes would both be called '{name}': give a dictionary with a name for each.")
        found[name] = probe
    return found


def _probe(given: Any) -> Observe:
    if isinstance(given, str):
        return resolve("probe", given)
    if isinstance(given, type) or not callable(given):
        name = getattr(given, "__name__", short(given))
        remedy = f"write probes=[{name}()]" if isinstance(given, type) else "give its name, as probes=['train-loss']"
        raise UserError(f"A probe must be an object, a name or a function, not {name}: {remedy}.")
    return given
