"""Layers of PyTorch modules, observed by forward hooks, and tensors as arrays."""

from __future__ import annotations

import sys
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from unlazy._errors import UserError
from unlazy.networks.layers import Layer
from unlazy.networks.prepared import Batch, raw_inputs

if TYPE_CHECKING:
    from unlazy.networks.foreign.torch_modules import TorchNetwork


class TorchLayer(Layer):
    """A linear or convolutional layer of a PyTorch module."""

    network: TorchNetwork
    name: str = eqx.field(static=True)

    def preactivations(self, x: Batch) -> Float[Array, "rows m"]:
        """Return the outputs of the layer, one row per sample and place."""
        torch, seen, layer = sys.modules["torch"], [], self._module()
        with self.network._watched({self.name: layer}, lambda _, __, made: seen.append(made)), torch.no_grad():
            self.network._outputs(self.network._tensors(), self.network._inputs(x))
        if not seen:
            raise UserError(f"{self._label()} is not called: remove this probe, or the layer.")
        channels_first = not isinstance(layer, torch.nn.Linear)
        rows = [
            (made.movedim(1, -1) if channels_first else made).reshape(-1, self._values("weight").shape[0])
            for made in seen
        ]
        return as_jax(torch.cat(rows))

    def is_readout(self, x: Batch) -> bool:
        some = raw_inputs(x)[:2]
        return np.array_equal(np.ravel(self.preactivations(some)), np.ravel(self.network(some)))

    def weights(self) -> Float[Array, "m d"]:
        weight = self._values("weight")
        rows, bias = weight.reshape(weight.shape[0], -1), self._values("bias")
        return jnp.asarray(rows if bias is None else np.concatenate([rows, bias[:, None]], axis=1))

    def kernels(self) -> Float[Array, "k d"] | None:
        weight = self._values("weight")
        return jnp.asarray(weight.reshape(-1, int(np.prod(weight.shape[2:])))) if weight.ndim > 2 else None

    def _module(self) -> Any:
        return self.network._dense()[self.name]

    def _values(self, part: str) -> Any:
        """Return the weight or the bias, None where there is none; parametrised ones are computed."""
        place = self.network._place(self.name, part)
        if place in self.network.values or getattr(self._module(), part) is None:
            return self.network.values.get(place)
        return as_numpy(attrgetter(place)(self.network.model.eval()))


def as_numpy(tensor: Any) -> np.ndarray:
    """Return a tensor as an array of NumPy; half precision, which the core does not take, becomes single."""
    torch, tensor = sys.modules["torch"], tensor.detach().cpu()
    return (tensor.float() if tensor.dtype in (torch.bfloat16, torch.float16) else tensor).numpy().copy()


def as_jax(tensor: Any) -> Array:
    """Return a tensor as an array of JAX."""
    return jnp.asarray(as_numpy(tensor))
