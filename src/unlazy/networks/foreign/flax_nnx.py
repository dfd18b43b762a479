"""Modules of flax.nnx."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Mapping
from typing import Any

import jax

from unlazy._errors import UserError
from unlazy._types import PyTree
from unlazy.networks.foreign.form import Form, Parts, call_options, like


@dataclasses.dataclass(frozen=True)
class NnxForm(Form):
    """Variables of type ``nnx.Param`` are the tree of parameters, as nested dictionaries of arrays."""

    graph: Any  # the module without arrays, in evaluation mode
    original: Any  # ... and as it was given
    structure: tuple[Any, Any]  # the structures of the states that hold parameters and constants in Flax

    def apply(self, parameters: PyTree, constants: PyTree, x: Any, key: Any) -> Any:
        if key is not None:
            raise UserError(f"{self.name} of flax.nnx has keys of its own: leave out the option key.")
        return self._merged(self.graph, parameters, constants)(x, **dict(self.options))

    def model(self, parameters: PyTree, constants: PyTree) -> Any:
        return self._merged(self.original, parameters, constants)

    def read(self, given: Any, parameters: PyTree, constants: PyTree) -> tuple[PyTree, PyTree]:
        nnx = sys.modules["flax.nnx"]
        if isinstance(given, nnx.Module):
            _, *states = nnx.split(given, nnx.Param, ...)
            found, others = map(nnx.to_pure_dict, states)
            return like(found, parameters, "the module"), like(others, constants, "the module")
        found = nnx.to_pure_dict(given) if isinstance(given, nnx.State) else given
        return like(found, parameters, "the module"), constants

    def _merged(self, graph: Any, *trees: PyTree) -> Any:
        pairs = zip(self.structure, trees, strict=True)
        states = [jax.tree.unflatten(structure, jax.tree.leaves(tree)) for structure, tree in pairs]
        return sys.modules["flax.nnx"].merge(graph, *states)


def recognise(model: Any, rest: tuple[Any, ...], options: Mapping[str, Any]) -> Parts | None:
    """Recognise a module of flax.nnx."""
    nnx: Any = sys.modules.get("flax.nnx")
    if nnx is None or not isinstance(model, nnx.Module):
        return None
    title = type(model).__name__
    if rest:
        raise UserError(f"A module of flax.nnx holds its parameters: give wrap(model), here {title}, alone.")
    original = nnx.split(model, nnx.Param, ...)[0]
    copy = nnx.clone(model)  # modules of nnx can be changed in place, and the user's must not be
    copy.eval()
    graph, parameters, others = nnx.split(copy, nnx.Param, ...)
    # Random keys, as of dropout, are not state that training changes.
    kinds = {type(one).__name__ for _, one in nnx.to_flat_state(others) if not isinstance(one, nnx.RngState)}
    structure = jax.tree.structure(parameters), jax.tree.structure(others)
    form = NnxForm(call_options(model.__call__, options), title, graph, original, structure)
    state = f"variables of type {', '.join(sorted(kinds))}" if kinds else ""
    return Parts(form, nnx.to_pure_dict(parameters), nnx.to_pure_dict(others), state)
