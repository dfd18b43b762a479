"""Contracts that every flow found in the room must keep."""

import equinox as eqx
import jax
import numpy as np
import pytest

from close import close
from unlazy import flows
from unlazy._errors import UserError
from unlazy._registry import members
from unlazy.data import Dataset
from unlazy.flows import Adam, Descent, Exponential, GradientFlow, Momentum, Stabilised, Status
from unlazy.flows.trajectory import named
from unlazy.losses import CrossEntropy, Logistic
from unlazy.networks import RandomLayers, TwoLayer, split_trained
from unlazy.probes import TestLoss, TrainLoss
from unlazy.testing import check_flow

MEMBERS = members("flow")
CASES = {name: flow() for name, flow in MEMBERS.items()} | {
    # Tight enough for the comparison of runs that stop in other places.
    "gradient-flow": GradientFlow(tolerance=1e-8),
    "exponential": Exponential(tolerance=1e-8),
    "stabilised": Stabilised(tolerance=1e-9),
    "descent-momentum": Descent(rate=0.5, optimiser=Momentum(0.9)),
    "descent-adam-minibatch": Descent(rate=0.01, optimiser=Adam(), batch=3),
}
contract = pytest.mark.parametrize("flow", CASES.values(), ids=CASES.keys())


@pytest.fixture(scope="module")
def data():
    k1, k2, k3 = jax.random.split(jax.random.key(0), 3)
    return Dataset(
        jax.random.normal(k1, (8, 3)), jax.random.normal(k2, (8,)), jax.random.normal(k3, (4, 3)), jax.numpy.ones(4)
    )


@pytest.fixture(scope="module")
def network():
    return TwoLayer(12, 3, embedding=RandomLayers((9,)), key=jax.random.key(1))


def parameters(network):
    return np.concatenate([np.asarray(leaf).ravel() for leaf in jax.tree.leaves(split_trained(network)[0])])


def test_the_room_is_found():
    assert {"gradient-flow", "descent", "linearised"} <= set(MEMBERS)


@contract
def test_the_public_contract(flow, network, data):
    check_flow(flow, network, data, end=6.0)


@contract
def test_interruption_loses_nothing(flow, network, data):
    times = [1.0, 2.0, 3.0, 4.0]
    whole = flow(network, data, times, [TrainLoss()])

    def stop(share, clock):
        if share >= 0.5:
            raise KeyboardInterrupt

    part = flow(network, data, times, [TrainLoss()], progress=stop)
    assert part.status is Status.interrupted
    seen = len(part.times)
    assert 0 < seen < 4
    rest = flow.extend(part, times[seen:], [TrainLoss()])
    assert rest.status is Status.finished
    assert np.array_equal(parameters(rest.final), parameters(whole.final))
    both = np.concatenate([part.observed["train-loss"], rest.observed["train-loss"]])
    assert np.array_equal(both, whole.observed["train-loss"])


@contract
def test_second_call_does_not_compile(flow, network, data, compilations):
    flow(network, data, [0.5, 1.0], [TrainLoss()])
    other = TwoLayer(12, 3, embedding=RandomLayers((9,)), key=jax.random.key(77))
    compilations.count = 0
    flow(other, data, [0.7, 1.9, 2.0], [TrainLoss()])
    assert compilations.count == 0


@contract
def test_seeds_together_are_seeds_apart(flow, data):
    networks = [TwoLayer(12, 3, key=jax.random.key(seed)) for seed in range(3)]
    keys = [jax.random.key(100 + seed) for seed in range(3)]
    together = flow.over_seeds(networks, data, [1.0, 2.0], [TrainLoss()], keys=keys)
    for network, key, run in zip(networks, keys, together, strict=True):
        alone = flow(network, data, [1.0, 2.0], [TrainLoss()], key=key)
        close(parameters(run.final), parameters(alone.final), rel=1e-7, abs=1e-9)
        close(run.observed["train-loss"], alone.observed["train-loss"], rel=1e-7)
        assert run.status is Status.finished


def test_large_seeds_run_in_turn(data, monkeypatch):
    monkeypatch.setattr("unlazy.flows._compiled._VMAP_BYTES", 0)
    networks = [TwoLayer(12, 3, key=jax.random.key(seed)) for seed in range(2)]
    sets = [data, eqx.tree_at(lambda d: d.y, data, -data.y)]
    for network, one, run in zip(networks, sets, Descent().over_seeds(networks, sets, [3.0]), strict=True):
        close(parameters(run.final), parameters(Descent()(network, one, [3.0]).final), rel=1e-10)


@contract
def test_a_nan_in_the_data_is_named_before_anything_runs(flow, network, data):
    broken = eqx.tree_at(lambda d: d.y, data, data.y.at[2].set(np.nan))
    with pytest.raises(UserError, match=r"1 of the 8 entries of y .* are NaN or infinite"):
        flow(network, broken, [1.0])


@contract
def test_a_nan_in_the_network_is_noticed_at_once(flow, network, data):
    broken = eqx.tree_at(lambda n: n.w, network, network.w.at[0, 0].set(np.nan))
    run = flow(broken, data, [1e6], [TrainLoss()])
    assert run.status is Status.not_finite
    assert run.stats["steps"] + run.stats["rejected"] == 0
    assert run.times.size == 0


@contract
def test_bad_times_are_refused(flow, network, data):
    for times in ([], [1.0, 1.0], [2.0, 1.0], [np.inf], [-1.0]):
        with pytest.raises(UserError, match=r"Times must be|cannot go back|each entry is a finite number"):
            flow(network, data, times)
    with pytest.raises(UserError, match="cannot go back to t = 1"):
        flow.extend(flow(network, data, [2.0]), [1.0])


def test_probes_of_one_name_need_names(network, data):
    with pytest.raises(UserError, match="both be called 'train-loss'"):
        GradientFlow()(network, data, [1.0], [TrainLoss(), TrainLoss()])
    run = GradientFlow()(network, data, [1.0], {"a": TrainLoss(), "b": TrainLoss()})
    assert set(run.observed) == {"a", "b"}


@contract
def test_a_run_is_saved_and_loaded(flow, network, data, tmp_path):
    times, keys = [1.0, 2.0, 3.0], [jax.random.key(3)]
    whole = flow(network, data, times, [TrainLoss()], key=keys[0])

    def stop(share, clock):
        if share > 0.5:
            raise KeyboardInterrupt

    halted = flows.Driver.begin(flow, [network], [data], times, [TrainLoss()], keys).run(stop)
    assert halted.interrupted
    halted.save(tmp_path / "state.checkpoint")
    fresh = flows.Driver.begin(flow, [network], [data], times, [TrainLoss()], keys).load(tmp_path / "state.checkpoint")
    (run,) = fresh.run().trajectories()
    assert np.array_equal(parameters(run.final), parameters(whole.final))
    assert np.array_equal(run.observed["train-loss"], whole.observed["train-loss"])
    wider = TwoLayer(13, 3, embedding=RandomLayers((9,)), key=jax.random.key(1))
    with pytest.raises(UserError, match="belongs to another run"):
        flows.Driver.begin(flow, [wider], [data], times, [TrainLoss()], keys).load(tmp_path / "state.checkpoint")


def test_a_probe_that_cannot_look_is_noticed_before_the_run(network, data):
    without_test = Dataset(data.x, data.y)
    with pytest.raises(UserError, match="has no test set"):
        Descent(rate=1e-3)(network, without_test, [1e6], [TestLoss()])


def test_a_step_limit_that_fits_no_counter_is_refused():
    with pytest.raises(UserError, match="give a number of at least 1 and below 2,147,483,648"):
        GradientFlow(max_steps=10**12)


def test_targets_that_do_not_fit_the_outputs_are_refused(network, data):
    column = Dataset(data.x, data.y[:, None])
    with pytest.raises(UserError, match=r"outputs of shape \(8,\), but the targets .* have shape \(8, 1\)"):
        Descent()(network, column, [1.0])
    several = TwoLayer(12, 3, 8, key=jax.random.key(0))  # as many outputs as samples: broadcasting would hide it
    with pytest.raises(UserError, match=r"outputs of shape \(8, 8\)"):
        GradientFlow()(several, data, [1.0])


def test_targets_that_do_not_fit_the_loss_are_refused(network, data):
    with pytest.raises(UserError, match="one-hot labels"):
        Descent(CrossEntropy())(network, data, [1.0])
    with pytest.raises(UserError, match="labels -1 and 1"):
        Descent(Logistic())(network, data, [1.0])


def test_times_that_fall_on_one_step_are_one_time(network, data):
    run = Descent(rate=3.0)(network, data, [0.0, 1.0, 2.0, 4.0, 5.0, 9.0], [TrainLoss()])
    assert run.times.tolist() == [0.0, 3.0, 6.0, 9.0]
    assert run.stats["steps"] == 3
    assert len(run.observed["train-loss"]) == 4
    with pytest.raises(UserError, match="No step fits between t = 0 and t = 2"):
        Descent(rate=1e6)(network, data, [0.0, 1.0, 2.0])


def test_probes_are_objects_names_or_functions(network, data):
    with pytest.raises(UserError, match=r"probes=\[TrainLoss\(\)\]"):
        named([TrainLoss])
    with pytest.raises(UserError, match="Did you mean 'train-loss'"):
        named(["train-los"])

    def first_output(obs):
        return obs.outputs[0]

    assert list(named(TrainLoss())) == ["train-loss"]
    run = GradientFlow()(network, data, [0.0, 1.0], ["train-loss", first_output])
    close(run.observed["first-output"][-1], run.final(data.x)[0], rel=1e-9)


def test_an_unfinished_time_must_be_asked_for_first(network, data):
    def stop(share, clock):
        raise KeyboardInterrupt

    part = Descent(rate=1e-4)(network, data, [1.0], progress=stop)
    with pytest.raises(UserError, match="on its way to t = 1: give that time first"):
        Descent(rate=1e-4).extend(part, [0.5])
