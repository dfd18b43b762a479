"""The base class of probes, and what a probe receives: the network at one time of a run, with shared results."""

from __future__ import annotations

import abc
import functools
import operator
from collections.abc import Callable, Sequence

import equinox as eqx
import jax
from jax.core import Tracer
from jaxtyping import Array, Float

from unlazy._checked import Checked
from unlazy._errors import UserError
from unlazy._memory import must_fit
from unlazy._types import Outputs, PyTree
from unlazy.data import Dataset
from unlazy.losses import Loss
from unlazy.networks import Batch, Network, OtherBatch

Observe = Callable[["Observation"], PyTree]


class Observation:
    """The network at one time of a run, with everything that a probe may need.

    The same probe works inside a compiled flow, in whatever coordinates the network is trained there, and by hand on a
    snapshot (`Probe.of`). Results that several probes need, such as outputs and kernels, are computed at most once.

    Parameters
    ----------
    network
        The network now.
    start
        The network at the start of the run.
    data
        The data set, raw, as the user made it.
    loss
        The loss that the flow descends.
    x, x_test
        Training and test inputs in the form in which ``network`` and ``start`` are evaluated fastest: handles that can
        be sliced, or raw arrays. The raw inputs if omitted.
    known_at_start
        Pairs of a probe and its value at the start of the run, for `at_start`.

    Examples
    --------
    >>> class LastFive(Probe):
    ...     def __call__(self, obs):
    ...         return obs.network(obs.x[-5:])  # the same as obs.network(obs.data.x[-5:]), only faster
    """

    def __init__(
        self,
        network: Network,
        start: Network,
        data: Dataset,
        loss: Loss,
        x: Batch | None = None,
        x_test: OtherBatch | None = None,
        known_at_start: Sequence[tuple[Observe, PyTree]] = (),
    ) -> None:
        self.network, self.start, self.data, self.loss = network, start, data, loss
        self.x = data.x if x is None else x
        self._x_test = x_test
        self.requested: list[Observe] = []  # probes whose values at the start were needed and not known
        self._known_at_start = list(known_at_start)
        self._kernels: dict[tuple[int | None, int | None], Array] = {}

    @property
    def x_test(self) -> OtherBatch:
        """Test inputs to evaluate the network on; an error if the data set has none."""
        raw = self._required(self.data.x_test)
        return raw if self._x_test is None else self._x_test

    @property
    def y_test(self) -> Outputs:
        """Test targets; an error if the data set has none."""
        return self._required(self.data.y_test)

    def _required(self, values: Array | None) -> Array:
        if values is None:
            raise UserError(f"Data set '{self.data.name}' has no test set: give it one, or remove this probe.")
        return values

    @functools.cached_property
    def outputs(self) -> Outputs:
        """Outputs f(x_i) on the training set, (n,) or (n, k)."""
        return self.network(self.x)

    @functools.cached_property
    def test_outputs(self) -> Outputs:
        """Outputs on the test set."""
        return self.network(self.x_test)

    def kernel(self, samples: int | None = None, output: int | None = None) -> Float[Array, "p p"]:
        """Return the tangent kernel Θ on the training inputs as a square matrix.

        Parameters
        ----------
        samples
            Number of training inputs, counted from the first; all if omitted.
        output
            The output whose kernel is taken, counted from 0: n² numbers, at about the cost of a network with one
            output. If omitted, outputs and samples share one axis, at k² times the cost.
        """
        if (samples, output) not in self._kernels:
            self._kernels[samples, output] = training_kernel(self.network, self.data, samples, output, self.x)
        return self._kernels[samples, output]

    def at_start(self, probe: Observe) -> PyTree:
        """Return the value of ``probe`` at the start of the run, which a flow computes only once.

        Parameters
        ----------
        probe
            A probe, or a function of an `Observation`.
        """
        leaves, structure = jax.tree.flatten(probe)
        for one, value in self._known_at_start:
            others, other = jax.tree.flatten(one)
            if one is probe or (structure == other and all(map(operator.is_, leaves, others))):
                return value
        # Inside a compiled computation the arrays that a probe holds have no value yet: the flow cannot evaluate it.
        module = isinstance(probe, eqx.Module)
        if not (jax.tree.leaves(probe) if module else getattr(probe, "__closure__", None)):
            self.requested.append(probe)
        value = probe(Observation(self.start, self.start, self.data, self.loss, self.x, self._x_test))
        self._known_at_start.append((probe, value))
        return value


def training_kernel(
    network: Network, data: Dataset, samples: int | None = None, output: int | None = None, x: Batch | None = None
) -> Float[Array, "p p"]:
    """Compute the tangent kernel Θ of a network on training inputs as a square matrix; see `Observation.kernel`.

    Parameters
    ----------
    network
        The network.
    data
        The data set.
    samples, output
        As for `Observation.kernel`.
    x
        The training inputs as the network prepared them, if they are not those of ``data``.
    """
    if samples is not None and not 1 <= samples <= data.n:
        raise UserError(f"samples = {samples} is out of range: there are {data.n} training inputs.")
    points = data.x if x is None else x
    points = points if samples is None else points[:samples]
    if output is not None:
        if not 0 <= output < (data.outputs or 1):
            raise UserError(f"There is no output {output}: the targets have {data.outputs or 1}, counted from 0.")
        if data.outputs is not None:
            return network.output_kernel(points, points, output)
    entries = float(points.shape[0] * (data.outputs or 1)) ** 2
    must_fit(
        4 * entries * data.x.dtype.itemsize, f"The tangent kernel of {points.shape[0]:,} inputs", "give fewer `samples`"
    )
    kernel = network.tangent_kernel(points)
    size = kernel.shape[0] * (1 if kernel.ndim == 2 else kernel.shape[1])
    return kernel.reshape(size, size)


class Probe(Checked):
    """A quantity that is measured on a network along a run; it returns an array or a dictionary of arrays.

    A probe gives the same values inside a flow and by hand on a snapshot:

    >>> FeatureMovement().of(run.final, run.start, run.data, run.loss)
    """

    __test__ = False  # pytest takes classes named Test... for tests

    @abc.abstractmethod
    def __call__(self, obs: Observation) -> PyTree:
        """Evaluate the probe.

        Parameters
        ----------
        obs
            The network now (``obs.network``) and at the start (``obs.start``), the raw data (``obs.data``), the loss,
            handles for fast evaluation (``obs.x``, ``obs.x_test``) and shared results (``obs.outputs``, ...).
        """

    def check(self, data: Dataset) -> None:
        """Raise a `UserError` for data that this probe is not made for; by default there are none.

        Parameters
        ----------
        data
            The data set, before anything is trained on it.
        """

    def of(self, network: Network, start: Network, data: Dataset, loss: Loss) -> PyTree:
        """Evaluate the probe by hand, on two networks and raw data.

        Parameters
        ----------
        network, start
            The network now and at the start of the run.
        data, loss
            The data set and the loss of the run.
        """
        if not isinstance(data.y, Tracer):  # in compiled code, numbers are not known
            self.check(data)
        return self(Observation(network, start, data, loss))
