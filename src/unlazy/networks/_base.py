"""The interface of networks: functions of a batch that know how fast their parameters learn."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from unlazy._checked import Checked
from unlazy._linalg import norm
from unlazy._types import Outputs, PRNGKey, PyTree, Scalar
from unlazy.data import Dataset
from unlazy.kernels import tangent_kernel
from unlazy.kernels.problem import leaf_name
from unlazy.kernels.structure import Method
from unlazy.losses import Loss
from unlazy.networks.layers import Layer
from unlazy.networks.prepared import Batch, OtherBatch, Places, Prepared, Samples, raw_inputs

if TYPE_CHECKING:
    from unlazy.networks.linear import Layout

N = TypeVar("N", bound="Network")
M = TypeVar("M", bound=eqx.Module)


class View(eqx.Module):
    """The outputs of a network on some inputs, with what `Network.chord` reuses.

    Attributes
    ----------
    outputs
        The outputs f(x).
    hidden
        Pre-activations, where they are stored.
    """

    outputs: Outputs
    hidden: Float[Array, "..."] | None = None


class Chord(eqx.Module):
    """A network linearised along a path instead of at a point: Jacobian J̄ and kernel Θ̄ = J̄ R J̄^T.

    To second order in the length of the path f(end) - f(start) = J̄ (θ_end - θ_start); gates that switch on the path
    count for the part of it on which they are open.
    """

    kernel: eqx.AbstractVar[Float[Array, "..."]]

    @abc.abstractmethod
    def response(self, signal: Outputs) -> PyTree:
        """-R J̄^T u: how the trained parameters answer a signal u on the training outputs."""


class GramForm(NamedTuple):
    """What a network that is trained on fixed features offers a flow: the same training in Gram coordinates.

    Attributes
    ----------
    features
        Number D of fixed features; may be infinite.
    neurons
        Number m of neurons whose coefficients are followed, which can be processed in slabs, on several devices and in
        mixed precision; None where there is no such choice.
    prepare
        Function from a `Layout` to the prepared network.
    """

    features: float
    neurons: int | None
    prepare: Callable[[Layout], Prepared]


class Network(Checked):
    """A parametric function f(x; θ) together with the geometry R of its gradient flow, θ' = -R ∇L(θ).

    Only ``__call__`` is abstract. All other methods have defaults that are right for any tree of parameters, and are
    there to be overridden where a network has structure: frozen parameters, cheaper kernels, layers of neurons, work
    that can be done once. Leaves may be anything that Equinox allows, functions included. A network that is an
    infinite-width limit is a network like any other.

    Attributes
    ----------
    number_fields
        The fields whose Python numbers are arrays in compiled code, so that networks which differ in these numbers
        share it.
    traceable
        Whether JAX can trace the network, so that flows can train it; a wrapped PyTorch module is only observed.
    """

    number_fields: ClassVar[tuple[str, ...]] = ()
    traceable: ClassVar[bool] = True

    @abc.abstractmethod
    def __call__(self, x: Batch) -> Outputs:
        """Evaluate f on a batch: (n, ...) -> (n,) or (n, k)."""

    def rates(self) -> PyTree:
        """Return the learning-rate factor R of every floating-point leaf, as a tree of Python floats.

        0.0 means frozen. The tree is that of ``equinox.filter(self, equinox.is_inexact_array)``; start from
        `frozen_rates`. By default everything is trained at the rate 1.
        """
        return jax.tree.map(lambda _: 1.0, eqx.filter(self, eqx.is_inexact_array))

    # ------------------------------------------------------------ what flows ask for

    @property
    def has_kinks(self) -> bool:
        """Whether f has kinks in its parameters, at which gradients jump (ReLU and the like)."""
        return False

    @property
    def small_initial_outputs(self) -> bool:
        """Whether outputs start too small to judge errors by: flows then control the error of the parameters."""
        return False

    @property
    def rescaled_parameters(self) -> bool:
        """Whether parameters are stored in units of their own, so that the size of a gradient has no meaning."""
        return False

    @property
    def clips_per_sample(self) -> bool:
        """Whether `gradient` bounds the contribution of single samples, so that it is not the gradient of the loss."""
        return False

    @property
    def cheap_kernel(self) -> bool:
        """Whether a tangent kernel costs about as much as a gradient, so that a flow may compute one per step."""
        return False

    def prepare(self, data: Dataset) -> Prepared:
        """Do once all work on ``data`` whose results training cannot change.

        Returns the network in the form in which it is trained, and handles for the training and test inputs, on which
        it gives the same values as on raw inputs, only faster. By default there is nothing to do, and the inputs stay
        raw arrays.
        """
        return Prepared(self, data.x, data.x_test)

    def restore(self) -> Network:
        """Undo `prepare`: return the network on raw inputs, with its current parameters."""
        return self

    def gram_form(self, data: Dataset) -> GramForm | None:
        """Return how this network is trained in Gram coordinates; None where no layer is trained on fixed features."""
        return None

    def gradient(self, data: Dataset | Samples, loss: Loss) -> tuple[Scalar, PyTree]:
        """Return the loss and its gradient by the trained parameters (a tree as of `split_trained`)."""
        trained, frozen = split_trained(self)

        def value(leaves: PyTree) -> Scalar:
            return loss(eqx.combine(leaves, frozen)(data.x), data.y, data.weight)

        return jax.value_and_grad(value)(trained)

    def pull(self, x: Batch, signal: Outputs) -> PyTree:
        """Return R J(x)^T u: what a signal u on the outputs does to the parameters (a tree as of `split_trained`)."""
        trained, frozen = split_trained(self)
        _, back = jax.vjp(lambda leaves: eqx.combine(leaves, frozen)(x), trained)
        return jax.tree.map(lambda rate, leaf: rate * leaf, trained_rates(self), back(signal)[0])

    def push(self, x: Batch, change: PyTree) -> Outputs:
        """Return J(x) v: the effect of a change v of the trained parameters on the outputs."""
        trained, frozen = split_trained(self)
        return jax.jvp(lambda leaves: eqx.combine(leaves, frozen)(x), (trained,), (change,))[1]

    def view(self, x: Batch) -> View:
        """Evaluate the network on ``x`` and keep what `chord` starts from."""
        return View(self(x))

    def chord(self, view: View, signal: Outputs, x: OtherBatch) -> Chord:
        """Linearise along the path on which ``signal`` would lead, evaluated on ``x``.

        The first inputs of ``x`` are the training inputs, to which the signal belongs; others are only observed: Θ̄ has
        a row for each input and a column for each training input.
        """
        trained, frozen = split_trained(self)
        train = x[: signal.shape[0]]
        halfway = jax.tree.map(lambda leaf, step: leaf - step / 2, trained, self.pull(train, signal))
        middle = eqx.combine(halfway, frozen)
        return Tangent(kernel=middle.tangent_kernel(x, train), network=middle, x=train)

    # ------------------------------------------------------------ what probes ask for

    def tangent_kernel(self, x: Batch, z: OtherBatch | None = None) -> Float[Array, "..."]:
        """Return the tangent kernel Θ(x, z) = J(x) R J(z)^T, of shape (n, n') or (n, k, n', k).

        Along the flow f' = -Θ dL/df. Without ``z`` it is Θ(x, x).
        """
        return generic_kernel(self, x, z)

    def output_kernel(self, x: Batch, z: OtherBatch, output: int) -> Float[Array, "n p"]:
        """Return Θ(x, z) of one of several outputs; cut out of the whole where that has a formula of its own."""
        if type(self).tangent_kernel is Network.tangent_kernel:
            return generic_kernel(self, x, z, output)
        return self.tangent_kernel(x, z)[:, output, :, output]

    def layers(self) -> Mapping[str, Layer]:
        """Return the layers of neurons by name.

        A network that does not define this does not say what its neurons are: probes then find them by tracing it. To
        declare that there are no neurons, define it and return an empty dictionary.
        """
        return {}

    def movement(self, start: Network) -> dict[str, Float[Array, "..."]]:
        """Return the distance |w_j - w_j(0)| of each neuron's input weights since ``start``, by layer.

        For a network without layers it is the distance of each array of trained parameters, by its place in the tree.
        """
        now, before = self.layers(), start.layers()
        if now:
            return {name: norm(now[name].weights() - before[name].weights(), axis=1) for name in now}
        leaves, _ = jax.tree_util.tree_flatten_with_path(split_trained(self)[0])
        first = jax.tree.leaves(split_trained(start)[0])
        return {leaf_name(path): norm(leaf - other) for (path, leaf), other in zip(leaves, first, strict=True)}


class Tangent(Chord):
    """The linearisation at one point."""

    network: Network
    x: Batch
    kernel: Float[Array, "..."]

    def response(self, signal: Outputs) -> PyTree:
        """-R J^T u."""
        return jax.tree.map(jnp.negative, self.network.pull(self.x, signal))


def with_fields(network: M, **changes: object) -> M:
    """Copy a network, or another module, with some fields changed and nothing drawn again (`__init__` is not run).

    Parameters
    ----------
    network
        The network or module to copy.
    **changes
        New values by the names of the fields.
    """
    new = object.__new__(type(network))
    for field in dataclasses.fields(network):
        object.__setattr__(new, field.name, changes.get(field.name, getattr(network, field.name)))
    return new


def traced_numbers(network: N) -> N:
    """Return a network for compiled code: the numbers in its `Network.number_fields` are arrays.

    Parameters
    ----------
    network
        The network.
    """
    return _with_numbers(network, lambda leaf: np.asarray(leaf) if isinstance(leaf, float | int) else leaf)


def plain_numbers(network: N) -> N:
    """Undo `traced_numbers`.

    Parameters
    ----------
    network
        The network.
    """

    def plain(leaf: Any) -> Any:
        if not eqx.is_array(leaf):
            return leaf
        value = np.asarray(leaf)[()]
        # Without 64 bits JAX has rounded it: str gives the shortest number that is rounded to the same.
        return int(value) if value.dtype.kind in "iu" else float(str(value))

    return _with_numbers(network, plain)


def _with_numbers(network: N, convert: Callable[[Any], Any]) -> N:
    def inner(value: Any) -> Any:
        return _with_numbers(value, convert) if isinstance(value, Network) else value

    changes = {}
    for field in dataclasses.fields(network):
        value = getattr(network, field.name)
        if field.name in network.number_fields:
            changes[field.name] = jax.tree.map(convert, value)
        elif not field.metadata.get("static", False):
            changes[field.name] = jax.tree.map(inner, value, is_leaf=lambda node: isinstance(node, Network))
    return with_fields(network, **changes)


def frozen_rates(network: Network) -> PyTree:
    """Return the rates of a network of which nothing is trained: the tree that `Network.rates` fills in.

    Parameters
    ----------
    network
        The network.
    """
    return jax.tree.map(lambda _: 0.0, eqx.filter(network, eqx.is_inexact_array))


def split_trained(network: N) -> tuple[N, N]:
    """Split a network into what its rates train and the rest, so that frozen leaves are never differentiated.

    Parameters
    ----------
    network
        The network.
    """
    trained = jax.tree.map(lambda rate: not (isinstance(rate, float) and rate == 0.0), network.rates())
    nothing = jax.tree.map(lambda _: False, network)
    return eqx.partition(network, eqx.combine(trained, nothing))


def trained_rates(network: Network) -> PyTree:
    """Return the rates of the trained leaves only: the same tree as the first half of `split_trained`.

    Parameters
    ----------
    network
        The network.
    """
    return jax.tree.map(lambda rate: None if isinstance(rate, float) and rate == 0.0 else rate, network.rates())


def example_data(
    n: int, n_test: int, inputs: tuple[int, ...], keys: Iterable[PRNGKey], name: str = "example"
) -> tuple[Dataset, Dataset]:
    """Draw data for the examples of a network: targets of one output, and of three without test data."""
    shapes = (n, *inputs), (n,), (n_test, *inputs), (n_test,)
    x, y, x_test, y_test = (jax.random.normal(key, shape) for shape, key in zip(shapes, keys, strict=False))
    several = Dataset(x, jnp.stack([y, -y, y**2], axis=1), name=f"{name} with three outputs")
    return Dataset(x, y, x_test, y_test, name=name), several


def as_function(network: Network) -> tuple[Callable[[Any, Batch], Outputs], PyTree, PyTree]:
    """Return a network as ``apply(params, x)``, ``params`` and ``rates``: what the functions of `unlazy.kernels` take.

    Parameters
    ----------
    network
        The network, on raw inputs.

    Examples
    --------
    >>> apply, params, rates = as_function(network)
    >>> unlazy.kernels.leading_eigenvalues(apply, params, data.x, rates=rates)
    """
    return _call, network, network.rates()


def _call(network: Network, x: Batch) -> Outputs:
    return network(x)


def generic_kernel(
    network: Network,
    x: Batch,
    z: OtherBatch | None = None,
    outputs: Literal["all", "trace"] | int = "all",
    method: Method = "auto",
    memory: float | None = None,
) -> Float[Array, "..."]:
    """Compute the tangent kernel J(x) R J(z)^T of any network with `unlazy.kernels.tangent_kernel`.

    Parameters
    ----------
    network
        The network, in weights or in Gram coordinates.
    x, z
        Two batches of inputs, raw or prepared; without ``z`` it is Θ(x, x).
    outputs, method, memory
        As in `unlazy.kernels.tangent_kernel`.
    """
    if isinstance(x, Places) or isinstance(z, Places):  # what autodiff gives in Gram coordinates is not a Jacobian
        network, x, z = network.restore(), raw_inputs(x), None if z is None else raw_inputs(z)
    apply, params, rates = as_function(network)
    return tangent_kernel(apply, params, x, z, rates=rates, outputs=outputs, method=method, memory=memory)
