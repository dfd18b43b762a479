"""What an adapter says about a model of another library: how it is called, and how it is taken apart and put together.

An adapter is one file with a function ``recognise(model, rest, options)``. It returns None unless its library is loaded
(``sys.modules``) and the model is of that library; otherwise the `Parts` of the model.
"""

from __future__ import annotations

import abc
import dataclasses
import inspect
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from unlazy._checked import takes_anything
from unlazy._errors import UserError
from unlazy._types import PyTree
from unlazy.kernels.problem import leaf_name

# Arguments that put a model into inference mode, so that dropout is off and averages are fixed.
INFERENCE = {
    "train": False,
    "training": False,
    "is_training": False,
    "deterministic": True,
    "inference": True,
    "use_running_average": True,
}


class Parts(NamedTuple):
    """A model taken apart."""

    form: Form  # how to put it together and call it
    parameters: PyTree  # what may be trained
    constants: PyTree = ()  # what training by gradients does not change: running averages, keys
    state: str = ""  # what is in `constants` that training would change by other means, in words; or empty


@dataclasses.dataclass(frozen=True)
class Form(abc.ABC):
    """How a model of one library is called, without its arrays; two models of one architecture have equal forms."""

    options: tuple[tuple[str, Any], ...]  # keyword arguments of every call
    name: str  # of the model, for messages and reports
    per_sample: ClassVar[bool] = False  # whether models of this library take one sample by convention, not a batch

    @abc.abstractmethod
    def apply(self, parameters: PyTree, constants: PyTree, x: Any, key: Any) -> Any:
        """Call the model on what it takes, a sample or a batch; ``key`` is None or for its random numbers."""

    @abc.abstractmethod
    def model(self, parameters: PyTree, constants: PyTree) -> Any:
        """Return the model as the user gave it, with these parameters."""

    @abc.abstractmethod
    def read(self, given: Any, parameters: PyTree, constants: PyTree) -> tuple[PyTree, PyTree]:
        """Return parameters and constants of a model of the same form, or of its parameters alone.

        ``parameters`` and ``constants`` are the current ones, for what is not given.
        """


def call_options(function: Callable[..., Any], given: Mapping[str, Any]) -> tuple[tuple[str, Any], ...]:
    """Return keyword arguments for every call: those given, and those that switch training off where there are any."""
    try:
        known = inspect.signature(function).parameters
    except (TypeError, ValueError):  # some callables have none
        known = {}
    found = {name: value for name, value in INFERENCE.items() if name in known} | dict(given)
    anything = takes_anything(known) or not known
    for name in given:
        if name not in known and not anything:
            raise UserError(f"call has an argument '{name}', which the model does not take: {', '.join(known)}.")
    return tuple(sorted(found.items()))


def takes(function: Callable[..., Any], name: str, *, required: bool = False) -> bool:
    """Whether a function has an argument of this name (``required``: one without a default)."""
    try:
        found = inspect.signature(function).parameters.get(name)
    except (TypeError, ValueError):
        return False
    return found is not None and (not required or found.default is found.empty)


def as_arrays(tree: PyTree) -> PyTree:
    """Return a tree with floating-point numbers and NumPy arrays made arrays of JAX; other leaves stay as they are."""

    def converted(leaf: Any) -> Any:
        inexact = isinstance(leaf, float) or (
            isinstance(leaf, np.ndarray | np.generic) and np.issubdtype(leaf.dtype, np.inexact)
        )
        return jnp.asarray(leaf) if inexact else leaf

    return jax.tree.map(converted, tree)


def like(given: PyTree, present: PyTree, what: str) -> PyTree:
    """Check that a tree has the structure and shapes of another, and return it with that one's types of numbers."""
    old, new = (jax.tree_util.tree_flatten_with_path(tree) for tree in (present, given))
    if old[1] != new[1]:
        names = [{leaf_name(path) for path, _ in leaves} for leaves in (old[0], new[0])]
        other = ", ".join(sorted((names[0] ^ names[1]) - {""})[:3]) or "settings that are not arrays"
        raise UserError(f"This is not {what} that was wrapped; they differ in: {other}.")
    for (path, before), (_, now) in zip(old[0], new[0], strict=True):
        if np.shape(before) != np.shape(now):
            raise UserError(
                f"'{leaf_name(path)}' has shape {np.shape(now)}, where {np.shape(before)} was expected: this is not "
                f"{what} that was wrapped."
            )
    return jax.tree.map(
        lambda one, leaf: jnp.asarray(leaf, one.dtype) if eqx.is_inexact_array(one) else leaf, present, given
    )
