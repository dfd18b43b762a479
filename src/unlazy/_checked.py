"""Arguments of public classes and functions, checked against their annotations before anything else happens.

A class derived from `Checked`, or a function decorated with `checked`, receives arguments of the annotated types or
raises a `UserError` that names the argument, its value and a remedy. Types are read as a recipe reads them: numbers
must be finite and in the range of JAX's numbers, a list serves as a tuple, a name serves as the activation, loss, law
or other member that it names, and a whole number serves as a random key. Annotations of arrays and other types are left
to whoever receives the argument.
"""

from __future__ import annotations

import collections.abc
import enum
import functools
import inspect
import math
import operator
import sys
import types
import typing
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import AbstractArray

from unlazy import _registry
from unlazy._errors import UserError, article, short, suggest
from unlazy._inputs import as_key

F = TypeVar("F", bound=Callable[..., Any])
_PLAIN = (str, bytes, bool, int, float, complex, dict, set, type(None))
LISTS = (tuple, list, collections.abc.Sequence)
MAY_BE_INFINITE = "may be infinite"  # Annotated[float, MAY_BE_INFINITE]
_BOUNDS = (("of at least", "ge"), ("above", "gt"), ("of at most", "le"), ("below", "lt"))  # as `msgspec.Meta` has them


class _Mismatch(Exception):
    """A value is not of a type; ``wanted`` describes values that are, and ``remedy`` what to give."""

    def __init__(self, wanted: str, remedy: str = "") -> None:
        self.wanted, self.remedy = wanted, remedy


if TYPE_CHECKING:
    Checked = eqx.Module
else:

    class _CheckedMeta(type(eqx.Module)):
        """Checks the arguments of a class when it is called."""

        def __call__(cls, *args: Any, **kwargs: Any) -> Any:
            args, kwargs = conform(cls, args, kwargs)
            return super().__call__(*args, **kwargs)

    class Checked(eqx.Module, metaclass=_CheckedMeta):
        """An Equinox module whose arguments are checked against their annotations."""


def checked(function: F) -> F:
    """Check the arguments of a function against their annotations, as a decorator."""

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        args, kwargs = conform(wrapper, args, kwargs)
        return function(*args, **kwargs)

    return cast(F, wrapper)


def conform(maker: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments of a call as the annotations of ``maker`` want them, or raise a `UserError`."""
    signature, hints = _signature(maker), hints_of(maker)
    name = _name(maker) if not args or inspect.isclass(maker) else _name(maker, args[0])
    if signature is None:
        return args, kwargs
    for given in kwargs:
        if given not in signature.parameters and not takes_anything(signature.parameters):
            known = [one for one in signature.parameters if one != "self"]
            raise UserError(f"{name} has no argument '{given}'. {suggest(given, known)}")
    try:
        bound = signature.bind(*args, **kwargs)
    except TypeError as error:
        raise UserError(f"{name} cannot be called like this ({error}): see help({name}).") from None
    for argument, value in bound.arguments.items():
        kind = signature.parameters[argument].kind
        if argument in hints and kind not in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD):
            bound.arguments[argument] = converted(value, hints[argument], name, argument)
    return bound.args, bound.kwargs


def converted(value: Any, hint: Any, owner: str, argument: str) -> Any:
    """Return an argument as its type wants it, or raise a `UserError`.

    Parameters
    ----------
    value, hint
        The argument and its type.
    owner, argument
        The class or function, and the name of the argument, for messages.
    """
    try:
        return _converted(value, hint)
    except _Mismatch as error:
        remedy = f": {error.remedy}" if error.remedy else ""
        raise UserError(f"{owner}: {argument} = {short(value)} is not {error.wanted}{remedy}.") from None
    except UserError as error:
        said = str(error)
        raise UserError(said if said.startswith(f"{argument} ") else f"{owner}: {argument}: {said}") from None


def _name(maker: Any, first: Any = None) -> str:
    """Return the name of a class or function; of a method, that of the object's class and its own."""
    owner, _, own = maker.__qualname__.rpartition("<locals>.")[2].rpartition(".")
    if not owner:
        return own
    owner = type(first).__name__
    return owner if own in ("__init__", "__call__") else f"{owner}.{own}"


@functools.cache
def _signature(maker: Any) -> inspect.Signature | None:
    try:
        return inspect.signature(maker)
    except (TypeError, ValueError):
        return None


def takes_anything(options: Mapping[str, inspect.Parameter]) -> bool:
    """Whether a function with these parameters takes keyword arguments of any name."""
    return any(one.kind is one.VAR_KEYWORD for one in options.values())


# ---------------------------------------------------------------- one value


def _converted(value: Any, hint: Any) -> Any:
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    if isinstance(value, Tracer):
        return value  # inside compiled code
    if origin in (typing.Union, types.UnionType):
        return _any_of(value, parts)
    if origin is Annotated:
        number = parts[0] in (int, float)
        return _in_range(_number(value, parts[0], MAY_BE_INFINITE in parts), parts[1:]) if number else value
    if origin is Literal:
        return _one_of(value, parts)
    if hint is None or hint is type(None):
        if value is None:
            return None
        raise _Mismatch("None")
    if hint in (int, float):
        return _number(value, hint)
    if hint is bool:
        if isinstance(value, bool | np.bool_):
            return bool(value)
        raise _Mismatch("True or False", "give one of these")
    if hint is str:
        if isinstance(value, str):
            return value
        raise _Mismatch("text", "write it in quotes")
    if _is_key(hint):
        return as_key(value)
    if origin in LISTS:
        return _list(value, origin, parts)
    if collections.abc.Mapping in (hint, origin) or dict in (hint, origin):
        if isinstance(value, Mapping):
            return value
        raise _Mismatch("a dictionary", "give one such as {'name': value}")
    if collections.abc.Callable in (hint, origin):
        if callable(value):
            return value
        raise _Mismatch("a function", "give an object that can be called")
    if inspect.isclass(hint) and origin is None and _is_class(hint):
        return _member(value, hint)
    if _is_array(hint) and isinstance(value, _PLAIN):
        raise _Mismatch("an array", "give a NumPy or JAX array")
    return value


def _any_of(value: Any, choices: tuple[Any, ...]) -> Any:
    """Return the value as the first type of a union that it fits; next to a kind, `str` stands for its members."""
    if value is None and type(None) in choices:
        return None
    if any(_is_key(one) for one in choices):
        return as_key(value)
    classes = [one for one in choices if inspect.isclass(one) and _is_class(one)] if isinstance(value, str) else []
    kinds = [one for one in classes if _registry.kind_of(one) is not None]
    words = [word for one in choices if typing.get_origin(one) is Literal for word in typing.get_args(one)]
    if kinds and value not in words:
        return _member(value, kinds[0])
    listed = isinstance(value, list | tuple) and any(typing.get_origin(one) in LISTS for one in choices)
    refused: list[_Mismatch] = []
    for choice in choices:
        if (choice is str and kinds) or (listed and _is_array(choice)):
            continue
        try:
            return _converted(value, choice)
        except _Mismatch as error:
            refused.append(error)
    # For a number out of range, only the range is named, and not the other types that were possible.
    close = [one for one in refused if one.remedy.startswith("give a") and isinstance(value, int | float)]
    wanted = [one.wanted for one in (close or refused) if one.wanted != "None"]
    remedy = next((one.remedy for one in (close or refused) if one.remedy), "")
    raise _Mismatch(" or ".join(dict.fromkeys(wanted)) or "possible", remedy)


def _number(value: Any, kind: type, infinite: bool = False) -> Any:
    whole = kind is int
    wanted, example = ("a whole number", "such as 8") if whole else ("a number", "such as 0.5")
    given = value
    if isinstance(value, np.generic | np.ndarray | jax.Array) and np.ndim(value) == 0:
        given = np.asarray(value)[()].item() if np.asarray(value).dtype.kind in "iufb" else value
    if isinstance(given, bool) or not isinstance(given, int | float):
        raise _Mismatch(wanted, f"give one {example}{', without quotes' if isinstance(value, str) else ''}")
    if whole:
        if isinstance(given, float) and not given.is_integer():
            raise _Mismatch(wanted, f"give one {example}")
        return int(given)
    try:
        given = float(given)
    except OverflowError:
        given = math.inf
    if infinite and math.isinf(given):
        return given
    if not math.isfinite(given):
        raise _Mismatch("a finite number", "give one such as 0.5")
    limits = jnp.finfo(jnp.result_type(float))
    if given and not float(limits.tiny) <= abs(given) <= float(limits.max):
        advice = "" if limits.bits == 64 else ", or use float64"
        raise _Mismatch(
            f"a number that {limits.dtype} can hold", f"give one from {limits.tiny:.2g} to {limits.max:.2g}{advice}"
        )
    return value if isinstance(value, int) and not isinstance(value, bool) else given


def _in_range(value: Any, parts: tuple[Any, ...]) -> Any:
    """Check the bounds of `msgspec.Meta`, with which recipes are checked too."""
    for meta in parts:
        bounds = [(word, test, getattr(meta, test, None)) for word, test in _BOUNDS]
        given = [(word, test, bound) for word, test, bound in bounds if bound is not None]
        if not all(getattr(operator, test)(value, bound) for _, test, bound in given):
            wanted = " and ".join(f"{word} {bound:,}" for word, _, bound in given)
            raise _Mismatch("in range", f"give a number {wanted}")
    return value


def _one_of(value: Any, words: tuple[Any, ...]) -> Any:
    if any(value is word or (type(value) is type(word) and value == word) for word in words):
        return value
    raise _Mismatch(f"one of {', '.join(repr(word) for word in words)}", "choose one of these")


def _list(value: Any, origin: Any, parts: tuple[Any, ...]) -> Any:
    if isinstance(value, np.ndarray | jax.Array) and np.ndim(value) > 0:
        value = np.asarray(value)
    elif not isinstance(value, list | tuple | range) and (
        not isinstance(value, collections.abc.Sequence) or isinstance(value, str | bytes)
    ):
        raise _Mismatch("a list", f"write [{short(value)}] for a list of one" if np.isscalar(value) else "write [...]")
    if not parts:
        return value
    if origin is tuple and Ellipsis not in parts:
        if len(value) != len(parts):
            raise _Mismatch(f"a list of {len(parts)} entries", f"give {len(parts)}")
        return tuple(_converted(one, part) for one, part in zip(value, parts, strict=True))
    try:
        made = tuple(_converted(one, parts[0]) for one in value)
    except _Mismatch as error:
        raise _Mismatch(f"a list in which each entry is {error.wanted}", error.remedy) from None
    return made if origin is tuple else value


def _member(value: Any, base: type) -> Any:
    if isinstance(value, base):
        return value
    kind = _registry.kind_of(base)
    noun = article(_registry.noun_of(kind or base))
    if kind is None:
        raise _Mismatch(article(base.__name__), f"give an instance, such as {base.__name__}(...)")
    if isinstance(value, str) or (callable(value) and _registry.KINDS[kind].leading):
        made = _registry.resolve(kind, value)
        if isinstance(made, base):
            return made
    if inspect.isclass(value):
        raise _Mismatch(noun, f"give an instance, {value.__name__}()")
    if kind == "network":
        raise _Mismatch(noun, "give one from unlazy.networks, or wrap your own model with unlazy.wrap(model)")
    raise _Mismatch(noun, f"give an object, or a name that 'unlazy list {kind}' shows")


def _is_class(hint: type) -> bool:
    """Whether `isinstance` decides if a value is of this type: not for arrays, plain values and protocols."""
    values = ("builtins", "typing", "jax", "jaxlib", "jaxtyping", "numpy", "collections", "types")
    if hint.__module__.partition(".")[0] in values or issubclass(hint, AbstractArray | enum.Enum):
        return False
    return not getattr(hint, "_is_protocol", False) and hint is not object


def _is_array(hint: Any) -> bool:
    return hint in (jax.Array, np.ndarray) or (inspect.isclass(hint) and issubclass(hint, AbstractArray))


def _is_key(hint: Any) -> bool:
    """Whether a type is that of random keys; in a union with others, these are the other forms that `as_key` takes."""
    return inspect.isclass(hint) and issubclass(hint, AbstractArray) and "prng_key" in str(getattr(hint, "dtypes", ""))


# ---------------------------------------------------------------- types of arguments


@functools.cache
def hints_of(maker: Any) -> Mapping[str, Any]:
    """Return the types of a maker's options; the type of the field where that of its converter is not known."""
    if isinstance(maker, functools.partial):
        return hints_of(maker.func)
    if not inspect.isclass(maker):
        return _evaluated(maker, {})
    # An inherited field is annotated with the names of the module that defines it.
    words = {
        name: value
        for base in reversed(maker.__mro__)
        for name, value in vars(sys.modules.get(base.__module__, types)).items()
    }
    own, fields = _evaluated(maker.__init__, words), _evaluated(maker, words)
    return {name: fields.get(name, hint) if hint is Any else hint for name, hint in own.items()}


def _evaluated(annotated: Any, words: dict[str, Any]) -> dict[str, Any]:
    try:
        return typing.get_type_hints(annotated, localns=words or None, include_extras=True)
    except Exception:  # one of them uses a name that is imported for type checkers only: use the others
        spaces = getattr(inspect.unwrap(annotated), "__globals__", {})
        found = {}
        for name, hint in inspect.get_annotations(annotated).items():
            try:
                found[name] = eval(hint, spaces, words) if isinstance(hint, str) else hint
            except Exception:
                found[name] = Any
        return found
