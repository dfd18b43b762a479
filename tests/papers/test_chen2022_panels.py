"""Experiments 2 and 3 of chen2022: claims hold on curves as the paper describes them, and fail on others."""

import json

import numpy as np
import pytest
import xarray as xr

from made_up import run_small, with_fields
from unlazy.lab import Lab
from unlazy.papers import chen2022
from unlazy.papers._curves import quadratic_times
from unlazy.papers.chen2022.curves import sizes_of
from unlazy.papers.outcomes import Outcome

TIMES = np.asarray(quadratic_times(50_000.0))


def stored(variables, m, n, seeds=2, **network):
    """A run as it comes from the store; every seed a little different from the last."""
    recipe = json.dumps({"data": {"n": n}, "network": {"width": m, **network}})
    attrs = {"status": ["finished"] * seeds, "finished": 1, "seconds": 1.5, "recipe": recipe}

    def labelled(name, values):
        one = np.asarray(values, float)
        every = np.stack([(1 + 0.001 * seed) * one for seed in range(seeds)])
        return (("seed", "time", *(f"{name}_{axis}" for axis in range(every.ndim - 2))), every)

    named = {name: labelled(name, values) for name, values in variables.items()}
    return xr.Dataset(named, {"seed": range(seeds), "time": TIMES}, attrs)


def verdicts(panel, results):
    claims = panel.claims(results)
    assert all(claim.text and claim.paper and claim.measured for claim in claims)
    assert all(isinstance(claim.holds, bool) for claim in claims)
    return [claim.holds for claim in claims]


def outcomes(panel, results):
    return [claim.outcome for claim in panel.claims(results)]


# ---------------------------------------------------------------- experiment 2: figures 2 and 6

ENDS = {"augmented": {50: 0.02, 100: 0.01}, "plain": {50: 0.05, 100: 0.04}}


def test_curve(model, m, n, t):
    return ENDS[model][n] * (1 + np.exp(-1e-3 * t))


test_curve.__test__ = False


def train_curve(model, m, n, t):
    return 0.05 * np.exp(-2e-4 * t)


def embedded(test=test_curve, train=train_curve, widths=(256, 1024)):
    def one(model, m, n):
        variables = {"train-loss": train(model, m, n, TIMES), "test-loss": test(model, m, n, TIMES)}
        return stored(variables, m, n, embedding={"augmented": "quadratic", "plain": "identity"}[model])

    return {f"{model} m={m} n={n}": one(model, m, n) for m in widths for n in (50, 100) for model in ENDS}


def test_figures_2_and_6_hold_where_the_paper_is_right():
    assert verdicts(chen2022.fig2, embedded(widths=(1024,))) == [True]
    assert verdicts(chen2022.fig6, embedded()) == [True, True, True]


def test_the_embedding_must_help_at_every_n_and_width():
    def no_help(model, m, n, t):
        return test_curve("plain" if (m, n) == (1024, 100) else model, m, n, t)

    assert verdicts(chen2022.fig2, embedded(no_help, widths=(1024,))) == [False]
    assert verdicts(chen2022.fig2, embedded(no_help, widths=(256,))) == [True]
    assert verdicts(chen2022.fig6, embedded(no_help)) == [False, True, False]


def test_the_embedding_must_help_by_more_than_seeds_differ():
    results = embedded(widths=(1024,))
    results["augmented m=1024 n=50"]["test-loss"][1, -1] = 0.06
    assert outcomes(chen2022.fig2, results) == [Outcome.UNDECIDED]
    assert chen2022.fig2.claims(results)[0].judgement.counted == "1 of 2 seeds agree"
    results["augmented m=1024 n=50"]["test-loss"][:, -1] = 0.06
    assert outcomes(chen2022.fig2, results) == [Outcome.FAILS]
    results = embedded()
    results["augmented m=256 n=100"]["test-loss"][:, -1] = 0.06
    assert outcomes(chen2022.fig6, results) == [Outcome.HOLDS, Outcome.HOLDS, Outcome.FAILS]


def test_widths_must_agree_for_every_seed():
    results = embedded()
    results["plain m=1024 n=50"]["test-loss"][1] *= 1.2
    results["plain m=1024 n=50"]["train-loss"][1] *= 4.0
    assert outcomes(chen2022.fig6, results) == [Outcome.UNDECIDED, Outcome.UNDECIDED, Outcome.HOLDS]


@pytest.mark.parametrize("model", list(ENDS))
def test_widths_must_agree_in_test_error(model):
    def wider(factor):
        return lambda one, m, n, t: test_curve(one, m, n, t) * (factor if (one, m) == (model, 1024) else 1)

    assert verdicts(chen2022.fig6, embedded(wider(1.04))) == [True, True, True]
    assert verdicts(chen2022.fig6, embedded(wider(1.06))) == [False, True, True]


@pytest.mark.parametrize("model", list(ENDS))
def test_widths_must_agree_in_training_loss(model):
    def wider(factor):
        return lambda one, m, n, t: train_curve(one, m, n, t * (factor if (one, m) == (model, 1024) else 1))

    assert verdicts(chen2022.fig6, embedded(train=wider(1.03))) == [True, True, True]
    assert verdicts(chen2022.fig6, embedded(train=wider(1.5))) == [True, False, True]


def test_figure_2_shows_means_and_deviations():
    results = embedded(widths=(1024,))
    (axes,) = chen2022.fig2.draw(results).axes
    assert [text.get_text() for text in axes.get_legend().get_texts()] == [f"{model} shallow network" for model in ENDS]
    for bar, model in zip(axes.containers, ENDS, strict=True):
        middle = [results[f"{model} m=1024 n={n}"]["test-loss"].values[:, -1].mean() for n in ENDS[model]]
        np.testing.assert_allclose(bar.lines[0].get_ydata(), middle)
        np.testing.assert_array_equal(bar.lines[0].get_xdata(), list(ENDS[model]))


def test_figure_6_has_losses_above_errors_and_a_column_for_each_n():
    grid = chen2022.fig6.draw(embedded()).axes
    assert [axes.get_title() for axes in grid] == ["n = 50", "n = 100", "", ""]
    assert [axes.get_yscale() for axes in grid] == ["log", "log", "linear", "linear"]
    assert grid[2].get_ylim() == grid[3].get_ylim()  # errors of all n can be compared
    named = [line for line in grid[0].get_lines() if not line.get_label().startswith("_")]
    assert len(named) == 4
    np.testing.assert_allclose(named[0].get_ydata(), 1.0005 * train_curve("plain", 256, 50, TIMES))
    assert len({line.get_color() for line in named}) == 2
    assert len({line.get_linestyle() for line in named}) == 2


@pytest.mark.slow
def test_figures_2_and_6_run_from_end_to_end(tmp_path):
    def tiny(recipe):
        return with_fields(
            recipe, network={"width": recipe.network["width"] // 128}, data={"n": 3}, times=[0.0, 2.0, 4.0]
        )

    names = [f"{model} m={m} n=100" for m in (512, 2048) for model in ENDS]
    results = run_small(chen2022.fig6, Lab(tmp_path), tiny, names)
    for run in results.values():
        assert np.all(np.diff(run["train-loss"], axis=1) < 0)
    assert len(chen2022.fig6.claims(results)) == 3
    told = []
    again = run_small(chen2022.fig2, Lab(tmp_path, lambda recipe, share, note: told.append(note)), tiny, names[2:])
    assert told == ["stored"] * 2
    assert chen2022.fig2.draw(again).axes


# ---------------------------------------------------------------- experiment 3: figures 3, 4, 7 and 8

MODELS = ("ours", "NTK", "MF")
WIDTHS = (64, 256, 1024)
N = 100
SLOWEST = 0.01  # λ_min(Θ_0): the slowest mode of the mean loss decays at 2 λ_min / N = 2e-4


def truth():
    """What the paper describes, to be changed one by one."""
    return {
        "loss": lambda model, m, t: 0.5 * np.exp(-2e-4 * t),
        "moved": lambda model, m: 0.5 if model != "NTK" else 4 * m**-0.5 * (1 - m**-0.5),
        "start": lambda model, m: 0.4 if model != "MF" else 0.4 * m**-0.5,
        "end": lambda model, m: 0.9,
        "test": lambda model, n: {"ours": 20.0, "NTK": 36.0, "MF": 50.0 * (100 / n) ** 0.5}[model] / n,
    }


def one_run(model, m, n, is_so):
    share = TIMES / TIMES[-1]
    dots = np.where(np.arange(40) % 2, 1.0, -1.0)
    spread = is_so["start"](model, m) + share * (is_so["end"](model, m) - is_so["start"](model, m))
    return stored(
        {
            "train-loss": is_so["loss"](model, m, TIMES),
            "test-loss": 0.5 + share * (is_so["test"](model, n) - 0.5),
            "feature-movement.hidden": share * is_so["moved"](model, m),
            "kernel.smallest": np.full_like(TIMES, SLOWEST),
            "feature-pair.hidden.train": spread[:, None] * dots,
            "feature-pair.hidden.test": -spread[:, None] * dots,
        },
        m,
        n,
        scaling={"ours": "mean-field", "NTK": "ntk", "MF": "multilayer-mean-field"}[model],
    )


def scaled(widths=WIDTHS, samples=(N,), **changes):
    is_so = truth() | changes
    return {f"{model} m={m} n={n}": one_run(model, m, n, is_so) for n in samples for m in widths for model in MODELS}


def changed(what, who, other):
    """Let ``other`` replace what is true of one scaling."""
    true = truth()[what]
    return {what: lambda model, *given: (other if model == who else true)(model, *given)}


STRAIGHT, LINEAR, MOVING, TENDING, NEARER, SPREADING, BEST = range(7)
FOUR = [chen2022.fig4, chen2022.fig7, chen2022.fig8]


@pytest.mark.parametrize("panel", FOUR, ids=lambda panel: panel.key)
def test_figures_4_7_and_8_hold_where_the_paper_is_right(panel):
    assert verdicts(panel, scaled()) == [True] * 7
    weaker = [claim.weaker for claim in panel.claims(scaled())]
    assert [index for index, is_so in enumerate(weaker) if is_so] == [LINEAR, TENDING, NEARER]
    hindsight = [claim.hindsight for claim in panel.claims(scaled())]
    assert [index for index, is_so in enumerate(hindsight) if is_so] == [LINEAR, TENDING]


def but(*false):
    """All claims hold but these."""
    return [index not in false for index in range(7)]


@pytest.mark.parametrize(
    ("loss", "false"),
    [
        (lambda t: 0.5 * np.exp(-7e-5 * t), []),  # 0.35 of the slowest mode
        (lambda t: 0.5 * np.exp(-6e-5 * t), [LINEAR]),  # 0.3 of it
        (lambda t: 0.5 / (1 + t / 1000) ** 0.5, [STRAIGHT, LINEAR]),  # a power law
        (lambda t: np.full_like(t, 0.5), [STRAIGHT, LINEAR]),  # a standstill
        (lambda t: 0.5 * np.exp(2e-4 * t), [STRAIGHT, LINEAR]),  # a straight line, but upwards
        (lambda t: 0.5 * np.exp(-2e-3 * t) + 0.1, [STRAIGHT, LINEAR]),  # stuck
        (lambda t: 0.5 * np.exp(-1e-3 * np.maximum(t - 10_000.0, 0.0)), [STRAIGHT, LINEAR]),  # late
        (lambda t: 0.5 * np.maximum(np.exp(-2e-3 * t), 1e-7), []),  # as far down as it is judged
        (lambda t: 0.5 * np.exp(-1e-3 * np.minimum(t, 5000.0) - 1e-4 * t), [STRAIGHT]),  # a fast phase and a slow one
    ],
    ids=["slower", "too slow", "power", "standstill", "growth", "stuck", "late", "floor", "two phases"],
)
def test_a_linear_rate_is_a_straight_line_and_at_least_that_of_theorem_3(loss, false):
    results = scaled(**changed("loss", "ours", lambda model, m, t: loss(t)))
    assert verdicts(chen2022.fig4, results) == but(*false)
    assert all(outcomes(chen2022.fig4, results)[index] is Outcome.FAILS for index in false)


def test_a_linear_rate_is_asked_of_every_seed():
    results = scaled()
    results[f"ours m=64 n={N}"]["train-loss"][1] = 0.5 / (1 + TIMES / 1000) ** 0.5
    given = outcomes(chen2022.fig4, results)
    assert [given[STRAIGHT], given[LINEAR]] == [Outcome.UNDECIDED] * 2


def test_a_slowest_mode_that_does_not_decay_says_nothing():
    results = scaled()
    for m in WIDTHS:
        results[f"ours m={m} n={N}"]["kernel.smallest"][:] = 0.0
    assert outcomes(chen2022.fig4, results)[LINEAR] is Outcome.VACUOUS


@pytest.mark.parametrize("m", WIDTHS)
def test_a_linear_rate_is_asked_at_every_width(m):
    other = changed("loss", "ours", lambda model, width, t: 0.5 * np.exp(-(2e-4 if width != m else 5e-5) * t))
    assert verdicts(chen2022.fig4, scaled(**other)) == but(LINEAR)


def test_a_linear_rate_is_claimed_of_ours_only():
    other = changed("loss", "MF", lambda model, m, t: np.full_like(t, 0.5))
    assert verdicts(chen2022.fig4, scaled(**other)) == but()


def bent(early, late):
    """A power of m that changes at m = 256."""
    return lambda model, m: m**early if m <= 256 else 256 ** (early - late) * m**late


@pytest.mark.parametrize(
    ("who", "moved", "false"),
    [
        ("ours", lambda model, m: 4 * m**-0.5, [MOVING, NEARER]),
        ("ours", lambda model, m: 4 * m**-0.2, [MOVING]),
        ("MF", lambda model, m: 4 * m**-0.5, [MOVING, NEARER]),
        ("MF", lambda model, m: 4 * m**0.2, [MOVING]),
        ("NTK", bent(-0.01, 0.0), [MOVING, TENDING, NEARER]),
        ("NTK", bent(-0.2, -0.25), [MOVING, NEARER]),
        ("NTK", bent(-0.31, -0.36), [MOVING]),  # as at the paper's size
        ("NTK", bent(-0.36, -0.31), [MOVING, TENDING]),
        ("NTK", bent(-0.7, -0.6), [MOVING]),  # from the other side
        ("NTK", bent(-0.5, -0.6), [TENDING]),
        ("NTK", bent(0.3, 0.4), [MOVING, TENDING, NEARER]),
        ("NTK", bent(-0.44, -0.46), []),
    ],
)
def test_features_must_move_as_predicted(who, moved, false):
    assert verdicts(chen2022.fig4, scaled(**changed("moved", who, moved))) == but(*false)


def test_two_widths_do_not_show_where_exponents_tend_to():
    assert outcomes(chen2022.fig4, scaled(widths=WIDTHS[:2]))[TENDING] is Outcome.UNDECIDED


@pytest.mark.parametrize(("what", "value"), [("start", 0.2), ("end", 0.05)])
def test_mf_features_must_start_near_zero_and_spread(what, value):
    other = changed(what, "MF", lambda model, m: value)
    assert verdicts(chen2022.fig4, scaled(**other)) == but(SPREADING)


@pytest.mark.parametrize("who", ["NTK", "MF"])
def test_ours_must_be_best(who):
    other = changed("test", who, lambda model, n: 15.0 / n)
    assert verdicts(chen2022.fig8, scaled(**other)) == but(BEST)


def test_one_seed_leaves_comparisons_undecided():
    one = {label: run.isel(seed=[0]) for label, run in scaled().items()}
    given = outcomes(chen2022.fig8, one)
    assert [given[TENDING], given[BEST]] == [Outcome.UNDECIDED] * 2
    assert [given[index] for index in (STRAIGHT, LINEAR, MOVING, NEARER, SPREADING)] == [Outcome.HOLDS] * 5


SAMPLES = (50, 100, 200)


def by_n(**changes):
    return scaled(widths=(1024,), samples=SAMPLES, **changes)


def test_figure_3_holds_where_the_paper_is_right():
    assert verdicts(chen2022.fig3, by_n()) == [True, True, True]


@pytest.mark.parametrize("who", ["NTK", "MF"])
def test_figure_3_asks_for_the_best_at_every_n(who):
    other = changed("test", who, lambda model, n: (15.0 if n == 100 else 30.0) / n)
    assert not verdicts(chen2022.fig3, by_n(**other))[0]


@pytest.mark.parametrize("who", MODELS)
def test_figure_3_asks_for_improvement_with_n(who):
    other = changed("test", who, lambda model, n: 0.19)
    assert not verdicts(chen2022.fig3, by_n(**other))[1]
    worse = changed("test", who, lambda model, n: 0.001 * n)
    assert outcomes(chen2022.fig3, by_n(**worse))[1] is Outcome.FAILS


def test_figure_3_asks_that_mf_improves_faster_than_ntk():
    other = changed("test", "MF", lambda model, n: 3.0 * n**-0.5)
    assert verdicts(chen2022.fig3, by_n(**other)) == [True, True, False]


def test_figure_3_draws_a_line_for_each_scaling():
    (axes,) = chen2022.fig3.draw(by_n()).axes
    assert [text.get_text() for text in axes.get_legend().get_texts()] == list(MODELS)
    for bar, model in zip(axes.containers, MODELS, strict=True):
        np.testing.assert_allclose(bar.lines[0].get_ydata(), [1.0005 * truth()["test"](model, n) for n in SAMPLES])


def test_figure_4_has_curves_above_features_and_a_column_for_each_scaling():
    results = scaled()
    grid = chen2022.fig4.draw(results).axes
    assert [axes.get_title() for axes in grid[:3]] == list(MODELS)
    assert all(axes.get_yscale() == "log" for axes in grid[:3])
    solid = [line for line in grid[0].get_lines() if line.get_label().startswith("m = ")]
    assert [line.get_label() for line in solid] == [f"m = {m}" for m in WIDTHS]
    np.testing.assert_allclose(solid[0].get_ydata(), 1.0005 * truth()["loss"]("ours", 64, TIMES))
    for axes, model in zip(grid[3:], MODELS, strict=True):
        dots = {line.get_label(): line.get_xdata() for line in axes.get_lines()}
        seen = results[f"{model} m=1024 n={N}"]["feature-pair.hidden.train"].values[0]
        np.testing.assert_array_equal(dots["before"], seen[0])
        np.testing.assert_array_equal(dots["after training"], seen[-1])


@pytest.mark.slow
def test_figures_3_and_4_run_from_end_to_end(tmp_path):
    def tiny(recipe):
        width = recipe.network["width"] // 128
        network = {"width": width, "embedding": {"kind": "random-layers", "widths": [width]}}
        return with_fields(recipe, network=network, data={"n": 4, "d": 3}, times=[0.0, 2.0, 4.0])

    names = [f"{model} m={m} n=120" for m in (512, 1024) for model in MODELS]
    results = run_small(chen2022.fig4, Lab(tmp_path), tiny, names)
    for run in results.values():
        assert np.all(np.diff(run["train-loss"], axis=1) < 0)
    assert len(chen2022.fig4.claims(results)) == 7
    assert len(chen2022.fig4.draw(results).axes) == 6


def test_figure_3_shares_its_runs():
    """Recipes of the largest width are the same in figures 3, 4, 7 and 8."""
    asked = {panel.key: {one.digest for one in panel.recipes("paper").values()} for panel in (chen2022.fig3, *FOUR)}
    shared = [asked["chen2022/fig3"] & asked[panel.key] for panel in FOUR]
    assert [len(one) for one in shared] == [3, 3, 3]
    assert len(set.union(*shared)) == 9
    assert set(chen2022.fig2.recipes("paper")) < set(chen2022.fig6.recipes("paper"))


# ---------------------------------------------------------------- what they share


def test_sizes_come_from_the_recipes_in_the_order_of_the_runs():
    assert sizes_of(scaled()) == (list(WIDTHS), [N])
    assert sizes_of({"any": stored({}, 8, 3), "label": stored({}, 4, 3)}) == ([8, 4], [3])
