"""Files that may come from anywhere: they cannot reach other files, nor ask for any amount of memory or time."""

import contextlib
import io
import json
import os
import subprocess
import sys
import zipfile

import h5py
import numpy as np
import pytest
import xarray as xr

from unlazy import _netcdf
from unlazy._errors import SkippedFile, UserError
from unlazy._files import atomic_write, clean, write
from unlazy._plain import DamagedError, parse_json, parse_toml, seal, unseal
from unlazy.lab import Lab, parse, read_run, tracks
from unlazy.lab.recipe import read


def stored(path):
    run = xr.Dataset({"a": (("seed", "time"), np.ones((1, 2)))}, {"seed": [0], "time": [0.0, 1.0]})
    return write(run, path)


@contextlib.contextmanager
def edited(path):
    """Change a stored run as somebody does who knows its format."""
    with h5py.File(path, "a") as file:
        yield file
    path.write_bytes(_netcdf.sealed(path.read_bytes()))


def test_a_run_cannot_read_another_file(tmp_path):
    secret, path = tmp_path / "secret", stored(tmp_path / "run.nc")
    secret.write_bytes(b"x" * 16)
    assert read_run(path)["a"].sum() == 2
    with edited(path) as file:
        file.create_dataset("outside", (16,), "u1", external=[(str(secret), 0, 16)])
    with pytest.raises(UserError, match="'outside' is stored in another file"):
        read_run(path)


@pytest.mark.parametrize("link", [h5py.SoftLink("/a"), h5py.ExternalLink("other.nc", "/a")])
def test_a_run_has_no_links(tmp_path, link):
    path = stored(tmp_path / "run.nc")
    stored(tmp_path / "other.nc")
    with edited(path) as file:
        file["more"] = link
    with pytest.raises(UserError, match="'more' is a link"):
        read_run(path)


def test_a_run_has_no_virtual_arrays_and_no_groups(tmp_path):
    path = stored(tmp_path / "run.nc")
    layout = h5py.VirtualLayout((3,), "f8")
    layout[:] = h5py.VirtualSource("other.nc", "a", (3,))
    with edited(path) as file:
        file.create_virtual_dataset("more", layout)
    with pytest.raises(UserError, match="'more' is stored in another file"):
        read_run(path)
    with edited(path) as file:
        del file["more"]
        file.create_group("group")["self"] = h5py.SoftLink("/group")
    with pytest.raises(UserError, match="'group' is not an array of numbers"):
        read_run(path)


@pytest.mark.parametrize("options", [{}, {"chunks": (2**20,), "compression": "gzip"}])
def test_a_run_cannot_ask_for_more_memory_than_its_file_is_large(tmp_path, options):
    path = stored(tmp_path / "run.nc")
    with edited(path) as file:
        file.create_dataset("huge", (2**37,), "f8", **options)
    assert path.stat().st_size < 2**20
    with pytest.raises(UserError, match="'huge' asks for much more memory than the file has bytes"):
        read_run(path)


def test_odd_runs_are_refused(tmp_path):
    good = xr.Dataset({"a": (("seed", "time"), np.ones((1, 2)))}, {"seed": [0], "time": [0.0, 1.0]})
    for odd, words in (
        (good.drop_vars("time"), "no coordinate 'time'"),
        (good.assign_coords(time=[0.0, np.nan]), "'time' is not finite"),
        (good.assign_attrs(seconds="many"), "seconds are not a number"),
    ):
        with pytest.raises(UserError, match=words):
            read_run(write(odd, tmp_path / "odd.nc"))


def test_a_track_is_as_large_as_it_says(tmp_path, table):
    Lab(tmp_path).run(parse(table | {"seeds": 1}))
    (path,) = (tmp_path / "trajectories").glob("*.npz")
    tracks.check(path)
    with zipfile.ZipFile(path) as archive:
        content = {name: archive.read(name) for name in archive.namelist()}
    huge = io.BytesIO()
    np.lib.format.write_array_header_1_0(huge, {"shape": (2**40,), "fortran_order": False, "descr": "<f8"})
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in (content | {"asked.npy": huge.getvalue()}).items():
            archive.writestr(name, data)
    with pytest.raises(UserError, match="is damaged"):
        tracks.load(path)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:  # what is compressed may be any size
        for name, data in content.items():
            archive.writestr(name, data)
    with pytest.raises(UserError, match="is damaged"):
        tracks.load(path)


def test_a_track_of_another_trajectory_is_not_taken(tmp_path, table):
    lab = Lab(tmp_path)
    lab.run(parse(table | {"seeds": 1}))
    (path,) = (tmp_path / "trajectories").glob("*.npz")
    whole = path.read_bytes()
    lab.run(parse(table | {"seeds": 1, "seed": 5}))
    (other,) = set((tmp_path / "trajectories").glob("*.npz")) - {path}
    other.write_bytes(whole)
    (result,) = (one for one in tmp_path.glob("*.nc") if json.loads(read_run(one).attrs["recipe"])["seed"] == 5)
    result.unlink()
    with pytest.raises(UserError, match="holds another trajectory"):
        lab.run(parse(table | {"seeds": 1, "seed": 5}))


def test_a_run_of_another_recipe_is_not_taken(tmp_path, table):
    lab, one, other = Lab(tmp_path), parse(table), parse(table | {"seed": 5})
    lab.run(one)
    lab.store.path(other).write_bytes(lab.store.path(one).read_bytes())
    with pytest.raises(UserError, match="holds the result of another recipe"):
        lab.run(other)


@pytest.mark.parametrize("depth", [51, 200, 3000, 100_000])
@pytest.mark.parametrize(("opened", "closed"), [("[", "]"), ('{"a":', "}")])
def test_json_has_a_limited_depth(depth, opened, closed):
    with pytest.raises(ValueError, match="nested in each other more than 50 times"):
        parse_json(opened * depth + "1" + closed * depth)


@pytest.mark.parametrize("depth", [200, 3000, 100_000])
@pytest.mark.parametrize("opened", ["a = [", "a = {b = ", "a."])
def test_a_recipe_has_a_limited_depth_and_size(tmp_path, depth, opened):
    path = tmp_path / "deep.toml"
    head, repeated = ("", "a.") if opened == "a." else ("a = ", opened.removeprefix("a = "))
    path.write_text(head + repeated * depth + "b = 1")
    with pytest.raises(UserError, match=r"deep.toml"):
        read(path)
    with pytest.raises(ValueError, match=r".+"):
        parse_toml(path.read_text())
    path.write_text("# " + "x" * 2**20)
    with pytest.raises(UserError, match="more than 1 MiB"):
        read(path)


def test_too_many_times_are_refused(table):
    with pytest.raises(UserError, match="count"):
        parse(table | {"times": {"end": 1.0, "count": 2**32}})


def test_a_seal_notices_every_change():
    content = {"a": [1.0, 2.5e-300], "b": {"c": "é", "d": None}}
    sealed = json.loads(json.dumps(seal(content)))
    assert unseal(sealed) == (content, True)
    assert unseal(content) == (content, False)
    for changed in (sealed | {"a": [1.0]}, sealed | {"more": 1}, {"checksum": sealed["checksum"]}, []):
        with pytest.raises(DamagedError):
            unseal(changed)


def test_writing_does_not_follow_links_and_leaves_nothing_behind(tmp_path):
    victim, path = tmp_path / "victim", tmp_path / "file"
    victim.write_text("precious")
    path.symlink_to(victim)
    with atomic_write(path) as temporary:
        temporary.write_text("new")
    assert (victim.read_text(), path.read_text(), path.is_symlink()) == ("precious", "new", False)
    with subprocess.Popen(["true"]) as ended:
        pass
    with atomic_write(path) as mine:
        (tmp_path / mine.name.replace(f".{os.getpid()}.", f".{ended.pid}.")).touch()
        assert len(list(tmp_path.glob(".*.part"))) == 2
        clean(tmp_path)
        assert list(tmp_path.glob(".*.part")) == [mine], "only what a process left that has ended is removed"
        mine.write_text("newer")


def test_one_bad_file_does_not_spoil_a_table(tmp_path, table):
    lab = Lab(tmp_path)
    lab.run(parse(table))
    (tmp_path / "bad-0.nc").write_text("nonsense")
    with pytest.warns(SkippedFile, match=r"left out: '.*bad-0.nc' is not a stored run"):
        assert [row["name"] for row in lab.table()] == ["tiny"]


def test_a_full_disk_that_takes_nothing_says_both(tmp_path, table, monkeypatch):
    lab = Lab(tmp_path)
    lab.run(parse(table))
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    monkeypatch.setattr("unlazy.lab.store.tracks.save", _no_space)
    monkeypatch.setattr("unlazy.flows.driver.Driver.save", _no_space)
    with pytest.raises(
        UserError, match=r"Neither the result nor a checkpoint of 'tiny' can be stored.*All other results"
    ):
        lab.run(parse(table | {"seed": 9}))
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def _no_space(*_):
    raise OSError(28, "No space left on device")


def test_a_damaged_heap_does_not_hang_the_reader(tmp_path):
    """HDF5 follows entries of size 0 for ever; the reader therefore compares the digest of the file before."""
    path = stored(tmp_path / "run.nc")
    content = bytearray(path.read_bytes())
    first = content.find(b"GCOL") + 16  # the first entry of the global heap, whose header has 16 bytes
    content[first : first + 16] = bytes(16)
    path.write_bytes(content)
    code = f"from pathlib import Path; from unlazy.lab.stored import read_run; read_run(Path({str(path)!r}))"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert "is cut short or damaged (checksum): delete it" in ended.stderr
    assert _netcdf.read_attributes(path, ["recipe"]) == {}, "for what reads some attributes only"
