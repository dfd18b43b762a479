"""Comparison of runs: the settings in which their recipes differ, and the groups of runs that follow from them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import xarray as xr

from unlazy._errors import UserError, article
from unlazy._files import by_field, parts_of, probe_names, recipe_table
from unlazy.figures.style import MOST_COLOURS, ORDERED, shades

Runs = Any  # a run, a sequence of runs, or a mapping from labels to runs or to sequences of runs (seeds)

_NOT_SETTINGS = ("name", "seed", "seeds", "probes", "times")
_MOST_PLOTS_ABREAST = 4
_THICKNESS = (0.6, 2.4)  # points: the thinnest and the thickest line
DEFAULT = "default"  # shown where one recipe has a setting that another leaves out


@dataclass
class Group:
    """Runs with the same settings but different seeds, which are drawn as one curve with a band.

    Attributes
    ----------
    settings
        The value of each setting that differs between groups.
    label
        Name in legends.
    runs
        The runs.
    members
        Positions of these runs among all runs.
    colour, dash, thickness
        How the curve is drawn: colour, index of the dash pattern, and line width in points (that of the style if
        None).
    plot
        Index of the plot, if there are several side by side.
    """

    settings: dict[str, str]
    label: str
    runs: list[xr.Dataset]
    members: list[int]
    colour: str = ORDERED[0]
    dash: int = 0
    thickness: float | None = None
    plot: int = 0
    _joined: dict[str, list[tuple[np.ndarray, np.ndarray]]] = field(default_factory=dict, repr=False)

    def seeds(self, name: str) -> list[tuple[np.ndarray, np.ndarray]]:
        """Return (times, values) of the variable ``name``, with seeds as the first axis of the values.

        Runs with the same times are joined. The times are empty if a probe was evaluated only at the end.
        """
        if name in self._joined:
            return self._joined[name]
        joined: dict[Any, list[np.ndarray]] = {}
        for run in self.runs:
            if name in run.data_vars:
                values = run[name]
                times = tuple(run["time"].values.tolist()) if "time" in values.dims else ()
                first = [dim for dim in ("seed", "time") if dim in values.dims]
                whole = values.transpose(*first, ...).values.astype(float)
                squeezed = tuple(n for n in whole.shape[len(first) :] if n > 1)
                joined.setdefault((times, squeezed), []).append(whole.reshape(*whole.shape[: len(first)], *squeezed))
        self._joined[name] = [(np.asarray(times), np.concatenate(parts)) for (times, _), parts in joined.items()]
        return self._joined[name]

    def last(self, name: str) -> np.ndarray:
        """Return the last value of the scalar variable ``name`` for every seed; empty if these runs do not have it."""
        ends = [values[:, -1] if times.size else values for times, values in self.seeds(name)]
        return np.concatenate(ends) if ends else np.empty(0)

    @property
    def count(self) -> int:
        """Number of seeds."""
        return sum(run.sizes["seed"] for run in self.runs)


@dataclass
class Comparison:
    """Several runs, grouped by what differs between their recipes.

    Attributes
    ----------
    runs
        All runs.
    differing
        The settings that differ, such as ``network.width``.
    factors
        Those of them that suffice to distinguish the runs, with their values; they determine the others.
    groups
        Runs with the same value of every factor, with the colour, dash pattern and plot they are drawn in.
    by_colour, by_dash, by_thickness
        The factors that are shown by colour, by dash pattern and by line width, if any.
    by_plot
        The factors that are shown in plots side by side.
    """

    runs: list[xr.Dataset]
    differing: list[str] = field(default_factory=list)
    factors: dict[str, list[str]] = field(default_factory=dict)
    groups: list[Group] = field(default_factory=list)
    by_colour: str | None = None
    by_dash: str | None = None
    by_thickness: str | None = None
    by_plot: list[str] = field(default_factory=list)

    @property
    def plots(self) -> list[str]:
        """Titles of the plots side by side; a single empty title if there is one plot only."""
        first = {group.plot: group.settings for group in self.groups}
        return [", ".join(f"{short(key)} = {first[plot][key]}" for key in self.by_plot) for plot in sorted(first)]

    @property
    def names(self) -> list[str]:
        """All variables: losses first, then errors, other scalars, and arrays; among these in the recipes' order."""
        found = dict.fromkeys(name for run in self.runs for name in _in_order_of_recipe(run))
        return sorted(found, key=lambda name: (self.extra_axes(name) > 0, rank(name)))

    def extra_axes(self, name: str) -> int:
        """Return the number of axes of the variable ``name`` besides seed and time; axes of length one do not count."""
        sizes = next((run[name].sizes for run in self.runs if name in run.data_vars), {})
        return sum(size > 1 for dim, size in sizes.items() if dim not in ("seed", "time"))

    @property
    def scalars(self) -> list[str]:
        """Variables that have one number at each time, or one at the end."""
        return [name for name in self.names if self.extra_axes(name) == 0]

    def chosen(self, probes: str | Iterable[str] | None) -> list[str]:
        """Return the variables of one or several probes by name, or of all; ``kernel`` includes ``kernel.drift``."""
        if probes is None:
            return self.names
        return parts_of([probes] if isinstance(probes, str) else probes, self.names, "These runs have no probe called")


def compare(runs: Runs) -> Comparison:
    """Group runs by the settings in which their recipes differ, and choose colours and dash patterns for the groups.

    Parameters
    ----------
    runs
        One run or several: `unlazy.Trajectory` objects or stored runs (`xarray.Dataset`), as a sequence or as a mapping
        from labels. A list under one label holds seeds. Without labels, runs are distinguished by the settings in which
        their recipes differ, or by name where there are no recipes.
    """
    labels, given = _collected(runs)
    if not given:
        raise UserError("There are no runs to draw: give at least one.")
    rows = [{"run": label} for label in labels] if labels else _distinct([settings(run) for run in given], given)
    keys = list(dict.fromkeys(key for row in rows for key in row))
    texts = [{key: _text(row.get(key)) for key in keys} for row in rows]
    differing = {key: values for key in keys if len(values := list(dict.fromkeys(text[key] for text in texts))) > 1}
    factors = _needed(differing, texts)
    groups: dict[tuple[str, ...], Group] = {}
    for place, (run, text) in enumerate(zip(given, texts, strict=True)):
        label = ", ".join(text[key] if key == "run" else f"{short(key)} = {text[key]}" for key in factors)
        label = label or (labels[place] if labels else _name(run))
        group = Group({key: text[key] for key in differing}, label, [], [])
        group = groups.setdefault(tuple(text[key] for key in factors), group)
        group.runs.append(run)
        group.members.append(place)
    ordered = sorted(groups.values(), key=lambda one: [factors[key].index(one.settings[key]) for key in factors])
    comparison = Comparison(given, list(differing), factors, ordered)
    _assign(comparison)
    return comparison


def _needed(differing: Mapping[str, list[str]], texts: Sequence[Mapping[str, str]]) -> dict[str, list[str]]:
    """Choose settings, those of the network first, until all runs with different settings are distinguished."""
    sections = ("run", "network", "data", "flow")

    def preference(key: str) -> tuple[bool, int, bool]:
        section = key.partition(".")[0]
        place = sections.index(section) if section in sections else len(sections)
        return any(value.startswith("[") for value in differing[key]), place, not key.endswith("scaling")

    factors: dict[str, list[str]] = {}
    for key in sorted(differing, key=preference):
        coarse = {tuple(text[one] for one in factors) for text in texts}
        if len({tuple(text[one] for one in (*factors, key)) for text in texts}) > len(coarse):
            numbers = all(map(_is_number, differing[key]))
            factors[key] = sorted(differing[key], key=float) if numbers else differing[key]
    return factors


def settings(run: xr.Dataset) -> dict[str, Any]:
    """Return the settings of a stored run by name, such as ``network.width``, from its recipe, with its end time.

    Parameters
    ----------
    run
        A stored run. Names, seeds and probes are not settings. A run that was made in Python has none.
    """
    recipe = recipe_table(run.attrs.get("recipe"))
    found: dict[str, Any] = {}
    for name, value in recipe.items():
        fields = by_field(value, name) if name not in _NOT_SETTINGS else {}
        found |= {field.removesuffix(".kind"): leaf for field, leaf in fields.items() if leaf is not None}
    times = recipe.get("times")
    end = times.get("end") if isinstance(times, dict) else times[-1] if isinstance(times, list) and times else None
    return found if end is None else found | {"times.end": end}


def _distinct(rows: list[dict[str, Any]], runs: Sequence[xr.Dataset]) -> list[dict[str, Any]]:
    """Add the name as a setting if nothing else distinguishes runs whose seeds overlap."""
    seen: dict[str, set[Any]] = {}
    for row, run in zip(rows, runs, strict=True):
        seeds = set(run["seed"].values.tolist())
        same = seen.setdefault(json.dumps(row, sort_keys=True, default=str), set())
        if same & seeds:
            return [{**one, "run": _name(other)} for one, other in zip(rows, runs, strict=True)]
        same |= seeds
    return rows


def _assign(comparison: Comparison) -> None:
    """Choose which factor is shown by colour, which by dash pattern, and which by plots side by side."""
    factors = comparison.factors
    left = sorted(
        factors, key=lambda key: (not key.endswith("scaling"), all(map(_is_number, factors[key])), len(factors[key]))
    )
    comparison.by_colour = left.pop(0) if left else None
    comparison.by_dash = next((key for key in left if len(factors[key]) <= MOST_COLOURS), None)
    plots = 1
    for key in left:
        if key == comparison.by_dash:
            continue
        if plots * len(factors[key]) <= _MOST_PLOTS_ABREAST:
            plots *= len(factors[key])
            comparison.by_plot.append(key)
        elif comparison.by_thickness is None and len(factors[key]) <= MOST_COLOURS:
            comparison.by_thickness = key

    def position(group: Group, *keys: str) -> tuple[int, ...]:
        return tuple(factors[key].index(group.settings[key]) for key in keys)

    positions = sorted({position(group, *comparison.by_plot) for group in comparison.groups})
    for group in comparison.groups:
        group.plot = positions.index(position(group, *comparison.by_plot))
        if (key := comparison.by_colour) is not None:
            group.colour = shades(key, factors[key])[group.settings[key]]
            (group.dash,) = position(group, key) if len(factors[key]) <= MOST_COLOURS else (0,)
        if comparison.by_dash is not None:
            (group.dash,) = position(group, comparison.by_dash)
        if (key := comparison.by_thickness) is not None:
            (place,) = position(group, key)
            group.thickness = float(np.linspace(*_THICKNESS, len(factors[key]))[place])


# ---------------------------------------------------------------- reading runs


def _collected(runs: Runs) -> tuple[list[str], list[xr.Dataset]]:
    """Return labels (none, unless a mapping was given) and runs with a dimension for seeds."""
    if isinstance(runs, Mapping) and not isinstance(runs, xr.Dataset):  # which is a mapping, too
        seeds = [(str(label), value if isinstance(value, Sequence) else [value]) for label, value in runs.items()]
        found = [(label, _dataset(one, seed)) for label, value in seeds for seed, one in enumerate(value)]
        return [label for label, _ in found], [run for _, run in found]
    each = list(runs) if isinstance(runs, Sequence) else [runs]
    return [], [_dataset(one, seed) for seed, one in enumerate(each)]


def _dataset(run: Any, seed: int) -> xr.Dataset:
    if not isinstance(run, xr.Dataset):
        if not hasattr(run, "to_xarray"):
            raise UserError(f"A run was expected (a Trajectory or a stored run), not {article(type(run).__name__)}.")
        run = run.to_xarray()
    return run if "seed" in run.dims else run.drop_vars("seed", errors="ignore").expand_dims(seed=[seed])


def _in_order_of_recipe(run: xr.Dataset) -> list[str]:
    listed = probe_names(recipe_table(run.attrs.get("recipe")))
    place = {name: index for index, name in reversed(list(enumerate(listed)))}
    return sorted(map(str, run.data_vars), key=lambda name: place.get(name.partition(".")[0], len(place)))


def rank(name: str) -> int:
    """Rank a variable for figures and tables: training loss, test loss, other losses, errors and risks, others.

    Parameters
    ----------
    name
        Name of a variable, such as ``"train-loss"``.
    """
    is_error = any(word in name for word in ("error", "risk", "accuracy"))
    return (name == "train-loss", name == "test-loss", "loss" in name, is_error, True).index(True)


def _name(run: xr.Dataset) -> str:
    return str(run.attrs.get("name", "") or "run")


def short(key: str) -> str:
    """Return the last part of the name of a setting, for legends: ``network.width`` -> ``width``.

    Parameters
    ----------
    key
        Full name of a setting.
    """
    return {"times.end": "end time"}.get(key, key.rpartition(".")[2])


def _text(value: Any) -> str:
    if value is None:
        return DEFAULT
    if isinstance(value, str):
        return value
    return f"{value:g}" if isinstance(value, float) else json.dumps(value, ensure_ascii=False, default=str)


def _is_number(text: str) -> bool:
    try:
        return float(text) == float(text)
    except ValueError:
        return False
