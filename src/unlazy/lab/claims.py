"""Claims: how several processes share the work in one folder.

A process that computes a trajectory holds a claim on it: a small file that names the process and machine and is touched
every few seconds. Other processes compute something else meanwhile, or wait. A claim is dead if its process has ended
(on the same machine) or if it has not been touched for `LIMIT` seconds; then exactly one other process takes it over.
A process that runs many recipes also shows that it is there, so that others leave some of the work to it.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import secrets
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import psutil

from unlazy._files import create, replace, writing

LIMIT = 120.0  # seconds without a touch after which a claim is dead, also if its process is on another machine
_BEAT = 5.0  # seconds between two touches
_PRESENT = ".present.claim"


@contextlib.contextmanager
def claimed(paths: list[Path], touched: Sequence[Path] = ()) -> Iterator[list[Path]]:
    """Claim those of ``paths`` that are free for the duration of the block, and yield them.

    The files in ``touched`` are touched like the claims, to show that this process is alive; they need not exist.
    """
    mine: dict[Path, bytes] = {}
    done = threading.Event()
    try:
        for path in paths:
            if (note := _take(path)) is not None:
                mine[path] = note
        if mine:
            threading.Thread(target=_beat, args=([*mine, *touched], done), daemon=True).start()
        yield list(mine)
    finally:
        done.set()
        for path, note in mine.items():
            with contextlib.suppress(OSError):
                if path.read_bytes() == note:  # otherwise it was taken over while this process was suspended
                    path.unlink()


def present(folder: Path) -> contextlib.AbstractContextManager[Any]:
    """Show, for the duration of the block, that this process shares the work in a folder of claims."""
    return claimed([folder / f"{secrets.token_hex(8)}{_PRESENT}"])


def sharers(folder: Path) -> list[tuple[str, bool]]:
    """Return the processes that share the work in a folder of claims, in the same order everywhere.

    Each has a name, and whether it is this process.
    """
    found = []
    for path in sorted(folder.glob(f"*{_PRESENT}")):
        with contextlib.suppress(OSError):
            note = path.read_bytes()
            if _dead(note, path.stat().st_mtime):
                path.unlink()
            else:
                found.append((path.name, f'"pid": {os.getpid()},'.encode() in note))
    return found


@contextlib.contextmanager
def held(path: Path) -> Iterator[None]:
    """Claim ``path`` for the duration of the block, and wait for it if another process has it."""
    while True:
        with claimed([path]) as mine:
            if mine:
                yield
                return
        time.sleep(0.05)


def _beat(paths: list[Path], done: threading.Event) -> None:
    while not done.wait(_BEAT):
        for path in paths:
            with contextlib.suppress(OSError):
                os.utime(path)


def _take(path: Path) -> bytes | None:
    """Claim ``path`` and return the contents of the claim; None if another process has it."""
    note = json.dumps(this_process() | {"claimed": time.time(), "token": secrets.token_hex(8)}).encode()
    with writing("A claim", path, "free some space"):
        try:
            create(path, note)
        except FileExistsError:
            return note if _take_over(path, note) else None
    return note


def _take_over(path: Path, note: bytes) -> bool:
    """Replace a dead claim by ``note``; of several processes that try, one succeeds."""
    try:
        old, touched = path.read_bytes(), path.stat().st_mtime
    except OSError:  # it has just been removed: the next attempt will claim it
        return False
    if not _dead(old, touched):
        return False
    # The process that locks this file may replace this claim. The claim is read once more, as another process may have
    # replaced it before. A lock ends with its process, so that nothing is blocked if that is killed here.
    right = path.with_name(f".{path.name}.{hashlib.sha256(old).hexdigest()[:16]}.part")
    try:
        descriptor = os.open(right, os.O_CREAT | os.O_RDWR, 0o644)
    except OSError:
        return False
    try:
        _lock(descriptor)
        if os.stat(right).st_ino != os.fstat(descriptor).st_ino:
            return False
        same = path.read_bytes() == old
        if same:
            replace(path, note)
        right.unlink()
        return same
    except OSError:
        return False
    finally:
        os.close(descriptor)


def _lock(descriptor: int) -> None:
    """Lock a file, and raise BlockingIOError if another process has; nothing happens where files cannot be locked."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise
    except OSError:  # then two processes may take over a claim at the same moment, and both compute the same
        pass


def this_process() -> dict[str, Any]:
    """Return the machine, number and start of this process, by which `ended` knows it again."""
    return {"pid": os.getpid(), "host": socket.gethostname(), "started": psutil.Process().create_time()}


def _dead(note: bytes, touched: float) -> bool:
    try:
        return ended(json.loads(note), touched)
    except (ValueError, RecursionError):  # just being written
        return ended({}, touched)


def ended(claim: Any, touched: float) -> bool:
    """Whether a process, as `this_process` describes it, has ended or not ``touched`` its file for `LIMIT` seconds."""
    if time.time() - touched > LIMIT:
        return True
    try:
        if claim["host"] != socket.gethostname():
            return False
        process = psutil.Process(int(claim["pid"]))
        if process.status() == psutil.STATUS_ZOMBIE:
            return True
        return abs(process.create_time() - float(claim["started"])) > 1.0  # the number belongs to another process now
    except psutil.NoSuchProcess:
        return True
    except (ValueError, KeyError, TypeError, OverflowError, psutil.Error):  # unknown, or of another user
        return False
