"""Flows: how networks are trained. All of them follow θ' = -R ∇L(θ), exactly, adaptively or step by step."""

from unlazy._observation import Observe
from unlazy.flows._base import Flow, Stepper
from unlazy.flows._driver import Driver
from unlazy.flows._results import to_xarray
from unlazy.flows._state import OnlyAtEnd, State, Status, Trajectory, gradient, velocity
from unlazy.flows.descent import Descent
from unlazy.flows.exponential import Exponential
from unlazy.flows.gradient_flow import GradientFlow
from unlazy.flows.linearised import Linearised
from unlazy.flows.optimisers import Adam, Constant, Cosine, Momentum, Optimiser, Plain, Schedule, StepDecay, Transform
from unlazy.flows.runge_kutta import RungeKutta
from unlazy.flows.stabilised import Stabilised

__all__ = [
    "Adam",
    "Constant",
    "Cosine",
    "Descent",
    "Driver",
    "Exponential",
    "Flow",
    "GradientFlow",
    "Linearised",
    "Momentum",
    "Observe",
    "OnlyAtEnd",
    "Optimiser",
    "Plain",
    "RungeKutta",
    "Schedule",
    "Stabilised",
    "State",
    "Status",
    "StepDecay",
    "Stepper",
    "Trajectory",
    "Transform",
    "gradient",
    "to_xarray",
    "velocity",
]
