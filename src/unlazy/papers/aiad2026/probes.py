"""The channels and neurons of a mean-field stack: functions of the input, their gradients, and their shape.

Channels are f_k^(l)(x), neurons σ(H_j^(l)(x)) with H_j = w_j·f^(l-1) + b_j: a block sums them to obtain its channels.
Probes with an option ``units`` observe either; neurons can also be those of the layers of any other network.

These probes evaluate the network along a line of inputs: ``count`` points from ``low`` to ``high`` on the first axis,
all other inputs being 0. With one input, as in aiad2026, that is the whole function. Blocks are called ``block-1``,
``block-2``, ...; the channels of the last one are the outputs.
"""

from collections.abc import Iterable, Sequence
from typing import Literal, TypeVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from unlazy._errors import UserError
from unlazy._types import NotNegative
from unlazy.networks import MeanFieldStack
from unlazy.probes import Observation, Probe
from unlazy.probes.movement import layers_of, raw_stack

ByBlock = dict[str, Float[Array, "..."]]
Units = Literal["channels", "neurons"]
T = TypeVar("T")


def by_block(values: Iterable[Float[Array, "..."]]) -> ByBlock:
    """Name one value per block."""
    return {f"block-{level}": value for level, value in enumerate(values, start=1)}


def _line(low: float, high: float, count: int) -> np.ndarray:
    if not (np.isfinite(low) and np.isfinite(high) and low < high and count >= 2):
        raise UserError(f"A line of inputs needs low < high and at least 2 points, not {low:g}, {high:g} and {count}.")
    return np.linspace(low, high, count)


def _along(obs: Observation, points: np.ndarray) -> tuple[MeanFieldStack, Float[Array, "q d"]]:
    """Return the stack on raw inputs, and inputs with the ``points`` on the first axis and 0 elsewhere."""
    stack, dtype = raw_stack(obs.network), obs.data.y.dtype
    return stack, jnp.zeros((points.size, stack.inputs), dtype).at[:, 0].set(jnp.asarray(points, dtype))


def _channels(obs: Observation, points: np.ndarray) -> ByBlock:
    stack, x = _along(obs, points)
    return by_block(stack.channels(x))


def _functions(obs: Observation, points: np.ndarray, units: Units) -> ByBlock:
    """Return the channels of every block of a stack, or the neurons of every layer of any network: (points, units)."""
    if units == "channels":
        return _channels(obs, points)
    x = obs.data.x
    along = jnp.zeros((points.size, *x.shape[1:]), x.dtype)
    along = along.reshape(points.size, -1).at[:, 0].set(jnp.asarray(points, x.dtype)).reshape(along.shape)
    return {name: layer.responses(along) for name, layer in layers_of(obs.network.restore()).items()}


class _OnLine(Probe):
    """A probe that evaluates the network along a line of inputs.

    Parameters
    ----------
    low, high, count
        Ends of the line, and its number of points.
    """

    low: float = eqx.field(static=True, default=-1.0)
    high: float = eqx.field(static=True, default=1.0)
    count: int = eqx.field(static=True, default=201)

    def _points(self) -> np.ndarray:
        return _line(self.low, self.high, self.count)


class Channels(_OnLine):
    """f_k^(l)(x) along the line: an array (points, D_l) for each block (aiad2026 figures 8 and 9)."""

    def __call__(self, obs: Observation) -> ByBlock:
        return _channels(obs, self._points())


class BackwardSignals(_OnLine):
    """B_k^(l)(x) = ∂f/∂f_k^(l) along the line: (points, D_l) for each block, or (points, D_l, outputs).

    This is aiad2026's backpropagated signal, in the form that is correct at any depth; times dL/df it drives channel k.
    """

    def __call__(self, obs: Observation) -> ByBlock:
        stack, x = _along(obs, self._points())
        return by_block(_points_first(stack, signal) for signal in stack.signals(x))


def _points_first(stack: MeanFieldStack, signal: Float[Array, "outputs D q"]) -> Float[Array, "..."]:
    return signal[0].T if stack.scalar else jnp.transpose(signal, (2, 1, 0))


def log_sizes(values: Float[Array, " D"], eps: Float[Array, ""] | np.ndarray | float = 0.0) -> Float[Array, " D"]:
    """Compute log(|f_k| + eps), with the smallest positive number in place of 0."""
    return jnp.log(jnp.maximum(jnp.abs(values) + jnp.asarray(eps, values.dtype), jnp.finfo(values.dtype).tiny))


class LogRatios(Probe):
    """R_ij = log(|f_i(x)| + ε) - log(|f_j(x)| + ε) between channels or neurons (aiad2026 figures 5 and 6).

    - ``all``: the whole matrix, if ``matrix``;
    - ``logs``: log(|f_k| + ε), of which R_ij is the difference;
    - ``largest``: max_ij R_ij, which is large whenever a channel crosses zero near x or a neuron is dead;
    - ``top_to_median``: log of the largest over the median |f_k| + ε, which is not affected by zero crossings;
    - ``zeros``: the share of the f_k that are exactly 0, such as those of dead ReLU neurons.

    Parameters
    ----------
    x
        The point at which they are compared, on the first axis.
    block
        The block, or layer of another network, counted from 1.
    units
        "channels" of a stack, or "neurons" after the activation.
    eps
        The ε; with 0, the smallest positive number takes the place of 0.
    matrix
        Whether to return all R_ij: the square of the number of channels or neurons.
    """

    x: float = eqx.field(static=True, default=0.0)
    block: int = eqx.field(static=True, default=1)
    units: Units = eqx.field(static=True, default="channels")
    eps: NotNegative = eqx.field(static=True, default=0.0)
    matrix: bool = eqx.field(static=True, default=True)

    def __call__(self, obs: Observation) -> ByBlock:
        values = _of_block(list(_functions(obs, np.asarray([self.x]), self.units).values()), self.block)[0]
        logs = log_sizes(values, self.eps)
        found = {
            "logs": logs,
            "largest": jnp.max(logs) - jnp.min(logs),
            "top_to_median": jnp.max(logs) - log_sizes(jnp.median(jnp.abs(values)), self.eps),
            "zeros": jnp.mean((values == 0).astype(values.dtype)),
        }
        return ({"all": logs[:, None] - logs[None, :]} if self.matrix else {}) | found


def _of_block(values: Sequence[T], block: int) -> T:
    if not 1 <= block <= len(values):
        raise UserError(f"This stack has blocks 1 to {len(values)}, so there is no block {block}.")
    return values[block - 1]


class Preactivations(Probe):
    """H_j(x) = w_j·f^(l-1)(x) + b_j of the neurons of a block along the line: (points, neurons).

    Parameters
    ----------
    block
        The block, counted from 1.
    neurons
        How many neurons, from the first on; all by default.
    low, high, count
        Ends of the line, and its number of points.
    """

    block: int = eqx.field(static=True, default=2)
    neurons: int | None = eqx.field(static=True, default=None)
    low: float = eqx.field(static=True, default=-1.0)
    high: float = eqx.field(static=True, default=1.0)
    count: int = eqx.field(static=True, default=201)

    def __call__(self, obs: Observation) -> Float[Array, "points neurons"]:
        stack, x = _along(obs, _line(self.low, self.high, self.count))
        _of_block(stack.blocks, self.block)
        return stack.preactivations(x, self.block)[:, : self.neurons]


class SymmetryDefect(Probe):
    """Share of each function's energy that is in its odd part about x = 0, for each block: 0 if even, 1 if odd.

    ∫ f_odd² / ∫ f² over [-reach, reach], with f_odd(x) = (f(x) - f(-x)) / 2 (aiad2026 figures 8 and 9).

    Parameters
    ----------
    reach, count
        Half the length of the line, and its number of points.
    units
        "channels" of a stack, or "neurons" after the activation; a dead neuron has 0.
    """

    reach: float = eqx.field(static=True, default=1.0)
    count: int = eqx.field(static=True, default=401)
    units: Units = eqx.field(static=True, default="channels")

    def __call__(self, obs: Observation) -> ByBlock:
        functions = _functions(obs, _line(-self.reach, self.reach, self.count), self.units)
        return {name: odd_share(values) for name, values in functions.items()}


def odd_share(values: Float[Array, "q D"]) -> Float[Array, " D"]:
    """Return the energy of the odd part over the whole energy, for functions on a symmetric line."""
    odd = (values - values[::-1]) / 2
    energy = _integral(jnp.square(values))
    return _integral(jnp.square(odd)) / jnp.maximum(energy, jnp.finfo(values.dtype).tiny)


def _integral(values: Float[Array, "q D"]) -> Float[Array, " D"]:
    """Mean over a line by the trapezoid rule."""
    weight = jnp.ones(values.shape[0], values.dtype).at[jnp.asarray([0, -1])].set(0.5)
    return weight @ values / jnp.sum(weight)


class Spikes(_OnLine):
    """Location and sharpness of the maximum of each channel or neuron, for each block.

    - ``location``: the x at which |f_k| is largest;
    - ``sharpness``: max f² over the mean of f²: 1 for a constant, 2 for a cosine, length over width for a spike.

    Parameters
    ----------
    units
        "channels" of a stack, or "neurons" after the activation.
    """

    count: int = eqx.field(static=True, default=401)
    units: Units = eqx.field(static=True, default="channels")

    def __call__(self, obs: Observation) -> dict[str, ByBlock]:
        functions = _functions(obs, self._points(), self.units)
        points = jnp.asarray(self._points(), obs.data.y.dtype)
        return {
            "location": {name: points[jnp.argmax(jnp.abs(one), axis=0)] for name, one in functions.items()},
            "sharpness": {name: sharpness(one) for name, one in functions.items()},
        }


def sharpness(values: Float[Array, "q D"]) -> Float[Array, " D"]:
    """Return the largest square over the mean square."""
    square = jnp.square(values)
    return jnp.max(square, axis=0) / jnp.maximum(_integral(square), jnp.finfo(values.dtype).tiny)


class ChannelSpectrum(Probe):
    """Amplitude of each frequency in each channel: a_q = |∫ f_k(x) e^(-iπqx)| for q = 0 ... ``frequencies``.

    The integral is the mean over [-1, 1], doubled for q > 0, so that cos(πqx) has a_q = 1: (frequencies + 1, D_l) for
    each block. Over time it shows when each frequency is learnt.

    Parameters
    ----------
    frequencies
        The highest frequency.
    count
        Number of points on [-1, 1].
    """

    frequencies: int = eqx.field(static=True, default=20)
    count: int = eqx.field(static=True, default=401)

    def __call__(self, obs: Observation) -> ByBlock:
        if not 0 <= 2 * self.frequencies < self.count:
            raise UserError(
                f"count = {self.count} points do not resolve frequencies up to {self.frequencies}: give more than "
                f"{2 * self.frequencies} points, or a lower `frequencies`."
            )
        line = _line(-1.0, 1.0, self.count)
        return {name: spectrum(one, line, self.frequencies) for name, one in _channels(obs, line).items()}


def spectrum(values: Float[Array, "q D"], line: np.ndarray, frequencies: int) -> Float[Array, "frequencies D"]:
    """Compute the absolute Fourier coefficients, up to a highest one, of functions on [-1, 1], one per column."""
    order = np.arange(frequencies + 1)[:, None]
    weight = np.ones(line.size)
    weight[[0, -1]] = 0.5
    factor = np.where(order > 0, 2.0, 1.0) * weight[None] / weight.sum()
    even, odd = (jnp.asarray(factor * wave(np.pi * order * line[None]), values.dtype) for wave in (np.cos, np.sin))
    return jnp.hypot(even @ values, odd @ values)


class ParameterHistogram(Probe):
    """Density of the entries of A (or w, or b) over the neurons of a block (aiad2026 figure 10: its w_2 is our A).

    ``density`` over ``bins`` equal bins between ``edges``: from ``low`` to ``high``, by default twice the range at the
    start. Entries outside are counted in the outermost bins.

    Parameters
    ----------
    block
        The block, counted from 1.
    parameter
        Which parameter of the block.
    bins, low, high
        Number of bins, and the ends of their range.
    """

    block: int = eqx.field(static=True, default=2)
    parameter: Literal["a", "w", "b"] = eqx.field(static=True, default="a")
    bins: int = eqx.field(static=True, default=50)
    low: float | None = eqx.field(static=True, default=None)
    high: float | None = eqx.field(static=True, default=None)

    def __call__(self, obs: Observation) -> ByBlock:
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
                f"Block {self.block} has no parameters '{self.parameter}': name another block or parameter."
            )
        return entries.reshape(-1)


class ChannelDrive(Probe):
    """The quantities by which f_k of the first block moves (aiad2026 eq. 10), at the points of the data set.

    - ``channels``: f_k(x) at the training points, then at the test points: (points, D);
    - ``signals``: B_k(x_p) = ∂f/∂f_k at the training points: (n, D), or (n, D, outputs);
    - ``slope``: dL/df(x_p), that is π_p d_p: (n,), or (n, outputs).
    """

    def __call__(self, obs: Observation) -> ByBlock:
        now, data = obs.network, obs.data
        if not isinstance(now, MeanFieldStack):
            raise UserError(
                f"Channels are those of a MeanFieldStack, and {type(now).__name__} has none: omit this probe."
            )
        channels = now.channels(obs.x)[0]
        if data.x_test is not None:
            channels = jnp.concatenate([channels, now.channels(obs.x_test)[0]])
        return {
            "channels": channels,
            "signals": _points_first(now, now.signals(obs.x)[0]),
            "slope": obs.loss.slope(obs.outputs, data.y, data.weight),
        }
