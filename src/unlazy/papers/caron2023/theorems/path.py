"""Along a run: what follows from measured eigenvalues and distances (Lemmas D.1, D.2 and D.4).

The main theorems require widths that are not feasible. These lemmas, steps of their proofs, apply to any network.
"""

import math
from typing import ClassVar, cast

import jax.numpy as jnp
import numpy as np

from unlazy.activations import Relu, Tanh
from unlazy.flows import Trajectory
from unlazy.networks import TwoLayer
from unlazy.papers.caron2023.theorems import setting as s
from unlazy.papers.caron2023.theorems.constants import curvature
from unlazy.papers.caron2023.theorems.kernels import parts
from unlazy.probes import Kernel, Probe
from unlazy.theory import Example, Finding, Hypothesis, Reading, Theorem, Verdict, WithProbability, through
from unlazy.theory.decay import Fall
from unlazy.theory.hypotheses import gaussian_start


class EigenvalueImpliesDecay(Theorem[tuple[s.Model, float]]):
    """Lemma D.1: if eig_min(Θ_s) >= ζ/2 up to t, then L_t <= L_0 e^(-ζt).

    Also |w_tj - w_0j| <= √(n λ_j / d) |y - u_0| 2/ζ. Here ζ is twice the smallest eigenvalue at any observed time;
    observe the run often, as the eigenvalue is not known between these times.
    """

    key: ClassVar[str] = "caron2023/lemma-d.1"
    source: ClassVar[str] = f"{s.AUTHORS}, Lemma D.1"
    statement: ClassVar[str] = "While eig_min of the NTG is above 0 the loss falls fast, and no weight moves far."
    probes: ClassVar[tuple[Probe, ...]] = s.PROBES
    knows = staticmethod(s.is_known)
    example: ClassVar[Example] = Example(s.three_points, Relu())
    counterexample: ClassVar[Example] = Example(s.three_points, Relu(), parallel=True)  # eig_min(Θ) = 0

    def read(self, run: Trajectory) -> Reading[tuple[s.Model, float]]:
        model = yield from s.read(run)
        yield s.slopes_at_most_one(model)
        slope = yield from s.observed_flow(run)
        kernel = through(run, Kernel())
        if kernel is not None:
            smallest, floor = float(np.min(kernel["smallest"])) / model.unit, model.rounding
            yield Hypothesis("eig_min(Θ) > 0 at every observed time", smallest > floor, smallest, floor)
        return model, slope

    def conclude(self, setting: tuple[s.Model, float]) -> Finding:
        model, path = setting[0], s.path(*setting)
        zeta = 2 * float(path.smallest.min())
        decay = Fall(path.times, path.losses, path.resolution, path.rounding).against(zeta, stepwise=False)
        allowed = np.sqrt(model.n * model.variances / model.d) * model.residual * 2 / zeta
        moved = path.movement.max(axis=0)
        margin = _ratio(allowed, moved)
        numbers = decay.numbers | {
            "zeta": zeta,
            "largest movement": float(moved.max()),
            "margin of the weights": margin,
        }
        if decay.margin is not None:
            numbers["margin of the loss"] = decay.margin
        why = f"{decay.why} No weight moves farther than {1 / margin:.2g} times its bound."
        stay = bool(np.all(moved <= allowed * (1 + 1e-6)))
        verdict = decay.verdict if stay else Verdict.FAILS
        return Finding(verdict, why, margin if decay.margin is None else min(margin, decay.margin), numbers)


class ReluKernelStays(WithProbability[s.Model]):
    """Lemma D.2: while |w_j - w_0j| <= δ² c_j / 4, ‖Θ^(k) - Θ_0^(k)‖ <= (n/d) (Σ_j λ^(k) c_j + 2 √(γ_k Σ_j λ^(k) c_j)).

    With probability 1 - δ over the start, for ReLU, for both parts k of eq. 14 and all W at once. It is checked at the
    end of the run, with c_j = c √λ_j and c as small as the run allows. γ_1 = γ and γ_2 = 1 - γ under the root are those
    of the proof; the paper prints 1.
    """

    key: ClassVar[str] = "caron2023/lemma-d.2"
    source: ClassVar[str] = f"{s.AUTHORS}, Lemma D.2"
    statement: ClassVar[str] = "While ReLU nodes stay near their start, so does the kernel, with high probability."
    example: ClassVar[Example] = Example(s.three_points, Relu(), near=1e-6)
    counterexample: ClassVar[Example] = Example(s.three_points, Relu())  # weights move too far for the bound

    def read(self, run: Trajectory) -> Reading[s.Model]:
        model = yield from s.read(run)
        yield from s.relu(model)
        yield from gaussian_start(np.asarray(model.w, float), "nodes")
        return model

    def conclude(self, setting: s.Model) -> Finding:
        moved, shares = _moved(setting), np.sqrt(setting.variances)
        carries = shares > 0
        reach = float(np.max(moved[carries] / shares[carries]))
        each = 4 * reach * shares / self.delta**2
        bounds = [setting.n / setting.d * (one + 2 * math.sqrt(part * one)) for part, one in _sums(setting, each)]
        near = _in_reach(setting, reach * shares)
        certain = near + 2 * math.sqrt(setting.n / setting.d * near)
        return _stays(setting, bounds, {"reach": reach, "bound by the gates in reach": certain})


class SmoothKernelStays(Theorem[s.Model]):
    """Lemma D.4: while |w_j - w_0j| <= c_j / 2, ‖Θ^(k) - Θ_0^(k)‖ <= n M² S/(4d²) + (n M / d^(3/2)) √(γ_k S).

    S = Σ_j λ^(k) c_j². For smooth activations and both parts k of eq. 14, with certainty. It is checked at the end of
    the run, with c_j twice the distance that node j has moved. γ_1 = γ and γ_2 = 1 - γ under the root are those of the
    proof; the paper prints 1.
    """

    key: ClassVar[str] = "caron2023/lemma-d.4"
    source: ClassVar[str] = f"{s.AUTHORS}, Lemma D.4"
    statement: ClassVar[str] = "While smooth nodes stay near their start, so does the kernel."
    example: ClassVar[Example] = Example(s.three_points, Tanh())
    counterexample: ClassVar[Example] = Example(s.three_points, Relu())  # its curvature has no bound

    def read(self, run: Trajectory) -> Reading[s.Model]:
        model = yield from s.read(run)
        yield from s.smooth(model)
        return model

    def conclude(self, setting: s.Model) -> Finding:
        bend, each = curvature(setting.network.activation), 2 * _moved(setting)
        n, d = setting.n, setting.d
        bounds = [
            n * bend**2 / (4 * d**2) * one + n * bend / d**1.5 * math.sqrt(part * one)
            for part, one in _sums(setting, each**2)
        ]
        return _stays(setting, bounds, {"largest movement": float(each.max() / 2), "M": bend})


def _moved(model: s.Model) -> np.ndarray:
    """Return the distance of each node's weights from their start at the end of the run."""
    return np.asarray(model.run.final.movement(model.network)["hidden"], float)


def _sums(model: s.Model, each: np.ndarray) -> list[tuple[float, float]]:
    """Return γ_k and Σ_j λ_j^(k) c_j of both parts k of eq. 14, γ_1 = γ and γ_2 = 1 - γ."""
    return [(share, float(model.part(k) @ each)) for k, share in ((1, model.gamma), (2, 1 - model.gamma))]


def _in_reach(model: s.Model, radii: np.ndarray) -> float:
    """(1/d) Σ_ij |x_i|² λ_j [|w_0j·x_i| <= r_j |x_i|]: bounds what gates can change while weights stay within r_j."""
    norms = jnp.linalg.norm(model.x, axis=1)
    near = jnp.abs(model.x @ model.w.T) <= norms[:, None] * jnp.asarray(radii, norms.dtype)[None, :]
    return float((norms**2) @ near.astype(norms.dtype) @ jnp.asarray(model.variances, norms.dtype)) / model.d


def _stays(model: s.Model, bounds: list[float], more: dict[str, float]) -> Finding:
    """Compare the change of both parts of the kernel, and its smallest eigenvalue, with their bounds."""
    ends = model.network, cast(TwoLayer, model.run.final)
    before, after = (parts(network, model.run.data.x) for network in ends)
    changes = [float(np.linalg.norm(b - a, 2)) / model.unit for a, b in zip(before, after, strict=True)]
    largest = float(jnp.sum(model.x**2)) / model.d
    slack = 1e3 * model.precision * largest
    left = float(np.linalg.eigvalsh(before.symmetric)[0]) / model.unit - bounds[0]
    smallest = float(np.linalg.eigvalsh(after.symmetric + after.rest)[0]) / model.unit
    holds = all(change <= bound + slack for change, bound in zip(changes, bounds, strict=True))
    holds = holds and smallest >= left - slack
    numbers = {
        "change of the symmetric part": changes[0],
        "its bound": bounds[0],
        "change of the rest": changes[1],
        "bound of the rest": bounds[1],
        "eig_min": smallest,
        "eig_min guaranteed": left,
    } | more
    margin = _ratio(np.array(bounds) + slack, np.array(changes))
    why = (
        f"The symmetric part of Θ has changed by {changes[0]:.2g}, the rest by {changes[1]:.2g}; the bounds are "
        f"{bounds[0]:.2g} and {bounds[1]:.2g}."
    )
    weak = bounds[0] >= model.gamma * largest and bounds[1] >= (1 - model.gamma) * largest
    note = f"No kernel of these inputs can change by more than {largest:.2g}, so the bounds restrict nothing."
    return Finding.judge(holds, why, margin, numbers, vacuous=weak, if_vacuous=note)


def _ratio(allowed: np.ndarray, found: np.ndarray) -> float:
    """Return the smallest ratio of what is allowed to what was found."""
    moved = found > 0
    return float(np.min(allowed[moved] / found[moved])) if moved.any() else float("inf")
