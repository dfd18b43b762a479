"""Theory of ren2023: Depth separation with multilayer mean-field networks.

`symmetry` has the consequences of spherical symmetry and the moments of the law (Lemmas 3.1, B.1 to B.5), `stages` the
times at which stages end, what holds in them (4.2, 4.3) and the main theorem, `clips` when clips become inactive (4.1),
`speeds` how fast layers move in stage 1 (C.5 to C.10, C.17, C.18), `gates` where second-layer neurons turn off (C.11 to
C.13), `first_layer` the error of the first layer and how it changes (C.14, D.8, D.11 to D.13), `regularity` what keeps
stage 2 regular (D.15 to D.19), `rates` the convergence rate (D.20 to D.22), `conservation` a conserved quantity, the
spread of the second layer and eq. 6 (D.14, D.18), and `identities` exact speeds (D.3 to D.5, D.11 to D.14). `setting`
holds what the theorems have in common, and `problems` the runs on which they are tried.
"""

# ruff: noqa: I001  (several names are imported in one line)
from typing import TYPE_CHECKING

from unlazy._listing import offered_lazily

if TYPE_CHECKING:
    from unlazy.papers.ren2023.theorems.clips import ClipsBecomeInactive as ClipsBecomeInactive
    from unlazy.papers.ren2023.theorems.clips import largest_product as largest_product, needed_bounds as needed_bounds
    from unlazy.papers.ren2023.theorems.conservation import ConservedQuantity as ConservedQuantity
    from unlazy.papers.ren2023.theorems.conservation import Decomposition as Decomposition, SpreadFalls as SpreadFalls
    from unlazy.papers.ren2023.theorems.first_layer import ErrorBoundedByMovement as ErrorBoundedByMovement
    from unlazy.papers.ren2023.theorems.first_layer import ErrorFalls as ErrorFalls
    from unlazy.papers.ren2023.theorems.first_layer import FitPreservesShape as FitPreservesShape
    from unlazy.papers.ren2023.theorems.first_layer import OutputError as OutputError
    from unlazy.papers.ren2023.theorems.first_layer import SupremumGrowsSlowly as SupremumGrowsSlowly
    from unlazy.papers.ren2023.theorems.gates import GatesAgree as GatesAgree, GatesDiffer as GatesDiffer
    from unlazy.papers.ren2023.theorems.gates import gate_error as gate_error
    from unlazy.papers.ren2023.theorems.identities import ShapeSpeeds as ShapeSpeeds, alpha_speed as alpha_speed
    from unlazy.papers.ren2023.theorems.identities import conserved as conserved, loss_speed as loss_speed
    from unlazy.papers.ren2023.theorems.identities import shape_speeds as shape_speeds, spread_speed as spread_speed
    from unlazy.papers.ren2023.theorems.identities import value_speed as value_speed
    from unlazy.papers.ren2023.theorems.rates import ConvergenceRate as ConvergenceRate, degree_rates as degree_rates
    from unlazy.papers.ren2023.theorems.rates import least_rate_ratio as least_rate_ratio, rate_bound as rate_bound
    from unlazy.papers.ren2023.theorems.regularity import BiasStaysBelowOne as BiasStaysBelowOne
    from unlazy.papers.ren2023.theorems.regularity import LossFromParameters as LossFromParameters
    from unlazy.papers.ren2023.theorems.regularity import SlopesStayAwayFromZero as SlopesStayAwayFromZero
    from unlazy.papers.ren2023.theorems.regularity import SlopeStaysAboveMinusOne as SlopeStaysAboveMinusOne
    from unlazy.papers.ren2023.theorems.regularity import loss_bound as loss_bound
    from unlazy.papers.ren2023.theorems.setting import RadialLaw as RadialLaw, active_inside as active_inside
    from unlazy.papers.ren2023.theorems.speeds import BiasStays as BiasStays, SlopeGrows as SlopeGrows
    from unlazy.papers.ren2023.theorems.speeds import SpreadGrowsSlowly as SpreadGrowsSlowly, WeightsFall as WeightsFall
    from unlazy.papers.ren2023.theorems.speeds import bias_bounds as bias_bounds, fall_bound as fall_bound
    from unlazy.papers.ren2023.theorems.stages import FirstStage as FirstStage, LearnsTarget as LearnsTarget
    from unlazy.papers.ren2023.theorems.stages import SecondStage as SecondStage, StageTimes as StageTimes
    from unlazy.papers.ren2023.theorems.stages import stage_times as stage_times, width_needed as width_needed
    from unlazy.papers.ren2023.theorems.symmetry import EvenFeatures as EvenFeatures, FeatureSymmetry as FeatureSymmetry
    from unlazy.papers.ren2023.theorems.symmetry import RadialDensity as RadialDensity, RadialMoments as RadialMoments
    from unlazy.papers.ren2023.theorems.symmetry import ScalarSymmetry as ScalarSymmetry
    from unlazy.papers.ren2023.theorems.symmetry import VectorSymmetry as VectorSymmetry
else:
    __all__, __getattr__, __dir__ = offered_lazily(__name__, __file__)
