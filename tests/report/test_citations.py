"""What to cite: entries are sound, and a run calls for what it used and nothing else."""

import re
import sys
import types
from pathlib import Path

import pytest

from made_up import stored_run
from unlazy import papers
from unlazy._errors import UserError
from unlazy.report import cite
from unlazy.report.citations import _entries

ALWAYS = {"unlazy", "jax2018github", "kidger2021equinox", "harris2020numpy", "virtanen2020scipy", "hoyer2017xarray"}


def test_entries_are_sound():
    found = _entries()
    assert set(found) >= ALWAYS | {"chen2022", "caron2023", "zhou2023", "ren2023", "aiad2026"}
    for key, (calls, text) in found.items():
        assert calls, key
        assert text.count("{") == text.count("}")
        fields = dict(re.findall(r"^  (\w+) = \{(.*)\},?$", text, re.MULTILINE))
        assert {"title", "author"} <= set(fields), key
        assert len(fields) == text.count("\n") - 1, f"{key} has a line that is no field"


def test_every_paper_here_has_an_entry():
    named = {key.partition("/")[0] for key in papers.panels()}
    assert named <= set(_entries())


@pytest.mark.parametrize(
    ("recipe", "more"),
    [
        ({}, {"chen2022", "deepmind2020jax"}),
        ({"network": {"kind": "two-layer", "width": 4, "scaling": {"kind": "asymmetrical"}}}, {"caron2023"}),
        ({"data": {"kind": "sphere-sine", "n": 5, "d": 2}}, {"caron2023"}),
        ({"data": {"kind": "cifar10", "n": 5}}, {"krizhevsky2009"}),
        ({"data": {"kind": "plant"}}, {"tufekci2014"}),
        ({"network": {"kind": "conv-net", "channels": [2]}, "probes": ["condensation"]}, {"zhou2023"}),
        ({"network": {"kind": "mean-field-stack", "widths": [4, 4], "amplitude": "tied"}}, {"aiad2026", "ren2023"}),
        ({"flow": {"kind": "descent", "optimiser": "adam"}}, {"kingma2015adam"}),
        ({"flow": "runge-kutta"}, {"kidger2021on"}),
        ({"flow": "stabilised"}, {"sommeijer1998rkc"}),
    ],
)
def test_a_run_calls_for_what_it_used(tmp_path, recipe, more):
    found = set(cite(stored_run(tmp_path, **recipe)))
    assert found >= ALWAYS | more


def test_nothing_is_cited_that_was_not_used(tmp_path):
    """Least of all because of a name that a user chose."""
    run = stored_run(tmp_path, "mnist adam caron2023 zhou2023", probes=[{"kind": "train-loss", "as": "plant"}])
    assert set(cite(run)) == ALWAYS | {"chen2022", "deepmind2020jax"}


def test_a_paper_is_not_cited_for_a_general_member(tmp_path):
    """The probe `kernel` mentions several papers in its documentation, and comes from none of them."""
    found = set(cite(Path(__file__).parents[2] / "examples" / "two_scalings.toml"))
    assert found & {"chen2022", "caron2023", "zhou2023", "ren2023", "aiad2026"} == {"chen2022"}


def test_what_lives_in_a_papers_folder_calls_for_it(tmp_path):
    assert "ren2023" in cite(stored_run(tmp_path, probes=["radial-profile"]))
    cosine = {"kind": "descent", "schedule": "cosine"}
    assert "aiad2026" not in cite(stored_run(tmp_path, flow=cosine)), "the schedule, not the data"


def test_a_panel_calls_for_its_paper(tmp_path):
    run = stored_run(tmp_path, "caron2023 zipf", network={"kind": "conv-net", "channels": [2]})
    assert {"caron2023", "zhou2023"} <= set(cite(run))


def test_a_recipe_can_be_cited(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text('data = "digits"\nnetwork = { kind = "two-layer" }\ntimes = [0]\n')
    assert {"pedregosa2011", "chen2022"} <= set(cite(path))
    path.write_text("= no TOML")
    with pytest.raises(UserError, match="cannot be read as TOML"):
        cite(path)


def test_a_paper_of_ones_own_has_an_entry_from_its_folder(tmp_path, monkeypatch):
    own = types.ModuleType("unlazy.papers.own2099")
    own.PAPER = {"title": "Mine", "authors": "A. Body, S. Else", "venue": "Nowhere"}
    monkeypatch.setitem(sys.modules, "unlazy.papers.own2099", own)
    (tmp_path / "own2099.py").touch()
    monkeypatch.setattr(papers, "__path__", [*papers.__path__, str(tmp_path)])
    entry = cite(stored_run(tmp_path, "own2099 figure"))["own2099"]
    assert entry == (
        "@misc{own2099,\n  title = {Mine},\n  author = {A. Body and S. Else},\n"
        "  howpublished = {Nowhere},\n  year = {2099}\n}"
    )


@pytest.mark.parametrize("name", ["nowhere.nc", "nowhere.json", "nowhere.toml", "nowhere", "."])
def test_what_is_not_there_is_named(tmp_path, name):
    with pytest.raises(UserError, match=r"no stored run at|nothing to cite at"):
        cite(tmp_path / name)


def test_a_damaged_run_is_not_cited(tmp_path):
    path = stored_run(tmp_path, flow={"kind": "descent", "optimiser": "adam"})
    whole = path.read_bytes()
    assert whole.count(b'"adam"') == 1
    path.write_bytes(whole.replace(b'"adam"', b'"adax"'))
    with pytest.raises(UserError, match=re.escape(path.name)):
        cite(path)
