"""What a run *is*, apart from how it is called, spelled and observed.

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
import secrets
import sys
import types
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

import jax
import numpy as np

from unlazy import _registry
from unlazy._errors import UserError
from unlazy._registry import base_of, kebab, kind_of
from unlazy.flows import Observe, OnlyAtEnd
from unlazy.lab import origins
from unlazy.lab.build import _LISTS, Section, _convert, _find, _hints, _is_member, _is_plain, _right_one, build
from unlazy.lab.recipe import Recipe, build_probes

RESULTS = 1  # raised whenever unlazy computes other numbers from the same recipe: stored results are then not used

GIVEN = frozenset({"key", "inputs", "outputs", "image"})  # what a member receives from the data and the seed

_LIBRARIES = {"unlazy", "jax", "jaxlib", "equinox", "optax", "diffrax", "lineax", "numpy", "scipy", "builtins"}
_MOST_FILES = 1000  # of a plug-in's package; of a larger one only the module itself is compared
_SESSION = secrets.token_hex(8)  # stands for what cannot be recognised in another process


class Identity(NamedTuple):
    """How a recipe's results are found in the store.

    Attributes
    ----------
    trajectories
        The digest of each seed's trajectory.
    probes
        The probes by label.
    digests
        The digest of each probe by label; a probe observed only at the end has that of the probe itself.
    view
        The digest of all of it together, with times.
    """

    trajectories: dict[int, str]
    probes: dict[str, Observe]
    digests: dict[str, str]
    view: str


def identify(recipe: Recipe) -> Identity:
    """Find out what ``recipe`` is; a wrong name or option raises a `UserError`."""
    with jax.enable_x64(True):
        described = Description()
        common = {
            "results": RESULTS,
            "data": described.section(recipe.data, "data", "data"),
            "network": described.section(recipe.network, "network", "network"),
            "flow": described.section(recipe.flow, "flow", "flow"),
            "dtype": recipe.dtype,
            "sources": described.sources() | origins.sources([recipe.data, recipe.network, recipe.flow]),
        }
        probes = build_probes(recipe)
    trajectories = {
        seed: digest(common | {"seed": seed, "data seed": recipe.seed if recipe.same_data else seed})
        for seed in range(recipe.seed, recipe.seed + recipe.seeds)
    }
    digests = {label: probe_digest(probe) for label, probe in probes.items()}
    observed = {label: [digests[label], isinstance(probe, OnlyAtEnd)] for label, probe in probes.items()}
    return Identity(
        trajectories, probes, digests, digest([list(trajectories.values()), recipe.grid().tolist(), observed])
    )


def probe_digest(probe: Observe) -> str:
    """Give the digest of a probe, whatever it is called and however often it observes."""
    described = Description()
    value = described.value(probe.probe if isinstance(probe, OnlyAtEnd) else probe)
    return digest([RESULTS, value, described.sources()])


def canonical(section: Section, kind: str | type, where: str = "recipe") -> Any:
    """Expand a section of a recipe into its normal form.

    Parameters
    ----------
    section
        A member's name, or a table with its ``kind`` and options.
    kind
        A kind of the registry, such as "network", or a class of which an object is wanted.
    where
        What the section is called in error messages.

    Returns
    -------
    Any
        Plain lists, dictionaries, numbers and strings; equal for sections that mean the same.
    """
    return Description().section(section, kind, where)


def digest(value: Any) -> str:
    """Give the SHA-256 digest of plain values."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


class Description:
    """Describes members and sections in plain values, and collects the modules outside unlazy that they come from."""

    def __init__(self) -> None:
        self._objects: dict[str, Any] = {}  # by module
        self._within: set[int] = set()

    def section(self, section: Section, kind: str | type, where: str) -> Any:
        """Describe what a section of a recipe makes."""
        options = {"kind": section} if isinstance(section, str) else dict(section)
        name = options.pop("kind", None)
        if isinstance(kind, type) and kind_of(kind) is not None and base_of(str(kind_of(kind))) is kind:
            kind = str(kind_of(kind))
        if not isinstance(name, str):
            return build(section, kind, where)  # says what is wrong
        try:
            maker = _find(kind, name)
        except UserError as error:
            raise UserError(f"{where}: {error}") from None
        parameters = _parameters(maker)
        plain = isinstance(kind, str) and _registry.is_plain(kind, maker)
        if isinstance(maker, base_of(kind) if isinstance(kind, str) else kind) or plain or not GIVEN & set(parameters):
            return self.value(build(section, kind, where))
        # It needs a key or data, so it is described by its options instead of being made.
        hints = _hints(maker)
        values = {name: one.default for name, one in parameters.items() if one.default is not one.empty}
        values |= {option.replace("-", "_"): value for option, value in options.items()}
        filled = {
            name: self._option(value, hints.get(name, Any), f"{where}.{name}")
            for name, value in values.items()
            if name not in GIVEN
        }
        if kind == "data":
            filled |= _files(section, options)
        return {"kind": self._name(maker), **filled}

    def _option(self, value: Any, hint: Any, where: str) -> Any:
        """Describe an option as it is written in a recipe, or a default, which may be an object."""
        choices = typing.get_args(hint) if typing.get_origin(hint) in (typing.Union, types.UnionType) else (hint,)
        if not isinstance(value, str | dict | list | int | float):
            return self.value(value)
        lists = [c for c in choices if typing.get_origin(c) in _LISTS and not _is_plain(c)]
        if lists and isinstance(value, list):
            part = typing.get_args(lists[0])[0]
            return [self._option(one, part, f"{where}[{index}]") for index, one in enumerate(value)]
        kinds = [choice for choice in choices if _is_member(choice)]
        words = [word for choice in choices if typing.get_origin(choice) is Literal for word in typing.get_args(choice)]
        if kinds and isinstance(value, str | dict) and value not in words:
            return self.section(value, _right_one(kinds, value), where)
        return self.value(_convert(value, hint, where, {}))

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
            return _file(value)
        if isinstance(value, np.ndarray | jax.Array):
            return _array(value)
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
        """Give a digest of the source of each module outside unlazy that was met."""
        outside = {name: one for name, one in self._objects.items() if name.partition(".")[0] not in _LIBRARIES}
        return {name: _source(name, one) for name, one in sorted(outside.items())}


def _number(value: Any) -> Any:
    number = value.item() if isinstance(value, np.generic) else value
    if isinstance(number, float):
        if not math.isfinite(number):
            return str(number)
        return int(number) if number.is_integer() and abs(number) < 2**53 else number
    return number if isinstance(number, int) else str(number)


def _array(value: Any) -> Any:
    if isinstance(value, jax.Array) and jax.numpy.issubdtype(value.dtype, jax.dtypes.prng_key):
        value = jax.random.key_data(value)
    values = np.asarray(value)
    if values.ndim == 0 and values.dtype.kind in "iuf":
        return _number(values.item())
    head = f"{values.dtype.str}{list(values.shape)}"
    return {"array": hashlib.sha256(head.encode() + np.ascontiguousarray(values).tobytes()).hexdigest()}


def _parameters(maker: Any) -> Mapping[str, inspect.Parameter]:
    try:
        return inspect.signature(maker).parameters if callable(maker) else {}
    except ValueError:  # a builtin that does not tell its arguments
        return {}


def _files(section: Section, options: dict[str, Any]) -> dict[str, Any]:
    """Give the contents of the files that data are read from, in the place of the options that name them."""
    found = origins.fingerprint(section)
    named = {
        option.replace("-", "_"): found.pop(str(Path(value).expanduser()))
        for option, value in options.items()
        if isinstance(value, str) and str(Path(value).expanduser()) in found
    }
    return named | ({"files": sorted(found.values())} if found else {})


def _file(path: Path) -> Any:
    try:
        with open(path, "rb") as file:
            return {"file": hashlib.file_digest(file, "sha256").hexdigest()}
    except OSError:
        return {"missing file": str(path)}  # whoever reads it says what is wrong


def _source(module: str, member: Any) -> str:
    """Give a digest of the files of a plug-in: of its whole package, or of its only file."""
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
