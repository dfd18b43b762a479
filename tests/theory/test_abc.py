"""Parameterisations of width: the table of Yang and Hu, chen2022 App. B and C, and exponents measured on networks."""

import jax
import numpy as np
import pytest

from close import close
from unlazy._errors import UserError
from unlazy.activations import Relu
from unlazy.data import Dataset
from unlazy.flows import Descent
from unlazy.losses import Squared
from unlazy.networks import FirstNodes, RandomLayers, TwoLayer, asymmetrical, mean_field, multilayer_mean_field, ntk
from unlazy.theory import abc
from unlazy.theory.abc import Parameterisation, Regime, regime

# Yang and Hu 2021, Table 1: standard (rates 1 and 1/m), NTK, mean field (one hidden layer), maximal update.
TABLE = {
    "standard": (abc.standard(2), -1.0, Regime.UNSTABLE),
    "standard, rate 1/m": (abc.standard(2, c=1.0), 0.5, Regime.LAZY),
    "NTK": (abc.neural_tangent(2), 0.5, Regime.LAZY),
    "mean field": (abc.chen(1), 0.0, Regime.FEATURE_LEARNING),
    "maximal update": (abc.maximal_update(2), 0.0, Regime.FEATURE_LEARNING),
    "chen2022": (abc.chen(2), 0.0, Regime.FEATURE_LEARNING),
    "chen2022, five layers": (abc.chen(4), 0.0, Regime.FEATURE_LEARNING),
}
TRIVIAL = Parameterisation((0, 0.5, 1), (0, 0, 0), 0.0)


@pytest.mark.parametrize(("given", "r", "wanted"), TABLE.values(), ids=TABLE.keys())
def test_the_table(given, r, wanted):
    assert given.r == pytest.approx(r)
    assert given.regime is wanted
    assert regime(given.a, given.b, given.c) is wanted
    # r as Yang and Hu write it; chen2022 eq. 36 is the same.
    a, b, c = given.a, given.b, given.c
    theirs = min(a[-1] + b[-1], 2 * a[-1] + c) + c - 1 + min(2 * a[i] + (i == 0) for i in range(len(a) - 1))
    assert given.r == pytest.approx(theirs)


def test_ours_is_the_maximal_update_shifted_by_a_half():
    for hidden in (1, 2, 5):
        assert abc.maximal_update(hidden).shifted(0.5) == abc.chen(hidden)


@pytest.mark.parametrize("given", [row[0] for row in TABLE.values()], ids=TABLE.keys())
def test_a_shift_changes_neither_r_nor_the_regime(given):
    for theta in (-0.7, 0.25, 3.0):
        assert given.shifted(theta).r == pytest.approx(given.r)
        assert given.shifted(theta).judge()[0] is given.regime


def test_the_other_fates():
    assert TRIVIAL.judge() == (Regime.TRIVIAL, "outputs move like m^-1")
    assert "layer 2 blow up at the start" in Parameterisation((0, 0, 1), (0, 0, 0), 0).judge()[1]
    assert "outputs blow up at the start like m^0.25" in Parameterisation((0, 0.5, 0.25), (0, 0, 0), 9).judge()[1]
    assert "by the read-out" in Parameterisation((0, 0.5), (0, 0.5), -0.5).judge()[1]
    with pytest.raises(UserError, match="one of each for every weight matrix"):
        Parameterisation((0, 0.5), (0,), 1)


def test_scalings_have_exponents():
    assert abc.of(mean_field) == abc.chen(2)
    assert abc.of(mean_field, hidden=1) == abc.chen(1)
    assert abc.of(ntk, hidden=3) == abc.neural_tangent(3)
    # Table 1's MF column: features of the second layer vanish at the start, as the paper's section 4.3 sees.
    assert abc.of(multilayer_mean_field).judge() == (
        Regime.UNSTABLE,
        "pre-activations of layer 2 vanish at the start like m^-0.5: a_2 + b_2 = 1, not 0.5",
    )
    with pytest.raises(UserError, match="different weights"):
        abc.of(asymmetrical(0.5, FirstNodes(2)))


# ---------------------------------------------------------------- measured on networks


def train(given, m, rate, steps, seed):
    """Two hidden tanh layers of width m, all trained by gradient descent written out.

    Gives the outputs at the end, and how far outputs and features moved, in units of the error at the start.
    """
    rng = np.random.default_rng(seed)
    x, y = np.array([[1.0, -0.5, 0.3], [0.2, 0.8, -1.0]]), np.array([[0.5], [-0.5]])
    p, q = m ** -np.array(given.a, float), m ** -np.array(given.b, float)
    w = [q[i] * rng.normal(size=shape) for i, shape in enumerate([(m, 3), (m, m), (1, m)])]

    def forward():
        first = np.tanh(x @ (p[0] * w[0]).T)
        features = first @ (p[1] * w[1]).T
        return first, features, np.tanh(features), np.tanh(features) @ (p[2] * w[2]).T

    _, before, _, start = forward()
    for _ in range(steps):
        first, _, second, f = forward()
        back = (f - y) @ (p[2] * w[2]) * (1 - second**2)
        below = back @ (p[1] * w[1]) * (1 - first**2)
        slopes = [p[0] * below.T @ x, p[1] * back.T @ first, p[2] * (f - y).T @ second]
        w = [one - rate * m**-given.c * slope for one, slope in zip(w, slopes, strict=True)]
    _, after, _, f = forward()
    error = np.sqrt(np.mean((start - y) ** 2))
    return f, np.sqrt(np.mean((f - start) ** 2)) / error, np.sqrt(np.mean((after - before) ** 2)) / error


WIDTHS = (64, 128, 256, 512)


def exponents(given, rate=0.1, steps=3, seeds=12):
    """Slopes of log movement against log width, of outputs and of features."""
    moved = [np.mean(np.log([train(given, m, rate, steps, seed)[1:] for seed in range(seeds)]), axis=0) for m in WIDTHS]
    return np.polyfit(np.log(WIDTHS), moved, 1)[0]


@pytest.mark.parametrize(
    "given",
    [abc.standard(2, c=1.0), abc.neural_tangent(2), abc.maximal_update(2), abc.chen(2), TRIVIAL],
    ids=["standard, rate 1/m", "NTK", "maximal update", "chen2022", "trivial"],
)
def test_features_move_like_m_to_the_minus_r(given):
    outputs, features = exponents(given)
    assert features == pytest.approx(-given.r, abs=0.05)  # four widths, twelve seeds: measured within 0.02
    change = min(2 * given.a[-1] + given.c, given.a[-1] + given.b[-1] + given.r) - 1
    assert outputs == pytest.approx(-change, abs=0.05)


def test_the_standard_parameterisation_blows_up():
    outputs, features = exponents(abc.standard(2), rate=1e-4, steps=2)
    assert outputs > 0.7
    assert features > 0.3


def test_a_shift_gives_the_same_training():
    """Chen2022 eq. 35 in function space: μP and its shift by θ = ½, from one draw, are the same at all steps."""
    for steps in (0, 5):
        f, g = (train(one, 64, 0.2, steps, seed=1)[0] for one in (abc.maximal_update(2), abc.chen(2)))
        close(f, g, rel=1e-9)


def test_xavier_weights_are_the_mean_field_scaling():
    """Chen2022 App. B: GD on unscaled weights θ = W / √m is GD on W at rate m, for a homogeneous activation."""
    m, d, rate, steps = 24, 3, 0.4, 10
    keys = jax.random.split(jax.random.key(7), 3)
    data = Dataset(jax.random.normal(keys[0], (5, d)), jax.random.normal(keys[1], (5,)))
    network = TwoLayer(m, d, activation=Relu(), embedding=RandomLayers((m,)), scaling=mean_field, key=keys[2])
    ours = Descent(rate=rate, loss=Squared("sum"))(network, data, [0.0, rate * steps]).final

    x, y = np.asarray(data.x), np.asarray(data.y)
    first, second, third = (np.asarray(w) / m**0.5 for w in (network.embedding.weights[0], network.w, network.a))
    features = np.maximum(x @ first.T / d**0.5, 0)
    xavier = lambda theta: np.maximum(features @ theta.T, 0) @ third  # noqa: E731
    close(xavier(second), network(data.x), rel=1e-12, abs=1e-14)
    theta = second
    for _ in range(steps):
        signal = (xavier(theta) - y)[:, None] * third * (features @ theta.T > 0)
        theta = theta - rate * signal.T @ features
    assert np.max(np.abs(xavier(theta) - xavier(second))) > 0.1
    close(xavier(theta), ours(data.x), rel=1e-9, abs=1e-11)
    close(theta * m**0.5, ours.w, rel=1e-9, abs=1e-11)
