"""The command `unlazy diagnose` on a model of a package outside the tree, and the report of what it finds."""

import json

import numpy as np
import pytest

from unlazy import cli
from unlazy.lab import fit_slope
from unlazy.lab.answers import judged
from unlazy.report.diagnoses import read_diagnosis

MODULE = """
import equinox as eqx
import jax.numpy as jnp
import unlazy

def make(width, key):
    return eqx.nn.MLP(3, 1, width, depth=1, activation=jnp.tanh, key=key), unlazy.Descent(rate=1 / width)

def points(*, key):
    return unlazy.data.single_index(n=8, d=3, link="erf", key=key)
"""


@pytest.fixture
def call(capsys, tmp_path, monkeypatch):
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "__init__.py").touch()
    (tmp_path / "outside" / "nets.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)

    def called(*arguments):
        with pytest.raises(SystemExit) as left:
            cli.main(["diagnose", *arguments, "--out", str(tmp_path / "runs")])
        printed = capsys.readouterr()
        return left.value.code, printed.out, printed.err

    return called


USUAL = ("outside.nets:make", "--data", "outside.nets:points", "--widths", "4,8", "--seeds", "2")


@pytest.mark.slow
@pytest.mark.parametrize("check", ["regime", "coordinates"])
def test_a_model_of_another_package_is_diagnosed(call, tmp_path, check):
    status, out, _ = call(*USUAL, "--check", check, "--json")
    assert status == 0
    found = json.loads(out)
    assert found["answer"]
    assert found["settings"]["command"].startswith("unlazy diagnose outside.nets:make --data outside.nets:points")
    name = "outside.nets.make" + ("" if check == "regime" else "-coordinates")
    shown = read_diagnosis(tmp_path / "runs" / "diagnoses" / f"{name}.json")
    assert shown.answer == found["answer"]
    assert "<svg" in shown.figure


@pytest.mark.parametrize("name", ["points.npz", "points.csv", "points.csv.gz"])
def test_data_may_be_a_file(call, tmp_path, monkeypatch, name):
    from unlazy.lab import diagnosis

    x = np.arange(12.0).reshape(4, 3)
    y, path = x.sum(axis=1), tmp_path / name
    np.savez(path, x=x, y=y) if name.endswith("npz") else np.savetxt(path, np.column_stack([x, y]), delimiter=",")
    seen = []

    def stopped(flow, models, data, *given):
        seen.append(data)
        raise KeyboardInterrupt

    monkeypatch.setattr(diagnosis, "train", stopped)
    assert call("outside.nets:make", "--data", str(path), *USUAL[3:])[0] == 130
    np.testing.assert_array_equal(seen[0].x, x)
    np.testing.assert_array_equal(seen[0].y, y)


@pytest.mark.slow
@pytest.mark.parametrize("check", ["regime", "coordinates", "rates"])
def test_ctrl_c_saves_and_the_same_command_continues(call, tmp_path, monkeypatch, check):
    from unlazy.lab import coordinates, diagnosis, rates

    module = {"regime": diagnosis, "coordinates": coordinates, "rates": rates}[check]
    usual, widths = module.train, []

    def interrupted(flow, models, *given):
        widths.append(models[0])
        if len(widths) == first + 1:
            raise KeyboardInterrupt
        return usual(flow, models, *given)

    monkeypatch.setattr(module, "train", interrupted)
    first = {"regime": 2, "coordinates": 2, "rates": 9}[check]  # trainings at each width
    status, _, err = call(*USUAL, "--check", check)
    assert status == 130
    assert "Interrupted at width 8. The measurements at 4 are saved in" in err
    assert "the same command continues from there" in " ".join(err.split())
    status, _, _ = call(*USUAL, "--check", check)
    assert (status, len(widths)) == (0, 2 * first + 1)
    assert not list((tmp_path / "runs" / "diagnoses").glob("*.part"))


WRONG = {
    "no such function": (["outside.nets:mak", "--data", "outside.nets:points"], "Did you mean 'make'"),
    "no such data": (["outside.nets:make", "--data", "mnst"], "Did you mean 'mnist'"),
    "widths": (["outside.nets:make", "--data", "outside.nets:points", "--widths", "64,a"], "whole numbers separated"),
    "no data": (["outside.nets:make"], "--data"),
    "a check": ([*USUAL, "--check", "rate"], "rates"),
    "until": ([*USUAL, "--check", "rates", "--until", "3"], "is only for --check regime"),
}


@pytest.mark.parametrize("mistake", WRONG)
def test_wrong_calls_get_a_sentence(call, mistake):
    arguments, words = WRONG[mistake]
    status, out, err = call(*arguments)
    assert (status, out) == (2, "")
    assert words in err


def test_a_report_shows_a_diagnosis(tmp_path):
    widths = (16, 32, 64)
    flat, falling = (fit_slope(widths, np.array(widths, float)[:, None] ** power * np.ones(2)) for power in (0.0, -0.5))
    names = ("initial outputs", "first output change", "output change")
    measured = dict.fromkeys(names, flat) | dict.fromkeys(("kernel drift", "linearisation error"), falling)
    settings = {"model": "MLP", "command": "unlazy diagnose mine:make --data mnist"}
    judged(measured, settings).save(tmp_path / "runs" / "diagnoses" / "mine.json")
    with pytest.raises(SystemExit) as left:
        cli.main(["report", str(tmp_path / "runs"), "--to", str(tmp_path / "report.html")])
    assert left.value.code == 0
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    for words in ("Regime of mine: LAZY", "kernel drift", "fitted powers", "unlazy diagnose mine:make --data mnist"):
        assert words in page, words
