"""Theory of ren2023: Depth separation with multilayer mean-field networks.

`symmetry` has what spherical symmetry gives (Lemmas 3.1, B.1, B.3, B.5), `stages` the times at which stages end, what
holds in them (4.1, 4.2, 4.3) and the main theorem, `conservation` what the flow keeps (eq. 6, D.14, D.18), and
`identities` the exact speeds of D.3 to D.5.
"""

from unlazy.papers.ren2023.theorems.conservation import Conserved, Decomposition, SpreadFalls
from unlazy.papers.ren2023.theorems.identities import alpha_speed, conserved, loss_speed, spread_speed, value_speed
from unlazy.papers.ren2023.theorems.stages import (
    ClipsGoOut,
    FirstStage,
    Learns,
    SecondStage,
    StageTimes,
    needed_bounds,
    reached,
    stage_times,
    width_needed,
)
from unlazy.papers.ren2023.theorems.symmetry import EvenFeatures, RadialDensity, ScalarSymmetry, VectorSymmetry

__all__ = [
    "ClipsGoOut",
    "Conserved",
    "Decomposition",
    "EvenFeatures",
    "FirstStage",
    "Learns",
    "RadialDensity",
    "ScalarSymmetry",
    "SecondStage",
    "SpreadFalls",
    "StageTimes",
    "VectorSymmetry",
    "alpha_speed",
    "conserved",
    "loss_speed",
    "needed_bounds",
    "reached",
    "spread_speed",
    "stage_times",
    "value_speed",
    "width_needed",
]
