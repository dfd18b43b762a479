"""Records and reports: what is kept, that one file is all there is, and that no text can break out of it."""

import json
import os
import re
from pathlib import Path
from xml.etree import ElementTree

import msgspec
import numpy as np
import pytest
from drawn import HOSTILE, Drawn, Page

from made_up import Ready, random_labels
from unlazy._errors import Notice, SkippedFile, UserError
from unlazy._plain import unseal
from unlazy.lab import parse
from unlazy.papers import Claim, Outcome, compare
from unlazy.papers.outcomes import at_most, certain, undecided, vacuous
from unlazy.report import Contents, Record, records, reproduce, write_report
from unlazy.report.terminal import print_records, print_report


def kept(folder, **words):
    return reproduce(Drawn(**words), "quick", Ready(folder))


# ---------------------------------------------------------------- records


def test_a_record_says_what_came_of_a_panel(tmp_path):
    record = kept(tmp_path)
    assert (record.panel, record.scale, record.settings) == ("made2099/fig1", "quick", "small")
    assert record.seconds == 8 * 1.5
    assert 0 < record.judging < 60
    assert not record.fails
    assert set(record.recipes) == set(random_labels())
    assert {"versions", "commit", "device"} <= set(record.made_by)


def test_a_record_is_read_back_as_it_was(tmp_path):
    record = kept(tmp_path, text=HOSTILE, title=HOSTILE)
    assert records(tmp_path) == [record]
    assert sorted(os.listdir(tmp_path / "panels")) == ["made2099-fig1-quick.json", "made2099-fig1-quick.svg"]
    assert msgspec.json.decode(json.dumps(msgspec.to_builtins(record)), type=Record) == record


def test_each_panel_and_scale_has_a_record_of_its_own(tmp_path):
    lab = Ready(tmp_path)
    for key in ("a2099/fig1", "a2099/fig1.1", "a2099/fig1.2"):
        for scale in ("quick", "paper"):
            reproduce(Drawn(key=key), scale, lab)
    found = records(tmp_path)
    assert len({(record.panel, record.scale) for record in found}) == len(found) == 6
    reproduce(Drawn(key="a2099/fig1", holds=False), "quick", lab)  # the last verdict counts
    assert [
        not record.fails for record in records(tmp_path) if (record.panel, record.scale) == ("a2099/fig1", "quick")
    ] == [False]


def test_the_summary_is_what_the_command_line_promises(tmp_path):
    summary = kept(tmp_path).summary()
    assert list(summary) == ["panel", "scale", "seconds", "seeds", "usual_seeds", "claims", "references"]
    assert summary["claims"] == [
        {
            "text": "it falls",
            "paper": "it falls",
            "measured": "it falls",
            "outcome": "holds",
            "test": "direct comparison",
            "agree": 0,
            "seeds": 0,
            "weaker": False,
            "hindsight": False,
        }
    ]
    json.dumps(summary)


class Counted(Drawn):
    """A panel with proper recipes, of five seeds unless told otherwise, whose runs are made up."""

    numbers = ()

    def recipes(self, scale, seeds=None):
        recipe = {"name": "x", "data": "random-labels", "network": "two-layer", "flow": "descent", "times": [0.0]}
        return {"one": parse(recipe | {"seeds": seeds or 5}), "same": parse(recipe | {"seeds": seeds or 5})}

    def references(self, results):
        return list(self.numbers)


class Given(Ready):
    """A lab that gives made-up results for recipes."""

    def run_all(self, recipes, workers=1):
        made = next(iter(random_labels().values()))
        return {label: made.assign_attrs(recipe=recipe.json()) for label, recipe in recipes.items()}


def test_other_seeds_are_mentioned(tmp_path, capsys):
    usual, fewer, more = (reproduce(Counted(), "quick", Given(tmp_path), seeds) for seeds in (None, 2, 9))
    assert [(one.seeds, one.usual_seeds) for one in (usual, fewer, more)] == [(5, 5), (2, 5), (9, 5)]
    assert [one.fewer_seeds for one in (usual, fewer, more)] == ["", "run with 2 seeds, fewer than the panel's 5", ""]
    assert (usual.settings, more.settings) == ("small", "small (run with seeds = 9)")
    page = Page(write_report([fewer], tmp_path / "r.html"))
    assert "Seeds: 0 to 1 (run with 2 seeds, fewer than the panel's 5)." in page.text
    print_records([fewer], False)
    assert "run with 2 seeds, fewer than the panel's 5" in capsys.readouterr().out


def test_older_records_say_how_many_seeds_they_have(tmp_path):
    reproduce(Counted(), "quick", Given(tmp_path), seeds=2)
    (path,) = (tmp_path / "panels").glob("*.json")
    older = unseal(json.loads(path.read_text()))[0]
    for name in ("seeds", "usual_seeds", "references"):
        del older[name]
    for settings, usual in (("m = 8, 5 seeds (run with seeds = 2)", 5), ("2 seeds", 2), ("m = 8", 2)):
        path.write_text(json.dumps(older | {"settings": settings}))
        (record,) = records(tmp_path)
        assert (record.seeds, record.usual_seeds, record.references) == (2, usual, None)
        assert record.summary()["references"] == []


NUMBERS = (
    compare("loss at the end", np.array([1.0, 1.1, 0.9]), 1.02, "Table <1>", setting="m = 8"),
    compare("loss at the end", np.array([1.0, 1.1, 0.9]), 3.0, "Table <1>", setting="m = 64"),
    compare("rate", np.array([2.0]), 1.0, "the text"),
)


def test_numbers_of_the_authors_are_stored_and_shown(tmp_path, capsys):
    record = reproduce(Counted(numbers=NUMBERS), "quick", Given(tmp_path))
    assert records(tmp_path) == [record]
    assert record.references == list(NUMBERS)
    json.dumps(record.summary())
    shown = record.summary()["references"]
    assert [one["agreement"] for one in shown] == ["agrees", "differs", "undecided"]
    assert shown[0]["authors"] == 1.02
    assert shown[0]["ours"] == pytest.approx(1.0)
    page = Page(write_report([record], tmp_path / "r.html")).text
    words = ("differs", "loss at the end, m = 64", "1 ± 0.1", "Table <1>", "0.33 times, -20 SD", "one seed shows no")
    assert all(one in page for one in words)
    print_records([record], False)
    printed = " ".join(capsys.readouterr().out.split())
    assert "the authors' numbers" in printed
    assert "differs" in printed
    print_report(Contents(records=[record]), tmp_path / "r.html", True)
    assert json.loads(capsys.readouterr().out)["references"] == {"agrees": 1, "differs": 1, "undecided": 1}


def test_one_claim_that_fails_is_enough():
    claims = [Claim("a", "a", "a", True), Claim("b", "b", "b", False)]
    empty = dict.fromkeys(("panel", "title", "settings", "caption", "figure"), "")
    record = Record(**empty, scale="quick", seconds=0.0, claims=claims, recipes={}, made_by={})
    assert record.fails


def test_nothing_was_reproduced_in_an_empty_folder(tmp_path):
    assert records(tmp_path) == records(tmp_path / "nowhere") == []


def test_a_cut_record_is_named(tmp_path):
    kept(tmp_path)
    path = tmp_path / "panels" / "made2099-fig1-quick.json"
    whole = path.read_bytes()
    for content in (b"", whole[: len(whole) // 2], b"[]", b'{"panel": 3}', bytes(range(256))):
        path.write_bytes(content)
        with pytest.warns(
            SkippedFile,
            match=r"'.*fig1-quick.json' is not a complete record .*: delete it and reproduce the panel again",
        ):
            assert records(tmp_path) == []


def test_the_figure_is_whole_svg(tmp_path):
    kept(tmp_path, text=HOSTILE)
    path = tmp_path / "panels" / "made2099-fig1-quick.svg"
    tree = ElementTree.parse(path)
    assert tree.getroot().tag == "{http://www.w3.org/2000/svg}svg"
    assert not [element for element in tree.iter() if element.tag.endswith("script")]
    texts = "".join(tree.getroot().itertext())
    assert HOSTILE[:50] in texts, "text stays text"


def test_the_same_results_give_the_same_file(tmp_path):
    one, other = (kept(tmp_path / name).figure for name in "ab")
    assert one == other


def test_figures_keep_the_house_style(tmp_path, monkeypatch):
    """Whatever style the user's own Matplotlib has: lines, legend and text are those of the house."""
    import matplotlib as mpl

    seen = {}
    draw = Drawn.draw

    def looking(self, results):
        figure = draw(self, results)
        (axes,) = figure.axes
        seen.update(width=axes.get_lines()[0].get_linewidth(), frame=axes.get_legend().get_frame_on())
        return figure

    monkeypatch.setattr(Drawn, "draw", looking)
    with mpl.rc_context({"lines.linewidth": 9.0, "legend.frameon": True, "svg.fonttype": "path"}):
        figure = kept(tmp_path).figure
    assert seen == {"width": 1.8, "frame": False}
    assert "<text" in figure


def test_a_record_that_cannot_be_written_leaves_no_half_file(tmp_path, monkeypatch):
    kept(tmp_path, text="older")
    before = {path.name: path.read_bytes() for path in (tmp_path / "panels").iterdir()}

    def refuse(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", refuse)
    with pytest.raises(UserError, match=r"The record of made2099/fig1 cannot be written .*\(No space left on device\)"):
        kept(tmp_path, text="newer")
    assert {path.name: path.read_bytes() for path in (tmp_path / "panels").iterdir()} == before


def test_a_folder_that_can_only_be_read_does_not_stop_a_panel(tmp_path, monkeypatch):
    monkeypatch.setattr("os.access", lambda *_: False)
    (tmp_path / "panels").touch()
    with pytest.warns(Notice, match=r"The record of made2099/fig1 cannot be written"):
        kept(tmp_path)


def test_a_folder_that_cannot_be_is_named(tmp_path):
    (tmp_path / "panels").touch()
    with pytest.raises(UserError, match=r"The record of made2099/fig1 cannot be written to '.*panels' \(.+\)"):
        kept(tmp_path)


# ---------------------------------------------------------------- the report


def test_the_report_is_one_file_that_needs_no_other(tmp_path):
    path = write_report(
        [kept(tmp_path / "runs"), kept(tmp_path / "more", holds=False)], tmp_path / "new" / "report.html"
    )
    assert os.listdir(path.parent) == ["report.html"]
    page = Page(path)
    assert not re.search(r"https?:|//\S", page.source)  # a comment of the script has a space there
    assert all(reference.startswith("#") for reference in page.references)
    chen = kept(tmp_path / "papers", key="chen2022/fig1")
    linked = Page(write_report([chen], tmp_path / "linked.html"))
    outside = [reference for reference in linked.references if not reference.startswith("#")]
    assert outside == ["https://arxiv.org/abs/2204.10782"], "a link to follow, and nothing that is fetched"
    assert not {"link", "img", "iframe", "object", "embed", "base", "form"} & set(page.tags)
    assert page.tags.count("script") == 1
    assert "@import" not in page.source
    assert "default-src 'none'" in page.source


def test_the_report_says_it_all(tmp_path):
    recipe = '{"seed": 3, "seeds": 2, "name": "x"}'
    done = [kept(tmp_path, title="First", recipe=recipe), kept(tmp_path, title="Second", holds=False)]
    page = Page(write_report(done, tmp_path / "report.html"))
    assert "1 of 2 claims hold" in page.text
    assert "in 2 panels; computing time 24 s." in page.text
    assert page.tags.count("svg") == 2
    for words in ("First", "Second", "made2099/fig1 at quick scale: small", "Made up.", "it falls", "versions: unlazy"):
        assert words in page.text
    assert "unlazy reproduce made2099/fig1 --scale quick" in page.text
    assert page.tags.count("tr") == 3 + 2 * 2  # the overview and two tables of claims, with their heads
    assert page.text.count("does not hold") == 1 + 3  # in its row, and in three summaries
    for words in ("A plot of it falls", "Seeds: 3 to 4.", 'name = "x" seed = 3 seeds = 2', "not checked"):
        assert words in page.text


def test_a_report_of_nothing_is_a_report(tmp_path):
    text = Page(write_report([], tmp_path / "report.html")).text
    assert "0 runs" in text
    assert "claims" not in text


def test_papers_are_introduced(tmp_path):
    done = [kept(tmp_path, key="caron2023/fig1"), kept(tmp_path, key="made2099/fig1")]
    page = Page(write_report(done, tmp_path / "report.html"))
    for words in (
        "Over-parameterised Shallow Neural Networks with Asymmetrical Node Scaling",
        "François Caron, Fadhel Ayed, Paul Jung, Hoil Lee, Juho Lee, Hongseok Yang (2025)",
        "Transactions on Machine Learning Research, arXiv:2302.01002.",
        "Giving the nodes of a shallow network unequal sizes",
        "made2099 (2099)",  # nothing is known of it but its key
    ):
        assert words in page.text


def test_ids_of_two_figures_do_not_meet(tmp_path):
    page = Page(write_report([kept(tmp_path), kept(tmp_path)], tmp_path / "report.html"))
    assert len(page.ids) > 20
    assert len(set(page.ids)) == len(page.ids)
    targets = {reference.removeprefix("#") for reference in page.references}
    assert len(targets) > 4
    assert targets <= set(page.ids), "a reference leads nowhere"
    for prefix in ("p0-", "p1-"):
        assert any(target.startswith(prefix) for target in targets)


def test_hostile_text_is_only_text(tmp_path):
    names = ("title", "caption", "text")
    record = kept(tmp_path, **dict.fromkeys(names, HOSTILE), scales={"quick": HOSTILE, "paper": ""})
    page = Page(write_report([record], tmp_path / "report.html"))
    plain = Page(write_report([kept(tmp_path)], tmp_path / "plain.html"))
    assert page.tags == plain.tags, "hostile text has made elements of its own"
    assert page.ids == plain.ids
    assert "p0-" not in page.text, "an id was changed in what is shown"
    assert "{{ 7 * 7 }}" in page.text
    assert "49" not in page.text.partition("{{ 7 * 7 }}")[2][:40]
    assert page.text.count(" ".join(HOSTILE.split())) >= 6  # title, settings, caption, and the claim thrice


def test_a_long_text_stays_whole(tmp_path):
    long = "word " * 2000
    page = Page(write_report([kept(tmp_path, title=long, text=long, caption=long)], tmp_path / "report.html"))
    assert page.text.count("word word") >= 4000


def test_a_report_that_cannot_be_written_leaves_no_half_file(tmp_path, monkeypatch):
    record = kept(tmp_path / "runs")
    path = write_report([], tmp_path / "here" / "report.html")
    before = path.read_bytes()

    def refuse(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("os.replace", refuse)
        with pytest.raises(UserError, match=r"The report cannot be written to '.*' \(No space left on device\)"):
            write_report([record], path)
    assert os.listdir(path.parent) == ["report.html"]
    assert path.read_bytes() == before


def test_a_place_where_no_file_can_be_is_named(tmp_path):
    (tmp_path / "file").touch()
    for path in (tmp_path / "file" / "report.html", tmp_path / "file" / "deeper" / "report.html"):
        with pytest.raises(UserError, match=r"The report cannot be written to '.*report.html' \(.+\)"):
            write_report([], path)
    for folder in (tmp_path, Path("."), Path("/")):
        with pytest.raises(UserError, match="which is a folder: give the name of a file"):
            write_report([], folder)


def test_records_from_before_there_were_four_outcomes_are_read(tmp_path):
    kept(tmp_path)
    (path,) = (tmp_path / "panels").glob("*.json")
    content = unseal(json.loads(path.read_text()))[0]
    for claim in content["claims"]:
        del claim["judged"]
        claim["holds"] = False
    path.write_text(json.dumps(content))
    (record,) = records(tmp_path)
    assert record.fails
    assert record.claims[0].outcome is Outcome.FAILS


EACH = (certain(True), certain(False), vacuous("nothing could fail"), undecided("too few seeds"))


def test_all_four_outcomes_are_kept_and_shown(tmp_path, capsys):
    class Four(Drawn):
        def claims(self, results):
            return [Claim(one.outcome.name, "p", "m", one) for one in EACH]

    record = reproduce(Four(), "quick", Ready(tmp_path))
    words = [one.value for one in Outcome]
    assert [claim["outcome"] for claim in record.summary()["claims"]] == words
    assert [claim.outcome for claim in records(tmp_path)[0].claims] == [one.outcome for one in EACH] == list(Outcome)
    said = "1 of 4 claims hold (1 does not hold, 1 undecided, 1 vacuous)"
    page = Page(write_report([record], tmp_path / "r.html"))
    assert said in page.text
    assert all(word in page.text for word in (*words, "nothing could fail", "too few seeds"))
    print_records([record], False)
    told = " ".join(capsys.readouterr().out.split())
    assert said in told
    assert all(word in told for word in words)


@pytest.mark.parametrize("one", EACH, ids=lambda one: one.outcome.name)
def test_only_a_claim_that_does_not_hold_makes_a_record_fail(tmp_path, one):
    class Single(Drawn):
        def claims(self, results):
            return [Claim("a", "b", "c", one)]

    assert reproduce(Single(), "quick", Ready(tmp_path)).fails is (one.outcome is Outcome.FAILS)


def test_a_claim_says_what_its_outcome_rests_on():
    judged = at_most(np.array([1.0, 3.0]), 2.0)
    claim = Claim("a", "b", "c", judged, weaker=True, hindsight=True)
    assert claim.outcome is Outcome.UNDECIDED
    assert not claim.holds
    assert not claim.fails
    assert claim.basis == (
        "every seed against the threshold; 1 of 2 seeds agree; a weaker statement than the paper's; fixed after its "
        "outcome had been seen"
    )
