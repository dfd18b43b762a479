"""Checks for losses, data sets, laws, scalings, embeddings, optimisers, schedules, flows and probes."""

import inspect
import math
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array

from unlazy._errors import UserError
from unlazy.activations import Tanh
from unlazy.data import Dataset, as_dataset
from unlazy.flows import Descent, Flow, Optimiser, Schedule, Status, Trajectory
from unlazy.losses import Loss, Squared
from unlazy.networks import Embedding, Law, Network, Scaling, split_trained
from unlazy.probes import Observation, TrainLoss


def close(found: Any, wanted: Any, rel: float, absolute: float, what: str) -> None:
    """Assert that |found - wanted| <= absolute + rel |wanted| everywhere, with ``what`` as the message."""
    one, other = np.asarray(found, float), np.asarray(wanted, float)
    assert one.shape == other.shape, f"{what}: shapes {one.shape} and {other.shape} differ."
    apart = np.abs(one - other) - absolute - rel * np.abs(other)
    if not np.all(apart <= 0):  # NaN is not close to anything
        worst = int(np.argmax(np.where(np.isnan(apart), np.inf, apart)))
        raise AssertionError(f"{what}: {one.flat[worst]:.6g} is not {other.flat[worst]:.6g} within {rel:g}.")


def check_loss(loss: Loss, y: Any = None) -> None:
    """Check the derivatives, weights and reductions of a loss.

    Parameters
    ----------
    loss
        An instance. The checks run in 64 bits.
    y
        Targets that the loss is made for, at least four samples; five one-hot rows of three classes if omitted.
    """
    with jax.enable_x64(True):
        targets = np.eye(3)[[0, 2, 1, 1, 0]] if y is None else np.asarray(y, float)
        loss.check(jnp.asarray(targets))
        rng = np.random.default_rng(7)
        f, weight = rng.normal(size=targets.shape), rng.uniform(0.1, 2.0, size=len(targets))
        _check_costs(loss, *map(jnp.asarray, (f, targets, weight)))
        value, steps = jax.jit(jax.vmap(loss, (0, None, None))), 1e-5 * np.eye(f.size).reshape(f.size, *f.shape)
        differences = (value(f + steps, targets, weight) - value(f - steps, targets, weight)) / 2e-5
        found = loss.slope(*map(jnp.asarray, (f, targets, weight)))
        close(found, differences.reshape(f.shape), 1e-6, 1e-9, "slope is not the derivative of the loss")
        single = jnp.asarray(f, jnp.float32), jnp.asarray(targets, jnp.float32)
        assert loss(*single).dtype == loss.slope(*single).dtype == jnp.float32, "float32 must stay float32."
        assert hash(loss) == hash(loss), "A loss can be hashed: make its parameters static fields."
        assert not jax.tree.leaves(loss), "A loss has no leaves: make its parameters static fields."


def _check_costs(loss: Loss, outputs: Array, targets: Array, weights: Array) -> None:
    """Check that the loss is a sum or mean over samples."""
    cost, n = loss.cost(outputs, targets), len(targets)
    assert cost.shape == (n,), f"cost must give one number for each of {n} samples, not shape {cost.shape}."
    total = cost.sum() if loss.reduction == "sum" else cost.mean()
    close(loss(outputs, targets), total, 1e-12, 0.0, f"The loss is not the {loss.reduction} of the costs")
    weighted = weights @ cost / (1 if loss.reduction == "sum" else weights.sum())
    close(loss(outputs, targets, weights), weighted, 1e-12, 0.0, "The weighted loss is not that of the costs")
    backwards = loss.cost(outputs[::-1], targets[::-1])[::-1]
    close(backwards, cost, 1e-12, 1e-15, "The cost of a sample depends on the order of samples")
    none = weights.at[0].set(0.0)
    assert np.all(loss.slope(outputs, targets, none)[0] == 0), "A sample of weight 0 must have slope 0."


def check_data(make: Callable[..., Any], **options: Any) -> None:
    """Check that a function makes the same data for the same key, in one floating-point dtype, without NaN.

    Parameters
    ----------
    make
        A function that returns a `Dataset`, a tuple ``(x, y[, x_test, y_test])`` or a dictionary of arrays.
    options
        Its options, chosen such that it is fast; a ``key`` is added if it takes one.
    """
    takes_key = "key" in inspect.signature(make).parameters

    def made(seed: int) -> Dataset:
        key = {"key": jax.random.key(seed)} if takes_key else {}
        return as_dataset(make(**options, **key), name=getattr(make, "__name__", "data"))

    data, again = made(1), made(1)
    data.check()
    dtypes = {leaf.dtype for leaf in jax.tree.leaves(data)}
    assert dtypes == {jnp.dtype(jnp.result_type(float))}, f"Data are in the default precision, not {dtypes}."
    assert data.name, "A data set has a name."
    assert _same(data, again), "The same key and options must give the same bits."
    if takes_key:
        differs = not _same(data, made(2))
        assert differs or "files_read" in vars(make), "Another key must give other data: otherwise take no key."


def _same(one: Any, other: Any) -> bool:
    """Whether two trees have the same leaves, bit for bit."""
    return all(map(np.array_equal, *map(jax.tree.leaves, (one, other))))


def check_law(law: Law, columns: int = 3, rows: int = 64) -> None:
    """Check that a law draws matrices of any precision, the same for the same key, with the mean that it states.

    Parameters
    ----------
    law
        An instance that can be drawn.
    columns, rows
        Numbers of columns and rows of the matrix.
    """
    drawn, again = (law.draw(rows, columns, columns, key=jax.random.key(3)) for _ in range(2))
    assert drawn.shape == (rows, columns), f"A draw of {rows} rows and {columns} columns has shape {drawn.shape}."
    assert np.all(np.isfinite(drawn)), "A draw is not finite."
    assert np.array_equal(drawn, again), "The same key must give the same rows."
    means = law.column_means(columns, columns)
    if means is not None:
        assert np.shape(means) == (columns,), "column_means gives one mean for each column."
        spread = np.asarray(drawn).std(axis=0) / math.sqrt(rows)
        apart = np.abs(np.asarray(drawn).mean(axis=0) - means)
        assert np.all(apart <= 6 * spread + 1e-6), f"The means of a draw are {apart} away from column_means."


def check_scaling(scaling: Scaling) -> None:
    """Check that a scaling gives positive node scales at every width, and finite factors.

    Parameters
    ----------
    scaling
        The scaling.
    """
    for width in (1, 2, 16, 1024):
        nodes = np.asarray(scaling.nodes(width))
        assert nodes.shape == (width,), f"nodes({width}) gives one scale for each neuron, not shape {nodes.shape}."
        assert np.all((nodes >= 0) & (nodes < np.inf)), f"Node scales at width {width} are finite and >= 0."
        assert np.any(nodes > 0), f"At width {width} all node scales are 0."
    for features in (1.0, 10.0):
        for factor in (scaling.movement(features), scaling.spread(features)):
            assert 0 < factor < math.inf, f"A factor at {features:g} features is {factor}."
    assert hash(scaling) == hash(scaling), "A scaling can be hashed: make its parameters static fields."


def check_embedding(embedding: Embedding, inputs: int = 16) -> None:
    """Check that an embedding's kernel is that of its features, or positive semi-definite if it has no features.

    Parameters
    ----------
    embedding
        The embedding before its random weights are drawn.
    inputs
        Input dimension.
    """
    with jax.enable_x64(True):
        x = jax.random.normal(jax.random.key(0), (5, inputs))
        drawn = embedding.draw(inputs, Tanh(), key=jax.random.key(1))
        again = embedding.draw(inputs, Tanh(), key=jax.random.key(1))
        gram = np.asarray(drawn.kernel(x, x))
        assert gram.shape == (5, 5), f"kernel(x, x) of five points has shape {gram.shape}."
        close(gram, gram.T, 1e-10, 1e-12, "kernel(x, x) is not symmetric")
        close(again.kernel(x, x), gram, 0.0, 0.0, "Two draws with one key differ")
        close(drawn.kernel(x, x[:2]), gram[:, :2], 1e-10, 1e-12, "kernel(x, z) is not part of kernel(x, x)")
        smallest = np.linalg.eigvalsh(gram).min()
        assert smallest >= -1e-9 * np.abs(gram).max(), f"kernel(x, x) has the negative eigenvalue {smallest:g}."
        size = drawn.size(inputs)
        if math.isfinite(size):
            features = np.asarray(drawn(x))
            shape = features.shape
            assert shape == (5, size), f"Features of five points have shape {shape}, not (5, {size:g})."
            close(gram, features @ features.T / size, 1e-8, 1e-10, "The kernel is not that of the features")


def check_optimiser(optimiser: Optimiser) -> None:
    """Check that an optimiser descends: 500 small steps reduce a quadratic to less than a tenth.

    Parameters
    ----------
    optimiser
        The optimiser.
    """
    transform = optimiser.transform()
    assert isinstance(transform, optax.GradientTransformation), "transform gives a transformation of Optax."
    parameters = jnp.asarray([1.0, -2.0, 0.5])
    state, begun = transform.init(parameters), float(jnp.sum(parameters**2))
    for _ in range(500):
        updates, state = transform.update(2 * parameters, state, parameters)
        assert jax.tree.structure(updates) == jax.tree.structure(parameters), "Updates have the form of gradients."
        parameters = parameters - 0.01 * jnp.asarray(updates)
    ended = float(jnp.sum(parameters**2))
    assert ended < 0.1 * begun, f"500 steps of 0.01 on |x|² went from {begun:g} to {ended:g}: is the sign right?"
    assert eqx.tree_equal(optimiser, optimiser), "An optimiser equals itself."


def check_schedule(schedule: Schedule) -> None:
    """Check that a schedule gives finite factors >= 0, alone and for many steps at once, inside compiled code.

    Parameters
    ----------
    schedule
        The schedule.
    """
    steps = jnp.arange(200)
    together = np.asarray(eqx.filter_jit(schedule)(steps), float)
    assert together.shape == (200,), f"200 steps give {together.shape} factors."
    assert np.all((together >= 0) & (together < np.inf)), "Factors are finite and >= 0."
    alone = [float(schedule(jnp.asarray(step))) for step in (0, 1, 199)]
    close(alone, together[np.array([0, 1, 199])], 1e-6, 1e-12, "One step at a time gives other factors")
    assert eqx.tree_equal(schedule, schedule), "A schedule equals itself."


def check_flow(flow: Flow, network: Network, data: Dataset, end: float = 2.0, tolerance: float = 1e-5) -> None:
    """Check that a flow starts at the identity, continues bit for bit, and is the same with the same seed.

    Parameters
    ----------
    flow
        The flow.
    network, data
        A small network and data that it fits.
    end
        A time that takes at least two steps.
    tolerance
        Largest relative difference between a run with an intermediate stop and one without.
    """
    still = flow(network, data, [0.0], [TrainLoss()])
    assert still.status is Status.finished, f"A run to t = 0 ended with: {still.status.value}"
    assert np.array_equal(_parameters(still.final), _parameters(still.start)), "A run to t = 0 moves parameters."
    close(still.final(data.x), network(data.x), 1e-6, 1e-9, "At t = 0 the network is not the one that was given")

    key = jax.random.key(5)
    whole = flow(network, data, [end / 2, end], [TrainLoss()], key=key)
    assert whole.status is Status.finished, f"The run ended with: {whole.status.value}"
    again = flow(network, data, [end / 2, end], [TrainLoss()], key=key)
    assert np.array_equal(_parameters(whole.final), _parameters(again.final)), "The same seed gives other bits."
    first = flow(network, data, [end / 2], [TrainLoss()], key=key)
    rest = flow.extend(first, [end], [TrainLoss()])
    continued = np.array_equal(_parameters(rest.final), _parameters(whole.final))
    assert continued, "A continued run differs from one without a stop."
    seen, wanted = rest.observed["train-loss"], whole.observed["train-loss"][1:]
    assert np.array_equal(seen, wanted), "Continuing a run changes what is observed."
    straight = flow(network, data, [end], key=key)
    what = "An intermediate observation changes where a run ends"
    close(_parameters(straight.final), _parameters(whole.final), tolerance, tolerance, what)


def _parameters(network: Network) -> np.ndarray:
    return np.concatenate([np.asarray(leaf).ravel() for leaf in jax.tree.leaves(split_trained(network)[0])])


_RATE, _END = 0.05, 0.2
Evaluate = Callable[[Observation], Any]


def check_probe(probe: Evaluate, network: Network, data: Dataset, loss: Loss | None = None) -> None:
    """Check that a probe gives the same values inside a flow and by hand, in every coordinate system.

    Parameters
    ----------
    probe
        The probe, or a plain function of an observation.
    network, data
        A small network on raw inputs and data that it fits.
    loss
        The loss to train on; squared error by default.
    """
    for coordinates, run in short_runs({"it": probe}, network, data, loss).items():
        inside_is_by_hand(run, coordinates)
        results_are_finite_floats(run, coordinates)
        works_under_vmap(probe, run)


def short_runs(
    probes: dict[str, Evaluate], network: Network, data: Dataset, loss: Loss | None = None
) -> dict[str, Trajectory]:
    """Train for a few steps in weights and, if possible, in Gram coordinates, both observed by the probes."""
    forms = ("weights",) if network.gram_form(data) is None else ("weights", "gram")
    flows = {form: Descent(loss or Squared(), rate=_RATE, coordinates=form) for form in forms}
    return {form: flow(network, data, [0.0, _END], probes) for form, flow in flows.items()}


def fits(probe: Evaluate, network: Network, data: Dataset) -> bool:
    """Whether a probe is defined for a network, that is, does not raise a `UserError`."""
    try:
        eqx.filter_eval_shape(lambda n, d: probe(Observation(n, n, d, Squared())), network.restore(), data)
    except UserError:
        return False
    return True


def inside_is_by_hand(run: Trajectory, where: str) -> None:
    """Check that probes give the same values inside the flow and by hand on the networks at both ends."""

    @eqx.filter_jit
    def observe(now: Network, start: Network, data: Dataset) -> dict[str, Any]:
        return {name: one(Observation(now, start, data, run.loss)) for name, one in run.probes.items()}

    for index, now in ((0, run.start), (-1, run.final)):
        by_hand = observe(now, run.start, run.data)
        for name in run.probes:
            inside = jax.tree.map(lambda values, i=index: values[i], run.observed[name])
            what = f"{name}, {where}: the value inside the flow differs from that by hand"
            assert jax.tree.structure(inside) == jax.tree.structure(by_hand[name]), what
            jax.tree.map(lambda one, other, what=what: close(one, other, 1e-6, 1e-8, what), inside, by_hand[name])


def results_are_finite_floats(run: Trajectory, where: str) -> None:
    """Check that observations are arrays of finite numbers in the precision of the run."""
    for name in run.probes:
        leaves = jax.tree.leaves(run.observed[name])
        assert leaves, f"{name}, {where}: the probe returns nothing."
        for leaf in leaves:
            assert leaf.dtype == run.data.y.dtype, f"{name}, {where}: {leaf.dtype} in a run in {run.data.y.dtype}."
            assert np.all(np.isfinite(leaf)), f"{name}, {where}: not all numbers are finite."


def works_under_vmap(probe: Evaluate, run: Trajectory) -> None:
    """Check that several runs can be observed at once."""
    arrays, rest = zip(*(eqx.partition(one, eqx.is_array) for one in (run.final, run.start)), strict=True)
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *arrays)

    def observe(some: Any) -> Any:
        return probe(Observation(eqx.combine(some, rest[0]), run.start, run.data, run.loss))

    together, what = eqx.filter_jit(jax.vmap(observe))(stacked), "Under vmap a probe gives other values"
    for index, one in enumerate(arrays):
        alone = eqx.filter_jit(observe)(one)
        jax.tree.map(lambda both, single, i=index: close(both[i], single, 1e-6, 1e-8, what), together, alone)
