"""A run in the notation of chen2022: which runs the paper's equations describe, and in which units.

The paper's model is f = (1/m) Σ_i c_i σ(h_i) with |c_i| = ĉ, trained by W' = -m ∂L/∂W on L = ½ Σ_a (f(x_a) - y_a)². A
two-layer network in any scaling whose neurons are alike is this model with ĉ = m s |a|, at another speed of time: with
R the rate of w, e the factor in front of w·Φ and dℓ/df = ω r the slope of the run's own loss,

    h_i' = -τ c_i Σ_b G(x, x_b) r_b σ'(h_i(x_b)),   τ = R e² D ω / m.

So the mean of the loss makes the paper's time n times as slow, and the NTK scaling is ĉ = √m |a| with time m times as
slow. What the theorems say of rates is multiplied by τ.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from unlazy.activations import Activation, ActiveInterval
from unlazy.flows import Trajectory
from unlazy.networks import Anchored, Embedding, Infinite, Network, RandomLayers, TwoLayer
from unlazy.probes import TrainLoss
from unlazy.theory._base import Hypothesis, through
from unlazy.theory._runs import gradient_flow, loss_slope, no_biases, relative_error, squared_loss

AUTHORS = "Chen, Vanden-Eijnden, Bruna (2022)"


def gram(network: TwoLayer, x: Array) -> np.ndarray:
    """G_ab = Φ(x_a)·Φ(x_b) / D of the network's own embedding, finite or infinite (eq. 12, 20, 22)."""
    return _kernel(network.embedding, x)


def limit_gram(network: TwoLayer, x: Array) -> np.ndarray | None:
    """Ḡ, the limit of G as D → ∞, layer after layer (eq. 23 and App. H); None for an embedding that is not random."""
    embedding = network.embedding
    if isinstance(embedding, RandomLayers):
        return _kernel(_infinite(len(embedding.widths), embedding.activation), x)
    return _kernel(embedding, x) if isinstance(embedding, Infinite | Anchored) else None


@functools.lru_cache(maxsize=8)
def _infinite(depth: int, activation: Activation | None) -> Infinite:
    return Infinite(depth, activation)


_last: list[tuple[Embedding, Array, np.ndarray]] = []  # several theorems ask for the same matrix, one after the other


def _kernel(embedding: Embedding, x: Array) -> np.ndarray:
    for known, points, value in _last:
        if known is embedding and points is x:
            return value
    value = np.asarray(embedding.kernel(x, x), float)
    _last[:] = [*_last[-1:], (embedding, x, value)]
    return value


class Spectrum(NamedTuple):
    """What the theorems ask of a Gram matrix: extreme eigenvalues and diagonal entries, and how well they are known."""

    smallest: float
    largest: float
    low: float  # min_a G_aa
    high: float  # max_a G_aa
    rounding: float  # eigenvalues below it are not told from 0

    @property
    def positive(self) -> bool:
        """Whether the matrix is positive definite, as far as its precision lets one see."""
        return self.smallest > self.rounding


def spectrum(matrix: np.ndarray, precision: float) -> Spectrum:
    """Summarise a Gram matrix whose entries have this relative precision."""
    values, diagonal = np.linalg.eigvalsh(matrix), np.diag(matrix)
    rounding = 10 * len(matrix) * precision * float(values[-1])
    return Spectrum(float(values[0]), float(values[-1]), float(diagonal.min()), float(diagonal.max()), rounding)


class Setting(NamedTuple):
    """A run in the paper's units."""

    network: TwoLayer  # at the start
    x: Array
    y: np.ndarray
    c: float  # ĉ
    speed: float  # τ: the paper's time that passes in one unit of the run's
    gram: np.ndarray
    spectrum: Spectrum
    start_loss: float  # L^0
    resolution: float  # how well √L is known: the flow's own estimate of its error, and rounding
    precision: float  # of the numbers of the run

    @property
    def n(self) -> int:
        """Number of training points."""
        return self.y.size


def read(run: Trajectory) -> tuple[list[Hypothesis], Setting | None]:
    """Give the conditions under which the paper describes a run, and, if they are met, the run in its units."""
    conditions = list(_conditions(run))
    if not all(condition.met for condition in conditions):
        return conditions, None
    network, data = run.start, run.data
    assert isinstance(network, TwoLayer)
    assert network.w is not None
    m, features = network.w.shape
    slope = loss_slope(run)
    factor = float(features) ** network.scaling.feature
    speed = network.rates().w * factor**2 * features * slope / m
    matrix = gram(network, data.x)
    precision = float(jnp.finfo(data.x.dtype).eps)
    y = np.asarray(data.y, float)
    residual = np.asarray(network(data.x), float) - y
    start_loss = 0.5 * float(residual @ residual)
    error = relative_error(run, precision)
    conditions.append(Hypothesis("a loss above 0 at the start", start_loss > 0, start_loss))
    if start_loss == 0:
        return conditions, None
    setting = Setting(
        network=network,
        x=data.x,
        y=y,
        c=m * float(network.s[0]) * float(jnp.abs(network.a[0])),
        speed=speed,
        gram=matrix,
        spectrum=spectrum(matrix, precision),
        start_loss=start_loss,
        resolution=error * float(np.sqrt(max(0.5 * float(y @ y), start_loss))),
        precision=precision,
    )
    return conditions, setting


def losses(run: Trajectory) -> np.ndarray:
    """L^t = ½ Σ_a (f - y)² at every look, whatever the run's own loss divides by."""
    return np.asarray(through(run, TrainLoss()), float) / loss_slope(run)


def positive_definite(setting: Setting) -> Hypothesis:
    """λ_min(G) > 0."""
    known = setting.spectrum
    what = "eig_min(G) > 0, that is, linearly independent features Φ(x_a)"
    return Hypothesis(what, known.positive, known.smallest)


def active_somewhere(interval: ActiveInterval | None) -> Hypothesis:
    """Assumption 2."""
    return Hypothesis("an interval on which |σ'| is bounded away from 0", interval is not None)


def _conditions(run: Trajectory) -> Iterator[Hypothesis]:
    network = run.start
    two_layers = isinstance(network, TwoLayer)
    yield Hypothesis("a two-layer network: a trained layer on an embedding", two_layers)
    if not two_layers:
        return
    yield one_size(network)
    yield no_biases(network)
    yield squared_loss(run)
    yield gradient_flow(run)


def one_size(network: TwoLayer) -> Hypothesis:
    """One output, and frozen read-outs ±c before nodes of one scale (Assumption 1)."""
    size, scales = np.abs(np.asarray(network.a)), np.asarray(network.s)
    alike = size.ndim == 1 and size.min() == size.max() > 0 and scales.min() == scales.max() > 0
    return Hypothesis("one output with frozen read-outs ±c, all nodes alike", bool(alike and not network.train_readout))


def is_known(network: Network) -> bool:
    """Whether it makes sense to ask the paper about a network at all, before it is run."""
    return isinstance(network, TwoLayer) and one_size(network).met and network.b is None


def settled(run: Trajectory) -> Setting:
    """Give a run in the paper's units, its conditions being met."""
    setting = read(run)[1]
    assert setting is not None
    return setting
