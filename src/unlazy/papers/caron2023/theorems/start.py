"""At the start: the mean NTG and its smallest eigenvalue, its random limit, and the weights of nodes (section 3)."""

from __future__ import annotations

import math
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from unlazy.activations import Relu
from unlazy.flows import Trajectory
from unlazy.networks import TwoLayer, Zipf, asymmetrical, mean_field, multilayer_mean_field, ntk
from unlazy.papers.caron2023.theorems._draws import over_starts
from unlazy.papers.caron2023.theorems._setting import (
    AUTHORS,
    Model,
    at_start,
    either,
    gaussian,
    model,
    positive,
    slopes_at_most_one,
    start,
    sums_to_one,
    symmetric_share,
)
from unlazy.papers.caron2023.theorems.kernels import (
    asymmetrical_nodes,
    distance_to_limit,
    limit_ntg,
    mean_ntg,
    node_variance,
    parts,
)
from unlazy.theory._base import Finding, Hypothesis, Reading, Verdict
from unlazy.theory._runs import AtEnds, WithProbability, all_met

_SEEN = 64  # inputs on which laws over random starts are compared: they hold on any


class MeanKernelPositive(AtEnds[Model]):
    """Prop. 3.1: κ_n = eig_min(Θ*) > 0 where no two inputs are parallel (eq. 10)."""

    key: ClassVar[str] = "caron2023/proposition-3.1"
    source: ClassVar[str] = f"{AUTHORS}, Proposition 3.1 and eq. 10"
    statement: ClassVar[str] = "The mean tangent kernel of inputs that are not parallel is positive definite."

    def read(self, run: Trajectory) -> Reading[Model | None]:
        """Assumptions 2.1 and 2.2."""
        made = yield from start(run)
        if made is None:
            return None
        yield from either(made)
        closest = _closest(made)
        yield Hypothesis("no two inputs parallel: |cos| < 1", closest < 1 - 100 * made.precision, closest, 1)
        return made

    def conclude(self, setting: Model) -> Finding:
        """Compare κ_n with rounding."""
        kappa, floor, closest, n = setting.kappa, setting.rounding, _closest(setting), setting.n
        numbers = {"kappa": kappa, "rounding": floor, "largest |cos|": closest, "n": float(n)}
        why = f"Found κ_n = {kappa:.3g} on {n} inputs, the nearest to parallel with |cos| = {closest:.3g}."
        verdict = Verdict.HOLDS if kappa > floor else Verdict.VACUOUS if kappa > -floor else Verdict.FAILS
        if verdict is Verdict.VACUOUS:
            why += f" Below {floor:.2g} nobody tells it from 0."
        return Finding(verdict, why, kappa / floor, numbers)

    def example(self) -> Trajectory:
        """Three inputs in four dimensions."""
        return at_start(Relu())

    def counterexample(self) -> Trajectory:
        """One input is half of another."""
        return at_start(Relu(), parallel=True)


class KernelNearItsLimit(AtEnds[Model], WithProbability[Model]):
    """Prop. 3.3: Θ_m(W_0) → Θ_∞ = γ Θ* + (1-γ) Σ_j λ̃_j A_j, by the mean square of the distance.

    E‖Θ_m - E[Θ_∞ | w_1 ... w_m]‖_F² is known exactly (`distance_to_limit`), so the distance at hand is within 1/√δ of
    its root, with probability 1 - δ. Nodes after the m-th add what ``rest`` says.
    """

    key: ClassVar[str] = "caron2023/proposition-3.3"
    source: ClassVar[str] = f"{AUTHORS}, Proposition 3.3"
    statement: ClassVar[str] = "As width grows the NTG at the start tends to a limit, random where γ < 1."

    def read(self, run: Trajectory) -> Reading[Model | None]:
        """The paper's model and start, in its own units."""
        made = yield from _law(run)
        if made is not None:
            yield sums_to_one(made)
        return made

    def conclude(self, setting: Model) -> Finding:
        """Compare the distance with what it is on average."""
        network, x = setting.network, setting.raw[:_SEEN]
        limit = limit_ntg(network, x)
        size = float(np.linalg.norm(limit.ntg))
        distance = float(np.linalg.norm(np.asarray(network.tangent_kernel(x, x), float) - limit.ntg))
        expected = distance_to_limit(network, x)
        bound = expected / self.delta**0.5 + 1e3 * setting.precision * size
        numbers = {"distance": distance, "expected": expected, "bound": bound, "limit": size, "rest": limit.rest}
        why = (
            f"|Θ_m - Θ_∞| = {distance:.3g}, on average over starts {expected:.3g}, where |Θ_∞| = {size:.3g}; nodes "
            f"after the {network.width}th move Θ_∞ by {limit.rest:.2g}."
        )
        verdict = Verdict.HOLDS if distance <= bound else Verdict.FAILS
        if verdict is Verdict.HOLDS and bound > size:
            verdict = Verdict.VACUOUS
            why += f" The bound {bound:.3g} is larger than the limit: too narrow to be near it."
        return Finding(verdict, why, bound / max(distance, 1e-300), numbers)

    def example(self) -> Trajectory:
        """512 nodes, half of their weight by Zipf's law."""
        return at_start(Relu())

    def counterexample(self) -> Trajectory:
        """Two nodes are far from the limit."""
        return at_start(Relu(), scaling=ntk, width=2)


class KernelVaries(AtEnds[Model]):
    """Eq. 12: E‖Θ_∞ - Θ*‖_F² = C_0 (1-γ)² Σ_j λ̃_j², at width m C_0 Σ_j λ_{m,j}².

    The second, of which the first is the limit (Prop. A.2), is compared with a mean over ``draws`` random starts of the
    network at hand.
    """

    key: ClassVar[str] = "caron2023/eq-12"
    source: ClassVar[str] = f"{AUTHORS}, eq. 12"
    statement: ClassVar[str] = "How much the NTG varies from start to start is set by the sum of squared node weights."
    draws: int = eqx.field(static=True, default=1000)

    def read(self, run: Trajectory) -> Reading[Model | None]:
        """The paper's model."""
        return (yield from _law(run))

    def conclude(self, setting: Model) -> Finding:
        """Compare a mean over starts with the formula."""
        x, sigma = setting.x[:_SEEN], setting.network.activation
        node, constant = asymmetrical_nodes(setting.network), node_variance(sigma, x)
        limit = constant * (1 - node.gamma) ** 2 * node.weights.power_sum(2.0)
        given = (setting.raw[:_SEEN], jnp.asarray(mean_ntg(sigma, x)), setting.unit)
        mean = over_starts(_variation, setting, given, self.draws, x.shape[0], key=jax.random.key(12))
        predicted = constant * float(setting.variances @ setting.variances)
        margin, measured = mean.against(np.asarray(predicted)), float(mean.value)
        numbers = {
            "measured": measured,
            "standard error": float(mean.error),
            "predicted": predicted,
            "at infinite width": limit,
            "C_0": constant,
        }
        why = (
            f"E|Θ - Θ*|² = {measured:.3g} ± {float(mean.error):.2g} over {mean.draws} starts; the formula gives "
            f"{predicted:.3g} at this width and {limit:.3g} at infinite width."
        )
        verdict = Verdict.HOLDS if margin >= 1 else Verdict.FAILS
        if verdict is Verdict.HOLDS and mean.resolved(np.asarray(predicted)) < 5:
            verdict = Verdict.VACUOUS
            why += " So many draws cannot tell it from 0."
        return Finding(verdict, why, margin, numbers)

    def example(self) -> Trajectory:
        """Half of the weight by Zipf's law."""
        return at_start(Relu())

    def counterexample(self) -> Trajectory:
        """Pre-activations of another size."""
        return at_start(Relu(), scaling=multilayer_mean_field)


def _variation(network: TwoLayer, given: tuple[Array, Array, float]) -> Array:
    x, mean, unit = given
    return jnp.sum((network.tangent_kernel(x, x) / unit - mean) ** 2)


class NodeSums(AtEnds[Model]):
    """Prop. A.2: Σ λ = 1, √(γm) <= Σ √λ <= √m, and Σ λ^r within the bounds whose common limit is (1-γ)^r Σ λ̃^r.

    The last, eq. 17, is checked by the two inequalities of its proof, for r = 3/2 and r = 2. Printed as an equivalence
    it fails for γ = 1, where one side is m^(1-r) and the other 0.
    """

    key: ClassVar[str] = "caron2023/proposition-a.2"
    source: ClassVar[str] = f"{AUTHORS}, Proposition A.2"
    statement: ClassVar[str] = "Node weights sum to 1, and their powers to what the asymmetric share makes of them."

    def read(self, run: Trajectory) -> Reading[Model | None]:
        """Node scales of eq. 1."""
        made = yield from model(run)
        if made is not None:
            yield sums_to_one(made)
        return made

    def conclude(self, setting: Model) -> Finding:
        """Compare sums and bounds."""
        lam, m = setting.variances, setting.variances.size
        node, root = asymmetrical_nodes(setting.network), float(np.sum(np.sqrt(lam)))
        ratios = [math.sqrt(m) / root, root / max(math.sqrt(setting.gamma * m), 1e-300)]
        numbers = {"Σ √λ": root, "√m": math.sqrt(m), "√(γm)": math.sqrt(setting.gamma * m)}
        for power in (1.5, 2.0):
            own, rest = float(np.sum(lam**power)), float(np.sum(setting.part(2) ** power))
            high = (setting.gamma * m ** (1 / power - 1) + rest ** (1 / power)) ** power
            ratios += [high / own, own / max(rest, 1e-300)]
            numbers[f"Σ λ^{power:g}"] = own
            numbers[f"Σ λ^{power:g} at infinite width"] = (1 - setting.gamma) ** power * node.weights.power_sum(power)
        margin = min(ratios)
        why = (
            f"Found Σ √λ = {root:.3g} between √(γm) = {numbers['√(γm)']:.3g} and √m = {numbers['√m']:.3g}; Σ λ² = "
            f"{numbers['Σ λ^2']:.3g}, at infinite width {numbers['Σ λ^2 at infinite width']:.3g}."
        )
        holds = margin >= 1 - 1e4 * setting.precision
        return Finding(Verdict.HOLDS if holds else Verdict.FAILS, why, margin, numbers)

    def example(self) -> Trajectory:
        """Half of the weight by Zipf's law."""
        return at_start(Relu())

    def counterexample(self) -> Trajectory:
        """Mean-field nodes of size 1/m."""
        return at_start(Relu(), scaling=mean_field)


class StartConcentrates(AtEnds[Model], WithProbability[Model]):
    """Prop. C.1: eig_min(Θ_m) >= eig_min(Θ^(1)) > γ κ_n / 2 with probability 1 - δ if m >= 8 n log(n/δ) / (κ_n d).

    The n in front of the logarithm bounds eig_max(X X^T), which is taken itself: it asks for less.
    """

    key: ClassVar[str] = "caron2023/proposition-c.1"
    source: ClassVar[str] = f"{AUTHORS}, Proposition C.1"
    statement: ClassVar[str] = "Wide networks start with a kernel whose smallest eigenvalue is above γ κ_n / 2."

    def read(self, run: Trajectory) -> Reading[Model | None]:
        """Assumptions 2.1 to 2.3, γ > 0, and the width."""
        made = yield from _law(run)
        if made is None:
            return None
        yield symmetric_share(made)
        if (yield from all_met(positive(made))):
            needed, m = start_width(made, self.delta), made.variances.size
            yield Hypothesis("width m", m >= needed, m, needed)
        return made

    def conclude(self, setting: Model) -> Finding:
        """Compare the eigenvalues."""
        split = parts(setting.network, setting.raw)
        part = float(np.linalg.eigvalsh(split.symmetric)[0]) / setting.unit
        whole = float(np.linalg.eigvalsh(split.symmetric + split.rest)[0]) / setting.unit
        bound, slack = setting.gamma * setting.kappa / 2, setting.rounding
        holds = part > bound - slack and whole >= part - slack
        numbers = {
            "eig_min": whole,
            "eig_min of the symmetric part": part,
            "bound": bound,
            "kappa": setting.kappa,
            "width needed": start_width(setting, self.delta),
            "printed width": 8 * setting.n * math.log(setting.n / self.delta) / (setting.kappa * setting.d),
        }
        why = (
            f"Found eig_min(Θ) = {whole:.3g} and for its symmetric part {part:.3g}, where more than γ κ_n / 2 = "
            f"{bound:.3g} was wanted."
        )
        return Finding(Verdict.HOLDS if holds else Verdict.FAILS, why, part / bound, numbers)

    def example(self) -> Trajectory:
        """512 nodes on three inputs."""
        return at_start(Relu())

    def counterexample(self) -> Trajectory:
        """No symmetric share."""
        return at_start(Relu(), scaling=asymmetrical(0.0, Zipf(0.4)))


def start_width(made: Model, delta: float) -> float:
    """8 eig_max(X X^T) log(n/δ) / (κ_n d): the width of Prop. C.1."""
    x = np.asarray(made.x, float)
    largest = float(np.linalg.norm(x, 2)) ** 2
    return 8 * largest * math.log(made.n / delta) / (made.kappa * made.d)


def _closest(made: Model) -> float:
    """Largest |cos| of the angle between two inputs; 0 if there is one only."""
    x = np.asarray(made.x, float)
    norms = np.linalg.norm(x, axis=1)
    cosines = np.abs(x @ x.T / np.outer(norms, norms))
    np.fill_diagonal(cosines, 0.0)
    return float(cosines.max())


def _law(run: Trajectory) -> Reading[Model | None]:
    """The paper's model, with a start drawn by Assumption 2.3."""
    made = yield from start(run)
    if made is not None:
        yield slopes_at_most_one(made)
        yield from gaussian(made)
    return made
