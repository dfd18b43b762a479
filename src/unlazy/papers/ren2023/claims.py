"""The claims of figure 2: the strict reading of each sentence and, for some, also a weaker one."""

from dataclasses import replace

import numpy as np
import xarray as xr

from unlazy.papers._base import Claim, Results, option
from unlazy.papers._curves import exponents, min_max
from unlazy.papers.outcomes import Judgement, at_least, at_most, certain, near, ordered, together, undecided
from unlazy.papers.ren2023 import quantities as q
from unlazy.papers.ren2023.quantities import CLIPS, FINITE_STAGES, INFINITE, STAGES, plateau_of, predicted_decay
from unlazy.papers.ren2023.theorems import active_inside, least_rate_ratio, rate_bound

_LOW = 1e-4  # the loss to be reached at the end
_FITTED = 1e-3  # ε of T_2
_NEAR = 0.02  # allowed error of w̄_2 α and b̄_2 at the end, and allowed δ_2 as a share of |(w̄_2, b̄_2)|
_ALIKE = 0.05  # allowed relative error of the plateau, of the time of the fall and of f
_SAME = 0.2  # allowed difference between the two sides of eq. 6, as in the theorem `ren2023/eq-6`
_ERROR = 1e-3  # relative error of the runs, for which "never grows" allows
_STEEP = 0.1  # allowed error of a power, and of the logarithm of a decay
_GONE = 1e-2  # share of degree 1 that may be left
_UNREACHED = certain(False, "w_2 does not stay negative: stage 2 is not reached")


def figure_claims(runs: Results) -> list[Claim]:
    """Return all claims of figure 2."""
    main, limit = runs[q.main_label(runs)], runs[INFINITE]
    return [*_training(main, limit), *_spreads(main, limit), *_errors(runs), *_rates(limit), *_stages(runs)]


def _training(run: xr.Dataset, limit: xr.Dataset) -> list[Claim]:
    """Judge the fall of the loss, its end, f against f̃, and infinite width."""
    loss, times, plateau = run["train-loss"].values, run["time"].values, plateau_of(limit)
    fall, limit_fall = q.fall_times(run, plateau), q.fall_times(limit, plateau)
    weight, bias = (run[f"second-layer.{name}"].values[:, -1] for name in ("weight", "bias"))
    slope = weight * run["first-layer.alpha"].values[:, -1]
    distance = run["limit-distance.relative"].values
    apart, falls = np.abs(fall / limit_fall - 1), np.isfinite(fall).all()
    # Once b_2 has settled, the loss stays at that of the best constant until it falls.
    waits = [one[(times >= 0.05 * when) & (times <= 0.5 * when)] for one, when in zip(loss, fall, strict=True)]
    off = np.array([np.max(np.abs(one / plateau - 1), initial=0.0) for one in waits])
    never = certain(False, "the loss never falls to half of its plateau")
    return [
        Claim(
            text=f"the loss stays at ½ Var(f*) = {plateau:.3g} (to {_ALIKE:.0%}), then falls, and ends below {_LOW:g}",
            paper="figure 2, left: a plateau, a fall, and a small loss",
            measured=f"off the plateau by {min_max(100 * off)} %; half of it at t = {min_max(fall)}, {_FITTED:g} at "
            f"T_2 = {min_max(q.times_of_loss(run, _FITTED))}; at the end {min_max(loss[:, -1])}",
            judged=together([near(off, 0.0, _ALIKE), at_most(loss[:, -1], _LOW)]) if falls else never,
            hindsight=True,
        ),
        Claim(
            text=f"at the end w̄_2 α = -1 and b̄_2 = 1 within {_NEAR:.0%}",
            paper="f approaches σ(b̄_2 + w̄_2 α |x|) = σ(1 - |x|)",
            measured=f"w̄_2 α = {min_max(slope)}, b̄_2 = {min_max(bias)}",
            judged=together([near(slope, -1, _NEAR), near(bias, 1, _NEAR)]),
        ),
        Claim(
            text=f"f stays close to f̃: at every observation their L2 distance is below {_ALIKE:.0%} of the norm of f*",
            paper="one can observe that f ≈ f̃ indeed holds",
            measured=f"largest {min_max(100 * distance.max(axis=1))} %, at the end {min_max(100 * distance[:, -1])} %",
            judged=at_most(distance.max(axis=1), _ALIKE),
            hindsight=True,
        ),
        Claim(
            text=f"the loss falls at the same time as at infinite width from the same α, w_2 and b_2, to {_ALIKE:.0%}",
            paper="the infinite-width network can be interpreted as a symmetrization of the finite one",
            measured=f"t = {min_max(fall)} and {min_max(limit_fall)}: {min_max(100 * apart)} % apart",
            judged=near(apart, 0.0, _ALIKE) if falls else never,
            hindsight=True,
        ),
    ]


def _grows(curves: np.ndarray, late: np.ndarray) -> tuple[np.ndarray, Judgement]:
    """Return the factor by which curves grow in stage 2, and judge the claim that they do not."""
    if late.sum() < 2:
        return np.full(len(curves), np.nan), _UNREACHED
    growth = q.growth_of(curves[:, late])
    return growth, at_most(growth, 1 + _ERROR)


def _spreads(run: xr.Dataset, limit: xr.Dataset) -> list[Claim]:
    """Judge whether δ_2 never grows, in the run and at infinite width, and whether it is small."""
    found = []
    for name, one in (("", run), (" at infinite width, where the flow has no noise", limit)):
        spread, late = one["second-layer.spread"].values, q.second_stage(one)
        growth, judged = _grows(spread, late)
        begin = spread[:, late][:, 0] if late.any() else spread[:, -1]
        found.append(
            Claim(
                text=f"δ_2 never grows once all w_2 < 0 (to {_ERROR:g}){name}",
                paper="Lemma 4.3 (b): the spread of the second layer does not grow; Lemma D.14: never grows",
                measured=f"δ_2 = {min_max(begin)} then, {min_max(spread[:, -1])} at the end; it exceeds an earlier "
                f"value by {min_max(100 * (growth - 1))} % at most",
                judged=judged,
            )
        )
    spread = run["second-layer.spread"].values.max(axis=1)
    length = np.hypot(*(run[f"second-layer.{name}"].values[:, -1] for name in ("weight", "bias")))
    weaker = Claim(
        text=f"at every observation δ_2 is at most {_NEAR:.0%} of |(w̄_2, b̄_2)| at the end",
        paper="throughout the training the second layer weights are well-concentrated",
        measured=f"δ_2 is at most {min_max(100 * spread / length)} % of it",
        judged=at_most(spread, _NEAR * length),
        weaker=True,
    )
    return [*found, weaker]


def _errors(runs: Results) -> list[Claim]:
    """Judge the error of the first layer: against m_1, over time, and as a part of the loss (eq. 6)."""
    what, widths = "loss-decomposition.error", sorted(q.widths_of(runs))
    ends = {m: runs[q.label(m)][what].values[:, -1] for m in widths}
    seeds = min(len(one) for one in ends.values())
    powers = exponents(widths, [ends[m][:seeds] for m in widths])
    by_width = ", ".join(f"m_1 = {m}: {min_max(ends[m])}" for m in widths) + f"; power {min_max(powers)}"
    main = runs[q.main_label(runs)]
    degrees = {name: main[f"error-by-degree.{name}"].values for name in ("degree1", "degree2", "rest")}
    width = next(iter(q.widths_of(runs)))
    first, last = (
        ", ".join(f"{name} {min_max(width * one[:, at])}" for name, one in degrees.items()) for at in (0, -1)
    )
    left = {name: one[:, -1] / one[:, 0] for name, one in degrees.items()}
    predicted = predicted_decay(main)[:, -1]
    with np.errstate(divide="ignore", invalid="ignore"):
        decay = np.log(left["degree2"]) / np.log(predicted)
    sphere = main["first-layer.sphere"].values
    supremum = sphere.max(axis=1) / sphere[:, 0]
    late, error = q.second_stage(main), main[what].values
    growth, judged = _grows(main["first-layer.l2"].values, late)
    fall = np.nanmin(q.fall_times(main, plateau_of(runs[INFINITE])), initial=np.inf)
    times = main["time"].values
    middle = error[:, np.argmin(np.abs(times - (fall + times[-1]) / 2))]  # the end itself if the loss never falls
    value, gradient = (
        np.max(main[f"loss-decomposition.{name}"].values[:, late], axis=1, initial=0.0)
        for name in ("value", "gradient")
    )
    second_term = "the second term of eq. 6 measures the approximation error of the first layer"
    decrease = "since we are following the gradient flow, the second term can only decrease the approximation error"
    inverse = Claim(
        text=f"at the end the first layer's error (w̄_2²/2) E(F̃ - F)² falls with m_1 as 1/m_1: power -1 (to {_STEEP:g})",
        paper=f"{second_term}: that of a mean over m_1 neurons",
        measured=by_width,
        judged=near(powers, -1.0, _STEEP),
    )
    falling = [at_most(powers, -0.5), ordered([ends[m] for m in reversed(widths)], paired=False, log=True)]
    return [
        inverse,
        replace(
            inverse,
            text="the first layer's error falls with m_1: power below -½, and from each width to the next",
            paper=second_term,
            judged=together(falling),
            weaker=True,
        ),
        Claim(
            text=f"the L2 error of F/α on |x| <= 1 never grows once all w_2 < 0 (to {_ERROR:g})",
            paper=decrease,
            measured=f"it exceeds an earlier value by {min_max(100 * (growth - 1))} % at most",
            judged=judged,
        ),
        Claim(
            text=f"the largest |F/α - 1| on the sphere never exceeds its value at the start (to {_ERROR:g})",
            paper="Lemma 4.3 (a): |F/α - 1| on the sphere is small; D.1 (d): of the order of its initial value",
            measured=f"{min_max(sphere[:, 0])} at the start, {min_max(supremum)} times that at most",
            judged=at_most(supremum, 1 + _ERROR),
            hindsight=True,
        ),
        Claim(
            text=f"the degree-1 part of E(F/α - 1)² on the sphere vanishes: at most {_GONE:g} of it is left",
            paper="this signal should push the first layer to become closer to a multiple of |x|",
            measured=f"left: {min_max(left['degree1'])}; multiplied by m_1, at the start {first}; at the end {last}",
            judged=at_most(left["degree1"], _GONE),
            hindsight=True,
        ),
        Claim(
            text="the degree-2 part falls as the second term of eq. 6 predicts, exp(-2 λ_2 ∫ (α/s) w̄_2² E[|x|²; X_1] "
            f"dt), with a rate of about 4/(π d) times that of degree 1: its logarithm agrees to {_STEEP:.0%}",
            paper=decrease,
            measured=f"left: {min_max(left['degree2'])}, predicted {min_max(predicted)}; ratio of logarithms "
            f"{min_max(decay)}",
            judged=near(decay, 1.0, _STEEP),
            hindsight=True,
        ),
        Claim(
            text="once the loss has fallen, the error (w̄_2²/2) E(F̃ - F)² falls: it is smaller at the end than half-way "
            "between the two",
            paper="the second term can only decrease the approximation error",
            measured=f"{min_max(error[:, -1])} at the end, {min_max(middle)} half-way ({q.main_label(runs)})",
            judged=ordered([error[:, -1], middle], log=True),
            weaker=True,
        ),
        Claim(
            text=f"eq. 6: the gradients of both sides in w_1 differ by at most {_SAME:.0%} once all w_2 < 0",
            paper="eq. 6 holds in the sense that the gradients of both sides are approximately the same",
            measured=f"at most {min_max(100 * gradient)} %",
            judged=at_most(gradient, _SAME) if late.any() else _UNREACHED,
        ),
        Claim(
            text=f"eq. 6: the values of both sides differ by at most {_SAME:.0%} of the loss once all w_2 < 0",
            paper="eq. 6",
            measured=f"at most {min_max(100 * value)} %",
            judged=at_most(value, _SAME) if late.any() else _UNREACHED,
            weaker=True,
        ),
    ]


def _rates(limit: xr.Dataset) -> list[Claim]:
    """Judge the convergence rate at infinite width, with the constant of its proof and as printed."""
    times, loss, d = limit["time"].values, limit["train-loss"].values, round(option(limit, "network.clip.0"))
    neurons, alpha = limit["second-layer.neurons"].values, limit["first-layer.alpha"].values
    ratios, lasts = [], []
    for seed in range(len(loss)):
        met = (active_inside(neurons[seed], alpha[seed]) > 0) & (neurons[seed, :, :, 0].max(axis=1) < 0)
        first = int(np.argmax(met))
        stop = first + int(np.argmin(np.append(met[first:], False)))
        lasts.append(times[max(stop - 1, 0)])
        here = slice(first, stop)
        if stop - first >= 2:
            ratios.append(
                least_rate_ratio(times[here], loss[seed, here], rate_bound(neurons[seed, here], alpha[seed, here], d))
            )
    met_until, slow = np.array(lasts), np.array(ratios)
    later = times > 0
    whole = np.max(loss[:, later] * times[later], axis=1)
    nothing = undecided("there are no two observations at which all neurons are active on |x| <= 1 with w_2 < 0")
    return [
        Claim(
            text="at infinite width, while all neurons are active on |x| <= 1, 1/L grows between observations by at "
            "least the integral of 4 A²/((1 + w̄_2 α)² + A² (1 - b̄_2)²)",
            paper="Lemmas D.20 and D.21: dL/dt <= -Ω(α² L²)",
            measured=f"least ratio {min_max(slow) if slow.size else 'none'}, until t = {min_max(met_until)}",
            judged=at_least(slow, 1 - _ERROR) if len(slow) == len(loss) else nothing,
        ),
        Claim(
            text="L <= d³/t at infinite width, with the constant 1",
            paper="Lemma D.22: L <= O(d³/(T - T_1))",
            measured=f"t L is at most {min_max(whole)}, d³ = {d**3:,}",
            judged=at_most(whole, float(d) ** 3),
        ),
    ]


def _stages(runs: Results) -> list[Claim]:
    """Judge the order of the stages, the clip of v_2 against its sharp threshold, and each clip against its stage."""
    orders, bounded, ends, active = [], [], [], []
    for name in (STAGES, FINITE_STAGES):
        run, found = runs[name], q.stages_of(runs[name])
        times = np.array([one[:3] for one in found])  # (seeds, 3)
        orders += [0 < one.positive < one.spread < one.weight for one in found]
        ends.append(f"{name}: " + " < ".join(f"{one:.2g}" for one in times[0]))
        last = q.last_active(run)
        if np.isfinite(times).all():
            bounded += [at_most(last[clip], times[:, i]) for i, clip in enumerate(CLIPS)]
        else:
            bounded.append(certain(False, "a stage does not end"))
        active.append(f"{name}: " + ", ".join(f"{clip} {min_max(time)}" for clip, time in last.items()))
    run = runs[FINITE_STAGES]
    ends_at = np.array([one.weight for one in q.stages_of(run)])
    during = run["time"].values[None] <= np.where(np.isnan(ends_at), 0.0, ends_at)[:, None]
    moved = run["first-layer.tangential"].values + run["first-layer.radial"].values
    moved, start = np.max(np.where(during, moved, 0.0), axis=1), run["first-layer.sphere"].values[:, 0]
    run = runs[STAGES]
    times, last, stop = run["time"].values, q.last_active(run)["v2"], q.predicted_stops(run)
    after = times[np.minimum(np.searchsorted(times, last, side="right"), times.size - 1)]
    with np.errstate(divide="ignore", invalid="ignore"):
        place = np.log(stop / last) / np.log(after / last)  # 0 when the clip is last active, 1 at the next observation
    at = np.searchsorted(times, last)
    w, b = (run[f"second-layer.{name}"].values[range(last.size), at] for name in ("weight", "bias"))
    least = b**2 / (4 * option(run, "network.clip.1"))
    return [
        Claim(
            text="stage 1 ends in the paper's order: T_1.1 (all w_2 < 0), T_1.2 (-w̄_2 = d δ_2), T_1.3 (-w̄_2 = 10/R_v2)",
            paper="Lemma 4.1 and 4.2",
            measured="; ".join(ends),
            judged=at_least(np.array(orders, float), 1.0),
        ),
        Claim(
            text="in stage 1 the changes of first-layer neurons in direction and length, δ_1,T + δ_1,R, stay below "
            "|F/α - 1| at the start",
            paper="Lemma 4.2 (a): both are always small; Lemma C.4: O(δ_1,I)",
            measured=f"at finite width, until T_1: δ_1,T + δ_1,R is at most {min_max(moved)}, |F/α - 1| = "
            f"{min_max(start)}",
            judged=certain(False, "stage 1 does not end") if np.isnan(ends_at).any() else at_most(moved, start),
            hindsight=True,
        ),
        Claim(
            text="at infinite width the time at which the largest f F falls to R_v2 (|w_2| = b_2²/(4 R_v2) for equal "
            "neurons) lies between the last observation at which the clip of v2 is active and the next",
            paper="Lemma 4.1: -w̄_2 >= Θ(1)/R_v2, here with its constant",
            measured=f"last active at t = {min_max(last)}, not at {min_max(after)}; predicted {min_max(stop)}; "
            f"-w̄_2 is {min_max(-w / least)} times b̄_2²/(4 R_v2) when it is last active",
            judged=near(place, 0.5, 0.5),
        ),
        Claim(
            text="each clip is inactive from its time on: "
            + ", ".join(f"{clip} from {stage}" for clip, stage in CLIPS.items()),
            paper="Lemma 4.1",
            measured="last active at t = " + "; ".join(active),
            judged=together(bounded),
            weaker=True,
        ),
    ]
