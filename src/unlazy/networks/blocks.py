"""The blocks of a mean-field stack: neurons, infinitely many neurons, and a linear map on features made once.

Blocks work on columns, (channels, samples): all products then have their long axes where memory is contiguous, which
makes a training step twice as fast on CPUs as rows do.
"""

from __future__ import annotations

import abc
import dataclasses
import functools

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from unlazy.activations import Activation, LeakyRelu, Relu
from unlazy.networks._base import with_fields
from unlazy.networks._prepared import Features, Places, PreparedInputs, known_as
from unlazy.networks.embeddings import Anchored
from unlazy.networks.linear import Gram, Layout, Weights

Columns = Float[Array, "d n"]
Channels = Float[Array, "D n"]
Signals = Float[Array, "k D n"]  # of each output by each channel, at each sample
Lower = Float[Array, "k d n"]  # the same, by each input of the block
OtherColumns = Float[Array, "d p"]
OtherSignals = Float[Array, "l D p"]
Overlap = Float[Array, "n k p l"]
Inputs = Columns | PreparedInputs
OtherInputs = OtherColumns | PreparedInputs


class AbstractBlock(eqx.Module):
    """One block F of a stack, as a function of columns, or of a handle that was prepared for it."""

    @property
    @abc.abstractmethod
    def inputs(self) -> int:
        """Number of raw inputs d that it takes."""

    @abc.abstractmethod
    def __call__(self, x: Inputs) -> Channels:
        """F(x)."""

    @abc.abstractmethod
    def rates(self) -> dict[str, float]:
        """Learning-rate factors of its trained fields, by their paths."""

    @abc.abstractmethod
    def kernel(self, x: Inputs, z: OtherInputs, up_x: Signals, up_z: OtherSignals) -> Overlap:
        """Its part of the tangent kernel, given the signals on its channels."""

    def back(self, x: Inputs, up: Signals) -> Lower:
        """∂f/∂x from ∂f/∂F; only the first block of a stack may do without."""
        raise NotImplementedError(f"A {type(self).__name__} is the first block of its stack.")

    @property
    def has_neurons(self) -> bool:
        """Whether it is a block of finite width, or stands for one."""
        return False

    def rows(self) -> Float[Array, "m p"] | None:
        """What is trained of each neuron, as one row; nothing where nothing that belongs to neurons is."""
        return None

    def restored(self) -> AbstractBlock:
        """The block on raw inputs and with neurons first, with the present parameters."""
        return self


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

    With ``neurons_last`` a and w are stored transposed, for training: steps are up to twice as fast on CPUs where the
    long axis of every matrix, of gradients too, is the contiguous one.
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
    neurons_last: bool = eqx.field(static=True, default=False)

    @property
    def inputs(self) -> int:
        """Number of inputs d."""
        return self.w.shape[0 if self.neurons_last else 1]

    @property
    def width(self) -> int:
        """Number of neurons m."""
        return self.w.shape[1 if self.neurons_last else 0]

    @property
    def has_neurons(self) -> bool:
        """They are what it is made of."""
        return True

    def turned(self) -> Block:
        """The same block with the other order of axes; one without amplitudes of its own stays as it is."""
        if self.a is None:
            return self
        return with_fields(self, a=self.a.T, w=self.w.T, neurons_last=not self.neurons_last)

    def restored(self) -> Block:
        """The same block with neurons first."""
        return self.turned() if self.neurons_last else self

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

    def __call__(self, x: Inputs) -> Channels:
        """Give s Σ_j A_j σ(w_j·x + b_j) + c, plus x where there is a skip."""
        x = raw_columns(x)
        if self.neurons_last and self.a is not None:
            h = x.T @ self.w
            features = self.activation(h if self.b is None else h + self.b[None])
            out = self.scale * (features @ self.a.T).T + self.c[:, None]
        else:
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

    def back(self, x: Inputs, up: Signals) -> Lower:
        """w^T (σ' s A u), plus u where there is a skip."""
        if self.neurons_last:
            return self.restored().back(x, up)
        x = raw_columns(x)
        signals = self.down(up) * self.activation.derivative(self.hidden(x))[None]
        signal = jnp.einsum("jd,kjn->kdn", self.w, signals)
        return signal + up if self.skip else signal

    def kernel(self, x: Inputs, z: OtherInputs, up_x: Signals, up_z: OtherSignals) -> Overlap:
        """R s² φ(x)·φ(z) u(x)·u(z) for A, u(x)·u(z) for c, R v(x)·v(z) (x·z + 1) for (w, b) with v = σ' s A u."""
        if self.neurons_last:
            return self.restored().kernel(x, z, up_x, up_z)
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
            onto = overlap(self.down(up_x) * slope(h_x)[None], self.down(up_z) * slope(h_z)[None])
            inner = rates.get("w", 0.0) * (x.T @ z) + rates.get("b", 0.0)
            total = total + spread_out(inner) * onto
        return total

    def linear(self) -> Weights:
        """The map from features to channels, s A^T φ + c."""
        assert self.a is not None
        rates = self.rates()
        return Weights(self.a.T, self.c, self.scale, rates.get("a", 0.0), rates.get("c", 0.0))

    def rows(self) -> Float[Array, "m p"] | None:
        """(A_j, w_j, b_j), what of it is trained."""
        if self.neurons_last:
            return self.restored().rows()
        fields = [getattr(self, letter) for letter in "awb" if letter in self.train]
        if not fields:
            return None
        return jnp.concatenate([field.reshape(self.width, -1) for field in fields], axis=1)


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

    def trained_on(
        self, points: Float[Array, "q d"], coefficients: Float[Array, "D q"], c: Float[Array, " D"]
    ) -> Limit:
        """The block after training: another offset, and more terms of its expansion."""
        if self.points is not None and self.coefficients is not None:
            points = jnp.concatenate([self.points, points])
            coefficients = jnp.concatenate([self.coefficients, coefficients], axis=1)
        return dataclasses.replace(self, c=c, points=points, coefficients=coefficients)

    def __call__(self, x: Inputs) -> Channels:
        """Evaluate the start and the expansion."""
        return self.start(raw_columns(x)) + self.c[:, None]

    def rates(self) -> dict[str, float]:
        """Before it has points only c can be named."""
        return {letter: 1.0 for letter in self.train if letter == "c"}

    def kernel(self, x: Inputs, z: OtherInputs, up_x: Signals, up_z: OtherSignals) -> Overlap:
        """(K_μ0(x, z) + 1) u(x)·u(z)."""
        return spread_out(kernel_of(self, raw_columns(x).T, raw_columns(z).T)) * overlap(up_x, up_z)


class FixedFeatures(AbstractBlock):
    """A first block on features that never change, by the linear map from them to its channels.

    In weights F = s A^T φ(x) + c on the features of the block that it stands for; at infinite width these are exact on
    the points of the data (``anchor``), and what the limit gives at the start is added. In Gram coordinates f_k(t, x) =
    f_k(0, x) - Σ_p Γ_kp(t) G(x, x_p) with Γ' = dL/df (aiad2026 eq. 4 and 16): widths drop out of the cost.
    """

    linear: Weights | Gram
    inner: Block | Limit  # the block that it stands for, at t = 0
    anchor: Anchored | None = None

    @property
    def inputs(self) -> int:
        """Number of raw inputs d."""
        return self.inner.inputs

    @property
    def has_neurons(self) -> bool:
        """Whether it stands for a block of finite width."""
        return isinstance(self.inner, Block)

    def features(self, x: Float[Array, "n d"]) -> Float[Array, "n F"]:
        """Features of raw points, then what the block gives besides, in one column for each channel, or none."""
        if isinstance(self.inner, Block):
            return self.inner.column(x.T).T
        assert self.anchor is not None
        return jnp.concatenate([self.anchor(x), self.inner.start(x.T).T], axis=1)

    def _parts(self, x: Inputs, linear: Weights) -> tuple[Array, Array]:
        known = known_as(x, Features)
        features, count = self.features(raw_columns(x).T) if known is None else known, linear.w.shape[1]
        return features[:, :count], features[:, count:]

    def __call__(self, x: Inputs) -> Channels:
        """The linear map on features, or on rows of the Gram matrix."""
        if isinstance(self.linear, Gram):
            return self.linear(x) if isinstance(x, Places) else self.restored()(raw_columns(x))
        phi, start = self._parts(x, self.linear)
        return self.linear(phi) + start.T if start.shape[1] else self.linear(phi)

    def rates(self) -> dict[str, float]:
        """Those of the block, for as many features as there are; in Gram form all factors are in G."""
        if isinstance(self.linear, Gram):
            return {"linear.coefficients": self.linear.unit}
        both = {"a": ("linear.w", self.linear.rate), "c": ("linear.b", self.linear.bias_rate)}
        return dict(both[letter] for letter in self.inner.train)

    def kernel(self, x: Inputs, z: OtherInputs, up_x: Signals, up_z: OtherSignals) -> Overlap:
        """G(x, z) u(x)·u(z)."""
        afresh = functools.partial(kernel_of, self.inner, raw_columns(x).T, raw_columns(z).T)
        if isinstance(self.linear, Weights):
            own = self.linear.kernel(self._parts(x, self.linear)[0], self._parts(z, self.linear)[0])
        elif isinstance(x, Places) and isinstance(z, Places):
            own = self.linear.kernel(self.linear.at(x), self.linear.at(z), afresh)
        else:
            own = afresh()
        return spread_out(own) * overlap(up_x, up_z)

    def rows(self) -> Float[Array, "m D"] | None:
        """The amplitudes, if they are trained and belong to neurons."""
        return self.restored().rows()

    def restored(self) -> Block | Limit:
        """The block that it stands for, with the present parameters; a trained limit is again a limit."""
        block, linear = self.inner, self.linear
        if isinstance(block, Block):
            if isinstance(linear, Gram):
                linear = block.linear().moved(linear, self.features(linear.points[: linear.n]))
            return with_fields(block, a=linear.w.T, c=linear.b)
        if isinstance(linear, Gram):
            c = block.c - float("c" in block.train) * jnp.sum(linear.coefficients, axis=1)
            return block.trained_on(linear.points[: linear.n], float("a" in block.train) * linear.coefficients, c)
        assert self.anchor is not None
        assert linear.b is not None
        # s Σ_j A_j φ_j(x) = K(x, P) Γ'^T with φ(x) = √|P| K(P, P)^(-1/2) K(P, x)
        gamma = -linear.factor * linear.w.shape[1] ** 0.5 * (linear.w @ self.anchor.inverse_root)
        return block.trained_on(self.anchor.points, gamma, linear.b)


def in_weights(block: Block | Limit, points: Float[Array, "p d"]) -> FixedFeatures:
    """Let the features of a first block be made once; those of an infinite one become exact on ``points``."""
    if isinstance(block, Block):
        return FixedFeatures(block.linear(), block)
    nothing, count = jnp.zeros((block.mean.shape[0], points.shape[0]), points.dtype), float(points.shape[0])
    weights = Weights(nothing, block.c, 1.0 / count, count * ("a" in block.train), float("c" in block.train))
    return FixedFeatures(weights, block, Anchored(block.limit_kernel, points))


def in_gram(block: Block | Limit, points: Float[Array, "p d"], n: int) -> FixedFeatures:
    """Write a first block on fixed features in Gram form; the first ``n`` points are trained on."""
    start = block(points.T)
    nothing = jnp.zeros((start.shape[0], n), points.dtype)
    return FixedFeatures(Gram(nothing, start, kernel_of(block, points, points[:n]), points, 1.0, Layout()), block)


def kernel_of(block: Block | Limit, x: Float[Array, "n d"], z: Float[Array, "p d"]) -> Float[Array, "n p"]:
    """G(x, z) of a block on fixed features: how a signal on the channels at z moves them at x."""
    if isinstance(block, Limit):
        return float("a" in block.train) * block.limit_kernel(x, z) + float("c" in block.train)
    return block.linear().kernel(block.column(x.T).T, block.column(z.T).T)


def raw_columns(x: Inputs) -> Columns:
    """Raw points as columns."""
    return x.raw.T if isinstance(x, PreparedInputs) else x


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
