"""What is off in one layer of a coordinate check: its measured powers of the width against the predicted ones."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Literal

import numpy as np

from unlazy._errors import UserError
from unlazy._slopes import HALFWAY, Slope
from unlazy.theory import abc

FORWARD, UPDATE, DECAY = "forward", "update", "decay"

Kind = Literal["input", "hidden", "output"]  # by which of its two sizes, inputs and units, grow with the width


@dataclasses.dataclass(frozen=True)
class LayerCheck:
    """The coordinate check of one layer.

    Attributes
    ----------
    measured
        Powers of the width: "size" of the pre-activations at the start, "change" after some steps, "own" change by the
        layer's own first update, and the factors "forward", "update" and "decay" that the verdict rests on.
    predicted
        The exponents that the parameterisation predicts for them.
    fault
        What is off: "", "initialisation", "forward multiplier", "learning rate", "weight decay", or several of them.
    hint
        What to do about it, in a sentence.
    decided
        Whether the intervals are narrow enough to tell.
    """

    measured: dict[str, Slope]
    predicted: dict[str, float]
    fault: str
    hint: str
    decided: bool


def places_of(theory: abc.Parameterisation, kinds: Mapping[str, Kind]) -> dict[str, int]:
    """Return for each weight, given by its kind, the index of the weight of a parameterisation to which it corresponds.

    Weights that are a chain as long as that of the parameterisation correspond to it one by one. Otherwise, as with
    attention, each corresponds to the weight of its kind; hidden weights must then all have the same exponents.
    """
    last = len(theory.a) - 1
    if list(kinds.values()) == ["input", *["hidden"] * (last - 1), "output"]:
        return {name: place for place, name in enumerate(kinds)}
    decay = theory.decay if isinstance(theory.decay, tuple) else (theory.decay,) * (last + 1)
    hidden = set(list(zip(theory.a, theory.b, theory.rates, decay, strict=True))[1:last])
    if "hidden" in kinds.values() and len(hidden) != 1:
        named = ", ".join(f"{name} ({kind})" for name, kind in kinds.items())
        raise UserError(
            f"The weights of the model are {named}, and the parameterisation has exponents of {last + 1}: give one "
            f"with {len(kinds)} if each layer feeds the next one, or else one whose hidden layers have equal exponents."
        )
    return {name: {"input": 0, "hidden": 1, "output": last}[kind] for name, kind in kinds.items()}


def predicted_exponents(theory: abc.Parameterisation, place: int) -> dict[str, float]:
    """Return the exponents that a parameterisation predicts for one layer."""
    layer, wide = theory.layers()[place], 1.0 if place else 0.0
    a, b, c = theory.a[place], theory.b[place], theory.rates[place]
    x = theory.layers()[place - 1].size if place else 0.0
    return {
        "size": layer.size,
        "change": layer.change,
        "own": layer.own,
        FORWARD: x + wide / 2 - a - b,
        UPDATE: x + wide / 2 - a - c if theory.optimiser == "adam" else 2 * x + wide - 2 * a - c,
        DECAY: 0.0 if layer.decay is None else layer.decay,
    }


def judge_layer(
    measured: dict[str, Slope], predicted: Mapping[str, float], adam: bool, below: tuple[float, float] = (0.0, 0.0)
) -> LayerCheck:
    """Say what is off in one layer, if anything is.

    With φ and γ for the deviations of the measured exponents of "forward" and "update": φ = 0 ≠ γ is a wrong learning
    rate; φ ≠ 0 and γ = 0 a wrong initialisation; γ = 2φ (for Adam γ = φ) a wrong forward multiplier, which enters both.
    The sizes of earlier layers are off by exponents between the two in ``below``, any of which this layer may inherit.
    """
    predicted = {name: value for name, value in predicted.items() if name in measured}
    size = measured[FORWARD].exponent
    inherited = 0.0 if np.isnan(size) else float(np.clip(size - predicted[FORWARD], *below))
    powers = {FORWARD: 1, UPDATE: 1 if adam else 2, DECAY: 0}  # of |x| in each
    off = {
        name: deviation(measured[name], predicted[name] + power * inherited)
        for name, power in powers.items()
        if name in measured
    }
    phi, gamma = off[FORWARD] or 0.0, off[UPDATE] or 0.0
    hints: dict[str, str] = {}  # by what is off
    if phi and abs(gamma - (phi if adam else 2 * phi)) < HALFWAY * (1 if adam else 2):
        hints["forward multiplier"] = f"multiply what it computes, or its inputs, by m^{-phi:.1f}"
    elif phi:
        hints["initialisation"] = f"multiply its initial standard deviation by m^{-phi:.1f}"
    if gamma and "forward multiplier" not in hints:
        hints["learning rate"] = f"multiply its learning rate by m^{-gamma:.1f}"
    if decay := off.get(DECAY):
        hints["weight decay"] = f"multiply its weight decay by m^{-decay:.1f}, as it shrinks at another rate per step"
    decided = all(value is not None for value in off.values())
    hint = "; ".join(hints.values()) or ("" if decided else "more seeds or larger widths are needed to tell")
    sentence = f"{hint[:1].upper()}{hint[1:]}." if hint else "As predicted."
    return LayerCheck(measured, predicted, " and ".join(hints), sentence, decided)


def deviation(slope: Slope, predicted: float) -> float | None:
    """Return by how much an exponent is off: 0 if by less than 1/4, None if that is not certain."""
    if not slope.values.any():  # all are 0: a read-out that starts at 0 is right at any width
        return 0.0
    if np.isnan(slope.exponent):
        return None
    distance = slope.exponent - predicted
    if abs(distance) <= HALFWAY:
        return 0.0 if max(slope.high - predicted, predicted - slope.low) < 2 * HALFWAY else None
    return distance if not slope.low <= predicted <= slope.high else None
