"""Recipes: an experiment as a typed TOML file, and the digest that names its result.

A recipe names members of the rooms and their options, nothing else; what can be named is whatever the rooms hold:

    name = "random labels"
    seeds = 2
    probes = ["train-loss", "feature-movement"]

    [data]
    kind = "random-labels"
    n = 20

    [network]
    kind = "two-layer"
    width = 1024
    activation = "tanh"
    scaling = "mean-field"

    [flow]
    kind = "gradient-flow"
    loss = { kind = "squared", reduction = "mean" }

    [times]
    end = 1000.0
"""

from __future__ import annotations

import hashlib
import inspect
import math
import re
import sys
import tomllib
import types
import typing
from collections.abc import Sequence
from pathlib import Path
from textwrap import shorten
from typing import Annotated, Any, Literal

import equinox as eqx
import jax
import msgspec
import numpy as np

from unlazy import data as _data
from unlazy import flows as _flows
from unlazy import networks as _networks
from unlazy import probes as _probes
from unlazy._catalogue import find, kebab, members, spoken
from unlazy._errors import UserError, suggest
from unlazy._types import PRNGKey
from unlazy.data import Dataset
from unlazy.flows import AtEnd, Flow, Observe
from unlazy.networks import Network
from unlazy.probes import Probe

Section = dict[str, Any] | str  # a member with options, or just its name
Count = Annotated[int, msgspec.Meta(ge=1)]
Natural = Annotated[int, msgspec.Meta(ge=0, lt=2**32)]  # what a key is made of, in 32 bits as in 64


class Times(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """When to look: ``count`` times from 0 to ``end``, evenly spaced or, from ``first`` on, evenly in log t."""

    end: float
    count: Annotated[int, msgspec.Meta(ge=2)] = 51
    spacing: Literal["linear", "log"] = "linear"
    first: float | None = None

    def __post_init__(self) -> None:
        first = self.end / 1000 if self.first is None else self.first
        if not (0 < first < self.end and np.isfinite(self.end)):
            given = f"end = {self.end:g}" + ("" if self.first is None else f" and first = {self.first:g}")
            raise UserError(f"0 < first < end must hold, all finite, not {given}")

    def grid(self) -> np.ndarray:
        """Give the times, 0 first."""
        if self.spacing == "linear":
            return np.linspace(0.0, self.end, self.count)
        first = self.end / 1000 if self.first is None else self.first
        grid = np.geomspace(first, self.end, self.count - 1)
        grid[-1] = self.end
        return np.concatenate([[0.0], grid])


class Recipe(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One experiment: data, network, flow, times and probes, run for a number of seeds."""

    data: Section
    network: Section
    flow: Section = "gradient-flow"
    times: Times | list[float]
    probes: list[Section] = []
    name: str = "run"
    seed: Natural = 0
    seeds: Count = 1
    same_data: bool = False  # all seeds share the data of the first
    dtype: Literal["float32", "float64"] = "float64"

    def __post_init__(self) -> None:
        if isinstance(self.times, Times):
            return
        times = np.asarray(self.times, float)
        if not times.size or not np.all(np.isfinite(times)) or times[0] < 0 or np.any(np.diff(times) <= 0):
            raise UserError(f"times must be finite, increasing and not negative, not {_short(self.times)}")

    @property
    def digest(self) -> str:
        """Twelve hexadecimal digits that name this recipe, whatever order its file was written in."""
        return hashlib.sha256(self.json().encode()).hexdigest()[:12]

    def grid(self) -> np.ndarray:
        """Give the times to look at."""
        return self.times.grid() if isinstance(self.times, Times) else np.asarray(self.times, dtype=float)

    def json(self) -> str:
        """Give the recipe as canonical JSON, as the store keeps it; `parse` reads it."""
        plain = msgspec.to_builtins(self, enc_hook=lambda value: value.tolist())  # a number of NumPy is a number
        return msgspec.json.encode(_written(plain), order="sorted").decode()


def _written(value: Any) -> Any:
    """JSON has no infinity and no NaN: write them as words, which an option that takes a number understands."""
    if isinstance(value, dict):
        return {name: _written(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_written(one) for one in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _short(value: Any) -> str:
    """Show what was given, but not pages of it."""
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


class Experiment(typing.NamedTuple):
    """A recipe brought to life for all its seeds."""

    networks: list[Network]
    data: list[Dataset]
    flow: Flow
    probes: dict[str, Observe]
    times: np.ndarray
    keys: list[PRNGKey]


def parse(table: dict[str, Any], where: str = "recipe") -> Recipe:
    """Check a table (from TOML or JSON) against the form of a recipe."""
    try:
        return msgspec.convert(table, Recipe)
    except msgspec.ValidationError as error:
        place, what = _explain(str(error))
        raise UserError(": ".join(filter(None, (where, place.lstrip("."), what)))) from None


def read(path: Path) -> Recipe:
    """Read a recipe from a TOML file."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise UserError(f"There is no recipe at '{path}': give the path of a TOML file.") from None
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"The recipe '{path}' cannot be read ({error}): give the path of a TOML file.") from None
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UserError(f"{path.name} is not valid TOML: {error}.") from None
    return parse(table, path.name)


def bring_to_life(recipe: Recipe) -> Experiment:
    """Draw data and networks of every seed and build flow and probes; every wrong name or option is an error here."""
    if recipe.dtype == "float64" and not jax.config.read("jax_enable_x64"):
        raise UserError(
            "This recipe asks for float64, but JAX is set to 32 bits: "
            'call jax.config.update("jax_enable_x64", True) first, or set dtype = "float32".'
        )
    flow = build(recipe.flow, Flow, "flow")
    probes: dict[str, Observe] = {}
    for index, section in enumerate(recipe.probes):
        label, probe = _named_probe(section, f"probes[{index}]")
        if label in probes:
            raise UserError(
                f"probes[{index}]: two probes are called '{label}': give one of them a name with as = \"...\"."
            )
        probes[label] = probe
    data, networks, keys = draw_data(recipe), [], []
    with jax.enable_x64(True):  # as for data
        for index, one in enumerate(data):
            _, network_key, flow_key = _keys(recipe.seed + index)
            shape = {"inputs": one.inputs, "outputs": one.outputs, "image": one.x.shape[1:]}
            network = build(recipe.network, Network, "network", key=network_key, **shape)
            networks.append(_cast(network, recipe.dtype))
            keys.append(flow_key)
    return Experiment(networks, data, flow, probes, recipe.grid(), keys)


def draw_data(recipe: Recipe) -> list[Dataset]:
    """Draw the data of every seed, as `bring_to_life` does."""
    seeds = range(recipe.seed, recipe.seed + (1 if recipe.same_data else recipe.seeds))
    with jax.enable_x64(True):  # draws in 32 bits are others, and a recipe has one result however JAX is set
        drawn = [build(recipe.data, Dataset, "data", key=_keys(seed)[0]).astype(recipe.dtype) for seed in seeds]
    return drawn * (recipe.seeds if recipe.same_data else 1)


def _keys(seed: int) -> Any:
    return jax.random.split(jax.random.key(seed), 3)


def _named_probe(section: Section, where: str) -> tuple[str, Observe]:
    """Give a probe and what it is called in the result: its kind, or what ``as`` says; ``when`` says how often."""
    options = {"kind": section} if isinstance(section, str) else dict(section)
    label, when = options.pop("as", None), options.pop("when", "always")
    if when not in ("always", "end"):
        raise UserError(f"{where}.when: a probe looks 'always' or only at the 'end', not {_short(when)}.")
    probe: Observe = build(options, Probe, where)
    probe = AtEnd(probe) if when == "end" else probe
    if label is None:
        return kebab(options["kind"]), probe
    if not (isinstance(label, str) and re.fullmatch(r"[A-Za-z0-9-]+", label)) or label in ("seed", "time"):
        raise UserError(
            f"{where}.as: {_short(label)} cannot name a probe: give letters, digits and hyphens, not 'seed' or 'time'."
        )
    return label, probe


def _cast(network: Network, dtype: str) -> Network:
    return jax.tree.map(lambda leaf: leaf.astype(dtype) if eqx.is_inexact_array(leaf) else leaf, network)


def build(section: Section, base: type, where: str, **given: Any) -> Any:
    """Make the member of ``base``'s room that ``section`` names, with its options checked against its signature.

    What a member needs but a file cannot hold (``key``, ``inputs``, ``image``, ``outputs``) comes in ``given``.
    """
    options = {"kind": section} if isinstance(section, str) else dict(section)
    if not isinstance(options.get("kind"), str):
        known = members(_room(base), base)
        some = shorten(", ".join(sorted(known)), 300, placeholder=f" ... ({len(known)} in all)")
        raise UserError(f'{where}: say which {spoken(base)} with kind = "...". Known: {some}.')
    try:
        maker: Any = find(_room(base), base, options.pop("kind"))
    except UserError as error:
        raise UserError(f"{where}: {error}") from None
    if isinstance(maker, base):  # a ready-made instance
        if options:
            raise UserError(f"{where}: this {spoken(base)} takes no options, but '{min(options)}' was given.")
        return maker
    parameters = inspect.signature(maker).parameters
    arguments = _arguments(options, maker, [name for name in parameters if name not in given], where, given)
    arguments |= {name: value for name, value in given.items() if name in parameters}
    missing = [name for name, p in parameters.items() if p.default is p.empty and name not in arguments]
    if missing:
        raise UserError(f"{where}: the option '{missing[0]}' is missing.")
    try:
        return maker(**arguments)
    except UserError as error:
        raise UserError(f"{where}: {error}") from None
    except (TypeError, ValueError, OverflowError) as error:  # say, a number that does not fit its array
        raise UserError(f"{where}: these options do not work: {str(error).partition(chr(10))[0]}") from error


def _arguments(
    options: dict[str, Any], maker: Any, known: list[str], where: str, given: dict[str, Any]
) -> dict[str, Any]:
    hints = _hints(maker)
    arguments = {}
    for option, value in options.items():
        name = option.replace("-", "_")
        if name in given:
            raise UserError(f"{where}: '{option}' is filled in from the data and the seed: leave it out.")
        if name not in known:
            raise UserError(f"{where}: there is no option '{option}'. {suggest(option, known)}")
        arguments[name] = _convert(value, hints.get(name, Any), f"{where}.{name}", given)
    return arguments


def _hints(maker: Any) -> dict[str, Any]:
    """Give the types of a maker's options; where a field's converter does not say what it takes, the field does."""
    if not inspect.isclass(maker):
        return typing.get_type_hints(maker, include_extras=True)
    # A field that is inherited is annotated in the words of its own module.
    words = {
        name: value for base in reversed(maker.__mro__) for name, value in vars(sys.modules[base.__module__]).items()
    }
    own = typing.get_type_hints(maker.__init__, localns=words, include_extras=True)
    fields = typing.get_type_hints(maker)
    return {name: fields.get(name, hint) if hint is Any else hint for name, hint in own.items()}


def _room(base: type) -> types.ModuleType:
    """A base class lives in its room's `_base`, or in the one public file that holds it and its members."""
    home = base.__module__
    return sys.modules[home.rpartition(".")[0] if home.rpartition(".")[2].startswith("_") else home]


def _convert(value: Any, hint: Any, where: str, given: dict[str, Any]) -> Any:
    choices = typing.get_args(hint) if typing.get_origin(hint) in (typing.Union, types.UnionType) else (hint,)
    kinds = [c for c in choices if _is_kind(c)]
    plain = [c for c in choices if _is_plain(c)]
    lists = [c for c in choices if typing.get_origin(c) in (tuple, list) and not _is_plain(c)]
    if lists and isinstance(value, list):  # members in a list, each with options of its own
        part = typing.get_args(lists[0])[0]
        return tuple(_convert(one, part, f"{where}[{index}]", given) for index, one in enumerate(value))
    if kinds and isinstance(value, str | dict):
        return build(value, kinds[0], where, **given)
    nothing_plain = set(plain) <= {type(None)} and value is not None
    if kinds and nothing_plain:
        raise UserError(f"{where}: {_short(value)} is no {spoken(kinds[0])}: give its name, or a table with its kind.")
    if nothing_plain:
        raise UserError(f"{where}: this cannot be written in a recipe, only in Python: leave it out.")
    if float in plain or any(float in typing.get_args(choice) for choice in plain):
        value = _numbers(value)
    try:
        return msgspec.convert(value, typing.Union[tuple(plain)])  # noqa: UP007
    except msgspec.ValidationError as error:
        words = [word for choice in plain if typing.get_origin(choice) is Literal for word in typing.get_args(choice)]
        place, what = _explain(str(error), words)
        raise UserError(f"{where}{place}: {what}") from None


def _numbers(value: Any) -> Any:
    """Read what `Recipe.json` writes for infinity and NaN, alone or in a list."""
    if isinstance(value, list):
        return [_numbers(one) for one in value]
    return float(value) if value in ("inf", "-inf", "nan") else value


def _is_kind(hint: Any) -> bool:
    """Whether it is a class whose members have names."""
    return inspect.isclass(hint) and hint.__module__.startswith("unlazy") and issubclass(hint, eqx.Module)


def _is_plain(hint: Any) -> bool:
    """Whether a file can hold it."""
    if typing.get_origin(hint) in (tuple, list):
        return all(_is_plain(part) for part in typing.get_args(hint) if part is not Ellipsis)
    return hint in (int, float, str, bool, type(None), Any) or typing.get_origin(hint) in (Literal, Annotated)


def _explain(message: str, words: Sequence[str] = ()) -> tuple[str, str]:
    """Turn a validation message into the place (".times.end") and a sentence, with a suggestion where there is one."""
    what, _, place = message.partition(" - at `$")
    place = place.rstrip("`")
    form = Times if place.startswith(".times") else Recipe
    quoted = re.search(r"[`'](.*)[`']", what)
    name = quoted[1] if quoted else ""
    if "unknown field" in what:
        return place, f"there is no field '{name}'. {suggest(name, form.__struct_fields__)}"
    if "required field" in what:
        return place, f"the field '{name}' is missing."
    if "Invalid enum value" in what:
        words = words or typing.get_args(typing.get_type_hints(form)[place.rpartition(".")[2]])
        return place, f"there is no choice '{name}'. {suggest(name, words)}"
    return place, what.replace("`", "'").replace("object", "table") + "."


_ROOMS = (_data, _networks, _flows, _probes)  # imported so that every room is there to be looked into
