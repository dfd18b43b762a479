"""Gradient flow in steps that stiffness does not limit: the equation of the residual is solved exactly."""

from __future__ import annotations

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from unlazy._errors import UserError
from unlazy._linalg import eigh
from unlazy._memory import must_fit
from unlazy._types import Outputs, PRNGKey, PyTree, Scalar
from unlazy.data import Dataset
from unlazy.flows.method import Method, OutputControlled
from unlazy.flows.state import JUDGED_TEST_INPUTS as JUDGED
from unlazy.flows.state import Attempt, Controller, State, either, failure, finite, output_scale
from unlazy.losses import Loss
from unlazy.networks import Network, Samples, View
from unlazy.probes.layer_sizes import root_mean_square

# The last error enters too, so that step sizes converge without rejections.
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


def check_linear_residual(method: Method, network: Network, data: Dataset, other: str) -> None:
    """Require a quadratic loss and true gradients, without which the residual does not obey r' = -Θ Ω r."""
    name, loss = type(method).__name__, type(method.loss).__name__
    if not method.loss.quadratic:
        raise UserError(f"{name} needs a quadratic loss, and {loss} is not: use {other}.")
    if network.clips_per_sample:
        raise UserError(f"{name} needs true gradients, but the network was made with clip=...: use RungeKutta.")
    # The kernel, its eigenvectors and what LAPACK needs to find them.
    must_fit(
        4.0 * data.y.size**2 * data.y.dtype.itemsize,
        f"{name} on {data.y.size:,} outputs decomposes a matrix of that size and",
        "take fewer samples, or the method 'stabilised'",
    )


class Memory(eqx.Module):
    """What the next step starts from."""

    ratio: Scalar  # of the last error to the tolerance
    scale: Scalar  # of the outputs
    view: View
    decay: Decay  # in the last step's kernel


class Exponential(OutputControlled):
    """Exponential rule for squared loss: r' = -Θ̄ Ω r is solved exactly, Θ̄ being the kernel averaged over the step.

    Along the flow the residual r = f - y obeys r' = -Θ(t) Ω r, where dL/df = Ω r. A step is first
    predicted with the kernel of the last step; slopes σ' averaged along the path to that prediction give a Jacobian J̄
    and a kernel Θ̄ = J̄ R J̄^T, and then θ ← θ - R J̄^T Ω ∫ r dt with r from Θ̄. However stiff Θ is, only the motion of
    features limits the step: as they converge, steps grow without bound. A gate that switches along the path counts for
    the part of it on which it is open, so that kinks (ReLU) need no small steps of their own.

    After each step the outputs that Θ̄ predicted (on the training inputs and up to 64 test inputs) are compared with the
    true ones; the root mean square of the difference stays below ``tolerance`` times that of the targets. The error of
    single neurons is not controlled. For smooth activations the rule is of second order. A step costs two gradients,
    one kernel and one eigendecomposition of an n k x n k matrix.

    Parameters
    ----------
    loss
        A quadratic loss.
    tolerance
        Largest error of a step in the outputs, relative to the targets.
    max_steps
        Number of steps, accepted or not, after which a run ends with `Status.step_limit`.
    step
        Constant size of all steps; chosen by the tolerance if omitted.
    coordinates
        ``"weights"``; ``"gram"``, where a layer is trained on fixed features; or ``"auto"``, the cheaper of the two:
        a gradient costs 4 m D n operations in weights and 2 m n² in Gram coordinates, which are the same flow up to
        rounding. An infinite embedding (D = ∞) has Gram coordinates only.
    precision
        ``"full"``, or ``"mixed"`` (Gram coordinates, float64 data): matrix products and activations in float32;
        coefficients, outputs and residuals are added up in float64.
    memory
        Bound in GiB on the memory of a run in Gram coordinates; all that is free if omitted. If not everything fits,
        neurons are processed slab by slab, at up to twice the work.
    devices
        Number of devices that share the neurons; the largest that divides the width if omitted.
    """

    automatic: ClassVar[bool] = True

    def check(self, network: Network, data: Dataset) -> None:
        """Require a quadratic loss, true gradients, and a tolerance above rounding error."""
        check_linear_residual(self, network, data, "GradientFlow")
        super().check(network, data)

    def init(self, network: Network, data: Samples, key: PRNGKey) -> State:
        """Choose a first step well below the fastest time scale."""
        x = data.judged(JUDGED)
        view = network.view(x)
        f = view.outputs[: data.n]
        decay = Decay(network.chord(view, jnp.zeros_like(f), x).kernel[: data.n], data, self.loss)
        largest = decay.rates[-1]
        first = 0.1 / jnp.maximum(largest, jnp.finfo(f.dtype).tiny) if self.step is None else self.step
        memory = Memory(jnp.ones((), f.dtype), output_scale(f, data), view, decay)
        return State.initial(network, memory, jnp.asarray(first, f.dtype), evaluations=1, check=(f, largest))

    def take_step(self, state: State, size: Array, frozen: PyTree, data: Samples) -> Attempt:
        """Predict with the last kernel, then step with the kernel averaged along the path to that prediction."""
        memory, x = state.memory, data.judged(JUDGED)
        here, before = eqx.combine(state.trained, frozen), memory.view
        residual = before.outputs[: data.n] - data.y
        chord = here.chord(before, memory.decay.signal(residual, size), x)
        decay = Decay(chord.kernel[: data.n], data, self.loss)
        signal = decay.signal(residual, size)
        moved = jax.tree.map(jnp.add, state.trained, chord.response(signal))
        after = eqx.combine(moved, frozen).view(x)
        # The error of the step is what the kernel did not predict of the change of the outputs.
        predicted = chord.kernel.reshape(-1, signal.size) @ signal.reshape(-1)
        error = root_mean_square((after.outputs - before.outputs).reshape(-1) + predicted) / memory.scale
        good = finite(moved, error)
        keep, step, ratio = good, state.step, memory.ratio
        if self.step is None:
            keep, step, ratio = _CONTROLLER(size, error, self.tolerance, good, memory.ratio**_PAST)
        # Far below the fastest time scale smaller steps do not help: the error is rounding, or not a number.
        stuck = ~keep & (size * memory.decay.rates[-1] < 1e-6)
        # The kernel of a rejected attempt still serves the next prediction, if it is finite.
        rejected = Memory(memory.ratio, memory.scale, before, either(good, decay, memory.decay))
        accepted = Memory(ratio, memory.scale, after, decay)
        return Attempt(moved, accepted, size, keep, step, state.step, rejected, failure(stuck, good), error, _PASSES)
