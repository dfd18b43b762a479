"""Small runs of the networks of aiad2026, on which its theorems are checked."""

import functools
import itertools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from unlazy.activations import Activation, Custom, LeakyRelu, Relu, Softplus, Tanh
from unlazy.data import Dataset, two_sided_step
from unlazy.flows import RungeKutta, Trajectory
from unlazy.networks import Constant, Given, MeanFieldStack, Normal, Uniform
from unlazy.papers.aiad2026.probes import ChannelDrive
from unlazy.probes import TrainedNeurons, TrainLoss
from unlazy.theory import Example

_EXACT = RungeKutta(rtol=1e-9, atol=1e-11)
_GRID = np.array([0.7548776662, 0.5698402910])  # its multiples modulo 1 fill a square evenly
_LEAKY = LeakyRelu(0.3)
_PROBES = [ChannelDrive(), TrainedNeurons(), TrainLoss()]


def _three_points(x_test: jax.Array | None = None, y_test: jax.Array | None = None) -> Dataset:
    return Dataset(jnp.array([[-1.0], [0.2], [0.9]]), jnp.array([0.6, -0.4, 0.5]), x_test, y_test, name="three points")


def _stack(widths: tuple[float, float], *, train: str = "a", key: int = 0, **options: Any) -> MeanFieldStack:
    """Return two blocks with one input that train their amplitudes, and in the first block whatever ``train`` says."""
    options = {"ranks": 2, "bias": (True, False)} | options
    return MeanFieldStack(widths, 1, train=(train, "a"), key=jax.random.key(key), **options)


def _given(rows: np.ndarray) -> Given:
    return Given(tuple(map(tuple, rows.tolist())))


def _flipped(rows: np.ndarray) -> np.ndarray:
    """Return all rows with all signs: mixing vectors that are symmetric in each coordinate given the others."""
    signs = np.array(list(itertools.product((1.0, -1.0), repeat=rows.shape[1])))
    return (rows[:, None] * signs[None]).reshape(-1, rows.shape[1])


@functools.lru_cache(maxsize=8)
def few_points(*, first: float = math.inf, train: str = "a", observations: int = 33, until: float = 4.0) -> Trajectory:
    """Train on three points, with two test points, ReLU features and tanh above: a smooth run that is observed often.

    ``first`` and ``train`` are the width and the trained parameters of the first block, ``until`` the end of the run.
    """
    data = _three_points(jnp.array([[-0.4], [1.7]]), jnp.zeros(2))
    features = Normal(1.5), Normal(mean=(0.8, -0.5))
    amplitude = Normal(mean=(1.0, -0.5)), Uniform(1.0, mean=1.0)
    options = {"activation": (Relu(), Tanh()), "features": features, "amplitude": amplitude}
    network = _stack((first, 24), train=train, key=3, **options)
    return _EXACT(network, data, np.linspace(0, until, observations), _PROBES)


TRAINED_FEATURES = Example(few_points, first=24, train="wa")  # a counterexample of what requires frozen features


@functools.lru_cache(maxsize=4)
def deeper() -> Trajectory:
    """Train four blocks of rank 2 on three points, with tanh everywhere."""
    network = MeanFieldStack(
        (24, 20, 18, 16),
        1,
        ranks=2,
        train="a",
        activation=Tanh(),
        bias=(True, False, False, False),
        features=(Normal(1.5), *[Normal(mean=(0.8, -0.5))] * 3),
        amplitude=(*[Uniform(1.0, mean=(2.0, -1.5))] * 3, Uniform(1.0, mean=1.5)),
        key=jax.random.key(5),
    )
    flow, probes = RungeKutta(rtol=1e-7, atol=1e-9), [TrainedNeurons(), TrainLoss()]
    return flow(network, _three_points(), np.linspace(0, 2.0, 9), probes)


@functools.lru_cache(maxsize=4)
def without_constant(*, activation: Activation = _LEAKY) -> Trajectory:
    """Start a network of one input without biases, whose features do not span: leaky ReLU spans x and |x| only."""
    options = {"activation": (activation, Tanh()), "features": Normal(1.5), "bias": False}
    network = _stack((math.inf, 8), amplitude=(Normal(mean=(1.0, -0.5)), Uniform(1.0, mean=1.0)), **options)
    x = jnp.array([[-1.0], [-0.4], [0.4], [0.7], [1.0]])
    return RungeKutta()(network, Dataset(x, 1 + jnp.cos(jnp.pi * x[:, 0]), name="1 + cos(πx)"), [0.0])


@functools.lru_cache(maxsize=8)
def at_the_kink(*, start: float = 0.0) -> Trajectory:
    """Train leaky ReLU on channels that start at 0, where it has its kink: the mean-field ODEs have many solutions.

    w_1, of mean ``start``, is independent of the features, and the law of L is symmetric; w_2 and the target are
    positive. Then the loss is ½ (C |f| - y)² as a function of the channel f, and falls to both sides of f = 0. All of
    Assumptions C.1 to C.4 are met.
    """
    grid = 0.5 + (np.arange(1, 17)[:, None] * _GRID[:1]) % 1.0
    options = {"activation": (Relu(), _LEAKY), "features": (Normal(), _given(_flipped(grid)))}
    network = _stack((math.inf, 32), ranks=1, amplitude=(Normal(mean=start), Constant(1.0)), **options)
    data = Dataset(jnp.array([[0.8]]), jnp.array([1.0]), name="one point")
    return _EXACT(network, data, np.linspace(0, 1.0, 33), _PROBES)


@functools.lru_cache(maxsize=8)
def one_spike(
    *, mixing: str = "flipped", target: float = 2.0, weight: float = 0.5, width: int = 512, seed: int = 0
) -> Trajectory:
    """Train on one point x* with ReLU and f(0) = a_0 e_1 among three channels.

    The ``mixing`` vectors of the ``width`` neurons of the second layer, all of which have w_2 = ``weight``, are a grid
    with all signs ("flipped"), drawn uniformly ("drawn"), or drawn with a mean ("biased").
    """
    grid = (np.arange(1, width // 8 + 1)[:, None] * np.array([0.6180339887, *_GRID])) % 1.0
    laws = {"flipped": _given(_flipped(grid)), "drawn": Uniform(1.0), "biased": Uniform(1.0, mean=0.5)}
    amplitude = Constant((0.7, 0.0, 0.0)), Constant(weight)
    options = {"activation": (Relu(), Relu()), "features": (Normal(), laws[mixing]), "amplitude": amplitude}
    network = _stack((math.inf, width), ranks=3, key=seed, **options)
    data = Dataset(jnp.array([[0.8]]), jnp.array([target]), name="one spike")
    return _EXACT(network, data, np.linspace(0, 4.0, 33), [ChannelDrive()])


@functools.lru_cache(maxsize=8)
def two_spikes(*, coupling: float = 1.05, mirrored: bool = True) -> Trajectory:
    """Train on the two-sided step, with a different channel leading at each point.

    Mixing vectors have all signs and both orders, and a negative bias makes signals grow faster than channels, so that
    (iii) can hold. With w_2 = L_1² - L_2², (i)-(iii) hold at x_0 for channel 1 and at x_1 for channel 2; unless
    ``mirrored``, w_2 has the opposite sign. ``coupling`` is the bias of the two ReLU features: from 1 on, each of them
    is active at both points.
    """
    grid = (np.arange(1, 33)[:, None] * _GRID) % 1.0
    rows = _flipped(3 * np.concatenate([grid, grid[:, ::-1]]))
    weights = (1.0 if mirrored else -1.0) * (rows[:, :1] ** 2 - rows[:, 1:] ** 2)
    network = _stack(
        (2, len(rows)),
        activation=(Relu(), Softplus()),
        features=(Given(((-1.0,), (1.0,))), _given(rows)),
        amplitude=(Given(((1.0, 0.25), (0.25, 1.0))), _given(weights)),
        bias=(Constant(coupling), Constant(-4.0)),
    )
    return _EXACT(network, two_sided_step(1.0), np.linspace(0, 1.0, 41), [ChannelDrive()])


@functools.lru_cache(maxsize=8)
def fitted(
    *, first: float = 48, activation: Activation = _LEAKY, until: float = 300.0, noise: float = 0.0
) -> Trajectory:
    """Train on three points, with ReLU features, until hardly anything moves.

    ``first`` is the width of the first block, ``activation`` that of the second block, ``until`` the end of the run. If
    ``noise`` is positive, the first point has two labels, this far above and below its own.
    """
    x, y = jnp.array([[-1.0], [0.0], [1.0]]), jnp.array([0.9, 0.3, 0.6])
    if noise:
        x, y = jnp.concatenate([x[:1], x]), jnp.concatenate([y[:1] - noise, y[:1] + noise, y[1:]])
    data = Dataset(x, y, name="three points")
    features = Normal(1.5), Uniform(1.0, mean=(0.6, -0.6))
    amplitude = Uniform(1.0, mean=(1.0, -1.0)), Uniform(1.0, mean=1.0)
    network = _stack((first, 32), activation=(Relu(), activation), features=features, amplitude=amplitude, key=1)
    return RungeKutta(rtol=1e-6, atol=1e-8)(network, data, [0.0, until], [TrainLoss()])


def smooth_leaky(h: jax.Array) -> jax.Array:
    """Compute a leaky ReLU without a kink: its slope goes from 0.3 to 1, and its value at 0 is 0."""
    return 0.3 * h + 0.7 * (jax.nn.softplus(h) - math.log(2))


@functools.lru_cache(maxsize=2)
def odd_channels() -> Trajectory:
    """Train channels that are odd in x, with w_2 even in L, on even targets: this is preserved, and f(0) = 0 remains.

    Neither layer ever learns the output at x = 0: all channels are 0 there, and their backward signals cancel. All of
    Assumptions C.1 to C.6 are met, with features that span, but the limit is not a minimiser.
    """
    w, b = np.linspace(0.6, 1.8, 6), np.array([0.7, -0.4, 0.2, 0.9, -0.8, 0.5])
    lift = np.array([[1.0, 0.6], [0.8, 0.9], [1.2, 0.3], [0.7, 1.1], [0.9, 0.5], [1.1, 0.8]])
    grid = 2 * ((np.arange(1, 17)[:, None] * _GRID) % 1.0) - 1
    below = np.concatenate([np.stack([w, b], axis=1), np.stack([-w, b], axis=1)])
    features = _given(below), _given(np.concatenate([grid, -grid]))
    amplitude = _given(np.concatenate([lift, -lift])), Constant(1.0)
    leaky = Custom(function=smooth_leaky)  # pyright: ignore[reportCallIssue]
    network = _stack((12, 32), activation=(Tanh(), leaky), features=features, amplitude=amplitude)
    data = Dataset(jnp.array([[-1.0], [0.0], [1.0]]), jnp.array([1.0, 0.5, 1.0]), name="an even target")
    return RungeKutta(rtol=1e-7, atol=1e-9)(network, data, [0.0, 300.0], [TrainLoss()])


@functools.lru_cache(maxsize=4)
def independent_laws(*, shuffled: bool = False) -> Trajectory:
    """Train from independent laws, centred but for w_2, with biases in both blocks: only the best constant is learnt.

    The first block is infinite, with Gaussian features and centred w_1 that are independent of each other. Mixing
    entries, biases and w_2 of the second block are independent too: all combinations of their values occur once. Then
    f_k = 0 and B_k = E[L_k] E[φ_2'(b) w_2] = 0 at all times. Assumptions C.1 to C.6 are met; any centred L has this
    effect. If ``shuffled``, neurons are in another order, in which sums that should vanish are as large as their
    rounding errors.
    """
    half = np.array([[0.4, 1.3], [-1.1, 0.5], [0.8, -0.6], [1.7, 0.2]])
    values = np.concatenate([half, -half]), (-1.4, -0.7, -0.2, 0.2, 0.7, 1.4), (-0.25, 0.25, 0.75, 1.25)
    rows = np.array([[*mix, bias, weight] for mix, bias, weight in itertools.product(*values)])
    rows = np.random.default_rng(0).permutation(rows) if shuffled else rows
    network = _stack(
        (math.inf, len(rows)),
        activation=(Relu(), _LEAKY),
        features=(Normal(), _given(rows[:, :3])),
        amplitude=(Normal(), _given(rows[:, 3:])),
        bias=(True, True),
    )
    x = jnp.linspace(-1.0, 1.0, 5)[:, None]
    data = Dataset(x, 1 + jnp.cos(jnp.pi * x[:, 0]), name="1 + cos(πx)")
    return RungeKutta(rtol=1e-7, atol=1e-9)(network, data, [0.0, 100.0], [TrainLoss()])


@functools.lru_cache(maxsize=4)
def wide(*, until: float = 0.4) -> Trajectory:
    """Train a rank-one network so wide, for so short a time, that the bound of Theorem 2.3 is below its movement.

    Everything that enters the constant K is at most 1: inputs, features, mixing entries, weights, slopes, residual.
    """
    amplitude = Uniform(0.1, mean=0.9)
    features = Uniform(0.2, mean=0.5), Uniform(0.2, mean=0.8)
    options = {"activation": (Tanh(), Tanh()), "features": features, "amplitude": (amplitude, amplitude)}
    network = _stack((2**19, 2**19), ranks=1, **options)
    data = Dataset(jnp.array([[1.0]]), jnp.array([1.43]), name="one point")
    return RungeKutta(rtol=1e-5, atol=1e-7)(network, data, [0.0, until], [TrainedNeurons(), TrainLoss()])
