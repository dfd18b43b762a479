"""At the start: the mean NTG and its smallest eigenvalue, its random limit, and the weights of nodes (section 3)."""

import math
from collections.abc import Callable
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from unlazy.activations import Relu
from unlazy.flows import Trajectory
from unlazy.networks import TwoLayer, Zipf, asymmetrical, mean_field, multilayer_mean_field, ntk
from unlazy.papers.caron2023.theorems import kernels
from unlazy.papers.caron2023.theorems import setting as s
from unlazy.theory import Example, Finding, Hypothesis, Reading, Theorem, WithProbability, require
from unlazy.theory.hypotheses import gaussian_start

_INPUTS = 64  # at most; statements about random starts are checked on the first ones, as they hold for any inputs


class MeanKernelPositive(Theorem[s.Model]):
    """Prop. 3.1: κ_n = eig_min(Θ*) > 0 where no two inputs are parallel (eq. 10)."""

    key: ClassVar[str] = "caron2023/proposition-3.1"
    source: ClassVar[str] = f"{s.AUTHORS}, Proposition 3.1 and eq. 10"
    statement: ClassVar[str] = "The mean tangent kernel of inputs that are not parallel is positive definite."
    example: ClassVar[Example] = Example(s.at_start, Relu())
    counterexample: ClassVar[Example] = Example(s.at_start, Relu(), parallel=True)

    def read(self, run: Trajectory) -> Reading[s.Model]:
        """Require Assumptions 2.1 and 2.2."""
        model = yield from s.read(run)
        yield from s.relu_or_smooth(model)
        closest = _closest(model)
        yield Hypothesis("no two inputs parallel: |cos| < 1", closest < 1 - 100 * model.precision, closest, 1)
        return model

    def conclude(self, setting: s.Model) -> Finding:
        kappa, floor, closest, n = setting.kappa, setting.rounding, _closest(setting), setting.n
        numbers = {"kappa": kappa, "rounding": floor, "largest |cos|": closest, "n": float(n)}
        why = f"κ_n is {kappa:.3g} on {n} inputs, of which the two nearest to parallel have |cos| = {closest:.3g}."
        note = f"Below {floor:.2g} it cannot be distinguished from 0."
        return Finding.judge(kappa > -floor, why, kappa / floor, numbers, vacuous=kappa <= floor, if_vacuous=note)


class KernelNearItsLimit(WithProbability[s.Model]):
    """Prop. 3.3: Θ_m(W_0) → Θ_∞ = γ Θ* + (1-γ) Σ_j λ̃_j A_j, by the mean square of the distance.

    E‖Θ_m - E[Θ_∞ | w_1 ... w_m]‖_F² is known exactly (`distance_to_limit`), so with probability 1 - δ the distance of
    the given network is at most 1/√δ times its root. Nodes after the m-th add ``rest``.
    """

    key: ClassVar[str] = "caron2023/proposition-3.3"
    source: ClassVar[str] = f"{s.AUTHORS}, Proposition 3.3"
    statement: ClassVar[str] = "As width grows the NTG at the start tends to a limit, random where γ < 1."
    example: ClassVar[Example] = Example(s.at_start, Relu())
    counterexample: ClassVar[Example] = Example(s.at_start, Relu(), ntk, width=2)

    def read(self, run: Trajectory) -> Reading[s.Model]:
        model = yield from _random_start(run, s.read_any_inputs)
        yield _sums_to_one(model)
        return model

    def conclude(self, setting: s.Model) -> Finding:
        network, x = setting.network, setting.run.data.x[:_INPUTS]
        limit = kernels.limit_ntg(network, x)
        size = float(np.linalg.norm(limit.ntg))
        distance = float(np.linalg.norm(np.asarray(network.tangent_kernel(x, x), float) - limit.ntg))
        expected = kernels.distance_to_limit(network, x)
        bound = expected / self.delta**0.5 + 1e3 * setting.precision * size
        numbers = {"distance": distance, "expected": expected, "bound": bound, "limit": size, "rest": limit.rest}
        why = (
            f"|Θ_m - Θ_∞| = {distance:.3g}, on average over starts {expected:.3g}, where |Θ_∞| = {size:.3g}; nodes "
            f"after the {network.width}th move Θ_∞ by {limit.rest:.2g}."
        )
        note = f"The bound {bound:.3g} is larger than the limit: the network is too narrow to be near it."
        margin = bound / max(distance, 1e-300)
        return Finding.judge(distance <= bound, why, margin, numbers, vacuous=bound > size, if_vacuous=note)


class KernelVaries(Theorem[s.Model]):
    """Eq. 12: E‖Θ_∞ - Θ*‖_F² = C_0 (1-γ)² Σ_j λ̃_j², at width m C_0 Σ_j λ_{m,j}².

    The second, of which the first is the limit (Prop. A.2), is compared with a mean over ``draws`` random starts of the
    given network.
    """

    key: ClassVar[str] = "caron2023/eq-12"
    source: ClassVar[str] = f"{s.AUTHORS}, eq. 12"
    statement: ClassVar[str] = "The variance of the NTG over starts is proportional to the sum of squared node weights."
    example: ClassVar[Example] = Example(s.at_start, Relu())
    counterexample: ClassVar[Example] = Example(s.at_start, Relu(), multilayer_mean_field)  # another feature scale
    draws: int = eqx.field(static=True, default=1000)

    def read(self, run: Trajectory) -> Reading[s.Model]:
        return _random_start(run, s.read_any_inputs)

    def conclude(self, setting: s.Model) -> Finding:
        x, sigma = setting.x[:_INPUTS], setting.network.activation
        node, constant = kernels.asymmetrical_nodes(setting.network), kernels.node_variance(sigma, x)
        limit = constant * (1 - node.gamma) ** 2 * node.weights.power_sum(2.0)
        given = (setting.run.data.x[:_INPUTS], jnp.asarray(kernels.mean_ntg(sigma, x)), setting.unit)
        mean = s.over_starts(_variation, setting, given, self.draws, x.shape[0], key=jax.random.key(12))
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
        weak, note = mean.resolved(np.asarray(predicted)) < 5, "This number of draws cannot distinguish it from 0."
        return Finding.judge(margin >= 1, why, margin, numbers, vacuous=weak, if_vacuous=note)


def _variation(network: TwoLayer, given: tuple[Array, Array, float]) -> Array:
    x, mean, unit = given
    return jnp.sum((network.tangent_kernel(x, x) / unit - mean) ** 2)


class NodeSums(Theorem[s.Model]):
    """Prop. A.2: Σ λ = 1, √(γm) <= Σ √λ <= √m, and Σ λ^r within the bounds whose common limit is (1-γ)^r Σ λ̃^r.

    The last, eq. 17, is checked by the two inequalities of its proof, for r = 3/2 and r = 2. As printed, an
    equivalence, it is wrong for γ = 1, where one side is m^(1-r) and the other 0.
    """

    key: ClassVar[str] = "caron2023/proposition-a.2"
    source: ClassVar[str] = f"{s.AUTHORS}, Proposition A.2"
    statement: ClassVar[str] = "Node weights sum to 1; sums of their powers tend to those of the asymmetric part."
    example: ClassVar[Example] = Example(s.at_start, Relu())
    counterexample: ClassVar[Example] = Example(s.at_start, Relu(), mean_field)  # nodes of size 1/m

    def read(self, run: Trajectory) -> Reading[s.Model]:
        model = yield from s.read_any_inputs(run)
        yield _sums_to_one(model)
        return model

    def conclude(self, setting: s.Model) -> Finding:
        lam, m = setting.variances, setting.variances.size
        node, root = kernels.asymmetrical_nodes(setting.network), float(np.sum(np.sqrt(lam)))
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
            f"Σ √λ = {root:.3g} is to lie between √(γm) = {numbers['√(γm)']:.3g} and √m = {numbers['√m']:.3g}; Σ λ² "
            f"is {numbers['Σ λ^2']:.3g}, and {numbers['Σ λ^2 at infinite width']:.3g} at infinite width."
        )
        return Finding.judge(margin >= 1 - 1e4 * setting.precision, why, margin, numbers)


class StartConcentrates(WithProbability[s.Model]):
    """Prop. C.1: eig_min(Θ_m) >= eig_min(Θ^(1)) > γ κ_n / 2 with probability 1 - δ if m >= 8 n log(n/δ) / (κ_n d).

    The n in front of the logarithm bounds eig_max(X X^T), which is used instead: this requires a smaller width.
    """

    key: ClassVar[str] = "caron2023/proposition-c.1"
    source: ClassVar[str] = f"{s.AUTHORS}, Proposition C.1"
    statement: ClassVar[str] = "Wide networks start with a kernel whose smallest eigenvalue is above γ κ_n / 2."
    example: ClassVar[Example] = Example(s.at_start, Relu())
    counterexample: ClassVar[Example] = Example(s.at_start, Relu(), asymmetrical(0.0, Zipf(0.4)))  # γ = 0

    def read(self, run: Trajectory) -> Reading[s.Model]:
        """Require Assumptions 2.1 to 2.3, γ > 0, and the width."""
        model = yield from _random_start(run, s.read)
        share, positive = s.positive_mean(model)
        yield share
        yield from require(positive)
        needed, m = start_width(model, self.delta), model.variances.size
        yield Hypothesis("width m", m >= needed, m, needed)
        return model

    def conclude(self, setting: s.Model) -> Finding:
        split = kernels.parts(setting.network, setting.run.data.x)
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
            f"The smallest eigenvalue of Θ is {whole:.3g}, and {part:.3g} for its symmetric part; both are to be above "
            f"γ κ_n / 2 = {bound:.3g}."
        )
        return Finding.judge(holds, why, part / bound, numbers)


def start_width(model: s.Model, delta: float) -> float:
    """8 eig_max(X X^T) log(n/δ) / (κ_n d): the width of Prop. C.1."""
    x = np.asarray(model.x, float)
    largest = float(np.linalg.norm(x, 2)) ** 2
    return 8 * largest * math.log(model.n / delta) / (model.kappa * model.d)


def _closest(model: s.Model) -> float:
    """Largest |cos| of the angle between two inputs; 0 if there is one only."""
    x = np.asarray(model.x, float)
    norms = np.linalg.norm(x, axis=1)
    cosines = np.abs(x @ x.T / np.outer(norms, norms))
    np.fill_diagonal(cosines, 0.0)
    return float(cosines.max())


def _random_start(run: Trajectory, read: Callable[[Trajectory], Reading[s.Model]]) -> Reading[s.Model]:
    """Require the paper's model as ``read`` does, with any inputs or bounded ones, and a start by Assumption 2.3."""
    model = yield from read(run)
    yield s.slopes_at_most_one(model)
    yield from gaussian_start(np.asarray(model.w, float), "nodes")
    return model


def _sums_to_one(model: s.Model) -> Hypothesis:
    """Require eq. 15, which fixes the units of eq. 1."""
    return Hypothesis("node variances that sum to 1", abs(model.total - 1) < 1e-6, model.total, 1)
