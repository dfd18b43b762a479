"""Gradient flow, θ' = -R ∇L(θ), by an adaptive Runge-Kutta method of Diffrax."""

from __future__ import annotations

from typing import Any, ClassVar

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from unlazy._errors import UserError
from unlazy._types import PRNGKey, PyTree
from unlazy.data import Dataset
from unlazy.flows.method import GramMethod, count, positive_or_none
from unlazy.flows.optimisers import number
from unlazy.flows.state import Attempt, State, failure, finite, length, velocity
from unlazy.losses import Loss, Squared, as_loss
from unlazy.networks import Network, Samples, split_trained


class Memory(eqx.Module):
    """What the solver remembers between steps."""

    solver: PyTree
    controller: PyTree


class RungeKutta(GramMethod):
    """Integrates the flow of any network and loss with error control on its parameters.

    Each step's estimated error stays below ``atol + rtol |θ|`` (root mean square over all trained parameters). Steps
    end exactly on the save times, so nothing is interpolated.

    In Gram coordinates the tolerance applies to the coefficients B. With kinks (ReLU) neurons come to slide along
    h_j(x) = 0, where no error control on single parameters can take long steps: such a run is right but slow, and
    `GradientFlow` chooses other methods for it.

    Parameters
    ----------
    loss
        The loss to descend.
    rtol, atol
        Relative and absolute tolerance.
    step
        Constant size of all steps; chosen by the tolerances if omitted.
    solver
        Any Runge-Kutta method of Diffrax.
    max_steps, coordinates, precision, memory, devices
        As for `Exponential`.
    """

    automatic: ClassVar[bool] = True
    loss: Loss = eqx.field(default=Squared(), converter=as_loss)
    rtol: np.ndarray = eqx.field(default=1e-6, converter=number)
    atol: np.ndarray = eqx.field(default=1e-8, converter=number)
    max_steps: np.ndarray = eqx.field(default=1_000_000, converter=count)
    step: np.ndarray | None = eqx.field(default=None, converter=positive_or_none)
    solver: diffrax.AbstractSolver = diffrax.Tsit5()

    def check(self, network: Network, data: Dataset) -> None:
        """Require positive tolerances above rounding error, unless steps are constant."""
        rtol, atol, eps = float(self.rtol), float(self.atol), float(jnp.finfo(data.x.dtype).eps)
        if self.step is None and not (rtol >= 0 and atol >= 0 and 0 < rtol + atol < np.inf):
            raise UserError(f"rtol = {rtol:g} and atol = {atol:g} must be positive numbers: try rtol = 1e-6.")
        if self.step is None and max(rtol, atol) < 8 * eps:
            raise UserError(
                f"rtol = {rtol:g}, atol = {atol:g} are below rounding of {data.x.dtype}: try {64 * eps:.0e} or float64."
            )

    def _terms(self) -> diffrax.ODETerm:
        # The flow is autonomous, so every step may start at time 0: no digits are lost to a large t.
        return diffrax.ODETerm(lambda _, y, args: velocity(y, *args))

    def _controller(self, dtype: jnp.dtype) -> diffrax.PIDController:
        # Proportional and integral: steps limited by stability then converge instead of being rejected repeatedly.
        rtol, atol = (jnp.asarray(tol, dtype) for tol in (self.rtol, self.atol))
        return diffrax.PIDController(rtol=rtol, atol=atol, pcoeff=0.3, icoeff=0.4)

    def init(self, network: Network, data: Samples, key: PRNGKey) -> State:
        """Choose the size of the first step by the velocity at the start."""
        trained, frozen = split_trained(network)
        args, terms, zero = (frozen, data, self.loss), self._terms(), jnp.zeros((), data.dtype)
        step, control = jnp.asarray(0.0 if self.step is None else self.step, zero.dtype), None
        if self.step is None:
            order, unit = self.solver.error_order(terms), jnp.ones_like(zero)
            step, control = self._controller(zero.dtype).init(
                terms, zero, unit, trained, None, args, self.solver.func, order
            )
        solver = self.solver.init(terms, zero, step, trained, args)
        # Flags become arrays too, so that the types in the state never change.
        step, memory = jax.tree.map(jnp.asarray, (step, Memory(solver, control)))
        return State.initial(network, memory, step, remaining=zero, evaluations=1, check=velocity(trained, *args))

    def take_step(self, state: State, size: Array, frozen: PyTree, data: Samples) -> Attempt:
        """Make one step of the solver, which the controller accepts or rejects."""
        args, terms, dtype = (frozen, data, self.loss), self._terms(), state.remaining.dtype
        zero, info, memory = jnp.zeros((), dtype), jnp.finfo(dtype), state.memory
        y, error, _, solver, _ = self.solver.step(terms, zero, size, state.trained, args, memory.solver, False)
        good = finite(y)
        if self.step is None:
            # A step that overflows has no error estimate: it counts as infinitely bad.
            error = jax.tree.map(lambda leaf: jnp.where(jnp.isfinite(leaf), leaf, jnp.inf), error)
            order: Any = self.solver.error_order(terms)
            keep, t0, t1, _, control, _ = self._controller(dtype).adapt_step_size(
                zero, size, state.trained, y, args, error, order, memory.controller
            )
            keep, step = keep & good, jnp.where(good, t1 - t0, size / 10)
            missed = length(error) / jnp.maximum(length(y), info.tiny)
            change = length(jax.tree.map(jnp.subtract, y, state.trained))
            stuck = ~keep & (change <= 4 * info.eps * length(state.trained))
        else:
            keep, control, step, stuck, missed = good, None, state.step, ~good, jnp.nan
        ended = failure(jnp.asarray(stuck | ~jnp.isfinite(step)), good)
        tableau = getattr(self.solver, "tableau", None)  # Euler has none
        stages = 1 if tableau is None else tableau.num_stages - bool(getattr(tableau, "fsal", False))
        memory = Memory(solver, control)
        return Attempt(y, memory, size, keep, step, failure=ended, error=jnp.asarray(missed), evaluations=stages)
