"""Gradient flow in long explicit steps: Chebyshev stages carry it through stiffness, outputs set the step."""

from __future__ import annotations

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from unlazy._types import Outputs, PRNGKey, PyTree, Scalar
from unlazy.data import Dataset
from unlazy.flows._attempt import Attempt, either, length, settled
from unlazy.flows._coordinates import Coordinated
from unlazy.flows._outputs import check_tolerance, output_scale, watched
from unlazy.flows._state import State, Status, code, count, finite, number, number_or_none, velocity
from unlazy.losses import Loss, Squared, as_loss
from unlazy.networks import Network, Samples, split_trained

_FEWEST = 3  # stages
_KINKED = 8  # ... of a step of full length at kinks, where the error is in proportion to h/s whatever s is
_MOST = 100  # what rounding adds stays below 1e-5 in float32 up to here
_DAMPING = 2 / 13
_REACH = 2 / 3 * (1 - 2 / 15 * _DAMPING)  # s stages are stable for h λ up to this times s² - 1
_GROWTH, _SHRINK, _SAFETY = 3.0, 0.2, 0.8
_MARGIN = 1.2  # a power iteration sees the largest eigenvalue from below, and it may grow within the step
_ITERATIONS = 20  # of them at the start at most,
_SETTLED = 0.01  # until one changes the rate by less than this share; then one a step until that is so again, or
_SELDOM = 8  # one in so many where it is, and where the fewest stages are stable even at
_FAR = 2  # times the rate
_FRESH = 0.05  # the share of the last error in a power iteration
_SURE = 0.5  # a step cut to less than this share of what the tolerance allows needs no estimate of its error


class Memory(eqx.Module):
    """What is known where a step starts, and how it should be made."""

    step: Scalar  # its size, were there no save time in the way
    scale: Scalar  # of the outputs
    velocity: PyTree  # θ' = -R ∇L
    mode: Float[Array, "n *k"]  # the fastest mode of the residual, as far as it is known
    rate: Scalar  # ... and how fast it decays
    calm: Bool[Array, ""]  # the last power iteration found the rate that the one before it did
    miss: Float[Array, "n *k"]  # the error of the last step, kept or not


class Stabilised(Coordinated):
    """Second-order Runge-Kutta-Chebyshev method, for any loss and network, with error control on the outputs only.

    Along the flow the residual decays at rates up to λ, the largest eigenvalue of Ω^½ Θ Ω^½ with Ω = d²L/df². A
    gradient buys Euler's method 2/λ of time; s of them in a Chebyshev polynomial buy 0.65 (s² - 1)/λ. So each step
    takes as many stages as its size asks for, up to 100, and λ is followed by power iteration. A smooth network gets
    the stages of Sommeijer, Shampine and Verwer (1998). They count the velocity at the start of a step -2 times; with
    kinks that is one chance sample of gates that chatter, and stages with positive weights take their place.

    The error of a step is estimated in the outputs, on training inputs and up to 64 test inputs. Its root mean square
    stays below ``tolerance`` times that of the targets. Nothing is asked of single neurons, which with ReLU slide along
    h_j(x) = 0 and chatter; what their chatter does to the outputs falls as h / √m, so with kinks small tolerances cost
    in proportion: 1e-2 suits most. With ``step`` all steps have that size, or what 100 stages allow.
    """

    loss: Loss = eqx.field(default=Squared(), converter=as_loss)
    tolerance: np.ndarray = eqx.field(default=1e-4, converter=number)
    max_steps: np.ndarray = eqx.field(default=100_000, converter=count)
    step: np.ndarray | None = eqx.field(default=None, converter=number_or_none)

    def check(self, network: Network, data: Dataset) -> None:
        """A tolerance within reach, or a positive step."""
        check_tolerance(self.tolerance, self.step, data)

    def plan(self, times: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Count time itself."""
        return times, times

    def begin(self, network: Network, data: Samples, *, key: PRNGKey) -> State:
        """Find the fastest time scale, and choose a first step well below it."""
        trained, frozen = split_trained(network)
        f, speed = network(data.x), velocity(trained, frozen, data, self.loss)
        zero, none = jnp.zeros((), f.dtype), jnp.zeros((), jnp.int32)
        mode = jax.random.normal(jax.random.key(0), f.shape, f.dtype)  # any will do that has something of all modes
        mode, rate, iterations = _searched(network, data, self.loss, mode)
        first = 0.1 / jnp.maximum(rate, jnp.finfo(f.dtype).tiny) if self.step is None else self.step
        memory = Memory(
            step=jnp.asarray(first, f.dtype),
            scale=output_scale(f, data),
            velocity=speed,
            mode=mode,
            rate=rate,
            calm=jnp.asarray(True),
            miss=jnp.zeros_like(f),
        )
        status = jnp.where(finite(trained, memory), 0, code(Status.not_finite))
        return State(trained, memory, zero, none, none, status, 1 + 2 * iterations, zero)

    def advance(self, state: State, frozen: PyTree, data: Samples, budget: Int[Array, ""]) -> State:
        """Step until the time left is used up."""
        last = state.steps + state.rejected + budget
        x, info = watched(data), jnp.finfo(state.left.dtype)
        kinked = frozen.has_kinks
        near, far = (_REACH * (stages**2 - 1) for stages in (_FEWEST, _MOST))

        def going(s: State) -> Array:
            return (s.left > 0) & (s.code == 0) & (s.steps + s.rejected < last)

        def body(s: State) -> State:
            m, here, done = s.memory, eqx.combine(s.trained, frozen), s.steps + s.rejected
            often = done % _SELDOM == 0
            look = often | (~m.calm & (_FAR * _MARGIN * m.rate * jnp.minimum(m.step, s.left) > near))
            mode, rate = jax.lax.cond(
                look,
                lambda: _fastest(here, data, self.loss, _freshened(m.mode, m.miss)),
                lambda: (m.mode, m.rate),
            )
            fast = jnp.maximum(_MARGIN * rate, info.tiny)
            planned = jnp.minimum(m.step, far / fast)
            size = jnp.minimum(planned, s.left)
            stages = jnp.ceil(jnp.sqrt(1 + size * fast / _REACH))
            # A step that a save time cuts short needs fewer of the stages that kinks ask for.
            fewest = jnp.maximum(jnp.ceil(_KINKED * size / planned), _FEWEST) if kinked else _FEWEST
            stages = jnp.clip(stages, fewest, _MOST).astype(jnp.int32)
            rows = jnp.asarray(_table(kinked), size.dtype)[stages]
            change, missed = _chebyshev(rows, stages, size, s.trained, m.velocity, frozen, data, self.loss)
            moved = jax.tree.map(jnp.add, s.trained, change)
            speed = velocity(moved, frozen, data, self.loss)
            sure = (size < _SURE * planned) & ~often & (self.step is None)
            miss, error = jax.lax.cond(
                sure,
                lambda: (m.miss, (jnp.asarray(self.tolerance, size.dtype) * (size / planned) ** 3)),
                lambda: _weighed(here.push(x, missed), m.scale, data.n),
            )
            good = finite(moved, speed, error)
            if self.step is None:
                ratio = error / jnp.asarray(self.tolerance, error.dtype)
                keep = good & (ratio <= 1)
                growth = _SAFETY * jnp.maximum(ratio, info.tiny) ** (-1 / 3)
                proposed = size * jnp.where(good, jnp.clip(growth, _SHRINK, _GROWTH), _SHRINK)
                step = jnp.where(keep & (size < planned), jnp.maximum(proposed, planned), proposed)
                # Where the flow has come to rest every step is lost in rounding, so only short ones say something.
                stuck = jax.lax.cond(
                    ~keep & (size * fast < 1e-6),
                    lambda: length(change) <= 4 * info.eps * length(s.trained),
                    lambda: jnp.zeros((), bool),
                )
            else:
                keep, step, stuck = good, m.step, ~good
            memory = Memory(
                step=step,
                scale=m.scale,
                velocity=either(keep, speed, m.velocity),
                mode=mode,
                rate=rate,
                calm=keep & jnp.where(look, jnp.abs(rate - m.rate) <= _SETTLED * rate, m.calm),
                miss=jnp.where(good, miss, 0),
            )
            cost = stages + ~sure + 2 * look  # the estimate costs one more and a power iteration two
            return settled(s, Attempt(moved, size, keep, good, stuck, error, cost), memory, self.max_steps)

        return jax.lax.while_loop(going, body, state)


def _weighed(missed: Array, scale: Scalar, n: int) -> tuple[Outputs, Scalar]:
    # The error of a step in the outputs: what it is on training inputs, and its relative size on all.
    return missed[:n], _size(missed) / scale


def _searched(network: Network, data: Samples, loss: Loss, mode: Outputs) -> tuple[Outputs, Scalar, Int[Array, ""]]:
    """The fastest mode and its rate, by power iteration from scratch, and how many iterations that took."""

    def unsettled(found: tuple[Outputs, Scalar, Scalar, Array]) -> Array:
        _, rate, before, iterations = found
        return (iterations < _ITERATIONS) & (jnp.abs(rate - before) > _SETTLED * rate)

    def iterate(found: tuple[Outputs, Scalar, Scalar, Array]) -> tuple[Outputs, Scalar, Scalar, Array]:
        mode, rate, _, iterations = found
        return *_fastest(network, data, loss, mode), rate, iterations + 1

    one = (*_fastest(network, data, loss, mode), jnp.zeros((), mode.dtype), jnp.ones((), jnp.int32))
    mode, rate, _, iterations = jax.lax.while_loop(unsettled, iterate, one)
    return mode, rate, iterations


def _freshened(mode: Outputs, miss: Outputs) -> Outputs:
    # A mode that overtakes the one followed may have been rounded away from it; once unstable, it is in the error.
    return mode + _FRESH * miss * (length(mode) / jnp.maximum(length(miss), jnp.finfo(mode.dtype).tiny))


def _fastest(network: Network, data: Samples, loss: Loss, mode: Outputs) -> tuple[Outputs, Scalar]:
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
    rows: Float[Array, "rows 5"],
    stages: Int[Array, ""],
    size: Scalar,
    trained: PyTree,
    speed: PyTree,
    frozen: PyTree,
    data: Samples,
    loss: Loss,
) -> tuple[PyTree, PyTree]:
    """One step's change of the parameters and the error in it, both by the formulas of `coefficients`."""

    def stage(j: Int[Array, ""], latest: tuple[PyTree, PyTree, PyTree]) -> tuple[PyTree, PyTree, PyTree]:
        older, newer, missed = latest
        slope = velocity(jax.tree.map(jnp.add, trained, newer), frozen, data, loss)
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
    table = np.zeros((_MOST + 1, _MOST + 1, 5))
    for stages in range(_FEWEST, _MOST + 1):
        table[stages, : stages + 1] = coefficients(stages, kinked)
    return table


def coefficients(stages: int, kinked: bool) -> np.ndarray:
    """Give μ_j, ν_j, μ̃_j, γ̃_j and ε_{j-1} of stages j = 1 ... s in rows 1 to s, and κ at the start of row 0.

    With F_j = F(θ + D_j), D_0 = 0 and D_1 = h μ̃_1 F_0, stages are D_j = μ_j D_{j-1} + ν_j D_{j-2} + h (μ̃_j F_{j-1} +
    γ̃_j F_0), the step is κ D_s and its error h Σ_j ε_j F_j. For F(θ) = λ θ and z = h λ stage j is the polynomial
    1 + b_j (T_j(w_0 + w_1 z) - T_j(w_0)), and the step is that of Sommeijer, Shampine and Verwer for b_s = T_s''/T_s'²,
    1 + z + z²/2 + ..., whatever the other b_j are: theirs, b_j = T_j''/T_j'², make every stage of second order; with
    b_j = 1/T_j no γ̃_j is left, stages reach out to 3 h, κ = 1/3 or so, and all weights of the F_j are positive.
    """
    at = 1 + _DAMPING / stages**2  # w_0
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


def _size(values: Array) -> Scalar:
    return jnp.sqrt(jnp.mean(jnp.square(values)))
