"""Gradient flow in steps that stiffness does not limit: the residual is solved exactly, features set the step."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from unlazy._errors import UserError
from unlazy._linalg import eigh
from unlazy._types import Outputs, PRNGKey, PyTree, Scalar
from unlazy.data import Dataset
from unlazy.flows._base import Coordinates, Method, Precision
from unlazy.flows._state import (
    Attempt,
    Controller,
    State,
    check_tolerance,
    count,
    either,
    failure,
    finite,
    judged_inputs,
    number,
    number_or_none,
    output_scale,
)
from unlazy.losses import Loss, Squared, as_loss
from unlazy.networks import Network, Samples, View

# Proportional to the error with some memory of the last one, so that steps settle without rejections.
_CONTROLLER, _PAST = Controller(power=0.2, safety=0.9, least=0.3, most=3.0), 0.1
_PASSES = 3  # two gradients and a kernel, which costs as much


class Decay(eqx.Module):
    """The linear flow r' = -Θ Ω r of the residual with a frozen kernel, solved exactly; dL/df = Ω r for squared loss.

    In the eigenbasis of Ω^½ Θ Ω^½ (n k x n k) every mode of the residual decays by itself.
    """

    loading: Float[Array, " nk"]  # the diagonal of Ω^½
    rates: Float[Array, " nk"]
    modes: Float[Array, "nk nk"]

    def __init__(self, kernel: Float[Array, "..."], data: Samples, loss: Loss) -> None:
        f = jnp.zeros_like(data.y)
        # Ω is the slope of the loss at unit residual, whatever its reduction, half and weights are.
        self.loading = jnp.sqrt(loss.slope(jnp.ones_like(f), f, data.weight)).reshape(-1)
        square = self.loading[:, None] * kernel.reshape(f.size, f.size) * self.loading[None, :]
        values, self.modes = eigh(square)
        self.rates = jnp.maximum(values, 0.0)

    def signal(self, residual: Outputs, time: Scalar) -> Outputs:
        """Ω ∫_0^t exp(-Θ Ω s) r ds, from t φ(λ t) mode by mode, without dividing by a zero eigenvalue."""
        exponent = self.rates * time
        safe = jnp.where(exponent > 0, exponent, 1.0)
        integral = time * jnp.where(exponent > 0, -jnp.expm1(-safe) / safe, 1.0)
        modes = self.modes.T @ (self.loading * residual.reshape(-1))
        return (self.loading * (self.modes @ (integral * modes))).reshape(residual.shape)


class Memory(eqx.Module):
    """What the next step starts from."""

    ratio: Scalar  # of the last error to the tolerance
    scale: Scalar  # of the outputs
    view: View
    decay: Decay  # in the last step's kernel


class Exponential(Method):
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

    Parameters
    ----------
    loss
        A quadratic loss.
    tolerance
        Largest error of a step in the outputs, relative to the targets.
    max_steps
        Number of steps, accepted or not, after which a run ends with `Status.step_limit`.
    step
        Constant size of all steps; if left out, the tolerance decides.
    coordinates
        ``"weights"``; ``"gram"``, where a layer is trained on fixed features; or ``"auto"``, the cheaper of the two:
        a gradient costs 4 m D n operations in weights and 2 m n² in Gram coordinates, which are the same flow up to
        rounding. An infinite embedding (D = ∞) has Gram coordinates only.
    precision
        ``"full"``, or ``"mixed"`` (Gram coordinates, float64 data): matrix products and activations in float32;
        coefficients, outputs and residuals are added up in float64.
    memory
        Bound in GiB on what a run in Gram coordinates may take, all that is free if left out. Where not everything
        fits, neurons are processed slab by slab, at up to twice the work.
    devices
        Number of devices that share the neurons; if left out, all whose number divides the width.
    """

    loss: Loss = eqx.field(default=Squared(), converter=as_loss)
    tolerance: np.ndarray = eqx.field(default=1e-4, converter=number)
    max_steps: np.ndarray = eqx.field(default=100_000, converter=count)
    step: np.ndarray | None = eqx.field(default=None, converter=number_or_none)
    coordinates: Coordinates = eqx.field(static=True, default="auto")
    precision: Precision = eqx.field(static=True, default="full")
    memory: float | None = eqx.field(static=True, default=None)
    devices: int | None = eqx.field(static=True, default=None)

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

    def init(self, network: Network, data: Samples, key: PRNGKey) -> State:
        """Choose a first step well below the fastest time scale."""
        view = network.view(judged_inputs(data))
        f = view.outputs[: data.n]
        kernel = network.chord(view, jnp.zeros_like(f), judged_inputs(data)).kernel[: data.n]
        decay = Decay(kernel, data, self.loss)
        largest = decay.rates[-1]
        first = 0.1 / jnp.maximum(largest, jnp.finfo(f.dtype).tiny) if self.step is None else self.step
        memory = Memory(jnp.ones((), f.dtype), output_scale(f, data), view, decay)
        return State.initial(network, memory, jnp.asarray(first, f.dtype), evaluations=1, check=(f, largest))

    def take_step(self, state: State, size: Array, frozen: PyTree, data: Samples) -> Attempt:
        """Guess with the last kernel, then step with the kernel averaged over the way to that guess."""
        memory, x = state.memory, judged_inputs(data)
        here, before = eqx.combine(state.trained, frozen), memory.view
        residual = before.outputs[: data.n] - data.y
        chord = here.chord(before, memory.decay.signal(residual, size), x)
        decay = Decay(chord.kernel[: data.n], data, self.loss)
        signal = decay.signal(residual, size)
        moved = jax.tree.map(jnp.add, state.trained, chord.response(signal))
        after = eqx.combine(moved, frozen).view(x)
        error = _defect(before, after, chord.kernel, signal) / memory.scale
        good = finite(moved, error)
        keep, step, ratio = good, state.step, memory.ratio
        if self.step is None:
            keep, step, ratio = _CONTROLLER(size, error, self.tolerance, good, memory.ratio**_PAST)
        # Far below the fastest time scale nothing is gained any more: what is left is rounding, or not a number.
        stuck = ~keep & (size * memory.decay.rates[-1] < 1e-6)
        # The attempt's kernel serves the next guess even where the attempt was rejected, if it is finite.
        rejected = Memory(memory.ratio, memory.scale, before, either(good, decay, memory.decay))
        accepted = Memory(ratio, memory.scale, after, decay)
        return Attempt(moved, accepted, size, keep, step, state.step, rejected, failure(stuck, good), error, _PASSES)


def _defect(before: View, after: View, kernel: Array, signal: Outputs) -> Float[Array, ""]:
    """Root mean square of what the kernel did not foresee in the outputs."""
    foreseen = kernel.reshape(-1, signal.size) @ signal.reshape(-1)
    miss = (after.outputs - before.outputs).reshape(-1) + foreseen
    return jnp.sqrt(jnp.mean(jnp.square(miss)))
