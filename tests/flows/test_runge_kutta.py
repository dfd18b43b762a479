"""Gradient flow against SciPy, its own order of convergence, and the laws that it must obey."""

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp

from close import close
from unlazy._errors import UserError
from unlazy.activations import Gelu, Tanh
from unlazy.data import Dataset
from unlazy.flows import RungeKutta, Status, velocity
from unlazy.losses import CrossEntropy, Logistic, Squared
from unlazy.networks import (
    Infinite,
    Quadratic,
    RandomLayers,
    Samples,
    TwoLayer,
    Zipf,
    asymmetrical,
    multilayer_mean_field,
    ntk,
    split_trained,
)
from unlazy.probes import TrainLoss

SHALLOW = TwoLayer(10, 3, key=jax.random.key(0))
NETWORKS = {
    "mean-field": SHALLOW,
    "ntk": TwoLayer(10, 3, scaling=ntk, symmetrised=True, key=jax.random.key(1)),
    "asymmetrical": TwoLayer(10, 3, scaling=asymmetrical(0.2, Zipf(0.5)), embedding=Quadratic(), key=jax.random.key(2)),
    "multilayer": TwoLayer(10, 3, scaling=multilayer_mean_field, embedding=RandomLayers((8,)), key=jax.random.key(3)),
    "infinite": TwoLayer(10, 3, embedding=Infinite(), activation=Gelu(), key=jax.random.key(4)),
    "readout": TwoLayer(10, 3, activation=Tanh(), train_readout=True, key=jax.random.key(5)),
}


@pytest.fixture(scope="module")
def data():
    k1, k2, k3 = jax.random.split(jax.random.key(9), 3)
    weight = jax.random.uniform(k3, (6,), minval=0.5, maxval=1.5)
    return Dataset(jax.random.normal(k1, (6, 3)), jax.random.normal(k2, (6,)), weight=weight)


def flat(tree):
    return np.concatenate([np.asarray(leaf).ravel() for leaf in jax.tree.leaves(tree)])


def scipy_reference(network, data, loss, end):
    """The same flow by SciPy's eighth-order method on one long vector of parameters."""
    network, x, _ = network.prepare(data)
    data = Samples(x, data.y, data.weight)
    trained, frozen = split_trained(network)
    shapes, tree = jax.tree.flatten(trained)
    cuts = np.cumsum([leaf.size for leaf in shapes])[:-1]

    @jax.jit
    def rhs(vector):
        leaves = [part.reshape(leaf.shape) for part, leaf in zip(jnp.split(vector, cuts), shapes, strict=True)]
        pieces = jax.tree.leaves(velocity(jax.tree.unflatten(tree, leaves), frozen, data, loss))
        return jnp.concatenate([piece.ravel() for piece in pieces])

    solution = solve_ivp(lambda _, y: np.asarray(rhs(y)), (0, end), flat(trained), "DOP853", rtol=1e-11, atol=1e-12)
    return solution.y[:, -1]


@pytest.mark.parametrize("name", NETWORKS)
def test_agrees_with_scipy(name, data):
    end = 5.0
    run = RungeKutta(rtol=1e-9, atol=1e-10)(NETWORKS[name], data, [end])
    reference = scipy_reference(NETWORKS[name], data, Squared(), end)
    # Local errors of 1e-10 add up over a few dozen steps.
    close(flat(split_trained(run.final)[0]), reference, rel=1e-7, abs=1e-7)


def test_other_losses_agree_with_scipy(data):
    labels = Dataset(data.x, jnp.sign(data.y))
    several = Dataset(data.x, jax.nn.one_hot(jnp.arange(6) % 3, 3))
    cases = [
        (SHALLOW, labels, Logistic()),
        (TwoLayer(10, 3, 3, key=jax.random.key(1)), several, CrossEntropy()),
        (SHALLOW, data, Squared("sum", half=False)),
    ]
    for network, one, loss in cases:
        run = RungeKutta(loss, rtol=1e-9, atol=1e-10)(network, one, [3.0])
        close(flat(split_trained(run.final)[0]), scipy_reference(network, one, loss, 3.0), rel=1e-7, abs=1e-7)


def test_sum_is_mean_in_faster_time(data):
    plain = Dataset(data.x, data.y)
    by_sum = RungeKutta(Squared("sum"))(SHALLOW, plain, [1.0])
    by_mean = RungeKutta(Squared("mean"))(SHALLOW, plain, [6.0])  # t_sum = t_mean / n
    close(by_sum.final(plain.x), by_mean.final(plain.x), rel=1e-4, abs=1e-5)


@pytest.mark.parametrize("name", NETWORKS)
def test_loss_never_rises(name, data):
    losses = RungeKutta()(NETWORKS[name], data, np.linspace(0, 30, 31), [TrainLoss()]).observed["train-loss"]
    assert np.all(np.diff(losses) <= 0)
    assert losses[-1] < 0.9 * losses[0]


@pytest.mark.parametrize("name", NETWORKS)
def test_loss_falls_as_the_kernel_says(name, data):
    """dL/dt = -l'^T Θ l', measured as a difference of losses over a short time."""
    network, loss, dt = NETWORKS[name], Squared(), 1e-4
    run = RungeKutta(rtol=1e-12, atol=1e-13)(network, data, [1.0, 1.0 + dt, 1.0 + 2 * dt], [TrainLoss()])
    middle = RungeKutta(rtol=1e-12, atol=1e-13)(network, data, [1.0 + dt]).final
    slope = loss.slope(middle(data.x), data.y, data.weight)
    predicted = -slope @ middle.tangent_kernel(data.x) @ slope
    losses = run.observed["train-loss"]
    close((losses[2] - losses[0]) / (2 * dt), predicted, rel=1e-5)  # central difference: dt² and rounding / dt


def test_order_of_convergence(data):
    def final(step, solver):
        return flat(split_trained(RungeKutta(step=step, solver=solver)(SHALLOW, data, [4.0]).final)[0])

    exact = scipy_reference(SHALLOW, data, Squared(), 4.0)
    for solver, order, steps in (
        (diffrax.Euler(), 1, (0.1, 0.05, 0.025)),
        (diffrax.Heun(), 2, (0.2, 0.1, 0.05)),
        (diffrax.Bosh3(), 3, (0.4, 0.2, 0.1)),
    ):
        errors = [np.linalg.norm(final(step, solver) - exact) for step in steps]
        slope = np.polyfit(np.log(steps), np.log(errors), 1)[0]
        assert slope == pytest.approx(order, abs=0.35), (solver, errors)


def test_tighter_tolerance_gives_a_smaller_error(data):
    exact = scipy_reference(SHALLOW, data, Squared(), 20.0)
    errors = [
        np.linalg.norm(flat(split_trained(RungeKutta(rtol=tol, atol=tol)(SHALLOW, data, [20.0]).final)[0]) - exact)
        for tol in (1e-3, 1e-5, 1e-7)
    ]
    assert errors[0] > 10 * errors[1] > 100 * errors[2]


def test_tolerances_out_of_reach_are_refused(data):
    for options, message in [
        ({"rtol": 0.0, "atol": 0.0}, "must be positive"),
        ({"rtol": -1e-3}, "must be positive"),
        ({"rtol": float("nan")}, "rtol = nan"),
        ({"rtol": 1e-17, "atol": 1e-18}, "below rounding of float64"),
        ({"step": 0.0}, "step = 0.0 is not in range: give a number above 0"),
    ]:
        with pytest.raises(UserError, match=message):
            RungeKutta(**options)(SHALLOW, data, [1.0])
    single = jax.tree.map(lambda leaf: leaf.astype(jnp.float32) if eqx.is_inexact_array(leaf) else leaf, SHALLOW)
    with pytest.raises(UserError, match=r"float32.*or float64"):
        RungeKutta(rtol=1e-8)(single, data.astype(jnp.float32), [1.0])


def test_a_tolerance_lost_in_rounding_ends_the_run(data):
    single = jax.tree.map(lambda leaf: leaf.astype(jnp.float32) if eqx.is_inexact_array(leaf) else leaf, SHALLOW)
    # Passes the first check, but the eighth-order error estimate is all rounding at 8 eps and without atol.
    flow = RungeKutta(rtol=1e-6, atol=0.0, solver=diffrax.Dopri8())
    run = flow(single, data.astype(jnp.float32), [1e4], [TrainLoss()])
    assert run.status is Status.step_too_small
    assert run.stats["steps"] + run.stats["rejected"] < 10_000


def test_float32_stays_float32_and_is_close(data):
    single = jax.tree.map(lambda leaf: leaf.astype(jnp.float32) if eqx.is_inexact_array(leaf) else leaf, SHALLOW)
    run = RungeKutta(rtol=1e-5, atol=1e-6)(single, data.astype(jnp.float32), [0.0, 10.0], [TrainLoss()])
    assert run.final.w.dtype == jnp.float32
    exact = RungeKutta()(SHALLOW, data, [0.0, 10.0], [TrainLoss()])
    close(run.observed["train-loss"], exact.observed["train-loss"], rel=1e-3)


def test_step_limit_is_said(data):
    run = RungeKutta(max_steps=3)(SHALLOW, data, [1000.0])
    assert run.status is Status.step_limit
    assert run.stats["steps"] + run.stats["rejected"] == 3


def test_a_blow_up_is_noticed():
    # A cubic network far from its target has a finite-time blow-up only in float range; constant huge steps reach it.
    from unlazy.activations import Cubic

    network = TwoLayer(4, 2, activation=Cubic(), key=jax.random.key(0))
    data = Dataset(jnp.ones((3, 2)) * jnp.arange(1.0, 4.0)[:, None], jnp.zeros(3))
    run = RungeKutta(step=100.0, solver=diffrax.Euler())(network, data, [1e5])
    assert run.status is Status.not_finite
    assert np.isfinite(flat(split_trained(run.final)[0])).all()


def test_changing_a_number_does_not_recompile(data, compilations):
    RungeKutta(rtol=1e-5)(SHALLOW, data, [1.0], [TrainLoss()])
    compilations.count = 0
    RungeKutta(rtol=3e-7, atol=1e-9, max_steps=500)(SHALLOW, data, [2.5], [TrainLoss()])
    assert compilations.count == 0
