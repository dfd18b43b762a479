"""Gradient descent and its relatives."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Bool, Int

from unlazy._errors import UserError
from unlazy._types import Count, Positive, PRNGKey, PyTree, Scalar
from unlazy.data import Dataset, Source
from unlazy.flows.method import GramMethod, Method, positive_or_none
from unlazy.flows.optimisers import Optimiser, Plain, number, positive
from unlazy.flows.schedules import Constant, Schedule
from unlazy.flows.state import Attempt, State, Status, check_steps, gradient, scaled
from unlazy.losses import Loss, Squared, as_loss
from unlazy.networks import Network, Prepared, Samples, split_trained, trained_rates, with_fields

_DIVERGED = 1e8  # a loss this many times its initial value does not recover
_PLANNED = 2**26  # the most steps whose learning rates are added up in advance
_BLOCK = 2**16  # the number of them that are added up at a time
_CLIP_BYTES = 2**27  # memory for the gradients of single samples, which are computed block by block


class Memory(eqx.Module):
    """What descent remembers between steps."""

    optimiser: PyTree
    first_loss: Scalar
    order: Int[Array, "batches size"] | None  # the samples of this epoch's batches; the last one is padded with -1
    key: PRNGKey
    reaction: PyTree = None  # what the schedule remembers, if it reacts to the loss
    total: Scalar | None = None  # sum of the losses in this epoch so far, if anything depends on it
    switched: Bool[Array, ""] | None = None  # whether the second optimiser has taken over
    second: PyTree = None  # what it remembers


class Descent(GramMethod):
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
        The direction of a step: `Plain`, `Momentum`, `Adam` or a `Transform` of Optax.
    schedule
        Factors on the learning rate: `Constant`, `StepDecay`, `Cosine`, `OnStagnation`, which reacts to the loss, or
        `ByLayer`, which has factors for single layers.
    batch
        Samples per minibatch; all if omitted. Samples are shuffled again in each epoch, whose last minibatch is smaller
        if n is not a multiple of ``batch``.
    clip_norm
        Bound on the norm of the whole gradient, applied before the optimiser.
    clip_sample
        Bound on the norm of each sample's gradient, applied before averaging.
    source
        Distribution from which each step draws ``batch`` new samples (ren2023 Appendix E); the data set is then used by
        probes only.
    then
        A second optimiser with the same rate and schedule, which takes over after the first epoch whose loss is below
        ``switch_loss``.
    switch_loss
        That loss. The loss of an epoch is the mean over its minibatches, each before its step; without minibatches
        every step is an epoch.
    stop_loss
        The run stops after an epoch whose loss is below this, with `Status.loss_reached`. The network then stays as it
        is: later times are observed, without further steps, on the network at which the run stopped.
    stop_after
        The number of epochs before which a run does not stop.
    coordinates
        ``"weights"``; ``"gram"``, where a layer is trained on fixed features and steps are linear in the gradients
        (not with Adam, clipping or a source); or ``"auto"``, the cheaper of the two that are possible.
    precision, memory, devices
        As for `Exponential`.
    """

    loss: Loss = eqx.field(default=Squared(), converter=as_loss)
    rate: np.ndarray = eqx.field(default=1.0, converter=positive)
    optimiser: Optimiser = Plain()
    schedule: Schedule = Constant()
    batch: Count | None = eqx.field(static=True, default=None)
    clip_norm: Positive | None = eqx.field(static=True, default=None)
    clip_sample: Positive | None = eqx.field(static=True, default=None)
    source: Source | None = None
    then: Optimiser | None = None
    switch_loss: np.ndarray | None = eqx.field(default=None, converter=positive_or_none)
    stop_loss: np.ndarray | None = eqx.field(default=None, converter=positive_or_none)
    stop_after: np.ndarray = eqx.field(default=0, converter=number)

    def check(self, network: Network, data: Dataset) -> None:
        """Require options that go together, and a network that goes with them."""
        if (self.then is None) != (self.switch_loss is None):
            raise UserError("A second optimiser takes over below a loss: give both `then` and `switch_loss`, or none.")
        if self.source is not None and self.batch is None:
            raise UserError("A source needs the number of samples per step: give it, for example batch = 1024.")
        if network.clips_per_sample and self.clip_sample is not None:
            raise UserError("This network was made with clip=... and clips each sample already: omit clip_sample.")
        if network.rescaled_parameters and self.weights_only() is not None:
            raise UserError("Adam and clipping depend on gradient sizes, which rescaled=True changes: omit rescaled.")

    def weights_only(self) -> str | None:
        """Plain descent and momentum on fixed samples are the same in Gram coordinates; other options are not."""
        if self.source is not None:
            return 'Gram coordinates exist for the training points only: fresh samples need coordinates = "weights".'
        linear = self.optimiser.linear and (self.then is None or self.then.linear)
        if self.clip_norm is None and self.clip_sample is None and linear:
            return None
        return "Gram coordinates are exact only where steps are linear in gradients: use weights for Adam or clipping."

    def one_by_one(self) -> bool:
        """Minibatches are shuffled once per epoch; under vmap they would be shuffled at each step."""
        return self.batch is not None and self.source is None

    def prepare(self, network: Network, data: Dataset) -> Prepared:
        """Compute in advance what training does not change, unless samples are not drawn yet."""
        return network.prepare(data) if self.source is None else Prepared(network, data.x, data.x_test)

    def plan(self, times: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the number of steps that comes nearest to each time, and the times of these steps."""
        if self.schedule.constant:
            steps = np.rint(times / float(self.rate))
            check_steps(steps, times[-1])
            steps = steps.astype(np.int64)
            return steps, steps * float(self.rate)
        steps, reached = np.zeros(len(times), np.int64), np.zeros(len(times))
        clock, waiting = np.zeros(1), np.ones(len(times), bool)
        for first in range(0, _PLANNED, _BLOCK):
            factors = np.asarray(self.schedule(jnp.arange(first, first + _BLOCK)), dtype=float)
            clock = np.cumsum(np.concatenate([clock[-1:], float(self.rate) * factors]))
            now = waiting & (times <= clock[-1])
            after = np.clip(np.searchsorted(clock, times[now]), 1, _BLOCK)
            nearest = np.where(times[now] - clock[after - 1] <= clock[after] - times[now], after - 1, after)
            steps[now], reached[now] = first + nearest, clock[nearest]
            waiting &= ~now
            if not waiting.any():
                return steps, reached
            if clock[-1] - clock[0] < 1e-12 * times[-1]:
                raise UserError(f"The rates of this schedule sum to {clock[-1]:g} and never reach t = {times[-1]:g}.")
        raise UserError(
            f"t = {times[-1]:g} is more than {_PLANNED:,} steps of this schedule away: take a larger rate, or end "
            "earlier."
        )

    def resume(self, previous: Method) -> Descent:
        """Continue a run; one that may have stopped at a loss only with the same ``stop_loss``."""
        resumed, bound = super().resume(previous), getattr(previous, "stop_loss", None)
        if bound is not None and bound != self.stop_loss:
            raise UserError(
                "A run with `stop_loss` can only be extended with the same value: start a new run for another."
            )
        return resumed

    def _transform(self, optimiser: Optimiser) -> optax.GradientTransformation:
        chosen = optimiser.transform()
        return chosen if self.clip_norm is None else optax.chain(optax.clip_by_global_norm(self.clip_norm), chosen)

    def _samples(self, state: State, data: Samples) -> tuple[Array | None, Samples]:
        if self.source is None:
            return _next_batch(state.memory, state.steps, data)
        assert self.batch is not None
        key = jax.random.fold_in(state.memory.key, state.steps)
        drawn = self.source.draw(self.batch, key=key).astype(data.dtype)
        return None, Samples(drawn.x, drawn.y, drawn.weight)

    def init(self, network: Network, data: Samples, key: PRNGKey) -> State:
        """Initialise the optimiser and store the initial loss."""
        loss = self.loss(network(data.x), data.y, data.weight)
        order = None
        if self.batch is not None and self.source is None:
            size = min(self.batch, data.n)
            order = jnp.full((-(-data.n // size), size), -1, jnp.int32)
        trained: Any = split_trained(network)[0]
        self.schedule.by_leaf(jnp.zeros((), jnp.int32), trained)  # so that a name that fits nothing is an error now
        memory = Memory(self._transform(self.optimiser).init(trained), loss, order, key, self.schedule.begin(loss))
        if self.schedule.reacts or self.then is not None or self.stop_loss is not None:
            memory = with_fields(memory, total=jnp.zeros_like(loss))
        if self.then is not None:
            second: Any = self._transform(self.then).init(trained)
            memory = with_fields(memory, switched=jnp.zeros((), bool), second=second)
        unknown = jnp.full_like(loss, jnp.nan)
        return State.initial(network, memory, remaining=jnp.zeros((), jnp.int32), error=unknown, check=loss)

    def take_step(self, state: State, size: Array, frozen: PyTree, data: Samples) -> Attempt:
        """Make one step of descent; ``size`` is a number of steps and is not used."""
        memory, rates = state.memory, trained_rates(eqx.combine(state.trained, frozen))
        order, sample = self._samples(state, data)
        if self.clip_sample is None:
            loss, slope = gradient(state.trained, frozen, sample, self.loss)
        else:
            loss, slope = _clipped(state.trained, frozen, sample, self.loss, self.clip_sample)
        direction, optimiser, second = self._direction(memory, slope, state.trained)
        rate = jnp.asarray(self.rate) * self.schedule.current(memory.reaction, state.steps)
        single = self.schedule.by_leaf(state.steps, state.trained)
        rates = rates if single is None else jax.tree.map(lambda one, more: one * more, rates, single)
        moved = jax.tree.map(jnp.add, state.trained, scaled(direction, rates, -rate))
        # A NaN in any gradient reaches the loss one step later at the latest, so only the loss is checked.
        wild = loss > _DIVERGED * jnp.maximum(memory.first_loss, jnp.finfo(loss.dtype).tiny)
        failure = jnp.where(wild, Status.diverged.code, 0)
        failure = jnp.where(jnp.isfinite(loss), failure, Status.not_finite.code)
        kept = with_fields(memory, optimiser=optimiser, order=order, second=second)
        if memory.total is not None:
            kept, reached = self._end_of_epoch(kept, loss, state.steps, 1 if order is None else order.shape[0])
            failure = jnp.where((failure == 0) & reached, Status.loss_reached.code, failure)
        return Attempt(moved, kept, 1, failure=failure)

    def _direction(self, memory: Memory, slope: PyTree, trained: PyTree) -> tuple[PyTree, PyTree, PyTree]:
        """Return the direction of the optimiser in charge, and what both remember."""

        def first() -> tuple[PyTree, PyTree, PyTree]:
            return *self._transform(self.optimiser).update(slope, memory.optimiser, trained), memory.second

        def second() -> tuple[PyTree, PyTree, PyTree]:
            assert self.then is not None
            direction, kept = self._transform(self.then).update(slope, memory.second, trained)
            return direction, memory.optimiser, kept

        return first() if memory.switched is None else jax.lax.cond(memory.switched, second, first)

    def _end_of_epoch(
        self, memory: Memory, loss: Scalar, step: Int[Array, ""], batches: int
    ) -> tuple[Memory, Bool[Array, ""]]:
        """Count the loss of a step; at the end of an epoch reduce the rate, switch optimisers or stop."""
        assert memory.total is not None
        total, ended = memory.total + loss, (step + 1) % batches == 0
        mean = total / batches

        def below(bound: Any) -> Bool[Array, ""]:
            return ended & (mean < jnp.asarray(bound, mean.dtype)) if bound is not None else jnp.zeros((), bool)

        reaction = self.schedule.react(memory.reaction, mean, ended)
        switched = None if memory.switched is None else memory.switched | below(self.switch_loss)
        kept = with_fields(memory, total=jnp.where(ended, 0, total), reaction=reaction, switched=switched)
        return kept, below(self.stop_loss) & ((step + 1) // batches >= jnp.asarray(self.stop_after))


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
    else:  # the last batch is smaller: its padding has weight 0
        weight = (chosen >= 0).astype(y.dtype)
        weight = weight if data.weight is None else weight * data.weight[chosen]
    return order, Samples(x, y, weight)


def _clipped(trained: PyTree, frozen: PyTree, data: Samples, loss: Loss, bound: float) -> tuple[Scalar, PyTree]:
    """Project each sample's gradient ∇ℓ_i onto the ball of radius ``bound``, then reduce as the loss does."""
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
        factors = share * jnp.minimum(1.0, bound / jnp.maximum(norms, jnp.finfo(share.dtype).tiny))
        value, sums = carry
        sums = jax.tree.map(lambda s, g: s + jnp.tensordot(factors, g, axes=1), sums, slopes)
        return (value + share @ costs, sums), None

    def blocks(array: Array) -> Array:  # the last block is padded with the first samples, of weight 0
        return jnp.resize(array, (-(-data.n // size), size, *array.shape[1:]))

    shares = blocks(weight)
    shares = jnp.where(np.arange(shares.size).reshape(shares.shape) < data.n, shares, 0)
    nothing = (jnp.zeros((), data.dtype), jax.tree.map(jnp.zeros_like, trained))
    (value, sums), _ = jax.lax.scan(add, nothing, (jax.tree.map(blocks, data.x), blocks(data.y), shares))
    return value / total, jax.tree.map(lambda leaf: leaf / total, sums)
