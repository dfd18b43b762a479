"""Condensation: whether the input weights of a layer's neurons gather in a few directions (zhou2023).

A layer is seen through `Layer.weights`, so all of this works for dense neurons, convolution channels and single
kernels alike. Two vectors count as one direction where |cos| is above a ``threshold``, 0.95 by default (18 degrees).
That is far from chance: two random vectors in R^d have |cos| > 0.95 with probability `chance`, 3e-5 for kernels of 3 x
3 and 1e-13 for 5 x 5; and far from 1, where training ends, so that the exact value decides little once a layer has
condensed.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from unlazy._errors import UserError, suggest
from unlazy._linalg import eigh, singular_values
from unlazy._observation import Observation
from unlazy.data import Dataset
from unlazy.networks import Layer, Network
from unlazy.probes._base import Probe
from unlazy.probes.movement import layers_of

Vectors = Float[Array, "m d"]
Scalars = dict[str, Float[Array, ""]]

_ODD = np.linspace(0.01, 3.0, 50)  # where σ(-h) = -σ(h) is looked at


class Clusters(NamedTuple):
    """Vectors gathered around leaders: which leader each follows, and its cosine with it."""

    leader: Int[Array, " m"]  # the index of a vector; its own for a leader
    cosine: Float[Array, " m"]
    count: Float[Array, ""]  # of leaders among the vectors that are alive


def orientations(vectors: Vectors) -> Vectors:
    """Vectors of length 1; a vector of length 0 stays 0."""
    length = jnp.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors / jnp.where(length > 0, length, 1)


def cosines(vectors: Vectors) -> Float[Array, "m m"]:
    """D(u, v) of all pairs (eq. 5)."""
    unit = orientations(vectors)
    return unit @ unit.T


def clusters(
    vectors: Vectors, threshold: float = 0.95, *, signed: bool = False, alive: Float[Array, " m"] | None = None
) -> Clusters:
    """Gather vectors around leaders, the longest first: each follows the nearest leader with |cos| ≥ ``threshold``.

    A vector that finds no leader becomes one. With ``signed`` opposite vectors are two directions, else one. Vectors
    that are not ``alive`` lead nobody and are not counted.
    """
    d, amplitude = cosines(vectors), jnp.linalg.norm(vectors, axis=1)
    alive = jnp.ones_like(amplitude) if alive is None else alive
    near = d if signed else jnp.abs(d)

    def visit(leads: Float[Array, " m"], j: Int[Array, ""]) -> tuple[Float[Array, " m"], None]:
        led = jnp.any((near[j] >= threshold) & (leads > 0))
        return leads.at[j].set(jnp.where(led, 0, alive[j])), None

    leads, _ = jax.lax.scan(visit, jnp.zeros_like(amplitude), jnp.argsort(-amplitude))
    leader = jnp.argmax(jnp.where(leads > 0, near, -2.0), axis=1)
    leader = jnp.where(leads > 0, jnp.arange(len(leads)), leader)
    return Clusters(leader, jnp.take_along_axis(d, leader[:, None], axis=1)[:, 0], jnp.sum(leads))


def cluster_order(vectors: Vectors, threshold: float = 0.95) -> Int[Array, " m"]:
    """An order in which clusters stand together, the one with the longest leader first, and in each + before -."""
    found, amplitude = clusters(vectors, threshold), jnp.linalg.norm(vectors, axis=1)
    return jnp.lexsort((-found.cosine, -amplitude[found.leader]))


def effective_rank(vectors: Vectors) -> Float[Array, ""]:
    """e^H of the singular values as shares of their sum (Roy and Vetterli 2007): 1 on one line, d for d equal axes."""
    values = singular_values(vectors)
    share = values / jnp.maximum(jnp.sum(values), jnp.finfo(values.dtype).tiny)
    return jnp.exp(-jnp.sum(jnp.where(share > 0, share * jnp.log(jnp.where(share > 0, share, 1)), 0)))


def leading(vectors: Vectors) -> Float[Array, " d"]:
    """The direction along which the vectors' orientations lie most, with a sum that is not negative."""
    unit = orientations(vectors)
    _, axes = eigh(unit.T @ unit)
    first = axes[:, -1]
    return jnp.where(jnp.sum(first) < 0, -first, first)


def chance(d: int, threshold: float = 0.95) -> float:
    """Probability that two random directions in R^d have |cos| ≥ ``threshold``."""
    from scipy.special import betainc

    return float(betainc((d - 1) / 2, 0.5, 1 - threshold**2))


def vectors_of(network: Network, layer: str | None = None) -> dict[str, Vectors]:
    """Return the input weights of every layer's neurons, and single convolution kernels as ``<layer>-kernels``."""
    found = {}
    for name, one in layers_of(network).items():
        found[name], kernels = one.weights(), one.kernels()
        if kernels is not None:
            found[f"{name}-kernels"] = kernels
    if layer is None:
        return found
    if layer not in found:
        raise UserError(f"This network has no layer '{layer}'. {suggest(layer, found)}")
    return {layer: found[layer]}


def living(vectors: Vectors, floor: float) -> Float[Array, " m"]:
    """1 for vectors longer than ``floor`` times the longest, 0 for the others."""
    amplitude = jnp.linalg.norm(vectors, axis=1)
    return (amplitude > floor * jnp.max(amplitude)).astype(amplitude.dtype)


def _check(threshold: float, floor: float) -> None:
    if not (0 < threshold < 1 and 0 <= floor < 1):
        raise UserError(
            f"threshold = {threshold} and floor = {floor} were given: choose 0 < threshold < 1 and 0 <= floor < 1."
        )


class Condensation(Probe):
    """How far each layer (or the one named) has condensed, in a few numbers.

    - ``pairs``: share of pairs with |cos| > ``threshold``; ``opposite``: share of those that point apart;
    - ``lines``, ``directions``: number of effective directions, where opposite vectors are one, or two;
    - ``rank``: effective rank of the weights;
    - ``alive``: share of vectors longer than ``floor`` times the longest. The others, kernels that a ReLU left behind,
      are no part of the other numbers.
    """

    layer: str | None = eqx.field(static=True, default=None)
    threshold: float = eqx.field(static=True, default=0.95)
    floor: float = eqx.field(static=True, default=0.0)

    def __check_init__(self) -> None:
        _check(self.threshold, self.floor)

    def __call__(self, obs: Observation) -> dict[str, Scalars]:
        """Look at the weights."""
        layers = vectors_of(obs.network, self.layer)
        return {layer: condensed(vectors, self.threshold, self.floor) for layer, vectors in layers.items()}


def condensed(vectors: Vectors, threshold: float = 0.95, floor: float = 0.0) -> Scalars:
    """What `Condensation` sees of one layer's vectors."""
    alive = living(vectors, floor)
    d = cosines(vectors)
    pair = jnp.outer(alive, alive) * (1 - jnp.eye(len(alive), dtype=d.dtype))
    near, apart = (jnp.sum(pair * (side > threshold)) for side in (jnp.abs(d), -d))
    one = jnp.ones_like(near)
    return {
        "pairs": near / jnp.maximum(jnp.sum(pair), one),
        "opposite": apart / jnp.maximum(near, one),
        "lines": clusters(vectors, threshold, alive=alive).count,
        "directions": clusters(vectors, threshold, signed=True, alive=alive).count,
        "rank": effective_rank(vectors * alive[:, None]),
        "alive": jnp.mean(alive),
    }


class InputWeights(Probe):
    """The vectors themselves, input weights of every neuron or kernel, of all layers or of those named."""

    layers: tuple[str, ...] | None = eqx.field(static=True, default=None)

    def __call__(self, obs: Observation) -> dict[str, Float[Array, "_ _"]]:
        """Look at the weights."""
        if self.layers is None:
            return vectors_of(obs.network)
        return {layer: vectors_of(obs.network, layer)[layer] for layer in self.layers}


def _plain(direction: Any) -> str | tuple[float, ...]:
    return direction if isinstance(direction, str) else tuple(map(float, direction))


class Alignment(Probe):
    """Cosine of every vector of a layer with one direction, its amplitude, and the ``share`` within ``degrees`` of it.

    The direction is "leading", that of the vectors themselves; "ones", as in zhou2023 figures 6 and 12; or a list of
    numbers, say ``prediction.linear.right[0]``, for which a ``layer`` must be named. Opposite vectors are
    aligned too. ``median`` is that of |cos|.
    """

    direction: str | tuple[float, ...] = eqx.field(static=True, default="leading", converter=_plain)
    layer: str | None = eqx.field(static=True, default=None)
    degrees: float = eqx.field(static=True, default=10.0)

    def __check_init__(self) -> None:
        if isinstance(self.direction, str) and self.direction not in ("leading", "ones"):
            raise UserError(
                f"direction = '{self.direction}' is unknown: choose 'leading', 'ones' or a list of numbers."
            )
        if not isinstance(self.direction, str) and self.layer is None:
            raise UserError("A direction given as numbers belongs to one layer: name that layer with the option layer.")
        if not 0 < self.degrees < 90:
            raise UserError(f"degrees = {self.degrees} is out of range: choose an angle between 0 and 90.")

    def __call__(self, obs: Observation) -> dict[str, dict[str, Float[Array, "..."]]]:
        """Look at the weights."""
        return {layer: self._of(vectors) for layer, vectors in vectors_of(obs.network, self.layer).items()}

    def _of(self, vectors: Vectors) -> dict[str, Float[Array, "..."]]:
        cosine = orientations(vectors) @ self._axis(vectors)
        near = (jnp.abs(cosine) >= float(np.cos(np.deg2rad(self.degrees)))).astype(cosine.dtype)
        return {
            "cosine": cosine,
            "amplitude": jnp.linalg.norm(vectors, axis=1),
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
            raise UserError(
                f"direction has {len(self.direction)} entries, but vectors of '{self.layer}' have {d}: give {d}."
            )
        axis = np.asarray(self.direction, float)
        return jnp.asarray(axis / np.linalg.norm(axis), vectors.dtype)


class CosineMatrix(Probe):
    """D(u, v) of all pairs of a layer's vectors, clusters together (see `cluster_order`): zhou2023 figure 2."""

    layer: str | None = eqx.field(static=True, default=None)
    threshold: float = eqx.field(static=True, default=0.95)

    def __check_init__(self) -> None:
        _check(self.threshold, 0.0)

    def __call__(self, obs: Observation) -> dict[str, Float[Array, "_ _"]]:
        """Look at the weights."""
        layers = vectors_of(obs.network, self.layer)
        return {layer: cosines(v[cluster_order(v, self.threshold)]) for layer, v in layers.items()}


class Reduced(NamedTuple):
    """A network in which condensed neurons have become one (zhou2023 figure 1)."""

    network: Network
    neurons: int  # that are left in the layer
    change: float  # of the outputs, root mean square over that of the outputs


def reduce(network: Network, layer: str, data: Dataset, threshold: float = 0.95) -> Reduced:
    """Merge the neurons of each cluster of a layer into an effective one, and tell how little the function changes.

    The new neuron has the clusters' mean direction d and r² = Σ_j |a_j| r_j³ / Σ_j |a_j| r_j, with r_j = <w_j, d> and
    |a_j| taken as r_j; its output weights are Σ_j a_j r_j / r. For neurons of equal length these are the sums of figure
    1. Else outputs agree in the first order of σ, and in the third where read-outs have condensed as well; everywhere
    where σ is ReLU. Opposite neurons are merged where σ is odd.
    """
    _check(threshold, 0.0)
    vectors = vectors_of(network, layer)[layer]
    found = clusters(vectors, threshold, signed=not _odd(network.layers()[layer]))
    leaders, group = np.unique(np.asarray(found.leader), return_inverse=True)
    member = jnp.asarray(group[None, :] == np.arange(len(leaders))[:, None], vectors.dtype)
    signs = jnp.where(found.cosine < 0, -1.0, 1.0).astype(vectors.dtype)
    sums = (member * signs[None]) @ vectors
    size = jnp.linalg.norm(sums, axis=1)
    along = (sums @ vectors.T) / size[:, None] * member  # <w_j, d> of a cluster's own neurons, with their signs
    amplitude = jnp.sqrt(jnp.sum(along**4, axis=1) / jnp.sum(along**2, axis=1))
    merged = network.layers()[layer].merge(
        member * signs[None] * (amplitude / size)[:, None], along / amplitude[:, None]
    )
    before, after = network(data.x), merged(data.x)
    change = float(jnp.linalg.norm(after - before) / jnp.linalg.norm(before))
    return Reduced(merged, len(leaders), change)


def _odd(layer: Layer) -> bool:
    sigma = layer.activation
    if sigma is None:
        return False
    h = jnp.asarray(_ODD)
    return bool(jnp.allclose(sigma(-h), -sigma(h), rtol=1e-5))
