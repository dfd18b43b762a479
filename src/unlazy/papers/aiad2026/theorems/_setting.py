"""Which runs aiad2026 speaks about, and what its theorems take from them."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from scipy.interpolate import make_interp_spline

from unlazy.flows import Trajectory
from unlazy.networks import Block, Limit, MeanFieldStack, Network, kernel_of
from unlazy.papers.aiad2026.probes import ChannelDrive
from unlazy.probes import Probe
from unlazy.theory._base import Hypothesis, through
from unlazy.theory._runs import relative_error

AUTHORS = "Aiad, Yang, Zhang (2026)"
DRIVE = ChannelDrive()


def first_block(network: Network) -> Block | Limit | None:
    """The first block of a stack, if it is trained on fixed features: its neurons, or their law."""
    if not isinstance(network, MeanFieldStack) or network.clips_per_sample:
        return None
    block = network.restore().blocks[0]
    if isinstance(block, Block) and not (block.fixed and block.a is not None):
        return None
    return block if isinstance(block, Block | Limit) and "a" in block.train else None


def is_driven(network: Network) -> bool:
    """Whether its first block has fixed features and trained amplitudes: all that eq. 10 and 16 ask for."""
    return first_block(network) is not None


def is_random_features(network: Network) -> bool:
    """Whether it is the paper's network, with one output: mean-field blocks, features frozen, amplitudes trained."""
    if not (isinstance(network, MeanFieldStack) and is_driven(network) and network.scalar):
        return False
    rest = [block for block in network.blocks[1:] if isinstance(block, Block)]
    first = first_block(network)
    finite = [*rest, first] if isinstance(first, Block) else rest
    whole = len(rest) == network.depth - 1 and all(block.fixed and block.a is not None for block in rest)
    return whole and all(block.mean_field and "a" in block.train and not block.skip for block in finite)


def driven(run: Trajectory) -> Hypothesis:
    """A stack that eq. 10 speaks about."""
    return Hypothesis("a stack whose first block trains its amplitudes on fixed features", is_driven(run.start))


def random_features(run: Trajectory) -> Hypothesis:
    """The paper's network."""
    return Hypothesis("mean-field blocks with frozen features and one output", is_random_features(run.start))


def three_layers(run: Trajectory) -> Hypothesis:
    """What the paper calls three layers is two blocks: w_1 and w_2 are trained, and no offset."""
    blocks = run.start.blocks if isinstance(run.start, MeanFieldStack) else ()
    known = [block for block in blocks if isinstance(block, Block | Limit)]
    still = not any("c" in block.train or np.any(np.asarray(block.c)) for block in known)
    return Hypothesis("two blocks without offsets c", len(known) == len(blocks) == 2 and still)


def feature_kernel(network: Network, x: np.ndarray, z: np.ndarray) -> np.ndarray:
    """K_μ0(x, z) (eq. 10): in closed form at infinite width, else of the network's own features.

    In the units of the flow: a trained offset adds 1, and without 1/m in front of the sum m φ·φ takes its place.
    """
    block = first_block(network)
    assert block is not None
    return np.asarray(kernel_of(block, jnp.asarray(x), jnp.asarray(z)), float)


def points(run: Trajectory) -> np.ndarray:
    """All inputs of the data set, training points first."""
    return np.asarray(run.data.points(), float)


def shares(run: Trajectory) -> np.ndarray:
    """π_p: what each sample's slope d_p is multiplied by in the loss."""
    weight = np.ones(run.data.n) if run.data.weight is None else np.asarray(run.data.weight, float)
    return weight / weight.sum() if run.loss.reduction == "mean" else weight


def seen(run: Trajectory, probe: Probe = DRIVE) -> Any:
    """What the run saw through a probe that its theorem needs."""
    found = through(run, probe)
    assert found is not None
    return found


def drive(run: Trajectory) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Channels (times, points, D), signals (times, n, D) and slopes π_p d_p (times, n) of a run with one output."""
    found = seen(run)
    return tuple(np.asarray(found[name], float) for name in ("channels", "signals", "slope"))  # pyright: ignore


def forces(run: Trajectory) -> np.ndarray:
    """dL/df_k(x_p) = Σ_i dL/df_i B_ik at every look: (times, n, D)."""
    _, signals, slope = drive(run)
    return np.einsum("tpk,tp->tpk", signals, slope) if slope.ndim == 2 else np.einsum("tpki,tpi->tpk", signals, slope)


def precision(run: Trajectory) -> float:
    """Relative error of what the run gives: the flow's own estimate, and rounding."""
    return relative_error(run, float(np.finfo(np.asarray(run.data.x).dtype).eps))


def from_start(run: Trajectory) -> Hypothesis:
    """Integrals over time begin at 0, and a spline needs a few looks."""
    looks = len(run.times) if run.times.size and run.times[0] == 0 else 0
    return Hypothesis("at least 4 looks, the first at t = 0", looks >= 4, looks, 4)


def integrated(times: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, float]:
    """∫_0^t of what was seen at ``times``, up to each of them, by a spline; and an estimate of its error.

    The estimate is the difference to the spline of the next lower odd order, which is the worse of the two.
    """
    order = min(7, len(times) - 1)
    order -= 1 - order % 2
    sums = [make_interp_spline(times, values, k=k).antiderivative()(times) for k in (order, order - 2)]
    return sums[0] - sums[0][0], float(np.max(np.abs((sums[0] - sums[0][0]) - (sums[1] - sums[1][0]))))
