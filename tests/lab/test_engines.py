"""Engines, and recipes that share compiled calls: the same results, whoever computes them and whatever happens."""

import errno
import json
import os
import shlex
import socket
import sys

import msgspec
import numpy as np
import pytest

from unlazy import _compilation, _files
from unlazy._errors import FullDiskError, Notice, UserError
from unlazy.cli.sweeping import array_script, engine
from unlazy.lab import (
    BatchSystem,
    Dask,
    Engine,
    Lab,
    Lost,
    claims,
    clusters,
    decode,
    parse,
    part_of,
    perform,
    together,
)
from unlazy.lab.tasks import perform_anywhere, plan_tasks

TABLE = {
    "data": {"kind": "random-labels", "n": 6, "d": 3},
    "network": {"kind": "two-layer", "width": 8},
    "times": [0.0, 0.5, 1.0, 2.0],
    "probes": ["train-loss", "kernel"],
}


def recipe(index, **changes):
    """Recipes of one shape: seeds, learning rates and times differ."""
    flow = {"kind": "descent", "rate": 0.05 * (1 + index)}
    times = [0.0, 0.5 + index, 1.0 + index, 2.0 + index]
    return parse(TABLE | {"name": f"r{index}", "seed": index, "flow": flow, "times": times} | changes)


def several(count, **changes):
    return {f"r{index}": recipe(index, **changes) for index in range(count)}


def same(one, other, rtol=0.0):
    assert set(one.data_vars) == set(other.data_vars)
    for name in one.data_vars:
        np.testing.assert_allclose(one[name], other[name], rtol=rtol, atol=0.0 if rtol == 0 else 1e-14)
    for name in ("steps", "status"):
        np.testing.assert_array_equal(one.attrs[name], other.attrs[name])
    np.testing.assert_array_equal(one["time"], other["time"])


def one_task(lab, wanted, **changes):
    (task,) = plan_tasks(lab, {one.digest: one for one in wanted}, {one.digest: True for one in wanted}, 1)
    return msgspec.structs.replace(task, **changes) if changes else task


# ---------------------------------------------------------------- sharing compiled calls


@pytest.mark.parametrize("flow", [None, {"kind": "gradient-flow"}], ids=["descent", "gradient flow"])
def test_recipes_of_one_shape_give_the_same_together_as_alone(tmp_path, flow):
    wanted = several(4, **({} if flow is None else {"flow": flow}), seeds=2)
    found = Lab(tmp_path / "together").run_all(wanted)
    pair = Lab(tmp_path / "pair").run_all({name: wanted[name] for name in ("r1", "r3")})
    for name in wanted:
        same(found[name], Lab(tmp_path / "alone").run(wanted[name]), rtol=1e-11)
    for name in pair:  # whoever shares the call
        same(found[name], pair[name])


def test_a_shared_call_is_compiled_once(tmp_path, compilations):
    Lab(tmp_path).run_all(several(3))
    compilations.count = 0
    Lab(tmp_path).run_all({name: recipe(index, seed=40) for index, name in enumerate("abc")})
    assert compilations.count == 0


def _two_layer(**options):
    return {"network": {"kind": "two-layer", "width": 8, **options}}


def _descent(optimiser, **numbers):
    return {"flow": {"kind": "descent", "rate": 0.1, "optimiser": {"kind": optimiser, **numbers}}}


def _conv(**options):
    data = {"kind": "digits", "n": 6, "n_test": 0, "flat": False, "targets": "number"}
    return {"network": {"kind": "conv-net", "channels": [3], "kernel": 3, **options}, "data": data}


NUMBERS = {
    "exponents": [
        _two_layer(scaling={"kind": "scaling", "node": -1.0, "rate": 1.0}, train_readout=True, bias=True),
        _two_layer(
            scaling={"kind": "scaling", "node": -0.7, "feature": -0.4, "rate": 0.3, "feature_rate": 0.1},
            train_readout=True,
            bias=True,
        ),
    ],
    "gamma and Zipf": [
        _two_layer(scaling={"kind": "asymmetrical", "gamma": gamma, "weights": {"kind": "zipf", "alpha": alpha}})
        for gamma, alpha in ((0.2, 0.5), (0.6, 0.8))
    ],
    "infinite embedding": [_two_layer(embedding={"kind": "infinite"}, scale=scale) for scale in (1.0, 0.5)],
    "ConvNet": [_conv(gamma=gamma, rescaled=True) for gamma in (0.5, 0.6)],
    "momentum": [_descent("momentum", decay=decay) for decay in (0.9, 0.5)],
    "float32": [
        _two_layer(scaling={"kind": "scaling", "node": node, "rate": -node}) | {"dtype": "float32"}
        for node in (-1.0, -0.6)
    ],
}


@pytest.mark.parametrize("flow", ["gradient-flow", "weights"])
@pytest.mark.parametrize("name", NUMBERS)
def test_runs_that_differ_in_numbers_share_one_compiled_call(tmp_path, name, flow, compilations):
    flows = {"gradient-flow": "gradient-flow", "weights": {"kind": "descent", "rate": 0.1, "coordinates": "weights"}}
    if name == "momentum" and flow == "weights":
        pytest.skip("these are options of descent itself")
    one, other = ({"flow": flows[flow]} | changes for changes in NUMBERS[name])
    first = Lab(tmp_path / "runs").run(recipe(0, **one))
    compilations.count = 0
    second = Lab(tmp_path / "runs").run(recipe(0, **other))
    assert compilations.count == 0
    assert not np.array_equal(first["train-loss"], second["train-loss"])
    # In one call as well, in which each keeps its own numbers.
    found = Lab(tmp_path / "together").run_all({"one": recipe(0, **one), "other": recipe(0, **other, name="other")})
    small = "dtype" in one
    for label, run in (("one", first), ("other", second)):
        np.testing.assert_allclose(found[label]["train-loss"], run["train-loss"], rtol=2e-5 if small else 1e-10)


def test_numbers_of_a_trained_network_are_plain_again(tmp_path):
    asked = {"kind": "scaling", "node": -0.7, "feature": -0.4, "rate": 0.3, "feature_rate": 0.1}
    changes = _two_layer(scaling=asked)
    (one,) = Lab(tmp_path).trajectories(recipe(0, **changes))
    for network in (one.start, one.final):
        numbers = [getattr(network.scaling, name) for name in ("node", "feature", "rate", "feature_rate")]
        assert [type(number) for number in numbers] == [float] * 4
        assert numbers == [-0.7, -0.4, 0.3, 0.1]


STACK = {"kind": "mean-field-stack", "widths": [6, 5], "ranks": 2, "activation": "tanh"}
OTHER_NETWORKS = {
    "stack": {"network": STACK},
    "stack, first layer frozen": {"network": STACK | {"train": "c"}},
    "ConvNet": _conv(gamma=0.5),
    "rescaled ConvNet": _conv(gamma=0.6, rescaled=True),
}


@pytest.mark.parametrize("flow", ["descent", "gradient-flow"])
@pytest.mark.parametrize("name", OTHER_NETWORKS)
def test_stacks_and_convolutions_give_the_same_together_as_alone(tmp_path, name, flow):
    changes = OTHER_NETWORKS[name] | ({"flow": flow} if flow == "gradient-flow" else {})
    wanted = several(3, **changes)
    found = Lab(tmp_path / "together").run_all(wanted)
    for label, one in wanted.items():
        same(found[label], Lab(tmp_path / "alone").run(one), rtol=1e-9)


def test_each_recipe_keeps_its_own_status(tmp_path):
    linear = {"kind": "two-layer", "width": 8, "activation": "linear"}
    wanted = several(2, network=linear)
    fast = {"kind": "descent", "rate": 9.0}
    wanted["wild"] = recipe(0, name="wild", network=linear, flow=fast, times=[0.0, 200.0, 300.0, 400.0])
    found = Lab(tmp_path).run_all(wanted)
    assert found["r0"].attrs["status"] == found["r1"].attrs["status"] == "finished"
    assert found["wild"].attrs["status"] in ("diverged", "not_finite")


def test_an_interrupted_group_goes_on_together_or_alone_with_the_same_bits(tmp_path):
    wanted = several(4, times=[0.0, *(2.0 * step for step in range(1, 120))])
    whole = Lab(tmp_path / "whole").run_all(wanted)

    def stop(recipe, share, note):
        if share > 0:  # after the first slice: a quick machine may need only one more
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt, match="0 of 4 runs are stored, and the same command continues"):
        Lab(tmp_path / "runs", stop).run_all(wanted)
    lab = Lab(tmp_path / "runs")
    assert all(lab.store.checkpoint(one).exists() for one in wanted.values())
    same(lab.run(wanted["r0"]), whole["r0"], rtol=1e-11)  # alone
    notes = []
    watching = Lab(tmp_path / "runs", lambda recipe, share, note: notes.append(note))
    found = watching.run_all(wanted)
    for name in ("r1", "r2", "r3"):
        same(found[name], whole[name])
    assert not list(lab.store.folder.glob("*.checkpoint"))
    assert "t = 2" in notes
    assert "t = 0" not in notes, "they were continued, not begun again"


def test_a_full_disk_stops_with_a_sentence_and_goes_on_later(tmp_path, monkeypatch):
    wanted, lab, real = several(3), Lab(tmp_path), _files.atomic_write

    def full(path):
        if path.suffix == ".npz":
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(path)

    monkeypatch.setattr("unlazy.lab.tracks.atomic_write", full)
    other = recipe(0, name="other", network={"kind": "two-layer", "width": 9})
    begun = []
    watching = Lab(tmp_path, lambda recipe, share, note: begun.append(recipe.name))
    sentence = r"^0 of 4 runs are stored, and the others need more room\. .*No space left on device.*command continues"
    with pytest.raises(FullDiskError, match=sentence):
        watching.run_all(wanted | {"other": other})
    assert len(list(tmp_path.glob("*.checkpoint"))) == 3
    assert "other" not in begun, "it would fail as well"
    assert not list((tmp_path / "trajectories").glob("*.claim"))
    monkeypatch.undo()
    found = lab.run_all(wanted)
    for name, whole in Lab(tmp_path / "whole").run_all(wanted).items():
        same(found[name], whole)


def test_two_processes_on_one_folder_leave_each_other_some_of_a_shape(tmp_path, monkeypatch):
    wanted, lab = list(several(12).values()), Lab(tmp_path)
    lab.store.prepare()
    sizes, real = [], together._claimed

    def noting(lab, some, *rest):
        sizes.append(len(some))
        return real(lab, some, *rest)

    monkeypatch.setattr(together, "_claimed", noting)
    with claims.present(lab.store.claims), claims.present(lab.store.claims):
        assert len(claims.sharers(lab.store.claims)) == 2
        together.attempt_all(lab, wanted[:8])
        # The lists of tasks are the same, and begin at different places.
        tasks = plan_tasks(lab, {one.digest: one for one in wanted}, {one.digest: True for one in wanted}, 3)
        monkeypatch.setattr(claims, "sharers", lambda folder: [("other", False), ("this", True)])
        turned = plan_tasks(lab, {one.digest: one for one in wanted}, {one.digest: True for one in wanted}, 3)
    assert sizes == [4, 4]
    half = len(tasks) // 2
    assert [list(one.recipes) for one in turned] == [list(one.recipes) for one in tasks[half:] + tasks[:half]]
    monkeypatch.undo()
    assert claims.sharers(lab.store.claims) == []
    dead = lab.store.claims / f"0{claims._PRESENT}"
    dead.write_text(json.dumps({"pid": 1, "host": socket.gethostname(), "started": 0.0}))
    assert claims.sharers(lab.store.claims) == []
    assert not dead.exists()


# ---------------------------------------------------------------- engines


class Unreliable(Engine):
    """Carries tasks out in this process, and loses those that contain certain recipes."""

    def __init__(self, deadly):
        self.deadly, self.given = deadly, []

    def run(self, lab, tasks):
        for task in tasks:
            self.given.append(len(task.recipes))
            lost = self.deadly & set(task.recipes)
            yield task, Lost("signal SIGKILL") if lost else decode(perform(task.json()))


def test_a_run_that_kills_its_worker_again_and_again_is_given_up_and_the_others_finish(tmp_path):
    wanted, lab = several(5), Lab(tmp_path)
    unreliable = Unreliable({wanted["r2"].digest})
    with pytest.raises(
        UserError, match=r"1 of 5 runs failed.*r2: 'r2' ended its worker 3 times \(most recently by signal"
    ):
        lab.run_all(wanted, engine=unreliable)
    assert {name for name, one in wanted.items() if lab.store.path(one).exists()} == {"r0", "r1", "r3", "r4"}
    assert unreliable.given[:2] == [5, 5], "once more as it is, then in halves"


def test_an_engine_of_ones_own_and_results_that_are_read_when_they_are_used(tmp_path):
    class Own(Unreliable):
        workers = 2

    own = Own(set())
    found = Lab(tmp_path).run_all(several(8), engine=own)
    assert own.given == [4, 4]
    assert len(found) == 8
    assert found["r3"] is found["r3"]
    Lab(tmp_path).run_all(several(8), engine=own)
    assert own.given == [4, 4], "what is stored is given to nobody"


def test_workers_that_end_before_they_begin_are_not_replaced_for_ever(tmp_path):
    class Broken(Engine):
        def run(self, lab, tasks):
            yield from ((task, Lost("status 1", begun=False)) for task in tasks)

    with pytest.raises(UserError, match="20 workers ended before they began"):
        Lab(tmp_path).run_all(several(2), engine=Broken())


def test_a_worker_of_another_version_is_refused(tmp_path):
    task = one_task(Lab(tmp_path), several(2).values())
    other = msgspec.structs.replace(task, made_by=task.made_by | {"jax": "0.0.1"})
    (sentence,) = set(decode(perform(other.json())).outcomes.values())
    assert "and this is jax 0.0.1: install the same versions on both." in sentence


def test_a_worker_without_the_plugin_or_the_folder_says_so(tmp_path):
    task = one_task(Lab(tmp_path), several(1).values())
    (digest,) = task.recipes
    plain = json.loads(task.recipes[digest])
    unknown = json.dumps(plain | {"network": {"kind": "nobodys_package.networks:Thing"}})
    strange = msgspec.structs.replace(task, recipes={digest: unknown})
    (sentence,) = decode(perform_anywhere(strange.json())).outcomes.values()
    assert "cannot build it" in sentence
    assert "nobodys_package" in sentence
    assert sentence.endswith("install your package there, or start the worker in its folder.")
    (sentence,) = decode(perform(msgspec.structs.replace(task, folder=str(tmp_path / "gone")).json())).outcomes.values()
    assert "does not see the folder" in sentence


def test_a_stale_claim_is_taken_over(tmp_path):
    from unlazy.lab import identify

    lab, wanted = Lab(tmp_path), several(2)
    lab.store.prepare()
    (trajectory,) = identify(wanted["r0"]).trajectories.values()
    dead = {"pid": 2**22 + 1, "host": socket.gethostname(), "started": 0.0}
    lab.store.claim(trajectory).write_text(json.dumps(dead))
    assert len(lab.run_all(wanted)) == 2
    assert lab.store.path(wanted["r0"]).exists()


# ---------------------------------------------------------------- parts and job arrays


def test_parts_are_disjoint_and_complete():
    wanted = several(7) | {"wide": recipe(0, name="wide", network={"kind": "two-layer", "width": 9})}
    parts = [part_of(wanted, f"{index}/3") for index in range(3)]
    assert sorted(name for part in parts for name in part) == sorted(wanted)
    assert {len(part) for part in parts} == {2, 3}
    for text in ("3/3", "1", "-1/2", "a/b", "0/9"):
        with pytest.raises(UserError, match=r"not a part|cannot be divided"):
            part_of(wanted, text)


def test_a_job_array(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["unlazy", "sweep", "my file.toml", "--print-array", "8", "--out", "runs"])
    script = array_script(8, "my sweep")
    assert "#SBATCH --array=0-7" in script
    last = script.strip().splitlines()[-1]
    assert shlex.split(last)[-5:] == ["my file.toml", "--out", "runs", "--part", "$SLURM_ARRAY_TASK_ID/8"]


def test_two_places_exclude_each_other(tmp_path):
    with pytest.raises(UserError, match="--cluster and --workers exclude each other"):
        engine(2, "tcp://127.0.0.1:1", None, None)
    with pytest.raises(UserError, match="There is no file"):
        engine(1, None, tmp_path / "none.toml", None)
    assert engine(4, None, None, None) is None


# ---------------------------------------------------------------- clusters


def test_an_unreachable_scheduler(tmp_path, monkeypatch):
    pytest.importorskip("distributed")
    monkeypatch.setattr(clusters, "_TIMEOUT", 0.5)
    with pytest.raises(UserError, match=r"No Dask scheduler answers at 'tcp://127\.0\.0\.1:1'"):
        Lab(tmp_path).run_all(several(2), engine=Dask("tcp://127.0.0.1:1"))
    for address in ("nonsense", "tcp://127.0.0.1", "tcp://:8786/x", ""):
        with pytest.raises(UserError, match="is not the address of a scheduler: write it as tcp://10"):
            Dask(address)


@pytest.mark.filterwarnings("ignore")
def test_a_dask_cluster(tmp_path):
    distributed = pytest.importorskip("distributed")
    wanted = several(4)
    with distributed.LocalCluster(
        n_workers=1, threads_per_worker=1, processes=False, dashboard_address=None, protocol="tcp", host="127.0.0.1"
    ) as cluster:
        found = Lab(tmp_path / "cluster").run_all(wanted, engine=Dask(cluster.scheduler_address))
    here = Lab(tmp_path / "here").run_all(wanted)
    for name in wanted:
        same(found[name], here[name])


@pytest.mark.filterwarnings("ignore")
def test_a_scheduler_that_is_lost_meanwhile(tmp_path, monkeypatch):
    distributed = pytest.importorskip("distributed")
    made = {"n_workers": 0, "processes": False, "dashboard_address": None, "protocol": "tcp", "host": "127.0.0.1"}
    with distributed.LocalCluster(**made) as cluster, Dask(cluster.scheduler_address) as engine:

        def lost(*_, **__):
            raise distributed.client.FuturesCancelledError([])

        monkeypatch.setattr(distributed, "wait", lost)
        with pytest.raises(UserError, match=r"was lost .* the same command continues from there"):
            Lab(tmp_path).run_all(several(2), engine=engine)


@pytest.mark.filterwarnings("ignore")
def test_a_batch_system(tmp_path):
    pytest.importorskip("dask_jobqueue")
    options = tmp_path / "options.toml"
    text = 'jobs = 1\ncores = 1\nprocesses = 1\nmemory = "2GB"\n'
    hosts = 'scheduler_options = { host = "127.0.0.1", dashboard_address = ":0" }\n'
    options.write_text(text + f'log_directory = "{tmp_path}"\n' + hosts)
    found = Lab(tmp_path / "runs").run_all(several(2), engine=BatchSystem.read("local", options))
    assert len(found) == 2
    assert found["r1"].attrs["finished"]


@pytest.mark.filterwarnings("ignore")  # of clusters that could not be made
def test_wrong_options_of_a_batch_system(tmp_path, monkeypatch):
    pytest.importorskip("dask_jobqueue")
    monkeypatch.setattr(clusters.shutil, "which", lambda command: None)
    with pytest.raises(UserError, match="There is no command 'qsub' here, which submits jobs"):
        Lab(tmp_path).run_all(several(2), engine=BatchSystem("pbs", {"cores": 1, "memory": "1GB"}))
    monkeypatch.setattr(clusters.shutil, "which", lambda command: f"/usr/bin/{command}")
    with pytest.raises(UserError, match="There is no batch system called 'slrum'"):
        BatchSystem("slrum", {})
    with pytest.raises(UserError, match="jobs is a whole number"):
        BatchSystem("slurm", {"jobs": 0})
    with pytest.raises(UserError, match="The options for slurm do not work"):
        Lab(tmp_path).run_all(several(2), engine=BatchSystem("slurm", {"wallclock": 3}))


# ---------------------------------------------------------------- kept compiled code


def test_the_cache_can_be_moved_turned_off_and_fail(tmp_path, monkeypatch):
    import jax

    before = jax.config.jax_compilation_cache_dir
    try:
        jax.config.update("jax_compilation_cache_dir", None)
        monkeypatch.setenv(_compilation.VARIABLE, "off")
        assert _compilation.use_cache() is None
        (tmp_path / "file").write_text("")
        monkeypatch.setenv(_compilation.VARIABLE, str(tmp_path / "file"))
        with pytest.warns(Notice, match="Compiled code is not stored"):
            assert _compilation.use_cache() is None
        assert jax.config.jax_compilation_cache_dir is None
        monkeypatch.setenv(_compilation.VARIABLE, str(tmp_path / "kept"))
        assert _compilation.use_cache().parent == tmp_path / "kept"
    finally:
        jax.config.update("jax_compilation_cache_dir", before)


def test_compiled_code_that_was_not_used_for_long_is_deleted(tmp_path, monkeypatch):
    for age in range(10):
        path = tmp_path / "cpu" / f"{age}-cache"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(bytes(1000))
        os.utime(path, (1e9 - age, 1e9 - age))
    _compilation.shrink(tmp_path, 10_000)
    assert len(list(tmp_path.glob("*/*"))) == 10
    _compilation.shrink(tmp_path, 5_000)
    assert sorted(path.name for path in tmp_path.glob("*/*")) == ["0-cache", "1-cache", "2-cache", "3-cache"]
    monkeypatch.setenv(_compilation.SIZE, "2.5")
    assert _compilation._limit() == 2.5 * 2**20
    monkeypatch.setenv(_compilation.SIZE, "much")
    with pytest.warns(Notice, match="'much' is not a number of MiB: 1024 is used"):
        assert _compilation._limit() == 2**30
