"""A user's package brings data, activation, loss, network, probe and theorem into every command."""

import json
import sys
from pathlib import Path

import numpy as np

from unlazy.lab import instantiate, parse, read, read_run
from unlazy.lab.identity import fingerprint, sources


def read_mine():
    return read(Path("mine.toml"))


def test_members_are_listed_with_their_options(package, call):
    for kind, name in (
        ("data", "two-blobs"),
        ("activation", "snake"),
        ("network", "additive"),
        ("probe", "weight-norm"),
        ("theorem", f"{package}2026/falls"),
    ):
        status, out, err = call("list", kind)
        assert (status, err) == (0, "")
        assert name in out
    found = json.loads(call("list", "data", "two-blobs", "--json")[1])
    assert found["summary"] == "Two Gaussian clouds."
    assert {one["name"]: (one["default"], one["doc"]) for one in found["options"]} == {
        "n": ("12", "Number of samples."),
        "apart": ("1.0", "How far the clouds are apart."),
    }
    assert "falls" in call("theorems")[1]
    assert call("list", "activation", f"{package}.parts:soft_snake")[0] == 0


def test_a_recipe_of_own_members_runs_and_is_reported(package, call, tmp_path):
    status, out, err = call("run", "mine.toml", "--json")
    assert (status, err) == (0, ""), err
    answer = json.loads(out)
    assert set(answer["last"]) == {"train-loss", "weight-norm", "largest"}
    result = read_run(tmp_path / "work" / answer["run"])
    assert np.all(np.diff(result["train-loss"], axis=-1) < 0)
    assert call("report")[0] == 0
    assert call("cite", "mine.toml")[0] == 0


def test_a_theorem_of_ones_own_is_asked(package, call):
    for theorem in (f"{package}2026/falls", f"{package}.theory:LossFalls", f"{package}2026"):
        status, out, err = call("certify", "mine.toml", "--theorem", theorem, "--json")
        assert (status, err) == (0, ""), err
        assert [row["verdict"] for row in json.loads(out)] == ["HOLDS", "HOLDS"]


def test_options_of_own_members_are_checked(package, call, tmp_path):
    text = (tmp_path / "work" / "mine.toml").read_text()
    for good, bad, sentence in (
        ("n = 10", "m = 10", "data: there is no option 'm'. "),
        ("n = 10", 'n = "x"', "data.n: Expected 'int', got 'str'."),
        ("a = 0.5", "b = 0.5", "network.activation: there is no option 'b'."),
        ("width = 6", "widht = 6", "network: there is no option 'widht'. Did you mean 'width'?"),
        (
            "weight-norm",
            "weight-nrom",
            "probes[1]: There is no probe called 'weight-nrom'. Did you mean 'weight",
        ),
        (":soft_snake", ":soft_snak", "network.activation: There is no 'soft_snak' in"),
        (f"{package}.parts:fourth", "nowhere.at.all:fourth", "flow.loss: There is no module 'nowhere'"),
    ):
        assert good in text
        (tmp_path / "work" / "bad.toml").write_text(text.replace(good, bad))
        status, out, err = call("run", "bad.toml")
        assert (status, out) == (2, ""), err
        assert sentence in err
        assert err.count("\n") == 1


def test_plain_arrays_and_functions_serve(package):
    table = {"times": [0.0, 0.5], "dtype": "float32", "probes": [f"{package}.parts:largest"]}
    recipe = parse({**table, "data": f"{package}.parts:arrays", "network": {"kind": "additive", "width": 3}})
    made = instantiate(recipe)
    assert made.data[0].x.shape == (8, 3)
    assert set(made.probes) == {"largest"}
    twice = [instantiate(read_mine()).networks[0].activation for _ in range(2)]
    assert twice[0] == twice[1], "one spelling must compile once"


def test_what_a_recipe_stands_on_is_known(package, tmp_path):
    recipe = read_mine()
    sections = [recipe.data, recipe.network, recipe.flow, recipe.probes]
    before = sources(sections)
    assert set(before) == {f"{package}.parts"}
    path = tmp_path / "home" / package / "parts.py"
    path.write_text(path.read_text() + "\n# changed\n")
    assert sources(sections)[f"{package}.parts"] != before[f"{package}.parts"]
    assert sources({"kind": "two-layer", "width": 3, "note": "no:thing"}) == {}
    (tmp_path / "work" / "t.csv").write_text("1,2\n3,4\n")
    one = fingerprint({"kind": "csv", "path": "t.csv"})
    (tmp_path / "work" / "t.csv").write_text("1,2\n3,5\n")
    assert list(one) == list(fingerprint({"kind": "csv", "path": "t.csv"}))
    assert one != fingerprint({"kind": "csv", "path": "t.csv"})
    assert fingerprint("two-blobs") == fingerprint({"kind": "random-labels", "n": 3}) == {}


def test_a_module_beside_the_recipe_is_found(tmp_path, call, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [*sys.path])
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "beside_it.py").write_text("def data():\n    return [[1.0], [2.0], [3.0]], [1, 2, 3]\n")
    (tmp_path / "there" / "r.toml").write_text(
        'times = [0, 1]\nprobes = ["train-loss"]\ndata = "beside_it:data"\n'
        'network = { kind = "two-layer", width = 4 }\n'
    )
    status, _, err = call("run", "there/r.toml")
    assert (status, err) == (0, "")
