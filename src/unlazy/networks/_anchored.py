"""Embeddings that are known by their kernel only, made exact on finitely many points."""

from __future__ import annotations

import math
from collections.abc import Callable

import jax.numpy as jnp
from jaxtyping import Array, Float

from unlazy._linalg import eigh
from unlazy._types import PRNGKey
from unlazy.activations import Activation
from unlazy.networks.embeddings import Embedding, Features, Gram, Others, Points


def power(kernel: Float[Array, "p p"], exponent: float) -> Float[Array, "p p"]:
    """Return K^exponent of a symmetric, positive matrix; null directions, up to rounding, are dropped."""
    values, vectors = eigh(kernel)
    floor = kernel.shape[0] * jnp.finfo(values.dtype).eps * jnp.max(values)
    return (vectors * (jnp.where(values > floor, values, jnp.inf) ** exponent)[None, :]) @ vectors.T


class Anchored(Embedding):
    """A kernel on finitely many points P, as |P| features: Φ(x) = √|P| G(x, P) G(P, P)^(-1/2).

    On P itself Φ(x)·Φ(z) / D = G(x, z) exactly, so gradient flow on these features is the flow of the infinite network
    seen on P. Elsewhere it is the best guess given P: the conditional mean of the Gaussian process h_j. Repeated points
    make G(P, P) singular; its null directions carry no feature and are dropped.
    """

    kernel_of: Callable[[Points, Others], Gram]
    points: Points
    inverse_root: Float[Array, "p p"]

    def __init__(self, kernel_of: Callable[[Points, Others], Gram], points: Points) -> None:
        self.kernel_of = kernel_of
        self.points = points
        self.inverse_root = power(kernel_of(points, points), -0.5)

    def draw(self, inputs: int, activation: Activation, *, key: PRNGKey) -> Embedding:
        """Nothing to draw."""
        return self

    def size(self, inputs: int) -> float:
        """D = |P|."""
        return self.points.shape[0]

    def __call__(self, x: Points) -> Features:
        """Φ(x) = √|P| G(x, P) G(P, P)^(-1/2)."""
        return math.sqrt(self.points.shape[0]) * self.kernel_of(x, self.points) @ self.inverse_root

    def kernel(self, x: Points, z: Others) -> Gram:
        """G(x, P) G(P, P)^(-1) G(P, z): exact where x or z is a point of P."""
        return self(x) @ self(z).T / self.points.shape[0]
