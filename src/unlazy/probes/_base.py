"""What a probe is: a function of one observation of a run."""

from __future__ import annotations

import abc

import equinox as eqx

from unlazy._observation import Observation
from unlazy._types import PyTree
from unlazy.data import Dataset
from unlazy.losses import Loss
from unlazy.networks import Network


class Probe(eqx.Module):
    """A quantity that is measured on a network along a run; it returns an array or a dictionary of arrays.

    A probe gives the same values inside a flow and by hand on a snapshot:

    >>> FeatureMovement().of(run.final, run.start, run.data, run.loss)
    """

    @abc.abstractmethod
    def __call__(self, obs: Observation) -> PyTree:
        """Evaluate the probe.

        Parameters
        ----------
        obs
            The network now (``obs.network``) and at the start (``obs.start``), the raw data (``obs.data``), the loss,
            handles for fast evaluation (``obs.x``, ``obs.x_test``) and shared results (``obs.outputs``, ...).
        """

    def of(self, network: Network, start: Network, data: Dataset, loss: Loss) -> PyTree:
        """Evaluate the probe by hand, on two networks and raw data."""
        return self(Observation(network, start, data, loss))
