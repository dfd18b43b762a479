"""Build members of the registry from sections of a recipe, and check each option against the member's signature."""

from __future__ import annotations

import collections.abc
import contextlib
import dataclasses
import enum
import functools
import inspect
import re
import sys
import types
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from textwrap import shorten
from typing import Annotated, Any, Literal, NamedTuple

import msgspec

from unlazy import _registry
from unlazy._checked import LISTS, hints_of, takes_anything
from unlazy._errors import UserError, article, short, suggest
from unlazy._registry import base_of, find, kebab, kind_of, load, members, noun_of

Section = dict[str, Any] | str  # a member with options, or just its name

# Classes of these packages are values, which a file cannot hold, and not members that a recipe can name.
VALUES = {"jax", "jaxlib", "jaxtyping", "numpy", *sys.stdlib_module_names}


def build(section: Section, kind: str | type, where: str, **given: Any) -> Any:
    """Make the member that a section names.

    Parameters
    ----------
    section
        The name of a member, or a table with its name as ``kind`` and its options.
    kind
        A kind of the registry ("network"), or a class of which an instance is needed.
    where
        The place of the section in the recipe, for error messages.
    given
        Arguments that a file cannot hold, for members that take them: ``key``, ``inputs``, ``image``, ``outputs``.

    Returns
    -------
    object
        The member.
    """
    kind = registered(kind)
    base = base_of(kind) if isinstance(kind, str) else kind
    name, options = split(section)
    if name is None:
        known = _known(kind)
        some = shorten(", ".join(sorted(known)), 300, placeholder=f" ... ({len(known)} in all)")
        raise UserError(f'{where}: say which {noun_of(kind)} with kind = "...". Known: {some}.')
    with located(where):
        maker = find_maker(kind, name)
        if isinstance(maker, base):  # a ready instance
            if options:
                raise UserError(f"this {noun_of(kind)} takes no options, but '{min(options)}' was given.")
            return maker
        if isinstance(kind, str):
            _registry.check_maker(kind, maker, name)
        elif not callable(maker):
            raise UserError(f"'{name}' is not {article(noun_of(kind))}.")
    if isinstance(kind, str) and _registry.is_plain(kind, maker):
        return _plain(kind, maker, options, where)
    arguments = _arguments(options, maker, where, given)
    try:
        with located(where):
            made = maker(**arguments)
            if isinstance(kind, str):
                return _registry.finish(kind, made, name)
            if not isinstance(made, base):
                other, wanted = article(type(made).__name__), article(noun_of(kind))
                raise UserError(f"'{name}' made {other}, where {wanted} was expected.")
            return made
    except UserError:
        raise
    except Exception as error:  # for example a number that does not fit its array, or an error in a user's own code
        first = str(error).partition("\n")[0]
        known = isinstance(error, TypeError | ValueError | OverflowError)
        what = first if known and first else f"{type(error).__name__}: {first}"
        raise UserError(f"{where}: these options do not work: {what}") from error


@contextlib.contextmanager
def located(where: str) -> Iterator[None]:
    """Put the place in a recipe in front of the message of a `UserError`."""
    try:
        yield
    except UserError as error:
        raise UserError(f"{where}: {error}") from None


def split(section: Section) -> tuple[str | None, dict[str, Any]]:
    """Return the name of the member in a section, None if there is none, and its options."""
    options = {"kind": section} if isinstance(section, str) else dict(section)
    name = options.pop("kind", None)
    return name if isinstance(name, str) else None, options


def registered(kind: str | type) -> str | type:
    """Return the kind of which a class is the base, or the class itself if there is none."""
    name = kind_of(kind) if isinstance(kind, type) else None
    return name if name is not None and base_of(name) is kind else kind


def _known(kind: str | type) -> Mapping[str, Any]:
    """Return members by name; of a class without a kind, those in its package, if that is unlazy's or a plug-in's."""
    if isinstance(kind, str):
        return members(kind)
    wider = kind_of(kind)
    if wider is not None:
        return {name: one for name, one in members(wider).items() if _registry.makes(one, kind)}
    home = sys.modules[kind.__module__]
    package = sys.modules.get(home.__name__.rpartition(".")[0], home)
    searched = home.__name__.partition(".")[0] in ("unlazy", *(name.partition(".")[0] for name in _registry.plugins()))
    found = _registry.modules(package) if searched else [home]
    return {kebab(name): one for name, one in _registry.walk(found, kind)}


def find_maker(kind: str | type, name: str) -> Any:
    """Look up a member by name, or import it as ``package.module:Thing``."""
    if ":" in name or isinstance(kind, str):
        return find(kind, name) if isinstance(kind, str) else load(name)
    known = _known(kind)
    if kebab(name) not in known:
        near = f"{suggest(kebab(name), known)} " if known else ""
        raise UserError(
            f"There is no {noun_of(kind)} called {short(name)}. {near}Others are written as 'package.module:Thing'."
        )
    return known[kebab(name)]


# ---------------------------------------------------------------- options


def _arguments(
    options: dict[str, Any], maker: Any, where: str, given: dict[str, Any], leading: int = 0, others: Sequence[str] = ()
) -> dict[str, Any]:
    """Check options against a signature; the library fills in its first ``leading`` arguments and those ``given``.

    Options named in ``others`` are allowed and ignored.
    """
    parameters = dict(list(_registry.parameters(maker).items())[leading:])
    anything = takes_anything(parameters)
    parameters = {name: p for name, p in parameters.items() if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
    hints, arguments = hints_of(maker), {}
    known = [name for name in parameters if name not in given]
    for option, value in options.items():
        name = option.replace("-", "_")
        if name in given and name in parameters:
            raise UserError(f"{where}: '{option}' is filled in from the data and the seed: leave it out.")
        if name in others and name not in known:
            continue
        if name not in known and not anything:
            raise no_option(option, [*known, *others], where)
        arguments[name] = convert(value, hints.get(name, Any), f"{where}.{name}", given)
    arguments |= {name: value for name, value in given.items() if name in parameters}
    missing = [name for name, p in parameters.items() if p.default is p.empty and name not in arguments]
    if missing:
        raise UserError(f"{where}: the option '{missing[0]}' is missing.")
    return arguments


def no_option(option: str, known: Sequence[str], where: str) -> UserError:
    """Return the error that an option has a name that is not known."""
    return UserError(f"{where}: there is no option '{option}'. {suggest(option, known)}")


@dataclasses.dataclass(frozen=True)
class Bound:
    """A plain function with options, equal to another of the same function and options."""

    function: Callable[..., Any]
    options: tuple[tuple[str, Any], ...]

    def __call__(self, *arguments: Any) -> Any:
        """Call the function."""
        return self.function(*arguments, **dict(self.options))

    @property
    def __name__(self) -> str:
        return getattr(self.function, "__name__", "function")


def _plain(kind: str, function: Any, options: dict[str, Any], where: str) -> Any:
    """Make a member from a plain function; options are those of the function or of the class that wraps it."""
    asked = _registry.KINDS[kind]
    wrapper: Any = load(asked.plain) if asked.plain else None
    wrapping = list(inspect.signature(wrapper).parameters)[1:] if wrapper else []
    own = _arguments(options, function, where, {}, asked.leading, wrapping)
    outer = {name: value for name, value in options.items() if name.replace("-", "_") not in own}
    fixed = tuple((name, tuple(value) if isinstance(value, list) else value) for name, value in sorted(own.items()))
    bound = Bound(function, fixed) if fixed else function
    if wrapper is None:
        return bound
    arguments = _arguments(outer, functools.partial(wrapper, bound), where, {})
    with located(where):
        return wrapper(bound, **arguments)


class Accepted(NamedTuple):
    """The values that an option accepts, by its type."""

    choices: tuple[Any, ...]  # the members of a union, or the one type
    kinds: list[type]  # classes whose objects a recipe can name
    plain: list[Any]  # what a file can hold
    words: list[Any]  # words that stand for themselves
    parts: list[Any]  # types of the elements of lists that hold members


def accepted(hint: Any) -> Accepted:
    """Split the type of an option into what can be written in a recipe and what can be named."""
    choices = typing.get_args(hint) if typing.get_origin(hint) in (typing.Union, types.UnionType) else (hint,)
    plain = [choice for choice in choices if _is_plain(choice)]
    words = [word for choice in plain if typing.get_origin(choice) is Literal for word in typing.get_args(choice)]
    lists = [choice for choice in choices if typing.get_origin(choice) in LISTS and choice not in plain]
    parts = [typing.get_args(one)[0] for one in lists]
    return Accepted(choices, [choice for choice in choices if _is_member(choice)], plain, words, parts)


def convert(value: Any, hint: Any, where: str, given: dict[str, Any]) -> Any:
    """Convert a value read from a file to the type of an option."""
    choices, kinds, plain, words, parts = accepted(hint)
    if parts and isinstance(value, list):  # members in a list, each with options of its own
        return tuple(convert(one, parts[0], f"{where}[{index}]", given) for index, one in enumerate(value))
    if kinds and isinstance(value, str | dict) and value not in words:
        return build(value, right_kind(kinds, value), where, **given)
    functions = any(collections.abc.Callable in (choice, typing.get_origin(choice)) for choice in choices)
    if functions and isinstance(value, str) and ":" in value:
        with located(where):
            found = load(value)
        if not callable(found):
            raise UserError(f"{where}: '{value}' is not a function.")
        return found
    if Path in choices and isinstance(value, str):
        return Path(value)
    # Next to a kind, `str` stands for names of members.
    nothing_plain = set(plain) <= ({type(None), str} if kinds else {type(None)}) and value is not None
    if kinds and nothing_plain:
        noun = noun_of(kind_of(kinds[0]) or kinds[0])
        raise UserError(f"{where}: {short(value)} is not {article(noun)}: give its name, or a table with its kind.")
    if nothing_plain and functions:
        raise UserError(f"{where}: {short(value)} is not a function: name one as 'package.module:function'.")
    if nothing_plain:
        raise UserError(f"{where}: this cannot be written in a recipe, only in Python: leave it out.")
    if any(map(_has_numbers, plain)):
        value = _numbers(value)
    try:
        return msgspec.convert(value, typing.Union[tuple(plain)])  # noqa: UP007
    except msgspec.ValidationError as error:
        place, what = explain(str(error), words=words)
        if what.startswith("Expected") and "got" not in what and not place:  # a number out of range
            what = f"{what.removesuffix('.')}, got {short(value)}."
        raise UserError(f"{where}{place}: {what}") from None


def right_kind(kinds: list[type], value: str | dict[str, Any]) -> type:
    """Return the first of several classes, all accepted by an option, that has a member of the given name."""
    name = value if isinstance(value, str) else value.get("kind")
    if len(kinds) > 1 and isinstance(name, str):
        for kind in kinds:
            found = load(name) if ":" in name else _known(kind_of(kind) or kind).get(kebab(name))
            if found is not None and _registry.makes(found, kind):
                return kind
    return kinds[0]


def _has_numbers(hint: Any) -> bool:
    """Whether a type is that of numbers, or has them as parts: in lists, or with annotations."""
    return hint is float or any(map(_has_numbers, typing.get_args(hint)))


def _numbers(value: Any) -> Any:
    """Read what `Recipe.json` writes for infinity and NaN, alone or in a list."""
    if isinstance(value, list):
        return [_numbers(one) for one in value]
    return float(value) if value in ("inf", "-inf", "nan") else value


def _is_member(hint: Any) -> bool:
    """Whether a type is a class whose instances a recipe can name."""
    return (
        inspect.isclass(hint)
        and typing.get_origin(hint) is None
        and hint.__module__.partition(".")[0] not in VALUES
        and not issubclass(hint, enum.Enum)
    )


def _is_plain(hint: Any) -> bool:
    """Whether a file can hold values of a type."""
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    if origin is Annotated:
        return _is_plain(parts[0])
    if origin in (*LISTS, dict, typing.Union, types.UnionType):
        return all(_is_plain(part) for part in parts if part is not Ellipsis)
    if inspect.isclass(hint) and issubclass(hint, enum.Enum):
        return True
    return hint in (int, float, str, bool, list, tuple, dict, type(None), Any) or origin is Literal


def explain(message: str, form: type[msgspec.Struct] | None = None, words: Sequence[str] = ()) -> tuple[str, str]:
    """Turn a validation message of msgspec into a place (".times.end", or nothing) and a sentence.

    The fields and literals of ``form``, the structure that was being read, are suggested, or else ``words``.
    """
    what, _, place = message.partition(" - at `$")
    place = place.rstrip("`")
    quoted = re.search(r"[`'](.*)[`']", what)
    name = quoted[1] if quoted else ""
    if "unknown field" in what:
        return place, f"there is no field {short(name)}. {suggest(name, form.__struct_fields__ if form else ())}"
    if "required field" in what:
        return place, f"the field '{name}' is missing."
    if "Invalid enum value" in what:
        if form is not None:
            words = typing.get_args(typing.get_type_hints(form)[place.rpartition(".")[2]])
        return place, f"{short(name)} is not one of the choices. {suggest(name, words)}"
    return place, what.replace("`", "'").replace("object", "table") + "."
