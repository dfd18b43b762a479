"""Gradient flow in steps that stiffness does not limit: the residual is solved exactly, features set the step."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from unlazy._errors import UserError
from unlazy._types import Outputs, PRNGKey, PyTree, Scalar
from unlazy.data import Dataset
from unlazy.flows._base import Flow
from unlazy.flows._decay import Decay, response
from unlazy.flows._state import State, Status, code, count, finite, number, number_or_none
from unlazy.losses import Loss, Squared
from unlazy.networks import Coordinates, Network, TwoLayer, divide, prepare

_GROWTH, _SHRINK, _SAFETY = 5.0, 0.2, 0.9


class Memory(eqx.Module):
    """The size of the next step, were there no save time in the way, and the scale of the outputs."""

    step: Scalar
    scale: Scalar


class Exponential(Flow):
    """Exponential midpoint rule for squared loss: r' = -Θ Ω r is solved exactly with Θ frozen at the middle of a step.

    Along the flow the residual r = f - y obeys r' = -Θ(t) Ω r, where dL/df = Ω r. A half step with the kernel at its
    start gives the middle of the step; then θ ← θ - R J^T Ω ∫ r dt with Jacobian and kernel from there. However stiff Θ
    is, the step is limited only by how fast features, and with them Θ, move: as they settle, steps grow without bound.

    Of each step, what the frozen kernel predicts for the outputs (on training and test inputs) is compared with what
    they are; the root mean square of the difference stays below ``tolerance`` times that of the targets. The rule is of
    second order. It needs an eigendecomposition of an n k x n k matrix twice a step, and a smooth activation: gates
    that flip inside a long step are what it cannot see.
    """

    loss: Loss = Squared()
    tolerance: np.ndarray = eqx.field(default=1e-4, converter=number)
    max_steps: np.ndarray = eqx.field(default=100_000, converter=count)
    step: np.ndarray | None = eqx.field(default=None, converter=number_or_none)
    coordinates: Coordinates = eqx.field(static=True, default="weights")

    def check(self, network: Network, data: Dataset) -> None:
        """Squared loss, a smooth activation and a tolerance within reach."""
        if not isinstance(self.loss, Squared):
            raise UserError(
                f"The exponential flow solves squared loss only, not {type(self.loss).__name__}: use GradientFlow."
            )
        if isinstance(network, TwoLayer) and network.activation.kinks:
            raise UserError(
                f"{type(network.activation).__name__} has kinks, and gates that flip inside a long step go unseen: "
                "use Descent, or a smooth activation such as Gelu."
            )
        eps = float(jnp.finfo(data.x.dtype).eps)
        if self.step is None and not float(self.tolerance) >= 64 * eps:
            raise UserError(
                f"A tolerance of {float(self.tolerance):g} is not above rounding: try 1e-4, or {64 * eps:.0e} at least."
            )
        if self.step is not None and not float(self.step) > 0:
            raise UserError(f"A constant step must be positive, not {float(self.step):g}.")

    def prepare(self, network: Network, data: Dataset) -> tuple[Network, Dataset]:
        """Train the network itself, in the coordinates chosen."""
        return prepare(network, data, self.coordinates)

    def plan(self, times: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Count time itself."""
        return times, times

    def begin(self, network: Network, data: Dataset, *, key: PRNGKey) -> State:
        """Choose a first step well below the fastest time scale."""
        trained = divide(network)[0]
        f = network(data.x)
        largest = Decay(network, data, self.loss).rates[-1]
        first = 0.1 / jnp.maximum(largest, jnp.finfo(f.dtype).tiny) if self.step is None else self.step
        targets, outputs = (jnp.sqrt(jnp.mean(jnp.square(values))) for values in (data.y, f))
        scale = jnp.where(targets > 0, targets, outputs)  # targets that are all zero have no size of their own
        memory = Memory(jnp.asarray(first, f.dtype), scale)
        zero, none = jnp.zeros((), f.dtype), jnp.zeros((), jnp.int32)
        good = finite(trained, f, largest)
        return State(trained, memory, zero, none, none, jnp.where(good, 0, code(Status.not_finite)))

    def advance(self, state: State, frozen: PyTree, data: Dataset, budget: Int[Array, ""]) -> State:
        """Step until the time left is used up."""
        last = state.steps + state.rejected + budget

        def going(s: State) -> Array:
            return (s.left > 0) & (s.code == 0) & (s.steps + s.rejected < last)

        def body(s: State) -> State:
            size = jnp.minimum(s.memory.step, s.left)
            clipped = size < s.memory.step
            here = eqx.combine(s.trained, frozen)
            residual, start = here(data.x) - data.y, Decay(here, data, self.loss)
            half = _moved(s.trained, here, data, start.signal(residual, size / 2))
            middle = eqx.combine(half, frozen)
            signal = Decay(middle, data, self.loss).signal(residual, size)
            moved = _moved(s.trained, middle, data, signal)
            error = _defect(here, middle, eqx.combine(moved, frozen), signal, data)
            good = finite(moved, error)
            if self.step is None:
                ratio = error / (jnp.asarray(self.tolerance, error.dtype) * s.memory.scale)
                keep = good & (ratio <= 1)
                growth = _SAFETY * jnp.maximum(ratio, jnp.finfo(ratio.dtype).tiny) ** (-1 / 3)
                proposed = size * jnp.where(good, jnp.clip(growth, _SHRINK, _GROWTH), _SHRINK)
                step = jnp.where(keep & clipped, jnp.maximum(proposed, s.memory.step), proposed)
            else:
                keep, step = good, s.memory.step
            # Far below the fastest time scale nothing is gained any more: what is left is rounding, or no number.
            stuck = ~keep & (size * start.rates[-1] < 1e-6)
            problem = jnp.where(good, code(Status.step_too_small), code(Status.not_finite))
            left = jnp.where(keep, jnp.where(clipped, 0, s.left - size), s.left)
            limit = (s.steps + s.rejected + 1 >= jnp.asarray(self.max_steps)) & (left > 0)
            trouble = jnp.where(stuck, problem, jnp.where(limit, code(Status.step_limit), 0))
            trained = jax.tree.map(lambda new, old: jnp.where(keep, new, old), moved, s.trained)
            memory = Memory(step, s.memory.scale)
            return State(trained, memory, left, s.steps + keep, s.rejected + ~keep, trouble.astype(s.code.dtype))

        return jax.lax.while_loop(going, body, state)


def _moved(trained: PyTree, network: Network, data: Dataset, signal: Outputs) -> PyTree:
    return jax.tree.map(jnp.add, trained, response(network, data, signal))


def _defect(here: Network, middle: Network, there: Network, signal: Outputs, data: Dataset) -> Float[Array, ""]:
    """Root mean square, over all inputs, of what the kernel at the middle did not foresee in the outputs."""
    misses = []
    for x in [data.x] if data.x_test is None else [data.x, data.x_test]:
        kernel = middle.tangent_kernel(x, data.x).reshape(-1, signal.size)
        misses.append((there(x) - here(x)).reshape(-1) + kernel @ signal.reshape(-1))
    return jnp.sqrt(jnp.mean(jnp.square(jnp.concatenate(misses))))
