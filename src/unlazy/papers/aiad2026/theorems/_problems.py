"""Small problems on which the theorems of aiad2026 speak, or must not."""

from __future__ import annotations

import functools
import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np

from unlazy.activations import Activation, Custom, LeakyRelu, Relu, Softplus, Tanh
from unlazy.data import Dataset, two_sided_step
from unlazy.flows import RungeKutta, Trajectory
from unlazy.losses import Loss, Squared
from unlazy.networks import Constant, Given, Law, MeanFieldStack, Normal, Uniform
from unlazy.papers.aiad2026.probes import ChannelDrive
from unlazy.probes import TrainedNeurons, TrainLoss

_EXACT = RungeKutta(rtol=1e-9, atol=1e-11)


@functools.lru_cache(maxsize=8)
def few_points(*, first: float = math.inf, train: str = "a", looks: int = 33) -> Trajectory:
    """Three points and two more to look at, ReLU features, tanh above: a smooth run that is seen often."""
    x = jnp.array([[-1.0], [0.2], [0.9]])
    data = Dataset(x, jnp.array([0.6, -0.4, 0.5]), jnp.array([[-0.4], [1.7]]), jnp.zeros(2), name="three points")
    network = MeanFieldStack(
        (first, 24),
        1,
        ranks=2,
        train=(train, "a"),
        bias=(True, False),
        activation=(Relu(), Tanh()),
        amplitude=(Normal(mean=(1.0, -0.5)), Uniform(1.0, mean=1.0)),
        features=(Normal(1.5), Normal(mean=(0.8, -0.5))),
        key=jax.random.key(3),
    )
    neurons = [] if math.isinf(first) else [TrainedNeurons(), TrainLoss()]
    return _EXACT(network, data, np.linspace(0, 4.0, looks), [ChannelDrive(), *neurons])


def flipped(rows: np.ndarray) -> tuple[tuple[float, ...], ...]:
    """All rows with all signs: mixing vectors that are symmetric in each coordinate, whatever the others are."""
    signs = np.array(list(itertools.product((1.0, -1.0), repeat=rows.shape[1])))
    return tuple(map(tuple, (rows[:, None] * signs[None]).reshape(-1, rows.shape[1]).tolist()))


@functools.lru_cache(maxsize=8)
def one_spike(
    *,
    mixing: str = "flipped",
    target: float = 2.0,
    weight: float = 0.5,
    width: int = 512,
    until: float = 4.0,
    seed: int = 0,
    activation: Activation = Relu(),  # noqa: B008
) -> Trajectory:
    """One point x*, ReLU, f(0) = a_0 e_1 among three channels, w_2 = ``weight`` for all second-layer neurons.

    Mixing vectors are a grid with all signs ("flipped"), drawn uniformly ("drawn"), or drawn with a mean ("biased").
    """
    grid = (np.arange(1, width // 8 + 1)[:, None] * np.array([0.6180339887, 0.7548776662, 0.5698402910])) % 1.0
    laws: dict[str, Law] = {
        "flipped": Given(flipped(grid)),
        "drawn": Uniform(1.0),
        "biased": Uniform(1.0, mean=0.5),
    }
    network = MeanFieldStack(
        (math.inf, width),
        1,
        ranks=3,
        train="a",
        bias=(True, False),
        activation=(Relu(), activation),
        features=(Normal(), laws[mixing]),
        amplitude=(Constant((0.7, 0.0, 0.0)), Constant(weight)),
        key=jax.random.key(seed),
    )
    data = Dataset(jnp.array([[0.8]]), jnp.array([target]), name="one spike")
    return _EXACT(network, data, np.linspace(0, until, 33), [ChannelDrive()])


@functools.lru_cache(maxsize=8)
def two_spikes(*, coupling: float = 1.05, mirrored: bool = True, amplitude: float = 1.0) -> Trajectory:
    """The two-sided step with one channel ahead at either point, and second-layer neurons that pull the right way.

    Two ReLU features with bias ``coupling``; from 1 on each sees both points. Mixing vectors come with all signs and
    both ways round, behind a threshold that makes signals grow faster than channels: so (iii) can hold. With w_2 =
    + (L_1² - L_2²), (i)-(iii) hold at x_0 for channel 1 and, mirrored, at x_1 for channel 2.
    """
    grid = (np.arange(1, 33)[:, None] * np.array([0.7548776662, 0.5698402910])) % 1.0
    rows = flipped(3 * np.concatenate([grid, grid[:, ::-1]]))
    sign = 1.0 if mirrored else -1.0
    weights = tuple((sign * (one[0] ** 2 - one[1] ** 2),) for one in rows)
    network = MeanFieldStack(
        (2, len(rows)),
        1,
        ranks=2,
        train="a",
        bias=(Constant(coupling), Constant(-4.0)),
        activation=(Relu(), Softplus()),
        features=(Given(((-1.0,), (1.0,))), Given(rows)),
        amplitude=(Given(((1.0, 0.25), (0.25, 1.0))), Given(weights)),
        key=jax.random.key(0),
    )
    return _EXACT(network, two_sided_step(1.0, amplitude), np.linspace(0, 1.0, 41), [ChannelDrive()])


@functools.lru_cache(maxsize=8)
def fitted(
    *, first: float = 48, activation: Activation | None = None, until: float = 300.0, loss: Loss | None = None
) -> Trajectory:
    """Three points, learned for so long that hardly anything moves; ReLU features, leaky ReLU above."""
    data = Dataset(jnp.array([[-1.0], [0.0], [1.0]]), jnp.array([0.9, 0.3, 0.6]), name="three points")
    network = MeanFieldStack(
        (first, 32),
        1,
        ranks=2,
        train="a",
        bias=(True, False),
        activation=(Relu(), LeakyRelu(0.3) if activation is None else activation),
        features=(Normal(1.5), Uniform(1.0, mean=(0.6, -0.6))),
        amplitude=(Uniform(1.0, mean=(1.0, -1.0)), Uniform(1.0, mean=1.0)),
        key=jax.random.key(1),
    )
    flow = RungeKutta(loss=Squared() if loss is None else loss, rtol=1e-6, atol=1e-8)
    return flow(network, data, [0.0, until], [TrainLoss()])


def _given(rows: np.ndarray) -> Given:
    return Given(tuple(map(tuple, rows.tolist())))


def smooth_leaky(h: jax.Array) -> jax.Array:
    """A leaky ReLU without a kink: slopes from 0.3 to 1, and 0 at 0."""
    return 0.3 * h + 0.7 * (jax.nn.softplus(h) - math.log(2))


@functools.lru_cache(maxsize=2)
def odd_channels(*, until: float = 300.0) -> Trajectory:
    """Channels that are odd in x and w_2 that is even in L, on targets that are even: all stays so, and f(0) = 0.

    Neither layer ever learns what the output should be at x = 0: no channel is there to be used, and what is sent back
    to it cancels. All of Assumptions C.1 to C.6 are met, with features that span, and the limit is no minimiser.
    """
    w, b = np.linspace(0.6, 1.8, 6), np.array([0.7, -0.4, 0.2, 0.9, -0.8, 0.5])
    lift = np.array([[1.0, 0.6], [0.8, 0.9], [1.2, 0.3], [0.7, 1.1], [0.9, 0.5], [1.1, 0.8]])
    grid = 2 * ((np.arange(1, 17)[:, None] * np.array([0.7548776662, 0.5698402910])) % 1.0) - 1
    network = MeanFieldStack(
        (12, 32),
        1,
        ranks=2,
        train="a",
        bias=(True, False),
        activation=(Tanh(), Custom(function=smooth_leaky)),  # pyright: ignore[reportCallIssue]
        features=(
            _given(np.concatenate([np.stack([w, b], axis=1), np.stack([-w, b], axis=1)])),
            _given(np.concatenate([grid, -grid])),
        ),
        amplitude=(_given(np.concatenate([lift, -lift])), Constant(1.0)),
        key=jax.random.key(0),
    )
    data = Dataset(jnp.array([[-1.0], [0.0], [1.0]]), jnp.array([1.0, 0.5, 1.0]), name="an even target")
    return RungeKutta(rtol=1e-7, atol=1e-9)(network, data, [0.0, until], [TrainLoss()])


@functools.lru_cache(maxsize=4)
def wide(*, width: int = 2**19, until: float = 0.4) -> Trajectory:
    """A rank-one network so wide, and so calm, that the bound of Theorem 2.3 is below what its weights move by.

    Everything that enters the constant K is at most 1: inputs, features, mixing entries, weights, slopes, residual.
    """
    network = MeanFieldStack(
        (width, width),
        1,
        ranks=1,
        train="a",
        bias=(True, False),
        activation=Tanh(),
        features=(Uniform(0.2, mean=0.5), Uniform(0.2, mean=0.8)),
        amplitude=Uniform(0.1, mean=0.9),
        key=jax.random.key(0),
    )
    data = Dataset(jnp.array([[1.0]]), jnp.array([1.43]), name="one point")
    return RungeKutta(rtol=1e-5, atol=1e-7)(network, data, [0.0, until], [TrainedNeurons(), TrainLoss()])
