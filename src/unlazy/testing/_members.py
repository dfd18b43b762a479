"""Checks for losses, data sets, laws, scalings, embeddings, optimisers and schedules."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

from unlazy.activations import Tanh
from unlazy.data import Dataset, as_dataset
from unlazy.flows import Optimiser, Schedule
from unlazy.losses import Loss
from unlazy.networks import Embedding, Law, Scaling
from unlazy.testing._close import close


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
        _loss_is_a_sum_over_samples(loss, f, targets, weight)
        _loss_slope(loss, f, targets, weight)
        single = jnp.asarray(f, jnp.float32), jnp.asarray(targets, jnp.float32)
        assert loss(*single).dtype == loss.slope(*single).dtype == jnp.float32, "float32 must stay float32."
        assert hash(loss) == hash(loss), "A loss can be hashed: make its parameters static fields."
        assert not jax.tree.leaves(loss), "A loss has no leaves: make its parameters static fields."


def _loss_is_a_sum_over_samples(loss: Loss, f: np.ndarray, y: np.ndarray, weight: np.ndarray) -> None:
    outputs, targets, weights = jnp.asarray(f), jnp.asarray(y), jnp.asarray(weight)
    cost = loss.cost(outputs, targets)
    assert cost.shape == (len(y),), f"cost must give one number for each of {len(y)} samples, not shape {cost.shape}."
    total = cost.sum() if loss.reduction == "sum" else cost.mean()
    close(loss(outputs, targets), total, 1e-12, 0.0, f"The loss is not the {loss.reduction} of the costs")
    weighted = weights @ cost / (1 if loss.reduction == "sum" else weights.sum())
    close(loss(outputs, targets, weights), weighted, 1e-12, 0.0, "The weighted loss is not that of the costs")
    backwards = loss.cost(outputs[::-1], targets[::-1])[::-1]
    close(backwards, cost, 1e-12, 1e-15, "The cost of a sample depends on the order of samples")
    none = weights.at[0].set(0.0)
    assert np.all(loss.slope(outputs, targets, none)[0] == 0), "A sample of weight 0 must have slope 0."


def _loss_slope(loss: Loss, f: np.ndarray, y: np.ndarray, weight: np.ndarray) -> None:
    value, step, differences = jax.jit(loss), 1e-5, np.zeros_like(f)
    for index in np.ndindex(f.shape):
        up, down = f.copy(), f.copy()
        up[index] += step
        down[index] -= step
        differences[index] = (value(up, y, weight) - value(down, y, weight)) / (2 * step)
    found = loss.slope(jnp.asarray(f), jnp.asarray(y), jnp.asarray(weight))
    close(found, differences, 1e-6, 1e-9, "slope is not the derivative of the loss")


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
    for one, other in zip(jax.tree.leaves(data), jax.tree.leaves(again), strict=True):
        assert np.array_equal(one, other), "The same key and options must give the same bits."
    if takes_key:
        others = zip(jax.tree.leaves(data), jax.tree.leaves(made(2)), strict=True)
        differs = any(not np.array_equal(one, other) for one, other in others)
        assert differs or "files_read" in vars(make), "Another key must give other data, or leave the argument out."


def check_law(law: Law, columns: int = 3, rows: int = 64) -> None:
    """Check that a law draws matrices of any precision, the same for the same key, with the mean that it states.

    Parameters
    ----------
    law
        An instance that can be drawn.
    columns
        Number of columns of the matrix.
    rows
        Number of rows of the matrix.
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
        assert np.any(nodes > 0), f"At width {width} no neuron counts."
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
            assert features.shape == (5, size), (
                f"Features of five points have shape {features.shape}, not (5, {size:g})."
            )
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
    assert hash(optimiser) == hash(optimiser), "An optimiser can be hashed: make its parameters static fields."


def check_schedule(schedule: Schedule) -> None:
    """Check that a schedule gives finite factors >= 0, alone and for many steps at once, inside compiled code.

    Parameters
    ----------
    schedule
        The schedule.
    """
    steps = jnp.arange(200)
    together = np.asarray(jax.jit(schedule)(steps), float)
    assert together.shape == (200,), f"200 steps give {together.shape} factors."
    assert np.all((together >= 0) & (together < np.inf)), "Factors are finite and >= 0."
    alone = [float(schedule(jnp.asarray(step))) for step in (0, 1, 199)]
    close(alone, together[np.array([0, 1, 199])], 1e-6, 1e-12, "One step at a time gives other factors")
    assert eqx.tree_equal(schedule, schedule), "A schedule equals itself."
