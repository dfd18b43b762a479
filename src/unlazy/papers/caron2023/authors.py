"""Numbers of the authors' figures beside ours.

Figures 1 to 10 are vector graphics, from which curves were read back (to 1e-3 of an axis). Each row has the values at
the end of training for γ = 1, (0.5, 0.7), (0.2, 0.5) and (0, 0.4), over five runs; NaN where a value was not read.
"""

from collections.abc import Callable, Mapping

import numpy as np
import xarray as xr

from unlazy.papers._base import Results, option
from unlazy.papers.caron2023.comparison import ROOT, TITLES, WEIGHTS, curve, transferred
from unlazy.papers.references import Reference, compare

_WIDTH = 2000
_NAN = float("nan")
PRUNED, PRUNED_TEST, FEATURES, FIRST = "1900 pruned", "1900 pruned, test", "10 features, test", "eig_min at the start"

Row = tuple[float, float, float, float]
ENDS: Mapping[str, Mapping[str, Row]] = {
    "sphere-sine": {
        "train-loss": (1.5e-6, 4.7e-6, 1.4e-4, 3.1e-3),
        WEIGHTS: (0.92, 7.4, 11.5, 24.4),
        ROOT: (0.0276, 0.1044, 0.1787, 0.2221),
        FIRST: (0.00375, 0.00314, 0.00161, _NAN),
    },
    "concrete": {
        "train-loss": (0.00995, 0.0139, 0.0265, 0.101),
        WEIGHTS: (3.0, 9.0, 13.2, 25.0),
        PRUNED: (0.945, 1.13, 0.897, 0.104),
    },
    "energy": {
        "train-loss": (5.9e-5, 2.2e-4, 2.4e-3, 0.0210),
        WEIGHTS: (2.7, 10.0, 13.4, 23.2),
        PRUNED: (0.855, 1.17, 0.357, 0.023),
    },
    "airfoil": {
        "train-loss": (0.0976, 0.109, 0.144, 0.248),
        WEIGHTS: (4.6, 15.5, 18.5, 27.6),
        PRUNED: (1.04, 1.44, 1.47, 0.252),
    },
    "plant": {
        "train-loss": (0.0478, 0.0491, 0.0514, 0.0572),
        WEIGHTS: (1.26, 2.5, 3.66, 6.9),
        PRUNED: (0.816, 0.485, 0.340, 0.058),
    },
    "mnist": {  # risks are sums over outputs, ten times those of the figure
        "train-loss": (0.213, 0.233, 0.288, 0.509),
        WEIGHTS: (3.11, 10.1, _NAN, 22.3),
        PRUNED_TEST: (0.968, 0.861, 0.811, 0.577),
        FEATURES: (0.823, 0.638, 0.531, 0.245),
    },
    "cifar10": {"test-loss": (0.400, 0.408, 0.429, 0.510)},
}
FIGURES = {"sphere-sine": 1, "concrete": 6, "energy": 7, "airfoil": 8, "plant": 9, "mnist": 10, "cifar10": 4}
_HORIZON = {"sphere-sine": 50_000.0, "mnist": 20_000.0, "cifar10": 391_000.0}  # in our units; 100,000 for tables
_WHY = {"cifar10": "random patches take the place of the authors' pretrained features: only measured"}


def _pruned(run: xr.Dataset, what: str) -> np.ndarray:
    return run[f"pruning.hidden.{what}"].values[:, 1900 * option(run, "network.width") // _WIDTH]


_READ: Mapping[str, Callable[[xr.Dataset], np.ndarray]] = {
    PRUNED: lambda run: _pruned(run, "train_risk"),
    PRUNED_TEST: lambda run: _pruned(run, "test_risk"),
    FEATURES: lambda run: run["transfer.hidden.test_risk"].values[:, transferred(run).index(10)],
    FIRST: lambda run: run["kernel.smallest"].values[:, 0],
}
_WORDS = {
    PRUNED: "the training risk without 1,900 of 2,000 nodes",
    PRUNED_TEST: "the test risk without 1,900 of 2,000 nodes",
    FEATURES: "the test risk with 10 transferred features",
    FIRST: "eig_min of the NTG at the start",
}


def references(runs: Results, name: str, only: tuple[str, ...] | None = None) -> list[Reference]:
    """Set the numbers of the authors' figures beside those of runs of the released settings.

    Theirs are over five runs, which share their data, so that each is compared as one run.

    Parameters
    ----------
    runs
        Stored runs by label, in the order of the settings.
    name
        The data set.
    only
        Some of the quantities; all that are known if omitted.
    """
    one = next(iter(runs.values()))
    as_large = (
        option(one, "network.width") == _WIDTH
        and option(one, "data.kind") == name
        and float(one["time"][-1]) == _HORIZON.get(name, 100_000.0)
    )
    why = _WHY.get(name, "") if as_large else "the authors' runs are larger, longer or on other data: only measured"
    found = []
    for what in only or ENDS[name]:
        read = _READ.get(what, lambda run, what=what: curve(run, what)[:, -1])
        words = _WORDS.get(what, f"{TITLES.get(what, what)} at the end")
        for (label, run), theirs in zip(runs.items(), ENDS[name][what], strict=True):
            source = f"figure {FIGURES[name]}, read from the vector graphic"
            found.append(compare(words, read(run), theirs, source, setting=label, log=True, why=why))
    return found
