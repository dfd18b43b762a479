"""Phase diagrams: two fields of a recipe against a quantity of its runs, computed only near the boundary.

The file is a sweep over two fields with a section ``[phase]``; docs/sweeps.md has an example.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from unlazy._errors import UserError, short, suggest
from unlazy._plain import finite_or_none, is_count, is_number
from unlazy.lab.answers import Saved
from unlazy.lab.axes import key_of
from unlazy.lab.expressions import Expression
from unlazy.lab.manifest import words
from unlazy.lab.measures import Found, Measure, measure_of
from unlazy.lab.recipe import Recipe, read_table
from unlazy.lab.refinement import Cell, Place, refine
from unlazy.lab.runner import Lab
from unlazy.lab.sections import located
from unlazy.lab.store import Store
from unlazy.lab.sweep import Sweep, short_names

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TIME = "time"
_COARSE = 5
_SECTION = ("x", "y", "measure", "value", "threshold", "names", "diverged", "theory", "coarse")


@dataclasses.dataclass(frozen=True)
class Phase:
    """What a phase diagram shows: a quantity of runs over two fields of a recipe.

    Attributes
    ----------
    sweep
        A sweep over two fields, whose values are the grid; or over one, if the other axis is the time.
    measure
        What is measured on each run; see `unlazy.lab.measures.Measure`.
    x, y
        The fields along the two axes, or ``"time"``; by default the fields of the sweep in their order.
    theory
        The predicted boundary as an equation between the two fields, such as ``"flow.rate * network.width = 2"``.
    coarse
        Number of values along each axis with which the search begins.
    """

    sweep: Sweep
    measure: Measure
    x: str = ""
    y: str = ""
    theory: str = ""
    coarse: int = _COARSE

    def __post_init__(self) -> None:
        fields = self.sweep.fields
        x = self.x or next((one for one in fields if one != self.y), TIME)
        y = self.y or next((one for one in fields if one != x), TIME)
        for name, one in (("x", x), ("y", y)):
            if one not in (*fields, TIME):
                known = [*fields, TIME]
                raise UserError(f"phase.{name}: the sweep has no field '{one}'. {suggest(one, known)}")
        if x == y:
            raise UserError(f"phase: both axes are '{x}': sweep over a second field, or take the time as y.")
        if more := [one for one in fields if one not in (x, y)]:
            raise UserError(f"phase: the sweep also has the field '{more[0]}': fix it, for example with --set.")
        if len(self.sweep) != np.prod([len(self.sweep.axes()[one]) for one in fields]):
            raise UserError("phase: the two fields must form a grid: give each a list in [sweep].")
        if not is_count(self.coarse, 2):
            raise UserError(f"phase.coarse: expected a whole number of at least 2, not {short(self.coarse)}.")
        object.__setattr__(self, "x", x)
        object.__setattr__(self, "y", y)
        for name, one in (("x", x), ("y", y)):
            if len(self.values(one)) < 2:
                raise UserError(f"phase.{name}: '{one}' has only one value: a map needs at least 2.")
        self.measure.check(self.sweep.table_of(self.sweep.points()[0].fields)[0])
        if TIME in (x, y) and any(not np.array_equal(one, self._grids[0]) for one in self._grids):
            raise UserError("phase: all runs must be observed at the same times, if time is an axis.")
        _ = self.line  # a wrong theory is refused at once

    @classmethod
    def read(cls, path: Path, **options: Any) -> Phase:
        """Read a phase diagram from a TOML file: a recipe with sections ``sweep`` and ``phase``.

        Parameters
        ----------
        path
            The file.
        **options
            ``settings`` and ``limit``, as for `Sweep.read`.
        """
        return cls.parse(read_table(path), where=path.name, **options)

    @classmethod
    def parse(cls, table: Mapping[str, Any], where: str = "phase", **options: Any) -> Phase:
        """Make a phase diagram from the table of a file, as `read` does.

        Parameters
        ----------
        table, where, **options
            As for `Sweep.parse`.
        """
        sweep = Sweep.parse(table, where=where, **options)
        with located(where):
            given = table.get("phase")
            if not isinstance(given, Mapping):
                how = 'measure = "kernel.drift" and threshold = 0.1'
                raise UserError(f"the section [phase] is missing: say what is measured, such as {how}.")
            for name in given:
                if name not in _SECTION:
                    raise UserError(f"phase: there is no field '{name}'. {suggest(name, _SECTION)}")
            for name in ("measure", "x", "y", "value", "theory"):
                if not isinstance(given.get(name, ""), str) or (name == "measure" and name not in given):
                    raise UserError(f"phase.{name}: expected a text, not {short(given.get(name))}.")
            options = {name: given[name] for name in ("x", "y", "theory", "coarse") if name in given}
            return cls(sweep, measure_of(given), **options)

    def file_name(self) -> str:
        """Return a name for the file of its result, which differs if what is measured or its grid differs."""
        asked = [self.sweep.manifest(Store("."))[1].digest, self.measure, self.x, self.y, self.theory]
        digest = hashlib.sha256(repr(asked).encode()).hexdigest()[:12]
        return f"{Store('.').named(self.sweep.name, digest).stem}.json"

    @property
    def _grids(self) -> list[np.ndarray]:
        return [point.recipe.grid() for point in self.sweep.points()]

    def values(self, field: str) -> list[Any]:
        """Return the values along an axis, numbers in increasing order.

        Parameters
        ----------
        field
            The field of the axis, or ``"time"``.
        """
        if field == TIME:
            return [float(one) for one in self._grids[0] if one > 0]
        found = self.sweep.axes()[field]
        return sorted(found) if all(map(is_number, found)) else found

    @property
    def shape(self) -> tuple[int, int]:
        """The number of points along x and y."""
        return len(self.values(self.x)), len(self.values(self.y))

    @property
    def line(self) -> Callable[[Any, Any], Any] | None:
        """The predicted boundary as a function of x and y that is zero on it, or None."""
        if not self.theory:
            return None
        left, equals, right = self.theory.partition("=")
        if not equals or "=" in right:
            raise UserError(f"phase.theory: write an equation, such as '{self.y} = 1 / {self.x}', not {self.theory!r}.")
        sides = [Expression(one, "phase.theory") for one in (left, right)]
        short_name = short_names([self.x, self.y])
        for name in (name for side in sides for name in side.names):
            known = {*short_name.values(), self.x, self.y}
            if name not in known:
                raise UserError(f"phase.theory: '{name}' is not an axis of the map. {suggest(name, known)}")

        def height(x: Any, y: Any) -> Any:
            values = {self.x: x, self.y: y, short_name[self.x]: x, short_name[self.y]: y}
            first, second = (side(values) for side in sides)
            return first - second

        return height

    def recipes(self) -> dict[Place, tuple[str, Recipe]]:
        """Return label and recipe at each place of the grid; along a time axis they are the same."""
        places = [{key_of(one): place for place, one in enumerate(self.values(field))} for field in (self.x, self.y)]
        found: dict[Place, tuple[str, Recipe]] = {}
        for point in self.sweep.points():
            across, up = (
                list(some.values()) if field == TIME else [some[key_of(point.fields[field])]]
                for field, some in zip((self.x, self.y), places, strict=True)
            )
            found |= {(i, j): (point.label, point.recipe) for i in across for j in up}
        return found


@dataclasses.dataclass(frozen=True)
class PhaseDiagram(Saved):
    """A map of regions over two fields.

    Attributes
    ----------
    phase
        What was computed.
    found
        What was found at the computed points, by place.
    cells
        The cells into which the grid was divided. Inside a cell all points belong to one region.
    runs, full
        The number of runs that were needed, and the number of runs of the full grid.
    """

    phase: Phase
    found: dict[Place, Found]
    cells: list[Cell]
    runs: int
    full: int

    @property
    def shape(self) -> tuple[int, int]:
        """The number of points along x and y."""
        return self.phase.shape

    @property
    def names(self) -> list[str]:
        """The names of the regions that were found, in their order."""
        return self.phase.measure.regions(sorted({one.region for one in self.found.values()}))

    @property
    def computed(self) -> np.ndarray:
        """Which points of the grid were computed, by x and y."""
        known = np.zeros(self.shape, bool)
        for place in self.found:
            known[place] = True
        return known

    @property
    def regions(self) -> np.ndarray:
        """The region at every point of the grid, as an index into `names`: that of its cell, if it was not computed."""
        whole = np.zeros(self.shape, int)
        for a, b, c, d in self.cells:
            whole[a : b + 1, c : d + 1] = self.names.index(self.found[a, c].region)
        for place, one in self.found.items():
            whole[place] = self.names.index(one.region)
        return whole

    @property
    def values(self) -> np.ndarray:
        """The quantity at every point of the grid; between the corners of a cell it is interpolated."""
        whole = np.full(self.shape, np.nan)
        at = {place: one.value for place, one in self.found.items()}
        positive = all(value > 0 for value in at.values() if np.isfinite(value))
        to, back = (np.log, np.exp) if positive else (np.asarray, np.asarray)
        for a, b, c, d in self.cells:
            s, t = np.linspace(0, 1, b - a + 1)[:, None], np.linspace(0, 1, d - c + 1)
            low = to(at[a, c]) * (1 - t) + to(at[a, d]) * t
            high = to(at[b, c]) * (1 - t) + to(at[b, d]) * t
            whole[a : b + 1, c : d + 1] = back((1 - s) * low + s * high)
        for place, value in at.items():
            whole[place] = value
        return whole

    @property
    def agreement(self) -> float | None:
        """The share of computed points on the side of the theory's line that most of their region is on.

        None without a theory, or if there are not exactly two regions.
        """
        line, xs, ys = self.phase.line, self.phase.values(self.phase.x), self.phase.values(self.phase.y)
        if line is None or len(self.names) != 2:
            return None
        sides = [(line(float(xs[i]), float(ys[j])) > 0) for i, j in self.found]
        second = [one.region == self.names[1] for one in self.found.values()]
        same = float(np.mean(np.equal(sides, second)))
        return max(same, 1 - same)

    def plot(self) -> Figure:
        """Draw the map; see `unlazy.figures.draw_phases`."""
        from unlazy.figures import Axis, phase_figure

        phase = self.phase
        return phase_figure(
            f"{phase.sweep.name}: {self.runs} of {self.full} runs",
            Axis(phase.x, phase.values(phase.x)),
            Axis(phase.y, phase.values(phase.y)),
            self.regions,
            self.names,
            values=self.values if phase.measure.numeric else None,
            threshold=phase.measure.threshold,
            computed=self.computed,
            theory=phase.line,
            quantity=phase.measure.quantity + {"last": "", "ratio": ", last / first"}.get(phase.measure.value, ""),
            theory_name=f"theory: {phase.theory}",
        )

    def table(self) -> tuple[list[str], list[tuple[str, ...]]]:
        """Return the head and the rows of a table of all computed points."""
        xs, ys = self.phase.values(self.phase.x), self.phase.values(self.phase.y)
        rows = []
        for (i, j), one in sorted(self.found.items()):
            value = f"{one.value:.4g}" if np.isfinite(one.value) else ""
            rows.append((words(xs[i]), words(ys[j]), value, one.region))
        return [self.phase.x, self.phase.y, self.phase.measure.quantity, "region"], rows

    def to_dict(self) -> dict[str, Any]:
        phase, measure = self.phase, self.phase.measure
        points = [
            {"place": list(place), "value": finite_or_none(one.value), "region": one.region}
            for place, one in sorted(self.found.items())
        ]
        return {
            "kind": "phase diagram",
            "answer": ", ".join(self.names),
            "reason": self.summary(),
            "x": {"field": phase.x, "values": phase.values(phase.x)},
            "y": {"field": phase.y, "values": phase.values(phase.y)},
            "points": points,
            "regions": [[self.names[one] for one in row] for row in self.regions],
            "runs": self.runs,
            "full": self.full,
            "agreement": self.agreement,
            "settings": {
                "measure": measure.quantity,
                "value": measure.value,
                "threshold": measure.threshold,
                "theory": phase.theory,
            },
        }

    def summary(self) -> str:
        """Return in a sentence how many runs were needed, and how well the theory fits."""
        said = f"{self.runs} of the {self.full} runs of the full grid were needed"
        if len(self.names) == 1:
            return f"{said}, and all are {self.names[0]}: no boundary was found on the coarse grid."
        if self.agreement is None:
            return f"{said}."
        return f"{said}; {self.agreement:.0%} of computed points are on the side of '{self.phase.theory}' that fits."

    def __repr__(self) -> str:
        return f"PhaseDiagram({self.phase.x} x {self.phase.y}: {', '.join(self.names)}; {self.summary()})"


def phase_diagram(phase: Phase, lab: Lab, workers: int = 1) -> PhaseDiagram:
    """Compute a phase diagram: first a coarse grid, then only cells that the boundary crosses.

    Parameters
    ----------
    phase
        What to compute.
    lab
        The lab, which stores all runs.
    workers
        Number of processes, as for `Lab.run_all`.

    Examples
    --------
    >>> phase = Phase.read(Path("examples/phase_lazy.toml"))
    >>> phase_diagram(phase, Lab("runs")).plot()
    """
    recipes, found, done = phase.recipes(), {}, set()
    times = [phase.values(one) for one in (phase.x, phase.y) if one == TIME]

    def evaluate(places: list[Place]) -> None:
        wanted = dict(recipes[place] for place in places)
        results = lab.run_all(wanted, workers)
        done.update(wanted)
        at = {label: place for place in places for label in [recipes[place][0]]}
        for label, (i, j) in at.items():
            if not times:
                found[i, j] = phase.measure.at_end(lab, wanted[label], results[label])
                continue
            for k, one in enumerate(phase.measure.over_time(results[label], times[0])):
                found[(k, j) if phase.x == TIME else (i, k)] = one

    path, manifest = phase.sweep.manifest(lab.store)
    lab.store.prepare()
    manifest.write(path)
    cells = refine(phase.shape, phase.coarse, evaluate, lambda place: found[place].region if place in found else None)
    return PhaseDiagram(phase, found, cells, len(done), len({label for label, _ in recipes.values()}))
