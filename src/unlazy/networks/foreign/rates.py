"""Learning-rate factors of a model's parameters, from a mask, from numbers or from a function of names."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeAlias

import equinox as eqx
import jax
import numpy as np

from unlazy._errors import UserError, short
from unlazy._types import PyTree
from unlazy.networks._base import leaf_name

Rates: TypeAlias = Callable[[str], Any] | PyTree | None


def named_parameters(parameters: PyTree) -> dict[str, Any]:
    """Return the floating-point arrays of a tree by name, in their order."""
    leaves = jax.tree_util.tree_flatten_with_path(eqx.filter(parameters, eqx.is_inexact_array))[0]
    return {leaf_name(path): leaf for path, leaf in leaves}


def factors(rates: Rates, parameters: PyTree) -> tuple[float, ...]:
    """Return one learning-rate factor for each floating-point array of ``parameters``.

    ``rates`` is None (1 everywhere), a function of an array's name, or a tree of numbers or booleans with the structure
    of ``parameters`` or of its upper part.
    """
    arrays = eqx.filter(parameters, eqx.is_inexact_array)
    names = list(named_parameters(parameters))
    if rates is None:
        return (1.0,) * len(names)
    if callable(rates) and not jax.tree.leaves(eqx.filter(rates, eqx.is_array_like)):
        return _checked({name: rates(name) for name in names})
    try:
        whole = jax.tree.broadcast(rates, parameters)
    except ValueError:
        try:  # a tree that was made of the arrays only
            whole = jax.tree.broadcast(rates, arrays)
        except ValueError as error:
            some = ", ".join(names[:3])
            raise UserError(
                "The tree of `rates` does not have the structure of the parameters: give a function of their names "
                f"({some}, ...), or a tree like jax.tree.map(lambda _: 1.0, parameters). "
                f"JAX says: {str(error).partition(chr(10))[0]}"
            ) from None
    chosen = jax.tree.leaves(jax.tree.map(lambda _, rate: rate, arrays, _matching(whole, arrays)))
    return _checked(dict(zip(names, chosen, strict=True)))


def _matching(whole: PyTree, arrays: PyTree) -> PyTree:
    """Drop the values that belong to leaves which are not arrays."""
    if jax.tree.structure(whole) == jax.tree.structure(arrays):
        return whole
    kept = jax.tree.map(lambda leaf: leaf is not None, arrays, is_leaf=lambda leaf: leaf is None)
    return eqx.filter(whole, kept)


def _checked(chosen: dict[str, Any]) -> tuple[float, ...]:
    found = []
    for name, value in chosen.items():
        if np.ndim(value) != 0:
            raise UserError(
                f"The rate of '{name}' is an array of shape {np.shape(value)}, where one number was expected: "
                "parameters are frozen as whole arrays."
            )
        try:
            number = float(value)
        except (TypeError, ValueError):
            number = math.nan
        if not (math.isfinite(number) and number >= 0):
            raise UserError(
                f"The rate of '{name}' is {short(value)}, where a number >= 0 was expected: 0 or False freezes it."
            )
        found.append(number)
    if not any(found):
        raise UserError(f"All rates are 0, so that nothing would be trained: the arrays are {', '.join(chosen)}.")
    return tuple(found)
