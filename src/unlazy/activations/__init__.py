"""Activations σ: what theorems ask of them (derivatives, constants) and what infinite widths ask (Gaussian integrals).

- rectifiers: `Relu`, `LeakyRelu`, `Softplus`
- sigmoids: `Tanh`, `Sigmoid`, `Erf`
- gated, the argument times a sigmoid: `Silu`, `Gelu`, `Xtanh`
- polynomials: `Linear`, `Cubic`
- `Custom`, for a function of your own

A new activation is one final subclass of `Activation` in a public file of this room.
"""

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
]
