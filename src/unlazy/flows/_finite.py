"""Runs that become NaN or infinite: how that is noticed, and how the last finite state is found again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from unlazy._types import PyTree
from unlazy.flows import _compiled as compiled
from unlazy.flows.state import State, Status
from unlazy.networks import with_fields
from unlazy.probes import TrainLoss

if TYPE_CHECKING:
    from unlazy.flows.driver import Driver

_GROWN = 10.0  # times 1 + the largest parameter at the start: from there on outputs may overflow, even of deep networks

_SMALL = 2**27  # bytes of a state that is kept


def kept(state: State) -> State | None:
    """Return a state in case a later one overflows; None if it is too large to be kept beside that one."""
    return state if sum(leaf.nbytes for leaf in jax.tree.leaves(state)) <= _SMALL else None


def check_parameters(driver: Driver) -> None:
    """Return runs whose parameters are not finite after a slice to their last finite state, and end them."""
    driver.largest = _largest(driver, driver.state.trained)
    step_back(driver, np.logical_not(np.isfinite(driver.largest)))


def overflows(driver: Driver, state: State, observed: PyTree) -> Any:
    """Whether the loss is not finite, for each run; it is evaluated only where there is a sign of that."""
    quiet = np.isfinite(_largest(driver, observed))
    running = np.asarray(state.code) == 0
    known = _largest(driver, state.trained) if driver.largest is None else driver.largest
    if not np.any(running & (~quiet | (known > driver.suspect))):
        return np.zeros_like(running)
    return running & ~_sound(driver, state)


def suspect(driver: Driver) -> Any:
    """Return the size of parameters beyond which outputs may overflow, for each run."""
    return _GROWN * (1 + _largest(driver, driver.run_state.first))


def step_back(driver: Driver, bad: Any) -> None:
    """Return runs that became NaN or infinite in the last slice (``bad``) to their last finite state, and end them."""
    for index in np.argwhere(bad):
        place = tuple(index)
        counts = [np.asarray(one.steps + one.rejected)[place] for one in (driver.before, driver.state)]
        low, high = 0, int(counts[1] - counts[0])
        while high - low > 1:  # the same steps again, fewer of them: bisection
            middle = (low + high) // 2
            good = _sound(driver, driver.after(driver.before, middle))[place]
            low, high = (middle, high) if good else (low, middle)
        found = driver.after(driver.before, low) if low else driver.before
        if driver.recorded is not None and not _sound(driver, found)[place]:
            found = driver.recorded
        found = with_fields(found, code=jnp.full_like(found.code, Status.not_finite.code))
        if place:
            found = jax.tree.map(lambda every, one, at=place[0]: every.at[at].set(one[at]), driver.state, found)
        driver.run_state = with_fields(driver.run_state, state=found)


def _sound(driver: Driver, state: State) -> Any:
    loss = driver.evaluate(compiled.observe_runs, state.trained, {"": TrainLoss()})[""]
    return np.asarray(np.isfinite(_largest(driver, state.trained)) & np.isfinite(np.asarray(loss)))


def _largest(driver: Driver, tree: PyTree) -> Any:
    """Return the largest |entry| of all floating-point leaves for each run; NaN or infinite if an entry is."""
    leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(tree) if eqx.is_inexact_array_like(leaf)]
    first, found = 0 if driver.batching == "one" else 1, np.zeros(np.shape(driver.state.code))
    for leaf in filter(np.size, leaves):
        real, axes = np.abs(leaf) if np.iscomplexobj(leaf) else leaf, tuple(range(first, leaf.ndim))
        found = np.maximum(found, np.maximum(real.max(axes), -real.min(axes)))  # without an array of all |entries|
    return found
