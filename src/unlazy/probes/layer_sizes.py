"""How large the pre-activations of every layer are, how far they have moved, and in how many directions they vary."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from unlazy._linalg import scaled
from unlazy.networks import layers_on
from unlazy.probes.directions import effective_rank
from unlazy.probes.loss import TrainOutputs
from unlazy.probes.movement import layers_of
from unlazy.probes.observation import Observation, Probe


def root_mean_square(values: Float[Array, "..."]) -> Float[Array, ""]:
    """Return the root of the mean of the squares."""
    small, unit = scaled(values)
    return jnp.sqrt(jnp.mean(jnp.square(small))) * jnp.squeeze(unit)


class LayerSizes(Probe):
    """Sizes and changes of the pre-activations h of every layer on the training inputs, and of the outputs f.

    - ``size``: root mean square of h(x; t) over inputs and neurons;
    - ``change``: root mean square of h(x; t) - h(x; 0);
    - ``relative``: their quotient at the start, |h_t - h_0| / |h_0|, which tends to 0 with the width where training is
      lazy; 0 where h_0 is 0 and has not changed;
    - ``rank``: effective rank of h, see `effective_rank`.

    The outputs are listed as ``outputs``, without ``rank``. A layer's ``size`` at the start and ``change`` after a few
    steps against the width are the coordinate check of Yang et al. 2022 (see `unlazy.lab.coordinate_check`).
    """

    def __call__(self, obs: Observation) -> dict[str, dict[str, Float[Array, ""]]]:
        before = layers_on(obs.start, obs.x)
        found = {}
        for name, layer in layers_of(obs.network, obs.x).items():
            now = layer.preactivations(obs.x)
            found[name] = _compared(now, before[name].preactivations(obs.x)) | {"rank": effective_rank(now)}
        return found | {"outputs": _compared(obs.outputs, obs.at_start(TrainOutputs()))}


def _compared(now: Float[Array, "..."], start: Float[Array, "..."]) -> dict[str, Float[Array, ""]]:
    change, size = root_mean_square(now - start), root_mean_square(start)
    relative = jnp.where(change > 0, change / jnp.where(size > 0, size, 1), 0)
    relative = jnp.where((size > 0) | (change == 0), relative, jnp.inf)
    return {"size": root_mean_square(now), "change": change, "relative": relative}
