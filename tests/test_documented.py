"""Every public name documents each of its arguments in NumPy style.

The names are those in ``__all__`` of every public package, and of the public modules below. Inherited constructors
count: a class documents the options with which a user makes it.
"""

import enum
import importlib
import inspect
import re

import pytest

import unlazy

PACKAGES = [name for name in unlazy.__all__ if inspect.ismodule(getattr(unlazy, name))]
MODULES = [*(f"unlazy.{name}" for name in PACKAGES), "unlazy.theory.abc", "unlazy.theory.coupling"]


def public():
    for module_name in MODULES:
        module = importlib.import_module(module_name)
        own = [name for name, value in vars(module).items() if getattr(value, "__module__", "") == module_name]
        for name in getattr(module, "__all__", [name for name in own if not name.startswith("_")]):
            value = getattr(module, name)
            if inspect.isfunction(value) or (inspect.isclass(value) and not issubclass(value, enum.Enum)):
                yield f"{module_name}.{name}", value


def arguments(value):
    if inspect.isclass(value) and (inspect.isabstract(value) or issubclass(value, BaseException)):
        return []
    found = inspect.signature(value).parameters
    return [name for name in found if name != "self" and not name.startswith("_")]


def documented(value):
    """Give the names in the sections Parameters and Attributes of a docstring."""
    text = inspect.getdoc(value) or ""
    names = set()
    for section in re.findall(
        r"^(?:Parameters|Attributes)\n-+\n(.*?)(?=^\S[^\n]*\n-+\n|\Z)", text, re.DOTALL | re.MULTILINE
    ):
        for line in re.findall(r"^(\*{0,2}\w+(?:, \*{0,2}\w+)*)(?: :.*)?$", section, re.MULTILINE):
            names |= {name.strip("* ") for name in line.split(",")}
    return names


NAMES = dict(public())


@pytest.mark.parametrize("name", NAMES)
def test_every_argument_is_documented(name):
    missing = [one for one in arguments(NAMES[name]) if one not in documented(NAMES[name])]
    assert not missing, f"{name} does not document {', '.join(missing)} in a section Parameters"


@pytest.mark.parametrize("name", NAMES)
def test_every_public_name_has_a_docstring(name):
    text = NAMES[name].__doc__ or ""
    assert text.strip(), name
    assert not text.startswith(f"{name.rpartition('.')[2]}("), f"{name} has only the docstring that dataclasses make"
