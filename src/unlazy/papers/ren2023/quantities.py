"""Quantities computed from the runs of figure 2: times at which the loss falls and stages end, growth, active clips."""

import numpy as np
import xarray as xr
from scipy.integrate import cumulative_trapezoid

from unlazy.lab import draw_data
from unlazy.networks.limits import sphere_mean
from unlazy.papers._base import Results, option, recipe_of, values
from unlazy.papers._curves import first_crossing
from unlazy.papers.ren2023.radial import radial_quadrature
from unlazy.papers.ren2023.theorems import StageTimes, degree_rates, largest_product, stage_times

PLATEAU = 0.5  # a loss has left its plateau once it is below this share of the loss of the best constant
CONSTANT = 10.0  # C_1 of Lemma 4.2, "some large constant"
CLIPS = {"r2": "T_1.1", "v1": "T_1.2", "v2": "T_1.3"}  # the time from which on each clip is inactive (Lemma 4.1)

INFINITE, STAGES, FINITE_STAGES = "infinite width", "stages, infinite width", "stages"


def label(width: int) -> str:
    """Return the label of the run with m_1 = ``width``."""
    return f"m_1 = {width}"


def widths_of(runs: Results) -> dict[int, str]:
    """Return the finite widths of figure 2 with the labels of their runs, in the order of the runs."""
    return {width: label(width) for width in values(runs, "network.widths.0") if label(width) in runs}


def main_label(runs: Results) -> str:
    """Return the label of the figure's own width, which comes first."""
    return next(iter(widths_of(runs).values()))


def constant_loss(y: np.ndarray, weight: np.ndarray | None) -> float:
    """Return ½ Var(f*), the loss of the best constant and the height of the plateau, for weighted samples ``y``."""
    mean = np.average(y, weights=weight)
    return float(0.5 * np.average((y - mean) ** 2, weights=weight))


def fall_times(run: xr.Dataset, plateau: float) -> np.ndarray:
    """Return when the loss of each seed first falls to half of the plateau; NaN if never."""
    return times_of_loss(run, PLATEAU * plateau)


def times_of_loss(run: xr.Dataset, level: float) -> np.ndarray:
    """Return when the loss of each seed falls to a level, interpolating its logarithm; NaN if never."""
    return np.array([first_crossing(run["time"].values, -np.log(loss / level)) for loss in run["train-loss"].values])


def stages_of(run: xr.Dataset) -> list[StageTimes]:
    """Return T_1.1, T_1.2 and T_1.3 of each seed; T_2, which needs the loss, is left out."""
    d, bound = round(option(run, "network.clip.0")), option(run, "network.clip.1")
    layer = {name: run[f"second-layer.{name}"].values for name in ("weight", "spread", "largest")}
    seeds = [{name: curves[seed] for name, curves in layer.items()} for seed in range(run["seed"].size)]
    return [stage_times(run["time"].values, one, None, d, bound, CONSTANT) for one in seeds]


def plateau_of(run: xr.Dataset) -> float:
    """Return the height of the plateau under the law of inputs of a run."""
    data = draw_data(recipe_of(run))[0]
    return constant_loss(np.asarray(data.y), np.asarray(data.weight))


def growth_of(curves: np.ndarray) -> np.ndarray:
    """Return the largest ratio of each curve (a row) to an earlier value of it; below 1 if it only falls."""
    lowest = np.minimum.accumulate(curves, axis=1)[:, :-1]
    return np.max(curves[:, 1:] / np.maximum(lowest, 1e-300), axis=1)


def second_stage(run: xr.Dataset) -> np.ndarray:
    """Return the observations from which on all w_2 of all seeds stay negative, so that stage 2 may have begun."""
    positive = np.flatnonzero(np.any(run["second-layer.largest"].values >= 0, axis=0))
    return np.arange(run["time"].size) > (positive[-1] if positive.size else -1)


def last_active(run: xr.Dataset) -> dict[str, np.ndarray]:
    """Return the last time at which each clip is active, for each seed; 0 if it never is."""
    on = {clip: run[f"clip-activity.{clip}"].values > 0 for clip in CLIPS}
    return {clip: np.max(np.where(one, run["time"].values, 0.0), axis=1) for clip, one in on.items()}


def predicted_stops(run: xr.Dataset) -> np.ndarray:
    """Return for each seed when the largest f F falls to R_v2, after which the clip of v_2 is inactive.

    If all neurons are equal this is when |w_2| = b_2²/(4 R_v2).
    """
    every = run["second-layer.neurons"].values
    products = np.array([[largest_product(one[:, 0], one[:, 1]) for one in rows] for rows in every])
    return np.array([first_crossing(run["time"].values, option(run, "network.clip.1") / one - 1) for one in products])


def predicted_decay(run: xr.Dataset) -> np.ndarray:
    """Predict, by `degree_rates`, the share of the degree-2 part of F/α that is left at every observation of a run.

    Near α |x| the part of degree n falls as exp(-2 λ_n ∫ (α/s) w̄_2² E[|x|²; X_1] dt) with s = C_Γ/√d, where X_1 is the
    ball |x| < b̄_2/|w̄_2 α|: along the flow of the second term of eq. 6, at infinite width.
    """
    d, times = round(option(run, "network.clip.0")), run["time"].values
    alpha, w, b = (run[name].values for name in ("first-layer.alpha", "second-layer.weight", "second-layer.bias"))
    with np.errstate(divide="ignore"):
        reach = np.where(w < 0, b / np.maximum(-w * alpha, 1e-300), np.inf)
    nodes = radial_quadrature(d)
    radii = np.asarray(nodes.x, float)[:, 0]
    inside = np.interp(reach, radii, np.cumsum(np.asarray(nodes.weight, float) * radii**2))  # E[|x|²; X_1]
    rate = np.where(w < 0, 2 * degree_rates(d)[1] * alpha / sphere_mean(d) * w**2 * inside, 0.0)
    return np.exp(-cumulative_trapezoid(rate, times, axis=1, initial=0))
