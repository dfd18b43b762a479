"""First blocks of a stack that are not made of trained neurons: infinitely many neurons, and fixed features."""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from unlazy._types import PRNGKey
from unlazy.activations import Activation, Relu
from unlazy.networks import blocks as b
from unlazy.networks._base import with_fields
from unlazy.networks.blocks import AbstractBlock, Block, lengths, overlap, raw_columns, spread_out
from unlazy.networks.embeddings import Anchored
from unlazy.networks.linear import Gram, Layout, Weights
from unlazy.networks.prepared import Features, Places, Radii, known_as


class Limit(AbstractBlock):
    """The first block at infinite width, F_k(x) = E[A_k] E[σ(w·x + b)] + c_k - Σ_p Γ_kp K(x, x_p).

    With Gaussian (w, b) the kernel K(x, z) = E[σ(w·x + b) σ(w·z + b)] (aiad2026's K_μ0) and the start are in closed
    form. Whatever its training, the block stays such an expansion over the points x_p that it was trained on, and is
    exact at any x.

    Attributes
    ----------
    mean
        E[A_k] of each channel.
    c
        Offset.
    activation
        Activation σ.
    weight_spread, bias_spread
        Standard deviations of w and b.
    train
        Letters of what is trained: of "ac".
    dimension
        Number of inputs d.
    points, coefficients
        The points x_p on which the block was trained, and Γ.
    """

    mean: Float[Array, " D"]
    c: Float[Array, " D"]
    activation: Activation
    weight_spread: float = eqx.field(static=True)
    bias_spread: float = eqx.field(static=True)
    train: str = eqx.field(static=True)
    dimension: int = eqx.field(static=True)
    points: Float[Array, "p d"] | None = None
    coefficients: Float[Array, "D p"] | None = None

    @property
    def inputs(self) -> int:
        return self.dimension

    def limit_kernel(self, x: Float[Array, "n d"], z: Float[Array, "p d"]) -> Float[Array, "n p"]:
        """K_μ0(x, z)."""
        across = self.weight_spread**2 * (x @ z.T) + self.bias_spread**2
        return self.activation.dual(self._variance(x)[:, None], self._variance(z)[None, :], across)

    def _variance(self, x: Float[Array, "n d"]) -> Float[Array, " n"]:
        return self.weight_spread**2 * jnp.sum(jnp.square(x), axis=1) + self.bias_spread**2

    def start(self, x: b.Columns) -> b.Channels:
        """E[A_k] E[σ(w·x + b)], as A is independent of (w, b) at the start, and what earlier training has added."""
        start = self.mean[:, None] * self.activation.mean(self._variance(x.T))[None]
        if self.points is None or self.coefficients is None:
            return start
        return start - self.coefficients @ self.limit_kernel(self.points, x.T)

    def trained_on(
        self, points: Float[Array, "q d"], coefficients: Float[Array, "D q"], c: Float[Array, " D"]
    ) -> Limit:
        """The block after training: another offset, and more terms of its expansion."""
        if self.points is not None and self.coefficients is not None:
            points = jnp.concatenate([self.points, points])
            coefficients = jnp.concatenate([self.coefficients, coefficients], axis=1)
        return dataclasses.replace(self, c=c, points=points, coefficients=coefficients)

    def __call__(self, x: b.Inputs) -> b.Channels:
        """Evaluate the start and the expansion."""
        return self.start(raw_columns(x)) + self.c[:, None]

    def rates(self) -> dict[str, float]:
        """Return that of c: the rest is trained in the form of `FixedFeatures`."""
        return {letter: 1.0 for letter in self.train if letter == "c"}

    def kernel(self, x: b.Inputs, z: b.OtherInputs, up_x: b.Signals, up_z: b.OtherSignals) -> b.Overlap:
        """(K_μ0(x, z) + 1) u(x)·u(z)."""
        return spread_out(kernel_of(self, raw_columns(x).T, raw_columns(z).T)) * overlap(up_x, up_z)


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
        return self.dimension

    @property
    def slope(self) -> Float[Array, ""]:
        """α = C_Γ/√d ρ²."""
        return sphere_mean(self.inputs) * jnp.square(self.radius)

    def radii(self, x: b.Inputs) -> Float[Array, " n"]:
        """|x| of each sample."""
        known = known_as(x, Radii)
        return lengths(raw_columns(x).T) if known is None else known

    def __call__(self, x: b.Inputs) -> b.Channels:
        """Return α |x|."""
        return (self.slope * self.radii(x))[None]

    def sample(self, width: int, *, key: PRNGKey) -> Block:
        """Draw ``width`` neurons from its law, all of length ρ."""
        drawn = jax.random.normal(key, (width, self.inputs), self.radius.dtype)
        w = self.radius * drawn / lengths(drawn)[:, None]
        return Block(None, w, None, jnp.zeros(1, w.dtype), Relu(), self.train, True, False, True)

    def rates(self) -> dict[str, float]:
        """The rate of ρ is 1: it moves as fast as the length of each neuron does."""
        return {"radius": 1.0} if self.train else {}

    def kernel(self, x: b.Inputs, z: b.OtherInputs, up_x: b.Signals, up_z: b.OtherSignals) -> b.Overlap:
        """(∂F/∂ρ)(x) (∂F/∂ρ)(z) u(x)·u(z)."""
        if not self.train:
            return jnp.zeros_like(overlap(up_x, up_z))
        gain = 2 * sphere_mean(self.inputs) * self.radius
        return spread_out(jnp.outer(gain * self.radii(x), gain * self.radii(z))) * overlap(up_x, up_z)


class FixedFeatures(AbstractBlock):
    """A first block on features that never change, by the linear map from them to its channels.

    In weights F = s A^T φ(x) + c on the features of the block that it stands for; at infinite width these are exact on
    the points of the data (``anchor``), and what the limit gives at the start is added. In Gram coordinates f_k(t, x) =
    f_k(0, x) - Σ_p Γ_kp(t) G(x, x_p) with Γ' = dL/df (aiad2026 eq. 4 and 16): widths drop out of the cost.
    """

    linear: Weights | Gram
    inner: Block | Limit  # the block that it stands for, at t = 0
    anchor: Anchored | None = None

    @property
    def inputs(self) -> int:
        return self.inner.inputs

    def features(self, x: Float[Array, "n d"]) -> Float[Array, "n F"]:
        """Features of raw points, then what the block gives besides, in one column for each channel, or none."""
        if isinstance(self.inner, Block):
            return self.inner.column(x.T).T
        assert self.anchor is not None
        return jnp.concatenate([self.anchor(x), self.inner.start(x.T).T], axis=1)

    def _parts(self, x: b.Inputs, linear: Weights) -> tuple[Array, Array]:
        known = known_as(x, Features)
        features, count = self.features(raw_columns(x).T) if known is None else known, linear.w.shape[1]
        return features[:, :count], features[:, count:]

    def __call__(self, x: b.Inputs) -> b.Channels:
        """The linear map on features, or on rows of the Gram matrix."""
        if isinstance(self.linear, Gram):
            return self.linear(x) if isinstance(x, Places) else self.restored()(raw_columns(x))
        phi, start = self._parts(x, self.linear)
        return self.linear(phi) + start.T if start.shape[1] else self.linear(phi)

    def rates(self) -> dict[str, float]:
        """Those of the block, for as many features as there are; in Gram form all factors are in G."""
        linear: Any = self.linear  # whose rates are numbers here
        if isinstance(linear, Gram):
            return {"linear.coefficients": linear.unit}  # pyright: ignore[reportReturnType]
        both = {"a": ("linear.w", linear.rate), "c": ("linear.b", linear.bias_rate)}
        return dict(both[letter] for letter in self.inner.train)

    def kernel(self, x: b.Inputs, z: b.OtherInputs, up_x: b.Signals, up_z: b.OtherSignals) -> b.Overlap:
        """G(x, z) u(x)·u(z)."""
        recompute = functools.partial(kernel_of, self.inner, raw_columns(x).T, raw_columns(z).T)
        if isinstance(self.linear, Weights):
            own = self.linear.kernel(self._parts(x, self.linear)[0], self._parts(z, self.linear)[0])
        elif isinstance(x, Places) and isinstance(z, Places):
            own = self.linear.kernel(self.linear.at(x), self.linear.at(z), recompute)
        else:
            own = recompute()
        return spread_out(own) * overlap(up_x, up_z)

    def restored(self) -> Block | Limit:
        """The block that it stands for, with its current parameters; a trained limit is again a limit."""
        block, linear = self.inner, self.linear
        if isinstance(block, Block):
            if isinstance(linear, Gram):
                linear = block.linear().moved(linear, self.features(linear.points[: linear.n]))
            return with_fields(block, a=linear.w.T, c=linear.b)
        if isinstance(linear, Gram):
            c = block.c - float("c" in block.train) * jnp.sum(linear.coefficients, axis=1)
            return block.trained_on(linear.points[: linear.n], float("a" in block.train) * linear.coefficients, c)
        assert self.anchor is not None
        assert linear.b is not None
        # s Σ_j A_j φ_j(x) = K(x, P) Γ'^T with φ(x) = √|P| K(P, P)^(-1/2) K(P, x)
        gamma = -linear.factor * linear.w.shape[1] ** 0.5 * (linear.w @ self.anchor.inverse_root)
        return block.trained_on(self.anchor.points, gamma, linear.b)


def in_weights(block: Block | Limit, points: Float[Array, "p d"]) -> FixedFeatures:
    """Let the features of a first block be made once; those of an infinite one become exact on ``points``."""
    if isinstance(block, Block):
        return FixedFeatures(block.linear(), block)
    nothing, count = jnp.zeros((block.mean.shape[0], points.shape[0]), points.dtype), float(points.shape[0])
    weights = Weights(nothing, block.c, 1.0 / count, count * ("a" in block.train), float("c" in block.train))
    return FixedFeatures(weights, block, Anchored(block.limit_kernel, points))


def in_gram(block: Block | Limit, points: Float[Array, "p d"], n: int) -> FixedFeatures:
    """Write a first block on fixed features in Gram form; the first ``n`` points are trained on."""
    start = block(points.T)
    nothing = jnp.zeros((start.shape[0], n), points.dtype)
    return FixedFeatures(Gram(nothing, start, kernel_of(block, points, points[:n]), points, 1.0, Layout()), block)


def kernel_of(block: Block | Limit, x: Float[Array, "n d"], z: Float[Array, "p d"]) -> Float[Array, "n p"]:
    """G(x, z) of a block on fixed features: how a signal on the channels at z moves them at x."""
    if isinstance(block, Limit):
        return float("a" in block.train) * block.limit_kernel(x, z) + float("c" in block.train)
    return block.linear().kernel(block.column(x.T).T, block.column(z.T).T)
