"""Sweeps: a recipe in which some fields take several values; docs/sweeps.md describes the file.

A grid, zipped lists, random draws and individual points are the parts of a sweep, and all parts are combined with each
other. A field that begins with ``variables.`` is not part of the recipe: derived fields are computed from it.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from unlazy._errors import UserError, short
from unlazy._plain import is_count
from unlazy.lab import axes
from unlazy.lab.axes import Fields, key_of
from unlazy.lab.expressions import Expression
from unlazy.lab.fields import field_value, lists_in, with_field
from unlazy.lab.made_by import provenance
from unlazy.lab.manifest import SUFFIX, Entry, Manifest, distinct_words
from unlazy.lab.recipe import Recipe, parse, read_table
from unlazy.lab.sections import located
from unlazy.lab.store import Store

LIMIT = 10_000
VARIABLE = "variables."
_PARTS = ("grid", "zip", "random", "points", "derived", "limit")


class Point(NamedTuple):
    """One run of a sweep.

    Attributes
    ----------
    label
        Its swept fields in words, such as ``"width=64 rate=0.1"``; different for every point of a sweep.
    fields
        The values of the swept fields, by name.
    derived
        The values of the derived fields, by name.
    recipe
        The recipe.
    """

    label: str
    fields: Fields
    derived: Fields
    recipe: Recipe


@dataclasses.dataclass(frozen=True)
class Sweep:
    """A recipe in which some fields take several values. All parts are combined, each point with each.

    Attributes
    ----------
    base
        The recipe, or its table. A list where one value is wanted is part of the grid.
    grid
        For each field a list of values, or a range ``{"from": 0.1, "to": 10.0, "count": 5, "spacing": "log"}``.
    zip
        Tables of fields whose lists advance together.
    random
        Random draws: ``count``, ``seed``, and for each field a law such as ``{"log-uniform": [1e-3, 1.0]}``.
    explicit
        Points that are given one by one, each with values of the same fields.
    derived
        Fields that are computed from others, as arithmetic expressions: ``{"flow.rate": "0.1 / network.width"}``. They
        may use variables, which are swept as ``variables.gamma``, say, and called ``gamma`` in expressions.
    limit
        The largest number of points that is allowed.
    where
        The name of the file, for error messages.

    Examples
    --------
    >>> sweep = Sweep(recipe, grid={"network.width": [64, 128, 256], "seed": [0, 1]})
    >>> results = Lab("runs").sweep(sweep, workers=2)  # datasets by label, such as "width=64 seed=0"
    """

    base: Recipe | Mapping[str, Any]
    grid: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    zip: Mapping[str, Any] | Sequence[Mapping[str, Any]] = ()
    random: Mapping[str, Any] | None = None
    explicit: Sequence[Mapping[str, Any]] | None = None
    derived: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    limit: int = LIMIT
    where: str = "sweep"

    def __post_init__(self) -> None:
        if not is_count(self.limit):
            raise UserError(f"{self.where}: limit is a whole number of at least 1, not {short(self.limit)}.")
        with located(self.where):
            _ = self._parts, self._rules  # wrong parts are refused at once

    @classmethod
    def read(cls, path: Path, settings: Iterable[tuple[str, Any]] = (), limit: int | None = None) -> Sweep:
        """Read a sweep from a TOML file.

        Parameters
        ----------
        path
            The file: a recipe with a section ``sweep``, or with lists where single values are wanted.
        settings
            Fields and their values, which replace those of the file.
        limit
            The largest number of points, instead of that in the file.
        """
        return cls.parse(read_table(path), settings, limit, path.name)

    @classmethod
    def parse(
        cls,
        table: Mapping[str, Any],
        settings: Iterable[tuple[str, Any]] = (),
        limit: int | None = None,
        where: str = "sweep",
    ) -> Sweep:
        """Make a sweep from the table of a file, as `read` does.

        Parameters
        ----------
        table
            The content of the file.
        settings, limit
            As for `read`.
        where
            A name for the table in error messages.
        """
        base = {name: one for name, one in table.items() if name not in ("sweep", "phase")}
        section = table.get("sweep", {})
        if not isinstance(section, Mapping):
            raise UserError(f"{where}: sweep: expected a table, not {short(section)}.")
        given = {name: section[name] for name in _PARTS if name in section}
        with located(where):
            grid = axes.flat({k: v for k, v in section.items() if k not in _PARTS}, "sweep", axes.is_range)
            more = axes.flat(given.get("grid", {}), "sweep.grid", axes.is_range)
            if both := set(grid) & set(more):
                raise UserError(f"'{min(both)}' is in both [sweep] and [sweep.grid]: remove one.")
            grid |= more
            for field, value in settings:
                if field in grid:
                    grid[field] = value if isinstance(value, list) else [value]
                else:
                    base = with_field(base, field, value)
            derived = axes.flat(given.get("derived", {}), "sweep.derived", lambda _: False)
        most = given.get("limit", LIMIT) if limit is None else limit
        sweep = cls(base, grid, given.get("zip", ()), given.get("random"), given.get("points"), derived, most, where)
        given_by_others = {*sweep.fields, *sweep.derived} - {*sweep.inline, *grid}
        for field, _ in settings:
            if field in given_by_others:
                raise UserError(f"{where}: '{field}' cannot be set, as the sweep gives its values: change the file.")
        return sweep

    @property
    def name(self) -> str:
        """The name of the recipe."""
        return str(self._table.get("name", "run"))

    @property
    def fields(self) -> list[str]:
        """The swept fields, in order."""
        return [field for part in self._parts for field in part[0]]

    @property
    def inline(self) -> list[str]:
        """Those swept fields that are lists in the recipe itself."""
        return list(self._inline)

    def __len__(self) -> int:
        return math.prod(len(part) for part in self._parts)

    @functools.cached_property
    def _table(self) -> dict[str, Any]:
        return json.loads(self.base.json()) if isinstance(self.base, Recipe) else dict(self.base)

    @functools.cached_property
    def _inline(self) -> dict[str, list[Any]]:
        return lists_in(self._table)

    @functools.cached_property
    def _rules(self) -> dict[str, Expression]:
        return {field: Expression(text, f"sweep.derived.{field}") for field, text in self.derived.items()}

    @functools.cached_property
    def _parts(self) -> list[list[Fields]]:
        parts = [[{field: one} for one in axes.values_of(some, field)] for field, some in self._inline.items()]
        parts += axes.grid(self.grid, "sweep")
        for one in [self.zip] if isinstance(self.zip, Mapping) else self.zip:
            parts.append(axes.zipped(one))
        if self.random is not None:
            parts.append(axes.drawn(self.random, self.limit))
        if self.explicit is not None:
            parts.append(axes.explicit(self.explicit))
        if not parts:
            how = "give a section [sweep], such as network.width = [64, 128], or lists in the recipe"
            raise UserError(f"no field has several values, so there is nothing to sweep over: {how}.")
        fields = [field for part in parts for field in part[0]]
        for field in [*fields, *self.derived]:
            if field == "name" or [*fields, *self.derived].count(field) > 1:
                why = "is the name of the whole sweep" if field == "name" else "is given values in two places"
                raise UserError(f"'{field}' {why}: remove it from the sweep.")
            if field.startswith(VARIABLE):
                self._check_variable(field)
            else:
                with_field(self._table, field, None)  # raises if there can be no such field
        return parts

    def _check_variable(self, field: str) -> None:
        name = field.removeprefix(VARIABLE)
        if not name.isidentifier():
            raise UserError(f"'{field}': the name of a variable has letters, digits and underscores only.")
        if not any({name, field} & set(rule.names) for rule in self._rules.values()):
            how = f'use it there, as in network.scale = "network.width ** -{name}"'
            raise UserError(f"'{field}' appears in no field of [sweep.derived]: {how}.")

    def axes(self) -> dict[str, list[Any]]:
        """Return, for each swept field, its different values in order."""
        found: dict[str, dict[str, Any]] = {}
        for part in self._parts:
            for point in part:
                for field, value in point.items():
                    found.setdefault(field, {}).setdefault(key_of(value), value)
        return {field: list(values.values()) for field, values in found.items()}

    def points(self) -> list[Point]:
        """Return all points; a wrong field or value, or a point that occurs twice, raises a `UserError`."""
        if len(self) > self.limit:
            advice = "take fewer values, or raise it with --limit or limit = ... in [sweep]"
            limit = f"more than the limit of {self.limit:,}"
            raise UserError(f"{self.where}: there are {len(self):,} points, {limit}: {advice}.")
        with located(self.where):
            return list(self._points)

    @functools.cached_property
    def _points(self) -> list[Point]:
        chosen = list(axes.product(self._parts))
        found: dict[str, Point] = {}
        seen: dict[str, str] = {}
        for label, fields in zip(labels(chosen), chosen, strict=True):
            table, derived = self.table_of(fields)
            recipe = parse(table | {"name": f"{self.name}: {label}"}, label)
            same = seen.setdefault(key_of(table), label)
            if same != label or label in found:
                raise UserError(f"two points of the sweep are the same run ('{same}' and '{label}'): remove one.")
            found[label] = Point(label, fields, derived, recipe)
        return list(found.values())

    def table_of(self, fields: Fields) -> tuple[dict[str, Any], Fields]:
        """Return the table of the recipe with the given values of fields, and the values of derived fields.

        Parameters
        ----------
        fields
            The values, by name of the field.
        """
        table, derived = self._table, {}
        variables = {name: value for name, value in fields.items() if name.startswith(VARIABLE)}
        variables |= {name.removeprefix(VARIABLE): value for name, value in variables.items()}
        for field, value in fields.items():
            if field not in variables:
                table = with_field(table, field, value)
        for field, rule in self._rules.items():
            known = {name: variables[name] if name in variables else field_value(table, name) for name in rule.names}
            derived[field] = rule(known)
            table = with_field(table, field, derived[field])
        return table, derived

    def recipes(self) -> dict[str, Recipe]:
        """Return the recipe of each point, by label."""
        return {point.label: point.recipe for point in self.points()}

    def manifest(self, store: Store, points: Sequence[Point] | None = None) -> tuple[Path, Manifest]:
        """Return the list of all runs, and the path where `unlazy sweep` writes it in a store.

        Parameters
        ----------
        store
            The store.
        points
            The points, if they are known already.
        """
        points = self.points() if points is None else points
        entries = [
            Entry(
                label=one.label,
                fields=one.fields,
                derived=one.derived,
                digest=one.recipe.digest,
                file=store.path(one.recipe).name,
            )
            for one in points
        ]
        base = {name: one for name, one in self._table.items() if name != "name"}
        named = json.dumps([base, [one.fields | one.derived for one in entries]], sort_keys=True)
        digest = hashlib.sha256(named.encode()).hexdigest()[:12]
        whole = Manifest(
            sweep=self.name, digest=digest, axes=self.axes(), points=entries, base=self._table, made_by=provenance()
        )
        return store.named(self.name, digest).with_suffix(SUFFIX), whole


def labels(points: Sequence[Fields]) -> list[str]:
    """Return a label for each point, from the ends of the fields' names, as short as possible."""
    names = short_names(list(points[0]))
    columns = [distinct_words([point[field] for point in points]) for field in names]
    return [" ".join(map("{}={}".format, names.values(), row)) for row in zip(*columns, strict=True)]


def short_names(fields: Sequence[str]) -> dict[str, str]:
    """Return, for each field, the shortest end of its name that no other field shares."""
    found = {}
    for field in fields:
        parts = field.split(".")
        ends = (".".join(parts[-count:]) for count in range(1, len(parts) + 1))
        own = (end for end in ends if end != "kind" and sum(f".{one}".endswith(f".{end}") for one in fields) == 1)
        found[field] = next(own, field)
    return found
