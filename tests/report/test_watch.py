"""The page that follows runs: what it says is what files say, it is for this machine, and it only reads."""

import hashlib
import http.client
import json
import os
import subprocess
import threading
import time

import msgspec
import numpy as np
import pytest

from made_up import filmed, stored_run
from unlazy._errors import UserError
from unlazy._files import write
from unlazy.lab import Note, claims
from unlazy.report.watch import HIGH, WIDE, jobs, make_server, page, plain

HOSTILE = "<script>alert('1')</script><img src=x onerror=alert(1)>&\"{{ 7 * 7 }}"


def note(folder, name="on its way", **changes):
    given = {"seeds": 2, "end": 10.0, "clock": 5.0, "share": 0.5, "first_share": 0.0, "times": [0.0, 5.0]}
    given |= {"begun": 100.0, "written": 130.0, "observed": {"train-loss": [1.0, 0.25]}} | changes
    path = folder / f"x-{abs(hash(name)) % 10**12:012d}.live.json"
    path.write_bytes(msgspec.json.encode(Note(name=name, digest=path.name[2:14], **given)))
    return path


@pytest.fixture
def served(tmp_path):
    """Serve a folder, and give a way to ask."""
    servers = []

    def serve(**options):
        server = make_server(tmp_path, **options)
        servers.append(server)
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

        def ask(path="/", method="GET", host=None, body=None):
            connection = http.client.HTTPConnection(*server.server_address[:2], timeout=10)
            connection.putrequest(method, path, skip_host=True)
            connection.putheader("Host", host or f"127.0.0.1:{server.server_address[1]}")
            if body:
                connection.putheader("Content-Length", str(len(body)))
            connection.endheaders(body)
            answer = connection.getresponse()
            text = answer.read().decode()
            connection.close()
            return answer.status, text, answer

        return ask

    yield serve
    for server in servers:
        server.shutdown()
        server.server_close()


def checkpoint(path, leaf=()):
    """A file as `unlazy.flows.Driver.save` writes it."""
    body = json.dumps({"target": 7.5, "seconds": 60.0}).encode() + b"\n" + np.asarray(leaf).tobytes()
    path.write_bytes(body + hashlib.sha256(body).digest())


def test_jobs_are_what_files_say(tmp_path):
    note(tmp_path)
    stored_run(tmp_path, "done", **filmed())
    checkpoint(tmp_path / "stopped-0123456789ab.checkpoint")
    running, stopped, done = jobs(tmp_path, now=132.0)
    assert (running.name, running.state, running.share) == ("on its way", "running", 0.5)
    assert (running.seconds, running.seconds_left, running.silent) == (30.0, 30.0, 2.0)
    assert (running.clock, running.end, running.curves[0].last) == (5.0, 10.0, 0.25)
    assert (stopped.state, stopped.clock, stopped.seconds) == ("interrupted", 7.5, 60.0)
    assert (done.name, done.state, done.clock) == ("done", "finished", 10.0)
    assert [curve.name for curve in done.curves] == ["train-loss"], "only what is one number at each time"
    assert done.curves[0].logarithmic


def test_a_curve_fills_its_box(tmp_path):
    note(
        tmp_path,
        times=[0.0, 1.0, 4.0],
        observed={"a": [1.0, 3.0, 2.0], "b": [None, 1.0, None], "train-loss": [5.0, 5.0]},
    )
    loss, a, b = jobs(tmp_path)[0].curves
    assert a.path == f"M0.0 {HIGH:.1f}L{WIDE / 4:.1f} 0.0L{WIDE:.1f} {HIGH / 2:.1f}"
    assert (b.path, b.last, b.span) == ("", None, None)
    assert a.span == (0.0, 4.0, 1.0, 3.0)
    assert loss.name == "train-loss", "the loss comes first"


def test_json_has_all_curves_as_numbers_and_files_in_full(tmp_path):
    seen = {f"p{index}": [float(index), None, 2.0] for index in range(6)}
    path = note(tmp_path, times=[0.0, 1.0, 4.0, 9.0], observed=seen)
    (job,) = plain(jobs(tmp_path))
    assert job["file"] == path.name
    assert [curve["name"] for curve in job["curves"]] == sorted(seen)
    assert job["curves"][3] == {"name": "p3", "times": [0.0, 1.0, 4.0], "values": [3.0, None, 2.0]}
    text = page(tmp_path, whole=False)
    assert text.count("<svg") == 4, "the page shows a few curves only"
    assert "from t = 0 to 4, between 2 and 3" in text
    assert ">t = 0</text>" in text


def test_a_damaged_checkpoint_is_named(tmp_path):
    path = tmp_path / "stopped-0123456789ab.checkpoint"
    checkpoint(path, np.arange(1000.0))
    whole = bytearray(path.read_bytes())
    whole[200] ^= 255  # its checksum is wrong now
    path.write_bytes(whole)
    (job,) = jobs(tmp_path)
    assert (job.state, job.clock) == ("unreadable", None)


def test_a_checkpoint_of_a_run_that_goes_on_is_not_told_twice(tmp_path):
    live = note(tmp_path)
    checkpoint(tmp_path / f"{live.name.removesuffix('.live.json')}.checkpoint")
    (tmp_path / "cut-000000000000.checkpoint").write_bytes(b"PK")
    assert [job.state for job in jobs(tmp_path)] == ["running", "unreadable"]


def test_what_is_not_whole_is_named(tmp_path):
    (tmp_path / "cut-0.nc").write_bytes(b"no netCDF")
    (tmp_path / "cut-0.live.json").write_text("{")
    assert [(job.file, job.state) for job in jobs(tmp_path)] == [("cut-0.nc", "unreadable")]
    assert "is not a stored run" in page(tmp_path, whole=True)


def test_a_result_that_is_replaced_is_read_again(tmp_path):
    path = stored_run(tmp_path, "first")
    assert jobs(tmp_path)[0].seconds == 1.5
    import xarray as xr

    with xr.open_dataset(path) as run:
        changed = run.load()
    changed.attrs["seconds"] = 9.0
    path.unlink()
    time.sleep(0.01)
    write(changed, path)
    assert jobs(tmp_path)[0].seconds == 9.0


def test_the_page_is_served(tmp_path, served):
    note(tmp_path, HOSTILE)
    ask = served()
    status, text, answer = ask()
    assert status == 200
    assert "50 %" in text
    assert "30 s left" in text
    assert "default-src 'none'" in text
    assert answer.getheader("Cache-Control") == "no-store"
    assert answer.getheader("X-Content-Type-Options") == "nosniff"
    for path in ("/", "/jobs"):
        text = ask(path)[1]
        assert "<img" not in text
        assert "alert(1)&gt;" in text
        assert "{{ 7 * 7 }}" in text
    assert text.count("<script") == 0
    status, text, answer = ask("/jobs.json")
    assert json.loads(text)[0]["name"] == HOSTILE
    assert answer.getheader("Content-Type") == "application/json; charset=utf-8"
    assert ask(method="HEAD")[:2] == (200, "")


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"])
def test_nothing_can_be_written(tmp_path, served, method):
    note(tmp_path)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*")}
    status, _, answer = served()("/jobs.json", method, body=b"{}")
    assert status == 405
    assert answer.getheader("Allow") == "GET, HEAD"
    assert {path: path.read_bytes() for path in tmp_path.rglob("*")} == before


@pytest.mark.parametrize(
    "path",
    [
        "/../secret",
        "/../../../../etc/passwd",
        "/%2e%2e/secret",
        "/..%2fsecret",
        "/.\\..\\secret",
        "//secret",
        "/jobs/../../secret",
        "/secret",
        "/jobs?file=../secret",
        "http://127.0.0.1/../secret",
        "file:///etc/passwd",
        "/x-0.live.json",
    ],
)
def test_no_path_leads_to_a_file(tmp_path, served, path):
    (tmp_path / "secret").write_text("secret words")
    (tmp_path.parent / "secret").write_text("secret words")
    status, text, _ = served()(path)
    assert status == 404
    assert "secret words" not in text
    assert "root:" not in text


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:80", "192.168.1.4", "127.0.0.1.evil.example", "", "[::2]:1", "[evil"]
)
def test_a_page_elsewhere_cannot_ask_through_a_browser(served, host):
    assert served()(host=host or " ")[0] == 403


@pytest.mark.parametrize("host", ["localhost", "localhost:9", "127.0.0.1", "127.9.9.9", "[::1]:8"])
def test_this_machine_may_ask_by_any_of_its_names(served, host):
    assert served()(host=host)[0] == 200


@pytest.mark.parametrize(
    "host", ["0.0.0.0", "::", "192.168.1.4", "example.org", "10.0.0.1", "", "localhost.evil.example"]
)
def test_other_machines_are_refused_unless_told(tmp_path, host):
    with pytest.raises(UserError, match=r"can be reached from other machines.*--remote"):
        make_server(tmp_path, host)


def test_told_to_it_serves_others(served):
    ask = served(host="0.0.0.0", remote=True)
    assert ask(host="my.machine.example")[0] == 200


def test_a_port_that_is_taken_is_named(tmp_path):
    with make_server(tmp_path) as first, pytest.raises(UserError, match=r"port \d+ cannot be used \(.+\): try another"):
        make_server(tmp_path, port=first.server_address[1])


def test_a_folder_that_goes_is_said(tmp_path, served):
    ask = served()
    for path in tmp_path.iterdir():
        path.unlink()
    tmp_path.rmdir()
    status, text, _ = ask("/jobs")
    assert status == 503
    assert "There is no folder" in text
    tmp_path.mkdir()


@pytest.mark.parametrize("how", ["its process has ended", "it is silent for long"])
def test_a_run_whose_process_was_killed_is_not_running(tmp_path, how):
    with subprocess.Popen(["true"]) as ended:
        pass
    process = claims.this_process()
    path = note(tmp_path, process=process | {"pid": ended.pid} if how.startswith("its") else {})
    if how.startswith("it is"):
        os.utime(path, (1000.0, 1000.0))
    (job,) = jobs(tmp_path)
    assert (job.state, job.seconds_left) == ("killed", None)
    assert "not running any more" in page(tmp_path, whole=False)
    note(tmp_path, process=process)
    assert [job.state for job in jobs(tmp_path)] == ["running"]
