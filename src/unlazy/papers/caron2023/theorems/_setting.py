"""A run in the notation of caron2023: which runs the paper's equations describe, and in which units.

The paper's model is f = Σ_j √λ_j a_j σ(w_j·x/√d) with a_j = ±1 and Σ_j λ_j = 1, trained by gradient flow on ½ |y - f|².
A two-layer network with one output and read-outs ±c is this model in other units: with Λ = Σ_j (s_j c)², λ_j = (s_j c)²
/ Λ, R the rate of w and dL/df = ω (f - y) the slope of the run's own loss,

    f / √Λ is the paper's f, y / √Λ its y, R Λ Θ its Θ, and ω R Λ t its time.

The inputs are those that w sees: features, where there is an embedding.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from unlazy.activations import Activation, Relu
from unlazy.data import Dataset
from unlazy.flows import Trajectory
from unlazy.networks import Network, TwoLayer
from unlazy.papers.caron2023.theorems.constants import curvature
from unlazy.papers.caron2023.theorems.kernels import asymmetrical_nodes, smallest_mean_eigenvalue
from unlazy.probes import Kernel, Probe, TrainLoss, WeightMovement
from unlazy.theory._base import Hypothesis, through
from unlazy.theory._runs import gaussian_weights, gradient_flow, loss_slope, no_biases, relative_error, squared_loss

AUTHORS = "Caron, Ayed, Jung, Lee, Lee, Yang (2023)"

PROBES: tuple[Probe, ...] = (TrainLoss(), Kernel(), WeightMovement())


class Model(NamedTuple):
    """A network at the start and its data in the paper's units."""

    network: TwoLayer
    raw: Array  # inputs as the network takes them
    x: Array  # inputs as w sees them
    y: np.ndarray
    variances: np.ndarray  # λ_j
    gamma: float
    unit: float  # R Λ: the network's NTG in units of the paper's
    total: float  # Λ
    precision: float

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

    def kappa(self) -> float:
        """κ_n (eq. 10)."""
        return _kappa(self.network.activation, self.x)

    def residual(self) -> float:
        """|y - u_0|."""
        return float(np.linalg.norm(np.asarray(self.network(self.raw), float) / self.total**0.5 - self.y))


_last: list[tuple[Activation, Array, float]] = []  # several theorems ask for the same number, one after the other


def _kappa(activation: Activation, x: Array) -> float:
    for known, points, value in _last:
        if known == activation and points is x:
            return value
    value = smallest_mean_eigenvalue(activation, x)
    _last[:] = [*_last[-3:], (activation, x, value)]
    return value


class Path(NamedTuple):
    """What a run has seen, in the paper's units, look by look from t = 0 on."""

    model: Model
    times: np.ndarray
    losses: np.ndarray
    smallest: np.ndarray  # eig_min(Θ_t)
    drift: np.ndarray  # ‖Θ_t - Θ_0‖_2
    movement: np.ndarray  # |w_tj - w_0j|, (T, m)
    resolution: float  # how well √L is known
    slack: float  # how well the other numbers are known, relative to their largest values


def speaks_of(network: Network) -> Iterator[Hypothesis]:
    """Give the conditions under which the paper describes a network."""
    two_layers = isinstance(network, TwoLayer)
    yield Hypothesis("a two-layer network: a trained layer on inputs or features", two_layers)
    if not two_layers:
        return
    size = np.abs(np.asarray(network.a))
    alike = size.ndim == 1 and size.min() == size.max() > 0 and not network.train_readout
    yield Hypothesis("one output with frozen read-outs ±c", bool(alike))
    yield no_biases(network)
    finite = network.w is not None
    yield Hypothesis("finitely many features", finite)
    exponent = network.scaling.feature
    yield Hypothesis("pre-activations w·x / √d", exponent == -0.5, exponent, -0.5)
    squares = np.asarray(network.s, float) ** 2
    written = asymmetrical_nodes(network).variances(network.width)
    fits = np.allclose(squares / squares.sum(), written, rtol=1e-4, atol=1e-9)
    yield Hypothesis("node scales of eq. 1", bool(fits))


def is_known(network: Network) -> bool:
    """Whether it makes sense to ask the paper about a network at all, before it is run."""
    return all(condition.met for condition in speaks_of(network))


def watched(network: Network, data: Dataset) -> list[Probe]:
    """Give the probes through which (a)-(d) of the main theorems are seen."""
    return list(PROBES) if is_known(network) else []


_models: list[tuple[Network, Array, Model]] = []


def model(network: Network, data: Dataset) -> Model:
    """Give a network that the paper describes, and its data, in the paper's units."""
    assert isinstance(network, TwoLayer)
    for known, points, value in _models:
        if known is network and points is data.x:
            return value
    readout = float(jnp.abs(network.a[0]))
    squares = (np.asarray(network.s, float) * readout) ** 2
    total = float(squares.sum())
    made = Model(
        network=network,
        raw=data.x,
        x=network.embedding(data.x),
        y=np.asarray(data.y, float) / total**0.5,
        variances=squares / total,
        gamma=asymmetrical_nodes(network).gamma,
        unit=network.rates().w * total,
        total=total,
        precision=float(jnp.finfo(data.x.dtype).eps),
    )
    _models[:] = [*_models[-3:], (network, data.x, made)]
    return made


def start(run: Trajectory) -> tuple[list[Hypothesis], Model | None]:
    """Give the conditions on network and inputs (Assumption 2.1(a)); if they are met, both in the paper's units."""
    conditions = list(speaks_of(run.start))
    if not all(condition.met for condition in conditions):
        return conditions, None
    made = model(run.start, run.data)
    norms = np.linalg.norm(np.asarray(made.x, float), axis=1)
    inside = norms.min() > 0 and norms.max() <= 1 + 10 * made.precision
    conditions.append(Hypothesis("inputs with 0 < |x| <= 1", bool(inside), float(norms.max()), 1))
    return conditions, made if inside else None


def gaussian(made: Model) -> Iterator[Hypothesis]:
    """Assumption 2.3, as far as numbers can show it."""
    w = np.asarray(made.network.w, float)
    square = float(np.mean(w**2))
    yield Hypothesis("weights of variance 1 at the start", abs(square - 1) <= 6 * (2 / w.size) ** 0.5, square, 1)
    distinct = np.unique(w[:, 0]).size  # half of m for pairs; in single precision a few may meet by chance
    yield gaussian_weights(w)
    yield Hypothesis("independent nodes, not pairs of equal ones", distinct > 0.75 * len(w), distinct, len(w))


def relu(made: Model) -> Hypothesis:
    """Assumption 2.2(a)."""
    return Hypothesis("ReLU", isinstance(made.network.activation, Relu))


def smooth(made: Model) -> Iterator[Hypothesis]:
    """Assumption 2.2(b). Where |σ'| <= 1, the polynomials are those with σ'' = 0."""
    sigma = made.network.activation
    yield Hypothesis("an activation without kinks", not sigma.kinks)
    yield Hypothesis("|σ'| <= 1", sigma.lipschitz <= 1 + 10 * made.precision, sigma.lipschitz, 1)
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
    """κ_n > 0, as far as precision lets one see: what Assumption 2.1(b) is for (Prop. 3.1)."""
    kappa = made.kappa()
    return Hypothesis("κ_n > 0, that is, no two inputs parallel", kappa > rounding(made), kappa, rounding(made))


def rounding(made: Model) -> float:
    """Eigenvalues of an NTG below this are not told from 0: its largest is at most Σ_i |x_i|² / d."""
    return 10 * made.n * made.precision * float(jnp.sum(made.x**2)) / made.d


def along(run: Trajectory) -> Iterator[Hypothesis]:
    """Squared loss and gradient flow, as every theorem about the way asks for."""
    yield squared_loss(run)
    yield gradient_flow(run)
    yield Hypothesis("a look at t = 0, and one later", bool(run.times.size > 1 and run.times[0] == 0))


def path(run: Trajectory) -> Path:
    """Give what a run has seen through `PROBES` in the paper's units, its conditions being met."""
    made = model(run.start, run.data)
    loss, kernel, movement = (through(run, probe) for probe in PROBES)
    omega = loss_slope(run)
    error = relative_error(run, made.precision)
    losses = np.asarray(loss, float) / (omega * made.total)
    return Path(
        model=made,
        times=np.asarray(run.times, float) * omega * made.unit,
        losses=losses,
        smallest=np.asarray(kernel["smallest"], float) / made.unit,
        drift=np.asarray(kernel["drift_operator"], float) / made.unit,
        movement=np.asarray(movement["hidden"], float),
        resolution=error * float(np.sqrt(max(0.5 * float(made.y @ made.y), losses[0]))),
        slack=error,
    )
