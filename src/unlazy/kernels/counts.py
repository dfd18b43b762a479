"""How many operations and intermediate results a jaxpr has."""

from __future__ import annotations

import math
from typing import Any

from unlazy.kernels.forms import form_of


def operations(jaxpr: Any) -> float:
    """Count the multiplications and additions of all matrix products and convolutions, those in loops included.

    Parameters
    ----------
    jaxpr
        The jaxpr.
    """
    total = 0.0
    for eqn in jaxpr.eqns:
        form = form_of(eqn, 1)
        if form is not None:
            total += 2.0 * math.prod(form.size)
        times = eqn.params.get("length", 1) if eqn.primitive.name == "scan" else 1
        total += times * sum(operations(inner) for inner in _inner(eqn))
    return total


def intermediates(jaxpr: Any) -> float:
    """Count the entries of all intermediate results, those of a loop's steps included.

    Parameters
    ----------
    jaxpr
        The jaxpr.
    """
    total = 0.0
    for eqn in jaxpr.eqns:
        inside = sum(intermediates(inner) for inner in _inner(eqn))
        times = eqn.params.get("length", 1) if eqn.primitive.name == "scan" else 1
        total += inside * times if inside else sum(getattr(var.aval, "size", 1) for var in eqn.outvars)
    return total


def has_own_vjp(jaxpr: Any) -> bool:
    """Whether a function with a reverse-mode derivative of its own is called, which has no forward-mode derivative.

    Parameters
    ----------
    jaxpr
        The jaxpr.
    """
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
