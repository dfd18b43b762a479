"""A run in the notation of caron2023: which runs the paper's equations describe, in which units, and small ones.

The paper's model is f = Σ_j √λ_j a_j σ(w_j·x/√d) with a_j = ±1 and Σ_j λ_j = 1, trained by gradient flow on ½ |y - f|².
A two-layer network with one output and read-outs ±c is this model in other units: with Λ = Σ_j (s_j c)², λ_j = (s_j c)²
/ Λ, R the rate of w and dL/df = ω (f - y) the slope of the run's own loss,

    f / √Λ is the paper's f, y / √Λ its y, R Λ Θ its Θ, and ω R Λ t its time.

The inputs are those of w: features, where there is an embedding.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from unlazy.activations import Activation, Relu
from unlazy.data import Dataset
from unlazy.flows import Descent, GradientFlow, Trajectory
from unlazy.losses import Squared
from unlazy.networks import Network, Scaling, TwoLayer, Zipf, asymmetrical
from unlazy.papers.caron2023.theorems.constants import curvature
from unlazy.papers.caron2023.theorems.kernels import asymmetrical_nodes, smallest_mean_eigenvalue
from unlazy.probes import Kernel, Probe, TrainLoss, WeightMovement
from unlazy.theory._base import Hypothesis, Reading, read_all, through
from unlazy.theory._runs import all_met, gaussian_start, gradient_flow, no_biases, relative_error, squared_loss

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

    @property
    def raw(self) -> Array:
        """Inputs as the network takes them."""
        return self.run.data.x

    @property
    def n(self) -> int:
        """Number of training points."""
        return self.x.shape[0]

    @property
    def d(self) -> int:
        """Number of inputs, or features."""
        return self.x.shape[1]

    @property
    def share(self) -> tuple[float, float]:
        """γ_1 = γ and γ_2 = 1 - γ: what the two parts of eq. 14 weigh."""
        return self.gamma, 1 - self.gamma

    def part(self, which: int) -> np.ndarray:
        """λ^(1) or λ^(2) of eq. 14."""
        symmetric = np.full(self.variances.shape, self.gamma / self.variances.size)
        return symmetric if which == 1 else np.maximum(self.variances - symmetric, 0.0)

    @functools.cached_property
    def kappa(self) -> float:
        """κ_n (eq. 10)."""
        return smallest_mean_eigenvalue(self.network.activation, self.x)

    @functools.cached_property
    def residual(self) -> float:
        """|y - u_0|."""
        return float(np.linalg.norm(np.asarray(self.network(self.raw), float) / self.total**0.5 - self.y))

    @functools.cached_property
    def rounding(self) -> float:
        """An NTG's eigenvalues below this are indistinguishable from 0: its largest is at most Σ_i |x_i|² / d."""
        return 10 * self.n * self.precision * float(jnp.sum(self.x**2)) / self.d


@dataclasses.dataclass(frozen=True)
class Path:
    """A run on squared loss in the paper's units, as the probes of `PROBES` observed it from t = 0 on."""

    model: Model
    slope: float  # ω

    @property
    def times(self) -> np.ndarray:
        """When it was observed."""
        return np.asarray(self.model.run.times, float) * self.slope * self.model.unit

    @functools.cached_property
    def losses(self) -> np.ndarray:
        """L_t."""
        return np.asarray(through(self.model.run, TrainLoss()), float) / (self.slope * self.model.total)

    @functools.cached_property
    def smallest(self) -> np.ndarray:
        """eig_min(Θ_t)."""
        return np.asarray(through(self.model.run, Kernel())["smallest"], float) / self.model.unit

    @functools.cached_property
    def drift(self) -> np.ndarray:
        """‖Θ_t - Θ_0‖_2."""
        return np.asarray(through(self.model.run, Kernel())["drift_operator"], float) / self.model.unit

    @functools.cached_property
    def movement(self) -> np.ndarray:
        """|w_tj - w_0j|, (T, m)."""
        return np.asarray(through(self.model.run, WeightMovement())["hidden"], float)

    @property
    def resolution(self) -> float:
        """How well √L is known."""
        y, error = self.model.y, relative_error(self.model.run, self.model.precision)
        return error * float(np.sqrt(max(0.5 * float(y @ y), self.losses[0])))


def described(network: Network) -> Reading[TwoLayer | None]:
    """The networks that the paper describes."""
    yield Hypothesis("a two-layer network: a trained layer on inputs or features", isinstance(network, TwoLayer))
    if not isinstance(network, TwoLayer):
        return None
    size, exponent = np.abs(np.asarray(network.a)), network.scaling.feature
    alike = size.ndim == 1 and size.min() == size.max() > 0 and not network.train_readout
    squares = np.asarray(network.s, float) ** 2
    written = asymmetrical_nodes(network).variances(network.width)
    met = yield from all_met(
        Hypothesis("one output with frozen read-outs ±c", bool(alike)),
        no_biases(network),
        Hypothesis("finitely many features", network.w is not None),
        Hypothesis("pre-activations w·x / √d", exponent == -0.5, exponent, -0.5),
        Hypothesis("node scales of eq. 1", np.allclose(squares / squares.sum(), written, rtol=1e-4, atol=1e-9)),
    )
    return network if met else None


def watched(network: Network, data: Dataset) -> list[Probe]:
    """Give the probes that observe (a)-(d) of the main theorems; none for networks that the paper does not describe."""
    return [] if read_all(described(network))[1] is None else list(PROBES)


def model(run: Trajectory) -> Reading[Model | None]:
    """The networks that the paper describes, with any inputs."""
    network, data = (yield from described(run.start)), run.data
    if network is None or network.w is None:
        return None
    squares = (np.asarray(network.s, float) * float(jnp.abs(network.a[0]))) ** 2
    total = float(squares.sum())
    return Model(
        run=run,
        network=network,
        w=network.w,
        x=network.embedding(data.x),
        y=np.asarray(data.y, float) / total**0.5,
        variances=squares / total,
        gamma=asymmetrical_nodes(network).gamma,
        unit=network.rates().w * total,
        total=total,
        precision=float(jnp.finfo(data.x.dtype).eps),
    )


def start(run: Trajectory) -> Reading[Model | None]:
    """The paper's model, with inputs as Assumption 2.1(a) wants them."""
    made = yield from model(run)
    if made is None:
        return None
    norms = np.linalg.norm(np.asarray(made.x, float), axis=1)
    inside = bool(norms.min() > 0 and norms.max() <= 1 + 10 * made.precision)
    yield Hypothesis("inputs with 0 < |x| <= 1", inside, float(norms.max()), 1)
    return made if inside else None


def along(made: Model) -> Reading[Path | None]:
    """Squared loss and gradient flow, observed at t = 0 and later, as every theorem about the path asks for."""
    run = made.run
    slope = yield from squared_loss(run)
    yield gradient_flow(run)
    yield Hypothesis("an observation at t = 0, and one later", bool(run.times.size > 1 and run.times[0] == 0))
    return None if slope is None else Path(made, slope)


def gaussian(made: Model) -> Iterator[Hypothesis]:
    """Assumption 2.3, as far as numbers can show it."""
    return gaussian_start(np.asarray(made.w, float), "nodes")


def relu(made: Model) -> Hypothesis:
    """Assumption 2.2(a)."""
    return Hypothesis("ReLU", isinstance(made.network.activation, Relu))


def smooth(made: Model) -> Iterator[Hypothesis]:
    """Assumption 2.2(b). Where |σ'| <= 1, the polynomials are those with σ'' = 0."""
    sigma = made.network.activation
    yield Hypothesis("an activation without kinks", not sigma.kinks)
    yield slopes_at_most_one(made)
    bend = curvature(sigma)
    yield Hypothesis("σ'' bounded and not 0 everywhere, so that σ is no polynomial", 0 < bend < np.inf, bend)


def either(made: Model) -> Iterator[Hypothesis]:
    """Assumption 2.2."""
    if not relu(made).met:
        yield from smooth(made)


def slopes_at_most_one(made: Model) -> Hypothesis:
    """All that lemmas along a path ask of an activation."""
    found = made.network.activation.lipschitz
    return Hypothesis("|σ'| <= 1", found <= 1 + 10 * made.precision, found, 1)


def sums_to_one(made: Model) -> Hypothesis:
    """Eq. 15, which fixes the units of eq. 1."""
    return Hypothesis("node variances that sum to 1", abs(made.total - 1) < 1e-6, made.total, 1)


def symmetric_share(made: Model) -> Hypothesis:
    """γ > 0."""
    return Hypothesis("a symmetric share γ > 0", made.gamma > 0, made.gamma)


def positive(made: Model) -> Hypothesis:
    """κ_n > 0 up to rounding: what Assumption 2.1(b) is for (Prop. 3.1)."""
    kappa, floor = made.kappa, made.rounding
    return Hypothesis("κ_n > 0, that is, no two inputs parallel", kappa > floor, kappa, floor)


HALF = asymmetrical(0.5, Zipf(0.5))
_TIMES = (0.0, 2.0, 8.0, 32.0)
# Where targets lie near the first outputs hardly a gate switches, and steps that solve the residual are exact.
_FLOW = GradientFlow(loss=Squared("sum"), tolerance=1e-5, method="exponential")


def at_start(
    activation: Activation, scaling: Scaling = HALF, *, width: int = 512, parallel: bool = False
) -> Trajectory:
    """`three_points` before the first step."""
    network, data = _three(activation, scaling, width, parallel)
    return Descent(loss=Squared("sum"))(network, data, (0.0,))


def three_points(
    activation: Activation, scaling: Scaling = HALF, *, near: float | None = None, parallel: bool = False
) -> Trajectory:
    """Three unit vectors in four dimensions, almost at right angles: κ_n is then about as large as it can be.

    ``near`` is the distance of the targets from the first outputs, and ``parallel`` turns one input onto another.
    """
    network, data = _three(activation, scaling, 512, parallel)
    if near is not None:
        data = Dataset(data.x, network(data.x) + near * data.y / jnp.linalg.norm(data.y), name="near the start")
    return _FLOW(network, data, _TIMES, list(PROBES))


def _three(activation: Activation, scaling: Scaling, width: int, parallel: bool) -> tuple[TwoLayer, Dataset]:
    x = jnp.eye(3, 4) + 0.1 * jnp.array([[0.0, 1.0, 1.0, 1.0], [1.0, 0.0, -1.0, 1.0], [-1.0, 1.0, 0.0, -1.0]])
    x = x / jnp.linalg.norm(x, axis=1, keepdims=True)
    if parallel:
        x = x.at[1].set(x[0] / 2)
    network = TwoLayer(width, 4, activation=activation, scaling=scaling, key=jax.random.key(0))
    return network, Dataset(x, jnp.array([0.6, -0.3, 0.4]), name="three points")


def two_points() -> Trajectory:
    """Two unit vectors at right angles among 500 dimensions, with small targets: where Theorem 4.2 begins to speak."""
    data = Dataset(jnp.eye(2, 500), jnp.array([0.01, -0.005]), name="two points")
    network = TwoLayer(20_000, 500, scaling=asymmetrical(0.9, Zipf(0.5)), key=jax.random.key(0))
    return _FLOW(network, data, (0.0, 50.0, 500.0, 2500.0), list(PROBES))
