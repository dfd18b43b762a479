"""The compiled functions of a driver: prepare, initialise, advance and observe several runs of one shape."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType
from jaxtyping import Array

from unlazy._errors import UserError, article, first_line, short
from unlazy._memory import GIB, must_fit, total
from unlazy._types import PyTree
from unlazy.data import Dataset
from unlazy.flows.state import JUDGED_TEST_INPUTS, State
from unlazy.losses import Loss
from unlazy.networks import GramForm, Layout, Network, Samples, split_trained
from unlazy.networks.linear import AXIS
from unlazy.probes.observation import Observation, Observe

if TYPE_CHECKING:
    from unlazy.flows.method import Flow, Method

# Below this size of the trained parameters a network does not fill two cores and vmap wins; above, lax.map does.
_VMAP_BYTES = 2**18

Batching = Literal["one", "vmap", "map"]

_MIN_SLAB = 256  # neurons


def stack(members: Sequence[Any]) -> Any:
    """Stack several networks, data sets, methods or keys of one shape along a new first axis."""
    arrays, rest = zip(*(eqx.partition(member, eqx.is_array) for member in members), strict=True)
    structures = {jax.tree.structure(member) for member in members}
    shapes = {tuple(jnp.shape(leaf) for leaf in jax.tree.leaves(member)) for member in arrays}
    if len(structures) > 1 or len(shapes) > 1:
        raise UserError("Networks and data of several seeds must agree in shape and type to be trained together.")

    def joined(*leaves: Any) -> Any:  # numbers of NumPy keep their 64 bits
        return (np if isinstance(leaves[0], np.ndarray) else jnp).stack(leaves)

    return eqx.combine(jax.tree.map(joined, *arrays), rest[0])


def _batched(function: Callable, batching: Batching) -> Callable:
    """Apply a function to several runs at once; leaves that are not arrays, such as functions, are shared by all."""
    if batching == "one":
        return function

    def over_runs(*args: Any) -> Any:
        arrays, rest = eqx.partition(args, eqx.is_array)
        static: list[Any] = []

        def one(some: Any) -> Any:
            made, other = eqx.partition(function(*eqx.combine(some, rest)), eqx.is_array)
            static[:] = [other]
            return made

        made = jax.vmap(one)(arrays) if batching == "vmap" else jax.lax.map(one, arrays)
        return eqx.combine(made, static[0])

    return over_runs


def layout(method: Any, network: Network, data: Dataset, runs: int = 1) -> Layout:
    """Return how neurons are processed in Gram coordinates: in slabs, on several devices, in which precision."""
    form = network.gram_form(data) if getattr(method, "coordinates", "weights") == "gram" else None
    if form is not None:
        check_gram(form, data)
    if form is None or form.neurons is None:
        return Layout()
    mixed, memory = getattr(method, "precision", "full") == "mixed", getattr(method, "memory", None)
    limit = None if memory is None else memory * GIB
    size, product = data.x.dtype.itemsize, 4 if mixed else data.x.dtype.itemsize
    tests = 0 if data.x_test is None else data.x_test.shape[0]
    m, n, judged, points = form.neurons, data.n, min(JUDGED_TEST_INPUTS, tests), data.n + tests
    row = points * product + 5 * n * size  # one neuron: h_0, and B at the start, before, now, next, and its change
    each = 8 * (n + judged) * product  # intermediate results of one neuron
    must_fit(
        runs * m * row + _MIN_SLAB * each,
        f"A run of {runs} x {m:,} neurons on {n:,} training and {tests:,} test points",
        "take fewer neurons, float32 or mixed precision, or a smaller test set",
        limit,
    )
    # The default depends on the size of the machine, not on what is free now: a second run must do the same.
    free = (total() / 2 if limit is None else limit) - runs * m * row
    slab = 2 ** int(np.log2(max(_MIN_SLAB, free / each))) if m * each > free else None
    mesh = _mesh(m, getattr(method, "devices", None)) if runs == 1 else None
    return Layout(slab, mesh, jnp.dtype(jnp.float32) if mixed else None)


def check_gram(form: GramForm, data: Dataset) -> None:
    """Refuse Gram coordinates whose matrices do not fit into memory."""
    points = data.n + (0 if data.x_test is None else data.x_test.shape[0])
    # An infinite embedding has a kernel on all points, and its root by an eigendecomposition; others have features.
    entries = 4.0 * points**2 if math.isinf(form.features) else points * (form.features + float(data.n))
    must_fit(
        entries * data.x.dtype.itemsize,
        f"The Gram matrix of {data.n:,} training and {points - data.n:,} test points",
        "take fewer points, or a finite embedding and coordinates='weights'",
    )


def _mesh(width: int, devices: int | None) -> jax.sharding.Mesh | None:
    if devices is not None and width % devices:
        raise UserError(f"{width:,} neurons cannot be divided evenly among {devices} devices: choose a multiple.")
    count = next(k for k in range(len(jax.devices()), 0, -1) if width % k == 0) if devices is None else devices
    if count == 1:
        return None
    return jax.sharding.Mesh(np.asarray(jax.devices()[:count]), (AXIS,), axis_types=(AxisType.Auto,))


def check_types(flow: Flow, network: Network, data: Dataset) -> None:
    """Reject what is not a network, data set or loss, and data that are not finite."""
    for what, given, wanted, advice in (
        ("network", network, Network, "give one from unlazy.networks, or wrap your own model with unlazy.wrap(model)"),
        ("data set", data, Dataset, "make one with unlazy.Dataset(x, y)"),
        ("loss", flow.loss, Loss, "give one from unlazy.losses, its name, or a function of outputs and targets"),
    ):
        if not isinstance(given, wanted):
            raise UserError(
                f"The {what} must be {article(wanted.__name__)}, not {article(type(given).__name__)}: {advice}."
            )
    for leaf in jax.tree.leaves(split_trained(network)[0]):
        if leaf.dtype not in (jnp.float32, jnp.float64):
            raise UserError(
                f"The {type(network).__name__} has trained parameters of type {leaf.dtype}, and flows compute in "
                "float32 and float64: convert the model to one of these."
            )
    data.check()


def check_outputs(shape: tuple[int, ...], data: Dataset) -> None:
    """Reject outputs on the training inputs whose shape is not that of the targets."""
    if shape != data.y.shape:
        raise UserError(
            f"The network gives outputs of shape {shape}, but the targets of '{data.name}' have shape {data.y.shape}: "
            "a network without `outputs` needs targets (n,), one with outputs = k needs (n, k)."
        )


@eqx.filter_jit
def prepare_runs(
    method: Method, network: Network, data: Dataset, layout: Layout, batching: Batching
) -> tuple[Network, Samples]:
    """Prepare each network on its data; reject, while tracing, outputs that do not fit the targets."""

    def prepare(method: Method, network: Network, data: Dataset) -> tuple[Network, Samples]:
        form = network.gram_form(data) if getattr(method, "coordinates", "weights") == "gram" else None
        prepared, x, x_test = method.prepare(network, data) if form is None else form.prepare(layout)
        check_outputs(eqx.filter_eval_shape(prepared, x).shape, data)
        return prepared, Samples(x, data.y, data.weight, x_test)

    return _batched(prepare, batching)(method, network, data)


@eqx.filter_jit
def init_runs(method: Method, network: Network, data: Samples, key: Array, batching: Batching) -> State:
    """Return the states at t = 0."""
    return _batched(lambda method, *given: method.init(*given), batching)(method, network, data, key)


@eqx.filter_jit
def advance_runs(
    method: Method, state: State, frozen: PyTree, data: Samples, budget: Array, batching: Batching
) -> State:
    """Step until the next save time, a failure, or at most ``budget`` steps."""

    def advance(method: Method, state: State, frozen: PyTree, data: Samples) -> State:
        last = state.steps + state.rejected + budget

        def going(s: State) -> Array:
            return (s.remaining > 0) & (s.code == 0) & (s.steps + s.rejected < last)

        def body(s: State) -> State:
            size = s.remaining if s.step is None else jnp.minimum(s.step, s.remaining)
            return method.take_step(s, size, frozen, data).applied_to(s, getattr(method, "max_steps", None))

        return jax.lax.while_loop(going, body, state)

    return _batched(advance, batching)(method, state, frozen, data)


def observed(
    probes: dict[str, Observe],
    known: list[tuple[Observe, PyTree]],
    now: PyTree,
    first: PyTree,
    frozen: PyTree,
    data: Samples,
    raw: Dataset,
    loss: Loss,
    batching: Batching,
    requested: list[Observe] | None = None,
) -> dict[str, PyTree]:
    """Evaluate probes at one time of each run.

    ``known`` are pairs of a probe and its value at the start; other probes that are needed there go into ``requested``.
    """

    def observe(loss: Loss, known: Any, now: PyTree, first: PyTree, frozen: PyTree, data: Samples, raw: Dataset) -> Any:
        here, start = eqx.combine(now, frozen), eqx.combine(first, frozen)
        obs = Observation(here, start, raw, loss, data.x, data.x_test, known)
        results = {name: _evaluated(name, probe, obs) for name, probe in probes.items()}
        if requested is not None:
            requested[:] = obs.requested
        return results

    return _batched(observe, batching)(loss, known, now, first, frozen, data, raw)


observe_runs = eqx.filter_jit(observed)


def _evaluated(name: str, probe: Observe, obs: Observation) -> PyTree:
    try:
        made = jax.tree.map(jnp.asarray, probe(obs))
        if any(jnp.issubdtype(one.dtype, jax.dtypes.prng_key) for one in jax.tree.leaves(made)):
            raise TypeError("it returns random keys instead of numbers")
        return made
    except UserError:
        raise
    except Exception as error:
        raise UserError(f"The probe {short(name)} fails ({first_line(error)}): see what it does with obs.") from error


def fits_vmap(method: Method, network: Network) -> bool:
    """Whether several runs of this kind are faster side by side than in turn."""
    size = sum(leaf.nbytes for leaf in jax.tree.leaves(split_trained(network)[0]))
    return size < _VMAP_BYTES and not method.one_by_one()
