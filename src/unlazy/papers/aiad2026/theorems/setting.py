"""The runs to which the theorems of aiad2026 apply, and the quantities that the theorems take from them."""

import dataclasses
import functools
from typing import NamedTuple, TypeVar, cast

import jax
import jax.numpy as jnp
import numpy as np
from scipy.interpolate import make_interp_spline

from unlazy._errors import UserError
from unlazy.flows import Trajectory
from unlazy.losses import Squared
from unlazy.networks import Block, Limit, MeanFieldStack, Network
from unlazy.networks.limits import kernel_of
from unlazy.papers.aiad2026.probes import ChannelDrive
from unlazy.theory import Hypothesis, Reading, read_all, require, through
from unlazy.theory.coupling import draw_first
from unlazy.theory.hypotheses import relative_error, rounding

AUTHORS = "Aiad, Yang, Zhang (2026)"
S = TypeVar("S")


def is_driven(network: Network) -> bool:
    """Return whether the first block trains its amplitudes on fixed features, as eq. 10 and 16 require."""
    if not isinstance(network, MeanFieldStack) or network.clips_per_sample:
        return False
    first = network.restore().blocks[0]
    if not isinstance(first, Block | Limit) or "a" not in first.train:
        return False
    return isinstance(first, Limit) or (first.fixed and first.a is not None)


def is_random_features(network: Network) -> bool:
    """Return whether a network is the paper's, with one output: mean-field blocks that train amplitudes only."""
    if not (isinstance(network, MeanFieldStack) and is_driven(network) and network.scalar):
        return False
    first, *rest = network.restore().blocks
    return all(
        isinstance(block, Block)
        and (block.fixed and block.mean_field and not block.skip)
        and (block.a is not None and "a" in block.train)
        for block in (rest if isinstance(first, Limit) else [first, *rest])
    )


class Drive(NamedTuple):
    """What `ChannelDrive` observed of the first block at every time."""

    channels: np.ndarray  # f_k at all points: (times, points, D)
    signals: np.ndarray  # B_k at the training points: (times, n, D) with one output, else (times, n, D, outputs)
    slope: np.ndarray  # dL/df(x_p) = π_p d_p: (times, n), or (times, n, outputs)


@dataclasses.dataclass(frozen=True, eq=False)
class Setting:
    """A run of a stack whose first block trains its amplitudes on fixed features."""

    run: Trajectory

    @functools.cached_property
    def network(self) -> MeanFieldStack:
        """The network at the start."""
        return cast(MeanFieldStack, self.run.start).restore()

    @property
    def first(self) -> Block | Limit:
        """The first block at the start."""
        return cast(Block | Limit, self.network.blocks[0])

    @property
    def above(self) -> tuple[Block, ...]:
        """All other blocks that have neurons."""
        return tuple(block for block in self.network.blocks[1:] if isinstance(block, Block))

    @property
    def second(self) -> Block:
        """The second block at the start."""
        return self.above[0]

    @property
    def mixing(self) -> np.ndarray:
        """L_{c_2,k}: the features of the second block, one row per neuron."""
        return np.asarray(self.second.w, float)

    @property
    def ends(self) -> list[MeanFieldStack]:
        """The network at the start and at the end."""
        return [cast(MeanFieldStack, network) for network in (self.run.start, self.run.final)]

    @property
    def x(self) -> np.ndarray:
        """The training points."""
        return np.asarray(self.run.data.x, float)

    @property
    def shares(self) -> np.ndarray:
        """π_p: the factor of each sample's slope d_p in the loss."""
        weight = np.ones(self.run.data.n) if self.run.data.weight is None else np.asarray(self.run.data.weight, float)
        return weight / weight.sum() if self.run.loss.reduction == "mean" else weight

    @property
    def loss_slope(self) -> float:
        """The slope d_p of the squared loss of a sample, divided by its residual: 1, or 2 without the factor ½."""
        return 1.0 if cast(Squared, self.run.loss).half else 2.0

    @property
    def precision(self) -> float:
        """Relative error of the run: the flow's own estimate, and rounding."""
        return relative_error(self.run, rounding(self.run))

    def kernel(self, x: np.ndarray, z: np.ndarray | None = None) -> np.ndarray:
        """Compute K_μ0(x, z) (eq. 10), by default at the training points z.

        It is in the units of the flow: a trained offset adds 1, and without the factor 1/m of the sum it is m φ·φ.
        """
        return np.asarray(kernel_of(self.first, jnp.asarray(x), jnp.asarray(self.x if z is None else z)), float)

    @property
    def observed(self) -> bool:
        """Whether the run was observed with `ChannelDrive`."""
        return through(self.run, ChannelDrive()) is not None

    @functools.cached_property
    def drive(self) -> Drive:
        """What `ChannelDrive` observed."""
        found = through(self.run, ChannelDrive())
        if found is None:
            raise UserError(f"The channels of this run were not observed: add probes=[{ChannelDrive()!r}].")
        return Drive(*(np.asarray(found[name], float) for name in Drive._fields))

    @functools.cached_property
    def gamma(self) -> tuple[np.ndarray, float]:
        """Γ_kp = ∫ π_p d_p B_kp ds (eq. 15) at every time, and an estimate of its error."""
        _, signals, slope = self.drive
        forces = np.einsum("tpk,tp->tpk" if slope.ndim == 2 else "tpki,tpi->tpk", signals, slope)  # Σ_i dL/df_i B_ik
        return integrated(self.run.times, forces)


def driven(run: Trajectory) -> Reading[Setting]:
    """Require a stack to which eq. 10 applies."""
    what = "a stack whose first block trains its amplitudes on fixed features"
    yield from require(Hypothesis(what, is_driven(run.start)))
    return Setting(run)


def random_features(run: Trajectory) -> Reading[Setting]:
    """Require the paper's network."""
    what = "mean-field blocks with frozen features and one output"
    yield from require(Hypothesis(what, is_random_features(run.start)))
    return Setting(run)


def without_offsets(run: Trajectory) -> Hypothesis:
    """Require two blocks without offsets, which are the paper's three layers: only w_1 and w_2 are trained."""
    blocks = run.start.blocks if isinstance(run.start, MeanFieldStack) else ()
    known = [block for block in blocks if isinstance(block, Block | Limit)]
    offsets = any("c" in block.train or np.any(np.asarray(block.c)) for block in known)
    return Hypothesis("two blocks without offsets c", len(known) == len(blocks) == 2 and not offsets)


def without_biases(block: Block) -> Hypothesis:
    """Require a second block without biases."""
    return Hypothesis("no biases in the second block", block.b is None or not np.any(np.asarray(block.b)))


def three_layers(run: Trajectory) -> Reading[Setting]:
    """Require the paper's network with three layers, in which w_2 belongs to the only block above the first."""
    setting = yield from random_features(run)
    yield from require(without_offsets(run))
    return setting


def required(reading: Reading[S]) -> S:
    """Return the setting of a run, or raise an error that names the hypotheses that are not met."""
    hypotheses, setting = read_all(reading)
    if setting is None:
        unmet = "; ".join(str(one) for one in hypotheses if not one.met)
        raise UserError(f"The theorem does not apply to this run. Not met: {unmet}.")
    return setting


def from_start(run: Trajectory) -> Hypothesis:
    """Require observations from t = 0 on, enough of them for a spline."""
    count = len(run.times) if run.times.size and run.times[0] == 0 else 0
    return Hypothesis("at least 4 observations, the first at t = 0", count >= 4, count, 4)


def drawn_features(setting: Setting, count: int) -> np.ndarray:
    """Return φ_1 of each neuron at the training points; of an infinite first block, of ``count`` drawn neurons."""
    first = setting.first
    if not isinstance(first, Block):
        first = cast(Block, draw_first(setting.network, count, key=jax.random.key(0)).blocks[0])
    return np.asarray(first.column(setting.run.data.x.T), float)


def integrated(times: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, float]:
    """Integrate ``values``, observed at ``times`` along the first axis, up to each time by a spline.

    At least 4 times are needed. Also return an estimate of the error: the difference from the spline of the next lower
    odd order, which is the less accurate of the two.
    """
    order = min(7, len(times) - 1)
    order -= 1 - order % 2
    sums = (make_interp_spline(times, values, k=k).antiderivative()(times) for k in (order, order - 2))
    best, worse = (one - one[0] for one in sums)
    return best, largest(best - worse)


def largest(values: object) -> float:
    """Return the largest absolute value in an array."""
    return float(np.max(np.abs(np.asarray(values, float))))


def moment(values: np.ndarray, order: float) -> np.ndarray:
    """Compute E[|v|^m]^(1/m) of each column, in units that cannot overflow."""
    size = max(largest(values), 1e-300)
    return size * np.mean(np.abs(values / size) ** order, axis=0) ** (1 / order)
