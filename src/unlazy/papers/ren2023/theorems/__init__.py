"""Theory of ren2023: Depth separation with multilayer mean-field networks.

`symmetry` has the consequences of spherical symmetry and the moments of the law (Lemmas 3.1, B.1 to B.5), `stages` the
times at which stages end, what holds in them (4.2, 4.3) and the main theorem, `clips` when clips become inactive (4.1),
`speeds` how fast layers move in stage 1 (C.5 to C.10, C.17, C.18), `gates` where second-layer neurons turn off (C.11 to
C.13), `first_layer` the error of the first layer and how it changes (C.14, D.8, D.11 to D.13), `regularity` what keeps
stage 2 regular (D.15 to D.19), `rates` the convergence rate (D.20 to D.22), `conservation` a conserved quantity, the
spread of the second layer and eq. 6 (D.14, D.18), and `identities` exact speeds (D.3 to D.5, D.11 to D.14). `setting`
holds what the theorems have in common, and `problems` the runs on which they are tried.
"""

from unlazy.papers.ren2023.theorems.clips import ClipsBecomeInactive, largest_product, needed_bounds
from unlazy.papers.ren2023.theorems.conservation import ConservedQuantity, Decomposition, SpreadFalls
from unlazy.papers.ren2023.theorems.first_layer import (
    ErrorBoundedByMovement,
    ErrorFalls,
    FitPreservesShape,
    OutputError,
    SupremumGrowsSlowly,
)
from unlazy.papers.ren2023.theorems.gates import GatesAgree, GatesDiffer, gate_error
from unlazy.papers.ren2023.theorems.identities import (
    ShapeSpeeds,
    alpha_speed,
    conserved,
    loss_speed,
    shape_speeds,
    spread_speed,
    value_speed,
)
from unlazy.papers.ren2023.theorems.rates import ConvergenceRate, degree_rates, least_rate_ratio, rate_bound
from unlazy.papers.ren2023.theorems.regularity import (
    BiasStaysBelowOne,
    LossFromParameters,
    SlopesStayAwayFromZero,
    SlopeStaysAboveMinusOne,
    loss_bound,
)
from unlazy.papers.ren2023.theorems.setting import RadialLaw, active_inside
from unlazy.papers.ren2023.theorems.speeds import (
    BiasStays,
    SlopeGrows,
    SpreadGrowsSlowly,
    WeightsFall,
    bias_bounds,
    fall_bound,
)
from unlazy.papers.ren2023.theorems.stages import (
    FirstStage,
    LearnsTarget,
    SecondStage,
    StageTimes,
    stage_times,
    width_needed,
)
from unlazy.papers.ren2023.theorems.symmetry import (
    EvenFeatures,
    FeatureSymmetry,
    RadialDensity,
    RadialMoments,
    ScalarSymmetry,
    VectorSymmetry,
)

__all__ = [
    "BiasStays",
    "BiasStaysBelowOne",
    "ClipsBecomeInactive",
    "ConservedQuantity",
    "ConvergenceRate",
    "Decomposition",
    "ErrorBoundedByMovement",
    "ErrorFalls",
    "EvenFeatures",
    "FeatureSymmetry",
    "FirstStage",
    "FitPreservesShape",
    "GatesAgree",
    "GatesDiffer",
    "LearnsTarget",
    "LossFromParameters",
    "OutputError",
    "RadialDensity",
    "RadialLaw",
    "RadialMoments",
    "ScalarSymmetry",
    "SecondStage",
    "ShapeSpeeds",
    "SlopeGrows",
    "SlopeStaysAboveMinusOne",
    "SlopesStayAwayFromZero",
    "SpreadFalls",
    "SpreadGrowsSlowly",
    "StageTimes",
    "SupremumGrowsSlowly",
    "VectorSymmetry",
    "WeightsFall",
    "active_inside",
    "alpha_speed",
    "bias_bounds",
    "conserved",
    "degree_rates",
    "fall_bound",
    "gate_error",
    "largest_product",
    "least_rate_ratio",
    "loss_bound",
    "loss_speed",
    "needed_bounds",
    "rate_bound",
    "shape_speeds",
    "spread_speed",
    "stage_times",
    "value_speed",
    "width_needed",
]
