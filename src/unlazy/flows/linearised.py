"""The NTK model of any network, solved in closed form for squared loss."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from unlazy._errors import UserError
from unlazy._types import PRNGKey, PyTree
from unlazy.data import Dataset
from unlazy.flows._base import Flow
from unlazy.flows._state import State, Status, code, finite, scaled
from unlazy.losses import Loss, Squared
from unlazy.networks import Network, TangentModel, altered, divide, trained_rates


class Memory(eqx.Module):
    """The eigenbasis in which the residual decays, and the clock."""

    clock: Array
    rates: Float[Array, " nk"]
    modes: Float[Array, "nk nk"]
    residual: Float[Array, " nk"]  # at t = 0, in the eigenbasis
    loading: Float[Array, " nk"]  # sqrt(dL/df per unit residual), sample by sample


class Linearised(Flow):
    """Gradient flow of f_lin(x) = f(x; θ_0) + J(x)(θ - θ_0), exact at every t.

    With dL/df = Ω (f - y) for a diagonal Ω, the residual obeys r' = -Θ_0 Ω r and θ(t) = θ_0 - R J^T Ω ∫ r dt, all of
    which follows from one eigendecomposition of Ω^½ Θ_0 Ω^½ (n k x n k). The final network is a `TangentModel`.
    """

    loss: Loss = Squared()

    def check(self, network: Network, data: Dataset) -> None:
        """Only squared loss has a closed form."""
        if not isinstance(self.loss, Squared):
            raise UserError(
                f"The linearised flow has a closed form for squared loss only, not {type(self.loss).__name__}: "
                "run GradientFlow on TangentModel(network) instead."
            )

    def prepare(self, network: Network, data: Dataset) -> tuple[Network, Dataset]:
        """Train the linearisation, in weights."""
        network, data = network.on(data)
        return TangentModel(network), data

    def plan(self, times: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Count time itself."""
        return times, times

    def begin(self, network: Network, data: Dataset, *, key: PRNGKey) -> State:
        """Decompose the kernel at the start."""
        assert isinstance(network, TangentModel)
        f = network(data.x)
        # Ω is the slope of the loss at unit residual, whatever its reduction, half and weights are.
        loading = jnp.sqrt(self.loss.slope(jnp.ones_like(f), jnp.zeros_like(f), data.weight)).reshape(-1)
        kernel = network.tangent_kernel(data.x, data.x).reshape(f.size, f.size)
        values, modes = jnp.linalg.eigh(loading[:, None] * kernel * loading[None, :])
        residual = modes.T @ (loading * (f - data.y).reshape(-1))
        trained, count = divide(network)[0], jnp.zeros((), jnp.int32)
        zero = jnp.zeros((), f.dtype)
        memory = Memory(zero, jnp.maximum(values, 0.0), modes, residual, loading)
        good = finite(trained, values, residual)
        return State(trained, memory, zero, count, count, jnp.where(good, 0, code(Status.not_finite)))

    def advance(self, state: State, frozen: PyTree, data: Dataset, budget: Int[Array, ""]) -> State:
        """Jump to the next time."""
        memory, network = state.memory, eqx.combine(state.trained, frozen)
        clock = memory.clock + state.left
        # ∫_0^t exp(-λ s) ds = t φ(λ t), without dividing by a zero eigenvalue.
        exponent = memory.rates * clock
        safe = jnp.where(exponent > 0, exponent, 1.0)
        integral = clock * jnp.where(exponent > 0, -jnp.expm1(-safe) / safe, 1.0)
        signal = memory.loading * (memory.modes @ (integral * memory.residual))
        centre, fixed = divide(network.centre)
        value, pull = jax.vjp(lambda leaves: eqx.combine(leaves, fixed)(data.x), centre)
        displacement = scaled(pull(signal.reshape(value.shape))[0], trained_rates(network.centre), -1.0)
        trained = divide(altered(network, displacement=displacement))[0]
        moved = eqx.tree_at(lambda m: m.clock, memory, clock)
        return State(trained, moved, jnp.zeros_like(state.left), state.steps + 1, state.rejected, state.code)
