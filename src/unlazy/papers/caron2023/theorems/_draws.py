"""Expectations over random starts, by drawing them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from scipy.special import ndtri

from unlazy._types import PRNGKey, PyTree
from unlazy.networks import TwoLayer, with_fields
from unlazy.papers.caron2023.theorems._setting import Model

_CHANCE = 1e-6  # that a true equation is called false
_WORK = 1e11  # products of weights and inputs for all draws together: some ten seconds
_FEWEST = 10


class Mean(NamedTuple):
    """A mean over random starts, entry by entry, and its standard error."""

    value: np.ndarray
    error: np.ndarray
    draws: int

    def against(self, predicted: np.ndarray) -> float:
        """Give how many times the largest deviation from ``predicted`` fits into what chance allows for all entries."""
        allowed = -float(ndtri(_CHANCE / (2 * self.value.size)))
        apart = np.abs(self.value - predicted)
        worst = np.max(np.divide(apart, self.error, out=np.where(apart > 0, np.inf, 0.0), where=self.error > 0))
        return allowed / worst if worst > 0 else np.inf

    def resolved(self, predicted: np.ndarray) -> float:
        """Give the size of what is predicted, in standard errors: below a few it cannot be distinguished from 0."""
        return float(np.linalg.norm(predicted) / max(np.linalg.norm(self.error), 1e-300))


def over_starts(
    observe: Callable[[TwoLayer, PyTree], Array],
    made: Model,
    given: PyTree,
    draws: int,
    samples: int,
    *,
    key: PRNGKey,
) -> Mean:
    """Average ``observe(network, given)`` over starts of the network: w ~ N(0, I), read-outs of random sign.

    Each draw counts twice, with all signs turned over as well: what is odd in them then has no noise. ``observe`` is to
    be a module-level function, so that it is compiled once. Large networks on many ``samples`` get fewer draws.
    """
    draws = min(draws, max(_FEWEST, int(_WORK / (made.w.size * samples))))
    total, squares = _sums(observe, made.network, made.w, given, jax.random.split(key, draws))
    mean = np.asarray(total, float) / draws
    variance = np.maximum(np.asarray(squares, float) / draws - mean**2, 0.0)
    return Mean(mean, np.sqrt(variance / max(draws - 1, 1)), draws)


@eqx.filter_jit
def _sums(
    observe: Callable[[TwoLayer, PyTree], Array], network: TwoLayer, like: Array, given: PyTree, keys: Array
) -> tuple[Array, Array]:
    def once(key: PRNGKey) -> Array:
        w_key, a_key = jax.random.split(key)
        w = jax.random.normal(w_key, like.shape, like.dtype)
        a = jnp.abs(network.a) * jax.random.rademacher(a_key, network.a.shape, network.a.dtype)
        both = (observe(with_fields(network, w=w, a=sign), given) for sign in (a, -a))
        return functools.reduce(jnp.add, both) / 2

    def add(sums: tuple[Array, Array], key: PRNGKey) -> tuple[tuple[Array, Array], None]:
        value = once(key)
        return (sums[0] + value, sums[1] + value**2), None

    value = jax.eval_shape(once, keys[0])
    zero = jnp.zeros(value.shape, value.dtype)
    return jax.lax.scan(add, (zero, zero), keys)[0]
