"""What the experiments of this paper share: the four settings of (γ, α), the network, and how runs are read."""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr

from unlazy.papers._base import Results, option

Setting = tuple[float, float]  # γ and α


def label(setting: Setting) -> str:
    """Name a setting; with γ = 1 there is no α to speak of."""
    gamma, alpha = setting
    return "γ = 1" if gamma == 1 else f"γ = {gamma:g}, α = {alpha:g}"


# From lazy to rich: (1 - γ)² Σ_j λ̃_j², the variance that eq. 12 leaves to the limiting kernel, grows.
TEXT: tuple[Setting, ...] = ((1.0, 0.5), (0.5, 0.7), (0.5, 0.5), (0.0, 0.4))
RELEASED: tuple[Setting, ...] = ((1.0, 0.5), (0.5, 0.7), (0.2, 0.5), (0.0, 0.4))

LOSS = {"kind": "squared", "reduction": "mean", "half": False}
# Kinks make fine tolerances dear. In figure 1 (one seed) risk, weights and NTG at the end change by up to 6 % from here
# to 1e-3, which is less than seeds differ, at up to nine times the work.
FLOW = {"kind": "gradient-flow", "tolerance": 1e-2, "loss": LOSS}


def network(width: int, setting: Setting, **options: Any) -> dict[str, Any]:
    """Eq. 2 with ReLU and Zipf weights (eq. 4)."""
    weights = {"kind": "zipf", "alpha": setting[1]}
    scaling = {"kind": "asymmetrical", "gamma": setting[0], "weights": weights}
    return {"kind": "two-layer", "width": width, "activation": "relu", "scaling": scaling, **options}


def setting_of(run: xr.Dataset) -> Setting:
    """Give γ and α of a stored run."""
    return option(run, "network.scaling.gamma"), option(run, "network.scaling.weights.alpha")


def by_gamma(runs: Results) -> dict[float, list[str]]:
    """Put labels of runs with equal γ together, the largest γ first."""
    found: dict[float, list[str]] = {}
    for name, run in runs.items():
        found.setdefault(setting_of(run)[0], []).append(name)
    return dict(sorted(found.items(), reverse=True))


def end_risk(run: xr.Dataset) -> np.ndarray:
    """Training risk at the end, seed by seed."""
    return run["train-loss"].values[:, -1]


def moved(run: xr.Dataset) -> np.ndarray:
    """|w_tj - w_0j| of the node j that has moved most at the end: (seeds, times)."""
    every = run["weight-movement.hidden"].values
    most = every[:, -1].argmax(axis=1)
    return np.take_along_axis(every, most[:, None, None], axis=2)[:, :, 0]


def drifted(run: xr.Dataset) -> np.ndarray:
    """‖Θ_t - Θ_0‖_2: (seeds, times)."""
    return run["kernel.drift_operator"].values


def robustness(run: xr.Dataset, what: str = "train_risk") -> np.ndarray:
    """What pruning costs, from 0 (nothing) to 1 (all at the first node), seed by seed.

    It is the area between the curve and its start, over the number of nodes pruned, as a share of its whole rise.
    """
    curve = run[f"pruning.hidden.{what}"].values
    rise = curve - curve[:, :1]
    return rise.mean(axis=1) / rise[:, -1]


def listed(values: dict[str, str]) -> str:
    """Put settings and their numbers in one line."""
    return "; ".join(f"{name}: {value}" for name, value in values.items())
