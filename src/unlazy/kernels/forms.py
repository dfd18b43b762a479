"""Matrix products and convolutions in one form: y_gpm = Σ_d a_gpd w_gdm, with groups g and places p.

A matrix product of any dimension numbers is of this form after a transposition, and a convolution after its input is
cut into patches, with g its groups of channels and p the places of its output.
"""

from __future__ import annotations

import itertools
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array


class Form(NamedTuple):
    """How one product with a weight is written as y_gpm = Σ_d a_gpd w_gdm."""

    kind: str  # "dense" or "convolution"
    places: tuple[int, ...]  # the axes that p stands for
    size: tuple[int, int, int, int]  # the numbers of groups, places, inputs and outputs, (G, P, D, M)
    settings: tuple[Any, ...]

    def inputs(self, a: Array) -> Array:
        """Return the data as (G, P, D)."""
        groups, places, depth, _ = self.size
        if self.kind == "dense":
            return jnp.transpose(a, self.settings[0]).reshape(groups, places, depth)
        lhs, _, _, window, count = self.settings
        cut = _patches(jnp.transpose(a, lhs), *window)  # (N, C, offsets, *out)
        cut = cut.reshape(cut.shape[0], groups, cut.shape[1] // groups, cut.shape[2], *cut.shape[3:])
        order = (1, 0, *range(4, 4 + count), 2, 3)
        return jnp.transpose(cut, order).reshape(groups, places, depth)

    def weight(self, w: Array) -> Array:
        """Return the weight as (G, D, M)."""
        groups, _, depth, width = self.size
        moved = jnp.transpose(w, self.settings[1])
        if self.kind == "dense":
            return moved.reshape(groups, depth, width)
        return jnp.swapaxes(moved.reshape(groups, width, depth), 1, 2)

    def as_weight(self, matrix: Array, shape: tuple[int, ...]) -> Array:
        """Undo `weight`: return (G, D, M) in the weight's own shape."""
        order = self.settings[1]
        moved = matrix if self.kind == "dense" else jnp.swapaxes(matrix, 1, 2)
        return jnp.transpose(moved.reshape([shape[axis] for axis in order]), np.argsort(order).tolist())

    def outputs(self, y: Array) -> Array:
        """Return the result as (G, P, M)."""
        groups, places, _, width = self.size
        moved = jnp.transpose(y, self.settings[2])
        if self.kind == "dense":
            return moved.reshape(groups, places, width)
        count = self.settings[4]
        moved = moved.reshape(moved.shape[0], groups, width, *moved.shape[2:])
        return jnp.transpose(moved, (1, 0, *range(3, 3 + count), 2)).reshape(groups, places, width)


def form_of(eqn: Any, weight: int) -> Form | None:
    """Write an equation of a jaxpr as a product; None if it is not one."""
    if eqn.primitive.name == "dot_general":
        return _dense(eqn, weight)
    if eqn.primitive.name == "conv_general_dilated" and weight == 1 and eqn.params["batch_group_count"] == 1:
        return _convolution(eqn)
    return None


def _dense(eqn: Any, weight: int) -> Form:
    contracting, batch = eqn.params["dimension_numbers"]
    shapes = [var.aval.shape for var in eqn.invars]
    free = [
        [axis for axis in range(len(shapes[side])) if axis not in (*contracting[side], *batch[side])] for side in (0, 1)
    ]
    data = 1 - weight
    inner, groups = ([shapes[data][axis] for axis in axes[data]] for axes in (contracting, batch))
    places, width = tuple(shapes[data][axis] for axis in free[data]), [shapes[weight][axis] for axis in free[weight]]
    count, first, second = len(groups), len(free[0]), len(free[1])
    left, right = range(count, count + first), range(count + first, count + first + second)
    return Form(
        "dense",
        places,
        (math.prod(groups), math.prod(places), math.prod(inner), math.prod(width)),
        (
            (*batch[data], *free[data], *contracting[data]),
            (*batch[weight], *contracting[weight], *free[weight]),
            (*range(count), *(left if weight == 1 else right), *(right if weight == 1 else left)),
        ),
    )


def _convolution(eqn: Any) -> Form:
    params = eqn.params
    lhs, rhs, out = params["dimension_numbers"]
    (kernel, result), groups = (eqn.invars[1].aval.shape, eqn.outvars[0].aval.shape), params["feature_group_count"]
    sides = [kernel[axis] for axis in rhs[2:]]
    places = (result[out[0]], *(result[axis] for axis in out[2:]))
    window = (
        tuple(sides),
        places[1:],
        params["window_strides"],
        tuple((int(low), int(high)) for low, high in params["padding"]),  # NumPy's integers in some versions of JAX
        params["lhs_dilation"],
        params["rhs_dilation"],
    )
    depth, width = kernel[rhs[1]] * math.prod(sides), kernel[rhs[0]] // groups
    return Form(
        "convolution",
        places,
        (groups, math.prod(places), depth, width),
        (tuple(lhs), tuple(rhs), tuple(out), window, len(sides)),
    )


def _patches(
    x: Array,
    sides: tuple[int, ...],
    out: tuple[int, ...],
    strides: tuple[int, ...],
    padding: tuple[tuple[int, int], ...],
    spread: tuple[int, ...],
    dilation: tuple[int, ...],
) -> Array:
    """Cut (N, C, *space) into (N, C, offset, *out) by one strided slice for each offset in the window."""
    edges = [(0, 0, 0), (0, 0, 0), *((*pad, gap - 1) for pad, gap in zip(padding, spread, strict=True))]
    x = jax.lax.pad(x, jnp.zeros((), x.dtype), edges)
    cut = []
    for offset in itertools.product(*(range(side) for side in sides)):
        start = [shift * gap for shift, gap in zip(offset, dilation, strict=True)]
        stop = [at + (size - 1) * step + 1 for at, size, step in zip(start, out, strides, strict=True)]
        cut.append(jax.lax.slice(x, (0, 0, *start), (*x.shape[:2], *stop), (1, 1, *strides)))
    return jnp.stack(cut, axis=2)
