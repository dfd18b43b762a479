"""The channels of a mean-field stack: functions f_k^(l)(x) of the input, what is sent back to them, and their shape.

These probes look along a line of inputs: ``count`` points from ``low`` to ``high`` on the first axis, the other inputs
0. With one input, as in aiad2026, that is the whole function. Blocks are called ``block-1``, ``block-2``, ...; the
channels of the last one are the outputs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from unlazy._errors import UserError
from unlazy._observation import Observation
from unlazy.networks import MeanFieldStack, Network
from unlazy.probes import Probe
from unlazy.probes.movement import raw_stack

ByBlock = dict[str, Float[Array, "..."]]
T = TypeVar("T")


def along(network: MeanFieldStack, points: Float[Array, " q"]) -> Float[Array, "q d"]:
    """Inputs on the first axis."""
    return jnp.zeros((points.shape[0], network.inputs), points.dtype).at[:, 0].set(points)


def by_block(values: list[Float[Array, "..."]]) -> ByBlock:
    """Name what belongs to blocks."""
    return {f"block-{level + 1}": value for level, value in enumerate(values)}


def _line(low: float, high: float, count: int) -> np.ndarray:
    if not (np.isfinite(low) and np.isfinite(high) and low < high and count >= 2):
        raise UserError(f"A line of inputs needs low < high and at least 2 points, not {low:g}, {high:g} and {count}.")
    return np.linspace(low, high, count)


def _channels(network: Network, points: np.ndarray, dtype: jnp.dtype) -> list[Float[Array, "q D"]]:
    stack = raw_stack(network)
    return stack.channels(along(stack, jnp.asarray(points, dtype)))


class Channels(Probe):
    """f_k^(l)(x) along the line: an array (points, D_l) for each block (aiad2026 figures 8 and 9)."""

    low: float = eqx.field(static=True, default=-1.0)
    high: float = eqx.field(static=True, default=1.0)
    count: int = eqx.field(static=True, default=201)

    def __call__(self, obs: Observation) -> ByBlock:
        """Evaluate every block."""
        return by_block(_channels(obs.network, _line(self.low, self.high, self.count), obs.data.y.dtype))


class BackwardSignals(Probe):
    """B_k^(l)(x) = ∂f/∂f_k^(l) along the line: (points, D_l) for each block, or (points, D_l, outputs).

    It is aiad2026's backpropagated signal, in the form that is right at any depth; times dL/df it drives channel k.
    """

    low: float = eqx.field(static=True, default=-1.0)
    high: float = eqx.field(static=True, default=1.0)
    count: int = eqx.field(static=True, default=201)

    def __call__(self, obs: Observation) -> ByBlock:
        """Send 1 back from the outputs."""
        stack = raw_stack(obs.network)
        points = jnp.asarray(_line(self.low, self.high, self.count), obs.data.y.dtype)
        signals = stack.signals(along(stack, points))
        if stack.scalar:
            return by_block([signal[0].T for signal in signals])
        return by_block([jnp.transpose(signal, (2, 1, 0)) for signal in signals])


def log_ratios(values: Float[Array, " D"]) -> Float[Array, "D D"]:
    """R_ij = log |f_i| - log |f_j|; a channel that is 0 counts as the smallest number there is."""
    logs = jnp.log(jnp.maximum(jnp.abs(values), jnp.finfo(values.dtype).tiny))
    return logs[:, None] - logs[None, :]


class LogRatios(Probe):
    """R_ij = log |f_i(x)| - log |f_j(x)| between the channels of a block at ``x`` (aiad2026 figures 5 and 6).

    - ``all``: the whole matrix;
    - ``largest``: max_ij R_ij, which any channel that crosses zero drives up;
    - ``top_to_median``: log of the largest over the median |f_k|, which no zero crossing drives.
    """

    x: float = eqx.field(static=True, default=0.0)
    block: int = eqx.field(static=True, default=1)

    def __call__(self, obs: Observation) -> ByBlock:
        """Compare the channels at one point."""
        values = _of_block(_channels(obs.network, np.asarray([self.x]), obs.data.y.dtype), self.block)[0]
        ratios, size = log_ratios(values), jnp.abs(values)
        tiny = jnp.finfo(values.dtype).tiny
        median = jnp.maximum(jnp.median(size), tiny)
        return {
            "all": ratios,
            "largest": jnp.max(ratios),
            "top_to_median": jnp.log(jnp.maximum(jnp.max(size), tiny) / median),
        }


def _of_block(values: Sequence[T], block: int) -> T:
    if not 1 <= block <= len(values):
        raise UserError(f"This stack has blocks 1 to {len(values)}, so there is no block {block}.")
    return values[block - 1]


class Preactivations(Probe):
    """H_j(x) = w_j·f^(l-1)(x) + b_j of the first ``neurons`` neurons (all by default) of a block: (points, neurons)."""

    block: int = eqx.field(static=True, default=2)
    neurons: int | None = eqx.field(static=True, default=None)
    low: float = eqx.field(static=True, default=-1.0)
    high: float = eqx.field(static=True, default=1.0)
    count: int = eqx.field(static=True, default=201)

    def __call__(self, obs: Observation) -> Float[Array, "points neurons"]:
        """Evaluate one block's neurons."""
        stack = raw_stack(obs.network)
        _of_block(stack.blocks, self.block)
        points = jnp.asarray(_line(self.low, self.high, self.count), obs.data.y.dtype)
        return stack.preactivations(along(stack, points), self.block)[:, : self.neurons]


class SymmetryDefect(Probe):
    """Share of each channel's energy that is in its odd part about x = 0, for each block: 0 is even, 1 is odd.

    ∫ f_odd² / ∫ f² over [-reach, reach], with f_odd(x) = (f(x) - f(-x)) / 2 (aiad2026 figures 8 and 9).
    """

    reach: float = eqx.field(static=True, default=1.0)
    count: int = eqx.field(static=True, default=401)

    def __call__(self, obs: Observation) -> ByBlock:
        """Split each channel into its even and odd part."""
        channels = _channels(obs.network, _line(-self.reach, self.reach, self.count), obs.data.y.dtype)
        return by_block([odd_share(values) for values in channels])


def odd_share(values: Float[Array, "q D"]) -> Float[Array, " D"]:
    """Energy of the odd part over all energy, of functions on a symmetric line."""
    odd = (values - values[::-1]) / 2
    energy = _integral(jnp.square(values))
    return _integral(jnp.square(odd)) / jnp.maximum(energy, jnp.finfo(values.dtype).tiny)


def _integral(values: Float[Array, "q D"]) -> Float[Array, " D"]:
    """Mean over a line by the trapezoid rule."""
    weight = jnp.ones(values.shape[0], values.dtype).at[jnp.asarray([0, -1])].set(0.5)
    return weight @ values / jnp.sum(weight)


class Spikes(Probe):
    """Where each channel is largest and how sharp its spike is, for each block.

    - ``location``: the x at which |f_k| is largest;
    - ``sharpness``: max f² over the mean of f²: 1 for a constant, 2 for a cosine, length over width for a spike.
    """

    low: float = eqx.field(static=True, default=-1.0)
    high: float = eqx.field(static=True, default=1.0)
    count: int = eqx.field(static=True, default=401)

    def __call__(self, obs: Observation) -> dict[str, ByBlock]:
        """Find the largest value of every channel."""
        line = _line(self.low, self.high, self.count)
        channels = _channels(obs.network, line, obs.data.y.dtype)
        points = jnp.asarray(line, obs.data.y.dtype)
        return {
            "location": by_block([points[jnp.argmax(jnp.abs(values), axis=0)] for values in channels]),
            "sharpness": by_block([sharpness(values) for values in channels]),
        }


def sharpness(values: Float[Array, "q D"]) -> Float[Array, " D"]:
    """Largest square over the mean square."""
    square = jnp.square(values)
    return jnp.max(square, axis=0) / jnp.maximum(_integral(square), jnp.finfo(values.dtype).tiny)


class ChannelSpectrum(Probe):
    """How much of each frequency is in each channel: a_q = |∫ f_k(x) e^(-iπqx)| for q = 0 ... ``frequencies``.

    The integral is the mean over [-1, 1], doubled for q > 0, so that cos(πqx) has a_q = 1: (frequencies + 1, D_l) for
    each block. Seen over time it tells which frequency is learned when.
    """

    frequencies: int = eqx.field(static=True, default=20)
    count: int = eqx.field(static=True, default=401)

    def __call__(self, obs: Observation) -> ByBlock:
        """Project onto waves."""
        if not 0 <= 2 * self.frequencies < self.count:
            raise UserError(f"{self.count} points cannot tell {self.frequencies} frequencies apart: take more points.")
        line = _line(-1.0, 1.0, self.count)
        return by_block(
            [spectrum(values, line, self.frequencies) for values in _channels(obs.network, line, obs.data.y.dtype)]
        )


def spectrum(values: Float[Array, "q D"], line: np.ndarray, frequencies: int) -> Float[Array, "frequencies D"]:
    """Size of the Fourier coefficients on [-1, 1], by the trapezoid rule."""
    order = np.arange(frequencies + 1)[:, None]
    weight = np.ones(line.size)
    weight[[0, -1]] = 0.5
    factor = np.where(order > 0, 2.0, 1.0) * weight[None] / weight.sum()
    even, odd = (jnp.asarray(factor * wave(np.pi * order * line[None]), values.dtype) for wave in (np.cos, np.sin))
    return jnp.hypot(even @ values, odd @ values)


class ParameterHistogram(Probe):
    """Density of the entries of A (or w, or b) over the neurons of a block (aiad2026 figure 10: its w_2 is our A).

    ``density`` over ``bins`` equal bins between ``edges``: from ``low`` to ``high``, by default twice the range at the
    start. What lies outside is counted in the outermost bins.
    """

    block: int = eqx.field(static=True, default=2)
    parameter: Literal["a", "w", "b"] = eqx.field(static=True, default="a")
    bins: int = eqx.field(static=True, default=50)
    low: float | None = eqx.field(static=True, default=None)
    high: float | None = eqx.field(static=True, default=None)

    def __call__(self, obs: Observation) -> ByBlock:
        """Count entries."""
        values, first = (self._entries(raw_stack(network)) for network in (obs.network, obs.start))
        reach = 2 * jnp.maximum(jnp.max(jnp.abs(first)), jnp.finfo(first.dtype).tiny)
        low = -reach if self.low is None else jnp.asarray(self.low, first.dtype)
        high = reach if self.high is None else jnp.asarray(self.high, first.dtype)
        edges = low + (high - low) * jnp.linspace(0, 1, self.bins + 1, dtype=first.dtype)
        counts = jnp.histogram(jnp.clip(values, low, high), edges)[0].astype(first.dtype)
        return {"density": counts / (values.size * (edges[1] - edges[0])), "edges": edges}

    def _entries(self, stack: MeanFieldStack) -> Float[Array, " p"]:
        block = _of_block(stack.blocks, self.block)
        entries = getattr(block, self.parameter, None)
        if entries is None:
            raise UserError(
                f"Block {self.block} has no parameters '{self.parameter}': ask for another block or letter."
            )
        return entries.reshape(-1)


class ChannelDrive(Probe):
    """All that moves f_k of the first block by aiad2026 eq. 10, at the points of the data set.

    - ``channels``: f_k(x) at the training points, then at the test points: (points, D);
    - ``signals``: B_k(x_p) = ∂f/∂f_k at the training points: (n, D), or (n, D, outputs);
    - ``slope``: dL/df(x_p), that is π_p d_p: (n,), or (n, outputs).
    """

    def __call__(self, obs: Observation) -> ByBlock:
        """Go forward and back once."""
        now, data = obs.network, obs.data
        if not isinstance(now, MeanFieldStack):
            raise UserError(
                f"Channels are those of a MeanFieldStack; {type(now).__name__} has none: leave this probe out."
            )
        channels, signals = now.channels(obs.x)[0], now.signals(obs.x)[0]
        if data.x_test is not None:
            channels = jnp.concatenate([channels, now.channels(obs.x_test)[0]])
        return {
            "channels": channels,
            "signals": signals[0].T if now.scalar else jnp.transpose(signals, (2, 1, 0)),
            "slope": obs.loss.slope(obs.outputs, data.y, data.weight),
        }
