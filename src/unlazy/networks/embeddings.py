"""Embeddings Φ: the fixed features on which a layer is trained (chen2022 eq. 3-5, App. H).

An embedding is specified first and drawn later: ``RandomLayers((512,))`` specifies it, and ``draw`` draws its weights.
"""

from __future__ import annotations

import abc
import math
from collections.abc import Callable
from itertools import pairwise
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from unlazy._checked import Checked
from unlazy._errors import UserError
from unlazy._linalg import eigh
from unlazy._types import Count, PRNGKey
from unlazy.activations import Activation

Points = Float[Array, "n d"]
Others = Float[Array, "p d"]
Features = Float[Array, "n D"]
Gram = Float[Array, "n p"]

_BYTES = 2**27  # what the filtered images of one batch may take


class Embedding(Checked):
    """A fixed map Φ from inputs to D features."""

    def draw(self, inputs: int, activation: Activation, *, key: PRNGKey) -> Embedding:
        """Return the embedding of ``inputs``-dimensional data, its random weights drawn; σ is the network's own.

        By default there is nothing to draw.
        """
        return self

    @abc.abstractmethod
    def size(self, inputs: int) -> float:
        """Number of features D; infinite for an embedding known only by its kernel."""

    @abc.abstractmethod
    def __call__(self, x: Points) -> Features:
        """Features Φ(x) of a batch."""

    def kernel(self, x: Points, z: Others) -> Gram:
        """Kernel G(x, z) = Φ(x)·Φ(z) / D (chen2022 eq. 12 and 22)."""
        return _inner(self(x), self(z))


class Identity(Embedding):
    """The input itself: a shallow network (chen2022 eq. 1)."""

    def size(self, inputs: int) -> float:
        return inputs

    def __call__(self, x: Points) -> Features:
        return x


class Quadratic(Embedding):
    """All products of two inputs, Φ(x) = vec(x x^T) (chen2022 section 4.2)."""

    def size(self, inputs: int) -> float:
        return inputs**2

    def __call__(self, x: Points) -> Features:
        return (x[:, :, None] * x[:, None, :]).reshape(x.shape[0], -1)

    def kernel(self, x: Points, z: Others) -> Gram:
        """G = (x·z)² / d², without ever building the d² features."""
        return _inner(x, z) ** 2


class RandomLayers(Embedding):
    """One or more frozen random layers: Φ = σ(Z_L ... σ(Z_1 x / √d) ... / √D_{L-1}) (chen2022 eq. 4-5 and App. H).

    One layer makes the partially trained three-layer network P-3L.

    Parameters
    ----------
    widths
        Width of each layer.
    activation
        σ of all layers; that of the network if omitted.
    weights
        The weights Z_l; `draw` fills them in.
    """

    widths: tuple[Count, ...] = eqx.field(static=True, converter=tuple)
    activation: Activation | None = None
    weights: tuple[Float[Array, "..."], ...] | None = None

    def __check_init__(self) -> None:
        if not self.widths:
            raise UserError("widths = []: give a width for each layer, such as [1024].")

    def draw(self, inputs: int, activation: Activation, *, key: PRNGKey) -> Embedding:
        """Draw every entry of the layers' weights from N(0, 1)."""
        shapes = list(zip(self.widths, (inputs, *self.widths[:-1]), strict=True))
        keys = jax.random.split(key, len(self.widths))
        weights = tuple(jax.random.normal(k, shape) for k, shape in zip(keys, shapes, strict=True))
        return RandomLayers(self.widths, self.activation or activation, weights)

    def size(self, inputs: int) -> float:
        return self.widths[-1]

    def __call__(self, x: Points) -> Features:
        if self.weights is None or self.activation is None:
            raise UserError("These random layers have no weights yet: a network draws them, or call `draw`.")
        if x.shape[1] != self.weights[0].shape[1]:
            made_for = self.weights[0].shape[1]
            raise UserError(f"This embedding was made for {made_for} inputs but was given {x.shape[1]}.")
        for weight in self.weights:
            x = self.activation(x @ weight.T / math.sqrt(weight.shape[1]))
        return x


class RandomPatches(Embedding):
    """Random filters on all patches of an image, rectified and averaged over quadrants (after Coates and Ng, 2011).

    Inputs are flat images, channel by channel: 3 x s² values are a colour image, s² a grey one. Filters are drawn from
    N(0, 1) / fan-in. Use this embedding in place of a pretrained network.

    Parameters
    ----------
    filters
        Number of filters.
    patch
        Side of a filter in pixels.
    grid
        Responses are averaged over grid x grid regions, which gives D = filters x grid² features.
    weights
        The filters; `draw` fills them in.
    """

    filters: Count = eqx.field(static=True, default=128)
    patch: Count = eqx.field(static=True, default=6)
    grid: Count = eqx.field(static=True, default=2)
    weights: Float[Array, "..."] | None = None

    def draw(self, inputs: int, activation: Activation, *, key: PRNGKey) -> Embedding:
        channels, side = _image(inputs)
        if self.patch > side or self.grid > side - self.patch + 1:
            raise UserError(
                f"Filters of {self.patch} pixels and a grid of {self.grid} do not fit images of {side} x {side}."
            )
        shape = (self.filters, channels, self.patch, self.patch)
        weights = jax.random.normal(key, shape) / math.sqrt(channels * self.patch**2)
        return RandomPatches(self.filters, self.patch, self.grid, weights)

    def size(self, inputs: int) -> float:
        return self.filters * self.grid**2

    def __call__(self, x: Points) -> Features:
        """Filter, rectify, average; a batch of images at a time."""
        if self.weights is None:
            raise UserError("These random patches have no filters yet: a network draws them, or call `draw`.")
        channels, side = _image(x.shape[1])
        weights = self.weights.astype(x.dtype)

        def one(image: Float[Array, " d"]) -> Float[Array, " D"]:
            maps = jax.lax.conv_general_dilated(image.reshape(1, channels, side, side), weights, (1, 1), "VALID")
            maps = jax.nn.relu(maps[0])
            return jnp.concatenate([jnp.mean(maps[:, a, b], axis=(1, 2)) for a in spans for b in spans])

        edges = [round(i * (side - self.patch + 1) / self.grid) for i in range(self.grid + 1)]
        spans = [slice(a, b) for a, b in pairwise(edges)]  # of rows, and of columns
        row = self.filters * (side - self.patch + 1) ** 2 * x.dtype.itemsize
        return jax.lax.map(one, x, batch_size=max(1, min(x.shape[0], _BYTES // row)))


class Infinite(Embedding):
    """Infinitely wide random layers, D → ∞: known only by the limit of their kernel (chen2022 eq. 23 and App. H).

    The kernel is the composition of dual activations, one per layer: G_{l+1}(x, z) = E[σ(u) σ(v)] with (u, v) Gaussian
    of covariance G_l. A network on it is exact on the points that it is trained and tested on; see `Anchored`.

    Parameters
    ----------
    depth
        Number of layers.
    activation
        σ of all layers; that of the network if omitted.
    """

    depth: Count = eqx.field(static=True, default=1)
    activation: Activation | None = None

    def draw(self, inputs: int, activation: Activation, *, key: PRNGKey) -> Embedding:
        """Fix the activation; there are no weights to draw."""
        return Infinite(self.depth, self.activation or activation)

    def size(self, inputs: int) -> float:
        return math.inf

    def __call__(self, x: Points) -> Features:
        raise UserError(
            "An infinite embedding has no finite list of features: use its kernel, or train a network on it."
        )

    def kernel(self, x: Points, z: Others) -> Gram:
        """Compose the dual activation ``depth`` times, starting from x·z / d."""
        if self.activation is None:
            raise UserError("This infinite embedding has no activation yet: give it one, or let a network draw it.")
        across = _inner(x, z)
        left, right = (jnp.mean(jnp.square(points), axis=1) for points in (x, z))
        for _ in range(self.depth):
            across = self.activation.dual(left[:, None], right[None, :], across)
            left, right = self.activation.moment(left), self.activation.moment(right)
        return across


class Anchored(Embedding):
    """A kernel on finitely many points P, as |P| features: Φ(x) = √|P| G(x, P) G(P, P)^(-1/2).

    On P itself Φ(x)·Φ(z) / D = G(x, z) exactly, so gradient flow on these features is the flow of the infinite network
    restricted to P. Elsewhere it is the best prediction given P, the conditional mean of the Gaussian process h_j, and
    the kernel is exact where x or z is a point of P. Repeated points make G(P, P) singular; its null directions carry
    no feature and are dropped.

    Parameters
    ----------
    kernel_of
        Function that returns the kernel G(x, z) of two batches.
    points
        The points P.
    """

    registered: ClassVar[bool] = False  # made by networks, not by users
    kernel_of: Callable[[Points, Others], Gram]
    points: Points
    inverse_root: Float[Array, "p p"]

    def __init__(self, kernel_of: Callable[[Points, Others], Gram], points: Points) -> None:
        self.kernel_of = kernel_of
        self.points = points
        self.inverse_root = power(kernel_of(points, points), -0.5)

    def size(self, inputs: int) -> float:
        return self.points.shape[0]

    def __call__(self, x: Points) -> Features:
        return math.sqrt(self.points.shape[0]) * self.kernel_of(x, self.points) @ self.inverse_root

    def conditioned(self, w: Float[Array, "m p"], x: Points, h: Float[Array, "m n"]) -> Float[Array, "m p"]:
        """Move Gaussian weights w, so that h_j = w_j·Φ / √|P| takes the given values at points x of P."""
        there, count = self(x), self.points.shape[0]
        inverse = power(self.kernel_of(x, x), -1.0) / count
        return w + (math.sqrt(count) * h - w @ there.T) @ inverse @ there


def power(kernel: Float[Array, "p p"], exponent: float) -> Float[Array, "p p"]:
    """Return K^exponent of a symmetric, positive matrix; null directions, up to rounding, are dropped."""
    values, vectors = eigh(kernel)
    floor = kernel.shape[0] * jnp.finfo(values.dtype).eps * jnp.max(values)
    return (vectors * (jnp.where(values > floor, values, jnp.inf) ** exponent)[None, :]) @ vectors.T


def _inner(x: Features, z: Float[Array, "p D"]) -> Gram:
    return x @ z.T / x.shape[1]


def _image(inputs: int) -> tuple[int, int]:
    """Channels and side of a flat image."""
    for channels in (1, 3):
        side = math.isqrt(inputs // channels)
        if channels * side**2 == inputs:
            return channels, side
    raise UserError(f"{inputs} inputs are not a square image, grey or in three colours: random patches cannot be cut.")
