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
from unlazy.flows._attempt import Attempt, either, settled
from unlazy.flows._coordinates import Coordinated
from unlazy.flows._decay import Decay
from unlazy.flows._outputs import check_tolerance, output_scale, watched
from unlazy.flows._state import State, Status, code, count, finite, number, number_or_none
from unlazy.losses import Loss, Squared, as_loss
from unlazy.networks import Network, Samples, View, split_trained

# A PI controller: proportional to the error with some memory of the last one, so that steps settle without rejections.
_GROWTH, _SHRINK, _SAFETY, _POWER, _PAST = 3.0, 0.3, 0.9, 0.2, 0.1
_PASSES = 3  # two gradients and a kernel, which costs as much


class Memory(eqx.Module):
    """What the next step starts from."""

    step: Scalar  # its size, were there no save time in the way
    ratio: Scalar  # of the last error to the tolerance
    scale: Scalar  # of the outputs
    view: View
    decay: Decay  # in the last step's kernel


class Exponential(Coordinated):
    """Exponential rule for squared loss: r' = -Θ̄ Ω r is solved exactly, Θ̄ being the kernel averaged over the step.

    Along the flow the residual r = f - y obeys r' = -Θ(t) Ω r, where dL/df = Ω r. With the last step's kernel a step is
    first guessed; slopes σ' averaged over the way to that guess give a Jacobian J̄ and a kernel Θ̄ = J̄ R J̄^T, and then
    θ ← θ - R J̄^T Ω ∫ r dt with r from Θ̄. However stiff Θ is, only the motion of features limits the step: as they
    settle, steps grow without bound. A gate that switches on the way counts for the part of it on which it is open, so
    that kinks (ReLU) need no small steps of their own.

    Of each step, what Θ̄ predicts for the outputs (on the training inputs and up to 64 test inputs) is compared with
    what they are; the root mean square of the difference stays below ``tolerance`` times that of the targets. Nothing
    is asked of single neurons. For smooth activations the rule is of second order. A step costs two gradients, one
    kernel and one eigendecomposition of an n k x n k matrix.
    """

    loss: Loss = eqx.field(default=Squared(), converter=as_loss)
    tolerance: np.ndarray = eqx.field(default=1e-4, converter=number)
    max_steps: np.ndarray = eqx.field(default=100_000, converter=count)
    step: np.ndarray | None = eqx.field(default=None, converter=number_or_none)

    def check(self, network: Network, data: Dataset) -> None:
        """Squared loss and a tolerance within reach."""
        if not self.loss.quadratic:
            raise UserError(
                f"Exponential needs a quadratic loss, and {type(self.loss).__name__} is not: use GradientFlow."
            )
        if network.clips_per_sample:
            raise UserError(
                "Exponential needs the true gradient, but this network was made with clip=...: use RungeKutta, or drop "
                "clip."
            )
        check_tolerance(self.tolerance, self.step, data)

    def plan(self, times: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Count time itself."""
        return times, times

    def begin(self, network: Network, data: Samples, *, key: PRNGKey) -> State:
        """Choose a first step well below the fastest time scale."""
        trained = split_trained(network)[0]
        view = network.view(watched(data))
        f = view.outputs[: data.n]
        kernel = network.chord(view, jnp.zeros_like(f), watched(data)).kernel[: data.n]
        decay = Decay(kernel, data, self.loss)
        largest = decay.rates[-1]
        first = 0.1 / jnp.maximum(largest, jnp.finfo(f.dtype).tiny) if self.step is None else self.step
        memory = Memory(jnp.asarray(first, f.dtype), jnp.ones((), f.dtype), output_scale(f, data), view, decay)
        zero, none = jnp.zeros((), f.dtype), jnp.zeros((), jnp.int32)
        good = finite(trained, f, largest)
        one = jnp.ones((), jnp.int32)
        return State(trained, memory, zero, none, none, jnp.where(good, 0, code(Status.not_finite)), one, zero)

    def advance(self, state: State, frozen: PyTree, data: Samples, budget: Int[Array, ""]) -> State:
        """Step until the time left is used up."""
        last = state.steps + state.rejected + budget
        x = watched(data)

        def going(s: State) -> Array:
            return (s.left > 0) & (s.code == 0) & (s.steps + s.rejected < last)

        def body(s: State) -> State:
            size = jnp.minimum(s.memory.step, s.left)
            clipped = size < s.memory.step
            here, before = eqx.combine(s.trained, frozen), s.memory.view
            residual = before.outputs[: data.n] - data.y
            chord = here.chord(before, s.memory.decay.signal(residual, size), x)
            decay = Decay(chord.kernel[: data.n], data, self.loss)
            signal = decay.signal(residual, size)
            moved = jax.tree.map(jnp.add, s.trained, chord.response(signal))
            after = eqx.combine(moved, frozen).view(x)
            error = _defect(before, after, chord.kernel, signal) / s.memory.scale
            good = finite(moved, error)
            if self.step is None:
                ratio = jnp.maximum(error / jnp.asarray(self.tolerance, error.dtype), 1e-6)
                keep = good & (ratio <= 1)
                growth = _SAFETY * ratio**-_POWER * jnp.where(keep, s.memory.ratio**_PAST, 1.0)
                proposed = size * jnp.where(good, jnp.clip(growth, _SHRINK, _GROWTH), _SHRINK)
                step = jnp.where(keep & clipped, jnp.maximum(proposed, s.memory.step), proposed)
            else:
                keep, step, ratio = good, s.memory.step, s.memory.ratio
            # Far below the fastest time scale nothing is gained any more: what is left is rounding, or no number.
            stuck = ~keep & (size * s.memory.decay.rates[-1] < 1e-6)
            attempt = Attempt(moved, size, keep, good, stuck, error, _PASSES)
            # The attempt's kernel serves the next guess even where the attempt was rejected, if it is a number at all.
            memory = Memory(
                step,
                jnp.where(keep, ratio, s.memory.ratio),
                s.memory.scale,
                either(keep, after, before),
                either(good, decay, s.memory.decay),
            )
            return settled(s, attempt, memory, self.max_steps)

        return jax.lax.while_loop(going, body, state)


def _defect(before: View, after: View, kernel: Array, signal: Outputs) -> Float[Array, ""]:
    """Root mean square of what the kernel did not foresee in the outputs."""
    foreseen = kernel.reshape(-1, signal.size) @ signal.reshape(-1)
    miss = (after.outputs - before.outputs).reshape(-1) + foreseen
    return jnp.sqrt(jnp.mean(jnp.square(miss)))
