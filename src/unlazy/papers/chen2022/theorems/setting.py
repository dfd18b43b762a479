"""A run in the notation of chen2022: which runs the paper's equations describe, in which units, and a small example.

The paper's model is f = (1/m) Σ_i c_i σ(h_i) with |c_i| = ĉ, trained by W' = -m ∂L/∂W on L = ½ Σ_a (f(x_a) - y_a)². A
two-layer network in any scaling whose neurons all have the same scale is this model with ĉ = m s |a| and another unit
of time: with R the rate of w, e the factor in front of w·Φ and dℓ/df = ω r the slope of the run's own loss,

    h_i' = -τ c_i Σ_b G(x, x_b) r_b σ'(h_i(x_b)),   τ = R e² D ω / m.

So where the loss is a mean, the paper's time passes n times as slowly, and the NTK scaling is ĉ = √m |a| with the
paper's time m times as slow. The rates of the theorems are multiplied by τ.
"""

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, TypeGuard

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from unlazy.activations import Activation
from unlazy.data import Dataset
from unlazy.flows import GradientFlow, Trajectory
from unlazy.losses import Squared
from unlazy.networks import Anchored, Infinite, Network, RandomLayers, TwoLayer
from unlazy.probes import Probe, TrainLoss
from unlazy.theory import Hypothesis, Reading, require, require_type, through
from unlazy.theory.decay import Fall
from unlazy.theory.hypotheses import (
    gaussian_start,
    gradient_flow,
    relative_error,
    rounding,
    rounding_error,
    squared_loss,
)

AUTHORS = "Chen, Vanden-Eijnden, Bruna (2022)"
TWO_LAYERS = "a two-layer network: a trained layer on an embedding"


def gram(network: TwoLayer, x: Array) -> np.ndarray:
    """G_ab = Φ(x_a)·Φ(x_b) / D of the network's own embedding, finite or infinite (eq. 12, 20, 22)."""
    return np.asarray(network.embedding.kernel(x, x), float)


def limit_gram(network: TwoLayer, x: Array) -> np.ndarray | None:
    """Ḡ, the limit of G as D → ∞, layer after layer (eq. 23 and App. H); None for an embedding that is not random."""
    embedding = network.embedding
    if isinstance(embedding, RandomLayers):
        embedding = Infinite(len(embedding.widths), embedding.activation)
    return np.asarray(embedding.kernel(x, x), float) if isinstance(embedding, Infinite | Anchored) else None


class Spectrum(NamedTuple):
    """The extreme eigenvalues and diagonal entries of a Gram matrix, and their accuracy."""

    smallest: float
    largest: float
    low: float  # min_a G_aa
    high: float  # max_a G_aa
    rounding: float  # eigenvalues below it cannot be distinguished from 0
    positive: bool  # whether the matrix is positive definite, up to rounding


def spectrum(matrix: np.ndarray, precision: float) -> Spectrum:
    """Summarise a Gram matrix whose entries have this relative precision."""
    values, diagonal = np.linalg.eigvalsh(matrix), np.diag(matrix)
    smallest, largest = float(values[0]), float(values[-1])
    error = 10 * len(matrix) * precision * largest
    return Spectrum(smallest, largest, float(diagonal.min()), float(diagonal.max()), error, smallest > error)


@dataclasses.dataclass(frozen=True)
class Setting:
    """A run in the paper's units."""

    run: Trajectory
    network: TwoLayer  # at the start
    y: np.ndarray
    c: float  # ĉ
    slope: float  # ω
    speed: float  # τ: the paper's time that passes in one unit of the run's
    gram: np.ndarray
    spectrum: Spectrum
    start_loss: float  # L^0
    resolution: float  # error of √L: the flow's own estimate, and rounding
    rounding: float  # error of √L by rounding alone

    def losses(self) -> np.ndarray:
        """Return L^t = ½ Σ_a (f - y)² at every time of the run, in whatever units the run's own loss is."""
        return np.asarray(through(self.run, TrainLoss()), float) / self.slope

    def fall(self) -> Fall:
        """Return the loss curve from t = 0 on, also if the run was first observed later."""
        times, losses = self.run.times, self.losses()
        if times[0] > 0:
            times, losses = np.concatenate([[0.0], times]), np.concatenate([[self.start_loss], losses])
        return Fall(times, losses, self.resolution, self.rounding)

    def positive_definite(self) -> Hypothesis:
        """Require λ_min(G) > 0."""
        what = "eig_min(G) > 0, that is, linearly independent features Φ(x_a)"
        return Hypothesis(what, self.spectrum.positive, self.spectrum.smallest)


def read(run: Trajectory) -> Reading[Setting]:
    """Require the paper's model, trained by gradient flow on squared loss, from a loss above 0."""
    network = yield from require_type(TWO_LAYERS, run.start, TwoLayer)
    squared, slope = squared_loss(run)
    biases = Hypothesis("no biases", network.b is None)
    yield from require(one_size(network), biases, squared, gradient_flow(run))
    x, y, precision = run.data.x, np.asarray(run.data.y, float), rounding(run)
    matrix, m, features = gram(network, x), network.width, np.asarray(network.w).shape[1]
    residual = np.asarray(network(x), float) - y
    start_loss = 0.5 * float(residual @ residual)
    yield from require(Hypothesis("a loss above 0 at the start", start_loss > 0, start_loss))
    size = float(np.sqrt(max(0.5 * float(y @ y), start_loss)))
    return Setting(
        run=run,
        network=network,
        y=y,
        c=readout(network),
        slope=slope,
        speed=network.rates().w * network.factor() ** 2 * features * slope / m,
        gram=matrix,
        spectrum=spectrum(matrix, precision),
        start_loss=start_loss,
        resolution=relative_error(run, precision) * size,
        rounding=rounding_error(precision) * size,
    )


def one_size(network: TwoLayer) -> Hypothesis:
    """Require one output, and frozen read-outs ±c before nodes of one scale (Assumption 1)."""
    size, scales = np.abs(np.asarray(network.a)), np.asarray(network.s)
    alike = size.ndim == 1 and size.min() == size.max() > 0 and scales.min() == scales.max() > 0
    met = bool(alike and not network.train_readout)
    return Hypothesis("one output, frozen read-outs ±c, nodes of equal scale", met)


def readout(network: TwoLayer) -> float:
    """Return ĉ = m s |a| of a network whose read-outs and nodes have one size."""
    return network.width * float(network.s[0]) * float(jnp.abs(network.a[0]))


def independent_neurons(network: TwoLayer) -> Iterator[Hypothesis]:
    """Require Assumption 3, as far as numbers can show it: independent neurons with h_i ~ N(0, G)."""
    w = np.asarray(network.w, float)
    features = w.shape[1]
    size = float(features) ** (2 * network.scaling.feature) * features
    yield Hypothesis("pre-activations with covariance G at the start", abs(size - 1) < 1e-6, size, 1)
    yield from gaussian_start(w, "neurons")


def lipschitz(activation: Activation) -> Hypothesis:
    """Require L_σ < ∞."""
    return Hypothesis("a Lipschitz activation", bool(np.isfinite(activation.lipschitz)))


def is_known(network: Network) -> TypeGuard[TwoLayer]:
    """Return whether the paper's equations describe a network, as far as this is known before a run."""
    return isinstance(network, TwoLayer) and one_size(network).met and network.b is None


def random_layer(network: Network) -> tuple[RandomLayers, Activation] | None:
    """Return the frozen random layer below the trained one and its activation, if there is exactly one."""
    embedding = network.embedding if isinstance(network, TwoLayer) else None
    if isinstance(embedding, RandomLayers) and len(embedding.widths) == 1 and embedding.activation is not None:
        return embedding, embedding.activation
    return None


def small_inputs(
    probes: Sequence[Probe] | Callable[[TwoLayer, Dataset], Sequence[Probe]] = (),
    *,
    readout: float = 30.0,
    parallel: bool = False,
    **options: Any,
) -> Trajectory:
    """Train 4096 neurons on two nearly orthogonal (or parallel) inputs with |x|²/d = 1e-4.

    The inputs are so small that tanh neurons are well inside their active interval. Then the guarantees apply from
    feasible read-outs and widths on: ĉ of about 60 |y| and a few hundred neurons. ``probes`` are what to observe, or a
    function of network and data that returns it; ``readout`` is the size of the read-outs, and ``options`` are those of
    `TwoLayer`. If ``parallel``, both inputs are the same.
    """
    x = jnp.sqrt(2 * 1e-4) * jnp.array([[1.0, 0.0], [1.0, 0.0] if parallel else [0.2, 0.96**0.5]])
    data = Dataset(x, jnp.array([0.09, -0.04]), name="two small inputs")
    network = TwoLayer(4096, 2, readout=readout, key=jax.random.key(0), **options)
    flow = GradientFlow(loss=Squared("sum"), tolerance=1e-5)
    return flow(network, data, (0.0, 10.0, 20.0, 40.0), list(probes(network, data) if callable(probes) else probes))
