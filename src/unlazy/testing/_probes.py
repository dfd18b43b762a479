"""What every probe must do, whoever wrote it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from unlazy._errors import UserError
from unlazy.data import Dataset
from unlazy.flows import Descent, Trajectory
from unlazy.losses import Loss, Squared
from unlazy.networks import Network
from unlazy.probes import Observation
from unlazy.testing._close import close

_RATE, _END = 0.05, 0.2
Evaluate = Callable[[Observation], Any]


def check_probe(probe: Evaluate, network: Network, data: Dataset, loss: Loss | None = None) -> None:
    """Check that a probe gives the same inside a flow and by hand, in every coordinate system.

    Parameters
    ----------
    probe
        The probe, or a plain function of an observation.
    network, data
        A small network on raw inputs and data that it fits.
    loss
        The loss to train on; squared error by default.

    Raises
    ------
    AssertionError
        With a sentence that says what does not hold.
    """
    for coordinates, run in short_runs({"it": probe}, network, data, loss).items():
        inside_is_by_hand(run, coordinates)
        results_are_finite_floats(run, coordinates)
        works_under_vmap(probe, run)


def short_runs(
    probes: dict[str, Evaluate], network: Network, data: Dataset, loss: Loss | None = None
) -> dict[str, Trajectory]:
    """Train for a few steps in weights and, where that is possible, in Gram coordinates; probes watch both."""
    flow = Descent(loss or Squared(), rate=_RATE, coordinates="weights")
    runs = {"weights": flow(network, data, [0.0, _END], probes)}
    if network.gram_form(data) is not None:
        runs["gram"] = Descent(loss or Squared(), rate=_RATE, coordinates="gram")(network, data, [0.0, _END], probes)
    return runs


def fits(probe: Evaluate, network: Network, data: Dataset, loss: Loss | None = None) -> bool:
    """Whether a probe is made for such a network; if not, it says so with a `UserError`."""
    try:
        eqx.filter_eval_shape(lambda n, d: _by_hand(probe, n, n, d, loss or Squared()), network.restore(), data)
    except UserError:
        return False
    return True


def _by_hand(probe: Evaluate, network: Network, start: Network, data: Dataset, loss: Loss) -> Any:
    return probe(Observation(network, start, data, loss))


def inside_is_by_hand(run: Trajectory, where: str) -> None:
    """What probes saw inside the flow is what they give by hand on the networks at both ends."""
    look = eqx.filter_jit(
        lambda now, start, data: {name: _by_hand(one, now, start, data, run.loss) for name, one in run.probes.items()}
    )
    for index, now in ((0, run.start), (-1, run.final)):
        by_hand = look(now, run.start, run.data)
        for name in run.probes:
            inside = jax.tree.map(lambda values, i=index: values[i], run.observed[name])
            what = f"{name}, {where}: inside the flow it is not what it is by hand"
            assert jax.tree.structure(inside) == jax.tree.structure(by_hand[name]), what
            for one, other in zip(jax.tree.leaves(inside), jax.tree.leaves(by_hand[name]), strict=True):
                close(one, other, 1e-6, 1e-8, what)


def results_are_finite_floats(run: Trajectory, where: str) -> None:
    """Results are arrays of finite numbers in the precision of the run."""
    for name in run.probes:
        leaves = jax.tree.leaves(run.observed[name])
        assert leaves, f"{name}, {where}: a probe that returns nothing."
        for leaf in leaves:
            assert leaf.dtype == run.data.y.dtype, f"{name}, {where}: {leaf.dtype} in a run in {run.data.y.dtype}."
            assert np.all(np.isfinite(leaf)), f"{name}, {where}: not all numbers are finite."


def works_under_vmap(probe: Evaluate, run: Trajectory) -> None:
    """Several runs can be observed at once."""
    arrays, rest = zip(*(eqx.partition(one, eqx.is_array) for one in (run.final, run.start)), strict=True)
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *arrays)

    def both(networks: Any) -> Any:
        one = lambda some: _by_hand(probe, eqx.combine(some, rest[0]), run.start, run.data, run.loss)  # noqa: E731
        return jax.vmap(one)(networks)

    together = eqx.filter_jit(both)(stacked)
    for index, network in enumerate((run.final, run.start)):
        alone = eqx.filter_jit(lambda net: _by_hand(probe, net, run.start, run.data, run.loss))(network)
        for one, other in zip(jax.tree.leaves(together), jax.tree.leaves(alone), strict=True):
            close(one[index], other, 1e-6, 1e-8, "Under vmap a probe gives something else")


__all__ = ["check_probe", "fits", "inside_is_by_hand", "results_are_finite_floats", "short_runs"]
