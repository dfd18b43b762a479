"""What is known about a function before it is evaluated: its products with weights, and the cost of each method."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from unlazy._errors import UserError
from unlazy._types import PyTree
from unlazy.kernels.counts import intermediates, operations
from unlazy.kernels.forms import Form
from unlazy.kernels.interpreter import Data, Interpreter, Parameter, Path, Product

Function: TypeAlias = Callable[[list[Any], PyTree], Array]  # leaves and one sample -> its outputs, () or (k,)
Method: TypeAlias = Literal["auto", "layers", "jacobian", "products"]


class Site(NamedTuple):
    """One use of a leaf as a weight: static facts only."""

    leaf: int
    form: Form
    shape: tuple[int, ...]  # of the result
    dtype: Any
    weight: tuple[int, ...]  # shape of the weight


@dataclasses.dataclass(frozen=True)
class Leaf:
    """How one leaf of the parameters enters a function."""

    size: int  # number of its entries
    sites: tuple[int, ...]  # the products in which it, or a part of it, is the weight
    direct: bool  # whether it is also used otherwise
    # Sites with the same weight in the same orientation, whose places are joined; None if Θ cannot be written with
    # Gram matrices because of how sites overlap or of another use.
    classes: tuple[tuple[int, ...], ...] | None
    swapped: tuple[tuple[int, int], ...] = ()  # pairs of classes in which the same weight is used in transposed form


class Structure:
    """A function of leaves and one sample, traced once, on arrays or their shapes; the names are for messages."""

    def __init__(self, function: Function, leaves: Sequence[Any], names: Sequence[str], sample: PyTree) -> None:
        self.closed, shape = jax.make_jaxpr(function, return_shape=True)(list(leaves), sample)
        if len(shape.shape) > 1:
            raise UserError(
                f"A tangent kernel is of outputs of shape (n,) or (n, k), but one sample gives {shape.shape}: reshape "
                "or choose outputs in the function."
            )
        self.scalar, self.outputs, self.dtype = not shape.shape, math.prod(shape.shape), shape.dtype
        self.operations, self.intermediates = operations(self.closed.jaxpr), intermediates(self.closed.jaxpr)
        self.sites: list[Site] = []
        self.cuts: list[Callable[[Array], Array]] = []  # from the leaf to each site's weight, but for the scale
        entries: list[Callable[[], np.ndarray]] = []

        def note(product: Product) -> Array:
            path, form = product.path, product.form
            assert path is not None
            weight, leaf = product.weight.shape, leaves[path.leaf].shape
            self.sites.append(Site(path.leaf, form, product.output.shape, product.output.dtype, weight))
            moves = tuple(step for step in path.steps if step.kind == "move")
            self.cuts.append(Path(path.leaf, moves).derive)
            entries.append(lambda: np.asarray(form.weight(path.entries(leaf))))
            return product.output

        interpreter = Interpreter(note, values_only=False)
        jax.eval_shape(lambda values, one: self._run(interpreter, values, one), list(leaves), sample)
        if interpreter.whiles:
            raise UserError(
                f"A while loop uses the parameter '{names[min(interpreter.whiles)]}', and has no reverse-mode "
                "derivative: write it as a scan, or as a fori_loop with a fixed number of steps."
            )
        self.direct = sorted(interpreter.direct)
        self.leaves = []
        for index, leaf in enumerate(leaves):
            own = tuple(place for place, site in enumerate(self.sites) if site.leaf == index)
            classes, swapped = None, ()
            if own and index not in interpreter.direct:
                with jax.ensure_compile_time_eval():
                    found = _aligned([(place, entries[place]) for place in own])
                classes, swapped = found if found is not None else (None, ())
            self.leaves.append(Leaf(math.prod(leaf.shape), own, index in interpreter.direct, classes, swapped))

    def _run(self, interpreter: Interpreter, values: Sequence[Any], sample: PyTree) -> Array:
        given = [Parameter(value, frozenset([index]), Path(index)) for index, value in enumerate(values)]
        data = [Data(one) for one in jax.tree.leaves(sample)]
        (out,) = interpreter.run(self.closed.jaxpr, self.closed.consts, [*given, *data])
        return interpreter.use(out)

    def evaluate(self, values: Sequence[Any], taps: Sequence[Array], sample: PyTree) -> tuple[Array, list[Array]]:
        """Return the outputs, as (k,), with a tap added to the result of each product, and the products' inputs."""
        inputs: list[Array] = []

        def tapped(product: Product) -> Array:
            assert product.path is not None
            inputs.append(product.form.inputs(product.inputs) * jnp.asarray(product.path.scale(), product.inputs.dtype))
            return product.output + taps[len(inputs) - 1]

        return self._run(Interpreter(tapped, values_only=False), values, sample).reshape(self.outputs), inputs


def _aligned(
    sites: list[tuple[int, Callable[[], np.ndarray]]],
) -> tuple[tuple[tuple[int, ...], ...], tuple[tuple[int, int], ...]] | None:
    """Sort the uses of one leaf into classes of the same weight; None if two of them overlap in another way."""
    if len(sites) == 1:
        return ((sites[0][0],),), ()
    classes: list[tuple[list[int], np.ndarray]] = []
    for place, entries in sites:
        index = entries()
        same = next((members for members, known in classes if np.array_equal(known, index)), None)
        if same is None:
            classes.append(([place], index))
        else:
            same.append(place)
    swapped = []
    for right, (_, b) in enumerate(classes):
        for left, (_, a) in enumerate(classes[:right]):
            if a.max() < b.min() or b.max() < a.min():
                continue
            if a.shape[0] == b.shape[0] == 1 and np.array_equal(a[0].T, b[0]):
                swapped.append((left, right))
            elif np.intersect1d(a, b).size:
                return None
    return tuple(tuple(members) for members, _ in classes), tuple(swapped)


class Choice(NamedTuple):
    """How Θ is computed, and the estimated cost."""

    products: bool  # whether by products J (J^T e), column by column
    gram: tuple[bool, ...]  # for each leaf whether by Gram matrices (else by its Jacobian)
    operations: float  # multiplications and additions


def choose(
    structure: Structure, method: Method, rows: int, columns: int, reduced: str, whole: Sequence[bool]
) -> Choice:
    """Choose how to compute Θ of ``rows`` x ``columns`` samples: by ``method``, or with the fewest operations.

    ``reduced`` is ``"all"``, ``"trace"`` or ``"one"``; ``whole`` says for each leaf whether it has one rate for all its
    entries, without which its Jacobian is needed.
    """
    k = 1 if reduced == "one" else structure.outputs
    pairs = k * k if reduced == "all" else k
    gram, total = [], (rows + columns) * (1 + 2 * k) * structure.operations
    for leaf, one_rate in zip(structure.leaves, whole, strict=True):
        by_jacobian = 2.0 * rows * columns * pairs * leaf.size + sum(
            2.0 * (rows + columns) * k * math.prod(structure.sites[place].form.size) for place in leaf.sites
        )
        by_gram = math.inf
        if leaf.classes is not None and one_rate:
            by_gram = rows * columns * gram_operations(structure, leaf, k, pairs)
        gram.append(method != "jacobian" and by_gram < math.inf and (by_gram <= by_jacobian or method == "layers"))
        total += by_gram if gram[-1] else by_jacobian
    by_products = columns * k * (3 + 2 * rows) * structure.operations
    if method == "products" or (method == "auto" and 2 * by_products < total):  # a margin: they are harder to block
        return Choice(True, (False,) * len(gram), by_products)
    return Choice(False, tuple(gram), total)


def gram_operations(structure: Structure, leaf: Leaf, k: int, pairs: int) -> float:
    """Count the operations for one pair of samples if a leaf's part of Θ is computed by Gram matrices."""
    assert leaf.classes is not None
    sizes = [[structure.sites[place].form.size for place in members] for members in leaf.classes]
    places = [sum(size[1] for size in members) for members in sizes]
    total = 0.0
    for count, ((groups, _, depth, width), *_) in zip(places, sizes, strict=True):
        total += groups * count**2 * 2.0 * (depth + pairs * (width + 1))
    for left, right in leaf.swapped:
        _, _, depth, width = sizes[left][0]
        total += 4.0 * places[left] * places[right] * (k * (depth + width) + pairs)
    return total
