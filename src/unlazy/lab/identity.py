"""The identity of a run: what is computed, whatever its name, spelling and observations.

A *trajectory* is data, network, flow, seed and precision. *Times and probes* say how it is observed. The name of a
recipe and its number of seeds are neither. A trajectory's identity is a SHA-256 digest of its normal form: members with
every option filled in, the contents of the files that they read, the source of modules outside unlazy, and `RESULTS`.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import hashlib
import inspect
import json
import math
import re
import secrets
import sys
import types
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from unlazy import _registry
from unlazy._checked import takes_anything
from unlazy._errors import UserError
from unlazy._files import sha256
from unlazy._inputs import plain_leaf
from unlazy._listing import FILLED
from unlazy._registry import base_of, find, kebab, load, members
from unlazy.flows import Observe
from unlazy.flows.trajectory import inner_probe, only_at_end
from unlazy.lab import sections
from unlazy.lab.recipe import Recipe, build_probes
from unlazy.lab.sections import Section
from unlazy.lab.tracks import array_digest

RESULTS = 1  # raised whenever unlazy computes other numbers from the same recipe: stored results are then not used

_LIBRARIES = {"unlazy", "jax", "jaxlib", "equinox", "optax", "diffrax", "lineax", "numpy", "scipy", "builtins"}
_KNOWN = {"unlazy", "equinox", "diffrax", "optax", *sections.VALUES}  # versions known, or bases of nearly everything
_MOST_FILES = 1000  # of a plug-in's package; of a larger one only the module itself is compared
_SESSION = secrets.token_hex(8)  # stands for what cannot be recognised in another process


class Identity(NamedTuple):
    """How a recipe's results are found in the store."""

    trajectories: dict[int, str]  # the digest of each seed's trajectory
    probes: dict[str, Observe]  # by label
    digests: dict[str, str]  # of the probes, by label; a probe observed only at the end has that of the probe itself
    times: np.ndarray
    view: str  # the digest of all of it together


def identify(recipe: Recipe) -> Identity:
    """Compute the identity of a recipe. A wrong name or option raises a `UserError`.

    Parameters
    ----------
    recipe
        The recipe.
    """
    with jax.enable_x64(True):
        described = Description()
        common = {
            "results": RESULTS,
            "data": described.section(recipe.data, "data", "data"),
            "network": described.section(recipe.network, "network", "network"),
            "flow": described.section(recipe.flow, "flow", "flow"),
            "dtype": recipe.dtype,
            "sources": described.sources() | sources([recipe.data, recipe.network, recipe.flow]),
        }
        probes = build_probes(recipe)
    trajectories = {
        seed: digest(common | {"seed": seed, "data seed": recipe.seed if recipe.same_data else seed})
        for seed in recipe.all_seeds
    }
    digests = {label: probe_digest(probe) for label, probe in probes.items()}
    observed = {label: [digests[label], only_at_end(probe)] for label, probe in probes.items()}
    times = recipe.grid()
    view = digest([list(trajectories.values()), times.tolist(), observed])
    return Identity(trajectories, probes, digests, times, view)


def probe_digest(probe: Observe) -> str:
    """Return the digest of a probe, which does not depend on its label or on how often it observes."""
    described = Description()
    value = described.value(inner_probe(probe))
    return digest([RESULTS, value, described.sources()])


def canonical(section: Section, kind: str | type, where: str = "recipe") -> Any:
    """Expand a section of a recipe into its normal form.

    Parameters
    ----------
    section
        A member's name, or a table with its ``kind`` and options.
    kind
        A kind of the registry, such as "network", or a class of which an instance is needed.
    where
        The place of the section in the recipe, for error messages.

    Returns
    -------
    Any
        Plain lists, dictionaries, numbers and strings; equal for sections that mean the same.
    """
    return Description().section(section, kind, where)


def digest(value: Any) -> str:
    """Return the SHA-256 digest of plain values."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


class Description:
    """Describes members and sections in plain values, and collects the modules outside unlazy that they come from."""

    def __init__(self) -> None:
        self._objects: dict[str, Any] = {}  # by module
        self._within: set[int] = set()

    def section(self, section: Section, kind: str | type, where: str) -> Any:
        """Describe what a section of a recipe makes."""
        kind, (name, options) = sections.registered(kind), sections.split(section)
        if name is None:
            return sections.build(section, kind, where)  # raises
        with sections.located(where):
            maker = sections.find_maker(kind, name)
        parameters = _registry.parameters(maker)
        plain = isinstance(kind, str) and _registry.is_plain(kind, maker)
        if isinstance(maker, base_of(kind) if isinstance(kind, str) else kind) or plain or not FILLED & set(parameters):
            return self.value(sections.build(section, kind, where))
        # It needs a key or data, so it is described by its options instead of being made.
        if not takes_anything(parameters):
            for option in options:
                if option.replace("-", "_") not in parameters:
                    raise sections.no_option(option, [one for one in parameters if one not in FILLED], where)
        hints = sections.hints_of(maker)
        values = {name: one.default for name, one in parameters.items() if one.default is not one.empty}
        values |= {option.replace("-", "_"): value for option, value in options.items()}
        rest = {name: value for name, value in values.items() if name not in FILLED}
        filled = {name: self._option(one, hints.get(name, Any), f"{where}.{name}") for name, one in rest.items()}
        if kind == "data":
            filled |= _files(section, options)
        return {"kind": self._name(maker), **filled}

    def _option(self, value: Any, hint: Any, where: str) -> Any:
        """Describe an option as it is written in a recipe, or a default, which may be an object."""
        if not isinstance(value, str | dict | list | int | float):
            return self.value(value)
        _, kinds, _, words, parts = sections.accepted(hint)
        if parts and isinstance(value, list):
            return [self._option(one, parts[0], f"{where}[{index}]") for index, one in enumerate(value)]
        if kinds and isinstance(value, str | dict) and value not in words:
            return self.section(value, sections.right_kind(kinds, value), where)
        return self.value(sections.convert(value, hint, where, {}))

    def value(self, value: Any) -> Any:
        """Describe an object: a member by its class and fields, an array by its contents, a file by its digest."""
        if value is None or isinstance(value, str | bool):
            return value
        if isinstance(value, enum.Enum):
            return f"{type(value).__qualname__}.{value.name}"
        if isinstance(value, int | float | np.number):
            return _number(value)
        if isinstance(value, Mapping):
            return {str(name): self.value(one) for name, one in value.items()}
        if isinstance(value, Path):
            try:
                return {"file": sha256(value)}
            except OSError:
                return {"missing file": str(value)}  # reading it will raise
        if isinstance(value, np.ndarray | jax.Array):
            values = plain_leaf(value)
            number = values.ndim == 0 and values.dtype.kind in "iuf"
            return _number(values.item()) if number else {"array": array_digest(values)}
        if id(value) in self._within:
            return "itself"
        self._within.add(id(value))
        try:
            return self._compound(value)
        finally:
            self._within.discard(id(value))

    def _compound(self, value: Any) -> Any:
        if isinstance(value, list | tuple):
            return [self.value(one) for one in value]
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            fields = {field.name: self.value(getattr(value, field.name, None)) for field in dataclasses.fields(value)}
            return {"kind": self._name(type(value)), **fields}
        if isinstance(value, functools.partial):
            return {"partial": self.value([value.func, value.args, value.keywords])}
        if isinstance(value, types.MethodType):
            return {"method": self.value(value.__func__), "of": self.value(value.__self__)}
        wrapped = inspect.unwrap(value) if callable(value) else value
        if isinstance(wrapped, types.FunctionType):
            return self._function(wrapped)
        if isinstance(value, type | types.BuiltinFunctionType):
            return self._name(value)
        text = repr(value)
        return f"{text} in {_SESSION}" if " at 0x" in text else f"{type(value).__qualname__} {text}"

    def _function(self, function: types.FunctionType) -> Any:
        captured = [cell.cell_contents for cell in function.__closure__ or ()]
        described: dict[str, Any] = {"kind": self._name(function)}
        if captured or function.__defaults__ or function.__kwdefaults__:
            described["with"] = self.value([captured, function.__defaults__, function.__kwdefaults__])
        if "<" in function.__qualname__:  # a lambda or a local function: its name says too little
            code = function.__code__
            constants = [repr(one) for one in code.co_consts if not isinstance(one, types.CodeType)]
            described["code"] = digest([code.co_code.hex(), list(code.co_names), constants])
        return described

    def _name(self, member: Any) -> str:
        module = str(getattr(member, "__module__", None))
        qualname = getattr(member, "__qualname__", type(member).__qualname__)
        package, _, rest = module.partition(".")
        if package == "unlazy":  # in whatever file of its package
            return f"{rest.partition('.')[0]} {kebab(qualname)}"
        self._objects.setdefault(module, member)
        return f"{module}:{qualname}"

    def sources(self) -> dict[str, str]:
        """Return a digest of the source of each module outside unlazy that was described."""
        outside = {name: one for name, one in self._objects.items() if name.partition(".")[0] not in _LIBRARIES}
        return {name: _source(name, one) for name, one in sorted(outside.items())}


def _number(value: Any) -> Any:
    number = value.item() if isinstance(value, np.generic) else value
    if isinstance(number, float):
        if not math.isfinite(number):
            return str(number)
        return int(number) if number.is_integer() and abs(number) < 2**53 else number
    return number if isinstance(number, int) else str(number)


def _files(section: Section, options: dict[str, Any]) -> dict[str, Any]:
    """Return the digests of the files that data are read from, in place of the options that name the files."""
    found = fingerprint(section)
    named = {
        option.replace("-", "_"): found.pop(str(Path(value).expanduser()))
        for option, value in options.items()
        if isinstance(value, str) and str(Path(value).expanduser()) in found
    }
    return named | ({"files": sorted(found.values())} if found else {})


def _source(module: str, member: Any) -> str:
    """Return a digest of the files of a plug-in: of its whole package, or of its only file."""
    top = sys.modules.get(module.partition(".")[0])
    folders = [Path(one) for one in getattr(top, "__path__", ())]
    files = sorted(path for folder in folders for path in folder.rglob("*.py"))
    own = getattr(sys.modules.get(module), "__file__", None)
    if not files or len(files) > _MOST_FILES:
        files = [Path(own)] if own else []
    total = hashlib.sha256()
    try:
        if not files:  # typed in, say in a notebook
            return hashlib.sha256(inspect.getsource(member).encode()).hexdigest()
        for path in files:
            total.update(path.name.encode() + hashlib.sha256(path.read_bytes()).digest())
    except (OSError, TypeError):
        return _SESSION
    return total.hexdigest()


# ---------------------------------------------------------------- files and modules that a recipe names


def fingerprint(section: Section) -> dict[str, str]:
    """Return the SHA-256 of every file that the section ``data`` of a recipe reads, by path.

    Its maker declares these files by `unlazy.data.reads`. Files that would first have to be downloaded are left out.
    """
    name, options = sections.split(section)
    if name is None:
        return {}
    options = {option.replace("-", "_"): value for option, value in options.items()}
    files = getattr(find("data", name), "files_read", lambda _: ())(options)
    return {str(path): _contents(path) for path in files}


def sources(given: Any) -> dict[str, str]:
    """Return the SHA-256 of the source file of every module outside unlazy that defines members of a recipe.

    Sections may be nested in tables and lists. The modules of base classes are included.
    """
    found: dict[str, str] = {}
    for word in filter(lambda leaf: isinstance(leaf, str), jax.tree.leaves(given)):
        for member in _members_called(word):
            made = member if hasattr(member, "__module__") else type(member)
            for one in inspect.getmro(made) if inspect.isclass(made) else (made,):
                module = sys.modules.get(getattr(one, "__module__", None) or "")
                file = getattr(module, "__file__", None)
                if module and file and module.__name__.partition(".")[0] not in _KNOWN:
                    found[module.__name__] = _contents(Path(file))
        if ":" in word and (module := sys.modules.get(word.partition(":")[0])) and getattr(module, "__file__", None):
            found[module.__name__] = _contents(Path(str(module.__file__)))
    return dict(sorted(found.items()))


def _members_called(word: str) -> list[Any]:
    """Return all members outside unlazy that a word may name; its kind is not known here."""
    if re.fullmatch(r"[\w.]+:[\w.]+", word):
        try:
            return [load(word)]
        except UserError:  # a text with a colon in it; a missing member raises when it is built
            return []
    kinds = _registry.KINDS if _registry.plugins() else {}
    return [members(kind)[kebab(word)] for kind in kinds if kebab(word) in members(kind)]


def _contents(path: Path) -> str:
    try:
        return sha256(path)
    except OSError as error:
        raise UserError(f"The file '{path}' cannot be read ({error.strerror or error}).") from None
