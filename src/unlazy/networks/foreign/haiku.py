"""Functions transformed by Haiku, with their parameters."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Mapping
from typing import Any

from unlazy._errors import UserError
from unlazy._types import PyTree
from unlazy.networks.foreign.form import Form, Parts, as_arrays, call_options, like, takes


@dataclasses.dataclass(frozen=True)
class HaikuForm(Form):
    """A function of parameters, of a state if there is one, of a key unless it was transformed away, and of inputs."""

    transformed: Any  # the pair of functions that `hk.transform` returns
    stateful: bool  # whether it takes a state,
    keyed: bool  # ... and a key

    def apply(self, parameters: PyTree, constants: PyTree, x: Any, key: Any) -> Any:
        before = (parameters, *((constants,) if self.stateful else ()), *((key,) if self.keyed else ()))
        made = self.transformed.apply(*before, x, **dict(self.options))
        return made[0] if self.stateful else made

    def model(self, parameters: PyTree, constants: PyTree) -> Any:
        return self.transformed, parameters, *((constants,) if self.stateful else ())

    def read(self, given: Any, parameters: PyTree, constants: PyTree) -> tuple[PyTree, PyTree]:
        found, *rest = given if type(given) is tuple else (given,)
        if callable(getattr(found, "apply", None)):
            found, *rest = rest
        found, *rest = map(as_arrays, (found, *rest))
        return like(found, parameters, "the function"), like(rest[0], constants, "the state") if rest else constants


def recognise(model: Any, rest: tuple[Any, ...], options: Mapping[str, Any]) -> Parts | None:
    """Recognise what ``hk.transform`` and ``hk.transform_with_state`` return."""
    haiku: Any = sys.modules.get("haiku")
    if haiku is None or not isinstance(model, haiku.Transformed | haiku.TransformedWithState):
        return None
    stateful = isinstance(model, haiku.TransformedWithState)
    rest = rest[0] if len(rest) == 1 and type(rest[0]) is tuple else rest  # init of a stateful function returns both
    if len(rest) != 1 + stateful:
        wanted = "wrap((transformed, params, state))" if stateful else "wrap(transformed, params)"
        raise UserError(f"A Haiku function does not hold its parameters: give {wanted}, from transformed.init(key, x).")
    form = HaikuForm(call_options(model.apply, options), "Haiku function", model, stateful, takes(model.apply, "rng"))
    state = "a Haiku state" if stateful and rest[1] else ""
    return Parts(form, as_arrays(rest[0]), as_arrays(rest[1]) if stateful else (), state)
