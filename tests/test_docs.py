"""Every code block that a reader may type runs, and every recipe shown can be brought to life."""

import importlib.util
import re
import shlex
import tomllib
from pathlib import Path

import pytest

import unlazy.papers
from unlazy import cli
from unlazy._registry import modules
from unlazy.lab import instantiate, parse, read

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


def papers():
    return [module.PAPER for module in modules(unlazy.papers) if hasattr(module, "PAPER")]


def blocks(page, language):
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("page", [page for page in PAGES[1:] if blocks(page, "python")], ids=lambda page: page.name)
def test_python_blocks_run(page, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "__docs__"}
    for block in blocks(page, "python"):  # one page is one conversation: later blocks use earlier names
        exec(compile(block, str(page), "exec"), names)


def test_the_readme_example_is_ten_lines_and_tells_the_story(tmp_path, monkeypatch, capsys):
    (block,) = blocks(ROOT / "README.md", "python")
    assert len([line for line in block.splitlines() if line.strip()]) <= 10
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "__docs__"}
    exec(compile(block, "README", "exec"), names)
    learns, lazy = (names["runs"][name].observed for name in ("mean field", "NTK"))
    assert max(run["train-loss"][-1] / run["train-loss"][0] for run in (learns, lazy)) < 1e-2  # both fit the data
    assert learns["test-loss"][-1] < 0.02 * lazy["test-loss"][-1]
    assert learns["feature-movement"]["hidden"][-1] > 10 * lazy["feature-movement"]["hidden"][-1]
    assert (tmp_path / "first-example.svg").stat().st_size < 60_000


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "sh")], ids=lambda page: page.name)
def test_commands_are_as_the_command_line_reads_them(page):
    for line in (line for block in blocks(page, "sh") for line in block.splitlines()):
        words = shlex.split(line, comments=True)
        if words and words[0] == "unlazy":
            cli.app.parse_args(words[1:], exit_on_error=False, print_error=False)


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "toml")], ids=lambda page: page.name)
def test_toml_blocks_are_recipes(page):
    for block in blocks(page, "toml"):
        assert instantiate(parse(tomllib.loads(block))).networks


@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("*.toml")), ids=lambda path: path.name)
def test_examples_can_be_brought_to_life(path):
    assert instantiate(read(path)).networks


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


def test_the_gallery_page_is_made_from_its_records():
    spec = importlib.util.spec_from_file_location("make_gallery", ROOT / "docs" / "make_gallery.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    page = (ROOT / "docs" / "gallery.md").read_text(encoding="utf-8")
    assert page == module.page(), "run python docs/make_gallery.py"
