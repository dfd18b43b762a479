"""Dry runs: what of a sweep is stored, and about how much time and memory the rest takes.

One gradient of the network is compiled and timed on zeros for each shape, that is, for recipes that differ only in
seeds and in numbers with a decimal point. If there are too many shapes for that, it is scaled by the number of
parameters times the number of samples, or taken from the others. If there are stored runs of the same shape, times come
from these.
"""

from __future__ import annotations

import contextlib
import functools
import json
import time
import timeit
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import psutil

from unlazy._errors import UserError
from unlazy._netcdf import read_attributes
from unlazy._plain import parse_json
from unlazy.lab.identity import identify
from unlazy.lab.models import rate_of
from unlazy.lab.recipe import Recipe, draw_data, parse
from unlazy.lab.sections import build
from unlazy.lab.stored import newest
from unlazy.lab.sweep import Point
from unlazy.lab.tasks import without_numbers
from unlazy.lab.work import plan

if TYPE_CHECKING:
    from unlazy.lab.runner import Lab

_BUDGET = 2.0  # seconds of computing for the shapes of networks, twice, and for compiling and timing gradients
_MOST_FILES = 200  # stored runs that are read, the newest ones
_GUESS = 500  # gradients of a flow with error control, if there is no stored run
_MOST_TIMED = 1000  # gradients
_COMPILED = 5.0  # gradients that take as long to compile as a run: 4 to 7 for runs with one to three probes
_LARGE = 2e9  # bytes above which a gradient is not timed
_ENOUGH = 0.05  # seconds of timing


class Row(NamedTuple):
    """One run of a dry run; time and memory are estimates: zero for a stored run, None where there is none."""

    point: Point
    state: str  # "stored", "in part" (some seeds, times or probes are missing) or "new"
    seconds: float | None
    memory: float | None  # bytes


class Preview(NamedTuple):
    """What a sweep would do."""

    rows: list[Row]
    basis: list[str]  # what the estimates rest on, in sentences
    compiling: float  # estimated seconds for compiling all shapes once
    process: float  # bytes that a process takes besides: those of this one, with all libraries loaded

    def count(self, state: str) -> int:
        """Return the number of runs that are ``"stored"``, ``"in part"`` or ``"new"``."""
        return sum(row.state == state for row in self.rows)

    @property
    def seconds(self) -> float | None:
        """The estimated time of all runs in one process; None if a run cannot be estimated."""
        each = [row.seconds for row in self.rows]
        return None if None in each else sum(one for one in each if one is not None) + self.compiling

    @property
    def memory(self) -> float | None:
        """The estimated memory of the largest run; None if there is none that can be estimated."""
        return max((row.memory for row in self.rows if row.memory), default=None)


class Cost(NamedTuple):
    """What one gradient of one seed costs, and how long a run of this shape is compiled."""

    seconds: float
    memory: float
    compiling: float
    size: float  # parameters times samples


class Known(NamedTuple):
    """What a stored run took: seconds for each seed, its share of compiling included, and gradients."""

    seconds: float
    gradients: float
    steps: float | None  # gradients of descent, which its recipe tells; None for flows that choose their own steps

    def expected(self, cost: Cost | None, steps: float | None) -> float:
        """Return the seconds of one seed, without compiling if that is known, of a run with this number of steps."""
        ratio = 1.0 if steps is None or self.steps is None else steps / self.steps
        if cost is None:
            return self.seconds * ratio
        # Runs that shared a call shared the time of compiling: what is left then is at least that of the gradients.
        return min(self.seconds, max(self.seconds - cost.compiling, self.gradients * cost.seconds)) * ratio


def state_of(lab: Lab, recipe: Recipe) -> tuple[str, int]:
    """Return how much of a recipe is stored (``"stored"``, ``"in part"`` or ``"new"``), and how many seeds are not."""
    if lab.fresh:
        return "new", recipe.seeds
    identity = identify(recipe)
    kinds = [plan(lab.store.tracks(one), identity).kind for one in identity.trajectories.values()]
    state = {"complete": "stored", "begin": "new"}.get(kinds[0], "in part") if len(set(kinds)) == 1 else "in part"
    return state, sum(kind != "complete" for kind in kinds)


def preview(lab: Lab, points: Sequence[Point]) -> Preview:
    """Say what a sweep would compute, and estimate time and memory."""
    states = [state_of(lab, point.recipe) for point in points]
    shapes = [shape_of(point.recipe) for point in points]
    needed = {shape: point.recipe for point, (_, seeds), shape in zip(points, states, shapes, strict=True) if seeds}
    known, gradients = _stored(lab, needed)
    costs = _costs(needed)
    rows, guessed = [], False
    for point, (state, seeds), shape in zip(points, states, shapes, strict=True):
        steps, cost = _steps(point.recipe), costs.get(shape)
        memory = None if cost is None else seeds * cost.memory
        if not seeds:
            rows.append(Row(point, state, 0.0, 0.0))
        elif shape in known:
            rows.append(Row(point, state, seeds * known[shape].expected(cost, steps), memory))
        elif cost is not None:
            guessed |= steps is None
            rows.append(Row(point, state, seeds * cost.seconds * (steps if steps is not None else gradients), memory))
        else:
            rows.append(Row(point, state, None, None))
    basis = []
    if known:
        basis.append("Times come from stored runs of the same shape.")
    if set(costs) - set(known):
        basis.append("Times come from gradients on zeros and the number of gradients, memory from compiled gradients.")
    if guessed:
        basis.append(f"Flows with error control are taken to need {gradients:g} gradients.")
    if any(row.seconds is None for row in rows):
        basis.append("Some networks cannot be estimated.")
    compiling = sum(one.compiling for one in costs.values())
    return Preview(rows, basis, compiling, float(psutil.Process().memory_info().rss))


def shape_of(recipe: Recipe) -> str:
    """Return text that is equal for recipes whose arrays have the same shapes, as far as their tables tell."""
    return without_numbers({name: getattr(recipe, name) for name in ("data", "network", "flow", "dtype")})


def _steps(recipe: Recipe) -> float | None:
    """Return the number of gradients of descent; None for flows that choose their own steps."""
    rate = _rate(json.dumps(recipe.flow, default=str))
    return None if rate is None else max(1.0, float(recipe.grid()[-1]) / rate)


@functools.lru_cache(1024)
def _rate(flow: str) -> float | None:
    """Return the learning rate of a flow, which is given as JSON; None if it has none or cannot be made."""
    with contextlib.suppress(UserError):
        return rate_of(build(json.loads(flow), "flow", "flow"))
    return None


def _stored(lab: Lab, needed: Mapping[str, Recipe]) -> tuple[dict[str, Known], float]:
    """Return what a stored run of each shape took, and the usual number of gradients where a flow chooses its steps."""
    found: dict[str, list[Known]] = {}
    counts: list[float] = []
    kinds = {json.dumps(one.flow, default=str).partition(",")[0] for one in needed.values()}
    for path in newest(lab.store.folder, _MOST_FILES) if needed else ():
        with contextlib.suppress(OSError, KeyError, ValueError, TypeError, RuntimeError):
            stored = read_attributes(path, ("recipe", "seconds", "evaluations"))
            text, seconds, evaluations = (stored[name] for name in ("recipe", "seconds", "evaluations"))
            recipe, count = parse(parse_json(text)), float(np.mean(evaluations))
            shape, steps = shape_of(recipe), _steps(recipe)
            if shape in needed:
                found.setdefault(shape, []).append(Known(float(np.max(seconds)) / recipe.seeds, count, steps))
            if steps is None and json.dumps(recipe.flow, default=str).partition(",")[0] in kinds:
                counts.append(count)
    usual = {shape: sorted(some)[len(some) // 2] for shape, some in found.items()}
    return usual, float(np.median(counts or [_GUESS]))


def _costs(shapes: Mapping[str, Recipe]) -> dict[str, Cost]:
    """Return the cost of a gradient for each shape."""
    abstract: dict[str, tuple[Any, Any, float]] = {}
    rest = list(shapes)  # those for which there is no time
    begun = time.process_time()  # other work on the machine must not make the estimate worse
    while rest and (len(rest) == len(shapes) or time.process_time() - begun < 2 * _BUDGET):
        shape = rest.pop(0)
        with contextlib.suppress(Exception):  # of a user's own network, say one that computes with NumPy
            abstract[shape] = _abstract(shapes[shape])
    # From both ends, so that what is not measured lies between two that are.
    order = sorted(abstract, key=lambda shape: abstract[shape][2])
    order = [order[place // 2 if place % 2 == 0 else -1 - place // 2] for place in range(len(order))]
    costs: dict[str, Cost] = {}
    for shape in order:
        if costs and time.process_time() - begun > 3 * _BUDGET:
            break
        with contextlib.suppress(Exception):
            costs[shape] = _measured(*abstract[shape])
    measured = list(costs.values())
    for shape in order if measured else ():
        if shape not in costs:
            size = abstract[shape][2]
            near = min(measured, key=lambda one: abs(np.log(one.size / size)))
            ratio = size / near.size
            costs[shape] = Cost(near.seconds * ratio, near.memory * ratio, near.compiling, size)
    if costs:
        costs |= dict.fromkeys(rest, sorted(costs.values())[len(costs) // 2])
    return costs


def _abstract(recipe: Recipe) -> tuple[Any, Any, float]:
    """Return network and inputs of a recipe as shapes, and the number of parameters times that of samples."""
    with jax.enable_x64(True):
        (data,) = draw_data(recipe, [recipe.seed])
        shape = {"inputs": data.inputs, "outputs": data.outputs, "image": data.x.shape[1:]}
        network = eqx.filter_eval_shape(
            lambda key: build(recipe.network, "network", "network", key=key, **shape), jax.random.key(0)
        )
        cast = lambda one: jax.ShapeDtypeStruct(one.shape, recipe.dtype) if _is_float(one) else one  # noqa: E731
        network = jax.tree.map(cast, network)
    count = sum(leaf.size for leaf in jax.tree.leaves(network) if _is_float(leaf))
    return network, jax.ShapeDtypeStruct(data.x.shape, data.x.dtype), float(max(count, 1)) * data.n


def _is_float(leaf: Any) -> bool:
    return isinstance(leaf, jax.ShapeDtypeStruct) and jnp.issubdtype(leaf.dtype, jnp.inexact)


def _measured(network: Any, x: Any, size: float) -> Cost:
    """Compile steps along the gradient of the sum of squared outputs, and time them on zeros unless they are large."""
    with jax.enable_x64(True):
        trained, rest = eqx.partition(network, _is_float)
        arrays, static = eqx.partition(rest, lambda leaf: isinstance(leaf, jax.ShapeDtypeStruct))

        def total(trained: Any, arrays: Any, x: Any) -> Any:
            return jnp.sum(eqx.combine(trained, arrays, static)(x) ** 2)

        def steps(count: Any, trained: Any, arrays: Any, x: Any) -> Any:
            def step(_: Any, now: Any) -> Any:
                return jax.tree.map(lambda leaf, slope: leaf - slope, now, jax.grad(total)(now, arrays, x))

            return jax.lax.fori_loop(0, count, step, trained)

        begun = time.perf_counter()
        compiled = jax.jit(steps).lower(jax.ShapeDtypeStruct((), jnp.int32), trained, arrays, x).compile()
        compiling, analysis = time.perf_counter() - begun, compiled.memory_analysis()
        sizes = (getattr(analysis, f"{part}_size_in_bytes", 0) for part in ("argument", "output", "temp"))
        memory = float(sum(sizes))  # zero if there is no analysis on this device
        if memory > _LARGE:
            raise MemoryError
        given = jax.tree.map(_zeros, (trained, arrays, x))

        def seconds(count: int) -> float:
            call = functools.partial(compiled, jnp.int32(count), *given)
            # The shortest of three, as other work on the machine only makes it longer.
            return min(timeit.repeat(lambda: jax.block_until_ready(call()), number=1, repeat=3))

        # Many steps in one call, as in a run: a call of its own for each takes longer than a small gradient.
        count = max(1, min(_MOST_TIMED, int(_ENOUGH / seconds(1))))
        return Cost(seconds(count) / count, memory, _COMPILED * compiling, size)


def _zeros(shape: Any) -> Any:
    key = jnp.issubdtype(shape.dtype, jax.dtypes.prng_key)
    return jax.random.key(0) if key and not shape.shape else jnp.zeros(shape.shape, shape.dtype)
