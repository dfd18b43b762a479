"""The flow of a two-layer convolutional network at zero weights: the matrix Z, and what its SVD predicts (zhou2023).

Write P_iu for the patch of sample i at place u with a 1 after it, θ_W,β = (W_β; b_β) for what comes into channel β and
θ_a,β = (a_u,β,k) for what goes out, one entry for each place u and output k. Then f_ik = Σ_(u,β) a_u,β,k σ(P_iu·θ_W,β).
Let g_ik = -∂L/∂f_ik at f = 0 be the pull of the loss on an output that is still zero. To second order in θ

    -L(θ) = -L(0) + Σ_β [ σ(0) Σ_(u,k) a_u,β,k Σ_i g_ik + σ'(0) Σ_(u,k) a_u,β,k Σ_i g_ik P_iu·θ_W,β ],

because every other term has at least three factors, or two read-outs times σ(0)². So with

    Z_(u,k) = σ'(0) Σ_i g_ik P_iu   (a row for each place and output),      c_(u,k) = σ(0) Σ_i g_ik

each channel follows, alone and in the same way,

    θ_W' = Z^T θ_a,    θ_a' = Z θ_W + c.

- ½ squared error, mean: g = y/n, and Z is that of eq. 35 (one channel) and eq. 70 (several); without the half, twice.
- Cross-entropy: g_ik = (y_ik - 1/K)/n with K classes, as softmax(0) = 1/K. Rows of Z sum to 0 over the outputs.
- Squared error of probabilities: g_ik = (y_ik - 1/K)/(K n): the same directions, K times as slow.
- c = 0 wherever σ(0) = 0, and in the paper. With the sigmoid it drives all channels in the one direction Z^T c: they
  condense with one sign. f is then of the order of c t and not of ε², so the prediction ends sooner.

With several outputs V is as before (a column for each entry of θ_W) and U is longer; nothing else changes. A dense
layer or a second convolution multiplies three factors or more: its flow at zero has no linear part, and no Z.
"""

from __future__ import annotations

import dataclasses
import functools

import jax.numpy as jnp
import numpy as np

from unlazy._errors import UserError
from unlazy.activations import Activation
from unlazy.data import Dataset
from unlazy.losses import Loss, Squared
from unlazy.networks import ConvNet
from unlazy.networks.conv import patches

_RANK = 1e-10  # singular values below this share of the largest are rounding


@dataclasses.dataclass(frozen=True, eq=False)
class Linearisation:
    """Z and c of a problem, with the SVD Z = U Λ V^T (eq. 36).

    ``channels`` is the number of input channels: the first entries of every v_k are kernels, one after the other, and
    the last belongs to the bias.
    """

    z: np.ndarray  # (places x outputs, C_0 m² + 1)
    drive: np.ndarray  # c, (places x outputs,)
    channels: int

    @functools.cached_property
    def _svd(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        u, values, vt = np.linalg.svd(self.z, full_matrices=False)
        # A direction is known up to its sign: kernels that add up to more than 0 are written as positive.
        sign = np.where(vt[:, :-1].sum(axis=1) < 0, -1.0, 1.0)
        return u * sign, values, vt * sign[:, None]

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
        """Δλ = λ_1 - λ_2 (Assumption 4)."""
        return float(self.values[0] - self.values[1])

    @property
    def eigenvalues(self) -> np.ndarray:
        """λ_k², the eigenvalues of Z^T Z that figures 7 and 14 show."""
        return self.values**2

    def kernels(self, k: int = 0) -> np.ndarray:
        """v_(k+1) without its bias, by input channel: (C_0, m²)."""
        return self.right[k, :-1].reshape(self.channels, -1)

    def ones(self, k: int = 0) -> np.ndarray:
        """Cosine of each channel's part of v_(k+1) with the vector of ones (0.9997 on MNIST with [0, 1] and m = 5).

        With pixels in [-1, 1] red hardly counts on CIFAR-10, and in some draws it points against green and blue.
        """
        parts = self.kernels(k)
        return parts.sum(axis=1) / (np.linalg.norm(parts, axis=1) * np.sqrt(parts.shape[1]))

    def second_direction(self, time: float) -> float:
        """e^(-Δλ t), by which the second direction is behind the first at a time: near 1 both are seen (figure 3)."""
        return float(np.exp(-self.gap * time))

    def visible(self, time: float, share: float = 0.1) -> int:
        """How many directions are seen at a time: v_k behind v_1 by no more than e^(-(λ_1 - λ_k) t) ≥ ``share``."""
        return int(np.sum(np.exp((self.values - self.values[0]) * time) >= share))


def linearise(
    data: Dataset, kernel: int, loss: Loss | None = None, activation: Activation | None = None
) -> Linearisation:
    """Z and c for images (n, channel, height, width), kernels of side ``kernel``, a loss (½ mean squares) and σ (tanh).

    Costs no more than a mean over the images: Z is made of the patches of Σ_i g_ik x_i.
    """
    if data.x.ndim != 4:
        raise UserError(
            f"Images (n, channel, height, width) are wanted, not inputs of shape {data.x.shape}: use flat = false."
        )
    slope, value = _at_zero(activation)
    loss = Squared() if loss is None else loss
    loss.check(data.y)
    pull = -np.asarray(loss.slope(jnp.zeros_like(data.y), data.y, data.weight), float).reshape(data.n, -1)
    images = np.tensordot(pull.T, np.asarray(data.x, float), axes=1)  # (k, channel, height, width)
    cut = np.array(patches(jnp.asarray(images), kernel), float)  # (k, places, C_0 m² + 1)
    cut[:, :, -1] = pull.sum(axis=0)[:, None]
    z = slope * np.swapaxes(cut, 0, 1).reshape(-1, cut.shape[2])  # places first, then outputs, as read-outs are kept
    drive = value * np.tile(pull.sum(axis=0), cut.shape[1])
    return Linearisation(z, drive, data.x.shape[1])


def linearisation_of(network: ConvNet, data: Dataset, loss: Loss | None = None) -> Linearisation:
    """Z and c of the problem that ``network`` is trained on; refused where the flow has no linear part at zero."""
    if len(network.kernels) != 1 or network.dense is not None or network.output_bias is not None:
        raise UserError(
            "Only two layers, a convolution and a linear read-out without bias, have a linear flow at zero weights: "
            "make the network with one entry in channels, dense = None and output_bias = False."
        )
    return linearise(data, network.kernels[0].shape[-1], loss, network.activation)


def _at_zero(activation: Activation | None) -> tuple[float, float]:
    """σ'(0) and σ(0)."""
    if activation is None:
        return 1.0, 0.0
    if 0.0 in activation.kinks:
        raise UserError(f"{activation} has a kink at 0, so the flow has no linearisation there: take a smooth one.")
    zero = jnp.zeros(())
    slope, value = float(activation.derivative(zero)), float(activation(zero))
    if slope == 0:
        raise UserError(
            f"{activation} has slope 0 at 0 (multiplicity {activation.multiplicity}): Z is 0, and only multiplicity 1 "
            "has linear dynamics."
        )
    return slope, value
