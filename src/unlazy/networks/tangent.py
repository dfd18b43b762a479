"""The linearisation of any network around its parameters: its NTK model."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from unlazy._errors import UserError
from unlazy._types import Outputs, PRNGKey, PyTree
from unlazy.activations import Activation
from unlazy.data import Dataset
from unlazy.networks._base import Network, frozen_rates, split_trained, trained_rates, with_fields
from unlazy.networks.layers import InnerLayer, Layer
from unlazy.networks.prepared import Batch, OtherBatch, Prepared
from unlazy.networks.two_layer import TwoLayer


class TangentModel(Network):
    """f_lin(x; δ) = f(x; θ_0) + J(x) δ: linear in the displacement δ of the trained parameters.

    Its tangent kernel is that of the network at θ_0 and never moves, which is what "lazy" means (chen2022 section 2.2).

    Parameters
    ----------
    centre
        The network at θ_0.
    """

    centre: Network
    displacement: PyTree

    def __init__(self, centre: Network) -> None:
        self.centre = centre
        self.displacement = jax.tree.map(jnp.zeros_like, split_trained(centre)[0])

    def __call__(self, x: Batch) -> Outputs:
        """Value and directional derivative in one forward pass."""
        trained, frozen = split_trained(self.centre)
        value, change = jax.jvp(lambda leaves: eqx.combine(leaves, frozen)(x), (trained,), (self.displacement,))
        return value + change

    def moved(self) -> Network:
        """Return the original, nonlinear network with its parameters at θ_0 + δ."""
        trained, frozen = split_trained(self.centre)
        return eqx.combine(jax.tree.map(jnp.add, trained, self.displacement), frozen)

    def rates(self) -> PyTree:
        """δ moves at the rates of the parameters that it displaces; θ_0 is frozen."""
        return eqx.tree_at(lambda tree: tree.displacement, frozen_rates(self), trained_rates(self.centre))

    @property
    def cheap_kernel(self) -> bool:
        """It never moves."""
        return True

    def prepare(self, data: Dataset) -> Prepared:
        """Do the centre's frozen work once."""
        centre, x, x_test = self.centre.prepare(data)
        return Prepared(self._as(centre, lambda network: network.prepare(data).network), x, x_test)

    def restore(self) -> TangentModel:
        return self._as(self.centre.restore(), lambda network: network.restore())

    def _as(self, centre: Network, change: Callable[[Network], Network]) -> TangentModel:
        """Return the model around the centre in another form, in which its parameters may be arranged otherwise."""
        trained, frozen = split_trained(self.centre)
        old, new = (jax.tree.leaves(tree) for tree in (trained, split_trained(centre)[0]))
        if [leaf.size for leaf in old] != [leaf.size for leaf in new]:
            raise UserError(
                "A linearised network on an infinite embedding belongs to the points on which it was linearised: use "
                "Linearised() as the flow instead."
            )
        changed = lambda leaves: split_trained(change(eqx.combine(leaves, frozen)))[0]  # noqa: E731
        return with_fields(self, centre=centre, displacement=jax.jvp(changed, (trained,), (self.displacement,))[1])

    def layers(self) -> Mapping[str, Layer]:
        """Return the layers of the centre at θ_0 + δ."""
        return {name: TangentLayer(self, name) for name in self.centre.layers()}

    def movement(self, start: Network) -> dict[str, Float[Array, "..."]]:
        return self.moved().movement(start.moved() if isinstance(start, TangentModel) else start)

    def tangent_kernel(self, x: Batch, z: OtherBatch | None = None) -> Float[Array, "..."]:
        """Return the kernel of the centre, whatever δ is."""
        return self.centre.tangent_kernel(x, z)

    def output_kernel(self, x: Batch, z: OtherBatch, output: int) -> Float[Array, "n p"]:
        return self.centre.output_kernel(x, z, output)

    @classmethod
    def examples(cls, *, key: PRNGKey) -> list[tuple[Network, Dataset]]:
        """The tangents of some two-layer networks, displaced at random."""
        examples = []
        for network, data in TwoLayer.examples(key=key)[:1] + TwoLayer.examples(key=key)[-1:]:
            model = cls(network)
            leaves, tree = jax.tree.flatten(model.displacement)
            drawn = [jax.random.normal(key, leaf.shape, leaf.dtype) for leaf in leaves]
            examples.append((with_fields(model, displacement=jax.tree.unflatten(tree, drawn)), data))
        return examples


class TangentLayer(InnerLayer):
    """A layer of a linearised network: neurons at θ_0 + δ, whose responses are linear in δ.

    Neurons of centre and displacement are changed alike, because value and derivative both go through them. Both are
    linear in the outgoing weights, but not in those that come in.
    """

    network: TangentModel
    name: str = eqx.field(static=True)

    def inner(self) -> Layer:
        return self.network.moved().layers()[self.name]

    @property
    def activation(self) -> Activation | None:
        return self.network.centre.layers()[self.name].activation

    @property
    def moves(self) -> bool:
        return self.network.centre.layers()[self.name].moves

    def responses(self, x: Batch) -> Float[Array, "rows m"]:
        """Return σ(h) + σ'(h) δh: linear in δ like the outputs."""
        trained, frozen = split_trained(self.network.centre)
        responses = lambda leaves: eqx.combine(leaves, frozen).layers()[self.name].responses(x)  # noqa: E731
        value, change = jax.jvp(responses, (trained,), (self.network.displacement,))
        return value + change

    def around(self, change: Callable[[Layer], Network]) -> TangentModel:
        centre, moved = (change(net.layers()[self.name]) for net in (self.network.centre, self.network.moved()))
        displacement = jax.tree.map(jnp.subtract, split_trained(moved)[0], split_trained(centre)[0])
        return with_fields(self.network, centre=centre, displacement=displacement)
