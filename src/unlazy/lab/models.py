"""Models of several widths and seeds: made by a function of a user, checked, and trained all seeds together."""

from __future__ import annotations

import types
from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import numpy as np

from unlazy._errors import UserError, short
from unlazy._inputs import as_key
from unlazy._terminal import Progress
from unlazy._types import PRNGKey
from unlazy.data import Dataset
from unlazy.flows import Descent, Flow, Status, Trajectory
from unlazy.flows.driver import Probes, Times
from unlazy.networks import Network, TorchNetwork, Wrapped, split_trained, with_fields, wrap

Make = Callable[[int, PRNGKey], Any]
Flows = Flow | Callable[[int], Flow] | None

STEPS = 300  # of descent, where no horizon is given
HORIZON = 100.0  # of other flows


def checked_widths(widths: Sequence[int]) -> tuple[int, ...]:
    """Return widths as integers; raise an error unless they are positive and increase.

    Parameters
    ----------
    widths
        The widths.
    """
    example = "give increasing positive widths, such as [64, 128, 256, 512]."
    try:
        found = tuple(int(width) for width in widths)
    except (TypeError, ValueError):
        raise UserError(f"widths = {short(widths)}: {example}") from None
    if not found or min(found) < 1 or list(found) != sorted(set(found)):
        raise UserError(f"widths = {short(list(widths))}: {example}")
    return found


def make_models(
    make: Make, width: int, seeds: int, data: Dataset, flow: Flows, key: PRNGKey | int
) -> tuple[list[Network], Flow, Dataset]:
    """Make a model for each seed, and return them with the flow that trains them and the data in their precision.

    Parameters
    ----------
    make
        Function of a width and a key that returns a model, or a pair of a model and a flow.
    width, seeds
        The width, and the number of models.
    data
        The data that they are to be trained on.
    flow
        The flow, a function from the width to it, or None for descent at the rate 0.1.
    key
        Random key; the keys of seeds and widths are derived from it.
    """
    if not callable(make):
        raise UserError(
            f"make = {short(make)} is not a function: give a function make(width, key) that returns a model."
        )
    if not isinstance(data, Dataset):
        raise UserError(f"data is {short(data)}, not a data set: give unlazy.Dataset(x, y).")
    if seeds < 1:
        raise UserError(f"seeds = {seeds} is too small: choose at least 2, so that the spread over seeds is known.")
    data.check()
    models: list[Network] = []
    for seed in range(seeds):
        made = make(width, jax.random.fold_in(jax.random.fold_in(as_key(key), seed), width))
        if isinstance(made, tuple) and len(made) == 2 and isinstance(made[1], Flow):
            made, flow = made
        models.append(_network(made, f"make({width}, key)"))
    data = _fitting(models[0], data, f"make({width}, key)")
    chosen = Descent(rate=0.1) if flow is None else flow if isinstance(flow, Flow) else flow(width)
    if not isinstance(chosen, Flow):
        raise UserError(f"flow is {short(chosen)}, not a flow: give one such as unlazy.Descent(rate=0.1).")
    return _alike(models), chosen, data


def _network(made: Any, call: str) -> Network:
    if made is None:
        raise UserError(f"{call} returned nothing: end the function by `return model`.")
    try:
        network = made if isinstance(made, Network) else wrap(made)
    except UserError as error:
        raise UserError(f"What {call} returned cannot be diagnosed. {error}") from None
    if isinstance(network, TorchNetwork):
        raise UserError(
            f"{call} returned a PyTorch module, which is trained in a loop of your own: "
            "compare it before and after with diagnose(before, after, data)."
        )
    leaves = jax.tree.leaves(split_trained(network)[0])
    if not sum(leaf.size for leaf in leaves):
        raise UserError(f"{call} returned a model without trained parameters: there is nothing to diagnose.")
    if not all(np.isfinite(leaf).all() for leaf in leaves):
        raise UserError(f"{call} returned a model with parameters that are NaN or infinite: check how it is made.")
    return network


def _fitting(network: Network, data: Dataset, call: str) -> Dataset:
    """Return the data in the precision of the model; raise an error if its outputs are not finite numbers."""
    kinds = {leaf.dtype for leaf in jax.tree.leaves(split_trained(network)[0])}
    data = data.astype(kinds.pop()) if len(kinds) == 1 else data
    if not np.isfinite(np.asarray(network(data.x))).all():
        raise UserError(f"The model that {call} returned has outputs that are NaN or infinite before training.")
    return data


# ---------------------------------------------------------------- all seeds of a width in one compiled call


def _alike(models: list[Network]) -> list[Network]:
    """Give models of one width the same function where they differ only in having defined it again, as closures do."""
    first = models[0]
    if not isinstance(first, Wrapped):
        return models
    return [
        with_fields(one, form=first.form) if isinstance(one, Wrapped) and _same(one.form, first.form) else one
        for one in models
    ]


def _same(one: Any, other: Any, depth: int = 8) -> bool:
    """Whether two values are equal, functions of the same code with equal closures and defaults included."""
    if one is other:
        return True
    if type(one) is not type(other) or not depth:
        return False
    if isinstance(one, types.FunctionType):
        cells = [[cell.cell_contents for cell in function.__closure__ or ()] for function in (one, other)]
        rest = [(function.__defaults__, function.__kwdefaults__) for function in (one, other)]
        return (
            one.__code__ is other.__code__
            and _same(cells[0], cells[1], depth - 1)
            and _same(rest[0], rest[1], depth - 1)
        )
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(_same(a, b, depth - 1) for a, b in zip(one, other, strict=True))
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(_same(one[name], other[name], depth - 1) for name in one)
    if isinstance(one, jax.Array | np.ndarray):
        return one.dtype == other.dtype and np.array_equal(one, other)
    if hasattr(one, "__dataclass_fields__") and not isinstance(one, eqx.Module):
        return all(_same(getattr(one, name), getattr(other, name), depth - 1) for name in one.__dataclass_fields__)
    return bool(jax.tree.structure(one) == jax.tree.structure(other)) and _equal(one, other)


def _equal(one: Any, other: Any) -> bool:
    leaves = zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
    return all(np.array_equal(a, b) if eqx.is_array(a) else bool(a == b) for a, b in leaves)


def train(
    flow: Flow, models: Sequence[Network], data: Dataset, times: Times, probes: Probes, progress: Progress | None
) -> list[Trajectory]:
    """Train models of one width, together if they have one structure; raise KeyboardInterrupt if that was interrupted.

    Parameters
    ----------
    flow, data, times, probes
        As for a flow.
    models
        The models, one for each seed.
    progress
        Called with the fraction done and the time reached.
    """
    if len({jax.tree.structure(model) for model in models}) == 1:
        runs = flow.over_seeds(models, data, times, probes, progress=progress)
    else:
        runs = []
        for seed, model in enumerate(models):
            part = None if progress is None else _part(progress, seed, len(models))
            runs.append(flow(model, data, times, probes, key=seed, progress=part))
    if any(run.status is Status.interrupted for run in runs):
        raise KeyboardInterrupt
    return runs


def _part(progress: Progress, done: int, total: int) -> Progress:
    return lambda fraction, clock: progress((done + fraction) / total, clock)


def part_of(progress: Progress, done: float, total: float, clock: float) -> Progress:
    """Return what reports the progress of one of several parts of equal length as that of the whole.

    Parameters
    ----------
    progress
        Where the whole is reported.
    done, total
        Number of parts that are done, and of all.
    clock
        What is shown in place of the time, such as a width.
    """
    return lambda fraction, _: progress(min(1.0, (done + fraction) / total), clock)


def rate_of(flow: Flow) -> float | None:
    """Return the learning rate of descent; None for other flows.

    Parameters
    ----------
    flow
        The flow.
    """
    return float(flow.rate) if isinstance(flow, Descent) else None


def horizon(flow: Flow, until: float | None) -> float:
    """Return the time to train until: that given, or 300 steps of descent, or t = 100 for other flows.

    Parameters
    ----------
    flow
        The flow.
    until
        The time, or None.
    """
    rate = rate_of(flow)
    if until is None:
        return HORIZON if rate is None else STEPS * rate
    if not (np.isfinite(until) and until > 0):
        raise UserError(f"until = {until} is out of range: give a positive time, such as 300 steps times the rate.")
    return float(until)
