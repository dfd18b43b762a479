"""Comparison of node scalings: networks for settings of (γ, α), what is read from their runs, and axes."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import xarray as xr

from unlazy.figures import band
from unlazy.lab import Recipe, draw_data
from unlazy.papers._base import Axes, Figure, Results, Sizes, option, recipe_of
from unlazy.papers._curves import label_axes, quadratic_times, titled_canvas

Setting = tuple[float, float]  # γ and α
Sets = list[tuple[np.ndarray, np.ndarray]]  # training inputs and targets of each seed

# From lazy to rich: in this order (1 - γ)² Σ_j λ̃_j² grows, the variance of the limiting kernel by eq. 12.
TEXT: tuple[Setting, ...] = ((1.0, 0.5), (0.5, 0.7), (0.5, 0.5), (0.0, 0.4))
RELEASED: tuple[Setting, ...] = ((1.0, 0.5), (0.5, 0.7), (0.2, 0.5), (0.0, 0.4))

# ReLUs have kinks, which make small tolerances expensive. In figure 1 (one seed) a tolerance of 1e-3 changes risk,
# weights and NTG at the end by up to 6 %, which is less than the spread of seeds, at up to nine times the cost.
FLOW = {"kind": "gradient-flow", "tolerance": 1e-2, "loss": {"kind": "squared", "reduction": "mean", "half": False}}
COUNTS = (1, 2, 5, 10, 20, 50, 100)  # numbers of transferred features
MANY_COUNTS = tuple(range(10, 101, 10))  # those of the released code
START = 2**0.5  # factor of the initial weights in the released code: it draws them from N(0, 2 I), not as in eq. 8
SAMPLES = 50  # inputs on which the released code takes the NTG
WEIGHTS, KERNEL = "weight-movement.hidden", "kernel.drift_operator"
ROOT = f"root of {KERNEL}"
IMPORTANCE = "pruning-by-importance"  # in released variants, where "pruning" is that of the released code
# What a figure can show of a run, and its title. The first nine are the axes of figures 6 to 10, in their order.
TITLES = {
    "train-loss": "training risk",
    "test-loss": "test risk",
    WEIGHTS: "largest |w_tj - w_0j|",
    KERNEL: "‖Θ_t - Θ_0‖₂",
    "kernel.smallest": "eig_min(Θ_t)",
    "pruning.hidden.train_risk": "training risk, pruned",
    "pruning.hidden.test_risk": "test risk, pruned",
    "transfer.hidden.train_risk": "training risk, transferred",
    "transfer.hidden.test_risk": "test risk, transferred",
    "pruning.hidden.test_error": "test accuracy, pruned",
    "transfer.hidden.test_error": "test accuracy, transferred",
    ROOT: "√‖Θ_t - Θ_0‖₂",  # the figures of the paper show it under the label of KERNEL
}
FARTHEST = "distance from its start of the weight vector that moves farthest"  # in captions
ALL_SHOWN = (
    f"Training and test risks, {FARTHEST}, change and smallest eigenvalue of the neural tangent Gram matrix (NTG), "
    "risks of pruned networks, and risks of networks trained on transferred features."
)
EVERYTHING = tuple(TITLES)[:9]
EVERYTHING_RELEASED = tuple(ROOT if name == KERNEL else name for name in EVERYTHING)
_INPUTS = {"concrete": 8, "energy": 8, "airfoil": 5, "plant": 4, "mnist": 784, "digits": 64}  # d of each data set


def label(setting: Setting) -> str:
    """Name a setting; with γ = 1, α has no effect."""
    gamma, alpha = setting
    return "γ = 1" if gamma == 1 else f"γ = {gamma:g}, α = {alpha:g}"


def network(width: int, setting: Setting, **options: Any) -> dict[str, Any]:
    """Eq. 2 with ReLU and Zipf weights (eq. 4)."""
    weights = {"kind": "zipf", "alpha": setting[1]}
    scaling = {"kind": "asymmetrical", "gamma": setting[0], "weights": weights}
    return {"kind": "two-layer", "width": width, "activation": "relu", "scaling": scaling, **options}


def recipes(
    name: str, settings: Sequence[Setting], sizes: Sizes, seeds: int | None, **options: Any
) -> dict[str, Recipe]:
    """Return a recipe for each setting; data depend on the seed only, so settings are compared on the same data.

    The name has {} in place of the setting. Sizes are ``width``, ``seeds`` (unless seeds are given) and, unless options
    have ``times``, the last time ``end`` and the number ``times`` of times. Options are other fields of the recipes,
    and ``embedding`` and ``scale`` of the network.
    """
    extra = {name: options.pop(name) for name in ("embedding", "scale") if name in options}
    if "times" not in options:
        options["times"] = quadratic_times(sizes.end, sizes.times)
    common = {"flow": FLOW, "seeds": seeds or sizes.seeds} | options
    return {
        label(one): Recipe(name=name.format(label(one)), network=network(sizes.width, one, **extra), **common)
        for one in settings
    }


def setting_of(run: xr.Dataset) -> Setting:
    """Return γ and α of a stored run."""
    return option(run, "network.scaling.gamma"), option(run, "network.scaling.weights.alpha")


def by_gamma(runs: Results) -> dict[float, list[str]]:
    """Group the labels of runs with equal γ, the largest γ first."""
    found: dict[float, list[str]] = {}
    for name, run in runs.items():
        found.setdefault(setting_of(run)[0], []).append(name)
    return dict(sorted(found.items(), reverse=True))


def end_risk(run: xr.Dataset) -> np.ndarray:
    """Training risk at the end, seed by seed."""
    return run["train-loss"].values[:, -1]


def moved(run: xr.Dataset) -> np.ndarray:
    """|w_tj - w_0j| of the node j that has moved most at the end: (seeds, times)."""
    every = run[WEIGHTS].values
    most = every[:, -1].argmax(axis=1)
    return np.take_along_axis(every, most[:, None, None], axis=2)[:, :, 0]


def transferred(run: xr.Dataset) -> tuple[int, ...]:
    """Return the numbers of features that were transferred."""
    probes = [one for one in option(run, "probes", []) if isinstance(one, dict) and "features" in one]
    return tuple(probes[0]["features"]) if probes else COUNTS


def robustness(run: xr.Dataset, what: str = "train_risk", by: str = "pruning") -> np.ndarray:
    """What pruning costs, from 0 (nothing) to 1 (all at the first node), seed by seed.

    It is the area between the curve and its start, over the number of nodes pruned, as a share of its whole rise.
    """
    curve = run[f"{by}.hidden.{what}"].values
    rise = curve - curve[:, :1]
    return rise.mean(axis=1) / rise[:, -1]


def training_sets(run: xr.Dataset) -> Sets:
    """Draw training inputs and targets of every seed of a stored run again."""
    return [(np.asarray(data.x, float), np.asarray(data.y, float)) for data in draw_data(recipe_of(run))]


def weight_size(run: xr.Dataset) -> float:
    """Return the root of E|w_0j|²: √d, or √D on features, times the factor on weights at the start."""
    embedding = option(run, "network.embedding", None)
    if embedding is not None:
        size = embedding["filters"] * embedding.get("grid", 2) ** 2
    else:
        size = option(run, "data.d", None) or _INPUTS[option(run, "data.kind")]
    return float(option(run, "network.scale", 1.0) * np.sqrt(size))


# ---------------------------------------------------------------- figures


def curve(run: xr.Dataset, what: str) -> np.ndarray:
    """Read one of `TITLES` from a run, with a row for each seed; accuracies are one minus errors."""
    if what == WEIGHTS:
        return moved(run)
    if what == ROOT:
        return np.sqrt(run[KERNEL].values)
    return 1 - run[what].values if what.endswith("_error") else run[what].values


def draw(
    runs: Results, what: Sequence[str], title: str, width: float, height: float, rows: int = 1, clock: str | None = None
) -> Figure:
    """Draw several of `TITLES`, with axes for each; ``clock`` is the label of the time axis."""
    figure, axes = titled_canvas(title, len(what) // rows, width, height, rows)
    for one, name in zip(axes, what, strict=True):
        draw_one(one, runs, name, clock)
    axes[0].legend(fontsize=7)
    return figure


def draw_one(axes: Axes, runs: Results, what: str, clock: str | None = None) -> None:
    """Draw one of `TITLES`: over time, over the number of pruned nodes, or over that of transferred features."""
    kind = what.partition(".")[0]
    style: Any = {"marker": "."} if kind == "transfer" else {}
    for index, (name, run) in enumerate(runs.items()):
        y = curve(run, what)
        if kind == "pruning":
            # Points enough for a curve that is steep at its end: 200 even ones and the last 50.
            last = y.shape[1] - 1
            some = np.r_[np.linspace(0, last, 200).round().astype(int), np.arange(max(last - 49, 0), last + 1)]
            x, y = np.unique(some), y[:, np.unique(some)]
        else:
            x = np.asarray(transferred(run)) if kind == "transfer" else run["time"].values
        band(axes, x, y, index, name, **style)
    units = {"pruning": "number of pruned nodes", "transfer": "number of features"}
    scales: Any = {"transfer": {"xscale": "log"}, "train-loss": {"yscale": "log"}, "test-loss": {"yscale": "log"}}
    label_axes(axes, units.get(kind, clock or "t (GD steps of size 1)"), TITLES[what], **scales.get(kind, {}))
