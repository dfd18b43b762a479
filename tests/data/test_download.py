"""Where files are found, and that a bad one never gets in: against a loopback server with faults."""

import errno
import gzip
import hashlib
import io
import logging
import math
import os
import socket
import zipfile
from pathlib import Path

import numpy as np
import pooch
import pytest

from unlazy._errors import UserError
from unlazy.data import download, images, mnist
from unlazy.data.download import Published, fetch, find
from unlazy.data.tabular import Table, load

BODY = bytes(range(256)) * 2000


def digest(raw):
    return hashlib.sha256(raw).hexdigest()


def source(server, body=BODY):
    server.pages["/thing.bin"] = body
    return Published(server.url("/thing.bin"), digest(BODY), "things/thing.bin")


def cached():
    """All files in the cache, half-written ones included."""
    root = Path(os.environ["UNLAZY_CACHE"])
    return [path for path in root.rglob("*") if path.is_file()] if root.is_dir() else []


def test_a_file_is_downloaded_once(server):
    wanted = source(server)
    path = fetch(wanted)
    assert path.read_bytes() == BODY
    assert path == fetch(wanted)
    assert cached() == [path] == [Path(os.environ["UNLAZY_CACHE"]) / "things" / "thing.bin"]
    assert server.asked == ["/thing.bin"]


def test_downloading_prints_nothing(server, capfd, caplog):
    with caplog.at_level(logging.DEBUG):
        fetch(source(server))
    seen = capfd.readouterr()
    assert (seen.out, seen.err) == ("", "")
    assert not [record for record in caplog.records if record.name == "pooch"]
    assert pooch.get_logger().level != logging.ERROR


def test_a_terminal_sees_a_progress_bar(server, capsys, monkeypatch):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    fetch(source(server))
    assert "Downloading thing.bin" in capsys.readouterr().err


def test_folders_come_before_the_network(server, folder, tmp_path, monkeypatch):
    wanted = source(server)
    named = tmp_path / "named"
    for place in (folder / "things", named):
        place.mkdir()
        (place / "thing.bin").write_bytes(BODY)
    monkeypatch.setenv("UNLAZY_DATA", str(named))
    assert fetch(wanted) == named / "thing.bin"
    assert fetch(wanted, folder=str(folder)) == folder / "things" / "thing.bin"
    assert server.asked == []
    assert find(Published(None, None, "things/other.bin")) is None


def test_a_folder_without_the_file_is_passed_over(server, folder):
    assert fetch(source(server), folder=str(folder)).parent.name == "things"
    assert server.asked == ["/thing.bin"]


@pytest.mark.parametrize("how", ["argument", "variable"])
def test_a_folder_that_is_not_there(how, server, tmp_path, monkeypatch):
    missing = str(tmp_path / "nowhere")
    if how == "variable":
        monkeypatch.setenv("UNLAZY_DATA", missing)
    named = "folder" if how == "argument" else "UNLAZY_DATA"
    with pytest.raises(UserError, match=f"There is no folder '.*nowhere', which .*{named} names"):
        fetch(source(server), folder=missing if how == "argument" else None)


def test_a_damaged_local_file_is_refused(server, folder):
    wanted = source(server)
    (folder / "thing.bin").write_bytes(BODY[:-1])
    with pytest.raises(UserError, match=r"511999 bytes.*SHA-256 .* but .* was expected.*cut short") as caught:
        fetch(wanted, folder=str(folder))
    assert digest(BODY) in str(caught.value)
    assert digest(BODY[:-1]) in str(caught.value)
    assert str(folder / "thing.bin") in str(caught.value)
    (folder / "thing.bin").write_bytes(BODY)
    assert fetch(wanted, folder=str(folder)).read_bytes() == BODY


def test_wrong_bytes_are_thrown_away(server):
    with pytest.raises(UserError, match=r"sent for thing.bin has SHA-256 .* was expected; it was discarded"):
        fetch(source(server, b"<html>please log in</html>"))
    assert cached() == []


def test_a_body_cut_short_is_thrown_away(server):
    server.cut.add("/thing.bin")
    with pytest.raises(UserError, match=r"Could not download thing.bin .*the transfer broke off"):
        fetch(source(server))
    assert cached() == []
    server.cut.clear()
    assert fetch(source(server)).read_bytes() == BODY


def test_a_file_that_is_not_there(server):
    wanted = Published(server.url("/gone.bin"), digest(BODY), "things/gone.bin")
    with pytest.raises(UserError, match="the server answered 404 Not Found"):
        fetch(wanted)
    assert cached() == []


def test_no_network_says_where_it_looked_and_what_to_do(folder, monkeypatch):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{unused.getsockname()[1]}/thing.bin"
        monkeypatch.setenv("UNLAZY_DATA", str(folder))
        with pytest.raises(UserError, match="no connection") as caught:
            fetch(Published(address, digest(BODY), "things/thing.bin"))
    for part in ("thing.bin", str(folder), os.environ["UNLAZY_CACHE"], "UNLAZY_DATA", "things/thing.bin"):
        assert part in str(caught.value)
    assert cached() == []


def test_a_file_that_is_not_published(folder):
    with pytest.raises(UserError, match=r"There is no things/own.bin in folder or UNLAZY_DATA"):
        fetch(Published(None, None, "things/own.bin"), folder=str(folder))


def test_a_spoilt_cache_heals(server):
    wanted = source(server)
    fetch(wanted).write_bytes(b"spoilt")
    assert fetch(wanted).read_bytes() == BODY


def test_a_cache_that_cannot_be_made(server, tmp_path, monkeypatch):
    (tmp_path / "a file").write_text("in the way")
    monkeypatch.setenv("UNLAZY_CACHE", str(tmp_path / "a file" / "cache"))
    with pytest.raises(UserError, match=r"Could not write thing.bin to the cache .*UNLAZY_CACHE"):
        fetch(source(server))


def test_a_full_disk(server, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("shutil.move", full)
    with pytest.raises(UserError, match=r"Could not write thing.bin .*\(No space left on device\): make room"):
        fetch(source(server))
    assert cached() == []


def test_the_cache_has_a_default(monkeypatch):
    monkeypatch.delenv("UNLAZY_CACHE")
    assert download.cache() == Path(pooch.os_cache("unlazy"))


def test_a_table_from_its_published_archive(server):
    saved = io.BytesIO()
    with zipfile.ZipFile(saved, "w") as archive:
        archive.writestr("inside/t.dat", "1\t2\t3\r\n4\t5\t6\r\n")
    packed = saved.getvalue()
    server.pages["/t.zip"] = packed
    sources = Published(None, None, "uci/t.csv"), Published(server.url("/t.zip"), digest(packed), "uci/t.zip")
    assert np.array_equal(load(Table("tiny", sources, "t.dat", 2, 3)), [[1, 2, 3], [4, 5, 6]])
    assert [path.name for path in cached()] == ["t.zip"]


def test_mnist_from_the_network(server, monkeypatch, key):
    files = []
    for published, shape in zip(images.MNIST_FILES, ((40, 4, 4), (40,), (30, 4, 4), (30,)), strict=True):
        head = bytes([0, 0, 8, len(shape)]) + np.array(shape, ">u4").tobytes()
        raw = gzip.compress(head + bytes(math.prod(shape)))
        server.pages[f"/{published.name}"] = raw
        files.append(Published(server.url(f"/{published.name}"), digest(raw), published.file))
    monkeypatch.setattr(images, "MNIST_FILES", tuple(files))
    assert mnist(key=key).x.shape == (40, 16)
    assert len(server.asked) == len(cached()) == 4
    assert mnist(key=key).n == 40
    assert len(server.asked) == 4


def test_published_addresses_have_checksums():
    from unlazy.data import tabular

    published = [*images.MNIST_FILES, images.CIFAR_ARCHIVE, *images.CIFAR_SUBSET]
    for made in (tabular.CONCRETE, tabular.ENERGY, tabular.AIRFOIL, tabular.PLANT):
        published.extend(made.sources)
        assert made.sources[-1].url is not None
    for each in published:
        assert each.sha256 is not None
        assert len(each.sha256) == 64
        assert each.url is None or each.url.startswith("https://")
