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
import math
import re
import tomllib
import typing
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import equinox as eqx
import jax
import msgspec
import numpy as np

from unlazy._errors import UserError, short
from unlazy._registry import kebab
from unlazy._types import PRNGKey
from unlazy.data import Dataset
from unlazy.flows import Flow, Observe, OnlyAtEnd
from unlazy.lab.build import Section, build, explain
from unlazy.networks import Network

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
            raise UserError(f"times must be finite, increasing and not negative, not {short(self.times)}")

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
        message = str(error)
        place, what = explain(message, Times if "`$.times" in message else Recipe)
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


def instantiate(recipe: Recipe, seeds: Sequence[int] | None = None) -> Experiment:
    """Draw data and networks, of every seed or of those given, and build flow and probes.

    Every wrong name or option raises a `UserError` here.
    """
    if recipe.dtype == "float64" and not jax.config.read("jax_enable_x64"):
        raise UserError(
            "This recipe asks for float64, but JAX is set to 32 bits: "
            'call jax.config.update("jax_enable_x64", True) first, or set dtype = "float32".'
        )
    seeds = _seeds(recipe) if seeds is None else seeds
    flow, probes = build(recipe.flow, "flow", "flow"), build_probes(recipe)
    data, networks, keys = draw_data(recipe, seeds), [], []
    with jax.enable_x64(True):  # as for data
        for seed, one in zip(seeds, data, strict=True):
            _, network_key, flow_key = _keys(seed)
            shape = {"inputs": one.inputs, "outputs": one.outputs, "image": one.x.shape[1:]}
            network = build(recipe.network, "network", "network", key=network_key, **shape)
            networks.append(_cast(network, recipe.dtype))
            keys.append(flow_key)
    return Experiment(networks, data, flow, probes, recipe.grid(), keys)


def build_probes(recipe: Recipe) -> dict[str, Observe]:
    """Build the probes of a recipe, by label."""
    probes: dict[str, Observe] = {}
    for index, section in enumerate(recipe.probes):
        label, probe = _named_probe(section, f"probes[{index}]")
        if label in probes:
            raise UserError(
                f"probes[{index}]: two probes are called '{label}': give one of them a name with as = \"...\"."
            )
        probes[label] = probe
    return probes


def draw_data(recipe: Recipe, seeds: Sequence[int] | None = None) -> list[Dataset]:
    """Draw the data of the given seeds, or of all of the recipe's, as `instantiate` does."""
    seeds = _seeds(recipe) if seeds is None else seeds
    drawn: dict[int, Dataset] = {}
    with jax.enable_x64(True):  # draws in 32 bits are others, and a recipe has one result however JAX is set
        for seed in [recipe.seed] if recipe.same_data else seeds:
            drawn[seed] = build(recipe.data, "data", "data", key=_keys(seed)[0]).astype(recipe.dtype)
    return [drawn[recipe.seed if recipe.same_data else seed] for seed in seeds]


def _seeds(recipe: Recipe) -> range:
    return range(recipe.seed, recipe.seed + recipe.seeds)


def _keys(seed: int) -> Any:
    return jax.random.split(jax.random.key(seed), 3)


def _named_probe(section: Section, where: str) -> tuple[str, Observe]:
    """Give a probe and what it is called in the result: its kind, or what ``as`` says; ``when`` says how often."""
    options = {"kind": section} if isinstance(section, str) else dict(section)
    label, when = options.pop("as", None), options.pop("when", "always")
    if when not in ("always", "end"):
        raise UserError(f"{where}.when: a probe looks 'always' or only at the 'end', not {short(when)}.")
    probe: Observe = build(options, "probe", where)
    probe = OnlyAtEnd(probe) if when == "end" else probe
    if label is None:
        return kebab(re.split(r"[:.]", options["kind"])[-1]), probe  # "package.module:MyProbe" is "my-probe"
    if not (isinstance(label, str) and re.fullmatch(r"[A-Za-z0-9-]+", label)) or label in ("seed", "time"):
        raise UserError(
            f"{where}.as: {short(label)} cannot name a probe: give letters, digits and hyphens, not 'seed' or 'time'."
        )
    return label, probe


def _cast(network: Network, dtype: str) -> Network:
    return jax.tree.map(lambda leaf: leaf.astype(dtype) if eqx.is_inexact_array(leaf) else leaf, network)
