"""PyTorch modules, evaluated and differentiated by PyTorch itself.

Such a module is trained in a loop of the user's own, and observed by a `Recorder` or by hand: outputs, tangent kernels,
weights and pre-activations come as arrays, so that probes work on it.
"""

from __future__ import annotations

import copy
import math
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar, NoReturn

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float

from unlazy._errors import UserError, first_line
from unlazy._types import Outputs
from unlazy.data import Dataset
from unlazy.networks._base import Network, with_fields
from unlazy.networks.foreign.rates import Rates, factors
from unlazy.networks.foreign.torch_layers import TorchLayer, as_jax, as_numpy
from unlazy.networks.layers import Layer
from unlazy.networks.prepared import Batch, OtherBatch, Prepared, raw_inputs

_BLOCK = 2.0**28  # bytes of Jacobians that are held at once
_ROUNDING = 1e-3  # by which two ways to compute a gradient may differ
_DENSE = ("Linear", "Conv1d", "Conv2d", "Conv3d")  # classes of torch.nn whose outputs are pre-activations


def recognise(model: Any, rest: tuple[Any, ...]) -> Any:
    """Return a PyTorch module as it is, and None for anything else."""
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(model, torch.nn.Module):
        return None
    if rest:
        name = type(model).__name__
        raise UserError(f"A PyTorch module holds its parameters: give wrap(module), here {name}, alone.")
    return model


class TorchNetwork(Network):
    """A PyTorch module as a network that can be observed; `wrap` makes it.

    It holds a copy of the module in evaluation mode and a snapshot of its parameters, and does not change when the
    module is trained on: `with_model` takes a new snapshot. Flows do not train it.

    Parameters
    ----------
    values, buffers
        Parameters and buffers by the names that PyTorch gives them.
    module
        The copy of the module.
    rate_factors
        Learning-rate factors by the names of the parameters.
    options
        Keyword arguments of every call.
    input_shape, integer_inputs, squeeze
        As for `wrap`.
    """

    values: dict[str, np.ndarray]
    buffers: dict[str, np.ndarray]
    module: Any = eqx.field(static=True)
    rate_factors: tuple[tuple[str, float], ...] = eqx.field(static=True)
    options: tuple[tuple[str, Any], ...] = eqx.field(static=True, default=())
    input_shape: tuple[int, ...] | None = eqx.field(static=True, default=None)
    integer_inputs: bool = eqx.field(static=True, default=False)
    squeeze: bool = eqx.field(static=True, default=True)
    registered: ClassVar[bool] = False  # made by `wrap`
    traceable: ClassVar[bool] = False

    @classmethod
    def of(
        cls,
        module: Any,
        rates: Rates = None,
        state: str = "refuse",
        options: Mapping[str, Any] | None = None,
        input_shape: tuple[int, ...] | None = None,
        integer_inputs: bool = False,
        squeeze: bool = True,
    ) -> TorchNetwork:
        """Take a snapshot of a module; arguments are those of `wrap`, with `options` for its `call`.

        Without ``rates``, parameters that do not require gradients have the factor 0.
        """
        name = type(module).__name__
        averaging = [type(one).__name__ for one in module.modules() if getattr(one, "track_running_stats", False)]
        if averaging and state == "refuse":
            raise UserError(
                f"{name} has running averages ({averaging[0]}), which training changes by other means than gradients: "
                "give state='freeze' to unlazy.wrap, to observe it with its averages at each time, or use layers "
                "without them."
            )
        trained = {each: one.requires_grad for each, one in module.named_parameters()}
        if not trained:
            raise UserError(f"{name} has no parameters, so there is nothing to observe.")
        stand_in = {each: jnp.zeros(()) for each in trained}
        chosen = factors(trained if rates is None else rates, stand_in)
        network = cls(
            {},
            {},
            copy.deepcopy(module).eval(),
            tuple(zip(sorted(trained), chosen, strict=True)),
            tuple(sorted((options or {}).items())),
            input_shape,
            integer_inputs,
            squeeze,
        )
        return network.with_model(module)

    def with_model(self, given: Any) -> TorchNetwork:
        """Return the network with a new snapshot of parameters and buffers.

        Parameters
        ----------
        given
            The module, or its ``state_dict()``.
        """
        torch = sys.modules["torch"]
        state = (
            given if isinstance(given, Mapping) else given.state_dict() if isinstance(given, torch.nn.Module) else {}
        )
        wanted = self.module.state_dict()
        odd = sorted(set(state) ^ set(wanted)) or [
            name for name, one in wanted.items() if tuple(one.shape) != tuple(state[name].shape)
        ]
        if odd:
            raise UserError(f"This is not the PyTorch module that was wrapped; they differ in: {', '.join(odd[:3])}.")
        names = sorted(name for name, _ in self.module.named_parameters())
        buffers = [name for name, _ in self.module.named_buffers() if name in state]
        values, others = ({name: as_numpy(state[name]) for name in some} for some in (names, buffers))
        return with_fields(self, values=values, buffers=others)

    @property
    def name(self) -> str:
        """The name of the model's class or function."""
        return type(self.module).__name__

    @property
    def model(self) -> Any:
        """A copy of the module with the parameters of this snapshot, in training mode as new modules are."""
        module, torch = copy.deepcopy(self.module), sys.modules["torch"]
        arrays = {**self.values, **self.buffers}
        module.load_state_dict({name: torch.from_numpy(np.array(one)) for name, one in arrays.items()}, strict=False)
        return module.train()

    def __call__(self, x: Batch) -> Outputs:
        with sys.modules["torch"].no_grad():
            return as_jax(self._outputs(self._tensors(), self._inputs(x)))

    def prepare(self, data: Dataset) -> Prepared:
        """Refuse: flows of JAX cannot differentiate PyTorch."""
        self._refuse("is trained in a loop of your own")

    def tangent_kernel(self, x: Batch, z: OtherBatch | None = None) -> Float[Array, "..."]:
        """Return Θ(x, z) = J(x) R J(z)^T.

        A module that uses its trained parameters in linear layers only, each called once on vectors, takes one backward
        pass per output: Θ = Σ_l (δ_l(x)·δ_l(z)) (a_l(x)·a_l(z) + 1) with inputs a_l and backpropagated signals δ_l of
        layer l (and the 1 for a bias). All others take Jacobians by ``torch.func``, in blocks of samples.
        """
        points = self._inputs(x)
        others = points if z is None else self._inputs(z)
        parts = self._signals(points)
        if parts is not None:
            kernel = self._by_layers(parts, parts if z is None else self._signals(others))
        else:
            kernel = self._by_jacobians(points, others)
        one_output = self._shape(points) == 1
        return as_jax(kernel[:, 0, :, 0] if one_output else kernel)

    def push(self, x: Batch, change: Any) -> Outputs:
        torch, points, tensors, moved = sys.modules["torch"], self._inputs(x), self._tensors(), change.values
        here = {name: tensors[name] for name in self.values if moved[name] is not None}
        run = lambda values: self._outputs({**tensors, **values}, points)  # noqa: E731
        back = lambda signal: torch.func.vjp(run, here)[1](signal)[0]  # noqa: E731
        forward = torch.func.vjp(back, torch.zeros_like(run(here)))[1]  # back is linear, and forward its transpose
        return as_jax(forward({name: torch.from_numpy(np.array(moved[name])).to(one) for name, one in here.items()})[0])

    def layers(self) -> Mapping[str, Layer]:
        """Return the linear and convolutional layers by their names in PyTorch."""
        return {name: TorchLayer(self, name) for name in self._dense()}

    def movement(self, start: Network) -> dict[str, Float[Array, "..."]]:
        """Return |w_j - w_j(0)| of each neuron by layer, or the distance of each array where there are no layers."""
        if self._dense() or not isinstance(start, TorchNetwork):
            return super().movement(start)
        return {
            name: jnp.asarray(np.linalg.norm(self.values[name] - start.values[name])) for name in self._trained_rates()
        }

    # ------------------------------------------------------------ evaluation by PyTorch

    def _trained_rates(self) -> dict[str, float]:
        return {name: factor for name, factor in self.rate_factors if factor}

    def _refuse(self, why: str) -> NoReturn:
        raise UserError(
            f"{self.name} is a PyTorch module, which {why}: see unlazy.Recorder, or wrap a JAX version of it."
        )

    def _inputs(self, x: Batch) -> Any:
        raw, torch = raw_inputs(x), sys.modules["torch"]
        if isinstance(raw, Tracer) or any(isinstance(one, Tracer) for one in self.values.values()):
            self._refuse("cannot be called inside transformations of JAX, as this computation does")
        first = next(self.module.parameters())
        values = torch.from_numpy(np.array(raw)).to(first.device)
        values = values if self.input_shape is None else values.reshape(len(values), *self.input_shape)
        return values.long() if self.integer_inputs else values.to(first.dtype)

    def _tensors(self) -> dict[str, Any]:
        torch = sys.modules["torch"]
        device = next(self.module.parameters()).device
        arrays = {**self.values, **self.buffers}
        return {name: torch.from_numpy(np.array(one)).to(device) for name, one in arrays.items()}

    def _run(self, tensors: dict[str, Any], points: Any) -> Any:
        torch = sys.modules["torch"]
        # Fused attention has no second derivatives and is not mapped over samples, and fused layers call no parts.
        attention, fused = torch.nn.attention, torch.backends.mha.get_fastpath_enabled()
        torch.backends.mha.set_fastpath_enabled(False)
        try:
            with attention.sdpa_kernel(attention.SDPBackend.MATH):
                return torch.func.functional_call(self.module, tensors, (points,), dict(self.options))
        finally:
            torch.backends.mha.set_fastpath_enabled(fused)

    def _outputs(self, tensors: dict[str, Any], points: Any) -> Any:
        try:
            f = self._run(tensors, points)
        except (RuntimeError, TypeError, ValueError, IndexError) as error:
            raise UserError(
                f"{self.name} cannot be called on a batch of shape {tuple(points.shape)} ({first_line(error)}): give "
                "input_shape, integer_inputs or call={...}."
            ) from error
        if not hasattr(f, "shape") or f.ndim not in (1, 2) or f.shape[0] != points.shape[0]:
            shape = tuple(f.shape) if hasattr(f, "shape") else type(f).__name__
            raise UserError(
                f"{self.name} gives outputs of shape {shape} on a batch of shape {tuple(points.shape)}, where (n,) or "
                "(n, k) was expected: flatten them, or pick one position, in a module that you wrap."
            )
        return f[:, 0] if self.squeeze and f.ndim == 2 and f.shape[1] == 1 else f

    def _shape(self, points: Any) -> int:
        """Return the number of axes of the outputs."""
        with sys.modules["torch"].no_grad():
            return self._outputs(self._tensors(), points[:1]).ndim

    # ------------------------------------------------------------ tangent kernels

    def _by_jacobians(self, points: Any, others: Any) -> Any:
        torch, tensors, rates = sys.modules["torch"], self._tensors(), self._trained_rates()
        trained = {name: tensors.pop(name) for name in rates}

        def one(values: dict[str, Any], sample: Any) -> Any:
            return self._outputs({**tensors, **values}, sample[None]).reshape(-1)

        def by_sample(values: dict[str, Any], samples: Any) -> dict[str, Any]:
            made = [_gradients(one, values, sample) for sample in samples]
            return {name: torch.stack([each[name] for each in made]) for name in values}

        jacobian = torch.func.vmap(torch.func.jacrev(one), (None, 0))
        try:
            jacobian(trained, points[:1])
        except (RuntimeError, UserError):  # recurrent layers, for one, cannot be mapped over samples
            jacobian = by_sample

        def rows(samples: Any) -> Any:  # (b, k, p), scaled by the square roots of the rates
            made = jacobian(trained, samples)
            return torch.cat(
                [math.sqrt(rates[name]) * each.reshape(*each.shape[:2], -1) for name, each in made.items()], dim=2
            )

        size = sum(one.numel() * one.element_size() for one in trained.values())
        block = max(1, int(_BLOCK / (2 * size * rows(points[:1]).shape[1])))
        kernel = []
        for here in points.split(block):
            left = rows(here)
            parts = [torch.einsum("akp,blp->akbl", left, rows(there)) for there in others.split(block)]
            kernel.append(torch.cat(parts, dim=2))
        return torch.cat(kernel)

    def _signals(self, points: Any) -> list[tuple[Any, Any, float, float]] | None:
        """Return inputs (n, d), signals (n, k, m) and the rates of weight and bias of each trained layer.

        None if trained parameters enter in any other way than by linear layers that are called once, on vectors.
        """
        torch, tensors, rates = sys.modules["torch"], self._tensors(), self._trained_rates()
        linear = {name: one for name, one in self._dense().items() if type(one) is torch.nn.Linear}
        places = {name: [self._place(name, part) for part in ("weight", "bias")] for name in linear}
        every = [name for name, _ in self.module.named_parameters(remove_duplicate=False)]
        if not set(rates) <= {one for both in places.values() for one in both} or len(every) != len(self.rate_factors):
            return None
        for name in rates:
            tensors[name].requires_grad_(True)
        used = {name: one for name, one in linear.items() if set(places[name]) & set(rates)}
        calls: dict[str, list[tuple[Any, Any]]] = {name: [] for name in used}
        with self._watched(used, lambda name, given, made: calls[name].append((given, made))):
            f = self._outputs(tensors, points).reshape(len(points), -1)
        if any(len(each) != 1 or each[0][0].ndim != 2 for each in calls.values()):
            return None
        inputs, made = [each[0][0].detach() for each in calls.values()], [each[0][1] for each in calls.values()]
        slopes = [
            torch.autograd.grad(f[:, k].sum(), made, retain_graph=True, materialize_grads=True)
            for k in range(f.shape[1])
        ]
        signals = [torch.stack(each, dim=1) for each in zip(*slopes, strict=True)]
        # A parameter may also be used outside of its layer: its gradient then differs from that of the layer.
        mix = torch.randn(f.shape, generator=torch.Generator().manual_seed(0)).to(f)
        whole = torch.autograd.grad((mix * f).sum(), [tensors[name] for name in rates], materialize_grads=True)
        of_layers = {}
        for name, a, signal in zip(calls, inputs, signals, strict=True):
            mixed = torch.einsum("nk,nkm->nm", mix, signal)
            of_layers |= dict(zip(places[name], (mixed.T @ a, mixed.sum(0)), strict=True))
        for name, gradient in zip(rates, whole, strict=True):
            if (gradient - of_layers[name]).norm() > _ROUNDING * max(gradient.norm(), of_layers[name].norm()):
                return None
        weights, biases = ([rates.get(places[name][at], 0.0) for name in calls] for at in (0, 1))
        return list(zip(inputs, signals, weights, biases, strict=True))

    def _by_layers(self, here: Any, there: Any) -> Any:
        torch = sys.modules["torch"]
        total: Any = 0.0
        for (a, signal, weight, bias), (b, other, _, _) in zip(here, there, strict=True):
            total = total + torch.einsum("akm,blm->akbl", signal, other) * (weight * (a @ b.T) + bias)[:, None, :, None]
        return total

    # ------------------------------------------------------------ layers

    def _dense(self) -> dict[str, Any]:
        nn = sys.modules["torch"].nn
        kinds = tuple(getattr(nn, kind) for kind in _DENSE)
        uncalled = nn.modules.linear.NonDynamicallyQuantizableLinear  # attention multiplies by its weight itself
        return {
            name or "module": one
            for name, one in self.module.named_modules()
            if isinstance(one, kinds) and not isinstance(one, uncalled)
        }

    def _place(self, layer: str, part: str) -> str:
        """Return PyTorch's name of a parameter of a layer, which may be the whole module."""
        return part if self._dense()[layer] is self.module else f"{layer}.{part}"

    @contextmanager
    def _watched(self, modules: Mapping[str, Any], see: Callable[[str, Any, Any], None]) -> Iterator[None]:
        """Call ``see`` with the name, input and output of each of some modules whenever it is called."""

        def hook(name: str) -> Callable[..., Any]:
            def seen(_: Any, given: tuple[Any, ...], made: Any) -> Any:
                see(name, given[0], made)
                return made.clone()  # what comes next may change it in place

            return seen

        handles = [one.register_forward_hook(hook(name)) for name, one in modules.items()]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()


def _gradients(function: Callable[..., Any], values: dict[str, Any], sample: Any) -> dict[str, Any]:
    """Return the derivatives of all outputs on one sample, by one backward pass for each."""
    torch = sys.modules["torch"]
    leaves = {name: one.detach().requires_grad_(True) for name, one in values.items()}
    outputs = function(leaves, sample)
    made = [
        torch.autograd.grad(one, list(leaves.values()), retain_graph=True, materialize_grads=True, allow_unused=True)
        for one in outputs
    ]
    return dict(zip(leaves, (torch.stack(each) for each in zip(*made, strict=True)), strict=True))
