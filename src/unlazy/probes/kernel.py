"""The empirical tangent kernel: how it moves, its extreme eigenvalues, where it points, how the loss falls."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from unlazy._errors import UserError
from unlazy.data import Dataset
from unlazy.losses import Loss
from unlazy.networks import Network
from unlazy.probes._base import Probe
from unlazy.probes._spectrum import ends, operator_norm


def training_kernel(
    network: Network, data: Dataset, samples: int | None = None, output: int | None = None
) -> Float[Array, "p p"]:
    """Θ on the (first ``samples``) training inputs: of one ``output``, or outputs and samples folded into one axis.

    One of k outputs is n² numbers and about as much work as a network with one output; all are k² times as many.
    """
    if samples is not None and not 1 <= samples <= data.n:
        raise UserError(f"A kernel on {samples} of the {data.n} training inputs cannot be made: give 1 to {data.n}.")
    x = data.x if samples is None else data.x[:samples]
    if output is not None:
        if not 0 <= output < (data.outputs or 1):
            raise UserError(f"There is no output {output}: the targets have {data.outputs or 1}, counted from 0.")
        if data.outputs is not None:
            return network.output_kernel(x, x, output)
    kernel = network.tangent_kernel(x, x)
    size = kernel.shape[0] * (1 if kernel.ndim == 2 else kernel.shape[1])
    return kernel.reshape(size, size)


class KernelMatrix(Probe):
    """Θ itself on the first ``samples`` training inputs (all by default), of one ``output`` or of all."""

    samples: int | None = eqx.field(static=True, default=None)
    output: int | None = eqx.field(static=True, default=None)

    def __call__(self, now: Network, start: Network, data: Dataset, loss: Loss) -> Float[Array, "p p"]:
        """Build Θ."""
        return training_kernel(now, data, self.samples, self.output)


class Kernel(Probe):
    """Drift, extreme eigenvalues and alignment of Θ on the first ``samples`` training inputs (all by default).

    With several outputs, of one ``output`` alone (caron2023 takes the first on MNIST), or of all folded together.

    - ``drift``: ‖Θ_t - Θ_0‖_F / ‖Θ_0‖_F, zero for a lazy network;
    - ``drift_operator``: ‖Θ_t - Θ_0‖_2, as in caron2023 figure 1;
    - ``smallest``, ``largest``: eigenvalues; with the sum of ½ |f - y|² they are the slowest and the fastest rate at
      which the residual decays, with the mean these rates are n times smaller;
    - ``alignment``: y^T Θ y / (‖Θ‖_F |y|²), one when Θ = y y^T.

    Beyond 768 rows eigenvalues come from Lanczos iterations, the smallest after a Cholesky factorisation: at n = 3,827
    a look takes a tenth of the time of a full diagonalisation and agrees with it to rounding.
    """

    samples: int | None = eqx.field(static=True, default=None)
    output: int | None = eqx.field(static=True, default=None)

    def __call__(self, now: Network, start: Network, data: Dataset, loss: Loss) -> dict[str, Float[Array, ""]]:
        """Build Θ now and at the start, then summarise."""
        theta, first = (training_kernel(one, data, self.samples, self.output) for one in (now, start))
        targets = data.y if self.samples is None else data.y[: self.samples]
        targets = (targets if self.output is None or targets.ndim == 1 else targets[:, self.output]).reshape(-1)
        smallest, largest = ends(theta)
        change = theta - first
        frobenius = jnp.linalg.norm(theta)
        return {
            "drift": jnp.linalg.norm(change) / jnp.linalg.norm(first),
            "drift_operator": operator_norm(change),
            "smallest": smallest,
            "largest": largest,
            "alignment": targets @ theta @ targets / (frobenius * (targets @ targets)),
        }


class DecayRate(Probe):
    """How fast the loss falls now: -(dL/dt) / L = u^T Θ u / L with u = dL/df; 0 where there is no loss left.

    It is the left side of a Polyak-Łojasiewicz inequality such as chen2022 eq. 16.
    """

    def __call__(self, now: Network, start: Network, data: Dataset, loss: Loss) -> Float[Array, ""]:
        """Build Θ and let it act on the signal."""
        f = now(data.x)
        signal = loss.slope(f, data.y, data.weight).reshape(-1)
        value = loss(f, data.y, data.weight)
        speed = signal @ training_kernel(now, data) @ signal
        return jnp.where(value > 0, speed / jnp.where(value > 0, value, 1), 0)
