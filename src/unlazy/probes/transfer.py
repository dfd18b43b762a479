"""Whether features that were learnt on one set are of use on another: a small network trained on a few of them."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from unlazy._errors import UserError
from unlazy._observation import Observation
from unlazy._types import Inputs, Outputs, Scalar
from unlazy.activations import Relu
from unlazy.losses import Loss
from unlazy.networks import TwoLayer, ntk, with_fields
from unlazy.probes._base import Probe
from unlazy.probes.loss import misclassified
from unlazy.probes.movement import layers_of

_SPAN = 8  # the largest number of features in a group over the smallest: compiling costs time, and so do zeros


class Transfer(Probe):
    """Risk and error of a small network trained on the k most important features of a layer, against k.

    caron2023 section 6.2. The held-out set is split in half. The features of a sample are the responses σ(h_j(x)) of
    the neurons of a layer; the k most important ones are the inputs of a network of ReLU neurons in NTK scaling (the
    paper's own network with γ = 1; it gives no further details), trained on the first half by gradient descent on the
    mean of the run's cost. ``train_risk`` and ``train_error`` are those of the first half, ``test_risk`` and
    ``test_error`` those of the second.

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

    features: tuple[int, ...] | None = eqx.field(static=True, default=None)
    hidden: int = eqx.field(static=True, default=64)
    steps: int = eqx.field(static=True, default=5000)
    rate: float = eqx.field(static=True, default=1.0)
    unit: bool = eqx.field(static=True, default=True)
    seed: int = eqx.field(static=True, default=0)
    samples: int | None = eqx.field(static=True, default=None)

    def __check_init__(self) -> None:
        if self.features is not None and (
            not self.features or min(self.features) < 1 or list(self.features) != sorted(self.features)
        ):
            raise UserError(f"features = {self.features} is not an increasing list of numbers >= 1: try [1, 10, 100].")
        if self.hidden < 1 or self.steps < 0 or not self.rate > 0:
            raise UserError(
                f"hidden = {self.hidden}, steps = {self.steps} and rate = {self.rate:g} are out of range: "
                "try hidden = 64, steps = 5000 and rate = 1."
            )

    def __call__(self, obs: Observation) -> dict[str, dict[str, Float[Array, " k"]]]:
        """Sort features by importance, then train a network for each k."""
        data = obs.data
        held = data.held_out
        if held is None or held.n < 2:
            raise UserError(
                f"Data set '{data.name}' has no held-out set to transfer to: give it one, or remove this probe."
            )
        x, y = held.x[: self.samples], held.y[: self.samples]
        seen = {}
        for name, layer in layers_of(obs.network.restore()).items():
            order, responses = jnp.argsort(-layer.importance()), layer.responses(x)
            # A convolution has a response at each place: their mean over places is the feature.
            responses = jnp.mean(responses.reshape(x.shape[0], -1, responses.shape[1]), axis=1)
            parts = [
                self._trained(responses[:, order[: some[-1]]], y, obs.loss, some)
                for some in _alike(self.counts(order.shape[0]))
            ]
            seen[name] = jax.tree.map(lambda *values: jnp.concatenate(values), *parts)
        return seen

    def counts(self, width: int) -> tuple[int, ...]:
        """Give all k, for a layer of so many neurons."""
        if self.features is None:
            return tuple(2**power for power in range(width.bit_length()))
        if max(self.features) > width:
            raise UserError(
                f"features asks for {max(self.features)} of only {width} neurons: choose smaller numbers of features."
            )
        return self.features

    def _trained(self, features: Inputs, y: Outputs, loss: Loss, counts: tuple[int, ...]) -> dict[str, Array]:
        """Train a network for each k; a feature left out is 0, and its weights then stay where they are."""
        half, most = features.shape[0] // 2, features.shape[1]
        outputs = y.shape[1] if y.ndim == 2 else None
        network = TwoLayer(self.hidden, most, outputs, activation=Relu(), scaling=ntk, key=jax.random.key(self.seed))
        network = jax.tree.map(lambda leaf: leaf.astype(y.dtype) if eqx.is_inexact_array(leaf) else leaf, network)

        def one(k: Int[Array, ""]) -> dict[str, Scalar]:
            kept, count = jnp.arange(most) < k, k.astype(y.dtype)
            x = jnp.where(kept, features, 0) * jnp.sqrt(most / count)  # the network divides by the root of `most`
            if self.unit:
                size = jnp.sqrt(jnp.sum(jnp.square(x[:half])) / (half * most))
                x = x / jnp.where(size > 0, size, 1)

            def risk(w: Array | None, part: slice) -> tuple[Scalar, Outputs]:
                f = with_fields(network, w=w)(x[part])
                return jnp.mean(loss.cost(f, y[part])), f

            def step(_: Int[Array, ""], w: Array) -> Array:
                return w - self.rate * jax.grad(risk, has_aux=True)(w, slice(None, half))[0]

            w = jax.lax.fori_loop(0, self.steps, step, network.w)
            seen = {}
            for which, part in (("train", slice(None, half)), ("test", slice(half, None))):
                value, f = risk(w, part)
                seen |= {f"{which}_risk": value, f"{which}_error": misclassified(f, y[part])}
            return seen

        return jax.lax.map(one, jnp.asarray(counts))


def _alike(counts: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Put numbers of features of about one size together: those that are trained by the same compiled loop."""
    groups: list[tuple[int, ...]] = []
    for k in counts:
        if groups and groups[-1][0] <= k <= _SPAN * groups[-1][0]:
            groups[-1] = (*groups[-1], k)
        else:
            groups.append((k,))
    return groups
