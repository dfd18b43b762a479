"""Scalings: how the terms of a network shrink with its width, and how fast its weights learn.

With m neurons on D features, f(x) = Σ_j s_j a_j σ(D^feature w_j·Φ(x)) and w_j' = -m^rate D^feature_rate ∂L/∂w_j. A
scaling is these four numbers, with s_j = m^node, or node weights that differ from neuron to neuron.
"""

import abc
from typing import Annotated

import equinox as eqx
import msgspec
import numpy as np
from scipy.special import zeta

from unlazy._checked import Checked, checked
from unlazy._errors import UserError, short
from unlazy._types import Count, NotNegative, OpenShare


class NodeWeights(Checked):
    """Summable weights λ̃_1 >= λ̃_2 >= ... >= 0 of infinitely many nodes (caron2023 eq. 1)."""

    @abc.abstractmethod
    def first(self, m: int) -> np.ndarray:
        """Return the weights of the first m nodes."""

    @abc.abstractmethod
    def power_sum(self, power: float) -> float:
        """Σ_j λ̃_j^power over all nodes, the weights divided by their sum.

        (1-γ)² times that of power 2 measures how far from a kernel machine infinite width stays (caron2023 eq. 12).
        """

    def normalised(self, m: int) -> np.ndarray:
        """Return the first m weights, as shares of the sum of all, which is 1 unless a subclass says otherwise."""
        return self.first(m)


class Zipf(NodeWeights):
    """Zipf weights λ̃_j = j^(-1/α) / ζ(1/α) for α in (0, 1) (caron2023 eq. 4).

    Parameters
    ----------
    alpha
        Exponent α.
    """

    alpha: OpenShare  # so that the weights are summable

    def first(self, m: int) -> np.ndarray:
        return np.arange(1, m + 1, dtype=float) ** (-1 / self.alpha) / zeta(1 / self.alpha)

    def power_sum(self, power: float) -> float:
        """ζ(power/α) / ζ(1/α)^power: caron2023 figure 5 has power 2."""
        return float(zeta(power / self.alpha) / zeta(1 / self.alpha) ** power)


class FirstNodes(NodeWeights):
    """All weight on the first K nodes, 1/K each: with γ = 0, a finite network of width K (caron2023 section 2.1).

    Parameters
    ----------
    count
        Number K of nodes.
    """

    count: Count

    def first(self, m: int) -> np.ndarray:
        return np.where(np.arange(m) < self.count, 1 / self.count, 0.0)

    def power_sum(self, power: float) -> float:
        """K^(1 - power)."""
        return float(self.count) ** (1 - power)


class GivenNodes(NodeWeights):
    """Given weights; nodes beyond the end of the list have the weight 0.

    Parameters
    ----------
    weights
        Weights λ̃_1, λ̃_2, ..., at least one of them positive.
    """

    weights: tuple[NotNegative, ...] = eqx.field(converter=tuple)

    def __check_init__(self) -> None:
        if sum(self.weights) == 0:
            raise UserError(f"weights = {short(self.weights)}: give a list of numbers, at least one of them positive.")

    def first(self, m: int) -> np.ndarray:
        return np.pad(np.asarray(self.weights[:m], dtype=float), (0, max(0, m - len(self.weights))))

    def power_sum(self, power: float) -> float:
        return float(np.sum(self.normalised(len(self.weights)) ** power))

    def normalised(self, m: int) -> np.ndarray:
        return self.first(m) / float(sum(self.weights))


class Asymmetrical(Checked):
    """Node variances λ_{m,j} = γ/m + (1-γ) λ̃_j / Σ_{k<=m} λ̃_k, summing to 1 (caron2023 eq. 1).

    Parameters
    ----------
    gamma
        Symmetric share γ in [0, 1].
    weights
        Node weights λ̃.
    """

    gamma: Annotated[float, msgspec.Meta(ge=0, le=1)]
    weights: NodeWeights

    def variances(self, m: int) -> np.ndarray:
        """λ_{m,j} for j = 1..m."""
        tilde = self.weights.first(m)
        return self.gamma / m + (1 - self.gamma) * tilde / tilde.sum()


class Scaling(Checked):
    """The exponents of a network's scaling, with m neurons on D features.

    s_j = m^node (or node weights of their own), h_j = D^feature w_j·Φ(x), and w_j learns at m^rate D^feature_rate.
    The well-known ones are `mean_field`, `ntk`, `multilayer_mean_field` and `asymmetrical`.

    Parameters
    ----------
    node
        Exponent of m in s_j, or node variances of their own.
    feature
        Exponent of D in h_j.
    rate, feature_rate
        Exponents of m and D in the learning rate of w_j.
    """

    node: float | Asymmetrical
    feature: float = -0.5
    rate: float = 0.0
    feature_rate: float = 0.0

    def nodes(self, m: int) -> np.ndarray:
        """Node scales s_j: m^node, or sqrt(λ_{m,j})."""
        if isinstance(self.node, Asymmetrical):
            return np.sqrt(self.node.variances(m))
        return np.full(m, float(m) ** self.node)

    def movement(self, features: float) -> float:
        """Factor R e² D between a step of h and the kernel Φ·Φ/D, per m^rate: D^(feature_rate + 2 feature + 1)."""
        # inf ** 0 is 1 in Python, inf ** -1 is 0: the limits that an infinite embedding needs.
        return float(features) ** (self.feature_rate + 2 * self.feature + 1)

    def spread(self, features: float) -> float:
        """Standard deviation of h at the start, in units of sqrt(Φ·Φ/D): D^(feature + 1/2)."""
        return float(features) ** (self.feature + 0.5)


mean_field = Scaling(node=-1.0, rate=1.0)  # chen2022 eq. 2-3, "ours" of Table 1
ntk = Scaling(node=-0.5)
multilayer_mean_field = Scaling(node=-1.0, feature=-1.0, rate=1.0, feature_rate=1.0)  # Table 1's MF column, m² at D = m


@checked
def asymmetrical(gamma: float, weights: NodeWeights) -> Scaling:
    """Asymmetrical node scaling (caron2023): γ = 1 is the NTK scaling, γ < 1 learns features at any width.

    Parameters
    ----------
    gamma
        Symmetric share γ in [0, 1].
    weights
        Node weights λ̃.
    """
    return Scaling(node=Asymmetrical(gamma, weights))
