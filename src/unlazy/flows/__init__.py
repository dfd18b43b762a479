"""Flows: how networks are trained. All of them follow θ' = -R ∇L(θ), exactly, adaptively or step by step."""

# ruff: noqa: I001  (several names are imported in one line)
from typing import TYPE_CHECKING

from unlazy._listing import offered
from unlazy.flows.checkpoints import OtherRunError as OtherRunError, read_checkpoint as read_checkpoint
from unlazy.flows.descent import Descent as Descent
from unlazy.flows.driver import Driver as Driver
from unlazy.flows.exponential import Exponential as Exponential
from unlazy.flows.gradient_flow import GradientFlow as GradientFlow
from unlazy.flows.linearised import Linearised as Linearised
from unlazy.flows.method import Flow as Flow, Method as Method
from unlazy.flows.optimisers import Adam as Adam, Momentum as Momentum, Optimiser as Optimiser, Plain as Plain
from unlazy.flows.optimisers import Transform as Transform
from unlazy.flows.recorder import OwnLoop as OwnLoop, Recorder as Recorder
from unlazy.flows.runge_kutta import RungeKutta as RungeKutta
from unlazy.flows.schedules import ByLayer as ByLayer, Constant as Constant, Cosine as Cosine
from unlazy.flows.schedules import OnStagnation as OnStagnation, Piecewise as Piecewise, Schedule as Schedule
from unlazy.flows.schedules import StepDecay as StepDecay
from unlazy.flows.stabilised import Stabilised as Stabilised
from unlazy.flows.state import Attempt as Attempt, Controller as Controller, State as State, Status as Status
from unlazy.flows.state import gradient as gradient, velocity as velocity
from unlazy.flows.trajectory import OnlyAtEnd as OnlyAtEnd, Recorded as Recorded, RunState as RunState
from unlazy.flows.trajectory import Trajectory as Trajectory, to_xarray as to_xarray
from unlazy.probes.observation import Observe as Observe

if not TYPE_CHECKING:
    __all__ = offered(__file__)
