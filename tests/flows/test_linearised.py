"""The closed form against integration of the same linear model, and against the network it linearises."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from close import close
from unlazy._errors import UserError
from unlazy.data import Dataset
from unlazy.flows import GradientFlow, Linearised, RungeKutta
from unlazy.losses import Logistic, Squared
from unlazy.networks import RandomLayers, TangentModel, TwoLayer, ntk
from unlazy.probes import FeatureMovement, TestOutputs, TrainLoss, TrainOutputs

K1, K2, K3 = jax.random.split(jax.random.key(3), 3)
X, Y, Z = jax.random.normal(K1, (6, 3)), jax.random.normal(K2, (6,)), jax.random.normal(K3, (4, 3))
TIMES = [0.0, 0.5, 3.0, 20.0]


@pytest.mark.parametrize("loss", [Squared("mean"), Squared("sum"), Squared("mean", half=False)])
@pytest.mark.parametrize("weighted", [False, True])
def test_closed_form_is_the_integrated_tangent_model(loss, weighted):
    network = TwoLayer(10, 3, embedding=RandomLayers((8,)), train_readout=True, key=K1)
    data = Dataset(X, Y, Z, jnp.zeros(4), weight=jnp.linspace(0.5, 2, 6) if weighted else None)
    exact = Linearised(loss)(network, data, TIMES, [TrainOutputs(), TestOutputs()])
    solved = RungeKutta(loss, rtol=1e-10, atol=1e-11)(
        TangentModel(network), data, TIMES, [TrainOutputs(), TestOutputs()]
    )
    for probe in ("train-outputs", "test-outputs"):
        close(exact.observed[probe], solved.observed[probe], rel=1e-7, abs=1e-8)


def test_several_outputs():
    network = TwoLayer(10, 3, 2, key=K1)
    data = Dataset(X, jnp.stack([Y, Y**2], axis=1))
    exact = Linearised()(network, data, TIMES, [TrainOutputs()])
    solved = RungeKutta(rtol=1e-10, atol=1e-11)(TangentModel(network), data, TIMES, [TrainOutputs()])
    close(exact.observed["train-outputs"], solved.observed["train-outputs"], rel=1e-7, abs=1e-8)


def test_wide_ntk_networks_approach_it_and_features_stand_still():
    """Over widths, both the distance to the tangent model and the movement of features fall like m^-1/2."""
    data = Dataset(X, Y)
    gaps, moved, widths = [], [], [64, 256, 1024, 4096]
    for width in widths:
        network = TwoLayer(width, 3, scaling=ntk, symmetrised=True, key=K2)
        wide = GradientFlow()(network, data, [5.0], [TrainOutputs(), FeatureMovement()])
        lazy = Linearised()(network, data, [5.0], [TrainOutputs()])
        gaps.append(np.linalg.norm(wide.observed["train-outputs"] - lazy.observed["train-outputs"]))
        moved.append(wide.observed["feature-movement"]["hidden"][0])
    assert np.polyfit(np.log(widths), np.log(moved), 1)[0] == pytest.approx(-0.5, abs=0.1)
    assert np.polyfit(np.log(widths), np.log(gaps), 1)[0] < -0.4


def test_a_singular_kernel_leaves_its_null_direction_alone():
    twice = Dataset(jnp.concatenate([X, X[:1]]), jnp.concatenate([Y, Y[:1] + 1.0]))
    network = TwoLayer(50, 3, scaling=ntk, key=K1)
    loss = Linearised(Squared("sum"))(network, twice, [1e7], [TrainLoss()]).observed["train-loss"][-1]
    close(loss, 0.25, rel=1e-3)  # two equal inputs, targets 1 apart: ½ (½² + ½²)


def test_only_squared_loss_has_a_closed_form():
    with pytest.raises(UserError, match="GradientFlow on TangentModel"):
        Linearised(Logistic())(TwoLayer(4, 3, key=K1), Dataset(X, jnp.sign(Y)), [1.0])
