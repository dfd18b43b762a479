"""Theorems of chen2022: On feature learning in neural networks with global convergence guarantees.

`features` has eq. 15 and Lemma 4, `decay` what holds along a run (eq. 14 and 16, Lemma 1), `guarantees` what is known
before it (Theorems 1-3, Corollary 1), `start` what random starts are like (Lemmas 2 and 3), `constants` every number
that they need, and `setting` the paper's notation.
"""

from unlazy.papers.chen2022.theorems.constants import (
    Requirements,
    best_interval,
    concentration_bound,
    features_needed,
    find_interval,
    kappa,
    middle_mass,
    printed_kappa,
    printed_middle_mass,
    requirements,
    start_size,
    width_for_loss,
    width_for_share,
)
from unlazy.papers.chen2022.theorems.decay import ActiveNeuronsStay, LossFalls, SlopesBoundedBelow
from unlazy.papers.chen2022.theorems.features import EmbeddingConcentrates, FeaturesMustMove, concentration
from unlazy.papers.chen2022.theorems.guarantees import (
    FixedEmbedding,
    RandomEmbedding,
    ShallowIndependentInputs,
    ThreeLayers,
)
from unlazy.papers.chen2022.theorems.setting import gram, limit_gram
from unlazy.papers.chen2022.theorems.start import NeuronsStartActive, SmallLossAtStart

__all__ = [
    "ActiveNeuronsStay",
    "EmbeddingConcentrates",
    "FeaturesMustMove",
    "FixedEmbedding",
    "LossFalls",
    "NeuronsStartActive",
    "RandomEmbedding",
    "Requirements",
    "ShallowIndependentInputs",
    "SlopesBoundedBelow",
    "SmallLossAtStart",
    "ThreeLayers",
    "best_interval",
    "concentration",
    "concentration_bound",
    "features_needed",
    "find_interval",
    "gram",
    "kappa",
    "limit_gram",
    "middle_mass",
    "printed_kappa",
    "printed_middle_mass",
    "requirements",
    "start_size",
    "width_for_loss",
    "width_for_share",
]
