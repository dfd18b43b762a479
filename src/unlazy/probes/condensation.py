"""Condensation: whether the input weights of a layer's neurons gather in a few directions (zhou2023).

Weights come from `Layer.weights`, so all of this works for dense neurons, convolution channels and single
kernels alike. Two vectors count as one direction where |cos| is above a ``threshold``, 0.95 by default (18 degrees).
That is far from chance: two random vectors in R^d have |cos| > 0.95 with probability `chance`, 3e-5 for kernels of 3 x
3 and 1e-13 for 5 x 5; and it is far from 1, which the cosines of a condensed layer approach, so that its exact value
hardly matters.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, NamedTuple, TypeVar

import equinox as eqx
import jax.numpy as jnp
import msgspec
import numpy as np
from jaxtyping import Array, Float

from unlazy._checked import checked
from unlazy._errors import UserError, suggest
from unlazy._linalg import norm
from unlazy._types import OpenShare, Share
from unlazy.data import Dataset
from unlazy.networks import Batch, Network
from unlazy.probes.directions import (
    Scalars,
    Vectors,
    cluster_order,
    clusters,
    condensed,
    cosines,
    leading,
    orientations,
)
from unlazy.probes.movement import layers_of
from unlazy.probes.observation import Observation, Probe

V = TypeVar("V")


def vectors_of(network: Network, layer: str | None = None, x: Batch | None = None) -> dict[str, Vectors]:
    """Return the input weights of every layer's neurons, and single convolution kernels as ``<layer>-kernels``."""
    found = {}
    for name, one in layers_of(network, x).items():
        found[name], kernels = one.weights(), one.kernels()
        if kernels is not None:
            found[f"{name}-kernels"] = kernels
    return _chosen(found, None if layer is None else (layer,))


def _chosen(found: Mapping[str, V], layers: Sequence[str] | None) -> dict[str, V]:
    """Return what was found of some layers, or of all."""
    for layer in layers or ():
        if layer not in found:
            raise UserError(f"This network has no layer '{layer}'. {suggest(layer, found)}")
    return {layer: found[layer] for layer in (found if layers is None else layers)}


class Condensation(Probe):
    """How far each layer has condensed, in a few numbers.

    - ``pairs``: fraction of pairs with |cos| > ``threshold``; ``opposite``: fraction of these with a negative cosine;
    - ``lines``, ``directions``: number of effective directions, where opposite vectors are one, or two;
    - ``rank``: effective rank of the weights;
    - ``alive``: fraction of vectors longer than ``floor`` times the longest.

    Parameters
    ----------
    layer
        The layer to observe, such as ``"conv1"`` or ``"conv1-kernels"``; all layers if omitted.
    threshold
        Smallest |cos| of two vectors that count as one direction.
    floor
        Vectors shorter than this fraction of the longest, such as kernels on whose units a ReLU never opens, count in
        ``alive`` only.
    """

    layer: str | None = eqx.field(static=True, default=None)
    threshold: OpenShare = eqx.field(static=True, default=0.95)
    floor: Share = eqx.field(static=True, default=0.0)

    def __call__(self, obs: Observation) -> dict[str, Scalars]:
        layers = vectors_of(obs.network, self.layer, obs.x)
        return {layer: condensed(vectors, self.threshold, self.floor) for layer, vectors in layers.items()}


class InputWeights(Probe):
    """The input weights of every neuron, and of every convolution kernel, by layer.

    Parameters
    ----------
    layers
        The layers to observe; all if omitted.
    """

    layers: tuple[str, ...] | None = eqx.field(static=True, default=None)

    def __call__(self, obs: Observation) -> dict[str, Float[Array, "_ _"]]:
        return _chosen(vectors_of(obs.network, x=obs.x), self.layers)


class OutgoingWeights(Probe):
    """What each neuron's response is multiplied with on its way to the next layer (`Layer.outgoing`), by layer.

    Parameters
    ----------
    layers
        The layers to observe; all if omitted.
    """

    layers: tuple[str, ...] | None = eqx.field(static=True, default=None)

    def __call__(self, obs: Observation) -> dict[str, Float[Array, "..."]]:
        return {name: layer.outgoing() for name, layer in _chosen(layers_of(obs.network), self.layers).items()}


def _plain(direction: Any) -> Any:
    return direction if isinstance(direction, str) else tuple(map(float, direction))


class Alignment(Probe):
    """Cosine of every vector of a layer with one direction, and the vector's length (``amplitude``).

    ``share`` is the fraction of vectors within ``degrees`` of the direction, and ``median`` the median of |cos|.
    Opposite vectors count as aligned.

    Parameters
    ----------
    direction
        "leading", the leading direction of the vectors themselves; "ones", as in zhou2023 figures 6 and 12; or a
        list of numbers, such as ``prediction.linear.right[0]``, for which ``layer`` must be given.
    layer
        The layer to observe, such as ``"conv1"`` or ``"conv1-kernels"``; all layers if omitted.
    degrees
        The angle within which a vector counts as aligned.
    """

    direction: Literal["leading", "ones"] | tuple[float, ...] = eqx.field(
        static=True, default="leading", converter=_plain
    )
    layer: str | None = eqx.field(static=True, default=None)
    degrees: Annotated[float, msgspec.Meta(gt=0, lt=90)] = eqx.field(static=True, default=10.0)

    def __check_init__(self) -> None:
        if not isinstance(self.direction, str) and self.layer is None:
            raise UserError("A direction given as numbers belongs to one layer: name that layer with the option layer.")

    def __call__(self, obs: Observation) -> dict[str, dict[str, Float[Array, "..."]]]:
        return {layer: self._of(vectors) for layer, vectors in vectors_of(obs.network, self.layer, obs.x).items()}

    def _of(self, vectors: Vectors) -> dict[str, Float[Array, "..."]]:
        cosine = orientations(vectors) @ self._axis(vectors)
        near = (jnp.abs(cosine) >= float(np.cos(np.deg2rad(self.degrees)))).astype(cosine.dtype)
        return {
            "cosine": cosine,
            "amplitude": norm(vectors, axis=1),
            "share": jnp.mean(near),
            "median": jnp.median(jnp.abs(cosine)),
        }

    def _axis(self, vectors: Vectors) -> Float[Array, " d"]:
        d = vectors.shape[1]
        if self.direction == "leading":
            return leading(vectors)
        if self.direction == "ones":
            return jnp.full(d, d**-0.5, vectors.dtype)
        if len(self.direction) != d:
            raise UserError(f"direction has {len(self.direction)} entries, but vectors of '{self.layer}' have {d}.")
        axis = np.asarray(self.direction, float)
        return jnp.asarray(axis / np.linalg.norm(axis), vectors.dtype)


class CosineMatrix(Probe):
    """Cosines of all pairs of a layer's vectors, ordered by clusters (see `cluster_order`): zhou2023 figure 2.

    Parameters
    ----------
    layer, threshold
        As for `Condensation`.
    """

    layer: str | None = eqx.field(static=True, default=None)
    threshold: OpenShare = eqx.field(static=True, default=0.95)

    def __call__(self, obs: Observation) -> dict[str, Float[Array, "_ _"]]:
        layers = vectors_of(obs.network, self.layer, obs.x)
        return {layer: cosines(v[cluster_order(v, self.threshold)]) for layer, v in layers.items()}


class Reduced(NamedTuple):
    """A network in which each cluster of condensed neurons is replaced by one neuron (zhou2023 figure 1).

    Attributes
    ----------
    network
        The reduced network.
    neurons
        Number of neurons that remain in the layer.
    change
        Root mean square change of the outputs, relative to that of the outputs.
    """

    network: Network
    neurons: int
    change: float


@checked
def reduce(network: Network, layer: str, data: Dataset, threshold: OpenShare = 0.95) -> Reduced:
    """Merge the neurons of each cluster of a layer into one effective neuron, and measure the change of the outputs.

    The new neuron has the mean direction d of its cluster and r² = Σ_j |a_j| r_j³ / Σ_j |a_j| r_j, with r_j = <w_j, d>
    and |a_j| taken as r_j; its output weights are Σ_j a_j r_j / r. For neurons of equal length these are the sums of
    figure 1. Otherwise outputs agree in the first order of σ, and in the third if read-outs have condensed as well; for
    ReLU they agree everywhere. Opposite neurons are merged if σ is odd.

    Parameters
    ----------
    network
        The network.
    layer
        The layer whose neurons are merged.
    data
        Data set on whose training inputs the change is measured.
    threshold
        Smallest |cos| of two neurons in one cluster.
    """
    vectors, neurons = vectors_of(network, layer)[layer], network.layers()[layer]
    sigma, h = neurons.activation, jnp.asarray(np.linspace(0.01, 3.0, 50))
    odd = sigma is not None and bool(jnp.allclose(sigma(-h), -sigma(h), rtol=1e-5))
    found = clusters(vectors, threshold, signed=not odd)
    leaders, group = np.unique(np.asarray(found.leader), return_inverse=True)
    member = jnp.asarray(group[None, :] == np.arange(len(leaders))[:, None], vectors.dtype)
    signs = jnp.where(found.cosine < 0, -1.0, 1.0).astype(vectors.dtype)
    sums = (member * signs[None]) @ vectors
    size = jnp.linalg.norm(sums, axis=1)
    along = (sums @ vectors.T) / size[:, None] * member  # <w_j, d> of a cluster's own neurons, with their signs
    amplitude = jnp.sqrt(jnp.sum(along**4, axis=1) / jnp.sum(along**2, axis=1))
    merged = neurons.merge(member * signs[None] * (amplitude / size)[:, None], along / amplitude[:, None])
    before = network(data.x)
    change = jnp.linalg.norm(merged(data.x) - before) / jnp.linalg.norm(before)
    return Reduced(merged, len(leaders), float(change))
