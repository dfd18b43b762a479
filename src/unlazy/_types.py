"""Type aliases for the arrays that the packages exchange.

The sample axis comes first everywhere. Networks with one output return shape ``(n,)``, with k outputs ``(n, k)``: the
shape of the targets, so that a residual is a subtraction.
"""

from typing import TypeAlias

import numpy as np
from jaxtyping import Array, Float, Key, PyTree, UInt32

Inputs: TypeAlias = Float[Array, "n ..."]
OtherInputs: TypeAlias = Float[Array, "p ..."]
Outputs: TypeAlias = Float[Array, "n *k"]
Scalar: TypeAlias = Float[Array, ""]
Number: TypeAlias = float | Scalar | np.ndarray  # in compiled code an array, so that another is not compiled again
PRNGKey: TypeAlias = Key[Array, ""]
KeyLike: TypeAlias = PRNGKey | UInt32[Array, "2"] | int | np.integer  # what `as_key` understands

__all__ = ["Array", "Float", "Inputs", "KeyLike", "Number", "OtherInputs", "Outputs", "PRNGKey", "PyTree", "Scalar"]
