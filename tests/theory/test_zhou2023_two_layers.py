"""Two-layer networks of any class: eq. 44 for dense ones, Proposition 2, Lemma 1 and Proposition 3 of zhou2023."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, stats
from scipy.linalg import expm

from close import close
from unlazy._errors import UserError
from unlazy.activations import Custom, Silu, Tanh
from unlazy.data import Dataset
from unlazy.flows import GradientFlow, RungeKutta, velocity
from unlazy.losses import CrossEntropy, Squared
from unlazy.networks import (
    ConvNet,
    Layer,
    Network,
    Normal,
    Scaling,
    TangentModel,
    TwoLayer,
    mean_field,
    ntk,
    split_trained,
    with_fields,
)
from unlazy.papers.zhou2023.theorems import (
    KernelsCondense,
    LargestParameter,
    LengthOfWeights,
    LinearFlow,
    ResidualBound,
    bernstein,
    chi_square_norm,
    constants,
    linearisation_of,
    linearise,
    predict,
    residual,
    two_layer_form,
)
from unlazy.papers.zhou2023.theorems.setting import small_images
from unlazy.papers.zhou2023.theorems.start import small_start
from unlazy.probes import InputWeights
from unlazy.theory import Verdict

N, D, M = 7, 4, 6
PLAIN = Scaling(0.0, feature=0.0)  # f = Σ a σ(w·x), both layers at rate 1: the paper's network without places


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    return Dataset(jnp.asarray(rng.normal(size=(N, D))), jnp.asarray(rng.normal(size=N)))


def dense(scale=1e-3, *, outputs=None, width=M, **options):
    options = {"scaling": PLAIN, "bias": True, "train_readout": True} | options
    return TwoLayer(width, D, outputs, readout=Normal(scale), scale=scale, key=jax.random.key(2), **options)


def moving(net, data, loss):
    """Return (W, o) of the layer and their velocities along the flow, by autodiff of the network's own rates."""
    trained, frozen = split_trained(net)

    def shown(leaves):
        (layer,) = eqx.combine(leaves, frozen).layers().values()
        return layer.weights(), layer.outgoing()

    (w, o), (dw, do) = jax.jvp(shown, (trained,), (velocity(trained, frozen, data, loss),))
    return [np.asarray(one).reshape(len(w), -1) for one in (w, o, dw, do)]


@pytest.mark.parametrize("scaling", [PLAIN, mean_field, ntk], ids=["plain", "mean field", "NTK"])
@pytest.mark.parametrize("bias", [True, False], ids=["biases", "no biases"])
def test_a_dense_network_follows_the_matrix_exponential(data, scaling, bias):
    """At weights of 1e-6 the velocity of the network is that of eq. 43, and its solution is expm and eq. 44."""
    net = dense(1e-6, scaling=scaling, bias=bias)
    found = predict(net, data)
    w, o, dw, do = moving(net, data, Squared())
    z, ratio = found.linear.z, found.ratio
    assert z.shape == (1, D + bias)
    assert found.linear.bias is bias
    close(dw, ratio * o @ z, rel=1e-5, abs=1e-5 * np.abs(dw).max())
    close(ratio * do, w @ z.T, rel=1e-5, abs=1e-5 * np.abs(do).max())
    d = z.shape[1]
    a = np.zeros((d + 1, d + 1))
    a[d:, :d], a[:d, d:] = z, z.T
    t = 2 / found.linear.values[0]
    exact = np.concatenate([w, ratio * o], axis=1) @ expm(t * a).T
    close(found.at(t)[0], exact[:, :d], rel=1e-9, abs=1e-15)
    close(found.at(t)[1], exact[:, d:] / ratio, rel=1e-9, abs=1e-15)


def test_training_of_a_dense_network_is_predicted(data):
    net = dense(1e-5)
    found = predict(net, data)
    t = found.time_of(0.99)
    run = GradientFlow(tolerance=1e-8)(net, data, [0.0, t])
    layer = run.final.layers()["hidden"]
    w, o = found.at(t)
    close(layer.weights(), w, rel=1e-4, abs=1e-4 * np.abs(w).max())
    close(layer.outgoing(), o[:, 0], rel=1e-4, abs=1e-4 * np.abs(o).max())
    assert found.linear.gap == found.linear.values[0]  # r = 1
    x, y = np.asarray(data.x), np.asarray(data.y)
    v = np.append(y @ x, y.sum()) / N
    assert abs(found.linear.right[0] @ v) == pytest.approx(np.linalg.norm(v))  # the direction of Σ_i y_i (x_i, 1)


def test_a_dense_network_is_a_convolution_with_kernels_of_full_size(data):
    images = Dataset(data.x.reshape(N, 1, 2, 2), data.y)
    conv = ConvNet((M,), 2, image=(1, 2, 2), scale=1e-3, key=jax.random.key(0))
    flat = dense()
    close(predict(conv, images).linear.z, predict(flat, data).linear.z, rel=1e-12)
    close(linearisation_of(conv, images).z, linearise(images, 2).z, rel=1e-12)


def test_several_outputs_of_a_dense_network_have_several_directions(data):
    classes = Dataset(data.x, jnp.eye(3)[jnp.arange(N) % 3])
    net = dense(1e-6, outputs=3)
    found = predict(net, classes, CrossEntropy())
    w, o, dw, do = moving(net, classes, CrossEntropy())
    assert found.linear.z.shape == (3, D + 1)
    assert found.linear.rank == 2  # rows sum to 0
    close(dw, o @ found.linear.z, rel=1e-5, abs=1e-5 * np.abs(dw).max())
    close(do, w @ found.linear.z.T, rel=1e-5, abs=1e-5 * np.abs(do).max())


class Mine(Network):
    """A network of a user's own, with a layer that names no activation unless told to."""

    w: jax.Array
    a: jax.Array
    sigma: object = eqx.field(static=True, default=None)
    offset: float = eqx.field(static=True, default=0.0)

    def __call__(self, x):
        return jnp.tanh(x @ self.w.T) @ self.a + self.offset

    def layers(self):
        return {"mine": MyNeurons(self)}


class MyNeurons(Layer):
    network: Mine
    name: str = eqx.field(static=True, default="mine")

    @property
    def activation(self):
        return self.network.sigma

    def preactivations(self, x):
        return x @ self.network.w.T

    def weights(self):
        return self.network.w

    def outgoing(self):
        return self.network.a


def test_a_network_of_ones_own_is_predicted_by_what_its_layer_offers(data):
    rng = np.random.default_rng(1)
    w, a = (jnp.asarray(1e-4 * rng.normal(size=shape)) for shape in ((M, D), (M,)))
    found = predict(Mine(w, a, Tanh()), data)
    close(found.linear.z[0], np.asarray(data.y) @ np.asarray(data.x) / N, rel=1e-10)
    with pytest.raises(UserError, match="does not say what its activation is"):
        predict(Mine(w, a), data)
    with pytest.raises(UserError, match="not that sum"):
        predict(Mine(w, a, Tanh(), 0.3), data)
    with pytest.raises(UserError, match="not that sum"):
        predict(Mine(w, a, Silu()), data)


def test_what_is_not_trained_in_both_layers_is_refused(data):
    with pytest.raises(UserError, match="read-outs of TwoLayer are frozen"):
        predict(dense(train_readout=False), data)
    with pytest.raises(UserError, match="other trained parameters"):
        predict(TangentModel(dense()), data)
    images = Dataset(data.x.reshape(N, 1, 2, 2), data.y)
    with pytest.raises(UserError, match="output_bias = False"):
        predict(ConvNet((M,), 2, image=(1, 2, 2), output_bias=True, key=jax.random.key(0)), images)
    with pytest.raises(UserError, match="at one rate"):
        predict(dense(scaling=Scaling(0.0, feature=0.0, feature_rate=1.0)), data)


def test_theorems_apply_to_dense_networks():
    rng = np.random.default_rng(0)
    data = Dataset(jnp.asarray(rng.uniform(0.2, 1.0, (N, D))), jnp.asarray(rng.uniform(1.0, 3.0, N)))
    net = dense(1e-6, width=32)
    epsilon = math.sqrt(np.mean(np.concatenate([one.ravel() for one in (net.w, net.b, net.a)]) ** 2))
    end = predict(net, data).effective_time(epsilon)
    run = RungeKutta(rtol=1e-6)(net, data, [0.0, end], [InputWeights(("hidden",))])
    for theorem in (KernelsCondense(), LinearFlow()):
        assert theorem.check(run).verdict is Verdict.HOLDS
    # The default method controls the error of outputs, which are of the order of 1e-12: its one step loses the weights.
    lost = GradientFlow(tolerance=1e-6)(net, data, [0.0, end], [InputWeights(("hidden",))])
    assert "runge-kutta" in LinearFlow().check(lost).why
    frozen = GradientFlow(tolerance=1e-6)(dense(train_readout=False), data, [0.0, 1.0], [])
    assert KernelsCondense().check(frozen).verdict is Verdict.SILENT
    other = GradientFlow(tolerance=1e-6)(dense(1e-6, scaling=mean_field, width=32), data, [0.0, 1.0], [])
    assert "trained at rate 1" in KernelsCondense().check(other).why


# ---------------------------------------------------------------- Proposition 2


@pytest.mark.parametrize("loss", [Squared(), Squared("sum", half=False)], ids=["eq. 1", "twice the sum"])
def test_the_residual_is_the_linear_flow_minus_training(data, loss):
    """By autodiff of the network at weights of the order of 1, where nothing cancels."""
    net = dense(0.4, activation=Silu())
    form, linear = two_layer_form(net), linearisation_of(net, data, loss)
    w, o, dw, do = moving(net, data, loss)
    found = residual(form, data, w, o, loss)
    close(found.f, o @ linear.z - dw, rel=1e-9, abs=1e-11)
    close(found.g, w @ linear.z.T - do, rel=1e-9, abs=1e-11)


@pytest.mark.parametrize("scale", [1e-4, 1.0, 30.0])
@pytest.mark.parametrize("activation", [Silu(), Tanh(), Custom(lambda h: jnp.sin(h))], ids=["silu", "tanh", "sin"])
def test_the_bound_of_proposition_2_is_true_of_all_parameters(data, scale, activation):
    """Random parameters of any size, and aligned ones, which come closest."""
    images = Dataset(jnp.abs(data.x.reshape(N, 1, 2, 2)), jnp.abs(data.y))
    net = ConvNet((M,), 1, image=(1, 2, 2), activation=activation, key=jax.random.key(0))
    form = two_layer_form(net)
    slopes = 1.0999 if activation == Silu() else 1.0
    k1, k2 = constants(form, images, slopes)
    rng = np.random.default_rng(3)
    for w, a in [
        (scale * rng.normal(size=(M, 2)), scale * rng.normal(size=(M, 4))),
        (np.full((M, 2), scale), np.full((M, 4), scale)),
    ]:
        found = residual(form, images, w, a)
        lengths = [np.linalg.norm(one, axis=1) for one in (w, a, found.f, found.g)]
        energy = np.hypot(lengths[0], lengths[1]).max()
        assert np.all(lengths[2] <= (k1 * M * energy**2 + k2 * energy) * lengths[1])
        assert np.all(lengths[3] <= (k1 * M * energy**2 + k2 * energy / 2) * lengths[0])


def test_proposition_2_as_printed_needs_its_constants():
    finding = ResidualBound().check(small_images(activation="silu"))
    assert finding.verdict is Verdict.HOLDS
    assert 10 < finding.margin < 1e3
    assert finding.numbers["margin with all constants 1, as printed"] < 0.2  # eq. 48 without constants is false
    steep = with_fields(small_images().start, activation=Custom(lambda h: h + h**3))
    run = GradientFlow()(steep, small_images().data, [0.0], ResidualBound().needs(steep, small_images().data))
    assert "C_L" in ResidualBound().check(run).why


# ---------------------------------------------------------------- Lemma 1, Definition 4, Theorem 2, Proposition 3


@pytest.mark.parametrize("freedom", [1, 2, 10, 26])
def test_the_norm_of_chi_square_is_definition_4(freedom):
    """E e^(X/s) = 2 by quadrature; Remark 6's upper bound 3 is false for d > 1."""
    s = chi_square_norm(freedom)
    density = stats.chi2(freedom).logpdf
    value, _ = integrate.quad(lambda z: math.exp(density(z) + z / s), 0, np.inf, limit=500)
    assert value == pytest.approx(2.0, rel=1e-4)
    assert (s < 3) is (freedom == 1)
    with pytest.raises(UserError, match="degree of freedom"):
        chi_square_norm(0)


@pytest.mark.parametrize("count", [1, 20, 2000])
@pytest.mark.parametrize("deviation", [0.1, 0.5, 2.0, 9.0])
def test_bernstein_is_true_of_chi_square(count, deviation):
    law = stats.chi2(count, scale=1 / count)
    exact = law.sf(1 + deviation) + law.cdf(1 - deviation)
    assert exact <= bernstein(deviation, chi_square_norm(1), count)
    assert bernstein(0.5, chi_square_norm(1), 2000) < 0.05


def test_lemma_1_holds_as_often_as_it_says():
    """Over 400 draws; the union bound is loose by a factor that the finding states exactly."""
    finding = LargestParameter(delta=0.5).check(small_start(32))
    size, exact = int(finding.numbers["parameters"]), finding.numbers["exact failure probability"]
    largest = np.abs(np.random.default_rng(0).normal(size=(400, size))).max(axis=1)
    share = np.mean(largest > finding.numbers["its bound"])
    assert share <= 0.5
    assert share == pytest.approx(exact, abs=4 * math.sqrt(exact * (1 - exact) / 400))
    assert LargestParameter().check(small_start(32, scale=None)).verdict is Verdict.SILENT


def test_lemma_1_fails_on_a_parameter_that_is_too_large():
    run = small_start(32)
    kernels = run.start.kernels[0].at[0, 0, 0, 0].set(5.0)
    wrong = with_fields(run.start, kernels=(kernels,))
    finding = LargestParameter().check(GradientFlow()(wrong, run.data, [0.0], []))
    assert finding.verdict is Verdict.FAILS


def test_proposition_3_asks_for_channels_as_its_proof_does():
    enough = LengthOfWeights().check(small_start(200))
    assert enough.verdict is Verdict.HOLDS
    assert enough.numbers["Bernstein's bound of the failure probability"] <= 0.05
    few = LengthOfWeights().check(small_start(32))
    assert few.verdict is Verdict.SILENT
    assert few.hypotheses[-1].needed == pytest.approx(4 * (8 / 3) ** 2 * 128 / math.e**2 / 10 * math.log(40))
