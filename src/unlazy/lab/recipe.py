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
import sys
import tomllib
import types
import typing
from pathlib import Path
from typing import Annotated, Any, Literal

import equinox as eqx
import jax
import msgspec
import numpy as np

from unlazy import data as _data
from unlazy import flows as _flows
from unlazy import networks as _networks
from unlazy import probes as _probes
from unlazy._catalogue import find, kebab, members
from unlazy._errors import UserError, suggest
from unlazy._types import PRNGKey
from unlazy.data import Dataset
from unlazy.flows import Flow
from unlazy.networks import Network
from unlazy.probes import Probe

Section = dict[str, Any] | str  # a member with options, or just its name
Count = Annotated[int, msgspec.Meta(ge=1)]
Natural = Annotated[int, msgspec.Meta(ge=0)]


class Times(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """When to look: ``count`` times from 0 to ``end``, evenly spaced or, from ``first`` on, evenly in log t."""

    end: float
    count: Annotated[int, msgspec.Meta(ge=2)] = 51
    spacing: Literal["linear", "log"] = "linear"
    first: float | None = None

    def __post_init__(self) -> None:
        first = self.end / 1000 if self.first is None else self.first
        if not (0 < first < self.end and np.isfinite(self.end)):
            raise ValueError("times need 0 < first < end")

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

    @property
    def digest(self) -> str:
        """Twelve hexadecimal digits that name this recipe, whatever order its file was written in."""
        return hashlib.sha256(msgspec.json.encode(self, order="sorted")).hexdigest()[:12]

    def grid(self) -> np.ndarray:
        """Give the times to look at."""
        return self.times.grid() if isinstance(self.times, Times) else np.asarray(self.times, dtype=float)

    def json(self) -> str:
        """Give the recipe as canonical JSON, as the store keeps it."""
        return msgspec.json.encode(self, order="sorted").decode()


class Experiment(typing.NamedTuple):
    """A recipe brought to life for all its seeds."""

    networks: list[Network]
    data: list[Dataset]
    flow: Flow
    probes: dict[str, Probe]
    times: np.ndarray
    keys: list[PRNGKey]


def parse(table: dict[str, Any], where: str = "recipe") -> Recipe:
    """Check a table (from TOML or JSON) against the form of a recipe."""
    try:
        return msgspec.convert(table, Recipe)
    except msgspec.ValidationError as error:
        raise UserError(f"{where}: {_explain(str(error))}") from None


def read(path: Path) -> Recipe:
    """Read a recipe from a TOML file."""
    try:
        text = path.read_text(encoding="utf-8")
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
    probes: dict[str, Probe] = {}
    for index, section in enumerate(recipe.probes):
        options = dict(section) if isinstance(section, dict) else section
        label = options.pop("as", None) if isinstance(options, dict) else None
        label = label or kebab(options["kind"] if isinstance(options, dict) and "kind" in options else str(options))
        if label in probes:
            raise UserError(
                f"probes[{index}]: two probes are called '{label}': give one of them a name with as = \"...\"."
            )
        probes[label] = build(options, Probe, f"probes[{index}]")
    data, networks, keys = [], [], []
    for seed in range(recipe.seed, recipe.seed + recipe.seeds):
        data_key, network_key, flow_key = jax.random.split(jax.random.key(seed), 3)
        if recipe.same_data and data:
            data.append(data[0])
        else:
            data.append(build(recipe.data, Dataset, "data", key=data_key).astype(recipe.dtype))
        shape = {"inputs": data[-1].inputs, "outputs": data[-1].outputs}
        network = build(recipe.network, Network, "network", key=network_key, **shape)
        networks.append(_cast(network, recipe.dtype))
        keys.append(flow_key)
    return Experiment(networks, data, flow, probes, recipe.grid(), keys)


def _cast(network: Network, dtype: str) -> Network:
    return jax.tree.map(lambda leaf: leaf.astype(dtype) if eqx.is_inexact_array(leaf) else leaf, network)


def build(section: Section, base: type, where: str, **given: Any) -> Any:
    """Make the member of ``base``'s room that ``section`` names, with its options checked against its signature.

    What a member needs but a file cannot hold (``key``, ``inputs``, ``outputs``) comes in ``given``.
    """
    options = {"kind": section} if isinstance(section, str) else dict(section)
    if "kind" not in options:
        known = ", ".join(members(_room(base), base))
        raise UserError(f'{where}: say which {base.__name__.lower()} with kind = "...". Known: {known}.')
    try:
        maker: Any = find(_room(base), base, str(options.pop("kind")))
    except UserError as error:
        raise UserError(f"{where}: {error}") from None
    if isinstance(maker, base):  # a ready-made instance
        if options:
            raise UserError(f"{where}: this {base.__name__.lower()} takes no options, but '{min(options)}' was given.")
        return maker
    hints = typing.get_type_hints(maker.__init__ if inspect.isclass(maker) else maker, include_extras=True)
    parameters = {name: p for name, p in inspect.signature(maker).parameters.items() if name != "self"}
    unknown = [name for name in options if name.replace("-", "_") not in parameters]
    if unknown:
        known = [name for name in parameters if name not in given]
        raise UserError(f"{where}: there is no option '{unknown[0]}'. {suggest(unknown[0], known)}")
    arguments = {}
    for name, value in options.items():
        name = name.replace("-", "_")
        arguments[name] = _convert(value, hints.get(name, Any), f"{where}.{name}", given)
    for name, value in given.items():
        if name in parameters and name not in arguments:
            arguments[name] = value
    missing = [n for n, p in parameters.items() if p.default is p.empty and n not in arguments]
    if missing:
        raise UserError(f"{where}: the option '{missing[0]}' is missing.")
    try:
        return maker(**arguments)
    except UserError as error:
        raise UserError(f"{where}: {error}") from None


def _room(base: type) -> types.ModuleType:
    """A base class lives in its room's `_base`, or in the one public file that holds it and its members."""
    home = base.__module__
    return sys.modules[home.rpartition(".")[0] if home.rpartition(".")[2].startswith("_") else home]


def _convert(value: Any, hint: Any, where: str, given: dict[str, Any]) -> Any:
    choices = typing.get_args(hint) if typing.get_origin(hint) in (typing.Union, types.UnionType) else (hint,)
    plain: list[Any] = []
    for choice in choices:
        if inspect.isclass(choice) and choice.__module__.startswith("unlazy") and issubclass(choice, eqx.Module):
            if isinstance(value, str | dict):
                return build(value, choice, where, **given)
        elif choice in (int, float, str, bool, None, type(None), Any) or typing.get_origin(choice) in (
            tuple,
            list,
            Literal,
            Annotated,
        ):
            plain.append(choice)
    if not plain:
        raise UserError(
            f"{where}: {value!r} cannot be written here: give the name of a member, or a table with its kind."
        )
    try:
        return msgspec.convert(value, typing.Union[tuple(plain)])  # noqa: UP007
    except msgspec.ValidationError as error:
        raise UserError(f"{where}: {_explain(str(error))}") from None


def _explain(message: str) -> str:
    """Turn a validation message into a sentence with a suggestion."""
    for mark in ("unknown field `", "required field `"):
        if mark in message:
            name = message.partition(mark)[2].partition("`")[0]
            place = message.partition(" - at `$")[2].partition("`")[0].strip(".")
            inside = f" in [{place}]" if place else ""
            fields = Times.__struct_fields__ if place == "times" else Recipe.__struct_fields__
            if "unknown" in mark:
                return f"there is no field '{name}'{inside}. {suggest(name, fields)}"
            return f"the field '{name}' is missing{inside}."
    return message.replace(" - at `$.", " at '").replace("`", "'") + "."


_ROOMS = (_data, _networks, _flows, _probes)  # imported so that every room is there to be looked into
