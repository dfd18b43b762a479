"""The empirical tangent kernel: its drift, extreme eigenvalues and alignment, and how fast the loss falls."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from unlazy._errors import UserError
from unlazy._linalg import extreme_eigenvalues, norm, operator_norm, scaled
from unlazy.networks import Layer
from unlazy.probes.movement import moving_layers
from unlazy.probes.observation import Observation, Probe


class KernelMatrix(Probe):
    """The tangent kernel Θ on training inputs, as a matrix.

    Parameters
    ----------
    samples
        Number of training inputs, counted from the first; all if omitted.
    output
        The output whose kernel is taken, counted from 0. If omitted, the kernel of all outputs, of size n k.
    """

    samples: int | None = eqx.field(static=True, default=None)
    output: int | None = eqx.field(static=True, default=None)

    def __call__(self, obs: Observation) -> Float[Array, "p p"]:
        return obs.kernel(self.samples, self.output)


class Kernel(Probe):
    """Drift, extreme eigenvalues and alignment of the tangent kernel Θ on training inputs.

    - ``drift``: ‖Θ_t - Θ_0‖_F / ‖Θ_0‖_F, zero for a lazy network, NaN if Θ_0 = 0;
    - ``drift_operator``: ‖Θ_t - Θ_0‖_2, as in caron2023 figure 1;
    - ``smallest``, ``largest``: eigenvalues; with the sum of ½ |f - y|² they are the slowest and the fastest rate at
      which the residual decays, with the mean these rates are n times smaller;
    - ``alignment``: y^T Θ y / (‖Θ‖_F |y|²), one when Θ = y y^T, NaN if y = 0 or Θ = 0.

    caron2023 uses the first output on MNIST. Beyond 768 rows eigenvalues come from Lanczos iterations, the smallest
    after a Cholesky factorisation: at n = 3,827 an evaluation takes a tenth of the time of a full diagonalisation and
    agrees with it to rounding.

    Parameters
    ----------
    samples, output
        As for `KernelMatrix`.
    """

    samples: int | None = eqx.field(static=True, default=None)
    output: int | None = eqx.field(static=True, default=None)

    def __call__(self, obs: Observation) -> dict[str, Float[Array, ""]]:
        theta, first = obs.kernel(self.samples, self.output), obs.at_start(KernelMatrix(self.samples, self.output))
        targets = obs.data.y[: self.samples]
        targets = (targets if self.output is None or targets.ndim == 1 else targets[:, self.output]).reshape(-1)
        smallest, largest = extreme_eigenvalues(theta)
        change = theta - first
        shape, goal = scaled(theta)[0], scaled(targets)[0]
        return {
            "drift": norm(change) / norm(first),
            "drift_operator": operator_norm(change),
            "smallest": smallest,
            "largest": largest,
            "alignment": goal @ shape @ goal / (norm(shape) * (goal @ goal)),
        }


class DecayRate(Probe):
    """Rate at which the loss falls: -(dL/dt) / L = u^T Θ u / L with u = dL/df; 0 if the loss is 0.

    It is the left side of a Polyak-Łojasiewicz inequality such as chen2022 eq. 16.
    """

    def __call__(self, obs: Observation) -> Float[Array, ""]:
        f, data, loss = obs.outputs, obs.data, obs.loss
        signal = loss.slope(f, data.y, data.weight).reshape(-1)
        value = loss(f, data.y, data.weight)
        speed = signal @ obs.kernel() @ signal
        return jnp.where(value > 0, speed / jnp.where(value > 0, value, 1), 0)


class MeanSquareSlope(Probe):
    """Smallest mean, over training inputs, of σ'(h_j(x))² over the neurons j, by layer.

    Times 2 c² λ_min(G) it is the lower bound of chen2022 eq. 14 on the rate at which the loss falls.
    """

    def __call__(self, obs: Observation) -> dict[str, Float[Array, ""]]:
        def smallest(name: str, layer: Layer) -> Float[Array, ""]:
            if layer.activation is None:
                raise UserError(f"Layer '{name}' has no activation whose slopes could be averaged: remove this probe.")
            return jnp.min(jnp.mean(jnp.square(layer.activation.derivative(layer.preactivations(obs.x))), axis=1))

        return {name: smallest(name, layer) for name, layer in moving_layers(obs.network).items()}
