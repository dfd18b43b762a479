"""Which neurons matter, and what remains of a network when the others are removed."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from unlazy._observation import Observation
from unlazy._types import Outputs, Scalar
from unlazy.networks import Batch
from unlazy.probes._base import Probe
from unlazy.probes.loss import misclassified
from unlazy.probes.movement import layers_of


class Importance(Probe):
    """Importance of every neuron, by layer: λ_j |w_j|² in a two-layer network (caron2023 section 6.2)."""

    def __call__(self, obs: Observation) -> dict[str, Float[Array, " m"]]:
        """Evaluate."""
        return {name: layer.importance() for name, layer in layers_of(obs.network).items()}


class Pruning(Probe):
    """Risk and error against the number of pruned neurons, the least important first, by layer.

    caron2023 figures 2-4 and 6-11. Entry p of ``train_risk`` (and ``train_error``; with a test set also ``test_risk``
    and ``test_error``) is the value without the p least important neurons of the layer, p = 0, ..., m; the other
    layers are not pruned. A risk is a mean cost. Nothing is trained again. All p together cost one forward pass where
    outputs are a sum over the layer's neurons.
    """

    def __call__(self, obs: Observation) -> dict[str, dict[str, Float[Array, " p"]]]:
        """Sort the neurons, and add them one by one."""
        data, loss = obs.data, obs.loss
        sets: dict[str, tuple[Batch, Outputs, Float[Array, " n"] | None]] = {"train": (obs.x, data.y, data.weight)}
        if data.x_test is not None:
            sets["test"] = (obs.x_test, obs.y_test, None)
        seen = {}
        for name, layer in layers_of(obs.network).items():
            order = jnp.argsort(-layer.importance())
            seen[name] = {}
            for which, (x, y, weight) in sets.items():

                def judge(f: Outputs, y: Outputs = y, weight: Array | None = weight) -> dict[str, Scalar]:
                    return {"risk": _mean(loss.cost(f, y), weight), "error": misclassified(f, y)}

                curves = layer.nested(x, order, judge)
                seen[name] |= {f"{which}_{what}": jnp.flip(curve) for what, curve in curves.items()}
        return seen


def _mean(costs: Float[Array, " n"], weight: Float[Array, " n"] | None) -> Scalar:
    return jnp.mean(costs) if weight is None else jnp.sum(weight * costs) / jnp.sum(weight)
