"""What caron2023 guarantees before a run: (a)-(d) at all times, if the network is wide enough (section 4, D.3, D.5).

(a) eig_min(Θ_t) >= γ κ_n / 4, (b) L_t <= L_0 e^(-γ κ_n t / 2), (c) |w_tj - w_0j| <= reach √λ_j, (d) a bound on ‖Θ_t -
Θ_0‖.

The lemmas use |y - u_0| at the start, so that they apply to targets near the first outputs; the theorems bound it for
any targets, and require widths that no ReLU network has in practice. `monitor` compares (a)-(d) with any run, wide or
not.
"""

import math
from typing import ClassVar

import numpy as np

from unlazy._errors import UserError
from unlazy.activations import Relu, Tanh
from unlazy.flows import Trajectory
from unlazy.losses import Squared
from unlazy.networks import Zipf, asymmetrical
from unlazy.papers.caron2023.theorems import setting as s
from unlazy.papers.caron2023.theorems.constants import Guarantee, Margins, curvature, guarantee, margins
from unlazy.probes import Probe
from unlazy.theory import Example, Finding, Hypothesis, Reading, WithProbability, read_all, through
from unlazy.theory.decay import LITTLE
from unlazy.theory.hypotheses import gaussian_start, loss_slope

_JUST = 1.001  # R' < R has to be strict

Promised = tuple[s.Model, float, Guarantee]  # the paper's model, ω of its loss, and what is guaranteed


class _Guarantee(WithProbability[Promised]):
    """(a)-(d) at all times, if the network is wide enough."""

    probes: ClassVar[tuple[Probe, ...]] = s.PROBES
    knows = staticmethod(s.is_known)
    _activation = staticmethod(s.relu)  # Assumption 2.2(a), or `smooth` for (b)

    def _promise(self, model: s.Model) -> Guarantee:
        """Return the required width and the bounds: by default those of Theorems 4.1 and 4.2."""
        return _any_targets(model, self.delta)

    def read(self, run: Trajectory) -> Reading[Promised | None]:
        """Require Assumptions 2.1 to 2.3, γ > 0, gradient flow and the width."""
        model = yield from s.read(run)
        gaussian = gaussian_start(np.asarray(model.w, float), "nodes")
        conditions = *self._activation(model), *gaussian, *s.positive_mean(model)
        yield from conditions
        slope = yield from s.observed_flow(run)
        if not all(one.met for one in conditions):
            return None
        promised, m = self._promise(model), model.variances.size
        yield Hypothesis("width m", m >= promised.width, m, promised.width)
        return model, slope, promised

    def conclude(self, setting: Promised) -> Finding:
        model, slope, promised = setting
        path = s.path(model, slope)
        least = margins(promised, model.variances, *path[:5], resolution=path.relative_resolution).least()
        margin = min(least.values())
        left = math.exp(-promised.rate * float(path.times[-1]) / 2) + path.relative_resolution
        fallen = 1 - left**2  # the guaranteed fall, as far as the run can resolve it
        numbers = {f"margin of ({name})": value for name, value in least.items()} | {
            "width": float(model.variances.size),
            "width needed": promised.width,
            "kappa": model.kappa,
            "guaranteed rate": promised.rate,
            "promised fall": fallen,
            "slack in √L": path.resolution,
        }
        factors = ", ".join(f"({name}) {value:.3g}" for name, value in least.items())
        why = f"The bounds hold by these factors: {factors}. The loss is guaranteed to fall by at least {fallen:.2%}."
        unlucky = f"Over random starts this happens with probability {self.delta:g} at most."
        says = {"vacuous": fallen < LITTLE, "if_vacuous": "That restricts nothing.", "if_fails": unlucky}
        return Finding.judge(margin >= 1 - 1e-6, why, margin, numbers, **says)


class ReluConvergesNearby(_Guarantee):
    """Lemma D.3: (a)-(d) for ReLU, if m >= max(8n log(4n/δ)/(dκ), 8n Σc/(dκ), 256 n² Σc/(dκ)²).

    R'_j = √(n λ_j / d) |y - u_0| 4/(γκ) < R_j = δ² c_j / 64 is known once the network is drawn; c_j is chosen as small
    as this inequality allows.
    """

    key: ClassVar[str] = "caron2023/lemma-d.3"
    source: ClassVar[str] = f"{s.AUTHORS}, Lemma D.3"
    statement: ClassVar[str] = (
        "ReLU networks that start near enough to the targets converge, and stay near their start."
    )
    example: ClassVar[Example] = Example(s.three_points, Relu(), near=1e-9)
    counterexample: ClassVar[Example] = Example(s.three_points, Relu())

    def _promise(self, model: s.Model) -> Guarantee:
        n, d, kappa, reach = model.n, model.d, model.kappa, _reach(model)
        each = 64 * _JUST * reach / self.delta**2 * np.sqrt(model.variances)
        total, weighted = float(each.sum()), float(model.variances @ each)
        start = 8 * n * math.log(4 * n / self.delta) / (d * kappa)
        width = max(start, 8 * n / (d * kappa) * total, (16 * n / (d * kappa)) ** 2 * total)
        drift = n / d * (weighted + 2 * math.sqrt(2 * weighted))
        return Guarantee(width, model.gamma * kappa / 4, model.gamma * kappa / 2, reach, drift)


class SmoothConvergesNearby(_Guarantee):
    """Lemma D.5: (a)-(d) for smooth σ, if m >= max(8n log(2n/δ)/(dκ), n M² δ² S/(8d²κ), 4n² M² δ² S/(d³κ²)), S = Σ c².

    R'_j = √(n λ_j / d) |y - u_0| 4/(γκ) < R_j = δ c_j / 8 is known once the network is drawn; c_j is chosen as small as
    this inequality allows.
    """

    key: ClassVar[str] = "caron2023/lemma-d.5"
    source: ClassVar[str] = f"{s.AUTHORS}, Lemma D.5"
    statement: ClassVar[str] = (
        "Smooth networks that start near enough to the targets converge, and stay near their start."
    )
    example: ClassVar[Example] = Example(s.three_points, Tanh(), near=0.01)
    counterexample: ClassVar[Example] = Example(s.three_points, Tanh())
    _activation = staticmethod(s.smooth)

    def _promise(self, model: s.Model) -> Guarantee:
        n, d, kappa, reach = model.n, model.d, model.kappa, _reach(model)
        bend = curvature(model.network.activation) * self.delta
        squares = (8 * _JUST * reach / self.delta) ** 2 * model.variances
        total, weighted = float(squares.sum()), float(model.variances @ squares)
        start = 8 * n * math.log(2 * n / self.delta) / (d * kappa)
        width = max(start, n * bend**2 * total / (8 * d**2 * kappa), 4 * (n * bend) ** 2 * total / (d**3 * kappa**2))
        drift = n * bend**2 / (64 * d**2) * weighted + n * bend / (2 * d) ** 1.5 * math.sqrt(weighted)
        return Guarantee(width, model.gamma * kappa / 4, model.gamma * kappa / 2, reach, drift)


class ReluConverges(_Guarantee):
    """Theorem 4.1: ReLU networks of width 2^34 n^6 D_0² / (κ^6 d^5 γ² δ^5) and more satisfy (a)-(d).

    With probability 1 - δ. Since κ d <= ½ and D_0² >= 2/d, the width is at least 2^41 n^6. It is that of the proof; the
    printed one is twice as large.
    """

    key: ClassVar[str] = "caron2023/theorem-4.1"
    source: ClassVar[str] = f"{s.AUTHORS}, Theorem 4.1"
    statement: ClassVar[str] = "Wide enough ReLU networks with γ > 0 fit any targets at a linear rate."
    feasible: ClassVar[bool] = False
    example: ClassVar[Example] = Example(s.three_points, Relu())
    counterexample: ClassVar[Example] = Example(s.three_points, Relu(), asymmetrical(0.0, Zipf(0.4)))


class SmoothConverges(_Guarantee):
    """Theorem 4.2: smooth networks of width 2^15 n^4 M² (C² + C_1) / (κ^4 d^4 γ² δ) and more satisfy (a)-(d).

    With probability 1 - δ. The width is feasible if n is small, d is large (so that κ d is near 1 and C_1 of order 1/d)
    and targets are small.
    """

    key: ClassVar[str] = "caron2023/theorem-4.2"
    source: ClassVar[str] = f"{s.AUTHORS}, Theorem 4.2"
    statement: ClassVar[str] = "Wide enough smooth networks with γ > 0 fit any targets at a linear rate."
    example: ClassVar[Example] = Example(s.two_points)
    counterexample: ClassVar[Example] = Example(s.three_points, Tanh())
    _activation = staticmethod(s.smooth)


def monitor(run: Trajectory, delta: float = 0.05) -> Margins:
    """Compare (a)-(d) of Theorem 4.1 or 4.2 with a run of any width, time by time, and return the required width.

    The run must have the probes of ``theory.needs``; for stored numbers use `margins`. ``delta`` is the failure
    probability.
    """
    conditions, model = read_all(s.read(run))
    if model is None or not isinstance(run.loss, Squared):
        unmet = [str(one) for one in conditions if not one.met] or ["squared loss"]
        raise UserError(f"Theorems 4.1 and 4.2 of caron2023 do not describe this run. Not met: {'; '.join(unmet)}.")
    missing = [probe for probe in s.PROBES if through(run, probe) is None]
    if missing or not (run.times.size and run.times[0] == 0):
        raise UserError(
            "`monitor` needs a run observed from t = 0 on: add probes=theory.needs(network, data), and 0 to its times."
        )
    path = s.path(model, loss_slope(run.loss, run.data.n))
    return margins(_any_targets(model, delta), model.variances, *path[:5], resolution=path.relative_resolution)


def _any_targets(model: s.Model, delta: float) -> Guarantee:
    """Theorems 4.1 and 4.2."""
    sigma, largest = model.network.activation, float(np.max(np.abs(model.y)))
    return guarantee(sigma, model.variances, model.gamma, model.kappa, model.n, model.d, largest, delta)


def _reach(model: s.Model) -> float:
    """R'_j / √λ_j of Lemmas D.3 and D.5."""
    return math.sqrt(model.n / model.d) * model.residual * 4 / (model.gamma * model.kappa)
