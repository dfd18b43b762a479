"""Panels: every one is complete, and its claims can hold and can fail."""

import dataclasses
import re
from collections import Counter

import msgspec
import numpy as np
import pytest

import unlazy.papers
from made_up import RATES, TIMES, exponential, random_labels, shrink
from unlazy._catalogue import modules
from unlazy._errors import UserError
from unlazy.data import images, tabular
from unlazy.data._image_files import Labelled
from unlazy.lab import Lab, Recipe, bring_to_life
from unlazy.papers import Claim, Panel, chen2022, choose, panels
from unlazy.papers.chen2022._curves import decay

PANELS = panels()
PAPERS = [module for module in modules(unlazy.papers) if module.__name__.count(".") == 2]  # not the files of a folder
contract = pytest.mark.parametrize("panel", PANELS.values(), ids=PANELS.keys())


class Asked(Exception):
    """The lab was asked to run something."""


class Looking:
    """A lab that notes which recipes it is asked for, and runs none."""

    def __init__(self):
        self.recipes = []

    def run(self, recipe):
        self.recipes.append(recipe)
        raise Asked


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
    text = (
        "from unlazy.papers.chen2022 import RandomLabels\nfig1 = RandomLabels('x', True)\nfig1.key = 'zzz2099/fig1'\n"
    )
    (tmp_path / "zzz2099.py").write_text(text)
    monkeypatch.setattr(unlazy.papers, "__path__", [*unlazy.papers.__path__, str(tmp_path)])
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


@pytest.fixture
def published(monkeypatch):
    """Published files as large as the real ones, of which none has to be here."""
    rng = np.random.default_rng(0)
    blank = {"train": Labelled(np.zeros((60_000, 1, 28, 28), np.uint8), np.arange(60_000) % 10)}
    colours = Labelled(np.zeros((6000, 3, 32, 32), np.uint8), np.arange(6000) % 10)
    monkeypatch.setattr(tabular, "load", lambda table, folder=None: rng.normal(size=(60, table.columns)))
    monkeypatch.setattr(images, "fetch", lambda *sources, folder=None: sources[0].name)
    monkeypatch.setattr(images, "find", lambda *sources, folder=None: "here")
    monkeypatch.setattr(images, "read_archive", lambda path: (colours, colours))
    monkeypatch.setattr(
        images, "read_idx", lambda name: blank["train"].images[:, 0] if "images" in name else blank["train"].labels
    )


@contract
@pytest.mark.parametrize("scale", ["quick", "paper"])
def test_recipes_are_good(panel, scale, published):
    """The first recipe of each panel names only what there is; its sizes are cut so that drawing takes no time."""
    lab = Looking()
    with pytest.raises(Asked):
        panel.run(scale, lab)
    (recipe,) = lab.recipes
    assert isinstance(recipe, Recipe)
    network = {**recipe.network, "width": 4} if "width" in recipe.network else recipe.network
    made = bring_to_life(msgspec.structs.replace(recipe, network=network, seeds=1))
    assert made.probes
    assert recipe.digest


@contract
def test_seeds_can_be_chosen(panel):
    lab = Looking()
    with pytest.raises(Asked):
        panel.run("quick", lab, seeds=7)
    assert lab.recipes[0].seeds == 7


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
    assert verdicts(random_labels(seeds=1)) == [True, True, True]


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


@pytest.mark.parametrize("status", ["diverged", "step_limit"])
def test_an_unfinished_run_is_not_judged(status):
    results = random_labels()
    broken = random_labels(status=status)["m=512 n=40"]
    with pytest.raises(UserError, match=rf"The run 'm=512 n=40' ended early \({status}, .*\): its claims cannot be"):
        chen2022.fig1.claims({**results, "m=512 n=40": broken})
    broken.attrs["status"] = status  # as a file with one seed gives it back
    with pytest.raises(UserError, match=rf"ended early \({status}\)"):
        chen2022.fig5.claims({**results, "m=512 n=40": broken})


def test_claims_are_plain_and_final():
    claim = chen2022.fig1.claims(random_labels())[0]
    with pytest.raises(dataclasses.FrozenInstanceError):
        claim.holds = False


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


def test_figures_1_and_5_run_from_end_to_end(tmp_path, monkeypatch):
    shrink(monkeypatch)
    lab = Lab(tmp_path)
    results = chen2022.fig1.run("quick", lab)
    assert list(results) == ["m=8 n=20", "m=8 n=40", "m=4 n=20", "m=4 n=40"]
    for run in results.values():
        assert run["train-loss"].shape == (1, 3)
        assert np.all(np.diff(run["train-loss"], axis=1) < 0)
    assert len(chen2022.fig1.claims(results)) == 3
    assert chen2022.fig1.draw(results).axes
    told = []
    again = chen2022.fig5.run("quick", Lab(tmp_path, lambda recipe, share, note: told.append(note)))
    assert told == ["stored"] * 4
    assert list(again) == ["m=4 n=20", "m=4 n=40", "m=8 n=20", "m=8 n=40"]
