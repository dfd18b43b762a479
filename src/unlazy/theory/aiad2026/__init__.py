"""Theory of aiad2026: Low-rank structure is sufficient for global convergence, a mean-field perspective."""

from unlazy.theory.aiad2026.dynamics import ChannelsMove, KernelBumps, channel_speed
from unlazy.theory.aiad2026.limit_point import LimitsAreGlobal, assumptions, signals_left, subgaussian
from unlazy.theory.aiad2026.one_spike import HalfSpaces, OneSparse, Spike, spike
from unlazy.theory.aiad2026.two_spikes import Lead, LeadGrows, leads

__all__ = ["ChannelsMove", "HalfSpaces", "KernelBumps", "Lead", "LeadGrows", "LimitsAreGlobal", "OneSparse", "Spike", "assumptions", "channel_speed", "leads", "signals_left", "spike", "subgaussian"]
