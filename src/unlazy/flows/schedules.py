"""Learning-rate schedules of `Descent`: factors that depend on the step, react to the loss, or differ by layer."""

import abc
from collections.abc import Sequence
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Bool, Float, Int

from unlazy._checked import Checked
from unlazy._errors import UserError, short
from unlazy._types import Count, Natural, NotNegative, Positive, PyTree


class Schedule(Checked):
    """A factor on the learning rate that depends on the step, and may react to the loss or differ between layers.

    A subclass defines `__call__`. One that reacts to the loss also defines `begin`, `current` and `react`, and one with
    factors for single layers `by_leaf`.

    Attributes
    ----------
    constant
        Whether time is counted as if the factor were 1 at every step, so that it is known without adding up factors.
    reacts
        Whether the factor depends on losses.
    by_layer
        Whether `by_leaf` gives factors of their own to single layers.
    """

    constant: ClassVar[bool] = False
    reacts: ClassVar[bool] = False
    by_layer: ClassVar[bool] = False

    @abc.abstractmethod
    def __call__(self, step: Int[Array, "..."]) -> Any:
        """Return the factor at ``step`` (counted from 0), by which time is counted."""

    def begin(self, loss: Float[Array, ""]) -> Any:
        """Return what is remembered at the start: a tree of arrays, or None.

        Parameters
        ----------
        loss
            The loss at the start, whose precision is used.
        """
        return None

    def current(self, memory: Any, step: Int[Array, ""]) -> Any:
        """Return the factor that applies at a step.

        Parameters
        ----------
        memory
            What is remembered.
        step
            The step, counted from 0.
        """
        return self(step)

    def react(self, memory: Any, loss: Float[Array, ""], ended: Bool[Array, ""]) -> Any:
        """Return what is remembered after a step.

        Parameters
        ----------
        memory
            What was remembered before.
        loss
            If the epoch ended with this step, the mean loss of its minibatches.
        ended
            Whether it did. Without minibatches every step is an epoch.
        """
        return memory

    def by_leaf(self, step: Int[Array, ""], trained: PyTree) -> PyTree | None:
        """Return a further factor for each leaf of the trained parameters, or None for none.

        Parameters
        ----------
        step
            The step, counted from 0.
        trained
            The trained parameters.
        """
        return None


class Constant(Schedule):
    """The same learning rate throughout."""

    constant: ClassVar[bool] = True

    def __call__(self, step: Int[Array, "..."]) -> Any:
        return jnp.ones_like(step, dtype=float)


class Reaction(eqx.Module):
    """What a schedule that reacts to the loss remembers between steps."""

    losses: Float[Array, " epochs"]  # means of the last epochs, the latest last; infinite before there were as many
    level: Int[Array, ""]  # number of reductions so far
    since: Int[Array, ""]  # epochs since the last reduction, or since the start


def _factors(given: Sequence[Positive]) -> np.ndarray:
    if not len(given):
        raise UserError("factors is an empty list: write one such as [1.0, 0.1].")
    return np.asarray(given, float)


def _steps(given: Sequence[Count]) -> np.ndarray:
    steps = np.asarray(given, np.int32)
    if (np.diff(steps) <= 0).any():
        raise UserError(f"steps = {short(given)} must be increasing: write a list such as [100, 200].")
    return steps


def _epochs(given: Natural) -> np.ndarray:
    return np.asarray(given, np.int32)


class OnStagnation(Schedule):
    """Goes to the next of several factors when the loss has stopped falling (aiad2026 figures 2 and 10).

    At the end of an epoch the mean loss of the last ``window`` epochs is compared with that of the ``window`` epochs
    before. If it is not smaller, and at least ``wait`` epochs have passed since the last reduction, the next factor
    applies. The loss of an epoch is the mean over its minibatches; without minibatches every step is an epoch.

    Reductions are not known in advance, so that time is counted as if the factor were 1: t = steps x rate.

    Parameters
    ----------
    factors
        The factors, of which the first applies at the start.
    window
        Number of epochs in each of the two means.
    wait
        Smallest number of epochs between two reductions, and before the first.
    """

    constant: ClassVar[bool] = True
    reacts: ClassVar[bool] = True
    # Factors and the wait are arrays, so that other numbers are not compiled again.
    factors: np.ndarray = eqx.field(default=(1.0, 0.5, 0.1, 0.05, 0.01), converter=_factors)
    window: Count = eqx.field(static=True, default=10)
    wait: np.ndarray = eqx.field(default=20, converter=_epochs)

    def __call__(self, step: Int[Array, "..."]) -> Any:
        """Return the first factor, that of a run whose loss never stagnates."""
        return jnp.broadcast_to(jnp.asarray(self.factors, float)[0], jnp.shape(step))

    def begin(self, loss: Float[Array, ""]) -> Reaction:
        none = jnp.zeros((), jnp.int32)
        return Reaction(jnp.full(2 * self.window, jnp.inf, loss.dtype), none, none)

    def current(self, memory: Reaction, step: Int[Array, ""]) -> Float[Array, ""]:
        return jnp.asarray(self.factors, memory.losses.dtype)[memory.level]

    def react(self, memory: Reaction, loss: Float[Array, ""], ended: Bool[Array, ""]) -> Reaction:
        """Take in the loss of an epoch, if one has ended."""
        losses, since = jnp.append(memory.losses[1:], loss), memory.since + 1
        before, after = jnp.mean(losses[: self.window]), jnp.mean(losses[self.window :])
        stagnates = jnp.isfinite(losses[0]) & (after >= before)
        reduce = ended & stagnates & (since >= self.wait) & (memory.level < self.factors.shape[0] - 1)
        return Reaction(
            jnp.where(ended, losses, memory.losses),
            memory.level + reduce.astype(jnp.int32),
            jnp.where(reduce, 0, jnp.where(ended, since, memory.since)),
        )


class ByLayer(Schedule):
    """Further factors for the learning rates of single layers: the ξ_l(t) of aiad2026, on top of a common schedule.

    Parameters
    ----------
    layers
        For each layer, the beginning of the names of its parameters, up to a dot or bracket: ``"blocks[0]"`` is the
        first block of a `MeanFieldStack`, ``"w"`` the trained layer of a `TwoLayer`. The first that fits counts.
    schedules
        The schedule of each of these layers, by step; it cannot be one that reacts to the loss.
    common
        The schedule of all layers. Time is counted by it alone.

    Examples
    --------
    >>> ByLayer(("blocks[0]", "blocks[1]"), (Cosine(1000), StepDecay(0.5, 100)))  # doctest: +SKIP
    """

    by_layer: ClassVar[bool] = True
    layers: tuple[str, ...] = eqx.field(static=True, converter=tuple)
    schedules: tuple[Schedule, ...] = eqx.field(converter=tuple)
    common: Schedule = Constant()

    def __check_init__(self) -> None:
        if len(self.layers) != len(self.schedules) or not self.layers:
            raise UserError(
                f"{len(self.schedules)} schedules were given for the layers {list(self.layers)}: give one for each."
            )
        if any(one.reacts or one.by_layer for one in self.schedules) or self.common.by_layer:
            raise UserError(
                "The schedule of a layer must depend on the step alone: give one that reacts to the loss as `common`."
            )

    @property
    def constant(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        """That of the common schedule."""
        return self.common.constant

    @property
    def reacts(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        """That of the common schedule."""
        return self.common.reacts

    def __call__(self, step: Int[Array, "..."]) -> Any:
        return self.common(step)

    def begin(self, loss: Float[Array, ""]) -> Any:
        return self.common.begin(loss)

    def current(self, memory: Any, step: Int[Array, ""]) -> Any:
        return self.common.current(memory, step)

    def react(self, memory: Any, loss: Float[Array, ""], ended: Bool[Array, ""]) -> Any:
        return self.common.react(memory, loss, ended)

    def by_leaf(self, step: Int[Array, ""], trained: PyTree) -> PyTree:
        """Return the factor of each leaf's layer, and 1 for those of no layer."""
        paths = jax.tree_util.tree_leaves_with_path(trained)
        names = [jax.tree_util.keystr(path).lstrip(".") for path, _ in paths]
        chosen = [next((i for i, layer in enumerate(self.layers) if _within(name, layer)), None) for name in names]
        unused = sorted({layer for i, layer in enumerate(self.layers) if i not in chosen})
        if unused:
            raise UserError(f"No trained parameter's name begins with '{unused[0]}'; there are {', '.join(names)}.")
        factors = [one(step) for one in self.schedules]
        leaves = [
            jnp.asarray(1.0 if i is None else factors[i], leaf.dtype)
            for i, (_, leaf) in zip(chosen, paths, strict=True)
        ]
        return jax.tree.unflatten(jax.tree.structure(trained), leaves)


def _within(name: str, layer: str) -> bool:
    return name == layer or name.startswith((f"{layer}.", f"{layer}["))


class Piecewise(Schedule):
    """One factor after another: the first applies from the start, and ``factors[i]`` from the step ``steps[i-1]``.

    Parameters
    ----------
    factors
        The factors.
    steps
        The steps, increasing, from which the second, third, ... factor applies.
    """

    factors: np.ndarray = eqx.field(converter=_factors)
    steps: np.ndarray = eqx.field(default=(), converter=_steps)

    def __check_init__(self) -> None:
        if self.steps.shape[0] != self.factors.shape[0] - 1:
            factors, steps = self.factors.shape[0], self.steps.shape[0]
            raise UserError(
                f"{factors} factors and {steps} steps were given: give one step for each factor but the first."
            )

    def __call__(self, step: Int[Array, "..."]) -> Any:
        place = jnp.searchsorted(jnp.asarray(self.steps), jnp.asarray(step), side="right")
        return jnp.asarray(self.factors, float)[place]


class StepDecay(Schedule):
    """Multiplies the learning rate by ``factor`` every ``every`` steps (aiad2026 Table 4: 0.9 every 100).

    Parameters
    ----------
    factor
        The factor.
    every
        The number of steps between two multiplications.
    """

    factor: Positive = eqx.field(static=True)
    every: Count = eqx.field(static=True)

    def __call__(self, step: Int[Array, "..."]) -> Any:
        """factor^⌊step/every⌋."""
        return optax.exponential_decay(1.0, self.every, self.factor, staircase=True)(step)


class Cosine(Schedule):
    """Falls from 1 to ``floor`` along half a cosine over ``steps`` steps.

    Parameters
    ----------
    steps
        Number of steps after which the factor stays at ``floor``.
    floor
        The smallest factor.
    """

    steps: Count = eqx.field(static=True)
    floor: NotNegative = eqx.field(static=True, default=0.0)

    def __call__(self, step: Int[Array, "..."]) -> Any:
        return optax.cosine_decay_schedule(1.0, self.steps, self.floor)(step)
