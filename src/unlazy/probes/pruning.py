"""Which neurons matter, and what remains of a network when the others are removed."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from unlazy._types import Outputs, Scalar
from unlazy.networks import Batch, Layer
from unlazy.probes.loss import misclassified
from unlazy.probes.movement import layers_of
from unlazy.probes.observation import Observation, Probe


class Importance(Probe):
    """Importance of every neuron, by layer: λ_j |w_j|² in a two-layer network (caron2023 section 6.2)."""

    def __call__(self, obs: Observation) -> dict[str, Float[Array, " m"]]:
        return {name: layer.importance() for name, layer in layers_of(obs.network).items()}


def scales(layer: Layer) -> Float[Array, " m"]:
    """Return the mean of the squared outgoing weights of every neuron: λ_j of caron2023 where read-outs are ±1."""
    out = layer.outgoing()
    return jnp.mean(jnp.square(out).reshape(out.shape[0], -1), axis=1)


class Pruning(Probe):
    """Risk and error against the number of pruned neurons, the least important first, by layer.

    caron2023 figures 2-4 and 6-11. Entry p of ``train_risk`` (and ``train_error``; with a test set also ``test_risk``
    and ``test_error``) is the value without the p least important neurons of the layer, p = 0, ..., m; the other
    layers are not pruned. A risk is a mean cost. Nothing is trained again. All p together cost one forward pass where
    outputs are a sum over the layer's neurons.
    """

    def importance(self, layer: Layer) -> Float[Array, " m"]:
        """Return the importance of every neuron of a layer; of equal ones the last is removed first."""
        return layer.importance()

    def __call__(self, obs: Observation) -> dict[str, dict[str, Float[Array, " p"]]]:
        data, loss = obs.data, obs.loss
        sets: dict[str, tuple[Batch, Outputs, Float[Array, " n"] | None]] = {"train": (obs.x, data.y, data.weight)}
        if data.x_test is not None:
            sets["test"] = (obs.x_test, obs.y_test, None)
        results = {}
        for name, layer in layers_of(obs.network).items():
            order = jnp.argsort(-self.importance(layer))
            results[name] = {}
            for which, (x, y, weight) in sets.items():

                def judge(f: Outputs, y: Outputs = y, weight: Array | None = weight) -> dict[str, Scalar]:
                    return {"risk": jnp.average(loss.cost(f, y), weights=weight), "error": misclassified(f, y)}

                curves = layer.nested(x, order, judge)
                results[name] |= {f"{which}_{what}": jnp.flip(curve) for what, curve in curves.items()}
        return results


class PruningByScale(Pruning):
    """As `Pruning`, in the order of λ_j, the mean of the squared outgoing weights, whatever |w_j| is.

    This is what the released code of caron2023 does. With γ = 1 all neurons are equal: the last one goes first.
    """

    def importance(self, layer: Layer) -> Float[Array, " m"]:
        """Return λ_j."""
        return scales(layer)
