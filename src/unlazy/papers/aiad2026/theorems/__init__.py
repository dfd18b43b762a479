"""Theory of aiad2026: Low-rank structure is sufficient for global convergence, a mean-field perspective.

`dynamics` has how channels move (eq. 10, 16), `one_spike` and `two_spikes` what that does on one point and on two
(Lemmas H.1 and H.2, Theorem 3.1), `limit_point` where training may come to rest (Theorem 2.2), and `width` what holds
of finite networks (Lemmas D.1 and E.2) and how far they are from their limit (Theorem 2.3, Corollary G.1; the rates are
in `unlazy.theory.coupling`).
"""

from unlazy.papers.aiad2026.theorems.dynamics import ChannelsMove, KernelBumps, channel_speed
from unlazy.papers.aiad2026.theorems.limit_point import LimitsAreGlobal, subgaussian
from unlazy.papers.aiad2026.theorems.one_spike import HalfSpaces, OneSparse, Spike, spike
from unlazy.papers.aiad2026.theorems.two_spikes import Lead, LeadGrows, leads
from unlazy.papers.aiad2026.theorems.width import (
    Constants,
    ForwardBound,
    ForwardLipschitz,
    LossNearItsLimit,
    Measured,
    NearItsLimit,
    constants,
    measure,
)

__all__ = [
    "ChannelsMove",
    "Constants",
    "ForwardBound",
    "ForwardLipschitz",
    "HalfSpaces",
    "KernelBumps",
    "Lead",
    "LeadGrows",
    "LimitsAreGlobal",
    "LossNearItsLimit",
    "Measured",
    "NearItsLimit",
    "OneSparse",
    "Spike",
    "channel_speed",
    "constants",
    "leads",
    "measure",
    "spike",
    "subgaussian",
]
