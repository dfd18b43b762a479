"""The linear flow of condensation against autodiff, SciPy, the printed matrix, and training itself."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.linalg import expm

from close import close
from unlazy._errors import UserError
from unlazy.activations import Custom, Relu, Sigmoid, Silu, Tanh, Xtanh
from unlazy.data import Dataset
from unlazy.flows import GradientFlow
from unlazy.losses import CrossEntropy, SoftmaxSquared, Squared
from unlazy.networks import ConvNet, split_trained, with_fields
from unlazy.papers.zhou2023.theorems import (
    KernelsCondense,
    LinearFlow,
    Linearisation,
    Prediction,
    against_channels,
    least_effective_time,
    limits,
    linearisation_of,
    linearise,
    order,
    predict,
)
from unlazy.papers.zhou2023.theorems.setting import largest_slopes, small_images
from unlazy.probes import Alignment
from unlazy.theory import Verdict

IMAGE, M, SIDE, N = (2, 5, 4), 3, 2, 6
PLACES = 4 * 3
SIZE = IMAGE[0] * SIDE**2 + 1


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(3)
    return Dataset(jnp.asarray(rng.uniform(0.2, 1.0, (N, *IMAGE))), jnp.asarray(rng.uniform(1.0, 3.0, N)))


def one_hot(data, classes=3):
    return Dataset(data.x, jnp.eye(classes)[jnp.arange(N) % classes])


def network(outputs=None, *, activation="tanh", scale=1.0, rescaled=False):
    key = jax.random.key(5)
    options = {"activation": activation, "scale": scale, "rescaled": rescaled}
    return ConvNet((M,), SIDE, outputs, image=IMAGE, key=key, **options)


def printed_z(x, y, side):
    """Eq. 35 and 70, entry by entry: rows are places, columns are z_(u+p, v+q, α) channel by channel, then z."""
    n, channels, height, width = x.shape
    z = np.einsum("i,icuv->cuv", y, x) / n
    rows = []
    for u in range(height - side + 1):
        for v in range(width - side + 1):
            row = [z[c, u + p, v + q] for c in range(channels) for p in range(side) for q in range(side)]
            rows.append([*row, y.mean()])
    return np.array(rows)


def by_autodiff(net, data, loss):
    """A and the constant of θ' = A θ + c at zero weights, channel by channel: (θ_W, θ_a) of channel 0 and of all."""
    trained, frozen = split_trained(net)
    leaves, tree = jax.tree.flatten(trained)
    sizes = np.cumsum([leaf.size for leaf in leaves])[:-1]

    def velocity(flat):
        parts = [p.reshape(leaf.shape) for p, leaf in zip(jnp.split(flat, sizes), leaves, strict=True)]
        value = lambda t: loss(eqx.combine(jax.tree.unflatten(tree, t), frozen)(data.x), data.y)  # noqa: E731
        return -jnp.concatenate([g.ravel() for g in jax.grad(value)(parts)])

    zero = jnp.zeros(sum(leaf.size for leaf in leaves))
    jacobian, constant = np.asarray(jax.jacobian(velocity)(zero)), np.asarray(velocity(zero))
    index = jax.tree.unflatten(
        tree, [p.reshape(leaf.shape) for p, leaf in zip(np.split(np.arange(zero.size), sizes), leaves, strict=True)]
    )

    def of(channel):
        into = [*index.kernels[0][channel].ravel(), index.biases[0][channel]]
        return into, list(index.readout.reshape(PLACES, M, -1)[:, channel].ravel())

    return jacobian, constant, of


@pytest.mark.parametrize(
    ("loss", "activation", "classes"),
    [
        (Squared(), Tanh(), None),
        (Squared(half=False), Silu(), None),
        (Squared("sum"), Tanh(), 3),
        (CrossEntropy(), Tanh(), 3),
        (SoftmaxSquared(), Silu(), 3),
        (CrossEntropy(), Sigmoid(), 3),
    ],
    ids=["squared", "no half, silu", "several outputs", "cross-entropy", "softmax", "sigmoid"],
)
def test_z_is_the_jacobian_of_the_flow_at_zero(data, loss, activation, classes):
    seen = data if classes is None else one_hot(data, classes)
    net = network(classes, activation=activation)
    linear = linearisation_of(net, seen, loss)
    jacobian, constant, of = by_autodiff(net, seen, loss)
    (w, a), (w_1, _) = of(0), of(1)
    close(jacobian[np.ix_(a, w)], linear.z, rel=1e-10, abs=1e-13)
    close(jacobian[np.ix_(w, a)], linear.z.T, rel=1e-10, abs=1e-13)
    close(constant[a], linear.drive, rel=1e-10, abs=1e-13)
    assert np.abs(jacobian[np.ix_(w, w)]).max() == 0  # eq. 34: zero blocks
    assert np.abs(jacobian[np.ix_(a, w_1)]).max() == 0  # channels do not meet
    assert np.abs(constant[w]).max() == 0
    if activation != Sigmoid():
        assert np.abs(jacobian[np.ix_(a, a)]).max() == 0
        assert np.abs(linear.drive).max() == 0


def test_z_is_the_printed_one_and_losses_differ_by_factors(data):
    x, y = np.asarray(data.x), np.asarray(data.y)
    half = linearise(data, SIDE)
    close(half.z, printed_z(x, y, SIDE), rel=1e-12)
    close(linearise(data, SIDE, Squared(half=False)).z, 2 * half.z, rel=1e-12)
    grey = Dataset(data.x[:, :1], data.y)
    close(linearise(grey, SIDE).z, printed_z(x[:, :1], y, SIDE), rel=1e-12)
    assert half.z.shape == (PLACES, SIZE)
    classes = one_hot(data)
    entropy = linearise(classes, SIDE, CrossEntropy())
    close(entropy.z.reshape(PLACES, 3, -1).sum(axis=1), np.zeros((PLACES, SIZE)), abs=1e-14)
    close(linearise(classes, SIDE, SoftmaxSquared()).z, entropy.z / 3, rel=1e-10, abs=1e-15)


def test_the_spectrum_is_that_of_z(data):
    linear = linearise(data, SIDE)
    close(linear.eigenvalues, np.linalg.eigvalsh(linear.z.T @ linear.z)[::-1], rel=1e-6, abs=1e-9)
    close(linear.left.T * linear.values @ linear.right, linear.z, rel=1e-10, abs=1e-12)
    assert linear.gap == pytest.approx(np.linalg.norm(linear.z, 2) - linear.values[1])
    assert np.all(linear.right[:, :-1].sum(axis=1) >= 0)
    kernels = linear.right[0, :-1].reshape(2, -1)
    wanted = [k @ np.ones(4) / 2 / np.linalg.norm(k) for k in kernels]
    close(linear.ones(), wanted)
    close(linear.kernels(), kernels)
    assert linear.second_direction(0.0) == 1.0
    assert linear.second_direction(2 / linear.gap) == pytest.approx(np.exp(-2))
    three = Linearisation(np.diag([3.0, 2.9, 1.0]), np.zeros(3), 1)
    assert [three.visible(t) for t in (0.0, 2.0, 20.0, 24.0)] == [3, 2, 2, 1]  # a small gap shows two for long


def test_constant_images_have_the_vector_of_ones():
    flat = Dataset(
        jnp.ones((3, 1, 6, 6)) * jnp.asarray([0.3, 0.5, 1.0]).reshape(3, 1, 1, 1), jnp.asarray([1.0, 2.0, 0.5])
    )
    linear = linearise(flat, 3)
    assert linear.ones()[0] == pytest.approx(1.0)
    assert linear.rank == 1


@pytest.mark.parametrize("drive", [False, True], ids=["paper", "driven"])
def test_the_closed_form_is_the_matrix_exponential(data, drive):
    rng = np.random.default_rng(0)
    z = linearise(data, SIDE).z
    linear = Linearisation(z, rng.normal(size=PLACES) * drive, 2)
    prediction = Prediction(linear, rng.normal(size=(M, SIZE)), rng.normal(size=(M, PLACES)))
    total = SIZE + PLACES
    a = np.zeros((total + 1, total + 1))  # the constant as one more coordinate
    a[SIZE:total, :SIZE], a[:SIZE, SIZE:total], a[SIZE:total, -1] = z, z.T, linear.drive
    for t in (0.0, 0.01, 0.3):
        start = np.concatenate([prediction.weights, prediction.readouts, np.ones((M, 1))], axis=1)
        exact = start @ expm(t * a).T
        w, read = prediction.at(t)
        close(w, exact[:, :SIZE], rel=1e-9, abs=1e-10)
        close(read, exact[:, SIZE:total], rel=1e-9, abs=1e-10)
        v = linear.right[0]
        close(prediction.alignments(t), np.abs(w @ v) / np.linalg.norm(w, axis=1), rel=1e-9)
        assert prediction.deviation(t, 1.1 * w) == pytest.approx(0.1)
        assert prediction.overall(t) == pytest.approx(np.linalg.norm(w @ v) / np.linalg.norm(w))
        assert prediction.change(t) == pytest.approx(
            np.linalg.norm(w - prediction.weights) / np.linalg.norm(start[:, :SIZE])
        )


def test_directions_that_never_move_stay(data):
    z = np.zeros((PLACES, SIZE))
    z[:, 0] = 1.0  # rank 1
    rng = np.random.default_rng(0)
    prediction = Prediction(
        Linearisation(z, np.zeros(PLACES), 2), rng.normal(size=(M, SIZE)), rng.normal(size=(M, PLACES))
    )
    w, _ = prediction.at(0.7)
    assert prediction.linear.rank == 1
    close(w[:, 1:], prediction.weights[:, 1:], rel=1e-12, abs=1e-14)
    assert np.all(np.abs(w[:, 0]) > np.abs(prediction.weights[:, 0]) / 2)


def test_no_time_is_too_long(data):
    prediction = predict(network(scale=1e-6), data)
    assert prediction.alignments(1e6).min() == pytest.approx(1.0)
    assert prediction.overall(1e6) == pytest.approx(1.0)


def test_times_of_alignment_are_first_crossings(data):
    prediction = predict(network(scale=1e-6), data)
    time = prediction.time_of(0.999)
    assert np.median(prediction.alignments(time * 0.999)) < 0.999
    assert np.median(prediction.alignments(time)) >= 0.999 - 1e-12
    assert prediction.time_of(0.999, share=1.0) >= time >= prediction.time_of(0.9)
    tied = Linearisation(np.eye(4, 3), np.zeros(4), 1)  # no spectral gap
    assert Prediction(tied, np.eye(2, 3) + 0.5, np.ones((2, 4))).time_of(0.999) == np.inf
    with pytest.raises(UserError, match="alignment below 1"):
        prediction.time_of(1.5)


def test_effective_time_is_its_definition(data):
    epsilon = 1e-6
    prediction = predict(network(scale=epsilon), data)
    gamma = order(epsilon, M)
    assert gamma == pytest.approx(-np.log(epsilon**2) / np.log(M))
    time = prediction.effective_time(epsilon)

    def left(t):
        w, a = prediction.at(t)
        energy = np.sqrt(np.sum(w**2, axis=1) + np.sum(a**2, axis=1)).max() / epsilon
        return M * epsilon**2 * energy**3

    assert left(time) == pytest.approx(M ** (-(gamma - 1) / 4), rel=1e-6)
    assert predict(network(scale=0.9), data).effective_time(0.9) == 0.0  # γ < 1
    lowest = least_effective_time(prediction.linear.values[0], epsilon, M, slack=(gamma - 1) / 99)
    assert lowest < (gamma - 1) / 4 * np.log(M) / prediction.linear.values[0]
    with pytest.raises(UserError, match="M > 1"):
        order(1e-6, 1)


def test_training_does_what_was_predicted(data):
    """The median channel reaches 0.999 when eq. 44 says so: to 1 % at ε = 1e-6."""
    net = network(scale=1e-6, rescaled=True)
    prediction = predict(net, data)
    time = prediction.time_of(0.999)
    probe = Alignment(prediction.linear.right[0], "conv1")
    run = GradientFlow(tolerance=1e-6)(net, data, [0.0, 0.99 * time, 1.01 * time], [probe])
    seen = run.observed["alignment"]["conv1"]["median"]
    assert seen[1] < 0.999 < seen[2]
    w, _ = prediction.at(1.01 * time)
    close(run.final.layers()["conv1"].weights(), w, rel=1e-4, abs=1e-4 * np.abs(w).max())


def test_what_has_no_linear_part_is_refused(data):
    deep = ConvNet((2, 2), 2, image=IMAGE, key=jax.random.key(0))
    for net in (deep, ConvNet((2,), 2, image=IMAGE, dense=3, key=jax.random.key(0))):
        with pytest.raises(UserError, match="Only two layers"):
            predict(net, data)
    with pytest.raises(UserError, match="kink at 0"):
        predict(with_fields(network(), activation=Relu()), data)
    with pytest.raises(UserError, match="multiplicity 2"):
        predict(network(activation=Xtanh()), data)
    with pytest.raises(UserError, match="flat = false"):
        linearise(data.flat(), 2)


# ---------------------------------------------------------------- theorems


def test_limits_are_what_many_channels_do(data):
    """Eq. 14 and 15 by brute force on 20,000 channels; the standard deviation of the ratios is below 1 %."""
    rng = np.random.default_rng(1)
    linear = linearise(data, SIDE)
    many = Prediction(linear, rng.normal(size=(20_000, SIZE)), rng.normal(size=(20_000, PLACES)))
    for t in (0.2 / linear.values[0], 2 / linear.values[0]):
        change, alignment = limits(linear, t)
        assert many.change(t) == pytest.approx(change, rel=0.03)
        assert many.overall(t) == pytest.approx(alignment, rel=0.03)
    assert limits(linear, 0.0) == pytest.approx((0.0, SIZE**-0.5))
    assert limits(linear, 1e4)[1] == pytest.approx(1.0)


def test_theorem_1_tends_to_its_limits_as_channels_grow(data):
    found = against_channels(data, SIDE, 4.0, (64, 512, 4096, 32768), key=jax.random.key(0))
    close(found.epsilon, np.array([64, 512, 4096, 32768.0]) ** -2.0)
    assert np.all(np.diff(found.effective_time) > 0)
    assert np.all(np.diff(found.change) > 0)
    assert np.all(np.diff(found.alignment) > 0)
    assert found.alignment[-1] > 0.97
    with pytest.raises(UserError, match="γ > 1"):
        against_channels(data, SIDE, 1.0, (2, 4), key=jax.random.key(0))


def test_theorem_1_is_silent_where_pixels_are_zero():
    theorem = KernelsCondense()
    finding = theorem.check(theorem.counterexample())
    assert finding.verdict is Verdict.SILENT
    assert "Assumption 2" in finding.why
    unmet = [one for one in finding.hypotheses if not one.met]
    assert [one.found for one in unmet] == [pytest.approx(1 / 6)]


def test_the_linear_flow_is_followed_from_small_weights_only():
    small = LinearFlow().check(small_images())
    assert small.verdict is Verdict.HOLDS
    assert small.numbers["largest deviation up to T_eff"] < 1e-4
    assert small.numbers["within 5 % until"] == pytest.approx(small.numbers["T_eff"])
    silent = LinearFlow().check(small_images(scale=0.3))
    assert silent.verdict is Verdict.SILENT
    assert "γ" in silent.why


def test_one_singular_value_has_the_gap_to_zero():
    """Kernels as large as the image are a dense network: Z has one row, and λ_2 = 0."""
    rng = np.random.default_rng(0)
    data = Dataset(jnp.asarray(rng.uniform(0.2, 1.0, (N, 1, 3, 3))), jnp.asarray(rng.uniform(1.0, 3.0, N)))
    net = ConvNet((32,), 3, image=(1, 3, 3), scale=1e-6, rescaled=True, key=jax.random.key(0))
    prediction = predict(net, data)
    assert prediction.linear.values.shape == (1,)
    assert prediction.linear.gap == prediction.linear.values[0]
    time = prediction.time_of(0.999)
    assert np.median(prediction.alignments(time)) == pytest.approx(0.999)
    end = prediction.effective_time(1e-6)
    run = GradientFlow(tolerance=1e-6)(net, data, [0.0, end], KernelsCondense().needs(net, data))
    assert KernelsCondense().check(run).verdict is Verdict.HOLDS


def test_targets_of_zero_have_no_direction(data):
    with pytest.raises(UserError, match="Z is 0"):
        linearise(Dataset(data.x, jnp.zeros(N)), SIDE)


def unmet(finding):
    return [one.what for one in finding.hypotheses if not one.met]


def test_theorem_1_is_silent_where_slopes_are_not_bounded():
    """Assumption 1: h + h³ is smooth with slope 1 at 0, but neither derivative is bounded."""
    assert largest_slopes(Tanh()) == 1.0  # |σ''| is at most 4 / 3^1.5 = 0.77
    assert largest_slopes(Silu()) == pytest.approx(1.0998, abs=1e-4)
    assert largest_slopes(Custom(lambda h: jnp.sin(3 * h))) == pytest.approx(9.0, rel=1e-3)
    assert largest_slopes(Custom(lambda h: h + h**3)) == np.inf
    run = small_images()
    network = with_fields(run.start, activation=Custom(lambda h: h + h**3))
    steep = GradientFlow(tolerance=1e-6)(network, run.data, run.times, KernelsCondense().needs(network, run.data))
    for theorem in (KernelsCondense(), LinearFlow()):
        finding = theorem.check(steep)
        assert finding.verdict is Verdict.SILENT
        assert unmet(finding) == ["Assumption 1: |σ'| and |σ''| bounded, by C_L"]
        assert theorem.check(run).verdict is Verdict.HOLDS


def test_theorem_1_is_silent_where_a_target_is_zero():
    run = small_images()
    data = Dataset(run.data.x, run.data.y.at[0].set(0.0))
    network = run.start
    end = predict(network, data).effective_time(1e-6)
    zero = GradientFlow(tolerance=1e-6)(network, data, [0.0, end], KernelsCondense().needs(network, data))
    finding = KernelsCondense().check(zero)
    assert finding.verdict is Verdict.SILENT
    assert unmet(finding) == ["Assumption 2, also for targets: min |y| > 0"]
    assert LinearFlow().check(zero).verdict is Verdict.HOLDS  # which needs no lower bound


def test_the_theorem_on_the_linear_flow_says_what_it_is():
    assert "Proposition 2" in LinearFlow.source
    assert "T_eff of that flow" in LinearFlow.statement
    assert LinearFlow.key == "zhou2023/linear-flow"  # Proposition 1 solves a linear equation, and is always true


@pytest.mark.parametrize("gamma", [2.0, 7.0])
def test_the_residual_of_theorem_1_vanishes_beyond_gamma_5(data, gamma):
    """Training minus eq. 44 at t̄_0, per channel in units of ε; σ'' ≠ 0, so that both terms of the bound count."""
    found, widths = [], (8, 32, 128)
    for m in widths:
        epsilon = float(m) ** (-gamma / 2)
        options = {"scale": epsilon, "rescaled": True, "activation": "silu"}
        net = ConvNet((m,), SIDE, image=IMAGE, key=jax.random.key(2), **options)
        prediction = predict(net, data)
        end = ((gamma - 1) / 8 * np.log(m) - np.log(2)) / prediction.linear.values[0]
        end = max(end, 0.1 / prediction.linear.values[0])
        run = GradientFlow(tolerance=1e-8)(net, data, [0.0, end], KernelsCondense().needs(net, data))
        seen = np.asarray(run.observed["input-weights"]["conv1"][-1])
        found.append(np.linalg.norm(seen - prediction.at(end)[0], axis=1).max() / epsilon)
    assert found[0] > found[1] > found[2]
    if gamma == 7:  # where t̄_0 is not too short at these widths, the power is that of the second term, -(γ + 3)/8
        assert np.log(found[2] / found[1]) / np.log(4) == pytest.approx(-1.25, abs=0.1)
