"""The features themselves, neuron by neuron, at a few inputs: what a scatter plot shows."""

import equinox as eqx
from jaxtyping import Array, Float

from unlazy._errors import UserError
from unlazy._observation import Observation
from unlazy.probes._base import Probe
from unlazy.probes.movement import moving_layers


class FeaturePair(Probe):
    """Features h_j(x_1) and h_j(x_2) of each neuron at two inputs, by layer: chen2022 figure 4, row 2.

    As there, x_1 is a training input (``train``) and x_2 a test input (``test``): the first of each set.

    Parameters
    ----------
    neurons
        Number of neurons, from the first on; all if omitted.
    """

    neurons: int | None = eqx.field(static=True, default=None)

    def __check_init__(self) -> None:
        if self.neurons is not None and self.neurons < 1:
            raise UserError(f"neurons = {self.neurons} is too small: choose at least 1.")

    def __call__(self, obs: Observation) -> dict[str, dict[str, Float[Array, " m"]]]:
        """Evaluate the features at both inputs."""
        both = {"train": obs.x[:1], "test": obs.x_test[:1]}
        return {
            name: {which: layer.preactivations(x)[0, : self.neurons] for which, x in both.items()}
            for name, layer in moving_layers(obs.network).items()
        }
