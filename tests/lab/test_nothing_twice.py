"""What the store promises: nothing is computed twice, and nothing is returned that is not what was asked for."""

import warnings

import jax
import numpy as np
import pytest
import xarray as xr

from unlazy import TwoLayer
from unlazy._errors import UserError
from unlazy.data import random_labels
from unlazy.flows import Descent, Driver
from unlazy.lab import Interrupted, Lab, OtherCode, identity, parse, provenance, read_run
from unlazy.lab import store as storing
from unlazy.lab import work as working
from unlazy.probes import TrainLoss

FLOWS = {
    "descent": {"kind": "descent", "rate": 0.25},
    "minibatches": {"kind": "descent", "rate": 0.25, "batch": 2, "optimiser": "adam"},
    "runge-kutta": {"kind": "runge-kutta", "rtol": 1e-5},
    "gradient-flow": "gradient-flow",
}


@pytest.fixture
def lab(tmp_path):
    return Lab(tmp_path / "runs")


@pytest.fixture
def begun(monkeypatch):
    """The seeds that journeys were begun for, and how much was trained."""

    class Counted:
        seeds: list = []  # noqa: RUF012
        slices = 0

    real_begin, real_advance = Driver.begin.__func__, Driver._advance
    Counted.seeds = []

    def begin(cls, flow, networks, *rest):
        Counted.seeds.append(len(networks))
        return real_begin(cls, flow, networks, *rest)

    def advance(self, budget):
        Counted.slices += 1
        return real_advance(self, budget)

    monkeypatch.setattr(Driver, "begin", classmethod(begin))
    monkeypatch.setattr(Driver, "_advance", advance)
    return Counted


def same(one, other, exact=True):
    assert set(one.data_vars) == set(other.data_vars)
    np.testing.assert_array_equal(one["time"], other["time"])
    for name in one.data_vars:
        if exact:
            np.testing.assert_array_equal(one[name], other[name])
        else:  # a batch of another size, or other probes in one compiled function, may round differently
            np.testing.assert_allclose(one[name], other[name], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("flow", FLOWS.values(), ids=FLOWS.keys())
def test_a_new_probe_is_evaluated_on_what_is_stored(lab, tmp_path, table, flow, begun):
    lab.run(parse(table | {"flow": flow}))
    begun.slices = 0
    more = parse(
        table | {"flow": flow, "probes": ["train-loss", "kernel", {"kind": "train-loss", "as": "last", "when": "end"}]}
    )
    run = lab.run(more)
    assert begun.slices == 0, "nothing was trained"
    same(run, Lab(tmp_path / "whole").run(more), exact=False)
    assert list(run.attrs["steps"]) == list(Lab(tmp_path / "whole").run(more).attrs["steps"])


def test_a_probe_that_is_known_costs_nothing(lab, table, begun):
    lab.run(parse(table))
    begun.seeds.clear()
    renamed = lab.run(parse(table | {"name": "other", "probes": [{"kind": "TrainLoss", "as": "loss"}]}))
    assert begun.seeds == []
    assert list(renamed.data_vars) == ["loss"]


def test_another_seed_costs_one_seed(lab, tmp_path, table, begun):
    lab.run(parse(table))
    begun.seeds.clear()
    three = parse(table | {"seeds": 3})
    run = lab.run(three)
    assert begun.seeds == [1]
    same(run, Lab(tmp_path / "whole").run(three), exact=False)
    begun.seeds.clear()
    lab.run(parse(table | {"seeds": 1, "seed": 2}))
    assert begun.seeds == []


@pytest.mark.parametrize("seeds", [1, 2])
@pytest.mark.parametrize("flow", FLOWS.values(), ids=FLOWS.keys())
def test_later_times_continue_to_the_same_bits(lab, tmp_path, table, flow, seeds, begun):
    table |= {"flow": flow, "seeds": seeds}
    lab.run(parse(table))
    long = parse(table | {"times": [*table["times"], 3.0, 4.0]})
    whole = Lab(tmp_path / "whole").run(long)
    heard = []
    run = Lab(lab.store.folder, lambda recipe, share, note: heard.append(note)).run(long)
    assert heard[0] == "reading"
    assert not {"t = 0.5", "t = 1", "t = 2"} & set(heard), "only what is new was computed"
    same(run, whole)
    for name in ("steps", "evaluations", "rejected"):
        assert list(np.atleast_1d(run.attrs[name])) == list(np.atleast_1d(whole.attrs[name]))
    begun.seeds.clear()
    same(lab.run(parse(table)), whole.sel(time=slice(0, 2)))
    assert begun.seeds == []


def test_later_times_and_a_new_probe_together(lab, tmp_path, table, begun):
    lab.run(parse(table))
    begun.slices = 0
    more = parse(table | {"times": [*table["times"], 3.0], "probes": ["kernel", "train-loss"]})
    heard = []
    run = Lab(lab.store.folder, lambda recipe, share, note: heard.append((recipe, note))).run(more)
    assert [note for _, note in heard[:5]] == ["reading", "t = 0", "t = 0.5", "t = 1", "t = 2"], "observed"
    assert {note for _, note in heard[5:]} == {"t = 3"}, "and continued"
    same(run, Lab(tmp_path / "whole").run(more), exact=False)
    # And once more, at a time that was the end before and is not any more.
    third = parse(table | {"times": [*table["times"], 3.0], "probes": ["weight-movement"]})
    whole, begun.slices = Lab(tmp_path / "whole").run(third), 0
    same(lab.run(third), whole, exact=False)
    assert begun.slices == 0


def test_fewer_times_are_read(lab, table, begun):
    whole = lab.run(parse(table))
    begun.seeds.clear()
    few = lab.run(parse(table | {"times": [0.5, 1.0], "probes": ["train-loss"]}))
    assert begun.seeds == []
    np.testing.assert_array_equal(few["train-loss"], whole["train-loss"][:, 1:3])
    assert list(few.attrs["steps"]) == [4, 4], "as many as it takes to the last time asked for"


def test_a_time_in_between_is_computed_from_the_start_and_nothing_is_lost(lab, tmp_path, table, begun):
    whole = lab.run(parse(table))
    between = parse(table | {"times": [0.0, 0.25, 0.5]})
    begun.seeds.clear()
    run = lab.run(between)
    assert begun.seeds == [2]
    same(run, Lab(tmp_path / "alone").run(between))
    begun.seeds.clear()
    same(lab.run(parse(table | {"name": "again"})), whole)
    assert begun.seeds == []


def test_times_on_the_same_step_are_one_time(lab, table, begun):
    table["times"] = [0.0, 0.5, 0.55, 2.0, 2.04]
    first = lab.run(parse(table))
    np.testing.assert_array_equal(first["time"], [0.0, 0.5, 2.0])
    begun.seeds.clear()
    again = lab.run(parse(table | {"name": "again", "times": [0.0, 0.55, 2.0]}))
    assert begun.seeds == []
    same(again, first)
    table["times"] = [0.0, 0.5, 0.55, 2.0, 2.04, 2.05, 3.0]
    longer = lab.run(parse(table))
    np.testing.assert_array_equal(longer["time"], [0.0, 0.5, 2.0, 3.0])
    begun.seeds.clear()
    lab.run(parse(table | {"name": "and again"}))
    assert begun.seeds == []


def test_without_room_for_snapshots_start_and_end_are_known(tmp_path, table, begun):
    lab = Lab(tmp_path, snapshots=0)
    lab.run(parse(table))
    begun.slices = 0
    ends = parse(table | {"probes": [{"kind": "kernel", "when": "end"}]})
    lab.run(ends)
    assert begun.slices == 0
    lab.run(parse(table | {"times": [0.0, 2.0], "probes": ["kernel"]}))
    assert begun.slices == 0
    everywhere = parse(table | {"probes": ["kernel"]})
    run = lab.run(everywhere)
    assert begun.slices > 0
    same(run, Lab(tmp_path / "whole").run(everywhere))
    begun.slices = 0
    lab.run(parse(table | {"name": "as before"}))
    assert begun.slices == 0, "what was observed before is still there"


def test_snapshots_stay_within_their_size(tmp_path, table):
    table |= {"times": [0.25 * step for step in range(41)], "seeds": 1}
    sizes = {}
    for limit in (0.0, 0.001, 64.0):
        folder = tmp_path / str(limit)
        Lab(folder, snapshots=limit).run(parse(table))
        (path,) = (folder / "trajectories").glob("*.npz")
        with np.load(path) as file:
            sizes[limit] = sum(file[name].nbytes for name in file.files if name.startswith("snapshot-"))
    assert sizes[0.0] == 0
    assert 0 < sizes[0.001] <= 0.001 * 2**20
    assert sizes[64.0] == 39 * 8 * 3 * 8, "39 times between start and end, m x d weights of 8 bytes"


def test_a_seed_that_fails_ends_alone(lab, table):
    table |= {"data": {"kind": "random-labels", "n": 6, "d": 3}, "times": [0.0, 1e3, 1e5], "seeds": 2}
    table["network"]["activation"] = "linear"
    table["flow"]["rate"] = 1e3
    both = lab.run(parse(table))
    alone = lab.run(parse(table | {"seeds": 1, "name": "alone"}))
    assert set(both.attrs["status"]) == {"diverged"}
    np.testing.assert_array_equal(alone["train-loss"], both["train-loss"][:1])
    longer = lab.run(parse(table | {"times": [0.0, 1e3, 1e5, 1e6]}))
    np.testing.assert_array_equal(longer["train-loss"], both["train-loss"])


# ---------------------------------------------------------------- never returned silently


def test_results_of_other_code_come_with_a_sentence(lab, table, monkeypatch):
    recipe = parse(table)
    lab.run(recipe)
    now = provenance()
    other = now | {"versions": now["versions"].replace("unlazy ", "unlazy 99."), "commit": "deadbeef0000"}
    monkeypatch.setattr("unlazy.lab.made_by.provenance", lambda: other)
    for again in (recipe, parse(table | {"name": "renamed"}), parse(table | {"times": [*table["times"], 3.0]})):
        with pytest.warns(
            OtherCode, match=r"was computed by unlazy \S+ \(commit .*this is unlazy 99\..*deadbeef0000.*--fresh"
        ):
            lab.run(again)
    monkeypatch.setattr("unlazy.lab.work.provenance", lambda: other)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Lab(lab.store.folder, fresh=True).run(recipe)
        lab.run(recipe)


def test_a_change_of_the_numerics_computes_again(lab, table, begun, monkeypatch):
    lab.run(parse(table))
    begun.seeds.clear()
    monkeypatch.setattr(identity, "RESULTS", identity.RESULTS + 1)
    lab.run(parse(table))
    assert begun.seeds == [2]


def test_an_edited_data_file_computes_again(lab, tmp_path, table, begun):
    path = tmp_path / "mine.csv"
    path.write_text("a,b,y\n1,2,0.5\n3,1,-0.5\n0,2,0.25\n")
    table |= {"data": {"kind": "csv", "path": str(path), "target": "y"}, "seeds": 1}
    first = lab.run(parse(table))
    begun.seeds.clear()
    path.rename(tmp_path / "moved.csv")
    moved = {"kind": "csv", "path": str(tmp_path / "moved.csv"), "target": "y"}
    same(lab.run(parse(table | {"data": moved})), first)
    assert begun.seeds == [], "the same contents elsewhere"
    path.write_text("a,b,y\n1,2,0.5\n3,1,-0.5\n0,2,0.75\n")
    edited = lab.run(parse(table))
    assert begun.seeds == [1]
    assert float(edited["train-loss"][0, 0]) != float(first["train-loss"][0, 0])


def test_edited_source_of_a_plug_in_computes_again(lab, tmp_path, table, begun, monkeypatch):
    source = tmp_path / "a_plugin_of_mine.py"
    source.write_text("import jax.numpy as jnp\n\n\ndef squash(x):\n    return jnp.tanh(x)\n")
    monkeypatch.syspath_prepend(tmp_path)
    table |= {"network": {"kind": "two-layer", "width": 8, "activation": "a_plugin_of_mine:squash"}, "seeds": 1}
    lab.run(parse(table))
    begun.seeds.clear()
    lab.run(parse(table | {"name": "again"}))
    assert begun.seeds == []
    source.write_text(source.read_text() + "\n\n# edited\n")
    lab.run(parse(table))
    assert begun.seeds == [1]


def test_an_edited_byte_is_noticed_wherever_it_is(lab, table):
    recipe = parse(table | {"seeds": 1})
    lab.run(recipe)
    path = lab.store.path(recipe)
    whole, random = path.read_bytes(), np.random.default_rng(0)
    with xr.open_dataset(path) as opened:
        truth = opened.load()
    noticed = 0
    for place in random.integers(0, len(whole), 150):
        damaged = bytearray(whole)
        damaged[place] ^= 1 << int(random.integers(8))
        path.write_bytes(bytes(damaged))
        try:
            found = read_run(path)
        except UserError:
            noticed += 1
        else:  # a byte that means nothing
            xr.testing.assert_identical(found, truth)
    assert noticed > 20


def test_an_edited_value_or_attribute_is_noticed(lab, table):
    recipe = parse(table)
    lab.run(recipe)
    path = lab.store.path(recipe)
    with xr.open_dataset(path, engine="h5netcdf") as opened:
        run = opened.load()
    for edited in (
        run.assign_attrs(commit="deadbeef"),
        run.assign_attrs(versions="unlazy 0.0.1"),
        run.drop_vars("train-loss"),
        run + 1e-16 * run,
    ):
        edited.attrs = edited.attrs or run.attrs
        edited.to_netcdf(path, engine="h5netcdf")
        with pytest.raises(UserError, match="was changed or damaged after it was stored"):
            lab.run(recipe)


def test_a_damaged_trajectory_is_noticed(lab, table):
    recipe = parse(table | {"seeds": 1})
    lab.run(recipe)
    (path,) = (lab.store.folder / "trajectories").glob("*.npz")
    whole, random = path.read_bytes(), np.random.default_rng(1)
    noticed = 0
    wanted = parse(table | {"seeds": 1, "name": "other"})
    truth = Lab(lab.store.folder / "apart").run(wanted)
    for place in random.integers(0, len(whole), 100):
        damaged = bytearray(whole)
        damaged[place] ^= 1 << int(random.integers(8))
        path.write_bytes(bytes(damaged))
        lab.store.path(wanted).unlink(missing_ok=True)
        try:
            found = lab.run(wanted)
        except UserError:
            noticed += 1
        else:  # in a snapshot or in the state, which were not needed, or a byte that means nothing
            same(found, truth)
    assert noticed > 20


def test_a_run_under_the_name_of_another_is_not_returned(lab, table):
    one, other = parse(table), parse(table | {"flow": {"kind": "descent", "rate": 0.125}})
    lab.run(one)
    lab.store.path(one).rename(lab.store.path(other))
    with pytest.raises(UserError, match="holds the result of another recipe: delete it"):
        lab.run(other)
    assert list(Lab(lab.store.folder, fresh=True).run(other).attrs["steps"]) == [16, 16]


def test_files_of_an_older_store_are_refused(lab, table):
    recipe = parse(table)
    lab.store.prepare()
    old = xr.Dataset({"train-loss": (("seed", "time"), [[42.0]])}, attrs={"recipe": recipe.json()})
    old.to_netcdf(lab.store.path(recipe), engine="h5netcdf")
    with pytest.raises(UserError, match="was stored by a version of unlazy that wrote no checksums: delete it"):
        lab.run(recipe)
    assert float(Lab(lab.store.folder, fresh=True).run(recipe)["train-loss"][0, 0]) != 42.0


def test_a_file_that_reads_other_files_is_refused(tmp_path):
    import h5py

    (tmp_path / "secret").write_bytes(b"12345678")
    with h5py.File(tmp_path / "x.nc", "w") as file:
        file.create_dataset("a", (1,), "f8", external=[(str(tmp_path / "secret"), 0, 8)])
    with pytest.raises(UserError, match="is stored in another file"):
        read_run(tmp_path / "x.nc")


def test_a_store_that_can_only_be_read_is_read(lab, table, monkeypatch, begun):
    whole = lab.run(parse(table))
    begun.seeds.clear()

    def refuse(*_, **__):
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr("unlazy._files.atomic_write", refuse)
    monkeypatch.setattr(storing, "writable", refuse)
    same(lab.run(parse(table)), whole)
    same(lab.run(parse(table | {"name": "assembled from trajectories"})), whole)
    assert begun.seeds == []


def test_an_interrupted_continuation_goes_on_to_the_same_bits(lab, tmp_path, table):
    lab.run(parse(table))
    long = parse(table | {"times": [*table["times"], 3.0, 4.0, 5.0]})

    def stop(recipe, share, note):
        if 0.5 <= share < 1:
            raise KeyboardInterrupt

    with pytest.raises(Interrupted):
        Lab(lab.store.folder, stop).run(long)
    assert lab.store.checkpoint(long).exists()
    same(lab.run(long), Lab(tmp_path / "whole").run(long))
    assert not lab.store.checkpoint(long).exists()
    # The snapshots from before the interruption are there.
    more = parse(table | {"times": long.times, "probes": ["kernel"]})
    same(lab.run(more), Lab(tmp_path / "whole").run(more), exact=False)


# ---------------------------------------------------------------- networks, trajectories from Python, tables


@pytest.mark.parametrize("flow", FLOWS.values(), ids=FLOWS.keys())
def test_networks_are_kept(lab, table, flow, begun):
    recipe = parse(table | {"flow": flow})
    run = lab.run(recipe)
    begun.slices = 0
    pairs = lab.networks(recipe)
    assert begun.slices == 0
    for seed, ((start, final), trajectory) in enumerate(zip(pairs, lab.trajectories(recipe), strict=True)):
        data = trajectory.data
        for network, place in ((start, 0), (final, -1)):
            loss = float(np.mean((network(data.x) - data.y) ** 2) / 2)
            assert loss == pytest.approx(float(run["train-loss"][seed, place]), rel=1e-10)
        np.testing.assert_array_equal(trajectory.observed["train-loss"], run["train-loss"][seed])
        np.testing.assert_array_equal(
            trajectory.observed["weight-movement"]["hidden"], run["weight-movement.hidden"][seed]
        )
        assert trajectory.status.ok


def test_a_trajectory_from_python_is_kept_like_any_other(lab):
    with jax.enable_x64(True):
        data = random_labels(6, 3, key=jax.random.key(0))
        runs = [
            Descent(rate=0.25)(TwoLayer(8, 3, key=jax.random.key(seed)), data, [0, 1, 2], [TrainLoss()])
            for seed in range(2)
        ]
    path = lab.keep("by hand", runs)
    assert path.parent == lab.store.folder
    kept = read_run(path)
    np.testing.assert_array_equal(kept["train-loss"], [run.observed["train-loss"] for run in runs])
    assert (kept.attrs["name"], kept.attrs["made"]) == ("by hand", "python")
    assert "TwoLayer trained by Descent on 'random labels' (6 samples)" in kept.attrs["description"]
    assert lab.keep("by hand", runs) == path
    assert lab.keep("by hand", runs[0]) != path
    with pytest.raises(UserError, match="There is no trajectory to store as 'nothing'"):
        lab.keep("nothing", [])


def test_runs_as_a_table(lab, table):
    one = lab.run(parse(table))
    table["network"]["width"] = 16
    other = lab.run(parse(table | {"name": "wider"}))
    rows = lab.table()
    assert [row["name"] for row in rows] == ["tiny", "wider"]
    assert [row["network.width"] for row in rows] == [8, 16]
    assert {row["flow.rate"] for row in rows} == {0.25}
    for row, run in zip(rows, (one, other), strict=True):
        assert row["train-loss"] == pytest.approx(float(run["train-loss"][:, -1].mean()))
        assert row["status"] == "finished"
        assert "weight-movement.hidden" not in row
    assert [set(row) - {"run", "name", "status", "time", "train-loss"} for row in lab.table(differing=True)] == [
        {"network.width"}
    ] * 2
    each = lab.table(lab.store.path(parse(table | {"name": "wider"})), each_seed=True)
    assert [row["seed"] for row in each] == [0, 1]
    assert [row["train-loss"] for row in each] == pytest.approx(other["train-loss"][:, -1].values.tolist())


def test_states_of_another_kind_are_computed_again(lab, table, begun, monkeypatch):
    lab.run(parse(table))
    begun.seeds.clear()
    monkeypatch.setattr(working, "stacked_states", lambda *_: None)
    lab.run(parse(table | {"times": [*table["times"], 3.0]}))
    assert begun.slices > 0
    assert begun.seeds == [2, 2]
