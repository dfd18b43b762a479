"""How far training is from the linear flow: the residuals f_β and g_β, and their bound (zhou2023 Proposition 2).

With e_i = f(x_i) - y_i and the loss of eq. 1, as defined before eq. 45,

    f_β = (1/n) Σ_i e_i Σ_u a_uβ σ'(h_iuβ) P_iu + (1/n) Σ_i y_i σ'(0) Σ_u a_uβ P_iu,
    g_uβ = (1/n) Σ_i e_i σ(h_iuβ) + (1/n) Σ_i y_i σ'(0) h_iuβ,

so that θ_W,β' = Z^T θ_a,β - f_β and θ_a,β' = Z θ_W,β - g_β (eq. 45 with its sign corrected). The paper's bound omits
constants. Let all entries of P and all |y_i| be at most c, let C_L bound |σ'| and |σ''|, and let U and d be the numbers
of places and of input weights. Then Σ_u |a_uβ| ≤ √U |a_β| and |h_iuβ| ≤ c √d |W_β|, so |f(x_i)| ≤ C_L c √(U d) S with
S = Σ_β |a_β| |W_β| ≤ M E_max² / 2, and

    |f_β| ≤ (C_L² c² U d S + C_L c³ d √U |W_β|) |a_β|,
    |g_β| ≤ (C_L² c² U d S + ½ C_L c³ d √U |W_β|) |W_β|,

which gives K_1 = ½ C_L² c² U d and K_2 = C_L c³ d √U in

    |f_β| ≤ (K_1 M E_max² + K_2 E_max) |a_β|,    |g_β| ≤ (K_1 M E_max² + ½ K_2 E_max) |W_β|.

This is eq. 48 for parameters that are not divided by ε: the paper's ε E_max is E_max here. It holds for all parameters,
whether or not they lie on a flow.
"""

import math
from typing import ClassVar, NamedTuple

import jax.numpy as jnp
import numpy as np

from unlazy.data import Dataset
from unlazy.flows import Trajectory
from unlazy.losses import Squared
from unlazy.networks import Network
from unlazy.papers.outcomes import LOOSE
from unlazy.papers.zhou2023.theorems import setting as s
from unlazy.papers.zhou2023.theorems.structure import TwoLayerForm
from unlazy.probes import InputWeights, OutgoingWeights, Probe
from unlazy.theory import Example, Finding, Hypothesis, Reading, Theorem, require_type, through
from unlazy.theory.hypotheses import loss_slope


class Residual(NamedTuple):
    """f_β and g_β of every channel: θ_W' and θ_a' of the linear flow minus those of the network."""

    f: np.ndarray  # (M, d)
    g: np.ndarray  # (M, places)


def residual(
    form: TwoLayerForm, data: Dataset, weights: np.ndarray, readouts: np.ndarray, loss: Squared | None = None
) -> Residual:
    """Compute f_β and g_β of eq. 45 at given parameters, in double precision and without the linear parts that cancel.

    Parameters
    ----------
    form
        The network, with one output.
    data
        The training samples.
    weights, readouts
        θ_W, (M, d), and θ_a, (M, places).
    loss
        The squared error; its half mean if omitted.
    """
    sigma, f, g = form.activation, np.zeros(weights.shape), np.zeros(readouts.shape)
    slope, value = (float(one(jnp.zeros(()))) for one in (sigma.derivative, sigma))
    omega = loss_slope(Squared() if loss is None else loss, data.n)
    y = omega * np.asarray(data.y, float)
    for some, cut in form.patches(data):
        h = np.einsum("iud,jd->iuj", cut, weights)
        value_h, slope_h = (np.asarray(one(jnp.asarray(h)), float) for one in (sigma, sigma.derivative))
        outputs = omega * np.einsum("iuj,ju->i", value_h, readouts)
        bent = outputs[:, None, None] * slope_h - y[some, None, None] * (slope_h - slope)
        f += np.einsum("iuj,ju,iud->jd", bent, readouts, cut, optimize=True)
        g += np.einsum("i,iuj->ju", outputs, value_h) - np.einsum("i,iuj->ju", y[some], value_h - value - slope * h)
    return Residual(f, g)


def constants(form: TwoLayerForm, data: Dataset, slopes: float) -> tuple[float, float]:
    """Compute K_1 and K_2 of Proposition 2 for the loss of eq. 1.

    Parameters
    ----------
    form
        The network, with one output.
    data
        The training samples.
    slopes
        C_L.
    """
    largest = max(float(np.abs(cut).max()) for _, cut in form.patches(data))
    c = max(largest, float(np.abs(np.asarray(data.y)).max()))
    places, d = form.readouts.shape[1], form.weights.shape[1]
    return 0.5 * slopes**2 * c**2 * places * d, slopes * c**3 * d * math.sqrt(places)


class _Bounded(NamedTuple):
    """A run, its network, C_L, and its loss."""

    run: Trajectory
    form: TwoLayerForm
    slopes: float
    loss: Squared


class ResidualBound(Theorem[_Bounded]):
    """Proposition 2 with its constants: a bound of |f_β| and |g_β| of every channel, at every observed time (eq. 48).

    The bound is vacuous if every channel satisfies it by a factor of a thousand. That is the case with tanh: its σ''(0)
    is 0, so that no term is of the order of K_2 E_max, the larger part of the bound for small weights.
    """

    key: ClassVar[str] = "zhou2023/proposition-2"
    source: ClassVar[str] = f"{s.AUTHORS}, Proposition 2 (eq. 48), with the constants that its proof omits"
    statement: ClassVar[str] = "Training differs from the linear flow by at most (K_1 M E_max² + K_2 E_max) |θ|."
    example: ClassVar[Example] = Example(s.small_images, activation="silu")
    counterexample: ClassVar[Example] = Example(s.small_images)  # tanh: vacuous
    knows = staticmethod(s.is_known)

    def needs(self, network: Network, data: Dataset) -> tuple[Probe, ...]:
        form = s.form_of(network)
        return () if form is None else (InputWeights((form.layer,)), OutgoingWeights((form.layer,)))

    def read(self, run: Trajectory) -> Reading[_Bounded]:
        form = yield from s.read_form(run)
        loss = yield from require_type("squared error", run.loss, Squared)
        yield Hypothesis("one output, and all samples alike", run.data.y.ndim == 1 and run.data.weight is None)
        slopes = yield from s.first_assumption(form.activation)
        return _Bounded(run, form, slopes, loss)

    def conclude(self, setting: _Bounded) -> Finding:
        run, form, data = setting.run, setting.form, setting.run.data
        k1, k2 = (loss_slope(setting.loss, data.n) * data.n * one for one in constants(form, data, setting.slopes))
        seen = [np.asarray(through(run, probe)[form.layer], float) for probe in self.needs(run.start, data)]
        margins, printed, largest = [], [], 0.0
        for weights, out in zip(*seen, strict=True):
            readouts = out.reshape(len(out), -1)
            found = residual(form, data, weights, readouts, setting.loss)
            w, a = (np.linalg.norm(one, axis=1) for one in (weights, readouts))
            energy = float(np.sqrt(w**2 + a**2).max())
            for left, right, half in ((found.f, a, 1.0), (found.g, w, 0.5)):
                size = np.maximum(np.linalg.norm(left, axis=1), 1e-300)
                margins.append(np.min((k1 * len(w) * energy**2 + half * k2 * energy) * right / size))
                printed.append(np.min((len(w) * energy**2 + energy) * right / size))
            largest = max(largest, float(np.linalg.norm(found.f) / max(np.linalg.norm(readouts), 1e-300)))
        margin = float(min(margins))
        numbers = {
            "margin of f": float(min(margins[::2])),
            "margin of g": float(min(margins[1::2])),
            "margin with all constants 1, as printed": float(min(printed)),
            "largest |f| / |θ_a|": largest,
            "K_1": k1,
            "K_2": k2,
            "C_L": setting.slopes,
        }
        why = (
            f"At {run.times.size} times the residuals of {len(form.weights)} channels are at least {margin:.3g} times "
            f"smaller than their bounds, with K_1 = {k1:.3g} and K_2 = {k2:.3g}."
        )
        weak = f"A bound that is satisfied by a factor of more than {LOOSE:g} does not test anything."
        return Finding.judge(margin >= 1, why, margin, numbers, vacuous=margin >= LOOSE, if_vacuous=weak)
