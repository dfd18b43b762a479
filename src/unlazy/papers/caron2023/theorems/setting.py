"""A run in the notation of caron2023: which runs the paper's equations describe, in which units, and small examples.

The paper's model is f = Σ_j √λ_j a_j σ(w_j·x/√d) with a_j = ±1 and Σ_j λ_j = 1, trained by gradient flow on ½ |y - f|².
A two-layer network with one output and read-outs ±c is this model in other units: with Λ = Σ_j (s_j c)², λ_j = (s_j c)²
/ Λ, R the rate of w and dL/df = ω (f - y) the slope of the run's own loss,

    f / √Λ is the paper's f, y / √Λ its y, R Λ Θ its Θ, and ω R Λ t its time.

The inputs are those of w: features, where there is an embedding.
"""

import dataclasses
import functools
from collections.abc import Callable, Iterator
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from scipy.special import ndtri

from unlazy._types import PRNGKey, PyTree
from unlazy.activations import Activation, Relu
from unlazy.data import Dataset
from unlazy.flows import Descent, GradientFlow, Trajectory
from unlazy.losses import Squared
from unlazy.networks import Network, Scaling, TwoLayer, Zipf, asymmetrical, with_fields
from unlazy.papers.caron2023.theorems.constants import curvature
from unlazy.papers.caron2023.theorems.kernels import asymmetrical_nodes, smallest_mean_eigenvalue
from unlazy.probes import Kernel, Probe, TrainLoss, WeightMovement
from unlazy.theory import Hypothesis, Reading, read_all, require, require_type, through
from unlazy.theory.hypotheses import gradient_flow, relative_error, rounding, rounding_error, squared_loss

AUTHORS = "Caron, Ayed, Jung, Lee, Lee, Yang (2023)"

PROBES: tuple[Probe, ...] = (TrainLoss(), Kernel(), WeightMovement())


@dataclasses.dataclass(frozen=True)
class Model:
    """A network at the start of a run and its data in the paper's units."""

    run: Trajectory
    network: TwoLayer
    w: Array
    x: Array  # inputs of w: features, where there is an embedding
    y: np.ndarray
    variances: np.ndarray  # λ_j
    gamma: float
    unit: float  # R Λ: the network's NTG in units of the paper's
    total: float  # Λ
    precision: float
    n: int  # number of training points
    d: int  # number of inputs, or features

    def part(self, which: int) -> np.ndarray:
        """Return λ^(1) or λ^(2) of eq. 14."""
        symmetric = np.full(self.variances.shape, self.gamma / self.variances.size)
        return symmetric if which == 1 else np.maximum(self.variances - symmetric, 0.0)

    @functools.cached_property
    def kappa(self) -> float:
        """κ_n (eq. 10)."""
        return smallest_mean_eigenvalue(self.network.activation, self.x)

    @functools.cached_property
    def residual(self) -> float:
        """|y - u_0|."""
        return float(np.linalg.norm(np.asarray(self.network(self.run.data.x), float) / self.total**0.5 - self.y))

    @functools.cached_property
    def rounding(self) -> float:
        """Eigenvalues of an NTG below this are indistinguishable from 0: the largest is at most Σ_i |x_i|² / d."""
        return 10 * self.n * self.precision * float(jnp.sum(self.x**2)) / self.d


class Path(NamedTuple):
    """A run on squared loss in the paper's units, as the probes of `PROBES` observed it from t = 0 on."""

    times: np.ndarray
    losses: np.ndarray  # L_t
    smallest: np.ndarray  # eig_min(Θ_t)
    movement: np.ndarray  # |w_tj - w_0j|, (T, m)
    drift: np.ndarray  # ‖Θ_t - Θ_0‖_2
    resolution: float  # error of √L
    relative_resolution: float  # resolution over √L_0
    rounding: float  # error of √L by rounding alone


def path(model: Model, slope: float) -> Path:
    """Return what was observed of a run on a loss with dL/df = ω (f - y), ω the ``slope``."""
    loss, kernel, weights = (through(model.run, probe) for probe in PROBES)
    losses = np.asarray(loss, float) / (slope * model.total)
    size = float(np.sqrt(max(0.5 * float(model.y @ model.y), losses[0])))
    error = relative_error(model.run, model.precision) * size
    smallest, drift = (np.asarray(kernel[name], float) / model.unit for name in ("smallest", "drift_operator"))
    times = np.asarray(model.run.times, float) * slope * model.unit
    movement, relative = np.asarray(weights["hidden"], float), error / max(losses[0] ** 0.5, 1e-300)
    return Path(times, losses, smallest, movement, drift, error, relative, rounding_error(model.precision) * size)


def described(network: Network) -> Reading[TwoLayer]:
    """Require a network that the paper describes."""
    network = yield from require_type("a two-layer network: a trained layer on inputs or features", network, TwoLayer)
    size, exponent = np.abs(np.asarray(network.a)), network.scaling.feature
    alike = size.ndim == 1 and size.min() == size.max() > 0 and not network.train_readout
    squares = np.asarray(network.s, float) ** 2
    written = asymmetrical_nodes(network).variances(network.width)
    yield from require(
        Hypothesis("one output with frozen read-outs ±c", bool(alike)),
        Hypothesis("no biases", network.b is None),
        Hypothesis("finitely many features", network.w is not None),
        Hypothesis("pre-activations w·x / √d", exponent == -0.5, exponent, -0.5),
        Hypothesis("node scales of eq. 1", np.allclose(squares / squares.sum(), written, rtol=1e-4, atol=1e-9)),
    )
    return network


def is_known(network: Network) -> bool:
    """Return whether the paper describes a network."""
    return read_all(described(network))[1] is not None


def read_any_inputs(run: Trajectory) -> Reading[Model]:
    """Require a network that the paper describes, with any inputs."""
    network, data = (yield from described(run.start)), run.data
    squares = (np.asarray(network.s, float) * float(jnp.abs(network.a[0]))) ** 2
    total, x = float(squares.sum()), network.embedding(data.x)
    return Model(
        run=run,
        network=network,
        w=jnp.asarray(network.w),
        x=x,
        y=np.asarray(data.y, float) / total**0.5,
        variances=squares / total,
        gamma=asymmetrical_nodes(network).gamma,
        unit=network.rates().w * total,
        total=total,
        precision=rounding(run),
        n=x.shape[0],
        d=x.shape[1],
    )


def read(run: Trajectory) -> Reading[Model]:
    """Require the paper's model, with inputs as in Assumption 2.1(a)."""
    model = yield from read_any_inputs(run)
    norms = np.linalg.norm(np.asarray(model.x, float), axis=1)
    inside = bool(norms.min() > 0 and norms.max() <= 1 + 10 * model.precision)
    yield from require(Hypothesis("inputs with 0 < |x| <= 1", inside, float(norms.max()), 1))
    return model


def observed_flow(run: Trajectory) -> Reading[float]:
    """Require squared loss and gradient flow, observed at t = 0 and later; return ω of the loss."""
    squared, slope = squared_loss(run)
    yield squared
    yield gradient_flow(run)
    yield Hypothesis("an observation at t = 0, and one later", bool(run.times.size > 1 and run.times[0] == 0))
    return slope


def relu(model: Model) -> Iterator[Hypothesis]:
    """Require Assumption 2.2(a)."""
    yield Hypothesis("ReLU", isinstance(model.network.activation, Relu))


def smooth(model: Model) -> Iterator[Hypothesis]:
    """Require Assumption 2.2(b). Where |σ'| <= 1, the polynomials are those with σ'' = 0."""
    sigma = model.network.activation
    yield Hypothesis("an activation without kinks", not sigma.kinks)
    yield slopes_at_most_one(model)
    bend = curvature(sigma)
    yield Hypothesis("σ'' bounded and not 0 everywhere, so that σ is not a polynomial", 0 < bend < np.inf, bend)


def relu_or_smooth(model: Model) -> Iterator[Hypothesis]:
    """Require Assumption 2.2."""
    if not isinstance(model.network.activation, Relu):
        yield from smooth(model)


def slopes_at_most_one(model: Model) -> Hypothesis:
    """Require |σ'| <= 1, all that the lemmas along a path require of an activation."""
    found = model.network.activation.lipschitz
    return Hypothesis("|σ'| <= 1", found <= 1 + 10 * model.precision, found, 1)


def positive_mean(model: Model) -> tuple[Hypothesis, Hypothesis]:
    """Require γ > 0, and κ_n > 0 up to rounding: what Assumption 2.1(b) is for (Prop. 3.1)."""
    kappa, floor = model.kappa, model.rounding
    return (
        Hypothesis("a symmetric share γ > 0", model.gamma > 0, model.gamma),
        Hypothesis("κ_n > 0, that is, no two inputs parallel", kappa > floor, kappa, floor),
    )


# Where targets are near the first outputs, few gates switch, and exponential steps are almost exact.
_FLOW = GradientFlow(loss=Squared("sum"), tolerance=1e-5, method="exponential")


def three_points(
    activation: Activation,
    scaling: Scaling | None = None,
    *,
    width: int = 512,
    near: float | None = None,
    parallel: bool = False,
    train: bool = True,
) -> Trajectory:
    """Train on three unit vectors in four dimensions, almost at right angles: κ_n is about as large as it can be.

    Without a scaling, γ = 0.5 and the other half of the node variances follows Zipf's law. ``near`` is the distance of
    the targets from the first outputs; with ``parallel`` one input is half of another; without ``train`` the run ends
    at its start.
    """
    x = jnp.eye(3, 4) + 0.1 * jnp.array([[0.0, 1.0, 1.0, 1.0], [1.0, 0.0, -1.0, 1.0], [-1.0, 1.0, 0.0, -1.0]])
    x = x / jnp.linalg.norm(x, axis=1, keepdims=True)
    if parallel:
        x = x.at[1].set(x[0] / 2)
    scaling = asymmetrical(0.5, Zipf(0.5)) if scaling is None else scaling
    network = TwoLayer(width, 4, activation=activation, scaling=scaling, key=jax.random.key(0))
    data = Dataset(x, jnp.array([0.6, -0.3, 0.4]), name="three points")
    if near is not None:
        data = Dataset(x, network(x) + near * data.y / jnp.linalg.norm(data.y), name="near the start")
    if not train:
        return Descent(loss=Squared("sum"))(network, data, (0.0,))
    return _FLOW(network, data, (0.0, 2.0, 8.0, 32.0), list(PROBES))


at_start = functools.partial(three_points, train=False)


def two_points() -> Trajectory:
    """Train on two orthogonal unit vectors in 500 dimensions, with small targets: Theorem 4.2 applies."""
    data = Dataset(jnp.eye(2, 500), jnp.array([0.01, -0.005]), name="two points")
    network = TwoLayer(20_000, 500, scaling=asymmetrical(0.9, Zipf(0.5)), key=jax.random.key(0))
    return _FLOW(network, data, (0.0, 50.0, 500.0, 2500.0), list(PROBES))


_CHANCE = 1e-6  # probability of rejecting an equation that is true
_WORK = 1e11  # products of weights and inputs for all draws together: about ten seconds


class Mean(NamedTuple):
    """A mean over random starts, entry by entry, and its standard error."""

    value: np.ndarray
    error: np.ndarray
    draws: int

    def against(self, predicted: np.ndarray) -> float:
        """Return the deviation from ``predicted`` that chance allows over the largest one found, for all entries."""
        allowed = -float(ndtri(_CHANCE / (2 * self.value.size)))
        apart = np.abs(self.value - predicted)
        worst = np.max(np.divide(apart, self.error, out=np.where(apart > 0, np.inf, 0.0), where=self.error > 0))
        return allowed / worst if worst > 0 else np.inf

    def resolved(self, predicted: np.ndarray) -> float:
        """Return the predicted size in standard errors: below a few it cannot be distinguished from 0."""
        return float(np.linalg.norm(predicted) / max(np.linalg.norm(self.error), 1e-300))


def over_starts(
    observe: Callable[[TwoLayer, PyTree], Array],
    model: Model,
    given: PyTree,
    draws: int,
    samples: int,
    *,
    key: PRNGKey,
) -> Mean:
    """Average ``observe(network, given)`` over starts of the network: w ~ N(0, I), read-outs of random sign.

    Each draw is used twice, the second time with all signs reversed, which removes the noise of odd terms. ``observe``
    must be a module-level function, so that it is compiled once. Large networks on many ``samples`` get fewer draws.
    """
    draws = min(draws, max(10, int(_WORK / (model.w.size * samples))))
    total, squares = _sums(observe, model.network, model.w, given, jax.random.split(key, draws))
    mean = np.asarray(total, float) / draws
    variance = np.maximum(np.asarray(squares, float) / draws - mean**2, 0.0)
    return Mean(mean, np.sqrt(variance / max(draws - 1, 1)), draws)


@eqx.filter_jit
def _sums(
    observe: Callable[[TwoLayer, PyTree], Array], network: TwoLayer, like: Array, given: PyTree, keys: Array
) -> tuple[Array, Array]:
    def once(key: PRNGKey) -> Array:
        w_key, a_key = jax.random.split(key)
        w = jax.random.normal(w_key, like.shape, like.dtype)
        a = jnp.abs(network.a) * jax.random.rademacher(a_key, network.a.shape, network.a.dtype)
        return (observe(with_fields(network, w=w, a=a), given) + observe(with_fields(network, w=w, a=-a), given)) / 2

    def add(sums: tuple[Array, Array], key: PRNGKey) -> tuple[tuple[Array, Array], None]:
        value = once(key)
        return (sums[0] + value, sums[1] + value**2), None

    value = jax.eval_shape(once, keys[0])
    zero = jnp.zeros(value.shape, value.dtype)
    return jax.lax.scan(add, (zero, zero), keys)[0]
