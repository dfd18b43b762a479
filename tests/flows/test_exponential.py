"""The exponential midpoint rule: its order, its freedom from stiffness, and its agreement with the flow it solves."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from close import close
from unlazy._errors import UserError
from unlazy.activations import Gelu
from unlazy.data import Dataset, orthogonal_clusters
from unlazy.flows import Exponential, RungeKutta
from unlazy.losses import Logistic, Squared
from unlazy.networks import RandomLayers, TangentModel, TwoLayer
from unlazy.probes import TestOutputs, TrainOutputs

K1, K2, K3 = jax.random.split(jax.random.key(4), 3)
X, Y = jax.random.normal(K1, (6, 3)), jax.random.normal(K2, (6,))
DATA = Dataset(X, Y, jax.random.normal(K3, (4, 3)), jnp.zeros(4))
NETWORK = TwoLayer(12, 3, activation=Gelu(), train_readout=True, key=K3)


def last_outputs(flow, data, end):
    return flow(NETWORK, data, [end], [TestOutputs()]).observed["test-outputs"][-1]


@pytest.mark.parametrize("coordinates", ["weights", "gram"])
@pytest.mark.parametrize(("loss", "end"), [(Squared("mean"), 4.0), (Squared("sum", half=False), 0.5)])
def test_order_two(loss, end, coordinates):
    data = Dataset(X, Y, DATA.x_test, DATA.y_test, weight=jnp.linspace(0.5, 2.0, 6))
    exact = last_outputs(RungeKutta(loss, rtol=1e-11, atol=1e-12), data, end)
    steps = end / np.array([8, 16, 32])
    errors = [
        np.linalg.norm(last_outputs(Exponential(loss, step=step, coordinates=coordinates), data, end) - exact)
        for step in steps
    ]
    assert np.polyfit(np.log(steps), np.log(errors), 1)[0] == pytest.approx(2, abs=0.3), errors


def test_a_network_whose_kernel_stands_still_takes_one_step():
    model = TangentModel(NETWORK)
    run = Exponential(step=1e9)(model, DATA, [50.0], [TrainOutputs()])
    assert run.stats["steps"] == 1
    exact = RungeKutta(rtol=1e-10, atol=1e-11)(model, DATA, [50.0], [TrainOutputs()])
    close(run.observed["train-outputs"], exact.observed["train-outputs"], rel=1e-6, abs=1e-7)


def test_the_tolerance_means_what_it_says():
    exact = RungeKutta(rtol=1e-10, atol=1e-11)(NETWORK, DATA, [100.0], [TestOutputs()]).observed["test-outputs"][-1]
    scale = float(jnp.sqrt(jnp.mean(Y**2)))
    errors = []
    for tolerance in (1e-3, 1e-4, 1e-5):
        run = Exponential(tolerance=tolerance)(NETWORK, DATA, [100.0], [TestOutputs()])
        errors.append(np.sqrt(np.mean((run.observed["test-outputs"][-1] - exact) ** 2)) / scale)
        # Each step may err by the tolerance; over a run they add up at worst.
        assert errors[-1] < tolerance * run.stats["steps"]
    assert errors[0] > 3 * errors[1] > 9 * errors[2]


def test_targets_of_zero_are_reached():
    run = Exponential(tolerance=1e-3)(NETWORK, Dataset(X, jnp.zeros(6)), [0.0, 100.0], [TrainOutputs()])
    assert run.status.ok
    before, after = np.abs(run.observed["train-outputs"]).max(axis=1)
    assert after < 0.1 * before


def test_long_times_cost_little_and_coordinates_do_not_matter():
    data = orthogonal_clusters(n=40, d=6, n_test=20, key=K1)
    network = TwoLayer(64, 6, embedding=RandomLayers((80,)), activation=Gelu(), key=K2)
    steps = {}
    for end in (1e3, 1e5):
        run = Exponential(tolerance=1e-3, coordinates="gram")(network, data, [end], [TestOutputs()])
        assert run.status.ok
        steps[end] = run.stats["steps"] + run.stats["rejected"]
    assert steps[1e5] < 3 * steps[1e3] < 600  # a hundred times the time, a few more steps
    weights = Exponential(tolerance=1e-3, coordinates="weights")(network, data, [1e3], [TestOutputs()])
    gram = Exponential(tolerance=1e-3, coordinates="gram")(network, data, [1e3], [TestOutputs()])
    close(gram.observed["test-outputs"], weights.observed["test-outputs"], rel=1e-6, abs=1e-7)
    exact = RungeKutta(rtol=1e-7, atol=1e-8)(network, data, [1e3], [TestOutputs()])
    close(gram.observed["test-outputs"], exact.observed["test-outputs"], abs=1e-2)  # ten steps' worth of the tolerance


@pytest.mark.parametrize(
    ("flow", "network", "message"),
    [
        (Exponential(Logistic()), NETWORK, "needs a quadratic loss"),
        (Exponential(tolerance=0.0), NETWORK, "below rounding error"),
    ],
)
def test_what_it_cannot_do_is_refused(flow, network, message):
    with pytest.raises(UserError, match=message):
        flow(network, DATA, [1.0])


def test_a_tolerance_and_a_step_are_numbers():
    with pytest.raises(UserError, match="tolerance = nan is not a finite number"):
        Exponential(tolerance=float("nan"))
    with pytest.raises(UserError, match=r"step = -1\.0 is not in range: give a number above 0"):
        Exponential(step=-1.0)
