"""What is off in one layer of a coordinate check: its measured powers of the width against the predicted ones."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import numpy as np

from unlazy.lab.slopes import HALFWAY, Slope
from unlazy.theory import abc

FORWARD, UPDATE, DECAY = "forward", "update", "decay"


@dataclasses.dataclass(frozen=True)
class LayerCheck:
    """The coordinate check of one layer.

    Attributes
    ----------
    measured
        Powers of the width: "size" of the pre-activations at the start, "change" after some steps, "own" change by the
        layer's own first update, and the ratios "forward", "update" and "decay" that the verdict rests on.
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


def predicted_exponents(theory: abc.Parameterisation, place: int) -> dict[str, float]:
    """Return the exponents that a parameterisation predicts for one layer."""
    layer, wide = theory.layers()[place], 1.0 if place else 0.0
    a, c, x = theory.a[place], theory.rates[place], theory.layers()[place - 1].size if place else 0.0
    update = wide / 2 + x - a - c if theory.optimiser == "adam" else wide + 2 * x - 2 * a - c
    return {
        "size": layer.size,
        "change": layer.change,
        "own": layer.own,
        FORWARD: layer.size,
        UPDATE: update,
        DECAY: 0.0 if layer.decay is None else layer.decay,
    }


def judge_layer(
    measured: dict[str, Slope], predicted: Mapping[str, float], adam: bool, below: float = 0.0
) -> LayerCheck:
    """Say what is off in one layer, if anything is.

    With φ and γ for the deviations of the measured exponents of "forward" and "update": φ = 0 ≠ γ is a wrong learning
    rate; φ ≠ 0 and γ = 0 a wrong initialisation; γ = 2φ (for Adam γ = φ) a wrong forward multiplier, which enters both.

    Parameters
    ----------
    measured
        The fitted powers.
    predicted
        The predicted exponents.
    adam
        Whether updates do not depend on the size of gradients.
    below
        By how much the exponent of the size of the layer below is off.
    """
    predicted = {name: value for name, value in predicted.items() if name in measured}
    factors = {FORWARD: 1, UPDATE: 1 if adam else 2, DECAY: 0}  # powers of |x| in each
    off = {
        name: deviation(measured[name], predicted[name], power * below)
        for name, power in factors.items()
        if name in measured
    }
    phi, gamma = off[FORWARD] or 0.0, off[UPDATE] or 0.0
    faults, hints = [], []
    if phi and abs(gamma - (phi if adam else 2 * phi)) < HALFWAY * (1 if adam else 2):
        faults, hints = ["forward multiplier"], [f"multiply its forward multiplier by m^{-phi:.1f}"]
    elif phi:
        faults, hints = ["initialisation"], [f"multiply its initial standard deviation by m^{-phi:.1f}"]
    if gamma and "forward multiplier" not in faults:
        faults, hints = [*faults, "learning rate"], [*hints, f"multiply its learning rate by m^{-gamma:.1f}"]
    if off.get(DECAY):
        faults.append("weight decay")
        hints.append(f"multiply its weight decay by m^{-(off[DECAY] or 0):.1f}, as it shrinks at another pace per step")
    decided = all(value is not None for value in off.values())
    hint = "; ".join(hints) or ("" if decided else "more seeds or larger widths are needed to tell")
    sentence = f"{hint[:1].upper()}{hint[1:]}." if hint else "As predicted."
    return LayerCheck(measured, predicted, " and ".join(faults), sentence, decided)


def deviation(slope: Slope, predicted: float, inherited: float = 0.0) -> float | None:
    """Return by how much an exponent is off beyond what it inherits: 0 if within 1/4, None if that is not certain."""
    if not slope.values.any():  # all are 0: a read-out that starts at 0 is right at any width
        return 0.0
    if np.isnan(slope.exponent):
        return None
    nearest = float(np.clip(slope.exponent - predicted, min(0.0, inherited), max(0.0, inherited)))
    if inherited < 0:
        nearest = inherited  # small inputs are passed on as they are
    wanted = predicted + nearest
    distance = slope.exponent - wanted
    if abs(distance) <= HALFWAY:
        return 0.0 if max(slope.high - wanted, wanted - slope.low) < 2 * HALFWAY else None
    return distance if not slope.low <= wanted <= slope.high else None
