"""The NTK model of any network, solved in closed form for squared loss."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from unlazy._types import Outputs, PRNGKey, PyTree, Scalar
from unlazy.data import Dataset
from unlazy.flows.exponential import Decay, check_linear_residual
from unlazy.flows.method import Method
from unlazy.flows.state import Attempt, State
from unlazy.losses import Loss, Squared, as_loss
from unlazy.networks import Network, Prepared, Samples, TangentModel, split_trained, with_fields


class Memory(eqx.Module):
    """The time, the residual at t = 0, and how it decays."""

    clock: Scalar
    residual: Outputs
    decay: Decay


class Linearised(Method):
    """Gradient flow of f_lin(x) = f(x; θ_0) + J(x)(θ - θ_0), exact at every t.

    With dL/df = Ω (f - y) for a diagonal Ω, the residual obeys r' = -Θ_0 Ω r and θ(t) = θ_0 - R J^T Ω ∫ r dt, all of
    which follows from one eigendecomposition of Ω^½ Θ_0 Ω^½ (n k x n k). The final network is a `TangentModel`.

    Parameters
    ----------
    loss
        A quadratic loss.
    """

    loss: Loss = eqx.field(default=Squared(), converter=as_loss)

    def check(self, network: Network, data: Dataset) -> None:
        """Require a quadratic loss, which alone has a closed form, and true gradients."""
        check_linear_residual(self, network, data, "GradientFlow on TangentModel(network)")

    def prepare(self, network: Network, data: Dataset) -> Prepared:
        """Train the linearisation, in weights."""
        network, x, x_test = network.prepare(data)
        return Prepared(TangentModel(network), x, x_test)

    def init(self, network: Network, data: Samples, key: PRNGKey) -> State:
        """Decompose the kernel at the start."""
        residual = network(data.x) - data.y
        clock = jnp.zeros((), residual.dtype)
        memory = Memory(clock, residual, Decay(network.tangent_kernel(data.x), data, self.loss))
        return State.initial(network, memory, remaining=clock, evaluations=1, check=memory)

    def take_step(self, state: State, size: Array, frozen: PyTree, data: Samples) -> Attempt:
        """Jump to the next save time."""
        memory, network = state.memory, eqx.combine(state.trained, frozen)
        clock = memory.clock + size
        pulled = network.centre.pull(data.x, memory.decay.signal(memory.residual, clock))
        moved = with_fields(network, displacement=jax.tree.map(jnp.negative, pulled))
        return Attempt(split_trained(moved)[0], eqx.tree_at(lambda m: m.clock, memory, clock), size)
