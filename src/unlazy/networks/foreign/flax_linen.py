"""Modules of flax.linen with their variables."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Mapping
from typing import Any

from unlazy._errors import UserError, short
from unlazy._types import PyTree
from unlazy.networks.foreign.form import Form, Parts, as_arrays, call_options, like


@dataclasses.dataclass(frozen=True)
class LinenForm(Form):
    """The collection ``params`` is the tree of parameters; all others are constants."""

    module: Any

    def apply(self, parameters: PyTree, constants: PyTree, x: Any, key: Any) -> Any:
        rngs = None if key is None else {"params": key, "dropout": key}
        return self.module.apply({"params": parameters, **constants}, x, rngs=rngs, **dict(self.options))

    def model(self, parameters: PyTree, constants: PyTree) -> Any:
        return self.module, {"params": parameters, **constants}

    def read(self, given: Any, parameters: PyTree, constants: PyTree) -> tuple[PyTree, PyTree]:
        if isinstance(given, tuple) and len(given) == 2:
            given = given[1]
        found, others = _divided(given)
        return like(found, parameters, "the module"), like(others, constants, "the state") if others else constants


def _divided(variables: Any) -> tuple[PyTree, PyTree]:
    """Return parameters and the other collections of variables; a tree without collections is the parameters."""
    if not isinstance(variables, Mapping):
        raise UserError(f"Variables of flax.linen are a dictionary, not {short(variables)}: give those of module.init.")
    plain = _plain(variables)
    collections = plain if "params" in plain else {"params": plain}
    others = {name: one for name, one in collections.items() if name not in ("params", "intermediates") and one}
    return as_arrays(collections["params"]), as_arrays(others)


def _plain(tree: Any) -> Any:
    return {name: _plain(one) for name, one in tree.items()} if isinstance(tree, Mapping) else tree


def recognise(model: Any, rest: tuple[Any, ...], options: Mapping[str, Any]) -> Parts | None:
    """Recognise a module of flax.linen."""
    linen = sys.modules.get("flax.linen")
    if linen is None or not isinstance(model, linen.Module):
        return None
    if model.scope is not None and not rest:  # bound to its variables
        model, variables = model.unbind()
        rest = (variables,)
    if len(rest) != 1 or not isinstance(rest[0], Mapping):
        raise UserError(
            f"{type(model).__name__} of flax.linen does not hold its variables: give wrap(module, variables), with "
            "variables = module.init(key, x)."
        )
    parameters, constants = _divided(rest[0])
    named = ", ".join(f"'{name}'" for name in constants)
    form = LinenForm(call_options(model.__call__, options), type(model).__name__, model)
    return Parts(form, parameters, constants, f"the collection {named}" if named else "")
