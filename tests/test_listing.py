"""Listings come without JAX, and say what the imported modules say."""

import inspect
import json
import subprocess
import sys

import pytest

from unlazy import _listing, _registry, cli
from unlazy._errors import UserError
from unlazy.papers import panels
from unlazy.theory import theorems

HEAVY = {"jax", "equinox", "numpy", "xarray", "scipy"}


@pytest.fixture(autouse=True)
def _cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("UNLAZY_CACHE", str(tmp_path_factory.getbasetemp() / "listing"))


def call(capsys, *arguments):
    with pytest.raises(SystemExit) as left:
        cli.main(list(arguments))
    printed = capsys.readouterr()
    return left.value.code, printed.out, printed.err


def test_the_fast_listing_is_the_truth():
    _listing.listing()
    fast = json.loads(next(_listing.cache().glob("listing-*.json")).read_text())
    assert list(fast) == list(_registry.KINDS)
    for kind, found in fast.items():
        truth = _registry.members(kind)
        assert set(found) == set(truth)
        for name, one in found.items():
            assert one["summary"], f"{kind} {name} says nothing of itself"
            if inspect.isclass(truth[name]) and kind not in ("theorem", "panel"):
                wanted = set(inspect.signature(truth[name]).parameters) - _listing.FILLED
                assert [option["name"] for option in one["options"]] == [
                    option for option in inspect.signature(truth[name]).parameters if option in wanted
                ]
    assert {key: one["summary"] for key, one in fast["panel"].items()} == {k: p.title for k, p in panels().items()}
    assert {key: one["scales"] for key, one in fast["panel"].items()} == {
        k: dict(p.scales) for k, p in panels().items()
    }
    assert {key: one["statement"] for key, one in fast["theorem"].items()} == {
        key: one.statement for key, one in theorems().items()
    }


@pytest.mark.parametrize(
    "command", [["list"], ["list", "activation"], ["panels"], ["theorems"], ["list", "data", "csv"]]
)
def test_light_commands_import_nothing_heavy(command):
    _listing.listing()
    code = f"import sys, unlazy.cli\ntry: unlazy.cli.main({command})\nexcept SystemExit: print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stderr == ""
    assert not HEAVY & set(done.stdout.splitlines()[-1].split())


def test_a_changed_source_is_noticed(monkeypatch, tmp_path):
    before = _listing._digest()
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("UNLAZY_PLUGINS", "listed_plugin")
    missing = _listing._digest()
    (tmp_path / "listed_plugin.py").write_text("x = 1\n")
    there = _listing._digest()
    (tmp_path / "listed_plugin.py").write_text("x = 12\n")
    assert len({before, missing, there, _listing._digest()}) == 4


def test_a_damaged_cache_is_made_again():
    wanted = _listing.listing()
    (path,) = _listing.cache().glob("listing-*.json")
    path.write_text("{")
    assert json.loads(json.dumps(_listing.listing())) == json.loads(json.dumps(wanted))
    assert path.read_text() != "{"


def test_a_cache_that_cannot_be_written_does_no_harm(monkeypatch, tmp_path):
    (tmp_path / "file").touch()
    monkeypatch.setenv("UNLAZY_CACHE", str(tmp_path / "file" / "folder"))
    assert "relu" in _listing.listing()["activation"]


def test_kinds_members_and_options(capsys):
    status, out, err = call(capsys, "list")
    assert (status, err) == (0, "")
    assert all(kind in out for kind in _registry.KINDS)
    assert "leaky-relu" in call(capsys, "list", "activations")[1]
    status, out, _ = call(capsys, "list", "activation", "LeakyRelu")
    assert (status, "slope" in out, "0.01" in out) == (0, True, True)
    assert "takes no options" in call(capsys, "list", "scaling", "ntk")[1]
    row = next(
        one for one in json.loads(call(capsys, "list", "data", "csv", "--json")[1])["options"] if one["name"] == "test"
    )
    assert row == {
        "name": "test",
        "type": "float",
        "default": "0.0",
        "doc": "Share of the rows that become the test set.",
    }
    assert {one["name"] for one in json.loads(call(capsys, "list", "loss", "--json")[1])} >= {"squared", "logistic"}
    options = json.loads(call(capsys, "list", "loss", "unlazy.losses:Squared", "--json")[1])["options"]
    assert [one["name"] for one in options] == ["reduction", "half"]


def test_arguments_are_explained_in_lists_and_sections():
    mnist = {one["name"]: one["doc"] for one in _listing.describe_one("data", "mnist")["options"]}
    assert mnist["flat"].startswith("Whether inputs are vectors of pixels")
    assert mnist["n"] == mnist["n_test"]
    assert "key" not in mnist
    inherited = _listing.describe_one("theorem", "chen2022/theorem-1")["options"]
    assert [(one["name"], one["doc"]) for one in inherited] == [("delta", "Failure probability δ.")]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["activaton"], "There is no kind 'activaton'. Did you mean 'activation'?"),
        (["activation", "rellu"], "There is no activation called 'rellu'. Did you mean 'relu'?"),
        (["activation", "nowhere_to_be_found:f"], "There is no module 'nowhere_to_be_found'"),
    ],
)
def test_wrong_names_get_one_sentence(capsys, arguments, sentence):
    status, out, err = call(capsys, "list", *arguments)
    assert (status, out) == (2, "")
    assert sentence in err
    assert issubclass(UserError, ValueError)
