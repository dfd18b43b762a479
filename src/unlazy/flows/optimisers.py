"""Optimisers of `Descent`, which make transformations of Optax.

Numbers that are arrays need no new compilation if they change.
"""

import abc
from typing import Any, ClassVar

import equinox as eqx
import jax
import numpy as np
import optax

from unlazy._checked import Checked
from unlazy._inputs import like
from unlazy._types import NotNegative, Positive, PyTree, Share


def number(value: float) -> np.ndarray:
    """Store a number as an array, so that another number needs no new compilation."""
    return np.asarray(value, float)


def positive(value: Positive) -> np.ndarray:
    """Store a number above 0 as an array."""
    return number(value)


def share(value: Share) -> np.ndarray:
    """Store a number of at least 0 and below 1 as an array."""
    return number(value)


class Optimiser(Checked):
    """Turns gradients into a direction to step against.

    Attributes
    ----------
    linear
        Whether directions are linear in the gradients so far, with one factor for all entries. Such an optimiser takes
        the same steps in any linear coordinates, and may therefore run in Gram coordinates.
    """

    linear: ClassVar[bool] = False

    @abc.abstractmethod
    def transform(self) -> optax.GradientTransformation:
        """Return the Optax transformation, without learning rate."""


class Plain(Optimiser):
    """Gradient descent, or SGD with minibatches: the direction is the gradient."""

    linear: ClassVar[bool] = True

    def transform(self) -> optax.GradientTransformation:
        return optax.identity()


class Momentum(Optimiser):
    """Heavy-ball momentum v ← β v + g, or Nesterov's. It moves about 1/(1-β) times as far per step as plain descent.

    Parameters
    ----------
    decay
        The factor β.
    nesterov
        Whether to use Nesterov's variant.
    """

    linear: ClassVar[bool] = True
    decay: np.ndarray = eqx.field(default=0.9, converter=share)
    nesterov: bool = eqx.field(static=True, default=False)

    def transform(self) -> optax.GradientTransformation:
        """Accumulate a trace of gradients."""

        def update(updates: PyTree, state: Any, params: PyTree = None) -> tuple[PyTree, Any]:
            leaf = jax.tree.leaves(updates)[0]
            return optax.trace(like(self.decay, leaf), self.nesterov).update(updates, state, params)

        return optax.GradientTransformation(optax.trace(0.0).init, update)


class Adam(Optimiser):
    """Adam with bias correction (Kingma & Ba).

    Parameters
    ----------
    b1, b2
        Decay of the running means of gradients and of their squares.
    eps
        Added to the root of the mean square.
    """

    b1: Share = eqx.field(static=True, default=0.9)
    b2: Share = eqx.field(static=True, default=0.999)
    eps: NotNegative = eqx.field(static=True, default=1e-8)

    def transform(self) -> optax.GradientTransformation:
        """Scale by running moments. The numbers are static: 1 - b2 of arrays in float32 has only five digits."""
        return optax.scale_by_adam(self.b1, self.b2, self.eps)


class Transform(Optimiser):
    """Any other transformation of Optax, without its learning rate: ``Transform(optax.scale_by_lion())``.

    Parameters
    ----------
    given
        The transformation.
    """

    given: optax.GradientTransformation = eqx.field(static=True)

    def transform(self) -> optax.GradientTransformation:
        return self.given
