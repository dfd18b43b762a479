"""Panels of ren2023: claims hold on curves as the paper describes them, fail on others, and panels run end to end."""

import json
import math

import numpy as np
import pytest
import xarray as xr

from made_up import run_small, with_fields
from unlazy.lab import Lab, instantiate
from unlazy.networks.limits import sphere_mean
from unlazy.papers import ren2023
from unlazy.papers.outcomes import Outcome
from unlazy.papers.ren2023 import claims, depth, training
from unlazy.papers.ren2023.dimension import quantities_of
from unlazy.papers.ren2023.quantities import (
    FINITE_STAGES,
    INFINITE,
    STAGES,
    constant_loss,
    fall_times,
    growth_of,
    main_label,
    predicted_decay,
    predicted_stops,
    stages_of,
    times_of_loss,
    widths_of,
)
from unlazy.papers.ren2023.radial import truncated_moment
from unlazy.papers.ren2023.theorems import degree_rates
from unlazy.papers.ren2023.training import learner, step_times

TIMES = np.linspace(0.0, 100.0, 201)
PLATEAU = 0.02
STOP = 2.25e-5  # b²/(4 R_v2) with b = 0.3 and R_v2 = 1000


@pytest.fixture(autouse=True)
def plateau(monkeypatch):
    """The loss of the best constant and the decay of degree 2, as if computed from the data of the recipe."""
    for module in (claims, training):
        monkeypatch.setattr(module, "plateau_of", lambda run: PLATEAU)
    monkeypatch.setattr(claims, "predicted_decay", lambda run: np.full((run["seed"].size, run["time"].size), 0.5))


def stored(variables, times=TIMES, seeds=2, recipe=None, finished=1, by_seed=None):
    """A run as it comes from the store; all seeds alike."""

    def labelled(name, values):
        every = np.stack([np.asarray(values, float)] * seeds)
        return (("seed", "time", *(f"{name}_{axis}" for axis in range(every.ndim - 2))), every)

    recipe = recipe or recipe_of(64)
    attrs = {"status": ["finished"] * seeds, "finished": finished, "seconds": 1.0, "recipe": json.dumps(recipe)}
    named = {name: labelled(name, values) for name, values in variables.items()}
    named |= {name: (("seed", "time"), values) for name, values in (by_seed or {}).items()}
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
        "spreads": 0.0,
        "limit_spreads": 0.0,
        "power": -1.0,
        "noise": 0.0,
        "grows": False,
        "l2": -1e-3,
        "sphere": -1e-3,
        "degree1": 1e-3,
        "decay": 1.0,
        "moved": 0.1,
        "eq6": 0.1,
        "value": 0.1,
        "rate": 1e-7,
        "speed": -1.0,
        "wide": 2e-6,
        "r2": 1.1e-7,
        "v1": 1e-5,
        "v2": STOP,
    }


def loss_curve(fall, end, plateau):
    return end + (plateau - end) / (1 + np.exp(np.clip(TIMES - fall, -50, 50)))


def recipe_of(width):
    return {"data": {"d": 10}, "network": learner((width, 3), 10, 1e-3, 0.1)}


def one_run(so, width, fall, spreads="spreads"):
    share = 1 / (1 + np.exp(np.clip(so["fall"] - TIMES, -50, 50)))
    w, alpha, b = 2.0 * so["slope"] * share - 1e-4, 0.5 * share + 1e-4, 0.3 + (so["bias"] - 0.3) * share
    rows = np.stack([np.stack([w, b], axis=1)] * 3, axis=1)
    radius = np.tile(np.linspace(0, 2, 5), (TIMES.size, 1))
    after = np.exp((0.01 if so["grows"] else -0.01) * (TIMES - so["fall"]))
    error = 1e-4 * (width / 64) ** so["power"] * after * (1 + so["noise"])
    jitter = np.array([1.0, 1.02])[:, None]
    return stored(
        {
            "train-loss": loss_curve(fall, so["end"], so["plateau"]),
            "second-layer.neurons": rows,
            "second-layer.weight": w,
            "second-layer.bias": b,
            "second-layer.spread": so["spread"] * np.exp(so[spreads] * TIMES),
            "second-layer.largest": w,
            "first-layer.alpha": alpha,
            "first-layer.l2": 0.1 * np.exp(so["l2"] * TIMES),
            "first-layer.sphere": 0.3 * np.exp(so["sphere"] * TIMES),
            "limit-distance.relative": np.full_like(TIMES, so["apart"]),
            "loss-decomposition.gradient": np.full_like(TIMES, so["eq6"]),
            "loss-decomposition.value": np.full_like(TIMES, so["value"]),
            "radial-profile.radius": radius,
            "error-by-degree.degree1": 1.5 / width * so["degree1"] ** (TIMES / 100),
            "error-by-degree.degree2": 0.5 / width * 0.5 ** (so["decay"] * TIMES / 100),
            "error-by-degree.rest": np.full_like(TIMES, 0.1 / width),
            **{f"radial-profile.{name}": radius for name in ("mean", "smallest", "largest", "limit")},
        },
        recipe=recipe_of(width),
        by_seed={"loss-decomposition.error": jitter * error},
    )


def limit_run(so):
    """At infinite width, with neurons so small that the lemmas let 1/L grow by 4 α² = 4e-8 in a unit of time."""
    run = one_run(so, 64, so["limit_fall"], "limit_spreads")
    run["train-loss"].values[:] *= 1 - so["rate"] * TIMES
    run["second-layer.neurons"].values[:] = [-1e-8, 0.3]
    run["first-layer.alpha"].values[:] = 1e-4
    return run


def stage_run(so):
    times = np.geomspace(1e-7, 0.3, 80)
    weight = so["speed"] * times
    neurons = np.stack([np.stack([weight, np.full_like(times, 0.3)], axis=1)] * 3, axis=1)
    return stored(
        {
            "second-layer.neurons": neurons,
            "second-layer.bias": np.full_like(times, 0.3),
            "second-layer.weight": weight,
            "second-layer.largest": weight + 1e-9,
            "second-layer.spread": np.full_like(times, so["wide"]),
            "first-layer.tangential": so["moved"] / 2 * times / times[-1] * 30,
            "first-layer.radial": so["moved"] / 2 * times / times[-1] * 30,
            "first-layer.sphere": np.full_like(times, 0.2),
            **{f"clip-activity.{clip}": 0.1 * (times < so[clip]) for clip in ("r2", "v1", "v2")},
        },
        times,
    )


def results(**changes):
    so = truth() | changes
    found = {f"m_1 = {m}": one_run(so, m, so["fall"]) for m in (64, 32, 128)}
    found[INFINITE] = limit_run(so)
    found[INFINITE].attrs["recipe"] = json.dumps(recipe_of("inf"))  # as recipes write it
    return found | {STAGES: stage_run(so), FINITE_STAGES: stage_run(so)}


FALLS, ARRIVES, CLOSE, AS_INFINITE, SPREAD, LIMIT_SPREAD, CONCENTRATED = range(7)
POWER, LESS, SHRINKS, SUPREMUM, FIRST_DEGREE, SECOND_DEGREE, LATE, GRADIENT, VALUE = range(7, 16)
RATE, PRINTED_RATE, ORDERED, STILL, SHARP, UNCLIPPED = range(16, 22)


def outcomes(panel, given):
    found = panel.claims(given)
    assert all(claim.text and claim.paper and claim.measured and claim.basis for claim in found)
    return [claim.outcome for claim in found]


def verdicts(panel, given):
    return [outcome is Outcome.HOLDS for outcome in outcomes(panel, given)]


def failing(**changes):
    return {i for i, outcome in enumerate(outcomes(ren2023.fig2, results(**changes))) if outcome is Outcome.FAILS}


def test_figure_2_holds_where_the_paper_is_right():
    found = outcomes(ren2023.fig2, results())
    assert found.pop(PRINTED_RATE) is Outcome.VACUOUS  # t L is below 0.8, and d³ = 1000
    assert set(found) == {Outcome.HOLDS}
    assert len(found) == UNCLIPPED


def test_strict_and_weaker_readings_are_marked():
    found = ren2023.fig2.claims(results())
    assert {i for i, claim in enumerate(found) if claim.weaker} == {CONCENTRATED, LESS, LATE, VALUE, UNCLIPPED}
    seen = {FALLS, CLOSE, AS_INFINITE, SUPREMUM, FIRST_DEGREE, SECOND_DEGREE, STILL}
    assert {i for i, claim in enumerate(found) if claim.hindsight} == seen


@pytest.mark.parametrize(
    ("changes", "broken"),
    [
        ({"end": 2e-4}, {FALLS}),
        ({"plateau": 0.022}, {FALLS}),
        ({"slope": -1.1}, {ARRIVES}),
        ({"bias": 0.97}, {ARRIVES}),
        ({"apart": 0.06}, {CLOSE}),
        ({"spread": 0.1}, {CONCENTRATED}),
        ({"spreads": 1e-3}, {SPREAD}),
        ({"limit_spreads": 1e-3}, {LIMIT_SPREAD}),
        ({"limit_fall": 43.0}, {AS_INFINITE}),
        ({"limit_fall": 37.0}, {AS_INFINITE}),
        ({"power": -0.85}, {POWER}),
        ({"grows": True}, {LATE}),
        ({"power": -0.4}, {POWER, LESS}),
        ({"l2": 1e-3}, {SHRINKS}),
        ({"sphere": 1e-3}, {SUPREMUM}),
        ({"degree1": 0.02}, {FIRST_DEGREE}),
        ({"decay": 0.8}, {SECOND_DEGREE}),
        ({"decay": 1.2}, {SECOND_DEGREE}),
        ({"moved": 0.3}, {STILL}),
        ({"eq6": 0.3}, {GRADIENT}),
        ({"value": 0.3}, {VALUE}),
        ({"speed": 1.0}, {ORDERED, STILL, UNCLIPPED, SHARP}),  # stages that never end
        ({"r2": 1e-6}, {UNCLIPPED}),
        ({"v1": 1e-3}, {UNCLIPPED}),
        ({"v2": 0.1}, {SHARP, UNCLIPPED}),
        ({"v2": 0.7 * STOP}, {SHARP}),
        ({"v2": 1.5 * STOP}, {SHARP}),
        ({"wide": 2e-3}, {ORDERED}),  # d δ_2 is beyond 10/R_v2
    ],
)
def test_each_claim_of_figure_2_can_fail(changes, broken):
    assert failing(**changes) == broken


def test_a_loss_that_falls_too_slowly_is_not_that_of_the_lemmas():
    assert failing(rate=0.0) == {RATE}
    assert outcomes(ren2023.fig2, results(rate=1e-5))[RATE] is Outcome.VACUOUS


def test_the_printed_rate_says_nothing_where_it_is_met_by_far():
    given = results()
    for factor, outcome in ((1, Outcome.VACUOUS), (10, Outcome.HOLDS), (1e3, Outcome.FAILS)):
        given[INFINITE]["train-loss"].values[:] *= factor
        assert outcomes(ren2023.fig2, given)[PRINTED_RATE] is outcome


def test_lemma_4_1_is_vacuous_where_stages_come_much_later():
    assert outcomes(ren2023.fig2, results(v1=1e-7, r2=1e-10))[UNCLIPPED] is Outcome.VACUOUS


def test_one_seed_of_each_width_leaves_the_comparison_undecided():
    given = {name: run.isel(seed=[0]) for name, run in results().items()}
    assert outcomes(ren2023.fig2, given)[LESS] is Outcome.UNDECIDED


def test_a_loss_that_never_falls_is_no_fall():
    assert {FALLS, AS_INFINITE} <= failing(fall=1e4)


def test_growth_is_relative_to_any_earlier_value():
    assert growth_of(np.array([[3.0, 1.0, 2.0], [3.0, 2.0, 1.0]])) == pytest.approx([2.0, 2 / 3])


def test_the_predicted_decay_of_a_layer_that_does_not_move():
    """exp(-2 λ_2 (α/s) w̄_2² E[|x|²; X_1] t), with X_1 = {|x| < b̄_2/|w̄_2 α|}."""
    alpha, w, b = 0.5, -1.5, 0.9
    steady = {"first-layer.alpha": alpha, "second-layer.weight": w, "second-layer.bias": b}
    run = stored({name: np.full_like(TIMES, value) for name, value in steady.items()})
    rate = 2 * degree_rates(10)[1] * alpha / sphere_mean(10) * w**2 * truncated_moment(2, b / 0.75, 10)
    assert predicted_decay(run)[0] == pytest.approx(np.exp(-rate * TIMES), rel=1e-2)
    assert 0.05 < predicted_decay(run)[0, -1] < 0.9
    run["second-layer.weight"].values[:] = 1.0  # before stage 2
    assert predicted_decay(run) == pytest.approx(np.ones((2, TIMES.size)))


def test_the_sharp_time_of_the_clip_of_v2():
    assert predicted_stops(stage_run(truth())) == pytest.approx([STOP] * 2, rel=1e-2)


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
    (first, *_) = stages_of(stage_run(truth()))
    assert first.positive == pytest.approx(1e-7)
    assert first.spread == pytest.approx(10 * 2e-6, rel=1e-2)
    assert first.weight == pytest.approx(10 / 10**3, rel=1e-2)


def test_small_things():
    assert constant_loss(np.array([0.0, 1.0]), None) == 0.125
    assert constant_loss(np.array([0.0, 1.0, 5.0]), np.array([1.0, 1.0, 0.0])) == 0.125
    assert step_times(2.2, 3) == [0.0, 1.0, 2.0]
    assert widths_of(results()) == {64: "m_1 = 64", 32: "m_1 = 32", 128: "m_1 = 128"}
    assert main_label(results()) == "m_1 = 64"


# ---------------------------------------------------------------- dimension


def dimension_run(d, so):
    times = np.append(0.0, np.geomspace(1e-6, 1e9, 600))
    first, fitted = 60 * float(d) ** so["first"], so["scale"] * float(d) ** so["second"]
    weight = -10 / d**3 * times / first
    alpha = 0.4 * float(d) ** so["alpha"] * np.where(times > first, 1 - so["dip"], 1.0)
    variables = {
        "second-layer.weight": weight,
        "second-layer.largest": weight + 1e-30,
        "second-layer.spread": np.full_like(times, 1e-20),
        "first-layer.alpha": alpha,
        "train-loss": 1e-3 * (fitted / np.maximum(times, 1e-9)) ** (1 / so["losses"]),
    }
    recipe = {"data": {"d": d}, "network": learner((math.inf, 3), d, 1e-9, 0.1)}
    return stored(variables, times, recipe=json.loads(json.dumps(recipe)))


def dimension_results(**changes):
    so = {"first": -1.6, "second": 0.6, "scale": 1e4, "losses": 0.3, "alpha": -1.5, "dip": 0.0} | changes
    return {f"d = {d}": dimension_run(d, so) for d in (40, 10, 20)}


@pytest.mark.parametrize(
    ("changes", "broken"),
    [
        ({}, set()),
        ({"first": -1.3}, {0}),
        ({"second": 3.2, "scale": 1.0}, {1}),
        ({"scale": 1e6}, {2}),
        ({"losses": 1.2}, {3}),
        ({"alpha": -1.0}, {4}),
        ({"dip": 0.1}, {5}),
    ],
)
def test_each_claim_on_dimensions_can_fail(changes, broken):
    found = outcomes(ren2023.dimension, dimension_results(**changes))
    assert {i for i, outcome in enumerate(found) if outcome is Outcome.FAILS} == broken
    assert {outcome for i, outcome in enumerate(found) if i not in broken} <= {Outcome.HOLDS, Outcome.VACUOUS}


def test_a_bound_in_d_that_is_met_by_far_is_vacuous():
    assert outcomes(ren2023.dimension, dimension_results(scale=50.0))[2] is Outcome.VACUOUS
    assert outcomes(ren2023.dimension, dimension_results())[2] is Outcome.HOLDS


def test_runs_that_are_too_short_leave_times_undecided():
    assert set(outcomes(ren2023.dimension, dimension_results(scale=1e12))) == {Outcome.UNDECIDED}


def test_times_of_a_dimension():
    found = quantities_of(dimension_results()["d = 10"])
    assert found["T_1"] == pytest.approx([60 * 10**-1.6] * 2, rel=1e-2)
    assert found["T_2"] == pytest.approx([1e4 * 10**0.6] * 2, rel=1e-2)
    assert found["losses"][:, 0] == pytest.approx([1e4 * 10**0.6 * 10**power for power in (-0.3, 0, 0.3)], rel=2e-2)
    assert len(ren2023.dimension.draw(dimension_results()).axes) == 2


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
    assert outcomes(ren2023.separation, depth_results()) == [Outcome.UNDECIDED, Outcome.HOLDS, Outcome.HOLDS]
    small = depth_results(deep=(1e-3, 1e-7))  # below d^-6
    assert outcomes(ren2023.separation, small)[0] is Outcome.VACUOUS
    near = depth_results(deep=(1e-3, 1e-7), shallow=(5e-3, 2e-3, 2e-6))
    assert outcomes(ren2023.separation, near)[0] is Outcome.HOLDS


def test_depth_separation_fails_where_they_are_not():
    half, each = (outcomes(ren2023.separation, depth_results(deep=deep)) for deep in ((1e-3, 6e-4), (6e-3, 1e-4)))
    assert half[1:] == [Outcome.FAILS, Outcome.HOLDS]
    assert each[1:] == [Outcome.HOLDS, Outcome.FAILS]
    both = depth_results(deep=(1e-3, 1e-7), shallow=(5e-3, 2e-3, 5e-7))
    assert outcomes(ren2023.separation, both)[0] is Outcome.FAILS


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
    assert len(ren2023.fig2.claims(found)) == UNCLIPPED + 1
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
    assert len(ren2023.separation.claims(found)) == 3
