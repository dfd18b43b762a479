"""The learner of ren2023 eq. 1: its first block at infinite width, and its clipped gradient flow (eq. 4).

The learner is f = E_j σ(w_j F + b_j) on F = E_i |v_i| relu(v_i·x), or on the limit F = α |x|, where the neurons v_i are
spread evenly over a sphere and stay so. Clipping bounds each sample's pull on each neuron, inside the expectation. One
sample pulls

    on r_2 = b_j:  t = (f - f*) σ'(h_j)          on v_2 = w_j:  t F(x)
    on v_1 = v_i:  u (v̄ relu(v·x) + |v| relu'(v·x) x)   with  u = E_j[t w_j],

and each pull is projected onto a ball of its own radius before samples are averaged; what is sent back to F is not. The
length of a pull on v_1 is |u| √(3 (v·x)² + |v|² |x|²) where v·x > 0, so that projecting multiplies two numbers per pair
(neuron, sample): nothing of size m x n x d is made. The result is a direction, and not the gradient of any function.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from unlazy._errors import UserError
from unlazy._types import Outputs, PRNGKey
from unlazy.activations import Relu
from unlazy.losses import Loss
from unlazy.networks._prepared import Radii, known_as
from unlazy.networks.blocks import (
    AbstractBlock,
    Block,
    Channels,
    Inputs,
    OtherInputs,
    OtherSignals,
    Overlap,
    Signals,
    lengths,
    overlap,
    raw_columns,
    spread_out,
)

Bounds = tuple[float, float, float]  # R_v1, R_v2, R_r2


def sphere_mean(d: int) -> float:
    """C_Γ/√d = Γ(d/2) / (2 √π Γ((d+1)/2)), the mean of relu(z) over a coordinate z of a direction in d dimensions.

    ren2023 Lemma 3.1. By logarithms, so that no d is too large; 1/2 for d = 1, about 1/√(2π d) for large d.
    """
    return math.exp(math.lgamma(d / 2) - math.lgamma((d + 1) / 2)) / (2 * math.sqrt(math.pi))


def slopes(d: int, count: int = 16) -> tuple[np.ndarray, np.ndarray]:
    """Nodes z in (0, 1) and weights ω, Σ ω = 1, with E[relu(z) g(z)] = C_Γ/√d Σ ω g(z) over directions.

    z has the density ∝ (1 - z²)^((d-3)/2), so that under the weight z dz the share of s = z² beyond s is
    (1 - s)^((d-1)/2) = 1 - p with p uniform: Gauss-Legendre in p. For d = 1 all nodes are 1.
    """
    node, weight = np.polynomial.legendre.leggauss(count)
    beyond = (1 - node) / 2
    power = 2 / (d - 1) if d > 1 else math.inf
    return np.sqrt(1 - beyond**power), weight / 2


class SphericalLimit(AbstractBlock):
    """F(x) = E[|w| relu(w·x)] = C_Γ/√d ρ² |x| over infinitely many neurons of mean square length ρ² (ren2023 eq. 5).

    Under a spherically symmetric law of inputs each of them obeys w' = (2 C_Γ/√d) E[S |x|] w (section 3): directions
    stay, lengths grow by one factor, and ρ' = -dL/dρ is the whole flow.
    """

    radius: Float[Array, ""]  # ρ
    dimension: int = eqx.field(static=True)
    train: str = eqx.field(static=True)

    @property
    def inputs(self) -> int:
        """Number of raw inputs d."""
        return self.dimension

    @property
    def slope(self) -> Float[Array, ""]:
        """α = C_Γ/√d ρ²."""
        return sphere_mean(self.dimension) * jnp.square(self.radius)

    def radii(self, x: Inputs) -> Float[Array, " n"]:
        """|x| of each sample."""
        known = known_as(x, Radii)
        return lengths(raw_columns(x).T) if known is None else known

    def __call__(self, x: Inputs) -> Channels:
        """Give α |x|."""
        return (self.slope * self.radii(x))[None]

    def sample(self, width: int, *, key: PRNGKey) -> Block:
        """Draw so many neurons from its law, all of length ρ."""
        drawn = jax.random.normal(key, (width, self.dimension), self.radius.dtype)
        w = self.radius * drawn / lengths(drawn)[:, None]
        return Block(None, w, None, jnp.zeros(1, w.dtype), Relu(), self.train, True, False, True)

    def rates(self) -> dict[str, float]:
        """Give ρ the rate 1: it moves as fast as the length of each neuron does."""
        return {"radius": 1.0} if self.train else {}

    def kernel(self, x: Inputs, z: OtherInputs, up_x: Signals, up_z: OtherSignals) -> Overlap:
        """(∂F/∂ρ)(x) (∂F/∂ρ)(z) u(x)·u(z)."""
        if not self.train:
            return jnp.zeros_like(overlap(up_x, up_z))
        gain = 2 * sphere_mean(self.dimension) * self.radius
        return spread_out(jnp.outer(gain * self.radii(x), gain * self.radii(z))) * overlap(up_x, up_z)


def sampled(blocks: Sequence[AbstractBlock], widths: Sequence[int], *, key: PRNGKey) -> tuple[AbstractBlock, ...]:
    """Draw so many neurons (a_1, ..., a_D, w) from each block (ren2023 Definition A.1); blocks beyond are kept.

    All D outputs of a block share the law of w, so that its neurons are rows to be drawn, with replacement, from those
    that are there, or from the law of a block of infinite width.
    """
    if not 0 < len(widths) <= len(blocks) or min(widths) < 1:
        raise UserError(f"Give 1 to {len(blocks)} widths of at least 1 neuron, not {list(widths)}.")
    drawn: list[AbstractBlock] = list(blocks)
    for level, (width, one) in enumerate(zip(widths, jax.random.split(key, len(widths)), strict=True)):
        block = blocks[level]
        if isinstance(block, SphericalLimit):
            drawn[level] = block.sample(width, key=one)
        elif isinstance(block, Block) and block.mean_field and (block.tied or block.a is not None):
            rows = jax.random.randint(one, (width,), 0, block.width)
            a, w, b = (None if leaf is None else leaf[rows] for leaf in (block.a, block.w, block.b))
            drawn[level] = dataclasses.replace(block, a=a, w=w, b=b)
        else:
            raise UserError(f"Block {level + 1} has no mean-field neurons with amplitudes to draw from.")
    return tuple(drawn)


First = Block | SphericalLimit


class Pulls(NamedTuple):
    """What each sample does to each neuron, before it is weighed and averaged."""

    signal: Float[Array, " n"]  # u
    told: Float[Array, "m n"]  # t
    value: Float[Array, " n"]  # F
    first: Float[Array, "k n"]  # length of the pull on v_1; at each slope z > 0 where neurons are infinitely many
    weight: Float[Array, "m n"]  # ... on v_2
    bias: Float[Array, "m n"]  # ... on r_2


def check_clip(blocks: Sequence[AbstractBlock], clip: Bounds) -> None:
    """Refuse bounds that are none, and networks that are not the learner of eq. 1."""
    if len(clip) != 3 or not all(bound > 0 for bound in clip):
        raise UserError(f"Clipping takes three positive bounds, of v_1, v_2 and r_2, not {clip}: try (d, d**3, 1).")
    if not is_learner(blocks):
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
    if isinstance(first, Block):
        tied = first.tied and first.mean_field and first.b is None and isinstance(first.activation, Relu)
    else:
        tied = True
    plain = second.a is not None and second.w.shape[1] == second.a.shape[1] == 1 and set(second.train) <= set("wb")
    return tied and plain and isinstance(second.activation, Relu) and second.mean_field and not second.skip


def pulls(first: First, second: Block, x: Inputs, slope: Float[Array, " n"]) -> Pulls:
    """All pulls, given dℓ/df of each sample."""
    assert second.a is not None
    value = first(x)[0]
    h = second.hidden(value[None])
    told = second.a * slope[None] * second.activation.derivative(h)
    signal = second.scale * (second.w[:, 0] @ told)
    if isinstance(first, Block):
        x = raw_columns(x)
        g = first.hidden(x)
        square = 3 * jnp.square(g) + jnp.outer(jnp.square(lengths(first.w)), jnp.sum(jnp.square(x), axis=0))
        length = jnp.where(g > 0, jnp.sqrt(square), 0)
    else:
        z = jnp.asarray(slopes(first.dimension)[0], value.dtype)
        length = jnp.outer(jnp.sqrt(1 + 3 * jnp.square(z)), first.radius * first.radii(x))
    size = jnp.abs(told)
    return Pulls(signal, told, value, jnp.abs(signal)[None] * length, size * jnp.abs(value)[None], size)


def kept(length: Float[Array, "k n"], bound: float) -> Float[Array, "k n"]:
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
    first: First,
    second: Block,
    x: Inputs,
    slope: Float[Array, " n"],
    share: Float[Array, " n"],
    clip: Bounds,
) -> tuple[dict[str, Array], dict[str, Array]]:
    """What the parameters of both blocks descend, by name, in the units of a gradient (rates still to come)."""
    p = pulls(first, second, x, slope)
    v2 = second.scale * ((p.told * kept(p.weight, clip[1])) @ (share * p.value))
    r2 = second.scale * ((p.told * kept(p.bias, clip[2])) @ share)
    above = {"w": v2[:, None], "b": r2}
    weighed = kept(p.first, clip[0]) * (share * p.signal)[None]
    if isinstance(first, SphericalLimit):
        weight = jnp.asarray(slopes(first.dimension)[1], x.dtype)
        gain = 2 * sphere_mean(first.dimension) * first.radius
        return {"radius": gain * (weight @ (weighed @ first.radii(x)))}, above
    x = raw_columns(x)
    h = first.hidden(x)
    length = lengths(first.w)
    along = jnp.sum(weighed * first.activation(h), axis=1) / jnp.where(length > 0, length, 1)
    across = length[:, None] * ((weighed * first.activation.derivative(h)) @ x.T)
    return {"w": first.scale * (along[:, None] * first.w + across)}, above
