"""Gradient descent and its relatives."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Int

from unlazy._errors import UserError
from unlazy._types import PRNGKey, PyTree, Scalar
from unlazy.data import Dataset, Source
from unlazy.flows._base import Coordinates, Method, Precision
from unlazy.flows._state import Attempt, State, Status, code, gradient, number, scaled
from unlazy.flows.optimisers import Constant, Optimiser, Plain, Schedule
from unlazy.losses import Loss, Squared, as_loss
from unlazy.networks import Network, Prepared, Samples, split_trained, trained_rates

_DIVERGED = 1e8  # a loss this many times its start will not come back
_CLIP_BYTES = 2**27  # memory for the gradients of single samples, which are made block by block


class Memory(eqx.Module):
    """What descent remembers between steps."""

    optimiser: PyTree
    first_loss: Scalar
    order: Int[Array, "batches size"] | None  # the samples of this epoch's batches; -1 fills up the last one
    key: PRNGKey


class Descent(Method):
    """θ ← θ - rate_k R d_k, where d_k is the optimiser's direction for the loss on all samples or on a minibatch.

    Time is counted as the sum of the learning rates, t = steps x rate for a constant one, so that plain descent follows
    the gradient flow of the same t. R multiplies the optimiser's direction, as a parameter group's learning rate does
    elsewhere.

    Parameters
    ----------
    loss
        The loss to descend. On a minibatch it is reduced over the batch.
    rate
        The learning rate.
    optimiser
        What direction to step in: `Plain`, `Momentum`, `Adam` or a `Transform` of Optax.
    schedule
        Factors on the learning rate: `Constant`, `StepDecay` or `Cosine`.
    batch
        Samples per minibatch; all if left out. Minibatches go through a new shuffle each epoch, the last one smaller
        where n is not a multiple of ``batch``.
    clip_norm
        Bound on the norm of the whole gradient before the optimiser sees it.
    clip_sample
        Bound on the norm of each sample's gradient before they are averaged.
    source
        Where each step draws ``batch`` fresh samples from (ren2023 Appendix E); the data set is then only observed.
    coordinates
        ``"weights"``; ``"gram"``, where a layer is trained on fixed features and steps are linear in the gradients
        (not with Adam, clipping or a source); or ``"auto"``, the cheaper of the two that are possible.
    precision, memory, devices
        As for `Exponential`.
    """

    loss: Loss = eqx.field(default=Squared(), converter=as_loss)
    rate: np.ndarray = eqx.field(default=1.0, converter=number)
    optimiser: Optimiser = Plain()
    schedule: Schedule = Constant()
    batch: int | None = eqx.field(static=True, default=None)
    clip_norm: float | None = eqx.field(static=True, default=None)
    clip_sample: float | None = eqx.field(static=True, default=None)
    source: Source | None = None
    coordinates: Coordinates = eqx.field(static=True, default="auto")
    precision: Precision = eqx.field(static=True, default="full")
    memory: float | None = eqx.field(static=True, default=None)
    devices: int | None = eqx.field(static=True, default=None)

    def check(self, network: Network, data: Dataset) -> None:
        """Learning rate, batch and clips must be positive."""
        if not (float(self.rate) > 0 and np.isfinite(float(self.rate))):
            raise UserError(f"The learning rate must be a positive number, not {float(self.rate):g}.")
        if self.batch is not None and not self.batch >= 1:
            raise UserError(f"A minibatch holds at least one sample, not {self.batch}.")
        for what in ("clip_norm", "clip_sample"):
            bound = getattr(self, what)
            if bound is not None and not bound > 0:
                raise UserError(f"{what} must be positive, not {bound:g}.")
        if self.source is not None and self.batch is None:
            raise UserError("Fresh samples come in batches: say how many a step, for example batch = 1024.")
        if network.clips_per_sample and self.clip_sample is not None:
            raise UserError("This network was made with clip=... and bounds each sample already: drop clip_sample.")
        if network.rescaled_parameters and self.weights_only() is not None:
            raise UserError(
                "Adam and clipping depend on the size of the gradient, which rescaled=True changes: make the network "
                "with rescaled=False."
            )

    def weights_only(self) -> str | None:
        """Only plain descent and momentum, on fixed samples, are the same in Gram coordinates."""
        if self.source is not None:
            return 'Gram coordinates know the training points only: fresh samples need coordinates = "weights".'
        if self.clip_norm is None and self.clip_sample is None and self.optimiser.linear:
            return None
        return (
            "Gram coordinates are exact only where steps are linear in the gradients, as in plain descent and with "
            'momentum; what depends on the size of a gradient (Adam, clipping) needs coordinates = "weights".'
        )

    def one_by_one(self) -> bool:
        """Minibatches are shuffled once per epoch; side by side all runs would be shuffled anew at each step."""
        return self.batch is not None and self.source is None

    def prepare(self, network: Network, data: Dataset) -> Prepared:
        """Do the frozen work once, but nothing in advance for samples that are not drawn yet."""
        return network.prepare(data) if self.source is None else Prepared(network, data.x, data.x_test)

    def plan(self, times: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Count steps: to each time the number that comes nearest to it."""
        if self.schedule.constant:
            steps = np.rint(times / float(self.rate)).astype(np.int64)
            return steps, steps * float(self.rate)
        clock, count = np.zeros(1), 1024
        while clock[-1] < times[-1]:
            count *= 2
            factors = np.asarray(self.schedule(jnp.arange(count)), dtype=float)
            before = clock[-1]
            clock = np.concatenate([[0.0], np.cumsum(float(self.rate) * factors)])
            if clock[-1] - before < 1e-12 * max(times[-1], 1e-300):
                raise UserError(
                    f"This schedule's learning rates sum to {clock[-1]:g} only and never reach t = {times[-1]:g}."
                )
        after = np.clip(np.searchsorted(clock, times), 1, len(clock) - 1)
        steps = np.where(times - clock[after - 1] <= clock[after] - times, after - 1, after)
        return steps, clock[steps]

    def _transform(self) -> optax.GradientTransformation:
        chosen = self.optimiser.transform()
        return chosen if self.clip_norm is None else optax.chain(optax.clip_by_global_norm(self.clip_norm), chosen)

    def _gradient(self, trained: PyTree, frozen: PyTree, data: Samples) -> tuple[Scalar, PyTree]:
        if self.clip_sample is None:
            return gradient(trained, frozen, data, self.loss)
        return _clipped_gradient(trained, frozen, data, self.loss, self.clip_sample)

    def _samples(self, state: State, data: Samples) -> tuple[Array | None, Samples]:
        if self.source is None:
            return _next_batch(state.memory, state.steps, data)
        assert self.batch is not None
        drawn = self.source.draw(self.batch, key=jax.random.fold_in(state.memory.key, state.steps))
        drawn = drawn.astype(data.dtype)
        return None, Samples(drawn.x, drawn.y, drawn.weight)

    def init(self, network: Network, data: Samples, key: PRNGKey) -> State:
        """Start the optimiser and remember the first loss."""
        loss = self.loss(network(data.x), data.y, data.weight)
        order = None
        if self.batch is not None and self.source is None:
            size = min(self.batch, data.n)
            order = jnp.full((-(-data.n // size), size), -1, jnp.int32)
        trained: Any = split_trained(network)[0]
        memory = Memory(self._transform().init(trained), loss, order, key)
        unknown = jnp.full_like(loss, jnp.nan)
        return State.initial(network, memory, remaining=jnp.zeros((), jnp.int32), error=unknown, check=loss)

    def take_step(self, state: State, size: Array, frozen: PyTree, data: Samples) -> Attempt:
        """Make one step of descent, whatever the size that remains."""
        memory, rates = state.memory, trained_rates(eqx.combine(state.trained, frozen))
        order, sample = self._samples(state, data)
        loss, slope = self._gradient(state.trained, frozen, sample)
        direction, optimiser = self._transform().update(slope, memory.optimiser, state.trained)
        rate = jnp.asarray(self.rate) * self.schedule(state.steps)
        moved = jax.tree.map(jnp.add, state.trained, scaled(direction, rates, -rate))
        # A NaN in any gradient reaches the loss one step later at the latest, so only the loss is checked.
        wild = loss > _DIVERGED * jnp.maximum(memory.first_loss, jnp.finfo(loss.dtype).tiny)
        failure = jnp.where(wild, code(Status.diverged), 0)
        failure = jnp.where(jnp.isfinite(loss), failure, code(Status.not_finite))
        return Attempt(moved, Memory(optimiser, memory.first_loss, order, memory.key), 1, failure=failure)


def _next_batch(memory: Memory, step: Int[Array, ""], data: Samples) -> tuple[Array | None, Samples]:
    if memory.order is None:
        return None, data
    batches, size = memory.order.shape
    epoch, turn = step // batches, step % batches

    def shuffle() -> Array:
        fresh = jax.random.permutation(jax.random.fold_in(memory.key, epoch), data.n).astype(jnp.int32)
        return jnp.pad(fresh, (0, batches * size - data.n), constant_values=-1).reshape(batches, size)

    order = jax.lax.cond(turn == 0, shuffle, lambda: memory.order)
    chosen = order[turn]
    x, y = data.x[chosen], data.y[chosen]
    if batches * size == data.n:
        weight = None if data.weight is None else data.weight[chosen]
    else:  # the last batch is smaller: what fills it up weighs nothing
        weight = (chosen >= 0).astype(y.dtype)
        weight = weight if data.weight is None else weight * data.weight[chosen]
    return order, Samples(x, y, weight)


def _clipped_gradient(
    trained: PyTree, frozen: PyTree, data: Samples, loss: Loss, radius: float
) -> tuple[Scalar, PyTree]:
    """Project each sample's gradient ∇ℓ_i onto the ball of ``radius``, then reduce as the loss does."""
    weight = jnp.ones(data.n, data.dtype) if data.weight is None else data.weight
    total = jnp.sum(weight) if loss.reduction == "mean" else jnp.ones((), weight.dtype)
    bytes_each = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(trained))
    size = int(np.clip(_CLIP_BYTES // bytes_each, 1, data.n))

    def cost(leaves: PyTree, x: PyTree, y: Array) -> Scalar:
        one = jax.tree.map(lambda leaf: leaf[None], x)  # a raw sample, or a prepared one
        return loss.cost(eqx.combine(leaves, frozen)(one), y[None])[0]

    def add(carry: tuple[Scalar, PyTree], block: tuple[PyTree, Array, Array]) -> tuple[tuple[Scalar, PyTree], None]:
        x, y, share = block
        costs, slopes = jax.vmap(jax.value_and_grad(cost), in_axes=(None, 0, 0))(trained, x, y)
        norms = jax.vmap(optax.tree.norm)(slopes)
        factors = share * jnp.minimum(1.0, radius / jnp.maximum(norms, jnp.finfo(share.dtype).tiny))
        value, sums = carry
        sums = jax.tree.map(lambda s, g: s + jnp.tensordot(factors, g, axes=1), sums, slopes)
        return (value + share @ costs, sums), None

    def blocks(array: Array) -> Array:  # what fills up the last block repeats a sample and weighs nothing
        count = -(-data.n // size)
        return jnp.concatenate([array, jnp.repeat(array[:1], count * size - data.n, axis=0)]).reshape(
            count, size, *array.shape[1:]
        )

    padding = jnp.zeros(-data.n % size, weight.dtype)
    shares = jnp.concatenate([weight, padding]).reshape(-1, size)
    nothing = (jnp.zeros((), data.dtype), jax.tree.map(jnp.zeros_like, trained))
    (value, sums), _ = jax.lax.scan(add, nothing, (jax.tree.map(blocks, data.x), blocks(data.y), shares))
    return value / total, jax.tree.map(lambda leaf: leaf / total, sums)
