"""What `Descent` does with a gradient and with its learning rate: these say what is wanted, Optax does the work.

They are written down as values, so that two equal ones are the same to the compiler and to a recipe's digest.
"""

import abc
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import optax
from jaxtyping import Array, Int


class Optimiser(eqx.Module):
    """Turns gradients into a direction to step against."""

    @abc.abstractmethod
    def transform(self) -> optax.GradientTransformation:
        """Give the Optax transformation, without learning rate."""

    @property
    def linear(self) -> bool:
        """Whether directions are linear in the gradients so far, with one factor for all entries.

        Such an optimiser takes the same steps in any linear coordinates, and may therefore run in Gram coordinates.
        """
        return False


class Plain(Optimiser):
    """Gradient descent, or SGD with minibatches: the direction is the gradient."""

    def transform(self) -> optax.GradientTransformation:
        """Leave the gradient as it is."""
        return optax.identity()

    @property
    def linear(self) -> bool:
        """The direction is the gradient."""
        return True


class Momentum(Optimiser):
    """Heavy-ball momentum v ← β v + g, or Nesterov's. It moves about 1/(1-β) times as far per step as plain descent."""

    decay: float = eqx.field(static=True, default=0.9)
    nesterov: bool = eqx.field(static=True, default=False)

    def transform(self) -> optax.GradientTransformation:
        """Accumulate a trace of gradients."""
        return optax.trace(self.decay, self.nesterov)

    @property
    def linear(self) -> bool:
        """The direction is a sum of gradients."""
        return True


class Adam(Optimiser):
    """Adam with bias correction (Kingma & Ba)."""

    b1: float = eqx.field(static=True, default=0.9)
    b2: float = eqx.field(static=True, default=0.999)
    eps: float = eqx.field(static=True, default=1e-8)

    def transform(self) -> optax.GradientTransformation:
        """Scale by running moments."""
        return optax.scale_by_adam(self.b1, self.b2, self.eps)


class Transform(Optimiser):
    """Any other transformation of Optax, without its learning rate: ``Transform(optax.scale_by_lion())``."""

    given: optax.GradientTransformation = eqx.field(static=True)

    def transform(self) -> optax.GradientTransformation:
        """Use what was given."""
        return self.given


class Schedule(eqx.Module):
    """A factor on the learning rate that depends on the step."""

    @abc.abstractmethod
    def __call__(self, step: Int[Array, "..."]) -> Any:
        """Give the factor at ``step`` (counted from 0)."""

    @property
    def constant(self) -> bool:
        """Whether the factor is 1 at every step, so that the time of a step is known without adding up factors."""
        return False


class Constant(Schedule):
    """The same learning rate throughout."""

    def __call__(self, step: Int[Array, "..."]) -> Any:
        """Factor 1."""
        return jnp.ones_like(step, dtype=float)

    @property
    def constant(self) -> bool:
        """It is."""
        return True


class StepDecay(Schedule):
    """Multiplied by ``factor`` every ``every`` steps (aiad2026 Table 4: 0.9 every 100)."""

    factor: float = eqx.field(static=True)
    every: int = eqx.field(static=True)

    def __call__(self, step: Int[Array, "..."]) -> Any:
        """factor^⌊step/every⌋."""
        return optax.exponential_decay(1.0, self.every, self.factor, staircase=True)(step)


class Cosine(Schedule):
    """Falls from 1 to ``floor`` along half a cosine over ``steps`` steps."""

    steps: int = eqx.field(static=True)
    floor: float = eqx.field(static=True, default=0.0)

    def __call__(self, step: Int[Array, "..."]) -> Any:
        """Half a cosine."""
        return optax.cosine_decay_schedule(1.0, self.steps, self.floor)(step)
