"""How many operations and intermediate results a jaxpr has."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from unlazy.kernels.forms import form_of


def operations(jaxpr: Any) -> float:
    """Count the multiplications and additions of all matrix products and convolutions, those in loops included."""
    total = 0.0
    for eqn in jaxpr.eqns:
        form = form_of(eqn, 1)
        total += 0.0 if form is None else 2.0 * math.prod(form.size)
        total += _inside(eqn, operations)
    return total


def intermediates(jaxpr: Any) -> float:
    """Count the entries of all intermediate results, those of a loop's steps included."""
    return sum(
        _inside(eqn, intermediates) or sum(getattr(var.aval, "size", 1) for var in eqn.outvars) for eqn in jaxpr.eqns
    )


def _inside(eqn: Any, count: Callable[[Any], float]) -> float:
    """Add up the counts of the jaxprs inside an equation, for all steps of a loop."""
    steps = eqn.params["length"] if eqn.primitive.name == "scan" else 1
    return steps * sum(count(inner) for inner in _inner(eqn))


def has_own_vjp(jaxpr: Any) -> bool:
    """Whether a function with a reverse-mode derivative of its own is called, which has no forward-mode derivative."""
    return any(
        eqn.primitive.name.startswith("custom_vjp") or any(has_own_vjp(inner) for inner in _inner(eqn))
        for eqn in jaxpr.eqns
    )


def _inner(eqn: Any) -> list[Any]:
    found = []
    for value in eqn.params.values():
        for one in value if isinstance(value, (tuple, list)) else (value,):
            one = getattr(one, "jaxpr", one)
            if hasattr(one, "eqns"):
                found.append(one)
    return found
