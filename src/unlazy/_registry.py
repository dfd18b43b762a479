"""The registry: the members of each kind, from unlazy's own packages and from plug-ins.

A member of a kind is a public name that makes its base class: a concrete subclass, a function annotated to return one,
or an instance. It may be defined in any public module of the kind's package, of a paper's folder, or of a plug-in:

- an installed package is a plug-in if it has an entry point in the group ``unlazy`` that names a module or package;
- a package on the path is a plug-in if the environment variable ``UNLAZY_PLUGINS`` names it (several: with commas);
- anything else can be named directly, as ``package.module:Thing``.

In recipes and on the command line a member is called by its Python name in kebab case (``TwoLayer`` is ``two-layer``),
a theorem or panel by its ``key``. A class with ``registered = False`` in its own body is left out.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import inspect
import os
import pkgutil
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from importlib.metadata import entry_points
from types import ModuleType
from typing import Any

from unlazy._errors import UserError, article, first_line, short, suggest

GROUP, VARIABLE = "unlazy", "UNLAZY_PLUGINS"
PAPERS = "unlazy.papers"  # each paper's folder may hold members of any kind


@dataclasses.dataclass(frozen=True)
class Kind:
    """A kind of object that can be named in a recipe or on the command line.

    Attributes
    ----------
    base : str
        The base class, as "module:Class"; it is imported only when it is needed.
    summary : str
        One line for listings.
    noun : str
        The name of one of them in a sentence.
    package : str
        The package of unlazy's own members; that of ``base`` if empty.
    plain : str
        "module:function" that makes a member from a plain Python object, if that is possible.
    leading : int
        How many arguments of a plain function are filled by the library, so that the others are options.
    keyed : bool
        Whether members are called by their attribute ``key``.
    """

    base: str
    summary: str
    noun: str
    package: str = ""
    plain: str = ""
    leading: int = 0
    keyed: bool = False


KINDS: dict[str, Kind] = {
    "data": Kind("unlazy.data:Dataset", "Training and test samples.", "data set", plain="unlazy.data:as_dataset"),
    "source": Kind("unlazy.data:Source", "Laws that descent draws fresh samples from.", "source"),
    "network": Kind("unlazy.networks:Network", "Networks to train.", "network", plain="unlazy.networks:as_network"),
    "embedding": Kind("unlazy.networks:Embedding", "Fixed features below the first trained layer.", "embedding"),
    "law": Kind("unlazy.networks:Law", "Initial laws of parameters.", "law"),
    "scaling": Kind("unlazy.networks:Scaling", "Scalings with width of outputs and learning rates.", "scaling"),
    "node-weights": Kind(
        "unlazy.networks:NodeWeights", "Weights of the nodes in asymmetrical scaling.", "node weights"
    ),
    "activation": Kind(
        "unlazy.activations:Activation",
        "Activation functions.",
        "activation",
        plain="unlazy.activations:Custom",
        leading=1,
    ),
    "loss": Kind("unlazy.losses:Loss", "Losses to descend.", "loss", plain="unlazy.losses:CustomLoss", leading=2),
    "flow": Kind("unlazy.flows:Flow", "Training methods.", "flow"),
    "optimiser": Kind("unlazy.flows:Optimiser", "Directions of a descent step.", "optimiser"),
    "schedule": Kind("unlazy.flows:Schedule", "Factors on the learning rate of descent.", "schedule"),
    "probe": Kind("unlazy.probes:Probe", "Quantities measured along a run.", "probe", leading=1),
    "theorem": Kind("unlazy.theory:Theorem", "Theorems that can be checked on a run.", "theorem", PAPERS, keyed=True),
    "panel": Kind("unlazy.papers:Panel", "Figures of papers that can be reproduced.", "panel", keyed=True),
}


def kebab(name: str) -> str:
    """``TwoLayer`` or ``two_layer`` -> ``two-layer``."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", name).replace("_", "-").lower()


def noun_of(kind: str | type) -> str:
    """Return the noun for a kind, or for a base class without a kind: ``"node weights"``."""
    return KINDS[kind].noun if isinstance(kind, str) else kebab(kind.__name__).replace("-", " ")


def base_of(kind: str) -> type:
    """Import the base class of a kind."""
    return _base(KINDS[kind].base)


def kind_of(base: type) -> str | None:
    """Return the kind whose base class is ``base`` or one of its bases; None if there is none."""
    for name, kind in KINDS.items():
        # A class cannot be derived from a base whose module was never imported.
        if kind.base.partition(":")[0] in sys.modules and issubclass(base, base_of(name)):
            return name
    return None


def load(reference: str) -> Any:
    """Import the object that ``package.module:Thing`` names; ``Thing`` may have dots."""
    module_name, _, path = reference.partition(":")
    if not re.fullmatch(r"\w+(\.\w+)*", module_name) or not re.fullmatch(r"\w+(\.\w+)*", path):
        raise UserError(f"'{reference}' cannot be imported: write it as 'package.module:Thing'.")
    try:
        found: Any = importlib.import_module(module_name)
    except (Exception, SystemExit) as error:
        if isinstance(error, ModuleNotFoundError) and error.name and f"{module_name}.".startswith(f"{error.name}."):
            raise UserError(
                f"There is no module '{error.name}', which '{reference}' names: install it, or put its file into the "
                "current folder, beside the recipe or on PYTHONPATH."
            ) from None
        raise UserError(
            f"The module '{module_name}', which '{reference}' names, cannot be imported ({first_line(error)}): "
            f"see the whole error with: python -c 'import {module_name}'."
        ) from error
    for part in path.split("."):
        if not hasattr(found, part):
            names = [name for name in vars(found) if not name.startswith("_")] if hasattr(found, "__dict__") else []
            near = suggest(part, names) if len(names) < 40 or suggest(part, names).startswith("Did") else ""
            raise UserError(f"There is no '{part}' in '{module_name}', which '{reference}' names. {near}".strip())
        found = getattr(found, part)
    return found


_base = functools.cache(load)


def parameters(member: Any) -> dict[str, inspect.Parameter]:
    """Return the parameters of a function or class by name; none if it cannot be called or has no signature."""
    try:
        if inspect.isclass(member) or inspect.isfunction(member):
            return dict(_signature(member))
        return dict(inspect.signature(member).parameters) if callable(member) else {}
    except ValueError:  # some builtins have none
        return {}


@functools.cache
def _signature(member: Any) -> Mapping[str, inspect.Parameter]:
    return inspect.signature(member).parameters


def modules(package: ModuleType, missing: Callable[[str, BaseException], None] | None = None) -> list[ModuleType]:
    """Return a module, or a package and all its public modules, each package followed by its own.

    Parameters
    ----------
    package
        Where to begin.
    missing
        Called with the name and the error of a module that cannot be imported; without it, the error is raised.
    """
    found = [package]
    for name in sorted(module.name for module in pkgutil.iter_modules(getattr(package, "__path__", ()))):
        if name.startswith(("_", "test_")) or name in ("tests", "conftest"):
            continue
        try:
            found += modules(importlib.import_module(f"{package.__name__}.{name}"), missing)
        except (Exception, SystemExit) as error:
            if missing is None:
                raise
            missing(f"{package.__name__}.{name}", error)
    return found


def makes(member: Any, base: type) -> bool:
    """Whether ``member`` is a ``base``, a concrete subclass of it, or a function annotated to return one."""
    if inspect.isclass(member):
        return issubclass(member, base) and not inspect.isabstract(member)
    if inspect.isfunction(member):
        made = _returned(member)
        return inspect.isclass(made) and issubclass(made, base)
    return isinstance(member, base)


def _returned(function: Any) -> Any:
    # Only the return annotation: the others may use names that are imported for type checkers only.
    function = inspect.unwrap(function)
    made = function.__annotations__.get("return")
    try:
        return eval(made, function.__globals__) if isinstance(made, str) else made
    except Exception:  # an annotation that only a type checker can evaluate
        return None


def walk(found: list[ModuleType], base: type) -> Iterator[tuple[str, Any]]:
    """Iterate over the members defined in some modules that make a ``base``, each with its Python name."""
    for module in found:
        for name, member in list(vars(module).items()):
            defined = inspect.isclass(member) or inspect.isfunction(member)  # an instance has no module of its own
            if name.startswith("_") or (defined and member.__module__ != module.__name__):
                continue
            if makes(member, base) and (not defined or vars(member).get("registered", True)):
                yield name, member


def plugins() -> tuple[str, ...]:
    """Return the names of all plug-ins."""
    named = tuple(name.strip() for name in os.environ.get(VARIABLE, "").split(",") if name.strip())
    return tuple(dict.fromkeys(_installed(tuple(sys.path)) + named))


@functools.lru_cache(maxsize=8)
def _installed(path: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(sorted({entry.module for entry in entry_points(group=GROUP)}))


@functools.cache
def _plugin_modules(names: tuple[str, ...]) -> list[ModuleType]:
    found: list[ModuleType] = []

    def missing(name: str, error: BaseException) -> None:
        _warn(names, f"the plug-in '{name}' cannot be imported and is left out ({first_line(error)}).")

    for name in names:
        try:
            found += modules(importlib.import_module(name), missing)
        except (Exception, SystemExit) as error:
            missing(name, error)
    return found


_warned: dict[tuple[str, ...], list[str]] = {}  # by the names of all plug-ins


def _warn(names: tuple[str, ...], sentence: str) -> None:
    _warned.setdefault(names, []).append(sentence)
    print(f"unlazy: {sentence}", file=sys.stderr)


def warnings() -> list[str]:
    """Return the warnings about those plug-ins that do not work."""
    return list(_warned.get(plugins(), ()))


def members(kind: str) -> Mapping[str, Any]:
    """List all members of a kind by name: those of its package, those of the papers, then those of plug-ins."""
    return _members(kind, plugins())


@functools.cache
def _own(kind: str) -> dict[str, Any]:
    """Return the members in the package of the kind itself, without importing the papers."""
    return _collected(kind, KINDS[kind].package or KINDS[kind].base.partition(":")[0], {})


def _collected(kind: str, package: str, known: dict[str, Any]) -> dict[str, Any]:
    found, places = dict(known), modules(importlib.import_module(package))
    if not KINDS[kind].keyed:  # the helpers of theorems return networks and probes
        places = [place for place in places if ".theorems" not in place.__name__]
    for name, member in _named(places, kind):
        if not _added(found, name, member):
            raise ValueError(f"Two members of {package} are called '{name}': rename one of them.")
    return found


@functools.cache
def _members(kind: str, names: tuple[str, ...]) -> dict[str, Any]:
    found = _collected(kind, PAPERS, _own(kind))
    taken = {id(member) for member in found.values()}
    for name, member in _named(_plugin_modules(names), kind):
        if id(member) not in taken and not _added(found, name, member):
            where = getattr(member, "__module__", type(member).__module__)
            _warn(names, f"the {KINDS[kind].noun} '{name}' of {where} is hidden by another of that name: rename it.")
    return found


def _added(found: dict[str, Any], name: str, member: Any) -> bool:
    """Add a member unless another has its name; of a class and its instance, the instance is added."""
    known = found.setdefault(name, member)
    if inspect.isclass(known) and isinstance(member, known):
        known = found[name] = member
    return known is member or (inspect.isclass(member) and isinstance(known, member))


def _named(found: list[ModuleType], kind: str) -> Iterator[tuple[str, Any]]:
    for name, member in walk(found, base_of(kind)):
        if not KINDS[kind].keyed:
            yield kebab(name), member
        elif isinstance(key := getattr(member, "key", None), str):  # else a family, whose instances have keys
            yield key, member


def find(kind: str, name: str) -> Any:
    """Look up a member by name, or import it as ``package.module:Thing``; the error for a wrong name suggests another.

    Returns a class or function that makes the member, an instance, or (by import) a plain Python object.
    """
    if ":" in name:
        return load(name)
    key = name if KINDS[kind].keyed else kebab(name)
    if not plugins() and key in _own(kind):  # a plug-in may have one of that name, which needs a warning
        return _own(kind)[key]
    known = members(kind)
    if key not in known:
        own = f" One of your own is written {short(':'.join(name.rsplit('.', 1)))}." if "." in name else ""
        raise UserError(f"There is no {noun_of(kind)} called {short(name)}. {suggest(kebab(name), known)}{own}")
    return known[key]


def resolve(kind: str, value: Any) -> Any:
    """Make a member of ``kind`` from an argument.

    Parameters
    ----------
    kind
        A key of `KINDS`.
    value
        A member; its name, or ``package.module:Thing``; a class or function that makes one without options; or, if
        the kind allows it, a plain Python function.

    Returns
    -------
    object
        An instance of the kind's base class; a plain function that serves as a probe is returned unchanged.
    """
    base, asked = base_of(kind), KINDS[kind]
    called = value if isinstance(value, str) else getattr(value, "__name__", short(value))
    member = find(kind, value) if isinstance(value, str) else value
    if isinstance(member, base):
        return member
    check_maker(kind, member, called)
    if is_plain(kind, member):
        return load(asked.plain)(member) if asked.plain else member  # a plain function is a probe already
    variable = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    options = parameters(member).values()
    needed = [one.name for one in options if one.default is one.empty and one.kind not in variable]
    if needed:
        raise UserError(f"The {asked.noun} '{called}' needs the option '{needed[0]}': give an object with its options.")
    return finish(kind, member(), called)


def check_maker(kind: str, member: Any, called: str) -> None:
    """Raise a `UserError` for an object that can neither make a member of ``kind`` nor serve as one."""
    base, noun = base_of(kind), article(KINDS[kind].noun)
    if inspect.isclass(member) and not issubclass(member, base) and KINDS[kind].leading:
        raise UserError(f"'{called}' is a class that is not derived from {base.__name__}: it does not make {noun}.")
    if inspect.isclass(member) and inspect.isabstract(member):
        missing = ", ".join(sorted(getattr(member, "__abstractmethods__", ())))
        raise UserError(f"'{called}' is abstract: define {missing}.")
    if not callable(member):
        raise UserError(f"{short(member)} is not {noun}: give an object, or a name that 'unlazy list {kind}' shows.")


def is_plain(kind: str, member: Any) -> bool:
    """Whether ``member`` is a plain function that serves as a member of ``kind`` itself instead of making one."""
    return bool(KINDS[kind].leading) and not inspect.isclass(member) and not makes(member, base_of(kind))


def finish(kind: str, made: Any, called: str) -> Any:
    """Check that a maker made a member of ``kind``; plain data, and models of other libraries, are converted to one."""
    base, asked = base_of(kind), KINDS[kind]
    if isinstance(made, base):
        return made
    if asked.plain and not asked.leading:
        return load(asked.plain)(made, name=called)
    got, noun = article(type(made).__name__), article(asked.noun)
    raise UserError(f"'{called}' made {got}, where {noun} was expected: return an instance of {base.__name__}.")


def choose(kind: str, name: str | None = None) -> list[Any]:
    """Return instances of a kind whose members have keys: the one called ``name``, all of a paper, or all.

    Parameters
    ----------
    kind
        "theorem" or "panel".
    name
        A key ("chen2022/fig1"), a paper ("chen2022"), or ``package.module:Thing``.
    """
    if name is not None and ":" in name:
        return [resolve(kind, name)]
    known = members(kind)
    chosen = [key for key in known if name is None or key == name or key.partition("/")[0] == name]
    if not chosen and name is not None:
        near = suggest(name, [*known, *{key.partition("/")[0] for key in known}])
        raise UserError(f"There is no {noun_of(kind)} or paper called {short(name)}. {near}")
    return [resolve(kind, known[key]) for key in chosen]
