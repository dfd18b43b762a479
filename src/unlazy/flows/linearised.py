"""The NTK model of any network, solved in closed form for squared loss."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from unlazy._errors import UserError
from unlazy._types import Outputs, PRNGKey, PyTree, Scalar
from unlazy.data import Dataset
from unlazy.flows._base import Stepper
from unlazy.flows._decay import Decay
from unlazy.flows._state import State, Status, code, finite
from unlazy.losses import Loss, Squared, as_loss
from unlazy.networks import Layout, Network, Prepared, Samples, TangentModel, split_trained, with_fields


class Memory(eqx.Module):
    """The clock, the residual at t = 0, and how it decays."""

    clock: Scalar
    residual: Outputs
    decay: Decay


class Linearised(Stepper):
    """Gradient flow of f_lin(x) = f(x; θ_0) + J(x)(θ - θ_0), exact at every t.

    With dL/df = Ω (f - y) for a diagonal Ω, the residual obeys r' = -Θ_0 Ω r and θ(t) = θ_0 - R J^T Ω ∫ r dt, all of
    which follows from one eigendecomposition of Ω^½ Θ_0 Ω^½ (n k x n k). The final network is a `TangentModel`.
    """

    loss: Loss = eqx.field(default=Squared(), converter=as_loss)

    def check(self, network: Network, data: Dataset) -> None:
        """Only squared loss has a closed form."""
        if not self.loss.quadratic:
            raise UserError(
                "The linearised flow has a closed form for quadratic losses only, and "
                f"{type(self.loss).__name__} is not: run GradientFlow on TangentModel(network) instead."
            )
        if network.clips_per_sample:
            raise UserError("Linearised needs the true gradient, but this network was made with clip=...: drop clip.")

    def prepare(self, network: Network, data: Dataset, layout: Layout) -> Prepared:
        """Train the linearisation, in weights."""
        network, x, x_test = network.prepare(data)
        return Prepared(TangentModel(network), x, x_test)

    def plan(self, times: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Count time itself."""
        return times, times

    def begin(self, network: Network, data: Samples, *, key: PRNGKey) -> State:
        """Decompose the kernel at the start."""
        residual = network(data.x) - data.y
        trained, count = split_trained(network)[0], jnp.zeros((), jnp.int32)
        memory = Memory(jnp.zeros((), residual.dtype), residual, Decay(network.tangent_kernel(data.x), data, self.loss))
        good = finite(trained, memory)
        status = jnp.where(good, 0, code(Status.not_finite))
        return State(trained, memory, memory.clock, count, count, status, jnp.ones_like(count), memory.clock)

    def advance(self, state: State, frozen: PyTree, data: Samples, budget: Int[Array, ""]) -> State:
        """Jump to the next time."""
        memory, network = state.memory, eqx.combine(state.trained, frozen)
        clock = memory.clock + state.left
        pulled = network.centre.pull(data.x, memory.decay.signal(memory.residual, clock))
        trained = split_trained(with_fields(network, displacement=jax.tree.map(jnp.negative, pulled)))[0]
        moved = eqx.tree_at(lambda m: m.clock, memory, clock)
        left, once_more = jnp.zeros_like(state.left), state.evaluations + 1
        return State(trained, moved, left, state.steps + 1, state.rejected, state.code, once_more, state.error)
