"""Theory of zhou2023: Understanding the initial condensation of convolutional neural networks.

`structure` reads two-layer networks of any class, `linearisation` has the matrix Z of any loss and its SVD, `dynamics`
the closed-form linear flow and the times that it predicts. The theorems are in `condensation`, `residuals` (Proposition
2) and `start` (Lemma 1, Proposition 3), and the runs that they apply to in `setting`.

>>> prediction = predict(network, data, loss)
>>> prediction.linear.gap, prediction.linear.ones(), prediction.time_of(0.999)
"""

# ruff: noqa: I001  (several names are imported in one line)
from typing import TYPE_CHECKING

from unlazy._listing import offered_lazily

if TYPE_CHECKING:
    from unlazy.papers.zhou2023.theorems.condensation import AgainstChannels as AgainstChannels
    from unlazy.papers.zhou2023.theorems.condensation import KernelsCondense as KernelsCondense
    from unlazy.papers.zhou2023.theorems.condensation import LinearFlow as LinearFlow
    from unlazy.papers.zhou2023.theorems.condensation import against_channels as against_channels, limits as limits
    from unlazy.papers.zhou2023.theorems.dynamics import Prediction as Prediction
    from unlazy.papers.zhou2023.theorems.dynamics import least_effective_time as least_effective_time, order as order
    from unlazy.papers.zhou2023.theorems.dynamics import predict as predict
    from unlazy.papers.zhou2023.theorems.linearisation import Linearisation as Linearisation
    from unlazy.papers.zhou2023.theorems.linearisation import linearisation_of as linearisation_of
    from unlazy.papers.zhou2023.theorems.linearisation import linearise as linearise
    from unlazy.papers.zhou2023.theorems.residuals import Residual as Residual, ResidualBound as ResidualBound
    from unlazy.papers.zhou2023.theorems.residuals import constants as constants, residual as residual
    from unlazy.papers.zhou2023.theorems.start import LargestParameter as LargestParameter
    from unlazy.papers.zhou2023.theorems.start import LengthOfWeights as LengthOfWeights, bernstein as bernstein
    from unlazy.papers.zhou2023.theorems.start import chi_square_norm as chi_square_norm
    from unlazy.papers.zhou2023.theorems.structure import TwoLayerForm as TwoLayerForm, two_layer_form as two_layer_form
else:
    __all__, __getattr__, __dir__ = offered_lazily(__name__, __file__)
