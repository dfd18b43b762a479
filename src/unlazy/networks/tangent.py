"""The linearisation of any network around its parameters: its NTK model."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from unlazy._types import Inputs, OtherInputs, Outputs, PRNGKey, PyTree
from unlazy.data import Dataset
from unlazy.networks._base import Network, altered, divide, frozen_rates, trained_rates
from unlazy.networks.two_layer import TwoLayer


class TangentModel(Network):
    """f_lin(x; δ) = f(x; θ_0) + J(x) δ: linear in the displacement δ of the trained parameters.

    Its tangent kernel is that of the network at θ_0 and never moves, which is what "lazy" means (chen2022 section 2.2).
    """

    centre: Network
    displacement: PyTree

    def __init__(self, centre: Network) -> None:
        self.centre = centre
        self.displacement = jax.tree.map(jnp.zeros_like, divide(centre)[0])

    def __call__(self, x: Inputs) -> Outputs:
        """Value and directional derivative in one forward pass."""
        trained, frozen = divide(self.centre)
        value, change = jax.jvp(lambda leaves: eqx.combine(leaves, frozen)(x), (trained,), (self.displacement,))
        return value + change

    def moved(self) -> Network:
        """Give the original, nonlinear network with its parameters at θ_0 + δ."""
        trained, frozen = divide(self.centre)
        return eqx.combine(jax.tree.map(jnp.add, trained, self.displacement), frozen)

    def rates(self) -> PyTree:
        """δ moves at the rates of the parameters that it displaces; θ_0 is frozen."""
        return eqx.tree_at(lambda tree: tree.displacement, frozen_rates(self), trained_rates(self.centre))

    def on(self, data: Dataset) -> tuple[Network, Dataset]:
        """Do the centre's frozen work once."""
        centre, data = self.centre.on(data)
        return self._around(centre), data

    def off(self) -> Network:
        """Back to raw inputs."""
        return self._around(self.centre.off())

    def _around(self, centre: Network) -> TangentModel:
        # The same parameters in another tree: preparing changes what is frozen, never what is trained.
        tree = jax.tree.structure(divide(centre)[0])
        return altered(self, centre=centre, displacement=jax.tree.unflatten(tree, jax.tree.leaves(self.displacement)))

    def hidden(self, x: Inputs) -> dict[str, Float[Array, "n m"]]:
        """Pre-activations at θ_0 + δ."""
        return self.moved().hidden(x)

    def movement(self, start: Network) -> dict[str, Float[Array, " m"]]:
        """How far the neurons have moved since ``start``."""
        return self.moved().movement(start.moved() if isinstance(start, TangentModel) else start)

    def weights(self) -> dict[str, Float[Array, "_ _"]]:
        """Input weights at θ_0 + δ."""
        return self.moved().weights()

    def responses(self, x: Inputs) -> dict[str, Float[Array, "n m"]]:
        """σ(h) + σ'(h) δh: linear in δ like the outputs."""
        trained, frozen = divide(self.centre)
        answer = lambda leaves: eqx.combine(leaves, frozen).responses(x)  # noqa: E731
        value, change = jax.jvp(answer, (trained,), (self.displacement,))
        return jax.tree.map(jnp.add, value, change)

    def importance(self) -> dict[str, Float[Array, " m"]]:
        """Of the neurons at θ_0 + δ."""
        return self.moved().importance()

    def silenced(self, layer: str, kept: Float[Array, " m"]) -> TangentModel:
        """Silence the neurons of the centre: value and derivative both go through them."""
        return altered(self, centre=self.centre.silenced(layer, kept))

    def permute(self, layer: str, order: Int[Array, " m"]) -> TangentModel:
        """Reorder the neurons of centre and displacement alike."""
        displacement = self.displacement.permute(layer, order)
        return altered(self, centre=self.centre.permute(layer, order), displacement=displacement)

    def tangent_kernel(self, x: Inputs, z: OtherInputs) -> Float[Array, "..."]:
        """Give the kernel of the centre, whatever δ is."""
        return self.centre.tangent_kernel(x, z)

    def output_kernel(self, x: Inputs, z: OtherInputs, output: int) -> Float[Array, "n p"]:
        """Give that of the centre, whatever δ is."""
        return self.centre.output_kernel(x, z, output)

    @classmethod
    def examples(cls, *, key: PRNGKey) -> list[tuple[Network, Dataset]]:
        """The tangents of some two-layer networks, displaced at random."""
        examples = []
        for network, data in TwoLayer.examples(key=key)[:1] + TwoLayer.examples(key=key)[-1:]:
            model = cls(network)
            leaves, tree = jax.tree.flatten(model.displacement)
            drawn = [jax.random.normal(key, leaf.shape, leaf.dtype) for leaf in leaves]
            examples.append((altered(model, displacement=jax.tree.unflatten(tree, drawn)), data))
        return examples
