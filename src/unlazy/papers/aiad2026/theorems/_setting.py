"""Which runs aiad2026 speaks about, what its theorems take from them, and small problems of this kind."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from typing import NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from scipy.interpolate import make_interp_spline

from unlazy._errors import UserError
from unlazy.activations import Activation, Custom, LeakyRelu, Relu, Softplus, Tanh
from unlazy.data import Dataset, two_sided_step
from unlazy.flows import RungeKutta, Trajectory
from unlazy.networks import (
    Block,
    Constant,
    Given,
    Law,
    Limit,
    MeanFieldStack,
    Network,
    Normal,
    Uniform,
    kernel_of,
)
from unlazy.papers.aiad2026.probes import ChannelDrive
from unlazy.probes import TrainedNeurons, TrainLoss
from unlazy.theory._base import Hypothesis, Reading, read_all, through
from unlazy.theory._runs import relative_error, rounding

AUTHORS = "Aiad, Yang, Zhang (2026)"
DRIVE = ChannelDrive()
S = TypeVar("S")


def _driven(network: Network) -> tuple[MeanFieldStack, Block | Limit] | None:
    """A stack and its first block, if this trains its amplitudes on fixed features: all that eq. 10 and 16 ask for."""
    if not isinstance(network, MeanFieldStack) or network.clips_per_sample:
        return None
    stack = network.restore()
    first = stack.blocks[0]
    if not isinstance(first, Block | Limit) or "a" not in first.train:
        return None
    return (stack, first) if isinstance(first, Limit) or (first.fixed and first.a is not None) else None


def is_driven(network: Network) -> bool:
    """Whether its first block has fixed features and trained amplitudes."""
    return _driven(network) is not None


def is_random_features(network: Network) -> bool:
    """Whether it is the paper's network, with one output: mean-field blocks, features frozen, amplitudes trained."""
    found = _driven(network)
    if found is None or not found[0].scalar:
        return False
    rest = [block for block in found[0].blocks[1:] if isinstance(block, Block)]
    finite = [*rest, found[1]] if isinstance(found[1], Block) else rest
    whole = len(rest) == found[0].depth - 1 and all(block.fixed and block.a is not None for block in rest)
    return whole and all(block.mean_field and "a" in block.train and not block.skip for block in finite)


class Drive(NamedTuple):
    """What a run saw of its first block: channels, signals B and slopes π_p d_p, at every time."""

    channels: np.ndarray  # (times, points, D)
    signals: np.ndarray  # (times, n, D) with one output, else (times, n, D, outputs)
    slope: np.ndarray  # (times, n), or (times, n, outputs)

    @property
    def forces(self) -> np.ndarray:
        """dL/df_k(x_p) = Σ_i dL/df_i B_ik: (times, n, D)."""
        one = self.slope.ndim == 2
        return np.einsum("tpk,tp->tpk" if one else "tpki,tpi->tpk", self.signals, self.slope)


@dataclasses.dataclass(frozen=True, eq=False)
class Setting:
    """A run of a stack whose first block trains its amplitudes on fixed features."""

    run: Trajectory
    network: MeanFieldStack  # as the run began
    first: Block | Limit

    @property
    def above(self) -> tuple[Block, ...]:
        """All blocks of neurons but the first."""
        return tuple(block for block in self.network.blocks[1:] if isinstance(block, Block))

    @property
    def mixing(self) -> np.ndarray:
        """L_{c_2,k}: the features of the second block, one row for each neuron."""
        return np.asarray(self.above[0].w, float)

    @property
    def ends(self) -> list[MeanFieldStack]:
        """The network at the start and at the end."""
        return [network for network in (self.run.start, self.run.final) if isinstance(network, MeanFieldStack)]

    @property
    def x(self) -> np.ndarray:
        """The training points."""
        return np.asarray(self.run.data.x, float)

    @property
    def points(self) -> np.ndarray:
        """All inputs of the data set, training points first."""
        return np.asarray(self.run.data.points(), float)

    @property
    def shares(self) -> np.ndarray:
        """π_p: what each sample's slope d_p is multiplied by in the loss."""
        weight = np.ones(self.run.data.n) if self.run.data.weight is None else np.asarray(self.run.data.weight, float)
        return weight / weight.sum() if self.run.loss.reduction == "mean" else weight

    @property
    def precision(self) -> float:
        """Relative error of what the run gives: the flow's own estimate, and rounding."""
        return relative_error(self.run, rounding(self.run))

    def kernel(self, x: np.ndarray, z: np.ndarray | None = None) -> np.ndarray:
        """K_μ0(x, z) (eq. 10), at the training points z by default.

        In the units of the flow: a trained offset adds 1, and without 1/m in front of the sum m φ·φ takes its place.
        """
        return np.asarray(kernel_of(self.first, jnp.asarray(x), jnp.asarray(self.x if z is None else z)), float)

    @property
    def observed(self) -> bool:
        """Whether the run was observed through `ChannelDrive`."""
        return through(self.run, DRIVE) is not None

    @functools.cached_property
    def drive(self) -> Drive:
        """What `ChannelDrive` saw."""
        found = through(self.run, DRIVE)
        if found is None:
            raise UserError(f"This run was not observed through its channels: add probes=[{DRIVE!r}].")
        return Drive(*(np.asarray(found[name], float) for name in Drive._fields))

    @functools.cached_property
    def gamma(self) -> tuple[np.ndarray, float]:
        """Γ_kp = ∫ π_p d_p B_kp ds (eq. 15) at every time, and an estimate of its error."""
        return integrated(self.run.times, self.drive.forces)


def driven(run: Trajectory) -> Reading[Setting | None]:
    """A stack that eq. 10 speaks about."""
    found = _driven(run.start)
    yield Hypothesis("a stack whose first block trains its amplitudes on fixed features", found is not None)
    return None if found is None else Setting(run, *found)


def random_features(run: Trajectory) -> Reading[Setting | None]:
    """The paper's network."""
    found = _driven(run.start) if is_random_features(run.start) else None
    yield Hypothesis("mean-field blocks with frozen features and one output", found is not None)
    return None if found is None else Setting(run, *found)


def without_offsets(run: Trajectory) -> Hypothesis:
    """What the paper calls three layers is two blocks: w_1 and w_2 are trained, and no offset."""
    blocks = run.start.blocks if isinstance(run.start, MeanFieldStack) else ()
    known = [block for block in blocks if isinstance(block, Block | Limit)]
    still = not any("c" in block.train or np.any(np.asarray(block.c)) for block in known)
    return Hypothesis("two blocks without offsets c", len(known) == len(blocks) == 2 and still)


def three_layers(run: Trajectory) -> Reading[Setting | None]:
    """The paper's network with three layers, w_2 being that of the only block above the first."""
    setting = yield from random_features(run)
    two = without_offsets(run)
    yield two
    return setting if two.met else None


def wanted(reading: Reading[S | None]) -> S:
    """The setting of a run that has to have one; an error says which hypotheses are not met."""
    hypotheses, setting = read_all(reading)
    if setting is None:
        unmet = "; ".join(str(one) for one in hypotheses if not one.met)
        raise UserError(f"This run is not one that the theorem is about. Not met: {unmet}.")
    return setting


def from_start(run: Trajectory) -> Hypothesis:
    """Integrals over time begin at 0, and a spline needs a few observations."""
    count = len(run.times) if run.times.size and run.times[0] == 0 else 0
    return Hypothesis("at least 4 observations, the first at t = 0", count >= 4, count, 4)


def integrated(times: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, float]:
    """∫_0^t of what was seen at ``times``, up to each of them, by a spline; and an estimate of its error.

    The estimate is the difference to the spline of the next lower odd order, which is the worse of the two.
    """
    order = min(7, len(times) - 1)
    order -= 1 - order % 2
    sums = (make_interp_spline(times, values, k=k).antiderivative()(times) for k in (order, order - 2))
    best, worse = (one - one[0] for one in sums)
    return best, float(np.max(np.abs(best - worse)))


_EXACT = RungeKutta(rtol=1e-9, atol=1e-11)
_GRID = np.array([0.7548776662, 0.5698402910])  # multiples of it fill a square evenly


def _stack(
    widths: tuple[float, float],
    activation: tuple[Activation, Activation],
    features: tuple[Law, Law],
    amplitude: tuple[Law, Law],
    *,
    ranks: int = 2,
    train: str = "a",
    bias: tuple[Law | bool, Law | bool] = (True, False),
    key: int = 0,
) -> MeanFieldStack:
    """Two blocks on the line that train their amplitudes, and what ``train`` says in the first."""
    return MeanFieldStack(
        widths,
        1,
        ranks=ranks,
        train=(train, "a"),
        bias=bias,
        activation=activation,
        features=features,
        amplitude=amplitude,
        key=jax.random.key(key),
    )


def _given(rows: np.ndarray) -> Given:
    return Given(tuple(map(tuple, rows.tolist())))


def _flipped(rows: np.ndarray) -> np.ndarray:
    """All rows with all signs: mixing vectors that are symmetric in each coordinate, whatever the others are."""
    signs = np.array(list(itertools.product((1.0, -1.0), repeat=rows.shape[1])))
    return (rows[:, None] * signs[None]).reshape(-1, rows.shape[1])


@functools.lru_cache(maxsize=8)
def few_points(*, first: float = math.inf, train: str = "a", observations: int = 33) -> Trajectory:
    """Three training and two test points, ReLU features, tanh above: a smooth run that is observed often."""
    x = jnp.array([[-1.0], [0.2], [0.9]])
    data = Dataset(x, jnp.array([0.6, -0.4, 0.5]), jnp.array([[-0.4], [1.7]]), jnp.zeros(2), name="three points")
    features = Normal(1.5), Normal(mean=(0.8, -0.5))
    amplitude = Normal(mean=(1.0, -0.5)), Uniform(1.0, mean=1.0)
    network = _stack((first, 24), (Relu(), Tanh()), features, amplitude, train=train, key=3)
    neurons = [] if math.isinf(first) else [TrainedNeurons(), TrainLoss()]
    return _EXACT(network, data, np.linspace(0, 4.0, observations), [ChannelDrive(), *neurons])


@functools.lru_cache(maxsize=8)
def one_spike(
    *, mixing: str = "flipped", target: float = 2.0, weight: float = 0.5, width: int = 512, seed: int = 0
) -> Trajectory:
    """One point x*, ReLU, f(0) = a_0 e_1 among three channels, w_2 = ``weight`` for all second-layer neurons.

    Mixing vectors are a grid with all signs ("flipped"), drawn uniformly ("drawn"), or drawn with a mean ("biased").
    """
    grid = (np.arange(1, width // 8 + 1)[:, None] * np.array([0.6180339887, *_GRID])) % 1.0
    laws = {"flipped": _given(_flipped(grid)), "drawn": Uniform(1.0), "biased": Uniform(1.0, mean=0.5)}
    amplitude = Constant((0.7, 0.0, 0.0)), Constant(weight)
    network = _stack((math.inf, width), (Relu(), Relu()), (Normal(), laws[mixing]), amplitude, ranks=3, key=seed)
    data = Dataset(jnp.array([[0.8]]), jnp.array([target]), name="one spike")
    return _EXACT(network, data, np.linspace(0, 4.0, 33), [ChannelDrive()])


@functools.lru_cache(maxsize=8)
def two_spikes(*, coupling: float = 1.05, mirrored: bool = True) -> Trajectory:
    """The two-sided step with one channel ahead at either point, and second-layer neurons that pull the right way.

    Two ReLU features with bias ``coupling``; from 1 on each sees both points. Mixing vectors come with all signs and
    both ways round, behind a threshold that makes signals grow faster than channels: so (iii) can hold. With w_2 =
    + (L_1² - L_2²), (i)-(iii) hold at x_0 for channel 1 and, mirrored, at x_1 for channel 2.
    """
    grid = (np.arange(1, 33)[:, None] * _GRID) % 1.0
    rows = _flipped(3 * np.concatenate([grid, grid[:, ::-1]]))
    weights = (1.0 if mirrored else -1.0) * (rows[:, :1] ** 2 - rows[:, 1:] ** 2)
    features = Given(((-1.0,), (1.0,))), _given(rows)
    amplitude = Given(((1.0, 0.25), (0.25, 1.0))), _given(weights)
    bias = Constant(coupling), Constant(-4.0)
    network = _stack((2, len(rows)), (Relu(), Softplus()), features, amplitude, bias=bias)
    return _EXACT(network, two_sided_step(1.0), np.linspace(0, 1.0, 41), [ChannelDrive()])


@functools.lru_cache(maxsize=8)
def fitted(*, first: float = 48, activation: Activation | None = None, until: float = 300.0) -> Trajectory:
    """Three points, learned for so long that hardly anything moves; ReLU features, leaky ReLU above."""
    data = Dataset(jnp.array([[-1.0], [0.0], [1.0]]), jnp.array([0.9, 0.3, 0.6]), name="three points")
    features = Normal(1.5), Uniform(1.0, mean=(0.6, -0.6))
    amplitude = Uniform(1.0, mean=(1.0, -1.0)), Uniform(1.0, mean=1.0)
    above = LeakyRelu(0.3) if activation is None else activation
    network = _stack((first, 32), (Relu(), above), features, amplitude, key=1)
    return RungeKutta(rtol=1e-6, atol=1e-8)(network, data, [0.0, until], [TrainLoss()])


def smooth_leaky(h: jax.Array) -> jax.Array:
    """A leaky ReLU without a kink: slopes from 0.3 to 1, and 0 at 0."""
    return 0.3 * h + 0.7 * (jax.nn.softplus(h) - math.log(2))


@functools.lru_cache(maxsize=2)
def odd_channels() -> Trajectory:
    """Channels that are odd in x and w_2 that is even in L, on targets that are even: all stays so, and f(0) = 0.

    Neither layer ever learns what the output should be at x = 0: no channel is there to be used, and what is sent back
    to it cancels. All of Assumptions C.1 to C.6 are met, with features that span, and the limit is no minimiser.
    """
    w, b = np.linspace(0.6, 1.8, 6), np.array([0.7, -0.4, 0.2, 0.9, -0.8, 0.5])
    lift = np.array([[1.0, 0.6], [0.8, 0.9], [1.2, 0.3], [0.7, 1.1], [0.9, 0.5], [1.1, 0.8]])
    grid = 2 * ((np.arange(1, 17)[:, None] * _GRID) % 1.0) - 1
    below = np.concatenate([np.stack([w, b], axis=1), np.stack([-w, b], axis=1)])
    features = _given(below), _given(np.concatenate([grid, -grid]))
    amplitude = _given(np.concatenate([lift, -lift])), Constant(1.0)
    leaky = Custom(function=smooth_leaky)  # pyright: ignore[reportCallIssue]
    network = _stack((12, 32), (Tanh(), leaky), features, amplitude)
    data = Dataset(jnp.array([[-1.0], [0.0], [1.0]]), jnp.array([1.0, 0.5, 1.0]), name="an even target")
    return RungeKutta(rtol=1e-7, atol=1e-9)(network, data, [0.0, 300.0], [TrainLoss()])


@functools.lru_cache(maxsize=4)
def wide(*, until: float = 0.4) -> Trajectory:
    """A rank-one network so wide, and so calm, that the bound of Theorem 2.3 is below what its weights move by.

    Everything that enters the constant K is at most 1: inputs, features, mixing entries, weights, slopes, residual.
    """
    features, amplitude = (Uniform(0.2, mean=0.5), Uniform(0.2, mean=0.8)), Uniform(0.1, mean=0.9)
    network = _stack((2**19, 2**19), (Tanh(), Tanh()), features, (amplitude, amplitude), ranks=1)
    data = Dataset(jnp.array([[1.0]]), jnp.array([1.43]), name="one point")
    return RungeKutta(rtol=1e-5, atol=1e-7)(network, data, [0.0, until], [TrainedNeurons(), TrainLoss()])
