"""One tolerance: the flow chooses method, coordinates and precision, says so, and keeps its word."""

import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from close import close
from unlazy._errors import UserError
from unlazy._registry import kebab
from unlazy.activations import Gelu, Relu
from unlazy.data import Dataset, orthogonal_clusters
from unlazy.flows import Adam, Descent, Exponential, GradientFlow, RungeKutta
from unlazy.flows._compiled import layout
from unlazy.losses import Logistic
from unlazy.networks import Infinite, RandomLayers, TangentModel, TwoLayer
from unlazy.probes import TestOutputs

K1, K2 = jax.random.split(jax.random.key(5))
DATA = orthogonal_clusters(n=24, d=6, n_test=10, key=K1)


def p3l(activation, width=64, features=80):
    return TwoLayer(width, 6, embedding=RandomLayers((features,)), activation=activation, key=K2)


@pytest.mark.parametrize(
    ("flow", "network", "method", "coordinates"),
    [
        (GradientFlow(), p3l(Gelu()), "exponential", "gram"),
        (GradientFlow(), p3l(Relu()), "stabilised", "gram"),  # kinks
        (GradientFlow(), TwoLayer(8, 6, key=K2), "exponential", "weights"),  # n = 24 > 2 D = 12
        (GradientFlow(), TwoLayer(8, 6, embedding=Infinite(), key=K2), "exponential", "gram"),
        (GradientFlow(coordinates="weights"), p3l(Gelu()), "exponential", "weights"),
        (GradientFlow(Logistic()), p3l(Relu()), "stabilised", "gram"),
        (GradientFlow(method="stabilised"), p3l(Gelu()), "stabilised", "gram"),
        (GradientFlow(tolerance=1e-8), p3l(Gelu()), "runge-kutta", "gram"),
        (GradientFlow(), TangentModel(p3l(Gelu())), "exponential", "weights"),
        (Descent(), p3l(Gelu()), "descent", "gram"),
        (Descent(optimiser=Adam()), p3l(Gelu()), "descent", "weights"),
    ],
)
def test_the_choice_is_made(flow, network, method, coordinates):
    resolved = flow.resolve(network, DATA)
    assert (kebab(type(resolved).__name__), resolved.coordinates) == (method, coordinates)


def test_the_choice_is_said():
    run = GradientFlow()(p3l(Gelu()), DATA, [3.0])
    chosen = {"method": "exponential", "coordinates": "gram", "precision": "full"}
    assert chosen.items() <= run.stats.items()
    assert run.stats["evaluations"] >= 3 * run.stats["steps"] > 0
    assert 0 < run.stats["error"] < 1e-4 * run.stats["steps"]


@pytest.mark.parametrize("activation", [Gelu(), Relu()])
def test_the_whole_way_against_fine_descent(activation):
    times, network = [10.0, 100.0, 1000.0], p3l(activation, 256)
    run = GradientFlow(tolerance=1e-3)(network, DATA, times, [TestOutputs()])
    # First order in the step, which is far below the limit: its own error is some 1e-3 here.
    fine = Descent(rate=0.1)(network, DATA, times, [TestOutputs()])
    miss = np.sqrt(np.mean((run.observed["test-outputs"] - fine.observed["test-outputs"]) ** 2, axis=1))
    assert (miss < 1e-2).all(), miss
    assert run.stats["evaluations"] < 1000  # where descent makes 10,000


def test_mixed_precision_is_as_good_as_double():
    network, data = p3l(Gelu()), DATA
    full, mixed = (
        Exponential(tolerance=1e-4, precision=precision)(network, data, [1e4], [TestOutputs()]).observed["test-outputs"]
        for precision in ("full", "mixed")
    )
    assert 0 < np.abs(mixed - full).max() < 1e-5  # float32 products: some 1e-7 each, summed over neurons and steps
    assert mixed.dtype == np.float64


def test_slabs_change_nothing_but_memory():
    network = p3l(Gelu(), width=1000, features=200)
    whole = Exponential(tolerance=1e-3)
    run = whole(network, DATA, [500.0], [TestOutputs()])
    tight = Exponential(tolerance=1e-3, memory=0.0025)
    slab = layout(tight.resolve(network, DATA), network, DATA).slab
    assert layout(whole.resolve(network, DATA), network, DATA).slab is None
    assert slab is not None
    assert 256 <= slab < 1000
    less = tight(network, DATA, [500.0], [TestOutputs()])
    close(less.observed["test-outputs"], run.observed["test-outputs"], rel=1e-9, abs=1e-11)
    descent = [
        Descent(memory=m)(network, DATA, [5.0], [TestOutputs()]).observed["test-outputs"] for m in (None, 0.0025)
    ]
    close(descent[1], descent[0], rel=1e-9, abs=1e-11)


SHARED = """
import jax, numpy as np
jax.config.update("jax_enable_x64", True)
from unlazy import GradientFlow, Descent, RandomLayers, TwoLayer
from unlazy.activations import Gelu
from unlazy.data import orthogonal_clusters
from unlazy.probes import TestOutputs
k1, k2 = jax.random.split(jax.random.key(5))
data = orthogonal_clusters(n=24, d=6, n_test=10, key=k1)
network = TwoLayer(64, 6, embedding=RandomLayers((80,)), activation=Gelu(), key=k2)
for flow in (GradientFlow(tolerance=1e-3), Descent()):
    run = flow(network, data, [20.0], [TestOutputs()])
    print(len(run.run_state.state.trained.gram.coefficients.sharding.device_set), *run.observed["test-outputs"].ravel())
"""


def test_devices_share_the_neurons():
    seen = {}
    for count in (1, 4):
        flags = os.environ.get("XLA_FLAGS", "") + f" --xla_force_host_platform_device_count={count}"
        done = subprocess.run(
            [sys.executable, "-c", SHARED],
            env=os.environ | {"XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"},
            capture_output=True,
            text=True,
            check=True,
        )
        lines = [line.split() for line in done.stdout.splitlines()]
        assert [int(line[0]) for line in lines] == [count, count]
        seen[count] = np.array([[float(word) for word in line[1:]] for line in lines])
    close(seen[4], seen[1], rel=1e-9, abs=1e-11)


def test_going_on_with_another_tolerance():
    network = p3l(Gelu())
    run = GradientFlow(tolerance=1e-3)(network, DATA, [5.0])
    later = GradientFlow(tolerance=1e-5).extend(run, [20.0], [TestOutputs()])
    exact = RungeKutta(rtol=1e-9)(network, DATA, [20.0], [TestOutputs()])
    close(later.observed["test-outputs"], exact.observed["test-outputs"], abs=1e-2)
    assert later.stats["coordinates"] == "gram"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tolerance": 0.0}, "tolerance = 0.0 is not in range: give a number above 0"),
        ({"tolerance": float("nan")}, "not a finite number"),
        ({"memory": -1.0}, "memory = -1.0 is not in range: give a number above 0"),
        ({"memory": 1e-6}, "allowed by `memory`"),
        ({"devices": 1000}, "devices = 1000 is not possible"),
        ({"precision": "mixed", "coordinates": "weights"}, "precision='mixed' is for Gram"),
    ],
)
def test_bad_options_are_refused(options, message):
    with pytest.raises(UserError, match=message):
        GradientFlow(**options)(p3l(Gelu()), DATA, [1.0])


def test_what_does_not_fit_and_what_is_no_number_is_refused_before_work():
    with pytest.raises(UserError, match="needs about"):
        TwoLayer(10**9, 10_000, key=K1)
    x = DATA.x.at[3, 2].set(jnp.nan)
    with pytest.raises(UserError, match=r"NaN|finite"):
        GradientFlow()(p3l(Gelu()), Dataset(x, DATA.y), [1.0])
