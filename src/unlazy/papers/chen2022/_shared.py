"""What the experiments of this paper share: sizes of the runs, and how straight, far apart or steep curves are."""

from __future__ import annotations

import numpy as np
import xarray as xr

from unlazy.papers._base import Results, values

FLOOR = 1e-6  # a decay is judged until the loss has fallen by this factor: above rounding and solver error
STRAIGHT = 0.95  # share of the variance of log-loss that a straight line must explain to be called near-linear
AGREE = 0.05  # two curves agree if they lie within this share of their own height: about what an eye can tell


def sizes_of(results: Results) -> tuple[list[int], list[int]]:
    """Give the widths and the numbers of samples of all runs, in the order of the runs."""
    return values(results, "network.width"), values(results, "data.n")


def window(loss: np.ndarray) -> np.ndarray:
    """Mark the decay: every time before the loss has first fallen to `FLOOR` of its start."""
    below = np.flatnonzero(loss <= FLOOR * loss[0])
    return np.arange(len(loss)) < max(3, below[0] if below.size else len(loss))


def decay(run: xr.Dataset) -> tuple[np.ndarray, np.ndarray]:
    """Fit log-loss = const - rate t seed by seed: rates, and the share R² of its variance that the line explains.

    The fit is over evenly spaced t, so that times looked at more often do not count for more.
    """
    times = run["time"].values
    rates, shares = [], []
    for loss in run["train-loss"].values:
        inside = window(loss)
        t = np.linspace(0.0, times[inside][-1], 200)
        log = np.interp(t, times[inside], np.log(loss[inside]))
        slope, offset = np.polyfit(t, log, 1)
        rates.append(-slope)
        spread = np.var(log)
        shares.append(1 - np.var(log - slope * t - offset) / spread if spread > 0 else 0.0)  # a standstill is no decay
    return np.array(rates), np.array(shares)


def bound(run: xr.Dataset) -> np.ndarray:
    """Give the largest rate ρ, seed by seed, with L_t <= L_0 exp(-ρ t) at every look while the decay is judged."""
    times, found = run["time"].values, []
    for loss in run["train-loss"].values:
        later = window(loss) & (times > 0)
        found.append(np.min(np.log(loss[0] / loss[later]) / times[later]))
    return np.array(found)


def distance(one: xr.Dataset, other: xr.Dataset) -> float:
    """Median difference of log-losses, as a share of how far they fall while both are judged."""
    shares = []
    for a, b in zip(one["train-loss"].values, other["train-loss"].values, strict=True):
        both = window(a) & window(b)
        fall = np.ptp(np.log(a[both]))
        shares.append(np.median(np.abs(np.log(a[both] / b[both]))) / fall if fall > 0 else np.inf)
    return float(np.median(shares))
