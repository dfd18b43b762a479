"""Panels of caron2023 on growing width: claims hold on results as theory predicts them, and fail on others."""

import json
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import xarray as xr

from made_up import with_fields
from unlazy.activations import Relu
from unlazy.lab import Lab
from unlazy.networks import TwoLayer, Zipf, asymmetrical
from unlazy.networks.node_kernels import heavy_variances
from unlazy.papers import caron2023
from unlazy.papers.caron2023 import comparison, wide
from unlazy.papers.caron2023.theorems import node_variance
from unlazy.papers.outcomes import Outcome

H, F, U = Outcome.HOLDS, Outcome.FAILS, Outcome.UNDECIDED
SEEDS, N, WIDTHS = 6, 3, (128, 512, 2048)
TIMES = np.array([0.0, 1.0, 2.0])
SPREAD = 1 + 0.02 * np.linspace(-1, 1, SEEDS)  # of the seeds
KEPT = heavy_variances(asymmetrical(0.5, Zipf(0.5)))[0]
INPUTS = jnp.eye(N)


@pytest.fixture(autouse=True)
def data(monkeypatch):
    monkeypatch.setattr(comparison, "training_sets", lambda run: [(np.asarray(INPUTS), np.ones(N))] * SEEDS)
    drawn = [SimpleNamespace(y_test=np.zeros(N))] * SEEDS
    monkeypatch.setattr(wide, "draw_data", lambda recipe: drawn)
    monkeypatch.setattr(wide, "recipe_of", lambda run: None)


def stored(recipe, outputs, theta, movement, risk):
    """A run with the same values at all times but the first, where nothing has moved yet."""

    def over(values, moving):
        shape = values.shape
        every = np.broadcast_to(values[:, None], (shape[0], 3, *shape[1:])).copy()
        every[:, 0] *= 0.0 if moving else 1.0
        return (("seed", "time", *(f"axis-{k}-{size}" for k, size in enumerate(shape[1:]))), every)

    change = over(np.broadcast_to(theta[:, :, None, None], (SEEDS, 2, N, N))[:, 0], False)
    change[1][:, -1] = theta[:, 1, None, None]
    variables = {
        "train-loss": over(risk, False),
        "train-outputs": over(outputs, False),
        "test-outputs": over(outputs, False),
        "weight-movement.hidden": over(movement, True),
        "kernel-matrix": change,
    }
    attrs = {"recipe": json.dumps({"network": recipe.network})}
    return xr.Dataset(variables, {"seed": range(SEEDS), "time": TIMES}, attrs)


def results(panel, scale="quick", **changes):
    """Results of a panel as theory predicts them, or changed."""
    is_so = {"outputs": -0.5, "start": 1.0, "end": -0.5, "heavy": -0.5, "risk": 0.0, "test": 0.0}
    is_so |= {"lazy": {"weights": -0.5, "kernel": -0.5}, "rich": {"weights": 0.0, "kernel": 0.0}, "final": 1.0}
    is_so |= changes
    found = {}
    for name, recipe in panel.recipes(scale, SEEDS).items():
        gamma, width = recipe.network["scaling"]["gamma"], recipe.network.get("width")
        scaling = asymmetrical(gamma, Zipf(0.5))
        kept = heavy_variances(scaling)[0]
        outputs = np.ones((SEEDS, N))
        risk = 0.01 * np.ones(SEEDS) * SPREAD
        law = is_so["lazy" if gamma == 1 else "rich"]
        reference = 2048 if width is None or panel is caron2023.limit else width
        moved = (5.0 if gamma < 1 else 4.0) * reference ** law["weights"] * SPREAD
        drift = (0.5 if gamma < 1 else 1.0) * reference ** law["kernel"] * SPREAD
        movement = np.zeros((SEEDS, width or len(kept)))
        movement[:, : width if gamma == 1 else 1] = moved[:, None]  # equal nodes move alike
        theta = np.stack([np.ones(SEEDS), 1 + drift], axis=1)
        if width is not None:
            outputs = outputs * (1 + is_so["test"]) + (width ** is_so["outputs"] * SPREAD)[:, None]
            risk = risk * np.exp(is_so["risk"])
            apart = scaling.nodes(width) ** 2
            apart[: len(kept)] -= kept
            size = (node_variance(Relu(), INPUTS) * (apart @ apart)) ** 0.5 / N
            theta[:, 0] += is_so["start"] * size * SPREAD
            theta[:, 1] += 0.1 * width ** is_so["end"] * SPREAD
            if gamma < 1:
                movement[:, 1] = (1.0 * width ** is_so["heavy"] * SPREAD) if panel is caron2023.limit else 0.0
        else:
            movement *= is_so["final"]
            theta[:, 1] = 1 + is_so["final"] * drift
        if panel is caron2023.width:
            theta[:, 0] = 1.0
            theta[:, 1] = 1 + drift * (is_so["final"] if width is None else 1.0)
        found[name] = stored(recipe, outputs, theta, movement, risk)
    return found


def verdicts(panel, **changes):
    return [claim.outcome for claim in panel.claims(results(panel, **changes))]


@pytest.mark.parametrize(
    ("changes", "broken"),
    [
        ({}, {}),
        ({"start": 1.3}, {0: F}),  # the squares are 1.7 times the prediction
        ({"outputs": -0.3}, {1: F}),
        ({"outputs": -0.75}, {1: F}),
        ({"end": 0.2}, {2: F}),
        ({"risk": 0.5}, {3: F}),
        ({"risk": -0.5}, {3: F}),
        ({"test": 0.3}, {1: F, 4: F}),  # all outputs are off
        ({"heavy": -0.25}, {5: F}),
        ({"heavy": -1.0}, {5: F}),
    ],
)
def test_the_limit_is_approached_as_predicted(changes, broken):
    found = verdicts(caron2023.limit, **changes)
    assert found == [broken.get(place, H) for place in range(6)]


WEIGHTS_LAZY, WEIGHTS_RICH, WEIGHTS_LIMIT, WEIGHTS_MORE, KERNEL_MORE = (0, 4), (1, 5), (2, 6), (3, 7), 11


@pytest.mark.parametrize(
    ("changes", "broken"),
    [
        ({}, ()),
        ({"lazy": {"weights": -0.3, "kernel": -0.5}}, WEIGHTS_LAZY),
        ({"lazy": {"weights": -0.5, "kernel": -0.2}}, (8, 12)),
        ({"lazy": {"weights": -0.5, "kernel": -1.0}}, (8,)),
        ({"rich": {"weights": -0.2, "kernel": 0.0}}, WEIGHTS_RICH),
        ({"rich": {"weights": 0.0, "kernel": -0.2}}, (9,)),
        ({"final": 0.5}, (*WEIGHTS_LIMIT, 10)),
        ({"final": 2.0}, (*WEIGHTS_LIMIT, 10)),
    ],
)
def test_features_are_learnt_at_any_width_if_nodes_are_unequal(changes, broken):
    found = verdicts(caron2023.width, **changes)
    assert [place for place, outcome in enumerate(found) if outcome is F] == list(broken)
    assert all(outcome is H for place, outcome in enumerate(found) if place not in broken)


def test_more_must_move_with_unequal_nodes_at_every_width():
    given = results(caron2023.width)
    for name, run in given.items():
        if name.startswith("γ = 1") and name.endswith("2048"):
            run["weight-movement.hidden"].values[:] *= 100
    found = [claim.outcome for claim in caron2023.width.claims(given)]
    assert [found[place] for place in WEIGHTS_MORE] == [F, F]
    given = results(caron2023.width)
    for name, run in given.items():
        if name.startswith("γ = 1") and name.endswith("128"):
            theta = run["kernel-matrix"].values
            theta[:, -1] = theta[:, 0] + 1e3 * (theta[:, -1] - theta[:, 0])
    assert [claim.outcome for claim in caron2023.width.claims(given)][KERNEL_MORE] is F


def test_late_claims_say_so():
    found = caron2023.limit.claims(results(caron2023.limit)), caron2023.width.claims(results(caron2023.width))
    assert [[place for place, one in enumerate(some) if one.hindsight] for some in found] == [[4], [8]]


def test_with_equal_nodes_there_are_no_heavy_ones_to_compare():
    found = caron2023.limit.claims(results(caron2023.limit, "paper"))
    assert [one.outcome for one in found] == [H] * 11
    assert len(caron2023.limit.draw(results(caron2023.limit, "paper")).axes) == 4


def test_figures_have_an_axes_for_each_measure():
    assert len(caron2023.limit.draw(results(caron2023.limit)).axes) == 4
    assert len(caron2023.width.draw(results(caron2023.width)).axes) == 3


def test_runs_are_shared_between_the_two_panels():
    for scale in ("quick", "paper"):
        asked = [{one.digest for one in panel.recipes(scale).values()} for panel in (caron2023.limit, caron2023.width)]
        assert len(asked[0] & asked[1]) >= len(wide._SCALES[scale].widths) + 1


def test_the_predicted_distance_is_that_of_networks_drawn():
    """By brute force over many networks: E‖Θ_m - Θ_∞‖_F² = C_0 Σ_j c_j²."""
    x, width, scaling = jax.random.normal(jax.random.key(0), (N, 4)), 64, asymmetrical(0.5, Zipf(0.5))
    apart = scaling.nodes(width) ** 2
    apart[: len(KEPT)] -= KEPT

    def square(key):
        network = TwoLayer(width, 4, activation="relu", scaling=scaling, key=key)
        gates = (network.preactivations(x) > 0).astype(float)
        theta = (gates * apart[None, :]) @ gates.T * (x @ x.T / 4)
        mean = caron2023.theorems.mean_ntg(Relu(), x)
        return ((theta - apart.sum() * mean) ** 2).sum()

    found = jax.vmap(square)(jax.random.split(jax.random.key(1), 4000))
    wanted = node_variance(Relu(), x) * (apart @ apart)
    assert abs(float(found.mean()) - wanted) < 5 * float(found.std()) / 4000**0.5


@pytest.mark.slow
def test_both_panels_run(tmp_path, monkeypatch):
    monkeypatch.undo()
    lab = Lab(tmp_path)
    for panel in (caron2023.limit, caron2023.width):
        recipes = panel.recipes("quick", 2)
        some = {name: one for name, one in recipes.items() if "2048" not in name or panel is caron2023.width}

        def small(recipe):
            size = {"width": recipe.network["width"] // 2} if "width" in recipe.network else {}
            start = recipe.network.get("start")
            size |= {"start": start // 2} if isinstance(start, int) else {}
            return with_fields(recipe, network=size, data={"n": 6, "n_test": 4}, times=[0.0, 5.0])

        given = lab.run_all({name: small(one) for name, one in some.items()})
        assert all(claim.measured for claim in panel.claims(given))
        assert panel.draw(given).axes
