"""Mean-field stacks against formulas written out in NumPy, counts, limits and couplings."""

import json
import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate

from close import close
from unlazy._errors import UserError
from unlazy.activations import LeakyRelu, Relu, Sigmoid, Tanh
from unlazy.data import Dataset
from unlazy.flows import Descent, GradientFlow, RungeKutta, velocity
from unlazy.lab import instantiate, parse
from unlazy.losses import CrossEntropy, Squared
from unlazy.networks import (
    Constant,
    Eye,
    Given,
    Grid,
    Layout,
    MeanFieldStack,
    Normal,
    Samples,
    Sphere,
    Tied,
    Uniform,
    split_trained,
    with_fields,
)
from unlazy.probes import FeatureMovement, TestOutputs, TrainOutputs, WeightMovement

KEY = jax.random.key(3)
rng = np.random.default_rng(5)
X, Y = rng.uniform(-1, 1, (6, 2)), rng.normal(size=6)
DATA = Dataset(jnp.asarray(X), jnp.asarray(Y), jnp.asarray(X[:3] + 0.1), jnp.asarray(Y[:3]))


def phi(h):
    return np.tanh(h)


def slope(h):
    return 1 - np.tanh(h) ** 2


def leaves_of(network, *names):
    return [[None if (v := getattr(b, n)) is None else np.asarray(v) for n in names] for b in network.blocks]


@pytest.mark.parametrize("standard", [False, True])
def test_forward_is_equation_1(standard):
    network = MeanFieldStack(
        (5, 4, 3),
        2,
        ranks=(2, 2),
        activation=Tanh(),
        parameterisation="standard" if standard else "mean-field",
        key=KEY,
    )
    z = X
    for a, w, b, c in leaves_of(network, "a", "w", "b", "c"):
        z = phi(z @ w.T + b) @ a / (1 if standard else len(w)) + c
    close(network(DATA.x), z[:, 0], rel=1e-12)
    close(network.channels(DATA.x)[-1], z, rel=1e-12)


def test_the_flow_is_equations_2_and_3_corrected():
    """w_i' = -ξ E[β_k φ_i], with β_k = E[δ_{i+1} L_k] and δ_i = φ_i' Σ_k w_ik β_k, from the top down."""
    network = MeanFieldStack((5, 4, 6), 2, ranks=(3, 2), activation=Tanh(), train="a", key=KEY)
    (w1, f1, b1), (w2, f2, b2), (w3, f3, b3) = leaves_of(network, "a", "w", "b")  # the paper's w is our A
    h1 = X @ f1.T + b1
    h2 = (phi(h1) @ w1 / 5) @ f2.T + b2
    h3 = (phi(h2) @ w2 / 4) @ f3.T + b3
    d = phi(h3) @ w3[:, 0] / 6 - Y
    delta3 = slope(h3) * w3[:, 0] * d[:, None]  # per neuron of layer 3
    beta2 = delta3 @ f3 / 6  # E over neurons of δ L_k
    delta2 = slope(h2) * (beta2 @ w2.T)
    beta1 = delta2 @ f2 / 4
    wanted = [-(phi(h).T @ beta) / 6 for h, beta in ((h1, beta1), (h2, beta2), (h3, d[:, None]))]  # E over 6 samples
    moved = velocity(*split_trained(network), DATA, Squared())
    for block, rate in zip(moved.blocks, wanted, strict=True):
        close(block.a, rate, rel=1e-10, abs=1e-14)
        assert [block.w, block.b, block.c] == [None] * 3
    for signal, beta in zip(network.signals(DATA.x), (beta1, beta2), strict=False):
        close(signal[0].T * d[:, None], beta, rel=1e-10, abs=1e-14)  # B_k d = β_k
    printed = [(slope(h) * w.sum(axis=1)) @ f / len(f) for h, w, f in ((h2, w2, f2), (h3, w3, f3))]
    close(printed[1] * d[:, None], beta2, rel=1e-10)  # right below the top layer,
    assert np.abs(printed[0] * d[:, None] - beta1).max() > 0.5 * np.abs(beta1).max()  # and nowhere else


def test_the_flow_is_the_particle_ode_of_g_2():
    network = MeanFieldStack((30, 20), 2, ranks=2, activation=Tanh(), train="a", bias=False, key=KEY)
    (w1, l0), (w2, mix) = leaves_of(network, "a", "w")

    def ode(_, state):
        w1_now, w2_now = state[:60].reshape(30, 2), state[60:]
        features = phi(X @ l0.T)
        h2 = (features @ w1_now / 30) @ mix.T
        d = phi(h2) @ w2_now / 20 - Y
        signal = (slope(h2) * w2_now) @ mix / 20  # B_k
        return np.concatenate([-(features.T @ (d[:, None] * signal) / 6).ravel(), -(phi(h2).T @ d) / 6])

    exact = integrate.solve_ivp(ode, (0, 5), np.concatenate([w1.ravel(), w2[:, 0]]), rtol=1e-10, atol=1e-12).y[:, -1]
    run = RungeKutta(rtol=1e-10, atol=1e-12, coordinates="weights")(network, DATA, [5.0])
    close(np.concatenate([np.ravel(block.a) for block in run.final.blocks]), exact, rel=1e-6, abs=1e-8)


def test_the_dynamics_are_equation_12_of_ren2023():
    network = MeanFieldStack((7, 5), 2, ranks=3, activation=Tanh(), train="wa", bias=False, key=KEY)
    (v1, w1), (a, w2) = leaves_of(network, "a", "w")
    inner = phi(X @ w1.T) @ v1 / 7
    r = Y - phi(inner @ w2.T) @ a[:, 0] / 5
    top = slope(inner @ w2.T) * a[:, 0] * r[:, None]
    sent = top @ w2 / 5  # E_(a, w_2)
    first, second = velocity(*split_trained(network), DATA, Squared()).blocks
    close(second.a[:, 0], phi(inner @ w2.T).T @ r / 6, rel=1e-10)
    close(second.w, top.T @ inner / 6, rel=1e-10)
    close(first.a, phi(X @ w1.T).T @ sent / 6, rel=1e-10)
    close(first.w, ((sent @ v1.T) * slope(X @ w1.T)).T @ X / 6, rel=1e-10)


def ren2023(widths, inputs, key=KEY):
    return MeanFieldStack(
        widths,
        inputs,
        ranks=1,
        train=("w", "wb"),
        features=(Sphere(0.5), Normal(0.1)),
        bias=(False, Constant(0.7)),
        amplitude=(Tied(), Constant(1.0)),
        key=key,
    )


def test_the_learner_of_ren2023():
    """f = E σ(w_2 F + b_2) with F = E |w| σ(w·x), moved by eq. 4 without its projections."""
    network = ren2023((9, 5), 2)
    (w1,), (w2,) = leaves_of(network, "w")
    w2, b2 = w2[:, 0], np.asarray(network.blocks[1].b)
    length = np.linalg.norm(w1, axis=1)
    close(length, np.full(9, 0.5))
    close(b2, np.full(5, 0.7))
    inner = np.maximum(X @ w1.T, 0) @ length / 9
    gate = (np.outer(inner, w2) + b2 > 0).astype(float)
    f = np.maximum(np.outer(inner, w2) + b2, 0).mean(axis=1)
    close(network(DATA.x), f, rel=1e-12)
    r = Y - f
    s = r * (gate * w2).mean(axis=1)
    active = (X @ w1.T > 0).astype(float)
    radial = (s[:, None] * np.maximum(X @ w1.T, 0)).mean(axis=0)[:, None] * w1 / length[:, None]
    wanted = radial + length[:, None] * ((s[:, None] * active).T @ X) / 6
    first, second = velocity(*split_trained(network), DATA, Squared()).blocks
    close(first.w, wanted, rel=1e-10, abs=1e-14)
    close(second.w[:, 0], (gate * (r * inner)[:, None]).mean(axis=0), rel=1e-10, abs=1e-14)
    close(second.b, (gate * r[:, None]).mean(axis=0), rel=1e-10, abs=1e-14)
    assert [first.a, second.a] == [None, None]
    assert network.trainable == 9 * 2 + 5 * 2


@pytest.mark.parametrize(("rank", "count"), [(5, 7_695), (10, 10_260), (15, 12_825), (25, 17_955), (50, 30_780)])
def test_trainable_counts_of_table_1(rank, count):
    network = MeanFieldStack((512, 512), 784, 10, ranks=rank, train="ac", parameterisation="standard", key=KEY)
    assert network.trainable == count


def test_trainable_counts_without_frozen_features_and_without_low_rank():
    both = {"inputs": 784, "outputs": 10, "parameterisation": "standard", "key": KEY}
    assert MeanFieldStack((512, 512), ranks=32, train="wabc", **both).trainable == 440_362
    full = MeanFieldStack(
        (512, 512),
        ranks=512,
        amplitude=(Eye(), Uniform()),
        train=("wb", "wabc"),
        offset=(Constant(), Uniform()),
        **both,
    )
    assert full.trainable == 669_706
    # It is the usual network 784-512-512-10.
    x = rng.normal(size=(2, 784))
    (first, second), (_, last) = leaves_of(full, "w", "b"), leaves_of(full, "a", "c")
    hidden = np.maximum(x @ first[0].T + first[1], 0)
    close(full(jnp.asarray(x)), np.maximum(hidden @ second[0].T + second[1], 0) @ last[0] + last[1], rel=1e-10)


def test_laws():
    block = MeanFieldStack((4000, 10), 3, ranks=2, features=Normal(2.0), key=KEY).blocks[0]
    close(np.std(block.w), 2.0, rel=0.05)
    close(np.std(block.b), 2.0, rel=0.05)
    standard = MeanFieldStack((4000, 10), 4, ranks=2, parameterisation="standard", key=KEY).blocks[0]
    for part, reach in ((standard.w, 0.5), (standard.b, 0.5), (standard.a, 4000**-0.5)):  # 1/√fan-in
        assert 0.99 * reach < np.abs(part).max() <= reach
    given = MeanFieldStack((2, 3), 1, ranks=1, features=(Given(((1, 2), (3, 4))), Normal()), key=KEY).blocks[0]
    close(given.w, [[1.0], [3.0]])
    close(given.b, [2.0, 4.0])
    grid = MeanFieldStack((64, 3), 1, ranks=1, features=(Grid(-2, 2), Normal()), key=KEY).blocks[0]
    for part in (grid.w[:, 0], grid.b):  # evenly spread: an eighth of the points in each eighth of the interval
        assert np.all(np.abs(np.histogram(part, 8, (-2, 2))[0] - 8) <= 1)
    again = MeanFieldStack((64, 3), 1, ranks=1, features=(Grid(-2, 2), Normal()), key=jax.random.key(9)).blocks[0]
    close(again.w, grid.w)
    means = np.asarray(
        MeanFieldStack((4000, 3), 1, ranks=2, amplitude=(Normal(mean=(1.0, -2.0)), Normal()), key=KEY).blocks[0].a
    )
    close(means.mean(axis=0), [1.0, -2.0], abs=0.1)


def test_skips_add_the_input_between_equal_ranks():
    plain, with_skip = (
        MeanFieldStack((5, 4, 3), 2, ranks=2, activation=Tanh(), skip=skip, key=KEY) for skip in (False, True)
    )
    first, second = (network.channels(DATA.x) for network in (plain, with_skip))
    close(second[0], first[0])
    close(second[1], first[1] + first[0], rel=1e-12)


@pytest.mark.parametrize("activation", [Relu(), LeakyRelu(0.2), Tanh()], ids=str)
def test_an_infinite_first_block_is_the_limit_of_wide_ones(activation):
    """Its kernel and its start are averages over the law of the features, seen here by 400,000 of them."""
    limit = MeanFieldStack(
        (math.inf, 3), 2, ranks=2, activation=activation, amplitude=(Normal(mean=(1.0, -2.0)), Normal()), key=KEY
    ).blocks[0]
    many = 400_000
    drawn = rng.normal(size=(many, 3))
    features = np.asarray(activation(jnp.asarray(X @ drawn[:, :2].T + drawn[:, 2])))
    close(limit.limit_kernel(DATA.x, DATA.x), features @ features.T / many, abs=0.02)
    close(limit(DATA.x.T), np.outer([1.0, -2.0], features.mean(axis=1)), abs=0.01)


def infinite(train="ac"):
    return MeanFieldStack(
        (math.inf, 6),
        2,
        ranks=2,
        train=(train, "ac"),
        activation=Tanh(),
        amplitude=(Normal(mean=(1.0, -0.5)), Normal()),
        key=KEY,
    )


GRAM = [
    MeanFieldStack((8, 7), 2, ranks=2, activation=Tanh(), train=("a", "ac"), key=KEY),
    MeanFieldStack((8, 7, 5), 2, ranks=3, activation=Tanh(), train=("ac", "wabc", "a"), key=KEY),
    MeanFieldStack((8, 7), 2, ranks=2, activation=Sigmoid(), parameterisation="standard", key=KEY),
    infinite(),
    infinite("a"),
    infinite("c"),
]


@pytest.mark.parametrize("network", GRAM, ids=range(len(GRAM)))
def test_gram_coordinates_take_the_same_steps(network):
    probes = [TrainOutputs(), TestOutputs(), FeatureMovement(), WeightMovement()]
    weights, gram = (Descent(rate=0.2, coordinates=c)(network, DATA, [1.0, 4.0], probes) for c in ("weights", "gram"))
    for here, there in zip(jax.tree.leaves(gram.observed), jax.tree.leaves(weights.observed), strict=True):
        close(here, there, rel=1e-9, abs=1e-9)
    elsewhere = jnp.asarray(X * 0.3 - 0.2)
    close(gram.final(elsewhere), weights.final(elsewhere), rel=1e-8, abs=1e-8)


@pytest.mark.parametrize("network", [GRAM[0], GRAM[3]], ids=["finite", "infinite"])
def test_gram_coordinates_take_the_same_steps_on_minibatches(network):
    weights, gram = (
        Descent(rate=0.2, batch=3, coordinates=c)(network, DATA, [2.0], [TrainOutputs()]) for c in ("weights", "gram")
    )
    close(gram.observed["train-outputs"], weights.observed["train-outputs"], rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("network", [GRAM[1], GRAM[3]], ids=["finite", "infinite"])
def test_gram_coordinates_have_the_same_kernel_and_directions(network):
    weights, features, test = network.prepare(DATA)
    gram, places, places_test = network.gram_form(DATA).prepare(Layout())
    for here, there in (((places, places), (features, features)), ((places_test,) * 2, (test,) * 2)):
        close(gram.tangent_kernel(*here), weights.tangent_kernel(*there), rel=1e-8, abs=1e-10)
    signal = jnp.asarray(rng.normal(size=6))
    pushed = gram.push(places, gram.pull(places, signal))
    close(pushed, gram.tangent_kernel(places, places) @ signal, rel=1e-8, abs=1e-10)


def test_gram_coordinates_are_chosen_where_they_are_cheaper():
    def chosen(network, data=DATA):
        return GradientFlow()(network, data, [0.1]).stats["coordinates"]

    assert chosen(GRAM[0]) == "gram"  # 6 samples, 8 features
    assert chosen(infinite()) == "gram"
    many = Dataset(jnp.tile(DATA.x, (4, 1)), jnp.tile(DATA.y, 4))
    assert chosen(GRAM[0], many) == "weights"
    trained = MeanFieldStack((8, 7), 2, ranks=2, train="wa", key=KEY)
    assert chosen(trained) == "weights"
    with pytest.raises(UserError, match="needs a layer that is trained on fixed features"):
        Descent(coordinates="gram")(trained, DATA, [1.0])
    with pytest.raises(UserError, match="precision='mixed' is for Gram coordinates of a TwoLayer"):
        Descent(coordinates="gram", precision="mixed")(GRAM[0], DATA, [1.0])


def test_coefficients_are_those_of_equation_4():
    """f_k(t, x) = f_k(0, x) - Σ_p Γ_kp K(x, x_p), with Γ' = d_p B_kp π_p."""
    network = infinite("a")
    gram, x, _ = network.gram_form(DATA).prepare(Layout())
    moved = velocity(*split_trained(gram), Samples(x, DATA.y), Squared()).blocks[0].linear.coefficients
    f, signals = network(DATA.x), network.signals(DATA.x)[0][0]
    close(moved, np.asarray(signals) * (np.asarray(f) - Y) / 6, rel=1e-10, abs=1e-14)
    run = RungeKutta(rtol=1e-10, atol=1e-12)(network, DATA, [3.0])
    first = run.run_state.state.trained.blocks[0].linear.coefficients
    there = jnp.asarray(rng.uniform(-1, 1, (4, 2)))  # away from all points
    kernel = network.blocks[0].limit_kernel(there, DATA.x)
    wanted = network.channels(there)[0] - np.asarray(kernel) @ np.asarray(first).T
    close(run.final.channels(there)[0], wanted, rel=1e-8, abs=1e-8)


def test_centred_amplitudes_leave_no_signal_in_the_limit():
    """With E[A] = 0 the signals to the first block fall as 1/√m: the limit does not move (aiad2026 Remark 2.1)."""

    def sizes(width, mean):
        network = MeanFieldStack(
            (math.inf, width), 2, ranks=2, bias=False, activation=Tanh(), amplitude=Normal(mean=mean), key=KEY
        )
        channels, signals = network.channels(DATA.x)[0], network.signals(DATA.x)[0]
        return np.abs(channels).max(), np.sqrt(np.mean(np.square(signals)))

    assert sizes(100, 0.0)[0] == 0
    falls = sizes(100, 0.0)[1] / sizes(40_000, 0.0)[1]
    assert 5 < falls < 80  # about 20, by chance


def test_narrow_networks_are_part_of_wide_ones():
    wide = MeanFieldStack((9, 8), 2, ranks=2, key=KEY)
    narrow = wide.narrowed((4, 3))
    close(narrow.blocks[0].a, wide.blocks[0].a[:4])
    close(narrow.blocks[1].b, wide.blocks[1].b[:3])
    a, w, b = leaves_of(narrow, "a", "w", "b")[0]
    z = np.maximum(X @ w.T + b, 0) @ a / 4
    close(narrow.channels(DATA.x)[0], z, rel=1e-12)
    assert narrow.rates().blocks[0].a == 4.0
    close(wide.narrowed((4, 3), first=5).blocks[0].w, wide.blocks[0].w[5:9])
    with pytest.raises(UserError, match="has none from 0 to 10"):
        wide.narrowed((10, 3))


def test_several_outputs_learn_classes():
    keys = jax.random.split(KEY)
    x = jax.random.normal(keys[0], (60, 9))
    data = Dataset(x, jax.nn.one_hot(jnp.argmax(x[:, :3], axis=1), 3, dtype=x.dtype))
    network = MeanFieldStack((64, 64), 9, 3, ranks=4, parameterisation="standard", key=keys[1])
    flow = Descent(loss=CrossEntropy(), rate=0.05, batch=20)
    run = flow(network, data, [30.0])
    assert run.loss(run.final(data.x), data.y) < 0.3 * run.loss(network(data.x), data.y)
    assert run.final.blocks[0].w is not None  # back on raw inputs
    close(run.final.blocks[0].w, network.blocks[0].w)


def test_features_of_many_inputs_are_made_once():
    wide = Dataset(jnp.asarray(rng.normal(size=(6, 9))), DATA.y)
    network = MeanFieldStack((8, 7), 9, ranks=2, key=KEY)
    prepared, x, _ = network.prepare(wide)
    assert x.known.shape == (6, 8)
    close(prepared(x), network(wide.x), rel=1e-12)
    few = MeanFieldStack((8, 7), 2, ranks=2, key=KEY)
    assert few.prepare(DATA).x is DATA.x  # making features of two inputs again is cheaper


def recipe(**network):
    return parse(
        {
            "data": {"kind": "sphere-sine", "n": 5, "d": 4},
            "network": {"kind": "mean-field-stack", **network},
            "times": [0, 1],
        }
    )


def test_recipes():
    (network,) = instantiate(
        recipe(
            widths=[16, 12],
            ranks=3,
            train=["ac", "wabc"],
            activation=["relu", {"kind": "leaky-relu", "slope": 0.1}],
            features={"kind": "normal", "spread": 2.0},
            amplitude=["uniform", {"kind": "normal", "mean": 1.0}],
        )
    ).networks
    assert isinstance(network, MeanFieldStack)
    assert [block.train for block in network.blocks] == ["ac", "awbc"]
    assert network.blocks[1].activation == LeakyRelu(0.1)
    infinite = recipe(widths=[math.inf, 12], amplitude={"kind": "normal", "mean": 1.0})
    for one in (infinite, parse(json.loads(infinite.json()))):  # as written down, and as the store keeps it
        made = instantiate(one)
        assert made.networks[0].gram_form(made.data[0]).features == math.inf
    with pytest.raises(UserError, match=r"network.activation\[1\].*relu"):
        instantiate(recipe(widths=[16, 12], activation=["relu", "rellu"]))
    with pytest.raises(UserError, match="'ntk' is not one of the choices"):
        instantiate(recipe(widths=[16, 12], parameterisation="ntk"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"widths": (4,)}, "at least two blocks"),
        ({"widths": (4, 2.5)}, "whole number"),
        ({"widths": (4, math.inf)}, "Only the first block can be infinite"),
        ({"widths": (math.inf, 4), "train": "wa"}, "Only the first block can be infinite"),
        ({"widths": (math.inf, 4), "features": Uniform(1.0)}, "needs features"),
        ({"ranks": (2, 2)}, "2 values of ranks were given for 1 blocks"),
        ({"ranks": 0}, "ranks = 0 is not in range: give a number of at least 1"),
        ({"train": "x"}, "other letters than a, w, b and c"),
        ({"train": ""}, "Nothing in this stack is trained"),
        ({"train": ("a", "a", "a")}, "3 values of train"),
        ({"bias": False, "train": "wb"}, "no bias to train"),
        ({"amplitude": Tied(), "train": "w"}, "2 channels, but"),
        ({"amplitude": Eye(), "train": "w"}, "rank = width"),
        ({"ranks": 1, "amplitude": Tied()}, "cannot be trained"),
        ({"features": Tied()}, "Only amplitudes can be tied"),
        ({"features": (Given(((1.0, 2.0),)), Normal())}, "was expected: give a row for each neuron"),
        ({"amplitude": Normal(mean=(1.0, 2.0, 3.0))}, "3 means were given for 2 columns"),
    ],
)
def test_bad_options_get_a_sentence(options, message):
    with pytest.raises(UserError, match=message):
        MeanFieldStack(options.pop("widths", (4, 3)), 2, key=KEY, **{"ranks": 2, **options})


def test_wrong_inputs_get_a_sentence():
    network = MeanFieldStack((4, 3), 2, key=KEY)
    with pytest.raises(UserError, match="made for 2 inputs but was given 3"):
        network(jnp.ones((1, 3)))
    with pytest.raises(UserError, match="batch of vectors"):
        network(jnp.ones(2))
    with pytest.raises(UserError, match="Block 7 has no single neurons"):
        network.preactivations(jnp.ones((1, 2)), 7)


def test_nothing_recompiles_on_a_second_run(compilations):
    network = MeanFieldStack((8, 7), 2, ranks=2, key=KEY)
    flow = Descent(rate=0.1, batch=3)
    flow(network, DATA, [1.0])
    other = jax.tree.map(lambda leaf: leaf + 0.1 if eqx.is_inexact_array(leaf) else leaf, network)
    compilations.count = 0
    flow(with_fields(other, scalar=True), DATA, [1.0])
    assert compilations.count == 0
