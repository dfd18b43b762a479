"""Along a path: what follows from eigenvalues and distances that are measured (Lemmas D.1, D.2 and D.4).

The main theorems ask for widths out of reach. These lemmas are the steps of their proofs, and apply to any network.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar, NamedTuple

import jax.numpy as jnp
import numpy as np

from unlazy.activations import Relu, Tanh
from unlazy.data import Dataset
from unlazy.flows import Trajectory
from unlazy.networks import Network, TwoLayer
from unlazy.papers.caron2023.theorems._setting import (
    AUTHORS,
    Model,
    Path,
    along,
    gaussian,
    relu,
    slopes_at_most_one,
    smooth,
    start,
    three_points,
    watched,
)
from unlazy.papers.caron2023.theorems.constants import curvature
from unlazy.papers.caron2023.theorems.kernels import parts
from unlazy.probes import Kernel, Probe
from unlazy.theory._base import Finding, Hypothesis, Reading, Theorem, Verdict, through
from unlazy.theory._fall import fall
from unlazy.theory._runs import AtEnds, WithProbability


class EigenvalueBringsDecay(Theorem[Path]):
    """Lemma D.1: if eig_min(Θ_s) >= ζ/2 up to t, then L_t <= L_0 e^(-ζt).

    And |w_tj - w_0j| <= √(n λ_j / d) |y - u_0| 2/ζ. ζ is twice the smallest eigenvalue at any observed
    time: observe often, because the eigenvalue in between is not known.
    """

    key: ClassVar[str] = "caron2023/lemma-d.1"
    source: ClassVar[str] = f"{AUTHORS}, Lemma D.1"
    statement: ClassVar[str] = "While eig_min of the NTG is above 0 the loss falls fast, and no weight moves far."

    def needs(self, network: Network, data: Dataset) -> Sequence[Probe]:
        """The loss, the kernel and the weights."""
        return watched(network, data)

    def read(self, run: Trajectory) -> Reading[Path | None]:
        """The paper's model, gradient flow, and eigenvalues above 0."""
        made = yield from start(run)
        if made is None:
            return None
        yield slopes_at_most_one(made)
        path = yield from along(made)
        kernel = through(run, Kernel())
        if kernel is not None:
            smallest = float(np.min(kernel["smallest"])) / made.unit
            yield Hypothesis("eig_min(Θ) > 0 at every observed time", smallest > made.rounding, smallest, made.rounding)
        return path

    def conclude(self, setting: Path) -> Finding:
        """Hold loss and weights against the smallest eigenvalue observed."""
        made, zeta, losses = setting.model, 2 * float(setting.smallest.min()), setting.losses
        decay = fall(setting.times, losses, losses[0], setting.resolution).against(zeta, stepwise=False)
        allowed = np.sqrt(made.n * made.variances / made.d) * made.residual * 2 / zeta
        moved = setting.movement.max(axis=0)
        margin = _ratio(allowed, moved)
        numbers = decay.numbers | {
            "zeta": zeta,
            "largest movement": float(moved.max()),
            "margin of the loss": decay.margin or 0.0,
            "margin of the weights": margin,
        }
        why = f"{decay.why} No weight moves farther than {1 / margin:.2g} of what it may."
        stay = bool(np.all(moved <= allowed * (1 + 1e-6)))
        verdict = decay.verdict if stay else Verdict.FAILS
        return Finding(verdict, why, min(margin, decay.margin or np.inf), numbers)

    def example(self) -> Trajectory:
        """ReLU on three inputs."""
        return three_points(Relu())

    def counterexample(self) -> Trajectory:
        """Parallel inputs: eig_min(Θ) = 0."""
        return three_points(Relu(), parallel=True)


class Ends(NamedTuple):
    """The paper's model at the start of a run, and the network at its end."""

    model: Model
    final: TwoLayer

    def moved(self) -> np.ndarray:
        """How far the weights of each node are from their start."""
        return np.asarray(self.final.movement(self.model.network)["hidden"], float)


class ReluKernelStays(AtEnds[Ends], WithProbability[Ends]):
    """Lemma D.2: while |w_j - w_0j| <= δ² c_j / 4, ‖Θ^(k) - Θ_0^(k)‖ <= (n/d) (Σ_j λ^(k) c_j + 2 √(γ_k Σ_j λ^(k) c_j)).

    With probability 1 - δ over the start, for ReLU, both parts k of eq. 14 and all W at once. Checked where the run
    ended, with c_j = c √λ_j and c as small as the run allows. γ_1 = γ and γ_2 = 1 - γ under the root are the proof's;
    printed is 1.
    """

    key: ClassVar[str] = "caron2023/lemma-d.2"
    source: ClassVar[str] = f"{AUTHORS}, Lemma D.2"
    statement: ClassVar[str] = "While ReLU nodes stay near their start, so does the kernel, with high probability."

    def read(self, run: Trajectory) -> Reading[Ends | None]:
        """The paper's model and start, and ReLU."""
        made = yield from start(run)
        if made is not None:
            yield relu(made)
            yield from gaussian(made)
        return _ends(made)

    def conclude(self, setting: Ends) -> Finding:
        """Compare the change of both parts with their bounds."""
        made = setting.model
        moved, shares = setting.moved(), np.sqrt(made.variances)
        carries = shares > 0
        reach = float(np.max(moved[carries] / shares[carries]))
        each = 4 * reach * shares / self.delta**2
        sums = [float(made.part(k) @ each) for k in (1, 2)]
        bounds = [
            made.n / made.d * (one + 2 * math.sqrt(part * one)) for part, one in zip(made.share, sums, strict=True)
        ]
        near = _in_reach(made, reach * shares)
        certain = near + 2 * math.sqrt(made.n / made.d * near)
        return _stays(setting, bounds, {"reach": reach, "bound by the gates in reach": certain})

    def example(self) -> Trajectory:
        """Targets a millionth away from the first outputs."""
        return three_points(Relu(), near=1e-6)

    def counterexample(self) -> Trajectory:
        """Targets as they come: weights move too far for the bound to say anything."""
        return three_points(Relu())


class SmoothKernelStays(AtEnds[Ends]):
    """Lemma D.4: while |w_j - w_0j| <= c_j / 2, ‖Θ^(k) - Θ_0^(k)‖ <= n M² S/(4d²) + (n M / d^(3/2)) √(γ_k S).

    S = Σ_j λ^(k) c_j². For smooth activations, both parts k of eq. 14, without any luck. Checked where the run ended,
    with c_j twice the distance that node j has moved. γ_1 = γ and γ_2 = 1 - γ under the root are the proof's; printed
    is 1.
    """

    key: ClassVar[str] = "caron2023/lemma-d.4"
    source: ClassVar[str] = f"{AUTHORS}, Lemma D.4"
    statement: ClassVar[str] = "While smooth nodes stay near their start, so does the kernel."

    def read(self, run: Trajectory) -> Reading[Ends | None]:
        """The paper's model, and a smooth activation."""
        made = yield from start(run)
        if made is not None:
            yield from smooth(made)
        return _ends(made)

    def conclude(self, setting: Ends) -> Finding:
        """Compare the change of both parts with their bounds."""
        made = setting.model
        bend, each = curvature(made.network.activation), 2 * setting.moved()
        sums = [float(made.part(k) @ each**2) for k in (1, 2)]
        n, d = made.n, made.d
        bounds = [
            n * bend**2 / (4 * d**2) * one + n * bend / d**1.5 * math.sqrt(part * one)
            for part, one in zip(made.share, sums, strict=True)
        ]
        return _stays(setting, bounds, {"largest movement": float(each.max() / 2), "M": bend})

    def example(self) -> Trajectory:
        """Tanh on three inputs."""
        return three_points(Tanh())

    def counterexample(self) -> Trajectory:
        """ReLU has no curvature to bound."""
        return three_points(Relu())


def _ends(made: Model | None) -> Ends | None:
    final = None if made is None else made.run.final
    return Ends(made, final) if made is not None and isinstance(final, TwoLayer) else None


def _in_reach(made: Model, radii: np.ndarray) -> float:
    """(1/d) Σ_ij |x_i|² λ_j [|w_0j·x_i| <= r_j |x_i|]: what gates can change while weights stay within r_j."""
    norms = jnp.linalg.norm(made.x, axis=1)
    near = jnp.abs(made.x @ made.w.T) <= norms[:, None] * jnp.asarray(radii, norms.dtype)[None, :]
    return float((norms**2) @ near.astype(norms.dtype) @ jnp.asarray(made.variances, norms.dtype)) / made.d


def _stays(setting: Ends, bounds: list[float], more: dict[str, float]) -> Finding:
    """Compare both parts of the kernel at both ends, and the smallest eigenvalue with what is left of one."""
    made = setting.model
    before, after = (parts(network, made.raw) for network in (made.network, setting.final))
    changes = [float(np.linalg.norm(b - a, 2)) / made.unit for a, b in zip(before, after, strict=True)]
    largest = float(jnp.sum(made.x**2)) / made.d
    slack = 1e3 * made.precision * largest
    left = float(np.linalg.eigvalsh(before.symmetric)[0]) / made.unit - bounds[0]
    smallest = float(np.linalg.eigvalsh(after.symmetric + after.rest)[0]) / made.unit
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
        f"The symmetric part of Θ has moved by {changes[0]:.2g}, the rest by {changes[1]:.2g}; allowed were "
        f"{bounds[0]:.2g} and {bounds[1]:.2g}."
    )
    verdict = Verdict.HOLDS if holds else Verdict.FAILS
    if holds and all(bound >= part * largest for part, bound in zip(made.share, bounds, strict=True)):
        verdict = Verdict.VACUOUS
        why += f" No kernel of these inputs can move by more than {largest:.2g}, so that this says nothing."
    return Finding(verdict, why, margin, numbers)


def _ratio(allowed: np.ndarray, found: np.ndarray) -> float:
    """Give how many times what was found fits into what is allowed, where it does least."""
    moved = found > 0
    return float(np.min(allowed[moved] / found[moved])) if moved.any() else float("inf")
