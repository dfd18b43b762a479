"""Checks for flows."""

from __future__ import annotations

import jax
import numpy as np

from unlazy.data import Dataset
from unlazy.flows import Flow, Status
from unlazy.networks import Network, split_trained
from unlazy.probes import TrainLoss
from unlazy.testing._close import close


def check_flow(flow: Flow, network: Network, data: Dataset, end: float = 2.0, tolerance: float = 1e-5) -> None:
    """Check that a flow starts at the identity, continues bit for bit, and is the same with the same seed.

    Parameters
    ----------
    flow
        The flow.
    network, data
        A small network and data that it fits.
    end
        A time that is at least two steps away.
    tolerance
        Largest relative difference between a run that is interrupted and one that is not.

    Raises
    ------
    AssertionError
        With a sentence that says what does not hold.
    """
    still = flow(network, data, [0.0], [TrainLoss()])
    assert still.status is Status.finished, f"A run to t = 0 ended with: {still.status.value}"
    assert np.array_equal(_parameters(still.final), _parameters(still.start)), "Parameters move in no time."
    close(still.final(data.x), network(data.x), 1e-6, 1e-9, "At t = 0 the network is not the one that was given")

    key = jax.random.key(5)
    whole = flow(network, data, [end / 2, end], [TrainLoss()], key=key)
    assert whole.status is Status.finished, f"The run ended with: {whole.status.value}"
    again = flow(network, data, [end / 2, end], [TrainLoss()], key=key)
    assert np.array_equal(_parameters(whole.final), _parameters(again.final)), "The same seed gives other bits."
    first = flow(network, data, [end / 2], [TrainLoss()], key=key)
    rest = flow.extend(first, [end], [TrainLoss()])
    assert np.array_equal(_parameters(rest.final), _parameters(whole.final)), "Continuing differs from not stopping."
    assert np.array_equal(rest.observed["train-loss"], whole.observed["train-loss"][1:]), (
        "Continuing changes what is observed."
    )
    straight = flow(network, data, [end], key=key)
    what = "A run that is observed on its way ends elsewhere"
    close(_parameters(straight.final), _parameters(whole.final), tolerance, tolerance, what)


def _parameters(network: Network) -> np.ndarray:
    return np.concatenate([np.asarray(leaf).ravel() for leaf in jax.tree.leaves(split_trained(network)[0])])
