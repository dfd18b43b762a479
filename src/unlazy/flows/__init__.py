"""Flows: how networks are trained. All of them follow θ' = -R ∇L(θ), exactly, adaptively or step by step."""

from unlazy.flows.checkpoints import OtherRunError, read_checkpoint
from unlazy.flows.descent import Descent
from unlazy.flows.driver import Driver
from unlazy.flows.exponential import Exponential
from unlazy.flows.gradient_flow import GradientFlow
from unlazy.flows.linearised import Linearised
from unlazy.flows.method import Flow, Method
from unlazy.flows.optimisers import Adam, Momentum, Optimiser, Plain, Transform
from unlazy.flows.recorder import OwnLoop, Recorder
from unlazy.flows.runge_kutta import RungeKutta
from unlazy.flows.schedules import ByLayer, Constant, Cosine, OnStagnation, Piecewise, Schedule, StepDecay
from unlazy.flows.stabilised import Stabilised
from unlazy.flows.state import Attempt, Controller, State, Status, gradient, velocity
from unlazy.flows.trajectory import OnlyAtEnd, Recorded, RunState, Trajectory, to_xarray
from unlazy.probes.observation import Observe

__all__ = [
    "Adam",
    "Attempt",
    "ByLayer",
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
    "OnStagnation",
    "OnlyAtEnd",
    "Optimiser",
    "OtherRunError",
    "OwnLoop",
    "Piecewise",
    "Plain",
    "Recorded",
    "Recorder",
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
