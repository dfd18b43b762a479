"""One bad file is named and left out; `verify` says what is damaged; nothing in a figure can run or fetch."""

import hashlib
import json
import socket
import threading
import time

import pytest

from made_up import stored_run
from unlazy._errors import SkippedFile, UserError
from unlazy._files import write_sealed
from unlazy.cli import main
from unlazy.report import gather, watch
from unlazy.report.citations import cite
from unlazy.report.record import recipes
from unlazy.report.svg import harmless
from unlazy.report.verify import verify


@pytest.fixture
def folder(tmp_path):
    stored_run(tmp_path, "good")
    (tmp_path / "bad-0.nc").write_text("nonsense")
    for name in ("panels", "certificates", "diagnoses"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "bad.json").write_text('{"findings": [{"theorem": 3}]')
    return tmp_path


def test_a_report_names_bad_files_and_leaves_them_out(folder):
    with pytest.warns(SkippedFile) as caught:
        contents = gather([folder])
    assert len(contents.runs) == 1
    assert {
        one for one in ("bad-0.nc", "panels", "certificates", "diagnoses") for w in caught if one in str(w.message)
    } == {
        "bad-0.nc",
        "panels",
        "certificates",
        "diagnoses",
    }


@pytest.mark.parametrize(
    "command", [["report", "--to", "page.html"], ["cite"], ["watch", "--json"], ["panels", "--out"]]
)
def test_commands_go_on(folder, command, capsys, monkeypatch):
    monkeypatch.chdir(folder)
    arguments = [command[0], ".", *command[1:]] if command[0] != "panels" else [*command, "."]
    with pytest.raises(SystemExit) as end:
        main(arguments)
    said = capsys.readouterr()
    assert end.value.code == 0
    assert "bad" in said.err + said.out


@pytest.mark.parametrize(
    "findings",
    [
        [{}],
        [{"theorem": "a", "seed": 0, "verdict": [], "margin": None, "why": ""}],
        [{"theorem": "a", "seed": 0, "verdict": "HOLDS", "margin": "large", "why": ""}],
    ],
)
def test_odd_certificates_are_left_out(tmp_path, findings):
    stored_run(tmp_path, "good")
    (tmp_path / "certificates").mkdir()
    content = {"name": "a", "recipe": "{}", "findings": findings, "made_by": {}}
    (tmp_path / "certificates" / "a.json").write_text(json.dumps(content))
    with pytest.warns(SkippedFile, match="a.json"):
        assert gather([tmp_path]).findings == {}


def test_citing_needs_one_file_that_can_be_used(folder):
    with pytest.warns(SkippedFile, match=r"bad-0|bad\.json"):
        assert "jax" in " ".join(cite(folder)).lower()
    with pytest.raises(UserError, match="bad-0"):
        cite(folder / "bad-0.nc")


def test_verify_says_what_is_damaged(folder, capsys):
    states = {one.file: one.state for one in verify(folder)}
    assert sorted(name for name, state in states.items() if state == "damaged") == [
        "bad-0.nc",
        "certificates/bad.json",
        "diagnoses/bad.json",
        "panels/bad.json",
    ]
    assert list(states.values()).count("in order") == 1
    with pytest.raises(SystemExit) as end:
        main(["verify", str(folder)])
    assert end.value.code == 1
    assert "4 damaged" in capsys.readouterr().out


@pytest.mark.parametrize(
    "value", ["URL(http://a.b)", "Url( 'http://a.b' )", "src(http://a.b)", "image(http://a.b)", "url(//a)"]
)
def test_a_figure_fetches_nothing_however_it_is_spelt(value):
    svg = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 1 1"><path fill="{value}" style="fill:{value}"/></svg>'
    assert "a.b" not in harmless(svg, "p", "a title")
    assert "//a" not in harmless(svg, "p", "a title").replace("http://www.w3.org", "")


@pytest.mark.parametrize("depth", [100, 3000, 50_000])
def test_a_figure_has_a_limited_depth(depth):
    svg = '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 1 1">' + "<g>" * depth + "</g>" * depth + "</svg>"
    assert harmless(svg, "p", "a title") is None


def test_idle_connections_are_closed_and_threads_bounded(tmp_path, monkeypatch, capfd):
    stored_run(tmp_path, "good")
    monkeypatch.setattr(watch._Handler, "timeout", 0.5)
    server = watch.make_server(tmp_path)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    before = threading.active_count()
    clients = [socket.create_connection(server.server_address[:2]) for _ in range(60)]
    for one in clients:
        one.sendall(b"GET / HT")  # and no more
    time.sleep(0.3)
    assert threading.active_count() - before <= watch._CONNECTIONS
    clients[0].settimeout(10)
    assert clients[0].recv(100) == b"", "the server has closed it"
    for one in clients:
        one.close()
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        with socket.create_connection(server.server_address[:2], timeout=10) as client:
            client.sendall(b"GET /jobs.json HTTP/1.0\r\nHost: localhost\r\n\r\n")
            if b"200" in client.recv(100):
                break
    else:
        pytest.fail("the server does not answer any more")
    server.shutdown()
    server.server_close()
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("recipe", ["[" * 10_000 + "]" * 10_000, "nonsense", '"text"', "{}"])
def test_a_record_with_an_odd_recipe_is_refused_in_a_sentence(tmp_path, recipe):
    fields = {"panel": "a/b", "title": "", "scale": "quick", "settings": "", "caption": "", "seconds": 0.0}
    path, digest = tmp_path / "odd.json", hashlib.sha256(b"<svg/>").hexdigest()
    write_sealed(path, fields | {"claims": [], "recipes": {"one": recipe}, "made_by": {}, "figure_sha256": digest})
    path.with_suffix(".svg").write_text("<svg/>")
    with pytest.raises(UserError, match=r"odd\.json|one"):
        recipes(path)
