"""Theory of aiad2026: Low-rank structure is sufficient for global convergence, a mean-field perspective.

`well_posed` is about the ODEs (Theorem 2.1, Lemmas D.2 to D.4, with the operator of `picard`), `dynamics` describes how
channels move (eq. 10, 16), `one_spike` and `two_spikes` the consequences on one and on two points (Lemmas H.1 and H.2,
Theorem 3.1), `span` what frozen features span (Theorem C.1), `limit_point` where training may come to rest (Theorem
2.2), `forward` bounds on layers (Lemmas D.1, E.2 and F.1), and `width` the distance of finite networks from the limit
(Theorem 2.3, Corollary G.1; `unlazy.theory.coupling` measures the rates). `setting` holds what the theorems have in
common, `problems` the runs on which they are checked.
"""

from unlazy.papers.aiad2026.theorems.dynamics import ChannelsMove, KernelBumps, channel_speed
from unlazy.papers.aiad2026.theorems.forward import ForwardBound, ForwardLipschitz
from unlazy.papers.aiad2026.theorems.limit_point import LimitsAreGlobal, subgaussian
from unlazy.papers.aiad2026.theorems.one_spike import HalfSpaceMoments, OneSparse, Spike, spike
from unlazy.papers.aiad2026.theorems.picard import Path, Picard, trajectory_distance
from unlazy.papers.aiad2026.theorems.span import FeaturesSpan
from unlazy.papers.aiad2026.theorems.two_spikes import Lead, LeadGrows, leads
from unlazy.papers.aiad2026.theorems.well_posed import BoundedSets, Contraction, WeightBounds, WellPosed, growth
from unlazy.papers.aiad2026.theorems.width import (
    Constants,
    LossNearItsLimit,
    Measured,
    NearItsLimit,
    constants,
    measure,
)

__all__ = [
    "BoundedSets",
    "ChannelsMove",
    "Constants",
    "Contraction",
    "FeaturesSpan",
    "ForwardBound",
    "ForwardLipschitz",
    "HalfSpaceMoments",
    "KernelBumps",
    "Lead",
    "LeadGrows",
    "LimitsAreGlobal",
    "LossNearItsLimit",
    "Measured",
    "NearItsLimit",
    "OneSparse",
    "Path",
    "Picard",
    "Spike",
    "WeightBounds",
    "WellPosed",
    "channel_speed",
    "constants",
    "growth",
    "leads",
    "measure",
    "spike",
    "subgaussian",
    "trajectory_distance",
]
