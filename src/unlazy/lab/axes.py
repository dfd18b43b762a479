"""The parts of a sweep: lists of points, each a dictionary of fields, from grids, zipped lists, draws and tables."""

from __future__ import annotations

import itertools
import json
import math
import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from unlazy._errors import UserError, short, suggest
from unlazy._plain import is_count, is_number

Fields = dict[str, Any]  # values by dotted name of the field

_RANGE = ("from", "to", "count", "spacing")
_TRIES = 100  # draws for each point that is wanted, before a random part is said to have too few different points


def flat(table: Any, where: str, leaf: Callable[[Any], bool]) -> Fields:
    """Return the fields of a table, which may be written as ``"network.width"`` or, nested, as ``network.width``.

    ``leaf`` recognises tables that are the value of a field, and not a table of fields; ``where`` is the place in the
    file, for error messages.
    """
    if not isinstance(table, Mapping):
        raise UserError(f"{where}: expected a table of fields, not {short(table)}.")

    def walk(node: Any, name: str) -> Iterator[tuple[str, Any]]:
        if not isinstance(node, Mapping) or "kind" in node or leaf(node):
            yield name, node
            return
        if not node:
            raise UserError(f"{where}.{name}: there is nothing in this table.")
        for part, one in node.items():
            yield from walk(one, f"{name}.{part}")

    found: Fields = {}
    for name, node in table.items():
        for field, value in walk(node, str(name)):
            if field in found:
                raise UserError(f"{where}: '{field}' is given twice.")
            found[field] = value
    return found


def is_range(node: Any) -> bool:
    """Whether something is a range of numbers, such as ``{ from = 1, to = 5, count = 5 }``."""
    return isinstance(node, Mapping) and "from" in node


def values_of(given: Any, where: str) -> list[Any]:
    """Return the values of one axis: those of a list, or evenly spaced numbers between two ends.

    If both ends are written as whole numbers, all values are rounded to whole numbers.
    """
    if isinstance(given, list):
        found = given
    elif is_range(given):
        found = _spaced(given, where)
    else:
        how = 'a list of values, or { from = 0.1, to = 10.0, count = 5, spacing = "log" }'
        raise UserError(f"{where}: expected {how}, not {short(given)}.")
    if not found:
        raise UserError(f"{where}: the list is empty, so there is nothing to run: give at least one value.")
    seen: dict[str, int] = {}
    for place, value in enumerate(found):
        if seen.setdefault(key_of(value), place) != place:
            raise UserError(f"{where}: {short(value)} is given twice.")
    return found


def _spaced(given: Mapping[str, Any], where: str) -> list[Any]:
    unknown = set(given) - set(_RANGE)
    if unknown:
        raise UserError(f"{where}: there is no '{min(unknown)}' in a range. {suggest(min(unknown), _RANGE)}")
    ends: list[Any] = [given.get(name) for name in _RANGE]
    low, high, count, spacing = ends
    if not _number(low) or not _number(high) or not is_count(count, 2):
        rule = "numbers 'from' and 'to' and a 'count' of at least 2"
        raise UserError(f"{where}: a range has {rule}, not {short(given)}.")
    if low == high or spacing not in (None, "linear", "log") or (spacing == "log" and min(low, high) <= 0):
        rule = 'different ends, which are positive for spacing = "log" (the other is "linear")'
        raise UserError(f"{where}: a range has {rule}, not {short(dict(given))}.")
    spread = np.geomspace(low, high, count) if spacing == "log" else np.linspace(low, high, count)
    if isinstance(low, int) and isinstance(high, int):
        return [int(value) for value in dict.fromkeys(np.round(spread).tolist())]
    # Without the noise of rounding, so that a value means the same however its range is written.
    return [float(f"{value:.12g}") for value in spread]


def _number(value: Any) -> bool:
    return is_number(value) and math.isfinite(value)


def key_of(value: Any) -> str:
    """Return text that is equal for equal values of a field, whether 1 or 1.0 is written."""

    def plain(one: Any) -> Any:
        if isinstance(one, Mapping):
            return {str(name): plain(inner) for name, inner in one.items()}
        if isinstance(one, list | tuple):
            return [plain(inner) for inner in one]
        return float(one) if is_number(one) else one

    return json.dumps(plain(value), sort_keys=True, default=str)


# ---------------------------------------------------------------- the four parts


def grid(table: Any, where: str = "sweep.grid") -> list[list[Fields]]:
    """Return one part for each field, with a point for each value in its list or range."""
    given = flat(table, where, is_range)
    return [[{field: one} for one in values_of(value, f"{where}.{field}")] for field, value in given.items()]


def zipped(table: Any, where: str = "sweep.zip") -> list[Fields]:
    """Return one part that takes the first values of all lists together, then the second values, and so on."""
    given = flat(table, where, is_range)
    if not given:
        raise UserError(f"{where}: there is no field in it.")
    lists = {}
    for field, value in given.items():
        lists[field] = _spaced(value, f"{where}.{field}") if is_range(value) else value
        if not isinstance(lists[field], list) or not lists[field]:
            raise UserError(f"{where}.{field}: expected a list of at least one value, not {short(value)}.")
    lengths = {field: len(one) for field, one in lists.items()}
    if len(set(lengths.values())) > 1:
        said = ", ".join(f"{field} has {count}" for field, count in lengths.items())
        raise UserError(f"{where}: lists that are zipped have the same length, but {said}.")
    return [dict(zip(lists, row, strict=True)) for row in zip(*lists.values(), strict=True)]


_LAWS: dict[str, Callable[[np.random.Generator, Any, Any], Any]] = {
    "uniform": lambda rng, low, high: float(rng.uniform(low, high)),
    "log-uniform": lambda rng, low, high: float(np.exp(rng.uniform(np.log(low), np.log(high)))),
    "integer": lambda rng, low, high: int(rng.integers(low, high, endpoint=True)),
    # Uniform in log between low - 1/2 and high + 1/2, rounded: the ends are as likely as their neighbours.
    "log-integer": lambda rng, low, high: round(float(np.exp(rng.uniform(np.log(low - 0.5), np.log(high + 0.5))))),
}


def drawn(table: Any, limit: int, where: str = "sweep.random") -> list[Fields]:
    """Return one part of ``count`` different random points; with a larger ``count`` the first ones stay the same.

    The table has ``count``, ``seed`` (0 if omitted), and a law for each field: ``{ uniform = [low, high] }``,
    ``log-uniform``, ``integer``, ``log-integer`` (both ends included) or ``{ choice = [...] }``.
    """
    if not isinstance(table, Mapping):
        raise UserError(f"{where}: expected a table with count and fields, not {short(table)}.")
    known = {*_LAWS, "choice"}
    rest = {name: one for name, one in table.items() if name not in ("count", "seed")}
    given = flat(rest, where, lambda node: len(node) == 1 and isinstance(next(iter(node.values())), list))
    count: Any = table.get("count")
    seed: Any = table.get("seed", 0)
    for name, value, least in (("count", count, 1), ("seed", seed, 0)):
        if not is_count(value, least):
            raise UserError(f"{where}.{name}: expected a whole number of at least {least}, not {short(value)}.")
    if count > limit:
        raise UserError(f"{where}.count: {count:,} points are more than the limit of {limit:,}: raise it with --limit.")
    if not given:
        raise UserError(f"{where}: there is no field in it.")
    draws = {}
    for field, law in given.items():
        place = f"{where}.{field}"
        if not isinstance(law, Mapping) or len(law) != 1:
            raise UserError(f"{place}: write how it is drawn, such as {{ uniform = [0.0, 1.0] }}, not {short(law)}.")
        ((name, ends),) = law.items()
        if name not in known:
            raise UserError(f"{place}: there is no '{name}' to draw from. {suggest(name, known)}")
        draws[field] = _draw(name, ends, place), np.random.default_rng([seed, zlib.crc32(field.encode())])
    found: dict[str, Fields] = {}
    for _ in range(_TRIES * count):
        point = {field: draw(rng) for field, (draw, rng) in draws.items()}
        found.setdefault(key_of(point), point)
        if len(found) == count:
            return list(found.values())
    raise UserError(f"{where}: there are not {count} different points to draw (only {len(found)} were found).")


def _draw(name: str, ends: Any, where: str) -> Callable[[np.random.Generator], Any]:
    if name == "choice":
        if not isinstance(ends, list) or not ends:
            raise UserError(f"{where}: choice is a list of at least one value, not {short(ends)}.")
        return lambda rng: ends[int(rng.integers(len(ends)))]
    whole = name.endswith("integer")
    fine = isinstance(ends, list) and len(ends) == 2 and all(map(_number, ends)) and ends[0] < ends[1]
    if not fine or (whole and not all(isinstance(one, int) for one in ends)) or (name[:3] == "log" and ends[0] <= 0):
        kind = ("positive " if name[:3] == "log" else "") + ("whole numbers" if whole else "numbers")
        raise UserError(f"{where}: {name} is a list of two increasing {kind}, not {short(ends)}.")
    return lambda rng: _LAWS[name](rng, *ends)


def explicit(tables: Any, where: str = "sweep.points") -> list[Fields]:
    """Return one part of the given points, which must all have the same fields."""
    if not isinstance(tables, list) or not tables:
        raise UserError(f"{where}: expected a list of tables of fields, not {short(tables)}.")
    found = [flat(one, f"{where}[{index}]", lambda _: False) for index, one in enumerate(tables)]
    for index, one in enumerate(found):
        lacking = [field for field in found[0] if field not in one]
        more = [field for field in one if field not in found[0]]
        if lacking or more:
            which = f"does not give '{lacking[0]}'" if lacking else f"gives '{more[0]}'"
            raise UserError(f"{where}[{index}] {which}, unlike the first one: all points have the same fields.")
    if not found[0]:
        raise UserError(f"{where}: there is no field in it.")
    return found


def product(parts: list[list[Fields]]) -> Iterator[Fields]:
    """Combine each point of a part with each of the others; the last part changes fastest."""
    for chosen in itertools.product(*parts):
        yield {field: value for one in chosen for field, value in one.items()}
