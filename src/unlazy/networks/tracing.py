"""Layers of any JAX model without hooks: its products with trained weights, found by tracing it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from unlazy._errors import UserError
from unlazy._types import PyTree
from unlazy.kernels.interpreter import Data, Interpreter, Parameter, Path, Product
from unlazy.kernels.problem import problem_of, samples_of, split


class TracedLayer(eqx.Module):
    """One product of data with a trained weight, h = W a + b, on a batch; made by `trace_layers`.

    Attributes
    ----------
    name
        Name of the weight in the tree of parameters, such as ``layers.0.weight``; with ``#2`` and so on where it is
        used again.
    kind
        ``"dense"`` or ``"convolution"``.
    biases
        Names of the parameters of a bias that directly follows.
    groups
        Number of groups of a grouped convolution or of a stack of matrices; otherwise 1.
    inputs
        What the weights are multiplied with, (n, ..., d) with places between; patches of the input for a convolution,
        and (n, ..., groups, d) where there are several groups.
    weights
        The weights of each unit, (m, d).
    preactivations
        h, (n, ..., m), with scalar factors and the bias that directly follow.
    """

    name: str = eqx.field(static=True)
    kind: str = eqx.field(static=True)
    biases: tuple[str, ...] = eqx.field(static=True)
    groups: int = eqx.field(static=True)
    inputs: Float[Array, "n ..."]
    weights: Float[Array, "m d"]
    preactivations: Float[Array, "n ..."]

    def rows(self) -> Float[Array, "rows m"]:
        """Return the pre-activations with one row per sample and place."""
        return self.preactivations.reshape(-1, self.preactivations.shape[-1])


def trace_layers(apply: Callable[[Any, Any], Array], params: PyTree, x: PyTree) -> dict[str, TracedLayer]:
    """Find the layers of a model by tracing it, and evaluate them on a batch.

    A layer is a matrix product or a convolution of something that depends on the data with something that depends on
    parameters alone. It is named after its weight, and recorded at each of its uses. The model is traced on batches of
    one, so that the batch axis is known and comes first; places of a convolution or of a sequence follow it, axes of
    length one are dropped, and units come last. Tracing enters ``jit``, ``remat``, ``vmap``, functions with derivatives
    of their own, and scans of up to 64 steps, each of which is a use of its own; layers inside ``cond``, ``while`` and
    longer scans are not found.

    Parameters
    ----------
    apply
        Function ``apply(params, batch)``, which treats each sample independently.
    params
        Parameters: any tree, of which the floating-point arrays are trained; an Equinox module is one.
    x
        A batch: an array, or a tree of arrays, with the samples along the first axis.

    Examples
    --------
    >>> layers = trace_layers(lambda model, x: jax.vmap(model)(x), equinox_model, x)
    >>> layers["layers.0.weight"].preactivations
    """
    return {layer.name: layer for layer in _traced(apply, *split(params, None)[:2], x)}


def preactivations(apply: Callable[[Any, Any], Array], params: PyTree, x: PyTree) -> dict[str, Float[Array, "n ..."]]:
    """Return the pre-activations (n, ..., m) of all layers of a model by name, for the price of one evaluation.

    Parameters
    ----------
    apply, params, x
        As in `trace_layers`.
    """
    return {one.name: one.value for one in _preactivations(apply, *split(params, None)[:2], x)}


class _Named(eqx.Module):
    name: str = eqx.field(static=True)
    value: Array


@eqx.filter_jit
def _preactivations(apply: Any, trained: Any, rest: Any, x: Any) -> list[_Named]:
    return [_Named(layer.name, layer.preactivations) for layer in _layers(apply, trained, rest, x)]


def _layers(apply: Any, trained: Any, rest: Any, x: Any) -> list[TracedLayer]:
    problem = problem_of(apply, trained, rest, jax.tree.map(lambda _: 1.0, trained))
    n = samples_of(x)
    one = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), x)
    closed = jax.make_jaxpr(problem.function)(problem.leaves, one)
    facts: list[tuple[str, Product]] = []

    def of(sample: PyTree) -> tuple[list[tuple[Array, Array]], list[Array]]:
        facts.clear()
        products: list[Product] = []

        def note(product: Product) -> Array:
            products.append(product)
            return product.output

        given = [Parameter(leaf, frozenset([at]), Path(at)) for at, leaf in enumerate(problem.leaves)]
        data = [Data(leaf) for leaf in jax.tree.leaves(sample)]
        Interpreter(note, values_only=True).run(closed.jaxpr, closed.consts, [*given, *data])
        for product in products:
            label = "" if product.path is None else product.path.label
            facts.append(("+".join(problem.names[leaf] for leaf in sorted(product.leaves)) + label, product))
        arrays = [(one.form.inputs(one.inputs), one.form.outputs(one.sum)) for one in products]
        return arrays, [one.form.weight(one.weight) for one in products]

    arrays, weights = jax.vmap(of, out_axes=(0, None))(x)
    if not facts:
        raise UserError("No matrix product or convolution of data with a trained weight was found in this function.")
    layers: list[TracedLayer] = []
    uses: dict[str, int] = {}
    for (name, product), (a, h), w in zip(facts, arrays, weights, strict=True):
        uses[name] = uses.get(name, 0) + 1
        groups, _, depth, width = product.form.size
        places = tuple(size for size in product.form.places if size != 1)
        a, h = (jnp.moveaxis(value, 1, 2).reshape(n, *places, groups, -1) for value in (a, h))
        layers.append(
            TracedLayer(
                name=f"{name}#{uses[name]}" if uses[name] > 1 else name,
                kind=product.form.kind,
                biases=tuple(problem.names[leaf] for leaf in sorted(product.sum_leaves)),
                groups=groups,
                inputs=a[..., 0, :] if groups == 1 else a,
                weights=jnp.swapaxes(w, 1, 2).reshape(groups * width, depth),
                preactivations=h.reshape(n, *places, groups * width),
            )
        )
    return layers


_traced = eqx.filter_jit(_layers)
