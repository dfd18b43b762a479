"""The Chebyshev method: stable as far as it says, of second order, and not held up by stiffness or kinks."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from close import close
from unlazy._errors import UserError
from unlazy.activations import Gelu, Relu
from unlazy.data import Dataset, orthogonal_clusters
from unlazy.flows import Descent, RungeKutta, Stabilised
from unlazy.flows.stabilised import _REACH, _fastest, coefficients
from unlazy.losses import CrossEntropy, Logistic, Squared
from unlazy.networks import RandomLayers, TwoLayer, dual
from unlazy.probes import TestOutputs, TrainOutputs

K1, K2, K3 = jax.random.split(jax.random.key(4), 3)
X, Y = jax.random.normal(K1, (6, 3)), jax.random.normal(K2, (6,))
DATA = Dataset(X, Y, jax.random.normal(K3, (4, 3)), jnp.zeros(4))
NETWORK = TwoLayer(12, 3, activation=Gelu(), train_readout=True, key=K3)


def amplification(stages, z):
    """One step of y' = λ y from 1, at z = h λ."""
    older, newer = np.ones_like(z), np.ones_like(z)
    for j, (mu, nu, now, start) in enumerate(coefficients(stages)[1:], 1):
        newest = (1 - mu - nu) + mu * newer + nu * older + now * z * newer + start * z if j > 1 else 1 + now * z
        older, newer = newer, newest
    return newer


@pytest.mark.parametrize("stages", [2, 3, 5, 10, 60])
def test_the_stability_interval_and_the_order(stages):
    inside = np.linspace(-_REACH * (stages**2 - 1), -0.1, 2001)
    assert np.abs(amplification(stages, inside)).max() <= 1 + 1e-9
    assert abs(amplification(stages, np.array([-1.3 * _REACH * (stages**2 - 1) - 1]))[0]) > 1
    z = -np.array([0.01, 0.02])
    errors = np.abs(amplification(stages, z) - np.exp(z))
    assert np.log2(errors[1] / errors[0]) == pytest.approx(3, abs=0.1)  # of one step


@pytest.mark.parametrize("coordinates", ["weights", "gram"])
def test_order_two(coordinates):
    def outputs(flow):
        return flow(NETWORK, DATA, [4.0], [TestOutputs()]).seen["test-outputs"][-1]

    exact, steps = outputs(RungeKutta(rtol=1e-11, atol=1e-12)), 4 / np.array([8, 16, 32])
    errors = [np.linalg.norm(outputs(Stabilised(step=step, coordinates=coordinates)) - exact) for step in steps]
    assert np.polyfit(np.log(steps), np.log(errors), 1)[0] == pytest.approx(2, abs=0.3), errors


@pytest.mark.parametrize("loss", [Squared(), Logistic(), CrossEntropy()])
def test_any_loss_to_its_tolerance(loss):
    several = isinstance(loss, CrossEntropy)
    labels = jax.nn.one_hot(jnp.arange(6) % 3, 3) if several else jnp.sign(Y)
    network = TwoLayer(12, 3, 3 if several else None, activation=Gelu(), key=K3)
    data = Dataset(X, labels)
    exact = RungeKutta(loss, rtol=1e-9, atol=1e-10)(network, data, [50.0], [TrainOutputs()]).seen["train-outputs"][-1]
    scale, errors = float(jnp.sqrt(jnp.mean(labels**2))), []
    for tolerance in (1e-3, 1e-5):
        run = Stabilised(loss, tolerance=tolerance)(network, data, [50.0], [TrainOutputs()])
        errors.append(np.sqrt(np.mean((run.seen["train-outputs"][-1] - exact) ** 2)) / scale)
        # Each step may err by the tolerance; over a run they add up at worst.
        assert errors[-1] < tolerance * run.stats["steps"]
    assert errors[0] > 3 * errors[1]


def test_the_largest_eigenvalue_is_found_and_followed():
    for loss in (Squared("sum"), Logistic()):
        data = Dataset(X, jnp.sign(Y), weight=jnp.linspace(0.5, 2, 6))
        for network, points in ((NETWORK, data), dual(NETWORK, data)):
            f = network(points.x)
            again = lambda _, found, n=network, p=points, to=loss, f=f: _fastest(n, f, p, to, found[0])  # noqa: E731
            _, rate = jax.lax.fori_loop(0, 100, again, (jnp.ones(6), jnp.zeros(())))
            curvature = jnp.diag(jax.hessian(lambda g, d=points, to=loss: to(g, d.y, d.weight))(f))
            root = jnp.sqrt(curvature)
            kernel = root[:, None] * network.tangent_kernel(points.x, points.x) * root[None, :]
            close(rate, jnp.linalg.eigvalsh(kernel)[-1], rel=1e-6)
    run = Stabilised(Squared("sum"))(NETWORK, DATA, [30.0])
    last = jnp.linalg.eigvalsh(run.final.tangent_kernel(X, X))[-1]
    assert float(run.place.state.memory.rate) == pytest.approx(float(last), rel=0.05)


def p3l(activation):
    return TwoLayer(128, 6, embedding=RandomLayers((80,)), activation=activation, key=K2)


CLUSTERS = orthogonal_clusters(n=40, d=6, n_test=20, key=K1)


def test_stiffness_does_not_hold_it_up():
    run = Stabilised(tolerance=1e-3)(p3l(Gelu()), CLUSTERS, [1e5])
    assert run.status.ok
    least = 1e5 * float(run.place.state.memory.rate) / 2  # of Euler's steps, at the limit of stability
    assert run.stats["steps"] < 0.3 * least
    assert run.stats["evaluations"] < least


def test_kinks_do_not_hold_it_up():
    network = p3l(Relu())
    run = Stabilised(tolerance=1e-3)(network, CLUSTERS, [300.0], [TestOutputs()])
    fine = Descent(rate=0.5)(network, CLUSTERS, [300.0], [TestOutputs()])
    miss = run.seen["test-outputs"][-1] - fine.seen["test-outputs"][-1]
    assert np.sqrt(np.mean(miss**2)) < 1e-2  # ten steps' worth of the tolerance, for targets of size 1
    chatter = RungeKutta(rtol=1e-3, atol=1e-3, max_steps=run.stats["evaluations"])(network, CLUSTERS, [300.0])
    assert chatter.stats["evaluations"] > run.stats["evaluations"]


@pytest.mark.parametrize(
    ("flow", "message"),
    [
        (Stabilised(tolerance=0.0), "not above rounding"),
        (Stabilised(tolerance=float("nan")), "not above rounding"),
        (Stabilised(step=-1.0), "must be positive"),
    ],
)
def test_what_it_cannot_do_is_refused(flow, message):
    with pytest.raises(UserError, match=message):
        flow(NETWORK, DATA, [1.0])
