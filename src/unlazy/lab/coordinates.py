"""Whether a model's initialisation, multipliers and learning rates scale with the width as they should.

The coordinate check of Yang et al. (2022) compares how the sizes of pre-activations, and their changes after a few
steps, depend on the width. Errors spread from the layer where they are made: a wrong multiplier of the read-out changes
the updates of all layers below it. To name the layer, `coordinate_check` also measures factors that belong to one layer
alone.

Write W = α w for the weights of a layer of k inputs x, with the forward multiplier α of order m^(-a), w of
order m^(-b), and the learning rate of order m^(-c); and n = 1 where k grows with the width, 0 where it does not. Then

    forward  α √k |x| |w|              is of order  |x|  m^(n/2 - (a + b)),
    update   α² k |x|² |Δw| / |∇_w L|  of order     |x|² m^(n - (2a + c))     for SGD,
             α √k |x| |Δw|             of order     |x|  m^(n/2 - (a + c))    for Adam,

with root mean squares |·| and the change Δw in the first step, but not by weight decay. These combinations of a, b and
c are all that matters (`Parameterisation.shifted`): the first is the size of W x, the second that of its change.
α is measured by what the layer does with random weights, so that it does not matter where a model has its multipliers.
If pre-activations of earlier layers are off by m^δ, then x is off by the same power where that is small or the
activation is homogeneous, by less where a bounded activation saturates, and not at all if the layer does not depend on
them: all powers between 0 and δ are allowed for. Weight decay shrinks w in each step by a share of order m^(-(c + d)),
with d the exponent of the decay, which neither sizes nor changes show.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from unlazy._checked import checked
from unlazy._errors import UserError
from unlazy._slopes import fit_slope
from unlazy._terminal import Progress
from unlazy._types import PRNGKey, PyTree
from unlazy.data import DataLike, Dataset, as_dataset
from unlazy.flows import Adam, Descent
from unlazy.kernels.problem import leaf_name
from unlazy.lab.answers import Saved
from unlazy.lab.layer_checks import (
    DECAY,
    FORWARD,
    UPDATE,
    Kind,
    LayerCheck,
    deviation,
    judge_layer,
    places_of,
    predicted_exponents,
)
from unlazy.lab.models import Flows, Make, checked_widths, over_widths, part_of, rms, train
from unlazy.losses import Loss
from unlazy.networks import Network, TracedLayer, as_function, split_trained, trace_layers, trained_rates
from unlazy.networks.traced_layers import short_name
from unlazy.theory import abc

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_INPUTS, _UNITS = "inputs", "units"  # of a layer, which show of what kind it is
_LINEAR = 1e-2  # by which the multiplier may depend on the weights: more than rounding, less than any normalisation
_SHOWN = {"size": "size at the start", "change": "change after the steps", "own": "change by its own first update"}


@dataclasses.dataclass(frozen=True)
class CoordinateCheck(Saved):
    """How sizes and changes of every layer depend on the width, beside the exponents that a parameterisation predicts.

    Attributes
    ----------
    layers
        The check of each layer, by the name of its weight, from the first to the read-out.
    settings
        How it was measured, for the record.
    """

    layers: dict[str, LayerCheck]
    settings: dict[str, Any]

    @property
    def verdict(self) -> str:
        """The verdict: "RIGHT", "WRONG" or "UNDECIDED"."""
        if any(one.fault for one in self.layers.values()):
            return "WRONG"
        return "RIGHT" if all(one.decided for one in self.layers.values()) else "UNDECIDED"

    @property
    def faults(self) -> dict[str, str]:
        """What is off, by layer."""
        return {name: one.fault for name, one in self.layers.items() if one.fault}

    @property
    def reason(self) -> str:
        """What the verdict rests on, in a sentence."""
        if self.faults:
            return f"Not as predicted: {'; '.join(f'the {fault} of {name}' for name, fault in self.faults.items())}."
        if self.verdict == "RIGHT":
            left = self.settings.get("not checked", [])
            more = f" Not checked, as their forward multipliers are unknown: {', '.join(left)}." if left else ""
            return f"The exponents of all layers are those predicted.{more}"
        open_ones = ", ".join(name for name, one in self.layers.items() if not one.decided)
        return f"The intervals are too wide to tell for {open_ones}: more seeds or larger widths are needed."

    def rows(self) -> list[tuple[str, ...]]:
        """Return a row for each layer: name, measured and predicted exponents of size, change and own update, hint."""

        def both(one: LayerCheck, name: str) -> str:
            return f"{one.measured[name].exponent:.2f} ({one.predicted[name]:g})"

        return [(name, *(both(one, what) for what in _SHOWN), one.hint) for name, one in self.layers.items()]

    def plot(self) -> Figure:
        """Draw sizes and changes of every layer against the width; see `unlazy.figures.draw_widths`."""
        from unlazy.figures import draw_widths

        plots, predicted = {}, {}
        for what, title in _SHOWN.items():
            plots[title] = {name: one.measured[what] for name, one in self.layers.items()}
            predicted[title] = {name: one.predicted[what] for name, one in self.layers.items()}
        off = "; ".join(f"{fault} of {name}" for name, fault in self.faults.items())
        title = f"Coordinate check: {self.verdict}" + (f" ({off})" if off else "")
        return draw_widths(title, plots, predicted)

    def to_dict(self) -> dict[str, Any]:
        layers = {
            name: {
                "fault": one.fault,
                "hint": one.hint,
                "predicted": one.predicted,
                "measured": {what: slope.plain() for what, slope in one.measured.items()},
            }
            for name, one in self.layers.items()
        }
        answer = {"kind": "coordinate check", "answer": self.verdict, "reason": self.reason}
        return answer | {"layers": layers, "settings": self.settings}

    def table(self) -> tuple[list[str], list[tuple[str, ...]]]:
        return ["layer", *(f"{title}: exponent (predicted)" for title in _SHOWN.values()), "hint"], self.rows()

    def __repr__(self) -> str:
        lines = [f"{row[0]}: size {row[1]}, change {row[2]}, own update {row[3]}. {row[4]}" for row in self.rows()]
        head = f"{self.verdict}. {self.reason} Measured exponents of the width (predicted ones):"
        return "\n".join([head, *lines])


@checked
def coordinate_check(
    make: Make,
    data: DataLike,
    widths: Sequence[int] = (64, 128, 256, 512),
    *,
    flow: Flows = None,
    steps: int = 3,
    seeds: int = 3,
    parameterisation: abc.Parameterisation | None = None,
    key: PRNGKey | int = 0,
    progress: Progress | None = None,
    saved: Path | str | None = None,
) -> CoordinateCheck:
    """Check how initialisation, multipliers, learning rates and weight decay of a model scale with the width.

    Only exponents of the width are judged. A factor that does not depend on the width, or an exponent that is off by
    less than 1/4, is not noticed. Weights that data are multiplied with are checked;
    embeddings, biases and normalisation only through their effect on the inputs of the layers.

    Parameters
    ----------
    make, data, widths, seeds, key, progress, saved
        As in `diagnose_widths`; a flow that ``make`` returns must be a `Descent`.
    flow
        The `Descent` that trains the model, or a function from the width to it; at the rate 0.1 if omitted.
    steps
        Number of steps after which changes are measured.
    parameterisation
        What to compare with; by default μP (`abc.maximal_update`) for SGD, or for Adam if the flow uses that. It has
        exponents of as many weights as the model, one feeding the next; or those of one input weight, of hidden weights
        that are all alike, and of one output weight, which then hold for all weights of the model of that kind.
    """
    data, widths = as_dataset(data), checked_widths(widths)
    if len(widths) < 2:
        raise UserError(f"widths = {list(widths)}: exponents need at least two widths, such as [64, 128, 256, 512].")
    if steps < 1:
        raise UserError(f"steps = {steps} is too small: choose at least 1.")

    def by_adam(flow: Descent) -> bool:
        return parameterisation.optimiser == "adam" if parameterisation else isinstance(flow.optimiser, Adam)

    def measure(networks: list[Network], chosen: Any, samples: Dataset, part: Progress) -> Any:
        if not isinstance(chosen, Descent):
            kind = type(chosen).__name__
            raise UserError(f"A coordinate check counts the steps of Descent, not of {kind}: give a Descent.")
        return _measure(networks, samples, chosen, steps, by_adam(chosen), part)

    rows, _, chosen, interrupted = over_widths(
        measure, make, data, widths, flow, seeds, key, progress, saved, "coordinates", steps, parameterisation
    )
    if interrupted:
        raise KeyboardInterrupt(interrupted)
    assert isinstance(chosen, Descent)
    adam = by_adam(chosen)
    names = list(rows[0][0])
    if any(list(run) != names for row in rows for run in row):
        raise UserError("The model has other layers at other widths: make must change nothing but their sizes.")
    kinds = _kinds(rows[0][0], rows[-1][0])
    theory = parameterisation or abc.maximal_update(max(2, len(kinds) - 1), "adam" if adam else "sgd")
    layers, below = {}, [0.0]  # by how much sizes are off
    for name, place in places_of(theory, kinds).items():
        slopes = {
            what: fit_slope(widths, np.array([[run[name][what] for run in row] for row in rows]))
            for what in rows[0][0][name]
            if what not in (_INPUTS, _UNITS)
        }
        predicted = predicted_exponents(theory, place)
        layers[name] = judge_layer(slopes, predicted, adam, (min(below), max(below)))
        below.append(deviation(slopes[FORWARD], predicted[FORWARD]) or 0.0)
    settings = {"data": data.name, "flow": repr(chosen), "widths": list(widths), "seeds": seeds, "steps": steps}
    left = {"not checked": [name for name in names if name not in kinds]} if len(kinds) < len(names) else {}
    return CoordinateCheck(layers, settings | {"parameterisation": repr(theory)} | left)


def _kinds(small: dict[str, Any], large: dict[str, Any]) -> dict[str, Kind]:
    """Find the kinds of weights by which of their sizes grow; leave out those that do not grow or cannot be checked."""
    kinds: dict[tuple[bool, bool], Kind] = {(False, True): "input", (True, True): "hidden", (True, False): "output"}
    grown = {
        name: (large[name][_INPUTS] > one[_INPUTS], large[name][_UNITS] > one[_UNITS])
        for name, one in small.items()
        if FORWARD in one
    }
    found: dict[str, Kind] = {name: kinds[both] for name, both in grown.items() if both in kinds}
    if not found:
        raise UserError("No weight of this model grows with the width and can be checked: let make use its width.")
    return found


# ---------------------------------------------------------------- measurements


def _measure(
    networks: list[Network], data: Dataset, flow: Descent, steps: int, adam: bool, progress: Progress
) -> list[dict[str, dict[str, float]]]:
    rate = float(flow.rate)
    one_step = train(flow, networks, data, [0.0, rate], (), part_of(progress, 0, 2))
    some = one_step if steps == 1 else train(flow, networks, data, [0.0, steps * rate], (), part_of(progress, 1, 2))
    for run in (*one_step, *some):
        if not run.status.ok:
            raise UserError(f"Training failed in the first {steps} steps: lower the learning rate.")
    return [
        _of_seed(network, first.final, last.final, data, flow, adam)
        for network, first, last in zip(networks, one_step, some, strict=True)
    ]


def _of_seed(
    network: Network, first: Network, last: Network, data: Dataset, flow: Descent, adam: bool
) -> dict[str, dict[str, float]]:
    before, after = _traced(network, data.x), _traced(last, data.x)
    slopes = _leaves(_gradient(network, data, flow.loss))
    start, stepped = _leaves(split_trained(network)[0]), _leaves(split_trained(first)[0])
    decays, rates = _decays(network, flow), _leaves(trained_rates(network))
    found: dict[str, dict[str, float]] = {}
    for name, layer in before.items():
        units, inputs = layer.weights.shape
        one = found[short_name(name)] = {_INPUTS: inputs, _UNITS: units}
        if name not in start:  # several parameters make up this weight, or it is not trained, or used again
            continue
        multiplier = _multiplier(network, name, layer, start[name], data.x)
        if multiplier is None:
            continue
        own = _traced(_with_leaf(network, name, stepped[name]), data.x)[name]
        size, slope = rms(start[name]), rms(slopes[name])
        response = multiplier * inputs**0.5 * rms(layer.inputs)
        step, shrink = rms(stepped[name] - start[name] - decays[name]), rms(decays[name])
        pace = step / slope if slope else float(flow.rate) * rates[name]
        one |= {
            "size": rms(layer.preactivations),
            "change": rms(after[name].preactivations - layer.preactivations),
            "own": rms(own.preactivations - layer.preactivations),
            FORWARD: response * size,
            UPDATE: response * step if adam else response**2 * pace,
        } | ({DECAY: shrink / size} if shrink and size else {})
    if not any(FORWARD in one for one in found.values()):
        raise UserError("No trained weight of this model is multiplied with data, so that it has no layers to check.")
    return found


@eqx.filter_jit
def _gradient(network: Network, data: Dataset, loss: Loss) -> PyTree:
    return network.gradient(data, loss)[1]


def _traced(network: Network, x: Any) -> dict[str, TracedLayer]:
    apply, params, _ = as_function(network)
    return trace_layers(apply, params, x)


def _multiplier(network: Network, name: str, layer: TracedLayer, weights: Any, x: Any) -> float | None:
    """Return α of h = α w x + bias, by what the layer does with random weights; None if it is not linear in them."""
    bias = _traced(_with_leaf(network, name, jnp.zeros_like(weights)), x)[name].preactivations

    def of(layer: TracedLayer, weights: Any) -> float:
        rows = layer.weights.reshape(layer.groups, -1, layer.weights.shape[-1])
        inputs = layer.inputs if layer.groups > 1 else layer.inputs[..., None, :]
        product = rms(jnp.einsum("...gd,gmd->...gm", inputs, rows))
        return rms(layer.preactivations - bias) / product * rms(layer.weights) / rms(weights)

    drawn = jax.random.normal(jax.random.key(0), weights.shape, weights.dtype)
    found = of(_traced(_with_leaf(network, name, drawn), x)[name], drawn)
    linear = not rms(weights) or abs(of(layer, weights) / found - 1) < _LINEAR
    return found if linear and np.isfinite(found) and found > 0 else None


def _leaves(tree: PyTree) -> dict[str, Any]:
    """Return the leaves of a tree by the names that `trace_layers` gives them."""
    return {leaf_name(path): leaf for path, leaf in jax.tree_util.tree_flatten_with_path(tree)[0]}


def _with_leaf(network: Network, name: str, value: Any) -> Network:
    """Return the network with one array of its parameters replaced."""
    return jax.tree_util.tree_map_with_path(lambda path, leaf: value if leaf_name(path) == name else leaf, network)


def _decays(network: Network, flow: Descent) -> dict[str, Any]:
    """Return the change of each array in a step in which all gradients are 0, which is that by weight decay."""
    trained: Any = split_trained(network)[0]
    transform = flow.optimiser.transform()
    direction, _ = transform.update(jax.tree.map(jnp.zeros_like, trained), transform.init(trained), trained)
    rates = _leaves(trained_rates(network))
    return {name: -float(flow.rate) * rates[name] * step for name, step in _leaves(direction).items()}
