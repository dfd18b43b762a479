"""The linear flow of a two-layer network at zero weights: the matrix Z, and its SVD (zhou2023).

Write P_iu for the patch of sample i at place u with a 1 appended, θ_W,β = (W_β; b_β) for the input weights of channel β
and θ_a,β = (a_u,β,k) for its read-outs, one for each place u and output k. A dense network has one place, and P_i are
its inputs, with a 1 appended if there are biases; with one output Z is a row then, and r = 1. Then
f_ik = Σ_(u,β) a_u,β,k σ(P_iu·θ_W,β). Let g_ik = -∂L/∂f_ik at f = 0. To second order in θ

    -L(θ) = -L(0) + Σ_β [ σ(0) Σ_(u,k) a_u,β,k Σ_i g_ik + σ'(0) Σ_(u,k) a_u,β,k Σ_i g_ik P_iu·θ_W,β ],

because every other term has at least three factors, or two read-outs times σ(0)². So with

    Z_(u,k) = σ'(0) Σ_i g_ik P_iu   (a row for each place and output),      c_(u,k) = σ(0) Σ_i g_ik

each channel follows, independently of the others,

    θ_W' = Z^T θ_a,    θ_a' = Z θ_W + c.

- ½ squared error, mean: g = y/n, and Z is that of eq. 35 (one channel) and eq. 70 (several); without the half, twice.
- Cross-entropy: g_ik = (y_ik - 1/K)/n with K classes, as softmax(0) = 1/K. Rows of Z sum to 0 over the outputs.
- Squared error of probabilities: g_ik = (y_ik - 1/K)/(K n): the same directions, K times as slow.
- c = 0 if σ(0) = 0, as in the paper. With the sigmoid it drives all channels in the one direction Z^T c: they condense
  with one sign. f is then of the order of c t and not of ε², so the prediction is valid for a shorter time.

With several outputs only U is longer; V has a row for each entry of θ_W as before. With a dense layer or a second
convolution, products have three factors or more: the flow at zero has no linear part, and there is no Z.
"""

import dataclasses
import functools

import jax.numpy as jnp
import numpy as np

from unlazy._errors import UserError
from unlazy.activations import Activation, Tanh
from unlazy.data import Dataset
from unlazy.losses import Loss, Squared
from unlazy.networks import Network
from unlazy.networks.conv import patches
from unlazy.papers.zhou2023.theorems.structure import TwoLayerForm, two_layer_form

_RANK = 1e-10  # singular values below this share of the largest count as rounding errors


@dataclasses.dataclass(frozen=True, eq=False)
class Linearisation:
    """Z and c of a problem, with the SVD Z = U Λ V^T (eq. 36).

    Parameters
    ----------
    z, drive
        Z, (places x outputs, C_0 m² + 1), and c, (places x outputs,).
    channels
        Number C_0 of input channels: the first entries of every v_k are kernels, one after the other.
    bias
        Whether the last entry of every v_k belongs to the bias.
    """

    z: np.ndarray
    drive: np.ndarray
    channels: int
    bias: bool = True

    @functools.cached_property
    def _svd(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        u, values, vt = np.linalg.svd(self.z, full_matrices=False)
        # A direction is determined up to its sign: we choose the one with which the entries of the kernels sum to > 0.
        sign = np.where(self._without_bias(vt).sum(axis=1) < 0, -1.0, 1.0)
        return u * sign, values, vt * sign[:, None]

    def _without_bias(self, vectors: np.ndarray) -> np.ndarray:
        return vectors[..., :-1] if self.bias else vectors

    @property
    def values(self) -> np.ndarray:
        """λ_1 ≥ λ_2 ≥ ..., the singular values: rates at which directions grow."""
        return self._svd[1]

    @property
    def rank(self) -> int:
        """Number r of singular values above rounding."""
        return int(np.sum(self.values > _RANK * self.values[0]))

    @property
    def left(self) -> np.ndarray:
        """u_1, u_2, ... as rows: directions of read-outs."""
        return self._svd[0].T

    @property
    def right(self) -> np.ndarray:
        """v_1, v_2, ... as rows: directions of input weights, bias last."""
        return self._svd[2]

    @property
    def gap(self) -> float:
        """Δλ = λ_1 - λ_2 (Assumption 4); λ_2 = 0 if there is one singular value, as for kernels as large as images."""
        return float(self.values[0] - (self.values[1] if self.values.size > 1 else 0.0))

    @property
    def eigenvalues(self) -> np.ndarray:
        """λ_k², the eigenvalues of Z^T Z, which figures 7 and 14 show."""
        return self.values**2

    def kernels(self, k: int = 0) -> np.ndarray:
        """Return v_(k+1) without its bias, by input channel: (C_0, m²)."""
        return self._without_bias(self.right[k]).reshape(self.channels, -1)

    def ones(self, k: int = 0) -> np.ndarray:
        """Compute the cosine of each channel's part of v_(k+1) with the vector of ones.

        On MNIST with pixels in [0, 1] and m = 5 it is 0.9997. With pixels in [-1, 1] the red part of CIFAR-10 is small,
        and in some draws its sign is opposite to that of green and blue.
        """
        parts = self.kernels(k)
        return parts.sum(axis=1) / (np.linalg.norm(parts, axis=1) * np.sqrt(parts.shape[1]))

    def second_direction(self, time: float) -> float:
        """Compute e^(-Δλ t), the second direction relative to the first: near 1 both are visible (figure 3)."""
        return float(np.exp(-self.gap * time))

    def visible(self, time: float, share: float = 0.1) -> int:
        """Count the directions visible at a time: those v_k with e^(-(λ_1 - λ_k) t) ≥ ``share``."""
        return int(np.sum(np.exp((self.values - self.values[0]) * time) >= share))


def linearise(
    data: Dataset, kernel: int, loss: Loss | None = None, activation: Activation | None = None
) -> Linearisation:
    """Compute Z and c of a problem, at the cost of a mean over the images: Z consists of the patches of Σ_i g_ik x_i.

    Parameters
    ----------
    data
        Images (n, channel, height, width) and targets.
    kernel
        Side of the kernels.
    loss, activation
        The loss, ½ mean squares by default, and σ, tanh by default.
    """
    if data.x.ndim != 4:
        raise UserError(
            f"Inputs must be images (n, channel, height, width), not of shape {data.x.shape}: set flat = false."
        )
    pull = _pull(data, loss)
    images = np.tensordot(pull.T, np.asarray(data.x, float), axes=1)  # (k, channel, height, width)
    cut = np.array(patches(jnp.asarray(images), kernel), float)  # (k, places, C_0 m² + 1)
    cut[:, :, -1] = pull.sum(axis=0)[:, None]
    return _assembled(cut, pull, Tanh() if activation is None else activation, data.x.shape[1])


def linearisation_of(network: Network | TwoLayerForm, data: Dataset, loss: Loss | None = None) -> Linearisation:
    """Compute Z and c of the problem on which a network is trained, if its flow has a linear part at zero.

    Where the input weights and the read-outs are trained at rates ρ_W and ρ_a other than 1, Z and c are multiplied by
    √(ρ_W ρ_a), so that the singular values are rates of growth.

    Parameters
    ----------
    network
        Two layers that are both trained: a `ConvNet` with one convolution and a linear read-out without bias, a
        `TwoLayer` with ``train_readout=True``, any network of this form, or what `two_layer_form` returns for it.
    data, loss
        The training problem; ½ mean squares by default.
    """
    form = network if isinstance(network, TwoLayerForm) else two_layer_form(network)
    _at_zero(form.activation)
    form.check_sum(data)
    pull = _pull(data, loss)
    sums, ones = np.zeros(()), True
    for some, cut in form.patches(data):
        sums = sums + np.einsum("ik,iud->kud", pull[some], cut)
        ones = ones and bool(np.all(np.abs(cut[:, :, -1] - 1) < 1e-5))  # a bias, up to rounding
    kernels = form.neurons().kernels()
    channels = 1 if kernels is None else len(kernels) // len(form.weights)
    speed = float(np.sqrt(form.rates[0] * form.rates[1]))
    return _assembled(sums, pull, form.activation, channels, bias=ones, speed=speed)


def _pull(data: Dataset, loss: Loss | None) -> np.ndarray:
    """Compute g_ik = -∂L/∂f_ik at f = 0."""
    loss = Squared() if loss is None else loss
    loss.check(data.y)
    return -np.asarray(loss.slope(jnp.zeros_like(data.y), data.y, data.weight), float).reshape(data.n, -1)


def _assembled(
    sums: np.ndarray, pull: np.ndarray, activation: Activation, channels: int, bias: bool = True, speed: float = 1.0
) -> Linearisation:
    """Put Z and c together from Σ_i g_ik P_iu, (k, places, d): rows are places first, then outputs, as in read-outs."""
    slope, value = _at_zero(activation)
    z = speed * slope * np.swapaxes(sums, 0, 1).reshape(-1, sums.shape[2])
    if not z.any():
        raise UserError("Z is 0: with these inputs and targets the flow has no linear part at zero weights.")
    drive = speed * value * np.tile(pull.sum(axis=0), sums.shape[1])
    return Linearisation(z, drive, channels, bias)


def _at_zero(activation: Activation) -> tuple[float, float]:
    """Return σ'(0) and σ(0)."""
    if 0.0 in activation.kinks:
        raise UserError(f"{activation} has a kink at 0, so the flow has no linearisation there: use a smooth one.")
    zero = jnp.zeros(())
    slope, value = float(activation.derivative(zero)), float(activation(zero))
    if slope == 0:
        raise UserError(
            f"{activation} has slope 0 at 0 (multiplicity {activation.multiplicity}): Z is 0, and only multiplicity 1 "
            "has linear dynamics."
        )
    return slope, value
