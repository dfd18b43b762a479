"""Directions of a set of vectors: cosines, clusters around leaders, effective rank."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from unlazy._linalg import eigh, norm, singular_values

Vectors = Float[Array, "m d"]
Scalars = dict[str, Float[Array, ""]]


class Clusters(NamedTuple):
    """Vectors gathered around leaders: which leader each follows, and its cosine with it."""

    leader: Int[Array, " m"]  # the index of a vector; its own for a leader
    cosine: Float[Array, " m"]
    leaders: Float[Array, ""]  # how many there are among the vectors that are alive


def orientations(vectors: Vectors) -> Vectors:
    """Normalise vectors to length 1; a vector of length 0 stays 0."""
    length = norm(vectors, axis=1, keepdims=True)
    return vectors / jnp.where(length > 0, length, 1)


def cosines(vectors: Vectors) -> Float[Array, "m m"]:
    """Cosines D(u, v) of all pairs of vectors (eq. 5).

    Parameters
    ----------
    vectors
        Vectors as rows, shape (m, d).
    """
    unit = orientations(vectors)
    return unit @ unit.T


def clusters(
    vectors: Vectors, threshold: float = 0.95, *, signed: bool = False, alive: Float[Array, " m"] | None = None
) -> Clusters:
    """Assign vectors to clusters around leaders, the longest first.

    Each vector follows the nearest leader with |cos| ≥ ``threshold``; a vector that finds none becomes a leader.

    Parameters
    ----------
    vectors
        Vectors as rows, shape (m, d).
    threshold
        Smallest |cos| of two vectors that count as one direction.
    signed
        Whether opposite vectors are two directions instead of one.
    alive
        1 for vectors that are counted, 0 for those that neither lead a cluster nor count. All if omitted.
    """
    d, amplitude = cosines(vectors), norm(vectors, axis=1)
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
    """Return an order of the vectors in which each cluster is contiguous.

    The cluster with the longest leader comes first, and positive cosines come before negative ones in each.

    Parameters
    ----------
    vectors, threshold
        As in `clusters`.
    """
    found, amplitude = clusters(vectors, threshold), norm(vectors, axis=1)
    return jnp.lexsort((-found.cosine, -amplitude[found.leader]))


def effective_rank(vectors: Vectors) -> Float[Array, ""]:
    """Effective rank e^H, with H the entropy of the normalised singular values (Roy and Vetterli 2007).

    It is 1 for vectors on one line and d for d orthogonal directions of equal size.

    Parameters
    ----------
    vectors
        Vectors as rows, shape (m, d).
    """
    values = singular_values(vectors)
    share = values / jnp.maximum(jnp.sum(values), jnp.finfo(values.dtype).tiny)
    return jnp.exp(-jnp.sum(jnp.where(share > 0, share * jnp.log(jnp.where(share > 0, share, 1)), 0)))


def leading(vectors: Vectors) -> Float[Array, " d"]:
    """Leading direction of the normalised vectors: their first principal axis, with a sum ≥ 0."""
    unit = orientations(vectors)
    _, axes = eigh(unit.T @ unit)
    first = axes[:, -1]
    return jnp.where(jnp.sum(first) < 0, -first, first)


def chance(d: int, threshold: float = 0.95) -> float:
    """Probability that two random directions in R^d have |cos| ≥ ``threshold``.

    Parameters
    ----------
    d
        Dimension.
    threshold
        The |cos| to reach.
    """
    from scipy.special import betainc

    return float(betainc((d - 1) / 2, 0.5, 1 - threshold**2))


def living(vectors: Vectors, floor: float) -> Float[Array, " m"]:
    """Return 1 for vectors longer than ``floor`` times the longest, and 0 for the others.

    Parameters
    ----------
    vectors
        Vectors as rows, shape (m, d).
    floor
        Fraction of the length of the longest vector.
    """
    amplitude = norm(vectors, axis=1)
    return (amplitude > floor * jnp.max(amplitude)).astype(amplitude.dtype)


def near_pairs(vectors: Vectors, threshold: float = 0.95) -> Float[Array, ""]:
    """Return the fraction of all pairs of vectors with |cos| > ``threshold``; the first of the numbers of `condensed`.

    Parameters
    ----------
    vectors, threshold
        As in `clusters`.
    """
    m, d = vectors.shape[0], jnp.abs(cosines(vectors))
    near = jnp.sum(jnp.triu(d > threshold, k=1), dtype=d.dtype)
    return near / max(m * (m - 1) / 2, 1)


def condensed(vectors: Vectors, threshold: float = 0.95, floor: float = 0.0) -> Scalars:
    """Compute the numbers of `Condensation` for the vectors of one layer.

    Parameters
    ----------
    vectors, threshold
        As in `clusters`.
    floor
        Vectors shorter than this fraction of the longest are not counted.
    """
    alive = living(vectors, floor)
    d = cosines(vectors)
    pair = jnp.outer(alive, alive) * (1 - jnp.eye(len(alive), dtype=d.dtype))
    near, apart = (jnp.sum(pair * (side > threshold)) for side in (jnp.abs(d), -d))
    one = jnp.ones_like(near)
    return {
        "pairs": near / jnp.maximum(jnp.sum(pair), one),
        "opposite": apart / jnp.maximum(near, one),
        "lines": clusters(vectors, threshold, alive=alive).leaders,
        "directions": clusters(vectors, threshold, signed=True, alive=alive).leaders,
        "rank": effective_rank(vectors * alive[:, None]),
        "alive": jnp.mean(alive),
    }
