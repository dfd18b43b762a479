"""What goes into a report: all that is stored, each thing once, and recipes that can be run again."""

import json
import tomllib
from pathlib import Path

import pytest
from drawn import Drawn

from made_up import Ready, stored_run
from unlazy._errors import UserError
from unlazy.lab import parse, read, read_run
from unlazy.report import gather, records, reproduce, write_report
from unlazy.report.contents import seeds, toml

FILES = sorted((Path(__file__).parents[2] / "examples").glob("*.toml"))
EXAMPLES = [path for path in FILES if not path.name.startswith(("phase_", "sweep_"))]  # of one run each


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_a_recipe_in_the_report_can_be_run_again(path):
    recipe = read(path)
    assert parse(tomllib.loads(toml(recipe.json()))).digest == recipe.digest


@pytest.mark.parametrize("name", ['"quoted" \\ back', "new\nline", "\x7f\x01", "½σ \N{PILE OF POO}", "]]] = {", "'''"])
def test_any_name_survives_toml(name):
    table = {"name": name, "data": {"kind": "x", "odd key.": [1.5, True, {}]}, "network": "y", "times": [0.0, 1e-7]}
    assert tomllib.loads(toml(json.dumps(table))) == table


@pytest.mark.parametrize("text", ["", "no JSON", "[1]", "3"])
def test_what_is_no_recipe_stays_as_it_is(text):
    assert toml(text) == text
    assert seeds([text]) == ""


def test_seeds_in_words():
    assert seeds(['{"seed": 3, "seeds": 2}', '{"seeds": 1}', '{"seed": 3, "seeds": 2}', '{"seed": "x"}']) == "0, 3 to 4"


def test_runs_of_panels_are_not_shown_twice(tmp_path):
    path = stored_run(tmp_path, "of a panel")
    alone = stored_run(tmp_path, "alone")
    reproduce(Drawn(recipe=read_run(path).attrs["recipe"]), "quick", Ready(tmp_path))
    contents = gather([tmp_path])
    assert list(contents.runs) == [alone]
    assert [record.panel for record in contents.records] == ["made2099/fig1"]
    assert {run.attrs["name"] for run in contents.of_panel(contents.records[0]).values()} == {"of a panel"}


def test_panels_stand_in_the_order_of_their_numbers(tmp_path):
    for key in ("b/fig10", "b/fig9", "a/fig2", "b/fig10-more"):
        reproduce(Drawn(key=key), "quick", Ready(tmp_path))
    wanted = ["a/fig2", "b/fig9", "b/fig10", "b/fig10-more"]
    assert [record.panel for record in gather([tmp_path]).records] == wanted
    only = gather([tmp_path], only={("b/fig9", "quick")})
    assert [record.panel for record in only.records] == ["b/fig9"]


def test_single_files_and_several_folders(tmp_path):
    one, other = tmp_path / "one", tmp_path / "other"
    reproduce(Drawn(), "quick", Ready(one))
    run = stored_run(other)
    assert len(gather([one, other]).records) == 1
    assert list(gather([one, other]).runs) == [run]
    contents = gather([one / "panels" / "made2099-fig1-quick.json", run, run])
    assert (len(contents.records), list(contents.runs)) == (1, [run])


def test_a_page_that_is_too_large_says_so(tmp_path, monkeypatch):
    reproduce(Drawn(), "quick", Ready(tmp_path))
    monkeypatch.setattr("unlazy.report.html._LARGEST", 1000)
    with pytest.raises(UserError, match=r"The report would take 0 MiB: give fewer results"):
        write_report(records(tmp_path), tmp_path / "report.html")
    assert not (tmp_path / "report.html").exists()
