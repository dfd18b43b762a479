"""Fields of a recipe by dotted names, such as ``network.width`` or ``probes.kernel.samples``."""

from __future__ import annotations

import collections.abc
import tomllib
import typing
from collections.abc import Mapping
from typing import Annotated, Any

from unlazy._errors import UserError, article, short, suggest
from unlazy._files import by_field, probe_names
from unlazy.lab import sections
from unlazy.lab.recipe import Recipe

_SECTIONS = ("data", "network", "flow")  # which are named like the kinds of the registry
_NUMBERS = ("seed", "seeds", "same_data", "dtype")
_LISTS = (list, tuple, collections.abc.Sequence)


def with_field(table: Mapping[str, Any], field: str, value: Any) -> dict[str, Any]:
    """Return a copy of a recipe's table in which one field has another value.

    Parameters
    ----------
    table
        The recipe as a table.
    field
        The name of the field, with dots: ``"seeds"``, ``"network.width"``, ``"flow.loss.reduction"``. An element of a
        list is named by its number, counted from 0, and a probe also by its name: ``"probes.kernel.samples"``. A
        section that is only a name becomes a table.
    value
        The new value.

    Returns
    -------
    dict
        The new table; ``table`` itself is not changed. Whether the member has such an option is checked when the
        recipe is used.
    """
    parts = field.split(".")
    if not all(parts):
        raise UserError(f"'{field}' is not the name of a field: write it like 'network.width'.")
    if len(parts) > 1 and parts[0] in (*_NUMBERS, "name"):
        raise UserError(f"There is no field '{field}': '{parts[0]}' is one value and has no fields.")
    if parts[0] not in Recipe.__struct_fields__:
        raise UserError(f"There is no field '{field}' in a recipe. {_nearest(field, parts, table)}")
    return _set(dict(table), parts, value, field, "")


def field_value(table: Mapping[str, Any], field: str) -> Any:
    """Return the value of a field, named as in `with_field`, of a recipe's table."""
    node: Any = dict(table)
    for depth, part in enumerate(field.split(".")):
        node = {"kind": node} if isinstance(node, str) else node
        before = ".".join(field.split(".")[:depth])
        if isinstance(node, list):
            node = node[_place(node, part, field, before)]
        elif isinstance(node, dict) and (key := _key(node, part)) in node:
            node = node[key]
        elif not before and part in ("seed", "seeds"):
            node = {"seed": 0, "seeds": 1}[part]
        else:
            known = sorted(fields_of(table))
            raise UserError(f"The recipe does not set '{field}'. {suggest(field, known)}")
    return node


def fields_of(table: Mapping[str, Any]) -> dict[str, Any]:
    """Return all fields that a recipe's table sets, with their values."""
    found: dict[str, Any] = {}
    for name, node in table.items():
        if name == "probes" and isinstance(node, list):
            for label, probe in zip(probe_names(table), node, strict=False):
                found |= by_field(probe, f"probes.{label}") if isinstance(probe, dict) else {}
        else:
            found |= by_field(node, name)
    return found


def parse_setting(text: str) -> tuple[str, Any]:
    """Split a setting of the command line, such as ``network.width=512``, into a field and a value.

    Parameters
    ----------
    text
        The setting. Its value is written as in TOML; text that is not TOML, such as ``ntk``, stands for itself.
    """
    field, equals, written = text.partition("=")
    field, written = field.strip(), written.strip()
    if not equals or not field or not written:
        raise UserError(f"--set {text}: write a field and its value, such as --set network.width=512.")
    try:
        return field, tomllib.loads(f"value = {written}")["value"]
    except (tomllib.TOMLDecodeError, KeyError):
        if written[0] in "[{\"'":  # meant as TOML
            raise UserError(f"--set {text}: {short(written)} is not a value in TOML.") from None
        return field, written


def _set(node: Any, parts: list[str], value: Any, field: str, before: str) -> Any:
    part, rest = parts[0], parts[1:]
    if isinstance(node, str):
        node = {"kind": node}
    if isinstance(node, list):
        place = _place(node, part, field, before)
        inner = _set(node[place], rest, value, field, f"{before}.{part}") if rest else value
        return [*node[:place], inner, *node[place + 1 :]]
    if not isinstance(node, dict):
        kind = type(node).__name__.replace("float", "number").replace("int", "number")
        what = f"{article(kind)} ({short(node)})"
        raise UserError(f"There is no field '{field}': '{before}' is {what} and has no fields.")
    key = _key(node, part)
    if not rest:
        return {**node, key: value}
    inner = node.get(key, "gradient-flow" if (before, part) == ("", "flow") else {})
    return {**node, key: _set(inner, rest, value, field, f"{before}.{part}".lstrip("."))}


def _key(node: Mapping[str, Any], part: str) -> str:
    """Return the key of a table for an option, which may be written with hyphens or underscores."""
    return next((key for key in node if key.replace("-", "_") == part.replace("-", "_")), part)


def _place(node: list[Any], part: str, field: str, before: str) -> int:
    names = probe_names({"probes": node}) if before == "probes" else []
    if part in names:
        return names.index(part)
    if part.isdecimal():
        if int(part) < len(node):
            return int(part)
        raise UserError(f"There is no field '{field}': '{before}' has only {len(node)} elements, counted from 0.")
    if not names:
        raise UserError(f"There is no field '{field}': '{before}' is a list, whose elements are named by numbers.")
    raise UserError(f"There is no field '{field}': no probe is called '{part}'. {suggest(part, names)}")


def _nearest(field: str, parts: list[str], table: Mapping[str, Any]) -> str:
    near = suggest(parts[0], Recipe.__struct_fields__)
    if len(parts) > 1 and near.startswith("Did you mean '"):
        return f"Did you mean '{'.'.join([near.split(chr(39))[1], *parts[1:]])}'?"
    found = suggest(field, fields_of(table)) if table else ""
    return found if found.startswith("Did") else near


# ---------------------------------------------------------------- lists that stand for several values


def lists_in(table: Mapping[str, Any]) -> dict[str, list[Any]]:
    """Return the fields of a recipe's table that have a list where one value is wanted.

    The type of an option decides: a list for an option that takes lists, such as ``channels``, or whose type is not
    known, is one value.
    """
    found = {name: table[name] for name in (*_SECTIONS, *_NUMBERS) if isinstance(table.get(name), list)}
    for name in _SECTIONS:
        if isinstance(table.get(name), dict):
            found |= _lists(table[name], name, name)
    if isinstance(table.get("times"), dict):
        found |= {f"times.{name}": one for name, one in table["times"].items() if isinstance(one, list)}
    probes = table.get("probes")
    for index, probe in enumerate(probes if isinstance(probes, list) else ()):
        if isinstance(probe, dict):
            found |= _lists(probe, "probe", f"probes.{index}")
    return found


def _lists(section: dict[str, Any], kind: str | type, where: str) -> dict[str, list[Any]]:
    if isinstance(section.get("kind"), list):
        return {f"{where}.kind": section["kind"]}
    kind, (name, options) = sections.registered(kind), sections.split(section)
    if name is None:
        return {}
    with sections.located(where):
        hints = sections.hints_of(sections.find_maker(kind, name))
    found: dict[str, list[Any]] = {}
    for option, value in options.items():
        hint, place = hints.get(option.replace("-", "_"), Any), f"{where}.{option}"
        accepted = sections.accepted(hint)
        if isinstance(value, list) and not _takes_lists(hint):
            found[place] = value
        elif isinstance(value, dict) and accepted.kinds:
            found |= _lists(value, sections.right_kind(accepted.kinds, value), place)
    return found


def _takes_lists(hint: Any) -> bool:
    """Whether an option of this type may be a list, as far as its type says."""
    if typing.get_origin(hint) is Annotated:
        return _takes_lists(typing.get_args(hint)[0])
    choices = sections.accepted(hint).choices
    return any(one is Any or (typing.get_origin(one) or one) in _LISTS for one in choices)
