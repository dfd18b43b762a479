"""A method that somebody else wrote: two functions, found by the registry and by `GradientFlow(method=...)`."""

import importlib
import itertools
import sys

import jax
import numpy as np
import pytest

from close import close
from unlazy import _registry
from unlazy._errors import UserError
from unlazy.activations import Gelu
from unlazy.data import Dataset
from unlazy.flows import Descent, Exponential, GradientFlow, RungeKutta, Stabilised, Status
from unlazy.lab import Lab, parse
from unlazy.losses import Logistic, Squared
from unlazy.networks import RandomLayers, TwoLayer
from unlazy.probes import TestOutputs, TrainLoss
from unlazy.testing import check_flow

SOURCE = """
import equinox as eqx
import jax
import jax.numpy as jnp

from unlazy.flows import Attempt, Method, State, velocity
from unlazy.losses import Loss, Squared


class Midpoint(Method):
    loss: Loss = Squared()
    dt: float = 0.05
    max_steps: int = 10_000
    coordinates: str = eqx.field(static=True, default="auto")

    def init(self, network, data, key):
        return State.initial(network, step=jnp.asarray(self.dt, data.dtype))

    def take_step(self, state, size, frozen, data):
        def moved(time, at):
            slope = velocity(at, frozen, data, self.loss)
            return jax.tree.map(lambda leaf, change: leaf + time * change, state.trained, slope)

        end = moved(size, moved(size / 2, state.trained))
        return Attempt(end, None, size, step=state.step, evaluations=2)
"""
K1, K2, K3 = jax.random.split(jax.random.key(3), 3)
DATA = Dataset(jax.random.normal(K1, (8, 3)), jax.random.normal(K2, (8,)), jax.random.normal(K3, (4, 3)), np.ones(4))
NETWORK = TwoLayer(12, 3, embedding=RandomLayers((20,)), activation=Gelu(), key=K3)
NUMBERS = itertools.count()


@pytest.fixture
def module(tmp_path, monkeypatch):
    name = f"own_method_{next(NUMBERS)}"
    (tmp_path / f"{name}.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(tmp_path)
    importlib.invalidate_caches()
    yield name
    sys.modules.pop(name, None)


def test_it_is_a_method_like_any_other(module):
    midpoint = importlib.import_module(module).Midpoint
    check_flow(midpoint(), NETWORK, DATA, end=1.0, tolerance=1e-4)
    run = midpoint()(NETWORK, DATA, [1.02, 3.0], [TestOutputs()])
    assert (run.stats["method"], run.stats["coordinates"]) == ("midpoint", "gram")
    # 20 whole steps and one that the first save time cuts, then 40.
    assert (run.stats["steps"], run.stats["evaluations"], run.status) == (61, 122, Status.finished)
    exact = RungeKutta(rtol=1e-10, atol=1e-12)(NETWORK, DATA, [1.02, 3.0], [TestOutputs()])
    close(run.observed["test-outputs"], exact.observed["test-outputs"], abs=1e-5)
    wild = midpoint(dt=1e6)(NETWORK, DATA, [1e9])
    assert wild.status is Status.not_finite
    assert np.isfinite(wild.final.w).all()
    limited = midpoint(max_steps=5)(NETWORK, DATA, [3.0])
    assert (limited.status, limited.stats["steps"]) == (Status.step_limit, 5)


def test_gradient_flow_takes_it_by_name_and_by_itself(module, monkeypatch):
    direct = importlib.import_module(module).Midpoint(coordinates="weights")(NETWORK, DATA, [1.0], [TestOutputs()])
    named = GradientFlow(method=f"{module}:Midpoint", coordinates="weights")
    itself = GradientFlow(method=importlib.import_module(module).Midpoint(coordinates="weights"))
    monkeypatch.setenv(_registry.VARIABLE, module)
    assert "midpoint" in _registry.members("flow")
    joined = GradientFlow(method="midpoint", coordinates="weights")
    for flow in (named, itself, joined):
        first = flow(NETWORK, DATA, [0.5], [TestOutputs()])
        run = flow.extend(first, [1.0], [TestOutputs()])
        close(run.observed["test-outputs"], direct.observed["test-outputs"], rel=1e-12)
        assert type(run.flow).__name__ == "Midpoint"
    loss = GradientFlow(Squared("sum"), method="midpoint")(NETWORK, DATA, [0.1]).flow.loss
    assert loss == Squared("sum")


def test_a_recipe_names_it(module, tmp_path):
    recipe = parse(
        {
            "data": {"kind": "random-labels", "n": 6, "d": 3},
            "network": {"kind": "two-layer", "width": 8},
            "flow": {"kind": "gradient-flow", "method": f"{module}:Midpoint"},
            "times": [0.0, 1.0],
            "probes": ["train-loss"],
        }
    )
    run = Lab(tmp_path).run(recipe)
    assert run.attrs["method"].startswith("midpoint")
    assert run["train-loss"].values[0, -1] < run["train-loss"].values[0, 0]


def test_options_that_would_be_lost_are_refused(module):
    for flow, option in (
        ({"method": f"{module}:Midpoint", "tolerance": 1e-3}, "tolerance"),
        ({"method": f"{module}:Midpoint", "memory": 1.0}, "memory"),
        ({"method": "descent", "tolerance": 1e-3}, "tolerance"),
        ({"method": Stabilised(), "loss": Logistic()}, "loss"),
        ({"method": Exponential(step=0.1), "max_steps": 5}, "max_steps"),
    ):
        with pytest.raises(UserError, match=f"cannot hand the option '{option}' on to the method"):
            GradientFlow(**flow)
    with pytest.raises(UserError, match="Did you mean 'stabilised'"):
        GradientFlow(method="stabilized")
    with pytest.raises(UserError, match="'gradient-flow' is not a method of integration"):
        GradientFlow(method="gradient-flow")
    with pytest.raises(UserError, match="3 is not a flow"):
        GradientFlow(method=3)


def test_a_run_is_continued_by_its_own_method_only(module):
    run = Descent()(NETWORK, DATA, [1.0])
    for flow in (GradientFlow(), GradientFlow(method=f"{module}:Midpoint"), Exponential()):
        with pytest.raises(UserError, match="A run by Descent cannot"):
            flow.extend(run, [2.0])
    smooth = GradientFlow(tolerance=1e-3)(NETWORK, DATA, [1.0], [TrainLoss()])
    later = GradientFlow(tolerance=1e-3, method="stabilised").extend(smooth, [2.0], [TrainLoss()])
    assert isinstance(later.flow, Exponential)  # with its memory intact
