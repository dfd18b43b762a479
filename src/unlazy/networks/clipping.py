"""The clipped gradient flow of ren2023 (eq. 4), for the learner of its eq. 1.

The learner is f = E_j σ(w_j F + b_j) on F = E_i |v_i| relu(v_i·x), or on the limit F = α |x|, where the neurons v_i are
spread evenly over a sphere and stay so. Clipping bounds each sample's pull on each neuron, inside the expectation. One
sample pulls

    on r_2 = b_j:  t = (f - f*) σ'(h_j)          on v_2 = w_j:  t F(x)
    on v_1 = v_i:  u (v̄ relu(v·x) + |v| relu'(v·x) x)   with  u = E_j[t w_j],

and each pull is projected onto a ball of its own radius before samples are averaged; the signal that is sent back to F
is not. The length of a pull on v_1 is |u| √(3 (v·x)² + |v|² |x|²) where v·x > 0, so that projecting multiplies two
numbers per pair (neuron, sample): nothing of size m x n x d is made. The result is a direction, and not the gradient of
any function.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, NamedTuple

import jax
import jax.numpy as jnp
import msgspec
from jaxtyping import Array, Float

from unlazy._checked import MAY_BE_INFINITE
from unlazy._errors import UserError
from unlazy._types import Outputs
from unlazy.activations import Relu
from unlazy.losses import Loss
from unlazy.networks.blocks import AbstractBlock, Block, Inputs, lengths, raw_columns
from unlazy.networks.limits import SphericalLimit, slopes, sphere_mean

Bound = Annotated[float, MAY_BE_INFINITE, msgspec.Meta(gt=0)]
Bounds = tuple[Bound, Bound, Bound]  # R_v1, R_v2, R_r2
First = Block | SphericalLimit


class Pulls(NamedTuple):
    """What each sample does to each neuron, before it is weighed and averaged."""

    signal: Float[Array, " n"]  # u
    signals: Float[Array, "m n"]  # t
    value: Float[Array, " n"]  # F
    first: Float[Array, "k n"]  # length of the pull on v_1; at each slope z > 0 where neurons are infinitely many
    weight: Float[Array, "m n"]  # ... on v_2
    bias: Float[Array, "m n"]  # ... on r_2


def check_clip(blocks: Sequence[AbstractBlock], clip: Bounds | None) -> None:
    """Raise an error for bounds on networks that are not the learner of eq. 1."""
    if clip is not None and not is_learner(blocks):
        raise UserError(
            "Clipping as in ren2023 is for the learner of its eq. 1: two ReLU blocks, the first with tied amplitudes, "
            "rank 1 and no bias, the second training w and b; drop `clip`, or use Descent(clip_sample=...)."
        )


def is_learner(blocks: Sequence[AbstractBlock]) -> bool:
    """Whether it is the network of eq. 1, of finite or infinite width."""
    if len(blocks) != 2:
        return False
    first, second = blocks
    if not (isinstance(first, Block | SphericalLimit) and isinstance(second, Block) and first.train in ("w", "")):
        return False
    tied = isinstance(first, SphericalLimit) or (
        first.tied and first.mean_field and first.b is None and isinstance(first.activation, Relu)
    )
    plain = second.a is not None and second.w.shape[1] == second.a.shape[1] == 1 and set(second.train) <= set("wb")
    return tied and plain and isinstance(second.activation, Relu) and second.mean_field and not second.skip


def pulls(first: First, second: Block, x: Inputs, slope: Float[Array, " n"]) -> Pulls:
    """All pulls, given dℓ/df of each sample."""
    assert second.a is not None
    value = first(x)[0]
    h = second.hidden(value[None])
    signals = second.a * slope[None] * second.activation.derivative(h)
    signal = second.scale * (second.w[:, 0] @ signals)
    if isinstance(first, Block):
        x = raw_columns(x)
        g = first.hidden(x)
        square = 3 * jnp.square(g) + jnp.outer(jnp.square(lengths(first.w)), jnp.sum(jnp.square(x), axis=0))
        length = jnp.where(g > 0, jnp.sqrt(square), 0)
    else:
        z = jnp.asarray(slopes(first.inputs)[0], value.dtype)
        length = jnp.outer(jnp.sqrt(1 + 3 * jnp.square(z)), first.radius * first.radii(x))
    size = jnp.abs(signals)
    return Pulls(signal, signals, value, jnp.abs(signal)[None] * length, size * jnp.abs(value)[None], size)


def _projection(length: Float[Array, "k n"], bound: float) -> Float[Array, "k n"]:
    """min(1, R / length): what projection onto the ball of radius R multiplies with."""
    return jnp.minimum(1.0, bound / jnp.maximum(length, jnp.finfo(length.dtype).tiny))


def slope_of(loss: Loss, f: Outputs, y: Outputs) -> Outputs:
    """dℓ/df of each sample, before anything is averaged."""
    return jax.grad(lambda values: jnp.sum(loss.cost(values, y)))(f)


def shares(loss: Loss, weight: Float[Array, " n"] | None, f: Outputs) -> Float[Array, " n"]:
    """How much each sample counts in the loss."""
    each = jnp.ones(f.shape[0], f.dtype) if weight is None else weight
    return each / jnp.sum(each) if loss.reduction == "mean" else each


def clipped(
    first: First, second: Block, x: Inputs, slope: Float[Array, " n"], share: Float[Array, " n"], clip: Bounds
) -> tuple[dict[str, Array], dict[str, Array]]:
    """What the parameters of both blocks descend, by name, in the units of a gradient (rates still to come)."""
    p = pulls(first, second, x, slope)
    v2 = second.scale * ((p.signals * _projection(p.weight, clip[1])) @ (share * p.value))
    r2 = second.scale * ((p.signals * _projection(p.bias, clip[2])) @ share)
    above = {"w": v2[:, None], "b": r2}
    weighed = _projection(p.first, clip[0]) * (share * p.signal)[None]
    if isinstance(first, SphericalLimit):
        weight = jnp.asarray(slopes(first.inputs)[1], x.dtype)
        gain = 2 * sphere_mean(first.inputs) * first.radius
        return {"radius": gain * (weight @ (weighed @ first.radii(x)))}, above
    x = raw_columns(x)
    h = first.hidden(x)
    length = lengths(first.w)
    along = jnp.sum(weighed * first.activation(h), axis=1) / jnp.where(length > 0, length, 1)
    across = length[:, None] * ((weighed * first.activation.derivative(h)) @ x.T)
    return {"w": first.scale * (along[:, None] * first.w + across)}, above
