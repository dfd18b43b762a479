"""The regime of a model of your own: lazy, learning features, condensed, unstable or trivial.

`diagnose` trains a model at several widths, observes it, and fits powers of the width to what it observes;
`unlazy.lab.answers` has the rules by which they are judged. The quantities are

- **kernel drift** ‖Θ_T - Θ_0‖ / ‖Θ_0‖ of the tangent kernel, in Frobenius norm;
- **feature change** |h_T - h_0| / |h_0| of every layer's pre-activations (root mean squares);
- **linearisation error** |f_T - f_lin,T| / |f_T - f_0|, where f_lin is the model linearised at its start and trained in
  the same way;
- **output change** |f_T - f_0|, and the changes of outputs and layers in the first step;
- **condensation**: the fraction of pairs of a layer's neurons with |cos| > 0.95 between their input weights.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, overload

import equinox as eqx
import jax
import numpy as np

from unlazy._checked import checked
from unlazy._errors import UserError
from unlazy._slopes import fit_slope
from unlazy._terminal import Progress
from unlazy._types import PRNGKey
from unlazy.data import DataLike, Dataset, as_dataset
from unlazy.flows import Flow, Trajectory
from unlazy.flows.trajectory import flat
from unlazy.lab.answers import Diagnosis, judged, judged_once
from unlazy.lab.models import Flows, Make, checked_widths, horizon, over_widths, part_of, rate_of, rms, train, wrapped
from unlazy.losses import Squared
from unlazy.networks import Network, TangentModel, layers_on, split_trained
from unlazy.probes import KernelMatrix, LayerSizes, Observation, layers_of, near_pairs, training_kernel

_EARLY = 1  # steps of descent after which models are compared at first: after several, changes approach the error
_FRACTION = 1e-3  # of the horizon, in place of steps, for flows that choose their steps
_OF_OUTPUTS = ("initial outputs", "first output change", "output change", "kernel drift", "linearisation error")
_SAMPLES = 32  # training inputs on which tangent kernels are compared


@overload
def diagnose(
    make: Make,
    data: DataLike,
    widths: Sequence[int] = ...,
    /,
    *,
    flow: Flows = None,
    until: float | None = None,
    seeds: int = 3,
    key: PRNGKey | int = 0,
    progress: Progress | None = None,
    saved: Path | str | None = None,
) -> Diagnosis: ...
@overload
def diagnose(before: Any, after: Any, data: DataLike, /) -> Diagnosis: ...
def diagnose(*given: Any, **options: Any) -> Diagnosis:
    """Find the regime of a model, by training it at several widths or from two checkpoints.

    ``diagnose(make, data, widths, *, flow, until, seeds, key, progress, saved)`` trains the model that ``make(width,
    key)`` returns; see `diagnose_widths` for the arguments. ``diagnose(before, after, data)`` compares the model before
    and after a training of your own; see `diagnose_checkpoints`.

    Parameters
    ----------
    *given
        A function ``make``, a data set and widths; or two models and a data set.
    **options
        The options of `diagnose_widths`.
    """
    third = given[2] if len(given) == 3 else None
    arrays = isinstance(third, tuple) and any(map(np.ndim, third))  # in contrast to widths
    if arrays or isinstance(third, Dataset | Mapping):
        return diagnose_checkpoints(*given, **options)
    return diagnose_widths(*given, **options)


@checked
def diagnose_widths(
    make: Make,
    data: DataLike,
    widths: Sequence[int] = (64, 128, 256, 512),
    *,
    flow: Flows = None,
    until: float | None = None,
    seeds: int = 3,
    key: PRNGKey | int = 0,
    progress: Progress | None = None,
    saved: Path | str | None = None,
) -> Diagnosis:
    """Find the regime of a model by training it at several widths.

    After Ctrl-C it is judged from the widths that were finished.

    Parameters
    ----------
    make
        Function of a width and a random key that returns a model: a `Network`, or anything that `unlazy.wrap` takes. It
        may also return a pair of a model and the flow that trains it.
    data
        The data to train on: a data set, or a tuple ``(x, y)`` or ``(x, y, x_test, y_test)`` of arrays.
    widths
        At least two widths, and better four, each twice the one before.
    flow
        The flow that trains the model, or a function from the width to it, where rates depend on the width. Full-batch
        descent at the rate 0.1 on half the mean squared error if omitted.
    until
        The time to train until; 300 steps of descent if omitted, and t = 100 for other flows.
    seeds
        Number of initialisations at each width, at least 2.
    key
        Random key from which those of ``make`` are derived.
    progress
        Called with the fraction done and the current width.
    saved
        File in which the measurements of finished widths are kept until all are finished, so that the same call
        continues after an interruption. None are kept if omitted.
    """
    data, widths = as_dataset(data), checked_widths(widths)

    def measure(networks: list[Network], chosen: Flow, samples: Dataset, part: Progress) -> list[dict[str, float]]:
        return _measure(networks, samples, chosen, until, part)

    rows, model, first, interrupted = over_widths(
        measure, make, data, widths, flow, seeds, key, progress, saved, "regime", until
    )
    settings = {"model": model, "data": data.name, "flow": repr(first), "until": horizon(first, until)}
    done = widths[: len(rows)]
    names = sorted({name for row in rows for run in row for name in run})
    measured = {
        name: fit_slope(done, np.array([[run.get(name, np.nan) for run in row] for row in rows])) for name in names
    }
    settings |= {"widths": list(done), "seeds": seeds} | ({"interrupted": interrupted} if interrupted else {})
    return judged(measured, settings)


def _measure(
    networks: list[Network], data: Dataset, flow: Flow, until: float | None, progress: Progress
) -> list[dict[str, float]]:
    """Train the models of one width and their linearisations, and measure all quantities of a diagnosis."""
    rate, end = rate_of(flow), horizon(flow, until)
    early = min(end * _FRACTION if rate is None else _EARLY * rate, end / 2)
    kernel = KernelMatrix(min(_SAMPLES, data.n), None if data.outputs is None else 0)
    probes: dict[str, Any] = {"loss": "train-loss", "outputs": "train-outputs", "kernel": kernel}
    if layers_on(networks[0], data.x):
        probes |= _BY_LAYER
    runs = train(flow, networks, data, [0.0, early, end], probes, part_of(progress, 0, 2))
    tangents = [TangentModel(network) for network in networks]
    lines = train(flow, tangents, data, [0.0, end], {"outputs": "train-outputs"}, part_of(progress, 1, 2))
    return [
        _compare(run, line) if run.status.ok and len(run.times) == 3 else dict.fromkeys(_OF_OUTPUTS, np.nan)
        for run, line in zip(runs, lines, strict=True)
    ]


def _gathered(obs: Observation) -> Any:
    return {name: {"pairs": near_pairs(layer.weights())} for name, layer in layers_of(obs.network, obs.x).items()}


_BY_LAYER: dict[str, Callable[[Observation], Any]] = {"sizes": LayerSizes(), "lines": _gathered}


def _compare(run: Trajectory, linear: Trajectory) -> dict[str, float]:
    f = np.asarray(run.observed["outputs"])
    lin = (
        np.asarray(linear.observed["outputs"])[-1]
        if linear.status.ok and len(linear.times) == 2
        else np.full_like(f[0], np.nan)
    )
    sizes, lines = (flat(run.observed.get(name, {})) for name in ("sizes", "lines"))
    found = _changes(f[0], f[2], lin, np.asarray(run.data.y), *(run.observed["kernel"][at] for at in (0, 2)))
    found |= {
        "initial outputs": rms(f[0]),
        "first output change": rms(f[1] - f[0]),
        "loss": float(run.observed["loss"][2] / run.observed["loss"][0]),
    }
    for name, values in sizes.items():
        if name.endswith(".relative") and not name.startswith("outputs."):
            found[f"{name.removesuffix('.relative')}: first change"] = float(values[1])
    start, end = ({name: values[at] for name, values in (sizes | lines).items()} for at in (0, 2))
    return found | _by_layer(start, end)


def _changes(
    before: np.ndarray, after: np.ndarray, linear: np.ndarray, targets: np.ndarray, kernel: Any, later: Any
) -> dict[str, float]:
    """Return the relative changes of outputs and kernel, and what linearisation does not explain."""
    moved, error = np.linalg.norm(after - before), np.linalg.norm(before - targets)
    kernel, later = np.asarray(kernel), np.asarray(later)
    return {
        "output change": float(moved / error) if error else float(moved > 0),
        "kernel drift": float(np.linalg.norm(later - kernel) / np.linalg.norm(kernel)),
        "linearisation error": float(np.linalg.norm(after - linear) / moved) if moved else 0.0,
    }


def _by_layer(start: dict[str, Any], end: dict[str, Any]) -> dict[str, float]:
    """Name what `LayerSizes` and `Condensation` observed at the start and at the end."""
    found = {}
    for name, value in end.items():
        layer, quantity = name.rsplit(".", 1)
        if layer == "outputs":
            continue
        if quantity == "size":
            found[f"{layer}: initial size"] = float(start[name])
        elif quantity == "relative":
            found[f"{layer}: feature change"] = float(value)
        elif quantity == "rank" and f"{layer}.size" in end:
            found[f"{layer}: effective rank"] = float(value)
        elif quantity == "pairs":
            found |= {f"{layer}: pairs at the start": float(start[name]), f"{layer}: pairs": float(value)}
    return found


@checked
def diagnose_checkpoints(before: Any, after: Any, data: DataLike) -> Diagnosis:
    """Find the regime of a training of your own from the model before and after it; nothing is trained.

    With one width there are no exponents: relative changes below 10 % count as small and above 50 % as large. The
    linearisation error is that of the first-order expansion, |f_T - f_0 - J_0 (θ_T - θ_0)| / |f_T - f_0|.

    Parameters
    ----------
    before, after
        The model before and after training: networks, or anything that `unlazy.wrap` takes. A module that training
        changes in place, of PyTorch or flax.nnx, is wrapped before training, which takes a snapshot of it.
    data
        Data on whose training inputs both are evaluated, as in `diagnose_widths`.
    """
    data = as_dataset(data)
    if before is after and not isinstance(before, Network | eqx.Module):
        advice = "give unlazy.wrap(model) made before training, which does not change, as the first"
        raise UserError(f"before and after are the same object: if training changes it in place, {advice}.")
    before, after = (wrapped(one, name) for one, name in ((before, "before"), (after, "after")))
    (first, structure), (last, _) = (jax.tree.flatten(split_trained(one)[0]) for one in (before, after))
    if [leaf.shape for leaf in first] != [leaf.shape for leaf in last]:
        raise UserError("The two checkpoints have parameters of different shapes: give the same model twice.")
    change = jax.tree.unflatten(structure, [later - leaf for leaf, later in zip(first, last, strict=True)])
    samples, output = min(_SAMPLES, data.n), None if data.outputs is None else 0
    kernels = [training_kernel(one, data, samples, output) for one in (before, after)]
    f = [np.asarray(one(data.x)) for one in (before, after)]
    step = np.asarray(before.push(data.x, change))
    found = _changes(f[0], f[1], f[0] + step, np.asarray(data.y), *kernels)
    if layers_on(before, data.x):
        observations = [Observation(one, before, data, Squared()) for one in (before, after)]
        seen = [{k: v for probe in _BY_LAYER.values() for k, v in flat(probe(one)).items()} for one in observations]
        found |= _by_layer(*seen)
    return judged_once(found, {"model": getattr(before, "name", type(before).__name__), "data": data.name})
