"""Theorem 2.3 measured: the distance D_T to the mean-field limit against width, and against the step of descent."""

from typing import Any

import numpy as np
import xarray as xr
from scipy.special import stdtrit

from unlazy._errors import UserError
from unlazy.figures import ORDERED, canvas
from unlazy.lab import Recipe
from unlazy.papers._base import Claim, Figure, Panel, Results, Scale, Sizes, by_scale, values
from unlazy.papers._curves import dots, label_axes, plural, seeds_rms
from unlazy.papers.aiad2026.setting import MSE
from unlazy.papers.outcomes import LEVEL, Judgement, Outcome, power_law, together, undecided
from unlazy.theory.coupling import fitted_exponent

_STEPS = [2.0**-k for k in range(2, 9)]
# Widths and N, the width of the reference, which represents infinite width; steps of descent with all samples, and with
# one of many, of which a run uses a small part.
_SCALES: dict[Scale, Sizes] = {
    "quick": Sizes(
        widths=[64, 256, 1024, 4096],
        reference=8192,
        samples=16,
        steps=_STEPS[:4],
        many=2000,
        small=_STEPS[1:6],
        seeds=24,
    ),
    "paper": Sizes(
        widths=[64, 128, 256, 512, 1024, 2048, 4096],
        reference=16384,
        samples=32,
        steps=_STEPS[:5],
        many=8000,
        small=_STEPS[1:],
        seeds=64,
    ),
}
_TIMES = [0.0, 0.5, 1.0]  # multiples of every step
_STEP = 1 / 16  # of all widths
_NARROW = 64  # width of the networks that are trained with different steps
_TOLERANCE = 0.1  # of an exponent
_STRICT = 0.05  # half the width of a confidence interval of an exponent, at most: a wider one decides nothing
_DELTA = 0.05  # the probability δ in the logarithm of Theorem 2.3

FLOW, WIDTH, STEP, BATCH = "flow", "n = ", "step ", "step, one sample, "


def recipe(s: Sizes, width: int, step: float | None, many: bool, seeds: int | None, shown: int) -> Recipe:
    """Return the training of one width along the flow (no ``step``), or by descent on all samples or single ones.

    The network has three layers of rank 2 in the mean-field parameterisation, whose amplitudes have a mean other than
    0, so that the limit moves. If ``many``, each step uses one of many samples. ``shown`` neurons are stored.
    """
    flow: dict[str, Any] = {"kind": "runge-kutta", "rtol": 1e-8, "atol": 1e-10, "loss": MSE}
    if step is not None:
        flow = {"kind": "descent", "rate": step, "loss": MSE} | ({"batch": 1} if many else {})
    return Recipe(
        name=f"aiad2026 width n = {width} {'flow' if step is None else f'step {step:g}'}",
        data={"kind": "cosine", "n": s.many if many else s.samples, "frequency": 1.0},
        network={
            "kind": "mean-field-stack",
            "widths": [width, width],
            "ranks": 2,
            "train": "a",
            "features": {"kind": "normal", "spread": 2.0},
            "amplitude": [{"kind": "uniform", "reach": 1.0, "mean": mean} for mean in ([1.0, -1.0], 1.0)],
            "activation": "tanh",
        },
        flow=flow,
        times=_TIMES,
        probes=["train-loss", {"kind": "trained-neurons", "neurons": shown}],
        seeds=seeds or s.seeds,
    )


def distances(run: xr.Dataset, reference: xr.Dataset, typical: bool = False) -> np.ndarray:
    """Return D_T of each seed: the largest difference, at any time, of any trained parameter of any neuron of both.

    A narrow network consists of the first neurons of the wide network of the same seed, the ``reference``. If
    ``typical``, the root mean square over neurons takes the place of the largest difference.
    """
    largest = np.zeros(run["seed"].size)
    for name in run.data_vars:
        if str(name).startswith("trained-neurons."):
            here, there = run[name].values, reference[name].values
            both = min(here.shape[2], there.shape[2])
            apart = np.abs(here[:, :, :both] - there[:, :, :both])
            if apart[:, 0].max() > 0:
                raise UserError(
                    "These networks do not share their first neurons at the start, so that they cannot be compared."
                )
            over = np.sqrt(np.mean(apart**2, axis=2)) if typical else apart.max(axis=2)
            largest = np.maximum(largest, over.max(axis=(1, 2)))
    return largest


class AgainstWidth(Panel):
    """D_T(W, W̃) against the width n, and against the step."""

    key = "aiad2026/width"
    title = "Theorem 2.3, measured: distance to the mean-field limit"
    scales = by_scale(
        _SCALES,
        lambda s: (
            f"n = {s.widths[0]} to {s.widths[-1]} against N = {s.reference}, {len(s.steps)} steps, {plural(s.seeds)}"
        ),
    )
    caption = (
        "D_T of Appendix G.2: the largest difference, up to T = 1, of any weight of any neuron that two networks "
        "share. Left: networks of width n, the first n neurons of one of width N, which represents the limit, all by "
        "descent with step 1/16; sampling errors scale as √(1/n - 1/N). Right: descent against the gradient flow of "
        "the same network, with all samples at each step and with a single one (for a small part of an epoch). Three "
        "layers of rank 2 with tanh and frozen Gaussian features in the mean-field parameterisation on cos(πx). "
        "Amplitudes have a mean other than 0, because the limit of centred ones does not move. Dots are seeds, lines "
        "are power laws through their root mean squares."
    )

    def recipes(self, scale: Scale, seeds: int | None = None) -> dict[str, Recipe]:
        s = _SCALES[scale]
        widths = (s.reference, *s.widths)
        found = {f"{WIDTH}{n}": recipe(s, n, _STEP, False, seeds, max(s.widths)) for n in widths}
        for many, start, steps in ((False, STEP, s.steps), (True, BATCH, s.small)):
            labels = {FLOW: None} | {f"{h:g}": h for h in steps}
            found |= {f"{start}{name}": recipe(s, _NARROW, h, many, seeds, _NARROW) for name, h in labels.items()}
        return found

    def claims(self, results: Results) -> list[Claim]:
        widths, apart, power, full = by_width(results)
        size, naive = seeds_rms(apart), fitted_exponent(widths, apart)
        _, typical, per_neuron, _ = by_width(results, typical=True)
        per_width = 1 / (1 / widths - 1 / full)
        factor = logarithm(widths, results[f"{WIDTH}{full}"]["time"].values[-1])[:, None]
        corrected = -fitted_exponent(1 / per_width, apart / factor)
        (one, whole, first), (other, single, second) = (by_step(results, start) for start in (STEP, BATCH))
        bound = "Theorem 2.3: D_T ≤ e^(K_T(1+rK)) (1/√n_min + √ε) √log(3(T+1)n_max²/δ + e)"
        return [
            Claim(
                text="D_T divided by √log(3(T+1)n²/δ + e), the logarithm of the theorem, falls as (1/n - 1/N)^(1/2): "
                f"the 95 % confidence interval of its exponent of n from {widths[0]:g} to {widths[-1]:g} contains "
                f"-0.5, and its ends are within {_STRICT:g} of its middle",
                paper=bound,
                measured=f"{_interval(per_width, apart / factor)} over {plural(apart.shape[1])}, {corrected:.3f} "
                f"through root mean squares; D_T from {size[0]:.2g} to {size[-1]:.2g}",
                judged=_contains(per_width, apart / factor, -0.5),
                hindsight=True,
            ),
            Claim(
                text="the same holds for the root mean square over neurons without the logarithm, which belongs to the "
                "largest of n differences",
                paper=bound,
                measured=f"{_interval(per_width, typical)}, {per_neuron:.3f} through root mean squares",
                judged=_contains(per_width, typical, -0.5),
                hindsight=True,
            ),
            Claim(
                text=f"D_T falls as (1/n - 1/N)^(1/2) without any logarithm: -0.5 within {_TOLERANCE:g}",
                paper=bound,
                measured=f"exponent {power:.3f} (of n alone {naive:.3f}, as N = {full:,} is finite)",
                judged=power_law(per_width, apart, -0.5, _TOLERANCE),
                weaker=True,
            ),
            Claim(
                text=f"D_T falls as √ε with single samples, and as ε with all samples at each step: both exponents "
                f"agree within {_TOLERANCE:g}",
                paper="Theorem 2.3: √ε",
                measured=f"exponents {second:.3f} and {first:.3f}; at the smallest steps D_T is "
                f"{seeds_rms(single)[-1]:.2g} and {seeds_rms(whole)[-1]:.2g}",
                judged=together([power_law(other, single, 0.5, _TOLERANCE), power_law(one, whole, 1.0, _TOLERANCE)]),
            ),
        ]

    def draw(self, results: Results) -> Figure:
        figure, (left, right) = canvas(2, 9.0, 3.8)
        widths, apart, power, full = by_width(results)
        scale = np.sqrt(1 / widths - 1 / full)
        dots(left, widths, apart, 1)
        fit = np.exp(np.mean(np.log(seeds_rms(apart)) - np.log(scale)))
        left.plot(widths, fit * scale, color=ORDERED[0], linestyle="--", label="√(1/n - 1/N)")
        left.set_xticks(widths, [str(int(n)) for n in widths])
        title = f"D_T against a reference of width N = {full:,} (fitted exponent {power:.2f})"
        label_axes(left, "width n", title, legend=8)
        for index, (start, name, law) in enumerate(((STEP, "all samples", 1.0), (BATCH, "one sample per step", 0.5))):
            steps, apart, power = by_step(results, start)
            dots(right, steps, apart, 2 + index)
            fit = np.exp(np.mean(np.log(seeds_rms(apart)) - law * np.log(steps)))
            label = f"{name}: {power:.2f} fitted"
            right.plot(steps, fit * steps**law, color=ORDERED[2 + index], linestyle="--", label=label)
        label_axes(right, "step ε", "D_T to the flow (dashed: powers 1 and ½)", legend=8)
        return figure


def logarithm(n: np.ndarray, time: float) -> np.ndarray:
    """Return √log(3 (T + 1) n²/δ + e) at the time T, the factor in Theorem 2.3 that grows with the widths n."""
    return np.sqrt(np.log(3 * (time + 1) * np.square(n) / _DELTA + np.e))


def _by_seed(x: np.ndarray, distances: np.ndarray) -> np.ndarray:
    """Fit the exponent of x seed by seed; NaN where a distance is 0."""
    with np.errstate(divide="ignore"):
        logs = np.log(distances)
    if not np.isfinite(logs).all():
        return np.full(distances.shape[1], np.nan)
    return np.polyfit(np.log(x), logs, 1)[0]


def confidence(values: np.ndarray) -> tuple[float, float]:
    """Return the mean over seeds and half the width of its 95 % confidence interval, by Student's t distribution."""
    if values.size < 2:
        return float(values.mean()), float("inf")
    half = float(stdtrit(values.size - 1, 1 - LEVEL / 2)) * float(values.std(ddof=1)) / values.size**0.5
    return float(values.mean()), half


def _interval(x: np.ndarray, distances: np.ndarray) -> str:
    middle, half = confidence(_by_seed(x, distances))
    return f"exponent {middle:.3f} ± {half:.3f}"


def _contains(x: np.ndarray, distances: np.ndarray, expected: float) -> Judgement:
    """Judge that the confidence interval of the mean exponent contains the expected one, and is narrow enough."""
    found = _by_seed(x, distances)
    if not np.isfinite(found).all() or found.size < 2:
        return undecided("one seed shows no spread" if found.size < 2 else "a value is not finite")
    middle, half = confidence(found)
    inside = abs(middle - expected) <= half + 1e-9  # rounding, where seeds are equal
    outcome = Outcome.FAILS if not inside else Outcome.HOLDS if half <= _STRICT else Outcome.UNDECIDED
    agree = int(np.sum(np.abs(found - expected) <= _TOLERANCE))
    return Judgement(outcome, f"95 % confidence interval over {plural(found.size)}", agree, found.size)


def by_width(results: Results, typical: bool = False) -> tuple[np.ndarray, np.ndarray, float, int]:
    """Return widths, distances (a row for each), the fitted exponent, and N; ``typical`` as in `distances`."""
    runs = {n: results[f"{WIDTH}{n}"] for n in values(results, "network.widths.0") if f"{WIDTH}{n}" in results}
    full = max(runs)
    widths = np.array(sorted(n for n in runs if n < full), float)
    apart = np.stack([distances(runs[int(n)], runs[full], typical) for n in widths])
    return widths, apart, -fitted_exponent(1 / widths - 1 / full, apart), full


def by_step(results: Results, start: str) -> tuple[np.ndarray, np.ndarray, float]:
    """Return steps, distances (a row for each), and the fitted exponent, of the runs whose labels start with this."""
    steps = np.array(sorted((h for h in values(results, "flow.rate") if f"{start}{h:g}" in results), reverse=True))
    apart = np.stack([distances(results[f"{start}{h:g}"], results[f"{start}{FLOW}"]) for h in steps])
    return steps, apart, fitted_exponent(steps, apart)
