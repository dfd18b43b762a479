"""What probes see, against a network written out in NumPy."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from close import close
from unlazy import _linalg
from unlazy._errors import UserError
from unlazy.data import Dataset
from unlazy.flows import Descent
from unlazy.losses import CrossEntropy, Squared
from unlazy.networks import TangentModel, TwoLayer, with_fields
from unlazy.probes import (
    ActiveShare,
    DecayRate,
    FeatureMovement,
    Kernel,
    KernelMatrix,
    MeanSquareSlope,
    TestError,
    TestLoss,
    TestOutputs,
    TrainError,
    TrainLoss,
    TrainOutputs,
    WeightMovement,
    training_kernel,
)
from unlazy.probes.loss import misclassified

M, D, N = 8, 3, 6
rng = np.random.default_rng(11)
X, X_TEST = rng.normal(size=(N, D)), rng.normal(size=(4, D))
Y, Y_TEST = rng.normal(size=N), rng.normal(size=4)
W0, A = rng.normal(size=(M, D)), rng.choice([-1.0, 1.0], size=M)
W1 = W0 + 0.5 * rng.normal(size=(M, D))


def hidden(w, x=X):
    return x @ w.T / np.sqrt(D)


def output(w, x=X):
    return np.tanh(hidden(w, x)) @ A / M


def theta(w, x=X):
    """J R J^T of the mean-field network: m Σ_j (a_j/m)² σ'(h_j(x)) σ'(h_j(z)) x·z / d."""
    slope = 1 - np.tanh(hidden(w, x)) ** 2
    return (slope @ slope.T / M) * (x @ x.T / D)


@pytest.fixture(scope="module")
def start():
    network = TwoLayer(M, D, key=jax.random.key(0))
    return with_fields(network, w=jnp.asarray(W0), a=jnp.asarray(A))


@pytest.fixture(scope="module")
def now(start):
    return with_fields(start, w=jnp.asarray(W1))


@pytest.fixture(scope="module")
def data():
    return Dataset(*map(jnp.asarray, (X, Y, X_TEST, Y_TEST)), name="by hand")


def look(probe, now, start, data, loss=None):
    return probe.of(now, start, data, Squared() if loss is None else loss)


def test_losses_and_outputs(now, start, data):
    cost, cost_test = (output(W1) - Y) ** 2 / 2, (output(W1, X_TEST) - Y_TEST) ** 2 / 2
    close(look(TrainOutputs(), now, start, data), output(W1), rel=1e-11)
    close(look(TestOutputs(), now, start, data), output(W1, X_TEST), rel=1e-11)
    close(look(TrainLoss(), now, start, data), cost.mean(), rel=1e-11)
    close(look(TrainLoss(), now, start, data, Squared("sum")), cost.sum(), rel=1e-11)
    close(look(TestLoss(), now, start, data), cost_test.mean(), rel=1e-11)
    close(look(TestLoss(), now, start, data, Squared("sum")), cost_test.mean(), rel=1e-11)  # always the mean


def test_training_loss_knows_the_weights(now, start, data):
    weight = rng.uniform(size=N)
    weighted = eqx.tree_at(lambda d: d.weight, data, jnp.asarray(weight), is_leaf=lambda leaf: leaf is None)
    cost = (output(W1) - Y) ** 2 / 2
    close(look(TrainLoss(), now, start, weighted), weight @ cost / weight.sum(), rel=1e-11)
    close(look(TrainLoss(), now, start, weighted, Squared("sum")), weight @ cost, rel=1e-11)


def test_feature_movement_is_the_mean_distance_of_features(now, start, data):
    seen = look(FeatureMovement(), now, start, data)
    assert set(seen) == {"hidden"}
    close(seen["hidden"], np.abs(hidden(W1) - hidden(W0)).mean(axis=1).mean(), rel=1e-11)
    close(look(FeatureMovement(), start, start, data)["hidden"], 0.0)


def test_weight_movement_is_the_distance_of_each_neuron(now, start, data):
    close(look(WeightMovement(), now, start, data)["hidden"], np.sqrt(((W1 - W0) ** 2).sum(axis=1)), rel=1e-11)
    close(look(WeightMovement(), start, start, data)["hidden"], np.zeros(M))


def test_active_share_is_the_smallest_share_over_inputs(now, start, data):
    h = hidden(W1)
    close(look(ActiveShare(), now, start, data)["hidden"], (h > 0).mean(axis=1).min(), rel=1e-12)
    inside = ((h > -0.5) & (h < 0.75)).mean(axis=1).min()
    close(look(ActiveShare(-0.5, 0.75), now, start, data)["hidden"], inside, rel=1e-12)
    close(look(ActiveShare(-100.0, 100.0), now, start, data)["hidden"], 1.0)


def test_the_active_interval_is_open(start, data):
    """With x = √d e_1, h_j is exactly the first weight: neurons on an end of the interval do not count."""
    w = np.zeros((M, D))
    w[:, 0] = [0.0, 0.0, 0.5, 0.5, 1.0, 2.0, 2.0, 3.0]
    one = Dataset(jnp.asarray([[np.sqrt(D), 0.0, 0.0]]), jnp.ones(1))
    network = with_fields(start, w=jnp.asarray(w))
    h = network.features(one.x)[1][0]
    ends = float(h[0]), float(h[5])
    close(look(ActiveShare(*ends), network, start, one)["hidden"], 3 / 8)


def test_the_mean_square_slope_is_the_smallest_over_inputs(now, start, data):
    slopes = 1 - np.tanh(hidden(W1)) ** 2
    close(look(MeanSquareSlope(), now, start, data)["hidden"], (slopes**2).mean(axis=1).min(), rel=1e-11)
    tangent = TangentModel(start)
    close(
        look(MeanSquareSlope(), tangent, tangent, data)["hidden"], look(MeanSquareSlope(), start, start, data)["hidden"]
    )


@pytest.mark.parametrize("loss", [Squared(), Squared("sum"), Squared("sum", half=False)], ids=str)
def test_the_decay_rate_is_the_quadratic_form_of_the_kernel(now, start, data, loss):
    residual = output(W1) - Y
    slope = {"mean": 1 / N, "sum": 1.0}[loss.reduction] * (1 if loss.half else 2)
    wanted = slope * residual @ theta(W1) @ residual / (0.5 * residual @ residual)
    close(look(DecayRate(), now, start, data, loss), wanted, rel=1e-10)


def test_the_decay_rate_is_what_a_short_step_does(data):
    """With weights and several outputs: -log(L(t + h) / L(t)) / h as h → 0."""
    network = TwoLayer(M, D, 2, train_readout=True, key=jax.random.key(3))
    y, weight = jnp.asarray(rng.normal(size=(N, 2))), jnp.asarray(rng.uniform(0.5, 1.5, N))
    several = Dataset(jnp.asarray(X), y, weight=weight)
    step = 1e-6
    run = Descent(rate=step)(network, several, [0.0, step], [TrainLoss(), DecayRate()])
    before, after = run.observed["train-loss"]
    close(run.observed["decay-rate"][0], np.log(before / after) / step, rel=1e-5)


def test_no_loss_has_no_rate(now, start, data):
    fitted = eqx.tree_at(lambda d: d.y, data, now(data.x))
    close(look(DecayRate(), now, start, fitted), 0.0)


def test_the_kernel_is_the_formula(now, start, data):
    close(look(KernelMatrix(), now, start, data), theta(W1), rel=1e-10)
    close(look(KernelMatrix(samples=2), now, start, data), theta(W1)[:2, :2], rel=1e-10)
    close(training_kernel(now, data), theta(W1), rel=1e-10)


@pytest.mark.parametrize("samples", [None, 4])
def test_kernel_summary_is_numpy(now, start, data, samples):
    seen = look(Kernel(samples), now, start, data)
    x, y = X[:samples], Y[:samples]
    after, before = theta(W1, x), theta(W0, x)
    close(seen["drift"], np.sqrt(((after - before) ** 2).sum() / (before**2).sum()), rel=1e-9)
    close(seen["drift_operator"], np.linalg.svd(after - before, compute_uv=False)[0], rel=1e-9)
    values = np.linalg.svd(after, compute_uv=False)  # symmetric and positive: singular values are eigenvalues
    close(seen["largest"], values[0], rel=1e-9)
    close(seen["smallest"], values[-1], rel=1e-7, abs=1e-14)
    close(seen["alignment"], y @ after @ y / (np.linalg.norm(after) * (y @ y)), rel=1e-9)


def test_nothing_drifts_at_the_start(start, data):
    seen = look(Kernel(), start, start, data)
    close(seen["drift"], 0.0)
    close(seen["drift_operator"], 0.0)


def test_alignment_is_one_for_a_kernel_of_the_targets(start, data):
    """Inputs x_i = y_i e_1 and weights with h = 0 make σ' = 1 and Θ = y y^T / d."""
    x = np.zeros((N, D))
    x[:, 0] = Y
    aligned = Dataset(jnp.asarray(x), jnp.asarray(Y))
    network = with_fields(start, w=jnp.zeros((M, D)))
    close(look(KernelMatrix(), network, start, aligned), np.outer(Y, Y) / D, rel=1e-12)
    seen = look(Kernel(), network, start, aligned)
    close(seen["alignment"], 1.0)
    close(seen["largest"], Y @ Y / D, rel=1e-12)
    across = np.array([Y[1], -Y[0], 0, 0, 0, 0])  # targets at right angles to the kernel
    turned = eqx.tree_at(lambda d: d.y, aligned, jnp.asarray(across))
    close(look(Kernel(), network, start, turned)["alignment"], 0.0, abs=1e-15)


def test_several_outputs_fold_into_one_kernel(data):
    network = TwoLayer(M, D, 2, key=jax.random.key(3))
    y = rng.normal(size=(N, 2))
    several = Dataset(jnp.asarray(X), jnp.asarray(y))
    whole = np.asarray(network.tangent_kernel(several.x, several.x))
    assert whole.shape == (N, 2, N, 2)
    folded = whole.reshape(2 * N, 2 * N)
    close(look(KernelMatrix(), network, network, several), folded)
    flat = y.reshape(-1)
    wanted = flat @ folded @ flat / (np.linalg.norm(folded) * (flat @ flat))
    close(look(Kernel(), network, network, several)["alignment"], wanted, rel=1e-9)


def test_misclassified_by_sign():
    f, y = jnp.asarray([0.3, -2.0, 1e-9, -1e-9]), jnp.asarray([1.0, 1.0, -1.0, -1.0])
    close(misclassified(f, y), 0.5)
    close(misclassified(f[:, None], y[:, None]), 0.5)  # one output with an axis of its own
    close(misclassified(y, y), 0.0)
    close(misclassified(-y, y), 1.0)


def test_misclassified_by_the_largest_output():
    y = jnp.eye(3)[jnp.asarray([0, 1, 2, 2])]
    f = jnp.asarray([[2.0, 1.0, 0.0], [2.0, 1.0, 0.0], [-3.0, -2.0, -1.0], [0.0, 5.0, 4.0]])
    close(misclassified(f, y), 0.5)
    close(misclassified(f - 10.0, y), 0.5)  # signs do not matter


def test_errors_look_at_their_own_set(now, start, data):
    signs = Dataset(*map(jnp.asarray, (X, np.sign(Y), X_TEST, np.sign(Y_TEST))))
    close(look(TrainError(), now, start, signs), np.mean(np.sign(output(W1)) != np.sign(Y)))
    close(look(TestError(), now, start, signs), np.mean(np.sign(output(W1, X_TEST)) != np.sign(Y_TEST)))


@pytest.mark.parametrize("probe", [TestLoss(), TestError(), TestOutputs()], ids=lambda probe: type(probe).__name__)
def test_a_missing_test_set_is_named(probe, now, start):
    lonely = Dataset(jnp.asarray(X), jnp.asarray(Y), name="lonely")
    with pytest.raises(UserError, match=r"Data set 'lonely' has no test set: give it one, or remove this probe"):
        look(probe, now, start, lonely)


def test_a_missing_test_set_is_named_inside_a_flow(start):
    lonely = Dataset(jnp.asarray(X), jnp.asarray(Y), name="lonely")
    with pytest.raises(UserError, match="'lonely' has no test set"):
        Descent()(start, lonely, [0.0], [TestLoss()])


def test_test_loss_is_that_of_the_flow(now, start, data):
    y_test = np.eye(2)[[0, 1, 1, 0]]
    network = TwoLayer(M, D, 2, key=jax.random.key(4))
    labels = Dataset(jnp.asarray(X), jnp.zeros((N, 2)), jnp.asarray(X_TEST), jnp.asarray(y_test))
    f = np.asarray(network(labels.x_test))
    wanted = -np.mean((y_test * (f - np.log(np.exp(f).sum(axis=1, keepdims=True)))).sum(axis=1))
    close(look(TestLoss(), network, network, labels, CrossEntropy()), wanted, rel=1e-10)


@pytest.mark.parametrize("samples", [0, -1, 10**6])
def test_a_kernel_on_samples_that_are_not_there_is_refused(samples):
    network, data = TwoLayer.examples(key=jax.random.key(0))[0]
    with pytest.raises(UserError, match="is out of range: there are"):
        Kernel(samples=samples).of(network, network, data, Squared())


def test_one_output_has_a_kernel_of_its_own():
    network = TwoLayer(M, D, 3, key=jax.random.key(3))
    several = Dataset(jnp.asarray(X), jnp.asarray(rng.normal(size=(N, 3))))
    whole = np.asarray(network.tangent_kernel(several.x, several.x))[:, 1, :, 1]
    close(look(KernelMatrix(output=1), network, network, several), whole, rel=1e-12)
    seen = look(Kernel(output=1), network, network, several)
    close(seen["largest"], np.linalg.eigvalsh(whole)[-1], rel=1e-10)
    y = np.asarray(several.y[:, 1])
    close(seen["alignment"], y @ whole @ y / (np.linalg.norm(whole) * (y @ y)), rel=1e-9)
    with pytest.raises(UserError, match="There is no output 3: the targets have 3, counted from 0"):
        look(Kernel(output=3), network, network, several)


@pytest.mark.parametrize("rank", [60, 200], ids=["singular", "regular"])
def test_large_kernels_have_the_eigenvalues_of_numpy(rank, monkeypatch):
    """By Lanczos and a Cholesky factor, on a matrix with eigenvalues over ten orders of magnitude."""
    monkeypatch.setattr(_linalg, "DENSE", 10)
    draw = np.random.default_rng(0)
    axes = np.linalg.qr(draw.normal(size=(200, 200)))[0]
    values = np.where(np.arange(200) < rank, np.geomspace(5.0, 1e-9, 200), 0.0)
    matrix = (axes * values) @ axes.T
    matrix = (matrix + matrix.T) / 2
    smallest, largest = _linalg.extreme_eigenvalues(jnp.asarray(matrix))
    exact = np.linalg.eigvalsh(matrix)
    close(largest, exact[-1], rel=1e-12)
    close(smallest, exact[0], abs=1e-13)  # some rounding of the largest, as by NumPy
    change = matrix - (axes[:, ::-1] * values) @ axes.T
    change = (change + change.T) / 2
    close(_linalg.operator_norm(jnp.asarray(change)), np.linalg.norm(change, 2), rel=1e-6)
    close(_linalg.operator_norm(jnp.zeros((200, 200))), 0.0)


# ---------------------------------------------------------------- small numbers, and targets without a sign


def test_numbers_whose_squares_vanish_are_seen():
    """A network of float32 with inputs of 1e-9: its kernel is 1e-18, and all of its squares are 0."""
    size = np.float32(1e-9)
    data = Dataset((size * X).astype(np.float32), (size * Y).astype(np.float32))
    start = TwoLayer(M, D, key=jax.random.key(0))
    start = jax.tree.map(lambda leaf: leaf.astype(jnp.float32) if eqx.is_inexact_array(leaf) else leaf, start)
    now, later = (with_fields(start, a=jnp.asarray(a * A, jnp.float32)) for a in (1.0, 1.5))
    seen = Kernel().of(later, now, data, Squared())
    close(seen["drift"], 1.25, rel=1e-4)
    kernel = theta(np.zeros((M, D)))  # tanh is linear here
    close(seen["alignment"], Y @ kernel @ Y / (np.linalg.norm(kernel) * (Y @ Y)), rel=1e-4)
    at_zero = with_fields(now, w=jnp.zeros_like(now.w))
    tiny = with_fields(now, w=jnp.float32(1e-25) * jnp.asarray(W0, jnp.float32))
    movement = WeightMovement().of(tiny, at_zero, data, Squared())["hidden"]
    close(movement, 1e-25 * np.linalg.norm(W0, axis=1), rel=1e-5)


@pytest.mark.parametrize("labels", [[0, 1, 0, 1, 1, 0], [1, 2, 2, 1, 1, 2], [3, 1, 0, 2, 2, 0]])
def test_class_numbers_have_no_sign_that_decides(start, labels):
    """With targets 0 and 1 the error would compare the sign of the output with 0, and be 0 for targets 1 and 2."""
    y = jnp.asarray(labels, float)
    data = Dataset(X, y, X, y)
    assert np.isnan(misclassified(jnp.asarray(Y), y))
    for probe, name in ((TrainError(), "train-error"), (TestError(), "test-error")):
        with pytest.raises(UserError, match=f"{name} counts outputs whose sign .* number classes from"):
            probe.of(start, start, data, Squared())
        with pytest.raises(UserError, match="number classes from"):
            Descent(rate=0.1)(start, data, [0, 1], [probe])
    signs = Dataset(X, jnp.sign(jnp.asarray(Y)), X, jnp.sign(jnp.asarray(Y)))
    assert 0 <= TrainError().of(start, start, signs, Squared()) <= 1
