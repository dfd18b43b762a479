"""Shared by the tests of the data room: the real files where there are any, and a web server that can misbehave."""

import http.server
import os
import threading
from pathlib import Path

import jax
import pytest

REAL = Path(os.environ.get("UNLAZY_DATA") or Path(__file__).parents[3] / "shared" / "data")


@pytest.fixture(autouse=True)
def _alone(monkeypatch, tmp_path):
    """No test sees the user's folders, fills the user's cache, or reaches the loopback server through a proxy."""
    monkeypatch.delenv("UNLAZY_DATA", raising=False)
    monkeypatch.setenv("UNLAZY_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("no_proxy", "127.0.0.1")


@pytest.fixture
def key():
    return jax.random.key(20220)


@pytest.fixture
def data_folder():
    if not REAL.is_dir():
        pytest.skip(f"no folder of real data: neither UNLAZY_DATA nor {REAL} is one")
    return str(REAL)


@pytest.fixture
def folder(tmp_path):
    """A data folder to be filled by the test."""
    made = tmp_path / "files"
    made.mkdir()
    return made


class Server:
    """A loopback web server: ``pages`` maps a path to the bytes sent; those in ``cut`` break off halfway."""

    def __init__(self):
        self.pages: dict[str, bytes] = {}
        self.cut: set[str] = set()
        self.asked: list[str] = []
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                outer.asked.append(self.path)
                body = outer.pages.get(self.path)
                if body is None:
                    self.send_error(404)
                    return
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body[: len(body) // 2] if self.path in outer.cut else body)

            def log_message(self, *_):
                pass

        self._server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02})
        self._thread.start()

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self._server.server_port}{path}"

    def close(self):
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture
def server():
    made = Server()
    yield made
    made.close()
