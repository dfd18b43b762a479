"""Whether features learnt on one set are useful on another: a small network is trained on a few of them."""

from collections.abc import Callable
from itertools import pairwise
from typing import Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from unlazy._errors import UserError
from unlazy._types import Count, Inputs, Natural, Outputs, Positive, PyTree, Scalar
from unlazy.activations import Relu
from unlazy.losses import Loss
from unlazy.networks import Layer, TwoLayer, ntk, with_fields
from unlazy.probes.loss import misclassified
from unlazy.probes.movement import layers_of
from unlazy.probes.observation import Observation, Probe
from unlazy.probes.pruning import scales

_SPAN = 8  # largest ratio of numbers of features in a group: compiling costs time, and so does padding with zeros


class _Small(NamedTuple):
    """The network that is trained on k features: by what it multiplies them, and how it starts."""

    factor: Callable[[Scalar], Scalar]
    start: Callable[[Scalar], PyTree]
    network: Callable[[PyTree, Inputs], Outputs]


class Transfer(Probe):
    """Risk and error of a small network trained on the k most important features of a layer, against k.

    caron2023 section 6.2. The held-out set is split in half. The features of a sample are the responses σ(h_j(x)) of
    the neurons of a layer; the k most important ones are the inputs of a network of ReLU neurons in NTK scaling (the
    paper's own network with γ = 1), trained on the first half by gradient descent on the mean of the run's cost.
    ``train_risk`` and ``train_error`` are those of the first half, ``test_risk`` and ``test_error`` those of the
    second. What the released code of caron2023 does is `DenseTransfer`.

    Parameters
    ----------
    features
        The numbers k of features, increasing; 1, 2, 4, ... up to the width if omitted.
    hidden
        Number of ReLU neurons of the small network.
    steps
        Number of steps of gradient descent.
    rate
        Its learning rate.
    unit
        Whether features are divided by the root of their mean square over the first half, one number for all k of
        them. It makes a rate of 1 stable with the squared error, and compares features independently of their size.
    seed
        Seed of the small network.
    samples
        Number of held-out samples to use; all if omitted.
    """

    features: tuple[Count, ...] | None = eqx.field(static=True, default=None)
    hidden: Count = eqx.field(static=True, default=64)
    steps: Natural = eqx.field(static=True, default=5000)
    rate: Positive = eqx.field(static=True, default=1.0)
    unit: bool = eqx.field(static=True, default=True)
    seed: int = eqx.field(static=True, default=0)
    samples: Count | None = eqx.field(static=True, default=None)

    def __check_init__(self) -> None:
        if self.features is not None and (not self.features or list(self.features) != sorted(self.features)):
            raise UserError(f"features = {self.features} is not an increasing list of numbers: try [1, 10, 100].")

    def __call__(self, obs: Observation) -> dict[str, dict[str, Float[Array, " k"]]]:
        held = obs.data.held_out
        if held is None or held.n < 2:
            raise UserError(f"Data set '{obs.data.name}' has no held-out set: give it one, or remove this probe.")
        x, y = held.x[: self.samples], held.y[: self.samples]
        seen = {}
        for name, layer in layers_of(obs.network.restore()).items():
            importance, factor = self._ranked(layer)
            order, responses = jnp.argsort(-importance), layer.responses(x)
            # A convolution has a response at each place: their mean over places is the feature.
            responses = jnp.mean(responses.reshape(x.shape[0], -1, responses.shape[1]), axis=1)
            responses = responses if factor is None else responses * factor[None]
            parts = [
                self._trained(responses[:, order[: some[-1]]], y, obs.loss, some)
                for some in _alike(self.counts(order.shape[0]))
            ]
            seen[name] = jax.tree.map(lambda *values: jnp.concatenate(values), *parts)
        return seen

    def counts(self, width: int) -> tuple[int, ...]:
        """Return the numbers k of features for a layer of ``width`` neurons."""
        if self.features is None:
            return tuple(2**power for power in range(width.bit_length()))
        if max(self.features) > width:
            raise UserError(f"features asks for {max(self.features)} of only {width} neurons: choose fewer features.")
        return self.features

    def _trained(self, features: Inputs, y: Outputs, loss: Loss, counts: tuple[int, ...]) -> dict[str, Array]:
        """Train a network for each k; a feature that is not used is 0, so that its weights do not move."""
        half, most = features.shape[0] // 2, features.shape[1]
        outputs = y.shape[1] if y.ndim == 2 else None
        small = self._small(most, outputs, y.dtype)

        def one(k: Int[Array, ""]) -> dict[str, Scalar]:
            kept, count = jnp.arange(most) < k, k.astype(y.dtype)
            x = jnp.where(kept, features, 0) * small.factor(count)
            if self.unit:
                size = jnp.sqrt(jnp.sum(jnp.square(x[:half])) / (half * most))
                x = x / jnp.where(size > 0, size, 1)

            def risk(weights: PyTree, part: slice) -> tuple[Scalar, Outputs]:
                f = small.network(weights, x[part])
                return jnp.mean(loss.cost(f, y[part])), f

            def step(_: Int[Array, ""], weights: PyTree) -> PyTree:
                slopes = jax.grad(risk, has_aux=True)(weights, slice(None, half))[0]
                return jax.tree.map(lambda w, slope: w - self.rate * slope, weights, slopes)

            w = jax.lax.fori_loop(0, self.steps, step, small.start(count))
            seen = {}
            for which, part in (("train", slice(None, half)), ("test", slice(half, None))):
                value, f = risk(w, part)
                seen |= {f"{which}_risk": value, f"{which}_error": misclassified(f, y[part])}
            return seen

        return jax.lax.map(one, jnp.asarray(counts))

    def _ranked(self, layer: Layer) -> tuple[Float[Array, " m"], Float[Array, " m"] | None]:
        """Return the importance of neurons, and what their responses are multiplied by."""
        return layer.importance(), None

    def _small(self, most: int, outputs: int | None, dtype: jnp.dtype) -> _Small:
        """One layer in NTK scaling, of which only the weights are trained."""
        key = jax.random.key(self.seed)
        network = TwoLayer(self.hidden, most, outputs, activation=Relu(), scaling=ntk, key=key)
        network = jax.tree.map(lambda leaf: leaf.astype(dtype) if eqx.is_inexact_array(leaf) else leaf, network)
        return _Small(
            factor=lambda count: jnp.sqrt(most / count),  # the network divides by the root of `most`
            start=lambda count: network.w,
            network=lambda w, x: with_fields(network, w=w)(x),
        )


class DenseTransfer(Transfer):
    """As `Transfer`, with the features and the network of the released code of caron2023.

    The most important neurons are those of largest λ_j, the mean of their squared outgoing weights, and features are
    √λ_j σ(h_j). The network has biases; all of its parameters are trained, and start uniform in ±1/√(fan-in).

    Parameters
    ----------
    features, steps, seed, samples
        As for `Transfer`.
    hidden
        Number of ReLU neurons in each hidden layer.
    rate
        The learning rate.
    unit
        Whether features are divided by the root of their mean square over the first half.
    layers
        Number of hidden layers.
    dtype
        Precision in which the network is drawn and trained, "float32" or "float64"; that of the run if omitted. The
        released code trains in single precision, which takes about half of the time.
    """

    rate: Positive = eqx.field(static=True, default=0.1)
    unit: bool = eqx.field(static=True, default=False)
    layers: Count = eqx.field(static=True, default=2)
    dtype: Literal["float32", "float64"] | None = eqx.field(static=True, default=None)

    def _trained(self, features: Inputs, y: Outputs, loss: Loss, counts: tuple[int, ...]) -> dict[str, Array]:
        dtype = self.dtype or y.dtype
        seen = super()._trained(features.astype(dtype), y.astype(dtype), loss, counts)
        return jax.tree.map(lambda value: value.astype(y.dtype), seen)

    def _ranked(self, layer: Layer) -> tuple[Float[Array, " m"], Float[Array, " m"]]:
        return scales(layer), jnp.sqrt(scales(layer))

    def _small(self, most: int, outputs: int | None, dtype: jnp.dtype) -> _Small:
        """Several layers with biases; the fan-in of the first is the number of features that are used."""
        sizes = [most, *[self.hidden] * self.layers, outputs or 1]
        keys = jax.random.split(jax.random.key(self.seed), 2 * (len(sizes) - 1))
        drawn = []
        for place, (fan_in, size) in enumerate(pairwise(sizes)):
            reach = 1.0 if place == 0 else fan_in**-0.5
            shapes = ((size, fan_in), (size,))
            drawn.append(
                [jax.random.uniform(keys[2 * place + i], shapes[i], dtype, -reach, reach) for i in range(len(shapes))]
            )

        def network(weights: PyTree, x: Inputs) -> Outputs:
            *hidden, (w, b) = weights
            for inner, bias in hidden:
                x = jax.nn.relu(x @ inner.T + bias[None])
            f = x @ w.T + b[None]
            return f[:, 0] if outputs is None else f

        return _Small(
            factor=jnp.ones_like,
            start=lambda count: [[part / jnp.sqrt(count) for part in drawn[0]], *drawn[1:]],
            network=network,
        )


def _alike(counts: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Group numbers of features of similar size, which are trained by the same compiled loop."""
    groups: list[tuple[int, ...]] = []
    for k in counts:
        if groups and groups[-1][0] <= k <= _SPAN * groups[-1][0]:
            groups[-1] = (*groups[-1], k)
        else:
            groups.append((k,))
    return groups
