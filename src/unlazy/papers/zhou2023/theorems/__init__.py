"""Theory of zhou2023: Understanding the initial condensation of convolutional neural networks.

`linearisation` has the matrix Z of any loss and its SVD, `dynamics` the closed-form linear flow and the times that it
predicts, `condensation` the theorems.

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

__all__ = [
    "AgainstChannels",
    "KernelsCondense",
    "LinearFlow",
    "Linearisation",
    "Prediction",
    "against_channels",
    "least_effective_time",
    "limits",
    "linearisation_of",
    "linearise",
    "order",
    "predict",
]
