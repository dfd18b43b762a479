"""Running recipes: seeds, precision, nothing computed twice, and nothing lost when something goes wrong."""

import contextlib
import os

import jax
import numpy as np
import pytest
import xarray as xr

from unlazy._errors import UserError
from unlazy.flows import Driver
from unlazy.lab import Interrupted, Lab, instantiate, parse


@pytest.fixture
def recipe(table):
    return parse(table)


@pytest.fixture
def lab(tmp_path):
    return Lab(tmp_path / "runs")


@pytest.fixture
def no_computing(monkeypatch):
    def refuse(*_, **__):
        pytest.fail("something was computed")

    monkeypatch.setattr(Driver, "begin", refuse)


def stopping(folder, share, fresh=False):
    """A lab whose user presses Ctrl-C once ``share`` of the way is done."""

    def tell(recipe, done, note):
        if share <= done < 1:
            raise KeyboardInterrupt

    return Lab(folder, tell, fresh)


def files(folder):
    """The files of a store that people look at."""
    return sorted(path.name for path in folder.iterdir() if path.is_file())


def loss_by_hand(recipe, seed, times):
    """The recipe's loss along plain gradient descent, in NumPy: f = (1/m) a·tanh(w x / √d), rate 0.25, R = m."""
    made = instantiate(recipe)
    x, y = (np.asarray(values) for values in (made.data[seed].x, made.data[seed].y))
    w, a = (np.asarray(values) for values in (made.networks[seed].w, made.networks[seed].a))
    (m, d), seen = w.shape, []
    for step in range(round(max(times) / 0.25) + 1):
        h = x @ w.T / np.sqrt(d)
        residual = np.tanh(h) @ a / m - y
        if np.any(np.isclose(step * 0.25, times)):
            seen.append(np.mean(residual**2) / 2)
        slope = (residual[:, None] * (1 - np.tanh(h) ** 2) * a / m).T @ x / np.sqrt(d) / len(y)
        w = w - 0.25 * m * slope
    return np.array(seen)


def test_a_run_is_what_its_recipe_says(lab, recipe):
    run = lab.run(recipe)
    assert run["train-loss"].dims == ("seed", "time")
    assert run["weight-movement.hidden"].shape == (2, 4, 8)
    assert run.attrs["finished"] == 1
    np.testing.assert_array_equal(run["time"], recipe.times)
    for seed in range(2):
        np.testing.assert_allclose(run["train-loss"][seed], loss_by_hand(recipe, seed, recipe.times), rtol=1e-10)


def test_a_seed_alone_is_its_row_of_the_batch(lab, recipe, table):
    both = lab.run(recipe)
    second = lab.run(parse(table | {"seed": 1, "seeds": 1}))
    assert list(second["seed"]) == [1]
    for name in both.data_vars:
        np.testing.assert_allclose(second[name].sel(seed=1), both[name].sel(seed=1), rtol=1e-10, atol=1e-14)


def test_seeds_on_the_same_data_start_from_the_same_targets(lab, table):
    table["network"]["scaling"] = {"kind": "scaling", "node": -40.0}  # f = 0 in effect: the loss is that of the data
    apart, together = (lab.run(parse(table | {"same_data": same}))["train-loss"] for same in (False, True))
    assert together[0, 0] == pytest.approx(float(together[1, 0]), rel=1e-12)
    assert apart[0, 0] != pytest.approx(float(apart[1, 0]), rel=1e-3)


def test_precision_is_that_of_the_recipe(lab, recipe, table):
    single, double = lab.run(parse(table | {"dtype": "float32"})), lab.run(recipe)
    assert single["train-loss"].dtype == np.float32
    assert double["train-loss"].dtype == np.float64
    np.testing.assert_allclose(single["train-loss"], double["train-loss"], rtol=1e-4)
    assert not np.array_equal(single["train-loss"], double["train-loss"])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_result_does_not_depend_on_how_jax_is_set(tmp_path, table, dtype):
    recipe = parse(table | {"dtype": dtype})
    wide = Lab(tmp_path / "wide").run(recipe)
    with jax.enable_x64(False):
        narrow = Lab(tmp_path / "narrow").run(recipe)
    for name in wide.data_vars:
        assert np.array_equal(wide[name], narrow[name])


def test_what_is_returned_is_what_is_stored(lab, recipe):
    now, later = lab.run(recipe), lab.run(recipe)
    xr.testing.assert_identical(now, later)
    assert {type(value) for value in now.attrs.values()} == {type(value) for value in later.attrs.values()}


def test_what_is_stored_is_not_computed_again(lab, recipe, request):
    first = lab.run(recipe)
    request.getfixturevalue("no_computing")
    notes = []
    again = Lab(lab.store.folder, lambda recipe, share, note: notes.append((share, note))).run(recipe)
    xr.testing.assert_identical(again, first)
    assert notes == [(1.0, "stored")]


def test_fresh_computes_again(lab, recipe):
    first = lab.run(recipe)
    path = lab.store.path(recipe)
    xr.Dataset(attrs={"recipe": "an older one"}).to_netcdf(path, engine="h5netcdf")
    with pytest.raises(UserError, match="stored by a version of unlazy that wrote no checksums"):
        lab.run(recipe)
    again = Lab(lab.store.folder, fresh=True).run(recipe)
    np.testing.assert_array_equal(again["train-loss"], first["train-loss"])
    np.testing.assert_array_equal(lab.run(recipe)["train-loss"], first["train-loss"])


def test_progress_is_told(tmp_path, recipe):
    told = []
    Lab(tmp_path, lambda recipe, share, note: told.append((recipe.name, share, note))).run(recipe)
    names, shares, notes = zip(*told, strict=True)
    assert set(names) == {"tiny"}
    assert notes[0] == "drawing"
    assert list(shares) == sorted(shares)
    assert shares[-1] == 1.0


KINDS = {
    "descent": {"kind": "descent", "rate": 0.25},
    "minibatches": {"kind": "descent", "rate": 0.25, "batch": 2, "optimiser": "adam"},
    "gradient-flow": "gradient-flow",
}


@pytest.mark.parametrize("flow", KINDS.values(), ids=KINDS.keys())
def test_an_interrupted_run_goes_on_to_the_same_bits(tmp_path, table, flow):
    recipe = parse(table | {"flow": flow})
    whole = Lab(tmp_path / "whole").run(recipe)
    with pytest.raises(Interrupted, match=r"'tiny' was interrupted at \d+%; the same command continues from there."):
        stopping(tmp_path / "part", 0.5).run(recipe)
    lab = Lab(tmp_path / "part")
    assert files(lab.store.folder) == [lab.store.checkpoint(recipe).name]
    with pytest.raises(Interrupted):
        stopping(tmp_path / "part", 0.75).run(recipe)  # and once more, further on
    rest = lab.run(recipe)
    for name in whole.data_vars:
        np.testing.assert_array_equal(rest[name], whole[name])
    np.testing.assert_array_equal(rest["time"], whole["time"])
    assert list(rest.attrs["steps"]) == list(whole.attrs["steps"])
    assert files(lab.store.folder) == [lab.store.path(recipe).name]


def test_fresh_does_not_promise_to_go_on(tmp_path, recipe):
    with pytest.raises(Interrupted, match="--fresh starts over"):
        stopping(tmp_path, 0.5, fresh=True).run(recipe)


def interrupted(folder, recipe):
    with pytest.raises(Interrupted):
        stopping(folder, 0.5).run(recipe)
    return Lab(folder).store.checkpoint(recipe)


def test_a_broken_checkpoint_is_named(tmp_path, recipe):
    checkpoint = interrupted(tmp_path, recipe)
    whole = checkpoint.read_bytes()
    flipped = bytearray(whole)
    middle = len(whole) // 2
    flipped[middle : middle + 256] = bytes(byte ^ 0xFF for byte in flipped[middle : middle + 256])
    one = tmp_path / "one.npy"
    np.save(one, np.zeros(3))
    for content in (b"", b"nonsense", whole[: len(whole) // 2], bytes(flipped), one.read_bytes()):
        checkpoint.write_bytes(content)
        with pytest.raises(UserError, match=r"The checkpoint '.*' cannot be used \(\w+\): delete it to start again"):
            Lab(tmp_path).run(recipe)
    checkpoint.unlink()
    assert Lab(tmp_path).run(recipe).attrs["finished"] == 1


def test_a_checkpoint_of_another_run_is_not_used(tmp_path, recipe, table):
    other = parse(table | {"flow": {"kind": "descent", "rate": 0.125}})
    interrupted(tmp_path, recipe).rename(Lab(tmp_path).store.checkpoint(other))
    run, alone = Lab(tmp_path).run(other), Lab(tmp_path / "alone").run(other)
    np.testing.assert_array_equal(run["train-loss"], alone["train-loss"])


def test_a_full_disk_at_the_end_loses_nothing(tmp_path, recipe, monkeypatch):
    whole = Lab(tmp_path / "whole").run(recipe)
    real, refused = os.replace, []

    def refuse_results(source, target):
        if str(target).endswith(".nc"):
            refused.append(target)
            raise OSError(28, "No space left on device")
        real(source, target)

    monkeypatch.setattr("os.replace", refuse_results)
    lab = Lab(tmp_path / "full")
    with pytest.raises(
        UserError, match=r"No space left on device.*What was computed is stored: the same command continues"
    ):
        lab.run(recipe)
    assert refused
    assert files(lab.store.folder) == [], "the trajectories are stored, and the checkpoint is not needed any more"
    monkeypatch.undo()
    monkeypatch.setattr(Driver, "_advance", lambda *_: pytest.fail("something was computed again"))
    xr.testing.assert_equal(lab.run(recipe), whole)


def test_a_full_disk_at_a_checkpoint_keeps_the_older_one(tmp_path, recipe, full_disk):
    checkpoint = interrupted(tmp_path, recipe)
    older = checkpoint.read_bytes()

    def tell(recipe, done, note):
        if 0.75 <= done < 1:
            disk.enter_context(full_disk())
            raise KeyboardInterrupt

    with (
        contextlib.ExitStack() as disk,
        pytest.raises(UserError, match=r"The checkpoint cannot be written to '.*' \(.+\)"),
    ):
        Lab(tmp_path, tell).run(recipe)
    assert checkpoint.read_bytes() == older
    assert files(tmp_path) == [checkpoint.name]


def test_a_cut_result_is_not_silently_computed_again(lab, recipe):
    lab.run(recipe)
    path = lab.store.path(recipe)
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(UserError, match="is cut short or damaged"):
        lab.run(recipe)


def test_an_unwritable_folder_is_noticed_before_anything_runs(tmp_path, recipe, no_computing):
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="Results cannot be written to"):
        Lab(tmp_path / "file" / "runs").run(recipe)


def test_a_run_that_ends_early_keeps_what_it_saw(lab, table):
    table["network"]["activation"] = "linear"
    table["flow"]["rate"] = 1e3
    run = lab.run(parse(table | {"times": [0.0, 1e3, 1e5]}))
    assert run.attrs["finished"] == 0
    assert set(run.attrs["status"]) == {"diverged"}
    np.testing.assert_array_equal(run["time"], [0.0, 1e3])
    assert np.all(np.isfinite(run["train-loss"]))


def test_a_run_that_sees_nothing_says_why(lab, table):
    table["network"]["activation"] = "linear"
    table["flow"]["rate"] = 1e3
    with pytest.raises(UserError, match=r"'tiny' failed before its first observation: The loss rose above 1e8 times"):
        lab.run(parse(table | {"times": [1e5]}))


def test_a_missing_test_set_is_named(lab, table):
    with pytest.raises(UserError, match="'random labels' has no test set"):
        lab.run(parse(table | {"probes": ["test-loss"]}))


def test_no_probes_is_no_error(lab, table):
    run = lab.run(parse(table | {"probes": []}))
    assert not run.data_vars
    assert run.sizes == {"seed": 2, "time": 4}
