"""Kernels of infinitely many nodes of a two-layer network, and which of its nodes stay heavy at infinite width."""

from __future__ import annotations

import math
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from unlazy._checked import Checked
from unlazy._errors import UserError
from unlazy.activations import Activation
from unlazy.networks.embeddings import Embedding, Identity
from unlazy.networks.scalings import Asymmetrical, FirstNodes, Scaling

_MOST = 2**20  # heavy nodes
_ROUNDING = 8  # by which the product of a point with itself may be off, in units of the last place


class NodeKernels(Checked):
    """Expectations over one node of a two-layer network with Gaussian weights, h = scale (w·Φ/√D + b).

    Parameters
    ----------
    activation
        Activation σ.
    embedding
        Fixed features Φ, drawn.
    scale
        Standard deviation of the weights, and of the bias if there is one.
    bias
        Whether there is a bias.
    """

    activation: Activation
    embedding: Embedding = Identity()
    scale: float = eqx.field(static=True, default=1.0)
    bias: bool = eqx.field(static=True, default=False)

    def values(self, x: Float[Array, "n d"], z: Float[Array, "p d"]) -> Float[Array, "n p"]:
        """Return E[σ(h(x)) σ(h(z))], the kernel of the Gaussian process that infinitely many nodes are."""
        return self.activation.dual(*self._covariances(x, z))

    def tangent(self, x: Float[Array, "n d"], z: Float[Array, "p d"]) -> Float[Array, "n p"]:
        """Return Θ*(x, z) = (Φ(x)·Φ(z)/D + 1_bias) E[σ'(h(x)) σ'(h(z))] (caron2023 eq. 9)."""
        return self._inner(x, z) * self.activation.dual_derivative(*self._covariances(x, z))

    def _inner(self, x: Float[Array, "n d"], z: Float[Array, "p d"]) -> Float[Array, "n p"]:
        return self.embedding.kernel(x, z) + float(self.bias)

    def _covariances(self, x: Float[Array, "n d"], z: Float[Array, "p d"]) -> tuple[Array, Array, Array]:
        def variances(points: Float[Array, "q d"]) -> Float[Array, " q"]:
            return jax.vmap(lambda point: self._inner(point[None], point[None])[0, 0])(points)

        left, right = variances(x)[:, None], variances(z)[None, :]
        # An angle below √eps is rounding: of one point with itself it must be 0, as Θ* of ReLU has a corner there.
        across, most = self._inner(x, z), jnp.sqrt(left * right)
        across = jnp.where(across >= (1 - _ROUNDING * jnp.finfo(across.dtype).eps) * most, most, across)
        square = self.scale**2
        return square * left, square * right, square * across


class LightKernel(eqx.Module):
    """Tangent kernel of the light part for one output, α Θ*(x, z) + β E[σ(h(x)) σ(h(z))]."""

    nodes: NodeKernels
    alpha: float = eqx.field(static=True)  # ρ c², with the variance ρ of all light nodes and read-outs ±c
    beta: float = eqx.field(static=True)  # ρ where the read-out is trained, else 0

    def __call__(self, x: Float[Array, "n d"], z: Float[Array, "p d"]) -> Float[Array, "n p"]:
        kernel = self.alpha * self.nodes.tangent(x, z)
        return kernel + self.beta * self.nodes.values(x, z) if self.beta else kernel


class GaussianProcess(Embedding):
    """Infinitely many features with the kernel E[σ(h(x)) σ(h(z))]: a `TwoLayer` network on it draws the process."""

    registered: ClassVar[bool] = False  # made by `TwoLayerLimit`
    nodes: NodeKernels

    def size(self, inputs: int) -> float:
        return math.inf

    def __call__(self, x: Float[Array, "n d"]) -> Float[Array, "n D"]:
        raise UserError("A Gaussian process has no list of features: use its kernel.")

    def kernel(self, x: Float[Array, "n d"], z: Float[Array, "p d"]) -> Float[Array, "n p"]:
        return self.nodes.values(x, z)


def heavy_variances(scaling: Scaling, count: int | None = None, tail: float = 1e-3) -> tuple[np.ndarray, float]:
    """Return the variances (1-γ) λ̃_j of the heavy nodes that are kept, and that of all other nodes together."""
    node = scaling.node if isinstance(scaling.node, Asymmetrical) else Asymmetrical(1.0, FirstNodes(1))
    if (not isinstance(scaling.node, Asymmetrical) and scaling.node != -0.5) or (
        (scaling.feature, scaling.rate, scaling.feature_rate) != (-0.5, 0.0, 0.0)
    ):
        raise UserError(
            "Infinitely many nodes have a limit, a kernel machine and heavy nodes, under the scalings `ntk` and "
            f"`asymmetrical(gamma, weights)`, not under {scaling}."
        )
    if count is not None and count > _MOST:
        raise UserError(f"heavy = {count} is out of range: give a number of nodes up to {_MOST:,}.")
    if node.gamma == 1:
        return np.zeros(0), 1.0
    least = (tail / (1 - node.gamma)) ** 2
    size = 16 if count is None else count
    while True:
        first = node.weights.normalised(size)
        beyond = node.weights.power_sum(2.0) - np.concatenate([[0.0], np.cumsum(first**2)])
        if count is not None or beyond[-1] <= least:
            break
        if size >= _MOST:
            raise UserError(f"More than {_MOST:,} heavy nodes are needed for tail = {tail:g}: choose a larger one.")
        size *= 2
    kept = first if count is not None else first[: int(np.argmax(beyond <= least))]
    kept = (1 - node.gamma) * kept[: int(np.max(np.flatnonzero(kept), initial=-1)) + 1]
    share = 1 - float(np.sum(kept))
    rounding = 8 * np.finfo(float).eps * max(len(kept), 1)
    return kept, share if share > rounding else 0.0
