"""What a probe is: a look at a network on its way, cheap enough to be taken often."""

import abc

import equinox as eqx

from unlazy._types import PyTree
from unlazy.data import Dataset
from unlazy.losses import Loss
from unlazy.networks import Network


class Probe(eqx.Module):
    """Sees the network now and at the start, its data and its loss; gives an array, or a dictionary of arrays.

    The same probe works inside a compiled flow and by hand on a snapshot:

    >>> FeatureMovement()(run.final, run.start, run.data, run.loss)
    """

    @abc.abstractmethod
    def __call__(self, now: Network, start: Network, data: Dataset, loss: Loss) -> PyTree:
        """Look."""
