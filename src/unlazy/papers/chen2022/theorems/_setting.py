"""A run in the notation of chen2022: which runs the paper's equations describe, in which units, and small ones.

The paper's model is f = (1/m) Σ_i c_i σ(h_i) with |c_i| = ĉ, trained by W' = -m ∂L/∂W on L = ½ Σ_a (f(x_a) - y_a)². A
two-layer network in any scaling whose neurons are alike is this model with ĉ = m s |a|, at another speed of time: with
R the rate of w, e the factor in front of w·Φ and dℓ/df = ω r the slope of the run's own loss,

    h_i' = -τ c_i Σ_b G(x, x_b) r_b σ'(h_i(x_b)),   τ = R e² D ω / m.

So the mean of the loss makes the paper's time n times as slow, and the NTK scaling is ĉ = √m |a| with time m times as
slow. What the theorems say of rates is multiplied by τ.
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple, TypeGuard

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from unlazy.activations import Activation, ActiveInterval
from unlazy.data import Dataset
from unlazy.flows import GradientFlow, Trajectory
from unlazy.losses import Squared
from unlazy.networks import Anchored, Infinite, Network, RandomLayers, TwoLayer
from unlazy.probes import TrainLoss
from unlazy.theory._base import Hypothesis, Reading, Theorem, through
from unlazy.theory._fall import Fall, fall
from unlazy.theory._runs import all_met, gradient_flow, no_biases, relative_error, squared_loss

AUTHORS = "Chen, Vanden-Eijnden, Bruna (2022)"


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
    """What the theorems ask of a Gram matrix: extreme eigenvalues and diagonal entries, and how well they are known."""

    smallest: float
    largest: float
    low: float  # min_a G_aa
    high: float  # max_a G_aa
    rounding: float  # eigenvalues below it cannot be distinguished from 0

    @property
    def positive(self) -> bool:
        """Whether the matrix is positive definite, as far as its precision lets one see."""
        return self.smallest > self.rounding


def spectrum(matrix: np.ndarray, precision: float) -> Spectrum:
    """Summarise a Gram matrix whose entries have this relative precision."""
    values, diagonal = np.linalg.eigvalsh(matrix), np.diag(matrix)
    rounding = 10 * len(matrix) * precision * float(values[-1])
    return Spectrum(float(values[0]), float(values[-1]), float(diagonal.min()), float(diagonal.max()), rounding)


@dataclasses.dataclass(frozen=True)
class Setting:
    """A run in the paper's units."""

    run: Trajectory
    network: TwoLayer  # at the start
    w: Array  # its weights
    y: np.ndarray
    c: float  # ĉ
    slope: float  # ω
    speed: float  # τ: the paper's time that passes in one unit of the run's
    gram: np.ndarray
    spectrum: Spectrum
    start_loss: float  # L^0
    resolution: float  # how well √L is known: the flow's own estimate of its error, and rounding
    precision: float  # of the numbers of the run

    def losses(self) -> np.ndarray:
        """L^t = ½ Σ_a (f - y)² at every time of the run, whatever the run's own loss divides by."""
        return np.asarray(through(self.run, TrainLoss()), float) / self.slope

    def fall(self) -> Fall:
        """The loss curve from t = 0 on."""
        return fall(self.run.times, self.losses(), self.start_loss, self.resolution)


def read(run: Trajectory) -> Reading[Setting | None]:
    """The paper's model, followed as a flow on squared loss, from a loss above 0."""
    network = yield from two_layers(run.start)
    if network is None or network.w is None:
        return None
    alike = yield from all_met(one_size(network), no_biases(network))
    slope = yield from squared_loss(run)
    flow = yield from all_met(gradient_flow(run))
    if not (alike and flow) or slope is None:
        return None
    data, (m, features) = run.data, network.w.shape
    matrix, precision = gram(network, data.x), float(jnp.finfo(data.x.dtype).eps)
    y = np.asarray(data.y, float)
    residual = np.asarray(network(data.x), float) - y
    start_loss = 0.5 * float(residual @ residual)
    yield Hypothesis("a loss above 0 at the start", start_loss > 0, start_loss)
    if start_loss == 0:
        return None
    return Setting(
        run=run,
        network=network,
        w=network.w,
        y=y,
        c=m * float(network.s[0]) * float(jnp.abs(network.a[0])),
        slope=slope,
        speed=network.rates().w * network.factor() ** 2 * features * slope / m,
        gram=matrix,
        spectrum=spectrum(matrix, precision),
        start_loss=start_loss,
        resolution=relative_error(run, precision) * float(np.sqrt(max(0.5 * float(y @ y), start_loss))),
        precision=precision,
    )


def two_layers(network: Network) -> Reading[TwoLayer | None]:
    """The type of network that the paper is about."""
    yield Hypothesis("a two-layer network: a trained layer on an embedding", isinstance(network, TwoLayer))
    return network if isinstance(network, TwoLayer) else None


def one_size(network: TwoLayer) -> Hypothesis:
    """One output, and frozen read-outs ±c before nodes of one scale (Assumption 1)."""
    size, scales = np.abs(np.asarray(network.a)), np.asarray(network.s)
    alike = size.ndim == 1 and size.min() == size.max() > 0 and scales.min() == scales.max() > 0
    return Hypothesis("one output with frozen read-outs ±c, all nodes alike", bool(alike and not network.train_readout))


def positive_definite(setting: Setting) -> Hypothesis:
    """λ_min(G) > 0."""
    known = setting.spectrum
    what = "eig_min(G) > 0, that is, linearly independent features Φ(x_a)"
    return Hypothesis(what, known.positive, known.smallest)


def active_somewhere(interval: ActiveInterval | None) -> Hypothesis:
    """Assumption 2."""
    return Hypothesis("an interval on which |σ'| is bounded away from 0", interval is not None)


def lipschitz(activation: Activation) -> Hypothesis:
    """L_σ < ∞."""
    return Hypothesis("a Lipschitz activation", bool(np.isfinite(activation.lipschitz)))


def is_known(network: Network) -> TypeGuard[TwoLayer]:
    """Whether the paper may describe a network, as far as it shows before a run."""
    return isinstance(network, TwoLayer) and one_size(network).met and network.b is None


def random_layer(network: Network) -> tuple[RandomLayers, Activation] | None:
    """The frozen random layer below the trained one and its activation, if there is exactly one."""
    embedding = network.embedding if isinstance(network, TwoLayer) else None
    if isinstance(embedding, RandomLayers) and len(embedding.widths) == 1 and embedding.activation is not None:
        return embedding, embedding.activation
    return None


# Two points, almost at right angles and so small that tanh neurons sit well inside their active interval. Then the
# guarantees begin at read-outs and widths that a laptop holds: ĉ of about 60 |y| and a few hundred neurons.
_SIZE = 1e-4
_READOUT, _WIDTH, _TIMES = 30.0, 4096, (0.0, 10.0, 20.0, 40.0)


def small_inputs(theorem: Theorem, *, readout: float = _READOUT, parallel: bool = False, **options: Any) -> Trajectory:
    """Two nearly orthogonal (or parallel) inputs with |x|²/d = 1e-4, observed with the probes that ``theorem`` needs.

    ``options`` are those of `TwoLayer`.
    """
    x = jnp.sqrt(2 * _SIZE) * jnp.array([[1.0, 0.0], [1.0, 0.0] if parallel else [0.2, 0.96**0.5]])
    data = Dataset(x, jnp.array([0.09, -0.04]), name="two small inputs")
    network = TwoLayer(_WIDTH, 2, readout=readout, key=jax.random.key(0), **options)
    flow = GradientFlow(loss=Squared("sum"), tolerance=1e-5)
    return flow(network, data, _TIMES, list(theorem.needs(network, data)))
