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


# ---------------------------------------------------------------- layer by layer


def coordinates(given, m, steps, seed, rate=0.02):
    """Three hidden ReLU layers of width m in float64, trained by SGD or Adam written out.

    Gives, for the three pre-activations and the 16 outputs, the root mean square at the start and of the change.
    """
    rng = np.random.default_rng(seed)
    x, y = rng.normal(size=(4, 5)), rng.normal(size=(4, 16))
    p, q = m ** -np.array(given.a, float), m ** -np.array(given.b, float)
    rates = rate * m ** -np.array(given.rates, float)
    w = [q[i] * rng.normal(size=shape) for i, shape in enumerate([(m, 5), (m, m), (m, m), (16, m)])]
    moments = [(np.zeros_like(one), np.zeros_like(one)) for one in w]
    skips = (False, given.residual, given.residual, False)

    def forward():
        inputs, branches, stream = [], [], x
        for i, one in enumerate(w):
            inputs.append(np.maximum(stream, 0) if i else stream)
            branches.append(inputs[-1] @ (p[i] * one).T)
            stream = stream + branches[-1] if skips[i] else branches[-1]
        return inputs, branches

    start = forward()[1]
    for step in range(1, steps + 1):
        inputs, branches = forward()
        back, slopes = branches[-1] - y, []
        for i in (3, 2, 1, 0):
            slopes.insert(0, p[i] * back.T @ inputs[i])
            through = (back @ (p[i] * w[i])) * (inputs[i] > 0)
            back = back + through if skips[i] else through
        for i, slope in enumerate(slopes):
            if given.optimiser == "adam":
                first, second = moments[i]
                moments[i] = first, second = 0.9 * first + 0.1 * slope, 0.999 * second + 0.001 * slope**2
                slope = (first / (1 - 0.9**step)) / (np.sqrt(second / (1 - 0.999**step)) + 1e-30)
            w[i] = w[i] - rates[i] * slope
    after = forward()[1]
    size = [np.sqrt(np.mean(one**2)) for one in start]
    return size, [np.sqrt(np.mean((one - two) ** 2)) for one, two in zip(after, start, strict=True)]


WRONG = Parameterisation((0, 0, 0, 0), (0, 0.5, 0.5, 1), (0, 1, 0.5, 1), "adam")  # μP with one wrong rate
LAYERED = {
    "NTK": abc.neural_tangent(3),
    "maximal update": abc.maximal_update(3),
    "standard, rate 1/m": abc.standard(3, c=1.0),
    "maximal update, Adam": abc.maximal_update(3, "adam"),
    "NTK, Adam": abc.neural_tangent(3, "adam"),
    "standard, rate 1/m, Adam": abc.standard(3, c=1.0, optimiser="adam"),
    "maximal update, Adam, small read-out": Parameterisation((0,) * 4, (0, 0.5, 0.5, 1.5), (0, 1, 1, 1), "adam"),
    "residual maximal update, Adam": Parameterisation((0,) * 4, (0, 0.5, 0.5, 1), (0, 1, 1, 1), "adam", residual=True),
    "rates by layer": Parameterisation((0, 0.5, 0.5, 1), (0, 0, 0, 0), (-1.0, -1.0, -0.5, -1.0)),
}


@pytest.mark.parametrize("given", LAYERED.values(), ids=LAYERED.keys())
def test_every_layer_has_the_predicted_size_and_change(given):
    widths, seeds = (128, 256, 512), 4
    found = [np.mean(np.log([coordinates(given, m, 2, seed) for seed in range(seeds)]), axis=0) for m in widths]
    slopes = np.stack([np.polyfit(np.log(widths), np.reshape(found, (3, -1))[:, i], 1)[0] for i in range(8)])
    layers = given.layers()
    # Three widths and four seeds; next orders in m^(-1/2) are not negligible at these widths, and exponents are
    # multiples of 1/2.
    assert slopes[:4] == pytest.approx([one.size for one in layers], abs=0.12)
    assert slopes[4:] == pytest.approx([one.change for one in layers], abs=0.2)


def test_a_wrong_rate_shows_in_its_own_layer():
    right, wrong = abc.maximal_update(3, "adam").layers(), WRONG.layers()
    assert [one.own for one in right] == [0, 0, 0, 0]
    assert [one.own for one in wrong] == [0, 0, 0.5, 0]
    assert WRONG.judge() == (Regime.UNSTABLE, "features blow up in training like m^0.5")


def test_regimes_of_adam():
    assert abc.maximal_update(3, "adam").regime is Regime.FEATURE_LEARNING
    assert abc.neural_tangent(3, "adam").regime is Regime.LAZY
    assert abc.standard(3, optimiser="adam").regime is Regime.UNSTABLE
    fate = "outputs blow up in training, by the features like m^0.5"  # they move by order 1, along the read-outs
    assert abc.standard(3, c=1.0, optimiser="adam").judge() == (Regime.UNSTABLE, fate)
    assert abc.standard(3, c=1.5, optimiser="adam").regime is Regime.LAZY
    for given in LAYERED.values():
        for theta in (-0.5, 0.75):
            assert np.allclose([x[:4] for x in given.shifted(theta).layers()], [x[:4] for x in given.layers()])


def test_weight_decay_vanishes_with_the_rate():
    """Rates of order 1/m take the decay of AdamW with them, unless the decay grows like m."""
    given = abc.maximal_update(2, "adam")
    decays = [
        [one.decay for one in Parameterisation(given.a, given.b, given.c, "adam", decay=d).layers()]
        for d in (0.0, (0.0, -1.0, -1.0))
    ]
    assert decays == [[0, -1, -1], [0, 0, 0]]
    assert [one.decay for one in given.layers()] == [None] * 3


def test_bad_exponents_are_named():
    with pytest.raises(UserError, match="2 exponents c were given for 3 weight matrices"):
        Parameterisation((0, 0, 0), (0, 0, 0), (1.0, 2.0))
    with pytest.raises(UserError, match="choose 'sgd' or 'adam'"):
        Parameterisation((0, 0), (0, 0), 0, "lion")


# Everett et al. 2024, where every update is aligned with its input: the rates m^(-c) at which each layer's own update
# moves its outputs by order 1. For Adam, ΔW has entries of order m^(-a-c), and m of them add up; for SGD the entries
# have the size of the gradient besides, m^(-a) times that of ∂f/∂h.
LARGEST_RATES = {
    "standard": ((0, 0, 0), (0, 0.5, 0.5), {"adam": (0, 1, 1), "sgd": (-0.5, 0.5, 1)}),
    "NTK": ((0, 0.5, 0.5), (0, 0, 0), {"adam": (0, 0.5, 0.5), "sgd": (-0.5, -0.5, 0)}),
    "maximal update": ((-0.5, 0, 0.5), (0.5, 0.5, 0.5), {"adam": (0.5, 1, 0.5), "sgd": (0, 0, 0)}),
    "mean field": ((0, 0.5, 1), (0, 0, 0), {"adam": (0, 0.5, 0), "sgd": (-1, -1, -1)}),
}


@pytest.mark.parametrize("optimiser", ["adam", "sgd"])
@pytest.mark.parametrize("name", LARGEST_RATES)
def test_the_largest_rates_of_each_layer(name, optimiser):
    a, b, rates = LARGEST_RATES[name]
    layers = Parameterisation(a, b, rates[optimiser], optimiser).layers()
    assert [one.own for one in layers] == pytest.approx([0, 0, 0])
    slower = Parameterisation(a, b, tuple(c + 0.5 for c in rates[optimiser]), optimiser).layers()
    assert [one.own for one in slower] == pytest.approx([-0.5] * 3)


def convolved(given, m, seed, rate=0.02, steps=2):
    """Two circular convolutions of width 3 with m channels and tanh, and outputs averaged over 8 places.

    Gives root mean squares of sizes and changes of two pre-activations and the outputs, as `coordinates` does.
    """
    rng = np.random.default_rng(seed)
    x, y = rng.normal(size=(4, 8, 2)), rng.normal(size=(4, 16))
    p, q = m ** -np.array(given.a, float), m ** -np.array(given.b, float)
    rates = rate * m ** -np.array(given.rates, float)
    w = [q[i] * rng.normal(size=shape) for i, shape in enumerate([(6, m), (3 * m, m), (m, 16)])]

    def patches(h):
        return np.concatenate([np.roll(h, shift, axis=1) for shift in (-1, 0, 1)], axis=2)

    def forward():
        first = patches(x)
        one = p[0] * first @ w[0]
        second = patches(np.tanh(one))
        two = p[1] * second @ w[1]
        mean = np.tanh(two).mean(axis=1)
        return first, one, second, two, mean, p[2] * mean @ w[2]

    start = forward()
    for _ in range(steps):
        first, one, second, two, mean, f = forward()
        back = (f - y) @ (p[2] * w[2]).T / 8
        top = back[:, None] * (1 - np.tanh(two) ** 2)
        spread = top @ (p[1] * w[1]).T
        parts = [np.roll(part, -shift, axis=1) for shift, part in zip((-1, 0, 1), np.split(spread, 3, 2), strict=True)]
        low = sum(parts) * (1 - np.tanh(one) ** 2)
        slopes = [
            p[0] * np.einsum("nsa,nsb->ab", first, low),
            p[1] * np.einsum("nsa,nsb->ab", second, top),
            p[2] * mean.T @ (f - y),
        ]
        if given.optimiser == "adam":  # Adam's first step, again and again: the sign
            slopes = [np.sign(slope) for slope in slopes]
        w = [weight - step * slope for weight, step, slope in zip(w, rates, slopes, strict=True)]
    after = forward()
    size = lambda values: np.sqrt(np.mean(values**2))  # noqa: E731
    return [size(start[i]) for i in (1, 3, 5)], [size(after[i] - start[i]) for i in (1, 3, 5)]


@pytest.mark.parametrize("given", [abc.neural_tangent(2), abc.maximal_update(2, "adam")], ids=["NTK", "μP, Adam"])
def test_channels_of_a_convolution_are_its_width(given):
    widths = (64, 128, 256)
    # The size of 16 outputs on 4 samples varies by about 13 % from draw to draw: over 12 seeds the slope by 0.04.
    found = [np.mean(np.log([convolved(given, m, seed) for seed in range(12)]), axis=0).ravel() for m in widths]
    slopes = np.polyfit(np.log(widths), found, 1)[0]
    layers = given.layers()
    assert slopes[:3] == pytest.approx([one.size for one in layers], abs=0.12)
    assert slopes[3:] == pytest.approx([one.change for one in layers], abs=0.2)
