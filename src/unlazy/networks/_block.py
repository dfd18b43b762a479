"""The blocks of a mean-field stack: neurons, neurons on features made once, and infinitely many neurons.

Blocks work on columns, (channels, samples): all products then have their long axes where memory is contiguous, which
makes a training step twice as fast on CPUs as rows do.
"""

from __future__ import annotations

import abc
import dataclasses

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from unlazy.activations import Activation, LeakyRelu, Relu
from unlazy.networks._anchored import Anchored
from unlazy.networks._prepared import Features, PreparedInputs, known_as

Columns = Float[Array, "d n"]
Channels = Float[Array, "D n"]
Signals = Float[Array, "k D n"]  # of each output by each channel, at each sample
Lower = Float[Array, "k d n"]  # the same, by each input of the block
OtherColumns = Float[Array, "d p"]
OtherSignals = Float[Array, "l D p"]
Overlap = Float[Array, "n k p l"]


class AbstractBlock(eqx.Module):
    """One block F of a stack, as a function of columns, or of a handle that was prepared for it."""

    @property
    @abc.abstractmethod
    def inputs(self) -> int:
        """Number of raw inputs d that it takes."""

    @abc.abstractmethod
    def __call__(self, x: Columns | PreparedInputs) -> Channels:
        """F(x)."""

    @abc.abstractmethod
    def rates(self) -> dict[str, float]:
        """Learning-rate factors of its trained fields."""

    @abc.abstractmethod
    def kernel(
        self, x: Columns | PreparedInputs, z: OtherColumns | PreparedInputs, up_x: Signals, up_z: OtherSignals
    ) -> Overlap:
        """Its part of the tangent kernel, given what outputs say to its channels."""

    @abc.abstractmethod
    def rows(self) -> Float[Array, "m p"] | None:
        """What is trained of each neuron, as one row; nothing where nothing that belongs to neurons is."""

    @abc.abstractmethod
    def back(self, x: Columns | PreparedInputs, up: Signals) -> Lower:
        """∂f/∂x from ∂f/∂F."""


def overlap(left: Float[Array, "k j n"], right: Float[Array, "l j p"]) -> Overlap:
    """Σ_j u_kj(x) u_lj(z)."""
    return jnp.einsum("kjn,ljp->nkpl", left, right, optimize="optimal")


def spread_out(kernel: Float[Array, "n p"]) -> Float[Array, "n 1 p 1"]:
    """A kernel of samples, to be multiplied with overlaps of outputs."""
    return kernel[:, None, :, None]


class Block(AbstractBlock):
    """F(x) = s Σ_j A_j σ(w_j·x + b_j) + c over m neurons (A_j, w_j, b_j), with s = 1/m (mean field) or 1 (standard).

    Without A it is |w_j| where it is ``tied``, else the identity. In the mean-field parameterisation what belongs to a
    neuron learns m times as fast, which undoes s. ``train`` names what is trained, in letters.
    """

    a: Float[Array, "m D"] | None
    w: Float[Array, "m d"]
    b: Float[Array, " m"] | None
    c: Float[Array, " D"]
    activation: Activation
    train: str = eqx.field(static=True)
    mean_field: bool = eqx.field(static=True)
    skip: bool = eqx.field(static=True)
    tied: bool = eqx.field(static=True)

    @property
    def inputs(self) -> int:
        """Number of inputs d."""
        return self.w.shape[1]

    @property
    def width(self) -> int:
        """Number of neurons m."""
        return self.w.shape[0]

    @property
    def scale(self) -> float:
        """The factor s in front of the sum."""
        return 1.0 / self.width if self.mean_field else 1.0

    @property
    def fixed(self) -> bool:
        """Whether its features σ(w_j·x + b_j) never change."""
        return not set(self.train) & set("wb")

    def hidden(self, x: Columns) -> Float[Array, "m n"]:
        """Pre-activations w_j·x + b_j."""
        h = self.w @ x
        return h if self.b is None else h + self.b[:, None]

    def column(self, x: Columns) -> Float[Array, "m n"]:
        """Its features σ(w_j·x + b_j)."""
        return self.activation(self.hidden(x))

    def read(self, features: Float[Array, "m n"]) -> Channels:
        """Give s Σ_j A_j φ_j."""
        if self.a is not None:
            return self.scale * (self.a.T @ features)
        return self.scale * (lengths(self.w)[None] @ features if self.tied else features)

    def __call__(self, x: Columns | PreparedInputs) -> Channels:
        """Give s Σ_j A_j σ(w_j·x + b_j) + c, plus x where there is a skip."""
        x = raw_columns(x)
        out = self.read(self.column(x)) + self.c[:, None]
        return out + x if self.skip else out

    def rates(self) -> dict[str, float]:
        """Give m for what belongs to neurons and 1 for c; in the standard parameterisation 1 for all."""
        each = float(self.width) if self.mean_field else 1.0
        return {letter: 1.0 if letter == "c" else each for letter in self.train}

    def down(self, up: Signals) -> Float[Array, "k m n"]:
        """Give s Σ_i A_ji u_i: what signals on the channels say to each neuron."""
        if self.a is not None:
            return self.scale * jnp.einsum("jd,kdn->kjn", self.a, up)
        return self.scale * (up * lengths(self.w)[None, :, None] if self.tied else up)

    def back(self, x: Columns | PreparedInputs, up: Signals) -> Lower:
        """w^T (σ' s A u), plus u where there is a skip."""
        x = raw_columns(x)
        told = self.down(up) * self.activation.derivative(self.hidden(x))[None]
        signal = jnp.einsum("jd,kjn->kdn", self.w, told)
        return signal + up if self.skip else signal

    def kernel(
        self, x: Columns | PreparedInputs, z: OtherColumns | PreparedInputs, up_x: Signals, up_z: OtherSignals
    ) -> Overlap:
        """R s² φ(x)·φ(z) u(x)·u(z) for A, u(x)·u(z) for c, R v(x)·v(z) (x·z + 1) for (w, b) with v = σ' s A u."""
        x, z = raw_columns(x), raw_columns(z)
        rates, h_x, h_z = self.rates(), self.hidden(x), self.hidden(z)
        signals = overlap(up_x, up_z)
        total = jnp.zeros_like(signals)
        if "a" in rates:
            own = rates["a"] * self.scale**2 * (self.activation(h_x).T @ self.activation(h_z))
            total = total + spread_out(own) * signals
        if "c" in rates:
            total = total + rates["c"] * signals
        if not self.fixed:
            slope = self.activation.derivative
            told = overlap(self.down(up_x) * slope(h_x)[None], self.down(up_z) * slope(h_z)[None])
            inner = rates.get("w", 0.0) * (x.T @ z) + rates.get("b", 0.0)
            total = total + spread_out(inner) * told
        return total

    def on_fixed_features(self) -> Fixed:
        """The same block, whose features may be made once."""
        assert self.a is not None
        return Fixed(self.a, self.c, self)

    def rows(self) -> Float[Array, "m p"] | None:
        """(A_j, w_j, b_j), what of it is trained."""
        fields = [getattr(self, letter) for letter in "awb" if letter in self.train]
        if not fields:
            return None
        return jnp.concatenate([field.reshape(self.width, -1) for field in fields], axis=1)


class Fixed(AbstractBlock):
    """A block trained on fixed features φ: F = s Σ_j A_j φ_j + start + c, with (A, c) trained.

    A handle with precomputed features holds the columns (φ, start). ``inner`` is the block that it stands for.
    """

    a: Float[Array, "F D"]
    c: Float[Array, " D"]
    inner: Block | Limit
    anchor: Anchored | None = None  # the features of a block of infinite width

    @property
    def inputs(self) -> int:
        """Number of raw inputs d."""
        return self.inner.inputs

    @property
    def scale(self) -> float:
        """The factor s in front of the sum."""
        return self.inner.scale if isinstance(self.inner, Block) else 1.0 / self.a.shape[0]

    @property
    def train(self) -> str:
        """What is trained, in letters."""
        return self.inner.train

    @property
    def has_neurons(self) -> bool:
        """Whether it stands for a block of finite width."""
        return isinstance(self.inner, Block)

    def column(self, x: Columns) -> Float[Array, "F n"]:
        """Features of raw points, then what the block gives besides."""
        if isinstance(self.inner, Block):
            return self.inner.column(x)
        assert self.anchor is not None
        return jnp.concatenate([self.anchor(x.T).T, self.inner.start(x)])

    def parts(self, x: Columns | PreparedInputs) -> tuple[Float[Array, "F n"], Float[Array, "E n"]]:
        """Features, and what the block gives besides: one row for each channel, or none."""
        known = known_as(x, Features)
        column = self.column(raw_columns(x)) if known is None else known.T
        count = self.a.shape[0]
        return column[:count], column[count:]

    def __call__(self, x: Columns | PreparedInputs) -> Channels:
        """Give s Σ_j A_j φ_j + start + c."""
        features, start = self.parts(x)
        out = self.scale * (self.a.T @ features) + self.c[:, None]
        return out + start if start.shape[0] else out

    def rates(self) -> dict[str, float]:
        """Those of the block, for as many features as there are."""
        each = self.inner.rates().get("a", 0.0) if isinstance(self.inner, Block) else float(self.a.shape[0])
        return {letter: 1.0 if letter == "c" else each for letter in self.train}

    def back(self, x: Columns | PreparedInputs, up: Signals) -> Lower:
        """Refuse: nothing is trained below."""
        raise NotImplementedError("A block on fixed features is the first of its stack.")

    def kernel(
        self, x: Columns | PreparedInputs, z: OtherColumns | PreparedInputs, up_x: Signals, up_z: OtherSignals
    ) -> Overlap:
        """(R s² φ(x)·φ(z) + 1) u(x)·u(z)."""
        rates = self.rates()
        (left, _), (right, _) = self.parts(x), self.parts(z)
        own = rates.get("a", 0.0) * self.scale**2 * (left.T @ right) + rates.get("c", 0.0)
        return spread_out(own) * overlap(up_x, up_z)

    def rows(self) -> Float[Array, "F D"] | None:
        """Its amplitudes, if they are trained and belong to neurons."""
        return self.a if "a" in self.train and isinstance(self.inner, Block) else None

    def restored(self) -> Block | Limit:
        """Return the block that it stands for, with the present parameters."""
        if isinstance(self.inner, Block):
            return _moved(self.inner, self.a, self.c)
        assert self.anchor is not None
        # s Σ_j A_j φ_j(x) = K(x, P) Γ'^T with φ(x) = √|P| K(P, P)^(-1/2) K(P, x)
        count = self.a.shape[0]
        gamma = -self.scale * count**0.5 * (self.anchor.inverse_root @ self.a).T
        return self.inner.trained_on(self.anchor.points, gamma, self.c)


class Limit(AbstractBlock):
    """The first block at infinite width, F_k(x) = E[A_k] E[σ(w·x + b)] + c_k - Σ_p Γ_kp K(x, x_p).

    With Gaussian (w, b) the kernel K(x, z) = E[σ(w·x + b) σ(w·z + b)] (aiad2026's K_μ0) and the start are in closed
    form. Whatever its training, the block stays such an expansion over the points x_p that it was trained on, and is
    exact at any x.
    """

    mean: Float[Array, " D"]
    c: Float[Array, " D"]
    activation: Activation
    weight_spread: float = eqx.field(static=True)
    bias_spread: float = eqx.field(static=True)
    train: str = eqx.field(static=True)
    dimension: int = eqx.field(static=True)
    points: Float[Array, "p d"] | None = None
    coefficients: Float[Array, "D p"] | None = None

    @property
    def inputs(self) -> int:
        """Number of inputs d."""
        return self.dimension

    def limit_kernel(self, x: Float[Array, "n d"], z: Float[Array, "p d"]) -> Float[Array, "n p"]:
        """K_μ0(x, z)."""
        across = self.weight_spread**2 * (x @ z.T) + self.bias_spread**2
        return self.activation.dual(self._variance(x)[:, None], self._variance(z)[None, :], across)

    def _variance(self, x: Float[Array, "n d"]) -> Float[Array, " n"]:
        return self.weight_spread**2 * jnp.sum(jnp.square(x), axis=1) + self.bias_spread**2

    def start(self, x: Columns) -> Channels:
        """E[A_k] E[σ(w·x + b)], as A is independent of (w, b) at the start, and what earlier training has added."""
        start = self.mean[:, None] * mean_value(self.activation, self._variance(x.T))[None]
        if self.points is None or self.coefficients is None:
            return start
        return start - self.coefficients @ self.limit_kernel(self.points, x.T)

    def anchored(self, points: Float[Array, "p d"]) -> Fixed:
        """The same block on features that are exact on ``points``."""
        nothing = jnp.zeros((points.shape[0], self.mean.shape[0]), points.dtype)
        return Fixed(nothing, self.c, self, Anchored(self.limit_kernel, points))

    def trained_on(
        self, points: Float[Array, "q d"], coefficients: Float[Array, "D q"], c: Float[Array, " D"]
    ) -> Limit:
        """The block after training: another offset, and more terms of its expansion."""
        if self.points is not None and self.coefficients is not None:
            points = jnp.concatenate([self.points, points])
            coefficients = jnp.concatenate([self.coefficients, coefficients], axis=1)
        return dataclasses.replace(self, c=c, points=points, coefficients=coefficients)

    def __call__(self, x: Columns | PreparedInputs) -> Channels:
        """Evaluate the start and the expansion."""
        x = raw_columns(x)
        return self.start(x) + self.c[:, None]

    def rows(self) -> None:
        """There are no single neurons."""
        return

    def rates(self) -> dict[str, float]:
        """Before it has points only c can be named."""
        return {letter: 1.0 for letter in self.train if letter == "c"}

    def back(self, x: Columns | PreparedInputs, up: Signals) -> Lower:
        """Refuse: nothing is trained below."""
        raise NotImplementedError("A block of infinite width is the first of its stack.")

    def kernel(
        self, x: Columns | PreparedInputs, z: OtherColumns | PreparedInputs, up_x: Signals, up_z: OtherSignals
    ) -> Overlap:
        """(K_μ0(x, z) + 1) u(x)·u(z)."""
        own = kernel_of(self, raw_columns(x).T, raw_columns(z).T)
        return spread_out(own) * overlap(up_x, up_z)


def kernel_of(block: Block | Limit, x: Float[Array, "n d"], z: Float[Array, "p d"]) -> Float[Array, "n p"]:
    """G(x, z) of a block on fixed features: how a signal on the channels at z moves them at x."""
    constant = float("c" in block.train)
    if isinstance(block, Limit):
        return float("a" in block.train) * block.limit_kernel(x, z) + constant
    factor = block.rates().get("a", 0.0) * block.scale**2
    return factor * (block.column(x.T).T @ block.column(z.T)) + constant


def raw_columns(x: Columns | PreparedInputs) -> Columns:
    """Raw points as columns."""
    return x.raw.T if isinstance(x, PreparedInputs) else x


def _moved(block: Block, a: Array, c: Array) -> Block:
    """The block with other amplitudes and offset."""
    return eqx.tree_at(lambda one: (one.a, one.c), block, (a, c))


def lengths(w: Float[Array, "m d"]) -> Float[Array, " m"]:
    """|w_j|, with slope 0 at 0."""
    square = jnp.sum(jnp.square(w), axis=1)
    positive = square > 0
    return jnp.where(positive, jnp.sqrt(jnp.where(positive, square, 1)), 0)


def mean_value(activation: Activation, variance: Float[Array, " n"]) -> Float[Array, " n"]:
    """E[σ(z)], z ~ N(0, q): (1 - slope) √(q / 2π) for rectifiers, by quadrature for smooth activations."""
    if isinstance(activation, Relu | LeakyRelu):
        slope = activation.slope if isinstance(activation, LeakyRelu) else 0.0
        return (1 - slope) * jnp.sqrt(variance / (2 * jnp.pi))
    return activation.expectation(activation, variance)
