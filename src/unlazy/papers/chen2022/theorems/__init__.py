"""Theorems of chen2022: On feature learning in neural networks with global convergence guarantees.

`features` has eq. 15 and Lemma 4, `decay` what holds along a run (eq. 14 and 16, Lemma 1), `guarantees` what is known
before it (Theorems 1-3, Corollary 1), `start` what random starts are like (Lemmas 2 and 3), `constants` every number
that they need, and `setting` the paper's notation.
"""

# ruff: noqa: I001  (several names are imported in one line)
from typing import TYPE_CHECKING

from unlazy._listing import offered_lazily

if TYPE_CHECKING:
    from unlazy.papers.chen2022.theorems.constants import Requirements as Requirements, best_interval as best_interval
    from unlazy.papers.chen2022.theorems.constants import concentration_bound as concentration_bound
    from unlazy.papers.chen2022.theorems.constants import features_needed as features_needed
    from unlazy.papers.chen2022.theorems.constants import find_interval as find_interval, kappa as kappa
    from unlazy.papers.chen2022.theorems.constants import middle_mass as middle_mass, printed_kappa as printed_kappa
    from unlazy.papers.chen2022.theorems.constants import printed_middle_mass as printed_middle_mass
    from unlazy.papers.chen2022.theorems.constants import requirements as requirements, start_size as start_size
    from unlazy.papers.chen2022.theorems.constants import width_for_loss as width_for_loss
    from unlazy.papers.chen2022.theorems.constants import width_for_share as width_for_share
    from unlazy.papers.chen2022.theorems.decay import ActiveNeuronsStay as ActiveNeuronsStay, LossFalls as LossFalls
    from unlazy.papers.chen2022.theorems.decay import SlopesBoundedBelow as SlopesBoundedBelow
    from unlazy.papers.chen2022.theorems.features import EmbeddingConcentrates as EmbeddingConcentrates
    from unlazy.papers.chen2022.theorems.features import FeaturesMustMove as FeaturesMustMove
    from unlazy.papers.chen2022.theorems.features import concentration as concentration
    from unlazy.papers.chen2022.theorems.guarantees import FixedEmbedding as FixedEmbedding
    from unlazy.papers.chen2022.theorems.guarantees import RandomEmbedding as RandomEmbedding
    from unlazy.papers.chen2022.theorems.guarantees import ShallowIndependentInputs as ShallowIndependentInputs
    from unlazy.papers.chen2022.theorems.guarantees import ThreeLayers as ThreeLayers
    from unlazy.papers.chen2022.theorems.setting import gram as gram, limit_gram as limit_gram
    from unlazy.papers.chen2022.theorems.start import NeuronsStartActive as NeuronsStartActive
    from unlazy.papers.chen2022.theorems.start import SmallLossAtStart as SmallLossAtStart
else:
    __all__, __getattr__, __dir__ = offered_lazily(__name__, __file__)
