"""`unlazy watch`: a local page that shows runs in progress from the files they write, and changes nothing.

The server answers at three addresses: the page, the part of it that is updated, and the same as JSON. Addresses are
never used as names of files, so no request can reach other files; every method except GET and HEAD is refused.
"""

from __future__ import annotations

import contextlib
import functools
import ipaddress
import json
import math
import socket
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np

from unlazy._errors import UserError
from unlazy._files import reason
from unlazy._plain import finite_or_none
from unlazy.figures import rank, rounding
from unlazy.figures.style import logarithmic
from unlazy.flows import read_checkpoint
from unlazy.lab import Note, notes, read_run
from unlazy.lab.store import LIVE
from unlazy.lab.stored import newest, statuses
from unlazy.report.html import render

_FINISHED = 12  # runs that have ended, the newest first
_SERIES = 4  # curves of a run on the page; JSON has all of them
UNREADABLE = "unreadable"  # the state of a run whose file is damaged
_IDLE = 10.0  # seconds after which a connection that sends nothing is closed
_CONNECTIONS = 32  # at a time
WIDE, HIGH = 300, 80


@dataclass(frozen=True)
class Curve:
    """What a probe has observed so far, as a mean over seeds and entries; a value that is not finite is None."""

    name: str
    times: list[float]
    values: list[float | None]

    @property
    def last(self) -> float | None:
        """The latest value."""
        return self.values[-1] if self.values else None

    @functools.cached_property
    def _drawn(self) -> tuple[np.ndarray, np.ndarray, bool]:
        """Times and values to draw, and whether on a logarithmic axis, which leaves out what is zero at t = 0."""
        values = np.array([math.nan if value is None else value for value in self.values])
        times, finite = np.asarray(self.times, float)[: len(values)], np.isfinite(values)
        kept = finite & ((times > 0) | (np.abs(values) > rounding(values[finite & (times > 0)])))
        shown = kept if logarithmic(values[kept]) else finite
        return times[shown], values[shown], shown is kept

    @property
    def logarithmic(self) -> bool:
        """Whether the curve is drawn on a logarithmic axis."""
        return self._drawn[2]

    @property
    def span(self) -> tuple[float, float, float, float] | None:
        """First and last time, smallest and largest value drawn; None if there is nothing to draw yet."""
        t, y, _ = self._drawn
        return (float(t[0]), float(t[-1]), float(y.min()), float(y.max())) if len(y) > 1 else None

    @property
    def path(self) -> str:
        """The curve as an SVG path in a box of ``WIDE`` by ``HIGH``."""
        t, y, is_log = self._drawn
        if len(y) < 2:
            return ""
        y = np.log(y) if is_log else y
        across = WIDE * (t - t[0]) / ((t[-1] - t[0]) or 1.0)
        down = HIGH * (1 - (y - y.min()) / (np.ptp(y) or 1.0))
        return "M" + "L".join(f"{a:.1f} {b:.1f}" for a, b in zip(across, down, strict=True))


@dataclass(frozen=True)
class Job:
    """A run that is in progress, was interrupted, or has ended."""

    name: str
    file: str
    state: str  # "running", "killed", "interrupted", "unreadable", or the status with which it ended
    share: float = 1.0
    clock: float | None = None
    end: float | None = None
    seconds: float | None = None  # computing time so far
    seconds_left: float | None = None
    silent: float | None = None  # seconds since its last report
    curves: list[Curve] = field(default_factory=list)
    why: str = ""  # why it cannot be read


def jobs(folder: Path, now: float | None = None) -> list[Job]:
    """List the runs of a folder: those in progress first, then the interrupted, then the newest that have ended."""
    if not folder.is_dir():
        raise UserError(f"There is no folder '{folder}' to watch: give a folder of stored results.")
    now = time.time() if now is None else now
    files = {path.name.removesuffix(LIVE).rpartition("-")[2]: path.name for path in folder.glob(f"*{LIVE}")}
    running = {note.digest: _running(note, files.get(note.digest, ""), now) for note in notes(folder)}
    found = sorted(running.values(), key=lambda job: job.name)
    for path in sorted(folder.glob("*.checkpoint")):
        if path.stem.rpartition("-")[2] not in running:
            found.append(_interrupted(path))
    return found + [job for job in map(_done, newest(folder, _FINISHED)) if job is not None]


def _running(note: Note, file: str, now: float) -> Job:
    share, silent = min(1.0, max(0.0, note.share)), max(0.0, now - note.written)
    times = (note.clock, note.end, note.written - note.begun, None if note.ended else note.seconds_left, silent)
    state = "killed" if note.ended else "running"
    return Job(note.name, file, state, share, *times, _curves(note.times, note.observed))


def _interrupted(path: Path) -> Job:
    job = Job(path.stem, path.name, "interrupted", 0.0)
    try:
        header, _ = read_checkpoint(path)
        return replace(job, clock=float(header["target"]), seconds=float(header["seconds"]))
    except Exception:  # whatever is in the file, which may come from anywhere
        return replace(job, state=UNREADABLE)


def _done(path: Path) -> Job | None:
    try:
        return _read(path, path.stat().st_mtime_ns)
    except FileNotFoundError:
        return None  # it has just been replaced
    except Exception as error:  # whatever is in the file, which may come from anywhere
        return Job(path.stem, path.name, UNREADABLE, why=str(error))


@functools.lru_cache(maxsize=256)
def _read(path: Path, _: int) -> Job:
    run = read_run(path)
    state = ", ".join(sorted(set(statuses(run))))
    means = {str(name): one.values.mean(axis=0) for name, one in run.items() if one.dims == ("seed", "time")}
    seen = {name: list(map(finite_or_none, mean)) for name, mean in means.items()}
    times = run["time"].values
    last, seconds = float(times[-1]), float(run.attrs.get("seconds", 0.0))
    name = str(run.attrs.get("name") or path.stem)
    return Job(name, path.name, state, 1.0, last, last, seconds, curves=_curves(times, seen))


def _curves(times: Sequence[float] | np.ndarray, seen: dict[str, list[float | None]]) -> list[Curve]:
    chosen = sorted(seen, key=lambda name: (rank(name), name.count(".")))
    return [Curve(name, [float(t) for t in times[: len(seen[name])]], seen[name][: len(times)]) for name in chosen]


def plain(found: Sequence[Job]) -> list[dict[str, Any]]:
    """Return jobs as values that JSON can hold."""
    return [asdict(job) for job in found]


# ---------------------------------------------------------------- serving


def serve(folder: Path, host: str, port: int, remote: bool, ready: Callable[[str], None]) -> None:
    """Serve the page until Ctrl-C; ``ready`` is called with its address."""
    server = make_server(folder, host, port, remote)
    name, number = str(server.server_address[0]), server.server_address[1]
    ready(f"http://[{name}]:{number}/" if ":" in name else f"http://{name}:{number}/")
    with server, contextlib.suppress(KeyboardInterrupt):
        server.serve_forever(poll_interval=0.2)


def make_server(folder: Path, host: str = "127.0.0.1", port: int = 0, remote: bool = False) -> ThreadingHTTPServer:
    """Make a server that is bound but does not serve yet; port 0 is any free port."""
    if not remote and not _loopback(host):
        advice = "omit --host, or add --remote to allow it"
        raise UserError(f"'{host}' can be reached from other machines, which could then see your runs: {advice}.")
    jobs(folder)  # raises an error now if there is no such folder
    handler = type("Handler", (_Handler,), {"folder": folder, "remote": remote})
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    kind = type("Server", (_Server,), {"address_family": family})
    try:
        return kind((host, port), handler)
    except (OSError, OverflowError) as error:
        raise UserError(f"'{host}' port {port} cannot be used ({reason(error)}): try another --port.") from None


def _loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class _Server(ThreadingHTTPServer):
    """A server with a limited number of threads that ignores clients that disconnect."""

    daemon_threads = True

    def __init__(self, *arguments: Any) -> None:
        self.free = threading.BoundedSemaphore(_CONNECTIONS)
        super().__init__(*arguments)

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self.free.acquire(timeout=0.5):  # all threads are busy: this client may come again
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except BaseException:  # no thread was started
            self.free.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self.free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print nothing about a connection that was closed by the other side; one line about anything else."""
        error = sys.exc_info()[1]
        if not isinstance(error, OSError):
            print(f"unlazy: a request could not be answered ({type(error).__name__}: {error}).", file=sys.stderr)


class _Handler(BaseHTTPRequestHandler):
    """Answers at three addresses, by default for this machine only, and writes nothing."""

    timeout = _IDLE

    folder: Path
    remote: bool
    server_version, sys_version = "unlazy", ""

    def do_GET(self) -> None:
        try:
            asked_for = urlsplit(f"//{self.headers.get('Host', '')}").hostname or ""
        except ValueError:
            asked_for = ""
        if not self.remote and not _loopback(asked_for):  # another page whose host name was made to point here
            self._answer(HTTPStatus.FORBIDDEN, "text/plain", "This page is for this machine only.\n")
            return
        try:
            if self.path in ("/", "/jobs"):
                self._answer(HTTPStatus.OK, "text/html", page(self.folder, whole=self.path == "/"))
            elif self.path == "/jobs.json":
                text = json.dumps(plain(jobs(self.folder)), ensure_ascii=False)
                self._answer(HTTPStatus.OK, "application/json", text)
            else:
                self._answer(HTTPStatus.NOT_FOUND, "text/plain", "There is nothing here.\n")
        except UserError as error:
            self._answer(HTTPStatus.SERVICE_UNAVAILABLE, "text/plain", f"{error}\n")

    do_HEAD = do_GET

    def _refuse(self) -> None:
        self._answer(HTTPStatus.METHOD_NOT_ALLOWED, "text/plain", "This page can only be read.\n")

    do_POST = do_PUT = do_DELETE = do_PATCH = do_OPTIONS = do_TRACE = do_CONNECT = _refuse

    def _answer(self, status: HTTPStatus, kind: str, text: str) -> None:
        body = text.encode()
        self.send_response(status)
        for name, value in {
            "Content-Type": f"{kind}; charset=utf-8",
            "Content-Length": str(len(body)),
            "Cache-Control": "no-store",
            "X-Content-Type-Options": "nosniff",
            "X-Frame-Options": "DENY",
            "Referrer-Policy": "no-referrer",
            "Connection": "close",
        }.items():
            self.send_header(name, value)
        if status is HTTPStatus.METHOD_NOT_ALLOWED:
            self.send_header("Allow", "GET, HEAD")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: the terminal is for results."""


def page(folder: Path, whole: bool) -> str:
    """Return the page, or the part of it that is updated."""
    found = jobs(folder)
    counts = {"running": sum(job.state == "running" for job in found), "all": len(found)}
    sizes = {"wide": WIDE, "high": HIGH, "most": _SERIES}
    return render("watch.html" if whole else "jobs.html", "watch.js", jobs=found, counts=counts, **sizes)
