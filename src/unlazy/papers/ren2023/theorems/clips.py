"""When the clips of ren2023 become inactive: Lemma 4.1, with the constants that the paper leaves open."""

from typing import ClassVar

import numpy as np

from unlazy.networks.limits import sphere_mean
from unlazy.papers.ren2023.probes import ClipActivity
from unlazy.papers.ren2023.theorems import problems
from unlazy.papers.ren2023.theorems import setting as s
from unlazy.theory import Example, Finding, Verdict


def largest_product(w: np.ndarray, b: np.ndarray) -> float:
    """Compute the supremum over F >= 0 of f F, where f = mean of relu(w F + b) over a second layer.

    It is infinite if a neuron with w >= 0 is active at large F. Otherwise f is linear between neighbouring points b/|w|
    at which a neuron turns off, f F is quadratic there, and its largest value is at the vertex or at an end. If all
    neurons are equal it is b²/(4 |w|), at F = b/(2 |w|).

    Parameters
    ----------
    w, b
        Weights and biases of the second layer, one per neuron.
    """
    on = (w > 0) | (b > 0)  # the others are never active
    width, w, b = w.size, w[on], b[on]
    if np.any(w >= 0):
        return float("inf")
    if not w.size:
        return 0.0
    order = np.argsort(b / -w)
    w, b = w[order], b[order]
    ends = b / -w
    height, fall = (np.cumsum(part[::-1])[::-1] / width for part in (b, -w))  # f = height - fall F before each end
    best = np.clip(height / (2 * fall), np.concatenate([[0.0], ends[:-1]]), ends)
    return float(np.max((height - fall * best) * best))


def needed_bounds(second: s.Observed, first: s.Observed, d: int) -> np.ndarray:
    """Compute bounds (R_v1, R_v2, R_r2) at which no clip is active, at every time; infinite while some w_2 >= 0.

    Let P be the largest |f* - f| F at which some second-layer neuron is active. As f* and f are not negative, |f* - f|
    is at most the larger of the two. Where f* > 0, |x| < 1 and f* F <= (1 - |x|) α (1 + ε) |x| <= α (1 + ε)/4; and
    f F is at most `largest_product`, which is b²/(4 |w|) for equal neurons. P is at most the larger of both, and

    - the pull on w_2 is (f* - f) σ' F, so R_v2 >= P is enough;
    - the pull on w_1 is at most 2 |v_1| |x| |f* - f| max|w_2|, and |x| <= F/(α (1 - ε)), so R_v1 >= 2 |v_1| max|w_2|
      P/(α (1 - ε)) is enough;
    - the pull on b_2 is (f* - f) σ', at most max(1, max b_2) if no w_2 is positive.

    Parameters
    ----------
    second, first
        What `SecondLayer` and `FirstLayer` observed.
    d
        Number of inputs.
    """
    w, b = second["neurons"][..., 0], second["neurons"][..., 1]
    highest, sphere = w.max(axis=1), first["sphere"]
    product = np.array([largest_product(*rows) for rows in zip(w, b, strict=True)])
    product = np.maximum(product, first["alpha"] * (1 + sphere) / 4)
    left = 1 - sphere
    length = np.sqrt((1 + first["radial"]) * first["alpha"] / sphere_mean(d))  # of the longest first-layer neuron
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        v1 = 2 * product * np.abs(w).max(axis=1) * length / (first["alpha"] * np.maximum(left, 1e-300))
    most = np.maximum(1.0, b.max(axis=1))
    bounds = ((v1, (highest < 0) & (left > 0)), (product, highest < 0), (most, highest <= 0))
    return np.stack([np.where(known, bound, np.inf) for bound, known in bounds], axis=1)


class ClipsBecomeInactive(s.OfLearner):
    """Lemma 4.1: the clips of r_2, v_1 and v_2 are inactive once w_2 is negative and large enough (`needed_bounds`)."""

    key: ClassVar[str] = "ren2023/lemma-4.1"
    source: ClassVar[str] = f"{s.AUTHORS}, Lemma 4.1 (C.3)"
    statement: ClassVar[str] = "Clips become inactive as second-layer weights turn negative and grow in size."
    example: ClassVar[Example] = Example(problems.first_stage)
    counterexample: ClassVar[Example] = Example(problems.first_stage, clip=None)
    probes: ClassVar[s.Probes] = (*s.LAYERS, ClipActivity())
    model: ClassVar[str] = s.CLIPPED
    knows = staticmethod(s.has_clips)
    conditions: ClassVar[s.Conditions] = (s.half_squared, s.radial_target)

    def conclude(self, setting: s.Setting) -> Finding:
        second, first, clips = setting.observed(*self.probes)
        times, needed = setting.run.times, needed_bounds(second, first, setting.d)
        numbers: dict[str, float] = {}
        margin, silent = np.inf, []
        for index, name in enumerate(("v1", "v2", "r2")):
            out = needed[:, index] <= setting.bounds[index]
            numbers[f"{name} inactive from"] = float(times[out][0]) if out.any() else float("nan")
            active = clips[name] > 0
            numbers[f"{name} last active at"] = float(times[active][-1]) if active.any() else float("nan")
            if out.any():
                margin = min(margin, 1 / max(float(np.max(clips[f"{name}_largest"][out])), 1e-300))
            else:
                silent.append(name)
        if len(silent) == 3:
            return Finding(Verdict.VACUOUS, "The bounds are too small at every observation.", None, numbers)
        never = f" ({', '.join(silent)}: never)" if silent else ""
        why = f"Where clips must be inactive{never}, pulls are at least {margin:.3g} times below their bounds."
        return Finding.judge(margin >= 1 - 1e-9, why, margin, numbers)
