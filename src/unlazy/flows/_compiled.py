"""The compiled calls of a driver: several runs of one shape at once, side by side or in turn."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from unlazy._errors import UserError
from unlazy._observation import Observation, Observe
from unlazy._types import PyTree
from unlazy.data import Dataset
from unlazy.flows._state import State
from unlazy.losses import Loss
from unlazy.networks import Layout, Network, Samples

if TYPE_CHECKING:
    from unlazy.flows._base import Stepper

Batching = Literal["one", "vmap", "map"]


def stack(members: Sequence[Any]) -> Any:
    """Put several networks, data sets or keys of one shape along a new first axis."""
    arrays, rest = zip(*(eqx.partition(member, eqx.is_array) for member in members), strict=True)
    structures = {jax.tree.structure(member) for member in members}
    shapes = {tuple(jnp.shape(leaf) for leaf in jax.tree.leaves(member)) for member in arrays}
    if len(structures) > 1 or len(shapes) > 1:
        raise UserError("Networks and data of several seeds must agree in shape and kind to be run together.")
    return eqx.combine(jax.tree.map(lambda *leaves: jnp.stack(leaves), *arrays), rest[0])


def _batched(function: Callable, batching: Batching) -> Callable:
    """Apply a function to several runs at once; leaves that are not arrays, say functions, are the same for all."""
    if batching == "one":
        return function

    def over_runs(*args: Any) -> Any:
        arrays, rest = eqx.partition(args, eqx.is_array)
        static: list[Any] = []

        def one(some: Any) -> Any:
            made, other = eqx.partition(function(*eqx.combine(some, rest)), eqx.is_array)
            static[:] = [other]
            return made

        made = jax.vmap(one)(arrays) if batching == "vmap" else jax.lax.map(one, arrays)
        return eqx.combine(made, static[0])

    return over_runs


@eqx.filter_jit
def prepare_runs(
    flow: Stepper, network: Network, data: Dataset, layout: Layout, batching: Batching
) -> tuple[Network, Samples]:
    def prepare(network: Network, data: Dataset) -> tuple[Network, Samples]:
        prepared, x, x_test = flow.prepare(network, data, layout)
        return prepared, Samples(x, data.y, data.weight, x_test)

    return _batched(prepare, batching)(network, data)


@eqx.filter_jit
def begin_runs(flow: Stepper, network: Network, data: Samples, key: Array, batching: Batching) -> State:
    return _batched(lambda n, d, k: flow.begin(n, d, key=k), batching)(network, data, key)


@eqx.filter_jit
def advance_runs(
    flow: Stepper, state: State, frozen: PyTree, data: Samples, budget: Array, batching: Batching
) -> State:
    return _batched(lambda s, f, d: flow.advance(s, f, d, budget), batching)(state, frozen, data)


def observed(
    probes: dict[str, Observe],
    asked: tuple[Observe, ...],
    answers: tuple[PyTree, ...],
    now: PyTree,
    first: PyTree,
    frozen: PyTree,
    data: Samples,
    raw: Dataset,
    loss: Loss,
    batching: Batching,
    requested: list[Observe] | None = None,
) -> dict[str, PyTree]:
    """Evaluate probes at one time of each run.

    ``answers`` are what the probes ``asked`` give at the start; what else is asked of it is noted in ``requested``.
    """

    def observe(answers: Any, now: PyTree, first: PyTree, frozen: PyTree, data: Samples, raw: Dataset) -> Any:
        here, start = eqx.combine(now, frozen), eqx.combine(first, frozen)
        known = list(zip(asked, answers, strict=True))
        obs = Observation(here, start, raw, loss, data.x, data.x_test, known)
        results = {name: probe(obs) for name, probe in probes.items()}
        if requested is not None:
            requested[:] = obs.requested
        return jax.tree.map(jnp.asarray, results)

    return _batched(observe, batching)(answers, now, first, frozen, data, raw)


observe_runs = eqx.filter_jit(observed)
