"""The store: what a file holds, that it opens anywhere, and that it appears whole or not at all."""

import importlib.metadata
import json
import os
import re
import subprocess

import numpy as np
import pytest
import xarray as xr

from unlazy._errors import UserError
from unlazy._files import atomic_write, reason
from unlazy.flows import OnlyAtEnd
from unlazy.lab import Lab, Store, made_by, parse, provenance, read_run
from unlazy.lab.identity import Identity
from unlazy.lab.store import assemble
from unlazy.lab.tracks import Track

TIMES = np.array([0.0, 0.5, 2.0])


def track(seed, status="finished", times=3):
    """What a seed of three observations would give, without running it."""
    values = np.arange(3.0) + 10 * seed
    last = {"steps": 7 + seed, "rejected": seed, "evaluations": 21, "error": 0.1}
    observed = {
        "train-loss": {i: {(): values[i]} for i in range(times)},
        "weight-movement": {i: {("hidden",): np.array([values[i], 2 * values[i]])} for i in range(times)},
        "kernel": {i: {("deep", "drift"): np.float32(values[i])} for i in range(times)},
        "pruning": {2: {(): np.array([1.0, 2.0])}} if times == 3 else {},
    }
    return Track(
        asked=TIMES[:times],
        reached=TIMES[:times],
        merged=[],
        counters={name: [0.0] * (times - 1) + [count] for name, count in last.items()},
        status=status,
        last=last,
        method="descent, coordinates: weights, precision: full",
        seconds=1.5,
        made_by=provenance(),
        observed=observed,
        snapshots={},
        state=[],
    )


def assembled(tracks):
    probes = {"train-loss": print, "weight-movement": print, "kernel": print, "pruning": OnlyAtEnd(print)}
    return assemble(tracks, Identity({}, probes, {label: label for label in probes}, TIMES, ""))


def files(folder):
    return sorted(path.name for path in folder.iterdir() if path.is_file())


@pytest.fixture
def recipe(table):
    return parse(table | {"seed": 4})


@pytest.fixture
def run(recipe):
    made = assembled({4: track(4), 5: track(5)})
    return made.assign_attrs(recipe=recipe.json(), name=recipe.name, digest=recipe.digest)


@pytest.fixture
def store(tmp_path):
    made = Store(tmp_path / "runs")
    made.prepare()
    return made


def test_dimensions_are_seed_and_time_first(run):
    assert run["train-loss"].dims == ("seed", "time")
    assert run["weight-movement.hidden"].dims == ("seed", "time", "weight-movement.hidden_0")
    assert run["kernel.deep.drift"].dims == ("seed", "time")
    np.testing.assert_array_equal(run["seed"], [4, 5])
    np.testing.assert_array_equal(run["time"], [0.0, 0.5, 2.0])
    np.testing.assert_array_equal(run["weight-movement.hidden"].sel(seed=5, time=0.5), [51.0, 102.0])
    assert run["kernel.deep.drift"].dtype == np.float32


def test_a_file_opens_without_this_package(store, recipe, run):
    path = store.save(recipe, run)
    with xr.open_dataset(path) as opened:
        xr.testing.assert_equal(opened.load(), run)
        attributes = opened.attrs
    assert json.loads(attributes["recipe"]) == json.loads(recipe.json())
    assert parse(json.loads(attributes["recipe"])) == recipe
    assert (attributes["name"], attributes["digest"]) == (recipe.name, recipe.digest)
    assert list(attributes["status"]) == ["finished", "finished"]
    assert list(attributes["steps"]) == [11, 12]
    assert attributes["method"].startswith("descent")
    assert attributes["finished"] == 1
    assert attributes["seconds"] == 3.0


def test_a_file_says_what_made_it(run):
    made = provenance()
    assert {"versions", "python", "commit", "device", "machine", "written"} <= set(made) <= set(run.attrs)
    for library in ("unlazy", "jax", "jaxlib", "diffrax", "numpy"):
        assert f"{library} {importlib.metadata.version(library)}" in made["versions"]
    assert re.fullmatch(r"unknown|[0-9a-f]{12}( \(changed\))?", made["commit"])
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", made["written"])
    assert re.fullmatch(r"[0-9a-f]{12}", made["code"])
    assert json.loads(run.attrs["recipe"])["dtype"] == "float64"
    assert json.loads(run.attrs["recipe"])["seed"] == 4


def test_an_early_end_is_not_called_finished_and_leaves_gaps():
    run = assembled({4: track(4), 5: track(5, "diverged", times=2)})
    assert run.attrs["finished"] == 0
    assert run.attrs["status"] == ["finished", "diverged"]
    np.testing.assert_array_equal(run["train-loss"], [[40.0, 41.0, 42.0], [50.0, 51.0, np.nan]])
    np.testing.assert_array_equal(run["pruning"], [[1.0, 2.0], [np.nan, np.nan]])


def test_a_run_is_named_by_what_it_is(store, recipe, table):
    assert store.path(recipe).name == f"tiny-{recipe.digest}.nc"
    assert store.checkpoint(recipe).name == f"tiny-{recipe.digest}.checkpoint"
    for name in ("../../etc/passwd", "a/b", "Ünlazy: m = 8.5!", "", "..", "x" * 5000, "con.nc", "\x00"):
        path = store.path(parse(table | {"name": name}))
        assert path.parent == store.folder
        assert re.fullmatch(r"[a-z0-9-]{1,60}-[0-9a-f]{12}\.nc", path.name)


def test_what_was_saved_is_loaded(store, recipe, run):
    assert store.load(recipe) is None
    store.save(recipe, run)
    loaded = store.load(recipe)
    xr.testing.assert_equal(loaded, run)
    assert loaded.attrs["digest"] == recipe.digest
    assert files(store.folder) == [store.path(recipe).name]


def test_a_full_disk_costs_nothing_but_the_file(store, recipe, run, full_disk):
    store.checkpoint(recipe).write_bytes(b"state")
    with full_disk(), pytest.raises(UserError, match=r"The result cannot be written to '.*' \(.+\): free some space"):
        store.save(recipe, run)
    assert files(store.folder) == [store.checkpoint(recipe).name]
    assert store.checkpoint(recipe).read_bytes() == b"state"


def test_a_failing_rename_leaves_the_older_file(store, recipe, run, monkeypatch):
    store.save(recipe, run)

    def refuse(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", refuse)
    with pytest.raises(UserError, match=r"\(No space left on device\)"):
        store.save(recipe, run * 2)
    assert files(store.folder) == [store.path(recipe).name]
    xr.testing.assert_equal(store.load(recipe), run)


def test_an_interruption_while_writing_leaves_nothing(tmp_path):
    def stopped():
        with atomic_write(tmp_path / "file") as temporary:
            temporary.write_text("half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        stopped()
    assert os.listdir(tmp_path) == []


def test_a_cut_file_is_called_so(store, recipe, run):
    path = store.save(recipe, run)
    whole = path.read_bytes()
    for size in (0, 10, 600, len(whole) // 2, len(whole) - 200):
        path.write_bytes(whole[:size])
        with pytest.raises(
            UserError,
            match=r"is (cut short or damaged|not a stored run, or damaged in its first bytes) \(\w+\): delete it",
        ):
            store.load(recipe)


def test_another_file_is_not_taken_for_a_run(tmp_path):
    xr.Dataset({"a": ("x", [1.0])}).to_netcdf(tmp_path / "foreign.nc", engine="h5netcdf")
    with pytest.raises(UserError, match="is not a run stored by unlazy"):
        read_run(tmp_path / "foreign.nc")
    (tmp_path / "text.nc").write_text("hello")
    with pytest.raises(UserError, match="is not a stored run"):
        read_run(tmp_path / "text.nc")
    with pytest.raises(UserError, match="is not a stored run"):
        read_run(tmp_path)
    with pytest.raises(UserError, match="There is no stored run at"):
        read_run(tmp_path / "nowhere.nc")


def test_a_folder_that_cannot_be_is_noticed_at_once(tmp_path):
    (tmp_path / "file").touch()
    for folder in (tmp_path / "file", tmp_path / "file" / "runs"):
        with pytest.raises(UserError, match=r"Results cannot be written to '.*' \(.+\): choose another --out"):
            Store(folder).prepare()


def test_preparing_leaves_no_trace(store):
    store.prepare()
    assert files(store.folder) == []
    assert os.listdir(store.folder / "trajectories") == []


def test_what_killed_processes_left_is_cleared_away(store):
    for folder in (store.folder, store.folder / "trajectories"):
        for name in (".old.part", ".new.part"):
            (folder / name).touch()
        os.utime(folder / ".old.part", (0, 0))
    store.prepare()
    for folder in (store.folder, store.folder / "trajectories"):
        assert [path.name for path in folder.glob(".*")] == [".new.part"]


def test_reasons_are_the_systems_own_words():
    assert reason(OSError(28, "No space left on device")) == "No space left on device"
    assert reason(OSError("unable to lock file")) == "unable to lock file"
    assert reason(RuntimeError()) == "RuntimeError"


def test_a_commit_is_that_of_this_file_and_not_of_a_project_around_it(tmp_path, monkeypatch):
    def git(*arguments):
        identity = ["-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "commit.gpgsign=false"]
        return subprocess.run(["git", *identity, *arguments], cwd=tmp_path, capture_output=True, text=True, check=True)

    file = tmp_path / "site-packages" / "made_by.py"
    file.parent.mkdir()
    file.write_text("")
    git("init")
    (tmp_path / "own.py").write_text("")
    git("add", "own.py")
    git("commit", "-m", "Another project")
    monkeypatch.setattr(made_by, "__file__", str(file))
    assert made_by._commit.__wrapped__() == "unknown"
    git("add", "site-packages")
    git("commit", "-m", "Its own project")
    assert made_by._commit.__wrapped__() == git("rev-parse", "--short=12", "HEAD").stdout.strip()


def test_a_folder_that_cannot_be_written_to_can_be_read(tmp_path, table, monkeypatch):
    known, new = parse(table), parse(table | {"seed": 9})
    stored = Lab(tmp_path).run(known)
    before = sorted(tmp_path.rglob("*"))

    def refuse(folder, what, option):
        raise UserError(f"{what} cannot be written to '{folder}': choose another {option}.")

    monkeypatch.setattr("unlazy.lab.store.writable", refuse)
    monkeypatch.setattr("unlazy.lab.claims.create", refuse)
    xr.testing.assert_identical(Lab(tmp_path).run(known), stored)
    assert Lab(tmp_path).run_all([known]).keys() == {known.name}
    assert len(Lab(tmp_path).trajectories(known)) == known.seeds
    with pytest.raises(UserError, match="cannot be written"):
        Lab(tmp_path).run(new)
    assert sorted(tmp_path.rglob("*")) == before
