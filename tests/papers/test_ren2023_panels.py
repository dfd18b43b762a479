"""Panels of ren2023: claims hold on curves as the paper describes them, fail on others, and panels run end to end."""

import json

import numpy as np
import pytest
import xarray as xr

from made_up import run_small, with_fields
from unlazy.lab import Lab, instantiate
from unlazy.papers import ren2023
from unlazy.papers.ren2023 import depth, training
from unlazy.papers.ren2023._shared import (
    constant_loss,
    fall_times,
    learner,
    main_label,
    stages_of,
    step_times,
    times_of_loss,
    widths_of,
)
from unlazy.papers.ren2023.training import FINITE_STAGES, INFINITE, STAGES

TIMES = np.linspace(0.0, 100.0, 201)
PLATEAU = 0.02


@pytest.fixture(autouse=True)
def plateau(monkeypatch):
    """The loss of the best constant, as if computed from the data of the recipe."""
    monkeypatch.setattr(training, "_plateau", lambda run: PLATEAU)


def stored(variables, times=TIMES, seeds=2, recipe=None, finished=1):
    """A run as it comes from the store; all seeds alike."""

    def labelled(name, values):
        every = np.stack([np.asarray(values, float)] * seeds)
        return (("seed", "time", *(f"{name}_{axis}" for axis in range(every.ndim - 2))), every)

    recipe = recipe or recipe_of(64)
    attrs = {"status": ["finished"] * seeds, "finished": finished, "seconds": 1.0, "recipe": json.dumps(recipe)}
    named = {name: labelled(name, values) for name, values in variables.items()}
    return xr.Dataset(named, {"seed": range(seeds), "time": times}, attrs)


def truth():
    """What the paper describes, to be changed one by one."""
    return {
        "fall": 40.0,
        "limit_fall": 41.0,
        "end": 5e-5,
        "plateau": PLATEAU,
        "slope": -1.0,
        "bias": 1.0,
        "apart": 0.05,
        "spread": 5e-3,
        "power": -1.0,
        "grows": False,
        "speed": -1.0,
        "wide": 2e-6,
        "r2": 0.0,
        "v1": 1e-5,
        "v2": 1e-3,
    }


def loss_curve(fall, end, plateau):
    return end + (plateau - end) / (1 + np.exp(np.clip(TIMES - fall, -50, 50)))


def recipe_of(width):
    return {"data": {"d": 10}, "network": learner((width, 3), 10, 1e-3, 0.1)}


def one_run(so, width, fall):
    share = 1 / (1 + np.exp(np.clip(so["fall"] - TIMES, -50, 50)))
    w, alpha, b = 2.0 * so["slope"] * share, 0.5 * share + 1e-4, 0.3 + (so["bias"] - 0.3) * share
    rows = np.stack([np.stack([w, b], axis=1)] * 3, axis=1)
    radius = np.tile(np.linspace(0, 2, 5), (TIMES.size, 1))
    after = np.exp((0.01 if so["grows"] else -0.01) * (TIMES - so["fall"]))
    return stored(
        {
            "train-loss": loss_curve(fall, so["end"], so["plateau"]),
            "second-layer.neurons": rows,
            "second-layer.weight": w,
            "second-layer.bias": b,
            "second-layer.spread": np.full_like(TIMES, so["spread"]),
            "second-layer.largest": w,
            "first-layer.alpha": alpha,
            "limit-distance.relative": np.full_like(TIMES, so["apart"]),
            "loss-decomposition.error": 1e-4 * (width / 64) ** so["power"] * after,
            "radial-profile.radius": radius,
            **{f"radial-profile.{name}": radius for name in ("mean", "smallest", "largest", "limit")},
        },
        recipe=recipe_of(width),
    )


def stage_run(so):
    times = np.geomspace(1e-7, 0.3, 80)
    weight = so["speed"] * times
    return stored(
        {
            "second-layer.weight": weight,
            "second-layer.largest": weight + 1e-9,
            "second-layer.spread": np.full_like(times, so["wide"]),
            **{f"clip-activity.{clip}": 0.1 * (times < so[clip]) for clip in ("r2", "v1", "v2")},
        },
        times,
    )


def results(**changes):
    so = truth() | changes
    found = {f"m_1 = {m}": one_run(so, m, so["fall"]) for m in (64, 32, 128)}
    found[INFINITE] = one_run(so, 64, so["limit_fall"])
    found[INFINITE].attrs["recipe"] = json.dumps(recipe_of("inf"))  # as recipes write it
    return found | {STAGES: stage_run(so), FINITE_STAGES: stage_run(so)}


FALLS, ARRIVES, CLOSE, CONCENTRATED, AS_INFINITE, ERRORS, ORDERED, UNCLIPPED = range(8)


def verdicts(panel, given):
    found = panel.claims(given)
    assert all(claim.text and claim.paper and claim.measured for claim in found)
    assert all(isinstance(claim.holds, bool) for claim in found)
    return [claim.holds for claim in found]


def test_figure_2_holds_where_the_paper_is_right():
    assert verdicts(ren2023.fig2, results()) == [True] * 8


@pytest.mark.parametrize(
    ("changes", "broken"),
    [
        ({"end": 2e-4}, {FALLS}),
        ({"plateau": 0.028}, {FALLS}),
        ({"slope": -1.1}, {ARRIVES}),
        ({"bias": 0.97}, {ARRIVES}),
        ({"apart": 0.11}, {CLOSE}),
        ({"spread": 0.1}, {CONCENTRATED}),
        ({"limit_fall": 46.0}, {AS_INFINITE}),
        ({"limit_fall": 35.0}, {AS_INFINITE}),
        ({"power": -0.4}, {ERRORS}),
        ({"grows": True}, {ERRORS}),
        ({"speed": 1.0}, {ORDERED, UNCLIPPED}),  # stages that never end
        ({"r2": 1e-6}, {UNCLIPPED}),
        ({"v1": 1e-3}, {UNCLIPPED}),
        ({"v2": 0.1}, {UNCLIPPED}),
        ({"wide": 2e-3}, {ORDERED}),  # d δ_2 is beyond 10/R_v2
    ],
)
def test_each_claim_of_figure_2_can_fail(changes, broken):
    found = verdicts(ren2023.fig2, results(**changes))
    assert {index for index, holds in enumerate(found) if not holds} == broken


def test_a_loss_that_never_falls_is_no_fall():
    found = verdicts(ren2023.fig2, results(fall=1e4))
    assert not found[FALLS]
    assert not found[AS_INFINITE]


def test_figure_2_is_drawn():
    figure = ren2023.fig2.draw(results())
    assert len(figure.axes) == 5
    assert figure.axes[0].get_yscale() == "log"
    assert figure.axes[4].get_xscale() == "log"


def test_times_of_falls_and_stages():
    run = one_run(truth(), 64, 40.0)
    assert fall_times(run, PLATEAU) == pytest.approx([40.0, 40.0], abs=0.1)
    assert np.all(np.isnan(fall_times(run, 1e-9)))
    assert times_of_loss(run, 1e-3) == pytest.approx([40 + np.log(20)] * 2, abs=0.2)
    (first, *_) = stages_of(stage_run(truth()), 10.0)
    assert first.positive == pytest.approx(1e-7)
    assert first.spread == pytest.approx(10 * 2e-6, rel=1e-2)
    assert first.weight == pytest.approx(10 / 10**3, rel=1e-2)


def test_small_things():
    assert constant_loss(np.array([0.0, 1.0]), None) == 0.125
    assert constant_loss(np.array([0.0, 1.0, 5.0]), np.array([1.0, 1.0, 0.0])) == 0.125
    assert step_times(2.2, 3, 0.5) == [0.0, 1.0, 2.0]
    assert widths_of(results()) == {64: "m_1 = 64", 32: "m_1 = 32", 128: "m_1 = 128"}
    assert main_label(results()) == "m_1 = 64"


# ---------------------------------------------------------------- depth


def shallow_run(width, rate, loss):
    network = {"widths": [width, 1], "amplitude": ["eye", {}]}
    return stored({"train-loss": [1.0, loss]}, [0.0, 1.0], recipe={"data": {"d": 10}, "network": network})


def deep_run(width, loss):
    recipe = {"data": {"d": 10}, "network": learner((width, 8), 10, 1e-3, 0.1)}
    return stored({"train-loss": [1.0, loss]}, [0.0, 1.0], recipe=recipe)


def depth_results(deep=(1e-3, 1e-4), shallow=(5e-3, 2e-3, 1e-3)):
    found = {f"three layers, m_1 = {m}": deep_run(m, loss) for m, loss in zip((32, 128), deep, strict=True)}
    for m, loss in zip((16, 64, 256), shallow, strict=True):
        for rate, factor in ((1e-3, 2.0), (3e-3, 1.0)):
            found[f"two layers, m = {m}, rate {rate:g}"] = shallow_run(m, rate, factor * loss)
    return found


def test_depth_separation_holds_where_three_layers_are_better():
    assert verdicts(ren2023.separation, depth_results()) == [True, True]


def test_depth_separation_fails_where_they_are_not():
    assert verdicts(ren2023.separation, depth_results(deep=(1e-3, 6e-4))) == [False, True]
    assert verdicts(ren2023.separation, depth_results(deep=(6e-3, 1e-4))) == [True, False]


def test_curves_take_the_best_rate_and_count_parameters():
    shallow, deep = depth.curves(depth_results())
    assert shallow == {16 * 12 + 1: 5e-3, 64 * 12 + 1: 2e-3, 256 * 12 + 1: 1e-3}
    assert deep == {32 * 10 + 16: 1e-3, 128 * 10 + 16: 1e-4}
    assert ren2023.separation.draw(depth_results()).axes


# ---------------------------------------------------------------- end to end


@pytest.mark.slow
def test_figure_2_runs_from_end_to_end(tmp_path, monkeypatch):
    def tiny(recipe):
        """Keep the widths, by which the runs are told apart, and let all else be small."""
        width = recipe.network["widths"][0]
        flow = (
            {}
            if recipe.flow["kind"] == "runge-kutta"
            else {"batch": 16, "source": {"kind": "spherical-source", "d": 5}}
        )
        data = {"d": 5, **({"n": 64} if "n" in recipe.data else {})}
        times = {} if recipe.name.startswith("ren2023 stages") else {"times": [0.0, 2.0, 4.0]}
        network = learner((width, 4), 5, 1e-9 if not times else 1e-3, 0.1)
        return with_fields(recipe, data=data, network=network, flow=flow, **times)

    monkeypatch.undo()
    assert list(ren2023.fig2.recipes("quick")) == [
        *("m_1 = 256", INFINITE, "m_1 = 64", "m_1 = 128", "m_1 = 512", STAGES, FINITE_STAGES)
    ]
    names = ["m_1 = 256", INFINITE, "m_1 = 64", STAGES, FINITE_STAGES]
    found = run_small(ren2023.fig2, Lab(tmp_path), tiny, names)
    main, limit = found["m_1 = 256"], found[INFINITE]
    assert main["second-layer.neurons"].shape == (1, 3, 4, 2)
    np.testing.assert_allclose(  # the same second layer, in two precisions
        main["second-layer.neurons"].values[0, 0], limit["second-layer.neurons"].values[0, 0], rtol=1e-6
    )
    np.testing.assert_allclose(main["first-layer.alpha"][0, 0], limit["first-layer.alpha"][0, 0], rtol=1e-5)
    for run in found.values():
        assert run.attrs["finished"]
    assert len(ren2023.fig2.claims(found)) == 8
    assert ren2023.fig2.draw(found).axes


def test_depth_runs_from_end_to_end_and_counts_as_the_network_does(tmp_path):
    every = ren2023.separation.recipes("quick", 1)
    source = {"kind": "spherical-source", "d": 4, "truncate": 3.0}
    recipes = {}
    for name, width in (
        ("two layers, m = 16, rate 0.01", {"widths": [3, 1], "ranks": 3}),
        ("three layers, m_1 = 32", {"widths": [5, 8]}),
    ):
        flow, data = {"batch": 8, "source": source}, {"n": 32, "d": 4}
        recipes[name] = with_fields(
            every[name], network=width, data=data, flow=flow, times=[0.0, 0.5 * every[name].flow["rate"] * 2]
        )
    found = Lab(tmp_path).run_all(recipes)
    shallow, deep = depth.curves(found)
    for counts, recipe in zip((shallow, deep), recipes.values(), strict=True):
        assert list(counts) == [instantiate(recipe).networks[0].trainable]
    assert len(ren2023.separation.claims(found)) == 2
