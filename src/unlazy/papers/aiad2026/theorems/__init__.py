"""Theory of aiad2026: Low-rank structure is sufficient for global convergence, a mean-field perspective.

`well_posed` is about the ODEs (Theorem 2.1, Lemmas D.2 to D.4, with the operator of `picard`), `dynamics` describes how
channels move (eq. 10, 16), `one_spike` and `two_spikes` the consequences on one and on two points (Lemmas H.1 and H.2,
Theorem 3.1), `span` what frozen features span (Theorem C.1), `limit_point` where training may come to rest (Theorem
2.2), `forward` bounds on layers (Lemmas D.1, E.2 and F.1), and `width` the distance of finite networks from the limit
(Theorem 2.3, Corollary G.1; `unlazy.theory.coupling` measures the rates). `setting` holds what the theorems have in
common, `problems` the runs on which they are checked.
"""

# ruff: noqa: I001  (several names are imported in one line)
from typing import TYPE_CHECKING

from unlazy._listing import offered_lazily

if TYPE_CHECKING:
    from unlazy.papers.aiad2026.theorems.dynamics import ChannelsMove as ChannelsMove, KernelBumps as KernelBumps
    from unlazy.papers.aiad2026.theorems.dynamics import channel_speed as channel_speed
    from unlazy.papers.aiad2026.theorems.forward import ForwardBound as ForwardBound
    from unlazy.papers.aiad2026.theorems.forward import ForwardLipschitz as ForwardLipschitz
    from unlazy.papers.aiad2026.theorems.limit_point import LimitsAreGlobal as LimitsAreGlobal
    from unlazy.papers.aiad2026.theorems.limit_point import subgaussian as subgaussian
    from unlazy.papers.aiad2026.theorems.one_spike import HalfSpaceMoments as HalfSpaceMoments, OneSparse as OneSparse
    from unlazy.papers.aiad2026.theorems.one_spike import Spike as Spike, spike as spike
    from unlazy.papers.aiad2026.theorems.picard import Path as Path, Picard as Picard
    from unlazy.papers.aiad2026.theorems.picard import trajectory_distance as trajectory_distance
    from unlazy.papers.aiad2026.theorems.span import FeaturesSpan as FeaturesSpan
    from unlazy.papers.aiad2026.theorems.two_spikes import Lead as Lead, LeadGrows as LeadGrows, leads as leads
    from unlazy.papers.aiad2026.theorems.well_posed import BoundedSets as BoundedSets, Contraction as Contraction
    from unlazy.papers.aiad2026.theorems.well_posed import WeightBounds as WeightBounds, WellPosed as WellPosed
    from unlazy.papers.aiad2026.theorems.well_posed import growth as growth
    from unlazy.papers.aiad2026.theorems.width import Constants as Constants, LossNearItsLimit as LossNearItsLimit
    from unlazy.papers.aiad2026.theorems.width import Measured as Measured, NearItsLimit as NearItsLimit
    from unlazy.papers.aiad2026.theorems.width import constants as constants, measure as measure
else:
    __all__, __getattr__, __dir__ = offered_lazily(__name__, __file__)
