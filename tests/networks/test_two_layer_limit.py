"""The limit of infinite width against closed forms, brute force, finite networks and sums over random nodes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import zeta

import unlazy
from close import close
from unlazy._errors import UserError
from unlazy.activations import Relu
from unlazy.data import Dataset
from unlazy.flows import RungeKutta
from unlazy.lab import Lab, Recipe
from unlazy.losses import Squared
from unlazy.networks import (
    FirstNodes,
    GivenNodes,
    Infinite,
    NodeKernels,
    RandomLayers,
    TwoLayer,
    TwoLayerLimit,
    Zipf,
    asymmetrical,
    mean_field,
    ntk,
)
from unlazy.networks.node_kernels import heavy_variances
from unlazy.probes import TestOutputs, TrainOutputs, WeightMovement

D = 4
LOSS = Squared("sum", half=True)
MIXED = asymmetrical(0.5, Zipf(0.5))


def problem(n=9, n_test=3, seed=0):
    rng = np.random.default_rng(seed)
    x, x_test = rng.normal(size=(n, D)), rng.normal(size=(n_test, D))
    return Dataset(x, np.sin(x[:, 0]) + x[:, 1], x_test, np.sin(x_test[:, 0]))


def unseen(count=5):
    return jnp.asarray(np.random.default_rng(7).normal(size=(count, D)))


def relu_kernel(x, z):
    """Θ* of ReLU by the angle between inputs (Cho and Saul, 2009), written anew."""
    cosine = x @ z.T / np.outer(np.linalg.norm(x, axis=1), np.linalg.norm(z, axis=1))
    return x @ z.T / D * (np.pi - np.arccos(np.clip(cosine, -1, 1))) / (2 * np.pi)


# ---------------------------------------------------------------- only light nodes: a kernel machine


def kernel_flow(kernel, across, f0, f0_new, y, t):
    """Outputs at t of f' = -Θ(x, X)(f - y), by the eigenvectors of Θ: on the training inputs and on others."""
    values, vectors = np.linalg.eigh(kernel)
    start = vectors.T @ (f0 - y)
    integral = vectors @ (-np.expm1(-values * t) / values * start)
    return y + vectors @ (np.exp(-values * t) * start), f0_new - across @ integral, integral


@pytest.mark.parametrize("start", ["gaussian", "zero", 50])
def test_with_equal_nodes_it_is_kernel_gradient_flow(start):
    data, new, t = problem(), unseen(), 10.0
    network = TwoLayerLimit(D, activation="relu", start=start, key=1)
    run = RungeKutta(rtol=1e-9, atol=1e-11, loss=LOSS)(network, data, [0.0, t])
    x, f0, f0_new = np.asarray(data.x), np.asarray(run.start(data.x)), np.asarray(run.start(new))
    inside, outside, integral = kernel_flow(
        relu_kernel(x, x), relu_kernel(np.asarray(new), x), f0, f0_new, np.asarray(data.y), t
    )
    close(run.final(data.x), inside, rel=1e-7, abs=1e-8)
    close(run.final(new), outside, rel=1e-7, abs=1e-8)  # points that training never saw
    moved = WeightMovement().of(run.final, run.start, data, LOSS)
    assert set(moved) == {"light"}
    close(moved["light"], np.sqrt(integral @ relu_kernel(x, x) @ integral), rel=1e-7)
    assert (float(np.abs(f0).max()) == 0) == (start == "zero")


def test_one_exponential_step_is_exact():
    data, t = problem(), 30.0
    network = TwoLayerLimit(D, activation="tanh", start="zero", key=1)
    run = unlazy.GradientFlow(loss=LOSS)(network, data, [0.0, t])
    assert (run.stats["method"], run.stats["rejected"]) == ("exponential", 0)  # linear: nothing but Θ decides
    kernel = np.asarray(network.kernel(data.x, data.x))
    inside, _, _ = kernel_flow(kernel, kernel, np.zeros(data.n), np.zeros(data.n), np.asarray(data.y), t)
    close(run.final(data.x), inside, rel=1e-9, abs=1e-9)


def test_training_again_adds_to_what_was_learnt():
    first, second = problem(), problem(6, 2, seed=3)
    network, flow = TwoLayerLimit(D, activation="relu", key=1), RungeKutta(rtol=1e-9, atol=1e-11, loss=LOSS)
    once = flow(network, first, [0.0, 5.0]).final
    run = flow(once, second, [0.0, 5.0])
    close(run.start(first.x), once(first.x), rel=1e-8, abs=1e-8)
    x, new = np.asarray(second.x), np.asarray(first.x)
    start = np.asarray(run.start(second.x)), np.asarray(run.start(first.x))
    inside, outside, _ = kernel_flow(relu_kernel(x, x), relu_kernel(new, x), *start, np.asarray(second.y), 5.0)
    close(run.final(second.x), inside, rel=1e-6, abs=1e-7)
    close(run.final(first.x), outside, rel=1e-6, abs=1e-7)


# ---------------------------------------------------------------- only heavy nodes: a finite network


def test_without_light_nodes_it_is_the_finite_network():
    data, weights = problem(), GivenNodes((5.0, 3.0, 1.0, 0.5))
    scaling, flow = asymmetrical(0.0, weights), RungeKutta(rtol=1e-8, atol=1e-10, loss=LOSS)
    limit, finite = (make(D, scaling=scaling, key=3) for make in (TwoLayerLimit, lambda *a, **k: TwoLayer(4, *a, **k)))
    one, other = (flow(network, data, [0.0, 5.0]).final for network in (limit, finite))
    assert one.points is None
    np.testing.assert_array_equal(one.heavy.w, other.w)
    np.testing.assert_array_equal(one(unseen()), other(unseen()))


def test_the_first_nodes_are_those_of_a_network_of_any_width():
    limit = TwoLayerLimit(D, scaling=MIXED, heavy=6, key=3)
    for width in (6, 100):
        finite = TwoLayer(width, D, scaling=MIXED, key=3)
        np.testing.assert_array_equal(limit.heavy.w, finite.w[:6])
        np.testing.assert_array_equal(limit.heavy.a, finite.a[:6])
    close(limit.heavy.s**2, 0.5 * np.arange(1, 7.0) ** -2 / zeta(2), rel=1e-12)


# ---------------------------------------------------------------- between: finite networks approach it


def test_it_starts_from_the_function_of_a_finite_network():
    for options in ({}, {"embedding": RandomLayers((5,)), "bias": True, "scale": 1.3, "readout": 0.7}):
        limit = TwoLayerLimit(D, scaling=MIXED, start=200, activation="relu", key=2, **options)
        finite = TwoLayer(200, D, scaling=MIXED, activation="relu", key=2, **options)
        close(limit(unseen()), finite(unseen()), rel=1e-12, abs=1e-13)


def test_networks_approach_it():
    data, probes = problem(), [TrainOutputs(), TestOutputs()]
    flow, times = unlazy.GradientFlow(loss=LOSS, tolerance=1e-5), [0.0, 1.0, 10.0]
    apart = []
    for width in (64, 4096):
        options = {"activation": "tanh", "scaling": MIXED}
        finite = [TwoLayer(width, D, **options, key=seed) for seed in range(6)]
        limits = [TwoLayerLimit(D, **options, start=width, key=seed) for seed in range(6)]
        runs = [flow.over_seeds(networks, data, times, probes) for networks in (finite, limits)]
        squares = [
            np.square(one.observed[name] - other.observed[name])
            for one, other in zip(*runs, strict=True)
            for name in ("train-outputs", "test-outputs")
        ]
        apart.append(np.sqrt(np.mean(np.concatenate([part[1:].ravel() for part in squares]))))
    # m^-½ gives 8, m^-¼ gives 3 and m^-1 gives 64.
    assert 4 < apart[0] / apart[1] < 16


@pytest.mark.parametrize("options", [{}, {"bias": True, "scale": 1.3, "train_readout": True, "readout": 0.7}])
def test_kernels_are_those_of_many_nodes(options):
    x, width = jnp.concatenate([unseen(3), unseen(1)]), 400_000
    finite = TwoLayer(width, D, scaling=ntk, activation="tanh", key=0, **options)
    limit = TwoLayerLimit(D, activation="tanh", key=0, **options)
    # Each entry is a mean over nodes with values of order 1 to 4.
    close(limit.tangent_kernel(x), finite.tangent_kernel(x), abs=6 * 4 / width**0.5)
    data = Dataset(x, jnp.zeros(4))
    drawn = jax.vmap(lambda key: TwoLayerLimit(D, activation="tanh", key=key, **options).prepare(data).network(x))(
        jax.random.split(jax.random.key(5), 20_000)
    )
    values = np.asarray(finite.activation(finite.preactivations(x)))
    wanted = options.get("readout", 1.0) ** 2 * values @ values.T / width
    close(drawn.T @ drawn / 20_000, wanted, abs=6 * float(wanted.max()) * (2 / 20_000) ** 0.5)


def test_the_kernel_of_a_point_with_itself_has_no_angle():
    x = jnp.asarray(np.random.default_rng(0).normal(size=(200, 50)))
    kernel = NodeKernels(Relu()).tangent(x, x + 0.0)
    close(jnp.diagonal(kernel), jnp.sum(x**2, axis=1) / 100, rel=1e-14)
    single = NodeKernels(Relu()).tangent(x.astype(jnp.float32), x.astype(jnp.float32) + 0.0)
    close(jnp.diagonal(single), jnp.sum(x**2, axis=1) / 100, rel=1e-5)


# ---------------------------------------------------------------- which nodes are heavy


def test_as_many_nodes_are_heavy_as_the_tail_asks_for():
    for tail in (1e-2, 1e-3):
        kept, share = heavy_variances(asymmetrical(0.2, Zipf(0.6)), tail=tail)
        shares = 0.8 * np.arange(1, 10**6 + 1.0) ** (-1 / 0.6) / zeta(1 / 0.6)
        beyond = np.sqrt(np.cumsum(shares[::-1] ** 2)[::-1])  # from each node on
        assert beyond[len(kept)] <= tail < beyond[len(kept) - 1]
        close(kept, shares[: len(kept)], rel=1e-12)
        assert share == pytest.approx(1 - kept.sum(), rel=1e-12)
    assert [len(heavy_variances(asymmetrical(0.0, FirstNodes(5)), count)[0]) for count in (None, 3, 8)] == [5, 3, 5]
    assert heavy_variances(asymmetrical(0.0, FirstNodes(5)))[1] == 0
    assert heavy_variances(ntk) == (pytest.approx(np.zeros(0)), 1.0)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"scaling": mean_field}, "ntk"),
        ({"heavy": -1, "scaling": MIXED}, "heavy = -1 is not in range"),
        ({"tail": 0.0, "scaling": MIXED}, "tail = 0.0 is not in range"),
        ({"tail": 1e-12, "scaling": asymmetrical(0.5, Zipf(0.9))}, "larger one"),
        ({"start": "normal"}, "'gaussian', 'zero'"),
        ({"start": 10, "heavy": 20, "scaling": MIXED}, "at least the 20"),
        ({"start": 10, "embedding": Infinite()}, "finite embedding"),
    ],
)
def test_what_has_no_limit_is_refused(options, words):
    with pytest.raises(UserError, match=words):
        TwoLayerLimit(D, key=0, **options)


def test_a_gaussian_start_needs_points():
    with pytest.raises(UserError, match="drawn at the points"):
        TwoLayerLimit(D, key=0)(unseen())
    with pytest.raises(UserError, match="batch of vectors"):
        TwoLayerLimit(D, start="zero", key=0)(jnp.zeros(D))


# ---------------------------------------------------------------- in recipes and in the store


def test_it_is_run_and_stored_by_recipe(tmp_path):
    recipe = Recipe(
        name="limit",
        data={"kind": "sphere-sine", "n": 8, "d": 3, "n_test": 4},
        network={
            "kind": "two-layer-limit",
            "activation": "tanh",
            "scaling": {"kind": "asymmetrical", "gamma": 0.5, "weights": {"kind": "zipf", "alpha": 0.5}},
            "heavy": 4,
        },
        flow={"kind": "gradient-flow"},
        times=[0.0, 5.0],
        probes=["train-loss", "weight-movement"],
        seeds=2,
    )
    run = Lab(tmp_path).run(recipe)
    assert run["weight-movement.hidden"].shape == (2, 2, 4)
    assert run["weight-movement.light"].shape == (2, 2)
    again = Lab(tmp_path).networks(recipe)  # read from the store
    for seed, (_, network) in enumerate(again):
        data = unlazy.lab.draw_data(recipe)[seed]
        loss = Squared()(network(data.x), data.y)
        assert float(loss) == pytest.approx(float(run["train-loss"][seed, -1]), rel=1e-6)
