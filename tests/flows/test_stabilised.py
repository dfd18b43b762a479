"""The Chebyshev method: coefficients, order, stability, and errors that are judged on outputs."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.linalg import block_diag

from close import close
from unlazy._errors import UserError
from unlazy.activations import Gelu, Relu
from unlazy.data import Dataset
from unlazy.flows import Descent, RungeKutta, Stabilised, Status
from unlazy.flows._compiled import advance_runs, init_runs
from unlazy.flows.stabilised import coefficients
from unlazy.losses import CrossEntropy, Logistic, Squared
from unlazy.networks import Samples, TangentModel, TwoLayer, split_trained
from unlazy.probes import TestOutputs, TrainLoss, TrainOutputs

K1, K2, K3 = jax.random.split(jax.random.key(4), 3)
X, Y = jax.random.normal(K1, (6, 3)), jax.random.normal(K2, (6,))
DATA = Dataset(X, Y, jax.random.normal(K3, (4, 3)), jnp.zeros(4), weight=jnp.linspace(0.5, 2.0, 6))
NETWORK = TwoLayer(12, 3, activation=Gelu(), train_readout=True, key=K3)
BOTH = pytest.mark.parametrize("kinked", [False, True])
REACH = 2 / 3 * (1 - 2 / 15 * 2 / 13)  # Sommeijer, Shampine and Verwer: stable up to this times s² - 1


def samples(data):
    return Samples(data.x, data.y, data.weight, data.x_test)


def weights(**options):
    return Stabilised(coordinates="weights", **options)


def stiff(activation):
    """Inputs with a large mean, which is by far the fastest mode: λ is about 1.3 and the next eigenvalue 0.04."""
    k1, k2, k3 = jax.random.split(jax.random.key(0), 3)
    x, x_test = (1 + jnp.abs(jax.random.normal(key, (32, 16))) for key in (k1, k3))
    data = Dataset(x, jnp.sign(jax.random.normal(k2, (32,))), x_test, jnp.zeros(32))
    return TwoLayer(256, 16, activation=activation, key=k2), data


def one_step(rows, velocity, y, h):
    """A step by the formulas of `coefficients`, with its error."""
    start = velocity(y)
    older, newer, missed = 0 * y, h * rows[1, 2] * start, h * rows[1, 4] * start
    for mu, nu, now, begun, part in rows[2:]:
        slope = velocity(y + newer)
        older, newer = newer, mu * newer + nu * older + h * (now * slope + begun * start)
        missed = missed + h * part * slope
    return y + rows[0, 0] * newer, missed


def root_mean_square(values):
    return float(np.sqrt(np.mean(np.square(values))))


def bend(loss, f, data):
    """Ω = d²L/df², written out."""
    f, weight = np.asarray(f), np.ones(data.n) if data.weight is None else np.asarray(data.weight)
    weight = weight / (weight.sum() if loss.reduction == "mean" else 1.0)
    if isinstance(loss, Squared):
        return np.diag(weight)
    if isinstance(loss, Logistic):
        return np.diag(weight / (2 + 2 * np.cosh(f)))
    p = np.exp(f) / np.exp(f).sum(axis=1, keepdims=True)
    return block_diag(*[w * (np.diag(row) - np.outer(row, row)) for w, row in zip(weight, p, strict=True)])


def top_rate(network, data, loss):
    """The largest eigenvalue of Θ Ω."""
    f, kernel = eqx.filter_jit(lambda n, x: (n(x), n.tangent_kernel(x, x)))(network, data.x)
    return np.linalg.eigvals(np.asarray(kernel).reshape(f.size, f.size) @ bend(loss, f, data)).real.max()


@BOTH
@pytest.mark.parametrize("stages", [3, 4, 5, 8, 13, 40, 100])
def test_steps_are_stable_as_far_as_they_say(stages, kinked):
    rows = coefficients(stages, kinked)
    z = -np.linspace(0, REACH * (stages**2 - 1), 5001)
    factor, error = one_step(rows, lambda y: z * y, np.ones_like(z), 1.0)
    assert np.abs(factor).max() <= 1 + 1e-12
    assert np.abs(factor[z < -2]).max() < 0.96  # damped, wherever it is not accurate
    beyond = -1.3 * REACH * (stages**2 - 1)
    assert abs(one_step(rows, lambda y: beyond * y, 1.0, 1.0)[0]) > 1
    assert np.abs(error).max() <= max(10, stages)  # the usual estimate has h λ / 2 here
    # 1 + z + z²/2 up to z³/10 or so, of which the estimate sees z³/15.
    small = np.array([-1e-3, 1e-3])
    factor, error = one_step(rows, lambda y: small * y, np.ones(2), 1.0)
    close(factor, 1 + small + small**2 / 2, rel=0, abs=1.1e-10)
    close(error, small**3 / 15, rel=1e-2)


@BOTH
def test_order_two_where_the_velocity_is_not_linear(kinked):
    rows, errors, counts = coefficients(8, kinked), [], np.array([8, 16, 32])
    for count in counts:
        y = np.array([1.0, 0.5])
        for _ in range(count):
            y, _ = one_step(rows, lambda v: np.array([-(v[0] ** 2), v[0] * v[1]]), y, 1 / count)
        errors.append(np.linalg.norm(y - [0.5, 1.0]))  # u = 1/(1 + t), v = (1 + t)/2
    assert np.polyfit(np.log(1 / counts), np.log(errors), 1)[0] == pytest.approx(2, abs=0.15), errors


@pytest.mark.parametrize("stages", [3, 8, 30, 100])
def test_with_kinks_all_weights_are_positive(stages):
    calls = iter(np.eye(stages))
    shares, _ = one_step(coefficients(stages, True), lambda _: next(calls), np.zeros(stages), 1.0)
    assert shares.min() > 0
    close(shares.sum(), 1.0, rel=1e-10)


def test_order_two():
    def last_outputs(flow):
        return flow(NETWORK, DATA, [4.0], [TestOutputs()]).observed["test-outputs"][-1]

    exact, steps = last_outputs(RungeKutta(rtol=1e-10, atol=1e-11)), 4.0 / np.array([8, 16, 32])
    errors = [np.linalg.norm(last_outputs(weights(step=step)) - exact) for step in steps]
    assert np.polyfit(np.log(steps), np.log(errors), 1)[0] == pytest.approx(2, abs=0.3), errors


def test_the_tolerance_means_what_it_says():
    exact = RungeKutta(rtol=1e-10, atol=1e-11)(NETWORK, DATA, [100.0], [TestOutputs()]).observed["test-outputs"][-1]
    errors = []
    for tolerance in (1e-3, 1e-4, 1e-5):
        run = weights(tolerance=tolerance)(NETWORK, DATA, [100.0], [TestOutputs()])
        errors.append(root_mean_square(run.observed["test-outputs"][-1] - exact) / root_mean_square(Y))
        # Each step may err by the tolerance; over a run they add up at worst, and the sum is kept.
        assert errors[-1] < run.stats["error"] < tolerance * run.stats["steps"]
    assert errors[0] > 2 * errors[1] > 4 * errors[2]  # the step is tolerance^(1/3), the error the step squared: 4.6


def test_stiffness_does_not_hold_it_up():
    network, data = stiff(Gelu())
    exact = RungeKutta(rtol=1e-6, atol=1e-7)(network, data, [1000.0], [TestOutputs()])
    run = weights(tolerance=1e-3)(network, data, [1000.0], [TestOutputs()])
    least = 1000 * top_rate(network, data, Squared()) / 2  # of Euler's steps, at the limit of stability
    assert run.stats["steps"] < 0.1 * least
    assert run.stats["evaluations"] < least
    assert run.stats["rejected"] < 0.2 * run.stats["steps"]
    # Three tolerances only: the flow forgets what is fast.
    assert root_mean_square(run.observed["test-outputs"] - exact.observed["test-outputs"]) < 3e-3


def test_kinks_do_not_hold_it_up():
    network, data = stiff(Relu())
    run = weights(tolerance=1e-2)(network, data, [400.0], [TestOutputs()])
    fine = Descent(rate=1 / 64)(network, data, [400.0], [TestOutputs()])  # 2% of 1/λ
    # Chatter has random signs, so errors add up to a few tolerances and not to a hundred.
    assert root_mean_square(run.observed["test-outputs"] - fine.observed["test-outputs"]) < 3e-2
    assert run.stats["rejected"] < 0.2 * run.stats["steps"]
    chatter = RungeKutta(rtol=1e-3, atol=1e-4)(network, data, [400.0])
    assert run.stats["evaluations"] < chatter.stats["evaluations"] / 4


@pytest.mark.parametrize(
    ("loss", "y", "outputs"),
    [
        (Logistic("sum"), jnp.sign(Y), None),
        (CrossEntropy(), jax.nn.one_hot(jnp.arange(6) % 3, 3), 3),
    ],
)
def test_other_losses(loss, y, outputs):
    network = TwoLayer(12, 3, outputs, activation=Gelu(), train_readout=True, key=K3)
    data = Dataset(X, y, weight=jnp.linspace(0.5, 2.0, 6))
    times, flow = [1.0, 10.0, 100.0], weights(loss=loss, tolerance=1e-5)
    run = flow(network, data, times, [TrainOutputs()])
    exact = RungeKutta(loss, rtol=1e-9, atol=1e-10)(network, data, times, [TrainOutputs()])
    bound = 1e-5 * run.stats["steps"] * root_mean_square(y)
    assert root_mean_square(run.observed["train-outputs"][-1] - exact.observed["train-outputs"][-1]) < bound < 1e-2
    # λ at the start: 20 iterations, each of which sees it from below.
    rate = top_rate(network, data, loss)
    assert 0.97 * rate < init_runs(flow, network, samples(data), K1, "one").memory.rate < 1.0001 * rate


def test_the_fastest_mode_is_followed_as_it_grows():
    network = TwoLayer(12, 3, activation=Gelu(), train_readout=True, readout=0.3, key=K3)
    data, flow = eqx.tree_at(lambda d: d.y, DATA, 5 * Y), weights(tolerance=1e-3)
    run = flow(network, data, [100.0])
    before, after = (top_rate(one, data, flow.loss) for one in (network, run.final))
    assert after > 20 * before
    close(run.run_state.state.memory.rate, after, rel=0.03)  # of the last step's start


def test_a_mode_that_was_lost_is_found_again():
    model = TangentModel(NETWORK)  # its kernel stands still, and a power iteration stays where it is
    data, flow = Dataset(X, Y), weights()
    state, frozen = init_runs(flow, model, samples(data), K1, "one"), split_trained(model)[1]
    values, modes = np.linalg.eigh(model.tangent_kernel(X, X))
    lost = eqx.tree_at(
        lambda s: (s.memory.mode, s.memory.rate, s.remaining),
        state,
        (jnp.asarray(modes[:, 0]), jnp.asarray(values[0] / 6), jnp.asarray(100.0)),
    )
    after = advance_runs(flow, lost, frozen, samples(data), jnp.asarray(1000, jnp.int32), "one")
    assert after.code == 0
    assert after.remaining == 0
    close(after.memory.rate, values[-1] / 6, rel=1e-2)


def test_slices_of_work_change_nothing():
    flow, frozen = weights(tolerance=1e-3), split_trained(NETWORK)[1]
    state = eqx.tree_at(lambda s: s.remaining, init_runs(flow, NETWORK, samples(DATA), K1, "one"), jnp.asarray(30.0))
    whole = advance_runs(flow, state, frozen, samples(DATA), jnp.asarray(10_000, jnp.int32), "one")
    while state.remaining > 0:
        state = advance_runs(flow, state, frozen, samples(DATA), jnp.asarray(3, jnp.int32), "one")
    assert whole.steps > 10
    for one, other in zip(jax.tree.leaves(whole), jax.tree.leaves(state), strict=True):
        assert np.array_equal(one, other)


def test_numbers_of_stages_share_one_compilation(compilations):
    weights(tolerance=1e-2)(NETWORK, DATA, [5.0], [TestOutputs()])
    compilations.count = 0
    run = weights(tolerance=1e-5, max_steps=5000)(NETWORK, DATA, [1e4], [TestOutputs()])
    assert compilations.count == 0
    state = run.run_state.state
    assert state.memory.rate * state.step > 5 * REACH * 8  # three stages at the start, many at the end


def test_coordinates_do_not_matter():
    network = TwoLayer(64, 3, activation=Relu(), train_readout=True, key=K2)
    by_weight, by_gram = (
        Stabilised(tolerance=1e-3, coordinates=coordinates)(network, DATA, [50.0], [TestOutputs()])
        for coordinates in ("weights", "gram")
    )
    assert by_weight.stats["steps"] > 50
    close(by_gram.observed["test-outputs"], by_weight.observed["test-outputs"], rel=1e-6, abs=1e-7)
    assert by_gram.stats["evaluations"] == by_weight.stats["evaluations"]


def test_targets_of_zero_are_reached():
    data = eqx.tree_at(lambda d: d.y, DATA, jnp.zeros(6))
    run = weights(tolerance=1e-3)(NETWORK, data, [0.0, 100.0], [TrainOutputs()])
    assert run.status.ok
    before, after = np.abs(run.observed["train-outputs"]).max(axis=1)
    assert after < 0.1 * before
    still = eqx.tree_at(lambda n: n.a, NETWORK, jnp.zeros(12))  # f = 0 = y: nothing moves or is divided by zero
    run = weights()(still, data, [100.0])
    assert run.status.ok
    assert np.array_equal(run.final.w, still.w)


def single(tree):
    return jax.tree.map(lambda leaf: leaf.astype(jnp.float32) if eqx.is_inexact_array(leaf) else leaf, tree)


def test_float32_stays_float32_and_comes_to_rest():
    run = weights(tolerance=1e-5)(single(NETWORK), DATA.astype(jnp.float32), [10.0, 1e5], [TrainLoss()])
    assert run.status.ok  # where all is fitted and every step is rounding
    assert run.final.w.dtype == jnp.float32
    exact = RungeKutta(rtol=1e-7, atol=1e-8)(NETWORK, DATA, [10.0], [TrainLoss()])
    close(run.observed["train-loss"][0], exact.observed["train-loss"][0], rel=1e-3)


def test_a_tolerance_lost_in_rounding_ends_the_run():
    tiny = eqx.tree_at(lambda d: d.y, DATA, 1e-12 * Y).astype(jnp.float32)  # beside outputs of order one
    run = weights()(single(NETWORK), tiny, [1e3])
    assert run.status is Status.step_too_small
    assert run.stats["steps"] + run.stats["rejected"] < 1000


def test_other_ends_are_said():
    run = weights(tolerance=1e-6, max_steps=4)(NETWORK, DATA, [1000.0])
    assert run.status is Status.step_limit
    assert run.stats["steps"] + run.stats["rejected"] == 4
    huge = eqx.tree_at(lambda d: d.y, DATA, 1e150 * Y)
    run = weights(step=1.0)(NETWORK, huge, [1e5])
    assert run.status is Status.not_finite
    assert np.isfinite(run.final.w).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tolerance": 0.0}, "below rounding error"),
        ({"tolerance": float("nan")}, "not a finite number"),
        ({"step": 0.0}, "step = 0.0 is not in range"),
        ({"step": -1.0}, "step = -1.0 is not in range"),
        ({"step": float("nan")}, "not a finite number"),
    ],
)
def test_what_it_cannot_do_is_refused(options, message):
    with pytest.raises(UserError, match=message):
        Stabilised(**options)(NETWORK, DATA, [1.0])
    with pytest.raises(UserError, match="below rounding error"):
        Stabilised(tolerance=1e-7)(single(NETWORK), DATA.astype(jnp.float32), [1.0])
