"""The expected rate of change of weights and of the kernel at t = 0 (section 5)."""

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from unlazy.activations import Activation, Relu, Tanh
from unlazy.data import Dataset
from unlazy.flows import Trajectory
from unlazy.losses import Loss
from unlazy.networks import TwoLayer, with_fields
from unlazy.papers.caron2023.theorems import setting as s
from unlazy.theory import Example, Finding, Reading, Theorem, read_all
from unlazy.theory.hypotheses import squared_loss

_CLEAR = 5.0  # standard errors
_INPUTS = 3  # inputs between which the change of the kernel is compared


def first_weight_step(activation: Activation, x: Float[Array, "n d"]) -> np.ndarray:
    """-(1/√d) Σ_i x_i g_1(x_i): times λ_{m,j} it is E[dw_j/dt] at t = 0 (Theorem 5.1).

    g_1(x) = E[σ(z) σ'(z)], z ~ N(0, |x|²/d), is |x| / √(2πd) for ReLU, 0 for odd σ, and computed by quadrature.
    """
    variances = jnp.mean(x**2, axis=1)
    if isinstance(activation, Relu):
        each = jnp.sqrt(variances / (2 * jnp.pi))
    else:
        each = activation.expectation(lambda z: activation(z) * activation.derivative(z), variances)
    return -np.asarray(each @ x, float) / x.shape[1] ** 0.5


def first_kernel_step(activation: Activation, x: Float[Array, "n d"], points: Float[Array, "p d"]) -> np.ndarray:
    """Times Σ_j λ_{m,j}² it is E[dΘ(x_k, x_l)/dt] at t = 0 between ``points``, for training inputs x (Theorem 5.2).

    -(x_k·x_l / d²) Σ_i ((x_k·x_i) g_2(x_k, x_l, x_i) + (x_l·x_i) g_2(x_l, x_k, x_i)), with g_2 = E[σ''(z_k) σ'(z_l)
    σ'(z_i) σ(z_i)] by quadrature, at a cost of p² n. The paper prints d^(3/2) instead of d²: `printed_kernel_step`.
    """
    n, p, d = x.shape[0], points.shape[0], x.shape[1]
    k, other, i = (index.ravel() for index in jnp.meshgrid(jnp.arange(p), jnp.arange(p), jnp.arange(n), indexing="ij"))
    triples = jnp.stack([points[k], points[other], x[i]], axis=1)
    third = activation.triple_expectation(_Third(activation), triples @ jnp.swapaxes(triples, 1, 2) / d)
    half = jnp.sum(third.reshape(p, p, n) * (points @ x.T)[:, None, :], axis=2)
    return -np.asarray(points @ points.T * (half + half.T), float) / d**2


def printed_kernel_step(activation: Activation, x: Float[Array, "n d"], points: Float[Array, "p d"]) -> np.ndarray:
    """Theorem 5.2 as printed: √d times too large."""
    return x.shape[1] ** 0.5 * first_kernel_step(activation, x, points)


class _Third(eqx.Module):
    """σ''(u) σ'(v) σ'(w) σ(w); a module, so that it is compiled once."""

    activation: Activation

    def __call__(self, u: Array, v: Array, w: Array) -> Array:
        sigma = self.activation
        return sigma.second_derivative(u) * sigma.derivative(v) * sigma.derivative(w) * sigma(w)


def _velocity(network: TwoLayer, data: Dataset, loss: Loss) -> Array:
    """dw/dt of the network's own flow."""
    return -network.pull(data.x, loss.slope(network(data.x), data.y, data.weight)).w


def _weights(network: TwoLayer, given: tuple[Dataset, Loss]) -> Float[Array, "2 d"]:
    """Return the velocity of all nodes together, and that of the first, which has the largest weight."""
    moved = _velocity(network, *given)
    return jnp.stack([jnp.sum(moved, axis=0), moved[0]])


def _kernel(network: TwoLayer, given: tuple[Dataset, Loss]) -> Float[Array, "p p"]:
    data, loss = given
    x = data.x[:_INPUTS]

    def theta(w: Array) -> Array:
        return with_fields(network, w=w).tangent_kernel(x, x)

    return jax.jvp(theta, (network.w,), (_velocity(network, data, loss),))[1]


class WeightsMove(Theorem[tuple[s.Model, float]]):
    """Theorem 5.1: E[dw_j/dt] = -(λ_{m,j}/√d) Σ_i x_i g_1(x_i) at t = 0.

    The right-hand side is `first_weight_step`; the left-hand side is a mean over ``draws`` random starts of the given
    network, on its data and loss, for the sum over nodes and for the first node. For odd σ, such as tanh, both sides
    are 0, so that the paper's remark that the expected change does not vanish is wrong for them.
    """

    key: ClassVar[str] = "caron2023/theorem-5.1"
    source: ClassVar[str] = f"{s.AUTHORS}, Theorem 5.1"
    statement: ClassVar[str] = "On average over starts, a weight's initial velocity is proportional to its node's λ."
    example: ClassVar[Example] = Example(s.at_start, Relu(), width=32)
    counterexample: ClassVar[Example] = Example(s.at_start, Tanh(), width=32)  # odd: no weight moves on average
    draws: int = eqx.field(static=True, default=2000)

    def read(self, run: Trajectory) -> Reading[tuple[s.Model, float] | None]:
        return _on_squares(run)

    def conclude(self, setting: tuple[s.Model, float]) -> Finding:
        (model, slope), key = setting, jax.random.key(51)
        mean = s.over_starts(_weights, model, (model.run.data, model.run.loss), self.draws, model.n, key=key)
        step = first_weight_step(model.network.activation, model.x)
        predicted = slope * model.unit * np.stack([step, model.variances[0] * step])
        return _equal(mean, predicted, "dw/dt")


class KernelMoves(Theorem[tuple[s.Model, float]]):
    """Theorem 5.2: E[dΘ/dt] at t = 0 is Σ_j λ_{m,j}² times a matrix that depends on the inputs alone.

    The matrix is `first_kernel_step`; the left-hand side is a mean over ``draws`` random starts of the given network,
    on its data and loss, between the first three inputs.
    """

    key: ClassVar[str] = "caron2023/theorem-5.2"
    source: ClassVar[str] = f"{s.AUTHORS}, Theorem 5.2"
    statement: ClassVar[str] = "On average over starts, the kernel's initial velocity is proportional to Σ λ²."
    example: ClassVar[Example] = Example(s.at_start, Tanh(), width=32)
    counterexample: ClassVar[Example] = Example(s.at_start, Relu(), width=32)  # no second derivative
    draws: int = eqx.field(static=True, default=4000)

    def read(self, run: Trajectory) -> Reading[tuple[s.Model, float] | None]:
        setting = yield from _on_squares(run)
        if setting is not None:
            yield from s.smooth(setting[0])
        return setting

    def conclude(self, setting: tuple[s.Model, float]) -> Finding:
        (model, slope), key = setting, jax.random.key(52)
        mean = s.over_starts(_kernel, model, (model.run.data, model.run.loss), self.draws, model.n, key=key)
        each = first_kernel_step(model.network.activation, model.x, model.x[:_INPUTS])
        predicted = slope * model.unit**2 * float(model.variances @ model.variances) * each
        return _equal(mean, predicted, "dΘ/dt")


def _on_squares(run: Trajectory) -> Reading[tuple[s.Model, float] | None]:
    """Require the paper's model and activations, on squared loss, with any inputs (Assumption 2.2 alone)."""
    hypotheses, model = read_all(s.read_any_inputs(run))
    squared, slope = squared_loss(run)
    yield from (*hypotheses, squared)
    if model is None:
        return None
    yield from s.relu_or_smooth(model)
    return model, slope


def _equal(mean: s.Mean, predicted: np.ndarray, what: str) -> Finding:
    margin, clear = mean.against(predicted), mean.resolved(predicted)
    numbers = {
        "predicted size": float(np.linalg.norm(predicted)),
        "measured size": float(np.linalg.norm(mean.value)),
        "standard error": float(np.linalg.norm(mean.error)),
        "draws": float(mean.draws),
    }
    why = (
        f"Over {mean.draws} starts |E {what}| = {numbers['measured size']:.3g} ± {numbers['standard error']:.2g}; the "
        f"formula gives {numbers['predicted size']:.3g}."
    )
    note = "That is too small to be distinguished from 0 with this number of draws."
    return Finding.judge(margin >= 1, why, margin, numbers, vacuous=clear < _CLEAR, if_vacuous=note)
