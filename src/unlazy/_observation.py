"""What a probe receives: the network at one time of a run, with results that all probes share."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

import equinox as eqx
import jax
from jaxtyping import Array, Float

from unlazy._errors import UserError
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
        be sliced, or raw arrays. The raw ones if left out.
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
        self.requested: list[Observe] = []  # what was asked of the start
        self._known_at_start = list(known_at_start)
        self._results: dict[Hashable, Any] = {}

    @property
    def x_test(self) -> OtherBatch:
        """Test inputs to evaluate the network on; an error where the data set has no test set."""
        if self.data.x_test is None:
            raise UserError(
                f"Data set '{self.data.name}' has no test set: make one, or leave out the probes that need it."
            )
        return self.data.x_test if self._x_test is None else self._x_test

    @property
    def y_test(self) -> Outputs:
        """Test targets; an error where the data set has no test set."""
        if self.data.y_test is None:
            raise UserError(
                f"Data set '{self.data.name}' has no test set: make one, or leave out the probes that need it."
            )
        return self.data.y_test

    @property
    def outputs(self) -> Outputs:
        """Outputs f(x_i) on the training set, (n,) or (n, k)."""
        return self._once("outputs", lambda: self.network(self.x))

    @property
    def test_outputs(self) -> Outputs:
        """Outputs on the test set."""
        return self._once("test outputs", lambda: self.network(self.x_test))

    def kernel(self, samples: int | None = None, output: int | None = None) -> Float[Array, "p p"]:
        """Return the tangent kernel Θ on the training inputs as a square matrix.

        Parameters
        ----------
        samples
            Number of training inputs, from the first on; all if omitted.
        output
            The output whose kernel is taken, counted from 0: n² numbers, at about the cost of a network with one
            output. If omitted, outputs and samples share one axis, at k² times the cost.
        """
        return self._once(
            ("kernel", samples, output), lambda: training_kernel(self.network, self.data, samples, output, self.x)
        )

    def at_start(self, probe: Observe) -> PyTree:
        """Return what ``probe`` gives at the start of the run; inside a flow it is computed once per run."""
        for one, value in self._known_at_start:
            if _same(one, probe):
                return value
        if _constant(probe):
            self.requested.append(probe)
        first = Observation(self.start, self.start, self.data, self.loss, self.x, self._x_test)
        self._known_at_start.append((probe, probe(first)))
        return self._known_at_start[-1][1]

    def _once(self, name: Hashable, compute: Callable[[], Any]) -> Any:
        if name not in self._results:
            self._results[name] = compute()
        return self._results[name]


def _same(one: Observe, other: Observe) -> bool:
    leaves, tree = jax.tree.flatten(one)
    others, other_tree = jax.tree.flatten(other)
    return one is other or (tree == other_tree and all(a is b for a, b in zip(leaves, others, strict=True)))


def _constant(probe: Observe) -> bool:
    """Whether a probe holds no arrays, which inside a compiled computation have no value yet."""
    if isinstance(probe, eqx.Module):
        return not jax.tree.leaves(probe)
    return getattr(probe, "__closure__", None) is None


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
    samples
        Number of training inputs, from the first on; all if omitted.
    output
        The output whose kernel is taken, counted from 0. If omitted, the kernel of all outputs, of size n k.
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
    kernel = network.tangent_kernel(points)
    size = kernel.shape[0] * (1 if kernel.ndim == 2 else kernel.shape[1])
    return kernel.reshape(size, size)


__all__ = ["Observation", "Observe", "training_kernel"]
