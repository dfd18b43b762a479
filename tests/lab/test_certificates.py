"""Theorems asked about recipes: the three examples of the documentation, at small size."""

import json
from pathlib import Path

import msgspec
import pytest

from unlazy.flows import Driver
from unlazy.lab import Lab, certify, read
from unlazy.theory import Verdict, choose

EXAMPLES = Path(__file__).parents[2] / "examples"


def small(name, **changes):
    recipe = read(EXAMPLES / f"certify_{name}.toml")
    data = recipe.data | {"n": min(recipe.data["n"], 12)}
    times = msgspec.structs.replace(recipe.times, count=4)
    network = recipe.network | {"width": 256}
    if "embedding" in network:
        network |= {"embedding": {"kind": network["embedding"], "activation": "relu"}}  # a kernel in closed form
    return msgspec.structs.replace(recipe, **{"data": data, "network": network, "times": times} | changes)


def findings(certificates):
    return {one.theorem.key: one.finding for one in certificates}


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    return Lab(tmp_path_factory.mktemp("certified"))


@pytest.fixture(scope="module")
def shallow(lab):
    """Two seeds of the first example, in a recipe that watches another interval than Lemma 1, and what is told."""
    told = []
    probes = ["train-loss", {"kind": "active-share", "left": 0.0, "right": 1.0}]
    recipe = small("shallow", seed=3, seeds=2, probes=probes)
    listening = Lab(lab.store.folder, lambda recipe, share, note: told.append((recipe.name, share)))
    return certify(recipe, choose("chen2022"), listening), told, recipe


def test_fewer_points_than_inputs_get_a_rate(shallow):
    found = findings(shallow[0])
    for key in ("chen2022/eq-14", "chen2022/lemma-1"):
        assert found[key].verdict is Verdict.HOLDS, found[key]
        assert 0 < found[key].numbers["guaranteed rate"] < found[key].numbers["measured rate"]
        assert f"{found[key].numbers['guaranteed rate']:.3g}" in found[key].why
        assert f"{found[key].numbers['measured rate']:.3g}" in found[key].why
    assert found["chen2022/eq-15"].verdict is Verdict.HOLDS
    assert found["chen2022/theorem-1"].verdict is Verdict.SILENT


def test_every_seed_is_asked_and_progress_told(shallow):
    found, told, _ = shallow
    assert [one.seed for one in found] == [3] * len(choose("chen2022")) + [4] * len(choose("chen2022"))
    assert {name for name, _ in told} == {"certify a shallow network"}
    assert told[-1][1] == pytest.approx(1.0)


def test_a_stored_run_is_not_trained_again(shallow, lab, monkeypatch):
    found, _, recipe = shallow
    monkeypatch.setattr(Driver, "_advance", lambda *_: pytest.fail("something was trained"))
    again = certify(recipe, choose("chen2022"), lab)
    assert [one.summary() for one in again] == [one.summary() for one in found]


def test_a_summary_is_plain(shallow):
    (one,) = [one for one in shallow[0] if one.seed == 3 and one.theorem.key == "chen2022/theorem-1"]
    summary = json.loads(json.dumps(one.summary(), allow_nan=False))
    assert set(summary) == {"theorem", "seed", "verdict", "margin", "why", "numbers", "hypotheses"}
    assert (summary["theorem"], summary["seed"], summary["verdict"]) == ("chen2022/theorem-1", 3, "SILENT")
    readout, width = summary["hypotheses"][-2:]
    assert (readout["what"], readout["met"], readout["found"]) == ("read-outs ĉ", False, pytest.approx(150.0))
    assert width["needed"] > width["found"] == 256


def test_more_points_than_inputs_get_silence(lab):
    asked = choose("chen2022/theorem-1") + choose("chen2022/corollary-1")
    for finding in findings(certify(small("too_many_points", times=[0.0]), asked, lab)).values():
        assert finding.verdict is Verdict.SILENT
        (smallest,) = [one.found for one in finding.hypotheses if one.what.startswith("eig_min(G)")]
        assert abs(smallest) < 1e-12


def test_an_infinite_embedding_makes_them_speak_again(lab):
    asked = choose("chen2022/eq-14") + choose("chen2022/theorem-2")
    found = findings(certify(small("infinite_embedding"), asked, lab))
    assert found["chen2022/eq-14"].verdict is Verdict.HOLDS
    assert found["chen2022/eq-14"].numbers["guaranteed rate"] > 0
    needed = {one.what: one for one in found["chen2022/theorem-2"].hypotheses}
    assert needed["|G - Ḡ| <= eig_min(Ḡ) / 2"].met
    assert needed["read-outs ĉ"].needed > needed["read-outs ĉ"].found


def test_an_interrupted_run_goes_on_later(lab, monkeypatch):
    def stop(self, budget):
        raise KeyboardInterrupt

    monkeypatch.setattr(Driver, "_advance", stop)
    with pytest.raises(KeyboardInterrupt, match="'certify a shallow network' was interrupted at 25%; the same command"):
        certify(small("shallow", seed=17), choose("chen2022/eq-15"), lab)
