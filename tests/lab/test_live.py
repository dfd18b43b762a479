"""What a run tells on its way: right numbers, seldom, gone at the end, and never a reason to stop."""

import json
import threading

import pytest

from unlazy._errors import SkippedFile
from unlazy.lab import Lab, live, notes, parse, store_certificates, stored_certificates
from unlazy.lab.live import Note


@pytest.fixture
def recipe(table):
    return parse(table)


@pytest.fixture
def at_once(monkeypatch):
    monkeypatch.setattr(live, "_EVERY_SECONDS", 0.0)


def listening(folder):
    """A lab that reads its own notes whenever it tells something."""
    heard = []

    def tell(recipe, share, note):
        heard.extend(notes(folder))

    return Lab(folder, tell), heard


@pytest.mark.usefixtures("at_once")
def test_notes_say_how_far_a_run_is(tmp_path, recipe):
    lab, heard = listening(tmp_path)
    run = lab.run(recipe)
    assert heard
    assert {note.name for note in heard} == {recipe.name}
    assert {note.digest for note in heard} == {recipe.digest}
    shares = [note.share for note in heard]
    assert shares == sorted(shares)
    assert 0 <= shares[0] <= shares[-1] <= 1
    last = heard[-1]
    assert last.times == run["time"].values[: len(last.times)].tolist()
    assert len(last.times) > 1
    for name, values in last.observed.items():
        means = run[name].values.mean(axis=tuple(axis for axis in range(run[name].ndim) if axis != 1))
        assert values == pytest.approx(means[: len(values)], rel=1e-6)
    assert notes(tmp_path) == [], "the note goes when the run ends"


def test_a_short_run_says_nothing(tmp_path, recipe, monkeypatch):
    monkeypatch.setattr(live, "_EVERY_SECONDS", 600.0)  # on a busy machine two seconds are not enough
    lab, heard = listening(tmp_path)
    lab.run(recipe)
    assert heard == []


@pytest.mark.usefixtures("at_once")
def test_an_interrupted_run_says_no_more(tmp_path, recipe):
    def stop(recipe, share, note):
        if share > 0:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Lab(tmp_path, stop).run(recipe)
    assert notes(tmp_path) == []
    assert [path.name.endswith(".checkpoint") for path in tmp_path.iterdir() if path.is_file()] == [True]


@pytest.mark.usefixtures("at_once")
def test_a_disk_that_refuses_is_no_reason_to_stop(tmp_path, recipe, monkeypatch):
    def refuse(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(live, "replace", refuse)
    assert Lab(tmp_path).run(recipe).attrs["finished"]


def test_time_left_is_told_from_this_process():
    common = {"name": "x", "digest": "0", "seeds": 1, "end": 1.0, "clock": 0.5, "times": [], "observed": {}}
    note = Note(share=0.75, first_share=0.5, begun=100.0, written=110.0, **common)
    assert note.seconds_left == 10.0
    assert Note(share=0.5, first_share=0.5, begun=100.0, written=110.0, **common).seconds_left is None


def test_a_broken_note_is_left_out(tmp_path):
    (tmp_path / "x-0.live.json").write_text("{")
    assert notes(tmp_path) == []


class Said:
    """A certificate of some theorem."""

    def __init__(self, theorem, seed, verdict):
        self.row = {"theorem": theorem, "seed": seed, "verdict": verdict, "margin": 2.0, "why": "because"}

    def summary(self):
        return self.row


def test_nothing_that_theorems_said_is_lost_between_writers(tmp_path, recipe):
    def write(theorem):
        for seed in range(5):
            store_certificates(tmp_path, recipe, [Said(f"{theorem}/{seed}", seed, "HOLDS")])

    threads = [threading.Thread(target=write, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(stored_certificates(tmp_path)[0].findings) == 20


def test_what_theorems_said_is_kept_and_added_to(tmp_path, recipe):
    store_certificates(tmp_path, recipe, [Said("a/1", 0, "HOLDS"), Said("a/1", 1, "FAILS")])
    path = store_certificates(tmp_path, recipe, [Said("b/2", 0, "SILENT")])
    store_certificates(tmp_path, recipe, [Said("a/1", 0, "VACUOUS")])  # the last word counts
    (one,) = stored_certificates(tmp_path)
    assert [(row["theorem"], row["seed"], row["verdict"]) for row in one.findings] == [
        ("a/1", 0, "VACUOUS"),
        ("b/2", 0, "SILENT"),
    ]
    assert parse(json.loads(one.recipe)) == recipe
    path.write_text("{")
    with pytest.warns(SkippedFile, match=r"cannot be used .*: delete it and certify again"):
        assert stored_certificates(tmp_path) == []
