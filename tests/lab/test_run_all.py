"""Many recipes: in turn, in worker processes, and in several processes on one folder."""

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from unlazy._errors import UserError
from unlazy.flows import Driver
from unlazy.lab import Lab, OtherCode, engines, parse, schedule

TABLE = {
    "data": {"kind": "random-labels", "n": 6, "d": 3},
    "network": {"kind": "two-layer", "width": 8},
    "times": [0.0, 0.5, 1.0, 2.0],
    "probes": ["train-loss"],
}
SOURCE = str(Path(__file__).parents[2] / "src")


@pytest.fixture(autouse=True)
def found_by_workers(monkeypatch):
    """Worker processes import the unlazy that is tested."""
    monkeypatch.syspath_prepend(SOURCE)


def recipes(table, count, **changes):
    """Recipes of one shape, which compile once."""
    rates = [0.25 / (1 + index) for index in range(count)]
    return {
        f"rate {rate:g}": parse(table | {"name": f"r{index}", "flow": {"kind": "descent", "rate": rate}} | changes)
        for index, rate in enumerate(rates)
    }


def test_in_turn(tmp_path, table):
    told = []
    lab = Lab(tmp_path / "runs", lambda recipe, share, note: told.append(recipe.name))
    wanted = recipes(table, 3)
    found = lab.run_all(wanted)
    assert list(found) == list(wanted)
    for label, run in found.items():
        alone = Lab(tmp_path / "alone").run(wanted[label])
        np.testing.assert_allclose(run["train-loss"], alone["train-loss"], rtol=1e-13)  # sums in another order
    assert set(told) == {"r0", "r1", "r2"}


def test_equal_recipes_are_run_once(tmp_path, table, monkeypatch):
    begun = []
    real = Driver.begin.__func__
    monkeypatch.setattr(Driver, "begin", classmethod(lambda cls, *given: begun.append(1) or real(cls, *given)))
    one = parse(table)
    found = Lab(tmp_path).run_all({"a": one, "b": one, "c": parse(table | {"name": "renamed"})})
    assert list(found) == ["a", "b", "c"]
    assert len(begun) == 1


def test_a_list_is_labelled_by_names(tmp_path, table):
    one = parse(table)
    assert list(Lab(tmp_path).run_all([one, one])) == ["tiny"]
    with pytest.raises(UserError, match="Two different recipes are called 'tiny'"):
        Lab(tmp_path).run_all([one, parse(table | {"seed": 5})])


def test_a_wrong_recipe_is_found_before_anything_is_run(tmp_path, table):
    for section, kind in (("network", "two-layer"), ("flow", "descent")):
        wrong = {section: {"kind": kind, "widht": 8}}
        recipes = {"right": parse(table), "wrong": parse(table | wrong)}
        with pytest.raises(UserError, match=rf"^wrong: {section}: there is no option 'widht'\. (Did|Known)"):
            Lab(tmp_path / "runs").run_all(recipes)
    assert not (tmp_path / "runs").exists()


def failing(table):
    table = table | {"times": [1e5], "flow": {"kind": "descent", "rate": 1e3}, "name": "failing"}
    return parse(table | {"network": {"kind": "two-layer", "width": 8, "activation": "linear"}})


def test_one_that_fails_does_not_stop_the_others(tmp_path, table):
    wanted = {"bad": failing(table), "good": parse(table)}
    with pytest.raises(UserError, match=r"1 of 2 runs failed, and the others are stored\. bad: .*first observation"):
        Lab(tmp_path).run_all(wanted)
    assert Lab(tmp_path).store.path(wanted["good"]).exists()


def test_runs_that_fail_with_the_same_words_are_counted():
    error, other = UserError("there is no x."), UserError("too large.")
    assert schedule._failures({"a": error, "b": None, "c": error, "d": other}) == (
        "3 of 4 runs failed, and the others are stored. a and 1 more: there is no x. d: too large."
    )
    assert schedule._failures(dict.fromkeys("abc", error)) == "All 3 runs failed. a and 2 more: there is no x."
    different = {str(index): UserError(f"error {index}.") for index in range(7)}
    assert schedule._failures(different).endswith("4: error 4. And 2 more.")


def test_workers_share_the_work_and_report_what_goes_wrong(tmp_path, table, monkeypatch):
    wanted = recipes(table, 4) | {"bad": failing(table)}
    # It observes the same trajectories as r0: one of the workers waits for the other, then continues.
    wanted["longer"] = parse(table | {"name": "longer", "times": [0.0, 0.5, 1.0, 2.0, 3.0], "probes": ["kernel"]})
    wanted["deadly"] = parse(table | {"name": "deadly", "network": {"kind": "two-layer", "width": 9}})
    told, killed, receive = set(), [], engines.Member.receive
    lab = Lab(tmp_path / "runs", lambda recipe, share, note: told.add((recipe.name, note)))
    older = lab.run(wanted["rate 0.0625"])
    lab.store.save(wanted["rate 0.0625"], older.assign_attrs(versions="unlazy 0.0.1"))  # as another version would

    def killing(self):
        message = receive(self)
        if message == ("begun",) and wanted["deadly"].digest in self.task.recipes:
            killed.append((self.process.pid, len(self.task.recipes)))
            self.process.send_signal(signal.SIGKILL)
        return message

    monkeypatch.setattr(engines.Member, "receive", killing)
    with (
        pytest.warns(OtherCode, match=r"'r3' was computed by unlazy 0\.0\.1"),
        pytest.raises(UserError, match=r"2 of 7 runs failed, and the others are stored\. ") as error,
    ):
        lab.run_all(wanted, workers=2)
    assert "deadly: 'deadly' ended its worker 3 times (most recently by signal SIGKILL) and is not tried again" in str(
        error.value
    )
    assert "bad: 'failing' failed before its first observation" in str(error.value)
    # No other recipe has its width, so it is a task of its own from the beginning: three workers, and no fourth.
    assert [size for _, size in killed] == [1, 1, 1]
    assert len({pid for pid, _ in killed}) == 3, "each worker that was killed was another one"
    assert {name for name, note in told if note.startswith("t = ")} >= {"r0", "r2", "longer"}
    stored = {name for name, one in wanted.items() if lab.store.path(one).exists()}
    assert stored == wanted.keys() - {"bad", "deadly"}
    for label in ("rate 0.25", "rate 0.0833333", "longer"):
        run, whole = lab.run(wanted[label]), Lab(tmp_path / "alone").run(wanted[label])
        for name in whole.data_vars:  # with another number of cores sums are rounded in another order
            np.testing.assert_allclose(run[name], whole[name], rtol=1e-9, atol=1e-12)


def test_ctrl_c_stops_all_workers_and_loses_nothing(tmp_path, table):
    table["times"] = [0.0, *(5.0 * step for step in range(1, 501))]
    wanted = recipes(table, 2, probes=["train-loss"])

    def stop(recipe, share, note):
        if 0.1 < share < 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt, match="0 of 2 runs are stored, and the same command continues from there"):
        Lab(tmp_path / "runs", stop).run_all(wanted, workers=2)
    store = Lab(tmp_path / "runs").store
    assert any(store.checkpoint(one).exists() for one in wanted.values())
    assert not list((store.folder / "trajectories").iterdir()), "no claims are left"
    found = Lab(tmp_path / "runs").run_all(wanted)
    for label, run in found.items():
        whole = Lab(tmp_path / "alone").run(wanted[label])
        np.testing.assert_allclose(run["train-loss"], whole["train-loss"], rtol=1e-9)
    assert not list(store.folder.glob("*.checkpoint"))


# Four processes (forked, so that the libraries are imported once; JAX has not started) run 20 recipes on one folder, of
# five shapes, so that four run together. Each notes when it begins to compute and when it has stored; one of them may
# be told to die in between.
SCRIPT = """
import json, os, signal, sys
from pathlib import Path
from unlazy.flows import Driver
from unlazy.lab import Lab, Store, parse

folder, table = Path(sys.argv[1]), json.loads(sys.argv[2])
recipes = [
    parse(
        table
        | {"name": f"r{index}", "network": {"kind": "two-layer", "width": 4 + index % 5}}
        | {"flow": {"kind": "descent", "rate": 0.25 / (1 + index)}}
    )
    for index in range(20)
]
begin, save, begun = Driver.begin.__func__, Store.save_track, 0


def work(folder, dies):
    def note(what):
        with open(folder / "log", "ab", buffering=0) as file:
            file.write(f"{what} {os.getpid()}\\n".encode())

    def beginning(cls, methods, networks, *given):
        global begun
        begun += 1
        note(f"begin:{len({id(one) for one in networks})}")  # rows that fill up a call repeat the first
        if dies and begun == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return begin(cls, methods, networks, *given)

    def saving(self, trajectory, track):
        found = save(self, trajectory, track)
        note("save:" + trajectory)
        return found

    Driver.begin, Store.save_track = classmethod(beginning), saving
    assert len(Lab(folder / "runs").run_all(recipes)) == 20


for name, dies in (("all live", False), ("one is killed", True)):
    (folder / name).mkdir()
    children = []
    for index in range(4):
        child = os.fork()
        if not child:
            work(folder / name, dies and index == 0)
            os._exit(0)
        children.append(child)
    ends = [[child, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])] for child in children]
    (folder / name / "ends").write_text(json.dumps(ends))
"""


@pytest.fixture(scope="module")
def four_processes(tmp_path_factory):
    folder = tmp_path_factory.mktemp("shared")
    (folder / "script.py").write_text(SCRIPT)
    subprocess.run(
        [sys.executable, "-W", "ignore", str(folder / "script.py"), str(folder), json.dumps(TABLE)],
        env=os.environ | {"PYTHONPATH": SOURCE},
        check=True,
        timeout=300,
    )
    return folder


@pytest.mark.parametrize("name", ["all live", "one is killed"])
def test_four_processes_on_one_folder_compute_each_recipe_once(four_processes, name):
    folder = four_processes / name
    ends = json.loads((folder / "ends").read_text())
    killed = [pid for pid, status in ends if status == -signal.SIGKILL]
    assert len(killed) == (name == "one is killed")
    assert [status for pid, status in ends if pid not in killed] == [0] * (4 - len(killed))
    lines = [line.split() for line in (folder / "log").read_text().splitlines()]
    saved = Counter(what for what, _ in lines if what.startswith("save:"))
    assert len(saved) == 20
    assert set(saved.values()) == {1}, "each was stored once"
    begun = [(int(what.removeprefix("begin:")), int(pid)) for what, pid in lines if what.startswith("begin:")]
    # Each recipe is begun once, and those of the call that was killed once more. How many calls there are depends on
    # chance: a call has the four recipes of a shape, or those of them that no other process has claimed before.
    again = [count for count, pid in begun if pid in killed]
    assert len(again) == len(killed), "it died in its first call"
    assert sum(count for count, _ in begun) == 20 + sum(again)
    # Between two calls of a process it has stored all that the first one computed.
    pending = {}
    for what, pid in lines:
        if what.startswith("begin:"):
            assert not pending.get(pid), "it began again without having stored everything"
            pending[pid] = int(what.removeprefix("begin:"))
        else:
            pending[pid] -= 1
    assert {int(pid) for pid, count in pending.items() if count} == set(killed)
    assert len({pid for _, pid in begun}) > 1, "several took part"
    assert len(list((folder / "runs").glob("*.nc"))) == 20
    assert not list((folder / "runs" / "trajectories").glob("*.claim*"))


def test_a_signal_while_results_are_stored_loses_none_of_them(tmp_path, table):
    """Runs that share a call end together; the first that is stored reports, and a signal is raised there."""

    def tell(recipe, share, note):
        if note == "stored":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Lab(tmp_path, tell).run_all(recipes(table, 3))
    assert len(list(tmp_path.glob("*.nc"))) == 3
