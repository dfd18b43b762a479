"""Every code block that a reader may type runs, and every recipe shown can be brought to life."""

import hashlib
import importlib.util
import json
import re
import sys
from pathlib import Path
from types import SimpleNamespace

import msgspec
import numpy as np
import pytest

import unlazy.papers
from unlazy._errors import UserError
from unlazy._plain import seal
from unlazy._registry import modules
from unlazy.papers import Claim, choose, compare
from unlazy.papers.outcomes import Outcome, certain, increases, undecided, vacuous
from unlazy.report.record import EARLIER_RULES, Record, read_record

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


def papers():
    return [module.PAPER for module in modules(unlazy.papers) if hasattr(module, "PAPER")]


def load(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


RUN = load("_run")


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES[1:], ids=lambda page: page.name)
def test_python_blocks_run(page):
    RUN.run_blocks(page.read_text(encoding="utf-8"), page.stem)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_recipes_and_commands_are_right(page):
    RUN.check_blocks(page.read_text(encoding="utf-8"), page.stem)


@pytest.mark.parametrize("block", ["sh\nunlazy runn", "toml\nx = 1"])
def test_a_wrong_block_is_named(block):
    with pytest.raises(RUN.BlockFailed, match=r"page.md, block at line 2"):
        RUN.check_blocks(f"```{block}\n```\n", "page")


def test_a_failing_line_is_named():
    with pytest.raises(RUN.BlockFailed, match=r"page.md, line 3: ZeroDivisionError"):
        RUN.run_blocks("```python\nx = 0\n1 / x\n```\n", "page")


def test_a_library_that_is_not_installed_ends_only_its_block(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)  # as if it were not installed
    text = "```python\nprint(1 + 1)\n```\n```python\nimport torch\n1 / 0\n```\n```python\nprint(2 + 1)\n```\n"
    assert RUN.run_blocks(text, "page").count("```text") == 2
    with pytest.raises(RUN.BlockFailed, match=r"page.md, line 2: ModuleNotFoundError: No module named 'unlazi'"):
        RUN.run_blocks("```python\nimport unlazi\n```\n", "page")


@pytest.mark.slow
def test_the_readme_example_is_ten_lines_and_tells_the_story(tmp_path, monkeypatch, capsys):
    (block,) = RUN.BLOCK.findall((ROOT / "README.md").read_text(encoding="utf-8"))
    assert len([line for line in block.splitlines() if line.strip()]) <= 10
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "__docs__"}
    exec(compile(block, "README", "exec"), names)
    learns, lazy = (names["runs"][name].observed for name in ("mean field", "NTK"))
    assert max(run["train-loss"][-1] / run["train-loss"][0] for run in (learns, lazy)) < 1e-2  # both fit the data
    assert learns["test-loss"][-1] < 0.02 * lazy["test-loss"][-1]
    assert learns["feature-movement"]["hidden"][-1] > 10 * lazy["feature-movement"]["hidden"][-1]
    assert (tmp_path / "first-example.svg").stat().st_size < 60_000


@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("*.toml")), ids=lambda path: path.name)
def test_examples_can_be_brought_to_life(path):
    RUN.check_recipe(path.read_text(encoding="utf-8"))


def test_links_between_pages_lead_somewhere():
    for page in PAGES:
        for target in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


@pytest.mark.parametrize("paper", papers(), ids=lambda paper: paper["key"])
def test_pages_name_the_authors_of_their_papers(paper):
    surnames = [name.split()[-1] for name in paper["authors"].split(", ")]
    page = (ROOT / "docs" / f"{paper['key']}.md").read_text(encoding="utf-8")
    year = paper["key"][-4:]
    assert f"{', '.join(surnames[:-1])} and {surnames[-1]} ({year})" in page


MAKE_NOTEBOOK = load("make_notebook")


def test_the_notebook_is_made_from_its_page():
    """Its code is that of the page, which `test_python_blocks_run` runs."""
    page, path = MAKE_NOTEBOOK.PAGE.read_text(encoding="utf-8"), MAKE_NOTEBOOK.PAGE.with_suffix(".ipynb")
    stored = path.read_text(encoding="utf-8")
    assert stored == MAKE_NOTEBOOK.notebook(page), "run python docs/make_notebook.py"
    cells = json.loads(stored)["cells"]
    code = ["".join(one["source"]) for one in cells if one["cell_type"] == "code"]
    assert code == [block.strip() for block in RUN.BLOCK.findall(page)]
    assert all(not one["outputs"] for one in cells if one["cell_type"] == "code")


MAKE_GALLERY = load("make_gallery")


def test_the_gallery_page_is_made_from_its_records():
    page = (ROOT / "docs" / "gallery.md").read_text(encoding="utf-8")
    assert page == MAKE_GALLERY.page(MAKE_GALLERY.kept(), MAKE_GALLERY.own_panels()), "run python docs/make_gallery.py"


def test_the_fidelity_page_is_made_from_the_records():
    page = (ROOT / "docs" / "fidelity.md").read_text(encoding="utf-8")
    found = MAKE_GALLERY.kept()
    assert page == MAKE_GALLERY.fidelity(found, MAKE_GALLERY.own_panels()), "run python docs/make_gallery.py"
    run = {record.panel for record in found}
    for panel in MAKE_GALLERY.own_panels():  # none is left out, and none without a record has a result
        (row,) = re.findall(rf"^\| {re.escape(panel.key)} \|.*$", page, re.MULTILINE)
        assert ("not run yet" in row) == (panel.key not in run)


def record(**changes):
    """A record that was never made."""
    words = {"title": "Figure 1: made up", "caption": "Made up.", "settings": "m = 8, 5 seeds", "recipes": {}}
    claims = [Claim("a|b", "it falls", "3", increases(np.zeros(3), np.arange(1.0, 4.0)))]
    return Record(
        **{"panel": "made2099/fig1", "scale": "paper", "seconds": 1.0, "claims": claims}
        | words
        | {"made_by": {"commit": "0123456789ab"}, "seeds": 5, "usual_seeds": 5, "references": []}
        | changes
    )


def test_the_fidelity_page_shows_numbers_seeds_commits_and_what_was_not_run():
    numbers = [compare("loss", np.array([1.0, 1.1]), 9.0, "Table 1", setting="m = 8")]
    made = [
        record(),
        record(panel="made2099/fig2", references=numbers, seeds=2, made_by={"commit": "0123456789ab (changed)"}),
        record(panel="made2099/fig3", references=None, claims=[Claim("c", "p", "m", certain(True, EARLIER_RULES))]),
    ]
    every = [SimpleNamespace(key="made2099/fig4")]
    page = MAKE_GALLERY.fidelity(made, every)
    assert "3 panels have a record at paper scale with the present settings, and 1 waits to be run" in page
    assert "Numbers of the authors: 1 differs." in page
    assert "| made2099/fig1 | paper | 5 | `0123456789ab` | no number | 1 of 1 claims hold |" in page
    assert (
        "| made2099/fig2 | paper | 2 (the panel has 5) | `0123456789ab` with uncommitted changes | 1 differs |" in page
    )
    assert "| made2099/fig3 | paper | 5 | `0123456789ab` | not compared |" in page
    assert "| made2099/fig4 | not run yet at paper scale |" in page
    assert "| loss, m = 8 | 1.05 ± 0.07 | 9 (Table 1) | 0.12 times, -1.1e+02 SD | **differs** (95 % " in page
    assert r"| a\|b | 3 | it falls | | **holds** (paired t-test over 3 seeds, p = 0.037; 3 of 3 seeds agree) |" in page
    assert "| c | m | p | | held by earlier rules |" in page
    assert "| 1 of 1 claims held by earlier rules |" in page
    assert "2 of 2 claims hold. 1 claim judged by earlier rules is not counted. Numbers" in page
    gallery = MAKE_GALLERY.page(made, every)
    assert "| loss, m = 8 | 1.05 ± 0.07 | 9 | 0.12 times, -1.1e+02 SD | differs |" in gallery
    assert "| c | m | held by earlier rules |" in gallery


def test_the_gallery_counts_the_time_of_judging():
    assert "--scale paper`: 1 second." in MAKE_GALLERY.page([record()], [])
    assert "--scale paper`: 5 minutes." in MAKE_GALLERY.page([record(judging=299.0)], [])


def test_the_gallery_and_fidelity_show_all_four_outcomes():
    judged = (certain(True), certain(False), vacuous("nothing could fail"), undecided("too few seeds"))
    one = record(claims=[Claim(f"c{index}", "p", "m", each) for index, each in enumerate(judged)])
    why = ("direct comparison", "direct comparison", "nothing could fail", "too few seeds")
    for page in (MAKE_GALLERY.page([one], []), MAKE_GALLERY.fidelity([one], [])):
        for outcome, reason in zip(Outcome, why, strict=True):
            assert f"**{outcome.value}** ({reason})" in page
    assert "1 of 4 claims hold (1 does not hold, 1 undecided, 1 vacuous)" in page


def test_a_record_of_other_runs_than_the_panel_has_now_is_not_counted():
    panel = choose("chen2022/fig1")[0]
    now = {label: recipe.json() for label, recipe in panel.recipes("paper", 2).items()}
    assert not MAKE_GALLERY.is_earlier(record(panel=panel.key, recipes=now), [panel])
    for old, new in (('"width":8192', '"width":8191'), ("50000.0]", "40000.0]"), ('"two-layer"', '"two-layers"')):
        other = record(panel=panel.key, recipes={label: one.replace(old, new) for label, one in now.items()})
        assert MAKE_GALLERY.is_earlier(other, [panel])
    page = MAKE_GALLERY.fidelity([other], [panel])
    assert "0 panels have a record at paper scale with the present settings, and 1 waits" in page
    assert "(1 of them with a record made with earlier settings). 0 of 0 claims hold" in page
    assert "| chen2022/fig1 | paper | 5 | `0123456789ab` |  | made with earlier settings |" in page
    assert "**This record was made with earlier settings.**" in MAKE_GALLERY.page([other], [panel])


@pytest.mark.parametrize("figure", sorted((ROOT / "docs" / "gallery").glob("*.svg")), ids=lambda path: path.stem)
def test_figures_of_the_gallery_are_small(figure):
    svg = figure.read_text(encoding="utf-8")
    assert len(svg) < 200_000
    assert MAKE_GALLERY.compact(svg) == svg, "run python docs/make_gallery.py"


def test_records_stay_valid_when_their_figures_are_made_small(tmp_path):
    svg = '<svg>\n <!-- made up -->\n <path d="M 0.001 1.000000 \nL 2.000000 1.000000 \n"/>\n</svg>'
    content = msgspec.to_builtins(record(figure_sha256=hashlib.sha256(svg.encode()).hexdigest()))
    (tmp_path / "a.json").write_bytes(msgspec.json.encode(seal(content)))
    figure = tmp_path / "a.svg"
    figure.write_text(svg, encoding="utf-8")
    for _ in range(2):
        MAKE_GALLERY.make_small(figure)
        assert (
            read_record(tmp_path / "a.json").figure == figure.read_text(encoding="utf-8") == MAKE_GALLERY.compact(svg)
        )
    assert len(figure.read_text(encoding="utf-8")) < len(svg)
    figure.write_text(svg.replace("2.000000", "3.000000"), encoding="utf-8")
    MAKE_GALLERY.make_small(figure)  # of another figure than the record's
    with pytest.raises(UserError, match="changed or damaged"):
        read_record(tmp_path / "a.json")


def test_small_figures_draw_the_same():
    t = np.linspace(0, 20, 2001)
    line = np.stack([40 + 30 * t, 100 + 50 * np.sin(t)], axis=1)
    places = "\n".join(f"{'ML'[index > 0]} {x:.6f} {y:.6f}" for index, (x, y) in enumerate(line))
    uses = '  <use xlink:href="#m1" x="3.141593" y="-0.001" style="fill: #fff; stroke: #000"/>\n' * 3
    svg = f'<svg>\n <!-- a -->\n <style>*{{x: y}}</style>\n <path d="{places}" style="a"/>\n{uses}</svg>'
    small = MAKE_GALLERY.compact(svg)
    assert small.count('<use xlink:href="#m1" x="3.14" y="0" class="s0"/>') == 3
    assert "<style>*{x: y}.s0{fill: #fff; stroke: #000}</style>" in small
    (start, *steps) = re.search(r'd="M([^"]*)"', small)[1].split("l")
    found = np.cumsum([[float(number) for number in step.split()] for step in (start, *steps)], axis=0)
    assert len(found) < 300
    heights = np.interp(line[:, 0], found[:, 0], found[:, 1])
    assert np.abs(heights - line[:, 1]).max() < 0.15  # the distance is at most 0.06; the line is at most 1.7 steep
