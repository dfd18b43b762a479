"""Models of several widths and seeds: made by a function of a user, checked, and trained all seeds together."""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import types
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np

from unlazy._errors import UserError, short
from unlazy._files import write_sealed
from unlazy._inputs import as_key
from unlazy._plain import read_sealed
from unlazy._terminal import Progress, bar
from unlazy._types import PRNGKey
from unlazy.data import Dataset
from unlazy.flows import Descent, Flow, Status, Trajectory
from unlazy.flows.driver import Probes, Times
from unlazy.lab.identity import RESULTS, Description, digest
from unlazy.networks import Network, Wrapped, split_trained, with_fields, wrap

Make = Callable[[int, PRNGKey], Any]
Flows = Flow | Callable[[int], Flow] | None

STEPS = 300  # of descent, where no horizon is given
HORIZON = 100.0  # of other flows
_OF_FUNCTION = ("__code__", "__closure__", "__defaults__", "__kwdefaults__")


def checked_widths(widths: Sequence[int]) -> tuple[int, ...]:
    """Return the widths; raise an error unless they are positive and increase."""
    if not widths or min(widths) < 1 or list(widths) != sorted(set(widths)):
        raise UserError(
            f"widths = {short(list(widths))}: give increasing positive widths, such as [64, 128, 256, 512]."
        )
    return tuple(widths)


def make_models(
    make: Make, width: int, seeds: int, data: Dataset, flow: Flows, key: PRNGKey | int
) -> tuple[list[Network], Flow, Dataset]:
    """Make a model for each seed, and return them with the flow that trains them and the data in their precision."""
    if seeds < 1:
        raise UserError(f"seeds = {seeds} is too small: choose at least 2, so that the spread over seeds is known.")
    data.check()
    _check_call(make)
    models, call = [], f"make({width}, key)"
    for seed in range(seeds):
        one = jax.random.fold_in(jax.random.fold_in(as_key(key), seed), width)
        try:
            made = make(width, one)
        except UserError:
            raise
        except Exception as error:
            said = f"{type(error).__name__}: {' '.join(str(error).split())}"
            raise UserError(f"{call} failed ({said}): call it alone to see where.") from error
        if isinstance(made, tuple) and len(made) == 2 and isinstance(made[1], Flow):
            made, flow = made
        models.append(_network(made, call))
    precisions = {leaf.dtype for leaf in jax.tree.leaves(split_trained(models[0])[0])}
    data = data.astype(precisions.pop()) if len(precisions) == 1 else data
    if not np.isfinite(np.asarray(models[0](data.x))).all():
        raise UserError(f"The model that {call} returned has outputs that are NaN or infinite before training.")
    chosen = Descent(rate=0.1) if flow is None else flow if isinstance(flow, Flow) else flow(width)
    if not isinstance(chosen, Flow):
        raise UserError(f"flow is {short(chosen)}, not a flow: give one such as unlazy.Descent(rate=0.1).")
    return _alike(models), chosen, data


def _check_call(make: Make) -> None:
    """Raise an error if a function cannot be called with a width and a key."""
    try:
        signature = inspect.signature(make)
    except (TypeError, ValueError):  # some callables have none
        return
    try:
        signature.bind(64, jax.random.key(0))
    except TypeError as error:
        name = getattr(make, "__name__", type(make).__name__)
        what = f"{name}{signature} cannot be called as make(width, key) ({error})"
        raise UserError(f"{what}: give a function of a width and a key.") from None


def wrapped(model: Any, what: str) -> Network:
    """Return a network, or wrap another model as one; ``what`` names it in an error message."""
    try:
        return model if isinstance(model, Network) else wrap(model)
    except UserError as error:
        raise UserError(f"{what} cannot be diagnosed. {error}") from None


def _network(made: Any, call: str) -> Network:
    if made is None:
        raise UserError(f"{call} returned nothing: end the function by `return model`.")
    network = wrapped(made, f"What {call} returned")
    if not network.traceable:
        advice = "compare it before and after with diagnose(before, after, data)"
        raise UserError(f"{call} returned a PyTorch module, which is trained in a loop of your own: {advice}.")
    leaves = jax.tree.leaves(split_trained(network)[0])
    if not sum(leaf.size for leaf in leaves):
        raise UserError(f"{call} returned a model without trained parameters: there is nothing to diagnose.")
    if not all(np.isfinite(leaf).all() for leaf in leaves):
        raise UserError(f"{call} returned a model with parameters that are NaN or infinite: check how it is made.")
    return network


# ---------------------------------------------------------------- one width after another


class Measured(NamedTuple):
    """What was measured at each width."""

    rows: list[Any]  # of each width that was finished
    model: str  # its name
    flow: Flow  # at the first width
    interrupted: str  # what to tell the user about an interruption; empty if there was none


def over_widths(
    measure: Callable[[list[Network], Any, Dataset, Progress], Any],
    make: Make,
    data: Dataset,
    widths: Sequence[int],
    flow: Flows,
    seeds: int,
    key: PRNGKey | int,
    progress: Progress | None,
    saved: Path | str | None,
    *settings: Any,
) -> Measured:
    """Make and measure the models of each width; Ctrl-C ends it after the widths that are finished.

    ``measure`` takes the models of one width, their flow, the data in their precision and a listener to progress; it
    returns plain numbers, lists and dictionaries. The next arguments are those of `diagnose_widths`. From the file
    ``saved`` a later call takes what was measured with the same function (the source of its package included),
    parameters, flow, data, and ``settings``, which are whatever else the measurements depend on.
    """
    path, known, marks = None if saved is None else Path(saved), {}, []
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(OSError, ValueError):  # missing or damaged: nothing is known
            known, _ = read_sealed(path)
    rows, name, first = [], "", None
    with bar(progress, "width ") as report:
        for place, width in enumerate(widths):
            try:
                networks, chosen, samples = make_models(make, width, seeds, data, flow, key)
                if first is None:
                    name, first = getattr(networks[0], "name", type(networks[0]).__name__), chosen
                marks.append("" if path is None else _mark(make, networks, chosen, samples, settings))
                row = known.get(marks[-1])
                if row is None:
                    row = measure(networks, chosen, samples, part_of(report, place, len(widths), width))
            except KeyboardInterrupt:
                said = _interrupted(widths, place, path)
                if not rows or first is None:
                    raise KeyboardInterrupt(said) from None
                return Measured(rows, name, first, said)
            rows.append(row)
            if path is not None:
                write_sealed(path, dict(zip(marks, rows, strict=True)))
            report((place + 1) / len(widths), width)
    if path is not None:
        path.unlink(missing_ok=True)
    assert first is not None
    return Measured(rows, name, first, "")


def _interrupted(widths: Sequence[int], place: int, path: Path | None) -> str:
    done = ", ".join(str(width) for width in widths[:place])
    if not done or path is None:
        return f"Interrupted at width {widths[place]}" + ("." if done else ": nothing was finished.")
    return (
        f"Interrupted at width {widths[place]}. The measurements at {done} are saved in '{path}', and the same command "
        "continues from there."
    )


def _mark(make: Make, networks: list[Network], flow: Flow, data: Dataset, settings: tuple[Any, ...]) -> str:
    """Return a digest of everything that the measurements at one width depend on."""
    described = Description()
    arrays = [leaf for leaf in jax.tree.leaves(networks) if eqx.is_array(leaf)]
    rates = jax.tree.leaves([network.rates() for network in networks])
    values = described.value([make, arrays, rates, flow, data, *settings])
    return digest([RESULTS, values, described.sources()])


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
    if isinstance(one, types.CellType):
        return _same(one.cell_contents, other.cell_contents, depth)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(_same(one[name], other[name], depth - 1) for name in one)
    if isinstance(one, types.FunctionType):
        one, other = ([getattr(function, name) for name in _OF_FUNCTION] for function in (one, other))
    elif dataclasses.is_dataclass(one) and not isinstance(one, eqx.Module):
        one, other = ([getattr(each, part.name) for part in dataclasses.fields(each)] for each in (one, other))
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(_same(a, b, depth - 1) for a, b in zip(one, other, strict=True))
    return bool(eqx.tree_equal(one, other))


def train(
    flow: Flow, models: Sequence[Network], data: Dataset, times: Times, probes: Probes, progress: Progress | None
) -> list[Trajectory]:
    """Train models of one width, together if they have one structure; raise KeyboardInterrupt after Ctrl-C."""
    if len({jax.tree.structure(model) for model in models}) == 1:
        runs = flow.over_seeds(models, data, times, probes, progress=progress)
    else:
        runs = []
        for seed, model in enumerate(models):
            part = None if progress is None else part_of(progress, seed, len(models))
            runs.append(flow(model, data, times, probes, key=seed, progress=part))
    if any(run.status is Status.interrupted for run in runs):
        raise KeyboardInterrupt
    return runs


def part_of(progress: Progress, done: int, total: int, shown: float | None = None) -> Progress:
    """Report the progress of one of several parts of equal length as that of the whole; ``shown`` replaces the time."""
    return lambda fraction, time: progress(min(1.0, (done + fraction) / total), time if shown is None else shown)


def rms(values: Any) -> float:
    """Return the root mean square of all entries."""
    return float(np.sqrt(np.mean(np.square(np.asarray(values, float)))))


def rate_of(flow: Flow) -> float | None:
    """Return the learning rate of descent; None for other flows."""
    return float(flow.rate) if isinstance(flow, Descent) else None


def horizon(flow: Flow, until: float | None) -> float:
    """Return the time to train until: that given, or 300 steps of descent, or t = 100 for other flows."""
    rate = rate_of(flow)
    if until is None:
        return HORIZON if rate is None else STEPS * rate
    if not (np.isfinite(until) and until > 0):
        raise UserError(f"until = {until} is out of range: give a positive time, such as 300 steps times the rate.")
    return float(until)
