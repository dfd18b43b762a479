"""Panels of caron2023: claims hold on curves as the paper describes them, fail on others, and panels run end to end."""

import json

import numpy as np
import pytest
import xarray as xr

from made_up import run_small, with_fields
from unlazy.lab import Lab
from unlazy.papers import caron2023
from unlazy.papers._curves import quadratic_times
from unlazy.papers.caron2023 import _shared, regression, zipf
from unlazy.papers.caron2023._shared import RELEASED, TEXT, by_gamma, label, moved, network, robustness, setting_of

TIMES = np.asarray(quadratic_times(50_000.0, 11))
COUNTS = regression._COUNTS
M = 12
NAMES = [label(setting) for setting in TEXT]
LAZY = NAMES[0]


def stored(variables, setting, seeds=2, late=("pruning", "transfer")):
    """A run as it comes from the store; every seed a little different from the last."""

    def labelled(name, values):
        every = np.stack([(1 + 0.001 * seed) * np.asarray(values, float) for seed in range(seeds)])
        first = ("seed",) if name.partition(".")[0] in late else ("seed", "time")
        return ((*first, *(f"{name}_{axis}" for axis in range(every.ndim - len(first)))), every)

    recipe = json.dumps({"data": {"kind": "mnist"}, "network": network(M, setting)})
    attrs = {"status": ["finished"] * seeds, "finished": 1, "seconds": 1.5, "recipe": recipe, "dtype": "float64"}
    named = {name: labelled(name, values) for name, values in variables.items()}
    return xr.Dataset(named, {"seed": range(seeds), "time": TIMES}, attrs)


def truth():
    """What the paper describes, setting by setting from lazy to rich, to be changed one by one."""
    return {
        "end": [1e-3, 3e-3, 5e-3, 0.1],
        "smallest": [4e-3, 3e-3, 2e-3, 2e-4],
        "moved": [2.0, 20.0, 30.0, 60.0],
        "drift": [0.002, 0.01, 0.02, 0.04],
        "cost": [1.0, 3.0, 5.0, 9.0],  # how late a pruned network breaks
        "transfer": [0.9, 0.5, 0.5, 0.4],
    }


def one_run(index, is_so):
    share = TIMES / TIMES[-1]
    curve = np.linspace(0.0, 1.0, M + 1) ** is_so["cost"][index]
    movement = share[:, None] * is_so["moved"][index] * np.linspace(1.0, 0.1, M)
    variables = {
        "train-loss": is_so["end"][index] ** share,
        "test-loss": 0.2 + 0.8 * is_so["end"][index] ** share,
        "weight-movement.hidden": movement,
        "kernel.smallest": np.full_like(TIMES, is_so["smallest"][index]),
        "kernel.largest": np.ones_like(TIMES),
        "kernel.drift_operator": share * is_so["drift"][index],
    }
    for which in ("train", "test"):
        variables[f"pruning.hidden.{which}_risk"] = 0.1 + curve
        variables[f"pruning.hidden.{which}_error"] = 0.05 + 0.85 * curve
        variables[f"transfer.hidden.{which}_risk"] = is_so["transfer"][index] / np.sqrt(COUNTS)
        variables[f"transfer.hidden.{which}_error"] = is_so["transfer"][index] / np.sqrt(COUNTS)
    return stored(variables, TEXT[index])


def results(prefix="", **changes):
    is_so = truth() | changes
    return {f"{prefix}{name}": one_run(index, is_so) for index, name in enumerate(NAMES)}


SETS = [(0.04 * np.eye(3), np.array([0.5, -1.0, 1.0]))] * 2  # so small that κ_n = 2.7e-4 promises less than is true


@pytest.fixture(autouse=True)
def training_sets(monkeypatch):
    """Three orthogonal inputs, as if drawn again from the recipe."""
    monkeypatch.setattr(_shared, "training_sets", lambda run: SETS)


def verdicts(panel, given):
    found = panel.claims(given)
    assert all(claim.text and claim.paper and claim.measured for claim in found)
    assert all(isinstance(claim.holds, bool) for claim in found)
    return [claim.holds for claim in found]


# ---------------------------------------------------------------- figure 1


NEAR, FASTER, EIGEN, WEIGHTS, KERNEL, THEOREM = range(6)


def test_figure_1_holds_where_the_paper_is_right():
    assert verdicts(caron2023.fig1, results()) == [True] * 6


@pytest.mark.parametrize(
    ("changes", "broken"),
    [
        ({"end": [1e-3, 3e-3, 2e-2, 0.1]}, {NEAR}),
        ({"end": [4e-3, 3e-3, 5e-3, 0.1]}, {FASTER}),
        ({"end": [1e-3, 3e-3, 5e-3, 2e-3]}, {FASTER}),
        ({"smallest": [3e-3, 4e-3, 2e-3, 2e-4]}, {EIGEN}),
        ({"smallest": [4e-3, 3e-3, 2e-3, 2.5e-3]}, {EIGEN}),
        ({"smallest": [4e-3, 3e-3, 1e-6, 1e-7]}, {THEOREM}),
        ({"moved": [2.0, 30.0, 20.0, 60.0]}, {WEIGHTS}),
        ({"moved": [15.0, 20.0, 30.0, 60.0]}, {WEIGHTS}),
        ({"drift": [0.002, 0.01, 0.05, 0.04]}, {KERNEL}),
        ({"drift": [0.009, 0.01, 0.02, 0.04]}, {KERNEL}),
    ],
)
def test_claims_of_figure_1_fail_one_by_one(changes, broken):
    given = verdicts(caron2023.fig1, results(**changes))
    assert {index for index, holds in enumerate(given) if not holds} == broken


def test_neighbours_may_change_places_within_their_spread_and_ends_may_not():
    seeds = np.array([0.9, 1.1])  # a spread of 0.14
    assert _shared._rises([[1.0 * seeds], [0.8 * seeds], [1.2 * seeds]])
    assert not _shared._rises([[1.0 * seeds], [0.6 * seeds], [1.2 * seeds]])
    assert not _shared._rises([[1.0 * seeds], [1.0 * seeds], [0.95 * seeds]])
    assert not _shared._rises([[np.array([1.0])], [np.array([0.99])], [np.array([2.0])]])  # one seed has no spread


def test_tables_make_no_claim_on_the_smallest_eigenvalue_of_the_theorem():
    given = results(smallest=[4e-9, 3e-9, 2e-9, 1e-9])
    assert not caron2023.fig1.claims(given)[THEOREM].holds
    claim = caron2023.fig7.claims(given)[-1]
    assert claim.holds
    assert "(b)-(d)" in claim.text
    assert "(a)" in claim.measured


def test_a_network_without_symmetric_part_may_keep_its_risk():
    assert verdicts(caron2023.fig1, results(end=[1e-3, 3e-3, 5e-3, 0.9]))[NEAR]


def test_margins_name_the_width_that_would_be_needed():
    claim = caron2023.fig1.claims(results())[THEOREM]
    assert "width" in claim.measured
    assert "m = 12" in claim.text
    assert NAMES[-1] not in claim.measured  # with γ = 0 the theorem says nothing


def test_without_a_positive_kappa_the_theorem_guarantees_nothing(monkeypatch):
    twice = np.eye(3)[[0, 0, 1]]
    monkeypatch.setattr(_shared, "training_sets", lambda run: [(twice, np.ones(3))] * 2)
    claim = caron2023.fig1.claims(results())[THEOREM]
    assert "guarantees nothing" in claim.measured
    assert claim.holds


def test_the_released_settings_are_other_settings():
    assert caron2023.fig1_released.settings == RELEASED
    assert "0.2" in caron2023.fig1_released.caption
    assert [one.demo for one in (caron2023.fig1, caron2023.fig1_released)] == [True, False]


# ---------------------------------------------------------------- figures 2, 3, 6 to 10


PRUNES, TRANSFERS = 4, 5


def test_figures_6_to_9_hold_where_the_paper_is_right():
    for panel in (caron2023.fig6, caron2023.fig9):
        assert verdicts(panel, results()) == [True] * 7
    assert verdicts(caron2023.fig10, results()) == [True] * 6
    assert verdicts(caron2023.fig3, results()) == [True] * 2


def test_pruning_must_cost_less_the_smaller_gamma():
    for cost in ([5.0, 3.0, 5.0, 9.0], [1.0, 3.0, 5.0, 4.0]):
        assert not verdicts(caron2023.fig6, results(cost=cost))[PRUNES]
        assert not verdicts(caron2023.fig3, results(cost=cost))[0]


@pytest.mark.parametrize("risks", [[0.9, 0.5, 1.0, 0.4], [0.4, 0.4, 0.4, 0.41], [0.9, 0.5, 0.5, 0.6]])
def test_few_features_must_transfer_better_for_every_smaller_gamma(risks):
    assert not verdicts(caron2023.fig7, results(transfer=risks))[TRANSFERS]
    assert not verdicts(caron2023.fig3, results(transfer=risks))[1]


def test_ten_classes_need_ten_features():
    assert "features (10, 20, 50)" in caron2023.fig10.claims(results())[TRANSFERS].text
    assert "features (1, 2, 5, 10)" in caron2023.fig7.claims(results())[TRANSFERS].text


def test_equal_inputs_make_the_smallest_eigenvalue_zero(monkeypatch):
    twice = [(np.eye(3)[[0, 0, 1]], np.array([1.0, -1.0, 0.0]))] * 2
    monkeypatch.setattr(_shared, "training_sets", lambda run: twice)
    faster, eigen = caron2023.fig6.claims(results(smallest=[1e-18, -1e-18, 0.0, 0.0]))[:2]
    assert eigen.holds
    assert "inputs repeat" in eigen.text
    assert "at least 0.67" in faster.measured  # two of three samples are off by 1
    assert not caron2023.fig6.claims(results())[1].holds


def test_few_gates_between_inputs_leave_the_last_eigenvalue_to_chance(monkeypatch):
    monkeypatch.setattr(_shared, "_MANY", 5)  # of 12 gates, 6 see one of two orthogonal inputs
    apart, close = ([(np.array([[1.0, 0.0], [s, 1.0]]), np.array([1.0, -1.0]))] * 2 for s in (0.0, 100.0))
    monkeypatch.setattr(_shared, "training_sets", lambda run: apart)
    turned = results()
    for run, smallest in zip(turned.values(), [1.0, 2.0, 3.0, 4.0], strict=True):
        run["kernel.smallest"].values[:, -1] = smallest
    assert not caron2023.fig6.claims(turned)[1].holds
    monkeypatch.setattr(_shared, "training_sets", lambda run: close)
    claim = caron2023.fig6.claims(turned)[1]
    assert claim.holds
    assert "only measured" in claim.text
    assert not caron2023.fig6.claims(results(smallest=[1.0, 2.0, 3.0, 4.0]))[1].holds


def test_gates_between_the_closest_inputs_are_those_of_random_neurons():
    x = np.array([[1.0, 0.0, 0.0], [1.0, 0.5, 0.0], [0.0, 0.0, 2.0]])
    h = np.random.default_rng(0).normal(size=(100_000, 3)) @ x.T
    seen = np.sum((h[:, 0] > 0) != (h[:, 1] > 0))
    assert _shared.gates_between([(x, np.zeros(3))], 100_000) == pytest.approx(seen, rel=0.03)  # 1/√seen is 0.8 %
    x[1] = [1.0, 1e-9, 0.0]
    assert _shared.gates_between([(x, np.zeros(3))], 100_000) == pytest.approx(1e-4 / np.pi, rel=1e-6)


def test_floors_are_those_of_equal_inputs():
    x = np.array([[1.0, 2.0], [0.0, 1.0], [1.0, 2.0], [1.0, 2.0]])
    y = np.array([1.0, 5.0, 2.0, 6.0])
    np.testing.assert_allclose(regression.floors([(x, y)]), [np.sum((y[[0, 2, 3]] - 3.0) ** 2) / 4])
    np.testing.assert_allclose(regression.floors(SETS), [0.0, 0.0])


def subset(**changes):
    return {key: run for name in regression._SETS for key, run in results(f"{name} ", **changes).items()}


def test_figure_2_takes_one_claim_from_each_set():
    assert verdicts(caron2023.fig2, subset()) == [True] * 4
    other = subset() | results("energy ", drift=[0.01, 0.01, 0.02, 0.04])
    assert verdicts(caron2023.fig2, other) == [True, False, True, True]


def test_figures_4_and_11_judge_weights_and_pruning():
    assert verdicts(caron2023.fig4, results()) == [True] * 3
    assert verdicts(caron2023.fig4, results(moved=[50.0, 20.0, 30.0, 60.0])) == [False, True, True]
    assert verdicts(caron2023.fig4, results(cost=[4.0, 3.0, 5.0, 9.0])) == [True, False, False]


def test_figures_draw_a_line_for_each_setting():
    for panel, count in ((caron2023.fig1, 4), (caron2023.fig6, 9), (caron2023.fig10, 9), (caron2023.fig3, 2)):
        axes = panel.draw(results()).axes
        assert len(axes) == count
        assert [text.get_text() for text in axes[0].get_legend().get_texts()] == NAMES
    assert len(caron2023.fig2.draw(subset()).axes) == 4
    pruned = caron2023.fig3.draw(results()).axes[0].get_lines()[0]
    np.testing.assert_allclose(pruned.get_ydata()[0], 1 - 0.05 * 1.0005)  # accuracies, not errors
    steps = caron2023.fig4.draw(results()).axes[0].get_lines()[0]
    np.testing.assert_allclose(steps.get_xdata(), TIMES / 5)


# ---------------------------------------------------------------- from end to end, in small


@pytest.fixture
def no_files(monkeypatch, tmp_path):
    monkeypatch.delenv("UNLAZY_DATA", raising=False)
    monkeypatch.setenv("UNLAZY_CACHE", str(tmp_path / "cache"))


@pytest.mark.slow
def test_figure_1_runs(tmp_path, monkeypatch):
    def tiny(recipe):
        return with_fields(recipe, network={"width": 8}, data={"n": 6}, times=[0.0, 2.0, 4.0])

    given = run_small(caron2023.fig1, Lab(tmp_path), tiny)
    for run in given.values():
        assert run["weight-movement.hidden"].shape == (1, 3, 8)
        assert np.all(np.diff(run["train-loss"], axis=1) < 0)
    monkeypatch.undo()
    assert len(caron2023.fig1.claims(given)) == 6  # with data drawn again from the recipe
    assert caron2023.fig1.draw(given).axes


def run_one(panel, name, lab, **changes):
    """Run one recipe of a panel with one seed and little work for its probes."""
    recipe = panel.recipes("quick", 1)[name]
    little = {"kernel": {"samples": 5}, "transfer": {"hidden": 4, "steps": 5}}
    probes = [one if isinstance(one, str) else {**one, **little.get(one["kind"], {})} for one in recipe.probes]
    return lab.run(with_fields(recipe, probes=probes, **changes))


def test_figure_6_does_without_files(tmp_path, no_files):
    data = {"n": 6, "n_test": 4, "n_held": 6}
    run = run_one(caron2023.fig6, LAZY, Lab(tmp_path), network={"width": 128}, data=data, times=[0.0, 2.0, 4.0])
    assert run["pruning.hidden.train_risk"].shape == (1, 129)
    assert run["transfer.hidden.test_risk"].shape == (1, len(COUNTS))
    np.testing.assert_allclose(run["pruning.hidden.train_risk"][:, 0], run["train-loss"][:, -1], rtol=1e-9)
    assert "simulated data instead of concrete" in caron2023.fig6.draw({LAZY: run}).get_suptitle()


def test_figure_3_runs_on_digits(tmp_path, no_files):
    pytest.importorskip("sklearn")
    data = {"n": 12, "n_test": 6, "n_held": 8}
    run = run_one(caron2023.fig3, LAZY, Lab(tmp_path), network={"width": 128}, data=data, times=[0.0, 2.0, 4.0])
    assert run.attrs["dtype"] == "float32"
    assert run["pruning.hidden.test_error"].shape == (1, 129)
    np.testing.assert_allclose(run["pruning.hidden.test_error"][:, 0], run["test-error"][:, -1])


def test_figure_4_runs_on_digits(tmp_path, no_files):
    pytest.importorskip("sklearn")
    embedding = {"kind": "random-patches", "filters": 2, "patch": 3, "grid": 2}
    network = {"width": 8, "embedding": embedding}
    run = run_one(caron2023.fig4, NAMES[-1], Lab(tmp_path), network=network, times=[0.0, 50.0, 200.0])
    np.testing.assert_allclose(run["time"] / 5, [0, 10, 40])
    for one in caron2023.fig4.recipes("quick").values():
        assert one.times[-1] == 5 * 3000  # digits take ten times as many steps as CIFAR-10
        assert one.network["embedding"]["kind"] == "random-patches"


def test_figure_5_runs(tmp_path):
    recipes = caron2023.fig5.recipes("quick", seeds=100)
    small = {name: with_fields(recipes[name], network={"width": 300}) for name in ("α = 0.1", "α = 0.9")}
    given = Lab(tmp_path).run_all(small)
    assert verdicts(caron2023.fig5, given) == [True, True]
    assert caron2023.fig5.draw(given).axes
    louder = {name: run.assign({"kernel-matrix": 1.5 * run["kernel-matrix"]}) for name, run in given.items()}
    assert verdicts(caron2023.fig5, louder) == [True, False]


def test_the_sum_of_squares_is_that_of_the_weights():
    for alpha, tail in ((0.2, 1e-12), (0.5, 3e-6)):  # what a million nodes leave out
        weights = np.arange(1, 10**6 + 1.0) ** (-1 / alpha)
        assert float(zipf.squared_sum(alpha)) == pytest.approx(np.sum((weights / weights.sum()) ** 2), rel=tail)


# ---------------------------------------------------------------- what they share


def test_settings_come_from_the_recipes():
    assert tuple(map(setting_of, results().values())) == TEXT
    assert list(by_gamma(results())) == [1.0, 0.5, 0.0]


def test_the_node_shown_is_the_one_that_has_moved_most_at_the_end():
    run = results()[LAZY].copy(deep=True)
    run["weight-movement.hidden"][:, 1, 3] = 100.0  # far away on the way, but not at the end
    np.testing.assert_allclose(moved(run)[0], TIMES / TIMES[-1] * 2.0)


def test_robustness_is_an_area():
    run = results(cost=[1.0] * 4)[LAZY]
    np.testing.assert_allclose(robustness(run), 0.5)  # a straight rise


def test_runs_of_figures_are_shared_at_paper_scale():
    panels = (caron2023.fig2, caron2023.fig9, caron2023.fig3, caron2023.fig10)
    asked = {panel.key: {one.digest for one in panel.recipes("paper").values()} for panel in panels}
    assert asked["caron2023/fig9"] < asked["caron2023/fig2"]
    assert asked["caron2023/fig3"] == asked["caron2023/fig10"]
