"""Recipes: an experiment as a typed TOML file, and the digest that names its result.

A recipe names members of the registry and their options: `unlazy list` shows them, docs/recipes.md has examples.
"""

from __future__ import annotations

import hashlib
import math
import re
import typing
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import equinox as eqx
import jax
import msgspec
import numpy as np

from unlazy._errors import UserError, short
from unlazy._inputs import in_precision
from unlazy._plain import parse_toml, read_text
from unlazy._registry import kebab
from unlazy._types import PRNGKey
from unlazy.data import Dataset
from unlazy.flows import Flow, Observe, OnlyAtEnd
from unlazy.lab.sections import Section, build, explain, split
from unlazy.networks import Network

_LARGEST = 2**20  # bytes of a recipe
_MOST_TIMES = 1_000_000
_MOST_SEEDS = 10_000
Natural = Annotated[int, msgspec.Meta(ge=0, lt=2**32)]  # the range of a seed, in 32 bits as in 64


class Times(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The observed times: ``count`` times from 0 to ``end``, evenly spaced in t or, from ``first`` on, in log t.

    Attributes
    ----------
    end
        The last time.
    count
        The number of times, 0 included.
    spacing
        ``"linear"`` or ``"log"``.
    first
        The first time after 0 of logarithmic spacing; ``end / 1000`` if omitted.
    """

    end: float
    count: Annotated[int, msgspec.Meta(ge=2, le=_MOST_TIMES)] = 51
    spacing: Literal["linear", "log"] = "linear"
    first: float | None = None

    def __post_init__(self) -> None:
        if not (0 < self._first < self.end and np.isfinite(self.end)):
            given = f"end = {self.end:g}" + ("" if self.first is None else f" and first = {self.first:g}")
            raise UserError(f"0 < first < end must hold, all finite, not {given}")

    @property
    def _first(self) -> float:
        return self.end / 1000 if self.first is None else self.first

    def grid(self) -> np.ndarray:
        """Return the times, beginning with 0."""
        if self.spacing == "linear":
            return np.linspace(0.0, self.end, self.count)
        grid = np.geomspace(self._first, self.end, self.count - 1)
        grid[-1] = self.end
        return np.concatenate([[0.0], grid])


class Recipe(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One experiment: data, network, flow, times and probes, run for a number of seeds.

    Attributes
    ----------
    data, network, flow
        Sections of the recipe: the name of a member, or a table with its name as ``kind`` and its options.
    times
        The times to observe: a `Times`, or an increasing list.
    probes
        Sections of probes. Their tables may also have ``as``, a name for the result, and ``when``, which is
        ``"always"`` or ``"end"``.
    name
        A name for the result; it has no influence on what is computed.
    seed, seeds
        The first seed, and the number of consecutive seeds.
    same_data
        Whether all seeds share the data of the first.
    dtype
        The precision of data and networks.
    """

    data: Section
    network: Section
    flow: Section = "gradient-flow"
    times: Times | list[float]
    probes: list[Section] = []
    name: str = "run"
    seed: Natural = 0
    seeds: Annotated[int, msgspec.Meta(ge=1, le=_MOST_SEEDS)] = 1
    same_data: bool = False
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

    @property
    def all_seeds(self) -> range:
        """All seeds that are run."""
        return range(self.seed, self.seed + self.seeds)

    def grid(self) -> np.ndarray:
        """Return the times to observe."""
        return self.times.grid() if isinstance(self.times, Times) else np.asarray(self.times, dtype=float)

    def json(self) -> str:
        """Return the recipe as canonical JSON, the form in which it is stored; `parse` reads it."""
        plain = msgspec.to_builtins(self, enc_hook=lambda value: value.tolist())  # numbers of NumPy
        # JSON has no infinity and no NaN: they are written as words, which `convert` understands.
        finite = jax.tree.map(
            lambda leaf: str(leaf) if isinstance(leaf, float) and not math.isfinite(leaf) else leaf, plain
        )
        return msgspec.json.encode(finite, order="sorted").decode()


class Experiment(typing.NamedTuple):
    """The objects that a recipe describes.

    Attributes
    ----------
    networks, data, keys
        For each seed: the network at the start, its data, and the random key of the flow.
    flow
        The flow.
    probes
        The probes by label.
    times
        The times to observe.
    """

    networks: list[Network]
    data: list[Dataset]
    flow: Flow
    probes: dict[str, Observe]
    times: np.ndarray
    keys: list[PRNGKey]


def parse(table: dict[str, Any], where: str = "recipe") -> Recipe:
    """Check a table (from TOML or JSON) against the form of a recipe.

    Parameters
    ----------
    table
        The recipe as a dictionary.
    where
        A name for the table in error messages.
    """
    for section in ("sweep", "phase"):
        if section in table:
            raise UserError(f"{where}: the section [{section}] is for `unlazy {section}`: call that, or remove it.")
    try:
        return msgspec.convert(table, Recipe)
    except msgspec.ValidationError as error:
        message = str(error)
        place, what = explain(message, Times if "`$.times" in message else Recipe)
        raise UserError(": ".join(filter(None, (where, place.lstrip("."), what)))) from None


def read(path: Path, settings: Iterable[tuple[str, Any]] = ()) -> Recipe:
    """Read a recipe from a TOML file.

    Parameters
    ----------
    path
        The file.
    settings
        Fields, such as "network.width", and values that replace those of the file.
    """
    from unlazy.lab.fields import with_field  # which knows the fields of a recipe

    table = read_table(path)
    for field, value in settings:
        table = with_field(table, field, value)
    return parse(table, path.name)


def read_table(path: Path) -> dict[str, Any]:
    """Read a TOML file as a table, without checking whether it is a recipe."""
    try:
        text = read_text(path, _LARGEST)
    except FileNotFoundError:
        raise UserError(f"There is no recipe at '{path}': give the path of a TOML file.") from None
    except (OSError, ValueError) as error:
        raise UserError(f"The recipe '{path}' cannot be read ({error}): give the path of a TOML file.") from None
    try:
        return parse_toml(text)
    except ValueError as error:
        raise UserError(f"{path.name} is not valid TOML: {error}.") from None


def instantiate(recipe: Recipe, seeds: Sequence[int] | None = None) -> Experiment:
    """Draw data and networks, and build flow and probes. A wrong name or option raises a `UserError`.

    Parameters
    ----------
    recipe
        The recipe.
    seeds
        Some of its seeds; all if omitted.
    """
    if recipe.dtype == "float64" and not jax.config.read("jax_enable_x64"):
        advice = 'call jax.config.update("jax_enable_x64", True) first, or set dtype = "float32"'
        raise UserError(f"This recipe asks for float64, but JAX is set to 32 bits: {advice}.")
    seeds = recipe.all_seeds if seeds is None else seeds
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
        where, (name, options) = f"probes[{index}]", split(section)
        label, when = options.pop("as", None), options.pop("when", "always")
        if when not in ("always", "end"):
            raise UserError(f"{where}.when: a probe observes 'always' or only at the 'end', not {short(when)}.")
        probe: Observe = build({"kind": name, **options}, "probe", where)
        if label is None:
            label = kebab(re.split(r"[:.]", str(name))[-1])  # "package.module:MyProbe" is "my-probe"
        elif not (isinstance(label, str) and re.fullmatch(r"[A-Za-z0-9-]+", label)) or label in ("seed", "time"):
            allowed = "give letters, digits and hyphens, not 'seed' or 'time'"
            raise UserError(f"{where}.as: {short(label)} cannot name a probe: {allowed}.")
        if label in probes:
            raise UserError(f"{where}: two probes are called '{label}': give one of them a name with as = \"...\".")
        probes[label] = OnlyAtEnd(probe) if when == "end" else probe
    return probes


def draw_data(recipe: Recipe, seeds: Sequence[int] | None = None) -> list[Dataset]:
    """Draw the data of a recipe, as `instantiate` does.

    Parameters
    ----------
    recipe, seeds
        As for `instantiate`.
    """
    drawn_for = [recipe.seed if recipe.same_data else seed for seed in (recipe.all_seeds if seeds is None else seeds)]
    with jax.enable_x64(True):  # draws in 32 bits differ, and the result must not depend on the setting of JAX
        drawn = {
            seed: build(recipe.data, "data", "data", key=_keys(seed)[0]).astype(recipe.dtype)
            for seed in dict.fromkeys(drawn_for)
        }
    return [drawn[seed] for seed in drawn_for]


def _keys(seed: int) -> Any:
    return jax.random.split(jax.random.key(seed), 3)


def _cast(network: Network, dtype: str) -> Network:
    def cast(path: Any, leaf: Any) -> Any:
        if not eqx.is_inexact_array(leaf):
            return leaf
        return in_precision(f"network: {jax.tree_util.keystr(path).lstrip('.')} at the start", leaf, dtype)

    return jax.tree_util.tree_map_with_path(cast, network)
