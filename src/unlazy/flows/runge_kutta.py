"""Gradient flow, θ' = -R ∇L(θ), by an adaptive Runge-Kutta method of Diffrax."""

from __future__ import annotations

from typing import Any

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from unlazy._errors import UserError
from unlazy._types import PRNGKey, PyTree
from unlazy.data import Dataset
from unlazy.flows._base import Coordinates, Method, Precision
from unlazy.flows._state import Attempt, State, count, failure, finite, length, number, number_or_none, velocity
from unlazy.losses import Loss, Squared, as_loss
from unlazy.networks import Network, Samples, split_trained


class Memory(eqx.Module):
    """What the solver remembers between steps."""

    solver: PyTree
    controller: PyTree


class RungeKutta(Method):
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
    max_steps
        Number of steps, accepted or not, after which a run ends with `Status.step_limit`.
    step
        Constant size of all steps; if left out, the tolerances decide.
    solver
        Any Runge-Kutta method of Diffrax.
    coordinates, precision, memory, devices
        As for `Exponential`.
    """

    loss: Loss = eqx.field(default=Squared(), converter=as_loss)
    rtol: np.ndarray = eqx.field(default=1e-6, converter=number)
    atol: np.ndarray = eqx.field(default=1e-8, converter=number)
    max_steps: np.ndarray = eqx.field(default=1_000_000, converter=count)
    step: np.ndarray | None = eqx.field(default=None, converter=number_or_none)
    solver: diffrax.AbstractSolver = diffrax.Tsit5()
    coordinates: Coordinates = eqx.field(static=True, default="auto")
    precision: Precision = eqx.field(static=True, default="full")
    memory: float | None = eqx.field(static=True, default=None)
    devices: int | None = eqx.field(static=True, default=None)

    def check(self, network: Network, data: Dataset) -> None:
        """Tolerances must be positive and within reach of the precision."""
        rtol, atol, eps = float(self.rtol), float(self.atol), float(jnp.finfo(data.x.dtype).eps)
        if self.step is not None:
            if not float(self.step) > 0:
                raise UserError(f"A constant step must be positive, not {float(self.step):g}.")
            return
        if not (rtol >= 0 and atol >= 0 and np.isfinite(rtol + atol)) or rtol + atol == 0:
            raise UserError(
                f"Tolerances must be positive numbers, not rtol = {rtol:g}, atol = {atol:g}: try rtol = 1e-6."
            )
        if max(rtol, atol) < 8 * eps:
            raise UserError(
                f"rtol = {rtol:g} and atol = {atol:g} are both below the rounding of {data.x.dtype} ({eps:.1g}): "
                f"try rtol = {64 * eps:.0e} or more, or float64."
            )

    def _terms(self) -> diffrax.ODETerm:
        # Autonomous, so the solver may believe that every step starts at 0: no digits are lost to a large t.
        return diffrax.ODETerm(lambda _, y, args: velocity(y, *args))

    def _stages(self) -> int:
        tableau = getattr(self.solver, "tableau", None)
        if tableau is None:
            return 1  # Euler and its like
        return tableau.num_stages - bool(getattr(tableau, "fsal", False))

    def _controller(self, dtype: jnp.dtype) -> diffrax.PIDController:
        # Proportional and integral: steps bounded by stability then settle instead of being rejected now and again.
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
        # Flags are made arrays too, so that the state never changes its types.
        step, memory = jax.tree.map(jnp.asarray, (step, Memory(solver, control)))
        return State.initial(network, memory, step, remaining=zero, evaluations=1, check=velocity(trained, *args))

    def take_step(self, state: State, size: Array, frozen: PyTree, data: Samples) -> Attempt:
        """Make one step of the solver, and ask the controller."""
        args, terms, dtype = (frozen, data, self.loss), self._terms(), state.remaining.dtype
        zero, info, memory = jnp.zeros((), dtype), jnp.finfo(dtype), state.memory
        y, error, _, solver, _ = self.solver.step(terms, zero, size, state.trained, args, memory.solver, False)
        good = finite(y)
        if self.step is None:
            # A step over the edge of what is finite has no error estimate; call it infinitely bad.
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
        return Attempt(
            y,
            Memory(solver, control),
            size,
            keep,
            step,
            failure=failure(jnp.asarray(stuck | ~jnp.isfinite(step)), good),
            error=jnp.asarray(missed),
            evaluations=self._stages(),
        )
