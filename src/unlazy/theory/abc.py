"""Parameterisations of width, and their limits: lazy, feature learning, unstable or trivial.

An abc-parameterisation (Yang and Hu 2021, chen2022 App. C) of a network with L hidden layers of width m, and so L + 1
weight matrices, is

    W_l = m^(-a_l) w_l,   w_l ~ N(0, m^(-2 b_l)) entry by entry,   learning rate η m^(-c),   all w_l trained.

>>> regime(a=(0, 0.5, 1), b=(0, 0, 0), c=-1)
<Regime.FEATURE_LEARNING: 'Features move by an amount that does not vanish as the width grows.'>
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Sequence

from unlazy._errors import UserError
from unlazy.networks import Scaling

_EXACT = 1e-9  # exponents are small fractions: a smaller difference is rounding


class Regime(enum.Enum):
    """The limit of a parameterisation as the width grows (Yang and Hu 2021, Theorems 3.3, 3.4 and 3.6)."""

    UNSTABLE = "Pre-activations do not stay of order 1 at the start, or features or outputs blow up in training."
    TRIVIAL = "The function does not change in training."
    LAZY = "The function changes but its features do not: training is that of a fixed kernel."
    FEATURE_LEARNING = "Features move by an amount that does not vanish as the width grows."


@dataclasses.dataclass(frozen=True)
class Parameterisation:
    """Exponents a_l, b_l of the L + 1 weight matrices, and c of the learning rate.

    Parameters
    ----------
    a
        Exponents of the multipliers, one per weight matrix.
    b
        Exponents of the initial standard deviations, one per weight matrix.
    c
        Exponent of the learning rate.
    """

    a: tuple[float, ...]
    b: tuple[float, ...]
    c: float

    def __post_init__(self) -> None:
        if len(self.a) != len(self.b) or len(self.a) < 2:
            raise UserError(
                f"{len(self.a)} exponents a and {len(self.b)} exponents b were given: give one of each for every "
                "weight matrix, and at least two matrices."
            )

    @property
    def r(self) -> float:
        """Features of the last hidden layer move like m^(-r) (chen2022 eq. 36)."""
        output, before = self.a[-1], self.a[:-1]
        hidden = min(2 * a - (0 if index == 0 else 1) for index, a in enumerate(before))
        return min(self.b[-1], output + self.c) + output + self.c + hidden

    def shifted(self, theta: float) -> Parameterisation:
        """Give another description of the same training (chen2022 eq. 35): a + θ, b - θ, c - 2θ."""
        return Parameterisation(tuple(a + theta for a in self.a), tuple(b - theta for b in self.b), self.c - 2 * theta)

    def judge(self) -> tuple[Regime, str]:
        """Give the regime, and a sentence with the exponent that decides it."""
        sums = [a + b for a, b in zip(self.a, self.b, strict=True)]
        for layer, total in enumerate(sums[:-1], start=1):
            wanted = 0.0 if layer == 1 else 0.5
            if abs(total - wanted) > _EXACT:
                fate = "vanish" if total > wanted else "blow up"
                return Regime.UNSTABLE, (
                    f"pre-activations of layer {layer} {fate} at the start like m^{wanted - total:g}: "
                    f"a_{layer} + b_{layer} = {total:g}, not {wanted:g}"
                )
        output, moved = sums[-1], 2 * self.a[-1] + self.c  # how small outputs are: at the start, by new read-outs
        for name, value, least in (
            ("outputs blow up at the start", output, 0.5),
            ("features blow up in training", self.r, 0.0),
            ("outputs blow up in training, by the read-out", moved, 1.0),
            ("outputs blow up in training, by the features", output + self.r, 1.0),
        ):
            if value < least - _EXACT:
                return Regime.UNSTABLE, f"{name} like m^{least - value:g}"
        change = min(moved, output + self.r) - 1
        if change > _EXACT:
            return Regime.TRIVIAL, f"outputs move like m^{-change:g}"
        if self.r > _EXACT:
            return Regime.LAZY, f"features move like m^{-self.r:g}"
        return Regime.FEATURE_LEARNING, "r = 0: features move as much as they can"

    @property
    def regime(self) -> Regime:
        """Unstable, trivial, lazy or feature learning."""
        return self.judge()[0]


def regime(a: Sequence[float], b: Sequence[float], c: float) -> Regime:
    """Give the regime of a parameterisation from its exponents.

    Parameters
    ----------
    a, b
        Exponents of the multipliers and of the initial standard deviations, one of each per weight matrix.
    c
        Exponent of the learning rate.
    """
    return Parameterisation(tuple(a), tuple(b), c).regime


def standard(hidden: int = 2, c: float = 0.0) -> Parameterisation:
    """Standard initialisation: variance 1/fan-in and no multipliers.

    It is unstable at a learning rate of order 1, and lazy at the rate 1/m, c = 1.

    Parameters
    ----------
    hidden
        Number of hidden layers L.
    c
        Exponent of the learning rate m^(-c).
    """
    return Parameterisation((0.0,) * (hidden + 1), (0.0, *(0.5,) * hidden), c)


def neural_tangent(hidden: int = 2) -> Parameterisation:
    """NTK parameterisation: m^(-½) in front of every layer but the first. It is lazy.

    Parameters
    ----------
    hidden
        Number of hidden layers L.
    """
    return Parameterisation((0.0, *(0.5,) * hidden), (0.0,) * (hidden + 1), 0.0)


def maximal_update(hidden: int = 2) -> Parameterisation:
    """μP of Yang and Hu (chen2022 eq. 32-34): every layer learns features.

    Parameters
    ----------
    hidden
        Number of hidden layers L.
    """
    return Parameterisation((-0.5, *(0.0,) * (hidden - 1), 0.5), (0.5,) * (hidden + 1), 0.0)


def chen(hidden: int = 2) -> Parameterisation:
    """The parameterisation of chen2022 (App. C): m^(-½) before hidden layers, 1/m before the output, rate m.

    It is μP shifted by θ = ½, and with one hidden layer the mean-field parameterisation.

    Parameters
    ----------
    hidden
        Number of hidden layers L.
    """
    return Parameterisation((0.0, *(0.5,) * (hidden - 1), 1.0), (0.0,) * (hidden + 1), -1.0)


def of(scaling: Scaling, hidden: int = 2) -> Parameterisation:
    """Give the parameterisation of a `TwoLayer` whose embedding has L - 1 random layers of the same width.

    Only the last hidden layer of such a network is trained; the regime is that of training all layers at the same rate.

    Parameters
    ----------
    scaling
        The scaling of the network, whose node scales are a power of the width.
    hidden
        Number of hidden layers L, the trained one included.
    """
    if not isinstance(scaling.node, float | int):
        raise UserError(
            "An asymmetrical scaling gives neurons different weights, which no power of the width describes: "
            "use another scaling."
        )
    before = () if hidden == 1 else (*(0.5,) * (hidden - 2), -scaling.feature)
    rate = scaling.rate + (0.0 if hidden == 1 else scaling.feature_rate)
    return Parameterisation((0.0, *before, -scaling.node), (0.0,) * (hidden + 1), -rate)
