"""Theorem 2.1: the mean-field ODEs have one solution, the limit of Picard iterations; and Lemmas D.2 to D.4."""

import math
from typing import ClassVar, cast

import jax.numpy as jnp
import numpy as np
from scipy.integrate import cumulative_trapezoid

from unlazy.flows import Trajectory
from unlazy.losses import Squared
from unlazy.networks import Block, MeanFieldStack, Network
from unlazy.papers.aiad2026.probes import ChannelDrive
from unlazy.papers.aiad2026.theorems import problems
from unlazy.papers.aiad2026.theorems import setting as common
from unlazy.papers.aiad2026.theorems.limit_point import subgaussian
from unlazy.papers.aiad2026.theorems.picard import Path, Picard, ceiling, curvature, trajectory_distance
from unlazy.papers.aiad2026.theorems.setting import AUTHORS, largest, moment
from unlazy.probes import Probe, TrainedNeurons
from unlazy.theory import Example, Finding, Hypothesis, Reading, Theorem, require
from unlazy.theory.hypotheses import gradient_flow

_WEAK = 1e3  # a bound that exceeds what it bounds by this factor says nothing
_COARSE = 1e-3  # integrals over time with a larger error, as a share of the movement, say nothing
_ITERATIONS = 12
_NO_BOUND = f"A bound that is satisfied by a factor of more than {_WEAK:,.0f} does not test anything."


def is_three_layers(network: Network) -> bool:
    """Return whether a network is the paper's with two blocks, the first of which may be infinite."""
    return isinstance(network, MeanFieldStack) and network.depth == 2 and common.is_random_features(network)


class _OfOperator(Theorem[Picard]):
    """A statement on F and the trajectories to which it is applied."""

    example: ClassVar[Example] = Example(problems.few_points, until=0.25)
    counterexample: ClassVar[Example] = Example(problems.at_the_kink)
    probes: ClassVar[tuple[Probe, ...]] = (ChannelDrive(), TrainedNeurons())
    knows = staticmethod(is_three_layers)

    def read(self, run: Trajectory) -> Reading[Picard]:
        yield from common.three_layers(run)
        yield from require(Hypothesis("squared loss", isinstance(run.loss, Squared)), gradient_flow(run))
        yield common.from_start(run)
        setting = Picard(run)
        bend = curvature(setting.second.activation)
        yield Hypothesis("phi_2' is Lipschitz, which C.1 does not require (sup |phi_2''|)", math.isfinite(bend), bend)
        return setting


def _chain(setting: Picard, one: Path, other: Path, count: int) -> tuple[np.ndarray, float]:
    """Return the distances at the end of F^m of two trajectories for m = 0 ... count, and the largest c of any pair."""
    distances, constant = [trajectory_distance(one, other)[-1]], 0.0
    for _ in range(count):
        (one, _, size), (other, _, more) = setting.apply(one), setting.apply(other)
        distances.append(trajectory_distance(one, other)[-1])
        constant = max(constant, setting.lipschitz(size, more))
    return np.asarray(distances), constant


class WellPosed(_OfOperator):
    """Theorem 2.1: the ODEs have one solution, to which F^m(W') converges from any trajectory W'.

    The proof needs a Lipschitz φ_2', which C.1 does not ask for and leaky ReLU does not have: then there may be many
    solutions, or none (see the errata). With it, Lemma D.4 holds with a constant c (`Picard.lipschitz`) and without its
    remainder, so that ‖F^m(W') - F^m(W'')‖_T <= (cT)^m/m! ‖W' - W''‖_T. This is checked for W'' the run and W' a
    network at rest, up to m = 12 or the accuracy of the run, with c from the trajectories themselves. It is also
    checked that the run is a fixed point, F(W) = W. The margin is that of the first m for which the bound is below 1,
    that is, for which it says that F^m contracts. F is applied by quadrature in time; the norm of an infinite first
    block is a mean over 4096 neurons of its law.
    """

    key: ClassVar[str] = "aiad2026/theorem-2.1"
    source: ClassVar[str] = f"{AUTHORS}, Theorem 2.1"
    statement: ClassVar[str] = "The mean-field ODEs have one solution, the limit of Picard iterations."

    def conclude(self, setting: Picard) -> Finding:
        run, rest = setting.path, setting.path.scaled(0, 0)
        image, error, _ = setting.apply(run)
        off, moved = trajectory_distance(image, run)[-1], trajectory_distance(rest, run)[-1]
        slack = error + setting.precision * _size(setting)
        distances, constant = _chain(setting, rest, run, _ITERATIONS)
        order = np.arange(len(distances))
        reach = constant * float(setting.run.times[-1])
        logs = order * math.log(max(reach, 1e-300)) - np.array([math.lgamma(m + 1) for m in order])
        bounds = np.exp(np.minimum(logs, 700)) * moved
        # Iterates differ from F's own by the slack of each step, which later steps can multiply by e^(cT) at most.
        noise = slack * math.exp(min(reach, 700))
        holds = off <= slack and bool(np.all(distances <= bounds + noise))
        first = next((m for m in order if bounds[m] < moved and m > 0), -1)
        usable = first > 0 and bool(distances[first] > 10 * noise)
        margin = float(bounds[first] / distances[first]) if usable else None
        shrinks = int(np.argmax(distances < distances[0])) if moved > 0 else 0
        last = int(np.flatnonzero(distances > 10 * slack)[-1]) if moved > 10 * slack else 0
        numbers = {
            "distance of F(W) from W": float(off),
            "slack": float(slack),
            "movement": float(moved),
            "c": constant,
            "cT": reach,
            "first m with a distance below that of m = 0": float(shrinks),
            "first m with a bound below that of m = 0": float(first),
            f"distance after {last} iterations": float(distances[last]),
            f"bound after {last} iterations": float(bounds[last]),
        }
        why = (
            f"F changes the run by {off:.2g}, while its weights move by {moved:.2g}. From rest, {last} iterations come "
            f"within {distances[last]:.2g} of it, where {bounds[last]:.2g} is allowed; cT = {reach:.3g}."
        )
        weak = margin is None or margin >= _WEAK or slack >= _COARSE * moved
        return Finding.judge(holds, why, margin, numbers, vacuous=weak, if_vacuous=_NO_BOUND)


def _size(setting: Picard) -> float:
    """Return the factor from a relative error of the run's outputs to an error in the norm of `trajectory_distance`.

    Amplitudes of an infinite first block are computed from its channels, which multiplies errors by |φ_1|/eig_min(K)^½.
    """
    size = largest(setting.path.channels) + largest(setting.path.second)
    if isinstance(setting.first, Block):
        return size + largest(setting.path.first)
    least = np.linalg.eigvalsh(setting.gram)[0]
    return size * (1 + math.sqrt(len(setting.x) / max(least, 1e-300)))


class Contraction(_OfOperator):
    """Lemma D.4: ‖F(W') - F(W'')‖_t <= c ∫_0^t ‖W' - W''‖_s ds for all t, with the constant c of `Picard.lipschitz`.

    The printed constant is (K K_0(T))⁴, with a remainder √2 e^(-K_1 B²/2) that comes from the good and bad events of
    the proof. Neither is needed: mixing entries are bounded, so that H_2 changes by at most |L|_1 max_k |Δf_k| in all
    neurons, and second moments of w_2 are enough. The pairs are the run and four other trajectories, in which changes
    of w_1 and w_2 are omitted or doubled, and their images under F. For a finite first block, `numbers` has a lower
    bound on the printed constant, with K_0(T) = E[sup |w|^50]^(1/50) of the run.
    """

    key: ClassVar[str] = "aiad2026/lemma-d.4"
    source: ClassVar[str] = f"{AUTHORS}, Lemma D.4"
    statement: ClassVar[str] = "The solution operator is Lipschitz in the weights, integrated over time."

    def conclude(self, setting: Picard) -> Finding:
        times, ratios, constants = setting.run.times, [], []
        errors, moved = [], trajectory_distance(setting.path, setting.path.scaled(0, 0))[-1]
        pairs = [(setting.path, setting.path.scaled(*factors)) for factors in ((0, 0), (2, 2), (1, 0), (0, 1))]
        for _ in range(2):
            images = []
            for one, other in pairs:
                (left, wrong, size), (right, worse, more) = setting.apply(one), setting.apply(other)
                before, after = trajectory_distance(one, other), trajectory_distance(left, right)
                constant = setting.lipschitz(size, more)
                allowed = constant * cumulative_trapezoid(before, times)  # the norm grows with time
                clear = after[1:] > 10 * (wrong + worse)
                ratios.append((allowed[clear] + wrong + worse) / after[1:][clear])
                constants.append(constant)
                errors.append(wrong + worse)
                images.append((left, right))
            pairs = images
        found = np.concatenate(ratios)
        margin = float(found.min()) if found.size else None
        numbers = {"c": max(constants), "smallest c": min(constants), "pairs": float(len(constants))}
        numbers |= {"error of the integrals": max(errors), "movement": float(moved)}
        if isinstance(setting.first, Block):
            # The smallest K >= 1 that bounds features, mixing entries, and the slopes of φ_2 and of the loss.
            k = max(1.0, largest(setting.features), largest(setting.mixing), setting.second.activation.lipschitz)
            numbers["printed constant, at least"] = k**4 * norm(_weights(setting), 50.0) ** 4
        why = (
            f"The images of {len(constants)} pairs of trajectories differ by at most {1 / (margin or math.inf):.3g} "
            f"times what c = {max(constants):.3g} allows."
        )
        vacuous = margin is None or margin >= _WEAK
        return Finding.judge(margin is None or margin >= 1, why, margin, numbers, vacuous=vacuous, if_vacuous=_NO_BOUND)


def _weights(setting: Picard, path: Path | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Return sup_s |w_1| and sup_s |w_2| of each neuron along a trajectory, by default the run: (neurons, r) each."""
    path = setting.path if path is None else path
    starts = [np.asarray(cast(Block, block).a, float) for block in setting.network.blocks]
    first, second = starts[0] + path.first, starts[1] + path.second[:, :, None]
    return np.abs(first).max(axis=0), np.abs(second).max(axis=0)


def norm(weights: tuple[np.ndarray, np.ndarray], order: float) -> float:
    """Compute the norms of Appendix D.2: the larger of max_k E[|w_1|^p]^(1/p) and E[|w_2|^p]^(1/p).

    The order p is 50 for W_t, and 2 for ‖W‖_t. An infinite one gives the norm of type ψ_2, √50 sup_m m^-½
    E[|w|^m]^(1/m). ``weights`` are sup_s |w_1| and sup_s |w_2|, with a row for each neuron.
    """
    if math.isinf(order):
        return math.sqrt(50) * max(subgaussian(column) for rows in weights for column in rows.T)
    return max(float(moment(rows, order).max()) for rows in weights)


def growth(setting: Picard, slope: float, times: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Bound |w_1 - w_1(0)| and |w_2 - w_2(0)| of every neuron at every time: K_0(t) of Lemma D.2, made explicit.

    With Σ π|d| <= D, Φ = sup|φ_1| and ℓ the Lipschitz constant of φ_2 they are I_1 and I_2 of
    I_1' = ℓ Φ D max_k E[L_k²]^½ (E[w_2(0)²]^½ + I_2), I_2' = D min(sup|φ_2|, |φ_2(0)| + ℓ Φ |L|_∞,1 (U + I_1)) with
    U = max_k E|w_1(0)|. They grow as t² and t where φ_2 is bounded, and like cosh and sinh elsewhere.

    Parameters
    ----------
    setting
        A run with a finite first block.
    slope
        The bound D.
    times
        The times t.
    """
    phi, mixing = setting.second.activation, np.abs(setting.mixing)
    size, reach = largest(setting.features), float(mixing.sum(axis=1).max())
    w_1, w_2 = (np.asarray(cast(Block, block).a, float) for block in setting.network.blocks)
    u, v = float(np.abs(w_1).mean(axis=0).max()), float(np.sqrt(np.mean(w_2**2)))
    a = phi.lipschitz * size * slope * float(np.sqrt(np.mean(mixing**2, axis=0).max()))
    b, zero, top = phi.lipschitz * size * reach, float(jnp.abs(phi(jnp.zeros(())))), ceiling(phi)
    found = []
    if math.isfinite(top):
        found.append((a * (v * times + slope * top * times**2 / 2), slope * top * times))
    if a * b > 0:
        omega, shift = math.sqrt(a * slope * b), zero / b
        even, odd = np.cosh(omega * times) - 1, np.sinh(omega * times)
        found.append(((u + shift) * even + a * v / omega * odd, omega / a * (u + shift) * odd + v * even))
    below, above = zip(*found, strict=True) if found else ([0 * times], [slope * zero * times])
    return np.min(below, axis=0), np.min(above, axis=0)


class _Growing(_OfOperator):
    """A bound on how far weights move, for finite blocks."""

    example: ClassVar[Example] = Example(problems.few_points, first=24, until=0.25)
    counterexample: ClassVar[Example] = problems.TRAINED_FEATURES

    def read(self, run: Trajectory) -> Reading[Picard]:
        setting = yield from super().read(run)
        yield Hypothesis("a finite first block", isinstance(setting.first, Block))
        yield common.without_biases(setting.second)
        return setting

    def _judge(self, setting: Picard, paths: list[Path], slope: float, error: float, what: str) -> Finding:
        """Compare the movement along trajectories with what `growth` allows for this bound on Σ π|d|."""
        times, ratios = setting.run.times, []
        allowed, slack = growth(setting, slope, times), error + setting.precision * _size(setting)
        for path in paths:
            for rows, most in zip(path[1:], allowed, strict=True):
                moved = np.maximum.accumulate(np.abs(rows), axis=0).reshape(len(times), -1).max(axis=1)
                clear = moved > 10 * slack
                ratios.append((most[clear] + slack) / moved[clear])
        found = np.concatenate(ratios)
        least = float(found.min()) if found.size else None
        numbers = {"bound on Σ π|d|": slope, "allowed movement of w_1": float(allowed[0][-1])}
        numbers |= {"allowed movement of w_2": float(allowed[1][-1])}
        names = {50.0: "W_T", 2.0: "‖W‖_T", math.inf: "psi_2 norm"}
        holds = least is None or least >= 1
        for order, name in names.items():
            start = norm(_weights(setting, setting.path.scaled(0, 0)), order)
            unit = math.sqrt(50) if math.isinf(order) else 1.0
            bound = start + unit * max(float(one[-1]) for one in allowed)
            most = max(norm(_weights(setting, path), order) for path in paths)
            holds = holds and most <= bound * (1 + 1e-9)
            numbers |= {name: most, f"K_0(T) of {name}": bound}
        why = (
            f"{what} move by at most {1 / (least or math.inf):.3g} times what is allowed; W_T is {numbers['W_T']:.3g}, "
            f"and K_0(T) = {numbers['K_0(T) of W_T']:.3g}."
        )
        vacuous = least is None or least >= _WEAK
        return Finding.judge(holds, why, least, numbers, vacuous=vacuous, if_vacuous=_NO_BOUND)


class WeightBounds(_Growing):
    """Lemma D.2: weights of a solution stay below K_0(t) in the norms of order 50, 2 and ψ_2; here K_0 is explicit.

    K_0(t) is the norm at the start plus what `growth` allows, with Σ π|d| <= (Σ π)^½ (2 L(0))^½: the slope of the
    squared loss is not bounded, as C.3 asks, but the loss falls along the flow. Beyond what the lemma says, the
    movement of every neuron is compared at every time. The printed K_0(t), with an unspecified exponent κ, grows as a
    power of t for every φ_2 that C.1 allows; that is false for leaky ReLU (see the errata), for which `growth` is
    exponential.
    """

    key: ClassVar[str] = "aiad2026/lemma-d.2"
    source: ClassVar[str] = f"{AUTHORS}, Lemma D.2"
    statement: ClassVar[str] = "Weights grow no faster than the loss at the start allows."

    def conclude(self, setting: Picard) -> Finding:
        run = setting.run
        start = float(run.loss(run.start(run.data.x), run.data.y, run.data.weight))
        slope = math.sqrt(2 * setting.loss_slope * float(setting.shares.sum()) * start)
        return self._judge(setting, [setting.path], slope, 0.0, "Weights")


class BoundedSets(_Growing):
    """Lemma D.3: F maps trajectories that stay below K_0(t) at all t to such trajectories.

    The printed lemma only asks W' to stay below K_0(T), the bound at the last time. F does not preserve that: with
    w_2' = K_0(T) from early on, F_1(W') reaches T K_0(T) (see the errata). Here K_0(t) of `growth` bounds W' at every
    time, with D the largest Σ π|d| along these trajectories. They are the run, a network at rest and three of its
    iterates under F, and one on the boundary, in which every weight moves as far as is allowed.
    """

    key: ClassVar[str] = "aiad2026/lemma-d.3"
    source: ClassVar[str] = f"{AUTHORS}, Lemma D.3"
    statement: ClassVar[str] = "The solution operator keeps trajectories below the a-priori bound on weights."

    def conclude(self, setting: Picard) -> Finding:
        times, rest = setting.run.times, setting.path.scaled(0, 0)
        members = [setting.path, rest]
        found = [setting.apply(one) for one in members]
        for _ in range(3):
            members.append(found[-1][0])
            found.append(setting.apply(members[-1]))
        slope = max(sizes.slope for _, _, sizes in found)
        signs = [np.sign(np.asarray(cast(Block, block).a, float)) for block in setting.network.blocks]
        below, above = growth(setting, slope, times)
        edge = setting.at(below[:, None, None] * signs[0], above[:, None] * signs[1][:, 0])
        found.append(setting.apply(edge))
        slope = max(slope, found[-1][2].slope)
        images, errors = [one for one, _, _ in found], [wrong for _, wrong, _ in found]
        return self._judge(setting, images, slope, max(errors), f"Images of {len(images)} trajectories")
