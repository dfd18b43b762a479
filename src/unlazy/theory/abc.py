"""Parameterisations by powers of the width: the size and movement of every layer, and the limit that follows.

An abc-parameterisation (Yang and Hu 2021, chen2022 App. C) of a network with L hidden layers of width m, and so L + 1
weight matrices, is

    W_l = m^(-a_l) w_l,   w_l ~ N(0, m^(-2 b_l)) entry by entry,   learning rate η m^(-c_l),   all w_l trained.

>>> regime(a=(0, 0.5, 1), b=(0, 0, 0), c=-1)
<Regime.FEATURE_LEARNING: 'Features move by an amount that does not vanish as the width grows.'>

Every quantity below is a power of m after a fixed number of steps, and `Parameterisation.layers` gives the exponents.
Write q_l for that of the pre-activations h_l at the start (0 for inputs), p_l for that of 1/|∂f/∂h_l| (each entry), and
n_l = 1 where the input of layer l has width m, else 0:

    q_l = q_(l-1) + n_l/2 - (a_l + b_l),       p_(l-1) = p_l - ½ + a_l + b_l,       p_L = a + b of the read-out,

where p_L is replaced by the exponent of the read-out's change if the change is larger. An update of a layer is aligned
with its input, so that the sum over m terms is of order m and not √m, and ΔW_l x_(l-1) has the exponent

    SGD:  n_l + 2 q_(l-1) - 2 a_l - c_l - p_l,        Adam:  n_l + q_(l-1) - a_l - c_l,

as Adam's updates are of order 1 for any gradient (Yang and Littwin 2023; Everett et al. 2024). Activations are assumed
to be as large as pre-activations, as for ReLU; if all q_l are 0, as in every stable parameterisation, this does not
matter. The width of a convolutional network is its number of channels, and the exponents are the same.
"""

import dataclasses
import enum
from collections.abc import Sequence
from typing import Literal, NamedTuple, Self

from unlazy._errors import UserError
from unlazy.networks import Scaling

_EXACT = 1e-9  # exponents are small fractions: a smaller difference is rounding

Optimiser = Literal["sgd", "adam"]


class Regime(enum.Enum):
    """The limit of a parameterisation as the width grows (Yang and Hu 2021, Theorems 3.3, 3.4 and 3.6)."""

    UNSTABLE = "Pre-activations do not stay of order 1 at the start, or features or outputs blow up in training."
    TRIVIAL = "The function does not change in training."
    LAZY = "The function changes but its features do not: training is that of a fixed kernel."
    FEATURE_LEARNING = "Features move by an amount that does not vanish as the width grows."


class LayerExponents(NamedTuple):
    """Powers of the width m that a parameterisation predicts for one layer, after a fixed number of steps.

    Attributes
    ----------
    size
        Of the pre-activations W_l x_(l-1) at the start; of the outputs, for the last layer.
    own
        Of the change ΔW_l x_(l-1) that the layer's own update makes.
    change
        Of the whole change of the pre-activations, to which earlier layers contribute.
    output
        Of the change of the outputs that the layer's own update makes. For SGD it is the exponent of the layer's part
        of the tangent kernel, with its learning rate.
    decay
        Of the relative shrinkage of the weights in one step by weight decay; None without weight decay.
    """

    size: float
    own: float
    change: float
    output: float
    decay: float | None


@dataclasses.dataclass(frozen=True)
class Parameterisation:
    """Exponents of the L + 1 weight matrices, and the optimiser that trains them.

    Parameters
    ----------
    a
        Exponents of the multipliers, one per weight matrix.
    b
        Exponents of the initial standard deviations, one per weight matrix.
    c
        Exponents of the learning rates, one per weight matrix, or one for all.
    optimiser
        "sgd", with or without momentum, or "adam", also for other optimisers whose updates do not depend on the size of
        the gradient.
    residual
        Whether hidden layers from the second on are added to their input: h_l = h_(l-1) + W_l σ(h_(l-1)).
    decay
        Exponents d_l of the weight decay λ m^(-d_l), one per weight matrix, or one for all; None without weight decay.
        Decay is multiplied by the learning rate, as in SGD and AdamW.
    """

    a: tuple[float, ...]
    b: tuple[float, ...]
    c: float | tuple[float, ...]
    optimiser: Optimiser = "sgd"
    residual: bool = False
    decay: float | tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        if len(self.a) != len(self.b) or len(self.a) < 2:
            raise UserError(
                f"{len(self.a)} exponents a and {len(self.b)} exponents b were given: give one of each for every "
                "weight matrix, and at least two matrices."
            )
        for name, given in (("c", self.c), ("decay", self.decay)):
            if isinstance(given, tuple) and len(given) != len(self.a):
                raise UserError(
                    f"{len(given)} exponents {name} were given for {len(self.a)} weight matrices: give one for each, "
                    "or a number for all."
                )
        if self.optimiser not in ("sgd", "adam"):
            raise UserError(f"optimiser = '{self.optimiser}' is unknown: choose 'sgd' or 'adam'.")

    def _each(self, given: float | tuple[float, ...]) -> tuple[float, ...]:
        return given if isinstance(given, tuple) else (given,) * len(self.a)

    @property
    def rates(self) -> tuple[float, ...]:
        """The exponent c_l of every weight matrix."""
        return self._each(self.c)

    @property
    def r(self) -> float:
        """Features of the last hidden layer move like m^(-r) (chen2022 eq. 36)."""
        return -self.layers()[-2].change

    def layers(self) -> list[LayerExponents]:
        """Return the predicted exponents of every weight matrix, from the first to the read-out."""
        adam, count = self.optimiser == "adam", len(self.a)
        random = [(0.5 if one else 0.0) - self.a[one] - self.b[one] for one in range(count)]  # of W_l x, x independent

        sizes, stream = [], [0.0]  # stream: of what layer l receives
        for one in range(count):
            sizes.append(stream[-1] + random[one])
            skip = self.residual and 0 < one < count - 1
            stream.append(max(stream[-1], sizes[-1]) if skip else sizes[-1])

        def step(one: int, gradient: float) -> float:  # of ΔW_l x, aligned, where ∂f/∂h_l has the exponent `gradient`
            wide = 1.0 if one else 0.0
            if adam:
                return wide + stream[one] - self.a[one] - self.rates[one]
            return wide + 2 * stream[one] - 2 * self.a[one] - self.rates[one] + gradient

        out = count - 1
        entry = step(out, 0.0) - 1 - stream[out]  # of an entry of the read-out's change
        gradients = [max(-self.a[out] - self.b[out], entry), 0.0]
        for one in range(out - 1, 0, -1):
            through = gradients[0] + random[one]
            gradients.insert(0, max(gradients[0], through) if self.residual else through)

        found, below = [], float("-inf")  # below: of the change of what layer l receives
        for one, gradient in enumerate(gradients):
            own = step(one, gradient)
            last = one == out
            inherited = below + random[one] + (0.5 if last else 0.0)  # features move along the read-out
            change = max(own, inherited)
            rate = None if self.decay is None else -self.rates[one] - self._each(self.decay)[one]
            found.append(LayerExponents(sizes[one], own, change, own if last else 1 + gradient + own, rate))
            below = max(below, change) if self.residual and 0 < one < out else change
        return found

    def shifted(self, theta: float) -> Self:
        """Return another description of the same training: a + θ, b - θ, and c - 2θ (chen2022 eq. 35), for Adam c - θ.

        Parameters
        ----------
        theta
            The shift θ.
        """
        by = theta if self.optimiser == "adam" else 2 * theta
        rates = tuple(c - by for c in self.c) if isinstance(self.c, tuple) else self.c - by
        decay = self.decay
        if decay is not None:  # the product with the rate stays
            decay = tuple(d + by for d in decay) if isinstance(decay, tuple) else decay + by
        a, b = tuple(a + theta for a in self.a), tuple(b - theta for b in self.b)
        return dataclasses.replace(self, a=a, b=b, c=rates, decay=decay)

    def judge(self) -> tuple[Regime, str]:
        """Return the regime, and a sentence with the exponent that decides it."""
        *hidden, output = self.layers()
        for layer, (one, wanted) in enumerate(zip(hidden, (0.0, *(0.5,) * len(hidden)), strict=False), start=1):
            stays = self.residual and layer > 1 and one.size < 0  # a branch may vanish beside its stream
            if abs(one.size) > _EXACT and not stays:
                fate, total = "vanish" if one.size < 0 else "blow up", self.a[layer - 1] + self.b[layer - 1]
                return Regime.UNSTABLE, (
                    f"pre-activations of layer {layer} {fate} at the start like m^{one.size:g}: "
                    f"a_{layer} + b_{layer} = {total:g}, not {wanted:g}"
                )
        moved = max(one.change for one in hidden)
        for name, value in (
            ("outputs blow up at the start", output.size),
            ("features blow up in training", moved),
            ("outputs blow up in training, by the read-out", output.own),
            ("outputs blow up in training, by the features", output.change),
        ):
            if value > _EXACT:
                return Regime.UNSTABLE, f"{name} like m^{value:g}"
        if output.change < -_EXACT:
            return Regime.TRIVIAL, f"outputs move like m^{output.change:g}"
        if moved < -_EXACT:
            return Regime.LAZY, f"features move like m^{moved:g}"
        return Regime.FEATURE_LEARNING, "r = 0: features move as much as they can"

    @property
    def regime(self) -> Regime:
        """Unstable, trivial, lazy or feature learning."""
        return self.judge()[0]


def regime(a: Sequence[float], b: Sequence[float], c: float) -> Regime:
    """Return the regime of a parameterisation from its exponents.

    Parameters
    ----------
    a, b
        Exponents of the multipliers and of the initial standard deviations, one of each per weight matrix.
    c
        Exponent of the learning rate.
    """
    return Parameterisation(tuple(a), tuple(b), c).regime


def standard(hidden: int = 2, c: float = 0.0, optimiser: Optimiser = "sgd") -> Parameterisation:
    """Standard initialisation: variance 1/fan-in and no multipliers.

    It is unstable at a learning rate of order 1. Under SGD it is lazy at the rate 1/m, c = 1. Under Adam that rate
    moves features by order 1 and outputs, whose read-outs are of order m^(-½), by √m; it is lazy at c = 1.5.

    Parameters
    ----------
    hidden
        Number of hidden layers L.
    c
        Exponent of the learning rate m^(-c).
    optimiser
        "sgd" or "adam".
    """
    return Parameterisation((0.0,) * (hidden + 1), (0.0, *(0.5,) * hidden), c, optimiser)


def neural_tangent(hidden: int = 2, optimiser: Optimiser = "sgd") -> Parameterisation:
    """NTK parameterisation: m^(-½) in front of every layer but the first. It is lazy.

    The learning rate is of order 1 for SGD, and of order 1/m, the largest stable one, for Adam.

    Parameters
    ----------
    hidden, optimiser
        As for `standard`.
    """
    c = 1.0 if optimiser == "adam" else 0.0
    return Parameterisation((0.0, *(0.5,) * hidden), (0.0,) * (hidden + 1), c, optimiser)


def maximal_update(hidden: int = 2, optimiser: Optimiser = "sgd") -> Parameterisation:
    """μP: every layer learns features.

    For SGD it is that of Yang and Hu (chen2022 eq. 32-34), with one learning rate. For Adam it is that of Yang et al.
    2022: no multipliers, read-outs of size 1/m, rates of order 1/m for all layers but the first.

    Parameters
    ----------
    hidden, optimiser
        As for `standard`.
    """
    if optimiser == "adam":
        b, c = (0.0, *(0.5,) * (hidden - 1), 1.0), (0.0, *(1.0,) * hidden)
        return Parameterisation((0.0,) * (hidden + 1), b, c, optimiser)
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
    """Return the parameterisation of a `TwoLayer` whose embedding has L - 1 random layers of the same width.

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
