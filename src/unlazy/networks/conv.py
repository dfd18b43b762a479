"""Family C: convolutional networks from small initialisation (zhou2023)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from unlazy._errors import UserError
from unlazy._inputs import as_key, like
from unlazy._memory import must_fit
from unlazy._types import Count, Number, Outputs, Positive, PRNGKey, PyTree
from unlazy.activations import Activation, Relu, Silu, Softplus, as_activation
from unlazy.data import Dataset
from unlazy.networks._base import Network, example_data, frozen_rates, with_fields
from unlazy.networks._conv_options import check_options, check_scales, power
from unlazy.networks.layers import Layer, Rewire
from unlazy.networks.prepared import Batch, Patches, Prepared, known_as, prepared_by, raw_inputs

Kernel: TypeAlias = Float[Array, "_ _ _ _"]  # output channel, input channel, row, column
Bias: TypeAlias = Float[Array, " _"]
_RELU = Relu()
_BLOCK = 20  # samples at a time, so that intermediate results fit into the cache


class ConvNet(Network):
    """L convolutions (stride 1, no padding) with biases and activation σ, then a linear read-out of the last maps.

        h^l = W^l * σ(h^(l-1)) + b^l,  h^1 = W^1 * x + b^1,  f = Σ_(u,v,β) a_(u,v,β) σ(h^L_(u,v,β))

    zhou2023 section 3.2. A convolution's kernels and biases start from N(0, s²), s = ((c_in + c_out) m² / 2)^-gamma. So
    gamma = 1/2 with linear=None is Glorot's initialisation, and small ones have gamma > 1.

    Parameters
    ----------
    channels
        Output channels C_1 to C_L.
    kernel
        Side m of all kernels, or one for each layer.
    outputs
        Number of outputs k; if omitted, f is a scalar.
    image
        Shape (channel, height, width) of the inputs.
    activation
        σ: an activation, its name, or a plain function.
    dense
        Number of ReLU units with biases between the last maps and the read-out, as in the paper's classifiers (1024).
    gamma
        Exponent of the initialisation.
    linear
        Standard deviation of all linear parameters; None for ((fan_in + fan_out) / 2)^-gamma.
    scale
        ε: every parameter starts from N(0, ε²), as in the paper's theory, whatever gamma and linear are.
    output_bias
        Whether a constant is added to each output; the theory has none.
    rescaled
        Whether to store θ̄ = θ / s in place of θ, layer by layer, and learn at the rate 1/s²: the same gradient flow and
        descent (eq. 27-28), but tolerances and steps see numbers of order 1 whatever ε is. Adam is not the same in θ̄.
    key
        Random key, or a whole number as a seed.

    Examples
    --------
    >>> network = ConvNet((32,), 5, image=(1, 28, 28), scale=1e-6, rescaled=True, key=jax.random.key(0))
    """

    number_fields: ClassVar[tuple[str, ...]] = ("scales",)
    kernels: tuple[Kernel, ...]
    biases: tuple[Bias, ...]
    dense: Float[Array, "_ _"] | None
    dense_bias: Bias | None
    readout: Float[Array, "_ *k"]  # rows in the order of (u, v, β)
    output_bias: Float[Array, "*k"] | None
    activation: Activation
    image: tuple[int, int, int] = eqx.field(static=True)
    scales: tuple[Number, ...]  # s of each convolution, of the dense layer, of the read-out
    rescaled: bool = eqx.field(static=True)

    def __init__(
        self,
        channels: tuple[Count, ...],
        kernel: Count | tuple[Count, ...] = 3,
        outputs: Count | None = None,
        *,
        image: tuple[Count, ...],
        activation: Activation | str | Callable[[Array], Array] = "tanh",
        dense: Count | None = None,
        gamma: float = 2.0,
        linear: Positive | None = 1e-4,
        scale: Positive | None = None,
        output_bias: bool = False,
        rescaled: bool = False,
        key: PRNGKey | int,
    ) -> None:
        sides = (kernel,) * len(channels) if isinstance(kernel, int) else tuple(kernel)
        check_options(tuple(channels), sides, image)
        self.activation = as_activation(activation)
        self.image = (image[0], image[1], image[2])
        self.rescaled = rescaled
        ins, outs = (image[0], *channels[:-1]), tuple(channels)
        shapes = [(o, i, m, m) for i, o, m in zip(ins, outs, sides, strict=True)]
        shrink = sum(m - 1 for m in sides)
        features = (image[1] - shrink) * (image[2] - shrink) * channels[-1]
        layers = [(features, dense), (dense, outputs or 1)] if dense else [(features, outputs or 1)]
        entries = sum(float(np.prod(shape)) for shape in shapes) + sum(float(i) * o for i, o in layers if i and o)
        wanted = 2 * entries * jnp.result_type(float).itemsize
        must_fit(wanted, f"A network of {entries:,.0f} parameters", "take fewer channels or dense units")

        conv = [power((i + o) * m**2 / 2, -gamma) for i, o, m in zip(ins, outs, sides, strict=True)]
        fans = [power((i + o) / 2, -gamma) if linear is None else linear for i, o in layers if i and o]
        self.scales = tuple(float(s if scale is None else scale) for s in (*conv, *fans))
        check_scales(self.scales, rescaled)
        keys = iter(jax.random.split(as_key(key), 2 * len(self.scales)))
        units = iter((1.0 if rescaled else s) for s in self.scales)

        def drawn(weight: tuple[int, ...], bias: tuple[int, ...] | None) -> tuple[Array, Array | None]:
            one, other, size = next(keys), next(keys), next(units)
            b = None if bias is None else size * jax.random.normal(other, bias)
            return size * jax.random.normal(one, weight), b

        convolutions: list[Any] = [drawn(shape, shape[:1]) for shape in shapes]
        self.kernels = tuple(w for w, _ in convolutions)
        self.biases = tuple(b for _, b in convolutions)
        self.dense, self.dense_bias = drawn((dense, features), (dense,)) if dense else (None, None)
        ends = () if outputs is None else (outputs,)
        self.readout, self.output_bias = drawn((dense or features, *ends), ends if output_bias else None)

    @property
    def small_initial_outputs(self) -> bool:
        """From small weights, outputs are of the order of their square."""
        return True

    @property
    def rescaled_parameters(self) -> bool:
        return self.rescaled

    @property
    def units(self) -> tuple[Any, ...]:
        """What the stored parameters of each layer are multiplied with to give θ: s where rescaled, else 1."""
        return tuple(like(s, self.readout) for s in self.scales) if self.rescaled else (1.0,) * len(self.scales)

    @property
    def places(self) -> tuple[int, int]:
        """Height and width of the last maps."""
        shrink = sum(w.shape[-1] - 1 for w in self.kernels)
        return self.image[1] - shrink, self.image[2] - shrink

    def parameters(self) -> ConvNet:
        """Return the network that stores θ itself."""
        return self.in_units(rescaled=False)

    def in_units(self, *, rescaled: bool) -> ConvNet:
        """Return the same function with its parameters stored as θ̄ = θ / s, or as θ."""
        if rescaled == self.rescaled:
            return self
        factors = [like(1 / s if rescaled else s, self.readout) for s in self.scales]
        moved = self._by_layer(lambda leaf, layer: factors[layer] * leaf)
        return with_fields(moved, rescaled=rescaled)

    def _by_layer(self, change: Callable[[Any, int], Any]) -> ConvNet:
        """Replace each array of parameters by ``change(array, layer)``, with the index of its layer in `scales`."""
        depth = len(self.kernels)
        layers = {"dense": depth, "dense_bias": depth, "readout": -1, "output_bias": -1}
        one = {name: getattr(self, name) for name in layers}
        return with_fields(
            self,
            kernels=tuple(change(w, layer) for layer, w in enumerate(self.kernels)),
            biases=tuple(change(b, layer) for layer, b in enumerate(self.biases)),
            **{name: None if leaf is None else change(leaf, layers[name]) for name, leaf in one.items()},
        )

    def __call__(self, x: Batch) -> Outputs:
        return self._outputs(self.maps(x)[-1])

    def maps(self, x: Batch) -> list[Float[Array, "n _ _ _"]]:
        """Pre-activations h^l of every convolution, of shape (n, height, width, channel)."""
        units, side, raw = self.units, self.kernels[0].shape[-1], raw_inputs(x)
        if raw.ndim != 4:
            raise UserError(
                f"This network takes a batch of images {('n', *self.image)}, not an array of shape {raw.shape}: "
                "read the data with flat = false, and write x[None] for one sample."
            )
        if raw.shape[1:] != self.image:
            raise UserError(f"This network was made for images {self.image} but was given {raw.shape[1:]}.")
        height, width = (size - side + 1 for size in self.image[1:])
        first = joined(self.kernels[0], self.biases[0])
        cut = known_as(x, Patches)
        if cut is None or cut.shape[1:] != (height * width, first.shape[1]):
            cut = patches(raw, side)
        n, rows = raw.shape[0], cut.reshape(-1, first.shape[1])
        h = [(rows @ (units[0] * first).T).reshape(n, height, width, -1)]
        for unit, w, b in zip(units[1:], self.kernels[1:], self.biases[1:], strict=False):
            h.append(convolve(self.activation(h[-1]), unit * w) + (unit * b)[None, None, None])
        return h

    def _outputs(self, last: Float[Array, "n _ _ _"]) -> Outputs:
        features = self.activation(last).reshape(last.shape[0], -1)
        if self.dense is not None:
            features = _RELU(self._dense(features))
        f = features @ (self.units[-1] * self.readout)
        return f if self.output_bias is None else f + jnp.broadcast_to(self.units[-1] * self.output_bias, f.shape)

    def _dense(self, features: Float[Array, "n _"]) -> Float[Array, "n _"]:
        assert self.dense is not None
        assert self.dense_bias is not None
        unit = self.units[len(self.kernels)]
        return features @ (unit * self.dense).T + (unit * self.dense_bias)[None]

    def layers(self) -> Mapping[str, Layer]:
        """Return the channels of every convolution, ``conv1``, ``conv2``, ..., and the units of the ``dense`` layer."""
        names = [f"conv{index + 1}" for index in range(len(self.kernels))]
        layers: dict[str, Layer] = {name: Channels(self, name, index) for index, name in enumerate(names)}
        return layers if self.dense is None else layers | {"dense": Dense(self)}

    def rates(self) -> PyTree:
        """1 for θ, and 1/s² for θ̄."""
        rates = [like((1 / s) ** 2, self.readout) if self.rescaled else 1.0 for s in self.scales]
        return frozen_rates(self)._by_layer(lambda _, layer: rates[layer])

    @property
    def has_kinks(self) -> bool:
        return bool(self.activation.kinks) or self.dense is not None

    def prepare(self, data: Dataset) -> Prepared:
        """Cut the images into patches once: the first convolution is then a matrix product."""
        side = self.kernels[0].shape[-1]
        places = np.prod([size - side + 1 for size in self.image[1:]]) * (self.image[0] * side**2 + 1)
        images = data.n + (0 if data.x_test is None else data.x_test.shape[0])
        must_fit(
            1.5 * images * float(places) * data.x.dtype.itemsize,
            f"Cutting {images:,} images of '{data.name}' into patches",
            "take fewer images (n, n_test) or float32",
        )
        return prepared_by(self, data, lambda x: Patches(x, patches(x, side)))

    @classmethod
    def examples(cls, *, key: PRNGKey) -> list[tuple[Network, Dataset]]:
        """One convolution and several, one output and several, with a dense layer and in rescaled coordinates."""
        keys, image, glorot = jax.random.split(key, 8), (2, 6, 5), {"gamma": 0.5, "linear": None}
        data, several = example_data(5, 3, image, keys, name="example images")
        return [
            (cls((4,), 3, image=image, key=keys[4], **glorot), data),
            (cls((4,), 2, image=image, scale=0.1, rescaled=True, activation=Silu(), key=keys[5]), data),
            (cls((3, 4), (3, 2), 3, image=image, output_bias=True, key=keys[6], **glorot), several),
            (cls((4, 3), 2, image=image, dense=5, rescaled=True, activation=Softplus(), key=keys[7], **glorot), data),
        ]


class Channels(Layer):
    """The output channels of one convolution: neurons on patches."""

    network: ConvNet
    name: str = eqx.field(static=True)
    index: int = eqx.field(static=True)

    def preactivations(self, x: Batch) -> Float[Array, "_ _"]:
        """Return h_β, one row per sample and place."""
        h = self.network.maps(x)[self.index]
        return h.reshape(-1, h.shape[-1])

    def weights(self) -> Float[Array, "_ _"]:
        """Return the kernels of every output channel with its bias last, (W_β; b_β)."""
        net = self.network
        return net.units[self.index] * joined(net.kernels[self.index], net.biases[self.index])

    def kernels(self) -> Float[Array, "_ _"]:
        """Return every kernel (input, output channel) by itself."""
        w = self.network.kernels[self.index]
        return self.network.units[self.index] * w.reshape(-1, w.shape[-1] ** 2)

    def outgoing(self) -> Float[Array, "_ ..."]:
        return self.network.units[self.index + 1] * self._out()

    def _out(self) -> Float[Array, "_ ..."]:
        net = self.network
        if self.index + 1 < len(net.kernels):
            return jnp.swapaxes(net.kernels[self.index + 1], 0, 1)
        last = net.readout if net.dense is None else net.dense.T
        return jnp.swapaxes(last.reshape(-1, net.kernels[-1].shape[0], *last.shape[1:]), 0, 1)

    def rewired(self, into: Rewire, out: Rewire) -> ConvNet:
        net, here = self.network, self.index
        kernels, biases = list(net.kernels), list(net.biases)
        kernels[here], biases[here] = into(kernels[here]), into(biases[here])
        moved = jnp.swapaxes(out(self._out()), 0, 1)
        changes: dict[str, Any] = {}
        if here + 1 < len(kernels):
            kernels[here + 1] = moved
        else:
            flat = moved.reshape(-1, *moved.shape[2:])
            changes = {"readout": flat} if net.dense is None else {"dense": flat.T}
        return with_fields(net, kernels=tuple(kernels), biases=tuple(biases), **changes)


class Dense(Layer):
    """The ReLU units between the last maps and the read-out."""

    network: ConvNet
    name: str = eqx.field(static=True, default="dense")

    @property
    def activation(self) -> Activation:
        return Relu()

    def preactivations(self, x: Batch) -> Float[Array, "_ _"]:
        last = self.network.activation(self.network.maps(x)[-1])
        return self.network._dense(last.reshape(last.shape[0], -1))

    def weights(self) -> Float[Array, "_ _"]:
        net = self.network
        assert net.dense is not None
        assert net.dense_bias is not None
        return net.units[len(net.kernels)] * jnp.concatenate([net.dense, net.dense_bias[:, None]], axis=1)

    def outgoing(self) -> Float[Array, "_ *k"]:
        return self.network.units[-1] * self.network.readout

    def rewired(self, into: Rewire, out: Rewire) -> ConvNet:
        net = self.network
        assert net.dense is not None
        assert net.dense_bias is not None
        return with_fields(net, dense=into(net.dense), dense_bias=into(net.dense_bias), readout=out(net.readout))


def joined(w: Float[Array, "_ _ _ _"], b: Float[Array, " _"]) -> Float[Array, "_ _"]:
    """θ_W,β = (W_β; b_β) of every output channel β: kernels by input channel, row, column, then the bias (eq. 33)."""
    return jnp.concatenate([w.reshape(w.shape[0], -1), b[:, None]], axis=1)


def patches(x: Float[Array, "n channels height width"], side: int) -> Float[Array, "n places size"]:
    """Cut images into all their patches: (n, place, channel x row x column + 1), the last entry 1, for the bias.

    A convolution of the images is then one product with the kernels, as a layer of neurons on vectors. Places go row by
    row.
    """
    n, channels, height, width = x.shape
    high, wide = height - side + 1, width - side + 1
    shifts = [x[:, :, p : p + high, q : q + wide] for p in range(side) for q in range(side)]
    cut = jnp.stack(shifts, axis=2).reshape(n, channels * side**2, high * wide)
    return jnp.concatenate([jnp.swapaxes(cut, 1, 2), jnp.ones((n, high * wide, 1), x.dtype)], axis=2)


def convolve(
    x: Float[Array, "n height width channels"], kernel: Float[Array, "out channels side side"]
) -> Float[Array, "n high wide out"]:
    """Σ_(p,q,α) x_(u+p,v+q,α) W_(β,α,p,q), channels last.

    Patches along a row are cut, multiplied with all rows of the kernel at once, and the products added up row by row:
    memory grows by the side of the kernel, not by its square, and nothing but matrix products and shifts is left for
    the backward pass. Samples go through it a few at a time, so that intermediate results fit into the cache.
    """
    n, height, width, channels = x.shape
    out, _, side, _ = kernel.shape
    high, wide = height - side + 1, width - side + 1
    matrix = jnp.transpose(kernel, (3, 1, 2, 0)).reshape(side * channels, side * out)

    def some(x: Float[Array, "b height width channels"]) -> Float[Array, "b high wide out"]:
        rows = jnp.concatenate([x[:, :, q : q + wide] for q in range(side)], axis=-1)
        products = (rows.reshape(-1, side * channels) @ matrix).reshape(-1, height, wide, side, out)
        return jnp.sum(jnp.stack([products[:, p : p + high, :, p] for p in range(side)]), axis=0)

    if n <= _BLOCK:
        return some(x)
    one = jax.checkpoint(lambda sample: some(sample[None])[0])  # patches are cut again rather than kept
    return jax.lax.map(one, x, batch_size=_BLOCK)
