"""An interpreter of JAX functions that finds where trained parameters meet the data.

A function is traced to a jaxpr and evaluated equation by equation. Every value is known to be a constant, a function of
the parameters alone, or to depend on the data. A matrix product or a convolution of a weight with data is handed to a
visitor; everything else is evaluated as it stands. The interpreter enters ``jit`` and ``remat``, unrolls ``scan`` up to
`UNROLLED` steps, and leaves ``cond``, ``while`` and longer scans whole. A function with a derivative of its own
(``custom_jvp``, ``custom_vjp``) is left whole as well, unless only values are wanted.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.extend.core import Literal
from jaxtyping import Array

from unlazy.kernels.forms import Form, form_of

UNROLLED = 64  # steps of a scan that is unrolled; a longer one is differentiated as a whole

_MOVES = {"reshape", "transpose", "squeeze", "rev", "slice", "copy", "copy_p", "expand_dims"}
_CALLS = {"jit", "pjit", "closed_call", "core_call", "remat2", "remat", "checkpoint"}
_OWN_DERIVATIVES = {"custom_jvp_call", "custom_vjp_call", "custom_vjp_call_jaxpr"}


@dataclasses.dataclass(frozen=True)
class Step:
    """One step from a parameter to a weight: entries are moved or cut out, scaled, or rounded."""

    kind: str  # "move", "scale" or "round"
    apply: Callable[[Array], Array]
    scale: Any = 1.0


@dataclasses.dataclass(frozen=True)
class Path:
    """How a weight comes from one leaf of the parameters: each of its entries is one of the leaf, times a scale."""

    leaf: int  # index of the leaf
    steps: tuple[Step, ...] = ()  # from the leaf to the weight
    label: str = ""  # which part of the leaf it is, such as "[3]"

    def then(self, step: Step, label: str = "") -> Path:
        """Return the path with one more step."""
        return Path(self.leaf, (*self.steps, step), self.label + label)

    def derive(self, leaf: Array) -> Array:
        """Return the weight."""
        for step in self.steps:
            leaf = step.apply(leaf)
        return leaf

    def scale(self) -> Any:
        """Return the factor between entries of the leaf and of the weight."""
        return math.prod((step.scale for step in self.steps if step.kind == "scale"), start=1.0)

    def entries(self, shape: tuple[int, ...]) -> Array:
        """Return for each entry of the weight its place in the leaf, a flat index."""
        with jax.ensure_compile_time_eval():
            index = jnp.arange(math.prod(shape), dtype=jnp.int32).reshape(shape)
            for step in self.steps:
                index = step.apply(index) if step.kind == "move" else index
            return index


@dataclasses.dataclass(frozen=True)
class Constant:
    """A value that depends on neither parameters nor data."""

    value: Any


@dataclasses.dataclass(frozen=True)
class Parameter:
    """A function of the parameters alone; with a path if it is a leaf that was only rearranged and scaled."""

    value: Any
    leaves: frozenset[int]
    path: Path | None = None


@dataclasses.dataclass(frozen=True)
class Data:
    """A value that depends on the data; with the product that it is, where nothing but its shape changed since."""

    value: Any
    product: Product | None = None
    back: tuple[Callable[[Array], Array], ...] = ()  # from this shape to that of the product, innermost first


Value: TypeAlias = Constant | Parameter | Data


@dataclasses.dataclass(eq=False)
class Product:
    """One matrix product or convolution of data with a weight; operands and result are as the function has them."""

    form: Form
    inputs: Array
    weight: Array
    output: Array
    leaves: frozenset[int]  # that the weight is made of,
    path: Path | None  # and how
    sum: Array  # the result after scalar factors and the bias that directly follow
    sum_leaves: frozenset[int] = frozenset()  # the leaves of a bias that was added


class Interpreter:
    """Evaluates a jaxpr and calls ``visit`` for each product of a weight with data, which returns the value to use.

    With ``values_only``, functions with a derivative of their own are entered too, and products are visited whose
    weights are made of several leaves, or not by rearrangement alone.
    """

    def __init__(self, visit: Callable[[Product], Array], *, values_only: bool) -> None:
        self.visit, self.values_only = visit, values_only
        self.direct: set[int] = set()  # leaves that are also used otherwise than in products that were visited
        self.whiles: set[int] = set()  # leaves that a while loop uses, which has no reverse-mode derivative

    def run(self, jaxpr: Any, consts: Sequence[Any], args: Sequence[Value]) -> list[Value]:
        """Evaluate a jaxpr on values."""
        known: dict[Any, Value] = dict(zip(jaxpr.invars, args, strict=True))
        known |= {var: Constant(one) for var, one in zip(jaxpr.constvars, consts, strict=True)}

        def read(atom: Any) -> Value:
            return Constant(atom.val) if isinstance(atom, Literal) else known[atom]

        for eqn in _live(jaxpr):
            outs = self._equation(eqn, [read(atom) for atom in eqn.invars])
            known |= dict(zip(eqn.outvars, outs, strict=True))
        return [read(atom) for atom in jaxpr.outvars]

    def use(self, value: Value) -> Any:
        """Return the array of a value that is used in a way that is not followed."""
        if isinstance(value, Parameter):
            self.direct |= value.leaves
        return value.value

    def _equation(self, eqn: Any, ins: list[Value]) -> list[Value]:
        name = eqn.primitive.name
        places = [index for index, one in enumerate(ins) if isinstance(one, Parameter)]
        if places:
            if name in _CALLS or (name in _OWN_DERIVATIVES and self.values_only):
                inner = eqn.params.get("jaxpr", eqn.params.get("call_jaxpr", eqn.params.get("fun_jaxpr")))
                return self.run(getattr(inner, "jaxpr", inner), getattr(inner, "consts", ()), ins)
            if name == "scan" and eqn.params["length"] <= UNROLLED:
                return self._scan(eqn, ins)
            if name == "while":
                self.whiles |= {leaf for one in ins if isinstance(one, Parameter) for leaf in one.leaves}
            moved = self._moved(eqn, ins)
            if moved is not None:
                return moved
            found = self._product(eqn, ins, places)
            if found is not None:
                return [found]
        followed = self._followed(eqn, ins) if self.values_only else None
        return self._evaluated(eqn, ins) if followed is None else [followed]

    def _evaluated(self, eqn: Any, ins: list[Value]) -> list[Value]:
        """Evaluate an equation that is not followed further."""
        if all(isinstance(one, Constant) for one in ins) and _small(eqn) and _concrete(ins):
            with jax.ensure_compile_time_eval():  # indices stay numbers
                return [Constant(value) for value in _bind(eqn, [one.value for one in ins])]
        outs = _bind(eqn, [self.use(one) for one in ins])
        if any(isinstance(one, Data) for one in ins):
            return [Data(value) for value in outs]
        leaves = frozenset().union(*(one.leaves for one in ins if isinstance(one, Parameter)))
        return [Parameter(value, leaves) if leaves else Constant(value) for value in outs]

    def _moved(self, eqn: Any, ins: list[Value]) -> list[Value] | None:
        """Follow a parameter through an equation that rearranges or scales it."""
        first = ins[0]
        for one, other in ((first, ins[-1]), (ins[-1], first)):
            scalar = isinstance(other, Constant) and np.size(other.value) == 1 and len(ins) == 2
            if not (isinstance(one, Parameter) and one.path is not None and scalar):
                continue
            if eqn.primitive.name == "mul" or (eqn.primitive.name == "div" and one is first):
                factor = jnp.asarray(other.value).reshape(())
                factor = factor if eqn.primitive.name == "mul" else 1 / factor
                shape = eqn.outvars[0].aval.shape
                step = Step("scale", lambda w, by=factor, shape=shape: (w * by).reshape(shape), factor)
                return [Parameter(_bind(eqn, [i.value for i in ins])[0], one.leaves, one.path.then(step))]
        if not isinstance(first, Parameter) or first.path is None:
            return None
        step = _step(eqn, ins)
        if step is None:
            if eqn.primitive.name != "split":
                return None
            cuts = np.cumsum([0, *eqn.params["sizes"]])
            steps = [
                Step("move", lambda w, a=a, b=b: jax.lax.slice_in_dim(w, a, b, axis=eqn.params["axis"]))
                for a, b in zip(cuts[:-1].tolist(), cuts[1:].tolist(), strict=True)
            ]
            return [Parameter(one.apply(first.value), first.leaves, first.path.then(one)) for one in steps]
        return [Parameter(step.apply(first.value), first.leaves, first.path.then(step, _label(eqn)))]

    def _product(self, eqn: Any, ins: list[Value], places: list[int]) -> Value | None:
        """Visit a product of one weight with data, or with a constant if derivatives are wanted."""
        if len(places) != 1 or len(ins) != 2:
            return None
        weight, data = ins[places[0]], ins[1 - places[0]]
        if not isinstance(weight, Parameter) or (self.values_only and not isinstance(data, Data)):
            return None
        form = form_of(eqn, places[0])
        if form is None or (weight.path is None and not self.values_only):
            return None
        held = jax.lax.stop_gradient(weight.value)
        operands = [held, data.value] if places[0] == 0 else [data.value, held]
        y = _bind(eqn, operands)[0]
        product = Product(form, data.value, weight.value, y, weight.leaves, weight.path, y)
        return Data(self.visit(product), product)

    def _followed(self, eqn: Any, ins: list[Value]) -> Value | None:
        """Follow the result of a product through changes of shape, scalar factors and the addition of a bias."""
        name = eqn.primitive.name
        of = [one for one in ins if isinstance(one, Data) and one.product is not None]
        if len(of) != 1 or sum(isinstance(one, Data) for one in ins) != 1:
            return None
        one, others = of[0], [other for other in ins if other is not of[0]]
        assert one.product is not None
        step = _step(eqn, ins)
        if step is not None and step.kind == "move" and np.size(one.value) == eqn.outvars[0].aval.size:
            shape = jax.ShapeDtypeStruct(np.shape(one.value), one.value.dtype)
            undo = jax.linear_transpose(step.apply, shape)
            return Data(_bind(eqn, [i.value for i in ins])[0], one.product, (lambda y: undo(y)[0], *one.back))
        scalar = len(others) == 1 and isinstance(others[0], Constant) and np.size(others[0].value) == 1
        bias = name in ("add", "add_any") and len(others) == 1 and isinstance(others[0], Parameter)
        factor = scalar and (name == "mul" or (name == "div" and ins[0] is one))
        if not (bias or factor) or eqn.outvars[0].aval.shape != np.shape(one.value):
            return None
        total = whole = _bind(eqn, [self.use(i) for i in ins])[0]
        for undo in one.back:
            whole = undo(whole)
        one.product.sum = whole
        if isinstance(others[0], Parameter):
            one.product.sum_leaves = others[0].leaves
            return Data(total)
        return Data(total, one.product, one.back)

    def _scan(self, eqn: Any, ins: list[Value]) -> list[Value]:
        """Unroll a loop of fixed length: each step cuts its own part out of stacked parameters."""
        params = eqn.params
        fixed, carried = params["num_consts"], params["num_consts"] + params["num_carry"]
        consts, carry, stacked = ins[:fixed], ins[fixed:carried], ins[carried:]
        body, rows = params["jaxpr"], []
        order = range(params["length"])
        for index in reversed(order) if params["reverse"] else order:
            here = [_row(one, index) for one in stacked]
            outs = self.run(body.jaxpr, body.consts, [*consts, *carry, *here])
            carry = outs[: params["num_carry"]]
            rows.append(outs[params["num_carry"] :])
        rows = rows[::-1] if params["reverse"] else rows
        return [*carry, *(self._stacked([row[place] for row in rows]) for place in range(len(rows[0]) if rows else 0))]

    def _stacked(self, rows: list[Value]) -> Value:
        value = jnp.stack([self.use(row) for row in rows])
        if any(isinstance(row, Data) for row in rows):
            return Data(value)
        leaves = frozenset().union(*(row.leaves for row in rows if isinstance(row, Parameter)))
        return Parameter(value, leaves) if leaves else Constant(value)


def _live(jaxpr: Any) -> list[Any]:
    """List the equations on which the result depends."""
    needed, kept = {var for var in jaxpr.outvars if not isinstance(var, Literal)}, []
    for eqn in reversed(jaxpr.eqns):
        if eqn.effects or not needed.isdisjoint(eqn.outvars):
            needed.update(var for var in eqn.invars if not isinstance(var, Literal))
            kept.append(eqn)
    return kept[::-1]


def _bind(eqn: Any, values: list[Any]) -> list[Any]:
    params = eqn.primitive.get_bind_params(eqn.params)
    functions, params = params if isinstance(params, tuple) else ((), params)  # older versions of JAX give a pair
    with eqn.ctx.manager:
        out = eqn.primitive.bind(*functions, *values, **params)
    return list(out) if eqn.primitive.multiple_results else [out]


def _small(eqn: Any) -> bool:
    return sum(getattr(var.aval, "size", 0) for var in eqn.outvars) <= 64 and not eqn.effects


def _concrete(ins: list[Value]) -> bool:
    return not any(isinstance(one.value, Tracer) for one in ins)


def _row(value: Value, index: int) -> Value:
    take = lambda w: jax.lax.index_in_dim(w, index, 0, keepdims=False)  # noqa: E731
    if isinstance(value, Parameter):
        path = value.path and value.path.then(Step("move", take), f"[{index}]")
        return Parameter(take(value.value), value.leaves, path)
    return Data(take(value.value)) if isinstance(value, Data) else Constant(take(value.value))


def _step(eqn: Any, ins: list[Value]) -> Step | None:
    """Return an equation as a step of its first operand, if each entry of its result is one of the operand's."""
    name, params = eqn.primitive.name, eqn.params
    bind = lambda w: _bind(eqn, [w])[0]  # noqa: E731
    same_size = eqn.outvars and eqn.outvars[0].aval.size == eqn.invars[0].aval.size
    if len(ins) == 1:
        if name in _MOVES or (name == "broadcast_in_dim" and same_size):
            return Step("move", bind)
        if name == "convert_element_type" and jnp.issubdtype(params["new_dtype"], jnp.floating):
            return Step("round", bind)
        if name == "neg":
            return Step("scale", jnp.negative, -1.0)
    if name == "dynamic_slice" and all(isinstance(one, Constant) for one in ins[1:]) and _concrete(ins[1:]):
        starts = [int(one.value) for one in ins[1:]]
        sizes, shape = params["slice_sizes"], eqn.invars[0].aval.shape
        starts = [min(max(at, 0), whole - size) for at, size, whole in zip(starts, sizes, shape, strict=True)]
        stops = [at + size for at, size in zip(starts, sizes, strict=True)]
        return Step("move", lambda w: jax.lax.slice(w, starts, stops))
    return None


def _label(eqn: Any) -> str:
    """Name the part that an equation cuts out along the first axis."""
    if eqn.primitive.name == "slice" and eqn.invars[0].aval.ndim > 1:
        first, last, whole = eqn.params["start_indices"][0], eqn.params["limit_indices"][0], eqn.invars[0].aval.shape[0]
        if last == first + 1 and whole > 1:
            return f"[{first}]"
    return ""
