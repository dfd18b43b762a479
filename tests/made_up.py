"""Results of panels that were never run, and sizes so small that running takes no time."""

import json

import msgspec
import numpy as np
import xarray as xr

from unlazy.lab import Lab, Store, Sweep, parse
from unlazy.papers import chen2022

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
            recipe = json.dumps({"data": {"n": n}, "network": {"width": width}})
            attrs = {"status": [status] * seeds, "finished": int(status == "finished"), "seconds": 1.5}
            attrs["recipe"] = recipe
            variables = {"train-loss": (("seed", "time"), loss)}
            results[f"m={width} n={n}"] = xr.Dataset(variables, {"seed": range(seeds), "time": TIMES}, attrs)
    return results


class Ready(Lab):
    """A lab for panels whose recipes are results already: it gives them back."""

    def run_all(self, recipes, workers=1):
        return dict(recipes)


def with_fields(recipe, **changes):
    """Change a recipe: a table changes options of a section, anything else takes the place of a field."""
    merged = {
        name: {**getattr(recipe, name), **value} if isinstance(value, dict) else value
        for name, value in changes.items()
    }
    return msgspec.structs.replace(recipe, **merged)


def run_small(panel, lab, change, names=None, scale="quick"):
    """Run the recipes of a panel (or those that are named) with one seed, each changed so that it takes no time."""
    recipes = panel.recipes(scale, 1)
    return lab.run_all({name: change(recipes[name]) for name in names or recipes})


def shrink(monkeypatch, flow="descent"):
    """Let figures 1 and 5 have recipes with few neurons and three times, of a flow that compiles fast."""
    recipes = chen2022.RandomLabels.recipes

    def small(self, scale, seeds=None):
        return {
            name: msgspec.structs.replace(
                with_fields(one, network={"width": one.network["width"] // 128}, times=[0.0, 2.0, 4.0]), flow=flow
            )
            for name, one in recipes(self, scale, seeds).items()
        }

    monkeypatch.setattr(chen2022.RandomLabels, "recipes", small)


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


def stored_sweep(folder, sweep, variables, times=(0.0, 1.0, 10.0), leave_out=()):
    """Store results of a sweep that was never run, and the list of its runs; give the path of the list.

    ``variables(fields, seed)`` gives the values of each variable over time. ``sweep`` is the table of a sweep, without
    what all made-up recipes have; points whose index is in ``leave_out`` are not stored.
    """
    table = {
        "name": "made up",
        "data": {"kind": "random-labels", "n": 5, "d": 2},
        "network": {"kind": "two-layer", "width": 8},
        "flow": {"kind": "descent", "rate": 0.1},
        "times": [float(t) for t in times],
        "probes": ["train-loss"],
        "dtype": "float32",
    }
    made, store = Sweep.parse(table | sweep), Store(folder)
    store.prepare()
    path, manifest = made.manifest(store)
    for index, point in enumerate(made.points()):
        if index in leave_out:
            continue
        recipe = point.recipe
        seeds = range(recipe.seed, recipe.seed + recipe.seeds)
        each = [variables(point.fields | point.derived, seed) for seed in seeds]
        stacked = {name: np.stack([np.asarray(one[name], float) for one in each]) for name in each[0]}
        named = {name: (("seed", "time")[: values.ndim], values) for name, values in stacked.items()}
        length = max((values.shape[1] for values in stacked.values() if values.ndim > 1), default=len(times))
        run = xr.Dataset(named, {"seed": list(seeds), "time": np.asarray(times, float)[:length]})
        run.attrs = {"recipe": recipe.json(), "name": recipe.name, "digest": recipe.digest, "finished": 1}
        run.attrs |= {"status": ["finished"] * len(seeds), "seconds": 1.5, "method": "descent", "versions": "unlazy 0"}
        store.save(recipe, run)
    return manifest.write(path)
