"""Results of panels that were never run, and sizes so small that running takes no time."""

import msgspec
import numpy as np
import xarray as xr

from unlazy.lab import Store, parse
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


def stored_run(folder, name="made up", probes=("train-loss",), variables=None, times=(0.0, 1.0, 10.0), **recipe):
    """Store a run that was never made, with any variables (dimensions seed and time first), and give its path."""
    recipe = {
        "name": name,
        "data": {"kind": "random-labels", "n": 5, "d": 2},
        "network": {"kind": "two-layer", "width": 8},
        "flow": "descent",
        "times": [float(t) for t in times],
        "probes": list(probes),
        "dtype": "float32",
        **recipe,
    }
    made = parse(recipe)
    if variables is None:
        variables = {"train-loss": np.exp(-np.asarray(times))[None] * np.ones((made.seeds, 1))}
    labelled = {
        key: (("seed", "time", *(f"{key}_{axis}" for axis in range(values.ndim - 2))), values)
        for key, values in variables.items()
    }
    run = xr.Dataset(labelled, {"seed": np.arange(made.seeds), "time": np.asarray(times)})
    status = ["finished"] * made.seeds
    run.attrs = {"recipe": made.json(), "name": name, "digest": made.digest, "status": status, "finished": 1}
    run.attrs |= {"seconds": 1.5, "seed": 0, "dtype": "float32", "versions": "unlazy 0, jax 0", "written": "today"}
    run.attrs |= {"method": "descent, coordinates: weights, precision: full", "evaluations": [3] * made.seeds}
    store = Store(folder)
    store.prepare()
    return store.save(made, run)


def filmed(times=(0.0, 1.0, 10.0), neurons=20):
    """Probes whose films the report shows, and what they saw: dots that drift, curves that bend, cosines that turn."""
    t = np.asarray(times)[:, None]
    j = np.linspace(-1, 1, neurons)[None]
    x = np.linspace(-1, 1, 11)[None, :, None]
    cosines = np.clip(np.cos(np.subtract.outer(j[0], j[0]))[None] * (1 - t[..., None] / 5), -1, 1)
    variables = {
        "feature-pair.hidden.train": (j * (1 + t))[None],
        "feature-pair.hidden.test": (j**2 * (1 + t))[None],
        "cosine-matrix.conv1": cosines[None],
        "channels.block-1": (np.sin(3 * x * np.arange(1, 10)) * (1 + t[..., None]))[None],
        "trained-neurons.block-2": np.stack([j + t, j - t], axis=-1)[None],
        "train-loss": np.exp(-t[:, 0])[None],
    }
    probes = ["feature-pair", "cosine-matrix", {"kind": "channels", "count": 11}, "trained-neurons", "train-loss"]
    return {"probes": probes, "variables": variables, "times": times}
