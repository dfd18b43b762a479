"""Runs that stop at a loss, and recipes of schedules and optimisers that react to it."""

import numpy as np

from unlazy.lab import Lab, instantiate, parse


def test_a_run_that_stops_is_finished_and_stays_where_it_is(tmp_path, table):
    lab = Lab(tmp_path)
    free = lab.run(parse(table | {"times": [0.0, 2.0, 8.0, 20.0]}))
    bound = float(free["train-loss"].values[:, 1:3].mean())
    stopping = table | {"flow": table["flow"] | {"stop_loss": bound}, "probes": [*table["probes"], "train-outputs"]}
    whole = lab.run(parse(stopping | {"times": [0.0, 2.0, 8.0, 20.0]}))
    assert whole.attrs["finished"]
    assert set(np.atleast_1d(whole.attrs["status"]).tolist()) == {"loss_reached"}
    assert np.all(np.asarray(whole.attrs["steps"]) < 80)
    assert np.isfinite(whole["train-loss"].values).all()
    assert np.all(whole["train-loss"].values[:, -1] < bound)
    before = lab.run(parse(stopping | {"times": [0.0]}))  # what is stored shows no stop yet
    assert set(np.atleast_1d(before.attrs["status"]).tolist()) == {"finished"}
    later = lab.run(parse(stopping | {"times": [0.0, 2.0, 8.0, 20.0, 40.0]}))  # continues a run that has stopped
    assert later.attrs["finished"]
    np.testing.assert_array_equal(later["train-outputs"].values[:, -1], whole["train-outputs"].values[:, -1])
    pieces = Lab(tmp_path / "pieces")
    pieces.run(parse(stopping | {"times": [0.0, 2.0]}))
    joined = pieces.run(parse(stopping | {"times": [0.0, 2.0, 8.0, 20.0]}))
    np.testing.assert_array_equal(joined["train-loss"].values, whole["train-loss"].values)


def test_all_that_reacts_can_be_written_in_a_recipe(table):
    flow = {
        "kind": "descent",
        "rate": 0.25,
        "optimiser": "adam",
        "then": {"kind": "momentum", "decay": 0.5},
        "switch_loss": 0.1,
        "stop_loss": 1e-3,
        "stop_after": 5,
        "schedule": {
            "kind": "by-layer",
            "layers": ["w"],
            "schedules": [{"kind": "piecewise", "factors": [1.0, 0.5], "steps": [3]}],
            "common": {"kind": "on-stagnation", "factors": [1.0, 0.1], "window": 2, "wait": 3},
        },
    }
    made = instantiate(parse(table | {"flow": flow})).flow
    assert (float(made.stop_loss), float(made.switch_loss), made.then.decay) == (1e-3, 0.1, 0.5)
    assert made.schedule.common.factors.tolist() == [1.0, 0.1]
    assert made.schedule.schedules[0].steps.tolist() == [3]
