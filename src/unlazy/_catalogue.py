"""Finds the members of a room by walking its files, so that adding a member means adding a file and nothing else.

A member of the room of ``Base`` is any public name, defined in one of the room's public modules, that makes a ``Base``:
a concrete subclass, a function annotated to return one, or a ready-made instance. Its name in recipes and on the
command line is the Python name in kebab case: ``TwoLayer`` is ``two-layer``, ``random_labels`` is ``random-labels``.
"""

import functools
import importlib
import inspect
import pkgutil
import re
from collections.abc import Iterator
from types import ModuleType
from typing import Any

from unlazy._errors import UserError, suggest


def kebab(name: str) -> str:
    """``TwoLayer`` or ``two_layer`` -> ``two-layer``."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", name).replace("_", "-").lower()


def spoken(base: type) -> str:
    """``NodeWeights`` -> ``node weights``: what a base class is called in a sentence."""
    return kebab(base.__name__).replace("-", " ")


def modules(room: ModuleType) -> list[ModuleType]:
    """Give the room itself if it is a single file, else its public modules in alphabetical order.

    A folder in a room (say, of a paper too long for one file) is followed by its own public modules.
    """
    if not hasattr(room, "__path__"):
        return [room]
    found = []
    for name in sorted(m.name for m in pkgutil.iter_modules(room.__path__) if not m.name.startswith("_")):
        module = importlib.import_module(f"{room.__name__}.{name}")
        found += [module, *modules(module)] if hasattr(module, "__path__") else [module]
    return found


def _makes(member: Any, base: type) -> bool:
    if inspect.isclass(member):
        return issubclass(member, base) and not inspect.isabstract(member)
    if inspect.isfunction(member):
        made = _returned(member)
        return inspect.isclass(made) and issubclass(made, base)
    return isinstance(member, base)


def _returned(function: Any) -> Any:
    # Only the return annotation: the others may name what is imported for type checkers alone.
    function = inspect.unwrap(function)
    made = function.__annotations__.get("return")
    try:
        return eval(made, function.__globals__) if isinstance(made, str) else made
    except Exception:  # an annotation that only a type checker can read makes nothing that we know
        return None


def _home(member: Any, name: str) -> str | None:
    # An instance does not know where it was written down; its module's namespace does.
    return getattr(member, "__module__", None) if inspect.isclass(member) or inspect.isfunction(member) else name


def walk(room: ModuleType, base: type) -> Iterator[tuple[str, Any]]:
    """Go through all members of ``room`` that make a ``base``, file by file, each with its name."""
    for module in modules(room):
        for name, member in vars(module).items():
            if name.startswith("_") or _home(member, module.__name__) != module.__name__:
                continue
            if _makes(member, base):
                yield kebab(name), member


@functools.cache
def members(room: ModuleType, base: type) -> dict[str, Any]:
    """List all members of ``room`` that make a ``base``, by name."""
    found: dict[str, Any] = {}
    for name, member in walk(room, base):
        if found.setdefault(name, member) is not member:
            raise ValueError(f"Two members of {room.__name__} are called '{name}': rename one of them.")
    return found


def find(room: ModuleType, base: type, name: str) -> Any:
    """Look one member up by name; a wrong name gets the nearest right one."""
    known = members(room, base)
    try:
        return known[kebab(name)]
    except KeyError:
        raise UserError(f"There is no {spoken(base)} called '{name}'. {suggest(kebab(name), known)}") from None
