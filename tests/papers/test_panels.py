"""Panels: every one is complete, and its claims can hold and can fail."""

import dataclasses
import functools
import json
import re
import sys
from collections import Counter

import equinox as eqx
import jax
import numpy as np
import pytest
import xarray as xr

import unlazy.papers
from made_up import RATES, TIMES, exponential, random_labels, run_small, with_fields
from unlazy._errors import UserError
from unlazy._registry import modules
from unlazy.data import Dataset, images, tabular
from unlazy.data.images import Labelled
from unlazy.flows import Flow
from unlazy.lab import Lab, Recipe, build, parse
from unlazy.lab.identity import identify
from unlazy.networks import Network
from unlazy.papers import Claim, Panel, check_claims, chen2022, choose, grid, option, panels, recipe_of, values
from unlazy.papers._curves import (
    even_steps,
    exponents,
    first_crossing,
    log_steps,
    mean_sd,
    median_range,
    min_max,
    plural,
    quadratic_times,
)
from unlazy.papers.chen2022.curves import decay
from unlazy.papers.outcomes import Outcome
from unlazy.papers.zhou2023 import channels, prediction
from unlazy.papers.zhou2023.theorems import Linearisation, Prediction
from unlazy.probes import Probe
from unlazy.report import reproduce

PANELS = panels()
PAPERS = [one for one in modules(unlazy.papers) if hasattr(one, "__path__") and one.__name__.count(".") == 2]
contract = pytest.mark.parametrize("panel", PANELS.values(), ids=PANELS.keys())


# ---------------------------------------------------------------- every panel


def test_the_room_is_found():
    assert {f"chen2022/fig{number}" for number in range(1, 9)} <= set(PANELS)
    assert {f"caron2023/fig{number}" for number in range(1, 12)} <= set(PANELS)
    assert {f"zhou2023/fig{number}" for number in range(2, 16)} <= set(PANELS)


def test_no_two_panels_have_one_key():
    found = [value for module in modules(unlazy.papers) for value in vars(module).values() if isinstance(value, Panel)]
    assert max(Counter(panel.key for panel in {id(panel): panel for panel in found}.values()).values()) == 1
    assert {panel.key for panel in found} == set(PANELS)


def test_every_paper_introduces_itself():
    for module in PAPERS:
        name = module.__name__.rpartition(".")[2]
        assert {"key", "title", "authors", "venue"} <= set(module.PAPER)
        assert module.PAPER["key"] == name
        assert any(key.startswith(f"{name}/") for key in PANELS), f"{name} has no panel"


def test_two_papers_may_both_have_a_figure_1(tmp_path, monkeypatch):
    text = "from unlazy.papers.chen2022 import RandomLabels\nfig1 = RandomLabels(1, True)\nfig1.key = 'zzz2099/fig1'\n"
    (tmp_path / "zzz2099.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("UNLAZY_PLUGINS", "zzz2099")
    assert {"chen2022/fig1", "zzz2099/fig1"} <= set(panels())
    assert [panel.key for panel in choose("zzz2099")] == ["zzz2099/fig1"]


@contract
def test_the_key_is_the_paper_and_a_figure(panel):
    home = next(m for m in modules(unlazy.papers) if any(value is panel for value in vars(m).values()))
    assert re.fullmatch(rf"{home.__name__.rpartition('.')[2]}/[a-z0-9][a-z0-9-]*", panel.key)
    assert panel.title
    assert panel.title == panel.title.strip()
    assert panel.caption.endswith(".")


@contract
def test_scales_are_quick_and_paper(panel):
    assert set(panel.scales) == {"quick", "paper"}
    assert all(panel.scales.values())
    assert panel.scales["quick"] != panel.scales["paper"]


@pytest.fixture(scope="module")
def recipes():
    """Give the recipes of a panel at a scale, each stated once, as on a machine that has all published files."""
    rng = np.random.default_rng(0)

    def labelled(*shape):
        return Labelled(rng.integers(0, 256, (600, *shape)).astype(np.uint8), np.arange(600) % 10)

    grey, colour = labelled(1, 28, 28), labelled(3, 32, 32)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tabular, "load", lambda table, folder=None: rng.normal(size=(60, table.columns)))
        patch.setattr(images, "fetch", lambda *sources, folder=None: sources[0].name)
        patch.setattr(images, "find", lambda *sources, folder=None: "here")
        patch.setattr(images, "read_archive", lambda path: (colour, colour))
        patch.setattr(images, "read_idx", lambda name: grey.images[:, 0] if "images" in name else grey.labels)
        known = Prediction(Linearisation(np.diag([5.0, 2.0, 1.0]), np.zeros(3), 1), *rng.normal(size=(2, 4, 3)))
        for module in (channels, prediction):  # which predict from networks of full size when to observe them
            patch.setattr(module, "predictions", lambda recipe: (known,) * recipe.seeds)
        yield functools.cache(lambda key, scale: PANELS[key].recipes(scale))


@functools.cache
def data_of(written):
    """Draw a section of data with few samples: all that networks ask of data is their shape."""
    section = json.loads(written)
    few = {name: min(section[name], 12) for name in ("n", "n_test", "n_held") if name in section}
    return build(section | few, Dataset, "data", key=jax.random.key(0))


@functools.cache
def network_of(written, inputs, outputs, image):
    """Build a network of any size, with shapes in the place of arrays: every option is checked, nothing is drawn."""
    given = {"inputs": inputs, "outputs": outputs, "image": image}
    return eqx.filter_eval_shape(
        lambda key: build(json.loads(written), Network, "network", key=key, **given), jax.random.key(0)
    )


@functools.cache
def flow_of(written):
    return build(json.loads(written), Flow, "flow")


@functools.cache
def probe_of(written):
    """Build a probe and give what it is called in results."""
    section = json.loads(written)
    options = {"kind": section} if isinstance(section, str) else section
    plain = {name: value for name, value in options.items() if name not in ("as", "when")}
    assert options.get("when", "end") in ("end", "always")
    assert isinstance(build(plain, Probe, "probes"), Probe)
    return options.get("as", options["kind"])


both_scales = pytest.mark.parametrize("scale", ["quick", "paper"])


@contract
@both_scales
def test_every_recipe_round_trips_and_no_two_are_the_same(panel, scale, recipes):
    given = recipes(panel.key, scale)
    assert given
    for label, recipe in given.items():
        assert label == label.strip() != ""
        assert isinstance(recipe, Recipe)
        assert recipe.name.startswith(panel.key.partition("/")[0])
        assert parse(json.loads(recipe.json())).json() == recipe.json()
        if "inf" in recipe.json():  # as stored, where infinity is a word
            assert identify(parse(json.loads(recipe.json()))).view == identify(recipe).view
    assert len({recipe.digest for recipe in given.values()}) == len(given)


@contract
@both_scales
def test_every_recipe_names_what_exists_with_options_that_it_has(panel, scale, recipes):
    """The network is the one that would be trained, at its full size; data have the full dimension and few samples."""
    for label, recipe in recipes(panel.key, scale).items():
        table = json.loads(recipe.json())  # as a file would have it
        data = data_of(json.dumps(table["data"]))
        network = network_of(json.dumps(table["network"]), data.inputs, data.outputs, data.x.shape[1:])
        assert isinstance(network, Network), label
        assert isinstance(flow_of(json.dumps(table["flow"])), Flow), label
        probes = [probe_of(json.dumps(probe)) for probe in table["probes"]]
        assert probes, label
        assert len(set(probes)) == len(probes), label
        assert recipe.grid()[0] == 0, label


@contract
def test_seeds_can_be_chosen(panel, recipes):
    """A number of seeds is that of every run, but for those of which one is always enough."""
    scale, count = ("quick", 3)
    given = panel.recipes(scale, count)
    assert {recipe.seeds for recipe in given.values()} <= {1, count}
    assert next(iter(given.values())).seeds == count
    assert set(given) == set(recipes(panel.key, scale))


def test_each_paper_has_one_panel_in_the_demo():
    for module in PAPERS:
        name = module.__name__.rpartition(".")[2]
        assert sum(panel.demo for key, panel in PANELS.items() if key.startswith(f"{name}/")) == 1


def test_a_panel_is_chosen_by_key_or_by_paper():
    assert choose("chen2022/fig1") == [PANELS["chen2022/fig1"]]
    assert choose("chen2022") == [panel for key, panel in PANELS.items() if key.startswith("chen2022/")]
    with pytest.raises(UserError, match=r"no panel or paper called 'chen2022/fig'. Did you mean 'chen2022/fig\d+'"):
        choose("chen2022/fig")
    with pytest.raises(UserError, match=r"called 'chen202'. Did you mean 'chen2022'\?"):
        choose("chen202")
    with pytest.raises(UserError, match=r"Known: .*chen2022, chen2022/fig1"):
        choose("")


# ---------------------------------------------------------------- the claims of chen2022, figures 1 and 5

LINEAR, SLOWER, AGREE = range(3)


def verdicts(results):
    claims = chen2022.fig1.claims(results)
    assert all(isinstance(claim, Claim) and claim.text and claim.paper and claim.measured for claim in claims)
    assert len(claims) == 3
    assert all(isinstance(claim.holds, bool) for claim in claims)
    return [claim.holds for claim in claims]


def changed(n, other, width=None):
    """The paper's curves, except that the loss of n samples (at one width, or both) is ``other(t)``."""

    def curve(m, count, t):
        return other(t) if count == n and width in (None, m) else exponential(m, count, t)

    return random_labels(curve)


def test_claims_hold_where_the_paper_is_right():
    assert verdicts(random_labels()) == [True, True, True]
    assert verdicts(random_labels(seeds=1)) == [True, False, True]  # one seed does not show a spread


@pytest.mark.parametrize("n", [20, 40])
@pytest.mark.parametrize(
    "other",
    [
        lambda t: 0.04 / (1 + t) ** 1.5,  # a power law
        lambda t: np.full_like(t, 0.04),  # a standstill, of which there is no R²
        lambda t: 1e-4 * np.exp(6e-3 * t),  # a straight line, but upwards
        lambda t: 0.04 * np.exp(-6e-3 * np.minimum(t, 300.0)),  # a decay that stops
    ],
    ids=["power", "standstill", "growth", "plateau"],
)
def test_the_first_claim_fails_where_the_decay_is_not_linear(n, other):
    assert not verdicts(changed(n, other))[LINEAR]


@pytest.mark.parametrize("n", [80, 160])
def test_the_first_claim_is_about_small_n_only(n):
    assert verdicts(changed(n, lambda t: 0.04 / (1 + t) ** 0.5))[LINEAR]


def test_the_first_claim_is_judged_above_the_floor_only():
    """What is left after a fall by a million is the solver's error, and is not held against the paper."""
    floor = changed(20, lambda t: 0.04 * np.maximum(np.exp(-0.02 * t), 1e-9))
    assert verdicts(floor)[LINEAR]


@pytest.mark.parametrize(("n", "rate"), [(40, 7e-3), (80, 3e-3), (160, 2e-3)])
def test_the_second_claim_fails_where_larger_n_is_not_slower(n, rate):
    assert not verdicts(changed(n, lambda t: 0.04 * np.exp(-rate * t)))[SLOWER]


def test_claims_are_about_every_seed():
    results = random_labels()
    results["m=1024 n=20"]["train-loss"][0] = 0.04 / (1 + TIMES) ** 1.5
    given = [claim.outcome for claim in chen2022.fig1.claims(results)]
    assert given[LINEAR] is given[AGREE] is Outcome.UNDECIDED
    results = random_labels()
    for seed, rate in enumerate((1e-3, 3e-3, 6e-3)):
        results["m=1024 n=80"]["train-loss"][seed] = 0.04 * np.exp(-rate * TIMES)
    assert chen2022.fig1.claims(results)[SLOWER].outcome is Outcome.UNDECIDED


def test_the_second_claim_speaks_of_the_width_that_is_shown():
    results = changed(160, lambda t: 0.04 * np.exp(-5e-3 * t), width=512)
    assert verdicts(results) == [True, True, False]


@pytest.mark.parametrize("n", list(RATES))
def test_the_third_claim_fails_where_widths_differ(n):
    near, far = (changed(n, lambda t, r=r: 0.04 * np.exp(-r * RATES[n] * t), width=512) for r in (1.02, 1.5))
    assert verdicts(near)[AGREE]
    assert not verdicts(far)[AGREE]


def test_the_third_claim_fails_where_nothing_falls():
    assert not verdicts(changed(80, lambda t: np.full_like(t, 0.04)))[AGREE]


def test_rates_are_those_of_the_curves():
    rates, shares = decay(random_labels()["m=512 n=40"])
    np.testing.assert_allclose(rates, RATES[40], rtol=1e-3)
    np.testing.assert_allclose(shares, 1.0, atol=1e-6)


def test_claims_are_plain_and_final():
    claim = chen2022.fig1.claims(random_labels())[0]
    with pytest.raises(dataclasses.FrozenInstanceError):
        claim.text = ""


def test_both_figures_draw_their_own_width():
    results = random_labels()
    (axes,) = chen2022.fig1.draw(results).axes
    assert axes.get_yscale() == "log"
    assert "m = 1024" in axes.get_title()
    assert [text.get_text() for text in axes.get_legend().get_texts()] == [f"n = {n}" for n in RATES]
    middles = [line for line in axes.get_lines() if line.get_label().startswith("n = ")]
    for line, n in zip(middles, RATES, strict=True):
        np.testing.assert_array_equal(line.get_xdata(), TIMES)
        np.testing.assert_allclose(line.get_ydata(), results[f"m=1024 n={n}"]["train-loss"].median("seed"))
    turned = dict(sorted(results.items(), key=lambda item: "m=1024" in item[0]))
    assert "m = 512" in chen2022.fig5.draw(turned).axes[0].get_title()


@pytest.mark.slow
def test_figures_1_and_5_run_from_end_to_end(tmp_path):
    def tiny(recipe):
        width = recipe.network["width"] // 128
        return with_fields(recipe, network={"width": width}, data={"d": 3}, flow="descent", times=[0.0, 2.0, 4.0])

    results = run_small(chen2022.fig1, Lab(tmp_path), tiny)
    assert list(results) == [f"m={m} n={n}" for m in (1024, 512) for n in RATES]
    for run in results.values():
        assert run["train-loss"].shape == (1, 3)
        assert np.all(np.diff(run["train-loss"], axis=1) < 0)
    assert len(chen2022.fig1.claims(results)) == 3
    assert chen2022.fig1.draw(results).axes
    told = []
    again = run_small(chen2022.fig5, Lab(tmp_path, lambda recipe, share, note: told.append(note)), tiny)
    assert told == ["stored"] * 8
    assert list(again) == [f"m={m} n={n}" for m in (512, 1024) for n in RATES]


# ---------------------------------------------------------------- running and judging


@contract
def test_runs_that_ended_early_are_not_judged(panel):
    """Whatever the panel: its claims are not even asked for."""
    lost = xr.Dataset(attrs={"finished": 0, "status": ["finished", "step_limit"]})
    with pytest.raises(UserError, match=r"The run 'm = 4' ended early \(finished, step_limit\): its claims cannot be"):
        check_claims(panel, {"m = 4": lost})
    lost.attrs["status"] = "step_limit"  # as a file with one seed gives it back
    with pytest.raises(UserError, match=r"ended early \(step_limit\)"):
        check_claims(panel, {"m = 4": lost})


def test_a_run_that_diverged_is_judged_only_where_the_panel_says_so():
    class Indifferent:
        def claims(self, results):
            return [Claim("it diverges", "it does", ", ".join(results), True)]

    lost = {"m = 4": xr.Dataset(attrs={"finished": 0, "status": ["finished", "diverged"]})}
    panel = Indifferent()
    with pytest.raises(UserError, match="ended early"):
        check_claims(panel, lost)
    panel.may_diverge = True
    assert [claim.measured for claim in check_claims(panel, lost)] == ["m = 4"]
    assert [key for key, one in PANELS.items() if one.may_diverge] == ["aiad2026/fig2"]


MINE = """
from matplotlib.figure import Figure
from unlazy.lab import Recipe
from unlazy.papers import Claim, Panel, grid

class Mine(Panel):
    key, title, caption = "mine2026/fig1", "Two widths", "Losses of two widths."
    scales = {"quick": "two widths", "paper": "two widths, twice"}
    given = []

    def recipes(self, scale, seeds=None):
        self.given.append((scale, seeds))
        return {
            f"width {m}": Recipe(
                data={"kind": "random-labels", "n": 4, "d": 2},
                network={"kind": "two-layer", "width": m},
                flow="descent",
                times=[0.0, 1.0],
                probes=["train-loss"],
                seeds=seeds or 1,
                dtype="float32",
            )
            for m in (2, 4)
        }

    def claims(self, results):
        runs = grid(results, "network.width")
        fall = all(run["train-loss"][0, 1] < run["train-loss"][0, 0] for run in runs.values())
        return [Claim("both fall", "-", str(sorted(runs)), bool(fall))]

    def draw(self, results):
        figure = Figure()
        figure.subplots().plot([0, 1])
        return figure

mine = Mine()
half = type("Half", (), {"key": "x", "title": "x"})
"""


@pytest.fixture
def outside(tmp_path, monkeypatch):
    """A module of the user's own."""
    (tmp_path / "my_panels.py").write_text(MINE)
    monkeypatch.syspath_prepend(tmp_path)
    yield
    sys.modules.pop("my_panels", None)


@pytest.mark.slow
def test_a_panel_of_the_users_own_is_reproduced(outside, tmp_path):
    for name in ("my_panels:mine", "my_panels:Mine"):
        (panel,) = choose(name)
        record = reproduce(panel, "quick", Lab(tmp_path / "runs"), seeds=2)
        assert ("quick", 2) in panel.given  # and again without, for the usual number of seeds
        assert not record.fails
        assert record.claims[0].measured == "[(2,), (4,)]"
        assert list(record.recipes) == ["width 2", "width 4"]


def test_what_is_not_a_panel_is_refused_in_a_sentence(outside):
    with pytest.raises(UserError, match="where a panel was expected"):
        choose("my_panels:half")
    with pytest.raises(UserError, match="my_panels"):
        choose("my_panels:missing")
    with pytest.raises(UserError, match="nowhere_at_all"):
        choose("nowhere_at_all:fig1")


# ---------------------------------------------------------------- what panels share


def stored(**recipe):
    return xr.Dataset(attrs={"recipe": json.dumps(recipe)})


def test_options_come_from_the_recipe_of_a_run():
    run = stored(data={"n": 3}, network={"widths": [8, 4], "scaling": {"gamma": 0.5}}, flow="descent")
    assert option(run, "data.n") == 3
    assert option(run, "network.widths.1") == 4
    assert option(run, "network.scaling") == {"gamma": 0.5}
    assert option(run, "flow.kind") == "descent"  # a section may be only a name
    assert option(run, "flow.rate", None) is None
    with pytest.raises(KeyError, match=r"'flow.rate' is not in the recipe"):
        option(run, "flow.rate")


def test_runs_are_arranged_by_their_options():
    results = {"a": stored(n=2, d={"m": [1]}), "b": stored(n=1, d={"m": [1]}), "c": stored(n=2, d={})}
    assert values(results, "n") == [2, 1]
    assert values(results, "d.m") == [[1]]
    assert grid({"a": results["a"], "b": results["b"]}, "n", "d.m.0") == {(2, 1): results["a"], (1, 1): results["b"]}


def test_the_recipe_of_a_run_is_given_back():
    recipe = chen2022.fig1.recipes("quick")["m=512 n=20"]
    assert recipe_of(xr.Dataset(attrs={"recipe": recipe.json()})) == recipe


def test_times_and_steps():
    times = quadratic_times(50_000.0)
    assert (times[0], times[-1], len(times)) == (0.0, 50_000.0, 41)
    assert np.all(np.diff(times, 2) >= -1)  # ever further apart, up to rounding
    assert even_steps(10, 3) == [0, 5, 10]
    assert even_steps(1, 9) == [0, 1]
    assert log_steps(100, 3) == [0, 1, 10, 100]


def test_numbers_over_seeds_in_words():
    three = np.array([1.0, 2.0, 6.0])
    assert median_range(three) == "2 (1 to 6)"
    assert median_range(np.array([2.0])) == "2"
    assert mean_sd(three) == "3 ± 3"
    assert mean_sd(np.array([2.0])) == "2"
    assert min_max(three) == "1 to 6"
    assert min_max(np.array([2.0, 2.0])) == "2"
    assert [plural(1), plural(1200), plural(2, "run")] == ["1 seed", "1,200 seeds", "2 runs"]


def test_exponents_are_those_of_power_laws():
    sizes = (10, 100, 1000)
    assert exponents(sizes, [np.array([3 * m**-0.5, 7 * m]) for m in sizes]) == pytest.approx([-0.5, 1.0])


def test_crossings_are_interpolated():
    times, values = np.array([0.0, 1.0, 3.0]), np.array([0.0, 1.0, 2.0])
    assert first_crossing(times, values, 1.5) == pytest.approx(2.0)
    assert first_crossing(times, values) == 0.0
    assert np.isnan(first_crossing(times, values, 2.5))
    assert first_crossing(times, np.array([-np.inf, 1.0, 2.0])) == 1.0, "there is nothing to interpolate"
