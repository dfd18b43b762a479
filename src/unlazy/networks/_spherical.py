"""The tied first block of ren2023 at infinite width: its neurons are spread evenly over a sphere, and stay so."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from unlazy._errors import UserError
from unlazy._types import PRNGKey
from unlazy.activations import Relu
from unlazy.networks._block import (
    AbstractBlock,
    Block,
    Channels,
    Columns,
    Lower,
    OtherColumns,
    OtherSignals,
    Overlap,
    Signals,
    lengths,
    overlap,
    raw_columns,
    spread_out,
)
from unlazy.networks._prepared import PreparedInputs, Radii, known_as


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

    def radii(self, x: Columns | PreparedInputs) -> Float[Array, " n"]:
        """|x| of each sample."""
        known = known_as(x, Radii)
        return lengths(raw_columns(x).T) if known is None else known

    def __call__(self, x: Columns | PreparedInputs) -> Channels:
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

    def rows(self) -> None:
        """There are no single neurons."""
        return

    def back(self, x: Columns | PreparedInputs, up: Signals) -> Lower:
        """Refuse: nothing is trained below."""
        raise NotImplementedError("A block of infinite width is the first of its stack.")

    def kernel(
        self, x: Columns | PreparedInputs, z: OtherColumns | PreparedInputs, up_x: Signals, up_z: OtherSignals
    ) -> Overlap:
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
