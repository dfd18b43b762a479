"""Checks annotations while tests run; as everywhere in Python, an int is welcome where a float is."""

import inspect

import jaxtyping
from beartype import BeartypeConf, beartype

check = beartype(conf=BeartypeConf(is_pep484_tower=True))

_jaxtyped, _known = jaxtyping.jaxtyped, {}


def sparing(function=None, **options):
    """Decorate as `jaxtyping.jaxtyped` does, but a function inside a function only once, unless it states shapes.

    A function that is defined inside another is decorated again in each call of that other one, and it takes far longer
    to make a check than to run it.
    """
    if function is None:
        return lambda function: sparing(function, **options)
    if inspect.isfunction(function) and "<locals>" in function.__qualname__:
        code = function.__code__
        if code not in _known:
            _known[code] = _states_shapes(function)
        elif not _known[code]:
            return function
    return _jaxtyped(function, **options)


def _states_shapes(function):
    """Whether an annotation is one of jaxtyping; if a name is only known to type checkers, its check is made again."""
    try:
        hints = [
            eval(one, function.__globals__) if isinstance(one, str) else one
            for one in function.__annotations__.values()
        ]
    except NameError:
        return True
    return any("jaxtyping." in repr(one) and "[" in repr(one) for one in hints)


jaxtyping.jaxtyped = sparing
