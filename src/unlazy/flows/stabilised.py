"""Gradient flow in long explicit steps: Chebyshev stages carry it through stiffness, outputs set the step."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from unlazy._types import Outputs, PRNGKey, PyTree, Scalar
from unlazy.flows.method import OutputControlled
from unlazy.flows.state import JUDGED_TEST_INPUTS as JUDGED
from unlazy.flows.state import Attempt, Controller, State, failure, finite, length, output_scale, velocity
from unlazy.losses import Loss
from unlazy.networks import Network, Samples, split_trained
from unlazy.probes.layer_sizes import root_mean_square

MIN_STAGES = 3
MIN_STAGES_KINKED = 8  # of a step of full length at kinks, where the error is in proportion to h/s whatever s is
MAX_STAGES = 100  # what rounding adds stays below 1e-5 in float32 up to here
DAMPING = 2 / 13
REACH = 2 / 3 * (1 - 2 / 15 * DAMPING)  # s stages are stable for h λ up to this times s² - 1
CONTROLLER = Controller(power=1 / 3, safety=0.8, least=0.2, most=3.0)
RATE_MARGIN = 1.2  # a power iteration sees the largest eigenvalue from below, and it may grow within the step
MAX_ITERATIONS = 20  # of the power method at the start, which ends earlier
RATE_TOLERANCE = 0.01  # once an iteration changes the rate by less than this share; later there is one per step
ITERATION_PERIOD = 8  # until that is so again, and one in so many steps where the rate has converged, or where
RATE_GROWTH = 2  # times the rate would still be stable with the fewest stages
ERROR_SHARE = 0.05  # of the last error in a power iteration
TRUSTED_CUT = 0.5  # a step cut to less than this share of what the tolerance allows needs no error estimate


Slope = Callable[[PyTree], PyTree]  # θ ↦ -R ∇L(θ)


class Memory(eqx.Module):
    """What is known at the start of a step."""

    scale: Scalar  # of the outputs
    velocity: PyTree  # θ' = -R ∇L
    mode: Float[Array, "n *k"]  # the fastest mode of the residual, as far as it is known
    rate: Scalar  # ... and how fast it decays
    converged: Bool[Array, ""]  # the last power iteration found the rate that the one before it did
    error: Float[Array, "n *k"]  # of the last step in the training outputs, accepted or not


class Stabilised(OutputControlled):
    """Second-order Runge-Kutta-Chebyshev method, for any loss and network, with error control on the outputs only.

    Along the flow the residual decays at rates up to λ, the largest eigenvalue of Ω^½ Θ Ω^½ with Ω = d²L/df². A step of
    Euler's method covers at most the time 2/λ; s gradients in a Chebyshev polynomial cover 0.65 (s² - 1)/λ. Each step
    takes as many stages as its size requires, up to 100, and λ is tracked by power iteration. A smooth network gets the
    stages of Sommeijer, Shampine and Verwer (1998). They count the velocity at the start of a step -2 times; with kinks
    that velocity depends by chance on which gates are open, and stages with positive weights are used instead.

    The error of a step is estimated in the outputs, on training inputs and up to 64 test inputs. Its root mean square
    stays below ``tolerance`` times that of the targets. The error of single neurons is not controlled: with ReLU they
    slide along h_j(x) = 0, and their gates switch from step to step. The effect on the outputs falls as h / √m, so that
    with kinks the cost grows in proportion to 1 / ``tolerance``; 1e-2 suits most purposes.

    Parameters
    ----------
    loss
        The loss to descend.
    step
        Constant size of all steps, or what 100 stages allow if that is less; if omitted, the tolerance decides.
    tolerance, max_steps, coordinates, precision, memory, devices
        As for `Exponential`.
    """

    automatic: ClassVar[bool] = True

    def init(self, network: Network, data: Samples, key: PRNGKey) -> State:
        """Find the fastest time scale, and choose a first step well below it."""
        trained, frozen = split_trained(network)
        f, speed = network(data.x), velocity(trained, frozen, data, self.loss)
        mode = jax.random.normal(jax.random.key(0), f.shape, f.dtype)  # any will do that has something of all modes
        mode, rate, iterations = _converged_rate(network, data, self.loss, mode)
        first = 0.1 / jnp.maximum(rate, jnp.finfo(f.dtype).tiny) if self.step is None else self.step
        memory = Memory(output_scale(f, data), speed, mode, rate, jnp.asarray(True), jnp.zeros_like(f))
        step, evaluations = jnp.asarray(first, f.dtype), 1 + 2 * iterations
        return State.initial(network, memory, step, evaluations=evaluations, check=(step, memory))

    def take_step(self, state: State, size: Array, frozen: PyTree, data: Samples) -> Attempt:
        """Follow the fastest rate, and take as many stages as it asks for."""
        m, here, info = state.memory, eqx.combine(state.trained, frozen), jnp.finfo(size.dtype)
        slope_at: Slope = functools.partial(velocity, frozen=frozen, data=data, loss=self.loss)
        shortest, longest = (REACH * (stages**2 - 1) for stages in (MIN_STAGES, MAX_STAGES))
        due = (state.steps + state.rejected) % ITERATION_PERIOD == 0
        iterate = due | (~m.converged & (RATE_GROWTH * RATE_MARGIN * m.rate * size > shortest))
        mode, rate = jax.lax.cond(
            iterate,
            lambda: _power_iteration(here, data, self.loss, _with_error(m.mode, m.error)),
            lambda: (m.mode, m.rate),
        )
        fast = jnp.maximum(RATE_MARGIN * rate, info.tiny)
        uncut, size = (jnp.minimum(one, longest / fast) for one in (state.step, size))
        stages = jnp.ceil(jnp.sqrt(1 + size * fast / REACH))
        # A step that a save time cuts short needs fewer of the stages that kinks ask for.
        kinked = frozen.has_kinks
        fewest = jnp.maximum(jnp.ceil(MIN_STAGES_KINKED * size / uncut), MIN_STAGES) if kinked else MIN_STAGES
        stages = jnp.clip(stages, fewest, MAX_STAGES).astype(jnp.int32)
        rows = jnp.asarray(_table(kinked), size.dtype)[stages]
        change, missed = _chebyshev(slope_at, rows, stages, size, state.trained, m.velocity)
        moved = jax.tree.map(jnp.add, state.trained, change)
        speed = slope_at(moved)
        trusted = (size < TRUSTED_CUT * uncut) & ~due & (self.step is None)

        def estimate() -> tuple[Outputs, Scalar]:  # the error of the training outputs, and its relative size on all
            outputs = here.push(data.judged(JUDGED), missed)
            return outputs[: data.n], root_mean_square(outputs) / m.scale

        last_error, error = jax.lax.cond(
            trusted, lambda: (m.error, jnp.asarray(self.tolerance, size.dtype) * (size / uncut) ** 3), estimate
        )
        good = finite(moved, speed, error)
        if self.step is None:
            keep, step, _ = CONTROLLER(size, error, self.tolerance, good)
            # Where the flow has come to rest every step is lost in rounding, so only short ones say something.
            stuck = jax.lax.cond(
                ~keep & (size * fast < 1e-6),
                lambda: length(change) <= 4 * info.eps * length(state.trained),
                lambda: jnp.zeros((), bool),
            )
        else:
            keep, step, stuck = good, state.step, ~good
        converged = jnp.where(iterate, jnp.abs(rate - m.rate) <= RATE_TOLERANCE * rate, m.converged)
        accepted = Memory(m.scale, speed, mode, rate, converged, last_error)
        last_error = jnp.where(good, last_error, 0)
        rejected = Memory(m.scale, m.velocity, mode, rate, jnp.zeros_like(converged), last_error)
        cost = stages + ~trusted + 2 * iterate  # the estimate costs one more and a power iteration two
        return Attempt(moved, accepted, size, keep, step, uncut, rejected, failure(stuck, good), error, cost)


def _converged_rate(network: Network, data: Samples, loss: Loss, mode: Outputs) -> tuple[Outputs, Scalar, Array]:
    """The fastest mode and its rate, by power iteration from scratch, and how many iterations that took."""

    def changing(found: tuple[Outputs, Scalar, Scalar, Array]) -> Array:
        _, rate, before, iterations = found
        return (iterations < MAX_ITERATIONS) & (jnp.abs(rate - before) > RATE_TOLERANCE * rate)

    def iterate(found: tuple[Outputs, Scalar, Scalar, Array]) -> tuple[Outputs, Scalar, Scalar, Array]:
        mode, rate, _, iterations = found
        return *_power_iteration(network, data, loss, mode), rate, iterations + 1

    one = (*_power_iteration(network, data, loss, mode), jnp.zeros((), mode.dtype), jnp.ones((), jnp.int32))
    mode, rate, _, iterations = jax.lax.while_loop(changing, iterate, one)
    return mode, rate, iterations


def _with_error(mode: Outputs, error: Outputs) -> Outputs:
    # A mode that overtakes the one followed may have been rounded away from it; once unstable, it is in the error.
    return mode + ERROR_SHARE * error * (length(mode) / jnp.maximum(length(error), jnp.finfo(mode.dtype).tiny))


def _power_iteration(network: Network, data: Samples, loss: Loss, mode: Outputs) -> tuple[Outputs, Scalar]:
    """One power iteration u ← ΘΩu, and |ΘΩu| / |u| in the norm of Ω: at most the largest eigenvalue of Ω^½ΘΩ^½."""
    f = network(data.x)

    def bent(u: Outputs) -> Outputs:
        return jax.jvp(lambda g: loss.slope(g, data.y, data.weight), (f,), (u,))[1]

    tiny, signal = jnp.finfo(f.dtype).tiny, bent(mode)
    pushed = network.push(data.x, network.pull(data.x, signal))
    size = length(pushed)
    unit = jnp.where(size > 0, pushed / jnp.maximum(size, tiny), mode)
    stretch = jnp.maximum(jnp.sum(unit * bent(unit)), 0) / jnp.maximum(jnp.sum(mode * signal), tiny)
    return unit, size * jnp.sqrt(stretch)


def _chebyshev(
    slope_at: Slope, rows: Float[Array, "rows 5"], stages: Int[Array, ""], size: Scalar, trained: PyTree, speed: PyTree
) -> tuple[PyTree, PyTree]:
    """The change of the parameters in one step and its error, both by the formulas of `coefficients`."""

    def stage(j: Int[Array, ""], latest: tuple[PyTree, PyTree, PyTree]) -> tuple[PyTree, PyTree, PyTree]:
        older, newer, missed = latest
        slope = slope_at(jax.tree.map(jnp.add, trained, newer))
        mu, nu = rows[j, 0], rows[j, 1]
        now, start, part = size * rows[j, 2], size * rows[j, 3], size * rows[j, 4]
        newest = jax.tree.map(lambda d, e, f, g: mu * d + nu * e + now * f + start * g, newer, older, slope, speed)
        return newer, newest, jax.tree.map(lambda e, f: e + part * f, missed, slope)

    nothing = jax.tree.map(jnp.zeros_like, trained)
    first, missed = (jax.tree.map(lambda leaf, c=c: size * rows[1, c] * leaf, speed) for c in (2, 4))
    _, change, missed = jax.lax.fori_loop(2, stages + 1, stage, (nothing, first, missed))
    return jax.tree.map(lambda leaf: rows[0, 0] * leaf, change), missed


@functools.cache
def _table(kinked: bool) -> np.ndarray:
    # For all numbers of stages, so that it may change in compiled code; in 64 bits, as recurrences lose digits.
    table = np.zeros((MAX_STAGES + 1, MAX_STAGES + 1, 5))
    for stages in range(MIN_STAGES, MAX_STAGES + 1):
        table[stages, : stages + 1] = coefficients(stages, kinked)
    return table


def coefficients(stages: int, kinked: bool) -> np.ndarray:
    """Return μ_j, ν_j, μ̃_j, γ̃_j and ε_{j-1} of stages j = 1 ... s in rows 1 to s, and κ at the start of row 0.

    With F_j = F(θ + D_j), D_0 = 0 and D_1 = h μ̃_1 F_0, stages are D_j = μ_j D_{j-1} + ν_j D_{j-2} + h (μ̃_j F_{j-1} +
    γ̃_j F_0), the step is κ D_s and its error h Σ_j ε_j F_j. For F(θ) = λ θ and z = h λ stage j is the polynomial
    1 + b_j (T_j(w_0 + w_1 z) - T_j(w_0)), and the step is that of Sommeijer, Shampine and Verwer for b_s = T_s''/T_s'²,
    1 + z + z²/2 + ..., whatever the other b_j are: theirs, b_j = T_j''/T_j'², make every stage of second order; with
    b_j = 1/T_j no γ̃_j is left, stages reach out to 3 h, κ = 1/3 or so, and all weights of the F_j are positive.
    """
    at = 1 + DAMPING / stages**2  # w_0
    value, slope, bend = (np.zeros(stages + 1) for _ in range(3))  # T_j, T_j' and T_j'' there
    value[:2], slope[1] = (1, at), 1
    for j in range(2, stages + 1):
        value[j] = 2 * at * value[j - 1] - value[j - 2]
        slope[j] = 2 * at * slope[j - 1] - slope[j - 2] + 2 * value[j - 1]
        bend[j] = 2 * at * bend[j - 1] - bend[j - 2] + 4 * slope[j - 1]
    stretch, wanted = slope[-1] / bend[-1], bend[2:] / slope[2:] ** 2  # w_1 and T_j''/T_j'²
    b = 1 / value if kinked else np.concatenate([wanted[:1], wanted[:1], wanted])
    rows = np.zeros((stages + 1, 5))
    rows[0, 0] = wanted[-1] / b[-1]
    rows[1, 2] = stretch * b[1]
    rows[2:, 0] = 2 * at * b[2:] / b[1:-1]
    rows[2:, 1] = -b[2:] / b[:-2]
    rows[2:, 2] = 2 * stretch * b[2:] / b[1:-1]
    rows[2:, 3] = -(1 - b[1:-1] * value[1:-1]) * rows[2:, 2]
    rows[1:, 4] = _estimate(rows)
    return rows


def _estimate(rows: np.ndarray) -> np.ndarray:
    """ε_j such that h Σ_j ε_j F_j = h³ θ'''/15 for linear F: the error of many stages.

    The usual 12 (θ_0 - θ_1) + 6 h (F_0 + F_1), over 15, says the same but multiplies stiff modes by up to h λ / 2. Here
    ε_j is a smooth function of j/s that falls to 0 at j = s, and no mode is multiplied by more than s, or 10.
    """
    stages = len(rows) - 1
    a = np.zeros((stages + 1, stages))  # D_j = h Σ_i a_ji F_i
    for j in range(1, stages + 1):
        a[j] = rows[j, 0] * a[j - 1] + rows[j, 1] * a[j - 2]
        a[j, j - 1] += rows[j, 2]
        a[j, 0] += rows[j, 3]
    times = a[:-1].sum(axis=1)
    place = np.arange(stages) / stages
    shapes = (1 - place**2) * place ** np.array([[0], [2], [4]])
    shapes[:, 0] /= 2  # smooth and even about j = 0, which counts half on either side
    moments = np.stack([np.ones(stages), times, a[:-1] @ times])
    return np.linalg.solve(moments @ shapes.T, [0, 0, 1 / 15]) @ shapes
