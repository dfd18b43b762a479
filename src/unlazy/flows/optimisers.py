"""Optimisers of `Descent`, which make transformations of Optax.

They are plain values: two equal ones are the same to the compiler and in the digest of a recipe.
"""

import abc
from typing import ClassVar

import equinox as eqx
import optax

from unlazy._checked import Checked
from unlazy._errors import UserError, short
from unlazy._types import NotNegative, Share


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
        """Leave the gradient as it is."""
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
    decay: Share = eqx.field(static=True, default=0.9)
    nesterov: bool = eqx.field(static=True, default=False)

    def transform(self) -> optax.GradientTransformation:
        """Accumulate a trace of gradients."""
        return optax.trace(self.decay, self.nesterov)


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
        """Scale by running moments."""
        return optax.scale_by_adam(self.b1, self.b2, self.eps)


class Transform(Optimiser):
    """Any other transformation of Optax, without its learning rate: ``Transform(optax.scale_by_lion())``.

    Parameters
    ----------
    given
        The transformation.
    """

    given: optax.GradientTransformation = eqx.field(static=True)

    def __check_init__(self) -> None:
        if not isinstance(self.given, optax.GradientTransformation):
            raise UserError(f"given = {short(self.given)} is not a transformation of Optax: try optax.scale_by_lion().")

    def transform(self) -> optax.GradientTransformation:
        """Use what was given."""
        return self.given
