"""Claims between processes: one has it, the others know, and a dead one is taken over by exactly one."""

import json
import os
import subprocess
import sys
import threading
import time

import pytest

from unlazy._errors import UserError
from unlazy.lab import claims
from unlazy.lab.claims import claimed


@pytest.fixture
def path(tmp_path):
    return tmp_path / "x.claim"


def test_a_claim_is_held_by_one(path):
    with claimed([path]) as mine:
        assert mine == [path]
        told = json.loads(path.read_bytes())
        assert told["pid"] == os.getpid()
        with claimed([path, path.with_name("free.claim")]) as others:
            assert others == [path.with_name("free.claim")]
        assert path.exists()
    assert not path.exists()


def test_a_claim_goes_with_an_error(path):
    with pytest.raises(KeyboardInterrupt), claimed([path]):
        raise KeyboardInterrupt
    assert not path.exists()


def dead_claim(path):
    """The claim of a process that is gone."""
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    note = {"pid": gone.pid, "host": claims.socket.gethostname(), "started": 0.0, "claimed": 0.0, "token": "x"}
    path.write_text(json.dumps(note))


def test_the_claim_of_a_process_that_is_gone_is_taken_over(path):
    dead_claim(path)
    with claimed([path]) as mine:
        assert mine == [path]
        assert json.loads(path.read_bytes())["pid"] == os.getpid()
    assert os.listdir(path.parent) == []


def test_another_process_of_the_same_number_is_not_taken_for_it(path):
    path.write_text(json.dumps({"pid": os.getpid(), "host": claims.socket.gethostname(), "started": 1.0}))
    with claimed([path]) as mine:
        assert mine == [path]


@pytest.mark.parametrize("note", [b"", b"{", b'{"pid": 1, "host": "elsewhere", "started": 0.0}'])
def test_who_cannot_be_asked_has_time_to_give_a_sign(path, note):
    path.write_bytes(note)
    with claimed([path]) as mine:
        assert mine == []
    long_ago = time.time() - claims.LIMIT - 1
    os.utime(path, (long_ago, long_ago))
    with claimed([path]) as mine:
        assert mine == [path]


def test_a_claim_gives_signs_of_life(path, monkeypatch):
    monkeypatch.setattr(claims, "_BEAT", 0.01)
    with claimed([path]):
        os.utime(path, (0, 0))
        deadline = time.time() + 10
        while path.stat().st_mtime == 0 and time.time() < deadline:
            time.sleep(0.01)
        assert path.stat().st_mtime > 0


def test_one_of_many_takes_a_dead_claim_over(path):
    for _ in range(20):
        dead_claim(path)
        barrier, taken = threading.Barrier(8), []

        def compete(barrier=barrier, taken=taken):
            barrier.wait()
            note = claims._take(path)
            if note is not None:
                taken.append(note)

        threads = [threading.Thread(target=compete) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(taken) == 1
        assert path.read_bytes() == taken[0]
        path.unlink()


def test_a_claim_that_was_taken_over_is_left_to_the_other(path):
    with claimed([path]):
        path.write_text("of another process")
    assert path.read_text() == "of another process"


def test_a_takeover_that_was_killed_half_way_blocks_nobody(path):
    dead_claim(path)
    right = path.with_name(f".{path.name}.{claims.hashlib.sha256(path.read_bytes()).hexdigest()[:16]}.part")
    with open(right, "w") as file:
        claims.fcntl.flock(file, claims.fcntl.LOCK_EX)
        with claimed([path]) as mine:
            assert mine == []  # another process is taking it over
    with claimed([path]) as mine:
        assert mine == [path]
    assert list(path.parent.iterdir()) == []


def test_a_claim_is_whole_or_absent_whenever_its_process_is_killed(path, monkeypatch):
    """An empty claim names no process, so that others would wait for two minutes."""
    seen = []

    def killed(*_):
        seen.append(path.exists())
        raise KeyboardInterrupt

    monkeypatch.setattr(claims.os, "link", killed)
    with pytest.raises(KeyboardInterrupt), claimed([path]):
        pass
    assert (seen, list(path.parent.iterdir())) == ([False], [])


def test_claims_do_not_need_a_file_system_with_links(path, monkeypatch):
    def refuse(*_):
        raise PermissionError

    monkeypatch.setattr(claims.os, "link", refuse)
    with claimed([path]) as mine, claimed([path]) as second:
        assert (mine, second) == ([path], [])


def test_a_full_disk_is_said_and_leaves_no_claim(path, monkeypatch):
    """Also none of those that were taken before the disk was full."""

    def full(target, content):
        if target == path:
            raise OSError(28, "No space left on device")
        create(target, content)

    create = claims.create
    monkeypatch.setattr(claims, "create", full)
    with (
        pytest.raises(UserError, match=r"\(No space left on device\): free some space"),
        claimed([path.with_name("first.claim"), path]),
    ):
        pass
    assert os.listdir(path.parent) == []
