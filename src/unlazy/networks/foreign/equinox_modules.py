"""Equinox modules, with or without an `equinox.nn.State`."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar

import equinox as eqx
import jax

from unlazy._errors import UserError
from unlazy._types import PyTree
from unlazy.networks.foreign.form import Form, Parts, call_options, like, takes


@dataclasses.dataclass(frozen=True)
class EquinoxForm(Form):
    """The module itself is the tree of parameters; it is called in inference mode."""

    stateful: bool  # whether it takes a state and returns a new one
    keyed: tuple[bool, bool]  # whether it takes a key, and whether it insists on one
    per_sample: ClassVar[bool] = True  # Equinox's layers are functions of one sample

    def apply(self, parameters: PyTree, constants: PyTree, x: Any, key: Any) -> Any:
        module, options = eqx.nn.inference_mode(parameters), dict(self.options)
        takes_key, needs_key = self.keyed
        if needs_key or (takes_key and key is not None):
            options.setdefault("key", key)
        return module(x, constants, **options)[0] if self.stateful else module(x, **options)

    def model(self, parameters: PyTree, constants: PyTree) -> Any:
        return (parameters, constants) if self.stateful else parameters

    def read(self, given: Any, parameters: PyTree, constants: PyTree) -> tuple[PyTree, PyTree]:
        module, *rest = given if type(given) is tuple else (given,)
        if type(module) is type(parameters):
            with contextlib.suppress(ValueError):  # of another structure, which `like` explains
                # It may be the trained half of `equinox.partition`, and flags like `inference` may differ.
                module = eqx.combine(eqx.filter(module, eqx.is_array), parameters)
        return like(module, parameters, "the module"), like(rest[0], constants, "the state") if rest else constants


def recognise(model: Any, rest: tuple[Any, ...], options: Mapping[str, Any]) -> Parts | None:
    """Recognise an Equinox module."""
    if not isinstance(model, eqx.Module) or not callable(model):
        return None
    call = type(model).__call__
    indices = jax.tree.leaves(model, is_leaf=lambda node: isinstance(node, eqx.nn.StateIndex))
    stateful = any(isinstance(node, eqx.nn.StateIndex) for node in indices)
    title = type(model).__name__
    if stateful and not rest:
        raise UserError(f"This {title} has layers with state: give wrap(model, state), from eqx.nn.make_with_state.")
    if len(rest) > 1 or (rest and not isinstance(rest[0], eqx.nn.State)):
        raise UserError(f"An Equinox module holds its parameters: give wrap(model), here of class {title}, alone.")
    keyed = takes(call, "key"), takes(call, "key", required=True)
    form = EquinoxForm(call_options(call, options), title, bool(rest), keyed)
    return Parts(form, model, rest[0] if rest else (), "an equinox.nn.State" if rest else "")
