"""Flows: how networks are trained. All of them follow θ' = -R ∇L(θ), exactly, adaptively or step by step."""

from unlazy._observation import Observe
from unlazy.flows._base import Flow, Method
from unlazy.flows._driver import Driver, OtherRunError, read_checkpoint
from unlazy.flows._state import Attempt, Controller, State, Status, gradient, velocity
from unlazy.flows._trajectory import OnlyAtEnd, Recorded, RunState, Trajectory, to_xarray
from unlazy.flows.descent import Descent
from unlazy.flows.exponential import Exponential
from unlazy.flows.gradient_flow import GradientFlow
from unlazy.flows.linearised import Linearised
from unlazy.flows.optimisers import Adam, Constant, Cosine, Momentum, Optimiser, Plain, Schedule, StepDecay, Transform
from unlazy.flows.runge_kutta import RungeKutta
from unlazy.flows.stabilised import Stabilised

__all__ = [
    "Adam",
    "Attempt",
    "Constant",
    "Controller",
    "Cosine",
    "Descent",
    "Driver",
    "Exponential",
    "Flow",
    "GradientFlow",
    "Linearised",
    "Method",
    "Momentum",
    "Observe",
    "OnlyAtEnd",
    "Optimiser",
    "OtherRunError",
    "Plain",
    "Recorded",
    "RunState",
    "RungeKutta",
    "Schedule",
    "Stabilised",
    "State",
    "Status",
    "StepDecay",
    "Trajectory",
    "Transform",
    "gradient",
    "read_checkpoint",
    "to_xarray",
    "velocity",
]
