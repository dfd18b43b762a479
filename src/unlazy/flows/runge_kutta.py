"""Gradient flow, θ' = -R ∇L(θ), by an adaptive Runge-Kutta method of Diffrax."""

from __future__ import annotations

from typing import Any

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from unlazy._errors import UserError
from unlazy._types import PRNGKey, PyTree
from unlazy.data import Dataset
from unlazy.flows._attempt import Attempt, either, length, settled
from unlazy.flows._coordinates import Coordinated
from unlazy.flows._state import State, Status, code, count, finite, number, number_or_none, velocity
from unlazy.losses import Loss, Squared, as_loss
from unlazy.networks import Network, Samples, split_trained


class Memory(eqx.Module):
    """What the solver remembers between steps."""

    step: Any  # the size of the next step, were there no save time in the way
    solver: PyTree
    controller: PyTree


class RungeKutta(Coordinated):
    """Integrates the flow of any network and loss with error control on its parameters.

    Each step's estimated error stays below ``atol + rtol |θ|`` (root mean square over all trained parameters). Steps
    end exactly on the times asked for, so nothing is interpolated. ``solver`` is any Runge-Kutta method of Diffrax;
    with ``step`` it takes constant steps of that size instead of controlling the error.

    In Gram coordinates the tolerance applies to the coefficients B. With kinks (ReLU) neurons come to slide along
    h_j(x) = 0, where no error control on single parameters can take long steps: such a run is right but slow, and
    `GradientFlow` chooses other methods for it.
    """

    loss: Loss = eqx.field(default=Squared(), converter=as_loss)
    rtol: np.ndarray = eqx.field(default=1e-6, converter=number)
    atol: np.ndarray = eqx.field(default=1e-8, converter=number)
    max_steps: np.ndarray = eqx.field(default=1_000_000, converter=count)
    step: np.ndarray | None = eqx.field(default=None, converter=number_or_none)
    solver: diffrax.AbstractSolver = diffrax.Tsit5()

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

    def plan(self, times: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Count time itself."""
        return times, times

    def _terms(self) -> diffrax.ODETerm:
        # Autonomous, so the solver may believe that every step starts at 0: no digits are lost to a large t.
        return diffrax.ODETerm(lambda _, y, args: velocity(y, *args))

    def _stages(self) -> int:
        tableau = getattr(self.solver, "tableau", None)
        if tableau is None:
            return 1  # Euler and its like
        return tableau.num_stages - bool(getattr(tableau, "fsal", False))

    def _order(self, terms: diffrax.ODETerm) -> Any:
        return self.solver.error_order(terms)

    def _controller(self, dtype: jnp.dtype) -> diffrax.PIDController:
        # Proportional and integral: steps bounded by stability then settle instead of being rejected now and again.
        rtol, atol = (jnp.asarray(tol, dtype) for tol in (self.rtol, self.atol))
        return diffrax.PIDController(rtol=rtol, atol=atol, pcoeff=0.3, icoeff=0.4)

    def begin(self, network: Network, data: Samples, *, key: PRNGKey) -> State:
        """Look at the first velocity: a NaN is noticed here, and the size of the first step chosen."""
        trained, frozen = split_trained(network)
        args, terms, zero = (frozen, data, self.loss), self._terms(), jnp.zeros((), data.dtype)
        if self.step is None:
            order = self._order(terms)
            unit = jnp.ones_like(zero)
            end, control = self._controller(zero.dtype).init(
                terms, zero, unit, trained, None, args, self.solver.func, order
            )
        else:
            end, control = jnp.asarray(self.step, zero.dtype), None
        solver = self.solver.init(terms, zero, end, trained, args)
        good = finite(trained, velocity(trained, *args))
        count = jnp.zeros((), jnp.int32)
        memory = jax.tree.map(
            jnp.asarray, Memory(end, solver, control)
        )  # flags too, so that the state never changes kind
        status = jnp.where(good, 0, code(Status.not_finite))
        return State(trained, memory, zero, count, count, status, jnp.ones_like(count), zero)

    def advance(self, state: State, frozen: PyTree, data: Samples, budget: Int[Array, ""]) -> State:
        """Step until the time left is used up."""
        args, terms, dtype = (frozen, data, self.loss), self._terms(), state.left.dtype
        controller = self._controller(dtype)
        zero, eps = jnp.zeros((), dtype), jnp.finfo(dtype).eps
        last = state.steps + state.rejected + budget

        def going(s: State) -> Array:
            return (s.left > 0) & (s.code == 0) & (s.steps + s.rejected < last)

        def body(s: State) -> State:
            size = jnp.minimum(s.memory.step, s.left)
            clipped = size < s.memory.step
            y, error, _, solver, _ = self.solver.step(terms, zero, size, s.trained, args, s.memory.solver, False)
            good = finite(y)
            if self.step is None:
                # A step over the edge of what is finite has no error estimate; call it infinitely bad.
                error = jax.tree.map(lambda leaf: jnp.where(jnp.isfinite(leaf), leaf, jnp.inf), error)
                keep, t0, t1, _, control, _ = controller.adapt_step_size(
                    zero, size, s.trained, y, args, error, self._order(terms), s.memory.controller
                )
                keep = keep & good
                proposed = jnp.where(good, t1 - t0, size / 10)
                step = jnp.where(keep & clipped, jnp.maximum(proposed, s.memory.step), proposed)
                missed = length(error) / jnp.maximum(length(y), jnp.finfo(dtype).tiny)
                stuck = ~keep & (length(jax.tree.map(jnp.subtract, y, s.trained)) <= 4 * eps * length(s.trained))
            else:
                keep, control, step, stuck, missed = good, None, s.memory.step, ~good, jnp.nan
            keep, stuck = jnp.asarray(keep), jnp.asarray(stuck | ~jnp.isfinite(step))
            memory = Memory(step, either(keep, solver, s.memory.solver), either(keep, control, s.memory.controller))
            attempt = Attempt(y, size, keep, good, stuck, jnp.asarray(missed), self._stages())
            return settled(s, attempt, memory, self.max_steps)

        return jax.lax.while_loop(going, body, state)
