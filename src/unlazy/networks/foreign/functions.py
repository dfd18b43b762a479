"""Plain functions ``apply(parameters, x)`` of any tree of parameters."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from unlazy._errors import UserError
from unlazy._types import PyTree
from unlazy.networks.foreign.form import Form, Parts, as_arrays, call_options, like, takes


@dataclasses.dataclass(frozen=True)
class FunctionForm(Form):
    """A function of parameters and inputs."""

    function: Callable[..., Any]
    keyed: bool  # whether it takes a `key`

    def apply(self, parameters: PyTree, constants: PyTree, x: Any, key: Any) -> Any:
        options = dict(self.options) | ({"key": key} if self.keyed else {})
        return self.function(parameters, x, **options)

    def model(self, parameters: PyTree, constants: PyTree) -> Any:
        return self.function, parameters

    def read(self, given: Any, parameters: PyTree, constants: PyTree) -> tuple[PyTree, PyTree]:
        if type(given) is tuple and len(given) == 2 and given[0] is self.function:
            given = given[1]
        return like(as_arrays(given), parameters, "the parameters"), constants


def recognise(model: Any, rest: tuple[Any, ...], options: Mapping[str, Any]) -> Parts | None:
    """Recognise a function with its parameters."""
    if not callable(model) or isinstance(model, type):
        return None
    name = getattr(model, "__name__", type(model).__name__)
    if len(rest) != 1:
        raise UserError(f"The function '{name}' does not hold its parameters: give wrap(apply, params).")
    form = FunctionForm(call_options(model, options), name, model, takes(model, "key"))
    return Parts(form, as_arrays(rest[0]))
