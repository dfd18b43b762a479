"""Activations σ, with the derivatives and constants that theorems need and the Gaussian integrals of infinite widths.

- rectifiers: `Relu`, `LeakyRelu`, `Softplus`
- sigmoids: `Tanh`, `Sigmoid`, `Erf`
- gated, the argument times a sigmoid: `Silu`, `Gelu`, `Xtanh`
- polynomials: `Linear`, `Cubic`
- `Custom`, for a function of your own

A new activation is one final subclass of `Activation` in a public file of this package, or of a package of your own.
"""

# ruff: noqa: I001  (several names are imported in one line)
from typing import TYPE_CHECKING

from unlazy._listing import offered
from unlazy.activations._base import Activation as Activation, ActiveInterval as ActiveInterval
from unlazy.activations._base import as_activation as as_activation
from unlazy.activations.custom import Custom as Custom
from unlazy.activations.gated import Gelu as Gelu, Silu as Silu, Xtanh as Xtanh
from unlazy.activations.polynomials import Cubic as Cubic, Linear as Linear
from unlazy.activations.rectifiers import LeakyRelu as LeakyRelu, Relu as Relu, Softplus as Softplus
from unlazy.activations.sigmoids import Erf as Erf, Sigmoid as Sigmoid, Tanh as Tanh

if not TYPE_CHECKING:
    __all__ = offered(__file__)
