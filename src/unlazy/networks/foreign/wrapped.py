"""A model of another library as a network."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from unlazy._errors import UserError, first_line
from unlazy._types import Outputs, PRNGKey, PyTree
from unlazy.data import Dataset
from unlazy.networks._base import Network, frozen_rates, with_fields
from unlazy.networks.foreign.form import Form
from unlazy.networks.foreign.rates import named_parameters
from unlazy.networks.prepared import Batch, Prepared, raw_inputs

_TRIED = (2, 3)  # sizes of batches: what takes both takes any, while one might be the size of a sample by chance
_RANDOM = ("rng", "prng", "random", " key")  # words in errors about missing keys
_WHOLE = ("integer", "indexer", "index arrays", "int32")


class Wrapped(Network):
    """A model of another library as a network; `wrap` makes it.

    Parameters
    ----------
    parameters
        The model's parameters as its library arranges them; of an Equinox module, the module itself.
    constants
        What training does not change: running averages, keys.
    key
        Key of the model's random numbers, the same for every sample and call; None for a model without any.
    form
        How the model is called.
    factors
        Learning-rate factor of each floating-point array of ``parameters``, in their order in the tree.
    batched, input_shape, integer_inputs, squeeze
        As for `wrap`.
    kinks
        Whether the model has kinks, as with ReLU.
    """

    parameters: PyTree
    constants: PyTree
    key: PRNGKey | None
    form: Form = eqx.field(static=True)
    factors: tuple[float, ...] = eqx.field(static=True)
    batched: bool | None = eqx.field(static=True, default=None)
    input_shape: tuple[int, ...] | None = eqx.field(static=True, default=None)
    integer_inputs: bool = eqx.field(static=True, default=False)
    squeeze: bool = eqx.field(static=True, default=True)
    kinks: bool = eqx.field(static=True, default=False)
    registered: ClassVar[bool] = False  # made by `wrap`

    def __call__(self, x: Batch) -> Outputs:
        points = self._shaped(raw_inputs(x))
        if self._on_batches(points):
            # Random numbers drawn for a batch would depend on its size.
            f = self._call(points) if self.key is None else jax.vmap(lambda one: self._call(one[None])[0])(points)
        else:
            f = jax.vmap(self._call)(points)
        return f[:, 0] if self.squeeze and f.ndim == 2 and f.shape[1] == 1 else f

    @property
    def model(self) -> Any:
        """The model as it was given to `wrap`, with the current parameters."""
        return self.form.model(self.parameters, self.constants)

    def with_model(self, given: Any) -> Wrapped:
        """Return the network with the parameters of another model of the same architecture.

        Parameters
        ----------
        given
            The model as `wrap` takes it, or its parameters alone.
        """
        parameters, constants = self.form.read(given, self.parameters, self.constants)
        return with_fields(self, parameters=parameters, constants=constants)

    @property
    def name(self) -> str:
        """The name of the model's class or function."""
        return self.form.name

    @property
    def has_kinks(self) -> bool:
        return self.kinks

    def prepare(self, data: Dataset) -> Prepared:
        """Leave everything as it is, but reject parameters of another precision than the data."""
        for name, leaf in named_parameters(self.parameters).items():
            if leaf.dtype != data.x.dtype:
                raise UserError(
                    f"'{name}' of {self.name} is {leaf.dtype}, but data set '{data.name}' is {data.x.dtype}: convert "
                    f"the data by data.astype('{leaf.dtype}'), or the parameters."
                )
        return super().prepare(data)

    def rates(self) -> PyTree:
        """Return the factors that `wrap` was given; constants are frozen."""
        structure = jax.tree.structure(eqx.filter(self.parameters, eqx.is_inexact_array))
        return with_fields(frozen_rates(self), parameters=jax.tree.unflatten(structure, self.factors))

    def movement(self, start: Network) -> dict[str, Float[Array, "..."]]:
        """Return how far the parameters have moved since ``start``, by their names in the model."""
        moved = super().movement(start)
        return {name.removeprefix("parameters."): distance for name, distance in moved.items()}

    # ------------------------------------------------------------ how the model is called

    def _call(self, x: Any) -> Any:
        return self.form.apply(self.parameters, self.constants, x, self.key)

    def _shaped(self, x: Any) -> Any:
        if self.input_shape is not None:
            sizes = math.prod(x.shape[1:]), math.prod(self.input_shape)
            if sizes[0] != sizes[1]:
                raise UserError(
                    f"input_shape = {self.input_shape} does not hold a sample of shape {x.shape[1:]}: "
                    f"{sizes[1]} numbers, not {sizes[0]}."
                )
            x = x.reshape(x.shape[0], *self.input_shape)
        return x.astype(jnp.int32) if self.integer_inputs else x

    def _on_batches(self, x: Any) -> bool:
        """Find out, on abstract inputs, whether the model is called on batches, and check the shape of its outputs."""
        order = [not self.form.per_sample, self.form.per_sample] if self.batched is None else [self.batched]
        problems = []
        for batched in order:
            problem = self._problem(batched, x)
            if problem is None:
                return batched
            problems.append(problem)
        also = "" if len(order) == 1 else f" It does not work on {'a batch' if order[1] else 'one sample'} either."
        raise UserError(f"{self.name} {problems[0]}{also}")

    def _problem(self, batched: bool, x: Any) -> str | None:
        """Say why the model cannot be called in this way; None if it can."""
        for shape in [(size, *x.shape[1:]) for size in _TRIED] if batched else [x.shape[1:]]:
            what = f"a batch of shape {shape}" if batched else f"one sample of shape {shape}"
            try:
                made = eqx.filter_eval_shape(self._call, jax.ShapeDtypeStruct(shape, x.dtype))
            except UserError:
                raise
            except Exception as error:
                return f"cannot be called on {what} ({first_line(error).rstrip('.')}): {_advice(error)}."
            if not hasattr(made, "shape"):
                kind = type(made).__name__
                return f"returns {kind} on {what}, where one array was expected: wrap a function that picks it."
            expected, ranks = ("(n,) or (n, k)", (1, 2)) if batched else ("() or (k,)", (0, 1))
            if made.ndim not in ranks or (batched and made.shape[0] != shape[0]):
                return (
                    f"gives outputs of shape {made.shape} on {what}, where {expected} was expected: "
                    "flatten them, or pick one position, in a function that you wrap."
                )
            if not jnp.issubdtype(made.dtype, jnp.floating):
                return f"gives outputs of type {made.dtype} on {what}, where real numbers were expected."
        return None


def _advice(error: Exception) -> str:
    """Return what to try after an error of a user's model, guessed from its words."""
    said = f" {type(error).__name__} {error}".lower()
    if "argument" in said and "missing" in said:
        return 'give unlazy.wrap further arguments of the model by call={"name": value}'
    if any(word in said for word in _RANDOM):
        return (
            "if it draws random numbers, switch that off in the model, or give unlazy.wrap call={...} to do so, or "
            "key=0 for the same ones every time"
        )
    if "immutable" in said or "batch_stats" in said or "axis name" in said or "unbound axis" in said:
        return 'use running averages that it only reads, by call={"train": False} or whatever the model calls it'
    if any(word in said for word in _WHOLE):
        return "if it takes whole numbers (tokens), give unlazy.wrap integer_inputs=True"
    return "give input_shape to unlazy.wrap if it takes samples of another shape, and batched=True or False"
