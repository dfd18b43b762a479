"""The section of a report for a sweep: what it says without a browser, and what it does in one."""

import base64
import json
import re
import tomllib

import msgspec
import numpy as np
import pytest
from drawn import DESKTOP, HOSTILE, PHONE, Page

from made_up import stored_run, stored_sweep
from unlazy._errors import SkippedFile, UserError
from unlazy.lab import Manifest, Sweep
from unlazy.report import gather, write_report
from unlazy.report.own_runs import MANY, families
from unlazy.report.sweeps import sweeps

TIMES = (0.0, 1.0, 10.0, 100.0, 1000.0)
GRID = {"network.width": [8, 16, 32], "network.scaling": ["ntk", "mean-field"], "flow.rate": [0.1, 0.2]}


def loss(fields, seed):
    """Values from which the run, the seed and the time can be read back."""
    last = fields["network.width"] + 100 * (fields.get("network.scaling") == "mean-field") + 0.5 * seed
    return {"train-loss": [1e4, 1e3, 500.0, 400.0, last], "drift": [0.0, 0.1, 0.2, 0.3, fields["flow.rate"]]}


def grid(folder, **more):
    given = {"seeds": 2, "sweep": GRID, "name": "my sweep"} | more.pop("table", {})
    return stored_sweep(folder, given, loss, TIMES, **more)


def written(folder):
    return write_report(gather([folder]), folder / "report.html")


def data(page):
    """The numbers in the page, unpacked."""
    (text,) = re.findall(r'<script type="application/json">(.*?)</script>', page.source, flags=re.DOTALL)
    found = json.loads(text)
    for probe in found["probes"]:
        for part in ("mean", "low", "high"):
            if part in probe:
                values = np.frombuffer(base64.b64decode(probe[part]), "<f4")
                probe[part] = values.reshape(found["points"], -1)
    return found


# ---------------------------------------------------------------- without a browser


def test_a_sweep_has_one_section(tmp_path):
    grid(tmp_path)
    stored_run(tmp_path, "alone")
    page = Page(written(tmp_path))
    assert page.tags.count("article") == 2, "the sweep, and the run that does not belong to it"
    assert (
        "A grid over network.width (3 values), network.scaling (2 values), flow.rate (2 values): 12 runs" in page.text
    )
    assert len(families(gather([tmp_path]))[0].details) == 1
    assert "13 runs" in page.text, "in all"


def test_the_page_has_the_numbers_of_the_runs(tmp_path):
    path = grid(tmp_path)
    found = data(Page(written(tmp_path)))
    assert found["times"] == list(TIMES)
    assert [one["name"] for one in found["probes"]] == ["train-loss", "drift"]
    for index, point in enumerate(Manifest.read(path).points):
        fields = {one["name"]: one["values"][one["codes"][index]] for one in found["fields"]}
        assert fields == {name: str(value) for name, value in point.fields.items()}
        each = np.array([loss(point.fields, seed)["train-loss"] for seed in (0, 1)])
        train = found["probes"][0]
        np.testing.assert_allclose(train["mean"][index], each.mean(axis=0), rtol=1e-6)  # stored in 32 bits
        np.testing.assert_allclose(train["low"][index], each.min(axis=0), rtol=1e-6)
        np.testing.assert_allclose(train["high"][index], each.max(axis=0), rtol=1e-6)


def test_means_are_over_the_seeds_that_are_there(tmp_path):
    """A sweep over seeds in which one run is missing, and one seed of another is not finite."""

    def values(fields, seed):
        return {"train-loss": [1.0, 2.0, np.nan if (fields["network.width"], seed) == (16, 1) else 10.0 + seed]}

    table = {"sweep": {"network.width": [8, 16], "seed": [0, 1, 2]}}
    stored_sweep(tmp_path, table, values, TIMES[:3], leave_out=[2])
    found = data(Page(written(tmp_path)))
    np.testing.assert_allclose(found["probes"][0]["mean"], [[1, 2, 10.5], [1, 2, np.nan]])
    assert found["seeds"] == [2, 3]


def test_missing_runs_are_said(tmp_path):
    grid(tmp_path, leave_out=[0, 5])
    page = Page(written(tmp_path))
    assert "10 of 12 runs are stored" in page.text
    assert page.text.count("missing") >= 2
    assert np.isnan(data(page)["probes"][0]["mean"]).all(axis=1).sum() == 2


def test_a_damaged_run_or_list_is_named_and_left_out(tmp_path):
    path = grid(tmp_path)
    bad = tmp_path / Manifest.read(path).points[0].file
    bad.write_bytes(bad.read_bytes()[:-50])
    (tmp_path / "bad.sweep.json").write_text("{}")
    with pytest.warns(SkippedFile) as caught:
        page = Page(written(tmp_path))
    assert any(bad.name in str(one.message) for one in caught)
    assert any("bad.sweep.json" in str(one.message) for one in caught)
    assert "11 of 12 runs are stored" in page.text


def test_a_list_alone_can_be_reported(tmp_path):
    path = grid(tmp_path)
    stored_run(tmp_path, "alone")
    page = Page(write_report(gather([path]), tmp_path / "report.html"))
    assert page.tags.count("article") == 1
    with pytest.raises(UserError, match=r"a record \(\.json\) or a sweep"):
        gather([tmp_path / "nothing.txt"])


def test_the_file_that_repeats_a_sweep_repeats_it(tmp_path):
    for index, part in enumerate(
        (
            GRID,
            {"zip": {"network.width": [8, 16], "flow.rate": [0.1, 0.2]}},
            {"network.width": [8, 16], "flow.rate": [0.3], "derived": {"data.n": "network.width"}},
            {"network.width": [8, 16], "variables.c": [1, 2], "derived": {"flow.rate": "c / network.width"}},
        )
    ):
        folder = tmp_path / str(index)
        path = stored_sweep(folder, {"seeds": 2, "sweep": part}, loss, TIMES)
        (one,) = sweeps(gather([folder]))
        again = Sweep.parse(tomllib.loads(one.recipe))
        assert runs(again) == runs(Sweep.parse(Manifest.read(path).base | {"sweep": part}))


def runs(sweep):
    """What is run, whatever it is called."""
    return {msgspec.structs.replace(point.recipe, name="").json() for point in sweep.points()}


def test_many_runs_without_a_list_are_shown_in_the_same_way(tmp_path):
    for width in range(1, MANY + 2):
        stored_run(tmp_path, f"m {width}", network={"kind": "two-layer", "width": width})
    page = Page(written(tmp_path))
    assert families(gather([tmp_path])) == []
    assert f"A grid over network.width ({MANY + 1} values): {MANY + 1} runs" in page.text
    assert page.tags.count("svg") == 0
    assert f"{MANY + 1} runs;" in page.text, "each is counted once"


def test_the_page_of_many_points_is_bounded(tmp_path):
    """Numbers are thinned in time, and never beyond the last time, so that a page fits into a mail."""
    grid(tmp_path)
    ((manifest, runs),) = gather([tmp_path]).sweeps
    long = runs.isel({"flow.rate": [0] * 800, "time": np.arange(400) % 5}).assign_coords(
        {"flow.rate": np.arange(800.0), "time": np.arange(400.0)}
    )
    contents = gather([tmp_path])
    contents.sweeps = [(manifest, long)]
    path = write_report(contents, tmp_path / "report.html")
    assert path.stat().st_size < 5e6
    found = data(Page(path))
    assert found["points"] == 4800
    assert found["times"][-1] == 399.0
    assert Page(path).tags.count("tr") < 100


def test_hostile_names_are_only_text(tmp_path):
    table = {
        "name": HOSTILE,
        "sweep": {"network.scaling": [HOSTILE, "plain"], "network.width": [8, 16], "flow.rate": [0.1]},
    }
    grid(tmp_path, table=table)
    hostile = Page(written(tmp_path))
    grid(tmp_path / "plain", table={"sweep": table["sweep"] | {"network.scaling": ["other", "plain"]}})
    plain = Page(written(tmp_path / "plain"))
    assert hostile.tags == plain.tags
    assert "{{ 7 * 7 }}" in hostile.text


# ---------------------------------------------------------------- in a browser


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """A sweep with a missing run, a sweep of single points, and one that is longer than the table in the page."""
    folder = tmp_path_factory.mktemp("runs")
    grid(folder, leave_out=[7])
    zipped = {"network.width": [8, 16, 32], "flow.rate": [0.001, 0.1, 1.0]}
    stored_sweep(folder, {"name": "zipped", "sweep": {"zip": zipped}}, loss, TIMES)
    long = {"network.width": list(range(1, 41)), "flow.rate": [0.1]}
    stored_sweep(folder, {"name": "long", "sweep": long}, loss, TIMES)
    return written(folder)


def section(page, name):
    found = page.locator("article.swept", has=page.get_by_role("heading", name=name, exact=True))
    found.scroll_into_view_if_needed()
    found.locator(".film").first.wait_for()
    return found


@pytest.mark.slow
def test_curves_follow_the_choices(opened):
    page = opened()
    mine = section(page, "my sweep")
    films = mine.locator(".films").first
    assert films.locator("svg").count() == 2, "small multiples: one plot for each rate"
    assert mine.locator(".key").first.text_content() == "network.scaling: ntk mean-field"
    mine.get_by_role("combobox", name="Plots side by side", exact=True).select_option("network.width")
    assert films.locator("h5").all_text_contents() == ["width = 8", "width = 16", "width = 32"]
    mine.get_by_role("combobox", name="Plots side by side", exact=True).select_option("")
    assert films.locator("svg").count() == 1
    before = films.locator("path.line").first.get_attribute("d")
    assert before.count("M") == 6, "a curve for each run of the first colour"
    mine.get_by_role("combobox", name="Probe", exact=True).first.select_option("1")
    assert films.locator("path.line").first.get_attribute("d") != before
    mine.get_by_role("combobox", name="Colour", exact=True).select_option("network.width")
    assert mine.locator(".key").first.text_content() == "network.width: 8 16 32"


@pytest.mark.slow
def test_maps_follow_their_sliders(opened):
    page = opened()
    mine = section(page, "my sweep")
    films = mine.locator(".films").nth(1)
    cells = "all => all.map(one => one.getAttribute('fill') + one.getAttribute('d')).join()"
    last = films.locator("svg > path:not(.tick)").evaluate_all(cells)
    assert "t = 1000, scaling = ntk" in films.locator("h5").text_content()
    time = mine.get_by_role("slider", name="Time", exact=True)
    time.focus()
    page.keyboard.press("Home")
    assert time.get_attribute("aria-valuetext") == "t = 0"
    assert films.locator("svg > path:not(.tick)").evaluate_all(cells) != last
    page.keyboard.press("End")
    assert films.locator("svg > path:not(.tick)").evaluate_all(cells) == last
    scaling = mine.get_by_role("slider", name="network.scaling", exact=True)
    scaling.focus()
    page.keyboard.press("End")
    assert "scaling = mean-field" in films.locator("h5").text_content()
    films.locator(".cover").hover(position={"x": 5, "y": 5})
    assert mine.locator(".reading").text_content() == "network.width = 8, flow.rate = 0.2: train-loss 108.3"
    mine.get_by_role("combobox", name="Upwards", exact=True).select_option("")
    assert mine.get_by_role("slider", name="Time", exact=True).count() == 0, "time is an axis now"
    mine.get_by_role("combobox", name="Colours from", exact=True).select_option("")


@pytest.mark.slow
def test_points_are_dots_and_missing_runs_are_grey(opened):
    page = opened()
    assert section(page, "zipped").locator("circle").count() == 3
    mine = section(page, "my sweep")
    scaling = mine.get_by_role("slider", name="network.scaling", exact=True)
    assert mine.locator(".film .none").count() == 0
    scaling.focus()
    page.keyboard.press("End")
    assert mine.locator(".film .none").count() == 1, "the run with width 16, mean-field, rate 0.2"


@pytest.mark.slow
def test_a_long_table_is_sorted_as_a_whole(opened):
    page = opened()
    mine = section(page, "long")
    first = mine.locator("tbody tr td:first-child")
    assert first.count() == 25
    head = mine.locator("th button", has_text="train-loss")
    head.click()
    head.click()
    assert first.first.text_content() == "40", "the last of all, which was not shown before"
    mine.get_by_role("button", name="Show 15 more rows").click()
    assert sorted(first.all_text_contents(), key=int) == [str(width) for width in range(1, 41)]
    assert mine.get_by_role("button", name="more rows").is_hidden()
    assert mine.locator("tbody tr").first.locator("td").last.text_content() == "0.1"


@pytest.mark.slow
@pytest.mark.parametrize("viewport", [DESKTOP, PHONE], ids=["desktop", "phone"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_sweeps_are_accessible(opened, viewport, scheme):
    axe = pytest.importorskip(
        "axe_playwright_python.sync_playwright", reason="axe is not here, so accessibility was not checked"
    )
    page = opened(viewport, color_scheme=scheme)
    page.add_style_tag(content="article { content-visibility: visible !important }")
    for name in ("my sweep", "zipped", "long"):
        section(page, name)
    page.eval_on_selector_all("details", "all => all.forEach(one => one.open = true)")
    found = axe.Axe().run(page).response["violations"]
    assert [(one["id"], one["nodes"][0]["html"][:200], one["nodes"][0]["failureSummary"]) for one in found] == []
    assert page.evaluate("document.scrollingElement.scrollWidth") <= viewport["width"]


@pytest.mark.slow
def test_without_script_the_table_shows(opened):
    page = opened(java_script_enabled=False)
    assert page.locator(".drawn").first.is_hidden()
    assert page.locator("noscript").first.is_visible()
    assert page.locator(".swept tbody tr").first.is_visible()


@pytest.mark.slow
def test_all_sweeps_are_printed(opened):
    page = opened()
    page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    assert page.locator(".swept .films").count() == 6
    assert page.pdf().startswith(b"%PDF")
