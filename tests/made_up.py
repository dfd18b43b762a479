"""Results of panels that were never run, and sizes so small that running takes no time."""

import msgspec
import numpy as np
import xarray as xr

from unlazy.papers import chen2022
from unlazy.papers.chen2022 import random_labels as experiment1

TIMES = np.linspace(0.0, 2000.0, 81)
RATES = {20: 6e-3, 40: 3e-3, 80: 1.5e-3, 160: 7e-4}


def exponential(width, n, t):
    """The loss of figures 1 and 5 as the paper describes it: linear in log scale, slower for larger n."""
    return 0.04 * np.exp(-RATES[n] * t)


def random_labels(curve=exponential, status="finished", seeds=3):
    """Results of `RandomLabels` in which ``curve(width, n, t)`` is the loss, give or take a little for each seed."""
    results = {}
    for width in (1024, 512):
        for n in RATES:
            loss = np.stack([(1 + 0.01 * seed) * curve(width, n, TIMES) for seed in range(seeds)])
            attrs = {"status": [status] * seeds, "finished": int(status == "finished"), "seconds": 1.5, "recipe": "{}"}
            variables = {"train-loss": (("seed", "time"), loss)}
            results[f"m={width} n={n}"] = xr.Dataset(variables, {"seed": range(seeds), "time": TIMES}, attrs)
    return results


def shrink(monkeypatch, flow=None):
    """Figures 1 and 5 with 4 and 8 neurons, two n and three looks; with another flow, if one compiles faster."""
    sizes = experiment1._Sizes(widths=(4, 8), end=4.0, seeds=1)
    monkeypatch.setattr(experiment1, "_SCALES", {"quick": sizes, "paper": sizes})
    monkeypatch.setattr(experiment1, "_SAMPLES", (20, 40))
    monkeypatch.setattr(experiment1, "_times", lambda end: [0.0, end / 2, end])
    if flow is not None:
        recipe = chen2022.RandomLabels.recipe
        monkeypatch.setattr(
            chen2022.RandomLabels, "recipe", lambda *given: msgspec.structs.replace(recipe(*given), flow=flow)
        )
