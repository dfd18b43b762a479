"""The report and the page of `watch` in a real browser: headless Chromium, driven by Playwright.

Where Chromium or Playwright is missing, these tests say so and what they did not look at; `.ci/run` installs both.
"""

import json
import re
import threading

import msgspec
import numpy as np
import pytest
from drawn import DESKTOP, PHONE

from made_up import Ready, filmed, random_labels, stored_run
from unlazy.lab import Note, parse, read_run, store_certificates
from unlazy.papers import chen2022
from unlazy.report import gather, reproduce, write_report
from unlazy.report.watch import make_server

HOSTILE = '<script>window.bad=1</script><img src=x onerror="window.bad=2">\'"&</style></title>{{7*7}} \N{PILE OF POO}‮'
pytestmark = pytest.mark.slow  # a browser is opened


class Drawn(type(chen2022.fig1)):
    """Figure 1 under another name, with made-up results and any words; its first run can be filmed."""

    def __init__(self, key, run, words=None):
        super().__init__(1, wider=True)
        self.key, self.run_, self.words = key, run, words
        self.title = words or self.title

    def recipes(self, scale, seeds=None):
        results = random_labels()
        for index, one in enumerate(results.values()):
            one.attrs["recipe"] = self.run_.attrs["recipe"] if index == 0 else f'{{"seeds": 3, "name": "{index}"}}'
        return results

    def claims(self, results):
        made = super().claims(random_labels())  # whose recipes tell their sizes
        if self.words:
            changes = dict.fromkeys(("text", "paper", "measured"), self.words)
            made += [type(made[0])(**changes, judged=False)]
        return made

    def draw(self, results):
        return super().draw(random_labels())


class Said:
    """A certificate of some theorem."""

    def __init__(self, verdict, why):
        self.row = {"theorem": "chen2022/eq-15", "seed": 0, "verdict": verdict, "margin": 1.25, "why": why}

    def summary(self):
        return self.row


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """A report with everything in it: panels, films, theorems, a run of one's own, and hostile names."""
    folder = tmp_path_factory.mktemp("runs")
    run = read_run(stored_run(folder, "filmed", **filmed(tuple(np.linspace(0, 40, 41)))))
    recipe = parse(msgspec.json.decode(run.attrs["recipe"]))
    store_certificates(folder, recipe, [Said("HOLDS", HOSTILE), Said("SILENT", "Not met.")])
    lab = Ready(folder)
    reproduce(Drawn("chen2022/fig1", run), "quick", lab)
    reproduce(Drawn("chen2022/fig2", run, HOSTILE), "quick", lab)
    stored_run(folder, HOSTILE)
    stored_run(folder, "x" * 10_000, seeds=3)
    return write_report(gather([folder]), folder / "report.html")


def test_every_figure_is_visible(opened):
    page = opened()
    figures = page.locator(".plot svg")
    assert figures.count() == 3  # two panels, and the two runs together; one that belongs to a panel is not shown twice
    for index in range(figures.count()):
        figures.nth(index).scroll_into_view_if_needed()
        box = figures.nth(index).bounding_box()
        assert box["width"] > 300
        assert box["height"] > 150
        assert figures.nth(index).locator("path").count() > 10
        assert len(figures.nth(index).locator("title").first.text_content()) > 20
    for film in page.locator(".film").all():
        film.scroll_into_view_if_needed()
        assert film.bounding_box()["width"] > 100


def test_lines_are_really_drawn(opened):
    """Figure 1 has ink of its four colours, and of no other page's style."""
    page = opened()
    strokes = page.eval_on_selector_all(".plot svg path", "all => all.map(one => getComputedStyle(one).stroke)")
    assert {"rgb(0, 0, 0)", "rgb(0, 114, 178)", "rgb(213, 94, 0)", "rgb(0, 158, 115)"} <= set(strokes)
    caps = page.eval_on_selector_all(".film .dots", "all => all.map(one => getComputedStyle(one).strokeLinecap)")
    assert set(caps) == {"round"}


def test_sliders_move(opened):
    page = opened()
    reels = page.locator(".reel")
    assert reels.count() == 8  # four kinds of film, in two panels
    for index in range(4):
        reel = reels.nth(index)
        slider, told, track = reel.locator("input"), reel.locator("output"), reel.locator(".track").first
        name = "href" if track.evaluate("one => one.tagName") == "image" else "d"
        last = track.get_attribute(name)
        assert told.text_content() == "t = 40"
        slider.focus()
        page.keyboard.press("Home")
        assert told.text_content() == "t = 0"
        assert slider.get_attribute("aria-valuetext") == "t = 0"
        first = track.get_attribute(name)
        assert first != last
        page.keyboard.press("ArrowRight")
        assert told.text_content() != "t = 0"
        assert track.get_attribute(name) not in (first, last)
        page.keyboard.press("End")
        assert track.get_attribute(name) == last, "what the script draws is what the page was written with"


def test_a_film_plays_and_stops(opened):
    page = opened()
    reel = page.locator(".reel").first
    reel.locator("button").click()
    assert reel.locator("button").text_content() == "Stop"
    reel.locator("output", has_text=re.compile("t = [1-9]")).wait_for()
    reel.locator("button").click()
    assert reel.locator("button").text_content() == "Play"


def test_without_script_the_last_frame_shows(opened):
    page = opened(java_script_enabled=False)
    assert page.locator(".slider").first.is_hidden()
    assert page.locator("#theme").is_hidden()
    track = page.locator(".film .dots").first
    assert track.get_attribute("d").count("h0") == 20
    track.scroll_into_view_if_needed()
    assert track.bounding_box()["width"] > 50


def background(page):
    return page.evaluate("getComputedStyle(document.body).backgroundColor")


def test_the_theme_switches(opened):
    page = opened(color_scheme="light")
    light = background(page)
    button = page.locator("#theme")
    seen = []
    for _ in range(3):
        button.click()
        seen.append((button.text_content(), background(page)))
    dark = seen[1][1]
    assert dark != light
    assert seen == [("Theme: light", light), ("Theme: dark", dark), ("Theme: as the system", light)]
    assert background(opened(color_scheme="dark")) == dark


@pytest.mark.parametrize("viewport", [DESKTOP, PHONE], ids=["desktop", "phone"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_is_accessible(opened, viewport, scheme):
    axe = pytest.importorskip(
        "axe_playwright_python.sync_playwright", reason="axe is not here, so accessibility was not checked"
    )
    page = opened(viewport, color_scheme=scheme)
    page.add_style_tag(content="article { content-visibility: visible !important }")
    page.eval_on_selector_all("details", "all => all.forEach(one => one.open = true)")
    found = axe.Axe().run(page).response["violations"]
    assert [(one["id"], one["nodes"][0]["html"][:200], one["nodes"][0]["failureSummary"]) for one in found] == []


def test_it_fits_a_phone(opened):
    page = opened(PHONE)
    assert page.evaluate("document.scrollingElement.scrollWidth") <= PHONE["width"]
    assert page.locator("td[data-label]").first.is_visible()


def test_it_can_be_used_by_keyboard(opened):
    page = opened()
    page.keyboard.press("Tab")
    skip = page.locator(".skip")
    assert skip.evaluate("one => one === document.activeElement")
    assert skip.bounding_box()["x"] >= 0
    page.keyboard.press("Enter")
    page.wait_for_function("location.hash === '#main'")  # fails if that takes long
    reached = set()
    for _ in range(60):
        page.keyboard.press("Tab")
        reached.add(page.evaluate("document.activeElement.tagName"))
    assert {"A", "INPUT", "SUMMARY", "BUTTON", "DIV"} <= reached


def test_it_prints(opened):
    page = opened(color_scheme="dark")
    page.emulate_media(media="print")
    assert background(page) == "rgb(255, 255, 255)"
    assert page.locator(".slider").first.is_hidden()
    assert page.locator("table").nth(1).is_visible()
    assert page.pdf().startswith(b"%PDF")


def test_hostile_names_are_only_text(opened):
    page = opened()
    assert page.locator("img, iframe, a[href^=javascript]").count() == 0
    assert page.locator("h3", has_text="<script>window.bad=1</script>").count() == 1
    names = page.locator("article h4")
    assert names.filter(has_text="<script>window.bad=1</script>").count() == 1
    assert names.filter(has_text="x" * 10_000).count() == 1
    assert page.evaluate("window.bad") is None
    assert "{{7*7}}" in page.locator("h3", has_text="window.bad").first.text_content()


def test_the_table_of_last_values_can_be_sorted(opened, tmp_path):
    for width, end in ((8, 10.0), (16, 9.0), (128, np.nan)):
        loss = {"train-loss": np.array([[20.0, 15.0, end]])}
        stored_run(tmp_path, f"m {width}", variables=loss, network={"kind": "two-layer", "width": width})
    page = opened(path=write_report(gather([tmp_path]), tmp_path / "report.html"))

    def order():
        return page.locator(".sortable tbody tr td:first-child").all_text_contents()

    assert order() == ["8", "16", "128"]
    heads = page.locator(".sortable th")
    heads.nth(0).locator("button").click()
    assert order() == ["8", "16", "128"], "by value and not as text"
    heads.nth(0).locator("button").click()
    assert (order(), heads.nth(0).get_attribute("aria-sort")) == (["128", "16", "8"], "descending")
    heads.nth(2).locator("button").press("Enter")
    assert order() == ["16", "8", "128"], "what has no value comes last"
    heads.nth(2).locator("button").press("Enter")
    assert order() == ["8", "16", "128"]
    assert heads.nth(0).get_attribute("aria-sort") is None


def test_a_figure_that_is_an_attack_is_harmless(opened, report):
    """Records may come from anywhere: what is in the SVG beside them must not act either."""
    folder = report.parent / "elsewhere"
    (folder / "panels").mkdir(parents=True)
    for path in (report.parent / "panels").glob("chen2022-fig1-quick.*"):
        text = path.read_text(encoding="utf-8")
        attack = '<script>window.bad=3</script><image href="x" onerror="window.bad=4"/><g onload="window.bad=5"/></svg>'
        if path.suffix == ".json":  # without checksums, as older records are
            text = json.dumps({name: one for name, one in json.loads(text).items() if name != "checksum"})
        (folder / "panels" / path.name).write_text(text.replace("</svg>", attack), encoding="utf-8")
    page = opened(path=write_report(gather([folder]), folder / "report.html"))
    assert page.locator(".plot svg").count() == 1
    assert page.evaluate("window.bad") is None


def test_the_watch_page_follows_runs(browser, tmp_path):
    def note(share):
        seen = {"train-loss": [1.0, 0.5]}
        given = {
            "digest": "0" * 12,
            "seeds": 1,
            "end": 10.0,
            "clock": 5.0,
            "begun": 0.0,
            "written": 1.0,
            "times": [0.0, 1.0],
        }
        whole = Note(name=HOSTILE, share=share, first_share=0.0, observed=seen, **given)
        (tmp_path / "x-000000000000.live.json").write_bytes(msgspec.json.encode(whole))

    note(0.25)
    server = make_server(tmp_path)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    context = browser.new_context(viewport=PHONE)
    try:
        page, seen = context.new_page(), []
        page.on("console", lambda message: seen.append(message.text))
        page.on("pageerror", lambda error: seen.append(str(error)))
        page.goto(f"http://127.0.0.1:{server.server_address[1]}/")
        assert page.locator("progress").get_attribute("value") == "0.25"
        assert page.locator(".spark path").last.bounding_box()["width"] > 100
        note(0.75)
        page.locator("progress[value='0.75']").wait_for()
        assert page.evaluate("document.scrollingElement.scrollWidth") <= PHONE["width"]
        assert page.evaluate("window.bad") is None
        assert seen == []
        axe = pytest.importorskip(
            "axe_playwright_python.sync_playwright", reason="axe is not here, so accessibility was not checked"
        )
        assert [one["id"] for one in axe.Axe().run(page).response["violations"]] == []
    finally:
        context.close()
        server.shutdown()
        server.server_close()


def test_reports_of_43_panels_fit_into_a_mail(report):
    """With figures as heavy as those of figure 8 of chen2022, 280 kB each as Matplotlib writes them."""
    contents = gather([report.parent])
    record = contents.records[0]
    path = re.search(r'<path d="M[^"]{500,}"[^>]*>', record.figure)[0]
    heavy = record.figure.replace(path, path * (280_000 // len(path)))
    contents.records = [msgspec.structs.replace(record, panel=f"a/fig{i}", figure=heavy) for i in range(43)]
    contents.runs = {}
    assert write_report(contents, report.parent / "many.html").stat().st_size < 10 * 2**20
