"""Activations σ, with the derivatives and constants that theorems need and the Gaussian integrals of infinite widths.

- rectifiers: `Relu`, `LeakyRelu`, `Softplus`
- sigmoids: `Tanh`, `Sigmoid`, `Erf`
- gated, the argument times a sigmoid: `Silu`, `Gelu`, `Xtanh`
- polynomials: `Linear`, `Cubic`
- `Custom`, for a function of your own

A new activation is one final subclass of `Activation` in a public file of this package, or of a package of your own.
"""

from typing import Any

from unlazy._registry import resolve
from unlazy.activations._base import Activation, ActiveInterval
from unlazy.activations.custom import Custom
from unlazy.activations.gated import Gelu, Silu, Xtanh
from unlazy.activations.polynomials import Cubic, Linear
from unlazy.activations.rectifiers import LeakyRelu, Relu, Softplus
from unlazy.activations.sigmoids import Erf, Sigmoid, Tanh

__all__ = [
    "Activation",
    "ActiveInterval",
    "Cubic",
    "Custom",
    "Erf",
    "Gelu",
    "LeakyRelu",
    "Linear",
    "Relu",
    "Sigmoid",
    "Silu",
    "Softplus",
    "Tanh",
    "Xtanh",
    "as_activation",
]


def as_activation(value: Any) -> Activation:
    """Convert a value to an activation.

    Parameters
    ----------
    value
        An `Activation`; the name of one ("relu", "leaky-relu"), or "package.module:name"; or a plain elementwise
        function such as ``jnp.sin``, which becomes `Custom`.
    """
    return resolve("activation", value)


as_activation.registered = False  # pyright: ignore[reportFunctionMemberAccess]  # it converts values, and is not an activation itself
