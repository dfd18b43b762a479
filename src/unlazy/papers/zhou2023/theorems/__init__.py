"""Theory of zhou2023: Understanding the initial condensation of convolutional neural networks.

`structure` reads two-layer networks of any class, `linearisation` has the matrix Z of any loss and its SVD, `dynamics`
the closed-form linear flow and the times that it predicts. The theorems are in `condensation`, `residual` (Proposition
2) and `start` (Lemma 1, Proposition 3), and the runs that they apply to in `setting`.

>>> prediction = predict(network, data, loss)
>>> prediction.linear.gap, prediction.linear.ones(), prediction.time_of(0.999)
"""

from unlazy.papers.zhou2023.theorems.condensation import (
    AgainstChannels,
    KernelsCondense,
    LinearFlow,
    against_channels,
    limits,
)
from unlazy.papers.zhou2023.theorems.dynamics import Prediction, least_effective_time, order, predict
from unlazy.papers.zhou2023.theorems.linearisation import Linearisation, linearisation_of, linearise
from unlazy.papers.zhou2023.theorems.residual import Residual, ResidualBound, constants, residual
from unlazy.papers.zhou2023.theorems.start import LargestParameter, LengthOfWeights, bernstein, chi_square_norm
from unlazy.papers.zhou2023.theorems.structure import TwoLayerForm, two_layer_form

__all__ = [
    "AgainstChannels",
    "KernelsCondense",
    "LargestParameter",
    "LengthOfWeights",
    "LinearFlow",
    "Linearisation",
    "Prediction",
    "Residual",
    "ResidualBound",
    "TwoLayerForm",
    "against_channels",
    "bernstein",
    "chi_square_norm",
    "constants",
    "least_effective_time",
    "limits",
    "linearisation_of",
    "linearise",
    "order",
    "predict",
    "residual",
    "two_layer_form",
]
