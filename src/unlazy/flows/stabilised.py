"""Gradient flow in long explicit steps: Chebyshev stages carry it through stiffness, outputs set the step."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from unlazy._types import Outputs, PRNGKey, PyTree, Scalar
from unlazy.data import Dataset
from unlazy.flows._coordinates import Coordinated
from unlazy.flows._outputs import check_tolerance, output_scale, watched
from unlazy.flows._state import State, Status, code, count, finite, number, number_or_none, velocity
from unlazy.losses import Loss, Squared
from unlazy.networks import Network, divide

_FEWEST, _MOST = 2, 60  # stages
_DAMPING = 2 / 13
_REACH = 2 / 3 * (1 - 2 / 15 * _DAMPING)  # s stages are stable for h λ up to this times s² - 1
_GROWTH, _SHRINK, _SAFETY, _POWER, _PAST = 2.0, 0.3, 0.8, 0.3, 0.15
_MARGIN = 1.2  # a power iteration sees the largest eigenvalue from below, and it may grow within the step
_ITERATIONS = 30  # of them at the start; then one a step


def coefficients(stages: int) -> np.ndarray:
    """μ_j, ν_j, μ̃_j and γ̃_j of stages j = 1 ... s (Sommeijer, Shampine and Verwer 1998), in rows 1 to s."""
    at = 1 + _DAMPING / stages**2  # w_0
    value, slope, bend = (np.zeros(stages + 1) for _ in range(3))  # T_j, T_j' and T_j'' there
    value[:2], slope[1] = (1, at), 1
    for j in range(2, stages + 1):
        value[j] = 2 * at * value[j - 1] - value[j - 2]
        slope[j] = 2 * at * slope[j - 1] - slope[j - 2] + 2 * value[j - 1]
        bend[j] = 2 * at * bend[j - 1] - bend[j - 2] + 4 * slope[j - 1]
    stretch = slope[-1] / bend[-1]  # w_1
    b = np.concatenate([[bend[2] / slope[2] ** 2] * 2, bend[2:] / slope[2:] ** 2])
    rows = np.zeros((stages + 1, 4))
    rows[1, 2] = stretch * b[1]
    rows[2:, 0] = 2 * at * b[2:] / b[1:-1]
    rows[2:, 1] = -b[2:] / b[:-2]
    rows[2:, 2] = 2 * stretch * b[2:] / b[1:-1]
    rows[2:, 3] = -(1 - b[1:-1] * value[1:-1]) * rows[2:, 2]
    return rows


# All of them, so that the number of stages may change in compiled code; made in 64 bits, as recurrences lose digits.
_TABLE = np.stack(
    [np.pad(coefficients(max(s, _FEWEST)), ((0, _MOST - max(s, _FEWEST)), (0, 0))) for s in range(_MOST + 1)]
)


class Memory(eqx.Module):
    """What is known where a step starts, and how it should be made."""

    step: Scalar  # its size, were there no save time in the way
    ratio: Scalar  # of the last error to the tolerance
    scale: Scalar  # of the outputs
    outputs: Float[Array, "p *k"]
    drift: Float[Array, "p *k"]  # f' = J θ'
    velocity: PyTree  # θ' = -R ∇L
    mode: Float[Array, "n *k"]  # the fastest mode of the residual, as far as it is known
    rate: Scalar  # ... and how fast it decays


class Stabilised(Coordinated):
    """Runge-Kutta-Chebyshev method of second order, for any network and loss, with error control on outputs only.

    Along the flow dL/df decays at rates up to λ, the largest eigenvalue of Ω^½ Θ Ω^½ with Ω the Hessian of the loss by
    the outputs. A step h needs about sqrt(1.5 h λ) stages, one gradient each, where h λ / 2 steps of Euler's would be
    needed. As features grow λ does, so it is followed by one power iteration a step, from where the last one ended.

    The error of a step is estimated in the outputs, f_0 - f_1 + h (f_0' + f_1') / 2 up to a factor, on the training
    inputs and up to 64 test inputs. Its root mean square stays below ``tolerance`` times that of the targets. Nothing
    is asked of single neurons, which may sit on a kink and chatter.
    """

    loss: Loss = Squared()
    tolerance: np.ndarray = eqx.field(default=1e-4, converter=number)
    max_steps: np.ndarray = eqx.field(default=100_000, converter=count)
    step: np.ndarray | None = eqx.field(default=None, converter=number_or_none)

    def check(self, network: Network, data: Dataset) -> None:
        """A tolerance within reach, or a positive step."""
        check_tolerance(self.tolerance, self.step, data)

    def plan(self, times: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Count time itself."""
        return times, times

    def begin(self, network: Network, data: Dataset, *, key: PRNGKey) -> State:
        """Find the fastest time scale, and choose a first step well below it."""
        trained, frozen = divide(network)
        x = watched(data)
        speed, outputs = velocity(trained, frozen, data, self.loss), network(x)
        f = outputs[: data.n]
        zero, none = jnp.zeros((), f.dtype), jnp.zeros((), jnp.int32)
        mode = jax.random.normal(jax.random.key(0), f.shape, f.dtype)  # any will do that has something of all modes
        mode, rate = jax.lax.fori_loop(
            0, _ITERATIONS, lambda _, found: _fastest(network, f, data, self.loss, found[0]), (mode, zero)
        )
        first = 0.1 / jnp.maximum(rate, jnp.finfo(f.dtype).tiny) if self.step is None else self.step
        memory = Memory(
            step=jnp.asarray(first, f.dtype),
            ratio=jnp.ones_like(zero),
            scale=output_scale(f, data),
            outputs=outputs,
            drift=network.push(x, speed),
            velocity=speed,
            mode=mode,
            rate=rate,
        )
        status = jnp.where(finite(trained, memory), 0, code(Status.not_finite))
        return State(trained, memory, zero, none, none, status, jnp.asarray(1 + 2 * _ITERATIONS, jnp.int32), zero)

    def advance(self, state: State, frozen: PyTree, data: Dataset, budget: Int[Array, ""]) -> State:
        """Step until the time left is used up."""
        last = state.steps + state.rejected + budget
        x, info = watched(data), jnp.finfo(state.left.dtype)
        farthest = _REACH * (_MOST**2 - 1)

        def going(s: State) -> Array:
            return (s.left > 0) & (s.code == 0) & (s.steps + s.rejected < last)

        def body(s: State) -> State:
            m, here = s.memory, eqx.combine(s.trained, frozen)
            mode, rate = _fastest(here, m.outputs[: data.n], data, self.loss, m.mode)
            fast = jnp.maximum(_MARGIN * rate, info.tiny)
            planned = jnp.minimum(m.step, farthest / fast)
            size = jnp.minimum(planned, s.left)
            clipped = size < planned
            stages = jnp.clip(jnp.ceil(jnp.sqrt(1 + fast * size / _REACH)), _FEWEST, _MOST).astype(jnp.int32)
            change = _chebyshev(s.trained, m.velocity, frozen, data, self.loss, size, stages)
            moved = jax.tree.map(jnp.add, s.trained, change)
            there = eqx.combine(moved, frozen)
            speed, outputs = velocity(moved, frozen, data, self.loss), there(x)
            drift = there.push(x, speed)
            miss = 0.8 * (m.outputs - outputs) + 0.4 * size * (m.drift + drift)
            error = jnp.sqrt(jnp.mean(jnp.square(miss))) / m.scale
            good = finite(moved, speed, error)
            if self.step is None:
                ratio = jnp.maximum(error / jnp.asarray(self.tolerance, error.dtype), 1e-6)
                keep = good & (ratio <= 1)
                growth = _SAFETY * ratio**-_POWER * jnp.where(keep, m.ratio**_PAST, 1.0)
                proposed = size * jnp.where(good, jnp.clip(growth, _SHRINK, _GROWTH), _SHRINK)
                step = jnp.where(keep & clipped, jnp.maximum(proposed, planned), proposed)
            else:
                keep, step, ratio = good, m.step, m.ratio
            # Far below the fastest time scale nothing is gained any more: what is left is rounding, or no number.
            stuck = ~keep & (size * fast < 1e-6)
            problem = jnp.where(good, code(Status.step_too_small), code(Status.not_finite))
            left = jnp.where(keep, jnp.where(clipped | (planned >= s.left), 0, s.left - size), s.left)
            spent = (s.steps + s.rejected + 1 >= jnp.asarray(self.max_steps)) & (left > 0)
            trouble = jnp.where(stuck, problem, jnp.where(spent, code(Status.step_limit), 0))

            def chosen(new: PyTree, old: PyTree) -> PyTree:
                return jax.tree.map(lambda a, b: jnp.where(keep, a, b), new, old)

            memory = Memory(
                step,
                jnp.where(keep, ratio, m.ratio),
                m.scale,
                *chosen((outputs, drift, speed), (m.outputs, m.drift, m.velocity)),
                mode=mode,
                rate=rate,
            )
            return State(
                chosen(moved, s.trained),
                memory,
                left,
                s.steps + keep,
                s.rejected + ~keep,
                trouble.astype(s.code.dtype),
                s.evaluations + stages + 3,  # the estimate and the power iteration cost three more
                s.error + jnp.where(keep, error, 0),
            )

        return jax.lax.while_loop(going, body, state)


def _fastest(network: Network, f: Outputs, data: Dataset, loss: Loss, mode: Outputs) -> tuple[Outputs, Scalar]:
    """One power iteration u ← ΘΩu, and |ΘΩu| / |u| in the norm of Ω: at most the largest eigenvalue of Ω^½ΘΩ^½."""

    def bent(u: Outputs) -> Outputs:
        return jax.jvp(lambda g: loss.slope(g, data.y, data.weight), (f,), (u,))[1]

    tiny, signal = jnp.finfo(f.dtype).tiny, bent(mode)
    pushed = network.push(data.x, network.pull(data.x, signal))
    length = jnp.linalg.norm(pushed.reshape(-1))
    unit = jnp.where(length > 0, pushed / jnp.maximum(length, tiny), mode)
    stretch = jnp.maximum(jnp.sum(unit * bent(unit)), 0) / jnp.maximum(jnp.sum(mode * signal), tiny)
    return unit, length * jnp.sqrt(stretch)


def _chebyshev(
    trained: PyTree, speed: PyTree, frozen: PyTree, data: Dataset, loss: Loss, size: Scalar, stages: Int[Array, ""]
) -> PyTree:
    """The change of the parameters in one step; Y_j - Y_0 = μ_j (..) + ν_j (..) + h (μ̃_j F_{j-1} + γ̃_j F_0)."""
    rows = jnp.asarray(_TABLE, size.dtype)[stages]

    def stage(j: Int[Array, ""], latest: tuple[PyTree, PyTree]) -> tuple[PyTree, PyTree]:
        older, newer = latest
        slope = velocity(jax.tree.map(jnp.add, trained, newer), frozen, data, loss)
        mu, nu, now, start = rows[j, 0], rows[j, 1], size * rows[j, 2], size * rows[j, 3]
        newest = jax.tree.map(
            lambda new, old, here, begun: mu * new + nu * old + now * here + start * begun, newer, older, slope, speed
        )
        return newer, newest

    nothing = jax.tree.map(jnp.zeros_like, trained)
    first = jax.tree.map(lambda leaf: size * rows[1, 2] * leaf, speed)
    return jax.lax.fori_loop(2, stages + 1, stage, (nothing, first))[1]
