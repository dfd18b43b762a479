"""Probes that look once, at the end of a run: in recipes, in the store, and after an interruption."""

import numpy as np
import pytest

from unlazy._errors import UserError
from unlazy.data import random_labels
from unlazy.flows import Descent, OnlyAtEnd
from unlazy.lab import Lab, draw_data, instantiate, parse
from unlazy.networks import TwoLayer
from unlazy.probes import Pruning


def recipe(**changes):
    table = {
        "data": {"kind": "sphere-sine", "n": 5, "d": 3, "n_test": 4, "n_held": 6},
        "network": {"kind": "two-layer", "width": 6},
        "flow": {"kind": "descent", "rate": 0.5},
        "times": [0, 1, 2],
        "probes": [
            "train-loss",
            {"kind": "pruning", "when": "end"},
            {"kind": "train-loss", "as": "last", "when": "end"},
        ],
        "seeds": 2,
    }
    return parse(table | changes)


def test_what_is_seen_at_the_end_has_no_time(tmp_path):
    run = Lab(tmp_path).run(recipe())
    assert run["train-loss"].dims == ("seed", "time")
    assert run["last"].dims == ("seed",)
    assert run["pruning.hidden.test_risk"].dims == ("seed", "pruning.hidden.test_risk_0")
    assert run["pruning.hidden.test_risk"].shape == (2, 7)
    np.testing.assert_allclose(run["last"], run["train-loss"][:, -1], rtol=1e-12)


def test_a_probe_of_your_own_can_say_that_it_is_for_the_end():
    def last(obs):
        return obs.outputs

    last.only_at_end = True
    data, network = random_labels(n=4, d=3, key=0), TwoLayer(4, 3, key=1)
    run = Descent(rate=0.1)(network, data, [0, 1, 2], [last])
    assert run.observed["last"].shape == (4,)
    assert run.to_xarray()["last"].dims == ("last_0",)


def test_when_is_always_or_end():
    assert instantiate(recipe()).probes["pruning"] == OnlyAtEnd(Pruning())
    always = recipe(probes=[{"kind": "pruning", "when": "always"}])
    assert instantiate(always).probes["pruning"] == Pruning()
    with pytest.raises(UserError, match=r"probes\[0\].when: a probe observes 'always' or only at the 'end', not"):
        instantiate(recipe(probes=[{"kind": "pruning", "when": "never"}]))


def test_data_can_be_drawn_again():
    for same in (False, True):
        again = recipe(same_data=same)
        for one, other in zip(draw_data(again), instantiate(again).data, strict=True):
            np.testing.assert_array_equal(one.x, other.x)
            np.testing.assert_array_equal(one.held_out.y, other.held_out.y)


def test_a_held_out_set_changes_nothing_else():
    with_, without = recipe(), recipe(data={"kind": "sphere-sine", "n": 5, "d": 3, "n_test": 4})
    for one, other in zip(draw_data(with_), draw_data(without), strict=True):
        np.testing.assert_array_equal(one.x, other.x)
        np.testing.assert_array_equal(one.y_test, other.y_test)
        assert other.held_out is None
        assert not np.isin(one.held_out.x, one.x).any()
