"""Type aliases for the arrays that the packages exchange.

The sample axis comes first everywhere. Networks with one output return shape ``(n,)``, with k outputs ``(n, k)``: the
shape of the targets, so that a residual is a subtraction.
"""

from typing import Annotated, TypeAlias

import msgspec
import numpy as np
from jaxtyping import Array, Float, Key, PyTree, UInt32

Inputs: TypeAlias = Float[Array, "n ..."]
OtherInputs: TypeAlias = Float[Array, "p ..."]
Outputs: TypeAlias = Float[Array, "n *k"]
Scalar: TypeAlias = Float[Array, ""]
Number: TypeAlias = float | Scalar | np.ndarray  # in compiled code an array, so that another is not compiled again
PRNGKey: TypeAlias = Key[Array, ""]
KeyLike: TypeAlias = PRNGKey | UInt32[Array, "2"] | int | np.integer  # what `as_key` understands

# Numbers with bounds, which `unlazy._checked` and recipes check.
Count: TypeAlias = Annotated[int, msgspec.Meta(ge=1, lt=2**31)]
Natural: TypeAlias = Annotated[int, msgspec.Meta(ge=0, lt=2**31)]
Positive: TypeAlias = Annotated[float, msgspec.Meta(gt=0)]
NotNegative: TypeAlias = Annotated[float, msgspec.Meta(ge=0)]
Share: TypeAlias = Annotated[float, msgspec.Meta(ge=0, lt=1)]
OpenShare: TypeAlias = Annotated[float, msgspec.Meta(gt=0, lt=1)]

__all__ = ["Array", "Float", "Inputs", "KeyLike", "Number", "OtherInputs", "Outputs", "PRNGKey", "PyTree", "Scalar"]
__all__ += ["Count", "Natural", "NotNegative", "OpenShare", "Positive", "Share"]
