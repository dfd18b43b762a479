"""Stored runs as rows of a table, and the results of a sweep as one dataset over its axes."""

import csv
import io
import json
import subprocess
import sys

import numpy as np
import pytest
import xarray as xr

from made_up import stored_run, stored_sweep
from unlazy._errors import SkippedFile, UserError
from unlazy.cli import main
from unlazy.lab import Lab, Manifest, Sweep, gather, read_run

TIMES = (0.0, 1.0, 10.0)
GRID = {"network.width": [8, 16, 32], "network.scaling": ["ntk", "mean-field"]}


def loss(fields, seed):
    """A loss from which the run, the seed and the time can be read back."""
    scaling = fields.get("network.scaling") == "mean-field"
    return {"train-loss": [1000 * scaling + fields["network.width"] + 0.1 * seed + 0.01 * index for index in range(3)]}


@pytest.fixture
def grid(tmp_path):
    return stored_sweep(tmp_path, {"seeds": 2, "sweep": GRID}, loss)


# ---------------------------------------------------------------- gather


def test_a_grid_has_an_axis_for_each_field(grid):
    found = gather(grid)
    assert found["train-loss"].dims == ("network.width", "network.scaling", "seed", "time")
    assert found["network.width"].values.tolist() == [8, 16, 32]
    assert found["network.scaling"].values.tolist() == ["ntk", "mean-field"]
    assert found["time"].values.tolist() == [0.0, 1.0, 10.0]
    for width in (8, 16, 32):
        for scaling in ("ntk", "mean-field"):
            values = found["train-loss"].sel({"network.width": width, "network.scaling": scaling})
            expected = [loss({"network.width": width, "network.scaling": scaling}, seed) for seed in (0, 1)]
            np.testing.assert_array_equal(values, [one["train-loss"] for one in expected])
    assert found.attrs["missing"] == 0
    assert found.attrs["sweep"] == "made up"
    assert set(found["status"].values.ravel()) == {"finished"}


def test_what_is_not_stored_is_nan(tmp_path):
    path = stored_sweep(tmp_path, {"seeds": 2, "sweep": GRID}, loss, leave_out=[1, 4])
    found = gather(path)
    missing = np.isnan(found["train-loss"].values).all(axis=(-2, -1))
    assert missing.tolist() == [[False, True], [False, False], [True, False]]
    assert np.isnan(found["train-loss"].values).any(axis=(-2, -1)).tolist() == missing.tolist()
    assert (found["status"].values == "missing").all(axis=-1).tolist() == missing.tolist()
    assert (found["run"].values == "").tolist() == missing.tolist()
    assert found.attrs["missing"] == 2


def test_a_damaged_run_is_named_and_missing(grid):
    bad = grid.parent / Manifest.read(grid).points[3].file
    bad.write_bytes(bad.read_bytes()[:-100])
    with pytest.warns(SkippedFile, match=bad.name):
        found = gather(grid)
    assert found.attrs["missing"] == 1
    assert np.isnan(found["train-loss"].values[1, 1]).all()


def test_a_sweep_and_a_list_of_runs_are_gathered_from_a_lab(tmp_path, grid):
    manifest = Manifest.read(grid)
    xr.testing.assert_identical(Lab(tmp_path).gather(manifest), gather(grid))
    sweep = Sweep.parse(manifest.base | {"sweep": GRID})
    xr.testing.assert_identical(Lab(tmp_path).gather(sweep), gather(grid))


@pytest.mark.parametrize(
    "part",
    [
        {"zip": {"network.width": [8, 16, 32], "flow.rate": [0.1, 0.2, 0.3]}},
        {"points": [{"network.width": w, "flow.rate": r} for w, r in ((8, 0.1), (16, 0.2), (32, 0.3))]},
    ],
    ids=["zip", "points"],
)
def test_other_sweeps_have_one_dimension(tmp_path, part):
    found = gather(stored_sweep(tmp_path, {"sweep": part}, loss))
    assert found["train-loss"].dims == ("point", "seed", "time")
    assert found["network.width"].dims == ("point",)
    assert found["flow.rate"].values.tolist() == [0.1, 0.2, 0.3]
    assert found["train-loss"].isel(time=0, seed=0).values.tolist() == [8, 16, 32]


def test_random_points_have_one_dimension(tmp_path):
    part = {
        "random": {
            "count": 5,
            "seed": 0,
            "flow.rate": {"log-uniform": [1e-3, 1.0]},
            "network.width": {"choice": [8, 16]},
        }
    }
    found = gather(stored_sweep(tmp_path, {"sweep": part}, loss))
    assert found.sizes["point"] == 5
    assert found["train-loss"].isel(time=0, seed=0).values.tolist() == found["network.width"].values.tolist()


def test_incomplete_grids_can_be_asked_for(tmp_path):
    part = {"points": [{"network.width": 8, "flow.rate": 0.1}, {"network.width": 16, "flow.rate": 0.2}]}
    found = gather(stored_sweep(tmp_path, {"sweep": part}, loss), grid=True)
    assert found["train-loss"].dims == ("network.width", "flow.rate", "seed", "time")
    assert np.isnan(found["train-loss"].isel(seed=0, time=0)).values.tolist() == [[False, True], [True, False]]


def test_swept_seeds_extend_the_seeds(tmp_path):
    sweep = {"seeds": 2, "sweep": {"network.width": [8, 16], "seed": [0, 2]}}
    found = gather(stored_sweep(tmp_path, sweep, loss))
    assert found["train-loss"].dims == ("network.width", "seed", "time")
    assert found["seed"].values.tolist() == [0, 1, 2, 3]
    np.testing.assert_allclose(found["train-loss"].isel(time=0).sel({"network.width": 16}), [16, 16.1, 16.2, 16.3])


def test_derived_fields_are_coordinates(tmp_path):
    sweep = {"sweep": {"network.width": [8, 16], "derived": {"flow.rate": "0.8 / network.width"}}}
    found = gather(stored_sweep(tmp_path, sweep, loss))
    assert found["flow.rate"].dims == ("network.width",)
    assert found["flow.rate"].values.tolist() == [0.1, 0.05]


def test_a_run_that_ended_early_is_nan_afterwards(tmp_path):
    short = stored_sweep(
        tmp_path,
        {"sweep": {"network.width": [8, 16]}},
        lambda fields, seed: {
            "train-loss": loss(fields, seed)["train-loss"][: 2 if fields["network.width"] == 8 else 3]
        },
    )
    found = gather(short)
    assert found["time"].values.tolist() == list(TIMES)
    assert np.isnan(found["train-loss"].isel(seed=0)).values.tolist() == [[False, False, True], [False] * 3]


def test_runs_with_other_times_keep_them(tmp_path):
    path = stored_sweep(tmp_path, {"sweep": {"network.width": [8, 16]}}, loss)
    file = tmp_path / Manifest.read(path).points[1].file
    other = read_run(file).assign_coords(time=[0.0, 1.5, 10.0])
    file.unlink()
    from unlazy._files import write

    write(other, file)
    found = gather(path)
    assert found["train-loss"].dims == ("network.width", "seed", "observation")
    assert found["time"].dims == ("network.width", "observation")
    assert found["time"].values.tolist() == [[0.0, 1.0, 10.0], [0.0, 1.5, 10.0]]


def test_values_that_are_tables_are_in_words(tmp_path):
    laws = [{"kind": "asymmetrical", "gamma": 0.5}, "ntk"]
    found = gather(
        stored_sweep(tmp_path, {"sweep": {"network.scaling": laws}}, lambda fields, seed: {"train-loss": [1.0] * 3})
    )
    assert found["network.scaling"].values.tolist() == ["asymmetrical (gamma 0.5)", "ntk"]


def test_a_gathered_sweep_can_be_saved(grid, tmp_path):
    found = gather(grid)
    found.to_netcdf(tmp_path / "all.nc4", engine="h5netcdf")
    with xr.open_dataset(tmp_path / "all.nc4", engine="h5netcdf") as again:
        np.testing.assert_array_equal(again["train-loss"], found["train-loss"])


def test_wrong_calls_of_gather(grid, tmp_path):
    with pytest.raises(UserError, match=r"no probe called 'trian-loss'\. Did you mean 'train-loss'"):
        gather(grid, probes=["trian-loss"])
    with pytest.raises(UserError, match="There is no sweep at"):
        gather(tmp_path / "other.sweep.json")
    with pytest.raises(UserError, match="None of the 6 runs of the sweep 'made up' is stored in"):
        gather(Manifest.read(grid), tmp_path / "elsewhere")


# ---------------------------------------------------------------- table


def test_a_table_of_a_sweep(grid, tmp_path):
    stored_run(tmp_path, "another")
    rows = Lab(tmp_path).table(grid, differing=True)
    assert [(row["network.width"], row["network.scaling"]) for row in rows] == [
        (width, scaling) for width in (8, 16, 32) for scaling in ("ntk", "mean-field")
    ]
    assert [row["train-loss"] for row in rows[::2]] == pytest.approx([8.07, 16.07, 32.07])
    assert len(Lab(tmp_path).table()) == 7
    assert len(Lab(tmp_path).table(tmp_path, grid)) == 7, "none is there twice"
    assert len(Lab(tmp_path).table(grid, each_seed=True)) == 12


def test_a_table_names_and_leaves_out_what_cannot_be_read(grid, tmp_path):
    bad = tmp_path / Manifest.read(grid).points[0].file
    bad.write_bytes(b"no run")
    with pytest.warns(SkippedFile, match=f"left out: '.*{bad.name}' is"):
        assert len(Lab(tmp_path).table()) == 5


def called(capsys, *arguments):
    with pytest.raises(SystemExit) as stop:
        main(["table", *map(str, arguments)])
    return stop.value.code, *capsys.readouterr()


def test_the_command_prints_a_table(capsys, grid, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    status, out, err = called(capsys, grid)
    assert (status, err) == (0, "")
    assert "All 6 rows: data.d = 2" in " ".join(out.split())
    assert "network.scaling" in out
    assert "All 6 rows" not in called(capsys, grid, "--differing")[1]


def test_the_command_writes_csv(capsys, grid, tmp_path):
    status, out, _ = called(capsys, grid, "--csv", "-", "--probe", "train-loss", "--each-seed")
    rows = list(csv.DictReader(io.StringIO(out)))
    assert (status, len(rows)) == (0, 12)
    assert float(rows[1]["train-loss"]) == 8.12
    assert rows[1]["seed"] == "1"
    status, out, _ = called(capsys, tmp_path, "--csv", tmp_path / "all.csv")
    assert out.startswith("6 rows of ")
    assert len((tmp_path / "all.csv").read_text().splitlines()) == 7


def test_the_command_prints_json(capsys, tmp_path):
    stored_run(tmp_path, "failed", variables={"train-loss": np.array([[1.0, np.nan, np.nan]])})
    _, out, _ = called(capsys, tmp_path, "--json")
    (row,) = json.loads(out, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    assert row["train-loss"] is None
    assert row["network.width"] == 8


@pytest.mark.filterwarnings("default::unlazy._errors.SkippedFile")
def test_the_command_names_a_bad_file_and_goes_on(capsys, grid, tmp_path):
    (tmp_path / "zzz.nc").write_bytes(b"no run")
    status, out, err = called(capsys, tmp_path, "--json")
    assert (status, len(json.loads(out))) == (0, 6)
    assert err.count("\n") == 1
    assert "zzz.nc' is" in err


@pytest.mark.filterwarnings("default::unlazy._errors.SkippedFile")
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nowhere"], "There is nothing at 'nowhere': give a stored run (.nc), a folder of runs, or"),
        (["FOLDER", "--probe", "trian-loss"], "probe 'trian-loss'. Did you mean 'train-loss'?"),
        (["FOLDER", "--csv", "FOLDER"], "which is a folder: give the name of a file, or -."),
        (["FOLDER", "--csv", "-", "--json"], "give one of them"),
        (["FOLDER/empty"], "There are no stored runs (.nc) in the folder"),
        (["FOLDER/bad.sweep.json"], "is not the whole list of a sweep's runs"),
        (["gone.nc"], "left out: There is no stored run at 'gone.nc': give a file (.nc)"),
    ],
)
def test_wrong_calls_get_a_sentence(capsys, grid, tmp_path, arguments, words):
    (tmp_path / "empty").mkdir()
    (tmp_path / "bad.sweep.json").write_text("{")
    status, out, err = called(capsys, *(one.replace("FOLDER", str(tmp_path)) for one in arguments))
    assert (status, out) == (2, "")
    assert words in err
    assert "Traceback" not in err


def test_a_table_needs_no_jax():
    """Importing JAX takes seconds, and reading stored runs does not need it."""
    code = "import sys, unlazy.lab.table, unlazy.lab.gathering; sys.exit('jax' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_reading_gives_what_xarray_reads(tmp_path):
    """Files are read without xarray's own reader, which is slow, but nothing may differ."""
    path = stored_run(
        tmp_path, "several", seeds=3, variables={"train-loss": np.ones((3, 3)), "wide": np.ones((3, 3, 4, 2))}
    )
    quick = read_run(path)
    with xr.open_dataset(path, engine="h5netcdf") as stored:
        xr.testing.assert_identical(stored.load(), quick)
    assert [type(one) for one in quick.attrs.values()] == [type(one) for one in stored.attrs.values()]
