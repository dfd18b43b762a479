"""Your own model as a network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from unlazy._checked import checked
from unlazy._errors import UserError, article, short
from unlazy._inputs import as_key
from unlazy._types import KeyLike
from unlazy.networks._base import Network
from unlazy.networks.foreign import equinox_modules, flax_linen, flax_nnx, functions, haiku, torch_modules
from unlazy.networks.foreign.form import Parts
from unlazy.networks.foreign.rates import Rates, factors, named_parameters
from unlazy.networks.foreign.torch_modules import TorchNetwork
from unlazy.networks.foreign.wrapped import Wrapped

_KINDS = (
    "an Equinox module, a flax.linen module and its variables, a flax.nnx module, a Haiku function and its parameters, "
    "a PyTorch module, or a function apply(params, x) and its parameters"
)


@checked
def wrap(
    model: Any,
    parameters: Any = None,
    *,
    rates: Rates = None,
    state: Literal["refuse", "freeze"] = "refuse",
    call: Mapping[str, Any] | None = None,
    batched: bool | None = None,
    input_shape: Sequence[int] | None = None,
    integer_inputs: bool = False,
    squeeze: bool = True,
    has_kinks: bool = False,
    key: KeyLike | None = None,
) -> Wrapped | TorchNetwork:
    """Make a network from a model of another library, to train it by our flows and observe it by our probes.

    An Equinox module, a Flax or Haiku model or a plain function becomes a `Wrapped`, which flows train; a PyTorch
    module becomes a `TorchNetwork`, which is trained in a loop of your own and observed by a `Recorder`. The library is
    recognised by type. The model is called in inference mode: dropout is off, and arguments called ``train``,
    ``training``, ``is_training``, ``deterministic``, ``inference`` or ``use_running_average`` are set accordingly.

    Floating-point arrays are trained, at the rate 1 unless ``rates`` says otherwise; whole numbers, keys and functions
    are not.

    Parameters
    ----------
    model
        The model: an Equinox module; a module of flax.nnx or PyTorch; a module of flax.linen, what ``hk.transform``
        returns, or a function ``apply(params, x)``, each with its parameters. A tuple holds both, model and parameters.
    parameters
        What the library keeps apart from the model: variables of flax.linen, parameters of Haiku (a tuple of parameters
        and state, if there is one) or of a function, an ``equinox.nn.State``.
    rates
        Learning-rate factors R of θ' = -R ∇L(θ): a function of an array's name (such as "Dense_0.kernel") or a tree
        like that of the parameters, of numbers or booleans. 0 and False freeze an array.
    state
        What to do with batch statistics and other state that training changes by other means than gradients:
        ``"refuse"`` it, or ``"freeze"`` it as it is.
    call
        Further keyword arguments of every call, by name.
    batched
        Whether the model takes batches (True) or one sample (False). By default both are tried on abstract inputs,
        one sample first for Equinox modules, batches first for all others.
    input_shape
        Shape into which each sample is brought before the call, such as (28, 28, 1) for flat images.
    integer_inputs
        Whether inputs are converted to whole numbers first, for models of tokens; data sets hold real numbers.
    squeeze
        Whether outputs of shape (n, 1) become (n,), which targets of shape (n,) need.
    has_kinks
        Whether the model has kinks, as with ReLU; flows then take more care.
    key
        Key of random numbers that the model draws even in inference mode. Every sample and every call sees the same
        ones. By default the model gets none.

    Returns
    -------
    Wrapped or TorchNetwork
        The network. Its attribute ``model`` is the model as it was given, with the current parameters.

    Examples
    --------
    >>> network = wrap(eqx.nn.MLP(3, 1, 64, 2, key=key))
    >>> network = wrap(module, variables, rates=lambda name: not name.startswith("Dense_0"))
    >>> network = wrap(lambda params, x: jnp.tanh(x @ params["w"]) @ params["a"], params)
    """
    model, rest = (model, ()) if parameters is None else (model, (parameters,))
    if type(model) is tuple and not rest and model:
        model, *others = model
        rest = tuple(others)
    if isinstance(model, Network):
        raise UserError(f"A {type(model).__name__} is a network already: use it as it is.")
    shape = None if input_shape is None else tuple(int(size) for size in input_shape)
    if (module := torch_modules.recognise(model, rest)) is not None:
        if key is not None or batched is False or has_kinks:
            raise UserError("A PyTorch module takes batches, no key, and is not trained by our flows: leave these out.")
        return TorchNetwork.of(module, rates, state, dict(call or {}), shape, integer_inputs, squeeze)
    parts = _recognised(model, rest, call or {})
    _check(parts, state)
    return Wrapped(
        parts.parameters,
        parts.constants,
        None if key is None else as_key(key),
        parts.form,
        factors(rates, parts.parameters),
        batched,
        shape,
        integer_inputs,
        squeeze,
        has_kinks,
    )


def as_network(made: Any, name: str = "model") -> Network:
    """Return what a user's function made as a network: a network itself, or anything that `wrap` takes.

    Parameters
    ----------
    made
        A network or a model.
    name
        Name of the function, for messages.
    """
    if isinstance(made, Network):
        return made
    try:
        return wrap(made)
    except UserError as error:
        raise UserError(
            f"'{name}' made {article(type(made).__name__)}, where a network was expected. {error}"
        ) from None


as_network.registered = False  # pyright: ignore[reportFunctionMemberAccess]  # it makes networks from others


def _recognised(model: Any, rest: tuple[Any, ...], options: Mapping[str, Any]) -> Parts:
    for library in (flax_nnx, flax_linen, haiku, equinox_modules, functions):
        parts = library.recognise(model, rest, options)
        if parts is not None:
            return parts
    given = f"the class {model.__name__}, not one of its objects" if isinstance(model, type) else short(model)
    raise UserError(f"wrap was given {given}: give {_KINDS}.")


def _check(parts: Parts, state: str) -> None:
    """Reject state unless it may be frozen, and parameters that cannot be trained."""
    name = parts.form.name
    try:
        hash(parts.form)
    except TypeError as error:
        raise UserError(
            f"{name} has a setting that cannot be hashed ({error}): give numbers, words or tuples."
        ) from None
    if parts.state and state == "refuse":
        raise UserError(
            f"{name} has {parts.state}, which training changes by other means than gradients: give state='freeze' to "
            "unlazy.wrap, which then holds it as it is, or use layers without it."
        )
    arrays = named_parameters(parts.parameters)
    if not arrays:
        raise UserError(f"{name} has no floating-point parameters, so there is nothing to train or to linearise.")
    for path, leaf in arrays.items():
        named = f"'{path}' of {name}" if path else f"The parameter of {name}"  # an array alone has no name
        if jnp.issubdtype(leaf.dtype, jnp.complexfloating):
            raise UserError(f"{named} is complex: write it as real and imaginary part.")
        if not isinstance(leaf, Tracer) and not np.all(np.isfinite(leaf)):
            raise UserError(f"{named} has entries that are NaN or infinite: check how it was made.")
