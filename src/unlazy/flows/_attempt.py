"""What every flow with steps of its own size does after an attempt at one."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int

from unlazy._types import PyTree, Scalar
from unlazy.flows._state import State, Status, code


class Attempt(eqx.Module):
    """A step of some size, made on trial."""

    trained: PyTree  # the parameters where it leads
    size: Scalar
    keep: Bool[Array, ""]
    good: Bool[Array, ""]  # it led to numbers
    stuck: Bool[Array, ""]  # smaller ones would not help
    error: Scalar
    cost: Int[Array, ""] | int  # in gradients


def settled(s: State, attempt: Attempt, memory: PyTree, most: Array | np.ndarray) -> State:
    """The state after an attempt, with its time, counts and trouble noted; ``most`` steps may be tried."""
    keep = attempt.keep
    left = jnp.where(keep, s.left - attempt.size, s.left)
    problem = jnp.where(attempt.good, code(Status.step_too_small), code(Status.not_finite))
    spent = (s.steps + s.rejected + 1 >= jnp.asarray(most)) & (left > 0)
    trouble = jnp.where(attempt.stuck, problem, jnp.where(spent, code(Status.step_limit), 0))
    return State(
        either(keep, attempt.trained, s.trained),
        memory,
        left,
        s.steps + keep,
        s.rejected + ~keep,
        trouble.astype(s.code.dtype),
        s.evaluations + attempt.cost,
        s.error + jnp.where(keep, attempt.error, 0).astype(s.error.dtype),
    )


def either(choice: Bool[Array, ""], yes: PyTree, no: PyTree) -> PyTree:
    """One tree or the other, leaf by leaf."""
    return jax.tree.map(lambda a, b: jnp.where(choice, a, b), yes, no)


def length(tree: PyTree) -> Scalar:
    """Euclidean length of all leaves together."""
    return jnp.sqrt(sum(jnp.sum(jnp.square(leaf)) for leaf in jax.tree.leaves(tree)))
